/* SPDX-License-Identifier: Apache-2.0
 * Primitives of x86-64-v4: 512-bit vectors, fused multiply-add, masks, 32 registers. */
#ifndef WGRAD_ISA_H
#define WGRAD_ISA_H

#include <stdint.h>

#include "unrolling.h"

#define LANES 16
#define REGISTERS 32
#define HAS_PARTIAL_VECTORS 1
#define HAS_SCALAR_OPERANDS 1

typedef float vector __attribute__((vector_size(64)));
typedef int32_t lanes __attribute__((vector_size(64)));

static inline float multiply_add(float x, float y, float sum)
{
    return __builtin_fmaf(x, y, sum);
}

INLINE vector vector_multiply_add(vector x, vector y, vector sum)
{
    __asm__("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y));
    return sum;
}

INLINE vector vector_broadcast(float x)
{
    return (vector){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
}

/* sum + x * *y in every lane. One instruction, so for one use it is better than a broadcast. */
INLINE vector vector_multiply_add_scalar(vector x, const float *y, vector sum)
{
    __asm__("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(x), "m"(*y));
    return sum;
}

/* Lane l is lane index[l] of x. */
INLINE vector vector_permute(vector x, lanes index)
{
    __asm__("vpermps %0, %1, %0" : "+v"(x) : "v"(index));
    return x;
}

INLINE uint16_t first_lanes(int64_t count)
{
    return (uint16_t)((1u << count) - 1u);
}

/* The first count < LANES lanes; memory behind them is not touched, the other lanes are 0. */
INLINE vector vector_load_partial(const float *from, int64_t count)
{
    vector x;
    __asm__ volatile("vmovups (%1), %0%{%2%}%{z%}" : "=v"(x) : "r"(from), "Yk"(first_lanes(count)) : "memory");
    return x;
}

INLINE void vector_store_partial(float *to, vector x, int64_t count)
{
    __asm__ volatile("vmovups %1, (%0)%{%2%}" : : "r"(to), "v"(x), "Yk"(first_lanes(count)) : "memory");
}

/* An empty instruction that wants v in a register: the compiler must not load it again for each use. */
#define KEEP_IN_REGISTER(v) __asm__("" : "+v"(v))

#endif
