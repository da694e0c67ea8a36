/* SPDX-License-Identifier: Apache-2.0
 * The sizes of one weight gradient, in terms of roles rather than operations.
 *
 *   plain     [N][G * P][O...]   diff_dst of a convolution, src of a transposed one
 *   windowed  [N][G * W][I...]   the other one
 *   gradient(g, p, w, k...) = sum over n, o... of plain[n][g * P + p][o...] * windowed[n][g * W + w][i...]
 *   with i = o * stride + k * dilation - pad on each axis; a term whose i lies outside 0 <= i < I takes no part
 *   stored at out[g * out_group + p * out_plain + w * out_windowed + sum over axes of k * out_tap]
 *
 * The order of plain's and windowed's axes in memory is the kernel's matter (NCX as written above, NXC channels last);
 * both are contiguous. Every layout of the weights is nothing but the strides of out.
 *
 * Axes are (depth, height, width). A kernel of rank 1 uses the last one, rank 2 the last two; the leading ones that are
 * not used have extent 1, stride 1, dilation 1, pad 0 and out_tap 0.
 *
 * Python reads this file too, without the lines that begin with a number sign: plain declarations only. */
#ifndef WGRAD_GEOMETRY_H
#define WGRAD_GEOMETRY_H

#include <stdint.h>

typedef struct wgrad_geometry {
    int64_t N;           /* batch; 0 gives a gradient of zeros */
    int64_t G;           /* groups */
    int64_t P;           /* plain channels in one group */
    int64_t W;           /* windowed channels in one group */
    int64_t O[3];        /* extents of plain */
    int64_t I[3];        /* extents of windowed */
    int64_t K[3];        /* extents of the kernel: its taps */
    int64_t stride[3];   /* >= 1 */
    int64_t dilation[3]; /* >= 1, where 1 is dense */
    int64_t pad[3];      /* >= 0, before the first element; what follows the last one is bounded by O */
    int64_t out_group;   /* strides of out, in elements */
    int64_t out_plain;
    int64_t out_windowed;
    int64_t out_tap[3];
    int64_t out_f32;    /* 1: out holds float, whatever the element type of the inputs */
    int64_t accumulate; /* 1: the gradient is added to what out, which then holds float, has in it */

    int64_t block_rows; /* the order of the sum, see summation.h */
    int64_t block_columns;
    int64_t group_rows;
    int64_t group_columns;

    int64_t patches;     /* 1: in NCX, the windowed tensor is [N][I...][W]: its channels are the taps of a row */
    int64_t exchanged;   /* the schedule: changes speed and scratch, but no bit. 1: vectors hold windowed channels */
    int64_t span;        /* rows (tap, channel) that one register tile may run across */
    int64_t tiles;       /* vector tiles in one work item */
    int64_t strip;       /* rows of a span that all vector tiles of an item go over before the next rows */
    int64_t turn_rows;   /* rows of a group that all tiles of an item go over before the next rows */
    int64_t pack_vectors; /* 1: vectors are packed although they could be read in place */
    int64_t pack_rows;    /* 1: what is broadcast is packed as well */
    int64_t slots;       /* rows of the windowed tensor that are kept packed */
    int64_t slab_groups; /* groups that one work item adds up: a power of 16; at least all of them without slabs */
    int64_t out_slab;    /* elements from one slab's sums to the next one's, in a workspace; 0 without slabs */
} wgrad_geometry;

#endif
