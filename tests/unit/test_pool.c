/* SPDX-License-Identifier: MIT
 * test_pool.c - attn_pool_run itself: which workers take part, nested calls, concurrent calls, workers that wake up late. */
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "on_threads.h"
#include "threads/pool.h"

enum { CAPACITY = 40, TASKS = 500 };

typedef struct job {
    atomic_int next;
    atomic_int taken[TASKS], numbers[CAPACITY];
    int depth;
} job;

static void check(int workers, int depth);

/* Takes tasks until none is left. */
static void work(void *context, int64_t worker)
{
    job *j = context;
    MUST(worker >= 0 && worker < CAPACITY);
    MUST(atomic_fetch_add(&j->numbers[worker], 1) == 0);
    for (int n; (n = atomic_fetch_add(&j->next, 1)) < TASKS;) {
        atomic_fetch_add(&j->taken[n], 1);
        if (j->depth > 0 && n % 100 == 0) check(3, j->depth - 1);
    }
}

static void check(int workers, int depth)
{
    job j = {.depth = depth};
    attn_pool_run(workers, work, &j);
    MUST(atomic_load(&j.numbers[0]) == 1);
    for (int n = workers; n < CAPACITY; n++) MUST(atomic_load(&j.numbers[n]) == 0);
    for (int n = 0; n < TASKS; n++) MUST(atomic_load(&j.taken[n]) == 1);
}

static void test_all_tasks(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++)
        for (int workers = 1; workers <= CAPACITY; workers++) check(workers, 0);
}

static void test_inside(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) check(6, 2);
}

static void *check_often(void *context)
{
    const int workers = *(const int *)context;
    for (int round = 0; round < 300; round++) check(workers, round % 50 == 0);
    return NULL;
}

static void test_side_by_side(void **state)
{
    enum { CALLERS = 16 };
    pthread_t threads[CALLERS];
    int workers[CALLERS];
    (void)state;
    for (int n = 0; n < CALLERS; n++) {
        workers[n] = 1 + n % 7;
        assert_int_equal(pthread_create(&threads[n], NULL, check_often, &workers[n]), 0);
    }
    for (int n = 0; n < CALLERS; n++) assert_int_equal(pthread_join(threads[n], NULL), 0);
}

static void nap(long nanoseconds)
{
    const struct timespec t = {0, nanoseconds};
    (void)nanosleep(&t, NULL);
}

/* Workers that spin and workers that sleep: pauses around the time for which workers spin. */
static void test_pauses(void **state)
{
    (void)state;
    for (int round = 0; round < 300; round++) {
        check(2 + round % 4, 0);
        nap(round % 10 * 20000L);
    }
}

/* As many workers take part as requested: each waits for all others. */
static void meet(void *context, int64_t worker)
{
    atomic_int *present = context;
    (void)worker;
    atomic_fetch_add(present, 1);
    for (int n = 0; n < 5000 && atomic_load(present) < 9; n++) nap(1000000);
}

static void test_grows(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        atomic_int present;
        atomic_init(&present, 0);
        attn_pool_run(9, meet, &present);
        assert_int_equal(atomic_load(&present), 9);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grows),        cmocka_unit_test(test_all_tasks), cmocka_unit_test(test_inside),
        cmocka_unit_test(test_side_by_side), cmocka_unit_test(test_pauses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
