/* SPDX-License-Identifier: MIT
 * test_rejected.c - what is no schedule, and executions that do not fit theirs: one sentence, and nothing is written. */
#include "test.h"

#include "attn/schedule.h"

enum { B = 3, HQ = 4, HKV = 2, SQ = 5, SKV = 40, D = 8, PAGES = 30, PAGE = 4, TOTAL = 9 };

static float q[TOTAL * HQ * D], o[TOTAL * HQ * D], pages[2][PAGES * HKV * PAGE * D];
static int64_t table[B][SKV / PAGE], starts[B + 1], lengths[B], offsets[B];
static attn_problem problem;
static attn_tensors tensors;
static attn_call call;
static char memory[1 << 16], workspace[1 << 22];

/* One query over 9 keys, 5 over 40, 3 over 7. */
static void valid(void)
{
    const int64_t counts[B] = {1, 5, 3}, keys[B] = {9, 40, 7};
    problem = (attn_problem){
        .struct_size = sizeof problem, .shape = {B, HQ, HKV, SQ, SKV, D, D}, .paging = {.page_size = PAGE, .pages = PAGES}};
    call = (attn_call){.struct_size = sizeof call};
    tensors = (attn_tensors){.struct_size = sizeof tensors,
                             .call = &call,
                             .q = attn_in(q),
                             .k = attn_in(pages[0]),
                             .v = attn_in(pages[1]),
                             .o = attn_out(o),
                             .cu_seqlens_q = attn_in(starts),
                             .lengths_kv = attn_in(lengths),
                             .page_table = attn_in(table)};
    for (int b = 0; b < B; b++) {
        starts[b + 1] = starts[b] + counts[b];
        lengths[b] = keys[b];
        for (int i = 0; i < SKV / PAGE; i++) table[b][i] = (7 * b + 3 * i) % PAGES;
    }
    memset(o, 0x5a, sizeof o);
}

static attn_plan *plan_of_threads(int threads)
{
    const attn_options options = {.struct_size = sizeof options, .threads = threads};
    attn_plan *plan;
    attn_error error;
    if (attn_plan_create(&plan, &problem, &tensors, &options, &error) != ATTN_OK) fail_msg("%s", error.message);
    return plan;
}

static attn_plan *plan_of(void) { return plan_of_threads(0); }

static void is_rejected(attn_status got, attn_status wanted, const attn_error *error, const char *message)
{
    if (got != wanted || strcmp(error->message, message) != 0)
        fail_msg("expected %d: %s\n  got %d: %s", (int)wanted, message, (int)got, error->message);
    for (size_t i = 0; i < sizeof o; i++) assert_int_equal(((const char *)o)[i], 0x5a);
}

/* No schedule is made; *schedule is NULL. */
static void makes_none(const attn_plan *plan, void *at, size_t size, attn_status status, const char *message)
{
    const attn_schedule *schedule = (const attn_schedule *)(const void *)memory;
    attn_error error;
    is_rejected(attn_schedule_make(&schedule, plan, &tensors, at, size, NULL, &error), status, &error, message);
    assert_null(schedule);
}

