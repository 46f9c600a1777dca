/* SPDX-License-Identifier: MIT
 * pool.h - the library's own threads: one pool per process, created on first use, shared by all calls. */
#ifndef ATTN_THREADS_POOL_H
#define ATTN_THREADS_POOL_H

#include <stdint.h>

/* WebAssembly has threads only if it is compiled for them (-pthread); without them one.c takes the place of pool.c. */
#if defined(__wasm__) && !defined(_REENTRANT)
#define ATTN_ONE_THREAD 1
#else
#define ATTN_ONE_THREAD 0
#endif

/* The most threads a call can have, including the caller's. */
enum { ATTN_POOL_MAX = 1024 };

/* How many CPUs the calling thread may run on; at least 1. */
int attn_pool_cpus(void);

/*
 * Calls body(context, 0) on the calling thread and, meanwhile, body(context, i) on threads of the pool, for some i of 1 ..
 * workers-1, each at most once.  Returns when all of them have returned.  So body must take pieces of the work until none is left,
 * however few threads take part: threads that are busy, cannot be created or come late are not waited for.
 *
 * May be called by any number of threads at once, also from inside a body; never waits for a thread that has not started its body.
 */
void attn_pool_run(int workers, void (*body)(void *context, int64_t worker), void *context);

#endif
