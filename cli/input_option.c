/* SPDX-License-Identifier: MIT
 *
 * input_option.c - packed sequences, numbers of each head, and gradients that flow in. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/element.h"
#include "failure.h"
#include "input_parts.h"

attn_dtype input_compute_dtype(const attention_input *input)
{
    return problem_dtype(&input->spec) == ATTN_F64 ? ATTN_F64 : ATTN_F32;
}

/* ---- packed sequences ---- */

/* Where the sequences begin, as i64, and the length of the longest of them. */
static attn_status read_begins(attention_input *input, tensor_role r, int64_t total, const void **data, int64_t *longest,
                               attn_error *error)
{
    const input_tensor *used = &input->used[r];
    const attn_tensor *t = used->tensor;
    char shape[SHAPE_TEXT];
    attn_status status = input_check_type(used, t->dtype >= ATTN_I8 && t->dtype <= ATTN_U64, "whole numbers, such as i32", error);
    if (status != ATTN_OK) return status;
    if (t->rank != 1 || t->shape[0] < 1)
        return failure(error, ATTN_ERR_SHAPE, "%.60s: tensor '%.30s' %.60s: expected [sequences + 1] numbers", used->path, t->name,
                       shape_text(shape, t->rank, t->shape));
    int64_t *begin = input_own(input, t->shape[0], sizeof *begin), last = 0;
    *longest = 0;
    for (int64_t b = 0; b < t->shape[0]; b++) {
        const int64_t most = b ? total : 0; /* the first is 0 */
        if (!input_integer(t, b, &begin[b]) || begin[b] < last || begin[b] > most)
            return failure(error, ATTN_ERR_ARGUMENT,
                           "%.60s: tensor '%.30s': number %" PRId64 " (%" PRId64 ") is not within %" PRId64 " and %" PRId64,
                           used->path, t->name, b, begin[b], last, most);
        if (begin[b] - last > *longest) *longest = begin[b] - last;
        last = begin[b];
    }
    *data = begin;
    return ATTN_OK;
}

/* From the tokens of all sequences to a batch of them, as long as the longest. */
attn_status input_read_packed(attention_input *input, attn_error *error)
{
    const input_tensor *q = &input->used[ROLE_CU_SEQLENS_Q], *kv = &input->used[ROLE_CU_SEQLENS_KV];
    const input_tensor *one = q->tensor ? q : kv;
    attn_shape *s = &input->spec.shape;
    if (!one->tensor) return ATTN_OK;
    if (!q->tensor || !kv->tensor)
        return failure(error, ATTN_ERR_ARGUMENT,
                       "%.60s: packed sequences need cu_seqlens_q and cu_seqlens_kv; --cu-seqlens-q=%.30s --cu-seqlens-kv=%.30s "
                       "takes one for both",
                       one->path, one->tensor->name, one->tensor->name);
    if (input->leading)
        return failure(error, ATTN_ERR_SHAPE,
                       "%.60s: tensor '%.30s' has %d axes; packed sequences are [head, token, channel], or "
                       "with --layout=bshd [token, head, channel]",
                       input->used[ROLE_Q].path, input->used[ROLE_Q].tensor->name, input->used[ROLE_Q].tensor->rank);
    attn_status status = read_begins(input, ROLE_CU_SEQLENS_Q, input->total_q, &input->args.cu_seqlens_q, &s->len_q, error);
    if (status == ATTN_OK)
        status = read_begins(input, ROLE_CU_SEQLENS_KV, input->total_kv, &input->args.cu_seqlens_kv, &s->len_kv, error);
    if (status != ATTN_OK) return status;
    if (q->tensor->shape[0] != kv->tensor->shape[0])
        return input_misfit(kv, q, error, "%" PRId64 " and %" PRId64 " sequences", kv->tensor->shape[0] - 1,
                            q->tensor->shape[0] - 1);
    input->spec.packed = 1;
    s->batch = input->lead[0] = q->tensor->shape[0] - 1;
    input->leading = 1;
    return ATTN_OK;
}

