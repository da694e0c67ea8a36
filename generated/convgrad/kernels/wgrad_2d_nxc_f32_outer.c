/* SPDX-License-Identifier: Apache-2.0
 * Generated from specs/vocabulary.py and templates/c/outer.c.j2.
 * Do not edit: `python -m codegen generate` writes it again. */

/* Gradient of a 2-D convolution with respect to its weights, by outer products of channels.
 *
 *   windowed  NXC  [N][IH][IW][G * W]   src of a convolution, diff_dst of a transposed one
 *   plain     NXC  [N][OH][OW][G * P]   the other
 *   gradient  any strides  [G][P][W][KH][KW]   every element is written
 *
 *   gradient[g][p][w][kh][kw] = sum over n, oh, ow of
 *       plain[n][oh][ow][g * P + p] * windowed[n][ih][iw][g * W + w]
 *       ih = oh * stride_h + kh * dilation_h - pad_h
 *       iw = ow * stride_w + kw * dilation_w - pad_w
 *
 * Elements are f32 (IEEE 754 binary32).
 * Positions outside the windowed tensor do not take part: loops are clipped, nothing is multiplied by padding.
 * Sums are taken in the order that summation.h fixes, so tiles, packing and work items change no bit.
 * Requires every extent but N, and every stride and dilation, to be at least 1, and the schedule's fields as
 * convgrad/planner.py works them out.
 *
 * A register tile is ROWS rows, channels of one tensor that are broadcast, by VECTORS vectors of the other's channels:
 *   EXCHANGED 0   vectors of plain channels; rows are windowed channels or, where these are few, (tap, channel) pairs
 *   EXCHANGED 1   vectors of windowed channels; rows are plain channels
 * A work item is a run of vector tiles of one channel group, in one slab of the sum. Scratch: see carve_scratch. */
#include <assert.h>
#include <stdint.h>

#include "wgrad_geometry.h"
#include "sizes.h"
#include "rows.h"

/* The layout of both tensors, for the headers that follow: elements from one position of a row to the next (STEP), and
 * from one channel of a position to the next (CHANNEL). */
#define CHANNELS_LAST 1
#define PLAIN_STEP (GROUPS * PLAIN)
#define PLAIN_CHANNEL 1
#define WINDOWED_STEP (GROUPS * WINDOWED)
#define WINDOWED_CHANNEL 1
#include "packing.h"
#include "outer.h"

/* Where the rows of group number `index` begin, in the plain tensor and, for each row of taps, in the windowed one. */
static void find_rows(const wgrad_geometry *geometry, int64_t index, row_group *group)
{
    begin_group(geometry, index, group);
    const int64_t PC = GROUPS * PLAIN, WC = GROUPS * WINDOWED, image_rows = OH;
    int64_t *windowed_row = group->windowed_row;
    int64_t *input_row = group->input_row;
    for (int64_t r = 0; r < group->rows; r++) {
        const int64_t row = group->first_row + r, n = row / image_rows;
        const int64_t oh = row % OH;
        group->plain_row[r] = row * OW * PC;
        for (int64_t kh = 0; kh < KH; kh++) {
            const int64_t ih = oh * STRIDE_H + kh * DILATION_H - PAD_H;
            const int inside = ih >= 0 && ih < IH;
            *input_row++ = (n * IH + ih);
            *windowed_row++ = inside ? (n * IH + ih) * IW * WC : OUTSIDE;
        }
    }
}

/* One run of vector tiles, over the groups of one slab. */
static void run_item(const wgrad_geometry *geometry, const float *plain, const float *windowed, float *out,
                     scratch_parts *scratch, int64_t g, int64_t first_tile, int64_t end_tile, int64_t first_group,
                     int64_t end_group)
{
    row_tables *const tables = &scratch->tables;
    for (int64_t index = first_group; index < end_group; index++) {
        find_rows(geometry, index, &tables->group);
        for (int64_t first = 0, end; first < SPAN; first = end) {
            end = strip_end(geometry, first);
            const int fresh = index == first_group || first > 0 || end < SPAN; /* else the cache holds this strip */
            const view rows = place_rows(geometry, tables, g, first, end, fresh, windowed);
            for (int64_t t = first_tile; t < end_tile; t++) {
                tile_job job = begin_tile(geometry, scratch, t);
                job.first = first;
                job.end = end;
                job.index = index - first_group;
                job.last = end_group - first_group - 1;
                job.out = out;
                job.ladder = scratch->ladder + (t - first_tile) * tile_size(geometry);
                job.plain = (view){plain + g * PLAIN * PLAIN_CHANNEL, tables->group.plain_row, PLAIN_STEP};
                job.windowed = rows;
                place_vectors(geometry, scratch, &job, g, t - first_tile, index == first_group || geometry->tiles > 1,
                              plain, windowed);
                run_tile(geometry, &tables->group, &job);
            }
        }
    }
}

void wgrad_2d_nxc_f32_outer(const wgrad_geometry *geometry, const void *plain, const void *windowed, void *out,
    void *scratch_memory, int64_t first, int64_t last);

void wgrad_2d_nxc_f32_outer(const wgrad_geometry *geometry, const void *plain, const void *windowed, void *out,
    void *scratch_memory, int64_t first, int64_t last)
{
    assert(is_valid(geometry));
    const int64_t groups = count_groups(geometry), slab_groups = smaller(geometry->slab_groups, groups);
    const int64_t tiles = ceil_divide(EXCHANGED ? WINDOWED : PLAIN, VECTORS * LANES);
    const int64_t runs = ceil_divide(tiles, geometry->tiles);
    scratch_parts scratch = carve_scratch(geometry, scratch_memory);
    assert(0 <= first && first <= last && last <= ceil_divide(groups, slab_groups) * GROUPS * runs);

    for (int64_t item = first; item < last; item++) {
        const int64_t slab = item / (GROUPS * runs), g = item / runs % GROUPS, run = item % runs;
        const int64_t first_group = slab * slab_groups, first_tile = run * geometry->tiles;
        run_item(geometry, plain, windowed, (float *)out + slab * geometry->out_slab + g * geometry->out_group,
                 &scratch, g, first_tile, smaller(tiles, first_tile + geometry->tiles), first_group,
                 smaller(groups, first_group + slab_groups));
    }
}
