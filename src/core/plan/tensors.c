/* SPDX-License-Identifier: MIT
 * tensors.c - the table of tensors.  A new tensor is a line in tensor_table and nothing else here. */
#include "tensors.h"

#include <inttypes.h>
#include <stdlib.h>

#include "../base/checked.h"
#include "../base/error.h"
#include "../base/names.h"
#include "../sched/walk.h"
#include "plan.h"

enum role { INPUT, OUTPUT };

/* Sets of storage types. */
enum {
    INDICES = 1u << ATTN_I32 | 1u << ATTN_I64,
    HALVES = 1u << ATTN_F16 | 1u << ATTN_BF16,
    FLOATS = HALVES | 1u << ATTN_F32 | 1u << ATTN_F64,
    BYTES = 1u << ATTN_BOOL | 1u << ATTN_U8
};

typedef attn_tensor_row tensor;

enum { TENSORS = 80 };

/* Packed: tokens of all sequences, once the call says how many; else, and while planning, those of a sequence. */
static int64_t tokens_in_all(const attn_problem *p, const void *starts, int64_t of_sequence)
{
    if (!p->mask.packed || !starts || (uintptr_t)starts % attn_dtype_bytes(p->mask.index_dtype) != 0) return of_sequence;
    return attn_index_at(starts, p->mask.index_dtype, p->shape.batch);
}