void input_lay_packed(attention_input *input)
{
    attn_problem *p = &input->problem;
    const attn_shape *s = &p->shape;
    const int64_t q = input->total_q, kv = input->total_kv, dim_k = problem_dim_k(p);
    const struct {
        attn_layout *layout;
        int64_t heads, tokens, width;
    } tensors[] = {{&p->q, s->heads_q, q, s->dim_qk},
                   {&p->k, s->heads_kv, kv, dim_k},
                   {&p->v, s->heads_kv, kv, s->dim_v},
                   {&p->o, s->heads_q, q, s->dim_v},
                   {&p->gradients.grad_o, s->heads_q, q, s->dim_v},
                   {&p->gradients.grad_q, s->heads_q, q, s->dim_qk},
                   {&p->gradients.grad_k, s->heads_kv, kv, dim_k},
                   {&p->gradients.grad_v, s->heads_kv, kv, s->dim_v},
                   {&p->tangents.tan_q, s->heads_q, q, s->dim_qk},
                   {&p->tangents.tan_k, s->heads_kv, kv, dim_k},
                   {&p->tangents.tan_v, s->heads_kv, kv, s->dim_v},
                   {&p->tangents.tan_o, s->heads_q, q, s->dim_v},
                   {&p->second.second_grad_o, s->heads_q, q, s->dim_v},
                   {&p->second.second_q, s->heads_q, q, s->dim_qk},
                   {&p->second.second_k, s->heads_kv, kv, dim_k},
                   {&p->second.second_v, s->heads_kv, kv, s->dim_v}};
    for (size_t t = 0; t < sizeof tensors / sizeof *tensors; t++) {
        const int by_token = input->spec.order == SPEC_BSHD;
        int64_t *stride = tensors[t].layout->stride;
        stride[0] = 0;
        stride[1] = by_token ? tensors[t].width : tensors[t].tokens * tensors[t].width;
        stride[2] = by_token ? tensors[t].heads * tensors[t].width : tensors[t].width;
        stride[3] = 1;
    }
}

/* ---- numbers of each head ---- */

/* 1 if one axis has `count` elements and the others have one. */
static int is_vector(const attn_tensor *t, int64_t count)
{
    int64_t all = 1, found = 0;
    for (int axis = 0; axis < t->rank; axis++) {
        all *= t->shape[axis];
        found |= t->shape[axis] == count;
    }
    return found && all == count;
}

static attn_status read_head_numbers(attention_input *input, tensor_role r, int *by_batch, const void **data, attn_error *error)
{
    const input_tensor *used = &input->used[r];
    const attn_tensor *t = used->tensor;
    const int64_t heads = input->spec.shape.heads_q;
    char shape[SHAPE_TEXT], one[SHAPE_TEXT], both[SHAPE_TEXT + 40] = "";
    attn_status status = input_check_float(used, error);
    if (status != ATTN_OK) return status;
    int64_t full[ATTN_MAX_RANK];
    memcpy(full, input->lead, sizeof full);
    full[input->leading] = heads;
    const int is_full = t->rank == input->leading + 1 && memcmp(t->shape, full, (size_t)t->rank * sizeof *full) == 0;
    if (!is_vector(t, heads) && !(by_batch && is_full)) {
        if (by_batch)
            snprintf(both, sizeof both, ", or for each batch entry and head %.60s", shape_text(one, input->leading + 1, full));
        return failure(error, ATTN_ERR_SHAPE, "%.60s: tensor '%.30s' %.50s: expected a number for each head [%" PRId64 "]%s",
                       used->path, t->name, shape_text(shape, t->rank, t->shape), heads, both);
    }
    if (by_batch) *by_batch = !is_vector(t, heads) || (is_full && input->leading > 0);
    *data = input_convert(input, t, input_compute_dtype(input));
    return ATTN_OK;
}

/* The slopes of Press et al. 2022, for any number of heads. */
static const void *published_slopes(attention_input *input)
{
    const int64_t heads = input->spec.shape.heads_q;
    const attn_dtype compute = input_compute_dtype(input);
    void *slopes = input_own(input, heads, attn_dtype_size(compute));
    (void)attn_alibi_slopes(heads, compute, slopes, NULL); /* a type that it takes, and room */
    return slopes;
}

attn_status input_check_shape(const input_tensor *t, int rank, const int64_t *want, attn_error *error)
{
    char mine[SHAPE_TEXT], theirs[SHAPE_TEXT];
    if (t->tensor->rank == rank && memcmp(t->tensor->shape, want, (size_t)rank * sizeof *want) == 0)
        return input_check_float(t, error);
    return failure(error, ATTN_ERR_SHAPE, "%.60s: tensor '%.30s' %.60s: expected %.60s", t->path, t->tensor->name,
                   shape_text(mine, t->tensor->rank, t->tensor->shape), shape_text(theirs, rank, want));
}

attn_status input_read_heads(attention_input *input, attn_error *error)
{
    problem_spec *spec = &input->spec;
    attn_status status = ATTN_OK;
    if (input->used[ROLE_SLOPES].tensor) {
        int by_batch = 0;
        status = read_head_numbers(input, ROLE_SLOPES, &by_batch, &input->args.slopes, error);
        spec->alibi = by_batch ? SPEC_ALIBI_BATCH_HEAD : SPEC_ALIBI_HEAD;
    } else if (spec->alibi) {
        input->args.slopes = published_slopes(input);
    }
    if (status == ATTN_OK && input->used[ROLE_SINK].tensor) {
        spec->sink = 1;
        status = read_head_numbers(input, ROLE_SINK, NULL, &input->args.sink, error);
    }
    if (status == ATTN_OK && input->used[ROLE_SCALE].tensor) {
        spec->scale_heads = 1;
        spec->has_scale = 0;
        status = read_head_numbers(input, ROLE_SCALE, NULL, &input->args.scale, error);
    }
    return status;
}

