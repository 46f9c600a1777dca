/* SPDX-License-Identifier: MIT
 * team.c - runs one function on every thread, timed on each. */
#include "team.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "clock.h"

typedef struct member {
    pthread_t thread;
    double begin, end;
} member;

static struct team {
    member *members; /* 0 is the caller */
    int size;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int round, is_over; /* guarded by the mutex */
    void (*work)(void *context, int thread);
    void *context;
    atomic_int ready, done;
} team = {.size = 1, .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void wait_for_all(atomic_int *count)
{
    while (atomic_load(count) < team.size) (void)sched_yield();
}

static void take_part(member *m, int thread)
{
    (void)atomic_fetch_add(&team.ready, 1);
    wait_for_all(&team.ready);
    m->begin = clock_seconds();
    team.work(team.context, thread);
    m->end = clock_seconds();
    (void)atomic_fetch_add(&team.done, 1);
}

static void *serve(void *context)
{
    member *m = context;
    for (int round = 0;;) {
        (void)pthread_mutex_lock(&team.mutex);
        while (team.round == round && !team.is_over) (void)pthread_cond_wait(&team.changed, &team.mutex);
        round = team.round;
        const int is_over = team.is_over;
        (void)pthread_mutex_unlock(&team.mutex);
        if (is_over) return NULL;
        take_part(m, (int)(m - team.members));
    }
}

int team_create(int threads)
{
    team.members = calloc((size_t)threads, sizeof *team.members);
    if (!team.members) return 1;
    while (team.size < threads && pthread_create(&team.members[team.size].thread, NULL, serve, &team.members[team.size]) == 0)
        team.size++;
    return team.size;
}

team_time team_run(void (*work)(void *context, int thread), void *context)
{
    member single = {0}, *members = team.members ? team.members : &single;
    (void)pthread_mutex_lock(&team.mutex);
    team.work = work;
    team.context = context;
    atomic_store(&team.ready, 0);
    atomic_store(&team.done, 0);
    team.round++;
    (void)pthread_mutex_unlock(&team.mutex);
    (void)pthread_cond_broadcast(&team.changed);
    take_part(&members[0], 0);
    wait_for_all(&team.done);

    double first = members[0].begin, last = members[0].end;
    team_time time = {0};
    for (const member *m = members; m < members + team.size; m++) {
        if (m->begin < first) first = m->begin;
        if (m->end > last) last = m->end;
        if (m->end > m->begin) time.rate_sum += 1 / (m->end - m->begin);
    }
    time.elapsed = last - first;
    return time;
}

void team_destroy(void)
{
    (void)pthread_mutex_lock(&team.mutex);
    team.is_over = 1;
    (void)pthread_mutex_unlock(&team.mutex);
    (void)pthread_cond_broadcast(&team.changed);
    for (int n = 1; n < team.size; n++) (void)pthread_join(team.members[n].thread, NULL);
    free(team.members);
    team.members = NULL;
    team.size = 1;
}
