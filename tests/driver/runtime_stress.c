/* SPDX-License-Identifier: Apache-2.0
 * The runtime under stress, without Python, so that sanitizers see nothing else:
 *
 *   cc -std=c11 -pthread -fsanitize=thread -I <folder of the kernels> runtime_stress.c -lm && ./a.out
 *   ./a.out [host threads] [calls of each]     8 and 500, if not given
 *
 * Says which checks failed, and at the end "N passed, M failed"; exits with 1 if any failed. A hang ends with SIGALRM.
 *
 * The runtime is included as source, so that its allocations and threads can be made to fail. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <fenv.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The C library's allocator survives a fork; a sanitizer's need not: threads that the child does not have may hold its
 * locks. With a sanitizer, therefore, nobody is allocating while this program forks. */
#if defined(__has_feature)
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

static pthread_mutex_t allocator = PTHREAD_MUTEX_INITIALIZER;

static void lock_allocator(void)
{
    if (SANITIZED)
        pthread_mutex_lock(&allocator);
}

static void unlock_allocator(void)
{
    if (SANITIZED)
        pthread_mutex_unlock(&allocator);
}

static void *allocate(size_t alignment, size_t bytes)
{
    lock_allocator();
    void *const made = aligned_alloc(alignment, bytes);
    unlock_allocator();
    return made;
}

static void release(void *memory)
{
    lock_allocator();
    free(memory);
    unlock_allocator();
}

/* What the runtime gets. The call that counts one of these down to 0 fails; with a negative number none does. */
static atomic_int allocations_until_failure = -1, threads_until_failure = -1;

static void *allocate_or_fail(size_t alignment, size_t bytes)
{
    return allocations_until_failure > 0 && --allocations_until_failure == 0 ? NULL : allocate(alignment, bytes);
}

static int create_or_fail(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument)
{
    if (threads_until_failure > 0 && --threads_until_failure == 0) {
        threads_until_failure = 1; /* like a system out of threads: the next one fails too */
        return EAGAIN;
    }
    return pthread_create(thread, attributes, start, argument);
}

#define aligned_alloc allocate_or_fail
#define free release
#define pthread_create create_or_fail
#include "wgrad_runtime.c"
#undef aligned_alloc
#undef free
#undef pthread_create

/* No suppressions: an allocation that cannot be made returns NULL as it does without a sanitizer, and a child of a
 * process with threads may start threads of its own, which is what is tested here. */
const char *__asan_default_options(void);
const char *__tsan_default_options(void);

const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1:die_after_fork=0";
}

enum { TIME_LIMIT_SECONDS = 240, MANY_ITEMS = 4096 };

static atomic_int passed, failed;

static void check(bool condition, const char *what, int64_t value, int64_t expected)
{
    if (condition) {
        passed++;
        return;
    }
    failed++;
    printf("FAILED %s: %" PRId64 ", expected %" PRId64 "\n", what, value, expected);
}

static void check_equal(const char *what, int64_t value, int64_t expected)
{
    check(value == expected, what, value, expected);
}

static void check_at_most(const char *what, int64_t value, int64_t limit)
{
    check(value <= limit, what, value, limit);
}

/* The toy kernel. Item i reads plain[i], uses all of its scratch (N bytes of it, as far as it is looked at), and writes
 * out[i]. Each time that an item runs adds to what is there, so an item done twice, or not at all, shows. */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static atomic_int faults; /* what the kernel itself finds wrong */

static void toy_kernel(const wgrad_geometry *geometry, const void *plain, const void *windowed, void *out,
                       void *scratch, int64_t first, int64_t last)
{
    const uint64_t *const x = plain, *const salt = windowed;
    uint64_t *const y = out;
    const int64_t bytes = geometry->N;
    unsigned char *const mine = scratch;
    if ((bytes > 0) != (scratch != NULL) || (uintptr_t)scratch % 64 != 0 || first >= last)
        faults++;
    for (int64_t i = first; i < last; i++) {
        const unsigned char mark = (unsigned char)mix((uint64_t)i + *salt);
        for (int64_t at = 0; at < bytes; at += at < 64 || at + 65 > bytes ? 1 : (bytes - at) / 2)
            mine[at] = (unsigned char)(mark + at);
        for (int64_t at = 0; at < bytes; at += at < 64 || at + 65 > bytes ? 1 : (bytes - at) / 2)
            if (mine[at] != (unsigned char)(mark + at))
                faults++;
        y[i] += mix(x[i] ^ *salt);
    }
}

