/* SPDX-License-Identifier: MIT
 * ragged_case.c - see ragged_case.h. */
#include "ragged_case.h"

#include <stdlib.h>

#include "testing/random/random.h"

enum { UNTOUCHED = 0xa5 };

attn_output *ragged_slot(const ragged_case *c, attn_linear_tensors *tensors, int t)
{
    return (attn_output *)(void *)((char *)tensors + c->about[t].offset);
}

static int has_tokens(const ragged_case *c, int t)
{
    return c->about[t].axes[2] == ATTN_AXIS_QUERY || c->about[t].axes[2] == ATTN_AXIS_KEY;
}

static int is_present(const ragged_case *c, const char *name)
{
    const attn_linear_problem *p = &c->problem;
    const int sum = p->denominator != ATTN_DENOMINATOR_NONE, delta = p->rule == ATTN_LINEAR_RULE_DELTA,
              low = p->rule == ATTN_LINEAR_RULE_LOW_RANK, back = p->op == ATTN_BACKWARD;
    const struct {
        const char *name;
        int present;
    } optional[] = {{"o", sum || !back},
                    {"denominators", sum},
                    {"feature_matrix", p->random_features > 0},
                    {"decay", c->decays},
                    {"grad_decay", c->decays},
                    {"beta", delta},
                    {"grad_beta", delta},
                    {"erase", low},
                    {"write", low},
                    {"grad_erase", low},
                    {"grad_write", low},
                    {"lengths", 0},
                    {"initial_slots", c->slots > 0},
                    {"final_slots", c->slots > 0},
                    {"initial_state", c->states},
                    {"final_state", c->states},
                    {"grad_final_state", c->states},
                    {"grad_initial_state", c->states},
                    {"initial_sum", c->states && sum},
                    {"final_sum", c->states && sum},
                    {"grad_final_sum", c->states && sum},
                    {"grad_initial_sum", c->states && sum}};
    for (size_t i = 0; i < sizeof optional / sizeof *optional; i++)
        if (strcmp(optional[i].name, name) == 0) return optional[i].present;
    return 1;
}

int ragged_number(const ragged_case *c, const char *name)
{
    int t = 0;
    while (t < c->tensors && strcmp(c->about[t].name, name) != 0) t++;
    assert_true(t < c->tensors);
    return t;
}

size_t ragged_row_bytes(const ragged_case *c, int t)
{
    const int64_t *shape = c->plan[t].shape;
    return (size_t)(shape[1] * shape[2] * shape[3]) * attn_dtype_size(c->plan[t].dtype);
}

unsigned char *ragged_row(const ragged_case *c, int t, int64_t row) { return c->data[t] + row * (int64_t)ragged_row_bytes(c, t); }

int64_t ragged_slot_of(const ragged_case *c, const char *list, int64_t i)
{
    int32_t row;
    memcpy(&row, c->data[ragged_number(c, list)] + i * (int64_t)sizeof row, sizeof row);
    return row;
}

/* Rows from the end of the pool down, so that they are in another order than the sequences; every fourth list entry is -1.  In the
 * same rows, each sequence begins with one of those that it writes. */
static void fill_slots(const ragged_case *c, int t)
{
    const int64_t columns = c->plan[t].shape[3], snapshots = c->problem.snapshots > 1 ? c->problem.snapshots : 1;
    const int final = strcmp(c->about[t].name, "final_slots") == 0;
    for (int64_t i = 0; i < c->count * columns; i++) {
        int64_t at = i;
        if (!final && c->slots == 2) at = i * snapshots + i % snapshots;
        if (final && c->slots == 1) at = i + 1;
        const int32_t row = i % 4 == 2 ? -1 : (int32_t)(c->problem.pool - 1 - at);
        memcpy(c->data[t] + i * (int64_t)sizeof row, &row, sizeof row);
    }
}

/* Random numbers of any float type.  Sums and denominators are positive, logs of decays negative. */
static void fill(const ragged_case *c, int t, random_state *random)
{
    const char *name = c->about[t].name;
    const attn_dtype dtype = c->plan[t].dtype;
    const size_t size = attn_dtype_size(dtype);
    for (size_t i = 0; i < c->bytes[t] / size; i++) {
        double x = random_signed(random);
        if (strcmp(name, "decay") == 0) x = -0.3 * (1 + x);
        if (strcmp(name, "beta") == 0) x = 0.4 * (1 + x);
        if (strcmp(name, "erase") == 0 || strcmp(name, "write") == 0) x *= 0.1;
        if (strcmp(name, "initial_sum") == 0 || strcmp(name, "denominators") == 0) x += 2;
        (void)attn_convert(1, &x, ATTN_F64, c->data[t] + i * size, dtype, NULL);
    }
}

