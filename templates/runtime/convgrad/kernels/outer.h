/* SPDX-License-Identifier: Apache-2.0
 * Register tiles of the strategy `outer`: a few rows, channels of one tensor that are broadcast, by a few vectors of
 * channels of the other one.
 *
 * Include after the layout of the tensors and packing.h. A specialised build defines the tile (WGRAD_ROWS, ...). */
#ifndef WGRAD_OUTER_H
#define WGRAD_OUTER_H

#include <stdint.h>

#include "packing.h"

#ifdef WGRAD_SIZES
#define VECTORS WGRAD_VECTORS
#define ROWS WGRAD_ROWS               /* rows of a large tile; the others have one less */
#define LARGE_TILES WGRAD_LARGE_TILES /* large tiles of a span: they come first */
#define EXCHANGED WGRAD_EXCHANGED
#define SPAN ((void)geometry, (int64_t)WGRAD_SPAN)
#define PACK_VECTORS WGRAD_PACK_VECTORS
#define PACK_ROWS WGRAD_PACK_ROWS
/* Positions ahead, which in a wide NXC tensor are too far apart for the processor to foresee; 0: they are packed. */
#define PREFETCH WGRAD_PREFETCH
#define SCALAR_PREFETCH WGRAD_SCALAR_PREFETCH
/* Whether the pairs of a span are next to each other in memory: those of one row of taps, wherever all are inside. */
#define ADJACENT (CHANNELS_LAST && GROUPS == 1 && DILATION_W == 1 && MERGED && SPAN == KW * WINDOWED)
#define POSITIONS WGRAD_POSITIONS /* of one turn of the loop, 1 or 2: with few registers its own instructions weigh */
#else
#define VECTORS 2
#define ROWS (REGISTERS == 32 ? 12 : LANES == 8 ? 4 : 6)
#define SMALL_TILE (REGISTERS == 32 ? 4 : 2) /* every size in between would take the compiler longer */
#define EXCHANGED (geometry->exchanged)
#define SPAN (geometry->span)
#define PACK_VECTORS (geometry->pack_vectors)
#define PACK_ROWS (geometry->pack_rows)
#define PREFETCH (CHANNELS_LAST ? 8 : 0)
#define SCALAR_PREFETCH (CHANNELS_LAST ? 16 : 0)
#define ADJACENT 0
#define POSITIONS 1
#endif
/* Rows of a tile whose scalars are operands of the products: an instruction less, a read more. With more vectors the
 * reads weigh more, and prefetches leave no room for them. */
#define FROM_MEMORY (HAS_SCALAR_OPERANDS && VECTORS == 2 && !PREFETCH && !SCALAR_PREFETCH ? 3 : 0)
/* Register tiles of one pass over a group, and spans of one: their sums stay in the first-level cache. */
#define AT_ONCE 8
#define SPANS_AT_ONCE (KW > 16 ? 16 : KW > 9 ? KW : 9 / KW * KW) /* whole rows of taps, which share what they read */
#define MERGED (!EXCHANGED && SPAN != WINDOWED)
/* Whether the last tile has all vectors, too: with sizes, tiles of one vector need not be compiled then. */
#define TILES_ARE_WHOLE (((EXCHANGED ? WINDOWED : PLAIN) - 1) % (VECTORS * LANES) >= (VECTORS > 1 ? LANES : 0))

typedef struct tap_range {
    int64_t row, shift; /* kd * KH + kh, and kw * dilation - pad */
    int64_t first, end; /* columns at which it is inside the windowed tensor */
} tap_range;

/* One vector tile over one group, for one strip of all spans. A span is what a run of rows goes along: the channels of
 * one tap, or merged (tap, channel) pairs. */
typedef struct tile_job {
    const tap_range *taps;
    view plain, windowed;
    int64_t first, end;                 /* rows of each span that this is about: a strip */
    int64_t spans;
    int64_t channel, count, vectors;    /* the channels that are lanes */
    int64_t index, last, level_size;    /* as in ladder_add */
    float *sums, *ladder, *out;
} tile_job;

/* The scratch of one thread. */
typedef struct scratch_parts {
    tap_range *taps;
    row_tables tables;
    float *panel, *sums, *ladder;
} scratch_parts;