static void test_making(void **state)
{
    attn_error error;
    const attn_schedule *schedule;
    char text[128];
    (void)state;
    valid();
    attn_plan *plan = plan_of();
    const size_t size = attn_schedule_size(plan);
    assert_true(size > 0 && size < sizeof memory);
    is_rejected(attn_schedule_make(NULL, plan, &tensors, memory, size, NULL, &error), ATTN_ERR_ARGUMENT, &error,
                "schedule is NULL");
    makes_none(NULL, memory, size, ATTN_ERR_ARGUMENT, "plan is NULL");
    makes_none(plan, NULL, size, ATTN_ERR_ARGUMENT, "memory is NULL");
    (void)snprintf(text, sizeof text, "memory has %zu bytes; a schedule of this plan may need %zu", size - 1, size);
    makes_none(plan, memory, size - 1, ATTN_ERR_MEMORY, text);
    is_rejected(attn_schedule_make(&schedule, plan, NULL, memory, size, NULL, &error), ATTN_ERR_ARGUMENT, &error,
                "tensors is NULL");
    starts[1] = 6, starts[2] = 6;
    makes_none(plan, memory, size, ATTN_ERR_ARGUMENT,
               "cu_seqlens_q[1] (6) minus cu_seqlens_q[0] (0) is not between 0 and len_q (5)");
    valid();
    lengths[1] = 41;
    makes_none(plan, memory, size, ATTN_ERR_ARGUMENT, "lengths_kv[1] (41) is not between 0 and 40");
    valid();
    tensors.lengths_kv = (attn_input){0};
    makes_none(plan, memory, size, ATTN_ERR_ARGUMENT, "lengths_kv is missing; the plan was made with it");
    valid();
    tensors.cu_seqlens_q.data = ATTN_LATER;
    makes_none(plan, memory, size, ATTN_ERR_ARGUMENT, "cu_seqlens_q is ATTN_LATER; an execution needs its pointer");
    valid(); /* what is not a length may come later */
    tensors.q.data = tensors.k.data = tensors.v.data = tensors.page_table.data = ATTN_LATER;
    tensors.o.data = ATTN_LATER;
    assert_int_equal(attn_schedule_make(&schedule, plan, &tensors, memory, size, NULL, &error), ATTN_OK);
    attn_plan_destroy(plan);
}

/* Prefixes of sequences of 9, 40 and 7 keys; those that are disjoint, or narrower and longer, are accepted. */
static void test_prefixes(void **state)
{
    static const struct {
        attn_prefix list[2];
        const char *message; /* NULL: accepted */
    } rows[] = {
        {{{0, 3, 7}, {0, 2, 9}}, NULL},
        {{{0, 1, 9}, {1, 2, 0}}, NULL},
        {{{3, 0, 50}, {0, 3, 7}}, NULL},
        {{{0, 4, 1}}, "options.prefixes[0] has 4 entries from 0 on; the batch has 3"},
        {{{-1, 1, 1}}, "options.prefixes[0] has 1 entries from -1 on; the batch has 3"},
        {{{1, INT64_MAX, 1}}, "options.prefixes[0] has 9223372036854775807 entries from 1 on; the batch has 3"},
        {{{0, 2, 7}, {0, 3, -1}}, "options.prefixes[1].keys is -1; it must be at least 0"},
        {{{0, 3, 8}}, "options.prefixes[0].keys is 8; batch entry 2 has 7 keys"},
        {{{0, 2, 7}, {1, 2, 7}},
         "options.prefixes[0] and [1] have entries in common; the entries of the second must be among those of the first, and its "
         "keys no "
         "fewer"},
        {{{0, 3, 7}, {0, 2, 6}},
         "options.prefixes[0] and [1] have entries in common; the entries of the second must be among those of the first, and its "
         "keys no "
         "fewer"},
    };
    (void)state;
    valid();
    attn_plan *plan = plan_of();
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
        const attn_schedule *schedule;
        attn_error error;
        attn_schedule_options shared = {.struct_size = sizeof shared, .prefix_count = 2, .prefixes = rows[n].list};
        is_rejected(attn_schedule_make(&schedule, plan, &tensors, memory, sizeof memory, &shared, &error),
                    rows[n].message ? ATTN_ERR_ARGUMENT : ATTN_OK, &error, rows[n].message ? rows[n].message : "");
        assert_int_equal(schedule == NULL, rows[n].message != NULL);
    }
    attn_plan_destroy(plan);
}

