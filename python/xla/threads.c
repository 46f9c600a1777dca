/* SPDX-License-Identifier: MIT
 * threads.c - loops on XLA's thread pool.
 *
 * The pool may run a task at once, late, or, while all of its threads wait as this one does, never: so the calling thread takes
 * part, waits only for items that some thread has begun, and a task that comes late finds nothing left.  The loop is freed by the
 * last one. */
#include "threads.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef struct loop {
    void (*body)(void *, int64_t);
    void *body_context;
    int64_t n;
    _Atomic int64_t next; /* the first item that nobody has taken */
    atomic_int users;     /* the caller, and tasks that have not ended */
    pthread_mutex_t lock;
    pthread_cond_t complete;
    int64_t finished; /* under the lock */
} loop;

static _Thread_local const xla_call_frame *call;
static _Thread_local int call_threads;

int xla_threads(const xla_call_frame *frame)
{
    int64_t threads = 0;
    xla_count_threads asked = {sizeof asked, NULL, frame->context, &threads};
    xla_error *error = frame->api->count_threads(&asked);
    if (error) frame->api->error_destroy(&(xla_error_destroy){sizeof(xla_error_destroy), NULL, error});
    return error || threads < 1 ? 1 : threads > 1024 ? 1024 : (int)threads;
}

void xla_enter(const xla_call_frame *frame, int threads)
{
    call = frame;
    call_threads = threads;
}

void xla_leave(void) { call = NULL; }

static void release(loop *l)
{
    if (atomic_fetch_sub(&l->users, 1) > 1) return;
    pthread_cond_destroy(&l->complete);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static void take_part(loop *l)
{
    int64_t finished = 0;
    for (int64_t i; (i = atomic_fetch_add(&l->next, 1)) < l->n; finished++) l->body(l->body_context, i);
    if (!finished) return;
    pthread_mutex_lock(&l->lock);
    l->finished += finished;
    if (l->finished == l->n) pthread_cond_signal(&l->complete);
    pthread_mutex_unlock(&l->lock);
}

static void task(void *data)
{
    take_part(data);
    release(data);
}

/* The loop, or NULL if there is no memory for it. */
static loop *make(int64_t n, void (*body)(void *, int64_t), void *body_context)
{
    loop *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    if (pthread_mutex_init(&l->lock, NULL)) {
        free(l);
        return NULL;
    }
    if (pthread_cond_init(&l->complete, NULL)) {
        pthread_mutex_destroy(&l->lock);
        free(l);
        return NULL;
    }
    l->body = body;
    l->body_context = body_context;
    l->n = n;
    atomic_init(&l->next, 0);
    atomic_init(&l->users, 1);
    return l;
}

void xla_parallel_for(void *context, int64_t n, void (*body)(void *, int64_t), void *body_context)
{
    (void)context;
    loop *l = call && n > 1 && call_threads > 1 ? make(n, body, body_context) : NULL;
    if (!l) {
        for (int64_t i = 0; i < n; i++) body(body_context, i);
        return;
    }
    for (int64_t helpers = (n < call_threads ? n : call_threads) - 1; helpers > 0; helpers--) {
        atomic_fetch_add(&l->users, 1);
        xla_schedule asked = {sizeof asked, NULL, call->context, task, l};
        xla_error *error = call->api->schedule(&asked);
        if (!error) continue;
        call->api->error_destroy(&(xla_error_destroy){sizeof(xla_error_destroy), NULL, error});
        atomic_fetch_sub(&l->users, 1);
        break;
    }
    take_part(l);
    pthread_mutex_lock(&l->lock);
    while (l->finished < n) pthread_cond_wait(&l->complete, &l->lock);
    pthread_mutex_unlock(&l->lock);
    release(l);
}
