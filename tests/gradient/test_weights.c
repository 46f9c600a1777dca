/* SPDX-License-Identifier: MIT
 *
 * test_weights.c - the weights that backward, forward mode and double backward recompute from lse are at most 1.  With an lse far
 * below all scores each is exactly 1, so that with ones for values, gradients and tangents sums of weights count queries and keys.
 */
#include "test.h"

#include "attn/attn.h"

enum { CAPACITY = 100, D = 16, HEADS = 2, NUMBERS = HEADS * CAPACITY * D };

/* Room for f64; `ones` is also the values. */
typedef struct numbers {
    double q[NUMBERS], k[NUMBERS], ones[NUMBERS], o[NUMBERS], lse[HEADS * CAPACITY], bias[CAPACITY * CAPACITY];
    double grad_q[NUMBERS], grad_k[NUMBERS], sum[NUMBERS], second_v[NUMBERS], grad_sink[HEADS];
} numbers;

typedef struct sizes {
    int64_t key_heads, queries, keys;
    int causal, biased;
    const char *name;
} sizes;

static const sizes all_sizes[] = {{1, 3, 40, 0, 0, "few queries"},
                                  {1, 70, 50, 0, 1, "tiles with a bias and sinks"},
                                  {1, 90, 100, 0, 0, "tiles"},
                                  {2, 20, 20, 1, 0, "short heads"}};

static void fill(double *x, int n, attn_dtype dtype, double from, double step)
{
    for (int i = 0; i < n; i++) {
        if (dtype == ATTN_F64) x[i] = from + step * (i % 7);
        else ((float *)x)[i] = (float)(from + step * (i % 7));
    }
}

static double at(const double *x, attn_dtype dtype, int64_t i) { return dtype == ATTN_F64 ? x[i] : (double)((const float *)x)[i]; }

/* Returns 0 if this CPU lacks the instruction set. */
static int run(numbers *x, attn_op op, const sizes *s, attn_dtype dtype, attn_isa isa)
{
    const attn_problem p = {.struct_size = sizeof p,
                            .op = op,
                            .shape = {1, HEADS, s->key_heads, s->queries, s->keys, D, D},
                            .mask = {.causal = s->causal}};
    const attn_options options = {.struct_size = sizeof options, .isa = isa};
    attn_tensors t = {.struct_size = sizeof t};
    attn_error error;
    attn_plan *plan;
    t.q = (attn_input){.data = x->q, .dtype = dtype}, t.k = (attn_input){.data = x->k, .dtype = dtype};
    t.v = (attn_input){.data = x->ones, .dtype = dtype};
    t.o = (attn_output){.data = x->o, .dtype = dtype}, t.lse = (attn_output){.data = x->lse, .dtype = dtype};
    if (s->biased) t.bias = (attn_input){.data = x->bias, .dtype = dtype, .stride = {0, 0, s->keys, 1}};
    if (op != ATTN_JVP) t.grad_o = (attn_input){.data = x->ones, .dtype = dtype};
    if (op != ATTN_BACKWARD) t.tan_v = (attn_input){.data = x->ones, .dtype = dtype};
    if (op == ATTN_BACKWARD) {
        t.grad_q = (attn_output){.data = x->grad_q, .dtype = dtype}, t.grad_k = (attn_output){.data = x->grad_k, .dtype = dtype};
        t.grad_v = (attn_output){.data = x->sum, .dtype = dtype};
        if (s->biased) t.sink = (attn_input){.data = x->ones, .dtype = dtype};
        if (s->biased) t.grad_sink = (attn_output){.data = x->grad_sink, .dtype = dtype};
    } else if (op == ATTN_JVP) {
        t.tan_o = (attn_output){.data = x->sum, .dtype = dtype};
    } else {
        t.second_grad_o = (attn_output){.data = x->sum, .dtype = dtype};
        t.second_q = (attn_output){.data = x->grad_q, .dtype = dtype};
        t.second_k = (attn_output){.data = x->grad_k, .dtype = dtype};
        t.second_v = (attn_output){.data = x->second_v, .dtype = dtype};
    }
    if (attn_plan_create(&plan, &p, &t, &options, &error) != ATTN_OK) {
        if (!isa_is_elsewhere((int)isa, error.message)) fail_msg("%s: %s", s->name, error.message);
        return 0;
    }
    const size_t size = attn_plan_workspace_size(plan);
    void *workspace = malloc(size + 1);
    if (attn_execute(plan, &t, workspace, size, &error) != ATTN_OK) fail_msg("%s: %s", s->name, error.message);
    free(workspace);
    attn_plan_destroy(plan);
    return 1;
}

/* Backward: how many queries of all heads see the key, and for a sink their dO . O, D each; else how many keys the query sees. */
static void check(const numbers *x, attn_op op, const sizes *s, attn_dtype dtype, attn_isa isa)
{
    const int64_t rows = op == ATTN_BACKWARD ? s->key_heads * s->keys : HEADS * s->queries;
    for (int64_t n = 0; n < rows; n++) {
        const int64_t key = n % s->keys, query = n % s->queries, seeing = s->causal ? s->queries - key : s->queries;
        const int64_t count = op == ATTN_BACKWARD ? HEADS / s->key_heads * seeing : s->causal ? query + 1 : s->keys;
        for (int64_t c = 0; c < D; c++)
            if (at(x->sum, dtype, n * D + c) != (double)count)
                fail_msg("%s, operation %d in %s on %s: row %d is %g, not %d", s->name, (int)op, attn_dtype_name(dtype),
                         attn_isa_name(isa), (int)n, at(x->sum, dtype, n * D + c), (int)count);
    }
    for (int h = 0; h < HEADS && op == ATTN_BACKWARD && s->biased; h++)
        assert_true(at(x->grad_sink, dtype, h) == (double)(-D * s->queries));
}

static void test_at_most_one(void **state)
{
    static const attn_op ops[] = {ATTN_BACKWARD, ATTN_JVP, ATTN_DOUBLE_BACKWARD};
    static const attn_dtype types[] = {ATTN_F32, ATTN_F64};
    static const double far_below[] = {-1e30, -300, -90};
    static numbers x;
    int ran = 0;
    (void)state;
    for (int n = 0; n < 4 * 3 * 3 * 2; n++) {
        const sizes *s = &all_sizes[n % 4];
        const attn_op op = ops[n / 4 % 3];
        const attn_dtype dtype = types[n / 36];
        fill(x.q, NUMBERS, dtype, -0.5, 0.125), fill(x.k, NUMBERS, dtype, 0.25, 0.25), fill(x.ones, NUMBERS, dtype, 1, 0);
        fill(x.o, NUMBERS, dtype, 1, 0), fill(x.lse, HEADS * CAPACITY, dtype, far_below[n / 12 % 3], 0);
        fill(x.bias, CAPACITY * CAPACITY, dtype, -1, 0.25);
        for (int isa = ATTN_ISA_SCALAR; isa <= ATTN_ISA_WASM128; isa++) {
            if (!run(&x, op, s, dtype, (attn_isa)isa)) continue;
            check(&x, op, s, dtype, (attn_isa)isa);
            ran++;
        }
    }
    assert_true(ran > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_at_most_one)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
