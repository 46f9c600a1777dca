/* SPDX-License-Identifier: MIT
 * flow.c - gradients, tangents and second gradients: a table of their tensors, and the reference's idea of them. */
#include "flow.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../problem.h"
#include "attn_bound.h"
#include "bound.h"
#include "element.h"

typedef enum shape {
    LIKE_Q,
    LIKE_K,
    LIKE_V,
    LIKE_O,
    LIKE_ROWS,
    LIKE_BIAS,
    REDUCED_BIAS,
    LIKE_SLOPES,
    FOR_HEADS,
    LIKE_W,
    LIKE_TABLE,
    LIKE_KEY_ROWS,
    LIKE_VALUE_ROWS,
    LIKE_VECTORS
} shape;

enum { NONE = -1 };

/* Offsets in attn_problem and attn_args; NONE: there is no such field. */
typedef struct flow_row {
    const char *name;
    attn_op op;
    shape shape;
    long flag, layout;
    size_t pointer;
} flow_row;

#define IN(name) (long)offsetof(attn_problem, name)
#define ROW(name, op, shape, flag, layout)                                                                                         \
    {                                                                                                                              \
#name, op, shape, flag, layout, offsetof(attn_args, name)                                                                  \
    }

static const flow_row table[FLOWS] = {
    [FLOW_GRAD_O] = ROW(grad_o, ATTN_FORWARD, LIKE_O, NONE, IN(gradients.grad_o)),
    [FLOW_GRAD_LSE] = ROW(grad_lse, ATTN_FORWARD, LIKE_ROWS, IN(gradients.lse), IN(want.lse_layout)),
    [FLOW_TAN_Q] = ROW(tan_q, ATTN_FORWARD, LIKE_Q, IN(tangents.q), IN(tangents.tan_q)),
    [FLOW_TAN_K] = ROW(tan_k, ATTN_FORWARD, LIKE_K, IN(tangents.k), IN(tangents.tan_k)),
    [FLOW_TAN_V] = ROW(tan_v, ATTN_FORWARD, LIKE_V, IN(tangents.v), IN(tangents.tan_v)),
    [FLOW_TAN_BIAS] = ROW(tan_bias, ATTN_FORWARD, LIKE_BIAS, IN(tangents.bias), IN(tangents.tan_bias)),
    [FLOW_GRAD_Q] = ROW(grad_q, ATTN_BACKWARD, LIKE_Q, NONE, IN(gradients.grad_q)),
    [FLOW_GRAD_K] = ROW(grad_k, ATTN_BACKWARD, LIKE_K, NONE, IN(gradients.grad_k)),
    [FLOW_GRAD_V] = ROW(grad_v, ATTN_BACKWARD, LIKE_V, NONE, IN(gradients.grad_v)),
    [FLOW_GRAD_BIAS] = ROW(grad_bias, ATTN_BACKWARD, REDUCED_BIAS, IN(gradients.bias), IN(gradients.grad_bias)),
    [FLOW_GRAD_SLOPES] = ROW(grad_slopes, ATTN_BACKWARD, LIKE_SLOPES, IN(gradients.slopes), NONE),
    [FLOW_GRAD_SINK] = ROW(grad_sink, ATTN_BACKWARD, FOR_HEADS, IN(gradients.sink), NONE),
    [FLOW_GRAD_SCALE] = ROW(grad_scale, ATTN_BACKWARD, FOR_HEADS, IN(gradients.scale), NONE),
    [FLOW_GRAD_W] = ROW(grad_w, ATTN_BACKWARD, LIKE_W, IN(gradients.w), IN(gradients.grad_w)),
    [FLOW_GRAD_BIAS_TABLE] =
        ROW(grad_bias_table, ATTN_BACKWARD, LIKE_TABLE, IN(gradients.bias_table), IN(gradients.grad_bias_table)),
    [FLOW_GRAD_RELATIVE_KEYS] =
        ROW(grad_relative_keys, ATTN_BACKWARD, LIKE_KEY_ROWS, IN(gradients.relative), IN(gradients.grad_relative_keys)),
    [FLOW_GRAD_RELATIVE_VALUES] =
        ROW(grad_relative_values, ATTN_BACKWARD, LIKE_VALUE_ROWS, IN(gradients.relative), IN(gradients.grad_relative_values)),
    [FLOW_GRAD_RELATIVE_U] = ROW(grad_relative_u, ATTN_BACKWARD, LIKE_VECTORS, IN(gradients.relative), NONE),
    [FLOW_GRAD_RELATIVE_V] = ROW(grad_relative_v, ATTN_BACKWARD, LIKE_VECTORS, IN(gradients.relative), NONE),
    [FLOW_TAN_O] = ROW(tan_o, ATTN_JVP, LIKE_O, NONE, IN(tangents.tan_o)),
    [FLOW_TAN_LSE] = ROW(tan_lse, ATTN_JVP, LIKE_ROWS, IN(tangents.lse), IN(want.lse_layout)),
    [FLOW_SECOND_GRAD_O] = ROW(second_grad_o, ATTN_DOUBLE_BACKWARD, LIKE_O, NONE, IN(second.second_grad_o)),
    [FLOW_SECOND_GRAD_LSE] = ROW(second_grad_lse, ATTN_DOUBLE_BACKWARD, LIKE_ROWS, IN(second.grad_lse), IN(want.lse_layout)),
    [FLOW_SECOND_Q] = ROW(second_q, ATTN_DOUBLE_BACKWARD, LIKE_Q, NONE, IN(second.second_q)),
    [FLOW_SECOND_K] = ROW(second_k, ATTN_DOUBLE_BACKWARD, LIKE_K, NONE, IN(second.second_k)),
    [FLOW_SECOND_V] = ROW(second_v, ATTN_DOUBLE_BACKWARD, LIKE_V, NONE, IN(second.second_v)),
    [FLOW_SECOND_BIAS] = ROW(second_bias, ATTN_DOUBLE_BACKWARD, REDUCED_BIAS, IN(second.bias), IN(second.second_bias)),
};