/* The tensors of problem p; args may be NULL while planning.  q comes first: the others' types follow from it. */
static int tensor_table(attn_problem *p, const attn_args *args, tensor *out)
{
    static const attn_args none;
    const attn_args *a = args ? args : &none;
    const attn_shape *s = &p->shape;
    attn_dtype stored = p->q.dtype ? p->q.dtype : ATTN_F32;
    attn_dtype compute = stored == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    unsigned same = stored == ATTN_F64 ? 1u << ATTN_F64 : HALVES | 1u << ATTN_F32;
    const char *same_text = stored == ATTN_F64 ? "f64, as q is f64" : "f32, f16 or bf16, as q is not f64";
    unsigned keys = stored == ATTN_F64 ? same : same | 1u << ATTN_I8;
    const char *keys_text = stored == ATTN_F64 ? same_text : "f32, f16, bf16 or i8, as q is not f64";
    const char *compute_text = stored == ATTN_F64 ? "f64, the compute type" : "f32, the compute type";
    const char *bytes_text = "bool or u8";
    const char *floats_text = "f32, f64, f16 or bf16", *indices_text = "i32 or i64";
    const attn_want *want = &p->want;
    attn_dtype index = p->mask.index_dtype;
    attn_dtype bias = p->bias.bias.dtype ? p->bias.bias.dtype : compute, w = p->score.w.dtype ? p->score.w.dtype : compute;
    int backward = p->op == ATTN_BACKWARD, jvp = p->op == ATTN_JVP, second = p->op == ATTN_DOUBLE_BACKWARD;
    const int forward_role = p->op == ATTN_FORWARD ? OUTPUT : INPUT; /* o and lse */
    const attn_tangents *tan = &p->tangents;
    int64_t B = p->mask.packed ? 1 : s->batch, Hq = s->heads_q, Hkv = s->heads_kv, Sq = s->len_q, Skv = s->len_kv;
    int64_t Tq = tokens_in_all(p, a->cu_seqlens_q, Sq), Tkv = tokens_in_all(p, a->cu_seqlens_kv, Skv);
    int64_t kv_b = p->paging.paged ? p->paging.pages : B, kv_t = p->paging.paged ? p->paging.page_size : Tkv;
    int64_t page_entries = 0;
    if (p->paging.paged && !attn_mul(s->batch, p->paging.table_stride, &page_entries)) page_entries = INT64_MAX;
    int64_t entries = s->batch + 1, slopes_b = p->bias.alibi == ATTN_ALIBI_BATCH_HEAD ? s->batch : 1;
    int blocks = p->mask.block || p->mask.block_lists;
    int64_t nbq = blocks ? attn_ceil_div(Sq, p->mask.block_q) : 0, nbk = blocks ? attn_ceil_div(Skv, p->mask.block_kv) : 0;
    const int64_t *bs = p->bias.bias.stride;
    int64_t dim_k = attn_problem_dim_k(p), w_heads = p->score.w_heads ? Hq : 1, w_shape[2];
    attn_problem_w_shape(p, w_shape);
    const attn_relative *r = &p->relative;
    const int of_relative = p->gradients.relative;
    int64_t r_tables = r->shared ? 1 : Hq, r_numbers;
    if (!attn_mul(Hq, s->dim_qk, &r_numbers)) r_numbers = INT64_MAX;
    int64_t tables = p->bias_table.shared ? 1 : Hq;
    attn_dtype of_table = p->bias_table.table.dtype ? p->bias_table.table.dtype : compute;
    int dense_bias = !(bs[0] || bs[1] || bs[2] || bs[3]); /* the gradient of a bias has size 1 where the bias broadcasts */
    int64_t gb[4] = {s->batch, Hq, Sq, Skv};
    for (int axis = 0; axis < 4; axis++)
        if (!dense_bias && (bs[axis] == 0 || bs[axis] == ATTN_BROADCAST)) gb[axis] = 1;

/* clang-format off */
#define LAYOUT(used, role, name, field, b, h, t, c, natural, types, text, last) \
    {#name, role, used, &p->field, {b, h, t, c}, natural, types, text, last, 0, a->name}
#define TOKENS(used, role, name, field, h, t, c, natural, types, text, last) \
    {#name, role, used, &p->field, {B, h, t, c}, natural, types, text, last, p->mask.packed, a->name}
#define KEYS(name, dim) \
    {#name, INPUT, 1, &p->name, {kv_b, Hkv, kv_t, dim}, stored, keys, keys_text, 1, p->mask.packed, a->name}
#define SCALES(name, of) \
    {#name, INPUT, p->of.dtype == ATTN_I8, &p->quantised.name, {kv_b, Hkv, kv_t, 1}, ATTN_F32, 1u << ATTN_F32, "f32", 0, \
     p->mask.packed, a->name}
#define ARRAY(used, role, name, n, dtype) {#name, role, used, NULL, {n, 1, 1, 1}, dtype, 0, "", 0, 0, a->name}
    /* clang-format on */
    const tensor table[] = {
        TOKENS(1, INPUT, q, q, Hq, Tq, s->dim_qk, ATTN_F32, FLOATS, floats_text, 1),
        KEYS(k, dim_k),
        KEYS(v, s->dim_v),
        SCALES(k_scale, k),
        SCALES(v_scale, v),
        TOKENS(1, forward_role, o, o, Hq, Tq, s->dim_v, stored, same, same_text, 1),
        LAYOUT(p->mask.boolean, INPUT, mask, mask.mask, s->batch, Hq, Sq, Skv, ATTN_BOOL, BYTES, bytes_text, 0),
        LAYOUT(p->mask.block, INPUT, blocks, mask.blocks, s->batch, Hq, nbq, nbk, ATTN_BOOL, BYTES, bytes_text, 0),
        LAYOUT(p->dropout.given, INPUT, dropout_given, dropout.given_layout, s->batch, Hq, Sq, Skv, ATTN_BOOL, BYTES, bytes_text,
               0),
        LAYOUT(p->mask.ranges, INPUT, ranges, mask.ranges_layout, s->batch, Hq, Sq, 2, ATTN_I64, INDICES, indices_text, 0),
        LAYOUT(p->bias.additive, INPUT, bias, bias.bias, s->batch, Hq, Sq, Skv, compute, FLOATS, floats_text, 0),
        TOKENS(p->want.lse, forward_role, lse, want.lse_layout, Hq, Tq, 1, compute, 1u << compute, compute_text, 0),
        LAYOUT(p->want.weights, OUTPUT, weights, want.weights_layout, s->batch, Hq, Sq, Skv, compute, same, same_text, 1),
        LAYOUT(want->scores, OUTPUT, scores, want.scores_layout, s->batch, Hq, Sq, Skv, compute, same, same_text, 1),
        LAYOUT(want->dropout_keep, OUTPUT, dropout_keep, want.dropout_keep_layout, s->batch, Hq, Sq, Skv, ATTN_BOOL, BYTES,
               bytes_text, 1),
        TOKENS(want->row_max, OUTPUT, row_max, want.row_max_layout, Hq, Tq, 1, compute, 1u << compute, compute_text, 0),
        TOKENS(want->entropy, OUTPUT, entropy, want.entropy_layout, Hq, Tq, 1, compute, 1u << compute, compute_text, 0),
        TOKENS(want->effective_keys, OUTPUT, effective_keys, want.effective_keys_layout, Hq, Tq, 1, compute, 1u << compute,
               compute_text, 0),
        TOKENS(want->column_sum, OUTPUT, column_sum, want.column_sum_layout, attn_column_heads(p), Tkv, 1, compute, 1u << compute,
               compute_text, 0),
        TOKENS(want->topk > 0, OUTPUT, topk_index, want.topk_index_layout, Hq, Tq, want->topk, ATTN_I64, INDICES, indices_text, 1),
        TOKENS(want->topk > 0, OUTPUT, topk_weight, want.topk_weight_layout, Hq, Tq, want->topk, compute, 1u << compute,
               compute_text, 1),
        TOKENS(backward || second, INPUT, grad_o, gradients.grad_o, Hq, Tq, s->dim_v, stored, same, same_text, 1),
        TOKENS(backward, OUTPUT, grad_q, gradients.grad_q, Hq, Tq, s->dim_qk, stored, same, same_text, 1),
        TOKENS(backward, OUTPUT, grad_k, gradients.grad_k, Hkv, Tkv, dim_k, stored, same, same_text, 1),
        TOKENS(backward, OUTPUT, grad_v, gradients.grad_v, Hkv, Tkv, s->dim_v, stored, same, same_text, 1),
        LAYOUT(p->gradients.bias, OUTPUT, grad_bias, gradients.grad_bias, gb[0], gb[1], gb[2], gb[3], bias, FLOATS, floats_text, 1),
        TOKENS(p->gradients.lse, INPUT, grad_lse, want.lse_layout, Hq, Tq, 1, compute, 1u << compute, compute_text, 0),
        TOKENS(tan->q, INPUT, tan_q, tangents.tan_q, Hq, Tq, s->dim_qk, stored, same, same_text, 1),
        TOKENS(tan->k, INPUT, tan_k, tangents.tan_k, Hkv, Tkv, s->dim_qk, stored, same, same_text, 1),
        TOKENS(tan->v, INPUT, tan_v, tangents.tan_v, Hkv, Tkv, s->dim_v, stored, same, same_text, 1),
        LAYOUT(tan->bias, INPUT, tan_bias, tangents.tan_bias, s->batch, Hq, Sq, Skv, bias, FLOATS, floats_text, 0),
        TOKENS(jvp, OUTPUT, tan_o, tangents.tan_o, Hq, Tq, s->dim_v, stored, same, same_text, 1),
        TOKENS(tan->lse, OUTPUT, tan_lse, want.lse_layout, Hq, Tq, 1, compute, 1u << compute, compute_text, 0),
        TOKENS(second, OUTPUT, second_grad_o, second.second_grad_o, Hq, Tq, s->dim_v, stored, same, same_text, 1),
        TOKENS(second, OUTPUT, second_q, second.second_q, Hq, Tq, s->dim_qk, stored, same, same_text, 1),
        TOKENS(second, OUTPUT, second_k, second.second_k, Hkv, Tkv, s->dim_qk, stored, same, same_text, 1),
        TOKENS(second, OUTPUT, second_v, second.second_v, Hkv, Tkv, s->dim_v, stored, same, same_text, 1),
        LAYOUT(p->second.bias, OUTPUT, second_bias, second.second_bias, gb[0], gb[1], gb[2], gb[3], bias, FLOATS, floats_text, 1),
        TOKENS(p->second.grad_lse, OUTPUT, second_grad_lse, want.lse_layout, Hq, Tq, 1, compute, 1u << compute, compute_text, 0),
        ARRAY(p->mask.lengths_q, INPUT, lengths_q, s->batch, index),
        ARRAY(p->mask.lengths_kv, INPUT, lengths_kv, s->batch, index),
        ARRAY(p->mask.align == ATTN_ALIGN_OFFSET, INPUT, offset, s->batch, index),
        ARRAY(p->mask.packed, INPUT, cu_seqlens_q, entries, index),
        ARRAY(p->mask.packed, INPUT, cu_seqlens_kv, entries, index),
        ARRAY(p->mask.block_lists, INPUT, block_rows, nbq + 1, index),
        ARRAY(p->mask.block_lists, INPUT, block_columns, p->mask.block_entries, index),
        ARRAY(p->paging.paged, INPUT, page_table, page_entries, index),
        LAYOUT(attn_problem_has_w(p), INPUT, w, score.w, 1, w_heads, w_shape[0], w_shape[1], compute, FLOATS, floats_text, 0),
        LAYOUT(p->gradients.w, OUTPUT, grad_w, gradients.grad_w, 1, w_heads, w_shape[0], w_shape[1], w, FLOATS, floats_text, 1),
        LAYOUT(p->bias_table.used, INPUT, bias_table, bias_table.table, 1, tables, p->bias_table.buckets, 1, compute, FLOATS,
               floats_text, 0),
        LAYOUT(p->gradients.bias_table, OUTPUT, grad_bias_table, gradients.grad_bias_table, 1, tables, p->bias_table.buckets, 1,
               of_table, FLOATS, floats_text, 0),
        LAYOUT(r->keys, INPUT, relative_keys, relative.keys_table, 1, r_tables, r->rows, s->dim_qk, compute, FLOATS, floats_text,
               1),
        LAYOUT(r->values, INPUT, relative_values, relative.values_table, 1, r_tables, r->rows, s->dim_v, compute, FLOATS,
               floats_text, 1),
        LAYOUT(r->keys && of_relative, OUTPUT, grad_relative_keys, gradients.grad_relative_keys, 1, r_tables, r->rows, s->dim_qk,
               r->keys_table.dtype ? r->keys_table.dtype : compute, FLOATS, floats_text, 1),
        LAYOUT(r->values && of_relative, OUTPUT, grad_relative_values, gradients.grad_relative_values, 1, r_tables, r->rows,
               s->dim_v, r->values_table.dtype ? r->values_table.dtype : compute, FLOATS, floats_text, 1),
        ARRAY(r->u, INPUT, relative_u, r_numbers, compute),
        ARRAY(r->v, INPUT, relative_v, r_numbers, compute),
        ARRAY(r->u && of_relative, OUTPUT, grad_relative_u, r_numbers, compute),
        ARRAY(r->v && of_relative, OUTPUT, grad_relative_v, r_numbers, compute),
        ARRAY(p->score.scale_kind == ATTN_SCALE_PER_HEAD, INPUT, scale, Hq, compute),
        ARRAY(p->bias.alibi != ATTN_ALIBI_NONE, INPUT, slopes, slopes_b * Hq, compute),
        ARRAY(p->bias.sink, INPUT, sink, Hq, compute),
        ARRAY(p->gradients.slopes, OUTPUT, grad_slopes, slopes_b * Hq, compute),
        ARRAY(p->gradients.sink, OUTPUT, grad_sink, Hq, compute),
        ARRAY(p->gradients.scale, OUTPUT, grad_scale, Hq, compute),
    };
#undef LAYOUT
#undef TOKENS
#undef KEYS
#undef SCALES
#undef ARRAY
    int count = 0;
    _Static_assert(sizeof table / sizeof *table <= TENSORS, "raise TENSORS");
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].used) out[count++] = table[i];
    return count;
}

static int has_elements(const tensor *t)
{
    for (int axis = 0; axis < 4; axis++)
        if (t->shape[axis] == 0) return 0;
    return 1;
}

static attn_status resolve_dtype(tensor *t, attn_error *error)
{
    attn_dtype dtype = t->layout->dtype;
    if (dtype == ATTN_DTYPE_DEFAULT) {
        t->layout->dtype = t->natural;
        return ATTN_OK;
    }
    CHECK(dtype >= ATTN_F32 && dtype <= ATTN_U64, ATTN_ERR_ARGUMENT, "%s.dtype is %d; it is no type", t->name, (int)dtype);
    CHECK(t->types >> dtype & 1, ATTN_ERR_UNSUPPORTED, "%s.dtype is %s; it must be %s", t->name, attn_dtype_text(dtype),
          t->types_text);
    return ATTN_OK;
}

static attn_status resolve_strides(tensor *t, attn_error *error)
{
    int64_t *stride = t->layout->stride, dense = 1;
    int implied = stride[0] == 0 && stride[1] == 0 && stride[2] == 0 && stride[3] == 0;
    for (int axis = 3; axis >= 0; axis--) {
        if (implied) stride[axis] = dense;
        if (stride[axis] == ATTN_BROADCAST) stride[axis] = 0;
        CHECK(attn_mul(dense, t->shape[axis], &dense), ATTN_ERR_SHAPE,
              "%s has the shape [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "]: more elements than 64 bits count", t->name,
              t->shape[0], t->shape[1], t->shape[2], t->shape[3]);
    }
    if (implied && t->packed) {
        stride[0] = 0;
        stride[1] = t->shape[3];
        CHECK(attn_mul(t->shape[1], t->shape[3], &stride[2]), ATTN_ERR_SHAPE, "%s has rows of more elements than 64 bits count",
              t->name);
    }
    if (t->last_contiguous) {
        CHECK(stride[3] == 1 || t->shape[3] <= 1, ATTN_ERR_STRIDE,
              "%s.stride[3] is %" PRId64 "; the last axis must be contiguous (1)", t->name, stride[3]);
        stride[3] = 1;
    }
    return ATTN_OK;
}

