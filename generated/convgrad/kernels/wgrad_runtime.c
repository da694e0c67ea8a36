/* SPDX-License-Identifier: Apache-2.0
 * One pool of threads and one store of scratch for all kernels; wgrad_runtime.h says what callers may rely on.
 *
 * A call with threads is a job on its caller's stack. The caller offers seats in it, wakes helpers, and starts at once;
 * helpers come when they come, and everybody takes ranges of items until none are left. So the caller never waits for a
 * helper that has not begun: when the cores or the helpers are busy, it does all of the work itself. Calls at the same
 * time share the helpers. A call on one thread touches nothing of this, and takes no lock.
 *
 * Scratch is kept in slots, one for each thread that works at the same time: at most SLOTS of at most KEPT_BYTES each
 * (256 x 64 MiB), and no more of them are filled than threads have ever worked at a time. A buffer that is larger, or
 * that found no free slot, is freed at the end of its use.
 *
 * A forked child starts with no threads, no jobs, and all slots free. The threads live as long as the process, and
 * nobody waits for them at its end. The library must not be unloaded. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif

#include "wgrad_runtime.h"

#include "clipping.h"
#include "summation.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#if !defined(__SSE__)
#include <fenv.h>
#endif

enum {
    ALIGNMENT = 64,        /* a cache line, and the widest vector */
    SLOTS = 256,
    KEPT_BYTES = 64 << 20, /* to page in a larger buffer takes little time against the work that asks for it */
    SPINS = 500            /* looks before going to sleep, some 10 us: less than to fall asleep and be woken */
};

/* The floating-point environment. Kernels on x86 compute with SSE or later, so MXCSR is all of it. */
#if defined(__SSE__)
typedef unsigned environment;

static environment enter_default_environment(void)
{
    const environment callers = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(0x1f80); /* to nearest, subnormals kept, all exceptions masked */
    return callers;
}

static void restore_environment(environment callers)
{
    __builtin_ia32_ldmxcsr(callers);
}
#else
typedef fenv_t environment;

static environment enter_default_environment(void)
{
    environment callers;
    fegetenv(&callers);
    fesetenv(FE_DFL_ENV);
    return callers;
}

static void restore_environment(environment callers)
{
    fesetenv(&callers);
}
#endif

/* Scratch. */

typedef struct buffer {
    _Alignas(ALIGNMENT) int64_t bytes; /* of what follows this header */
} buffer;

/* Belongs to whoever sets `taken`. Different threads use different ones, hence a cache line each. */
typedef struct slot {
    _Alignas(ALIGNMENT) atomic_bool taken;
    _Atomic(buffer *) held; /* atomic: a fork while its owner replaces it leaves the child a whole pointer */
} slot;

static slot slots[SLOTS];
static _Atomic int64_t held_bytes;

static void discard(slot *s)
{
    buffer *const held = s->held;
    if (held == NULL)
        return;
    s->held = NULL;
    held_bytes -= held->bytes;
    free(held);
}

/* Take a free slot, else `spare`, and see to it that it holds `bytes`; *scratch is what the kernel gets. Helpers begin
 * the search at their own number: the memory they used last may still be in their core's cache. NULL: no memory. */
static slot *take_scratch(int64_t bytes, unsigned start, slot *spare, void **scratch)
{
    *scratch = NULL;
    if (bytes <= 0)
        return spare;
    slot *s = spare;
    for (unsigned i = 0; i < SLOTS && s == spare; i++) {
        slot *const candidate = &slots[(start + i) % SLOTS];
        if (!candidate->taken && !atomic_exchange(&candidate->taken, true))
            s = candidate;
    }
    buffer *held = s->held;
    if (held == NULL || held->bytes < bytes) {
        discard(s); /* first, so that there are never both */
        const int64_t rounded = bytes <= PTRDIFF_MAX / 2 ? (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT : 0;
        held = rounded > 0 ? aligned_alloc(ALIGNMENT, sizeof(buffer) + (size_t)rounded) : NULL;
        if (held == NULL) {
            s->taken = false;
            return NULL;
        }
        held->bytes = rounded;
        s->held = held;
        held_bytes += rounded;
    }
    *scratch = held + 1;
    return s;
}

static void release_scratch(slot *s, const slot *spare)
{
    const buffer *const held = s->held;
    if (s == spare || held->bytes > KEPT_BYTES)
        discard(s);
    s->taken = false;
}

/* Jobs, and the pool that works on them. */

typedef struct job {
    wgrad_kernel *kernel;
    const wgrad_geometry *geometry;
    const void *plain, *windowed;
    void *out;
    int64_t items, scratch_bytes;
    int threads;
    _Atomic int64_t next; /* the first item that nobody has taken */
    atomic_int helping;   /* helpers inside; changed with the lock held */
    int seats;            /* helpers that may still come; with the lock held */
    struct job *following;
} job;

/* All of it belongs to the lock; what is atomic may be looked at without. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t offered;  /* there are seats */
    pthread_cond_t finished; /* the last helper has left a job */
    job *jobs;               /* the newest first */
    int spinning;            /* helpers that look for seats before they sleep */
    atomic_int seats;        /* of all jobs */
    atomic_int threads;
    int fork_handlers; /* what pthread_atfork returned */
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .offered = PTHREAD_COND_INITIALIZER, .finished = PTHREAD_COND_INITIALIZER};

