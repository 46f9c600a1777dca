/* SPDX-License-Identifier: MIT
 * test_linear_rejected.c - every rule of linear attention: a violation of it, with its status and exact message; and that nothing
 * is written then. */
#include "fails.h"
#include "named.h"

#include <math.h>
#include <stdlib.h>

#include "attn/linear.h"

enum { UNTOUCHED = 0xa5 };

typedef struct fixture {
    attn_linear_problem problem;
    attn_linear_tensors tensors;
    attn_options options;
    float q[2][2][3][4], k[2][1][3][4], v[2][1][3][5], o[2][2][3][5], state[2][1][4][5], sum[2][1][4], n[2][2][3], matrix[4][4],
        extra[2][1][4][5], pool[3][1][4][5], pool_sum[3][1][4];
    float decay[2][1][3][8], beta[2][1][3], grad[3][2 * 2 * 3 * 5];
    int64_t lengths[2], starts[3], slots[2], more_slots[2][2];
} fixture;

static void init(fixture *f)
{
    memset(f, 0, sizeof *f);
    memset(f->o, UNTOUCHED, sizeof f->o);
    f->lengths[0] = 3, f->lengths[1] = 2;
    f->starts[1] = 3, f->starts[2] = 5;
    f->problem.struct_size = sizeof f->problem;
    f->problem.shape = (attn_shape){2, 2, 1, 3, 3, 4, 5};
    f->problem.causal = 1;
    f->options.struct_size = sizeof f->options;
    f->tensors = (attn_linear_tensors){.struct_size = sizeof f->tensors,
                                       .q = attn_in(f->q),
                                       .k = attn_in(f->k),
                                       .v = attn_in(f->v),
                                       .o = attn_out(f->o),
                                       .final_state = attn_out(f->state),
                                       .final_sum = attn_out(f->sum)};
}

/* The same for backward. */
static void turn(fixture *f)
{
    static const attn_output none;
    f->problem.op = ATTN_BACKWARD;
    f->tensors.final_state = f->tensors.final_sum = none;
    f->tensors.denominators = attn_out(f->n);
    f->tensors.grad_o = attn_in(f->v);
    f->tensors.grad_q = attn_out(f->grad[0]);
    f->tensors.grad_k = attn_out(f->grad[1]);
    f->tensors.grad_v = attn_out(f->grad[2]);
}

static attn_status attempt(fixture *f, attn_error *error)
{
    attn_linear_plan *plan = (attn_linear_plan *)f;
    attn_status status = attn_linear_plan_create(&plan, &f->problem, &f->tensors, &f->options, error);
    if (status != ATTN_OK) {
        assert_null(plan);
        return status;
    }
    const size_t size = attn_linear_plan_workspace_size(plan);
    void *workspace = malloc(size + 1);
    status = attn_linear_execute(plan, &f->tensors, workspace, size, error);
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
    expect_named(&error, ATTN_FAMILY_LINEAR, line);
    for (size_t i = 0; status != ATTN_OK && i < sizeof f->o; i++) assert_int_equal(((unsigned char *)f->o)[i], UNTOUCHED);
}

#define REJECTED(change, status, message)                                                                                          \
    do {                                                                                                                           \
        fixture f;                                                                                                                 \
        init(&f);                                                                                                                  \
        change;                                                                                                                    \
        expect(&f, status, message, __LINE__);                                                                                     \
    } while (0)
#define ARGUMENT(change, message)    REJECTED(change, ATTN_ERR_ARGUMENT, message)
#define UNSUPPORTED(change, message) REJECTED(change, ATTN_ERR_UNSUPPORTED, message)

/* A plan whose workspace exceeds the limit is rejected. */
static void test_limit(void **state)
{
    static const char begins[] = "options.workspace_limit is 1 bytes; this problem needs ";
    fixture f;
    attn_error error;
    (void)state;
    init(&f);
    f.options.workspace_limit = 1;
    assert_int_equal(attempt(&f, &error), ATTN_ERR_MEMORY);
    assert_int_equal(strncmp(error.message, begins, sizeof begins - 1), 0);
    f.options.workspace_limit = (size_t)atoll(error.message + sizeof begins - 1);
    assert_int_equal(attempt(&f, &error), ATTN_OK);
    f.options.workspace_limit--;
    assert_int_equal(attempt(&f, &error), ATTN_ERR_MEMORY);
}

