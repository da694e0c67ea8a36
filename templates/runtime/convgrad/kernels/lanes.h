/* SPDX-License-Identifier: Apache-2.0
 * Register tiles of the strategy `lanes`: a vector holds plain channels of several groups, and meets the windowed
 * channels of the same groups. A windowed vector is loaded once for COLUMNS output columns and all taps that meet in
 * it; where groups have several channels its lanes are permuted, so that lane (g, p) holds channel (g, w). With one
 * group in a vector these are all the same: a scalar, broadcast from memory.
 *
 * Include after the layout of the tensors and packing.h. A specialised build defines the tile (WGRAD_TAP_H, ...). */
#ifndef WGRAD_LANES_H
#define WGRAD_LANES_H

#include <stdint.h>

#include "packing.h"

#ifdef WGRAD_SIZES
#define VECTORS WGRAD_VECTORS
#define TAP_H WGRAD_TAP_H /* tap rows, taps of a row, windowed channels of a large tile; others have one less */
#define TAP_W WGRAD_TAP_W
#define CHANNELS WGRAD_CHANNELS
#define COLUMNS WGRAD_COLUMNS
#define PREFETCH WGRAD_PREFETCH /* columns ahead; 0: left to the processor */
#define PACKED_TILES WGRAD_PACKED /* whether some tiles are packed in NXC */
#define WHOLE_ROWS WGRAD_WHOLE_ROWS /* blocks have whole rows: their first and last columns are constants */
#define BROADCAST (PERMUTED && VECTOR_GROUPS == 1) /* all lanes meet the same windowed channel */
/* Columns at which a tap is inside the windowed tensor: constants wherever the tap is one. */
#define FIRST_COLUMN(kw) ((void)job, first_inside(geometry, kw))
#define END_COLUMN(kw) end_inside(geometry, kw)
#else
#define VECTORS 2
#define TAP_H 1
#define TAP_W 3 /* or one tap; every size in between would take the compiler longer */
#define CHANNELS 1
#define COLUMNS 1
#define PREFETCH 0
#define PACKED_TILES 1
#define WHOLE_ROWS 0
#define BROADCAST 0
#define FIRST_COLUMN(kw) (job->scratch->first_inside[kw]) /* tables, for finding them takes divisions */
#define END_COLUMN(kw) (job->scratch->end_inside[kw])
#endif
#define LINE_FLOATS 16 /* of a cache line */
/* Columns at an edge that are worth a straight line each: their number is a constant, and so are the taps inside. */
#define IS_SHORT(columns) (WHOLE_ROWS && __builtin_constant_p(columns) && (columns) <= 4)
#define ONE_LESS(size) ((size) > 1 ? (size) - 1 : 1)

/* Groups in one vector, its plain and its windowed lanes. */
#define VECTOR_GROUPS (LANES / (PLAIN > WINDOWED ? PLAIN : WINDOWED))
#define PLAIN_LANES (VECTOR_GROUPS * PLAIN)
#define WINDOWED_LANES (VECTOR_GROUPS * WINDOWED)
#define PERMUTED (PLAIN != 1 || WINDOWED != 1)
/* Whether the last tile has all vectors, too: with sizes, tiles of one vector need not be compiled then. */
#define TILES_ARE_WHOLE ((GROUPS - 1) % (VECTORS * VECTOR_GROUPS) >= (VECTORS > 1 ? VECTOR_GROUPS : 0))

/* The scratch of one thread. */
typedef struct scratch_parts {
    lanes *index;                           /* [WINDOWED]: the windowed lane that each plain lane meets */
    int64_t *first_inside, *end_inside;     /* [KW]: columns at which a tap is inside the windowed tensor */
    row_tables tables;
    float *panel, *sums, *ladder;
} scratch_parts;

/* A tile of channel groups, over one group of positions. */
typedef struct tile_job {
    view plain, windowed;
    int64_t g, count, vectors;              /* groups g..g+count-1 */
    int packed;                             /* not read in place: some of its lanes are outside the tensors */
    const scratch_parts *scratch;
} tile_job;

typedef struct accumulators {
    vector sum[TAP_H][TAP_W][CHANNELS][VECTORS];
} accumulators;

/* What a microkernel is inlined for: extents of its tile, whether lanes are permuted, and whether it is packed. */
typedef struct tile_extents {
    int rows, taps, channels, vectors, permuted, packed;
} tile_extents;

/* Elements from one column to the next, and from one vector's channels to the next one's: with sizes, constants, so
 * that all vectors of a straight-line tile are one pointer and an offset. */