/* ---- gradients ---- */

static attn_status read_gradients(attention_input *input, attn_error *error)
{
    const input_tensor *grad_o = &input->used[ROLE_DO], *grad_lse = &input->used[ROLE_DLSE];
    problem_spec *spec = &input->spec;
    int64_t shape[ATTN_MAX_RANK];
    int rank = input_output_shape(input, OUTPUT_LIKE_Q, spec->shape.dim_v, shape);
    attn_status status = input_check_shape(grad_o, rank, shape, error);
    if (status != ATTN_OK) return status;
    input->args.grad_o = input_convert(input, grad_o->tensor, problem_dtype(spec));
    if (grad_lse->tensor) {
        rank = input_output_shape(input, OUTPUT_BY_ROW, 0, shape);
        status = input_check_shape(grad_lse, rank, shape, error);
        if (status != ATTN_OK) return status;
        input->args.grad_lse = input_convert(input, grad_lse->tensor, input_compute_dtype(input));
        spec->dlse = 1;
    }
    if (spec->op != SPEC_BACKWARD) return ATTN_OK;
    spec->dbias = input->used[ROLE_BIAS].tensor != NULL;
    spec->dslopes = input->used[ROLE_SLOPES].tensor != NULL;
    spec->drel = spec->rel[0] != 0;
    spec->dtable = input->used[ROLE_BIAS_TABLE].tensor != NULL;
    spec->dsink = input->used[ROLE_SINK].tensor != NULL;
    spec->dscale = input->used[ROLE_SCALE].tensor != NULL;
    return ATTN_OK;
}

/* Of q, k and v, in the shapes of these; that of the bias is read with the masks. */
static attn_status read_tangents(attention_input *input, attn_error *error)
{
    static const tensor_role of[][2] = {{ROLE_TAN_Q, ROLE_Q}, {ROLE_TAN_K, ROLE_K}, {ROLE_TAN_V, ROLE_V}};
    const void **data[] = {&input->args.tan_q, &input->args.tan_k, &input->args.tan_v};
    int given = input->used[ROLE_TAN_BIAS].tensor != NULL;
    for (int t = 0; t < 3; t++) {
        const input_tensor *tangent = &input->used[of[t][0]];
        const attn_tensor *like = input->used[of[t][1]].tensor;
        if (!tangent->tensor) continue;
        attn_status status = input_check_shape(tangent, like->rank, like->shape, error);
        if (status != ATTN_OK) return status;
        *data[t] = input_convert(input, tangent->tensor, problem_dtype(&input->spec));
        given = 1;
    }
    if (given) return ATTN_OK;
    return failure(error, ATTN_ERR_ARGUMENT, "%.80s: no tangent: tan_q, tan_k, tan_v or tan_bias; --tan-q=NAME chooses another",
                   input->path);
}

attn_status input_read_gradients(attention_input *input, attn_error *error)
{
    attn_status status = ATTN_OK;
    if (role_used_by(ROLE_DO, input->spec.op)) status = read_gradients(input, error);
    if (status == ATTN_OK && role_used_by(ROLE_TAN_Q, input->spec.op)) status = read_tangents(input, error);
    return status;
}

void input_lay_tangents(attention_input *input)
{
    attn_tangents *t = &input->problem.tangents;
    if (!role_used_by(ROLE_TAN_Q, input->spec.op)) return;
    t->q = input->args.tan_q != NULL;
    t->k = input->args.tan_k != NULL;
    t->v = input->args.tan_v != NULL;
    t->bias = input->args.tan_bias != NULL;
    t->tan_q.dtype = t->tan_k.dtype = t->tan_v.dtype = problem_dtype(&input->spec);
    if (!t->bias) return;
    t->tan_bias = input->problem.bias.bias;
    t->tan_bias.dtype = input->used[ROLE_TAN_BIAS].tensor->dtype;
}

int input_output_shape(const attention_input *input, output_axes axes, int64_t width, int64_t shape[ATTN_MAX_RANK])
{
    const attn_tensor *q = input->used[ROLE_Q].tensor;
    const attn_shape *s = &input->spec.shape;
    int rank = q->rank;
    memcpy(shape, q->shape, sizeof q->shape);
    shape[rank - 1] = width;
    if (axes == OUTPUT_LIKE_Q) return rank;
    if (rank > 2) shape[rank - 3] = s->heads_q; /* [head, query, ...] in both layouts */
    shape[rank - 2] = input->total_q;
    return rank - 1;
}
