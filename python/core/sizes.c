/* SPDX-License-Identifier: MIT
 * sizes.c - sizes of a problem, from its arrays, and the shapes of arrays that are still to be allocated. */
#include "core.h"

static const view *find(const call *c, int number) { return c->place[number] ? &c->views[c->place[number] - 1] : NULL; }

/* The size of axis `axis` of a tensor; 1 where its array has no such axis. */
static int64_t size_at(const call *c, int number, int axis)
{
    const view *v = find(c, number);
    int axes[4];
    if (!v || v->ndim < 0) return 0;
    axes_of(&c->state->rows_of[number], axes_layout_of(c, &c->state->rows_of[number]), v->ndim, axes);
    for (int i = 0; i < v->ndim; i++)
        if (axes[i] == axis) return v->shape[i];
    return 1;
}

static int64_t index_at(const view *v, int64_t i)
{
    if (v->dtype == ATTN_I64) return ((const int64_t *)v->data)[i];
    if (v->dtype == ATTN_I32) return ((const int32_t *)v->data)[i];
    return 0; /* the library rejects other types */
}

/* The longest of packed sequences; what is not ascending, the library rejects. */
static int longest(const call *c, int number, int64_t tokens, int64_t *len)
{
    const view *v = find(c, number);
    const char *name = tensor_name(c, number);
    if (v->ndim != 1 || v->shape[0] < 1) {
        PyErr_Format(PyExc_ValueError, "%s must have one axis and at least one element", name);
        return -1;
    }
    if (!v->data || (v->dtype != ATTN_I64 && v->dtype != ATTN_I32)) return 0;
    const int64_t last = index_at(v, v->shape[0] - 1);
    if (last != tokens) {
        PyErr_Format(PyExc_ValueError, "%s ends at %lld, and the array has %lld tokens", name, (long long)last, (long long)tokens);
        return -1;
    }
    if (*len) return 0; /* given by the caller, and checked by the library */
    for (int64_t i = 1; i < v->shape[0]; i++) {
        int64_t step;
        if (!__builtin_sub_overflow(index_at(v, i), index_at(v, i - 1), &step) && step > *len) *len = step;
    }
    return 0;
}

static int is_paged(const call *c) { return c->place[TENSOR(page_table)] || c->place[TENSOR(page_index)]; }

static int ranks(call *c)
{
    static const int three[] = {TENSOR(q), TENSOR(k), TENSOR(v)};
    for (int i = 0; i < 3; i++) {
        const view *v = find(c, three[i]);
        if (!v) {
            PyErr_Format(PyExc_TypeError, "%s is missing", tensor_name(c, three[i]));
            return -1;
        }
        if (i == 0) c->rank = v->ndim;
        const int want = i && (is_paged(c) || (c->layout == LAYOUT_THD && !c->place[TENSOR(cu_seqlens_kv)])) ? 4
                         : c->layout == LAYOUT_THD                                                          ? 3
                                                                                                            : c->rank;
        if (v->ndim == want && want >= 2) continue;
        PyErr_Format(PyExc_ValueError, "%s has %d axes; it must have %s", tensor_name(c, three[i]), v->ndim,
                     want == 4        ? "4"
                     : want == 3      ? "3"
                     : i && want == 2 ? "2, as q does"
                     : i              ? "as many as q"
                                      : "4, or 3 without a batch, or 2 without heads");
        return -1;
    }
    return 0;
}

/* The most keys of an entry that are not packed: those of the tensor, or of its pages. */
static int keys_of_entry(const call *c, int64_t *len)
{
    const view *starts = find(c, TENSOR(page_starts));
    int64_t pages = size_at(c, TENSOR(page_table), 3);
    *len = size_at(c, TENSOR(k), 2);
    if (!is_paged(c)) return 0;
    for (int64_t i = 1; starts && starts->data && starts->ndim == 1 && i < starts->shape[0]; i++) {
        int64_t step;
        if (i == 1) pages = 0;
        if (!__builtin_sub_overflow(index_at(starts, i), index_at(starts, i - 1), &step) && step > pages) pages = step;
    }
    if (!__builtin_mul_overflow(*len, pages, len)) return 0;
    PyErr_Format(PyExc_ValueError, "%s: the number of keys overflows 64 bits", tensor_name(c, starts ? TENSOR(page_starts) : TENSOR(page_table)));
    return -1;
}

int sizes_of_data(call *c)
{
    if (c->layout != LAYOUT_THD && !c->place[TENSOR(page_starts)]) return 0;
    if (ranks(c)) return -1;
    attn_shape *shape = &c->problem.shape;
    if (c->layout != LAYOUT_THD) return keys_of_entry(c, &shape->len_kv);
    c->tokens_q = size_at(c, TENSOR(q), 2);
    c->tokens_kv = size_at(c, TENSOR(k), 2);
    if (!c->place[TENSOR(cu_seqlens_q)]) {
        PyErr_SetString(PyExc_ValueError, "layout is thd: it needs cu_seqlens_q, and cu_seqlens_kv unless keys are not packed");
        return -1;
    }
    if (longest(c, TENSOR(cu_seqlens_q), c->tokens_q, &shape->len_q)) return -1;
    shape->batch = find(c, TENSOR(cu_seqlens_q))->shape[0] - 1;
    if (!c->place[TENSOR(cu_seqlens_kv)]) return keys_of_entry(c, &shape->len_kv);
    return longest(c, TENSOR(cu_seqlens_kv), c->tokens_kv, &shape->len_kv);
}

