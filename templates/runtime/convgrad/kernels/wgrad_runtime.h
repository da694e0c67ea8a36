/* SPDX-License-Identifier: Apache-2.0
 * Runs a kernel over its work items, on one thread or several. Every kernel of the package runs through here, so there
 * is one set of threads and one store of scratch memory in a process.
 *
 * Python reads this file too, without the lines that begin with a number sign: plain declarations only. */
#ifndef WGRAD_RUNTIME_H
#define WGRAD_RUNTIME_H

#include <stdint.h>

#include "wgrad_geometry.h"

#define WGRAD_MAX_THREADS 1024

/* Works on the items first..last-1. An item owns the elements of out that it writes, and no item reads what another one
 * wrote, so any split of the items, in any order, on any threads, gives the same bits. The scratch belongs to the
 * running thread until the function returns; what is in it at the start is not defined. */
typedef void wgrad_kernel(const wgrad_geometry *geometry, const void *plain, const void *windowed, void *out,
                          void *scratch, int64_t first, int64_t last);

/* Calls `kernel`, the address of a wgrad_kernel, until all of 0..items-1 are done. With slabs (geometry->out_slab > 0)
 * the items write parts of the sum to a workspace, and when all of them are done the parts are added to make out.
 *
 *   scratch_bytes   what each running thread gets, aligned to 64 bytes; NULL for none
 *   threads         at most so many work on it, the caller among them. 0 and less count as 1, more than
 *                   WGRAD_MAX_THREADS (1024) as that; never more than there are items. Fewer when threads are busy
 *                   with other calls, or when the system gives no more of them.
 *
 * Returns 0, or ENOMEM if there is no scratch for the caller, or no workspace: then out is as it was. Nothing else can
 * fail: a thread that cannot be had, or has no scratch, leaves its share to the others.
 *
 * May be called by any number of threads at once, but not by a kernel. Items are computed with the default
 * floating-point environment (to nearest, subnormals kept, no traps), whatever the caller's is; the caller's, flags
 * included, is back in place at the return. */
int wgrad_run(uintptr_t kernel, const wgrad_geometry *geometry, const void *plain, const void *windowed, void *out,
              int64_t items, int64_t scratch_bytes, int threads);

/* The best instruction set of this processor, by its name in convgrad/isa.py; empty when it is older than the first. */
const char *wgrad_cpu_isa(void);

/* Bytes of scratch now held: in use, and kept for later calls. */
int64_t wgrad_scratch_bytes(void);

/* Threads in the pool. The callers are not counted: they bring their own. */
int wgrad_pool_threads(void);

#endif
