/* SPDX-License-Identifier: MIT
 *
 * rope.c - rotary positions (--rope and its flags): the attention reads rotated copies of q and k. */
#include <inttypes.h>
#include <string.h>

#include "parts.h"
#include "testing/text/failure.h"

/* The positions of tokens: the tensor of the role, [token] or [.., token], else those of causal masks and windows. */
static attn_status positions_of(attention_input *input, int role, const int64_t **positions, attn_error *error)
{
    const input_tensor *used = &input->used[role];
    const attn_archive_tensor *t = used->tensor;
    const attn_problem *p = &input->problem;
    const attn_tensors *all = &input->tensors;
    const attn_shape *s = &p->shape;
    const int of_q = role == ROLE_POSITIONS_Q, packed = input->spec.packed;
    const int64_t length = of_q ? s->len_q : s->len_kv, tokens = packed ? (of_q ? input->total_q : input->total_kv) : length;
    const int64_t batch = packed ? 1 : s->batch, *begins = of_q ? all->cu_seqlens_q.data : all->cu_seqlens_kv.data;
    int64_t *at = input_alloc(input, batch * tokens, sizeof *at);
    char actual_text[SHAPE_TEXT];
    for (int64_t n = 0; n < batch * tokens && !t; n++) at[n] = 0; /* of tokens outside all sequences */
    for (int64_t b = 0; b < s->batch && !t; b++) {
        const int64_t count = begins ? begins[b + 1] - begins[b] : length;
        const int64_t *lengths_q = all->lengths_q.data, *lengths_kv = all->lengths_kv.data, *offset = all->offset_q.data;
        const int64_t *q = all->cu_seqlens_q.data, *kv = all->cu_seqlens_kv.data;
        const int64_t len_q = begins ? q[b + 1] - q[b] : lengths_q ? lengths_q[b] : s->len_q;
        const int64_t len_kv = begins ? kv[b + 1] - kv[b] : lengths_kv ? lengths_kv[b] : s->len_kv;
        const int64_t first = !of_q ? 0 : p->mask.align == ATTN_ALIGN_BOTTOM_RIGHT ? len_kv - len_q : offset ? offset[b] : 0;
        for (int64_t i = 0; i < count; i++) at[(begins ? begins[b] : b * length) + i] = first + i;
    }
    *positions = at;
    if (!t) {
        input_keep_share(input, !of_q, batch, at);
        return ATTN_OK;
    }
    attn_status status = input_check_type(used, t->dtype >= ATTN_I8 && t->dtype <= ATTN_U64, "integers, such as i64", error);
    if (status != ATTN_OK) return status;
    const int64_t count = (int64_t)(t->bytes / attn_dtype_size(t->dtype));
    if (t->rank < 1 || t->shape[t->rank - 1] != tokens || (count != tokens && count != batch * tokens) || input->begins_q)
        return failure(error, ATTN_ERR_SHAPE,
                       "%.60s: tensor '%.30s' %.60s: expected a position for each token [%" PRId64 "], or of each batch entry [.., "
                       "%" PRId64 "]",
                       used->path, t->name, shape_text(actual_text, t->rank, t->shape), tokens, tokens);
    for (int64_t n = 0; n < batch * tokens; n++)
        if (!input_integer(t, n % count, &at[n]))
            return failure(error, ATTN_ERR_ARGUMENT, "%.80s: tensor '%.40s' has a number beyond 2^63", used->path, t->name);
    input_keep_share(input, !of_q, batch, at);
    return ATTN_OK;
}

/* Rotates q, k or one of their gradients. */
static attn_status turn(const attention_input *input, const attn_rope *rope, const attn_tensors *all, int t, void *to,
                        attn_error *error)
{
    attn_input x = {.data = tensors_at(all, t)->data, .dtype = tensors_dtype(all, t)};
    attn_output y = {.data = to, .dtype = x.dtype};
    int64_t shape[4];
    tensors_shape(&input->problem, all, t, shape);
    tensors_strides(&input->problem, all, t, x.stride);
    memcpy(y.stride, x.stride, sizeof y.stride);
    if (input->spec.packed) shape[0] = 1;
    shape[2] = input_tokens(input, tensors_of_keys(t));
    const attn_input positions = attn_in(tensors_of_keys(t) ? input->positions_kv : input->positions_q);
    return attn_rope_apply(rope, shape, &x, &positions, &y, error);
}

