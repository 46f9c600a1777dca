/* SPDX-License-Identifier: MIT
 * attend.c - attn_cache_attend: append, rotate the queries, and one forward call over the cache. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cache.h"

/* What one call allocates: lengths, and queries rotated where there is a rotation. */
typedef struct room {
    int64_t *lengths_q, *lengths_kv, *positions;
    void *q;
} room;

static void free_room(room *r)
{
    free(r->lengths_q);
    free(r->lengths_kv);
    free(r->positions);
    free(r->q);
}

/* The problem over the cache as it will be. */
static void describe(const attn_cache *cache, const attn_cache_tokens *tokens, const attn_problem *given, attn_problem *p)
{
    int64_t longest = 0;
    memset(p, 0, sizeof *p);
    memcpy(p, given, given->struct_size < sizeof *p ? given->struct_size : sizeof *p);
    p->struct_size = sizeof *p;
    for (int64_t b = 0; b < cache->batch; b++) {
        int64_t length = cache->lengths[b] + attn_cache_new_tokens(tokens, b);
        if (length > longest) longest = length;
    }
    p->shape.batch = cache->batch;
    p->shape.heads_kv = cache->heads_kv;
    p->shape.len_q = tokens->len;
    p->shape.len_kv = longest;
    p->shape.dim_qk = cache->dim_qk;
    p->shape.dim_v = cache->dim_v;
    p->k = cache->k_layout;
    p->v = cache->v_layout;
    p->quantised.k_scale = cache->k_scale_layout;
    p->quantised.v_scale = cache->v_scale_layout;
    p->mask.causal = 1;
    p->mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
    p->mask.lengths_q = p->mask.lengths_kv = 1;
    p->mask.index_dtype = ATTN_I64;
    if (cache->page_size) {
        p->paging.paged = 1;
        p->paging.page_size = cache->page_size;
        p->paging.pages = cache->pages;
        p->paging.table_stride = cache->table_stride;
    }
}

static attn_status fill_room(const attn_cache *cache, const attn_cache_tokens *tokens, attn_problem *p, attn_args *a, room *r,
                             attn_error *error)
{
    const size_t entries = (size_t)cache->batch + 1;
    r->lengths_q = malloc(entries * sizeof *r->lengths_q);
    r->lengths_kv = malloc(entries * sizeof *r->lengths_kv);
    CHECK(r->lengths_q && r->lengths_kv, ATTN_ERR_MEMORY, "cache: cannot allocate the lengths of %" PRId64 " entries",
          cache->batch);
    for (int64_t b = 0; b < cache->batch; b++) {
        r->lengths_q[b] = attn_cache_new_tokens(tokens, b);
        r->lengths_kv[b] = cache->lengths[b] + r->lengths_q[b];
    }
    a->k = cache->k;
    a->v = cache->v;
    a->k_scale = cache->k_scale;
    a->v_scale = cache->v_scale;
    a->lengths_q = r->lengths_q;
    a->lengths_kv = r->lengths_kv;
    a->page_table = cache->page_table;
    if (!cache->rope) return ATTN_OK;

    const int64_t shape[4] = {cache->batch, p->shape.heads_q, tokens->len, cache->dim_qk};
    attn_layout dense = {p->q.dtype ? p->q.dtype : ATTN_F32, {0, 0, 0, 0}};
    size_t size = attn_dtype_size(dense.dtype);
    for (int axis = 0; axis < 4; axis++) {
        CHECK(shape[axis] >= 0 && (shape[axis] == 0 || size <= SIZE_MAX / (size_t)shape[axis]), ATTN_ERR_SHAPE,
              "cache: the queries have more bytes than memory has addresses");
        size *= (size_t)shape[axis];
    }
    r->q = malloc(size + 1);
    r->positions = calloc(entries * sizeof *r->positions, (size_t)tokens->len + 1); /* which checks the product */
    CHECK(r->q && r->positions, ATTN_ERR_MEMORY, "cache: cannot allocate %zu bytes for rotated queries", size);
    for (int64_t b = 0; b < cache->batch; b++)
        for (int64_t t = 0; t < tokens->len; t++) r->positions[b * tokens->len + t] = cache->lengths[b] + t;
    TRY(attn_rope_apply(cache->rope, shape, &p->q, a->q, &dense, r->q, r->positions, error));
    p->q = dense;
    a->q = r->q;
    return ATTN_OK;
}

static attn_status attend(const attn_cache *cache, const attn_cache_tokens *tokens, attn_problem *p, attn_args *a,
                          const attn_options *options, room *r, attn_error *error)
{
    attn_plan *plan = NULL;
    TRY(fill_room(cache, tokens, p, a, r, error));
    TRY(attn_plan_create(&plan, p, options, error));
    size_t size = attn_plan_workspace_size(plan);
    void *workspace = malloc(size + 1);
    attn_status status;
    if (!workspace) {
        status = fail(error, ATTN_ERR_MEMORY, "cache: cannot allocate a workspace of %zu bytes", size);
    } else {
        /* Nothing that the plan or the arguments can get wrong is left but what execution checks first, and that is undone. */
        attn_cache_write(cache, tokens);
        status = attn_execute(plan, a, workspace, size, error);
        for (int64_t b = 0; status != ATTN_OK && b < cache->batch; b++) cache->lengths[b] -= attn_cache_new_tokens(tokens, b);
    }
    free(workspace);
    attn_plan_destroy(plan);
    return status;
}

attn_status attn_cache_attend(const attn_cache *cache, const attn_cache_tokens *tokens, const attn_problem *problem,
                              const attn_args *args, const attn_options *options, attn_error *error)
{
    attn_cache c;
    attn_cache_tokens t;
    attn_problem p;
    attn_args a = {0};
    room r = {0};
    CHECK(problem, ATTN_ERR_ARGUMENT, "problem is NULL");
    CHECK(args, ATTN_ERR_ARGUMENT, "args is NULL");
    CHECK(problem->struct_size >= sizeof(size_t), ATTN_ERR_ARGUMENT,
          "attn_problem.struct_size is %zu; set it to sizeof(attn_problem)", problem->struct_size);
    CHECK(args->struct_size >= sizeof(size_t), ATTN_ERR_ARGUMENT, "attn_args.struct_size is %zu; set it to sizeof(attn_args)",
          args->struct_size);
    TRY(attn_cache_resolve(cache, tokens, &c, &t, error));
    describe(&c, &t, problem, &p);
    memcpy(&a, args, args->struct_size < sizeof a ? args->struct_size : sizeof a);
    a.struct_size = sizeof a;
    CHECK(!p.mask.packed && p.op == ATTN_FORWARD, ATTN_ERR_ARGUMENT, "cache: the problem is packed or not forward");
    attn_status status = attend(&c, &t, &p, &a, options, &r, error);
    free_room(&r);
    return status;
}
