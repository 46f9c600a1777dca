/* SPDX-License-Identifier: MIT
 * attention.c - the operators of libattn: attention, its gradients, its tangents, and the gradients of its gradients.  All of them
 * take the same options behind tensors of their own. */
#include <stdio.h>
#include <string.h>

#include "shim.h"

/* The options: X(letter of boxed_call, type in the schema, name, default). */
#define OPTIONS(X)                                                                                                                 \
    X("i", "int", causal, "0")                                                                                                     \
    X("i", "int", align, "1")                                                                                                      \
    X("g", "float?", scale, "None")                                                                                                \
    X("t", "Tensor?", mask, "None")                                                                                                \
    X("t", "Tensor?", bias, "None")                                                                                                \
    X("i", "int", window_left, "-1")                                                                                               \
    X("i", "int", window_right, "-1")                                                                                              \
    X("t", "Tensor?", lengths_q, "None")                                                                                           \
    X("t", "Tensor?", lengths_kv, "None")                                                                                          \
    X("t", "Tensor?", cu_seqlens_q, "None")                                                                                        \
    X("t", "Tensor?", cu_seqlens_kv, "None")                                                                                       \
    X("i", "int", layout, "0")                                                                                                     \
    X("f", "float", softcap, "0.")                                                                                                 \
    X("t", "Tensor?", alibi_slopes, "None")                                                                                        \
    X("t", "Tensor?", sink, "None")                                                                                                \
    X("t", "Tensor?", scales, "None")                                                                                              \
    X("t", "Tensor?", seed, "None")                                                                                                \
    X("f", "float", dropout, "0.")                                                                                                 \
    X("t", "Tensor?", page_table, "None")                                                                                          \
    X("t", "Tensor?", offset_q, "None")                                                                                            \
    X("t", "Tensor?", ranges, "None")                                                                                              \
    X("t", "Tensor?", block_mask, "None")                                                                                          \
    X("i", "int", block_q, "0")                                                                                                    \
    X("i", "int", block_kv, "0")                                                                                                   \
    X("i", "int", chunk, "0")                                                                                                      \
    X("t", "Tensor?", bias_table, "None")                                                                                          \
    X("i", "int", table_kind, "0")                                                                                                 \
    X("i", "int", table_distance, "0")                                                                                             \
    X("i", "int", table_causal, "0")                                                                                               \
    X("i", "int", score, "0")                                                                                                      \
    X("t", "Tensor?", score_matrix, "None")                                                                                        \
    X("f", "float", temperature, "0.")                                                                                             \
    X("i", "int", normaliser, "0")                                                                                                 \
    X("f", "float", shift, "0.")                                                                                                   \
    X("t", "Tensor?", relative_keys, "None")                                                                                       \
    X("t", "Tensor?", relative_values, "None")                                                                                     \
    X("t", "Tensor?", relative_u, "None")                                                                                          \
    X("t", "Tensor?", relative_v, "None")                                                                                          \
    X("i", "int", relative_first, "0")                                                                                             \
    X("i", "int", dilation, "0")                                                                                                   \
    X("i", "int", global_q, "0")                                                                                                   \
    X("i", "int", global_kv, "0")                                                                                                  \
    X("i", "int", least_distance, "0")                                                                                             \
    X("i", "int", threads, "0")

enum option {
#define X(letter, type, name, value) OPTION_##name,
    OPTIONS(X)
#undef X
};

#define X(letter, type, name, value) letter
#define LETTERS                      OPTIONS(X)
static const char forward_kinds[] = "TTT" LETTERS "b", backward_kinds[] = "ttTTTTTi" LETTERS, jvp_kinds[] = "ttttTTTTT" LETTERS,
                  double_backward_kinds[] = "ttttttTTTTT" LETTERS;
#undef X

