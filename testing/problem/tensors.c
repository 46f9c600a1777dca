/* SPDX-License-Identifier: MIT
 *
 * tensors.c - the library's table of tensors: names, shapes, strides and types. */
#include "tensors.h"

#include <stdio.h>
#include <string.h>

#include "problem.h"
#include "testing/memory/element.h"
#include "testing/memory/format.h"

/* ---- the table ---- */

const attn_tensor_description *tensors_about(int t)
{
    static attn_tensor_description table[TENSORS];
    if (!table[t].name) {
        table[t].struct_size = sizeof table[t];
        (void)attn_tensor_describe(ATTN_FAMILY_ATTENTION, t, &table[t], NULL);
    }
    return &table[t];
}

int tensors_find(const char *name)
{
    for (int t = 0; t < TENSORS; t++)
        if (strcmp(name, tensors_about(t)->name) == 0) return t;
    return -1;
}

/* Exceptions; others have the name of their slot or, with d for grad_, the file name of the tensor they are the gradient of. */
static const struct {
    int t;
    const char *name;
} in_files[] = {{TENSOR(alibi_slopes), "slopes"},
                {TENSOR(offset_q), "offset"},
                {TENSOR(score_matrix), "w"},
                {TENSOR(block_mask), "blocks"},
                {TENSOR(dropout_given), "dropout_keep"}};

const char *tensors_file_name(int t)
{
    static char made[TENSORS][32];
    const attn_tensor_description *d = tensors_about(t);
    const char *grad = strstr(d->name, "grad_");
    for (size_t k = 0; k < sizeof in_files / sizeof *in_files; k++)
        if (in_files[k].t == t) return in_files[k].name;
    if (!grad) return d->name;
    if (!made[t][0]) {
        const int primal = tensors_find(grad + strlen("grad_"));
        snprintf(made[t], sizeof made[t], "%.*sd%s", (int)(grad - d->name), d->name, tensors_file_name(primal));
    }
    return made[t];
}

attn_output *tensors_slot(attn_tensors *all, int t) { return (attn_output *)(void *)&all->q + t; }
const attn_output *tensors_at(const attn_tensors *all, int t) { return (const attn_output *)(const void *)&all->q + t; }
int tensors_has(const attn_tensors *all, int t) { return tensors_at(all, t)->data != NULL; }
void tensors_request(attn_tensors *all, int t) { tensors_slot(all, t)->data = ATTN_LATER; }

attn_tensors tensors_needed(attn_op op)
{
    attn_tensors all = {.struct_size = sizeof all};
    for (int t = 0; t < TENSORS; t++)
        if (tensors_about(t)->need[op] == ATTN_NEED_ALWAYS) tensors_request(&all, t);
    if (op == ATTN_DOUBLE_BACKWARD) tensors_request(&all, TENSOR(second_grad_o)); /* without tan_o */
    return all;
}

int tensors_writes(const attn_tensors *all, attn_op op, int t)
{
    return tensors_has(all, t) && tensors_about(t)->role[op] == ATTN_ROLE_OUTPUT;
}

int tensors_reads(const attn_tensors *all, attn_op op, int t)
{
    const attn_role *role = tensors_about(t)->role;
    return tensors_has(all, t) && role[op] == ATTN_ROLE_INPUT && role[ATTN_FORWARD] != ATTN_ROLE_OUTPUT;
}

attn_tensors tensors_of_op(const attn_tensors *all, attn_op op)
{
    attn_tensors some = *all;
    for (int t = 0; t < TENSORS; t++)
        if (tensors_about(t)->role[op] == ATTN_ROLE_NONE) *tensors_slot(&some, t) = (attn_output){0};
    return some;
}

attn_problem tensors_forward(const attn_problem *beyond, const attn_tensors *all, attn_tensors *of_forward)
{
    attn_problem forward = *beyond;
    forward.op = ATTN_FORWARD;
    *of_forward = tensors_of_op(all, ATTN_FORWARD);
    if (!of_forward->lse.data) tensors_request(of_forward, TENSOR(lse));
    return forward;
}

/* ---- types ---- */

attn_dtype tensors_compute(const attn_tensors *all) { return all->q.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32; }

attn_dtype tensors_dtype(const attn_tensors *all, int t)
{
    const attn_tensor_description *d = tensors_about(t);
    const attn_dtype given = tensors_at(all, t)->dtype;
    if (given) return given;
    if (!(d->types & ~(1u << ATTN_I32 | 1u << ATTN_I64))) return ATTN_I64;
    if (!(d->types & ~(1u << ATTN_BOOL | 1u << ATTN_U8))) return ATTN_BOOL;
    if (!(d->types & ~(1u << ATTN_I64 | 1u << ATTN_U64))) return ATTN_U64;
    if (d->types == 1u << ATTN_F16) return ATTN_F16;
    if (d->types == 1u << ATTN_F32 || t == TENSOR(q)) return ATTN_F32;
    if (tensors_packs(t) && d->axes[3] >= ATTN_AXIS_DIM_QK && d->axes[3] <= ATTN_AXIS_DIM_V) return tensors_dtype(all, TENSOR(q));
    return d->gradient_of >= 0 ? tensors_dtype(all, d->gradient_of) : tensors_compute(all);
}

