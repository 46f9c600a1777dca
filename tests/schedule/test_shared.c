/* SPDX-License-Identifier: MIT
 *
 * test_shared.c - prefixes that sequences share: fewer keys are read, and the same bits as without, whether the claim is true or
 * not, for any threads, windows and positions, with options.invariant and without.
 */
#include "test.h"

#include "attn/schedule.h"
#include "executed.h"
#include "testing/random/random.h"

enum { B = 7, HQ = 4, HKV = 2, D = 16, PAGE = 16, CAPACITY = 3200, PAGES = 900, SYSTEM = 1100, CHAT = 2100 };

static const int64_t counts[B] = {1, 2, 40, 1, 0, 1, 1}, lengths[B] = {2300, 2150, 2400, 2203, 3000, 2120, 2100};
static float q[64 * HQ * D], pages[2][PAGES * HKV * PAGE * D];
static int32_t table[B][CAPACITY / PAGE];
static int64_t starts[B + 1], offsets[B];

/* Sequences 0 to 4 share CHAT keys, all of them SYSTEM keys. */
static void lay_out(void)
{
    random_state r = random_from(7);
    int32_t next = 0;
    for (int b = 0; b < B; b++) {
        starts[b + 1] = starts[b] + counts[b];
        offsets[b] = b == 3 ? 700 : lengths[b] - counts[b]; /* one of them sees less than what they share */
        for (int i = 0; i < CAPACITY / PAGE; i++) {
            const int first = b > 4 ? 5 : 0, same = i < (b > 0 && b <= 4 ? CHAT : SYSTEM) / PAGE && b > 0;
            if (i * PAGE >= lengths[b]) continue;
            table[b][i] = same && (i < SYSTEM / PAGE || b > first) ? table[i < SYSTEM / PAGE ? 0 : first][i] : next++;
        }
    }
    assert_true(next <= PAGES);
    float *const arrays[] = {q, pages[0], pages[1]};
    const int sizes[] = {64 * HQ * D, PAGES * HKV * PAGE * D, PAGES * HKV * PAGE * D};
    for (int a = 0; a < 3; a++)
        for (int i = 0; i < sizes[a]; i++) arrays[a][i] = (float)random_signed(&r);
}

typedef struct setting {
    int invariant, window, by_offset, fewer; /* fewer: fewer keys must be read than without prefixes */
} setting;

/* Returns the keys that the schedule reads. */
static int64_t run(const setting *how, int threads, const attn_prefix *prefixes, int64_t count, float *o)
{
    const attn_options options = {.struct_size = sizeof options, .threads = threads, .invariant = how->invariant};
    attn_problem p = {.struct_size = sizeof p,
                      .shape = {B, HQ, HKV, 40, CAPACITY, D, D},
                      .mask = {.causal = 1, .align = how->by_offset ? ATTN_ALIGN_TOP_LEFT : ATTN_ALIGN_BOTTOM_RIGHT},
                      .paging = {.page_size = PAGE, .pages = PAGES}};
    attn_call call = {.struct_size = sizeof call};
    attn_tensors t = {.struct_size = sizeof t,
                      .call = &call,
                      .q = attn_in(q),
                      .k = attn_in(pages[0]),
                      .v = attn_in(pages[1]),
                      .o = attn_out(o),
                      .cu_seqlens_q = attn_in(starts),
                      .lengths_kv = attn_in(lengths),
                      .page_table = {table, ATTN_I32, {0, 0, 0, 0}}};
    attn_schedule_description found = {.struct_size = sizeof found};
    attn_error error;
    attn_plan *plan;
    if (how->by_offset) t.offset_q = attn_in(offsets);
    if (how->window) p.mask.window = 1, p.mask.window_left = how->window, p.mask.window_right = -1;
    if (attn_plan_create(&plan, &p, &t, &options, &error) != ATTN_OK) fail_msg("%s", error.message);
    const size_t size = attn_schedule_size(plan);
    void *memory = malloc(size);
    assert_non_null(memory);
    const attn_schedule_options shared = {.struct_size = sizeof shared, .prefix_count = count, .prefixes = prefixes};
    if (attn_schedule_make(&call.schedule, plan, &t, memory, size, &shared, &error) != ATTN_OK) fail_msg("%s", error.message);
    assert_int_equal(attn_schedule_describe(call.schedule, 1, &found, NULL), ATTN_OK);
    execute_in(plan, &t, attn_schedule_workspace_size(call.schedule));
    free(memory);
    attn_plan_destroy(plan);
    return found.keys_read;
}

