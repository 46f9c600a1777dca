/* SPDX-License-Identifier: MIT
 * pool.c - a pool of threads that wait for calls.
 *
 * A call offers itself to idle workers through one word of each, `at`; a worker that takes the offer marks it in the same word.
 * Offers that nobody has taken when the caller runs out of work are withdrawn.  So nobody waits for a worker that is late, or does
 * not exist (in a forked child).  The lock guards only the lists, and is held for a few instructions. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "pool.h"

#if !ATTN_ONE_THREAD
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__) || defined(__i386__)
#define RELAX() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define RELAX() __asm__ volatile("isb" ::: "memory")
#else
#define RELAX() ((void)0)
#endif

enum {
    STACK_BYTES = 512 << 10, /* the walks use less than 64 KiB; the rest is for the caller's score functions */
    SPIN = 50000,            /* nanoseconds that a thread spins before it sleeps: about the cost of waking one */
    SHORT_SPIN = 2000,       /* the same if spinning does not pay, or takes a CPU from working threads */
    IDLE_SECONDS = 5,        /* idle time after which a worker exits */
    CALLS_REJECTED = 100     /* calls that create no threads after one could not be created */
};

/* Values of worker.at; any other is a pointer to the offered call. */
enum { IDLE, TAKEN, STOP };

typedef struct worker {
    _Alignas(64) atomic_uintptr_t at;
    atomic_int sleepers; /* threads that sleep until `at` changes: the worker, or the caller it works for */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    pthread_t thread;
    int has_thread;
    int64_t number;      /* within its call */
    struct worker *next; /* in the list it is in: idle, spare, or of its call */
} worker;

typedef struct call {
    void (*body)(void *context, int64_t worker);
    void *context;
    int64_t posted; /* time, nanoseconds */
    int64_t spin;
    int is_oversubscribed; /* more threads are working than there are CPUs */
    _Atomic(worker *) to_wake;
} call;

/* The only mutable object of the library, except what cpu.c detected.  A forked child starts with an empty one. */
static struct pool {
    pthread_mutex_t lock;
    worker workers[ATTN_POOL_MAX - 1];
    int used;            /* how many of these have ever been workers */
    worker *idle;        /* waiting for a call; most recently used first */
    worker *spare;       /* have exited, or could not start */
    int count;           /* workers that are idle or in a call */
    int active;          /* callers and workers in calls */
    int cpus;            /* 0: not known yet */
    int rejected;        /* remaining calls that create no thread */
    int survives_a_fork; /* else no thread is created */
    int is_over;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

int attn_pool_cpus(void)
{
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set) > 0 ? CPU_COUNT(&set) : 1;
#endif
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online < 1 ? 1 : online > ATTN_POOL_MAX ? ATTN_POOL_MAX : (int)online;
}

static int64_t nanoseconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* ---- one worker's word ---- */

/* Waits until the word is no longer `value`: spins, then sleeps.  Returns its new value, which may still be `value` after `seconds`
 * (if not 0; then *late is set), or if it has changed and changed back. */
static uintptr_t await(worker *w, uintptr_t value, int64_t begin, int64_t spin, int seconds, int *late)
{
    uintptr_t at;
    do {
        for (int n = 0; n < 16; n++) {
            at = atomic_load_explicit(&w->at, memory_order_acquire);
            if (at != value) return at;
            RELAX();
        }
    } while (nanoseconds() - begin < spin);

    struct timespec until;
    (void)timespec_get(&until, TIME_UTC);
    until.tv_sec += seconds;
    (void)pthread_mutex_lock(&w->mutex);
    (void)atomic_fetch_add(&w->sleepers, 1);
    if (atomic_load(&w->at) == value) {
        if (seconds) *late = pthread_cond_timedwait(&w->changed, &w->mutex, &until) == ETIMEDOUT;
        else (void)pthread_cond_wait(&w->changed, &w->mutex);
    }
    (void)atomic_fetch_sub(&w->sleepers, 1);
    at = atomic_load(&w->at);
    (void)pthread_mutex_unlock(&w->mutex);
    return at;
}

