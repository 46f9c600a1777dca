/* SPDX-License-Identifier: MIT
 * middle.c - the attention between the projections: its problem, its memory, its rotation. */
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "../common/options.h"
#include "layer.h"

attn_status attn_saved_layout(const layer *l, int64_t batch, int64_t len_q, int64_t len_kv, char *memory, saved *s,
                              attn_error *error)
{
    int64_t q, k, v, a, lse, rows_q, rows_kv;
    TRY(attn_layer_bytes(1, batch, len_q, 1, &rows_q, error));
    TRY(attn_layer_bytes(1, batch, len_kv, 1, &rows_kv, error));
    CHECK(rows_q <= INT32_MAX && rows_kv <= INT32_MAX, ATTN_ERR_SHAPE,
          "layer: %" PRId64 " entries of %" PRId64 " and %" PRId64 " tokens are more than 2147483647 rows", batch, len_q, len_kv);
    TRY(attn_layer_bytes(l->size, batch * len_q, l->heads_q, l->head_dim, &q, error));
    TRY(attn_layer_bytes(l->size, batch * len_kv, l->heads_kv, l->head_dim_k, &k, error));
    TRY(attn_layer_bytes(l->size, batch * len_kv, l->heads_kv, l->head_dim_v, &v, error));
    TRY(attn_layer_bytes(l->size, batch * len_q, l->heads_q, l->head_dim_v, &a, error));
    TRY(attn_layer_bytes(l->size, batch * len_q, l->heads_q, 1, &lse, error));
    *s = (saved){memory, memory, memory, memory, memory, q + k + v + a + lse};
    if (memory) s->k = s->q + q, s->v = s->k + k, s->a = s->v + v, s->lse = s->a + a;
    return ATTN_OK;
}

attn_input attn_input_by_token(const layer *l, const void *data, int64_t tokens, int64_t heads, int64_t dim)
{
    return (attn_input){data ? data : ATTN_EMPTY, l->dtype, {tokens * heads * dim, dim, heads * dim, 1}};
}

attn_output attn_output_by_token(const layer *l, void *data, int64_t tokens, int64_t heads, int64_t dim)
{
    return (attn_output){data ? data : ATTN_EMPTY, l->dtype, {tokens * heads * dim, dim, heads * dim, 1}};
}

attn_input attn_input_by_head(const layer *l, const extent *e, const void *data)
{
    return (attn_input){data ? data : ATTN_EMPTY, l->dtype, {l->heads_q * e->tokens_q, e->tokens_q, 1, 1}};
}

/* As in attn_execute: arrays of i32 without a type are read as i64, two elements at once. */
static const char *offset_hint(const attn_input *begin, int64_t offset)
{
    const int wide = offset < INT32_MIN || offset > INT32_MAX;
    return begin->dtype != ATTN_I32 && wide ? "; the array was read as i64 (set its dtype if it is i32)" : "";
}

/* The last offset, which is the total number of tokens: memory is sized by it, and positions are counted from all of them, so they
 * are checked before attn_execute does.  most: tokens of a sequence, `size`. */
static attn_status packed_total(const char *name, const attn_input *begin, const extent *e, const char *size, int64_t most,
                                int64_t *total, attn_error *error)
{
    char label[64];
    int64_t start;
    text_join(label, sizeof label, "layer: attention.", name, "");
    CHECK(begin->data, ATTN_ERR_ARGUMENT, "layer: attention.%s is NULL, but the other cu_seqlens is set", name);
    TRY(slot_check(begin, label, 1, error));
    CHECK(!begin->dtype || begin->dtype == ATTN_I32 || begin->dtype == ATTN_I64, ATTN_ERR_UNSUPPORTED,
          "layer: attention.%s is %s; it must be i32 or i64", name, attn_dtype_name(begin->dtype));
    CHECK(slot_is_dense(begin), ATTN_ERR_STRIDE, "layer: attention.%s has strides; it must be dense (all 0)", name);
    start = attn_layer_index_at(begin, 0);
    CHECK(start == 0, ATTN_ERR_ARGUMENT, "layer: %s[0] (%" PRId64 ") is not 0%s", name, start, offset_hint(begin, start));
    for (int64_t b = 0; b < e->batch; b++) {
        const int64_t end = attn_layer_index_at(begin, b + 1);
        CHECK(end >= start && end - start <= most, ATTN_ERR_ARGUMENT,
              "layer: %s[%" PRId64 "] (%" PRId64 ") minus %s[%" PRId64 "] (%" PRId64 ") is not between 0 and %s (%" PRId64 ")%s",
              name, b + 1, end, name, b, start, size, most, offset_hint(begin, end));
        start = end;
    }
    CHECK(start <= INT32_MAX, ATTN_ERR_SHAPE, "layer: %s ends with %" PRId64 "; it must be at most 2147483647", name, start);
    *total = start;
    return ATTN_OK;
}

