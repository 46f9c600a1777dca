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
    TRY(layer_bytes(l->size, batch * len_kv, l->heads_kv, l->head_dim, &k, error));
    TRY(layer_bytes(l->size, batch * len_kv, l->heads_kv, l->head_dim_v, &v, error));
    TRY(layer_bytes(l->size, batch * len_q, l->heads_q, l->head_dim_v, &a, error));
    TRY(layer_bytes(l->size, batch * len_q, l->heads_q, 1, &lse, error));
    *s = (saved){memory, memory, memory, memory, memory, q + k + v + a + lse};
    if (memory) s->k = s->q + q, s->v = s->k + k, s->a = s->v + v, s->lse = s->a + a;
    return ATTN_OK;
}

static attn_layout by_token(const layer *l, int64_t tokens, int64_t heads, int64_t dim)
{
    return (attn_layout){l->dtype, {tokens * heads * dim, dim, heads * dim, 1}};
}

attn_status middle_problem(const layer *l, const attn_layer_args *args, attn_op op, const saved *s, attn_problem *problem,
                           attn_args *core, attn_error *error)
{
    if (l->attention) *problem = *l->attention;
    else memset(problem, 0, sizeof *problem);
    problem->struct_size = sizeof *problem;
    problem->op = op;
    problem->shape = (attn_shape){args->batch, l->heads_q, l->heads_kv, args->len_q, args->len_kv, l->head_dim, l->head_dim_v};
    problem->q = by_token(l, args->len_q, l->heads_q, l->head_dim);
    problem->k = by_token(l, args->len_kv, l->heads_kv, l->head_dim);
    problem->v = by_token(l, args->len_kv, l->heads_kv, l->head_dim_v);
    problem->o = by_token(l, args->len_q, l->heads_q, l->head_dim_v);
    problem->want.lse = 1;
    problem->want.lse_layout.dtype = l->dtype;
    if (args->attention) {
        CHECK(args->attention->struct_size == sizeof *core, ATTN_ERR_ARGUMENT,
              "layer: args.attention.struct_size is %zu; set it to sizeof(attn_args)", args->attention->struct_size);
        *core = *args->attention;
    } else memset(core, 0, sizeof *core);
    core->struct_size = sizeof *core;
    core->q = s->q, core->k = s->k, core->v = s->v, core->o = s->a, core->lse = s->lse;
    return ATTN_OK;
}

attn_status middle_rotate(const layer *l, char *data, int64_t heads, int64_t batch, int64_t tokens, const int64_t *positions,
                          int inverse, attn_error *error)
{
    const int64_t shape[4] = {batch, heads, tokens, l->head_dim};
    const attn_layout layout = by_token(l, tokens, heads, l->head_dim);
    if (!l->rope) return ATTN_OK;
    attn_rope rope = *l->rope;
    rope.inverse = inverse ? !rope.inverse : rope.inverse;
    return attn_rope_apply(&rope, shape, &layout, data, &layout, data, positions, error);
}