/* Spans of the gradient. */
INLINE int64_t count_spans(const wgrad_geometry *geometry)
{
    return (EXCHANGED ? PLAIN : WINDOWED) * TAP_ROWS * KW / SPAN;
}

/* Sums of one vector tile. */
INLINE int64_t tile_size(const wgrad_geometry *geometry)
{
    return (EXCHANGED ? PLAIN : WINDOWED) * TAP_ROWS * KW * VECTORS * LANES;
}

/* Vectors that the packed rows of a strip take. */
INLINE int64_t strip_vectors(const wgrad_geometry *geometry)
{
    return PACK_ROWS ? ceil_divide(smaller(SPAN, geometry->strip + ROWS), LANES) : VECTORS;
}

/* Divide the scratch, in steps of whole cache lines; convgrad/strategies/outer.py adds up the same pieces. */
static inline scratch_parts carve_scratch(const wgrad_geometry *geometry, void *memory)
{
    const int64_t panels = geometry->strip < SPAN ? geometry->tiles : 1; /* kept for the next strip */
    int64_t *words = memory;
    scratch_parts result;
    result.taps = (tap_range *)words;
    words += round_up(4 * TAP_ROWS * KW, 16);
    words = carve_tables(geometry, words, &result.tables);
    result.panel = (float *)words;
    result.tables.cache.panel = result.panel + panels * plain_panel_size(geometry, VECTORS);
    result.sums = result.tables.cache.panel + geometry->slots * slot_size(geometry, strip_vectors(geometry));
    result.ladder = result.sums + tile_size(geometry);
    for (int64_t t = 0; t < TAP_ROWS * KW; t++)
        result.taps[t] = (tap_range){t / KW, t % KW * DILATION_W - PAD_W, first_inside(geometry, t % KW),
                                     end_inside(geometry, t % KW)};
    return result;
}

INLINE void clear_sums(const int rows, const int vectors, vector sum[ROWS][VECTORS])
{
    UNROLL
    for (int i = 0; i < rows; i++)
        UNROLL
        for (int v = 0; v < vectors; v++)
            sum[i][v] = vector_broadcast(0.0f);
}

/* Add the sums of a block to those of its group, or store them as its first. */
INLINE void flush_sums(const int rows, const int vectors, vector sum[ROWS][VECTORS], float *sums, int add)
{
    UNROLL
    for (int i = 0; i < rows; i++)
        UNROLL
        for (int v = 0; v < vectors; v++) {
            float *const to = sums + (i * vectors + v) * LANES;
            vector_store(to, add ? vector_load(to) + sum[i][v] : sum[i][v]);
        }
}

INLINE void load_vectors(const int vectors, vector a[VECTORS], const float *from, int64_t ahead)
{
    UNROLL
    for (int v = 0; v < vectors; v++) {
        a[v] = vector_load(from + v * LANES);
        KEEP_IN_REGISTER(a[v]);
        if (ahead)
            __builtin_prefetch(from + ahead + v * LANES);
    }
}

/* One position of one row: its scalar, in a register or an operand of each product, meets the vectors. */
INLINE void add_products(const int vectors, const vector a[VECTORS], const float *scalar, const int in_register,
                         vector sum[VECTORS])
{
    if (!in_register || vectors == 1) {
        UNROLL
        for (int v = 0; v < vectors; v++)
            sum[v] = vector_multiply_add_scalar(a[v], scalar, sum[v]);
        return;
    }
    const vector b = vector_broadcast(*scalar);
    UNROLL
    for (int v = 0; v < vectors; v++)
        sum[v] = vector_multiply_add(a[v], b, sum[v]);
}

/* One position of all rows. */
INLINE void sum_position(const wgrad_geometry *geometry, const int rows, const int vectors, const float *from,
                         int64_t vector_step, const float *scalar, int64_t scalar_step, int64_t row_step,
                         vector sum[ROWS][VECTORS])
{
    (void)geometry;
    vector a[VECTORS];
    load_vectors(vectors, a, from, PREFETCH * vector_step);
    if (SCALAR_PREFETCH) {
        __builtin_prefetch(scalar + SCALAR_PREFETCH * scalar_step);
        __builtin_prefetch(scalar + SCALAR_PREFETCH * scalar_step + rows - 1);
    }
    UNROLL
    for (int i = 0; i < rows; i++)
        add_products(vectors, a, scalar + i * row_step, i >= FROM_MEMORY, sum[i]);
}