const char *flow_name(flow f) { return table[f].name; }
attn_op flow_op(flow f) { return table[f].op; }
int flow_has_tokens(flow f) { return table[f].shape <= LIKE_ROWS; }
int flow_of_keys(flow f) { return table[f].shape == LIKE_K || table[f].shape == LIKE_V; }

int flow_read_by(flow f, attn_op op)
{
    return f < FLOW_OUTPUTS && (op == ATTN_DOUBLE_BACKWARD || op == (f <= FLOW_GRAD_LSE ? ATTN_BACKWARD : ATTN_JVP));
}

/* One flag asks for the gradients of all relative terms that there are. */
static int is_there(flow f, const attn_problem *p)
{
    const attn_relative *r = &p->relative;
    return f == FLOW_GRAD_RELATIVE_KEYS     ? r->keys
           : f == FLOW_GRAD_RELATIVE_VALUES ? r->values
           : f == FLOW_GRAD_RELATIVE_U      ? r->u
           : f == FLOW_GRAD_RELATIVE_V      ? r->v
                                            : 1;
}

int flow_used(flow f, const attn_problem *p)
{
    const int asked = is_there(f, p) && (table[f].flag == NONE || *(const int *)(const void *)((const char *)p + table[f].flag));
    return asked && (f >= FLOW_OUTPUTS ? p->op == table[f].op : flow_read_by(f, p->op));
}

void flow_ask(flow f, attn_problem *p)
{
    const int yes = 1;
    if (table[f].flag != NONE) memcpy((char *)p + table[f].flag, &yes, sizeof yes);
}