/* After a change of the word: wakes whoever sleeps on it.  A thread either saw the change, or is counted among the sleepers. */
static void wake(worker *w)
{
    if (atomic_load(&w->sleepers) == 0) return;
    (void)pthread_mutex_lock(&w->mutex);
    (void)pthread_mutex_unlock(&w->mutex);
    (void)pthread_cond_broadcast(&w->changed);
}

/* Waking a sleeper costs some microseconds, so those that are awake help to wake the others. */
static void wake_others(call *c)
{
    worker *w = atomic_load(&c->to_wake);
    while (w) {
        if (!atomic_compare_exchange_weak(&c->to_wake, &w, w->next)) continue;
        wake(w);
        w = atomic_load(&c->to_wake);
    }
}

/* ---- the life of a worker ---- */

/* Retires a worker that has been idle for long.  Returns 0 if a call has just taken it. */
static int retires(worker *w)
{
    worker **place = &pool.idle;
    (void)pthread_mutex_lock(&pool.lock);
    while (*place && *place != w) place = &(*place)->next;
    const int found = *place != NULL;
    if (found) {
        *place = w->next;
        w->next = pool.spare;
        pool.spare = w;
        pool.count--;
    }
    (void)pthread_mutex_unlock(&pool.lock);
    return found;
}

static void *serve(void *context)
{
    worker *w = context;
    int64_t spin = SPIN;
    for (;;) {
        const int64_t begin = nanoseconds();
        int late = 0;
        uintptr_t at = await(w, IDLE, begin, spin, IDLE_SECONDS, &late);
        if (at == STOP || (late && retires(w))) return NULL;
        if (at == IDLE || !atomic_compare_exchange_strong(&w->at, &at, TAKEN)) { /* withdrawn: the next offer may come as soon */
            spin = SPIN;
            continue;
        }
        call *c = (call *)at;
        wake_others(c);
        c->body(c->context, w->number);
        /* Spin longer if calls follow each other closely. */
        spin = !c->is_oversubscribed && c->posted - begin < SPIN ? SPIN : SHORT_SPIN;
        atomic_store(&w->at, IDLE);
        wake(w);
    }
}

/* Creates a worker's thread, which starts with an offer.  Returns 0 on failure. */
static int make(worker *w, uintptr_t at)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigset_t blocked, before;
    pthread_attr_t attributes;
    if (w->has_thread) { /* it has exited, or is about to */
        (void)pthread_join(w->thread, NULL);
        (void)pthread_cond_destroy(&w->changed);
        (void)pthread_mutex_destroy(&w->mutex);
        w->has_thread = 0;
    }
    if (pthread_attr_init(&attributes)) return 0;
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    atomic_init(&w->at, at);
    atomic_init(&w->sleepers, 0);
    (void)pthread_mutex_init(&w->mutex, NULL);
    (void)pthread_cond_init(&w->changed, NULL);
    /* Signals are for the program's own threads; those raised by an instruction go to the thread that raised them. */
    (void)sigfillset(&blocked);
    for (size_t n = 0; n < sizeof faults / sizeof *faults; n++) (void)sigdelset(&blocked, faults[n]);
    (void)pthread_sigmask(SIG_SETMASK, &blocked, &before);
    w->has_thread = pthread_create(&w->thread, &attributes, serve, w) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
    return w->has_thread;
}

/* ---- a call ---- */

/* How many workers to create for a call that is `missing` workers short: concurrent calls share as many as the one that wants most,
 * or as there are CPUs. */
static int may_make(int missing, int workers)
{
    const int most = workers > pool.cpus ? workers : pool.cpus, left = most - 1 - pool.count;
    if (!pool.survives_a_fork || pool.is_over || missing <= 0 || left <= 0) return 0;
    if (pool.rejected > 0) return pool.rejected--, 0;
    return missing < left ? missing : left;
}