/* From the first to the last element is at most what a pointer difference holds. */
static attn_status check_extent(const tensor *t, attn_error *error)
{
    int64_t span = 0, step, size = (int64_t)attn_dtype_bytes(t->layout->dtype);
    if (!has_elements(t)) return ATTN_OK;
    for (int axis = 0; axis < 4; axis++) {
        int64_t stride = t->layout->stride[axis];
        int fits = stride > -INT64_MAX && attn_mul(t->shape[axis] - 1, stride < 0 ? -stride : stride, &step) &&
                   attn_add(span, step, &span);
        CHECK(fits && span <= INT64_MAX / size - 1, ATTN_ERR_SHAPE,
              "%s.stride[%d] (%" PRId64 ") times its size (%" PRId64 ") overflows 64-bit addresses", t->name, axis, stride,
              t->shape[axis]);
    }
    return ATTN_OK;
}

/* No two elements of an output share an address: taken by falling stride, each axis steps over all that the smaller ones span. */
static attn_status check_self_overlap(const tensor *t, attn_error *error)
{
    int order[4] = {0, 1, 2, 3};
    int64_t span = 0;
    if (!t->output || !has_elements(t)) return ATTN_OK;
    for (int i = 1; i < 4; i++)
        for (int k = i; k > 0 && llabs(t->layout->stride[order[k]]) < llabs(t->layout->stride[order[k - 1]]); k--) {
            int swap = order[k];
            order[k] = order[k - 1];
            order[k - 1] = swap;
        }
    for (int i = 0; i < 4; i++) {
        int axis = order[i];
        int64_t stride = llabs(t->layout->stride[axis]);
        if (t->shape[axis] <= 1) continue;
        CHECK(stride > span, ATTN_ERR_STRIDE,
              "%s overlaps itself: stride[%d] is %" PRId64 " and the axes with smaller strides span %" PRId64 " elements", t->name,
              axis, t->layout->stride[axis], span + 1);
        span += (t->shape[axis] - 1) * stride;
    }
    return ATTN_OK;
}

