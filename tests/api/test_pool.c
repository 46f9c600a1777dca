/* SPDX-License-Identifier: MIT
 *
 * test_pool.c - the thread pool and its process: pthread_create fails, little address space, fork, signals, exit during a call, a
 * main thread that ends. Links the static library with pthread_create replaced by __wrap_pthread_create.
 */
#define _GNU_SOURCE /* RLIMIT_AS */
#include "test.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "same_bits.h"

#if defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1, FORKS = 0 }; /* TSan does not support new threads in a forked child of a threaded process */
#elif defined(__SANITIZE_ADDRESS__)
enum { SANITIZED = 1, FORKS = 1 };
#else
enum { SANITIZED = 0, FORKS = 1 };
#endif

enum { THREADS = 4, DEADLINE = 60 };

static int made, rejected, left = -1; /* threads created, creations that failed; how many more may succeed, -1: all */

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *context);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *context);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *context)
{
    const int result = left == 0 ? EAGAIN : __real_pthread_create(thread, attributes, start, context);
    if (left > 0) left--;
    if (result == 0) made++;
    else rejected++;
    return result;
}

static const attn_options several = {.struct_size = sizeof several, .threads = THREADS};

/* 1 if forward and backward on several threads have the same bits as on one. */
static int is_right(void)
{
    tensors *in = tensors_create(), *expected = expected_create(in), *out = tensors_create();
    compute(ATTN_FORWARD, &several, in, out);
    int right = same(ATTN_FORWARD, out, expected);
    compute(ATTN_BACKWARD, &several, in, out);
    right = right && same(ATTN_BACKWARD, out, expected);
    free(in), free(expected), free(out);
    return right;
}

/* Memory that the parent's other threads held at fork has no owner in the child, and is not a leak of the library. */
static int is_child;
#if defined(__SANITIZE_ADDRESS__)
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return is_child; }
#endif

/* The result of `run` in a child process, which ends by exit, with destructors; -1 if a signal kills it or it hangs. */
static int in_child(int (*run)(void))
{
    const struct timespec nap = {0, 1000000};
    const pid_t child = fork();
    int status = -1;
    MUST(child >= 0);
    if (child == 0) is_child = 1, exit(run());
    for (int n = 0; n < DEADLINE * 1000; n++, (void)nanosleep(&nap, NULL))
        if (waitpid(child, &status, WNOHANG) == child) return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    (void)kill(child, SIGKILL); /* (no alarm: once the main thread ends, all others block signals) */
    (void)waitpid(child, &status, 0);
    return -1;
}

/* ---- pthread_create fails: each test runs in a child of a process that has no pool yet ---- */

static int runs_with_few(void)
{
    const int can = left;
    if (!is_right() || made > can) return 1;
    left = -1;
    for (int n = 0; n < 200 && made < THREADS - 1; n++) /* after some calls the pool tries again */
        if (!is_right()) return 2;
    return made == THREADS - 1 ? 0 : 3;
}

static void test_few(void **state)
{
    (void)state;
    for (left = 0; left < THREADS; left++) assert_int_equal(in_child(runs_with_few), 0);
    left = -1;
    assert_int_equal(made, 0);
}

static long pages_of_process(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld", &pages) != 1) pages = 0;
    if (file) (void)fclose(file);
    return pages;
}

/* Limits from 0 to 2 MiB more address space: too little for any thread's stack, or enough for some. */
static int runs_in_little(void)
{
    tensors *in = tensors_create(), *expected = expected_create(in), *out = tensors_create();
    attn_problem problem = problem_of(ATTN_FORWARD);
    attn_plan *plan;
    const attn_tensors slots = slots_of(ATTN_FORWARD, in, out);
    MUST(attn_plan_create(&plan, &problem, &slots, &several, NULL) == ATTN_OK);
    const size_t size = attn_plan_workspace_size(plan);
    void *workspace = malloc(size);
    const rlim_t now = (rlim_t)pages_of_process() * (rlim_t)sysconf(_SC_PAGESIZE);
    for (rlim_t more = 0; more <= (rlim_t)2 << 20; more += (rlim_t)256 << 10) {
        const struct rlimit limit = {now + more, RLIM_INFINITY};
        if (now == 0 || setrlimit(RLIMIT_AS, &limit) != 0) return 77;
        memset(out->o, 0, sizeof out->o);
        for (int n = 0; n < 3; n++)
            if (attn_execute(plan, &slots, workspace, size, NULL) != ATTN_OK || !same(ATTN_FORWARD, out, expected)) return 1;
    }
    return rejected > 0 ? 0 : 2;
}

