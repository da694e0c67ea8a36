/* SPDX-License-Identifier: Apache-2.0
 * Runs one kernel over many geometries without Python, so that sanitizers see nothing but the kernel.
 *
 * Compile with -DKERNEL=<symbol> -DNXC=<0|1> -DELEMENT_HEADER="element_<dtype>.h" and the kernel's file. Reads cases from
 * standard input, a line of integers each: the fields of wgrad_geometry in their order, then items and scratch bytes.
 * Every buffer has exactly the size that it needs, so that a step outside is seen. Data are small integers, for which
 * every sum is exact: the expected result is that of a plain loop in double. The items run in a scrambled order and in
 * unequal pieces. Ends with `N passed, M failed`. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wgrad_geometry.h"
#include ELEMENT_HEADER

void KERNEL(const wgrad_geometry *geometry, const void *plain, const void *windowed, void *out, void *scratch,
            int64_t first, int64_t last);

static uint32_t state = 12345;

static int draw(int bound)
{
    state = state * 1664525u + 1013904223u;
    return (int)((state >> 16) % (uint32_t)bound);
}

static void *allocate(int64_t bytes)
{
    void *memory = NULL;
    if (posix_memalign(&memory, 64, bytes > 0 ? (size_t)bytes : 1) != 0)
        abort();
    return memory;
}

static int64_t spatial(const int64_t *extents)
{
    return extents[0] * extents[1] * extents[2];
}

static int64_t offset(int64_t n, int64_t channels, int64_t channel, const int64_t *extents, int64_t position)
{
    return NXC ? (n * spatial(extents) + position) * channels + channel
               : (n * channels + channel) * spatial(extents) + position;
}

/* The position in the windowed tensor that a tap meets, or -1 for padding. */
static int64_t meet(const wgrad_geometry *q, int64_t position, int64_t tap)
{
    int64_t result = 0, o[3], k[3];
    for (int axis = 2; axis >= 0; axis--) {
        o[axis] = position % q->O[axis], position /= q->O[axis];
        k[axis] = tap % q->K[axis], tap /= q->K[axis];
    }
    for (int axis = 0; axis < 3; axis++) {
        const int64_t i = o[axis] * q->stride[axis] + k[axis] * q->dilation[axis] - q->pad[axis];
        if (i < 0 || i >= q->I[axis])
            return -1;
        result = result * q->I[axis] + i;
    }
    return result;
}

static double expected(const wgrad_geometry *q, const element *plain, const element *windowed, int64_t g, int64_t p,
                       int64_t w, int64_t tap)
{
    double sum = 0.0;
    for (int64_t n = 0; n < q->N; n++)
        for (int64_t position = 0; position < spatial(q->O); position++) {
            const int64_t i = meet(q, position, tap);
            if (i >= 0)
                sum += (double)element_to_float(plain[offset(n, q->G * q->P, g * q->P + p, q->O, position)])
                       * (double)element_to_float(windowed[offset(n, q->G * q->W, g * q->W + w, q->I, i)]);
        }
    return sum;
}

static void run_items(const wgrad_geometry *q, const element *plain, const element *windowed, void *out,
                      int64_t scratch_bytes, int64_t items)
{
    const int64_t pieces = 1 + draw(4);
    for (int64_t i = pieces - 1; i >= 0; i--) {
        void *const scratch = allocate(scratch_bytes);
        memset(scratch, 0xff, (size_t)scratch_bytes);
        KERNEL(q, plain, windowed, out, scratch, items * i / pieces, items * (i + 1) / pieces);
        free(scratch);
    }
}

static int check_case(const wgrad_geometry *q, int64_t items, int64_t scratch_bytes)
{
    const int64_t plain_count = q->N * q->G * q->P * spatial(q->O), taps = spatial(q->K);
    const int64_t windowed_count = q->N * q->G * q->W * spatial(q->I), out_count = q->G * q->P * q->W * taps;
    const size_t out_size = q->out_f32 ? sizeof(float) : sizeof(element);
    element *const plain = allocate(plain_count * (int64_t)sizeof(element));
    element *const windowed = allocate(windowed_count * (int64_t)sizeof(element));
    void *const out = allocate(out_count * (int64_t)out_size);
    int64_t wrong = 0, zero = 0;

    for (int64_t i = 0; i < plain_count; i++)
        plain[i] = element_from_float((float)(draw(3) - 1));
    for (int64_t i = 0; i < windowed_count; i++)
        windowed[i] = element_from_float((float)(draw(3) - 1));
    memset(out, 0xff, (size_t)out_count * out_size);
    if (q->accumulate)
        for (int64_t i = 0; i < out_count; i++)
            ((float *)out)[i] = 3.0f;
    run_items(q, plain, windowed, out, scratch_bytes, items);
    for (int64_t g = 0; g < q->G; g++)
        for (int64_t p = 0; p < q->P; p++)
            for (int64_t w = 0; w < q->W; w++)
                for (int64_t tap = 0; tap < taps; tap++) {
                    const int64_t kw = tap % q->K[2], kh = tap / q->K[2] % q->K[1], kd = tap / q->K[2] / q->K[1];
                    const int64_t at = g * q->out_group + p * q->out_plain + w * q->out_windowed
                                       + kd * q->out_tap[0] + kh * q->out_tap[1] + kw * q->out_tap[2];
                    const float have = q->out_f32 ? ((const float *)out)[at] : element_to_float(((const element *)out)[at]);
                    const double want = expected(q, plain, windowed, g, p, w, tap) + (q->accumulate ? 3.0 : 0.0);
                    wrong += (double)have != want;
                    zero += want == 0.0;
                }
    free(plain);
    free(windowed);
    free(out);
    return wrong == 0 ? (zero < out_count ? 1 : 2) : 0;
}

int main(void)
{
    int64_t numbers[sizeof(wgrad_geometry) / sizeof(int64_t) + 2];
    const int count = (int)(sizeof numbers / sizeof *numbers);
    long line = 0, results[3] = {0};
    for (;;) {
        int read = 0;
        while (read < count && scanf("%" SCNd64, &numbers[read]) == 1)
            read++;
        if (read < count)
            break;
        wgrad_geometry geometry;
        memcpy(&geometry, numbers, sizeof geometry);
        const int result = check_case(&geometry, numbers[count - 2], numbers[count - 1]);
        if (result == 0)
            printf("wrong: case on line %ld\n", line + 1);
        results[result]++;
        line++;
    }
    printf("%ld trivial\n%ld passed, %ld failed\n", results[2], results[1], results[0]);
    return results[0] == 0 ? 0 : 1;
}
