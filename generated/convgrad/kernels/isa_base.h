/* SPDX-License-Identifier: Apache-2.0
 * Primitives of the base instruction set: x86-64-v2, and any other processor. No fused multiply-add, so a product is
 * rounded before it is added; -ffp-contract=off keeps the compiler from fusing where it could. */
#ifndef WGRAD_ISA_H
#define WGRAD_ISA_H

#include <stdint.h>

#include "unrolling.h"

#define LANES 4
#define REGISTERS 16

typedef float vector __attribute__((vector_size(16)));
typedef int32_t lanes __attribute__((vector_size(16)));

static inline float multiply_add(float x, float y, float sum)
{
    return sum + x * y;
}

INLINE vector vector_multiply_add(vector x, vector y, vector sum)
{
    return sum + x * y;
}

INLINE vector vector_broadcast(float x)
{
    return (vector){x, x, x, x};
}

/* Lane l is lane index[l] of x. */
INLINE vector vector_permute(vector x, lanes index)
{
#if defined(__SSSE3__)
    /* Times 0x04040404: the number of a lane's first byte, in each of its four bytes. */
    const lanes bytes = index * 0x04040404 + 0x03020100;
    __asm__("pshufb %1, %0" : "+x"(x) : "x"(bytes));
    return x;
#else
    return (vector){x[index[0]], x[index[1]], x[index[2]], x[index[3]]};
#endif
}

/* An empty instruction that wants v in a register: the compiler must not load it again for each use. */
#if defined(__SSE__)
#define KEEP_IN_REGISTER(v) __asm__("" : "+x"(v))
#else
#define KEEP_IN_REGISTER(v) (void)(v)
#endif

#endif