static void test_enums(void **state)
{
    (void)state;
    REJECTED((void)0, ATTN_OK, "");
    ARGUMENT(f.problem.op = ATTN_JVP, "op is 2; known: 0 (forward), 1 (backward)");
    ARGUMENT(f.problem.features = (attn_features)7,
             "features is 7; known: 0 (elu1), 1 (identity), 2 (relu), 3 (softmax), 4 (favor), 5 (fourier), 6 (trigonometric)");
    ARGUMENT(f.problem.scale_kind = (attn_scale_kind)2, "scale_kind is 2; known: 0 (default), 1 (value)");
    ARGUMENT(f.problem.denominator = (attn_denominator)3, "denominator is 3; known: 0 (clamp), 1 (add), 2 (none)");
    ARGUMENT(f.problem.rule = (attn_linear_rule)3, "rule is 3; known: 0 (add), 1 (delta), 2 (low rank)");
    ARGUMENT(f.problem.decay_kind = (attn_decay_kind)2, "decay_kind is 2; known: 0 (per head), 1 (per channel)");
    ARGUMENT(f.problem.decay_kind = ATTN_DECAY_CHANNEL, "decay_kind is 1 and decay is not set");
    ARGUMENT(f.problem.form = (attn_linear_form)4, "form is 4; known: 0 (auto), 1 (chunked), 2 (recurrent), 3 (quadratic)");
    ARGUMENT(f.problem.causal = 2, "causal is 2; it must be 0 or 1");
    ARGUMENT(f.problem.reserved[5] = 5, "reserved[5] is 5; it must be 0");
    ARGUMENT(f.problem.struct_size = 0, "attn_linear_problem.struct_size is 0; set it to sizeof(attn_linear_problem)");
    ARGUMENT(f.tensors.struct_size = 0, "attn_linear_tensors.struct_size is 0; set it to sizeof(attn_linear_tensors)");
    ARGUMENT(f.tensors.struct_size -= 8, "attn_linear_tensors.struct_size is 1448; set it to sizeof(attn_linear_tensors)");
    REJECTED(f.options.reproducible = 1, ATTN_ERR_UNSUPPORTED,
             "options.reproducible is set; the bits of linear attention depend on the instruction set");
    ARGUMENT(f.options.threads = -1, "options.threads is -1; it must be between 1 and 1024, or 0 for the default");
}

static void test_numbers(void **state)
{
    (void)state;
    ARGUMENT(f.problem.features = ATTN_FEATURES_FAVOR, "random_features is 0; this map needs at least 1");
    ARGUMENT(f.problem.random_features = 8, "random_features is 8; only the random maps have them");
    REJECTED((f.problem.features = ATTN_FEATURES_FAVOR, f.problem.random_features = INT64_MAX), ATTN_ERR_SHAPE,
             "random_features (9223372036854775807) is more than 2^48, the most of any size");
    ARGUMENT(f.problem.feature_scale = INFINITY, "feature_scale is inf; it must be finite");
    ARGUMENT(f.problem.feature_scale = 2, "feature_scale is 2; only the random maps have it");
    ARGUMENT(f.problem.scale = NAN, "scale is nan; it must be finite");
    ARGUMENT(f.problem.scale = 0.5, "scale is 0.5 but scale_kind is not ATTN_SCALE_VALUE");
    ARGUMENT(f.problem.epsilon = -1, "epsilon is -1; it must be at least 0 and finite (0 for the default, 1e-6)");
    ARGUMENT(f.problem.chunk = -3, "chunk is -3; it must be at least 1, or 0 for the default");
    REJECTED(f.problem.shape.dim_v = -1, ATTN_ERR_SHAPE, "dim_v (-1) is negative");
    REJECTED(f.problem.shape.heads_kv = 3, ATTN_ERR_SHAPE, "heads_q (2) is not a multiple of heads_kv (3)");
    /* Tensors whose bytes fit in 64 bits, and scores whose bytes do not, even of the 4 queries of the smallest tile. */
    REJECTED((f.problem.shape.len_q = f.problem.shape.len_kv = INT64_C(1) << 48,
              f.problem.shape.dim_qk = f.problem.shape.dim_v = 1 << 10, f.problem.shape.batch = 1,
              f.problem.form = ATTN_LINEAR_FORM_QUADRATIC),
             ATTN_ERR_SHAPE, "the sizes are too large: a workspace or task count overflows 64 bits");
}