static void test_same_bits(void **state)
{
    static const setting settings[] = {{0, 0, 0, 1}, {1, 0, 0, 1}, {0, 1500, 0, 0}, {0, 0, 1, 1}, {0, 600, 1, 0}};
    static const struct {
        attn_prefix list[3];
        int64_t count,
            less[3]; /* keys that are read less, in blocks of 512; in order of 1024; if sequence 3 sees only two blocks */
    } claims[] = {{{{0, B, SYSTEM}}, 1, {4096, 4096, 4096}},
                  {{{0, B, SYSTEM}, {0, 5, CHAT}}, 2, {6144, 6144, 5120}},
                  {{{1, 6, 2100}, {1, 6, 2100}, {5, 2, 2100}}, 3, {6144, 6144, 5120}}, /* which is not true */
                  {{{0, 2, CHAT}, {2, 1, CHAT}, {3, 4, 512}}, 3, {3072, 2048, 3072}}};
    static float expected[64 * HQ * D], o[64 * HQ * D];
    (void)state;
    lay_out();
    for (size_t s = 0; s < sizeof settings / sizeof *settings; s++) {
        const int64_t keys = run(&settings[s], 1, NULL, 0, expected);
        for (size_t c = 0; c < sizeof claims / sizeof *claims; c++) {
            memset(o, 0xff, sizeof o);
            const int64_t fewer = run(&settings[s], 1 + (int)((s + c) % 3), claims[c].list, claims[c].count, o);
            if (memcmp(o, expected, (size_t)(starts[B] * HQ * D) * sizeof *o) != 0)
                fail_msg("setting %d, claim %d: other bits", (int)s, (int)c);
            if (settings[s].fewer && fewer != keys - claims[c].less[settings[s].invariant ? 1 : settings[s].by_offset ? 2 : 0])
                fail_msg("setting %d, claim %d: %d keys are read, and %d without", (int)s, (int)c, (int)fewer, (int)keys);
        }
    }
}

/* 64 sequences that share 8192 keys, with 20 of their own: 1.16 times the keys of one. */
static void test_reads(void **state)
{
    enum { MANY = 64, SHARED = 8192, OWN = 20 };
    static int64_t first[MANY + 1], keys[MANY];
    const attn_prefix prefix = {0, MANY, SHARED};
    const attn_problem p = {.struct_size = sizeof p,
                            .shape = {MANY, 32, 8, 1, 1 << 17, 128, 128},
                            .mask = {.causal = 1, .align = ATTN_ALIGN_BOTTOM_RIGHT},
                            .paging = {.page_size = 64, .pages = 1000}};
    const attn_tensors t = {.struct_size = sizeof t,
                            .q = attn_in(ATTN_LATER),
                            .k = {ATTN_LATER, ATTN_BF16, {0, 0, 0, 0}},
                            .v = {ATTN_LATER, ATTN_BF16, {0, 0, 0, 0}},
                            .o = attn_out(ATTN_LATER),
                            .cu_seqlens_q = attn_in(first),
                            .lengths_kv = attn_in(keys),
                            .page_table = attn_in(ATTN_LATER)};
    attn_schedule_description d = {.struct_size = sizeof d};
    const attn_schedule *schedule;
    attn_plan *plan;
    (void)state;
    for (int b = 0; b < MANY; b++) first[b + 1] = b + 1, keys[b] = SHARED + OWN;
    assert_int_equal(attn_plan_create(&plan, &p, &t, NULL, NULL), ATTN_OK);
    void *memory = malloc(attn_schedule_size(plan));
    const attn_schedule_options shared = {.struct_size = sizeof shared, .prefix_count = 1, .prefixes = &prefix};
    assert_int_equal(attn_schedule_make(&schedule, plan, &t, memory, attn_schedule_size(plan), &shared, NULL), ATTN_OK);
    assert_int_equal(attn_schedule_describe(schedule, 2, &d, NULL), ATTN_OK);
    assert_int_equal(d.keys_read, SHARED + MANY * OWN);
    assert_true(d.balance > 0.9);
    free(memory);
    attn_plan_destroy(plan);
}

/* Queries that see only the beginning of their prefix: no item without a sequence, nor more of them than without the claim. */
static void test_no_empty_items(void **state)
{
    static const int64_t begins[] = {0, 1, 2}, keys[] = {2000, 2000};
    static const attn_prefix prefixes[] = {{0, 2, 2000}, {1, 0, 0}}; /* an empty one has nothing in common with others */
    const attn_problem p = {.struct_size = sizeof p, .shape = {2, 1, 1, 1, 2000, 64, 64}, .mask = {.causal = 1}};
    const attn_tensors t = {.struct_size = sizeof t,
                            .q = attn_in(ATTN_LATER),
                            .k = attn_in(ATTN_LATER),
                            .v = attn_in(ATTN_LATER),
                            .o = attn_out(ATTN_LATER),
                            .cu_seqlens_q = attn_in(begins),
                            .lengths_kv = attn_in(keys)};
    int64_t tasks[2];
    attn_plan *plan;
    (void)state;
    assert_int_equal(attn_plan_create(&plan, &p, &t, NULL, NULL), ATTN_OK);
    void *memory = malloc(attn_schedule_size(plan));
    for (int shared = 0; shared < 2; shared++) {
        const attn_schedule_options known = {.struct_size = sizeof known, .prefix_count = 2 * shared, .prefixes = prefixes};
        attn_schedule_description d = {.struct_size = sizeof d};
        const attn_schedule *schedule;
        attn_error error;
        if (attn_schedule_make(&schedule, plan, &t, memory, attn_schedule_size(plan), &known, &error) != ATTN_OK)
            fail_msg("%s", error.message);
        assert_int_equal(attn_schedule_describe(schedule, 2, &d, NULL), ATTN_OK);
        tasks[shared] = d.tasks;
        for (int64_t n = 0; n < d.items; n++) {
            attn_scheduled_item item = {.struct_size = sizeof item};
            assert_int_equal(attn_schedule_item(schedule, n, &item, NULL), ATTN_OK);
            assert_true(item.sequences >= 1 && item.work > 0);
        }
    }
    assert_true(tasks[1] <= tasks[0]);
    free(memory);
    attn_plan_destroy(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits), cmocka_unit_test(test_reads),
                                       cmocka_unit_test(test_no_empty_items)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