attn_status attn_extent_of(const layer *l, const attn_layer_tensors *args, extent *e, attn_error *error)
{
    (void)l;
    *e = (extent){.batch = args->batch,
                  .len_q = args->len_q,
                  .len_kv = args->len_kv,
                  .entries = args->batch,
                  .tokens_q = args->len_q,
                  .tokens_kv = args->len_kv};
    if (!args->attention || (!args->attention->cu_seqlens_q.data && !args->attention->cu_seqlens_kv.data)) return ATTN_OK;
    e->packed = 1;
    e->entries = 1;
    e->begin_q = &args->attention->cu_seqlens_q;
    e->begin_kv = &args->attention->cu_seqlens_kv;
    TRY(packed_total("cu_seqlens_q", e->begin_q, e, "len_q", e->len_q, &e->tokens_q, error));
    TRY(packed_total("cu_seqlens_kv", e->begin_kv, e, "len_kv", e->len_kv, &e->tokens_kv, error));
    CHECK(args->key.data || e->tokens_q == e->tokens_kv, ATTN_ERR_SHAPE,
          "layer: cu_seqlens_kv ends with %" PRId64 " and cu_seqlens_q with %" PRId64 ", but the key is the query", e->tokens_kv,
          e->tokens_q);
    return ATTN_OK;
}

/* Clears the slots of the table for which `empty` returns 1. */
static void clear_slots(attn_tensors *t, int (*empty)(const attn_tensor_description *d, attn_op op), attn_op op)
{
    attn_tensor_description d = {.struct_size = sizeof d};
    for (int i = 0; attn_tensor_describe(ATTN_FAMILY_ATTENTION, i, &d, NULL) == ATTN_OK; i++)
        if (empty(&d, op)) memset((char *)t + d.offset, 0, sizeof(attn_input));
}

/* Used only by the other pass: one struct of tensors serves both. */
static int is_of_other_op(const attn_tensor_description *d, attn_op op)
{
    const attn_op other = op == ATTN_FORWARD ? ATTN_BACKWARD : ATTN_FORWARD;
    return d->role[op] == ATTN_ROLE_NONE && d->role[other] != ATTN_ROLE_NONE;
}

static int is_other_output(const attn_tensor_description *d, attn_op op)
{
    return d->role[op] == ATTN_ROLE_OUTPUT && d->offset != offsetof(attn_tensors, o);
}

void attn_clear_outputs(attn_tensors *core) { clear_slots(core, is_other_output, ATTN_FORWARD); }

attn_status attn_middle_problem(const layer *l, const attn_layer_tensors *args, const extent *e, attn_op op, const saved *s,
                                attn_problem *problem, attn_tensors *core, attn_call *call, attn_error *error)
{
    if (l->attention) *problem = *l->attention;
    else memset(problem, 0, sizeof *problem);
    problem->struct_size = sizeof *problem;
    problem->op = op;
    problem->shape = (attn_shape){e->batch, l->heads_q, l->heads_kv, e->len_q, e->len_kv, l->head_dim, l->head_dim_v};
    if (args->attention) *core = *args->attention;
    else memset(core, 0, sizeof *core);
    core->struct_size = sizeof *core;
    if (args->call) {
        TRY(struct_read(call, sizeof *call, sizeof *call, args->call, "attn_call", error));
        core->call = call;
    }
    if (l->extra_key) TRY(attn_extra_check(l, problem, core, error));
    if (args->attention) clear_slots(core, is_of_other_op, op);
    if (args->call) {
        if (op != ATTN_FORWARD) call->visit_rows = NULL, call->visit_context = NULL;
        else call->modify_slopes = NULL;
    }
    if (op != ATTN_FORWARD) memset(&problem->outputs, 0, sizeof problem->outputs);
    core->q = attn_input_by_token(l, s->q, e->tokens_q, l->heads_q, l->head_dim);
    core->k = attn_input_by_token(l, s->k, e->tokens_kv, l->heads_kv, l->head_dim_k);
    core->v = attn_input_by_token(l, s->v, e->tokens_kv, l->heads_kv, l->head_dim_v);
    core->o = attn_output_by_token(l, s->a, e->tokens_q, l->heads_q, l->head_dim_v);
    const attn_input lse = attn_input_by_head(l, e, s->lse);
    core->lse = (attn_output){slot_written(&lse), lse.dtype, {lse.stride[0], lse.stride[1], lse.stride[2], lse.stride[3]}};
    return ATTN_OK;
}

attn_status attn_middle_rotate(const layer *l, char *data, int64_t heads, int64_t batch, int64_t tokens, const int64_t *positions,
                               int inverse, attn_error *error)
{
    const int64_t shape[4] = {batch, heads, tokens, l->head_dim};
    const attn_input from = attn_input_by_token(l, data, tokens, heads, l->head_dim);
    const attn_output to = attn_output_by_token(l, data, tokens, heads, l->head_dim);
    attn_rope rope;
    if (!l->rope) return ATTN_OK;
    TRY(struct_read(&rope, sizeof rope, sizeof rope, l->rope, "attn_rope", error));
    rope.inverse = inverse ? !rope.inverse : rope.inverse;
    const attn_input at = attn_in(positions);
    return attn_rope_apply(&rope, shape, &from, positions ? &at : NULL, &to, error);
}