static void test_fit(void **state)
{
    (void)state;
    REJECTED(f.problem.shape.len_q = 2, ATTN_ERR_SHAPE, "causal needs len_q (2) equal to len_kv (3)");
    UNSUPPORTED((f.problem.causal = 0, f.problem.rule = ATTN_LINEAR_RULE_DELTA), "the delta rule is causal; set causal");
    UNSUPPORTED((f.problem.causal = 0, f.tensors.decay = attn_in(f.decay)), "a decay is causal; set causal");
    UNSUPPORTED((f.problem.causal = 0, f.problem.form = ATTN_LINEAR_FORM_RECURRENT), "the recurrent form is causal; set causal");
    UNSUPPORTED(f.problem.rule = ATTN_LINEAR_RULE_DELTA, "the delta rule has no denominator; set denominator to none");
    UNSUPPORTED(f.problem.rule = ATTN_LINEAR_RULE_LOW_RANK, "the low-rank rule has no denominator; set denominator to none");
    UNSUPPORTED((f.problem.rule = ATTN_LINEAR_RULE_LOW_RANK, f.problem.denominator = ATTN_DENOMINATOR_NONE,
                 f.problem.form = ATTN_LINEAR_FORM_CHUNKED),
                "the low-rank rule has the recurrent form only");
}

