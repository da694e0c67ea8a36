/* SPDX-License-Identifier: Apache-2.0
 * Primitives of aarch64: 128-bit vectors, fused multiply-add, 32 registers. */
#ifndef WGRAD_ISA_H
#define WGRAD_ISA_H

#include <stdint.h>

#include "unrolling.h"

#define LANES 4
#define REGISTERS 32

typedef float vector __attribute__((vector_size(16)));
typedef int32_t lanes __attribute__((vector_size(16)));

static inline float multiply_add(float x, float y, float sum)
{
    return __builtin_fmaf(x, y, sum);
}

INLINE vector vector_multiply_add(vector x, vector y, vector sum)
{
    __asm__("fmla %0.4s, %1.4s, %2.4s" : "+w"(sum) : "w"(x), "w"(y));
    return sum;
}

INLINE vector vector_broadcast(float x)
{
    return (vector){x, x, x, x};
}

/* Lane l is lane index[l] of x. */
INLINE vector vector_permute(vector x, lanes index)
{
    /* Times 0x04040404: the number of a lane's first byte, in each of its four bytes. */
    const lanes bytes = index * 0x04040404 + 0x03020100;
    __asm__("tbl %0.16b, {%0.16b}, %1.16b" : "+w"(x) : "w"(bytes));
    return x;
}

/* An empty instruction that wants v in a register: the compiler must not load it again for each use. */
#define KEEP_IN_REGISTER(v) __asm__("" : "+w"(v))

#endif
