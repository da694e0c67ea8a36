/* SPDX-License-Identifier: Apache-2.0
 * Measures: a kernel and a peer in a loop, and what the machine could do at best. For the benchmark: no kernel needs
 * it.
 *
 * Two clocks run side by side: the wall's, and the CPU time of the calling thread, which does not count what other
 * programs take. Both in seconds.
 *
 * Python reads this file too, without the lines that begin with a number sign: plain declarations only. */
#ifndef WGRAD_CLOCK_H
#define WGRAD_CLOCK_H

#include <stdint.h>

typedef struct wgrad_time {
    double wall;
    double cpu;
} wgrad_time;

/* `run` is the address of wgrad_run; the rest is what it gets, `repeats` times over. Returns what it returned last. */
int wgrad_clock_kernel(uintptr_t run, uintptr_t kernel, uintptr_t geometry, uintptr_t plain, uintptr_t windowed,
                       uintptr_t out, int64_t items, int64_t scratch_bytes, int threads, int64_t repeats,
                       wgrad_time *time);

/* `execute` is the address of dnnl_graph_compiled_partition_execute, `wait` that of dnnl_stream_wait; `inputs` and
 * `outputs` are arrays of two tensors and of one. Returns the first status that is not 0. */
int wgrad_clock_onednn(uintptr_t execute, uintptr_t wait, uintptr_t partition, uintptr_t stream, uintptr_t inputs,
                       uintptr_t outputs, int64_t repeats, wgrad_time *time);

/* Rows of the machine's arithmetic. The first is there always; multiplications and additions of float, but for the
 * last, whose factors are pairs of bfloat16. */
enum wgrad_clock_row {
    WGRAD_CLOCK_BASE,
    WGRAD_CLOCK_AVX2,
    WGRAD_CLOCK_AVX512,
    WGRAD_CLOCK_NEON,
    WGRAD_CLOCK_AVX512_BF16,
    WGRAD_CLOCK_ROWS
};

/* Whether this program and this processor have a row. */
int wgrad_clock_has(int row);

/* Independent multiply-adds in registers alone: sets *time for `rounds` of them, returns the FLOPs that they were (0 if
 * the row is not there). */
double wgrad_clock_arithmetic(int row, int64_t rounds, wgrad_time *time);

/* Load every byte once with the vectors of a row, `repeats` times over. `bytes` is a multiple of 1024, `memory` aligned
 * to 64. Returns the bytes loaded (0 if the row is not there). */
double wgrad_clock_read(int row, const void *memory, int64_t bytes, int64_t repeats, wgrad_time *time);

#endif