/* Ranges shrink towards the end: few calls of the kernel, and nobody waits long for the last of them. */
static void run_ranges(job *j, void *scratch)
{
    int64_t first = j->next;
    while (first < j->items) {
        const int64_t share = (j->items - first) / (2 * j->threads);
        const int64_t last = first + (share > 1 ? share : 1);
        if (atomic_compare_exchange_weak(&j->next, &first, last)) {
            j->kernel(j->geometry, j->plain, j->windowed, j->out, scratch, first, last);
            first = j->next;
        }
    }
}

/* Spin until `*value` is zero, or is not. Bounded, because what is waited for may need this very core. */
static void spin_until(const atomic_int *value, bool zero)
{
    for (int i = 0; i < SPINS && (*value == 0) != zero; i++) {
#if defined(__SSE__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield");
#endif
    }
}

static void close_seats(job *j)
{
    pool.seats -= j->seats;
    j->seats = 0;
}

static job *take_seat(void)
{
    for (job *j = pool.jobs; j != NULL; j = j->following) {
        if (j->next >= j->items)
            close_seats(j);
        if (j->seats > 0) {
            j->seats--;
            pool.seats--;
            j->helping++;
            return j;
        }
    }
    return NULL;
}

static void help_with(job *j, unsigned number)
{
    slot spare = {0};
    void *scratch;
    slot *const s = take_scratch(j->scratch_bytes, number, &spare, &scratch);
    if (s == NULL)
        return; /* the caller has its own, and does this share too */
    run_ranges(j, scratch);
    release_scratch(s, &spare);
}

static void *help(void *number)
{
    bool spun = false; /* since the last job */
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        job *const j = take_seat();
        if (j != NULL) {
            pthread_mutex_unlock(&pool.lock);
            help_with(j, (unsigned)(uintptr_t)number);
            pthread_mutex_lock(&pool.lock);
            if (--j->helping == 0) /* from here on the caller may return, and the job be gone */
                pthread_cond_broadcast(&pool.finished);
            spun = false;
        } else if (!spun) {
            pool.spinning++;
            pthread_mutex_unlock(&pool.lock);
            spin_until(&pool.seats, false);
            pthread_mutex_lock(&pool.lock);
            pool.spinning--;
            spun = true;
        } else {
            pthread_cond_wait(&pool.offered, &pool.lock);
        }
    }
    return NULL;
}

/* Start helpers until there are `wanted`, or the system gives no more. They inherit the floating-point environment,
 * which is the default one inside a call. */
static void grow(int wanted)
{
    pthread_attr_t detached;
    if (pool.threads >= wanted || pthread_attr_init(&detached) != 0)
        return;
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sigset_t blocked, callers; /* signals are for the program's own threads, but a fault is reported where it happens */
    sigfillset(&blocked);
    const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &callers);
    for (int number = pool.threads + 1; number <= wanted; number++) {
        pthread_t thread;
        if (pthread_create(&thread, &detached, help, (void *)(uintptr_t)number) != 0)
            break;
        pool.threads = number;
    }
    pthread_sigmask(SIG_SETMASK, &callers, NULL);
    pthread_attr_destroy(&detached);
}

static void run_with_helpers(job *j, void *scratch)
{
    pthread_mutex_lock(&pool.lock);
    grow(j->threads - 1);
    j->seats = j->threads - 1;
    pool.seats += j->seats;
    j->following = pool.jobs;
    pool.jobs = j;
    for (int n = pool.seats - pool.spinning; n > 0; n--) /* those who spin see the seats */
        pthread_cond_signal(&pool.offered);
    pthread_mutex_unlock(&pool.lock);

    run_ranges(j, scratch);

    pthread_mutex_lock(&pool.lock);
    close_seats(j);
    job **link = &pool.jobs;
    while (*link != j)
        link = &(*link)->following;
    *link = j->following;
    if (j->helping > 0) {
        pthread_mutex_unlock(&pool.lock);
        spin_until(&j->helping, true);
        pthread_mutex_lock(&pool.lock);
        while (j->helping > 0)
            pthread_cond_wait(&pool.finished, &pool.lock);
    }
    pthread_mutex_unlock(&pool.lock);
}

/* The lock is held across a fork, so that the child finds the pool whole before it empties it. */
static void before_fork(void)
{
    pthread_mutex_lock(&pool.lock);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&pool.lock);
}

static void after_fork_in_child(void)
{
    pthread_cond_init(&pool.offered, NULL); /* the old ones count waiters who are not here */
    pthread_cond_init(&pool.finished, NULL);
    pool.jobs = NULL;
    pool.spinning = 0;
    pool.seats = pool.threads = 0;
    for (int i = 0; i < SLOTS; i++)
        slots[i].taken = false;
    pthread_mutex_unlock(&pool.lock);
}