attn_status attn_tensor_list_resolve(attn_tensor_row *tensors, int count, attn_error *error)
{
    for (int i = 0; i < count; i++) {
        tensor *t = &tensors[i];
        if (!t->layout) continue;
        TRY(resolve_dtype(t, error));
        TRY(resolve_strides(t, error));
        TRY(check_extent(t, error));
        if (!t->packed) TRY(check_self_overlap(t, error));
    }
    return ATTN_OK;
}

attn_status attn_tensors_check_packed(const attn_problem *problem, const attn_args *args, attn_error *error)
{
    tensor tensors[TENSORS];
    attn_problem copy = *problem; /* the table points into it */
    int count = tensor_table(&copy, args, tensors);
    for (int i = 0; i < count; i++) {
        if (!tensors[i].packed) continue;
        TRY(check_extent(&tensors[i], error));
        TRY(check_self_overlap(&tensors[i], error));
    }
    return ATTN_OK;
}

attn_status attn_tensors_resolve(attn_problem *problem, attn_error *error)
{
    tensor tensors[TENSORS];
    if (problem->mask.index_dtype == ATTN_DTYPE_DEFAULT) problem->mask.index_dtype = ATTN_I64;
    return attn_tensor_list_resolve(tensors, tensor_table(problem, NULL, tensors), error);
}

