/* SPDX-License-Identifier: Apache-2.0
 * Generated from specs/vocabulary.py and templates/c/direct.c.j2.
 * Do not edit: `python -m codegen generate` writes it again. */

/* Gradient of a 2-D convolution with respect to its weights, a tile of channels at a time.
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
 * G groups of P plain and W windowed channels. Elements are f16 (IEEE 754 binary16).
 * Positions outside the windowed tensor do not take part: loops are clipped, nothing is multiplied by padding.
 * Sums are float, in the order that summation.h fixes; each is rounded to its element type once, at the end.
 * Requires every extent but N, and every stride and dilation, to be at least 1. A work item is one tile of one group.
 * Scratch: the ladder, ladder_levels * TILE floats. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "wgrad_geometry.h"
#include "element_f16.h"
#include "isa.h"
#include "clipping.h"
#include "summation.h"
#include "store.h"

enum { PLAIN_TILE = 8, WINDOWED_TILE = 4, TILE = PLAIN_TILE * WINDOWED_TILE };

/* The outer product of one position, added to the tile. The counts are constants in a whole tile, and the compiler
 * unrolls it. */
static inline void add_position(float *sum, const element *plain, int64_t plain_channel, const element *windowed,
                                int64_t windowed_channel, int64_t plain_count, int64_t windowed_count)
{
    float y[PLAIN_TILE];
    for (int64_t p = 0; p < plain_count; p++)
        y[p] = element_to_float(plain[p * plain_channel]);
    for (int64_t w = 0; w < windowed_count; w++) {
        const float x = element_to_float(windowed[w * windowed_channel]);
        for (int64_t p = 0; p < plain_count; p++)
            sum[w * PLAIN_TILE + p] = multiply_add(x, y[p], sum[w * PLAIN_TILE + p]);
    }
}

/* Columns ow..end_ow-1 of one row, added to the tile. */
static inline void add_row(const wgrad_geometry *geometry, const element *plain, const element *windowed,
                           int64_t kh, int64_t kw,
                           int64_t row, int64_t ow, int64_t end_ow, int64_t plain_count, int64_t windowed_count,
                           float *sum)
{
    const int64_t PC = geometry->G * geometry->P, WC = geometry->G * geometry->W;
    const int64_t OH = geometry->O[1], IH = geometry->I[1];
    const int64_t stride_h = geometry->stride[1];
    const int64_t shift_h = kh * geometry->dilation[1] - geometry->pad[1];
    const int64_t OW = geometry->O[2], IW = geometry->I[2];
    const int64_t stride_w = geometry->stride[2];
    const int64_t shift_w = kw * geometry->dilation[2] - geometry->pad[2];
    const int64_t image_rows = OH, n = row / image_rows;
    const int64_t plain_channel = 1, plain_position = PC;
    const int64_t windowed_channel = 1, windowed_position = WC;
    const int64_t oh = row % OH;
    const int64_t ih = oh * stride_h + shift_h;
    if (ih < 0 || ih >= IH)
        return;
    const element *const plain_row = plain + row * OW * PC;
    const element *const windowed_row = windowed + (n * IH + ih) * IW * WC;
    for (; ow < end_ow; ow++)
        add_position(sum, plain_row + ow * plain_position, plain_channel,
                     windowed_row + (ow * stride_w + shift_w) * windowed_position, windowed_channel, plain_count,
                     windowed_count);
}