static void test_options(void **state)
{
    static const int32_t good[B] = {0, -1, 1}, far[B] = {0, 2, -2};
    static const attn_prefix prefix;
    static const struct {
        attn_schedule_options options;
        const char *message;
    } rows[] = {
        {{.prefix_count = -1, .prefixes = &prefix}, "options.prefix_count is -1; it must be at least 0"},
        {{.prefix_count = 1}, "options.prefixes is NULL and options.prefix_count is 1"},
        {{.nodes = -1}, "options.nodes is -1; it must be between 0 and 64"},
        {{.nodes = 65, .entry_nodes = good}, "options.nodes is 65; it must be between 0 and 64"},
        {{.nodes = 2}, "options.entry_nodes is NULL and options.nodes is 2"},
        {{.entry_nodes = good}, "options.entry_nodes is set and options.nodes is 0"},
        {{.nodes = 2, .entry_nodes = far}, "options.entry_nodes[1] is 2; it must be -1 or a node below 2"},
        {{.nodes = 3, .entry_nodes = far}, "options.entry_nodes[2] is -2; it must be -1 or a node below 3"},
        {{.nodes = 2, .entry_nodes = good, .workers = 1025}, "options.workers is 1025; it must be between 0 and 1024"},
        {{.nodes = 2, .entry_nodes = good, .workers = 3}, "options.worker_nodes is NULL and options.workers is 3"},
        {{.nodes = 2, .entry_nodes = good, .worker_nodes = good}, "options.worker_nodes is set and options.workers is 0"},
        {{.nodes = 2, .entry_nodes = good, .workers = 3, .worker_nodes = far},
         "options.worker_nodes[1] is 2; it must be -1 or a node below 2"},
        {{.workers = 3, .worker_nodes = good}, "options.worker_nodes[0] is 0; it must be -1 or a node below 0"},
    };
    (void)state;
    valid();
    attn_plan *plan = plan_of();
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
        const attn_schedule *schedule;
        attn_schedule_options options = rows[n].options;
        attn_error error;
        options.struct_size = sizeof options;
        is_rejected(attn_schedule_make(&schedule, plan, &tensors, memory, sizeof memory, &options, &error), ATTN_ERR_ARGUMENT,
                    &error, rows[n].message);
        assert_null(schedule);
    }
    attn_plan_destroy(plan);
}

static void test_plans(void **state)
{
    attn_origin origin = {0};
    (void)state;
    valid();
    tensors.cu_seqlens_q = (attn_input){0};
    tensors.lengths_q = attn_in(lengths);
    attn_plan *plan = plan_of();
    assert_int_equal(attn_schedule_size(plan), 0);
    makes_none(plan, memory, sizeof memory, ATTN_ERR_UNSUPPORTED,
               "the plan cannot be scheduled: it has lengths_q; pack ragged queries, with cu_seqlens_q");
    attn_plan_destroy(plan);
    valid();
    call.origin = &origin;
    plan = plan_of();
    makes_none(plan, memory, sizeof memory, ATTN_ERR_UNSUPPORTED, "the plan cannot be scheduled: its calls have an origin");
    attn_plan_destroy(plan);
    valid();
    problem.op = ATTN_JVP;
    problem.paging = (attn_paging){0};
    tensors.page_table = tensors.cu_seqlens_q = (attn_input){0};
    tensors.lse = tensors.tan_o = attn_out(workspace);
    plan = plan_of();
    makes_none(plan, memory, sizeof memory, ATTN_ERR_UNSUPPORTED,
               "the plan cannot be scheduled: its operation is not ATTN_FORWARD");
    attn_plan_destroy(plan);
    static const uint64_t nothing[64]; /* of zeros, which is no schedule */
    attn_schedule_description description = {.struct_size = sizeof description};
    attn_error error;
    is_rejected(attn_schedule_describe((const attn_schedule *)(const void *)nothing, 1, &description, &error), ATTN_ERR_ARGUMENT,
                &error, "schedule is not a schedule of this version of libattn");
    assert_int_equal(attn_schedule_size(NULL), 0);
    assert_int_equal(attn_schedule_workspace_size(NULL), 0);
}

/* So many items that their bytes overflow. */
static void test_size(void **state)
{
    (void)state;
    valid();
    problem = (attn_problem){.struct_size = sizeof problem, .shape = {INT64_C(1) << 31, 1, 1, INT64_C(1) << 34, 1 << 20, 1, 1}};
    tensors.lengths_kv = tensors.page_table = (attn_input){0};
    attn_plan *plan = plan_of();
    assert_int_equal(attn_schedule_size(plan), 0);
    makes_none(plan, memory, sizeof memory, ATTN_ERR_SHAPE, "the size of a schedule of this plan overflows");
    attn_plan_destroy(plan);
}

