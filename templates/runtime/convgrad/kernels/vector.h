/* SPDX-License-Identifier: Apache-2.0
 * Vectors of any instruction set: loads, stores, and the transpose of LANES x LANES floats. */
#ifndef WGRAD_VECTOR_H
#define WGRAD_VECTOR_H

#include <stdint.h>

#include "isa.h"

typedef float vector_in_memory __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

INLINE vector vector_load(const float *from)
{
    return (vector) * (const vector_in_memory *)from;
}

INLINE void vector_store(float *to, vector x)
{
    *(vector_in_memory *)to = (vector_in_memory)x;
}

#ifndef HAS_SCALAR_OPERANDS
#define HAS_SCALAR_OPERANDS 0
/* sum + x * *y in every lane. */
INLINE vector vector_multiply_add_scalar(vector x, const float *y, vector sum)
{
    return vector_multiply_add(x, vector_broadcast(*y), sum);
}
#endif

#ifndef HAS_PARTIAL_VECTORS
/* The first count < LANES lanes; memory behind them is not touched, the other lanes are 0. */
INLINE vector vector_load_partial(const float *from, int64_t count)
{
    float lane[LANES] = {0};
    for (int64_t i = 0; i < count; i++)
        lane[i] = from[i];
    return vector_load(lane);
}

INLINE void vector_store_partial(float *to, vector x, int64_t count)
{
    float lane[LANES];
    vector_store(lane, x);
    for (int64_t i = 0; i < count; i++)
        to[i] = lane[i];
}
#endif

/* The first `count` lanes, or all of them; touches nothing behind them. */
INLINE vector vector_load_first(const float *from, int64_t count)
{
    return count >= LANES ? vector_load(from) : vector_load_partial(from, count);
}

INLINE void vector_store_first(float *to, vector x, int64_t count)
{
    if (count >= LANES)
        vector_store(to, x);
    else
        vector_store_partial(to, x, count);
}

/* The transpose goes by single floats, then by pairs, inside each 128-bit part, and then by whole parts. Shuffles of
 * single floats across the parts of a register (log2(LANES) perfect shuffles) take more than twice as long. */
#define SHUFFLE __builtin_shufflevector
#if LANES == 4
#define ONES_LOW 0, 4, 1, 5
#define ONES_HIGH 2, 6, 3, 7
#define PAIRS_LOW 0, 1, 4, 5
#define PAIRS_HIGH 2, 3, 6, 7
#elif LANES == 8
#define ONES_LOW 0, 8, 1, 9, 4, 12, 5, 13
#define ONES_HIGH 2, 10, 3, 11, 6, 14, 7, 15
#define PAIRS_LOW 0, 1, 8, 9, 4, 5, 12, 13
#define PAIRS_HIGH 2, 3, 10, 11, 6, 7, 14, 15
#define PARTS_EVEN 0, 1, 2, 3, 8, 9, 10, 11
#define PARTS_ODD 4, 5, 6, 7, 12, 13, 14, 15
#elif LANES == 16
#define ONES_LOW 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29
#define ONES_HIGH 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31
#define PAIRS_LOW 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define PAIRS_HIGH 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#define PARTS_EVEN 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27
#define PARTS_ODD 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31
#endif

/* Row r becomes what lane r of all rows was. */
INLINE void vector_transpose(vector row[LANES])
{
    vector t[LANES];
    UNROLL
    for (int i = 0; i < LANES; i += 2) {
        t[i] = SHUFFLE(row[i], row[i + 1], ONES_LOW);
        t[i + 1] = SHUFFLE(row[i], row[i + 1], ONES_HIGH);
    }
    UNROLL
    for (int i = 0; i < LANES; i += 4) {
        row[i] = SHUFFLE(t[i], t[i + 2], PAIRS_LOW);
        row[i + 1] = SHUFFLE(t[i], t[i + 2], PAIRS_HIGH);
        row[i + 2] = SHUFFLE(t[i + 1], t[i + 3], PAIRS_LOW);
        row[i + 3] = SHUFFLE(t[i + 1], t[i + 3], PAIRS_HIGH);
    }
#if LANES > 4
    UNROLL
    for (int half = 0; half < LANES; half += 8)
        UNROLL
        for (int i = half; i < half + 4; i++) {
            t[i] = SHUFFLE(row[i], row[i + 4], PARTS_EVEN);
            t[i + 4] = SHUFFLE(row[i], row[i + 4], PARTS_ODD);
        }
    UNROLL
    for (int i = 0; i < 8; i++) {
#if LANES == 8
        row[i] = t[i];
#else
        row[i] = SHUFFLE(t[i], t[i + 8], PARTS_EVEN);
        row[i + 8] = SHUFFLE(t[i], t[i + 8], PARTS_ODD);
#endif
    }
#endif
}

#endif