/* The sum of one tap over all positions, for a tile that begins at the channels the two pointers stand on. */
static inline void sum_tap(const wgrad_geometry *geometry, const element *plain, const element *windowed,
                           int64_t kh, int64_t kw,
                           int64_t plain_count, int64_t windowed_count, float *ladder, float *result)
{
    const int64_t OW = geometry->O[2], IW = geometry->I[2], stride_w = geometry->stride[2];
    const int64_t shift_w = kw * geometry->dilation[2] - geometry->pad[2];
    const int64_t first_ow = first_position(shift_w, stride_w), end_ow = end_position(shift_w, stride_w, IW, OW);
    const int64_t rows = geometry->N * geometry->O[1];
    const int64_t groups = count_groups(geometry), in_row = groups_of_row(geometry);

    for (int64_t index = 0; index < groups; index++) {
        const int64_t first_row = index / in_row * geometry->group_rows, ow0 = index % in_row * geometry->group_columns;
        const int64_t end_row = smaller(first_row + geometry->group_rows, rows);
        const int64_t end_column = smaller(ow0 + geometry->group_columns, OW);
        float group_sum[TILE] = {0};
        for (int64_t row = first_row; row < end_row; row += geometry->block_rows)
            for (int64_t ow = ow0; ow < end_column; ow += geometry->block_columns) {
                float sum[TILE] = {0};
                for (int64_t r = row; r < smaller(row + geometry->block_rows, end_row); r++)
                    add_row(geometry, plain, windowed, kh, kw, r, larger(ow, first_ow),
                            smaller(smaller(ow + geometry->block_columns, end_column), end_ow), plain_count,
                            windowed_count, sum);
                for (int64_t i = 0; i < TILE; i++)
                    group_sum[i] = row > first_row || ow > ow0 ? group_sum[i] + sum[i] : sum[i];
            }
        const float *const whole = ladder_add(group_sum, ladder, TILE, TILE, index, groups - 1);
        if (whole)
            memcpy(result, whole, TILE * sizeof *result);
    }
}

void wgrad_2d_nxc_f16_direct(const wgrad_geometry *geometry, const void *plain, const void *windowed, void *out,
    void *scratch, int64_t first, int64_t last);

void wgrad_2d_nxc_f16_direct(const wgrad_geometry *geometry, const void *plain, const void *windowed, void *out,
    void *scratch, int64_t first, int64_t last)
{
    const int64_t P = geometry->P, W = geometry->W;
    const int64_t KH = geometry->K[1];
    const int64_t KW = geometry->K[2];
    const int64_t plain_channel = 1;
    const int64_t windowed_channel = 1;
    const int64_t plain_tiles = (P + PLAIN_TILE - 1) / PLAIN_TILE;
    const int64_t windowed_tiles = (W + WINDOWED_TILE - 1) / WINDOWED_TILE;
    float *const ladder = scratch;

    assert(geometry->N >= 0 && geometry->G >= 1 && P >= 1 && W >= 1);
    assert(geometry->O[1] >= 1 && geometry->I[1] >= 1 && KH >= 1);
    assert(geometry->stride[1] >= 1 && geometry->dilation[1] >= 1);
    assert(geometry->O[2] >= 1 && geometry->I[2] >= 1 && KW >= 1);
    assert(geometry->stride[2] >= 1 && geometry->dilation[2] >= 1);
    assert(0 <= first && first <= last && last <= geometry->G * plain_tiles * windowed_tiles);

    for (int64_t item = first; item < last; item++) {
        const int64_t g = item / (plain_tiles * windowed_tiles);
        const int64_t p0 = item / windowed_tiles % plain_tiles * PLAIN_TILE;
        const int64_t w0 = item % windowed_tiles * WINDOWED_TILE;
        const int64_t plain_count = smaller(P - p0, PLAIN_TILE);
        const int64_t windowed_count = smaller(W - w0, WINDOWED_TILE);
        const element *const y = (const element *)plain + (g * P + p0) * plain_channel;
        const element *const x = (const element *)windowed + (g * W + w0) * windowed_channel;
        const int64_t out0 = g * geometry->out_group + p0 * geometry->out_plain + w0 * geometry->out_windowed;
        for (int64_t kh = 0; kh < KH; kh++)
            for (int64_t kw = 0; kw < KW; kw++) {
                float sum[TILE];
                const int64_t out1 = out0
                    + kh * geometry->out_tap[1]
                    + kw * geometry->out_tap[2];
                if (plain_count == PLAIN_TILE && windowed_count == WINDOWED_TILE)
                    sum_tap(geometry, y, x, kh, kw, PLAIN_TILE, WINDOWED_TILE, ladder, sum);
                else
                    sum_tap(geometry, y, x, kh, kw, plain_count, windowed_count, ladder, sum);
                for (int64_t p = 0; p < plain_count; p++)
                    for (int64_t w = 0; w < windowed_count; w++)
                        store_gradient(geometry, out, out1 + p * geometry->out_plain + w * geometry->out_windowed,
                                       sum[w * PLAIN_TILE + p]);
            }
    }
}