static void runs_not(const attn_plan *plan, size_t size, attn_status status, const char *message)
{
    attn_error error;
    is_rejected(attn_execute(plan, &tensors, workspace, size, &error), status, &error, message);
}

/* Column sums and dilated masks let tiles begin elsewhere, so that another plan would leave out queries. */
static void test_tiles(void **state)
{
    static float values[64 * 16], outputs[51 * 16], sums[64], maxima[51];
    (void)state;
    for (int way = 0; way < 2; way++) {
        attn_error error;
        attn_plan *plans[2];
        memset(o, 0x5a, sizeof o);
        starts[1] = 33, lengths[0] = 64;
        call = (attn_call){.struct_size = sizeof call};
        problem = (attn_problem){.struct_size = sizeof problem, .shape = {1, 1, 1, 51, 64, 16, 16}, .mask.dilation = way};
        tensors = (attn_tensors){.struct_size = sizeof tensors,
                                 .call = &call,
                                 .q = attn_in(values),
                                 .k = attn_in(values),
                                 .v = attn_in(values),
                                 .o = attn_out(outputs),
                                 .row_max = attn_out(maxima), /* only tiles have them, so that the walks are the same */
                                 .cu_seqlens_q = attn_in(starts),
                                 .lengths_kv = attn_in(lengths)};
        plans[0] = plan_of();
        if (way) problem.mask.dilation = 2;
        else tensors.column_sum = attn_out(sums);
        plans[1] = plan_of();
        assert_int_equal(attn_schedule_make(&call.schedule, plans[1], &tensors, memory, sizeof memory, NULL, &error), ATTN_OK);
        tensors.column_sum = (attn_output){0};
        runs_not(plans[0], sizeof workspace, ATTN_ERR_ARGUMENT,
                 way ? "call.schedule was made with a plan of other masks; make one with this plan"
                     : "call.schedule was made with a plan of other kernels or outputs; make one with this plan");
        attn_plan_destroy(plans[0]), attn_plan_destroy(plans[1]);
    }
}

/* Plans of other numbers of threads cut tiles into other items and need other workspaces, so that what
 * attn_schedule_workspace_size says would not be enough. */
static void test_threads(void **state)
{
    enum { LEN = 96, CAPACITY = 4096 };
    static float keys[HKV * CAPACITY * D], queries[2][HQ * LEN * D];
    attn_error error;
    (void)state;
    valid();
    starts[1] = LEN - 1, starts[2] = starts[3] = LEN, lengths[0] = CAPACITY, lengths[1] = 1000, lengths[2] = 0;
    problem = (attn_problem){.struct_size = sizeof problem, .shape = {B, HQ, HKV, LEN, CAPACITY, D, D}};
    tensors.page_table = (attn_input){0};
    tensors.q = attn_in(queries[0]), tensors.o = attn_out(queries[1]);
    tensors.k = tensors.v = (attn_input){keys, ATTN_F32, {0, CAPACITY * D, D, 1}}; /* the same ones for each sequence */
    for (int made = 1; made <= 4; made++)
        for (int now = 1; now <= 4; now++) {
            attn_plan *maker = plan_of_threads(made), *plan = plan_of_threads(now);
            call.schedule = NULL;
            assert_int_equal(attn_schedule_make(&call.schedule, maker, &tensors, memory, sizeof memory, NULL, &error), ATTN_OK);
            const size_t size = attn_schedule_workspace_size(call.schedule);
            assert_true(size <= sizeof workspace);
            if (made == now) assert_int_equal(attn_execute(plan, &tensors, workspace, size, &error), ATTN_OK);
            else
                runs_not(plan, sizeof workspace, ATTN_ERR_ARGUMENT,
                         "call.schedule was made with a plan of other threads; make one with this plan");
            attn_plan_destroy(plan), attn_plan_destroy(maker);
        }
}