#define X(letter, type, name, value) ", " type " " #name "=" value
const char *const attention_schemas[] = {
    "attention(Tensor q, Tensor k, Tensor v" OPTIONS(X) ", bool weights=False) -> (Tensor o, Tensor lse, Tensor weights)",
    "attention_plain(Tensor q, Tensor k, Tensor v, int causal=0, int align=1, float? scale=None) -> Tensor",
    "attention_backward(Tensor? grad_o, Tensor? grad_lse, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, int wants" OPTIONS(
        X) ") -> (Tensor grad_q, Tensor grad_k, Tensor grad_v, Tensor grad_bias, Tensor grad_alibi_slopes, Tensor grad_sink, "
           "Tensor grad_scales, Tensor grad_bias_table, Tensor grad_score_matrix, Tensor grad_relative_keys, "
           "Tensor grad_relative_values, Tensor grad_relative_u, Tensor grad_relative_v)",
    "attention_jvp(Tensor? tan_q, Tensor? tan_k, Tensor? tan_v, Tensor? tan_bias, Tensor q, Tensor k, Tensor v, Tensor o, Tensor "
    "lse" OPTIONS(X) ") -> (Tensor tan_o, Tensor tan_lse)",
    "attention_double_backward(Tensor? grad_o, Tensor? grad_lse, Tensor? tan_q, Tensor? tan_k, Tensor? tan_v, Tensor? tan_bias, "
    "Tensor q, "
    "Tensor k, Tensor v, Tensor o, Tensor lse" OPTIONS(X) ") -> (Tensor second_grad_o, Tensor second_grad_lse, Tensor second_q, "
                                                          "Tensor second_k, Tensor second_v, Tensor second_bias)",
    NULL,
};
#undef X

/* The outputs requested of attention_backward, besides the gradients of q, k and v. */
enum {
    WANTS_BIAS = 1,
    WANTS_SLOPES = 2,
    WANTS_SINK = 4,
    WANTS_SCALES = 8,
    WANTS_TABLE = 16,
    WANTS_MATRIX = 32,
    WANTS_KEYS = 64,
    WANTS_VALUES = 128,
    WANTS_U = 256,
    WANTS_V = 512
};

static int numbers(call *c, const argument *o)
{
    attn_problem *p = &c->problem;
    if (o[OPTION_layout].integer < 0 || o[OPTION_layout].integer >= LAYOUTS)
        return call_fail(c, ATTN_ERR_ARGUMENT, "layout is %lld; it must be between 0 and 2", (long long)o[OPTION_layout].integer);
    c->layout = (layout)o[OPTION_layout].integer;
    c->ragged = c->layout == LAYOUT_THD && o[OPTION_cu_seqlens_q].given && !o[OPTION_cu_seqlens_kv].given;
    p->mask.causal = o[OPTION_causal].integer != 0;
    p->mask.align = (attn_align)o[OPTION_align].integer;
    if (o[OPTION_window_left].integer != -1 || o[OPTION_window_right].integer != -1) {
        p->mask.window = 1;
        p->mask.window_left = o[OPTION_window_left].integer;
        p->mask.window_right = o[OPTION_window_right].integer;
    }
    p->mask.chunk = o[OPTION_chunk].integer;
    p->mask.block_q = o[OPTION_block_q].integer;
    p->mask.block_kv = o[OPTION_block_kv].integer;
    p->mask.dilation = o[OPTION_dilation].integer;
    p->mask.global_q = o[OPTION_global_q].integer;
    p->mask.global_kv = o[OPTION_global_kv].integer;
    p->mask.least_distance = o[OPTION_least_distance].integer;
    p->score.kind = (attn_score_kind)o[OPTION_score].integer;
    p->score.normaliser = (attn_normaliser)o[OPTION_normaliser].integer;
    p->score.softcap = o[OPTION_softcap].real;
    p->score.temperature = o[OPTION_temperature].real;
    p->score.shift = o[OPTION_shift].real;
    p->relative.first = o[OPTION_relative_first].integer;
    p->dropout.probability = o[OPTION_dropout].real;
    if (o[OPTION_scale].given) {
        p->score.scale_kind = ATTN_SCALE_VALUE;
        p->score.scale = o[OPTION_scale].real;
    }
    if (o[OPTION_threads].integer) {
        if (o[OPTION_threads].integer < 1 || o[OPTION_threads].integer > 1024)
            return call_fail(c, ATTN_ERR_ARGUMENT, "threads is %lld; it must be between 1 and 1024",
                             (long long)o[OPTION_threads].integer);
        c->options.threads = (int)o[OPTION_threads].integer;
    }
    return 0;
}

static int seed(call *c, const argument *a)
{
    view v = {0};
    if (!a->given) return 0;
    if (view_of(a->tensor, "seed", &v, c->error)) return -1;
    if (v.dtype != ATTN_I64 || v.ndim > 1 || (v.ndim == 1 && v.size[0] != 1))
        return call_fail(c, ATTN_ERR_SHAPE, "seed must be one integer, of the type int64");
    c->more.dropout_seed = (uint64_t) * (const int64_t *)v.data;
    return 0;
}