static attn_linear_plan *plan_of(const attn_linear_problem *problem, const attn_linear_tensors *tensors, int threads)
{
    const attn_options options = {.struct_size = sizeof options, .threads = threads};
    attn_linear_plan *plan;
    attn_error error;
    if (attn_linear_plan_create(&plan, problem, tensors, &options, &error)) fail_msg("%s", error.message);
    return plan;
}

void ragged_open(ragged_case *c, int64_t count, const int64_t *lengths, uint64_t seed)
{
    random_state random = random_from(seed);
    attn_linear_problem *p = &c->problem;
    p->struct_size = sizeof *p;
    p->shape.batch = c->count = count;
    p->shape.len_q = p->shape.len_kv = 0;
    for (int64_t b = 0; b < count; b++) {
        c->starts[b + 1] = c->starts[b] + lengths[b];
        if (lengths[b] > p->shape.len_kv) p->shape.len_q = p->shape.len_kv = lengths[b];
    }
    c->args.struct_size = sizeof c->args;
    for (int t = c->tensors = 0;; t++, c->tensors++) {
        c->about[t].struct_size = sizeof *c->about;
        if (attn_tensor_describe(ATTN_FAMILY_LINEAR, t, &c->about[t], NULL)) break;
        if (c->about[t].role[p->op] != ATTN_ROLE_NONE && is_present(c, c->about[t].name))
            ragged_slot(c, &c->args, t)->data = ATTN_LATER;
    }
    c->args.q.dtype = c->dtype;
    if (c->states) c->args.initial_state.dtype = c->args.final_state.dtype = c->stored;
    if (c->slots) {
        c->args.initial_slots.dtype = c->args.final_slots.dtype = ATTN_I32;
        p->pool = count * (p->snapshots > 1 ? p->snapshots : 1) + 2;
    }
    if (p->op == ATTN_BACKWARD) c->args.final_state.dtype = ATTN_DTYPE_DEFAULT;
    attn_linear_plan *plan = plan_of(p, &c->args, 1);
    for (int t = 0; t < c->tensors; t++) {
        c->plan[t].struct_size = sizeof *c->plan;
        assert_int_equal(attn_linear_plan_tensor(plan, t, &c->plan[t], NULL), ATTN_OK);
        if (c->plan[t].role == ATTN_ROLE_NONE) continue;
        const int64_t *shape = c->plan[t].shape, rows = has_tokens(c, t) ? c->starts[count] : shape[0] * shape[2];
        c->bytes[t] = (size_t)(rows * shape[1] * shape[3]) * attn_dtype_size(c->plan[t].dtype);
        c->data[t] = malloc(c->bytes[t] + 1);
        c->kept[t] = malloc(c->bytes[t] + 1);
        assert_true(c->data[t] && c->kept[t]);
        ragged_slot(c, &c->args, t)->data = c->data[t];
        if (strcmp(c->about[t].name, "cu_seqlens") == 0) memcpy(c->data[t], c->starts, c->bytes[t]);
        else if (strstr(c->about[t].name, "_slots")) fill_slots(c, t);
        else if (c->plan[t].role == ATTN_ROLE_INPUT) fill(c, t, &random);
    }
    attn_linear_plan_destroy(plan);
}

void ragged_close(ragged_case *c)
{
    for (int t = 0; t < c->tensors; t++) {
        free(c->data[t]);
        free(c->kept[t]);
    }
}

static void erase_outputs(const ragged_case *c)
{
    for (int t = 0; t < c->tensors; t++)
        if (c->plan[t].role == ATTN_ROLE_OUTPUT) memset(c->data[t], UNTOUCHED, c->bytes[t]);
}

void ragged_execute(const attn_linear_problem *problem, const attn_linear_tensors *tensors, int threads)
{
    attn_linear_plan *plan = plan_of(problem, tensors, threads);
    const size_t size = attn_linear_plan_workspace_size(plan);
    unsigned char *workspace = malloc(size + 1);
    attn_error error;
    assert_non_null(workspace);
    memset(workspace, 0xff, size + 1); /* NaN everywhere: nothing may be read before it is written */
    if (attn_linear_execute(plan, tensors, workspace, size, &error)) fail_msg("%s", error.message);
    assert_int_equal(workspace[size], 0xff);
    free(workspace);
    attn_linear_plan_destroy(plan);
}

void ragged_run(ragged_case *c, int threads)
{
    erase_outputs(c);
    ragged_execute(&c->problem, &c->args, threads);
    for (int t = 0; t < c->tensors; t++)
        if (c->plan[t].role == ATTN_ROLE_OUTPUT) memcpy(c->kept[t], c->data[t], c->bytes[t]);
}

