/* SPDX-License-Identifier: MIT
 * on_threads.h - for tests: a parallel_for on plain threads, which starts iterations from the last to the first. */
#ifndef ATTN_TESTS_ON_THREADS_H
#define ATTN_TESTS_ON_THREADS_H

#include "test.h"

#include <pthread.h>
#include <stdatomic.h>

enum { ON_THREADS = 6 };

/* An assertion for other threads: cmocka's work only in the thread that runs the test. */
#define MUST(condition)                                                                                                            \
    do {                                                                                                                           \
        if (condition) break;                                                                                                      \
        (void)fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                                      \
        abort();                                                                                                                   \
    } while (0)

typedef struct loop {
    atomic_llong left;
    void (*body)(void *body_context, int64_t i);
    void *body_context;
} loop;

static inline void *loop_run(void *context)
{
    loop *l = context;
    for (;;) {
        int64_t i = atomic_fetch_sub(&l->left, 1) - 1;
        if (i < 0) return NULL;
        l->body(l->body_context, i);
    }
}

/* An attn_parallel_for.  context: NULL, or an atomic_int that counts calls. */
static inline void on_threads(void *context, int64_t n, void (*body)(void *body_context, int64_t i), void *body_context)
{
    pthread_t threads[ON_THREADS];
    loop l = {.body = body, .body_context = body_context};
    atomic_init(&l.left, n);
    if (context) atomic_fetch_add((atomic_int *)context, 1);
    for (int i = 0; i < ON_THREADS; i++) MUST(pthread_create(&threads[i], NULL, loop_run, &l) == 0);
    for (int i = 0; i < ON_THREADS; i++) MUST(pthread_join(threads[i], NULL) == 0);
}

#endif