/* One block of one tap, for rows from `row` on. */
INLINE void sum_tap(const wgrad_geometry *geometry, const int rows, const int vectors, const tap_range *tap,
                    int64_t row, const sum_block *block, float *sums, int add)
{
    const int64_t begin = larger(block->first, tap->first), length = smaller(block->end, tap->end) - begin;
    /* Where what is broadcast is not packed, its steps are constants with sizes. */
    const int64_t windowed_step = (EXCHANGED || PACK_ROWS ? block->windowed.step : WINDOWED_STEP) * STRIDE_W;
    const int64_t plain_step = EXCHANGED ? PLAIN_STEP : block->plain.step;
    const int64_t row_step = EXCHANGED ? PLAIN_CHANNEL : PACK_ROWS ? 1 : WINDOWED_CHANNEL;
    const int64_t vector_step = EXCHANGED ? windowed_step : plain_step;
    const int64_t scalar_step = EXCHANGED ? plain_step : windowed_step;
    vector sum[ROWS][VECTORS];
    clear_sums(rows, vectors, sum);
    for (int64_t r = 0; r < block->rows; r++) {
        const int64_t at = block->windowed.row[r * TAP_ROWS + tap->row];
        if (at == OUTSIDE || length <= 0)
            continue;
        const float *const y = block->plain.base + (block->plain.row[r] + begin * plain_step);
        const float *const x = block->windowed.base + (at + begin * windowed_step + tap->shift * block->windowed.step);
        const float *from = EXCHANGED ? x : y, *scalar = (EXCHANGED ? y : x) + row * row_step;
        int64_t left = length;
        for (; left >= POSITIONS; left -= POSITIONS) {
            /* Else the compiler derives one address from another, and displacements no longer fit in a byte. */
            KEEP_POINTER(from);
            KEEP_POINTER(scalar);
            UNROLL
            for (int i = 0; i < POSITIONS; i++) {
                sum_position(geometry, rows, vectors, from, vector_step, scalar, scalar_step, row_step, sum);
                from += vector_step;
                scalar += scalar_step;
            }
        }
        if (left > 0)
            sum_position(geometry, rows, vectors, from, vector_step, scalar, scalar_step, row_step, sum);
    }
    flush_sums(rows, vectors, sum, sums, add);
}

/* The same for rows that are (tap, channel) pairs, in the order of taps: each has a place and columns of its own. In
 * the columns that all of them share, nothing is tested. */
INLINE void sum_pairs(const wgrad_geometry *geometry, const int rows, const int vectors, const tile_job *job,
                      int64_t pair, const sum_block *block, float *sums, int add)
{
    const int64_t windowed_step = WINDOWED_STEP * STRIDE_W, plain_step = block->plain.step;
    int64_t shift[ROWS], tap_row[ROWS], first[ROWS], end[ROWS], inner = block->first, inner_end = block->end;
    vector sum[ROWS][VECTORS];
    clear_sums(rows, vectors, sum);
    UNROLL
    for (int i = 0; i < rows; i++) {
        const tap_range *const tap = job->taps + (pair + i) / WINDOWED;
        shift[i] = tap->shift * WINDOWED_STEP + (pair + i) % WINDOWED * WINDOWED_CHANNEL;
        tap_row[i] = tap->row;
        first[i] = larger(block->first, tap->first);
        end[i] = smaller(block->end, tap->end);
        inner = larger(inner, first[i]);
        inner_end = smaller(inner_end, end[i]);
    }
    for (int64_t r = 0; r < block->rows; r++) {
        int64_t place[ROWS];
        int whole = inner < inner_end;
        UNROLL
        for (int i = 0; i < rows; i++) {
            const int64_t at = block->windowed.row[r * TAP_ROWS + tap_row[i]];
            whole = whole && at != OUTSIDE;
            place[i] = at == OUTSIDE ? OUTSIDE : at + shift[i];
        }
        const float *const y = block->plain.base + block->plain.row[r];
        for (int64_t ow = block->first; ow < block->end; ow++) {
            if (whole && ow == inner) {
                const float *from = y + inner * plain_step;
                const float *x = block->windowed.base + inner * windowed_step;
                for (; ow < inner_end; ow++, x += windowed_step) {
                    KEEP_POINTER(from);
                    KEEP_POINTER(x);
                    vector a[VECTORS];
                    load_vectors(vectors, a, from, PREFETCH * plain_step);
                    UNROLL
                    for (int i = 0; i < rows; i++)
                        add_products(vectors, a, x + place[i], 1, sum[i]);
                    from += plain_step;
                }
                if (ow == block->end)
                    break;
            }
            UNROLL
            for (int i = 0; i < rows; i++)
                if (place[i] != OUTSIDE && ow >= first[i] && ow < end[i]) {
                    const vector b = vector_broadcast(block->windowed.base[place[i] + ow * windowed_step]);
                    UNROLL
                    for (int v = 0; v < vectors; v++)
                        sum[i][v] = vector_multiply_add(vector_load(y + ow * plain_step + v * LANES), b, sum[i][v]);
                }
        }
    }
    flush_sums(rows, vectors, sum, sums, add);
}

