/* SPDX-License-Identifier: Apache-2.0
 * The order of every sum. It is a function of the geometry alone, so that threads, tuning and compile-time sizes cannot
 * change a bit of any result, and it has no long chains, so that rounding errors stay near those of a single addition.
 *
 *   block    at most WGRAD_BLOCK consecutive positions of the plain tensor: a run of columns of one row, or, where rows
 *            are short, several whole rows. A chain: one addition after the other, in row-major order.
 *   ladder   rung 0 takes WGRAD_FAN_OUT block sums, then is added to rung 1 and starts again at zero; rung 1 takes
 *            WGRAD_FAN_OUT sums of rung 0; and so on. At the end the rungs are added, lowest first.
 *
 * The worst chain for data of one sign is 64 + 16 + 16 + ... additions, whatever the length of the sum. */
#ifndef WGRAD_SUMMATION_H
#define WGRAD_SUMMATION_H

#include <stdint.h>

enum {
    WGRAD_BLOCK = 64,
    WGRAD_FAN_OUT = 16,
    WGRAD_RUNGS = 10 /* 64 * 16^10 = 2^46 positions: more than memory can hold */
};

/* Columns of a row of OW positions that are in one block. */
static inline int64_t block_columns(int64_t OW)
{
    return OW < WGRAD_BLOCK ? OW : WGRAD_BLOCK;
}

/* Rows of OW positions that are in one block. */
static inline int64_t block_rows(int64_t OW)
{
    return WGRAD_BLOCK / block_columns(OW);
}

/* Rungs that a sum of this many blocks reaches. */
static inline int64_t ladder_rungs(int64_t blocks)
{
    int64_t rungs = 1;
    for (; blocks > WGRAD_FAN_OUT; blocks = (blocks + WGRAD_FAN_OUT - 1) / WGRAD_FAN_OUT)
        rungs++;
    return rungs < WGRAD_RUNGS ? rungs : WGRAD_RUNGS;
}

/* Add block number `block` (from 0) of `width` sums to the ladder, whose rungs are `width` floats each. */
static inline void ladder_add(float *ladder, int64_t rungs, int64_t width, int64_t block, const float *sum)
{
    for (int64_t i = 0; i < width; i++)
        ladder[i] += sum[i];
    int64_t filled = block + 1;
    for (int64_t rung = 0; rung + 1 < rungs && filled % WGRAD_FAN_OUT == 0; rung++, filled /= WGRAD_FAN_OUT) {
        float *const lower = ladder + rung * width;
        for (int64_t i = 0; i < width; i++) {
            lower[width + i] += lower[i];
            lower[i] = 0.0f;
        }
    }
}

/* The sum of all rungs, left in the lowest one. */
static inline void ladder_finish(float *ladder, int64_t rungs, int64_t width)
{
    for (int64_t rung = 1; rung < rungs; rung++)
        for (int64_t i = 0; i < width; i++)
            ladder[i] += ladder[rung * width + i];
}

#endif