static void test_tensors(void **state)
{
    static const attn_input none;
    static const attn_output nothing;
    const attn_call call = {.struct_size = sizeof call};
    (void)state;
    UNSUPPORTED(f.tensors.k.dtype = ATTN_F64, "k.dtype is f64; it must be f32, f16 or bf16, as q is not f64");
    UNSUPPORTED(f.tensors.final_state.dtype = ATTN_F64, "final_state.dtype is f64; it must be f32, f16 or bf16, as q is not f64");
    UNSUPPORTED(f.tensors.final_sum.dtype = ATTN_BF16, "final_sum.dtype is bf16; it must be f32, the compute type");
    REJECTED((f.tensors.v.stride[2] = 10, f.tensors.v.stride[3] = 2), ATTN_ERR_STRIDE,
             "v.stride[3] is 2; the last axis must be contiguous (1)");
    ARGUMENT(f.tensors.k = none, "k is missing; ATTN_FORWARD needs it");
    ARGUMENT(f.tensors.k = attn_in(NULL), "k is NULL");
    ARGUMENT((f.tensors.k = none, f.tensors.k.dtype = ATTN_F32),
             "k is NULL and has a type or strides; a slot that is not set must be all 0");
    ARGUMENT(f.tensors.k = attn_in(ATTN_LATER), "k is ATTN_LATER; an execution needs its pointer");
    ARGUMENT(f.tensors.k = attn_in(ATTN_EMPTY), "k is ATTN_EMPTY and has elements");
    ARGUMENT(f.tensors.call = &call, "call is set; it must be NULL");
    ARGUMENT(f.tensors.final_sum = nothing, "final_sum is missing; it is needed with its state, if there is a denominator");
    ARGUMENT(f.problem.denominator = ATTN_DENOMINATOR_NONE,
             "final_sum is set; it is used only with its state, if there is a denominator");
    ARGUMENT((f.problem.features = ATTN_FEATURES_FAVOR, f.problem.random_features = 4),
             "feature_matrix is missing; it is needed with the random maps");
    ARGUMENT(f.tensors.feature_matrix = attn_in(f.matrix), "feature_matrix is set; it is used only with the random maps");
    ARGUMENT(f.tensors.beta = attn_in(f.beta), "beta is set; it is used only with the delta rule");
    ARGUMENT(f.tensors.erase = attn_in(f.decay), "erase is set; it is used only with the low-rank rule");
    ARGUMENT(
        (f.problem.rule = ATTN_LINEAR_RULE_DELTA, f.problem.denominator = ATTN_DENOMINATOR_NONE, f.tensors.final_sum = nothing),
        "beta is missing; it is needed with the delta rule");
    ARGUMENT(f.tensors.grad_o = attn_in(f.v), "grad_o is set; ATTN_FORWARD does not use it");
    REJECTED(f.tensors.o = attn_out(f.q), ATTN_ERR_STRIDE, "o and q share elements; an output must not overlap another tensor");
    REJECTED((f.tensors.initial_state = attn_in(f.extra), f.tensors.initial_sum = attn_in(f.sum)), ATTN_OK, "");
    ARGUMENT((f.tensors.initial_state = attn_in(f.state), f.tensors.initial_sum = attn_in(f.n)),
             "final_state is initial_state, so final_sum must be initial_sum");
    REJECTED((f.tensors.initial_state = attn_in(f.state[0][0][1]), f.tensors.initial_sum = attn_in(f.n)), ATTN_ERR_STRIDE,
             "final_state and initial_state share elements; an output must not overlap another tensor");
    REJECTED((f.tensors.initial_state = attn_in(f.state), f.tensors.initial_sum = attn_in(f.sum)), ATTN_OK, "");
    ARGUMENT((f.tensors.lengths = attn_in(f.lengths), f.lengths[1] = 4), "lengths[1] is 4; it must be between 0 and 3");
    ARGUMENT((f.tensors.lengths = attn_in(f.lengths), f.lengths[0] = INT64_C(1) << 32),
             "lengths[0] is 4294967296; it must be between 0 and 3; the array was read as i64 (set its dtype if it is i32)");
    UNSUPPORTED((f.tensors.lengths = attn_in(f.lengths), f.tensors.lengths.dtype = ATTN_F32),
                "lengths.dtype is f32; it must be i32 or i64");
    REJECTED(f.tensors.cu_seqlens = attn_in(f.starts), ATTN_OK, "");
    ARGUMENT((f.tensors.cu_seqlens = attn_in(f.starts), f.tensors.lengths = attn_in(f.lengths)),
             "cu_seqlens and lengths are set; set only one of them");
    REJECTED((f.tensors.cu_seqlens = attn_in(f.starts), f.problem.causal = 0, f.problem.shape.len_q = 2), ATTN_ERR_SHAPE,
             "cu_seqlens needs len_q (2) equal to len_kv (3)");
    ARGUMENT((f.tensors.cu_seqlens = attn_in(f.starts), f.starts[0] = 1), "cu_seqlens[0] (1) is not 0");
    ARGUMENT((f.tensors.cu_seqlens = attn_in(f.starts), f.starts[2] = 2),
             "cu_seqlens[2] (2) minus cu_seqlens[1] (3) is not between 0 and len_kv (3)");
    ARGUMENT((f.tensors.cu_seqlens = attn_in(f.starts), f.starts[1] = 4),
             "cu_seqlens[1] (4) minus cu_seqlens[0] (0) is not between 0 and len_kv (3)");
    UNSUPPORTED((f.tensors.cu_seqlens = attn_in(f.starts), f.tensors.cu_seqlens.dtype = ATTN_F32),
                "cu_seqlens.dtype is f32; it must be i32 or i64");
    REJECTED(turn(&f), ATTN_OK, "");
    ARGUMENT((turn(&f), f.tensors.denominators = nothing), "denominators is missing; it is needed with a denominator");
    ARGUMENT((turn(&f), f.tensors.o = nothing), "o is missing; it is needed with a denominator");
    ARGUMENT((turn(&f), f.problem.denominator = ATTN_DENOMINATOR_NONE, f.tensors.denominators = nothing),
             "o is set; it is used only with a denominator");
    ARGUMENT((turn(&f), f.tensors.decay = attn_in(f.decay)), "grad_decay is missing; it is needed with decay");
    ARGUMENT((turn(&f), f.tensors.final_state = attn_out(f.state)), "final_state is set; ATTN_BACKWARD does not use it");
    ARGUMENT((turn(&f), f.tensors.grad_initial_state = attn_out(f.state)), "grad_initial_state is set and initial_state is not");
}

