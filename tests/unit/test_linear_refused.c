/* SPDX-License-Identifier: MIT
 * test_linear_refused.c - every rule of linear attention: what breaks it, the status, the exact message; and that nothing was
 * written then. */
#include "test.h"

#include <math.h>

#include "attn/linear.h"

enum { UNTOUCHED = 0xa5 };

typedef struct fixture {
    attn_linear_problem problem;
    attn_linear_args args;
    attn_options options;
    float q[2][2][3][4], k[2][1][3][4], v[2][1][3][5], o[2][2][3][5], state[2][1][8][5], sum[2][1][8], n[2][2][3], omega[4][4];
    float decay[2][1][3][8], beta[2][1][3], grad[3][2 * 2 * 3 * 5];
    int64_t lengths[2];
} fixture;

static void init(fixture *f)
{
    memset(f, 0, sizeof *f);
    memset(f->o, UNTOUCHED, sizeof f->o);
    f->lengths[0] = 3, f->lengths[1] = 2;
    f->problem.struct_size = sizeof f->problem;
    f->problem.shape = (attn_shape){2, 2, 1, 3, 3, 4, 5};
    f->problem.causal = f->problem.final_state = 1;
    f->options.struct_size = sizeof f->options;
    f->args = (attn_linear_args){.struct_size = sizeof f->args,
                                 .q = f->q,
                                 .k = f->k,
                                 .v = f->v,
                                 .o = f->o,
                                 .final_state = f->state,
                                 .final_sum = f->sum,
                                 .denominators = f->n,
                                 .omega = f->omega,
                                 .decay = f->decay,
                                 .beta = f->beta,
                                 .lengths = f->lengths,
                                 .grad_o = f->v,
                                 .grad_q = f->grad[0],
                                 .grad_k = f->grad[1],
                                 .grad_v = f->grad[2]};
}

static attn_status attempt(fixture *f, attn_error *error)
{
    attn_linear_plan *plan = (attn_linear_plan *)f;
    attn_status status = attn_linear_plan_create(&plan, &f->problem, &f->options, error);
    if (status != ATTN_OK) {
        assert_null(plan);
        return status;
    }
    const size_t size = attn_linear_workspace_size(plan);
    void *workspace = malloc(size + 1);
    status = attn_linear_execute(plan, &f->args, workspace, size, error);
    free(workspace);
    attn_linear_plan_destroy(plan);
    return status;
}

static void expect(fixture *f, attn_status status, const char *message, int line)
{
    attn_error error;
    const attn_status got = attempt(f, &error);
    if (got != status || strcmp(error.message, message) != 0)
        fail_msg("line %d:\n  expected status %d: %s\n  got status %d: %s", line, (int)status, message, (int)got, error.message);
    for (size_t i = 0; status != ATTN_OK && i < sizeof f->o; i++) assert_int_equal(((unsigned char *)f->o)[i], UNTOUCHED);
}

#define REFUSED(change, status, message)                                                                                           \
    do {                                                                                                                           \
        fixture f;                                                                                                                 \
        init(&f);                                                                                                                  \
        change;                                                                                                                    \
        expect(&f, status, message, __LINE__);                                                                                     \
    } while (0)
#define ARGUMENT(change, message)    REFUSED(change, ATTN_ERR_ARGUMENT, message)
#define UNSUPPORTED(change, message) REFUSED(change, ATTN_ERR_UNSUPPORTED, message)

static void test_enums(void **state)
{
    (void)state;
    REFUSED((void)0, ATTN_OK, "");
    ARGUMENT(f.problem.op = ATTN_JVP, "op is 2; known: 0 (forward), 1 (backward)");
    ARGUMENT(f.problem.features = (attn_features)7,
             "features is 7; known: 0 (elu1), 1 (identity), 2 (relu), 3 (softmax), 4 (favor), 5 (fourier), 6 (trigonometric)");
    ARGUMENT(f.problem.scale_kind = ATTN_SCALE_PER_HEAD, "scale_kind is 2; known: 0 (default), 1 (value)");
    ARGUMENT(f.problem.denominator = (attn_denominator)3, "denominator is 3; known: 0 (clamp), 1 (add), 2 (none)");
    ARGUMENT(f.problem.rule = (attn_linear_rule)3, "rule is 3; known: 0 (add), 1 (delta), 2 (low rank)");
    ARGUMENT(f.problem.decay = (attn_linear_decay)3, "decay is 3; known: 0 (none), 1 (per head), 2 (per channel)");
    ARGUMENT(f.problem.form = (attn_linear_form)4, "form is 4; known: 0 (auto), 1 (chunked), 2 (recurrent), 3 (quadratic)");
    ARGUMENT(f.problem.index_dtype = ATTN_F32, "index_dtype is f32; lengths are i32 or i64");
    ARGUMENT(f.problem.causal = 2, "causal is 2; it is 0 or 1");
    ARGUMENT(f.problem.grad_initial_state = -1, "grad_initial_state is -1; it is 0 or 1");
    ARGUMENT(f.problem.reserved[7] = 5, "reserved[7] is 5; it must be 0");
    ARGUMENT(f.problem.struct_size = 0, "attn_linear_problem.struct_size is 0; set it to sizeof(attn_linear_problem)");
    ARGUMENT(f.args.struct_size = 0, "attn_linear_args.struct_size is 0; set it to sizeof(attn_linear_args)");
    ARGUMENT(f.options.threads = -1, "options.threads is -1; it is at least 1, or 0 for the default");
}