/* The same for pairs that are next to each other in memory, from number `row` on of tap row `tap_row`: a window of a
 * row of the windowed tensor, which moves on with the columns. Near the edges a part of it is outside. */
INLINE void sum_window(const wgrad_geometry *geometry, const int rows, const int vectors, int64_t tap_row, int64_t row,
                       const sum_block *block, float *sums, int add)
{
    const int64_t step = WINDOWED * STRIDE_W, plain_step = block->plain.step, end = IW * WINDOWED;
    const int64_t shift = row - PAD_W * WINDOWED; /* of the window at column 0, in a row of `end` elements */
    const int64_t inner = larger(block->first, first_position(shift, step));
    const int64_t inner_end = smaller(block->end, end_position(shift + rows - 1, step, end, OW));
    vector sum[ROWS][VECTORS];
    clear_sums(rows, vectors, sum);
    for (int64_t r = 0; r < block->rows; r++) {
        const int64_t at = block->windowed.row[r * TAP_ROWS + tap_row];
        if (at == OUTSIDE)
            continue;
        const float *const y = block->plain.base + block->plain.row[r];
        for (int64_t ow = block->first; ow < block->end; ow++) {
            if (ow == inner && inner < inner_end) {
                const float *from = y + inner * plain_step, *x = block->windowed.base + (at + shift + inner * step);
                for (; ow < inner_end; ow++, from += plain_step, x += step) {
                    KEEP_POINTER(from);
                    KEEP_POINTER(x);
                    vector a[VECTORS];
                    load_vectors(vectors, a, from, PREFETCH * plain_step);
                    UNROLL
                    for (int i = 0; i < rows; i++)
                        add_products(vectors, a, x + i, 1, sum[i]);
                }
                if (ow == block->end)
                    break;
            }
            const int64_t place = shift + ow * step;
            vector a[VECTORS];
            load_vectors(vectors, a, y + ow * plain_step, 0);
            UNROLL
            for (int i = 0; i < rows; i++)
                if (place + i >= 0 && place + i < end)
                    add_products(vectors, a, block->windowed.base + (at + place + i), 1, sum[i]);
        }
    }
    flush_sums(rows, vectors, sum, sums, add);
}

/* One block of one register tile: rows from `row` on of one span. */
INLINE void sum_span(const wgrad_geometry *geometry, const int rows, const int vectors, const tile_job *job,
                     int64_t span, int64_t row, const sum_block *block, float *sums, int add)
{
    if (ADJACENT)
        sum_window(geometry, rows, vectors, span, row, block, sums, add);
    else if (MERGED)
        sum_pairs(geometry, rows, vectors, job, span * SPAN + row, block, sums, add);
    else
        sum_tap(geometry, rows, vectors, job->taps + span, row, block, sums, add);
}

#ifdef WGRAD_SIZES
INLINE int tile_rows(const wgrad_geometry *geometry, int64_t row)
{
    (void)geometry;
    return row < LARGE_TILES * ROWS ? ROWS : ROWS - 1;
}

INLINE void sum_rows(const wgrad_geometry *geometry, const int rows, const int vectors, const tile_job *job,
                     int64_t span, int64_t row, const sum_block *block, float *sums, int add)
{
    if (rows == ROWS)
        sum_span(geometry, ROWS, vectors, job, span, row, block, sums, add);
    else
        sum_span(geometry, ROWS > 1 ? ROWS - 1 : 1, vectors, job, span, row, block, sums, add);
}
#else
/* The largest of the sizes below that is left. */
INLINE int tile_rows(const wgrad_geometry *geometry, int64_t row)
{
    const int64_t left = SPAN - row;
    return left >= ROWS ? ROWS : left >= SMALL_TILE ? SMALL_TILE : 1;
}