/* States in a pool of three rows, in place: sequences begin with rows 0 and 1, and write 0 and 1, and as snapshots 1 and 2. */
static void give_slots(fixture *f, int64_t snapshots)
{
    f->problem.pool = 3;
    f->problem.snapshots = snapshots;
    f->tensors.initial_state = attn_in(f->pool);
    f->tensors.final_state = attn_out(f->pool);
    f->tensors.initial_sum = attn_in(f->pool_sum);
    f->tensors.final_sum = attn_out(f->pool_sum);
    f->tensors.initial_slots = attn_in(f->slots);
    f->tensors.final_slots = snapshots > 1 ? attn_in(f->more_slots) : attn_in(f->slots);
    f->slots[0] = 0, f->slots[1] = 1;
    f->more_slots[0][0] = 0, f->more_slots[0][1] = 2;
    f->more_slots[1][0] = 1, f->more_slots[1][1] = -1;
}

static void test_slots(void **state)
{
    static const attn_input none;
    (void)state;
    REJECTED(give_slots(&f, 0), ATTN_OK, "");
    REJECTED(give_slots(&f, 2), ATTN_OK, "");
    ARGUMENT((give_slots(&f, 0), f.slots[1] = 3), "initial_slots[1] is 3; it must be -1 or below pool (3)");
    ARGUMENT((give_slots(&f, 2), f.more_slots[1][0] = -2), "final_slots[1][0] is -2; it must be -1 or below pool (3)");
    /* A pool without rows, such as one that an engine has yet to fill: no sequence has a row. */
    REJECTED((give_slots(&f, 0), f.problem.pool = 0, f.slots[0] = f.slots[1] = -1), ATTN_OK, "");
    ARGUMENT((give_slots(&f, 0), f.problem.pool = 0, f.slots[0] = -1), "initial_slots[1] is 1; it must be -1 or below pool (0)");
    ARGUMENT((give_slots(&f, 0), f.slots[1] = 0), "final_slots[1] is 0, as is final_slots[0]");
    ARGUMENT((give_slots(&f, 2), f.more_slots[0][1] = 0), "final_slots[0][1] is 0, as is final_slots[0][0]");
    ARGUMENT((give_slots(&f, 2), f.more_slots[0][1] = 1, f.more_slots[1][0] = 2),
             "initial_slots[1] is 1, as is final_slots[0][1] of another sequence");
    /* Only the sums are in place. */
    ARGUMENT((give_slots(&f, 2), f.tensors.final_state = attn_out(f.grad), f.more_slots[0][1] = 1, f.more_slots[1][0] = 2),
             "initial_slots[1] is 1, as is final_slots[0][1] of another sequence");
    ARGUMENT((give_slots(&f, 0), f.tensors.initial_state.dtype = ATTN_BF16, f.tensors.final_state.dtype = ATTN_F16),
             "final_state is initial_state, and their types are f16 and bf16");
    ARGUMENT((give_slots(&f, 0), f.tensors.initial_state = f.tensors.initial_sum = none),
             "initial_slots is set; it is used only with initial_state");
    ARGUMENT(f.tensors.initial_slots = attn_in(f.slots), "initial_slots is set; it is used only with initial_state");
    ARGUMENT(f.problem.pool = 3, "pool is 3; only initial_slots and final_slots use it");
    REJECTED(f.problem.pool = -1, ATTN_ERR_SHAPE, "pool is -1; it must be between 0 and 2^48");
    REJECTED(f.problem.snapshots = -1, ATTN_ERR_SHAPE, "snapshots is -1; it must be between 0 and 2^48");
    ARGUMENT(f.problem.snapshots = 2, "final_slots is missing; snapshots (2) needs it");
    UNSUPPORTED((give_slots(&f, 2), f.problem.causal = 0), "snapshots are causal; set causal");
    UNSUPPORTED((give_slots(&f, 2), f.problem.form = ATTN_LINEAR_FORM_CHUNKED), "snapshots (2) have the recurrent form only");
    UNSUPPORTED((give_slots(&f, 2), f.tensors.final_slots.dtype = ATTN_F32), "final_slots.dtype is f32; it must be i32 or i64");
    ARGUMENT((turn(&f), f.tensors.final_slots = attn_in(f.slots)), "final_slots is set; ATTN_BACKWARD does not use it");
}