/* Heads whose keys lie side by side are read together: other items. */
static void test_strides(void **state)
{
    enum { CAPACITY = 256 };
    static float keys[HKV * CAPACITY * D];
    attn_error error;
    (void)state;
    valid();
    lengths[0] = lengths[1] = CAPACITY, lengths[2] = 9;
    problem.shape.len_kv = CAPACITY, problem.paging = (attn_paging){0};
    tensors.page_table = (attn_input){0};
    tensors.k = tensors.v = (attn_input){keys, ATTN_F32, {0, CAPACITY * D, D, 1}}; /* the same ones for each sequence */
    attn_plan *maker = plan_of();
    assert_int_equal(attn_schedule_make(&call.schedule, maker, &tensors, memory, sizeof memory, NULL, &error), ATTN_OK);
    tensors.k = tensors.v = (attn_input){keys, ATTN_F32, {0, D, HKV * D, 1}};
    attn_plan *plan = plan_of();
    runs_not(plan, sizeof workspace, ATTN_ERR_ARGUMENT,
             "call.schedule was made with a plan of other strides, pages or threads; make one with this plan");
    attn_plan_destroy(plan), attn_plan_destroy(maker);
}

static void test_executing(void **state)
{
    static const int64_t few[B] = {1, 1, 1};
    attn_error error;
    char text[128];
    (void)state;
    valid();
    attn_plan *plan = plan_of();
    assert_int_equal(attn_schedule_make(&call.schedule, plan, &tensors, memory, sizeof memory, NULL, &error), ATTN_OK);
    const attn_schedule *schedule = call.schedule;
    const size_t size = attn_schedule_workspace_size(schedule);
    assert_true(size > 0 && size <= sizeof workspace);
    (void)snprintf(text, sizeof text, "workspace has %zu bytes; the schedule needs %zu", size - 1, size);
    runs_not(plan, size - 1, ATTN_ERR_MEMORY, text);
    is_rejected(attn_execute(plan, &tensors, memory, sizeof memory, &error), ATTN_ERR_ARGUMENT, &error,
                "workspace overlaps the memory of call.schedule");
    lengths[2] = 8;
    runs_not(plan, size, ATTN_ERR_ARGUMENT, "call.schedule was made for 3 queries and 7 keys of batch entry 2; now it has 3 and 8");
    lengths[2] = 7, starts[1] = 2;
    runs_not(plan, size, ATTN_ERR_ARGUMENT, "call.schedule was made for 1 queries and 9 keys of batch entry 0; now it has 2 and 9");
    starts[1] = 1;
    attn_plan *const first = plan;
    problem.mask.window = 1, problem.mask.window_left = 3, problem.mask.window_right = -1; /* another layer's window */
    plan = plan_of();
    runs_not(plan, sizeof workspace, ATTN_ERR_ARGUMENT,
             "call.schedule was made with a plan of other masks; make one with this plan");
    attn_plan_destroy(plan);
    problem.mask = (attn_mask){0};
    problem.shape.len_q++;
    plan = plan_of();
    runs_not(plan, sizeof workspace, ATTN_ERR_ARGUMENT,
             "call.schedule was made with a plan of other sizes; make one with this plan");
    attn_plan_destroy(plan);
    problem.shape.len_q--;
    tensors.k.dtype = tensors.v.dtype = ATTN_F32; /* another layer: strides written out, the same sizes */
    tensors.k.stride[0] = tensors.v.stride[0] = HKV * PAGE * D, tensors.k.stride[1] = tensors.v.stride[1] = PAGE * D;
    tensors.k.stride[2] = tensors.v.stride[2] = D, tensors.k.stride[3] = tensors.v.stride[3] = 1;
    plan = plan_of();
    assert_int_equal(attn_execute(plan, &tensors, workspace, size, &error), ATTN_OK);
    attn_plan_destroy(plan);
    attn_plan_destroy(first);
    valid();
    memset(memory, 0, sizeof memory);
    plan = plan_of();
    call.schedule = (const attn_schedule *)(const void *)memory;
    runs_not(plan, sizeof workspace, ATTN_ERR_ARGUMENT, "call.schedule is not a schedule of this version of libattn");
    assert_int_equal(attn_schedule_make(&call.schedule, plan, &tensors, memory, sizeof memory, NULL, &error), ATTN_OK);
    attn_plan_destroy(plan);
    tensors.cu_seqlens_q = (attn_input){0};
    tensors.lengths_q = attn_in(few);
    plan = plan_of();
    runs_not(plan, sizeof workspace, ATTN_ERR_UNSUPPORTED,
             "call.schedule is set and the plan cannot be scheduled: it has lengths_q; pack ragged queries, with cu_seqlens_q");
    attn_plan_destroy(plan);
}

