/* SPDX-License-Identifier: Apache-2.0
 * Both tensors seen row by row: where the rows of one group begin, and which of their columns a tap meets. With tables
 * of rows it makes no difference to a microkernel how many axes there are, where images end, and what was packed. */
#ifndef WGRAD_ROWS_H
#define WGRAD_ROWS_H

#include <stdint.h>

#include "clipping.h"
#include "sizes.h"
#include "summation.h"

/* In place of a row's offset: the row lies in the padding. */
#define OUTSIDE INT64_MIN

/* A tensor by rows: column c of row r starts at base[row[r] + c * step]. */
typedef struct view {
    const float *base;
    const int64_t *row;
    int64_t step;
} view;

/* The positions of one group, and where they are in both tensors. */
typedef struct row_group {
    int64_t first_row, rows, first_column, columns;
    int64_t *plain_row;    /* [rows]: offset of column 0, channel 0 */
    int64_t *windowed_row; /* [rows][TAP_ROWS]: offset of column 0, channel 0, or OUTSIDE */
    int64_t *input_row;    /* [rows][TAP_ROWS]: number of the row in the windowed tensor */
} row_group;

/* The positions of one block, and where they begin in both tensors. */
typedef struct sum_block {
    int64_t rows, first, end; /* columns first..end-1 of each row */
    view plain, windowed;
} sum_block;

/* What kernels require, for their asserts. */
static inline int is_valid(const wgrad_geometry *geometry)
{
    int valid = geometry->N >= 0 && GROUPS >= 1 && PLAIN >= 1 && WINDOWED >= 1;
    for (int axis = 0; axis < 3; axis++)
        valid = valid && geometry->O[axis] >= 1 && geometry->I[axis] >= 1 && geometry->K[axis] >= 1
                && geometry->stride[axis] >= 1 && geometry->dilation[axis] >= 1 && geometry->pad[axis] >= 0;
    return valid && geometry->block_rows >= 1 && geometry->block_columns >= 1 && geometry->group_rows >= 1
           && geometry->group_columns >= 1 && geometry->tiles >= 1 && geometry->slab_groups >= 1;
}

/* Which positions a group has; its tables are filled by find_rows, which knows the rank. */
static inline void begin_group(const wgrad_geometry *geometry, int64_t index, row_group *group)
{
    const int64_t in_row = groups_of_row(geometry);
    group->first_row = index / in_row * geometry->group_rows;
    group->rows = smaller(geometry->group_rows, geometry->N * OD * OH - group->first_row);
    group->first_column = index % in_row * geometry->group_columns;
    group->columns = smaller(geometry->group_columns, OW - group->first_column);
}

/* The block of a group that begins at its row r and column c. */
static inline sum_block find_block(const wgrad_geometry *geometry, const row_group *group, view plain, view windowed,
                                   int64_t r, int64_t c)
{
    sum_block block = {.plain = plain, .windowed = windowed};
    block.plain.row += r;
    block.windowed.row += r * TAP_ROWS;
    block.rows = smaller(geometry->block_rows, group->rows - r);
    block.first = group->first_column + c;
    block.end = group->first_column + smaller(c + geometry->block_columns, group->columns);
    return block;
}

/* The first ow at which tap kw is inside the windowed tensor, and one past the last. */
INLINE int64_t first_inside(const wgrad_geometry *geometry, int64_t kw)
{
    return smaller(OW, first_position(kw * DILATION_W - PAD_W, STRIDE_W));
}

INLINE int64_t end_inside(const wgrad_geometry *geometry, int64_t kw)
{
    return end_position(kw * DILATION_W - PAD_W, STRIDE_W, IW, OW);
}

/* Where tap number t of a gradient is stored. */
INLINE int64_t tap_offset(const wgrad_geometry *geometry, int64_t t)
{
    return t / (KH * KW) * geometry->out_tap[0] + t / KW % KH * geometry->out_tap[1] + t % KW * geometry->out_tap[2];
}

/* Whether windowed channels and in each of these its taps follow each other in the gradient: [W][taps]. */
INLINE int taps_are_adjacent(const wgrad_geometry *geometry)
{
    return (WINDOWED == 1 || geometry->out_windowed == TAP_ROWS * KW) && (KW == 1 || geometry->out_tap[2] == 1)
           && (KH == 1 || geometry->out_tap[1] == KW) && (KD == 1 || geometry->out_tap[0] == KH * KW);
}

/* Transpose sums in registers and store them: for each lane a run of (row, tap), whose sums are [tap][row][lane]. */
static inline void store_runs(float *to, int64_t lane_step, int64_t lanes_used, int64_t rows, int64_t taps,
                              const float *sums, int64_t pitch)
{
    const int64_t run = rows * taps;
    for (int64_t lane = 0; lane < lanes_used; lane += LANES) {
        const float *from = sums + lane;
        int64_t tap = 0; /* counted: a division for each vector would take longer than all else */
        for (int64_t q = 0; q < run; q += LANES) {
            vector line[LANES];
            for (int c = 0; c < LANES; c++) {
                line[c] = vector_load(from);
                if (q + c + 1 >= run)
                    continue;
                tap++;
                from += rows * pitch;
                if (tap == taps) {
                    tap = 0;
                    from -= (run - 1) * pitch;
                }
            }
            vector_transpose(line);
            UNROLL
            for (int c = 0; c < LANES; c++)
                if (lane + c < lanes_used)
                    vector_store_first(to + (lane + c) * lane_step + q, line[c], run - q);
        }
    }
}

/* Store `count` <= LANES sums at out[i * step]. */
INLINE void store_lanes(const wgrad_geometry *geometry, float *out, int64_t step, const float *sums, int64_t count)
{
    if (geometry->accumulate)
        for (int64_t i = 0; i < count; i++)
            out[i * step] += sums[i];
    else if (step == 1)
        vector_store_first(out, vector_load(sums), count);
    else
        for (int64_t i = 0; i < count; i++)
            out[i * step] = sums[i];
}

#endif
