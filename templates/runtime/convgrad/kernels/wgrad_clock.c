/* SPDX-License-Identifier: Apache-2.0
 * Clocks for the benchmark; wgrad_clock.h says what each does. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif

#include "wgrad_clock.h"

#include <stddef.h>
#include <time.h>

static double read_clock(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static wgrad_time start_clock(void)
{
    wgrad_time start;
    start.wall = read_clock(CLOCK_MONOTONIC);
    start.cpu = read_clock(CLOCK_THREAD_CPUTIME_ID);
    return start;
}

static void stop_clock(wgrad_time start, wgrad_time *time)
{
    time->cpu = read_clock(CLOCK_THREAD_CPUTIME_ID) - start.cpu;
    time->wall = read_clock(CLOCK_MONOTONIC) - start.wall;
}

typedef int run_function(uintptr_t kernel, const void *geometry, const void *plain, const void *windowed, void *out,
                         int64_t items, int64_t scratch_bytes, int threads);

int wgrad_clock_kernel(uintptr_t run, uintptr_t kernel, uintptr_t geometry, uintptr_t plain, uintptr_t windowed,
                       uintptr_t out, int64_t items, int64_t scratch_bytes, int threads, int64_t repeats,
                       wgrad_time *time)
{
    run_function *const function = (run_function *)run;
    int status = 0;
    const wgrad_time start = start_clock();
    for (int64_t i = 0; i < repeats; i++)
        status = function(kernel, (const void *)geometry, (const void *)plain, (const void *)windowed, (void *)out,
                          items, scratch_bytes, threads);
    stop_clock(start, time);
    return status;
}

typedef int execute_function(const void *partition, void *stream, size_t num_inputs, const void *inputs,
                             size_t num_outputs, const void *outputs);
typedef int wait_function(void *stream);

int wgrad_clock_onednn(uintptr_t execute, uintptr_t wait, uintptr_t partition, uintptr_t stream, uintptr_t inputs,
                       uintptr_t outputs, int64_t repeats, wgrad_time *time)
{
    execute_function *const run = (execute_function *)execute;
    wait_function *const finish = (wait_function *)wait;
    int status = 0;
    const wgrad_time start = start_clock();
    for (int64_t i = 0; i < repeats && status == 0; i++) {
        status = run((const void *)partition, (void *)stream, 2, (const void *)inputs, 1, (const void *)outputs);
        if (status == 0)
            status = finish((void *)stream);
    }
    stop_clock(start, time);
    return status;
}

/* Roofs. Each instruction is written out, so that the compiler can neither drop nor fuse it. A row needs as many sums
 * as it takes to hide the latency: units times cycles, 2 x 4 on most machines. */

typedef float vector128 __attribute__((vector_size(16), may_alias));
typedef float vector256 __attribute__((vector_size(32), may_alias));
typedef float vector512 __attribute__((vector_size(64), may_alias));

#define TWELVE(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define SIXTEEN(X) TWELVE(X) X(12) X(13) X(14) X(15)

/* A function that makes `rounds` rounds of ALL's sums. */
#define DEFINE_ARITHMETIC(NAME, TARGET, VECTOR, ALL, DECLARE, STEP)     \
    TARGET static void arithmetic_##NAME(int64_t rounds)                \
    {                                                                   \
        VECTOR factor = {0}, other = {0};                               \
        __asm__ volatile("" : "+" REGISTER (factor), "+" REGISTER (other)); \
        ALL(DECLARE)                                                    \
        for (int64_t i = 0; i < rounds; i++) {                          \
            ALL(STEP)                                                   \
        }                                                               \
    }

/* A function that loads `bytes` bytes, sixteen vectors at a time. */
#define DEFINE_READ(NAME, TARGET, VECTOR)                                     \
    TARGET static void read_##NAME(const void *memory, int64_t bytes)         \
    {                                                                         \
        const VECTOR *from = memory, *const end = from + bytes / sizeof *from; \
        for (; from < end; from += 16) {                                      \
            SIXTEEN(LOAD)                                                     \
        }                                                                     \
    }
#define LOAD(i) __asm__ volatile("" : : REGISTER (from[i]));

#if defined(__x86_64__)

#define DECLARE_128(i) vector128 sum##i = {0};
#define DECLARE_256(i) vector256 sum##i = {0};
#define DECLARE_512(i) vector512 sum##i = {0};

