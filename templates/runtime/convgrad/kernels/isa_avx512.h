/* SPDX-License-Identifier: Apache-2.0
 * Primitives of x86-64-v4: 512-bit vectors, fused multiply-add, masks, 32 registers. */
#ifndef WGRAD_ISA_H
#define WGRAD_ISA_H

#include <immintrin.h>
#include <stdint.h>

#include "unrolling.h"

#define LANES 16
#define REGISTERS 32
#define HAS_PARTIAL_VECTORS 1

typedef float vector __attribute__((vector_size(64)));
typedef int32_t lanes __attribute__((vector_size(64)));

static inline float multiply_add(float x, float y, float sum)
{
    return __builtin_fmaf(x, y, sum);
}

INLINE vector vector_multiply_add(vector x, vector y, vector sum)
{
    return (vector)_mm512_fmadd_ps((__m512)x, (__m512)y, (__m512)sum);
}

INLINE vector vector_broadcast(float x)
{
    return (vector)_mm512_set1_ps(x);
}

/* Lane l is lane index[l] of x. */
INLINE vector vector_permute(vector x, lanes index)
{
    return (vector)_mm512_permutexvar_ps((__m512i)index, (__m512)x);
}

INLINE __mmask16 first_lanes(int64_t count)
{
    return (__mmask16)((1u << count) - 1u);
}

/* The first count < LANES lanes; memory behind them is not touched, the other lanes are 0. */
INLINE vector vector_load_partial(const float *from, int64_t count)
{
    return (vector)_mm512_maskz_loadu_ps(first_lanes(count), from);
}

INLINE void vector_store_partial(float *to, vector x, int64_t count)
{
    _mm512_mask_storeu_ps(to, first_lanes(count), (__m512)x);
}

/* An empty instruction that wants v in a register: the compiler must not load it again for each use. */
#define KEEP_IN_REGISTER(v) __asm__("" : "+v"(v))

#endif