/* Execution must have the planned tensors, of the planned types and strides. */
static void test_planned(void **state)
{
    attn_linear_plan *plan;
    attn_tensor_plan told = {.struct_size = sizeof told};
    fixture f;
    (void)state;
    init(&f);
    assert_int_equal(attn_linear_plan_create(&plan, &f.problem, &f.tensors, NULL, NULL), ATTN_OK);
    const size_t need = attn_linear_plan_workspace_size(plan);
    void *workspace = malloc(need + 1);
#define DIFFERS(change, number, code, text)                                                                                        \
    do {                                                                                                                           \
        init(&f);                                                                                                                  \
        change;                                                                                                                    \
        attn_error error;                                                                                                          \
        assert_int_equal(attn_linear_execute(plan, &f.tensors, workspace, need, &error), code);                                    \
        assert_string_equal(error.message, text);                                                                                  \
        assert_int_equal(error.tensor, number);                                                                                    \
    } while (0)
    DIFFERS(f.tensors.denominators = attn_out(f.n), 4, ATTN_ERR_ARGUMENT, "denominators is set; the plan was made without it");
    DIFFERS(memset(&f.tensors.final_sum, 0, sizeof f.tensors.final_sum), 14, ATTN_ERR_ARGUMENT,
            "final_sum is missing; the plan was made with it");
    DIFFERS(f.tensors.v.dtype = ATTN_F16, 2, ATTN_ERR_ARGUMENT, "v.dtype is f16; the plan was made with f32");
    DIFFERS((f.tensors.k.stride[2] = 8, f.tensors.k.stride[3] = 1), 1, ATTN_ERR_STRIDE,
            "k.stride[0] is 0; the plan was made with 12");
    DIFFERS((f.tensors.k.stride[0] = 12, f.tensors.k.stride[2] = 4, f.tensors.k.stride[3] = 1), -1, ATTN_OK, "");
    DIFFERS(f.tensors.q.data = workspace, 0, ATTN_ERR_ARGUMENT,
            "q and the workspace overlap, or its strides make it impossible to tell");
    DIFFERS(f.tensors.o.data = workspace, 3, ATTN_ERR_ARGUMENT,
            "o and the workspace overlap, or its strides make it impossible to tell");
    assert_int_equal(attn_linear_plan_tensor(plan, 13, &told, NULL), ATTN_OK);
    assert_true(told.role == ATTN_ROLE_OUTPUT && told.dtype == ATTN_F32 && told.shape[2] == 4 && told.bytes == sizeof f.state);
    FAILS(attn_linear_plan_tensor(plan, 30, &told, &error), ATTN_ERR_ARGUMENT,
          "tensor 30 does not exist; attn_linear_tensors has 30");
    free(workspace);
    attn_linear_plan_destroy(plan);
}