/* ---- shapes ---- */

int tensors_packs(int t)
{
    const attn_tensor_description *d = tensors_about(t);
    return (d->axes[2] == ATTN_AXIS_QUERY || d->axes[2] == ATTN_AXIS_KEY) && d->axes[3] != ATTN_AXIS_KEY &&
           d->axes[3] != ATTN_AXIS_LIST;
}

int tensors_are_packed(const attn_tensors *all, int t)
{
    return tensors_packs(t) && (tensors_of_keys(t) ? all->cu_seqlens_kv : all->cu_seqlens_q).data;
}

int tensors_in_pages(int t) { return t == TENSOR(k) || t == TENSOR(v) || t == TENSOR(k_scale) || t == TENSOR(v_scale); }

int tensors_of_keys(int t) { return tensors_about(t)->axes[2] == ATTN_AXIS_KEY; }

/* The length of a list. */
static int64_t length_of_list(const attn_problem *p, int t)
{
    if (t == TENSOR(cu_seqlens_q) || t == TENSOR(cu_seqlens_kv)) return p->shape.batch + 1;
    if (t == TENSOR(block_starts))
        return problem_blocks(p->shape.len_q, p->mask.block_q) * (p->mask.block_heads ? p->shape.batch * p->shape.heads_kv : 1) + 1;
    if (t == TENSOR(block_index)) return p->mask.block_entries;
    if (t == TENSOR(page_starts)) return p->shape.batch + 1;
    if (t == TENSOR(page_index)) return p->paging.page_entries;
    if (t == TENSOR(k_tail)) return ATTN_TAIL;
    return t == TENSOR(ranges) ? 2 : 0;
}

int64_t tensors_axis(const attn_shape *s, attn_axis axis)
{
    switch (axis) {
    case ATTN_AXIS_BATCH:
        return s->batch;
    case ATTN_AXIS_HEAD_Q:
        return s->heads_q;
    case ATTN_AXIS_HEAD_KV:
        return s->heads_kv;
    case ATTN_AXIS_QUERY:
        return s->len_q;
    case ATTN_AXIS_KEY:
        return s->len_kv;
    case ATTN_AXIS_DIM_QK:
        return s->dim_qk;
    case ATTN_AXIS_DIM_V:
        return s->dim_v;
    default:
        return 1;
    }
}

static int64_t size_of_axis(const attn_problem *p, int t, attn_axis axis)
{
    const attn_shape *s = &p->shape;
    switch (axis) {
    case ATTN_AXIS_DIM_K:
        return problem_dim_k(p);
    case ATTN_AXIS_BLOCK_Q:
        return problem_blocks(s->len_q, p->mask.block_q);
    case ATTN_AXIS_BLOCK_KV:
        return problem_blocks(s->len_kv, p->mask.block_kv);
    case ATTN_AXIS_PAGE:
        return problem_blocks(s->len_kv, p->paging.page_size);
    case ATTN_AXIS_BUCKET:
        return problem_buckets(&p->bias_table);
    case ATTN_AXIS_DISTANCE:
        return p->relative.rows;
    case ATTN_AXIS_TOPK:
        return p->outputs.topk;
    case ATTN_AXIS_LIST:
        return length_of_list(p, t);
    case ATTN_AXIS_WORD:
        return problem_blocks(p->mask.tree_keys, 64);
    default:
        return tensors_axis(s, axis);
    }
}

void tensors_shape(const attn_problem *p, const attn_tensors *all, int t, int64_t shape[4])
{
    const attn_tensor_description *d = tensors_about(t);
    const int primal = d->gradient_of, reduced = primal >= 0 && d->role[p->op] == ATTN_ROLE_OUTPUT && !tensors_packs(primal);
    for (int axis = 0; axis < 4; axis++) shape[axis] = size_of_axis(p, t, d->axes[axis]);
    if (p->paging.page_size && tensors_in_pages(t)) shape[0] = p->paging.pages, shape[2] = p->paging.page_size;
    if (t == TENSOR(score_matrix) || primal == TENSOR(score_matrix)) problem_matrix_size(p, shape + 2);
    if (t == TENSOR(column_sum) && p->outputs.column_heads)
        shape[1] = p->outputs.column_heads == ATTN_COLUMNS_GROUP ? p->shape.heads_kv : 1;
    for (int axis = 0; axis < 4 && reduced; axis++)
        if (tensors_broadcasts(all, primal, axis)) shape[axis] = 1;
}

int tensors_broadcasts(const attn_tensors *all, int t, int axis)
{
    const int64_t *stride = tensors_at(all, t)->stride;
    const int dense = !stride[0] && !stride[1] && !stride[2] && !stride[3];
    if (dense) return (t == TENSOR(alibi_slopes) && axis == 0) || (t == TENSOR(score_matrix) && axis == 1);
    return stride[axis] == ATTN_BROADCAST || stride[axis] == 0;
}