INLINE int64_t plain_step(const wgrad_geometry *geometry, const tile_extents tile)
{
    (void)geometry;
    return tile.packed ? tile.vectors * LANES : PLAIN_STEP;
}

INLINE int64_t windowed_step(const wgrad_geometry *geometry, const tile_extents tile)
{
    (void)geometry;
    return tile.packed ? tile.vectors * LANES : WINDOWED_STEP;
}

INLINE int64_t plain_next(const wgrad_geometry *geometry, const tile_extents tile)
{
    return tile.packed ? LANES : PLAIN_LANES;
}

INLINE int64_t windowed_next(const wgrad_geometry *geometry, const tile_extents tile)
{
    return tile.packed ? LANES : WINDOWED_LANES;
}

/* Sums of one tile. */
INLINE int64_t tile_size(const wgrad_geometry *geometry)
{
    return TAP_ROWS * KW * WINDOWED * VECTORS * LANES;
}

/* Divide the scratch, in steps of whole cache lines; convgrad/strategies/lanes.py adds up the same pieces. */
static inline scratch_parts carve_scratch(const wgrad_geometry *geometry, void *memory)
{
    int64_t *words = memory;
    scratch_parts result;
    result.index = (lanes *)words;
    words += LANES * LANES / 2;
    result.first_inside = words;
    words += round_up(KW, 16);
    result.end_inside = words;
    words += round_up(KW, 16);
    words = carve_tables(geometry, words, &result.tables);
    result.panel = (float *)words;
    result.tables.cache.panel = result.panel + plain_panel_size(geometry, VECTORS);
    result.sums = result.tables.cache.panel + geometry->slots * slot_size(geometry, VECTORS);
    result.ladder = result.sums + geometry->tiles * tile_size(geometry);
#ifndef WGRAD_SIZES
    for (int64_t kw = 0; kw < KW; kw++) {
        result.first_inside[kw] = first_inside(geometry, kw);
        result.end_inside[kw] = end_inside(geometry, kw);
    }
#endif
    for (int64_t w = 0; w < WINDOWED; w++)
        for (int l = 0; l < LANES; l++)
            result.index[w][l] = (int32_t)smaller(LANES - 1, l / PLAIN * WINDOWED + w);
    return result;
}

/* Tile number t; its views are still missing. */
static inline tile_job begin_tile(const wgrad_geometry *geometry, const scratch_parts *scratch, int64_t t)
{
    const int64_t in_tile = VECTORS * VECTOR_GROUPS;
    tile_job job = {.g = t * in_tile, .scratch = scratch};
    job.count = smaller(in_tile, GROUPS - job.g);
    job.vectors = job.count > VECTOR_GROUPS ? VECTORS : 1;
    job.packed = job.g * PLAIN + (job.vectors - 1) * PLAIN_LANES + LANES > GROUPS * PLAIN
                 || (!BROADCAST
                     && job.g * WINDOWED + (job.vectors - 1) * WINDOWED_LANES + LANES > GROUPS * WINDOWED);
    job.packed = !CHANNELS_LAST || (PACKED_TILES && job.packed);
    return job;
}

/* Where the channels of a tile are: in place, or packed now. `fresh` says that what the cache holds are other ones. */
static inline void place_tile(const wgrad_geometry *geometry, scratch_parts *scratch, tile_job *job, int fresh,
                              const float *plain, const float *windowed)
{
    row_tables *const tables = &scratch->tables;
    if (CHANNELS_LAST && !job->packed) {
        job->plain = (view){plain + job->g * PLAIN, tables->group.plain_row, PLAIN_STEP};
        job->windowed = (view){windowed + job->g * WINDOWED, tables->group.windowed_row, WINDOWED_STEP};
        return;
    }
    const channel_run plain_run = {job->g * PLAIN, job->count * PLAIN, job->vectors, PLAIN_LANES};
    const channel_run windowed_run = {job->g * WINDOWED, job->count * WINDOWED, job->vectors, WINDOWED_LANES};
    if (fresh)
        clear_cache(&tables->cache);
    job->windowed = pack_windowed(geometry, &tables->group, windowed_run, &tables->cache, windowed);
    pack_plain(geometry, &tables->group, plain_run, scratch->panel, plain);
    job->plain = find_packed(&tables->group, job->vectors * LANES, scratch->panel, tables->panel_row);
}