void flow_size(flow f, const attn_problem *p, int64_t size[4])
{
    const tensor_sizes sizes = tensor_sizes_of(p);
    const int64_t *const like[] = {
        [LIKE_Q] = sizes.q, [LIKE_K] = sizes.k, [LIKE_V] = sizes.v, [LIKE_O] = sizes.o, [LIKE_ROWS] = sizes.lse};
    const shape s = table[f].shape;
    if (s <= LIKE_ROWS) memcpy(size, like[s], 4 * sizeof *size);
    if (s == LIKE_BIAS || s == REDUCED_BIAS) memcpy(size, sizes.weights, 4 * sizeof *size);
    if (s == LIKE_SLOPES || s == FOR_HEADS) {
        size[0] = s == LIKE_SLOPES && p->bias.alibi == ATTN_ALIBI_BATCH_HEAD ? p->shape.batch : 1;
        size[1] = p->shape.heads_q;
        size[2] = size[3] = 1;
    }
    if (s == LIKE_W) problem_w_size(p, size);
    if (s >= LIKE_TABLE) {
        size[0] = 1;
        size[1] = s != LIKE_VECTORS && (s == LIKE_TABLE ? p->bias_table.shared : p->relative.shared) ? 1 : p->shape.heads_q;
        size[2] = s == LIKE_TABLE ? problem_buckets(&p->bias_table) : s == LIKE_VECTORS ? 1 : p->relative.rows;
        size[3] = s == LIKE_TABLE ? 1 : s == LIKE_VALUE_ROWS ? p->shape.dim_v : p->shape.dim_qk;
    }
    if (s != REDUCED_BIAS) return;
    int64_t stride[4];
    layout_strides(&p->bias.bias, sizes.weights, stride);
    for (int axis = 0; axis < 4; axis++)
        if (stride[axis] == 0) size[axis] = 1;
}

attn_layout *flow_layout(flow f, attn_problem *p)
{
    return table[f].layout == NONE ? NULL : (attn_layout *)(void *)((char *)p + table[f].layout);
}

attn_dtype flow_dtype(flow f, const attn_problem *problem)
{
    const attn_problem p = problem_resolve(problem);
    const attn_dtype compute = p.q.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    const shape s = table[f].shape;
    return s < LIKE_ROWS ? p.q.dtype : s == LIKE_BIAS || s == REDUCED_BIAS ? p.bias.bias.dtype : compute;
}

void flow_point(flow f, attn_args *args, void *data) { memcpy((char *)args + table[f].pointer, &data, sizeof data); }

const void *flow_data(flow f, const attn_args *args)
{
    const void *data;
    memcpy(&data, (const char *)args + table[f].pointer, sizeof data);
    return data;
}

/* ---- the reference ---- */

static double *doubles(const int64_t size[4]) { return calloc((size_t)tensor_count(size) + 1, sizeof(double)); }

static int read_inputs(flows *all, const expectation *e, const attn_problem *problem, const attn_args *args)
{
    attn_problem p = *problem;
    for (int f = 0; f < FLOW_OUTPUTS; f++) {
        int64_t size[4];
        if (!flow_used((flow)f, &p)) continue;
        flow_size((flow)f, &p, size);
        if (!(all->in[f] = doubles(size))) return 0;
        attn_layout layout = *flow_layout((flow)f, &p);
        if (!layout.dtype) layout.dtype = flow_dtype((flow)f, &p);
        const int64_t *begin = flow_of_keys((flow)f) ? e->begin_kv : e->begin_q;
        if (begin && flow_has_tokens((flow)f)) element_gather_packed(flow_data((flow)f, args), &layout, size, begin, all->in[f]);
        else element_gather(flow_data((flow)f, args), &layout, size, all->in[f]);
    }
    return 1;
}

/* Adds `from` [..] over the axes that are 1 in size. */
static void reduce(const double *from, const int64_t full[4], double *to, const int64_t size[4])
{
    for (int64_t b = 0; b < full[0]; b++)
        for (int64_t h = 0; h < full[1]; h++)
            for (int64_t i = 0; i < full[2]; i++)
                for (int64_t j = 0; j < full[3]; j++) {
                    const int64_t at[4] = {b, h, i, j};
                    int64_t n = 0;
                    for (int axis = 0; axis < 4; axis++) n = n * size[axis] + (size[axis] == 1 ? 0 : at[axis]);
                    to[n] += *from++;
                }
}

