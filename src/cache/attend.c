/* SPDX-License-Identifier: MIT
 * attend.c - attn_cache_attend: append, rotate the queries, then one forward call over the cache. */
#include <inttypes.h>
#include <string.h>

#include "../common/options.h"
#include "cache.h"

/* What one call allocates: lengths, rotated queries and their positions if there is a rope, a plan and its workspace. */
typedef struct scratch {
    attn_options options; /* from options_read */
    int64_t *lengths_q, *lengths_kv, *positions;
    void *q;
    execution run;
} scratch;

static void *take(const scratch *r, size_t bytes) { return options_acquire(&r->options, bytes); }

static void free_scratch(scratch *r)
{
    execution_end(&r->run, &r->options);
    options_release(&r->options, r->positions);
    options_release(&r->options, r->q);
    options_release(&r->options, r->lengths_kv);
    options_release(&r->options, r->lengths_q);
}

/* Fills in the problem over the cache as it is after appending. */
static void describe(const attn_cache *cache, const attn_cache_tokens *tokens, attn_problem *p)
{
    int64_t longest = 0;
    for (int64_t b = 0; b < cache->batch; b++) {
        int64_t length = attn_cache_lengths(cache)[b] + attn_cache_new_tokens(tokens, b);
        if (length > longest) longest = length;
    }
    p->shape.batch = cache->batch;
    p->shape.heads_kv = cache->heads_kv;
    p->shape.len_q = tokens->len;
    p->shape.len_kv = longest;
    p->shape.dim_qk = cache->dim_qk;
    p->shape.dim_v = cache->dim_v;
    p->mask.causal = 1;
    p->mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
    if (!cache->page_table.data) return;
    p->paging.page_size = cache->page_size;
    p->paging.pages = cache->pages;
}

/* A slot without elements must differ from an absent one, hence ATTN_EMPTY. */
static attn_input read_from(const attn_output *slot)
{
    attn_input s = slot_of(slot);
    if (!s.data) s.data = ATTN_EMPTY;
    return s;
}

static attn_status fill_tensors(const attn_cache *cache, const attn_cache_tokens *tokens, const attn_problem *p, attn_tensors *t,
                                scratch *r, attn_error *error)
{
    const size_t entries = (size_t)cache->batch + 1;
    r->lengths_q = take(r, entries * sizeof *r->lengths_q);
    r->lengths_kv = take(r, entries * sizeof *r->lengths_kv);
    CHECK(r->lengths_q && r->lengths_kv, ATTN_ERR_MEMORY, "cache: cannot allocate the lengths of %" PRId64 " entries",
          cache->batch);
    for (int64_t b = 0; b < cache->batch; b++) {
        r->lengths_q[b] = attn_cache_new_tokens(tokens, b);
        r->lengths_kv[b] = attn_cache_lengths(cache)[b] + r->lengths_q[b];
    }
    t->k = read_from(&cache->k);
    t->v = read_from(&cache->v);
    if (cache->k.dtype == ATTN_I8) t->k_scale = read_from(&cache->k_scale);
    if (cache->v.dtype == ATTN_I8) t->v_scale = read_from(&cache->v_scale);
    t->lengths_q = attn_in(r->lengths_q);
    t->lengths_kv = attn_in(r->lengths_kv);
    if (cache->page_table.data)
        t->page_table = (attn_input){cache->page_table.data, cache->page_table.dtype, {cache->page_table.stride[0], 0, 0, 1}};
    if (!cache->rope || !t->q.data) return ATTN_OK; /* planning reports a missing q */

    const int64_t shape[4] = {cache->batch, p->shape.heads_q, tokens->len, cache->dim_qk};
    const attn_dtype dtype = t->q.dtype ? t->q.dtype : ATTN_F32;
    size_t size = attn_dtype_size(dtype);
    for (int axis = 0; axis < 4; axis++) {
        CHECK(shape[axis] >= 0 && (shape[axis] == 0 || size <= SIZE_MAX / (size_t)shape[axis]), ATTN_ERR_SHAPE,
              "cache: the bytes of the queries exceed the address space");
        size *= (size_t)shape[axis];
    }
    const size_t each = entries * sizeof *r->positions;
    CHECK((size_t)tokens->len < SIZE_MAX / each, ATTN_ERR_SHAPE, "cache: the positions of the queries exceed the address space");
    r->q = take(r, size);
    r->positions = take(r, each * (size_t)tokens->len);
    CHECK(r->q && r->positions, ATTN_ERR_MEMORY, "cache: cannot allocate %zu bytes for rotated queries", size);
    for (int64_t b = 0; b < cache->batch; b++)
        for (int64_t i = 0; i < tokens->len; i++) /* any position does for padding; 0 is within the rope's tables */
            r->positions[b * tokens->len + i] = i < r->lengths_q[b] ? attn_cache_lengths(cache)[b] + i : 0;
    t->q = (attn_input){r->q, dtype, {0, 0, 0, 0}}; /* filled in once nothing can fail */
    return ATTN_OK;
}

/* Appending overwrites no input of attention but the cache itself, and attention's outputs overlap neither tokens nor cache; q is
 * the caller's slot, not the rotated copy. */