static void test_positions(void **state)
{
    attn_error error;
    (void)state;
    valid();
    problem.mask.causal = 1;
    tensors.offset_q = attn_in(offsets);
    offsets[0] = 8, offsets[1] = 35, offsets[2] = 4;
    attn_plan *plan = plan_of();
    assert_int_equal(attn_schedule_make(&call.schedule, plan, &tensors, memory, sizeof memory, NULL, &error), ATTN_OK);
    offsets[1] = 34;
    runs_not(plan, sizeof workspace, ATTN_ERR_ARGUMENT, "call.schedule was made for offset_q[1] of 35; now it is 34");
    offsets[1] = 35;
    assert_int_equal(attn_execute(plan, &tensors, workspace, attn_schedule_workspace_size(call.schedule), &error), ATTN_OK);
    attn_plan_destroy(plan);
}

static void test_described(void **state)
{
    attn_error error;
    attn_schedule_description d = {.struct_size = sizeof d};
    (void)state;
    valid();
    attn_plan *plan = plan_of();
    assert_int_equal(attn_schedule_make(&call.schedule, plan, &tensors, memory, sizeof memory, NULL, &error), ATTN_OK);
    assert_int_equal(attn_schedule_describe(call.schedule, 2, &d, &error), ATTN_OK);
    assert_true(d.sequences == 3 && d.queries == 9 && d.keys == 56 && d.keys_read == 56 && d.walks >= 1 && d.tasks >= 3);
    assert_true(d.balance > 0 && d.balance <= 1 && d.workspace_bytes == attn_schedule_workspace_size(call.schedule));
    assert_int_equal(attn_schedule_describe(NULL, 2, &d, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "schedule is NULL");
    assert_int_equal(attn_schedule_describe(call.schedule, 2, NULL, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "description is NULL");
    assert_int_equal(attn_schedule_describe(call.schedule, 0, &d, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "workers is 0; it must be between 1 and 1024");
    d.struct_size = 8;
    assert_int_equal(attn_schedule_describe(call.schedule, 2, &d, &error), ATTN_ERR_ARGUMENT);
    attn_scheduled_item item = {.struct_size = sizeof item};
    is_rejected(attn_schedule_item(NULL, 0, &item, &error), ATTN_ERR_ARGUMENT, &error, "schedule is NULL");
    is_rejected(attn_schedule_item(call.schedule, 0, NULL, &error), ATTN_ERR_ARGUMENT, &error, "item is NULL");
    is_rejected(attn_schedule_item(call.schedule, -1, &item, &error), ATTN_ERR_ARGUMENT, &error,
                "number is -1; the schedule has 3 items");
    is_rejected(attn_schedule_item(call.schedule, 3, &item, &error), ATTN_ERR_ARGUMENT, &error,
                "number is 3; the schedule has 3 items");
    attn_plan_destroy(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_making),    cmocka_unit_test(test_prefixes),  cmocka_unit_test(test_options),
        cmocka_unit_test(test_plans),     cmocka_unit_test(test_size),      cmocka_unit_test(test_threads),
        cmocka_unit_test(test_strides),   cmocka_unit_test(test_executing), cmocka_unit_test(test_tiles),
        cmocka_unit_test(test_positions), cmocka_unit_test(test_described)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