static void test_numbers(void **state)
{
    (void)state;
    ARGUMENT(f.problem.features = ATTN_FEATURES_FAVOR, "random_features is 0; this map needs at least 1");
    ARGUMENT(f.problem.random_features = 8, "random_features is 8; only the random maps have them");
    REFUSED((f.problem.features = ATTN_FEATURES_FAVOR, f.problem.random_features = INT64_MAX), ATTN_ERR_SHAPE,
            "random_features (9223372036854775807) is too large");
    ARGUMENT(f.problem.feature_scale = INFINITY, "feature_scale is inf; it must be finite");
    ARGUMENT(f.problem.feature_scale = 2, "feature_scale is 2; only the random maps have it");
    ARGUMENT(f.problem.scale = NAN, "scale is nan; it must be finite");
    ARGUMENT(f.problem.scale = 0.5, "scale is 0.5 but scale_kind is not ATTN_SCALE_VALUE");
    ARGUMENT(f.problem.epsilon = -1, "epsilon is -1; it must be at least 0 and finite (0 for the default, 1e-6)");
    ARGUMENT(f.problem.chunk = -3, "chunk is -3; it is at least 1, or 0 for the default");
    REFUSED(f.problem.shape.dim_v = -1, ATTN_ERR_SHAPE, "dim_v (-1) is negative");
    REFUSED(f.problem.shape.heads_kv = 3, ATTN_ERR_SHAPE, "heads_q (2) is not a multiple of heads_kv (3)");
    REFUSED((f.problem.shape.len_q = f.problem.shape.len_kv = INT64_MAX / 256, f.problem.shape.batch = 1,
             f.problem.form = ATTN_LINEAR_QUADRATIC),
            ATTN_ERR_SHAPE, "the sizes are too large: a workspace or task count overflows 64 bits");
}

static void test_fit(void **state)
{
    (void)state;
    REFUSED(f.problem.shape.len_q = 2, ATTN_ERR_SHAPE, "causal needs len_q (2) equal to len_kv (3)");
    UNSUPPORTED((f.problem.causal = 0, f.problem.rule = ATTN_RULE_DELTA), "the delta rule is causal; set causal");
    UNSUPPORTED((f.problem.causal = 0, f.problem.decay = ATTN_DECAY_HEAD), "a decay is causal; set causal");
    UNSUPPORTED((f.problem.causal = 0, f.problem.form = ATTN_LINEAR_RECURRENT), "the recurrent form is causal; set causal");
    UNSUPPORTED(f.problem.rule = ATTN_RULE_DELTA, "the delta rule has no denominator; set denominator to ATTN_DENOMINATOR_NONE");
    UNSUPPORTED(f.problem.rule = ATTN_RULE_LOW_RANK,
                "the low-rank rule has no denominator; set denominator to ATTN_DENOMINATOR_NONE");
    UNSUPPORTED(
        (f.problem.rule = ATTN_RULE_LOW_RANK, f.problem.denominator = ATTN_DENOMINATOR_NONE, f.problem.form = ATTN_LINEAR_CHUNKED),
        "the low-rank rule has the recurrent form only");
    ARGUMENT((f.problem.want_denominator = 1, f.problem.denominator = ATTN_DENOMINATOR_NONE),
             "want_denominator is set but there is no denominator");
    ARGUMENT(f.problem.grad_final_state = 1, "grad_final_state is set but op is not ATTN_BACKWARD");
    ARGUMENT(f.problem.op = ATTN_BACKWARD, "final_state is set but op is ATTN_BACKWARD; it is written by forward");
    ARGUMENT((f.problem.op = ATTN_BACKWARD, f.problem.final_state = 0, f.problem.grad_initial_state = 1),
             "grad_initial_state is set but initial_state is not");
}

