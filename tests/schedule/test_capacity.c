/* SPDX-License-Identifier: MIT
 *
 * test_capacity.c - a plan's capacity costs no work: a few queries (drafts) over a sequence that fills a small part of it, or that
 * see only a window of a long one, are as many stages and tasks as in a plan that fits, with the same bits.
 */
#include "test.h"

#include "attn/schedule.h"
#include "executed.h"
#include "testing/random/random.h"

enum { DRAFTS = 5, HQ = 4, HKV = 2, D = 24, SHORT = 700, LONG = 40000, WINDOW = 300, PAGE = 64, MOST = 1 << 18 };

static float q[DRAFTS * HQ * D], keys[LONG * HKV * D], values[LONG * HKV * D];
static int32_t table[MOST / PAGE]; /* page n is page n */

typedef struct work {
    int64_t stages, tasks;
} work;

static void count(void *context, int64_t n, void (*body)(void *body_context, int64_t i), void *body_context)
{
    work *done = context;
    done->stages++;
    done->tasks += n;
    for (int64_t i = 0; i < n; i++) body(body_context, i);
}

/* The work of DRAFTS queries at the end of `length` keys. */
static work run_with(int threads, const int64_t *ranges, int64_t capacity, int64_t length, int64_t window, int scheduled, float *o)
{
    work done = {0, 0};
    const attn_options options = {
        .struct_size = sizeof options, .threads = threads, .parallel_for = count, .parallel_context = &done};
    const int64_t starts[2] = {0, DRAFTS};
    attn_call call = {.struct_size = sizeof call};
    const attn_problem p = {
        .struct_size = sizeof p,
        .shape = {1, HQ, HKV, DRAFTS, capacity, D, D},
        .mask = {.causal = 1, .align = ATTN_ALIGN_BOTTOM_RIGHT, .window = window > 0, .window_left = window, .window_right = -1},
        .paging = {.page_size = PAGE, .pages = LONG / PAGE}};
    attn_tensors t = {.struct_size = sizeof t,
                      .call = &call,
                      .q = attn_in(q),
                      .k = attn_in(keys),
                      .v = attn_in(values),
                      .o = attn_out(o),
                      .cu_seqlens_q = attn_in(starts),
                      .lengths_kv = attn_in(&length),
                      .page_table = {table, ATTN_I32, {0, 0, 0, 0}}};
    attn_error error;
    attn_plan *plan;
    float entropy[DRAFTS * HQ];
    if (ranges) t.ranges = attn_in(ranges), t.entropy = attn_out(entropy); /* which is not there in decoding */
    if (attn_plan_create(&plan, &p, &t, &options, &error) != ATTN_OK) fail_msg("%s", error.message);
    const size_t size = attn_schedule_size(plan);
    void *memory = malloc(size + 1);
    assert_non_null(memory);
    if (scheduled && attn_schedule_make(&call.schedule, plan, &t, memory, size, NULL, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    execute_in(plan, &t, scheduled ? attn_schedule_workspace_size(call.schedule) : attn_plan_workspace_size(plan));
    free(memory);
    attn_plan_destroy(plan);
    return done;
}

/* With so many threads that parts of the keys are tasks of their own. */
static work run(int64_t capacity, int64_t length, int64_t window, int scheduled, float *o)
{
    return run_with(8, NULL, capacity, length, window, scheduled, o);
}

static void compare(int64_t capacity, int64_t length, int64_t window, const float *expected, work fits)
{
    float o[DRAFTS * HQ * D];
    for (int scheduled = 0; scheduled < 2; scheduled++) {
        memset(o, 0xff, sizeof o);
        const work done = run(capacity, length, window, scheduled, o);
        assert_memory_equal(o, expected, sizeof o);
        assert_int_equal(done.stages, fits.stages);
        assert_int_equal(done.tasks, fits.tasks);
    }
}

static void fill(void)
{
    random_state r = random_from(11);
    for (int i = 0; i < DRAFTS * HQ * D; i++) q[i] = (float)random_signed(&r);
    for (int i = 0; i < LONG * HKV * D; i++) keys[i] = (float)random_signed(&r), values[i] = (float)random_signed(&r);
    for (int i = 0; i < MOST / PAGE; i++) table[i] = i;
}

/* From LONG on, plans cut keys into parts. */
static void test_short_sequences(void **state)
{
    float o[DRAFTS * HQ * D];
    (void)state;
    fill();
    const work some = run(LONG, SHORT, 0, 0, o);
    assert_true(some.stages > 0);
    compare(LONG, SHORT, 0, o, some);
    compare(MOST, SHORT, 0, o, some);
}

/* The first part starts all states, whether it is seen or not; the last one that is seen ends them. */
static void test_windows(void **state)
{
    float o[DRAFTS * HQ * D];
    (void)state;
    fill();
    const work whole = run(LONG, LONG, 0, 0, o), some = run(LONG, LONG, WINDOW, 0, o);
    assert_true(some.stages <= whole.stages && some.tasks <= whole.tasks);
    compare(MOST, LONG, WINDOW, o, some);
}

/* Heads that see other parts than the first head does. */
static void test_ranges(void **state)
{
    static const int64_t lows[HQ] = {100, 30000, 50, 20000};
    int64_t ranges[HQ][DRAFTS][2];
    float o[DRAFTS * HQ * D], expected[DRAFTS * HQ * D];
    (void)state;
    fill();
    for (int h = 0; h < HQ; h++)
        for (int i = 0; i < DRAFTS; i++) ranges[h][i][0] = lows[h], ranges[h][i][1] = lows[h] + 40 * (i + 1);
    run_with(1, &ranges[0][0][0], MOST, LONG, 0, 0, expected);
    for (int scheduled = 0; scheduled < 2; scheduled++) {
        memset(o, 0xff, sizeof o);
        run_with(8, &ranges[0][0][0], MOST, LONG, 0, scheduled, o);
        assert_memory_equal(o, expected, sizeof o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_short_sequences), cmocka_unit_test(test_windows),
                                       cmocka_unit_test(test_ranges)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