static attn_status check_no_overlap(const attn_cache *cache, const attn_cache_tokens *tokens, const attn_plan *plan,
                                    const attn_tensors *t, const attn_input *q, int64_t heads_q, attn_error *error)
{
    places p;
    attn_tensors given = *t;
    attn_cache_places(&p, cache, tokens);
    if (cache->rope) { /* t->q is the rotated copy */
        const int64_t shape[4] = {cache->batch, heads_q, tokens->len, cache->dim_qk};
        given.q = (attn_input){NULL, ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}};
        places_add_slot(&p, "", "q", q, shape, ATTN_F32, 0);
    }
    places_add_attention(&p, "", plan, &given, 1);
    return places_check(&p, "cache", error);
}

static attn_status attend(const attn_cache *cache, const attn_cache_tokens *tokens, const attn_problem *p, attn_tensors *t,
                          scratch *r, attn_error *error)
{
    const attn_input q = t->q;
    TRY(fill_tensors(cache, tokens, p, t, r, error));
    TRY(execution_begin(&r->run, p, t, &r->options, error));
    TRY(execution_try(&r->run, t, error));
    TRY(check_no_overlap(cache, tokens, r->run.plan, t, &q, p->shape.heads_q, error));
    if (r->q) { /* read the queries only once the plan has checked their number */
        const int64_t shape[4] = {cache->batch, p->shape.heads_q, tokens->len, cache->dim_qk};
        const attn_input positions = attn_in(r->positions);
        const attn_output rotated = {r->q, t->q.dtype, {0, 0, 0, 0}};
        TRY(attn_rope_apply(cache->rope, shape, &q, &positions, &rotated, error));
    }
    attn_cache_write(cache, tokens);
    return execution_run(&r->run, t, error);
}

/* Rejects whatever the caller sets although it follows from the cache and the tokens. */
static attn_status check_filled(int64_t heads_kv, const attn_problem *p, const attn_tensors *t, attn_error *error)
{
    const attn_shape *s = &p->shape;
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"shape.batch", s->batch},         {"shape.heads_kv", s->heads_kv},
                   {"shape.len_q", s->len_q},         {"shape.len_kv", s->len_kv},
                   {"shape.dim_qk", s->dim_qk},       {"shape.dim_v", s->dim_v},
                   {"mask.align", p->mask.align},     {"paging.page_size", p->paging.page_size},
                   {"paging.pages", p->paging.pages}, {"paging.page_entries", p->paging.page_entries}};
    const struct {
        const char *name;
        const attn_input *slot;
    } filled[] = {{"k", &t->k},
                  {"v", &t->v},
                  {"k_scale", &t->k_scale},
                  {"v_scale", &t->v_scale},
                  {"lengths_q", &t->lengths_q},
                  {"lengths_kv", &t->lengths_kv},
                  {"cu_seqlens_q", &t->cu_seqlens_q},
                  {"cu_seqlens_kv", &t->cu_seqlens_kv},
                  {"offset_q", &t->offset_q},
                  {"page_table", &t->page_table},
                  {"page_starts", &t->page_starts},
                  {"page_index", &t->page_index},
                  {"lengths_last_page", &t->lengths_last_page}};
    CHECK(p->op == ATTN_FORWARD, ATTN_ERR_ARGUMENT, "cache: op is %d; it must be 0 (forward)", (int)p->op);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        CHECK(numbers[i].value == 0, ATTN_ERR_ARGUMENT,
              "cache: %s is %" PRId64 "; it follows from the cache and the tokens, leave it 0", numbers[i].name, numbers[i].value);
    CHECK(p->shape.heads_q != 0 || heads_kv == 0, ATTN_ERR_SHAPE, "cache: shape.heads_q is 0; the caller must set it");
    for (size_t i = 0; i < sizeof filled / sizeof *filled; i++) {
        const attn_status status = slot_absent(filled[i].slot, filled[i].name, "attn_cache_attend", error);
        if (status == ATTN_OK) continue;
        if (error) error->tensor = (int)(((const char *)filled[i].slot - (const char *)&t->q) / (ptrdiff_t)sizeof t->q);
        return status;
    }
    return ATTN_OK;
}

attn_status attn_cache_attend(const attn_cache *cache, const attn_cache_tokens *tokens, const attn_problem *problem,
                              const attn_tensors *tensors, const attn_options *options, attn_error *error)
{
    attn_cache c;
    attn_cache_tokens new_tokens;
    attn_problem p;
    attn_tensors t;
    scratch r = {.q = NULL};
    CHECK(problem, ATTN_ERR_ARGUMENT, "problem is NULL");
    CHECK(tensors, ATTN_ERR_ARGUMENT, "tensors is NULL");
    TRY(struct_read(&p, sizeof p, sizeof p, problem, "attn_problem", error));
    TRY(slots_read(&t, sizeof t, sizeof t, tensors, "attn_tensors", error));
    TRY(options_read(&r.options, options, error));
    TRY(attn_cache_resolve(cache, tokens, &c, &new_tokens, error));
    TRY(check_filled(c.heads_kv, &p, &t, error));
    describe(&c, &new_tokens, &p);
    attn_status status = attend(&c, &new_tokens, &p, &t, &r, error);
    free_scratch(&r);
    return status;
}