/* What the shape of score_matrix says. */
static void matrix(call *c)
{
    const view *v = call_view(c, TENSOR(score_matrix));
    const int64_t channels = v->ndim ? v->size[v->ndim - 1] : 1, lines = v->ndim > 1 ? v->size[v->ndim - 2] : 1;
    attn_score *score = &c->problem.score;
    if (score->kind == ATTN_SCORE_GENERAL && lines != channels) score->dim_k = channels;
    if (score->kind == ATTN_SCORE_METRIC) score->dim_metric = lines;
    score->additive_bias = score->kind == ATTN_SCORE_ADDITIVE && lines == 2;
}

/* What the shapes of relative_keys and relative_values say. */
static int relative(call *c)
{
    static const int tables[] = {TENSOR(relative_keys), TENSOR(relative_values)};
    for (int i = 0; i < 2; i++) {
        const view *v = call_view(c, tables[i]);
        if (!v) continue;
        if (v->ndim < 2)
            return call_fail(c, ATTN_ERR_SHAPE, "relative_%s has %d axes; it must be [heads, rows, channels]",
                             i ? "values" : "keys", v->ndim);
        c->problem.relative.rows = v->size[v->ndim - 2];
    }
    return 0;
}

/* q, k and v at t, and the options at o. */
static int inputs(call *c, attn_op op, const argument *t, const argument *o)
{
    static const struct {
        int option, number;
    } tensors[] = {
        {OPTION_mask, TENSOR(mask)},
        {OPTION_bias, TENSOR(bias)},
        {OPTION_lengths_q, TENSOR(lengths_q)},
        {OPTION_lengths_kv, TENSOR(lengths_kv)},
        {OPTION_cu_seqlens_q, TENSOR(cu_seqlens_q)},
        {OPTION_cu_seqlens_kv, TENSOR(cu_seqlens_kv)},
        {OPTION_alibi_slopes, TENSOR(alibi_slopes)},
        {OPTION_sink, TENSOR(sink)},
        {OPTION_scales, TENSOR(scale)},
        {OPTION_page_table, TENSOR(page_table)},
        {OPTION_offset_q, TENSOR(offset_q)},
        {OPTION_ranges, TENSOR(ranges)},
        {OPTION_block_mask, TENSOR(block_mask)},
        {OPTION_bias_table, TENSOR(bias_table)},
        {OPTION_score_matrix, TENSOR(score_matrix)},
        {OPTION_relative_keys, TENSOR(relative_keys)},
        {OPTION_relative_values, TENSOR(relative_values)},
        {OPTION_relative_u, TENSOR(relative_u)},
        {OPTION_relative_v, TENSOR(relative_v)},
    };
    c->problem.op = op;
    if (numbers(c, o) || seed(c, &o[OPTION_seed])) return -1;
    for (int i = 0; i < 3; i++)
        if (call_input(c, TENSOR(q) + i, &t[i])) return -1;
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        if (call_input(c, tensors[i].number, &o[tensors[i].option])) return -1;
    if (o[OPTION_bias_table].given) {
        const view *table = call_view(c, TENSOR(bias_table));
        c->problem.bias_table.kind = (attn_distance_kind)o[OPTION_table_kind].integer;
        c->problem.bias_table.max_distance = o[OPTION_table_distance].integer;
        c->problem.bias_table.causal = o[OPTION_table_causal].integer != 0;
        c->problem.bias_table.buckets = table->ndim ? table->size[table->ndim - 1] : 1;
    }
    if (o[OPTION_score_matrix].given) matrix(c);
    if (relative(c)) return -1;
    return call_sizes(c);
}

/* A result that was not requested. */
static int nothing(call *c, AtenTensorHandle *result)
{
    view v;
    const int64_t size[4] = {0}, stride[4] = {1};
    if (view_new(&v, 1, size, stride, call_view(c, TENSOR(q))->dtype, c->error)) return -1;
    *result = v.handle;
    return 0;
}

/* Like q without its last axis, contiguous, of the compute type: lse. */
static int per_query(call *c, int number, AtenTensorHandle *result)
{
    const view *q = call_view(c, TENSOR(q));
    int64_t stride[4];
    view_dense(q->ndim - 1, q->size, NULL, stride);
    return call_output(c, number, q->ndim - 1, q->size, stride, call_compute(c), result);
}