/* All windowed channels at x, unless they are taken one by one: then a vector of them may reach behind the tensor. */
INLINE vector load_channels(const wgrad_geometry *geometry, const float *x)
{
    (void)geometry;
    return BROADCAST ? vector_broadcast(0.0f) : vector_load(x);
}

/* Windowed channel w of each lane's group, of those at x; `b` is what load_channels has found there. */
INLINE vector select_channel(const wgrad_geometry *geometry, const tile_extents tile, vector b, const float *x, int w,
                             const lanes *index)
{
    (void)geometry;
    if (BROADCAST)
        return vector_broadcast(x[w]);
    return tile.permuted ? vector_permute(b, index[w]) : b;
}

/* One column of tap row h; `guarded` leaves out the taps that are outside the windowed tensor. */
INLINE void sum_column(const wgrad_geometry *geometry, const tile_extents tile, const int h, const int guarded,
                       const tile_job *job, const float *y, const float *x, int64_t ow, int64_t kw, const lanes *index,
                       accumulators *total)
{
    vector a[VECTORS];
    UNROLL
    for (int v = 0; v < tile.vectors; v++)
        a[v] = vector_load(y + v * plain_next(geometry, tile));
    UNROLL
    for (int k = 0; k < tile.taps; k++) {
        if (guarded && (ow < FIRST_COLUMN(kw + k) || ow >= END_COLUMN(kw + k)))
            continue;
        UNROLL
        for (int v = 0; v < tile.vectors; v++) {
            const float *const from
                = x + k * DILATION_W * windowed_step(geometry, tile) + v * windowed_next(geometry, tile);
            const vector b = load_channels(geometry, from);
            UNROLL
            for (int w = 0; w < tile.channels; w++)
                total->sum[h][k][w][v] = vector_multiply_add(a[v], select_channel(geometry, tile, b, from, w, index),
                                                             total->sum[h][k][w][v]);
        }
    }
}

/* Ask for the column that comes PREFETCH columns later: of the plain tensor, and of the windowed row that is new. */
INLINE void prefetch_column(const wgrad_geometry *geometry, const tile_extents tile, const float *y, const float *x,
                            int64_t ow)
{
    UNROLL
    for (int v = 0; PREFETCH && v < tile.vectors; v++) {
        __builtin_prefetch(y + (ow + PREFETCH) * plain_step(geometry, tile) + v * plain_next(geometry, tile));
        __builtin_prefetch(x + ((ow + PREFETCH) * STRIDE_W + (TAP_W - 1) * DILATION_W) * windowed_step(geometry, tile)
                           + v * windowed_next(geometry, tile));
    }
}

#if COLUMNS > 1
/* COLUMNS columns from ow on, inside for all taps: every windowed vector is loaded, and permuted, once. */
INLINE void sum_columns(const wgrad_geometry *geometry, const tile_extents tile, const int first_h, const int end_h,
                        const float *y, const float *const x[TAP_H], int64_t ow, const lanes *index,
                        accumulators *total)
{
    const int64_t y_step = plain_step(geometry, tile), x_step = windowed_step(geometry, tile);
    const int64_t y_next = plain_next(geometry, tile), x_next = windowed_next(geometry, tile);
    vector a[COLUMNS][VECTORS];
    UNROLL
    for (int t = 0; t < COLUMNS; t++)
        UNROLL
        for (int v = 0; v < tile.vectors; v++) {
            a[t][v] = vector_load(y + (ow + t) * y_step + v * y_next);
            KEEP_IN_REGISTER(a[t][v]);
        }
    UNROLL
    for (int t = 0; t < COLUMNS; t++)
        prefetch_column(geometry, tile, y, x[end_h - 1], ow + t);
    UNROLL
    for (int h = first_h; h < end_h; h++)
        UNROLL
        for (int c = 0; c <= (COLUMNS - 1) * STRIDE_W + (TAP_W - 1) * DILATION_W; c++)
            UNROLL
            for (int v = 0; v < tile.vectors; v++) {
                const float *const from = x[h] + (ow * STRIDE_W + c) * x_step + v * x_next;
                vector b = load_channels(geometry, from);
                if (!tile.permuted)
                    KEEP_IN_REGISTER(b);
                UNROLL
                for (int w = 0; w < tile.channels; w++) {
                    const vector p = select_channel(geometry, tile, b, from, w, index);
                    UNROLL
                    for (int t = 0; t < COLUMNS; t++)
                        UNROLL
                        for (int k = 0; k < tile.taps; k++)
                            if (t * STRIDE_W + k * DILATION_W == c)
                                total->sum[h][k][w][v] = vector_multiply_add(a[t][v], p, total->sum[h][k][w][v]);
                }
            }
}
#endif

