/* SPDX-License-Identifier: MIT
 *
 * test_broadcast.c - a table that broadcasts over rows, heads or batch entries has a gradient with size 1 on these axes: the sum of
 * the gradients of the expanded table, and nothing is written beyond it. */
#include "test.h"

#include "attn/attn.h"
#include "testing/random/random.h"

#include <math.h>

static int64_t heads = 3;
enum { B = 2, H = 3, SQ = 5, SKV = 7, D = 4, ROWS = 6, CAPACITY = B * H * SKV * SKV * D };

static double q[CAPACITY], k[CAPACITY], v[CAPACITY], o[CAPACITY], lse[CAPACITY], grad_o[CAPACITY], grad_q[CAPACITY],
    grad_k[CAPACITY], grad_v[CAPACITY];

static void fill(double *x, int64_t n, uint64_t seed)
{
    random_state r = random_from(seed);
    for (int64_t i = 0; i < n; i++) x[i] = random_signed(&r);
}

/* A tensor and its gradient: slots and shape. */
typedef struct table {
    const char *name;
    size_t slot, grad; /* offsets in attn_tensors */
    int64_t shape[4];
    attn_score_kind kind;
} table;

#define TABLE(name, kind, ...)                                                                                                     \
    {                                                                                                                              \
#name, offsetof(attn_tensors, name), offsetof(attn_tensors, grad_##name), {__VA_ARGS__ }, kind                             \
    }

static const table tables[] = {
    TABLE(relative_keys, ATTN_SCORE_DOT, 1, H, ROWS, D),   TABLE(relative_values, ATTN_SCORE_DOT, 1, H, ROWS, D),
    TABLE(bias_table, ATTN_SCORE_DOT, 1, H, 2 * 2 + 1, 1), TABLE(alibi_slopes, ATTN_SCORE_DOT, B, H, 1, 1),
    TABLE(score_matrix, ATTN_SCORE_GENERAL, 1, H, D, D),   TABLE(score_matrix, ATTN_SCORE_METRIC, 1, H, D, D),
    TABLE(score_matrix, ATTN_SCORE_ADDITIVE, 1, H, 2, D)};

/* Forward and backward with the table `numbers`; its gradient is written to `grad`. */
static void run(const table *t, const double *numbers, const int64_t stride[4], double *grad)
{
    attn_problem p = {
        .struct_size = sizeof p, .op = ATTN_FORWARD, .shape = {B, heads, heads, SQ, SKV, D, D}, .score.kind = t->kind};
    attn_tensors all = {
        .struct_size = sizeof all, .q = attn_in(q), .k = attn_in(k), .v = attn_in(v), .o = attn_out(o), .lse = attn_out(lse)};
    attn_error error;
    attn_input slot = {numbers, ATTN_F64, {stride[0], stride[1], stride[2], stride[3]}};
    all.q.dtype = ATTN_F64;
    if (!strncmp(t->name, "relative", 8)) p.relative = (attn_relative){.first = -2, .rows = ROWS};
    if (!strcmp(t->name, "bias_table")) p.bias_table = (attn_bias_table){.kind = ATTN_DISTANCE_CLIPPED, .max_distance = 2};
    p.score.additive_bias = t->kind == ATTN_SCORE_ADDITIVE;
    memcpy((char *)&all + t->slot, &slot, sizeof slot);
    if (attn_compute(&p, &all, &error) != ATTN_OK) fail_msg("%s: %s", t->name, error.message);
    p.op = ATTN_BACKWARD;
    all.grad_o = attn_in(grad_o);
    all.grad_q = attn_out(grad_q), all.grad_k = attn_out(grad_k), all.grad_v = attn_out(grad_v);
    const attn_output to = attn_out(grad);
    memcpy((char *)&all + t->grad, &to, sizeof to);
    if (attn_compute(&p, &all, &error) != ATTN_OK) fail_msg("%s: %s", t->name, error.message);
}

