/* SPDX-License-Identifier: MIT
 * test_nothing.c - calls whose outputs have no elements return at once, however large the other sizes are; they are checked all the
 * same, and functions of the caller are still called. */
#include "fails.h"
#include "promptly.h"

#include "attn/analysis.h"
#include "attn/cache.h"
#include "attn/hopfield.h"
#include "attn/linear.h"
#include "attn/merge.h"
#include "attn/modifier.h"
#include "attn/position.h"

#include <math.h>

static const int64_t VAST = INT64_C(1) << 47;
static const float zeros[8];

static attn_input none(void) { return attn_in(ATTN_EMPTY); }
static attn_output out(void) { return attn_out(ATTN_EMPTY); }
/* Zeros that all axes but the last share: elements without memory. */
static attn_input shared(void) { return (attn_input){zeros, ATTN_F32, {ATTN_BROADCAST, ATTN_BROADCAST, ATTN_BROADCAST, 1}}; }

static attn_tensors forward(void)
{
    return (attn_tensors){.struct_size = sizeof(attn_tensors), .q = none(), .k = none(), .v = none(), .o = out()};
}

static void test_forward(void **state)
{
    attn_problem p = {.struct_size = sizeof p, .shape = {1, VAST, VAST, 5, 7, 0, 0}};
    attn_tensors t = forward();
    (void)state;
    PROMPTLY(attn_compute(&p, &t, NULL), ATTN_OK);
    p.shape = (attn_shape){2, 3, 1, VAST, VAST, 4, 0};
    t.q = t.k = shared();
    PROMPTLY(attn_compute(&p, &t, NULL), ATTN_OK);
}

static void test_backward(void **state)
{
    const int64_t begin[2] = {0, INT64_C(1) << 31};
    const attn_problem p = {
        .struct_size = sizeof p, .op = ATTN_BACKWARD, .shape = {1, 1, 1, begin[1], begin[1], 0, 0}, .mask.causal = 1};
    attn_tensors t = forward();
    (void)state;
    t.lse = (attn_output){(void *)(uintptr_t)zeros, ATTN_F32, {ATTN_BROADCAST, ATTN_BROADCAST, ATTN_BROADCAST, ATTN_BROADCAST}};
    t.grad_o = none();
    t.grad_q = t.grad_k = t.grad_v = out();
    t.cu_seqlens_q = t.cu_seqlens_kv = attn_in(begin);
    PROMPTLY(attn_compute(&p, &t, NULL), ATTN_OK);
}

/* Strides of packed queries without channels may be any, also where there are rows to visit.  (UBSan looks on.) */
static void test_packed_strides(void **state)
{
    enum { TOKENS = 9, SEQUENCES = 2 };
    const int64_t starts[SEQUENCES + 1] = {0, 4, TOKENS};
    const attn_problem p = {.struct_size = sizeof p,
                            .shape = {SEQUENCES, 1, 1, TOKENS, TOKENS, 0, 1},
                            .relative = {.first = 1 - TOKENS, .rows = 2 * TOKENS - 1}};
    float v[TOKENS], o[TOKENS] = {0};
    attn_tensors t = forward();
    (void)state;
    for (int n = 0; n < TOKENS; n++) v[n] = (float)n;
    t.q.stride[1] = 1, t.q.stride[2] = INT64_MAX / 2, t.q.stride[3] = 1;
    t.v = attn_in(v), t.o = attn_out(o);
    t.relative_keys = t.relative_u = none();
    t.cu_seqlens_q = t.cu_seqlens_kv = attn_in(starts);
    PROMPTLY(attn_compute(&p, &t, NULL), ATTN_OK);
    assert_true(fabsf(o[0] - 1.5f) < 1e-5f && fabsf(o[TOKENS - 1] - 6) < 1e-5f); /* means of 0 .. 3, and of 4 .. 8 */
}

/* Without query heads no table is read, wherever it lies, though there are keys to visit.  (The stride of its heads is 0, as if
 * they shared it.)  The gradient of one that they do share is 0. */
