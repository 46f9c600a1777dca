/* SPDX-License-Identifier: MIT
 *
 * decode.c - decoding over a cache: new tokens are appended (rotated, converted or quantised), then attend to all of theirs.  The
 * attention is that of the problem string, over the cache's memory, with the lengths that the cache has; its plan is kept, as a
 * loop that must not allocate keeps it. */
#include <stdlib.h>
#include <string.h>

#include "attention.h"
#include "attn/cache.h"
#include "cli/measure/draw.h"
#include "cli/measure/work.h"
#include "testing/memory/format.h"
#include "testing/problem/sparse.h"
#include "testing/text/failure.h"

typedef struct decode_work {
    attn_cache cache;
    attn_cache_tokens tokens;
    attn_rope rope;
    int64_t steps;
    int64_t *full;      /* [batch] the lengths after a call */
    int64_t *lengths;   /* [batch] of the cache; those of data.tensors */
    int64_t *positions; /* [batch][sq] of the queries; NULL: no rope */
    attn_input q;       /* before rotation */
    attn_options options;
} decode_work;

/* New keys or values, as dense rows of the type of q. */
static attn_input draw_new(candidate *c, int64_t dim, random_state *random)
{
    const attn_shape *s = &c->problem.shape;
    const attn_dtype dtype = tensors_dtype(&c->data.tensors, TENSOR(q));
    const size_t bytes = (size_t)(s->batch * s->heads_kv * s->len_q * dim) * attn_dtype_size(dtype);
    void *memory = data_keep(&c->data, bytes);
    draw_numbers(random, dtype, memory, bytes);
    return (attn_input){memory, dtype, {0, 0, 0, 0}};
}

/* The tensors of the problem as a cache. */
static void make_cache(candidate *c, decode_work *w)
{
    const attn_tensors *t = &c->data.tensors;
    const attn_shape *s = &c->problem.shape;
    w->cache = (attn_cache){.struct_size = sizeof w->cache,
                            .batch = s->batch,
                            .heads_kv = s->heads_kv,
                            .capacity = s->len_kv,
                            .dim_qk = s->dim_qk,
                            .dim_v = s->dim_v,
                            .page_size = c->problem.paging.page_size,
                            .pages = c->problem.paging.pages,
                            .page_table = t->page_table};
    const struct {
        int t;
        attn_output *slot;
    } slots[] = {{TENSOR(k), &w->cache.k},
                 {TENSOR(v), &w->cache.v},
                 {TENSOR(k_scale), &w->cache.k_scale},
                 {TENSOR(v_scale), &w->cache.v_scale},
                 {TENSOR(k_tail), &w->cache.k_tail}};
    for (size_t k = 0; k < sizeof slots / sizeof *slots; k++) *slots[k].slot = *tensors_at(t, slots[k].t);
    w->cache.lengths = attn_out(w->lengths);
    w->tokens = (attn_cache_tokens){.struct_size = sizeof w->tokens, .len = s->len_q, .options = &w->options};
}

/* Rotates queries to the positions of the newest tokens. */
static attn_status rotate(candidate *c, decode_work *w, attn_error *error)
{
    const attn_shape *s = &c->problem.shape;
    const int64_t shape[4] = {s->batch, s->heads_q, s->len_q, s->dim_qk};
    const attn_input positions = attn_in(w->positions);
    const attn_output q = *tensors_at(&c->data.tensors, TENSOR(q));
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t i = 0; i < s->len_q; i++) w->positions[b * s->len_q + i] = w->lengths[b] - s->len_q + i;
    return attn_rope_apply(&w->rope, shape, &w->q, &positions, &q, error);
}

static attn_status execute(candidate *c, attn_error *error)
{
    decode_work *w = c->state;
    const attn_shape *s = &c->problem.shape;
    attn_status status = ATTN_OK;
    for (int64_t b = 0; b < s->batch; b++) w->lengths[b] = w->full[b] - w->steps * s->len_q;
    for (int64_t n = 0; n < w->steps && status == ATTN_OK; n++) {
        status = attn_cache_append(&w->cache, &w->tokens, error);
        if (status == ATTN_OK && w->positions) status = rotate(c, w, error);
        if (status == ATTN_OK) status = attention_execute(c, error);
    }
    return status;
}