static int forward(call *c, const argument *a, AtenTensorHandle *out)
{
    const view *q;
    if (inputs(c, ATTN_FORWARD, a, a + 3)) return -1;
    q = call_view(c, TENSOR(q));
    if (call_result(c, TENSOR(o), q, c->problem.shape.dim_v, q->dtype, &out[0]) || per_query(c, TENSOR(lse), &out[1])) return -1;
    if (a[sizeof forward_kinds - 2].integer) {
        const attn_shape *s = &c->problem.shape;
        const int64_t size[4] = {s->batch, s->heads_q, s->len_q, s->len_kv};
        const int skip = c->layout == LAYOUT_THD ? 0 : 4 - q->ndim;
        int64_t stride[4];
        view_dense(4 - skip, size + skip, NULL, stride);
        if (call_output(c, TENSOR(weights), 4 - skip, size + skip, stride, call_compute(c), &out[2])) return -1;
    } else if (nothing(c, &out[2])) {
        return -1;
    }
    return call_run(c);
}

/* Without gradients, with the first three options alone: each argument of an operator takes time, and so does lse. */
static const char plain_kinds[] = "TTTiig";
static int plain(call *c, const argument *a, AtenTensorHandle *out)
{
    c->problem.op = ATTN_FORWARD;
    c->problem.mask.causal = (int)a[3 + OPTION_causal].integer;
    c->problem.mask.align = (attn_align)a[3 + OPTION_align].integer;
    if (a[3 + OPTION_scale].given) {
        c->problem.score.scale_kind = ATTN_SCALE_VALUE;
        c->problem.score.scale = a[3 + OPTION_scale].real;
    }
    for (int i = 0; i < 3; i++)
        if (call_input(c, TENSOR(q) + i, &a[i])) return -1;
    if (call_sizes(c)) return -1;
    const view *q = call_view(c, TENSOR(q));
    return call_result(c, TENSOR(o), q, c->problem.shape.dim_v, q->dtype, &out[0]) || call_run(c) ? -1 : 0;
}

/* q, k, v, o and lse at t, and the options at o. */
static int saved_inputs(call *c, attn_op op, const argument *t, const argument *o)
{
    if (inputs(c, op, t, o)) return -1;
    return call_input(c, TENSOR(o), &t[3]) || call_input(c, TENSOR(lse), &t[4]) ? -1 : 0;
}

/* An absent gradient of o is zero. */
static int grad_o(call *c, const argument *a)
{
    if (a->given) return call_input(c, TENSOR(grad_o), a);
    argument zero = {.given = 1};
    const view *o = call_view(c, TENSOR(o));
    view v = {0};
    int64_t stride[4], bytes = (int64_t)attn_dtype_size(o->dtype);
    view_dense(o->ndim, o->size, NULL, stride);
    if (view_new(&v, o->ndim, o->size, stride, o->dtype, c->error)) return -1;
    c->copy[c->copies++] = v.handle;
    for (int i = 0; i < o->ndim; i++) bytes *= o->size[i];
    if (bytes) memset(v.data, 0, (size_t)bytes);
    zero.tensor = v.handle;
    return call_input(c, TENSOR(grad_o), &zero);
}

/* The gradient of a bias that was expanded has its full size, so the bias must have it. */
static int whole_bias(call *c)
{
    const view *given = call_view(c, TENSOR(bias));
    view v = {0};
    int64_t stride[4];
    int expanded = 0;
    if (!given) return 0;
    for (int i = 0; i < given->ndim; i++) expanded |= given->size[i] > 1 && !given->stride[i];
    if (!expanded) return 0;
    view_dense(given->ndim, given->size, NULL, stride);
    if (view_new(&v, given->ndim, given->size, stride, given->dtype, c->error)) return -1;
    c->copy[c->copies++] = v.handle;
    if (torch.aoti_torch_copy_(v.handle, given->handle, 0)) return call_fail(c, ATTN_ERR_ARGUMENT, "bias could not be copied");
    call_replace(c, TENSOR(bias), &v);
    return 0;
}