static void check(const table *t, unsigned axes)
{
    static double numbers[CAPACITY], whole[CAPACITY], grad[CAPACITY], one[CAPACITY], sum[CAPACITY];
    const int64_t *n = t->shape, count = n[0] * n[1] * n[2] * n[3];
    int64_t stride[4], dense[4], kept[4], total = 1;
    for (int axis = 3; axis >= 0; axis--) {
        dense[axis] = axis == 3 ? 1 : dense[axis + 1] * n[axis + 1];
        stride[axis] = axes >> axis & 1 ? 0 : dense[axis];
        kept[axis] = axes >> axis & 1 ? 1 : n[axis];
        total *= kept[axis];
    }
    fill(numbers, count, axes + 1);
    memset(sum, 0, sizeof sum);
    for (int64_t i = 0; i < count; i++) {
        const int64_t at[4] = {i / n[3] / n[2] / n[1], i / n[3] / n[2] % n[1], i / n[3] % n[2], i % n[3]};
        whole[i] = numbers[at[0] * stride[0] + at[1] * stride[1] + at[2] * stride[2] + at[3] * stride[3]];
    }
    for (int64_t i = 0; i < CAPACITY; i++) one[i] = grad[i] = 1e9;
    run(t, whole, dense, grad);
    run(t, numbers, stride, one);
    for (int64_t i = 0; i < count; i++) {
        const int64_t at[4] = {i / n[3] / n[2] / n[1], i / n[3] / n[2] % n[1], i / n[3] % n[2], i % n[3]};
        int64_t place = 0;
        for (int axis = 0; axis < 4; axis++) place = place * kept[axis] + (kept[axis] > 1 ? at[axis] : 0);
        sum[place] += grad[i];
    }
    for (int64_t i = 0; i < total; i++)
        if (!(fabs(sum[i] - one[i]) < 1e-12)) fail_msg("%s, axes %u: gradient %g, should be %g", t->name, axes, one[i], sum[i]);
    for (int64_t i = total; i < CAPACITY; i++)
        if (one[i] != 1e9) fail_msg("%s, axes %u: number %d is written, it has %d", t->name, axes, (int)i, (int)total);
}

static void test_tables(void **state)
{
    (void)state;
    fill(q, CAPACITY, 11), fill(k, CAPACITY, 12), fill(v, CAPACITY, 13), fill(grad_o, CAPACITY, 14);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (unsigned axes = 1; axes < 15; axes++) {
            const table *t = &tables[i];
            int counts = 1; /* broadcast over axes with more than one element, but not all of them */
            for (int axis = 0; axis < 4; axis++) counts &= !(axes >> axis & 1) || t->shape[axis] > 1;
            if (!strncmp(t->name, "relative", 8) && axes & 8) counts = 0; /* channels are contiguous */
            const unsigned more =
                (unsigned)(t->shape[0] > 1) | (t->shape[1] > 1) * 2u | (t->shape[2] > 1) * 4u | (t->shape[3] > 1) * 8u;
            if (counts && axes != more) check(t, axes);
        }
}

/* Without heads, the gradient of a table shared by all heads is an empty sum, 0. */
static void test_no_heads(void **state)
{
    static const double numbers[CAPACITY];
    (void)state;
    heads = 0;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        const table *t = &tables[i];
        const int64_t stride[4] = {t->shape[1] * t->shape[2] * t->shape[3], 0, t->shape[3], 1};
        const int64_t total = t->shape[0] * t->shape[2] * t->shape[3];
        double grad[B * ROWS * D + 1];
        for (int64_t n = 0; n <= total; n++) grad[n] = 1e9;
        run(t, numbers, stride, grad);
        for (int64_t n = 0; n <= total; n++)
            if (grad[n] != (n < total ? 0 : 1e9)) fail_msg("%s: gradient %d is %g", t->name, (int)n, grad[n]);
    }
    heads = H;
}

/* The gradient of a dense tensor has its shape and strides, also with an axis of one element, which is no broadcast whatever its
 * stride, or an axis of none, with strides 0. */