void tensors_elements(const attn_problem *p, const attn_tensors *all, int t, int64_t shape[4])
{
    tensors_shape(p, all, t, shape);
    shape[3] = format_elements(tensors_dtype(all, t), shape[3]);
}

void tensors_extent(const attn_problem *problem, const attn_tensors *all, int t, int64_t shape[4])
{
    tensors_elements(problem, all, t, shape);
    for (int axis = 0; axis < 4; axis++)
        if (tensors_broadcasts(all, t, axis) && shape[axis] > 1) shape[axis] = 1;
}

void tensors_strides(const attn_problem *problem, const attn_tensors *all, int t, int64_t stride[4])
{
    const int64_t *given = tensors_at(all, t)->stride;
    const int dense = !given[0] && !given[1] && !given[2] && !given[3], packed = tensors_are_packed(all, t);
    int64_t shape[4], step = 1;
    tensors_elements(problem, all, t, shape);
    for (int axis = 3; axis >= 0; axis--) {
        const int one = tensors_broadcasts(all, t, axis);
        stride[axis] = one ? 0 : dense ? step : given[axis];
        step *= one ? 1 : shape[axis];
    }
    if (dense && packed) stride[0] = 0, stride[1] = shape[3], stride[2] = shape[1] * shape[3], stride[3] = 1;
}

int tensors_lay(attn_output *slot, const int64_t shape[4], const int order[4], int one)
{
    int64_t step = 1;
    for (int k = 3; k >= 0; k--) {
        const int axis = order[k], broadcast = one >> axis & 1;
        slot->stride[axis] = broadcast ? ATTN_BROADCAST : step;
        if (!broadcast && __builtin_mul_overflow(step, shape[axis] > 0 ? shape[axis] : 1, &step)) return 0;
    }
    return 1;
}

/* ---- elements ---- */

/* Keys that an entry has: where its last group, which is in k_tail, begins depends on them. */
static int64_t keys_of(const attn_problem *problem, const attn_tensors *all, int64_t b)
{
    const attn_dtype dtype = tensors_dtype(all, TENSOR(lengths_kv));
    const char *lengths = all->lengths_kv.data;
    return lengths ? (int64_t)element_read(dtype, lengths + (size_t)b * attn_dtype_size(dtype)) : problem->shape.len_kv;
}

/* Keys of q4_1c: of each group of ATTN_BLOCK keys, the block of a channel has one number of each key. */
static void read_by_channel(const attn_problem *problem, const attn_tensors *all, const int64_t shape[4], double *to)
{
    const char *rows = all->k.data, *tail = all->k_tail.data;
    const int64_t size = (int64_t)attn_dtype_size(ATTN_Q4_1C), dim = shape[3];
    int64_t s[4], of_tail[4], key;
    tensors_strides(problem, all, TENSOR(k), s), tensors_strides(problem, all, TENSOR(k_tail), of_tail);
    for (int64_t b = 0; b < shape[0]; b++) {
        const int64_t keys = keys_of(problem, all, b), exact = keys - keys % ATTN_BLOCK;
        for (int64_t h = 0; h < shape[1]; h++)
            for (int64_t j = 0; j < shape[2]; j++)
                for (int64_t c = 0; c < dim; c++) {
                    const int64_t block = format_channel(dim, c, &key), row = j - j % ATTN_BLOCK + key;
                    const int64_t at = b * s[0] + h * s[1] + row * s[2] + block * s[3];
                    const int64_t last = b * of_tail[0] + h * of_tail[1] + j % ATTN_TAIL * of_tail[2] + c * of_tail[3];
                    *to++ = j >= keys    ? 0
                            : j >= exact ? element_read(ATTN_F16, tail + last * 2)
                                         : format_get(rows + at * size, ATTN_Q4_1C, j % ATTN_BLOCK);
                }
    }
}

void tensors_read(const attn_problem *problem, const attn_tensors *all, int t, const int64_t shape[4], const int64_t *begin,
                  double *to)
{
    const attn_dtype dtype = tensors_dtype(all, t);
    const char *base = tensors_at(all, t)->data;
    const int64_t bytes = (int64_t)attn_dtype_size(dtype), width = format_is_blocks(dtype) ? ATTN_BLOCK : 1;
    int64_t s[4];
    if (dtype == ATTN_Q4_1C) {
        read_by_channel(problem, all, shape, to);
        return;
    }
    tensors_strides(problem, all, t, s);
    for (int64_t b = 0; b < shape[0]; b++)
        for (int64_t h = 0; h < shape[1]; h++)
            for (int64_t i = 0; i < shape[2]; i++)
                for (int64_t c = 0; c < shape[3]; c++) {
                    const int64_t first = begin ? begin[b] * s[2] : b * s[0], absent = begin && begin[b] + i >= begin[b + 1];
                    const char *at = base + (first + h * s[1] + i * s[2] + c / width * s[3]) * bytes;
                    *to++ = absent ? 0 : width > 1 ? format_get(at, dtype, c % width) : element_read(dtype, at);
                }
}
