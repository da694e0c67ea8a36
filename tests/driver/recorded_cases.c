/* SPDX-License-Identifier: Apache-2.0
 * Runs recorded calls of many kernels without Python, and compares every bit with what the record expects: on another
 * processor than the one they were recorded on, or under sanitizers.
 *
 * Compile with -DKERNEL_LIST="<file>", which has a line KERNEL(<symbol>) for each kernel, and link with these kernels
 * and wgrad_runtime.c. Reads records from standard input, each a struct record and then the bytes of plain, windowed,
 * out before the call, and out after it. Every buffer has exactly the size that it needs, and is full of ones before it
 * is written. Without slabs the items run in pieces, the last one first; with and without, wgrad_run runs them.
 * Prints the instruction set that the runtime finds, a line for each wrong record, and `N passed, M failed`. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wgrad_geometry.h"
#include "wgrad_runtime.h"

#define KERNEL(symbol) wgrad_kernel symbol;
#include KERNEL_LIST
#undef KERNEL

#define KERNEL(symbol) symbol,
static wgrad_kernel *const kernels[] = {
#include KERNEL_LIST
};
#undef KERNEL

enum { PIECES = 3 };

typedef struct record {
    int64_t kernel; /* its place in the list */
    int64_t items, scratch_bytes, threads;
    int64_t plain_bytes, windowed_bytes, out_bytes;
    wgrad_geometry geometry;
} record;

static void *allocate(int64_t bytes)
{
    void *memory = NULL;
    if (posix_memalign(&memory, 64, bytes > 0 ? (size_t)bytes : 1) != 0)
        abort();
    memset(memory, 0xff, (size_t)bytes);
    return memory;
}

static void *read_bytes(int64_t bytes)
{
    void *const memory = allocate(bytes);
    if (fread(memory, 1, (size_t)bytes, stdin) != (size_t)bytes)
        abort();
    return memory;
}

static void run_pieces(const record *r, const void *plain, const void *windowed, void *out)
{
    for (int64_t i = PIECES - 1; i >= 0; i--) {
        void *const scratch = allocate(r->scratch_bytes);
        kernels[r->kernel](&r->geometry, plain, windowed, out, scratch, r->items * i / PIECES,
                           r->items * (i + 1) / PIECES);
        free(scratch);
    }
}

static int64_t count_differences(const unsigned char *found, const unsigned char *expected, int64_t bytes)
{
    int64_t differences = 0;
    for (int64_t i = 0; i < bytes; i++)
        differences += found[i] != expected[i];
    return differences;
}

static int check_record(const record *r, long number)
{
    unsigned char *const plain = read_bytes(r->plain_bytes), *const windowed = read_bytes(r->windowed_bytes);
    unsigned char *const before = read_bytes(r->out_bytes), *const expected = read_bytes(r->out_bytes);
    unsigned char *const out = allocate(r->out_bytes);
    int64_t by_piece = 0;
    if (r->geometry.out_slab == 0) {
        memcpy(out, before, (size_t)r->out_bytes);
        run_pieces(r, plain, windowed, out);
        by_piece = count_differences(out, expected, r->out_bytes);
    }
    memcpy(out, before, (size_t)r->out_bytes);
    const int status = wgrad_run((uintptr_t)kernels[r->kernel], &r->geometry, plain, windowed, out, r->items,
                                 r->scratch_bytes, (int)r->threads);
    const int64_t by_run = count_differences(out, expected, r->out_bytes);
    if (by_piece > 0 || by_run > 0 || status != 0)
        printf("wrong: record %ld: %" PRId64 " bytes item by item, %" PRId64 " in wgrad_run (status %d)\n", number,
               by_piece, by_run, status);
    free(plain);
    free(windowed);
    free(before);
    free(expected);
    free(out);
    return by_piece == 0 && by_run == 0 && status == 0;
}

int main(void)
{
    long passed = 0, failed = 0;
    record r;
    printf("isa %s\n", wgrad_cpu_isa());
    while (fread(&r, sizeof r, 1, stdin) == 1) {
        if (check_record(&r, passed + failed))
            passed++;
        else
            failed++;
    }
    printf("%ld passed, %ld failed\n", passed, failed);
    return failed == 0 ? 0 : 1;
}
