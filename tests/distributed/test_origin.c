/* SPDX-License-Identifier: MIT
 *
 * test_origin.c - a range of queries, or of heads, of a larger problem has the bits of the larger one; and the gradients of keys by
 * two ranges add up to them. */
#include "test.h"

#include "attn/distributed.h"
#include "testing/random/random.h"

enum { HEADS = 4, KEY_HEADS = 2, LEN = 72, PART = 8, D = 4, ROW = HEADS * LEN * D, KEYS = KEY_HEADS * LEN * D };

/* Tensors of the whole; gradients may be those of double backward. */
typedef struct arrays {
    float q[ROW], k[KEYS], v[KEYS], o[ROW], lse[HEADS * LEN], grad_o[ROW], sink[HEADS], slopes[HEADS], bias[HEADS * LEN * LEN];
    float grad_q[ROW], grad_k[KEYS], grad_v[KEYS], grad_bias[HEADS * LEN * LEN], second_grad_o[ROW];
} arrays;

/* What of the whole a call computes. */
typedef struct range {
    int64_t q, queries, kv_head, kv_heads;
} range;

static const range whole = {0, LEN, 0, KEY_HEADS};

static void draw(arrays *a)
{
    random_state r = random_from(5);
    float *const all[] = {a->q, a->k, a->v, a->grad_o, a->sink, a->slopes, a->bias};
    const size_t sizes[] = {ROW, KEYS, KEYS, ROW, HEADS, HEADS, HEADS * LEN * LEN};
    for (int n = 0; n < 7; n++)
        for (size_t i = 0; i < sizes[n]; i++) all[n][i] = (float)random_signed(&r);
}

static attn_input slot(float *data, int64_t at, int64_t head, int64_t token)
{
    return (attn_input){data + at, 0, {0, head, token, 1}};
}

/* Rules of positions, one after another; each with dropout, bias, slopes and a sink. */
static const attn_mask masks[] = {
    {.causal = 1},
    {.window = 1, .window_left = 11, .window_right = 3},
    {.causal = 1, .window = 1, .window_left = 20, .window_right = -1, .global_kv = 5, .global_q = 3},
    {.causal = 1, .chunk = 24},
    {.dilation = 3, .window = 1, .window_left = 30, .window_right = 30},
};

static attn_status compute(attn_op op, const attn_mask *mask, const range *x, attn_origin *origin, arrays *from, arrays *to,
                           attn_error *error)
{
    const int64_t group = HEADS / KEY_HEADS, head = x->kv_head * group, lse = head * LEN + x->q, q = lse * D,
                  kv = x->kv_head * LEN * D, pairs = lse * LEN;
    const attn_problem problem = {.struct_size = sizeof problem,
                                  .op = op,
                                  .shape = {1, x->kv_heads * group, x->kv_heads, x->queries, LEN, D, D},
                                  .mask = *mask,
                                  .dropout.probability = 0.25};
    attn_call call = {.struct_size = sizeof call, .dropout_seed = 3, .origin = origin};
    attn_tensors t = {.struct_size = sizeof t, .call = &call};
    t.q = slot(from->q, q, LEN * D, D), t.k = slot(from->k, kv, LEN * D, D), t.v = slot(from->v, kv, LEN * D, D);
    t.bias = slot(from->bias, pairs, LEN * LEN, LEN);
    t.alibi_slopes = attn_in(from->slopes + head), t.sink = attn_in(from->sink + head);
    arrays *const rows = op == ATTN_FORWARD ? to : from;
    t.o = (attn_output){rows->o + q, 0, {0, LEN * D, D, 1}}, t.lse = (attn_output){rows->lse + lse, 0, {0, LEN, 1, 1}};
    const attn_output of_q = {to->grad_q + q, 0, {0, LEN * D, D, 1}}, of_k = {to->grad_k + kv, 0, {0, LEN * D, D, 1}},
                      of_v = {to->grad_v + kv, 0, {0, LEN * D, D, 1}}, of_bias = {to->grad_bias + pairs, 0, {0, LEN * LEN, LEN, 1}};
    if (op != ATTN_FORWARD) t.grad_o = slot(from->grad_o, q, LEN * D, D);
    if (op == ATTN_BACKWARD) t.grad_q = of_q, t.grad_k = of_k, t.grad_v = of_v, t.grad_bias = of_bias;
    if (op == ATTN_DOUBLE_BACKWARD) {
        t.tan_q = t.grad_o, t.tan_k = t.v, t.tan_v = t.k, t.tan_bias = t.bias; /* some numbers */
        t.second_q = of_q, t.second_k = of_k, t.second_v = of_v, t.second_bias = of_bias;
        t.second_grad_o = (attn_output){to->second_grad_o + q, 0, {0, LEN * D, D, 1}};
    }
    const attn_split split = {.struct_size = sizeof split, .part = PART};
    attn_distributed_plan *plan;
    const attn_status status = attn_distributed_plan_create(&plan, &problem, &t, &split, NULL, NULL, error);
    if (status != ATTN_OK) return status;
    const size_t size = attn_distributed_workspace_size(plan);
    void *workspace = malloc(size);
    const attn_status done = attn_distributed_execute(plan, &t, workspace, size, error);
    if (done == ATTN_OK && origin) { /* those of the plan, and no others */
        origin->q++;
        assert_int_equal(attn_distributed_execute(plan, &t, workspace, size, NULL), ATTN_ERR_ARGUMENT);
        origin->q--;
        call.origin = NULL;
        assert_int_equal(attn_distributed_execute(plan, &t, workspace, size, NULL), ATTN_ERR_ARGUMENT);
    }
    free(workspace);
    attn_distributed_plan_destroy(plan);
    return done;
}

