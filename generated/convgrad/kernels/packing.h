/* SPDX-License-Identifier: Apache-2.0
 * Copies of a group's positions with channels as lanes: [row][column][vector][lane]. For tensors whose channels are not
 * next to each other (NCX), and for the last channels of a tile that has more lanes than there are channels: a vector
 * read in place would reach behind the tensor.
 *
 * Include after the tensors' layout: PLAIN_STEP, PLAIN_CHANNEL, WINDOWED_STEP, WINDOWED_CHANNEL, CHANNELS_LAST. */
#ifndef WGRAD_PACKING_H
#define WGRAD_PACKING_H

#include <stdint.h>

#include "rows.h"

#define PACK_AHEAD 8 /* positions whose cache lines are asked for while one is copied */

/* Where packed channels come from: `count` of them from channel number `channel` on, `in_vector` to a vector. */
typedef struct channel_run {
    int64_t channel, count, vectors, in_vector;
} channel_run;

/* Pack `length` positions. Lanes that are no channel are 0. Reads nothing behind the `readable` elements that follow
 * `from` in its tensor. */
static inline void pack_positions(float *to, channel_run run, const float *from, int64_t length, int64_t step,
                                  int64_t channel_step, int64_t readable)
{
    const int64_t width = run.vectors * LANES;
    if (channel_step == 1) {
        for (int64_t i = 0; i < length; i++)
            for (int64_t v = 0; v < run.vectors; v++) {
                const float *const at = from + i * step + v * run.in_vector;
                const int64_t used = larger(0, smaller(run.in_vector, run.count - v * run.in_vector));
                __builtin_prefetch(at + PACK_AHEAD * step);
                vector_store(to + i * width + v * LANES, vector_load_first(at, used));
            }
        return;
    }
    for (int64_t v = 0; v < run.vectors; v++) {
        const int64_t channel = v * run.in_vector;
        const int64_t used = larger(0, smaller(run.in_vector, run.count - channel));
        for (int64_t i = 0; i < length; i += LANES) {
            vector row[LANES];
            if (used == LANES && (channel + LANES - 1) * channel_step + i + LANES <= readable) {
                UNROLL
                for (int c = 0; c < LANES; c++)
                    row[c] = vector_load(from + (channel + c) * channel_step + i);
            } else {
                for (int c = 0; c < LANES; c++)
                    row[c] = c < used ? vector_load_first(from + (channel + c) * channel_step + i, length - i)
                                      : vector_broadcast(0.0f);
            }
            vector_transpose(row);
            if (i + LANES <= length) {
                UNROLL
                for (int c = 0; c < LANES; c++)
                    vector_store(to + (i + c) * width + v * LANES, row[c]);
            } else {
                UNROLL
                for (int c = 0; c < LANES; c++)
                    if (i + c < length)
                        vector_store(to + (i + c) * width + v * LANES, row[c]);
            }
        }
    }
}

/* Floats of a panel for one group of the plain tensor, in whole cache lines. */
static inline int64_t plain_panel_size(const wgrad_geometry *geometry, int64_t vectors)
{
    return round_up(geometry->group_rows * geometry->group_columns, LANES) * vectors * LANES;
}

/* Pack the plain channels of a group. Rows that follow each other in memory are packed as one run, because the last
 * positions of a run cost as much as LANES of them. */
static inline void pack_plain(const wgrad_geometry *geometry, const row_group *group, channel_run run, float *panel,
                              const float *plain)
{
    const int64_t all = geometry->N * GROUPS * PLAIN * (OD * OH * OW), width = run.vectors * LANES;
    for (int64_t r = 0, rows; r < group->rows; r += rows) {
        rows = 1;
        if (group->columns == OW)
            while (r + rows < group->rows && (CHANNELS_LAST || (group->first_row + r + rows) % (OD * OH) != 0))
                rows++;
        const int64_t at = group->plain_row[r] + group->first_column * PLAIN_STEP + run.channel * PLAIN_CHANNEL;
        pack_positions(panel + r * group->columns * width, run, plain + at, rows * group->columns, PLAIN_STEP,
                       PLAIN_CHANNEL, all - at);
    }
}

/* What pack_plain has packed; `row` is filled with where its rows are. */
static inline view find_packed(const row_group *group, int64_t width, const float *panel, int64_t *row)
{
    for (int64_t r = 0; r < group->rows; r++)
        row[r] = (r * group->columns - group->first_column) * width;
    return (view){panel, row, width};
}

/* Packed rows of the windowed tensor: row number r is in slot r % slots. Taps of neighbouring positions meet the same
 * rows, and neighbouring groups share some: each is packed once, as long as it is needed. */