static void test_no_heads(void **state)
{
    float grad[20 + 20 + 1] = {1}, *sum = grad + 40;
    (void)state;
    for (int op = ATTN_FORWARD; op <= ATTN_DOUBLE_BACKWARD; op++)
        for (int gradient = 0; gradient <= (op == ATTN_BACKWARD); gradient++) {
            const attn_problem p = {.struct_size = sizeof p,
                                    .op = (attn_op)op,
                                    .shape = {1, 0, 1, 3, 5, 4, 4},
                                    .bias_table = {.kind = ATTN_DISTANCE_CLIPPED, .max_distance = 300}};
            attn_tensors t = forward();
            t.k = t.v = shared();
            t.bias_table = (attn_input){ATTN_EMPTY, ATTN_F32, {0, 0, INT64_C(1) << 40, 1}};
            if (gradient)
                t.bias_table = (attn_input){zeros, ATTN_F32, {0, ATTN_BROADCAST, ATTN_BROADCAST, 1}},
                t.grad_bias_table = attn_out(sum);
            if (op != ATTN_FORWARD) t.lse = out();
            if (op == ATTN_BACKWARD || op == ATTN_DOUBLE_BACKWARD) t.grad_o = none();
            if (op == ATTN_BACKWARD) t.grad_q = out(), t.grad_k = attn_out(grad), t.grad_v = attn_out(grad + 20);
            if (op >= ATTN_JVP) t.tan_q = none(), t.tan_k = t.tan_v = shared();
            if (op == ATTN_JVP) t.tan_o = out();
            if (op == ATTN_DOUBLE_BACKWARD)
                t.second_grad_o = t.second_q = out(), t.second_k = attn_out(grad), t.second_v = attn_out(grad + 20);
            attn_plan *plan;
            assert_int_equal(attn_plan_create(&plan, &p, &t, NULL, NULL), ATTN_OK);
            const size_t size = attn_plan_workspace_size(plan);
            void *workspace = malloc(size + 1); /* (a sanitizer sees what is written after it) */
            assert_non_null(workspace);
            for (int n = 0; n < 41; n++) grad[n] = 1;
            assert_int_equal(attn_execute(plan, &t, workspace, size, NULL), ATTN_OK);
            free(workspace);
            attn_plan_destroy(plan);
            const int writes_keys = op == ATTN_BACKWARD || op == ATTN_DOUBLE_BACKWARD; /* and values; sums over no heads are 0 */
            for (int n = 0; n < 41; n++) assert_true(grad[n] == (n < 40 ? !writes_keys : !gradient));
        }
}

/* One row of pages for any number of entries. */
static void test_pages(void **state)
{
    int64_t pages[2] = {0, 1};
    attn_problem p = {.struct_size = sizeof p, .shape = {VAST, 1, 1, 1, 8, 0, 0}, .paging = {.page_size = 4, .pages = 2}};
    attn_tensors t = forward();
    (void)state;
    t.page_table = (attn_input){pages, ATTN_I64, {ATTN_BROADCAST, 0, 0, 1}};
    PROMPTLY(attn_compute(&p, &t, NULL), ATTN_OK);
    pages[1] = 2;
    PROMPTLY(attn_compute(&p, &t, NULL), ATTN_ERR_ARGUMENT);
}

/* Everything is checked although nothing is computed. */
static void test_checked(void **state)
{
    const int64_t lengths[2] = {0, 6};
    attn_problem p = {.struct_size = sizeof p, .shape = {2, VAST, VAST, 5, 5, 0, 0}};
    attn_tensors t = forward();
    attn_plan *plan;
    (void)state;
    t.lengths_q = attn_in(lengths);
    FAILS(attn_compute(&p, &t, &error), ATTN_ERR_ARGUMENT, "lengths_q[1] (6) is not between 0 and 5");
    t = forward();
    assert_int_equal(attn_plan_create(&plan, &p, &t, NULL, NULL), ATTN_OK);
    assert_int_equal(attn_plan_workspace_size(plan), 0);
    t.o.stride[3] = 1, t.q = (attn_input){0};
    FAILS(attn_execute(plan, &t, NULL, 0, &error), ATTN_ERR_ARGUMENT, "q is missing; the plan was made with it");
    attn_plan_destroy(plan);
}

static void count_rows(void *context, const attn_rows *rows) { *(int64_t *)context += rows->count; }
static void count_tiles(void *context, const attn_score_tile *tile)
{
    (void)tile;
    ++*(int64_t *)context;
}