static int backward(call *c, const argument *a, AtenTensorHandle *out)
{
    static const struct {
        int want, input, number;
    } others[] = {
        {WANTS_BIAS, TENSOR(bias), TENSOR(grad_bias)},
        {WANTS_SLOPES, TENSOR(alibi_slopes), TENSOR(grad_alibi_slopes)},
        {WANTS_SINK, TENSOR(sink), TENSOR(grad_sink)},
        {WANTS_SCALES, TENSOR(scale), TENSOR(grad_scale)},
        {WANTS_TABLE, TENSOR(bias_table), TENSOR(grad_bias_table)},
        {WANTS_MATRIX, TENSOR(score_matrix), TENSOR(grad_score_matrix)},
        {WANTS_KEYS, TENSOR(relative_keys), TENSOR(grad_relative_keys)},
        {WANTS_VALUES, TENSOR(relative_values), TENSOR(grad_relative_values)},
        {WANTS_U, TENSOR(relative_u), TENSOR(grad_relative_u)},
        {WANTS_V, TENSOR(relative_v), TENSOR(grad_relative_v)},
    };
    const int64_t wants = a[7].integer;
    if (saved_inputs(c, ATTN_BACKWARD, a + 2, a + 8) || grad_o(c, &a[0]) || call_input(c, TENSOR(grad_lse), &a[1])) return -1;
    if ((wants & WANTS_BIAS) && whole_bias(c)) return -1;
    for (int i = 0; i < 3; i++) {
        const view *input = call_view(c, TENSOR(q) + i);
        if (call_result(c, TENSOR(grad_q) + i, input, -1, input->dtype, &out[i])) return -1;
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const view *input = wants & others[i].want ? call_view(c, others[i].input) : NULL;
        if (input ? call_like(c, others[i].number, input, &out[3 + i]) : nothing(c, &out[3 + i])) return -1;
    }
    return call_run(c);
}

static int tangents(call *c, const argument *a)
{
    for (int i = 0; i < 4; i++)
        if (call_input(c, TENSOR(tan_q) + i, &a[i])) return -1;
    return 0;
}

static int jvp(call *c, const argument *a, AtenTensorHandle *out)
{
    if (saved_inputs(c, ATTN_JVP, a + 4, a + 9) || tangents(c, a)) return -1;
    const view *q = call_view(c, TENSOR(q));
    if (call_result(c, TENSOR(tan_o), q, c->problem.shape.dim_v, q->dtype, &out[0]) || per_query(c, TENSOR(tan_lse), &out[1]))
        return -1;
    return call_run(c);
}

static int double_backward(call *c, const argument *a, AtenTensorHandle *out)
{
    if (saved_inputs(c, ATTN_DOUBLE_BACKWARD, a + 6, a + 11) || grad_o(c, &a[0]) || call_input(c, TENSOR(grad_lse), &a[1]))
        return -1;
    if (tangents(c, a + 2) || whole_bias(c)) return -1;
    const view *q = call_view(c, TENSOR(q)), *bias = call_view(c, TENSOR(bias));
    if (call_result(c, TENSOR(second_grad_o), q, c->problem.shape.dim_v, q->dtype, &out[0])) return -1;
    if (per_query(c, TENSOR(second_grad_lse), &out[1])) return -1;
    for (int i = 0; i < 3; i++) {
        const view *input = call_view(c, TENSOR(q) + i);
        if (call_result(c, TENSOR(second_q) + i, input, -1, input->dtype, &out[2 + i])) return -1;
    }
    if (bias ? call_like(c, TENSOR(second_bias), bias, &out[5]) : nothing(c, &out[5])) return -1;
    return call_run(c);
}

typedef int part(call *c, const argument *a, AtenTensorHandle *out);

static int with_call(part *run, const argument *a, AtenTensorHandle *out, attn_error *error)
{
    call c;
    call_begin(&c, error);
    const int failed = run(&c, a, out);
    call_end(&c);
    return failed;
}

#define OPERATOR(name)                                                                                                             \
    static int name##_kernel(const argument *a, AtenTensorHandle *out, attn_error *error)                                          \
    {                                                                                                                              \
        return with_call(name, a, out, error);                                                                                     \
    }                                                                                                                              \
    static void name##_boxed(StableIValue *stack, uint64_t arguments, uint64_t results)                                            \
    {                                                                                                                              \
        boxed_call(name##_kinds, name##_kernel, stack, arguments, results);                                                        \
    }
OPERATOR(forward)
OPERATOR(plain)
OPERATOR(backward)
OPERATOR(jvp)
OPERATOR(double_backward)

const operator_row attention_operators[] = {
    {"attention", forward_boxed},
    {"attention_plain", plain_boxed},
    {"attention_backward", backward_boxed},
    {"attention_jvp", jvp_boxed},
    {"attention_double_backward", double_backward_boxed},
    {NULL, NULL},
};