/* No fused multiply-add: a product, then a sum. */
#define STEP_BASE(i)                                            \
    {                                                           \
        vector128 product;                                      \
        __asm__ volatile("movaps %2, %1\n\tmulps %3, %1\n\taddps %1, %0" \
                         : "+x"(sum##i), "=&x"(product)         \
                         : "x"(factor), "x"(other));            \
    }
#define STEP_AVX2(i) __asm__ volatile("vfmadd231ps %1, %2, %0" : "+x"(sum##i) : "x"(factor), "x"(other));
#define STEP_AVX512(i) __asm__ volatile("vfmadd231ps %1, %2, %0" : "+v"(sum##i) : "v"(factor), "v"(other));
#define STEP_BF16(i) __asm__ volatile("vdpbf16ps %1, %2, %0" : "+v"(sum##i) : "v"(factor), "v"(other));

#define REGISTER "x"
DEFINE_ARITHMETIC(base, , vector128, TWELVE, DECLARE_128, STEP_BASE)
DEFINE_ARITHMETIC(avx2, __attribute__((target("avx2,fma"))), vector256, TWELVE, DECLARE_256, STEP_AVX2)
DEFINE_READ(base, , vector128)
DEFINE_READ(avx2, __attribute__((target("avx2,fma"))), vector256)
#undef REGISTER
#define REGISTER "v"
DEFINE_ARITHMETIC(avx512, __attribute__((target("avx512f"))), vector512, SIXTEEN, DECLARE_512, STEP_AVX512)
DEFINE_ARITHMETIC(bf16, __attribute__((target("avx512f,avx512bf16"))), vector512, SIXTEEN, DECLARE_512, STEP_BF16)
DEFINE_READ(avx512, __attribute__((target("avx512f"))), vector512)

#elif defined(__aarch64__)

#define REGISTER "w"
#define DECLARE_128(i) vector128 sum##i = {0};
#define STEP_BASE(i)                                                                   \
    {                                                                                  \
        vector128 product;                                                             \
        __asm__ volatile("fmul %1.4s, %2.4s, %3.4s\n\tfadd %0.4s, %0.4s, %1.4s"        \
                         : "+w"(sum##i), "=&w"(product)                                \
                         : "w"(factor), "w"(other));                                   \
    }
#define STEP_NEON(i) __asm__ volatile("fmla %0.4s, %1.4s, %2.4s" : "+w"(sum##i) : "w"(factor), "w"(other));
DEFINE_ARITHMETIC(base, , vector128, TWELVE, DECLARE_128, STEP_BASE)
DEFINE_ARITHMETIC(neon, , vector128, SIXTEEN, DECLARE_128, STEP_NEON)
DEFINE_READ(base, , vector128)

#else

/* An architecture that nobody has measured: plain C, which the compiler may vectorise. */
static void arithmetic_base(int64_t rounds)
{
    static volatile float zero;
    float sums[48] = {0}, factor = zero, other = zero;
    for (int64_t i = 0; i < rounds; i++)
        for (int k = 0; k < 48; k++)
            sums[k] += factor * other + (float)i;
    for (int k = 0; k < 48; k++)
        zero = sums[k];
}

static void read_base(const void *memory, int64_t bytes)
{
    static volatile uint64_t sink;
    const uint64_t *const from = memory;
    uint64_t all = 0;
    for (int64_t i = 0; i < bytes / 8; i++)
        all |= from[i];
    sink = all;
    (void)sink;
}

#endif

/* FLOPs of one round: sums times lanes times two, four where the factors are pairs. */
typedef struct row {
    void (*arithmetic)(int64_t rounds);
    void (*read)(const void *memory, int64_t bytes);
    int flops;
} row;

static const row rows[WGRAD_CLOCK_ROWS] = {
    [WGRAD_CLOCK_BASE] = {arithmetic_base, read_base, 12 * 4 * 2},
#if defined(__x86_64__)
    [WGRAD_CLOCK_AVX2] = {arithmetic_avx2, read_avx2, 12 * 8 * 2},
    [WGRAD_CLOCK_AVX512] = {arithmetic_avx512, read_avx512, 16 * 16 * 2},
    [WGRAD_CLOCK_AVX512_BF16] = {arithmetic_bf16, read_avx512, 16 * 16 * 4},
#elif defined(__aarch64__)
    [WGRAD_CLOCK_NEON] = {arithmetic_neon, read_base, 16 * 4 * 2},
#endif
};

int wgrad_clock_has(int number)
{
    if (number < 0 || number >= WGRAD_CLOCK_ROWS || rows[number].arithmetic == NULL)
        return 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    switch (number) {
    case WGRAD_CLOCK_AVX2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case WGRAD_CLOCK_AVX512:
        return __builtin_cpu_supports("avx512f") != 0;
    case WGRAD_CLOCK_AVX512_BF16:
        return __builtin_cpu_supports("avx512bf16") != 0;
    default:
        break;
    }
#endif
    return 1;
}

double wgrad_clock_arithmetic(int number, int64_t rounds, wgrad_time *time)
{
    if (!wgrad_clock_has(number))
        return 0;
    const wgrad_time start = start_clock();
    rows[number].arithmetic(rounds);
    stop_clock(start, time);
    return (double)rows[number].flops * (double)rounds;
}

double wgrad_clock_read(int number, const void *memory, int64_t bytes, int64_t repeats, wgrad_time *time)
{
    if (!wgrad_clock_has(number))
        return 0;
    const wgrad_time start = start_clock();
    for (int64_t i = 0; i < repeats; i++)
        rows[number].read(memory, bytes);
    stop_clock(start, time);
    return (double)bytes * (double)repeats;
}