static void test_dense(void **state)
{
    (void)state;
    for (int axis = 0; axis < 4; axis++)
        for (int size = 0; size < 2; size++) {
            attn_problem p = {.struct_size = sizeof p, .op = ATTN_BACKWARD, .shape = {2, 3, 3, 4, 5, 2, 2}};
            int64_t size_of_axis[4] = {2, 3, 4, 5}, dense = 1;
            size_of_axis[axis] = size;
            p.shape.batch = size_of_axis[0], p.shape.heads_q = p.shape.heads_kv = size_of_axis[1], p.shape.len_q = size_of_axis[2],
            p.shape.len_kv = size_of_axis[3];
            attn_tensors t = {
                .struct_size = sizeof t, .q = attn_in(ATTN_LATER), .k = attn_in(ATTN_LATER), .v = attn_in(ATTN_LATER)};
            t.o = t.lse = attn_out(ATTN_LATER), t.bias = t.grad_o = attn_in(ATTN_LATER);
            t.grad_q = t.grad_k = t.grad_v = t.grad_bias = attn_out(ATTN_LATER);
            for (int x = 3, step = 1; size > 0 && x >= 0; step *= (int)size_of_axis[x--]) t.bias.stride[x] = x == axis ? 0 : step;
            attn_plan *plan;
            attn_error error;
            if (attn_plan_create(&plan, &p, &t, NULL, &error) != ATTN_OK) fail_msg("%s", error.message);
            for (int n = 0;; n++) {
                attn_tensor_description about = {.struct_size = sizeof about};
                attn_tensor_plan info = {.struct_size = sizeof info};
                assert_int_equal(attn_tensor_describe(ATTN_FAMILY_ATTENTION, n, &about, NULL), ATTN_OK);
                if (strcmp(about.name, "grad_bias") != 0) continue;
                assert_int_equal(attn_plan_tensor(plan, n, &info, NULL), ATTN_OK);
                for (int x = 3; x >= 0; dense *= size_of_axis[x--]) {
                    assert_int_equal(info.shape[x], size_of_axis[x]);
                    if (size > 0) assert_int_equal(info.stride[x], dense);
                }
                break;
            }
            attn_plan_destroy(plan);
        }
}

/* Without heads, a relative table shared by all heads gets gradient 0, and the gradient of a table per head, of size 0, is not
 * touched. */
static void test_one_shared_of_no_heads(void **state)
{
    static const double numbers[CAPACITY];
    (void)state;
    for (int n = 0; n < 4; n++) {
        const int shared = n % 2, key_heads = n / 2; /* key heads without query heads: no work */
        attn_problem p = {.struct_size = sizeof p,
                          .op = ATTN_BACKWARD,
                          .shape = {B, 0, key_heads, SQ, SKV, D, D},
                          .relative = {.first = -2, .rows = ROWS}};
        double grad[2][ROWS * D + 1];
        attn_error error;
        attn_tensors all = {.struct_size = sizeof all,
                            .q = {.data = ATTN_EMPTY, .dtype = ATTN_F64},
                            .k = key_heads ? attn_in(k) : (attn_input){.data = ATTN_EMPTY},
                            .v = key_heads ? attn_in(v) : (attn_input){.data = ATTN_EMPTY},
                            .o = {.data = ATTN_EMPTY},
                            .lse = {.data = ATTN_EMPTY},
                            .grad_o = {.data = ATTN_EMPTY},
                            .grad_q = {.data = ATTN_EMPTY},
                            .grad_k = key_heads ? attn_out(grad_k) : (attn_output){.data = ATTN_EMPTY},
                            .grad_v = key_heads ? attn_out(grad_v) : (attn_output){.data = ATTN_EMPTY},
                            .relative_keys = attn_in(numbers),
                            .relative_values = attn_in(numbers),
                            .grad_relative_keys = attn_out(grad[0]),
                            .grad_relative_values = attn_out(grad[1])};
        attn_input *of = shared ? &all.relative_values : &all.relative_keys;
        of->stride[0] = of->stride[1] = ATTN_BROADCAST, of->stride[2] = D, of->stride[3] = 1;
        for (int i = 0; i <= ROWS * D; i++) grad[0][i] = grad[1][i] = 1e9;
        if (attn_compute(&p, &all, &error) != ATTN_OK) fail_msg("%s", error.message);
        for (int t = 0; t < 2; t++)
            for (int i = 0; i <= ROWS * D; i++) assert_true(grad[t][i] == (t == shared && i < ROWS * D ? 0 : 1e9));
    }
}