/* Rows go to the caller, and scores pass by, without an output of their own. */
static void test_functions(void **state)
{
    attn_problem p = {.struct_size = sizeof p, .shape = {1, 2, 1, 5, 7, 4, 0}};
    attn_options one = {.struct_size = sizeof one, .threads = 1};
    int64_t rows = 0, tiles = 0;
    attn_call call = {.struct_size = sizeof call, .visit_rows = count_rows, .visit_context = &rows};
    attn_tensors t = forward();
    attn_plan *plan;
    char workspace[1 << 16];
    (void)state;
    t.q = t.k = shared();
    t.call = &call;
    for (int visit = 1; visit >= 0; visit--) {
        if (!visit) call = (attn_call){.struct_size = sizeof call, .modify_scores = count_tiles, .modify_context = &tiles};
        assert_int_equal(attn_plan_create(&plan, &p, &t, &one, NULL), ATTN_OK);
        assert_true(attn_plan_workspace_size(plan) <= sizeof workspace);
        assert_int_equal(attn_execute(plan, &t, workspace, sizeof workspace, NULL), ATTN_OK);
        attn_plan_destroy(plan);
    }
    assert_int_equal(rows, 10);
    assert_true(tiles > 0);
    call = (attn_call){.struct_size = sizeof call, .visit_rows = count_rows, .visit_context = &rows};
    p.shape.batch = VAST, p.shape.len_q = 0; /* no rows */
    PROMPTLY(attn_compute(&p, &t, NULL), ATTN_OK);
    assert_int_equal(rows, 10);
    tiles = 0; /* nor pairs, for any number of heads with keys */
    call = (attn_call){
        .struct_size = sizeof call, .modify_scores = count_tiles, .modify_slopes = count_tiles, .modify_context = &tiles};
    p.op = ATTN_BACKWARD, p.shape = (attn_shape){1, VAST, VAST, 0, 7, 0, 0};
    t.k = none(), t.lse = t.grad_q = t.grad_k = t.grad_v = out(), t.grad_o = none();
    PROMPTLY(attn_compute(&p, &t, NULL), ATTN_OK);
    assert_int_equal(tiles, 0);
}

static void test_linear(void **state)
{
    const int64_t lengths[1] = {9};
    attn_linear_problem p = {.struct_size = sizeof p, .shape = {1, VAST, VAST, 5, 5, 0, 0}, .causal = 1};
    attn_linear_tensors t = {.struct_size = sizeof t, .q = none(), .k = none(), .v = none(), .o = out()};
    (void)state;
    p.denominator = ATTN_DENOMINATOR_NONE;
    attn_linear_plan *plan;
    assert_int_equal(attn_linear_plan_create(&plan, &p, &t, NULL, NULL), ATTN_OK);
    assert_int_equal(attn_linear_plan_workspace_size(plan), 0);
    attn_linear_plan_destroy(plan);
    PROMPTLY(attn_linear_compute(&p, &t, NULL), ATTN_OK);
    t.lengths = attn_in(lengths);
    PROMPTLY(attn_linear_compute(&p, &t, NULL), ATTN_ERR_ARGUMENT);
    t.lengths = (attn_input){0};
    p.op = ATTN_BACKWARD;
    t.o = (attn_output){0};
    t.grad_o = none(), t.grad_q = t.grad_k = t.grad_v = out();
    PROMPTLY(attn_linear_compute(&p, &t, NULL), ATTN_OK);
}

static void test_linformer(void **state)
{
    const attn_linformer_problem p = {.struct_size = sizeof p, .batch = 1, .heads = VAST, .len = 4, .rank = 0, .dim = 0};
    attn_linformer_tensors t = {.struct_size = sizeof t, .x = none(), .projection = none(), .y = out()};
    (void)state;
    PROMPTLY(attn_linformer_project(&p, &t, NULL, NULL), ATTN_OK);
    t.y = (attn_output){0}, t.grad_y = none(), t.grad_x = t.grad_projection = out();
    PROMPTLY(attn_linformer_backward(&p, &t, NULL, NULL), ATTN_OK);
}

static void test_merge(void **state)
{
    const attn_merge_problem p = {.struct_size = sizeof p, .parts = 2, .batch = 1, .heads = 1, .len_q = VAST};
    const attn_input parts[2] = {none(), none()}, lse[2] = {shared(), shared()};
    const attn_merge_tensors t = {.struct_size = sizeof t, .o_parts = parts, .lse_parts = lse, .o = out()};
    (void)state;
    PROMPTLY(attn_merge(&p, &t, NULL, NULL), ATTN_OK);
}

