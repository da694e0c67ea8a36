/* SPDX-License-Identifier: Apache-2.0
 * Microkernels are functions of small constant extents: inlined where the constants are known, and unrolled, so that
 * their arrays of vectors live in registers. */
#ifndef WGRAD_UNROLLING_H
#define WGRAD_UNROLLING_H

#define INLINE static inline __attribute__((always_inline))

#define WGRAD_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define UNROLL WGRAD_PRAGMA(unroll)
#else
#define UNROLL WGRAD_PRAGMA(GCC unroll 64)
#endif

/* An empty instruction that wants p in a register: the compiler knows nothing of its value. */
#define KEEP_POINTER(p) __asm__("" : "+r"(p))

#endif
