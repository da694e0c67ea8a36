/* SPDX-License-Identifier: Apache-2.0
 * Generated from specs/vocabulary.py and templates/c/lanes.c.j2.
 * Do not edit: `python -m codegen generate` writes it again. */

/* Gradient of a 1-D convolution with respect to its weights, with channels of several groups in one vector.
 *
 *   windowed  NXC  [N][IW][G * W]   src of a convolution, diff_dst of a transposed one
 *   plain     NXC  [N][OW][G * P]   the other
 *   gradient  any strides  [G][P][W][KW]   every element is written
 *
 *   gradient[g][p][w][kw] = sum over n, ow of
 *       plain[n][ow][g * P + p] * windowed[n][iw][g * W + w]
 *       iw = ow * stride_w + kw * dilation_w - pad_w
 *
 * Elements are f32 (IEEE 754 binary32).
 * Positions outside the windowed tensor do not take part: loops are clipped, nothing is multiplied by padding.
 * Sums are taken in the order that summation.h fixes, so tiles, packing and work items change no bit.
 * Requires every extent but N, and every stride and dilation, to be at least 1, and the schedule's fields as
 * convgrad/planner.py works them out.
 * Also requires P <= LANES and W <= LANES.
 *
 * A vector holds the plain channels of LANES / max(P, W) groups, and meets the windowed channels of the same groups.
 * Accumulators are taps (TAP_H rows of TAP_W) by windowed channels (CHANNELS of W) by VECTORS vectors. A work item is a
 * run of VECTORS vectors' groups, in one slab of the sum. Scratch: see carve_scratch. */
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
#include "lanes.h"

/* Where the rows of group number `index` begin, in the plain tensor and, for each row of taps, in the windowed one. */
static void find_rows(const wgrad_geometry *geometry, int64_t index, row_group *group)
{
    begin_group(geometry, index, group);
    const int64_t PC = GROUPS * PLAIN, WC = GROUPS * WINDOWED, image_rows = 1;
    int64_t *windowed_row = group->windowed_row;
    int64_t *input_row = group->input_row;
    for (int64_t r = 0; r < group->rows; r++) {
        const int64_t row = group->first_row + r, n = row / image_rows;
        group->plain_row[r] = row * OW * PC;
        const int inside = 1;
        *input_row++ = n;
        *windowed_row++ = inside ? n * IW * WC : OUTSIDE;
    }
}

/* One run of tiles, over the groups of positions of one slab. */
static void run_item(const wgrad_geometry *geometry, const float *plain, const float *windowed, float *out,
                     scratch_parts *scratch, int64_t first_tile, int64_t end_tile, int64_t first_group,
                     int64_t end_group)
{
    row_group *const group = &scratch->tables.group;
    for (int64_t index = first_group; index < end_group; index++) {
        find_rows(geometry, index, group);
        for (int64_t turn = 0, end; turn == 0 || turn < group->rows; turn = end) {
            end = larger(1, smaller(group->rows, turn + geometry->turn_rows)); /* a batch of none has a turn, too */
            for (int64_t t = first_tile; t < end_tile; t++) {
                tile_job job = begin_tile(geometry, scratch, t);
                place_tile(geometry, scratch, &job, index == first_group || geometry->tiles > 1, plain, windowed);
                const int64_t size = tile_size(geometry), used = size / VECTORS * job.vectors;
                float *const sums = scratch->sums + (t - first_tile) * size;
                run_tile(geometry, group, &job, turn, end, sums);
                prefetch_turn(geometry, group, end, t - first_tile, end_tile - first_tile, plain, windowed);
                if (end < group->rows)
                    continue;
                const float *const whole
                    = ladder_add(sums, scratch->ladder + (t - first_tile) * size, geometry->tiles * size, used,
                                 index - first_group, end_group - first_group - 1);
                if (whole)
                    store_tile(geometry, &job, out, whole);
            }
        }
    }
}

void wgrad_1d_nxc_f32_lanes(const wgrad_geometry *geometry, const void *plain, const void *windowed, void *out,
    void *scratch_memory, int64_t first, int64_t last);

void wgrad_1d_nxc_f32_lanes(const wgrad_geometry *geometry, const void *plain, const void *windowed, void *out,
    void *scratch_memory, int64_t first, int64_t last)
{
    assert(is_valid(geometry));
    assert(PLAIN <= LANES && WINDOWED <= LANES);
    const int64_t groups = count_groups(geometry), slab_groups = smaller(geometry->slab_groups, groups);
    const int64_t tiles = ceil_divide(GROUPS, VECTORS * VECTOR_GROUPS), runs = ceil_divide(tiles, geometry->tiles);
    scratch_parts scratch = carve_scratch(geometry, scratch_memory);
    assert(0 <= first && first <= last && last <= ceil_divide(groups, slab_groups) * runs);

    for (int64_t item = first; item < last; item++) {
        const int64_t slab = item / runs, first_tile = item % runs * geometry->tiles, first_group = slab * slab_groups;
        run_item(geometry, plain, windowed, (float *)out + slab * geometry->out_slab, &scratch, first_tile,
                 smaller(tiles, first_tile + geometry->tiles), first_group, smaller(groups, first_group + slab_groups));
    }
}