INLINE void sum_rows(const wgrad_geometry *geometry, const int rows, const int vectors, const tile_job *job,
                     int64_t span, int64_t row, const sum_block *block, float *sums, int add)
{
    switch (rows) {
    case 1:
        sum_span(geometry, 1, vectors, job, span, row, block, sums, add);
        break;
    case SMALL_TILE:
        sum_span(geometry, SMALL_TILE, vectors, job, span, row, block, sums, add);
        break;
    default:
        sum_span(geometry, ROWS, vectors, job, span, row, block, sums, add);
    }
}
#endif

/* Where the strip ends that begins at row `first`: at the end of a register tile. */
INLINE int64_t strip_end(const wgrad_geometry *geometry, int64_t first)
{
    int64_t end = first;
    while (end < SPAN && end - first < geometry->strip)
        end += tile_rows(geometry, end);
    return end;
}

/* Elements of the gradient from one lane to the next. */
INLINE int64_t lane_step(const wgrad_geometry *geometry)
{
    return EXCHANGED ? geometry->out_windowed : geometry->out_plain;
}

/* Whether, for one plain channel, windowed channels and in each of these its taps follow each other: [P][W][taps]. */
INLINE int taps_are_innermost(const wgrad_geometry *geometry)
{
    return !EXCHANGED && !MERGED && !geometry->accumulate && taps_are_adjacent(geometry);
}

static inline void store_span(const wgrad_geometry *geometry, const tile_job *job, int64_t span, int64_t row, int rows,
                              const float *sums)
{
    const int64_t step = lane_step(geometry), in_tap = EXCHANGED ? PLAIN : WINDOWED;
    const int64_t row_stride = EXCHANGED ? geometry->out_plain : geometry->out_windowed;
    float *const out = job->out + job->channel * step;
    if (step != 1 && row_stride == 1 && rows > 1 && !MERGED && !geometry->accumulate) {
        store_runs(out + row + tap_offset(geometry, span), step, job->count, rows, 1, sums, job->vectors * LANES);
        return;
    }
    for (int64_t i = 0; i < rows; i++, sums += job->vectors * LANES) {
        const int64_t pair = span * SPAN + row + i;
        float *const to = out + pair % in_tap * row_stride + tap_offset(geometry, pair / in_tap);
        for (int64_t lane = 0; lane < job->count; lane += LANES)
            store_lanes(geometry, to + lane * step, step, sums + lane, smaller(LANES, job->count - lane));
    }
}

/* Vector tile number t of a channel group. */
INLINE tile_job begin_tile(const wgrad_geometry *geometry, const scratch_parts *scratch, int64_t t)
{
    const int64_t lanes_of_group = EXCHANGED ? WINDOWED : PLAIN;
    tile_job job = {.taps = scratch->taps, .sums = scratch->sums, .spans = count_spans(geometry)};
    job.channel = t * VECTORS * LANES;
    job.count = smaller(VECTORS * LANES, lanes_of_group - job.channel);
    job.vectors = job.count > LANES ? VECTORS : 1;
    job.level_size = geometry->tiles * tile_size(geometry);
    return job;
}

/* Where the rows of a strip are: in place, or packed now. `fresh` says that what the cache holds are other channels. */
static inline view place_rows(const wgrad_geometry *geometry, row_tables *tables, int64_t g, int64_t first, int64_t end,
                              int fresh, const float *windowed)
{
    if (!PACK_ROWS)
        return (view){windowed + g * WINDOWED * WINDOWED_CHANNEL, tables->group.windowed_row, WINDOWED_STEP};
    const channel_run run = {g * WINDOWED + first, end - first, ceil_divide(end - first, LANES), LANES};
    if (fresh)
        clear_cache(&tables->cache);
    view rows = pack_windowed(geometry, &tables->group, run, &tables->cache, windowed);
    rows.base -= first;
    return rows;
}