typedef struct row_cache {
    float *panel;
    int64_t *number; /* [slots]: the row that a slot holds, or -1 */
    int64_t *row;    /* [rows][TAP_ROWS]: as view.row */
    int64_t slots, first, columns; /* columns first..first+columns-1 of each row are held */
} row_cache;

/* Floats of one slot, in whole cache lines. */
static inline int64_t slot_size(const wgrad_geometry *geometry, int64_t vectors)
{
    const int64_t reach = (geometry->group_columns - 1) * STRIDE_W + (KW - 1) * DILATION_W + 1;
    return round_up(smaller(IW, reach), LANES) * vectors * LANES;
}

/* What every strategy keeps of the rows that it goes over: where they are in both tensors, and packed. */
typedef struct row_tables {
    row_group group;
    row_cache cache;
    int64_t *panel_row; /* [rows]: of the plain tensor after packing */
} row_tables;

/* Divide words of the scratch into the tables, in steps of whole cache lines; plan_tables of
 * convgrad/strategies/draft.py adds up the same pieces. Returns the word behind them. */
static inline int64_t *carve_tables(const wgrad_geometry *geometry, int64_t *words, row_tables *tables)
{
    const int64_t table = round_up(geometry->group_rows * TAP_ROWS, 16), rows = round_up(geometry->group_rows, 16);
    tables->cache.slots = geometry->slots;
    tables->group.plain_row = words;
    words += rows;
    tables->panel_row = words;
    words += rows;
    tables->group.windowed_row = words;
    words += table;
    tables->group.input_row = words;
    words += table;
    tables->cache.row = words;
    words += table;
    tables->cache.number = words;
    return words + round_up(geometry->slots, 16);
}

static inline void clear_cache(row_cache *cache)
{
    for (int64_t i = 0; i < cache->slots; i++)
        cache->number[i] = -1;
}

/* The slot of a row that comes `by` rows after the one in `slot`, both of one group: without a division. */
INLINE int64_t move_slot(int64_t slot, int64_t by, int64_t slots)
{
    const int64_t moved = slot + by;
    return moved < 0 ? moved + slots : moved >= slots ? moved - slots : moved;
}

/* Pack those windowed rows of a group that the cache does not hold. */
static inline view pack_windowed(const wgrad_geometry *geometry, const row_group *group, channel_run run,
                                 row_cache *cache, const float *windowed)
{
    const int64_t all = geometry->N * GROUPS * WINDOWED * (ID * IH * IW), width = run.vectors * LANES;
    const int64_t last_column = group->first_column + group->columns - 1;
    const int64_t first = larger(0, smaller(IW, group->first_column * STRIDE_W - PAD_W));
    const int64_t end = larger(first, smaller(IW, last_column * STRIDE_W + (KW - 1) * DILATION_W - PAD_W + 1));
    const int64_t pitch = (end - first) * width, image = ID * IH;
    int64_t highest = -1, last = -1, slot = 0; /* row number `last` is in `slot` */
    if (first != cache->first || end - first != cache->columns)
        clear_cache(cache);
    cache->first = first;
    cache->columns = end - first;
    for (int64_t i = 0; i < group->rows * TAP_ROWS; i++)
        if (group->windowed_row[i] != OUTSIDE)
            highest = larger(highest, group->input_row[i]);
    for (int64_t i = 0; i < group->rows * TAP_ROWS; i++) {
        cache->row[i] = OUTSIDE;
        if (group->windowed_row[i] == OUTSIDE)
            continue;
        const int64_t number = group->input_row[i];
        slot = last < 0 ? number % cache->slots : move_slot(slot, number - last, cache->slots);
        last = number;
        if (cache->number[slot] != number) {
            const int64_t at = group->windowed_row[i] + first * WINDOWED_STEP + run.channel * WINDOWED_CHANNEL;
            /* Whole rows that follow each other in memory, and will in the cache, are packed as one run. */
            const int64_t most = end - first < IW ? 1 : smaller(highest - number + 1, image - number % image);
            int64_t rows = 0;
            do
                cache->number[slot + rows] = number + rows;
            while (++rows < most && slot + rows < cache->slots && cache->number[slot + rows] != number + rows);
            pack_positions(cache->panel + slot * pitch, run, windowed + at, rows * (end - first), WINDOWED_STEP,
                           WINDOWED_CHANNEL, all - at);
        }
        cache->row[i] = slot * pitch - first * width;
    }
    return (view){cache->panel, cache->row, width};
}

#endif