/* Output f from what the reference has, which is reduced where the output is; the arrays of `from` stay their owner's. */
static int take(flows *all, flow f, const attn_problem *p, const double *exact, const double *bound)
{
    int64_t size[4], full[4];
    if (!flow_used(f, p)) return 1;
    flow_size(f, p, size);
    memcpy(full, size, sizeof full);
    if (table[f].shape == REDUCED_BIAS) memcpy(full, tensor_sizes_of(p).weights, sizeof full);
    if (table[f].shape == LIKE_SLOPES) full[0] = p->shape.batch;
    all->exact[f] = doubles(size);
    all->bound[f] = doubles(size);
    if (!all->exact[f] || !all->bound[f]) return 0;
    reduce(exact, full, all->exact[f], size);
    reduce(bound, full, all->bound[f], size);
    attn_problem resolved = problem_resolve(p); /* computed in f64, a gradient may be stored in f32, as its bias is */
    const attn_layout *layout = flow_layout(f, &resolved);
    if ((layout && layout->dtype ? layout->dtype : flow_dtype(f, p)) == ATTN_F32 && resolved.q.dtype == ATTN_F64)
        for (int64_t n = 0; n < tensor_count(size); n++) all->bound[f][n] += 0x1p-24 * fabs(all->exact[f][n]) + 0x1p-150;
    return 1;
}

/* What O loses when it is stored; NULL: nothing, or memory is out and *ok becomes 0. */
static double *lost_of_output(const expectation *e, const attn_problem *problem, int *ok)
{
    const attn_problem p = problem_resolve(problem);
    const int64_t count = tensor_count(tensor_sizes_of(&p).o);
    if (bound_storage(p.o.dtype, 1) == 0) return NULL;
    double *lost = calloc((size_t)count + 1, sizeof *lost);
    *ok = lost != NULL;
    for (int64_t n = 0; *ok && n < count; n++) lost[n] = bound_storage(p.o.dtype, e->O[n]);
    return lost;
}