static void test_tensors(void **state)
{
    (void)state;
    UNSUPPORTED(f.problem.k.dtype = ATTN_F64, "k.dtype is f64; it must be f32, f16 or bf16, as q is not f64");
    UNSUPPORTED(f.problem.state.dtype = ATTN_BF16, "final_state.dtype is bf16; it must be f32, the compute type");
    REFUSED((f.problem.v.stride[2] = 10, f.problem.v.stride[3] = 2), ATTN_ERR_STRIDE,
            "v.stride[3] is 2; the last axis must be contiguous (1)");
    ARGUMENT(f.args.k = NULL, "args.k is NULL");
    ARGUMENT(f.args.final_sum = NULL, "args.final_sum is NULL");
    ARGUMENT((f.problem.features = ATTN_FEATURES_FAVOR, f.problem.random_features = 4, f.args.omega = NULL), "args.omega is NULL");
    ARGUMENT(f.args.o = f.q, "args.o and args.q are the same pointer; outputs overlap nothing");
    ARGUMENT((f.problem.initial_state = 1, f.args.initial_state = f.state, f.args.initial_sum = f.n),
             "args.final_state is args.initial_state, so args.final_sum must be args.initial_sum");
    REFUSED((f.problem.initial_state = 1, f.args.initial_state = f.state, f.args.initial_sum = f.sum), ATTN_OK, "");
    ARGUMENT((f.problem.lengths = 1, f.lengths[1] = 4), "lengths[1] is 4; it must be within 0 and 3");
    ARGUMENT((f.problem.op = ATTN_BACKWARD, f.problem.final_state = 0, f.args.denominators = NULL), "args.denominators is NULL");
}

static void test_calls(void **state)
{
    attn_linear_description d = {.struct_size = sizeof d};
    attn_linear_plan *plan;
    attn_error error;
    fixture f;
    char few[8];
    float omega;
    (void)state;
    init(&f);
    assert_int_equal(attn_linear_plan_create(NULL, &f.problem, NULL, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "plan is NULL");
    assert_int_equal(attn_linear_plan_create(&plan, NULL, NULL, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "problem is NULL");
    assert_int_equal(attn_linear_plan_create(&plan, &f.problem, NULL, &error), ATTN_OK);
    const size_t need = attn_linear_workspace_size(plan);
    char text[80];
    assert_int_equal(attn_linear_execute(plan, NULL, few, 8, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "args is NULL");
    assert_int_equal(attn_linear_execute(plan, &f.args, NULL, 0, &error), ATTN_ERR_ARGUMENT);
    (void)snprintf(text, sizeof text, "workspace is NULL; the plan needs %zu bytes", need);
    assert_string_equal(error.message, text);
    assert_int_equal(attn_linear_execute(plan, &f.args, few, 8, &error), ATTN_ERR_MEMORY);
    (void)snprintf(text, sizeof text, "workspace has 8 bytes; the plan needs %zu", need);
    assert_string_equal(error.message, text);
    assert_int_equal(attn_linear_plan_describe(NULL, &d, &error), ATTN_ERR_ARGUMENT);
    assert_int_equal(attn_linear_plan_describe(plan, NULL, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "description is NULL");
    assert_int_equal(attn_linear_plan_describe(plan, &d, &error), ATTN_OK);
    assert_int_equal(d.form, ATTN_LINEAR_CHUNKED);
    assert_int_equal(d.dim_features, 4);
    assert_true(d.flops > 0 && d.workspace_bytes == need && strncmp(d.kernel, "attn_linear_f32_", 16) == 0);
    d.struct_size = 0;
    assert_int_equal(attn_linear_plan_describe(plan, &d, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "attn_linear_description.struct_size is 0; set it to sizeof(attn_linear_description)");
    attn_linear_plan_destroy(plan);
    attn_linear_plan_destroy(NULL);
    assert_int_equal(attn_random_features((attn_random_rows)2, 1, 1, 0, 0, &omega, ATTN_F32, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "rows is 2; known: 0 (orthogonal), 1 (normal)");
    assert_int_equal(attn_random_features(ATTN_ROWS_NORMAL, -1, 1, 0, 0, &omega, ATTN_F32, &error), ATTN_ERR_SHAPE);
    assert_string_equal(error.message, "omega cannot have -1 rows of 1 numbers");
    assert_int_equal(attn_random_features(ATTN_ROWS_NORMAL, 1, 1, 0, 0, &omega, ATTN_F16, &error), ATTN_ERR_UNSUPPORTED);
    assert_string_equal(error.message, "omega is f16; it must be f32 or f64");
    assert_int_equal(attn_random_features(ATTN_ROWS_NORMAL, 1, 1, 0, 0, NULL, ATTN_F32, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "omega is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_enums), cmocka_unit_test(test_numbers), cmocka_unit_test(test_fit),
                                       cmocka_unit_test(test_tensors), cmocka_unit_test(test_calls)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