/* If one size is 0, each gradient is an empty sum, 0, also on a broadcast axis of size 0, on which the gradient has size 1. */
static void check_nothing(const table *t, int axes, int nothing)
{
    static const double numbers[CAPACITY];
    static double grad[CAPACITY];
    attn_problem p = {.struct_size = sizeof p, .op = ATTN_BACKWARD, .shape = {B, H, H, SQ, SKV, D, D}, .score.kind = t->kind};
    int64_t *const sizes[] = {&p.shape.batch, &p.shape.heads_q, &p.shape.len_q, &p.shape.len_kv, &p.shape.dim_qk};
    *sizes[nothing] = 0;
    if (nothing == 1) p.shape.heads_kv = 0;
    if (nothing == 4) p.shape.dim_v = 0;
    if (!strncmp(t->name, "relative", 8)) p.relative = (attn_relative){.first = -2, .rows = ROWS};
    if (!strcmp(t->name, "bias_table")) p.bias_table = (attn_bias_table){.kind = ATTN_DISTANCE_CLIPPED, .max_distance = 2};
    p.score.additive_bias = t->kind == ATTN_SCORE_ADDITIVE;
    attn_tensors all = {
        .struct_size = sizeof all, .q = attn_in(q), .k = attn_in(k), .v = attn_in(v), .o = attn_out(o), .lse = attn_out(lse)};
    attn_input slot = attn_in(numbers);
    const attn_output to = attn_out(grad);
    attn_tensor_plan shape = {.struct_size = sizeof shape};
    attn_plan *plan;
    attn_error error;
    for (int axis = 3, step = 1; axis >= 0; step *= (int)t->shape[axis--])
        slot.stride[axis] = axes >> axis & 1 ? ATTN_BROADCAST : step;
    all.grad_o = attn_in(grad_o);
    all.grad_q = attn_out(grad_q), all.grad_k = attn_out(grad_k), all.grad_v = attn_out(grad_v);
    memcpy((char *)&all + t->slot, &slot, sizeof slot);
    memcpy((char *)&all + t->grad, &to, sizeof to);
    all.q.dtype = ATTN_F64;
    for (int i = 0; i < CAPACITY; i++) grad[i] = 1e9;
    const attn_status made = attn_plan_create(&plan, &p, &all, NULL, &error);
    if (made == ATTN_ERR_STRIDE) return; /* channels of relative tables must be contiguous */
    if (made != ATTN_OK) fail_msg("%s without %d, axes %d: %s", t->name, nothing, axes, error.message);
    for (int n = 0;; n++) {
        attn_tensor_description about = {.struct_size = sizeof about};
        assert_int_equal(attn_tensor_describe(ATTN_FAMILY_ATTENTION, n, &about, NULL), ATTN_OK);
        if (strncmp(about.name, "grad_", 5) != 0 || strcmp(about.name + 5, t->name) != 0) continue;
        assert_int_equal(attn_plan_tensor(plan, n, &shape, NULL), ATTN_OK);
        break;
    }
    attn_plan_destroy(plan);
    if (attn_compute(&p, &all, &error) != ATTN_OK) fail_msg("%s without %d, axes %d: %s", t->name, nothing, axes, error.message);
    const int64_t total = shape.shape[0] * shape.shape[1] * shape.shape[2] * shape.shape[3];
    for (int64_t i = 0; i < CAPACITY; i++)
        if (grad[i] != (i < total ? 0 : 1e9))
            fail_msg("%s without %d, axes %d: gradient %d of %d is %g", t->name, nothing, axes, (int)i, (int)total, grad[i]);
}

static void test_sums_of_nothing(void **state)
{
    static const table bias = TABLE(bias, ATTN_SCORE_DOT, B, H, SQ, SKV);
    const size_t count = sizeof tables / sizeof *tables;
    (void)state;
    for (size_t i = 0; i <= count; i++)
        for (int axes = 0; axes < 16; axes++)
            for (int nothing = 0; nothing < 5; nothing++) check_nothing(i < count ? &tables[i] : &bias, axes, nothing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_dense), cmocka_unit_test(test_tables), cmocka_unit_test(test_no_heads),
                                       cmocka_unit_test(test_one_shared_of_no_heads), cmocka_unit_test(test_sums_of_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
