/* SPDX-License-Identifier: MIT
 * middle.c - the attention between the projections: its problem, its memory, its rotation. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "layer.h"

attn_status memory_take(const attn_options *options, int64_t bytes, char **memory, attn_error *error)
{
    const size_t size = bytes > 0 ? (size_t)(bytes + 63) / 64 * 64 : 64;
    *memory = options && options->allocator.allocate ? options->allocator.allocate(options->allocator.context, size)
                                                     : aligned_alloc(64, size);
    CHECK(*memory, ATTN_ERR_MEMORY, "layer: cannot allocate %zu bytes", size);
    return ATTN_OK;
}

void memory_give(const attn_options *options, char *memory)
{
    if (!memory) return;
    if (options && options->allocator.allocate) options->allocator.release(options->allocator.context, memory);
    else free(memory);
}

attn_status saved_layout(const layer *l, int64_t batch, int64_t len_q, int64_t len_kv, char *memory, saved *s, attn_error *error)
{
    int64_t q, k, v, a, lse, rows_q, rows_kv;
    TRY(layer_bytes(1, batch, len_q, 1, &rows_q, error));
    TRY(layer_bytes(1, batch, len_kv, 1, &rows_kv, error));
    CHECK(rows_q <= INT32_MAX && rows_kv <= INT32_MAX, ATTN_ERR_SHAPE,
          "layer: %" PRId64 " entries of %" PRId64 " and %" PRId64 " tokens are more rows than the BLAS counts", batch, len_q,
          len_kv);
    TRY(layer_bytes(l->size, batch * len_q, l->heads_q, l->head_dim, &q, error));
    TRY(layer_bytes(l->size, batch * len_kv, l->heads_kv, l->head_dim_k, &k, error));
    TRY(layer_bytes(l->size, batch * len_kv, l->heads_kv, l->head_dim_v, &v, error));
    TRY(layer_bytes(l->size, batch * len_q, l->heads_q, l->head_dim_v, &a, error));
    TRY(layer_bytes(l->size, batch * len_q, l->heads_q, 1, &lse, error));
    *s = (saved){memory, memory, memory, memory, memory, q + k + v + a + lse};
    if (memory) s->k = s->q + q, s->v = s->k + k, s->a = s->v + v, s->lse = s->a + a;
    return ATTN_OK;
}

attn_layout layout_by_token(const layer *l, int64_t tokens, int64_t heads, int64_t dim)
{
    return (attn_layout){l->dtype, {tokens * heads * dim, dim, heads * dim, 1}};
}

int64_t index_at(const void *array, attn_dtype dtype, int64_t i)
{
    return dtype == ATTN_I32 ? ((const int32_t *)array)[i] : ((const int64_t *)array)[i];
}

/* The last of the offsets, which the memory ends with.  (What else they must be, attn_execute checks.) */
static attn_status packed_total(const char *name, const void *begin, const extent *e, int64_t *total, attn_error *error)
{
    CHECK(begin, ATTN_ERR_ARGUMENT, "layer: args.attention.cu_seqlens_%s is NULL, and attention.mask.packed is set", name);
    CHECK(e->index_dtype == ATTN_I32 || e->index_dtype == ATTN_I64, ATTN_ERR_ARGUMENT,
          "layer: attention.mask.index_dtype is %s; it must be i32 or i64", attn_dtype_name(e->index_dtype));
    *total = index_at(begin, e->index_dtype, e->batch);
    CHECK(*total >= 0, ATTN_ERR_ARGUMENT, "layer: cu_seqlens_%s[%" PRId64 "] (%" PRId64 ") is negative", name, e->batch, *total);
    return ATTN_OK;
}

attn_status extent_of(const layer *l, const attn_layer_args *args, extent *e, attn_error *error)
{
    *e = (extent){.batch = args->batch,
                  .len_q = args->len_q,
                  .len_kv = args->len_kv,
                  .entries = args->batch,
                  .tokens_q = args->len_q,
                  .tokens_kv = args->len_kv};
    if (args->attention)
        CHECK(args->attention->struct_size == sizeof *args->attention, ATTN_ERR_ARGUMENT,
              "layer: args.attention.struct_size is %zu; set it to sizeof(attn_args)", args->attention->struct_size);
    if (!l->attention || !l->attention->mask.packed) return ATTN_OK;
    e->packed = 1;
    e->entries = 1;
    e->index_dtype = l->attention->mask.index_dtype ? l->attention->mask.index_dtype : ATTN_I64;
    e->begin_q = args->attention ? args->attention->cu_seqlens_q : NULL;
    e->begin_kv = args->attention ? args->attention->cu_seqlens_kv : NULL;
    TRY(packed_total("q", e->begin_q, e, &e->tokens_q, error));
    TRY(packed_total("kv", e->begin_kv, e, &e->tokens_kv, error));
    CHECK(args->key.data || e->tokens_q == e->tokens_kv, ATTN_ERR_SHAPE,
          "layer: cu_seqlens_kv ends with %" PRId64 " and cu_seqlens_q with %" PRId64 ", and the key is the query", e->tokens_kv,
          e->tokens_q);
    return ATTN_OK;
}

attn_status middle_problem(const layer *l, const attn_layer_args *args, const extent *e, attn_op op, const saved *s,
                           attn_problem *problem, attn_args *core, attn_error *error)
{
    if (l->attention) *problem = *l->attention;
    else memset(problem, 0, sizeof *problem);
    problem->struct_size = sizeof *problem;
    problem->op = op;
    problem->shape = (attn_shape){e->batch, l->heads_q, l->heads_kv, e->len_q, e->len_kv, l->head_dim, l->head_dim_v};
    problem->q = layout_by_token(l, e->tokens_q, l->heads_q, l->head_dim);
    problem->k = layout_by_token(l, e->tokens_kv, l->heads_kv, l->head_dim_k);
    problem->v = layout_by_token(l, e->tokens_kv, l->heads_kv, l->head_dim_v);
    problem->o = layout_by_token(l, e->tokens_q, l->heads_q, l->head_dim_v);
    problem->want.lse = 1;
    problem->want.lse_layout = (attn_layout){l->dtype, {l->heads_q * e->tokens_q, e->tokens_q, 1, 1}};
    if (args->attention) *core = *args->attention;
    else memset(core, 0, sizeof *core);
    core->struct_size = sizeof *core;
    core->q = s->q, core->k = s->k, core->v = s->v, core->o = s->a, core->lse = s->lse;
    if (l->extra_key) TRY(extra_check(l, problem, error));
    return ATTN_OK;
}

attn_status middle_rotate(const layer *l, char *data, int64_t heads, int64_t batch, int64_t tokens, const int64_t *positions,
                          int inverse, attn_error *error)
{
    const int64_t shape[4] = {batch, heads, tokens, l->head_dim};
    const attn_layout layout = layout_by_token(l, tokens, heads, l->head_dim);
    if (!l->rope) return ATTN_OK;
    attn_rope rope = *l->rope;
    rope.inverse = inverse ? !rope.inverse : rope.inverse;
    return attn_rope_apply(&rope, shape, &layout, data, &layout, data, positions, error);
}
