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

static void execute(const attn_linear_problem *problem, const attn_linear_tensors *tensors, int threads)
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
    execute(&c->problem, &c->args, threads);
    for (int t = 0; t < c->tensors; t++)
        if (c->plan[t].role == ATTN_ROLE_OUTPUT) memcpy(c->kept[t], c->data[t], c->bytes[t]);
}

/* Sequence b in the memory of the batch. */
static attn_linear_tensors alone(const ragged_case *c, int64_t b, const int64_t starts[2], int packed)
{
    attn_linear_tensors tensors = c->args;
    for (int t = 0; t < c->tensors; t++) {
        attn_output *slot = ragged_slot(c, &tensors, t);
        const int64_t *shape = c->plan[t].shape, size = (int64_t)attn_dtype_size(c->plan[t].dtype), row = shape[1] * shape[3];
        if (c->plan[t].role == ATTN_ROLE_NONE || strcmp(c->about[t].name, "feature_matrix") == 0) continue;
        if (!has_tokens(c, t)) {
            slot->data = c->data[t] + b * row * shape[2] * size;
            continue;
        }
        slot->data = c->data[t] + c->starts[b] * row * size;
        const int64_t stride[4] = {row, shape[3], row, 1};
        memcpy(slot->stride, stride, sizeof stride);
    }
    tensors.cu_seqlens = packed ? attn_in(starts) : (attn_input){NULL, ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}};
    return tensors;
}

void ragged_compare(ragged_case *c, int packed, const char *what)
{
    erase_outputs(c);
    for (int64_t b = 0; b < c->count; b++) {
        attn_linear_problem p = c->problem;
        const int64_t starts[2] = {0, c->starts[b + 1] - c->starts[b]};
        p.shape.batch = 1;
        p.shape.len_q = p.shape.len_kv = starts[1];
        const attn_linear_tensors tensors = alone(c, b, starts, packed);
        execute(&p, &tensors, 1);
    }
    for (int t = 0; t < c->tensors; t++)
        if (c->plan[t].role == ATTN_ROLE_OUTPUT && memcmp(c->data[t], c->kept[t], c->bytes[t]) != 0)
            fail_msg("%s: %s of a sequence depends on the batch", what, c->about[t].name);
}