/* The columns of one row of a block, for tap rows first_h..end_h-1; all taps are inside at inner..inner_end-1. */
INLINE void sum_row(const wgrad_geometry *geometry, const tile_extents tile, const int first_h, const int end_h,
                    const tile_job *job, const sum_block *block, const float *y, const float *const x[TAP_H],
                    int64_t inner, int64_t inner_end, int64_t kw, const lanes *index, accumulators *total)
{
    const int64_t y_step = plain_step(geometry, tile), x_step = windowed_step(geometry, tile) * STRIDE_W;
    const int64_t end = WHOLE_ROWS ? OW : block->end;
    int64_t ow = WHOLE_ROWS ? 0 : block->first;
#define SUM_COLUMN(guarded)                                                                                            \
    UNROLL                                                                                                             \
    for (int h = first_h; h < end_h; h++)                                                                              \
    sum_column(geometry, tile, h, guarded, job, y + ow * y_step, x[h] + ow * x_step, ow, kw, index, total)
#define SUM_EDGE(past)                                                                                                 \
    if (IS_SHORT((past) - ow)) {                                                                                       \
        const int64_t columns = (past) - ow;                                                                           \
        UNROLL                                                                                                         \
        for (int64_t i = 0; i < columns; i++, ow++)                                                                    \
            SUM_COLUMN(1);                                                                                             \
    } else                                                                                                             \
        for (; ow < (past); ow++)                                                                                      \
            SUM_COLUMN(1)
    SUM_EDGE(inner);
    const int64_t alone = COLUMNS > 1 ? (inner_end - inner) % COLUMNS : inner_end - inner;
#if COLUMNS > 1
    for (; ow < inner_end - alone; ow += COLUMNS)
        sum_columns(geometry, tile, first_h, end_h, y, x, ow, index, total);
#endif
    for (int64_t left = alone; left > 0; left--, ow++) {
        if (COLUMNS == 1 && STRIDE_W == 1) /* else it takes more time than it saves */
            prefetch_column(geometry, tile, y, x[end_h - 1], ow);
        SUM_COLUMN(0);
    }
    ow = inner_end; /* which it is: so told, the compiler has a constant */
    SUM_EDGE(end);
#undef SUM_EDGE
#undef SUM_COLUMN
}

/* Add the sums of a block to those of its group, or store them as its first. */
INLINE void flush_sums(const wgrad_geometry *geometry, const tile_extents tile, const accumulators *total,
                       int64_t tap_row, int64_t kw, int64_t first_w, float *sums, int add)
{
    UNROLL
    for (int h = 0; h < tile.rows; h++)
        UNROLL
        for (int k = 0; k < tile.taps; k++)
            UNROLL
            for (int w = 0; w < tile.channels; w++)
                UNROLL
                for (int v = 0; v < tile.vectors; v++) {
                    const int64_t tap = (tap_row + h) * KW + kw + k;
                    float *const to = sums + ((tap * WINDOWED + first_w + w) * tile.vectors + v) * LANES;
                    vector_store(to, add ? vector_load(to) + total->sum[h][k][w][v] : total->sum[h][k][w][v]);
                }
}