/* Turn the view of the tensor whose channels are lanes to the vectors of a tile: in place, or packed. `number` counts
 * the tiles of the item, and `fresh` says that what the cache holds are other channels. */
static inline void place_vectors(const wgrad_geometry *geometry, scratch_parts *scratch, tile_job *job, int64_t g,
                                 int64_t number, int fresh, const float *plain, const float *windowed)
{
    row_tables *const tables = &scratch->tables;
    const channel_run run
        = {job->channel + g * (EXCHANGED ? WINDOWED : PLAIN), job->count, job->vectors, LANES};
    if (CHANNELS_LAST && job->count == job->vectors * LANES && !PACK_VECTORS) {
        if (EXCHANGED)
            job->windowed.base += job->channel;
        else
            job->plain.base += job->channel;
    } else if (EXCHANGED) {
        if (fresh)
            clear_cache(&tables->cache);
        job->windowed = pack_windowed(geometry, &tables->group, run, &tables->cache, windowed);
    } else {
        const int64_t kept = geometry->strip < SPAN ? number : 0; /* a panel of its own, for the next strips */
        float *const panel = scratch->panel + kept * plain_panel_size(geometry, VECTORS);
        job->plain = find_packed(&tables->group, run.vectors * LANES, panel, tables->panel_row);
        if (job->first == 0)
            pack_plain(geometry, &tables->group, run, panel, plain);
    }
}

/* One block of rows first..end-1 of spans some..some_end-1. `done`: it is the last block of its group. */
static inline void sum_tiles(const wgrad_geometry *geometry, const tile_job *job, const sum_block *block, int64_t first,
                             int64_t end, int64_t some, int64_t some_end, int add, int done, int transposed)
{
    const int64_t width = job->vectors * LANES;
    for (int64_t row = first, rows; row < end; row += rows) {
        rows = tile_rows(geometry, row);
        for (int64_t span = some; span < some_end; span++) {
            const int64_t at = (row * job->spans + span * rows) * width;
            if (TILES_ARE_WHOLE || job->vectors == VECTORS)
                sum_rows(geometry, (int)rows, VECTORS, job, span, row, block, job->sums + at, add);
            else
                sum_rows(geometry, (int)rows, 1, job, span, row, block, job->sums + at, add);
            if (!done)
                continue;
            const float *const whole = ladder_add(job->sums + at, job->ladder + at, job->level_size, rows * width,
                                                  job->index, job->last);
            if (whole && !transposed)
                store_span(geometry, job, span, row, (int)rows, whole);
        }
    }
}

/* Sum one group, and store what is whole. Few register tiles at a time, so that the panels of a block and the sums stay
 * in the first-level cache; stores of one tile drain while the next one is summed. */
static inline void run_tile(const wgrad_geometry *geometry, const row_group *group, const tile_job *job)
{
    const int transposed = lane_step(geometry) != 1 && taps_are_innermost(geometry);
    const int64_t levels = ladder_levels(job->last + 1);
    const float *const whole = levels ? job->ladder + (levels - 1) * job->level_size : job->sums;
    int64_t end;
    for (int64_t first = job->first; first < job->end; first = end) {
        end = first;
        for (int64_t tiles = 0; end < job->end && tiles < AT_ONCE; tiles += job->spans)
            end += tile_rows(geometry, end);
        for (int64_t some = 0; some < job->spans; some += SPANS_AT_ONCE)
            for (int64_t r = 0; r == 0 || r < group->rows; r += geometry->block_rows)
                for (int64_t c = 0; c < group->columns; c += geometry->block_columns) {
                    const sum_block block = find_block(geometry, group, job->plain, job->windowed, r, c);
                    const int done = r + block.rows == group->rows && c + geometry->block_columns >= group->columns;
                    sum_tiles(geometry, job, &block, first, end, some, smaller(job->spans, some + SPANS_AT_ONCE),
                              r > 0 || c > 0, done, transposed);
                }
        if (transposed && job->index == job->last)
            for (int64_t row = first, rows; row < end; row += rows) {
                rows = job->spans == 1 ? end - first : tile_rows(geometry, row); /* one tap: tiles follow each other */
                store_runs(job->out + job->channel * geometry->out_plain + row * job->spans, geometry->out_plain,
                           job->count, rows, job->spans, whole + row * job->spans * job->vectors * LANES,
                           job->vectors * LANES);
            }
    }
}

#endif
