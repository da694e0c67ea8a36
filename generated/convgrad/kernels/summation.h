/* SPDX-License-Identifier: Apache-2.0
 * The order of every sum. It is a function of the geometry alone, so that threads, tuning and compile-time sizes cannot
 * change a bit of any result, and it has no long chains, so that rounding errors stay near those of a single addition.
 *
 *   block    block_rows rows of the plain tensor, or block_columns columns of one row: at most 80 positions. A chain of
 *            multiply-adds that starts at zero, in row-major order; positions that a tap finds outside the windowed
 *            tensor are left out.
 *   group    group_rows rows, or group_columns columns of one row: at most 16 blocks. Block sums are added one after
 *            the other.
 *   ladder   sums of 16 groups are added one after the other, then sums of 16 of those, and so on.
 *
 * The four extents are fields of the geometry; convgrad/summation.py derives them from N and O. The worst chain for
 * data of one sign is 80 + 16 + 16 + ... additions, however long the sum. Without positions the sum is zero. */
#ifndef WGRAD_SUMMATION_H
#define WGRAD_SUMMATION_H

#include <stddef.h>
#include <stdint.h>

#include "vector.h"
#include "wgrad_geometry.h"

enum { WGRAD_FAN_OUT = 16 };

static inline int64_t ceil_divide(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline int64_t round_up(int64_t a, int64_t b)
{
    return ceil_divide(a, b) * b;
}

/* Groups that one row is cut into. */
static inline int64_t groups_of_row(const wgrad_geometry *geometry)
{
    return ceil_divide(geometry->O[2], geometry->group_columns);
}

/* Groups of all positions; one, of no rows, when the batch is empty. */
static inline int64_t count_groups(const wgrad_geometry *geometry)
{
    const int64_t rows = geometry->N * geometry->O[0] * geometry->O[1];
    return rows == 0 ? 1 : ceil_divide(rows, geometry->group_rows) * groups_of_row(geometry);
}

/* Levels of the ladder over this many groups; none for one group, whose sum is the result. */
static inline int64_t ladder_levels(int64_t groups)
{
    int64_t levels = 0;
    for (int64_t left = groups - 1; left > 0; left /= WGRAD_FAN_OUT)
        levels++;
    return levels;
}

/* Add the sums of group number `index`, of `last` + 1, to the ladder: `count` floats, a multiple of LANES, on levels
 * `level_size` floats apart. The first of each level's addends is stored, so that nothing has to be cleared.
 *
 * Returns where the whole sums are, after the last group, and NULL before. */
static inline float *ladder_add(float *sums, float *ladder, int64_t level_size, int64_t count, int64_t index,
                                int64_t last)
{
    float *from = sums;
    for (; last > 0; last /= WGRAD_FAN_OUT, index /= WGRAD_FAN_OUT, ladder += level_size) {
        if (index % WGRAD_FAN_OUT == 0)
            for (int64_t i = 0; i < count; i += LANES)
                vector_store(ladder + i, vector_load(from + i));
        else
            for (int64_t i = 0; i < count; i += LANES)
                vector_store(ladder + i, vector_load(ladder + i) + vector_load(from + i));
        if (index != last && index % WGRAD_FAN_OUT != WGRAD_FAN_OUT - 1)
            return NULL;
        from = ladder;
    }
    return from;
}

#endif
