/* SPDX-License-Identifier: Apache-2.0
 * Padding by clipping. A tap reads the windowed tensor at o * stride + shift, with shift = k * dilation - pad;
 * positions outside the tensor are left out of the loop rather than multiplied by zero, so they cost nothing and a NaN
 * or an infinity opposite to them stays out of the sum. */
#ifndef WGRAD_CLIPPING_H
#define WGRAD_CLIPPING_H

#include <stdint.h>

static inline int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The first o >= 0 with o * stride + shift >= 0. */
static inline int64_t first_position(int64_t shift, int64_t stride)
{
    return shift >= 0 ? 0 : (-shift + stride - 1) / stride;
}

/* One past the last o < O with o * stride + shift < I; at most `first_position` when there is none. */
static inline int64_t end_position(int64_t shift, int64_t stride, int64_t I, int64_t O)
{
    return shift >= I ? 0 : smaller(O, (I - 1 - shift) / stride + 1);
}

#endif
