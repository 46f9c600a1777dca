/* SPDX-License-Identifier: MIT
 * workers.c - runs one function on every thread, timed on each. */
#include "workers.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "clock.h"

typedef struct member {
    pthread_t thread;
    double begin, end;
} member;

static struct pool {
    member *members; /* 0 is the caller */
    int size;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int round, is_over; /* guarded by the mutex */
    void (*work)(void *context, int thread);
    void *context;
    atomic_int ready, done;
} pool = {.size = 1, .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void wait_for_all(atomic_int *count)
{
    while (atomic_load(count) < pool.size) (void)sched_yield();
}

static void take_part(member *m, int thread)
{
    (void)atomic_fetch_add(&pool.ready, 1);
    wait_for_all(&pool.ready);
    m->begin = clock_seconds();
    pool.work(pool.context, thread);
    m->end = clock_seconds();
    (void)atomic_fetch_add(&pool.done, 1);
}

static void *serve(void *context)
{
    member *m = context;
    for (int round = 0;;) {
        (void)pthread_mutex_lock(&pool.mutex);
        while (pool.round == round && !pool.is_over) (void)pthread_cond_wait(&pool.changed, &pool.mutex);
        round = pool.round;
        const int is_over = pool.is_over;
        (void)pthread_mutex_unlock(&pool.mutex);
        if (is_over) return NULL;
        take_part(m, (int)(m - pool.members));
    }
}

int workers_create(int threads)
{
    pool.members = calloc((size_t)threads, sizeof *pool.members);
    if (!pool.members) return 1;
    while (pool.size < threads && pthread_create(&pool.members[pool.size].thread, NULL, serve, &pool.members[pool.size]) == 0)
        pool.size++;
    return pool.size;
}

int workers_count(void) { return pool.size; }

workers_time workers_run(void (*work)(void *context, int thread), void *context)
{
    member single = {0}, *members = pool.members ? pool.members : &single;
    (void)pthread_mutex_lock(&pool.mutex);
    pool.work = work;
    pool.context = context;
    atomic_store(&pool.ready, 0);
    atomic_store(&pool.done, 0);
    pool.round++;
    (void)pthread_mutex_unlock(&pool.mutex);
    (void)pthread_cond_broadcast(&pool.changed);
    take_part(&members[0], 0);
    wait_for_all(&pool.done);

    double first = members[0].begin, last = members[0].end;
    workers_time time = {0};
    for (const member *m = members; m < members + pool.size; m++) {
        if (m->begin < first) first = m->begin;
        if (m->end > last) last = m->end;
        if (m->end > m->begin) time.rate_sum += 1 / (m->end - m->begin);
    }
    time.elapsed = last - first;
    return time;
}

void workers_destroy(void)
{
    (void)pthread_mutex_lock(&pool.mutex);
    pool.is_over = 1;
    (void)pthread_mutex_unlock(&pool.mutex);
    (void)pthread_cond_broadcast(&pool.changed);
    for (int n = 1; n < pool.size; n++) (void)pthread_join(pool.members[n].thread, NULL);
    free(pool.members);
    pool.members = NULL;
    pool.size = 1;
}