/* No pointer of a table is NULL or badly aligned, and no output is the same pointer as another tensor. */
static attn_status check_list(const attn_tensor_row *tensors, int count, attn_error *error)
{
    for (int i = 0; i < count; i++) {
        const tensor *t = &tensors[i];
        if (!has_elements(t)) continue;
        CHECK(t->pointer, ATTN_ERR_ARGUMENT, "args.%s is NULL", t->name);
        size_t size = t->layout ? attn_dtype_bytes(t->layout->dtype) : attn_dtype_bytes(t->natural);
        CHECK((uintptr_t)t->pointer % size == 0, ATTN_ERR_ARGUMENT, "args.%s is not aligned to its elements of %zu bytes", t->name,
              size);
        for (int k = 0; k < count; k++)
            CHECK(k == i || !t->output || tensors[k].pointer != t->pointer || !has_elements(&tensors[k]), ATTN_ERR_ARGUMENT,
                  "args.%s and args.%s are the same pointer; outputs overlap nothing", t->name, tensors[k].name);
    }
    return ATTN_OK;
}

attn_status attn_tensors_check_pointers(const attn_problem *problem, const attn_args *args, attn_error *error)
{
    tensor tensors[TENSORS];
    attn_problem copy = *problem; /* the table points into it */
    return check_list(tensors, tensor_table(&copy, args, tensors), error);
}