static void test_cache(void **state)
{
    int64_t lengths[1] = {3};
    const attn_cache c = {
        .struct_size = sizeof c, .batch = 1, .heads_kv = VAST, .capacity = 9, .k = out(), .v = out(), .lengths = attn_out(lengths)};
    const attn_cache_tokens tokens = {.struct_size = sizeof tokens, .len = 2, .k = none(), .v = none()};
    (void)state;
    PROMPTLY(attn_cache_append(&c, &tokens, NULL), ATTN_OK);
    assert_int_equal(lengths[0], 5);
    const attn_problem p = {.struct_size = sizeof p, .shape.heads_q = VAST};
    const attn_tensors t = {.struct_size = sizeof t, .q = none(), .o = out()};
    PROMPTLY(attn_cache_attend(&c, &tokens, &p, &t, NULL, NULL), ATTN_OK);
    assert_int_equal(lengths[0], 7);
    attn_cache full = c; /* channels, but no tokens: compilers may drop the loop, but not in a debug build */
    full.capacity = lengths[0] = 0, full.dim_qk = full.dim_v = 4;
    const attn_cache_tokens no_tokens = {.struct_size = sizeof no_tokens, .k = none(), .v = none()};
    PROMPTLY(attn_cache_append(&full, &no_tokens, NULL), ATTN_OK);
}

static void test_positions(void **state)
{
    const attn_distance_bias rule = {
        .struct_size = sizeof rule, .kind = ATTN_DISTANCE_CLIPPED, .heads = VAST, .max_distance = 4, .len_q = 5};
    const attn_bias_gate gate = {.struct_size = sizeof gate, .batch = 1, .heads = 1, .len_q = VAST, .width = 2};
    const attn_input all = {zeros, ATTN_F32, {ATTN_BROADCAST, ATTN_BROADCAST, ATTN_BROADCAST, ATTN_BROADCAST}};
    const attn_output nowhere = out();
    (void)state;
    PROMPTLY(attn_distance_bias_fill(&rule, &all, &nowhere, NULL), ATTN_OK);
    attn_bias_gate_tensors t = {
        .struct_size = sizeof t, .q = none(), .w = none(), .b = all, .a = all, .grad_gates = all, .grad_q = nowhere};
    PROMPTLY(attn_bias_gate_backward(&gate, &t, NULL), ATTN_OK);
}

static void test_hopfield(void **state)
{
    const attn_hopfield m = {.struct_size = sizeof m, .stored = 2, .dim = 4, .patterns = attn_in(zeros)};
    const attn_hopfield_tensors t = {.struct_size = sizeof t, .states = none(), .updated = out(), .energies = out()};
    (void)state;
    PROMPTLY(attn_hopfield_retrieve(&m, 0, VAST, 0, &t, NULL), ATTN_OK);
}

static void test_analysis(void **state)
{
    const attn_input empty = {ATTN_EMPTY, ATTN_F64, {0, 0, 0, 0}};
    const attn_tensors t = {.struct_size = sizeof t, .q = empty, .k = empty, .v = empty, .o = {ATTN_EMPTY, ATTN_F64, {0, 0, 0, 0}}};
    attn_problem p = {.struct_size = sizeof p, .shape = {2, 2, 2, 5, VAST, 0, 0}};
    attn_verification v = {.struct_size = sizeof v};
    attn_flow flow = {.struct_size = sizeof flow};
    (void)state;
    PROMPTLY(attn_verify_gradients(&p, 0, 0, &t, &v, NULL, NULL), ATTN_OK);
    assert_true(v.checked == 0 && v.correct);
    p.shape = (attn_shape){1 << 20, 1, 1, 0, VAST, 0, 0}; /* whose product overflows beside the 0 */
    PROMPTLY(attn_gradient_flow(&p, &t, &flow, NULL, NULL), ATTN_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),  cmocka_unit_test(test_backward),      cmocka_unit_test(test_no_heads),
        cmocka_unit_test(test_pages),    cmocka_unit_test(test_checked),       cmocka_unit_test(test_functions),
        cmocka_unit_test(test_linear),   cmocka_unit_test(test_linformer),     cmocka_unit_test(test_merge),
        cmocka_unit_test(test_cache),    cmocka_unit_test(test_positions),     cmocka_unit_test(test_hopfield),
        cmocka_unit_test(test_analysis), cmocka_unit_test(test_packed_strides)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