/* Takes a list of idle workers, and in *fresh a list of records for new ones. */
static worker *take(call *c, int workers, worker **fresh)
{
    worker *taken, **end = &taken;
    int count = 0;
    *fresh = NULL;
    (void)pthread_mutex_lock(&pool.lock);
    if (pool.cpus == 0) pool.cpus = attn_pool_cpus();
    taken = pool.idle;
    for (; count < workers - 1 && *end; count++) end = &(*end)->next;
    pool.idle = *end;
    *end = NULL;
    for (int n = may_make(workers - 1 - count, workers); n > 0; n--) {
        worker *w = pool.spare;
        if (w) pool.spare = w->next;
        else w = &pool.workers[pool.used++];
        w->next = *fresh;
        *fresh = w;
        pool.count++, count++;
    }
    pool.active += count + 1;
    c->is_oversubscribed = pool.active > pool.cpus;
    c->spin = c->is_oversubscribed ? SHORT_SPIN : SPIN;
    (void)pthread_mutex_unlock(&pool.lock);
    return taken;
}

/* Returns a list of workers to the pool, and a list of records that got no thread. */
static void give(worker *list, worker *failed)
{
    worker **end = &list;
    int count = 0, failures = 0;
    for (; *end; end = &(*end)->next) count++;
    (void)pthread_mutex_lock(&pool.lock);
    *end = pool.idle;
    pool.idle = list;
    for (worker *w = failed, *next; w; w = next, failures++) {
        next = w->next;
        w->next = pool.spare;
        pool.spare = w;
    }
    pool.count -= failures;
    pool.active -= count + failures + 1;
    if (failures) pool.rejected = CALLS_REJECTED;
    (void)pthread_mutex_unlock(&pool.lock);
}

/* Creates threads for the records of *fresh and prepends them to the list; records that got none stay in *fresh. */
static worker *make_all(call *c, worker *list, worker **fresh, int64_t number)
{
    while (*fresh) {
        worker *w = *fresh, *next = w->next;
        w->number = number++;
        w->next = list;
        if (!make(w, (uintptr_t)c)) {
            w->next = next;
            break;
        }
        list = w;
        *fresh = next;
    }
    return list;
}

void attn_pool_run(int workers, void (*body)(void *context, int64_t worker), void *context)
{
    call c = {.body = body, .context = context, .posted = nanoseconds()};
    worker *fresh, *list = take(&c, workers < ATTN_POOL_MAX ? workers : ATTN_POOL_MAX, &fresh);
    int64_t number = 1;
    atomic_init(&c.to_wake, list);
    for (worker *w = list; w; w = w->next) {
        w->number = number++;
        atomic_store(&w->at, (uintptr_t)&c);
    }
    wake_others(&c);
    list = make_all(&c, list, &fresh, number);
    body(context, 0);
    for (worker *w = list; w; w = w->next) {
        uintptr_t offered = (uintptr_t)&c;
        (void)atomic_compare_exchange_strong(&w->at, &offered, IDLE);
    }
    const int64_t begin = nanoseconds();
    for (worker *w = list; w; w = w->next)
        while (await(w, TAKEN, begin, c.spin, 0, NULL) == TAKEN) continue;
    give(list, fresh);
}

/* ---- the process ---- */

/* A forked child has only the thread that forked. */
static void begin_anew(void)
{
    (void)pthread_mutex_init(&pool.lock, NULL);
    for (int n = 0; n < pool.used; n++) pool.workers[n].has_thread = 0;
    pool.idle = pool.spare = NULL;
    pool.used = pool.count = pool.active = pool.cpus = pool.rejected = 0;
}

__attribute__((constructor)) static void begin(void) { pool.survives_a_fork = pthread_atfork(NULL, NULL, begin_anew) == 0; }

/* The process exits, or the library is unloaded with its code.  Workers still in a call belong to a running thread: then the
 * process is exiting, and nobody waits for them. */
__attribute__((destructor)) static void end(void)
{
    (void)pthread_mutex_lock(&pool.lock);
    worker *idle = pool.idle, *spare = pool.spare;
    pool.idle = pool.spare = NULL;
    pool.is_over = 1;
    (void)pthread_mutex_unlock(&pool.lock);
    for (worker *w = idle; w; w = w->next) {
        atomic_store(&w->at, STOP);
        wake(w);
    }
    for (worker *w = idle; w; w = w->next) (void)pthread_join(w->thread, NULL);
    for (worker *w = spare; w; w = w->next) /* (the process may exit in a worker that has retired, as its last thread) */
        if (w->has_thread && !pthread_equal(w->thread, pthread_self())) (void)pthread_join(w->thread, NULL);
}
#endif