/* Sizes that belong to single tensors. */
static void choices(call *c)
{
    attn_problem *p = &c->problem;
    if (p->score.kind == ATTN_SCORE_GENERAL) p->score.dim_k = size_at(c, TENSOR(k), 3);
    if (p->score.kind == ATTN_SCORE_METRIC) p->score.dim_metric = size_at(c, TENSOR(score_matrix), 2);
    if (p->score.kind == ATTN_SCORE_ADDITIVE) p->score.additive_bias = size_at(c, TENSOR(score_matrix), 2) == 2;
    if (c->place[TENSOR(block_index)]) p->mask.block_entries = size_at(c, TENSOR(block_index), 0);
    if (c->place[TENSOR(relative_keys)]) p->relative.rows = size_at(c, TENSOR(relative_keys), 2);
    else if (c->place[TENSOR(relative_values)]) p->relative.rows = size_at(c, TENSOR(relative_values), 2);
    if (c->place[TENSOR(bias_table)]) {
        p->bias_table.buckets = size_at(c, TENSOR(bias_table), 2);
        if (p->bias_table.kind == ATTN_DISTANCE_CLIPPED && !p->bias_table.max_distance)
            p->bias_table.max_distance = (p->bias_table.buckets - 1) / 2;
    }
    if (!p->outputs.topk && (c->place[TENSOR(topk_index)] || c->place[TENSOR(topk_weight)])) {
        const int64_t index = size_at(c, TENSOR(topk_index), 3), weight = size_at(c, TENSOR(topk_weight), 3);
        p->outputs.topk = index ? index : weight;
    }
    if (is_paged(c)) {
        p->paging.pages = size_at(c, TENSOR(k), 0);
        p->paging.page_size = size_at(c, TENSOR(k), 2);
        if (c->place[TENSOR(page_index)]) p->paging.page_entries = size_at(c, TENSOR(page_index), 0);
    }
    if (!c->align_given && !c->place[TENSOR(offset_q)] && !c->more.origin) p->mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
}

int sizes_make(call *c)
{
    attn_shape *shape = &c->problem.shape;
    if (c->layout != LAYOUT_THD && ranks(c)) return -1;
    choices(c);
    shape->heads_q = size_at(c, TENSOR(q), 1);
    shape->dim_qk = size_at(c, TENSOR(q), 3);
    shape->heads_kv = size_at(c, TENSOR(k), 1);
    shape->dim_v = size_at(c, TENSOR(v), 3);
    if (c->layout == LAYOUT_THD) return 0;
    if (c->place[TENSOR(cu_seqlens_q)] || c->place[TENSOR(cu_seqlens_kv)]) {
        PyErr_SetString(PyExc_ValueError, "cu_seqlens_q and cu_seqlens_kv need the layout thd, [tokens, heads, dim]");
        return -1;
    }
    shape->batch = size_at(c, TENSOR(q), 0);
    shape->len_q = size_at(c, TENSOR(q), 2);
    return keys_of_entry(c, &shape->len_kv);
}

static int64_t axis_size(const call *c, const tensor_row *row, attn_axis axis)
{
    const attn_problem *p = &c->problem;
    const int thd = axes_layout_of(c, row) == LAYOUT_THD && row->rule <= AXES_ROWS_ONE;
    switch (axis) {
    case ATTN_AXIS_BATCH:
        return p->shape.batch;
    case ATTN_AXIS_HEAD_Q:
        return p->shape.heads_q;
    case ATTN_AXIS_HEAD_KV:
        return p->shape.heads_kv;
    case ATTN_AXIS_QUERY:
        return thd ? c->tokens_q : p->shape.len_q;
    case ATTN_AXIS_KEY:
        return thd ? c->tokens_kv : p->shape.len_kv;
    case ATTN_AXIS_DIM_QK:
        return p->shape.dim_qk;
    case ATTN_AXIS_DIM_V:
        return p->shape.dim_v;
    case ATTN_AXIS_TOPK:
        return p->outputs.topk;
    default:
        return 1;
    }
}

int sizes_of_output(call *c, view *v)
{
    const tensor_row *row = &c->state->rows_of[v->number];
    const view *like = row->about.gradient_of < 0 ? NULL : find(c, row->about.gradient_of);
    int axes[4];
    int64_t step = 1;
    if (like) {
        v->ndim = like->ndim;
        memcpy(v->shape, like->shape, sizeof v->shape);
    } else {
        const axes_layout layout = axes_layout_of(c, row);
        const int most = axes_max(row, layout), short_of = c->layout == LAYOUT_THD || row->rule == AXES_OTHER ? 0 : 4 - c->rank;
        v->ndim = most - short_of;
        axes_of(row, layout, v->ndim, axes);
        for (int i = 0; i < v->ndim; i++) v->shape[i] = axis_size(c, row, row->about.axes[axes[i]]);
        for (int i = 0; v->number == TENSOR(column_sum) && i < v->ndim; i++)
            if (axes[i] == 1 && c->problem.outputs.column_heads)
                v->shape[i] = c->problem.outputs.column_heads == ATTN_COLUMNS_ALL ? 1 : c->problem.shape.heads_kv;
    }
    for (int i = v->ndim - 1; i >= 0; i--) {
        v->stride[i] = step;
        if (!__builtin_mul_overflow(step, v->shape[i] > 1 ? v->shape[i] : 1, &step)) continue;
        PyErr_Format(PyExc_ValueError, "%s has too many elements", tensor_name(c, v->number));
        return -1;
    }
    return 0;
}