/* One block of tap rows tap_row.., taps kw.., windowed channels first_w.. */
INLINE void sum_taps(const wgrad_geometry *geometry, const tile_extents tile, const tile_job *job,
                     const sum_block *block, int64_t tap_row, int64_t kw, int64_t first_w, float *sums, int add)
{
    accumulators total;
    lanes index[CHANNELS];
    UNROLL
    for (int h = 0; h < tile.rows; h++)
        UNROLL
        for (int k = 0; k < tile.taps; k++)
            UNROLL
            for (int w = 0; w < tile.channels; w++)
                UNROLL
                for (int v = 0; v < tile.vectors; v++)
                    total.sum[h][k][w][v] = vector_broadcast(0.0f);
    UNROLL
    for (int w = 0; w < tile.channels; w++)
        index[w] = job->scratch->index[first_w + w];
    const int64_t end = WHOLE_ROWS ? OW : block->end;
    int64_t inner = WHOLE_ROWS ? 0 : block->first, inner_end = end;
    UNROLL
    for (int k = 0; k < tile.taps; k++) {
        inner = larger(inner, FIRST_COLUMN(kw + k));
        inner_end = smaller(inner_end, END_COLUMN(kw + k));
    }
    if (inner >= inner_end)
        inner = inner_end = end;
    const int64_t shift = (kw * DILATION_W - PAD_W) * windowed_step(geometry, tile) + (BROADCAST ? first_w : 0);
    for (int64_t r = 0; r < block->rows; r++) {
        const int64_t *const at = block->windowed.row + r * TAP_ROWS + tap_row;
        const float *const y = block->plain.base + block->plain.row[r];
        const float *x[TAP_H];
        int whole = 1;
        UNROLL
        for (int h = 0; h < tile.rows; h++) {
            whole = whole && at[h] != OUTSIDE;
            x[h] = at[h] == OUTSIDE ? 0 : block->windowed.base + (at[h] + shift);
        }
        if (whole)
            sum_row(geometry, tile, 0, tile.rows, job, block, y, x, inner, inner_end, kw, index, &total);
        else if (tile.rows > 1) {
            UNROLL
            for (int h = 0; h < tile.rows; h++)
                if (x[h])
                    sum_row(geometry, tile, h, h + 1, job, block, y, x, inner, inner_end, kw, index, &total);
        }
    }
    flush_sums(geometry, tile, &total, tap_row, kw, first_w, sums, add);
}

/* One block of all taps, tile by tile: any size, TAP_W taps or one; specialised, sizes that differ by one
 * along each side, the large ones first. */
INLINE void sum_block_of_tile(const wgrad_geometry *geometry, const int vectors, const int permuted, const int packed,
                              const tile_job *job, const sum_block *block, float *sums, int add)
{
    int rows, taps, channels;
    for (int64_t tap_row = 0; tap_row < TAP_ROWS; tap_row += rows) {
#ifdef WGRAD_SIZES
        rows = tap_row < WGRAD_LARGE_H * TAP_H ? TAP_H : TAP_H - 1;
#else
        rows = 1;
#endif
        for (int64_t kw = 0; kw < KW; kw += taps) {
#ifdef WGRAD_SIZES
            taps = kw < WGRAD_LARGE_W * TAP_W ? TAP_W : TAP_W - 1;
#else
            taps = KW - kw >= TAP_W ? TAP_W : 1;
#endif
            for (int64_t w = 0; w < WINDOWED; w += channels) {
#define SUM_TAPS(h, k, c)                                                                                              \
    sum_taps(geometry, (tile_extents){h, k, c, vectors, permuted, packed}, job, block, tap_row, kw, w, sums, add)
#ifdef WGRAD_SIZES
                channels = w < WGRAD_LARGE_CHANNELS * CHANNELS ? CHANNELS : CHANNELS - 1;
                const int large = 4 * (rows == TAP_H) + 2 * (taps == TAP_W) + (channels == CHANNELS);
                switch (large) {
                case 7: SUM_TAPS(TAP_H, TAP_W, CHANNELS); break;
                case 6: SUM_TAPS(TAP_H, TAP_W, ONE_LESS(CHANNELS)); break;
                case 5: SUM_TAPS(TAP_H, ONE_LESS(TAP_W), CHANNELS); break;
                case 4: SUM_TAPS(TAP_H, ONE_LESS(TAP_W), ONE_LESS(CHANNELS)); break;
                case 3: SUM_TAPS(ONE_LESS(TAP_H), TAP_W, CHANNELS); break;
                case 2: SUM_TAPS(ONE_LESS(TAP_H), TAP_W, ONE_LESS(CHANNELS)); break;
                case 1: SUM_TAPS(ONE_LESS(TAP_H), ONE_LESS(TAP_W), CHANNELS); break;
                default: SUM_TAPS(ONE_LESS(TAP_H), ONE_LESS(TAP_W), ONE_LESS(CHANNELS));
                }
#else
                channels = 1;
                if (taps == TAP_W)
                    SUM_TAPS(1, TAP_W, 1);
                else
                    SUM_TAPS(1, 1, 1);
#endif
#undef SUM_TAPS
            }
        }
    }
}

INLINE void sum_block_of_tiles(const wgrad_geometry *geometry, const int packed, const tile_job *job,
                               const sum_block *block, float *sums, int add)
{
    if (TILES_ARE_WHOLE || job->vectors == VECTORS) {
        if (PERMUTED)
            sum_block_of_tile(geometry, VECTORS, 1, packed, job, block, sums, add);
        else
            sum_block_of_tile(geometry, VECTORS, 0, packed, job, block, sums, add);
    } else {
        if (PERMUTED)
            sum_block_of_tile(geometry, 1, 1, packed, job, block, sums, add);
        else
            sum_block_of_tile(geometry, 1, 0, packed, job, block, sums, add);
    }
}

