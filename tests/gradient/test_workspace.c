/* SPDX-License-Identifier: MIT
 *
 * test_workspace.c - the memory that backward needs, at a million tokens and with a limit; plans are created, small ones run.
 */
#include "test.h"

#include "attn/attn.h"

enum { MILLION = 1 << 20, D = 64, HEADS = 6, TOKENS = 300, COUNT = HEADS * TOKENS * D };

static attn_problem backward(int64_t heads, int64_t tokens)
{
    return (attn_problem){
        .struct_size = sizeof(attn_problem), .op = ATTN_BACKWARD, .shape = {1, heads, heads, tokens, tokens, D, D}};
}

/* The tensors that the operation needs, all ATTN_LATER. */
static attn_tensors tensors_of(const attn_problem *p, attn_dtype dtype)
{
    const attn_input in = attn_in(ATTN_LATER);
    const attn_output out = attn_out(ATTN_LATER);
    attn_tensors t = {.struct_size = sizeof t, .q = in, .k = in, .v = in, .o = out, .lse = out, .grad_o = in};
    t.q.dtype = dtype;
    if (p->op == ATTN_BACKWARD) t.grad_q = t.grad_k = t.grad_v = out;
    else t.second_grad_o = t.second_q = t.second_k = t.second_v = out;
    return t;
}

static size_t needed(const attn_problem *p, attn_dtype dtype, int threads, size_t limit)
{
    const attn_tensors t = tensors_of(p, dtype);
    const attn_options options = {.struct_size = sizeof options, .threads = threads, .workspace_limit = limit};
    attn_plan *plan;
    attn_error error;
    if (attn_plan_create(&plan, p, &t, &options, &error) != ATTN_OK) fail_msg("%s", error.message);
    const size_t size = attn_plan_workspace_size(plan);
    attn_plan_destroy(plan);
    return size;
}

static void test_million(void **state)
{
    static const attn_dtype types[] = {ATTN_F32, ATTN_F64, ATTN_F16, ATTN_BF16};
    (void)state;
    for (int type = 0; type < 4; type++)
        for (int64_t heads = 1; heads <= 16; heads *= 4)
            for (int threads = 1; threads <= 16; threads *= 2)
                for (int op = ATTN_BACKWARD; op <= ATTN_DOUBLE_BACKWARD; op += ATTN_DOUBLE_BACKWARD - ATTN_BACKWARD) {
                    attn_problem p = backward(heads, MILLION);
                    p.op = (attn_op)op;
                    const size_t size = needed(&p, types[type], threads, 0),
                                 q = attn_dtype_size(types[type]) * D * MILLION * (size_t)heads;
                    if (size > 6 * q) fail_msg("type %d, %d heads, %d threads: %zu bytes", type, (int)heads, threads, size);
                }
}

static void test_limit(void **state)
{
    const attn_problem p = backward(16, MILLION);
    const attn_tensors t = tensors_of(&p, ATTN_BF16);
    attn_options options = {.struct_size = sizeof options, .threads = 8, .workspace_limit = 100000};
    attn_plan *plan;
    attn_error error;
    (void)state;
    const size_t free_size = needed(&p, ATTN_BF16, 8, 0), least = needed(&p, ATTN_BF16, 1, 0);
    assert_true(free_size > 2 * least);
    for (size_t limit = least; limit < free_size; limit += free_size / 5) assert_true(needed(&p, ATTN_BF16, 8, limit) <= limit);
    assert_int_equal(needed(&p, ATTN_BF16, 8, free_size), free_size);
    assert_int_equal(attn_plan_create(&plan, &p, &t, &options, &error), ATTN_ERR_MEMORY);
    assert_null(plan);
    char expected[240];
    (void)snprintf(expected, sizeof expected, "options.workspace_limit is %zu bytes; this problem needs %zu",
                   options.workspace_limit, least);
    assert_string_equal(error.message, expected);
}

/* Runs forward, then backward within the limit. */
static void run(const uint16_t *in, uint16_t *o, float *lse, uint16_t *out, size_t limit)
{
    attn_tensors t = {.struct_size = sizeof t, .k = attn_in(in + COUNT), .v = attn_in(in + 2 * COUNT), .o = attn_out(o)};
    const attn_options options = {.struct_size = sizeof options, .threads = 3, .workspace_limit = limit};
    attn_problem p = backward(HEADS, TOKENS);
    attn_plan *plan;
    p.mask.window = 1; /* not the small-sequence path */
    p.mask.window_left = 200;
    p.mask.window_right = 100;
    p.op = ATTN_FORWARD;
    t.q = (attn_input){in, ATTN_BF16, {0}};
    t.lse = attn_out(lse);
    assert_int_equal(attn_compute(&p, &t, NULL), ATTN_OK);
    p.op = ATTN_BACKWARD;
    t.grad_o = attn_in(in + 3 * COUNT);
    t.grad_q = attn_out(out), t.grad_k = attn_out(out + COUNT), t.grad_v = attn_out(out + 2 * COUNT);
    assert_int_equal(attn_plan_create(&plan, &p, &t, &options, NULL), ATTN_OK);
    const size_t size = attn_plan_workspace_size(plan);
    assert_true(limit == 0 || size <= limit);
    char *workspace = malloc(size);
    assert_non_null(workspace);
    assert_int_equal(attn_execute(plan, &t, workspace, size, NULL), ATTN_OK);
    free(workspace);
    attn_plan_destroy(plan);
}

static void test_same_bits(void **state)
{
    (void)state;
    attn_problem p = backward(HEADS, TOKENS);
    p.mask.window = 1;
    p.mask.window_left = 200;
    p.mask.window_right = 100;
    const size_t most = needed(&p, ATTN_BF16, 3, 0), least = needed(&p, ATTN_BF16, 1, 0);
    uint16_t *in = malloc(4 * COUNT * sizeof *in), *o = malloc(COUNT * sizeof *o);
    uint16_t *free_out = malloc(3 * COUNT * sizeof *in), *out = malloc(3 * COUNT * sizeof *in);
    float *lse = malloc(HEADS * TOKENS * sizeof *lse);
    assert_true(in && o && free_out && out && lse);
    for (int n = 0; n < 4 * COUNT; n++) in[n] = (uint16_t)(0x3f00 + n % 256 * 31 % 256 + (n % 3 ? 0 : 0x8000));
    run(in, o, lse, free_out, 0);
    for (size_t limit = least; limit <= most; limit += (most - least) / 4) {
        run(in, o, lse, out, limit);
        assert_memory_equal(free_out, out, 3 * COUNT * sizeof *in);
    }
    free(in);
    free(o);
    free(free_out);
    free(out);
    free(lse);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_million), cmocka_unit_test(test_limit),
                                       cmocka_unit_test(test_same_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