/* Rejects what --rope cannot be combined with. */
static attn_status check_rope(const attention_input *input, const input_settings *settings, attn_error *error)
{
    const int given = settings->rope.struct_size || settings->stretched.struct_size;
    const int roles_of[] = {ROLE_POSITIONS_Q, ROLE_POSITIONS_KV};
    if (!input->spec.rope && given) return failure(error, ATTN_ERR_ARGUMENT, "--rope-%s needs --rope", settings->rope_word);
    for (int r = 0; r < 2 && !input->spec.rope; r++)
        if (input->used[roles_of[r]].tensor)
            return failure(error, ATTN_ERR_ARGUMENT, "%.80s: tensor '%.40s' holds rotary positions, which need --rope",
                           input->used[roles_of[r]].path, input->used[roles_of[r]].tensor->name);
    if (!input->spec.rope) return ATTN_OK;
    if (input->spec.op != SPEC_FORWARD && input->spec.op != SPEC_BACKWARD)
        return failure(error, ATTN_ERR_UNSUPPORTED, "--rope goes with forward and --backward; it does not rotate tangents");
    if (input->tensors.k.dtype == ATTN_I8)
        return failure(error, ATTN_ERR_UNSUPPORTED, "--rope does not rotate keys of i8; rotate them before they are quantised");
    return ATTN_OK;
}

attn_status input_rotate(attention_input *input, const input_settings *settings, attn_error *error)
{
    attn_status status = check_rope(input, settings, error);
    if (status != ATTN_OK || !input->spec.rope) return status;
    const attn_shape *s = &input->problem.shape;
    input->rope = settings->rope;
    input->rope.struct_size = sizeof input->rope;
    if (settings->stretched.struct_size) {
        attn_rope_scaling scaling = settings->stretched;
        scaling.dim = input->rope.dim_rotary ? input->rope.dim_rotary : s->dim_qk;
        scaling.base = input->rope.base;
        scaling.length = s->len_kv;
        double *frequencies = input_alloc(input, scaling.dim / 2 + 1, sizeof *frequencies);
        status = attn_rope_frequencies(&scaling, frequencies, &input->rope.magnitude, error);
        input->rope.frequencies = frequencies;
    }
    if (status == ATTN_OK) status = positions_of(input, ROLE_POSITIONS_Q, &input->positions_q, error);
    if (status == ATTN_OK) status = positions_of(input, ROLE_POSITIONS_KV, &input->positions_kv, error);
    if (status != ATTN_OK) return status;
    for (int t = TENSOR(q); t <= TENSOR(k) && status == ATTN_OK; t++) {
        attn_output *slot = tensors_slot(&input->tensors, t);
        int64_t shape[4];
        tensors_shape(&input->problem, &input->tensors, t, shape);
        const int64_t tokens = (input->spec.packed ? 1 : s->batch) * input_tokens(input, tensors_of_keys(t));
        void *rotated = input_alloc(input, tokens * shape[1] * shape[3], attn_dtype_size(slot->dtype));
        status = turn(input, &input->rope, &input->tensors, t, rotated, error);
        slot->data = rotated;
    }
    return status == ATTN_OK ? ATTN_OK : failure_about(error, input->path);
}

attn_status input_rotate_back(const attention_input *input, const attn_tensors *tensors, attn_error *error)
{
    attn_rope back = input->rope;
    back.inverse = 1;
    if (!input->spec.rope) return ATTN_OK;
    attn_status status = turn(input, &back, tensors, TENSOR(grad_q), tensors->grad_q.data, error);
    return status == ATTN_OK ? turn(input, &back, tensors, TENSOR(grad_k), tensors->grad_k.data, error) : status;
}