/* The sums of one tile over one group of positions, [tap][windowed channel][vector][lane]; here its rows first..end-1,
 * which follow those that are in `sums`. */
static inline void run_tile(const wgrad_geometry *geometry, const row_group *group, const tile_job *job, int64_t first,
                            int64_t end, float *sums)
{
    for (int64_t r = first; r == first || r < end; r += geometry->block_rows)
        for (int64_t c = 0; c < group->columns; c += geometry->block_columns) {
            const sum_block block = find_block(geometry, group, job->plain, job->windowed, r, c);
            const int add = r > 0 || c > 0;
#ifdef WGRAD_SIZES
            if (!CHANNELS_LAST || (PACKED_TILES && job->packed))
                sum_block_of_tiles(geometry, 1, job, &block, sums, add);
            else
                sum_block_of_tiles(geometry, 0, job, &block, sums, add);
#else
            sum_block_of_tiles(geometry, job->packed, job, &block, sums, add);
#endif
        }
}

/* Ask for part number `part` of what the turn that begins at row `first` is the first to read. With stride 1 columns
 * are asked for one by one; where each reads several, that leaves the memory half idle. Inlined, because compilers take
 * a function that does nothing else for one without effect. */
INLINE void prefetch_turn(const wgrad_geometry *geometry, const row_group *group, int64_t first, int64_t part,
                          int64_t parts, const float *plain, const float *windowed)
{
    const int64_t end = smaller(group->rows, first + geometry->turn_rows);
    const int64_t plain_row = OW * PLAIN_STEP, windowed_row = IW * WINDOWED_STEP;
    if (!CHANNELS_LAST || STRIDE_W == 1 || geometry->turn_rows == geometry->group_rows)
        return;
    for (int64_t r = first; r < end; r++) {
        for (int64_t i = part * plain_row / parts; i < (part + 1) * plain_row / parts; i += LINE_FLOATS)
            __builtin_prefetch(plain + group->plain_row[r] + i);
        for (int64_t h = larger(0, TAP_ROWS - STRIDE_H); h < TAP_ROWS; h++) {
            const int64_t at = group->windowed_row[r * TAP_ROWS + h];
            const int64_t past = at == OUTSIDE ? 0 : (part + 1) * windowed_row / parts;
            for (int64_t i = part * windowed_row / parts; i < past; i += LINE_FLOATS)
                __builtin_prefetch(windowed + at + i);
        }
    }
}

static inline void store_tile(const wgrad_geometry *geometry, const tile_job *job, float *out, const float *sums)
{
    const int in_order = geometry->out_plain == 1 && geometry->out_group == PLAIN; /* plain channels of all groups */
    const int64_t used = ceil_divide(job->count, VECTOR_GROUPS), taps = TAP_ROWS * KW;
    /* All lanes' (windowed channel, tap) runs follow each other: no float is stored alone. */
    if (taps_are_adjacent(geometry) && !geometry->accumulate && geometry->out_plain == WINDOWED * taps
        && geometry->out_group == PLAIN * WINDOWED * taps) {
        for (int64_t v = 0; v < used; v++) {
            const int64_t first = v * VECTOR_GROUPS, groups = smaller(VECTOR_GROUPS, job->count - first);
            store_runs(out + (job->g + first) * geometry->out_group, geometry->out_plain, groups * PLAIN, WINDOWED,
                       taps, sums + v * LANES, job->vectors * LANES);
        }
        return;
    }
    for (int64_t t = 0; t < taps; t++)
        for (int64_t w = 0; w < WINDOWED; w++, sums += job->vectors * LANES) {
            float *const to = out + w * geometry->out_windowed + tap_offset(geometry, t);
            for (int64_t v = 0; v < used; v++) {
                const int64_t groups = smaller(VECTOR_GROUPS, job->count - v * VECTOR_GROUPS);
                const int64_t g = job->g + v * VECTOR_GROUPS;
                if (in_order)
                    store_lanes(geometry, to + g * PLAIN, 1, sums + v * LANES, groups * PLAIN);
                else
                    for (int64_t i = 0; i < groups; i++)
                        store_lanes(geometry, to + (g + i) * geometry->out_group, geometry->out_plain,
                                    sums + v * LANES + i * PLAIN, PLAIN);
            }
        }
}

#endif