static const uint64_t *toy_input(void)
{
    static uint64_t input[MANY_ITEMS];
    if (input[1] == 0)
        for (uint64_t i = 0; i < MANY_ITEMS; i++)
            input[i] = mix(i);
    return input;
}

/* Returns the number of wrong elements of out, or -1 if the run failed with ENOMEM and left out alone. */
static int64_t run_toy(int64_t items, int64_t scratch_bytes, int threads, uint64_t salt)
{
    const size_t bytes = ((size_t)items + 2) * sizeof(uint64_t);
    uint64_t *const out = allocate(sizeof *out, bytes);
    memset(out, 0, bytes);
    const wgrad_geometry geometry = {.N = scratch_bytes > 0 ? scratch_bytes : 0};
    out[0] = out[items + 1] = salt;
    const int status =
        wgrad_run((uintptr_t)toy_kernel, &geometry, toy_input(), &salt, out + 1, items, scratch_bytes, threads);
    int64_t wrong = (out[0] != salt) + (out[items + 1] != salt);
    for (int64_t i = 0; i < items; i++)
        wrong += out[1 + i] != (status == 0 ? mix(toy_input()[i] ^ salt) : 0);
    release(out);
    return wrong == 0 && status == ENOMEM ? -1 : wrong + (status != 0);
}

/* What the arguments may be. */
static void check_arguments(void)
{
    const int64_t items[] = {0, 1, 2, 3, 7, 64, 1000, MANY_ITEMS}, scratch[] = {-1, 0, 1, 64, 1000, 1 << 16};
    const int threads[] = {1, 0, -5, INT_MIN, 2, 3, 8, 33, WGRAD_MAX_THREADS + 1, INT_MAX};
    for (size_t i = 0; i < sizeof items / sizeof *items; i++)
        for (size_t s = 0; s < sizeof scratch / sizeof *scratch; s++)
            for (size_t t = 0; t < sizeof threads / sizeof *threads; t++)
                if (threads[t] <= 33 || items[i] <= 64) /* a thousand helpers prove nothing that 63 do not */
                    check_equal("wrong elements", run_toy(items[i], scratch[s], threads[t], i + s + t), 0);
    const wgrad_geometry geometry = {0};
    check_equal("status for -1 items", wgrad_run((uintptr_t)toy_kernel, &geometry, NULL, NULL, NULL, -1, 0, 2), 0);
    check_equal("helpers after asking for 64 threads", wgrad_pool_threads(), 63);
    check_equal("faults seen by the kernel", faults, 0);
}

/* Scratch: reused, grown, bounded, and gone when much too large. */
static void check_scratch(void)
{
    for (int64_t bytes = 1; bytes < 1 << 22; bytes = bytes * 3 + 1)
        check_equal("wrong elements with growing scratch", run_toy(64, bytes, 1, (uint64_t)bytes), 0);
    check_equal("wrong elements", run_toy(1, 4 << 20, 1, 1), 0);
    const int64_t held = wgrad_scratch_bytes();
    for (int n = 0; n < 100; n++)
        check_equal("wrong elements with reused scratch", run_toy(8, (4 << 20) - n, 1, (uint64_t)n), 0);
    check_equal("bytes held after a hundred more calls", wgrad_scratch_bytes(), held);
    /* The caller takes slot 0, and a buffer that is too large to keep leaves it empty. */
    const int64_t others = held - (4 << 20);
    check_equal("wrong elements with 64 MiB", run_toy(2, KEPT_BYTES, 1, 1), 0);
    check_equal("bytes held after 64 MiB", wgrad_scratch_bytes(), others + KEPT_BYTES);
    check_equal("wrong elements with more", run_toy(2, KEPT_BYTES + 1, 1, 1), 0);
    check_equal("bytes held after more than 64 MiB", wgrad_scratch_bytes(), others);
    check_equal("faults seen by the kernel", faults, 0);
}