/* One sequence, without its last `column` tokens. */
typedef struct one {
    int64_t b, column, starts[2];
    attn_linear_tensors tensors;
    void *own[RAGGED_TENSORS]; /* states in the compute type */
} one;

/* The row of a tensor of states: its own, or of a list; -1: none. */
static int64_t row_of(const ragged_case *c, int t, const one *x)
{
    const int64_t columns = c->problem.snapshots > 1 ? c->problem.snapshots : 1;
    if (!c->slots) return x->b;
    if (strncmp(c->about[t].name, "initial", 7) == 0) return ragged_slot_of(c, "initial_slots", x->b);
    return ragged_slot_of(c, "final_slots", x->b * columns + x->column);
}

/* A state of the compute type in memory of its own, if that of the batch is of another. */
static void set_state(const ragged_case *c, int t, one *x)
{
    attn_output *slot = ragged_slot(c, &x->tensors, t);
    const int64_t row = row_of(c, t, x), count = (int64_t)(ragged_row_bytes(c, t) / attn_dtype_size(c->plan[t].dtype));
    if (row < 0) {
        memset(slot, 0, sizeof *slot);
        return;
    }
    slot->data = ragged_row(c, t, row);
    if (c->plan[t].dtype != ATTN_BF16 && c->plan[t].dtype != ATTN_F16) return;
    x->own[t] = malloc((size_t)count * sizeof(float));
    assert_non_null(x->own[t]);
    if (c->plan[t].role == ATTN_ROLE_INPUT) (void)attn_convert(count, slot->data, c->plan[t].dtype, x->own[t], ATTN_F32, NULL);
    slot->data = x->own[t];
    slot->dtype = ATTN_F32;
}

static void round_states(const ragged_case *c, one *x)
{
    for (int t = 0; t < c->tensors; t++) {
        const int64_t count = (int64_t)(ragged_row_bytes(c, t) / (c->plan[t].dtype ? attn_dtype_size(c->plan[t].dtype) : 1));
        if (x->own[t] && c->plan[t].role == ATTN_ROLE_OUTPUT)
            (void)attn_convert(count, x->own[t], ATTN_F32, ragged_row(c, t, row_of(c, t, x)), c->plan[t].dtype, NULL);
        free(x->own[t]);
    }
}

static void run_one(const ragged_case *c, int64_t b, int64_t column, int packed)
{
    one x = {.b = b, .column = column, .starts = {0, c->starts[b + 1] - c->starts[b] - column}, .tensors = c->args};
    attn_linear_problem p = c->problem;
    for (int t = 0; t < c->tensors; t++) {
        attn_output *slot = ragged_slot(c, &x.tensors, t);
        const int64_t *shape = c->plan[t].shape, size = (int64_t)attn_dtype_size(c->plan[t].dtype), row = shape[1] * shape[3];
        if (c->plan[t].role == ATTN_ROLE_NONE || strcmp(c->about[t].name, "feature_matrix") == 0) continue;
        if (strstr(c->about[t].name, "_slots")) {
            memset(slot, 0, sizeof *slot);
        } else if (has_tokens(c, t)) {
            const int64_t stride[4] = {row, shape[3], row, 1};
            slot->data = c->data[t] + c->starts[b] * row * size;
            memcpy(slot->stride, stride, sizeof stride);
        } else {
            set_state(c, t, &x);
        }
    }
    x.tensors.cu_seqlens = packed ? attn_in(x.starts) : (attn_input){NULL, ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}};
    p.shape.batch = 1;
    p.shape.len_q = p.shape.len_kv = x.starts[1];
    if (p.snapshots > 1) p.form = ATTN_LINEAR_FORM_RECURRENT;
    p.pool = p.snapshots = 0;
    ragged_execute(&p, &x.tensors, 1);
    round_states(c, &x);
}

void ragged_compare(ragged_case *c, int packed, const char *what)
{
    erase_outputs(c);
    for (int64_t b = 0; b < c->count; b++) {
        const int64_t length = c->starts[b + 1] - c->starts[b], snapshots = c->problem.snapshots > 1 ? c->problem.snapshots : 1;
        for (int64_t column = snapshots - 1 < length ? snapshots - 1 : length; column >= 0; column--) run_one(c, b, column, packed);
    }
    for (int t = 0; t < c->tensors; t++)
        if (c->plan[t].role == ATTN_ROLE_OUTPUT && memcmp(c->data[t], c->kept[t], c->bytes[t]) != 0)
            fail_msg("%s: %s of a sequence depends on the batch", what, c->about[t].name);
}