/* As the library is loaded: a fork in the middle of a first call could make the child do it a second time. */
__attribute__((constructor)) static void handle_forks(void)
{
    pool.fork_handlers = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static int run_items(wgrad_kernel *kernel, const wgrad_geometry *geometry, const void *plain, const void *windowed,
                     void *out, int64_t items, int64_t scratch_bytes, int threads)
{
    slot spare = {0};
    void *scratch;
    slot *const s = take_scratch(scratch_bytes, 0, &spare, &scratch);
    if (s == NULL)
        return ENOMEM;
    job j = {.kernel = kernel, .geometry = geometry, .plain = plain, .windowed = windowed, .out = out,
             .items = items, .scratch_bytes = scratch_bytes};
    j.threads = threads < WGRAD_MAX_THREADS ? threads : WGRAD_MAX_THREADS;
    j.threads = j.threads < items ? j.threads : (int)items;
    const environment callers = enter_default_environment();
    if (j.threads <= 1)
        j.kernel(geometry, plain, windowed, out, scratch, 0, items);
    else
        run_with_helpers(&j, scratch);
    restore_environment(callers);
    release_scratch(s, &spare);
    return 0;
}

/* Slabs: gradients of parts of the sum, one after the other in a workspace. Each is a node of the ladder, so adding
 * them goes on where their kernels stopped, and gives the bits of a sum that was not divided. */

enum { PIECE = 1024 }; /* elements of the gradient in one work item */

static int64_t count_slabs(const wgrad_geometry *geometry)
{
    return ceil_divide(count_groups(geometry), geometry->slab_groups);
}

/* A wgrad_kernel. Its scratch: the sums of one slab, and the ladder. */
static void add_slabs(const wgrad_geometry *geometry, const void *workspace, const void *unused, void *out,
                      void *scratch, int64_t first, int64_t last)
{
    const int64_t slabs = count_slabs(geometry);
    float *const sums = scratch;
    (void)unused;
    for (int64_t item = first; item < last; item++) {
        const int64_t begin = item * PIECE, count = smaller(PIECE, geometry->out_slab - begin);
        float *const to = (float *)out + begin, *whole = NULL;
        memset(sums, 0, PIECE * sizeof *sums); /* vectors reach behind the last element */
        for (int64_t slab = 0; slab < slabs; slab++) {
            const float *const from = (const float *)workspace + slab * geometry->out_slab + begin;
            memcpy(sums, from, (size_t)count * sizeof *sums);
            whole = ladder_add(sums, sums + PIECE, PIECE, round_up(count, LANES), slab, slabs - 1);
        }
        for (int64_t i = 0; i < count; i++)
            to[i] = geometry->accumulate ? to[i] + whole[i] : whole[i];
    }
}

static int run_slabs(wgrad_kernel *kernel, const wgrad_geometry *geometry, const void *plain, const void *windowed,
                     void *out, int64_t items, int64_t scratch_bytes, int threads)
{
    const int64_t slabs = count_slabs(geometry), pieces = ceil_divide(geometry->out_slab, PIECE);
    const int64_t ladder_bytes = (1 + ladder_levels(slabs)) * PIECE * (int64_t)sizeof(float);
    wgrad_geometry parts = *geometry;
    parts.accumulate = 0;
    slot spare = {0};
    void *workspace;
    slot *const s = take_scratch(slabs * geometry->out_slab * (int64_t)sizeof(float), 0, &spare, &workspace);
    if (s == NULL)
        return ENOMEM;
    int status = run_items(kernel, &parts, plain, windowed, workspace, items, scratch_bytes, threads);
    if (status == 0)
        status = run_items(add_slabs, geometry, workspace, NULL, out, pieces, ladder_bytes, threads);
    release_scratch(s, &spare);
    return status;
}

int wgrad_run(uintptr_t kernel, const wgrad_geometry *geometry, const void *plain, const void *windowed, void *out,
              int64_t items, int64_t scratch_bytes, int threads)
{
    if (items <= 0)
        return 0;
    if (pool.fork_handlers != 0)
        return ENOMEM; /* all that it can fail with; without the handlers a child might hang */
    if (geometry->out_slab > 0)
        return run_slabs((wgrad_kernel *)kernel, geometry, plain, windowed, out, items, scratch_bytes, threads);
    return run_items((wgrad_kernel *)kernel, geometry, plain, windowed, out, items, scratch_bytes, threads);
}

const char *wgrad_cpu_isa(void)
{
#if defined(__x86_64__)
    /* What distinguishes the levels x86-64-v2, v3 and v4: processors that have these have the rest. */
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("popcnt"))
        return "";
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("bmi2"))
        return "base";
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512cd")
        || !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        return "avx2";
    return "avx512";
#elif defined(__aarch64__)
    return "neon";
#else
    return "base";
#endif
}

int64_t wgrad_scratch_bytes(void)
{
    return held_bytes;
}

int wgrad_pool_threads(void)
{
    return pool.threads;
}