static attn_status check(const operand *o, attn_error *error)
{
    problem_spec spec = o->spec;
    attn_problem problem;
    attn_tensors tensors;
    const int64_t added = (spec.steps ? spec.steps : 1) * spec.shape.len_q;
    const char *other = spec.tree ? "tree" : spec.lengths && spec.lengths != SPEC_LENGTHS_KV ? "lens=both or lens=q" : NULL;
    spec.rope = 0;
    attn_status status = problem_build(&spec, &problem, &tensors, error);
    if (status == ATTN_OK) status = sparse_check_fields(&spec, error);
    if (status != ATTN_OK) return status;
    if (other) return failure(error, ATTN_ERR_ARGUMENT, "decode takes no %s: it appends sq tokens to every sequence", other);
    if (spec.steps > 1 && spec.schedule)
        return failure(error, ATTN_ERR_ARGUMENT, "steps and schedule are both set; a schedule is of the lengths of one step");
    if (spec.prefix && spec.prefix > spec.shape.len_kv - added)
        return failure(error, ATTN_ERR_ARGUMENT, "prefix=%lld reaches into the new tokens, which sequences do not share",
                       (long long)spec.prefix);
    if (spec.k_type == SPEC_STORED_Q4_1C && added > ATTN_BLOCK)
        return failure(error, ATTN_ERR_ARGUMENT,
                       "keys of q4_1c keep their last %d exactly, so no more can be appended again and again", ATTN_BLOCK);
    return ATTN_OK;
}

/* Bytes of a token's keys and values, with their scales. */
static double token_bytes(const candidate *c)
{
    const attn_tensors *t = &c->data.tensors;
    const attn_shape *s = &c->problem.shape;
    const attn_dtype k = tensors_dtype(t, TENSOR(k)), v = tensors_dtype(t, TENSOR(v));
    const double scales = (double)sizeof(float) * ((t->k_scale.data != NULL) + (t->v_scale.data != NULL)),
                 keys = (double)format_elements(k, s->dim_qk) * (double)attn_dtype_size(k),
                 values = (double)format_elements(v, s->dim_v) * (double)attn_dtype_size(v);
    return (double)s->heads_kv * (keys + values + scales);
}

/* Work and bytes of all steps: earlier ones see fewer keys. */
static void count(candidate *c, const decode_work *w)
{
    const attn_shape *s = &c->problem.shape;
    const double steps = (double)w->steps, missing = steps * (steps - 1) / 2 * (double)(s->batch * s->len_q);
    int64_t *lengths = need_memory(s->batch, sizeof *lengths);
    c->flops = 0;
    for (int64_t n = 1; n <= w->steps; n++) {
        for (int64_t b = 0; b < s->batch; b++) lengths[b] = w->full[b] - (w->steps - n) * s->len_q;
        c->flops += problem_flops(&c->problem, visible_pairs(&c->problem, NULL, NULL, lengths, NULL));
    }
    free(lengths);
    c->moved = steps * c->data.bytes - missing * token_bytes(c);
    c->data.tokens *= w->steps;
}

/* Queries before rotation: those of the problem get rotated ones. */
static void keep_queries(candidate *c, decode_work *w)
{
    const attn_shape *s = &c->problem.shape;
    const attn_output *q = tensors_at(&c->data.tensors, TENSOR(q));
    const int64_t tokens = s->batch * s->len_q;
    const size_t bytes = (size_t)(tokens * s->heads_q * s->dim_qk) * attn_dtype_size(tensors_dtype(&c->data.tensors, TENSOR(q)));
    w->q = (attn_input){memcpy(data_keep(&c->data, bytes), q->data, bytes), q->dtype, {0, 0, 0, 0}};
    memcpy(w->q.stride, q->stride, sizeof w->q.stride);
    w->positions = data_keep(&c->data, (size_t)tokens * sizeof *w->positions);
    w->rope = (attn_rope){.struct_size = sizeof w->rope};
    w->cache.rope = &w->rope;
}

static attn_status create(candidate *c, const operand *o, const attn_options *options, attn_error *error)
{
    decode_work *w = c->state = need_memory(1, sizeof *w);
    problem_spec spec = o->spec;
    attn_problem problem;
    attn_tensors tensors;
    spec.rope = 0;
    attn_status status = problem_build(&spec, &problem, &tensors, error);
    if (status != ATTN_OK) return status;
    tensors_request(&tensors, TENSOR(lengths_kv));
    w->steps = spec.steps ? spec.steps : 1;
    if ((status = attention_draw(c, &spec, &problem, &tensors, options, error)) != ATTN_OK) return status;

    const attn_shape *s = &c->problem.shape;
    random_state random = {3 * spec.seed + 1};
    w->options = *options;
    w->lengths = (int64_t *)(uintptr_t)c->data.tensors.lengths_kv.data;
    w->full = need_memory(s->batch, sizeof *w->full);
    memcpy(w->full, w->lengths, (size_t)s->batch * sizeof *w->full);
    make_cache(c, w);
    w->tokens.k = draw_new(c, s->dim_qk, &random);
    w->tokens.v = draw_new(c, s->dim_v, &random);
    if (o->spec.rope) keep_queries(c, w);
    count(c, w);
    return ATTN_OK;
}

static void destroy(candidate *c)
{
    decode_work *w = c->state;
    if (!w) return;
    free(w->full);
    free(w);
}

const candidate_kind decode_kind = {check, create, attention_plan, execute, destroy};