static int run_reference(flows *all, const expectation *e, const attn_problem *p, const ref_arithmetic *arithmetic)
{
    const ref_problem *r = &e->ref;
    const int64_t rows = r->B * r->Hq * r->Sq, keys = r->B * r->Hkv * r->Skv, tables = r->Hq * r->relative_rows;
    const int64_t counts[] = {rows * r->D,     keys * problem_dim_k(p),
                              keys * r->Dv,    rows * r->Skv,
                              rows * r->Skv,   r->Hq,
                              r->B * r->Hq,    r->Hq,
                              rows * r->Dv,    rows,
                              e->numbers_of_w, r->Hq * r->buckets,
                              tables * r->D,   tables * r->Dv,
                              r->Hq * r->D,    r->Hq * r->D};
    enum { TQ, TK, TV, TS, TP, TSCALE, TSLOPES, TSINK, TO, TLSE, TW, TTABLE, TKEY_ROWS, TVALUE_ROWS, TU, TRV, PARTS };
    double *x[PARTS] = {0};
    ref_bounds b = {0};
    ref_second s = {.dO = all->in[FLOW_GRAD_O],
                    .dlse = all->in[FLOW_GRAD_LSE],
                    .Qd = all->in[FLOW_TAN_Q],
                    .Kd = all->in[FLOW_TAN_K],
                    .Vd = all->in[FLOW_TAN_V],
                    .biasd = all->in[FLOW_TAN_BIAS]};
    int ok = 1;
    for (int k = 0; k < PARTS; k++) ok &= (x[k] = calloc((size_t)counts[k] + 1, sizeof(double))) != NULL;
    if (ok && p->op == ATTN_BACKWARD) {
        ref_backward(r, &(ref_gradients){.dO = s.dO,
                                         .dlse = s.dlse,
                                         .dQ = x[TQ],
                                         .dK = x[TK],
                                         .dV = x[TV],
                                         .P = x[TP],
                                         .dS = x[TS],
                                         .dscale = x[TSCALE],
                                         .dslopes = x[TSLOPES],
                                         .dsink = x[TSINK],
                                         .dW = r->W ? x[TW] : NULL,
                                         .dbias_table = r->bias_table ? x[TTABLE] : NULL,
                                         .drelative_keys = r->relative_keys ? x[TKEY_ROWS] : NULL,
                                         .drelative_values = r->relative_values ? x[TVALUE_ROWS] : NULL,
                                         .drelative_u = r->relative_u ? x[TU] : NULL,
                                         .drelative_v = r->relative_v ? x[TRV] : NULL});
        ok = ref_bound_backward(&b, r, &s, arithmetic) && take(all, FLOW_GRAD_Q, p, x[TQ], b.Q) &&
             take(all, FLOW_GRAD_K, p, x[TK], b.K) && take(all, FLOW_GRAD_V, p, x[TV], b.V) &&
             take(all, FLOW_GRAD_BIAS, p, x[TS], b.S) && take(all, FLOW_GRAD_SCALE, p, x[TSCALE], b.scale) &&
             take(all, FLOW_GRAD_SLOPES, p, x[TSLOPES], b.slopes) && take(all, FLOW_GRAD_SINK, p, x[TSINK], b.sink) &&
             take(all, FLOW_GRAD_W, p, x[TW], b.W) && take(all, FLOW_GRAD_BIAS_TABLE, p, x[TTABLE], b.bias_table) &&
             take(all, FLOW_GRAD_RELATIVE_KEYS, p, x[TKEY_ROWS], b.relative_keys) &&
             take(all, FLOW_GRAD_RELATIVE_VALUES, p, x[TVALUE_ROWS], b.relative_values) &&
             take(all, FLOW_GRAD_RELATIVE_U, p, x[TU], b.relative_u) && take(all, FLOW_GRAD_RELATIVE_V, p, x[TRV], b.relative_v);
    } else if (ok && p->op == ATTN_JVP) {
        ref_jvp(r, &(ref_tangents){s.Qd, s.Kd, s.Vd, s.biasd, x[TO], x[TLSE]});
        ok = ref_bound_jvp(&b, r, &s, arithmetic) && take(all, FLOW_TAN_O, p, x[TO], b.O) &&
             take(all, FLOW_TAN_LSE, p, x[TLSE], b.lse);
    } else if (ok) {
        s.dO2 = x[TO], s.dlse2 = x[TLSE], s.Q2 = x[TQ], s.K2 = x[TK], s.V2 = x[TV], s.S2 = x[TS];
        ref_second_order(r, &s);
        ok = ref_bound_second(&b, r, &s, arithmetic) && take(all, FLOW_SECOND_GRAD_O, p, x[TO], b.O) &&
             take(all, FLOW_SECOND_GRAD_LSE, p, x[TLSE], b.lse) && take(all, FLOW_SECOND_Q, p, x[TQ], b.Q) &&
             take(all, FLOW_SECOND_K, p, x[TK], b.K) && take(all, FLOW_SECOND_V, p, x[TV], b.V) &&
             take(all, FLOW_SECOND_BIAS, p, x[TS], b.S);
    }
    for (int k = 0; k < PARTS; k++) free(x[k]);
    ref_bounds_free(&b);
    return ok;
}

int flows_create(flows *all, const expectation *e, const attn_problem *p, const attn_args *args)
{
    const int wide = e->compute == ATTN_F64;
    int ok = 1;
    *all = (flows){0};
    if (p->op == ATTN_FORWARD) return 1;
    double *lost = lost_of_output(e, p, &ok);
    const ref_arithmetic arithmetic = {.unit = wide ? DBL_EPSILON / 2 : (double)FLT_EPSILON / 2,
                                       .normal = wide ? DBL_MIN : (double)FLT_MIN,
                                       .denormal = wide ? DBL_TRUE_MIN : (double)FLT_TRUE_MIN,
                                       .flushed = e->bf16 ? (double)FLT_MIN : 0,
                                       .O_lost = lost};
    ok = ok && read_inputs(all, e, p, args) && run_reference(all, e, p, &arithmetic);
    free(lost);
    if (!ok) flows_destroy(all);
    return ok;
}

void flows_destroy(flows *all)
{
    for (int f = 0; f < FLOWS; f++) free(all->in[f]), free(all->exact[f]), free(all->bound[f]);
    *all = (flows){0};
}

void flows_compare(comparison *c, const flows *all, flow f, const attn_problem *p, const double *got, attn_dtype dtype)
{
    int64_t size[4];
    flow_size(f, p, size);
    compare_numbers(c, flow_name(f), size, got, all->exact[f], all->bound[f], dtype);
}