static void test_little_memory(void **state)
{
    (void)state;
    if (SANITIZED) SKIP_BECAUSE("sanitizers reserve terabytes of address space");
    assert_int_equal(in_child(runs_in_little), 0);
}

/* ---- fork ---- */

/* A child starts without pool threads, and creates its own. */
static int runs_in_child(void)
{
    const int before = made;
    if (!is_right()) return 1;
    return made == before + THREADS - 1 ? 0 : 2;
}

static int runs_in_grandchild(void) { return runs_in_child() ? 1 : in_child(runs_in_child); }

static void test_fork(void **state)
{
    (void)state;
    if (!FORKS) SKIP_BECAUSE("this sanitizer cannot fork with threads");
    assert_true(is_right());
    const int before = made;
    for (int n = 0; n < 5; n++) {
        assert_int_equal(in_child(runs_in_grandchild), 0);
        assert_true(is_right());
    }
    assert_int_equal(made, before); /* the parent's pool is still there */
}

static atomic_int is_over;

static void *execute_always(void *context)
{
    (void)context;
    while (!atomic_load(&is_over)) MUST(is_right());
    return NULL;
}

/* fork while other threads are inside calls. */
static void test_fork_at_work(void **state)
{
    enum { CALLERS = 3 };
    pthread_t callers[CALLERS];
    (void)state;
    if (SANITIZED) SKIP_BECAUSE("a sanitizer's lock that another thread holds stays locked in a child");
    atomic_store(&is_over, 0);
    for (int n = 0; n < CALLERS; n++) assert_int_equal(__real_pthread_create(&callers[n], NULL, execute_always, NULL), 0);
    for (int n = 0; n < 20; n++) assert_int_equal(in_child(runs_in_child), 0);
    atomic_store(&is_over, 1);
    for (int n = 0; n < CALLERS; n++) assert_int_equal(pthread_join(callers[n], NULL), 0);
    assert_true(is_right());
}

/* ---- the process ---- */

static atomic_int arrived;
static void count_signal(int number) { (void)number, (void)atomic_fetch_add(&arrived, 1); }

/* A signal that the program's threads block stays pending: no pool thread receives it. */
static void test_signals(void **state)
{
    struct sigaction action = {.sa_handler = count_signal}, before;
    sigset_t set, old, pending;
    (void)state;
    assert_true(is_right());
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGUSR1);
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &set, &old), 0);
    assert_int_equal(kill(getpid(), SIGUSR1), 0);
    assert_true(is_right());
    (void)sigemptyset(&pending);
    assert_int_equal(sigpending(&pending), 0);
    assert_int_equal(sigismember(&pending, SIGUSR1), 1);
    assert_int_equal(atomic_load(&arrived), 0);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &old, NULL), 0);
    for (int n = 0; n < 1000 && atomic_load(&arrived) == 0; n++) (void)usleep(1000); /* (TSan delivers it later) */
    assert_int_equal(atomic_load(&arrived), 1);
    assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
}

/* Exit while another thread is in a call. */
static int exits_at_work(void)
{
    pthread_t caller;
    atomic_store(&is_over, 0);
    MUST(__real_pthread_create(&caller, NULL, execute_always, NULL) == 0);
    MUST(is_right());
    return 0;
}

static void test_exit(void **state)
{
    (void)state;
    if (SANITIZED) SKIP_BECAUSE("the memory of that thread is leaked on purpose");
    for (int n = 0; n < 20; n++) assert_int_equal(in_child(exits_at_work), 0);
}

/* The main thread ends by pthread_exit: the process ends once the pool's threads have been idle for long enough. */
static int ends_without_main(void)
{
    MUST(is_right());
    pthread_exit(NULL);
}

static void test_main_ends(void **state)
{
    (void)state;
    if (SANITIZED) SKIP_BECAUSE("sanitizers do not expect pthread_exit in the main thread");
    assert_int_equal(in_child(ends_without_main), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_few), /* first: there is no pool yet */
        cmocka_unit_test(test_little_memory), cmocka_unit_test(test_fork), cmocka_unit_test(test_fork_at_work),
        cmocka_unit_test(test_signals),       cmocka_unit_test(test_exit), cmocka_unit_test(test_main_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
