/* SPDX-License-Identifier: Apache-2.0
 * Primitives of x86-64-v3: 256-bit vectors, fused multiply-add. */
#ifndef WGRAD_ISA_H
#define WGRAD_ISA_H

#include <stdint.h>

#include "unrolling.h"

#define LANES 8
#define REGISTERS 16
#define HAS_PARTIAL_VECTORS 1

typedef float vector __attribute__((vector_size(32)));
typedef int32_t lanes __attribute__((vector_size(32)));

static inline float multiply_add(float x, float y, float sum)
{
    return __builtin_fmaf(x, y, sum);
}

INLINE vector vector_multiply_add(vector x, vector y, vector sum)
{
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(x), "x"(y));
    return sum;
}

INLINE vector vector_broadcast(float x)
{
    return (vector){x, x, x, x, x, x, x, x};
}

/* Lane l is lane index[l] of x. */
INLINE vector vector_permute(vector x, lanes index)
{
    __asm__("vpermps %0, %1, %0" : "+x"(x) : "x"(index));
    return x;
}

INLINE lanes first_lanes(int64_t count)
{
    return (lanes){0, 1, 2, 3, 4, 5, 6, 7} < (int32_t)count;
}

/* The first count < LANES lanes; memory behind them is not touched, the other lanes are 0. */
INLINE vector vector_load_partial(const float *from, int64_t count)
{
    vector x;
    __asm__ volatile("vmaskmovps (%1), %2, %0" : "=x"(x) : "r"(from), "x"(first_lanes(count)) : "memory");
    return x;
}

INLINE void vector_store_partial(float *to, vector x, int64_t count)
{
    __asm__ volatile("vmaskmovps %1, %2, (%0)" : : "r"(to), "x"(x), "x"(first_lanes(count)) : "memory");
}

/* An empty instruction that wants v in a register: the compiler must not load it again for each use. */
#define KEEP_IN_REGISTER(v) __asm__("" : "+x"(v))

#endif