/* Scratch belongs to one thread at a time: calls as short as they can be, so that their takes and releases collide. */

static void owning_kernel(const wgrad_geometry *geometry, const void *plain, const void *windowed, void *out,
                          void *scratch, int64_t first, int64_t last)
{
    (void)geometry, (void)plain, (void)windowed, (void)first, (void)last;
    volatile const void **const owner = scratch;
    *owner = out;
    for (int i = 0; i < 20; i++)
        if (*owner != out)
            faults++;
}

static void *call_quickly(void *unused)
{
    const wgrad_geometry geometry = {0};
    int own;
    for (int n = 0; n < 100000; n++)
        wgrad_run((uintptr_t)owning_kernel, &geometry, NULL, NULL, &own, 1, sizeof(void *), 1);
    return unused;
}

static void check_scratch_has_one_owner(void)
{
    pthread_t callers[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&callers[i], NULL, call_quickly, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(callers[i], NULL);
    check_equal("reads of scratch that somebody else had written", faults, 0);
}

/* More callers at a time than there are slots. */

static pthread_barrier_t all_inside;

static void meeting_kernel(const wgrad_geometry *geometry, const void *plain, const void *windowed, void *out,
                           void *scratch, int64_t first, int64_t last)
{
    (void)plain, (void)windowed, (void)out, (void)first, (void)last;
    memset(scratch, 1, (size_t)geometry->N);
    pthread_barrier_wait(&all_inside);
}

static void *meet(void *unused)
{
    const wgrad_geometry geometry = {.N = 4096};
    check_equal("status", wgrad_run((uintptr_t)meeting_kernel, &geometry, NULL, NULL, NULL, 1, geometry.N, 1), 0);
    return unused;
}

static void check_more_callers_than_slots(void)
{
    enum { CALLERS = SLOTS + 20 };
    static pthread_t callers[CALLERS];
    pthread_barrier_init(&all_inside, NULL, CALLERS + 1);
    for (int i = 0; i < CALLERS; i++)
        pthread_create(&callers[i], NULL, meet, NULL);
    pthread_barrier_wait(&all_inside);
    for (int i = 0; i < CALLERS; i++)
        pthread_join(callers[i], NULL);
    pthread_barrier_destroy(&all_inside);
    int64_t kept = 0, taken = 0;
    for (int i = 0; i < SLOTS; i++) {
        kept += slots[i].held != NULL ? slots[i].held->bytes : 0;
        taken += slots[i].taken;
    }
    check_equal("bytes held, all of them in slots", wgrad_scratch_bytes(), kept);
    check_equal("slots still taken", taken, 0);
}

/* No memory, no threads. */
static void check_failures(void)
{
    check_equal("result for INT64_MAX bytes", run_toy(4, INT64_MAX, 3, 1), -1);
    check_equal("result for 2^62 bytes", run_toy(4, INT64_MAX / 2, 3, 1), -1);
    check_equal("result for 2^62 - 2^10 bytes", run_toy(4, INT64_MAX / 2 - 1023, 1, 1), -1);
    /* Fail the n-th allocation, for n = 1, 2, ...: the first is the caller's, and the others are the helpers'. */
    for (int n = 1; n <= 6; n++)
        for (int repeat = 0; repeat < 20; repeat++) {
            for (int i = 0; i < SLOTS; i++) /* nobody is inside, so that all of them are ours */
                discard(&slots[i]);
            allocations_until_failure = n;
            check_equal("result with a failing allocation", run_toy(300, 512, 5, (uint64_t)n), n == 1 ? -1 : 0);
        }
    allocations_until_failure = -1;
    const int before = wgrad_pool_threads();
    threads_until_failure = 3;
    check_equal("wrong elements without enough threads", run_toy(MANY_ITEMS, 64, before + 6, 1), 0);
    check_equal("helpers when the third cannot be had", wgrad_pool_threads(), before + 2);
    threads_until_failure = -1;
    check_equal("wrong elements", run_toy(MANY_ITEMS, 64, before + 6, 1), 0);
    check_equal("helpers afterwards", wgrad_pool_threads(), before + 5);
    check_equal("faults seen by the kernel", faults, 0);
}

/* The floating-point environment: the default one for every item, and the caller's again at the end. */

static void rounding_kernel(const wgrad_geometry *geometry, const void *plain, const void *windowed, void *out,
                            void *scratch, int64_t first, int64_t last)
{
    (void)geometry, (void)plain, (void)windowed, (void)scratch;
    for (int64_t i = first; i < last; i++) {
        volatile float tiny = 0x1p-126f, one = 1.0f, three = 3.0f, zero = 0.0f;
        tiny = tiny * 0.5f;                   /* zero where subnormals are flushed */
        const float third = one / three;      /* depends on the rounding, and raises inexact */
        volatile float infinity = one / zero; /* traps where division by zero is unmasked */
        ((int *)out)[i] = tiny > 0.0f && third == 0x1.555556p-2f && infinity > one && fegetround() == FE_TONEAREST;
    }
}

static void check_environment(void)
{
    const wgrad_geometry geometry = {0};
    int right[256];
    for (int threads = 1; threads <= 4; threads++)
        for (int mode = 1; mode >= 0; mode--) { /* the odd one first: helpers must not inherit it */
#if defined(__SSE__)
            /* Upwards, flushing to zero, subnormals as zero, division by zero unmasked, the overflow flag set. */
            const unsigned saved = __builtin_ia32_stmxcsr(), odd = mode == 0 ? saved : 0xddc8u;
            __builtin_ia32_ldmxcsr(odd);
#else
            const int saved = fegetround(), odd = mode == 0 ? saved : FE_UPWARD;
            fesetround(odd);
#endif
            memset(right, 0, sizeof right);
            const int status = wgrad_run((uintptr_t)rounding_kernel, &geometry, NULL, NULL, right, 256, 100, threads);
#if defined(__SSE__)
            const unsigned after = __builtin_ia32_stmxcsr();
            __builtin_ia32_ldmxcsr(saved);
#else
            const int after = fegetround();
            fesetround(saved);
#endif
            check_equal("status", status, 0);
            check_equal("the caller's floating-point environment", (int64_t)after, (int64_t)odd);
            int sum = 0;
            for (int i = 0; i < 256; i++)
                sum += right[i];
            check_equal("items that were computed in the default environment", sum, 256);
        }
}

/* A call ends although every helper is stuck in another one. */

static atomic_int inside, let_go;

static void stuck_kernel(const wgrad_geometry *geometry, const void *plain, const void *windowed, void *out,
                         void *scratch, int64_t first, int64_t last)
{
    (void)geometry, (void)plain, (void)windowed, (void)out, (void)scratch;
    for (int64_t i = first; i < last; i++) {
        inside++;
        while (!let_go)
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
}

static void *get_stuck(void *unused)
{
    const wgrad_geometry geometry = {0};
    const int everybody = wgrad_pool_threads() + 1;
    check_equal("status", wgrad_run((uintptr_t)stuck_kernel, &geometry, NULL, NULL, NULL, everybody, 0, everybody), 0);
    return unused;
}

static void check_busy_pool(void)
{
    pthread_t stuck;
    pthread_create(&stuck, NULL, get_stuck, NULL);
    while (inside < wgrad_pool_threads() + 1)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    for (int threads = 1; threads <= 3; threads++)
        check_equal("wrong elements with all helpers busy", run_toy(100, 100, threads, 1), 0);
    let_go = 1;
    pthread_join(stuck, NULL);
}

/* Many callers at a time, and forks among them. */

static int calls_of_each;
static atomic_bool forks_done;

static void *call_often(void *number)
{
    const uint64_t seed = (uint64_t)(uintptr_t)number;
    for (int n = 0; n < calls_of_each || !forks_done; n++) {
        const uint64_t random = mix(seed << 32 | (uint64_t)n);
        const int64_t items = 1 + (int64_t)(random % 200), bytes = (int64_t)(random >> 8 & 0x3fff);
        const int64_t scratch = random >> 24 & 15 ? bytes : 50 * bytes;
        check_equal("wrong elements with many callers", run_toy(items, scratch, (int)(random >> 32 & 7), random), 0);
    }
    return NULL;
}

/* In a child: 0 if everything works, else which step did not. */
static int run_in_child(int generations)
{
    alarm(60); /* not inherited; a hang of the child is what this is about */
    if (wgrad_pool_threads() != 0)
        return 2;
    for (int i = 0; i < SLOTS; i++)
        if (slots[i].taken)
            return 7;
    for (int threads = 1; threads <= 4; threads++)
        if (run_toy(200, 5000, threads, (uint64_t)threads) != 0)
            return 3;
    if (wgrad_pool_threads() != 3)
        return 4;
    if (generations > 0) {
        const pid_t child = fork();
        if (child == 0)
            _exit(run_in_child(generations - 1));
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
            return 5;
        return WEXITSTATUS(status);
    }
    return faults > 0 ? 6 : 0;
}

static void check_forks(int forks)
{
    for (int n = 0; n < forks; n++) {
        fflush(stdout);
        const pid_t child = fork();
        if (child == 0)
            _exit(run_in_child(n % 2));
        int status = -1;
        waitpid(child, &status, 0);
        check_equal("status of a forked child", status, 0);
        check_equal("wrong elements after a fork", run_toy(200, 5000, 1 + n % 4, (uint64_t)n), 0);
    }
}

static void check_many_callers(int host_threads, int forks)
{
    pthread_t *const callers = calloc((size_t)host_threads, sizeof *callers);
    for (int i = 0; i < host_threads; i++)
        pthread_create(&callers[i], NULL, call_often, (void *)(uintptr_t)i);
    pthread_atfork(lock_allocator, unlock_allocator, unlock_allocator);
    check_forks(forks);
    forks_done = true;
    for (int i = 0; i < host_threads; i++)
        pthread_join(callers[i], NULL);
    free(callers);
    check_equal("faults seen by the kernel", faults, 0);
    check_equal("seats left over", pool.seats, 0);
    check_equal("jobs left over", pool.jobs != NULL, 0);
    check_at_most("bytes held", wgrad_scratch_bytes(), (int64_t)SLOTS * KEPT_BYTES);
}

/* The process ends although threads are inside. */

static void *call_for_ever(void *unused)
{
    for (;;)
        run_toy(100, 1000, 3, 1);
    return unused;
}

static int end_in_the_middle(void)
{
    alarm(60);
    pthread_t callers[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&callers[i], NULL, call_for_ever, NULL);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    return 7;
}

static void check_exit(const char *program)
{
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        execl(program, program, "end in the middle", (char *)NULL);
        _exit(8);
    }
    int status = -1;
    waitpid(child, &status, 0);
    check_equal("exit code of a process that ends in the middle of calls", WEXITSTATUS(status), 7);
    check_equal("signal that ended it", WIFSIGNALED(status) ? WTERMSIG(status) : 0, 0);
}

int main(int count, char **arguments)
{
    toy_input();
    if (count == 2 && strcmp(arguments[1], "end in the middle") == 0)
        return end_in_the_middle();
    const int host_threads = count > 1 ? atoi(arguments[1]) : 8;
    calls_of_each = count > 2 ? atoi(arguments[2]) : 500;
    alarm(TIME_LIMIT_SECONDS);
    check_equal("helpers before the first call", wgrad_pool_threads(), 0);
    check_equal("bytes held before the first call", wgrad_scratch_bytes(), 0);
    check_equal("wrong elements on one thread", run_toy(100, 100, 1, 1), 0);
    check_equal("helpers after a call on one thread", wgrad_pool_threads(), 0);
    check_environment();
    check_arguments();
    check_scratch();
    check_failures();
    check_busy_pool();
    check_scratch_has_one_owner();
    check_more_callers_than_slots();
    check_many_callers(host_threads, 30);
    for (int n = 0; n < 5; n++)
        check_exit(arguments[0]);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
