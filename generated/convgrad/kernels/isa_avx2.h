/* SPDX-License-Identifier: Apache-2.0
 * Primitives of x86-64-v3: 256-bit vectors, fused multiply-add. */
#ifndef WGRAD_ISA_H
#define WGRAD_ISA_H

#include <immintrin.h>
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
    return (vector)_mm256_fmadd_ps((__m256)x, (__m256)y, (__m256)sum);
}

INLINE vector vector_broadcast(float x)
{
    return (vector)_mm256_set1_ps(x);
}

/* Lane l is lane index[l] of x. */
INLINE vector vector_permute(vector x, lanes index)
{
    return (vector)_mm256_permutevar8x32_ps((__m256)x, (__m256i)index);
}

INLINE __m256i first_lanes(int64_t count)
{
    const __m256i number = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count), number);
}

/* The first count < LANES lanes; memory behind them is not touched, the other lanes are 0. */
INLINE vector vector_load_partial(const float *from, int64_t count)
{
    return (vector)_mm256_maskload_ps(from, first_lanes(count));
}

INLINE void vector_store_partial(float *to, vector x, int64_t count)
{
    _mm256_maskstore_ps(to, first_lanes(count), (__m256)x);
}

/* An empty instruction that wants v in a register: the compiler must not load it again for each use. */
#define KEEP_IN_REGISTER(v) __asm__("" : "+x"(v))

#endif