static void test_calls(void **state)
{
    attn_linear_plan_description d = {.struct_size = sizeof d};
    attn_linear_plan *plan;
    fixture f;
    char few[8];
    float omega;
    (void)state;
    init(&f);
    FAILS(attn_linear_plan_create(NULL, &f.problem, &f.tensors, NULL, &error), ATTN_ERR_ARGUMENT, "plan is NULL");
    FAILS(attn_linear_plan_create(&plan, NULL, &f.tensors, NULL, &error), ATTN_ERR_ARGUMENT, "problem is NULL");
    assert_int_equal(attn_linear_plan_create(&plan, &f.problem, &f.tensors, NULL, NULL), ATTN_OK);
    const size_t need = attn_linear_plan_workspace_size(plan);
    char text[80];
    assert_int_equal(attn_linear_plan_workspace_size(NULL), 0);
    FAILS(attn_linear_execute(NULL, &f.tensors, few, 8, &error), ATTN_ERR_ARGUMENT, "plan is NULL");
    FAILS(attn_linear_compute(&f.problem, NULL, &error), ATTN_ERR_ARGUMENT, "tensors is NULL");
    FAILS(attn_linear_execute(plan, NULL, few, 8, &error), ATTN_ERR_ARGUMENT, "tensors is NULL");
    (void)snprintf(text, sizeof text, "workspace is NULL; the plan needs %zu bytes", need);
    FAILS(attn_linear_execute(plan, &f.tensors, NULL, 0, &error), ATTN_ERR_ARGUMENT, text);
    (void)snprintf(text, sizeof text, "workspace has 8 bytes; the plan needs %zu", need);
    FAILS(attn_linear_execute(plan, &f.tensors, few, 8, &error), ATTN_ERR_MEMORY, text);
    assert_int_equal(attn_linear_plan_describe(NULL, &d, NULL), ATTN_ERR_ARGUMENT);
    FAILS(attn_linear_plan_describe(plan, NULL, &error), ATTN_ERR_ARGUMENT, "description is NULL");
    assert_int_equal(attn_linear_plan_describe(plan, &d, NULL), ATTN_OK);
    assert_int_equal(d.form, ATTN_LINEAR_FORM_CHUNKED);
    assert_int_equal(d.dim_features, 4);
    assert_true(d.flops > 0 && d.workspace_bytes == need && strncmp(d.kernel, "attn_linear_f32_", 16) == 0);
    d.struct_size = 0;
    FAILS(attn_linear_plan_describe(plan, &d, &error), ATTN_ERR_ARGUMENT,
          "attn_linear_plan_description.struct_size is 0; set it to sizeof(attn_linear_plan_description)");
    attn_linear_plan_destroy(plan);
    attn_linear_plan_destroy(NULL);
    const attn_output row = attn_out(&omega), half = {&omega, ATTN_F16, {0, 0, 0, 0}}, one = {&omega, ATTN_F32, {0, 0, 0, 1}};
    FAILS(attn_random_features((attn_random_rows)2, 1, 1, 0, 0, &row, &error), ATTN_ERR_ARGUMENT,
          "random features: rows is 2; known: 0 (orthogonal), 1 (normal)");
    FAILS(attn_random_features(ATTN_RANDOM_ROWS_NORMAL, -1, 1, 0, 0, &row, &error), ATTN_ERR_SHAPE,
          "random features: matrix cannot have -1 rows of 1 numbers");
    FAILS(attn_random_features(ATTN_RANDOM_ROWS_NORMAL, 1, 1, 0, 0, &half, &error), ATTN_ERR_UNSUPPORTED,
          "random features: matrix is f16; it must be f32 or f64");
    FAILS(attn_random_features(ATTN_RANDOM_ROWS_NORMAL, 2, 1, 0, 0, &one, &error), ATTN_ERR_STRIDE,
          "random features: matrix overlaps itself: stride[2] is 0 and the axes with smaller strides "
          "span 1 elements");
    FAILS(attn_random_features(ATTN_RANDOM_ROWS_NORMAL, 1, 1, 0, 0, NULL, &error), ATTN_ERR_ARGUMENT,
          "random features: matrix is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_limit),   cmocka_unit_test(test_enums), cmocka_unit_test(test_numbers),
                                       cmocka_unit_test(test_fit),     cmocka_unit_test(test_slots), cmocka_unit_test(test_tensors),
                                       cmocka_unit_test(test_planned), cmocka_unit_test(test_calls)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