static void compute_range(attn_op op, const attn_mask *mask, const range *x, arrays *from, arrays *to)
{
    attn_origin origin = {.head = x->kv_head * HEADS / KEY_HEADS, .heads = HEADS, .q = x->q};
    attn_error error;
    if (compute(op, mask, x, x == &whole ? NULL : &origin, from, to, &error) != ATTN_OK) fail_msg("%s", error.message);
}

static arrays one, other, second; /* of the whole, of its ranges; gradients of keys by the second range */

static void test_ranges(void **state)
{
    static const range heads[] = {{0, LEN, 0, 1}, {0, LEN, 1, 1}};
    static const range rows[] = {{0, 64, 0, KEY_HEADS}, {64, LEN - 64, 0, KEY_HEADS}}; /* 8 parts, and 1 */
    (void)state;
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m++) {
        draw(&one), draw(&other), draw(&second);
        compute_range(ATTN_FORWARD, &masks[m], &whole, &one, &one);
        for (int n = 0; n < 2; n++) compute_range(ATTN_FORWARD, &masks[m], &heads[n], &one, &other);
        assert_memory_equal(one.o, other.o, sizeof one.o);
        memset(other.o, 0, sizeof other.o);
        for (int n = 0; n < 2; n++) compute_range(ATTN_FORWARD, &masks[m], &rows[n], &one, &other);
        assert_memory_equal(one.o, other.o, sizeof one.o);
        assert_memory_equal(one.lse, other.lse, sizeof one.lse);
        for (int k = 0; k < 2; k++) {
            const attn_op op = k ? ATTN_DOUBLE_BACKWARD : ATTN_BACKWARD;
            compute_range(op, &masks[m], &whole, &one, &one);
            for (int n = 0; n < 2; n++) compute_range(op, &masks[m], &heads[n], &one, &other);
            assert_memory_equal(one.grad_k, other.grad_k, sizeof one.grad_k);
            memset(other.grad_q, 0, sizeof other.grad_q);
            compute_range(op, &masks[m], &rows[0], &one, &other);
            memcpy(second.grad_q, other.grad_q, sizeof second.grad_q);
            memcpy(second.grad_bias, other.grad_bias, sizeof second.grad_bias);
            memcpy(second.second_grad_o, other.second_grad_o, sizeof second.second_grad_o);
            compute_range(op, &masks[m], &rows[1], &one, &second);
            assert_memory_equal(one.grad_q, second.grad_q, sizeof one.grad_q);
            assert_memory_equal(one.grad_bias, second.grad_bias, sizeof one.grad_bias);
            assert_memory_equal(one.second_grad_o, second.second_grad_o, sizeof one.second_grad_o);
            for (int n = 0; n < KEYS; n++) { /* (0 and -0 are equal) */
                assert_true(one.grad_k[n] == other.grad_k[n] + second.grad_k[n]);
                assert_true(one.grad_v[n] == other.grad_v[n] + second.grad_v[n]);
            }
        }
    }
}

static void test_rejected(void **state)
{
    static const struct {
        attn_origin origin;
        const char *message;
    } rows[] = {
        {{.q = -1}, "origin.q is -1; it must be between 0 and 2^60"},
        {{.kv = INT64_MAX}, "origin.kv is 9223372036854775807; it must be between 0 and 2^60"},
        {{.q = INT64_C(1) << 60},
         "origin.q (1152921504606846976) or origin.kv (0) is too large: the last position must be below 2^60"},
        {{.head = 1}, "origin.head is 1 and heads_q 4; origin.heads (0) is too small"},
        {{.head = 1, .heads = 4}, "origin.head is 1 and heads_q 4; origin.heads (4) is too small"},
        {{.reserved = {0, 2, 0}}, "origin.reserved[1] is 2; it must be 0"},
    };
    attn_error error;
    (void)state;
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
        attn_origin origin = rows[n].origin;
        assert_int_equal(compute(ATTN_FORWARD, &masks[0], &whole, &origin, &one, &one, &error), ATTN_ERR_ARGUMENT);
        assert_string_equal(error.message, rows[n].message);
    }
    const attn_mask aligned = {.align = ATTN_ALIGN_BOTTOM_RIGHT};
    attn_origin origin = {.q = 8};
    assert_int_equal(compute(ATTN_FORWARD, &aligned, &whole, &origin, &one, &one, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message,
                        "mask.align is bottom-right and the call has an origin, whose lengths are those of a part; give offset_q");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranges), cmocka_unit_test(test_rejected)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
