/* SPDX-License-Identifier: MIT
 * attend.c - attn_cache_attend: append, then one forward call over the cache, with rotated queries. */
#include <inttypes.h>
#include <string.h>

#include "../../common/options.h"
#include "cache.h"
#include "execute.h"

/* Below so many new tokens of an entry, queries are rotated into a copy; from here on while they are packed, where walks can. */
enum { MANY_QUERIES = 16 };

/* What one call allocates: lengths, a plan and its workspace, and if there is a rope, rotated queries or the angles to rotate them.
 */
typedef struct scratch {
    attn_options options; /* from options_read */
    int64_t *lengths_q, *lengths_kv;
    void *q;
    double *angles;
    attn_rotation rotation; /* by these */
    execution run;
} scratch;

static void *take(const scratch *r, size_t bytes) { return options_acquire(&r->options, bytes); }

static void free_scratch(scratch *r)
{
    execution_end(&r->run, &r->options);
    options_release(&r->options, r->angles);
    options_release(&r->options, r->q);
    options_release(&r->options, r->lengths_kv);
    options_release(&r->options, r->lengths_q);
}

/* Fills in the problem over the cache as it is after appending. */
static void describe(const attn_append *call, attn_problem *p)
{
    const attn_cache *const cache = &call->cache;
    int64_t longest = 0;
    for (int64_t b = 0; b < cache->batch; b++) {
        int64_t length = attn_cache_lengths(cache)[b] + attn_append_count(call, b);
        if (length > longest) longest = length;
    }
    p->shape.batch = cache->batch;
    p->shape.heads_kv = cache->heads_kv;
    p->shape.len_q = call->tokens.len;
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

static attn_status fill_tensors(const attn_append *call, attn_tensors *t, scratch *r, attn_error *error)
{
    const attn_cache *const cache = &call->cache;
    const size_t entries = (size_t)cache->batch + 1;
    r->lengths_q = take(r, entries * sizeof *r->lengths_q);
    r->lengths_kv = take(r, entries * sizeof *r->lengths_kv);
    CHECK(r->lengths_q && r->lengths_kv, ATTN_ERR_MEMORY, "cache: cannot allocate the lengths of %" PRId64 " entries",
          cache->batch);
    for (int64_t b = 0; b < cache->batch; b++) {
        r->lengths_q[b] = attn_append_count(call, b);
        if (r->lengths_q[b] > 0) r->lengths_kv[b] = attn_cache_lengths(cache)[b] + r->lengths_q[b];
        else r->lengths_kv[b] = 0; /* nothing sees its keys, whose pages may be gone */
    }
    t->k = read_from(&cache->k);
    t->v = read_from(&cache->v);
    if (cache->k.dtype == ATTN_I8 || cache->k_scale.data) t->k_scale = read_from(&cache->k_scale);
    if (attn_is_by_channel(cache->k.dtype)) t->k_tail = read_from(&cache->k_tail);
    if (cache->v.dtype == ATTN_I8 || cache->v_scale.data) t->v_scale = read_from(&cache->v_scale);
    t->lengths_q = attn_in(r->lengths_q);
    t->lengths_kv = attn_in(r->lengths_kv);
    if (cache->page_table.data)
        t->page_table = (attn_input){cache->page_table.data, cache->page_table.dtype, {cache->page_table.stride[0], 0, 0, 1}};
    return ATTN_OK;
}

/* [batch, heads, len, channels] elements of `size` bytes. */
static attn_status take_rows(const attn_append *call, int64_t heads, int64_t channels, size_t size, void **memory, const scratch *r,
                             attn_error *error)
{
    const int64_t shape[4] = {call->cache.batch, heads, call->tokens.len, channels};
    for (int axis = 0; axis < 4; axis++) {
        CHECK(shape[axis] >= 0 && (shape[axis] == 0 || size <= SIZE_MAX / (size_t)shape[axis]), ATTN_ERR_SHAPE,
              "cache: the bytes of the queries exceed the address space");
        size *= (size_t)shape[axis];
    }
    *memory = take(r, size);
    CHECK(*memory, ATTN_ERR_MEMORY, "cache: cannot allocate %zu bytes to rotate queries", size);
    return ATTN_OK;
}

static int64_t pairs_of(const attn_cache *cache) { return (cache->rope->dim_rotary ? cache->rope->dim_rotary : cache->dim_qk) / 2; }

/* The plan: of the caller's queries, if they are rotated while they are packed, or of a copy, which is filled in once nothing can
 * fail. */
static attn_status plan_attention(const attn_append *call, const attn_problem *p, attn_tensors *t, scratch *r, attn_error *error)
{
    const attn_cache *const cache = &call->cache;
    const int rotates = cache->rope && t->q.data; /* planning reports a missing q */
    void *memory;
    if (rotates && call->longest >= MANY_QUERIES && pairs_of(cache) <= ATTN_ROTATED_PAIRS) {
        TRY(execution_begin(&r->run, p, t, &r->options, error));
        if (attn_execution_can_rotate(r->run.plan, t)) {
            TRY(take_rows(call, 1, 2 * pairs_of(cache), sizeof *r->angles, &memory, r, error));
            r->angles = memory;
            return ATTN_OK;
        }
        execution_end(&r->run, &r->options);
        r->run = (execution){.plan = NULL};
    }
    if (rotates) {
        const attn_dtype dtype = t->q.dtype ? t->q.dtype : ATTN_F32;
        TRY(take_rows(call, p->shape.heads_q, cache->dim_qk, attn_dtype_size(dtype), &r->q, r, error));
        t->q = (attn_input){r->q, dtype, {0, 0, 0, 0}};
    }
    return execution_begin(&r->run, p, t, &r->options, error);
}

/* Appending overwrites no input of attention but the cache itself, and attention's outputs overlap neither tokens nor cache; q is
 * the caller's slot, not the rotated copy. */
static attn_status check_no_overlap(const attn_append *call, const scratch *r, const attn_tensors *t, const attn_input *q,
                                    int64_t heads_q, attn_error *error)
{
    const attn_cache *const cache = &call->cache;
    places p;
    attn_tensors given = *t;
    attn_append_places(&p, call);
    if (r->q) { /* t->q is the rotated copy */
        const int64_t shape[4] = {cache->batch, heads_q, call->tokens.len, cache->dim_qk};
        given.q = (attn_input){NULL, ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}};
        places_add_slot(&p, "", "q", q, shape, ATTN_F32, 0);
    }
    places_add_attention(&p, "", r->run.plan, &given, 1);
    return places_check(&p, "cache", error);
}

/* Query n of all entries; those past an entry's tokens are only copied, since their positions may be past the rope's tables. */
static int find_query(const void *context, int64_t n, attn_transfer_token *t)
{
    const attn_append *call = context;
    const int64_t b = n / call->tokens.len, i = n % call->tokens.len;
    *t = (attn_transfer_token){b, i, b, i, attn_cache_lengths(&call->cache)[b] + i, i >= attn_append_count(call, b), 0, 0};
    return 1;
}

/* The rotation of q into the dense r->q, or the angles for it, once the plan has checked the queries. */
static attn_status plan_queries(attn_transfer_walk *walk, const attn_append *call, int64_t heads_q, const attn_input *q, scratch *r,
                                attn_error *error)
{
    const attn_cache *const cache = &call->cache;
    const int64_t shape[4] = {cache->batch, heads_q, call->tokens.len, cache->dim_qk}, pairs = pairs_of(cache);
    const int some = heads_q > 0 && cache->dim_qk > 0;
    attn_transfer_tensor *x = &walk->tensor[0];
    *walk = (attn_transfer_walk){
        .tokens = some ? cache->batch * call->tokens.len : 0, .find = find_query, .context = call, .tensors = 1};
    if (r->angles) {
        *x = (attn_transfer_tensor){.heads = 1, .dim = 2 * pairs, .rope = cache->rope, .angles = 1};
        x->to = (attn_output){r->angles, ATTN_F64, {call->tokens.len * 2 * pairs, 0, 2 * pairs, 1}};
    } else {
        attn_input from = *q, to = {r->q, q->dtype, {0, 0, 0, 0}};
        TRY(slot_resolve(&from, "q", shape, ATTN_F32, error));
        CHECK(from.stride[3] == 1 || shape[3] <= 1, ATTN_ERR_STRIDE, /* which the plan, of the copy, does not see */
              "q.stride[3] is %" PRId64 "; the last axis must be contiguous (1)", from.stride[3]);
        TRY(slot_resolve(&to, "q", shape, ATTN_F32, error));
        *x = (attn_transfer_tensor){.heads = heads_q, .dim = cache->dim_qk, .from = from, .rope = cache->rope};
        x->to = (attn_output){r->q, to.dtype, {to.stride[0], to.stride[1], to.stride[2], to.stride[3]}};
    }
    TRY(attn_transfer_plan(walk, &r->options, 0, error));
    const int64_t apart = cache->rope->pairs == ATTN_ROPE_PAIRS_INTERLEAVED ? 1 : pairs;
    r->rotation = (attn_rotation){walk->kernel, pairs, apart, call->tokens.len, r->angles};
    return ATTN_OK;
}

static attn_status attend(const attn_append *call, const attn_problem *p, attn_tensors *t, scratch *r, attn_error *error)
{
    const attn_input q = t->q;
    attn_transfer_walk append, queries;
    TRY(fill_tensors(call, t, r, error));
    TRY(plan_attention(call, p, t, r, error));
    TRY(execution_try(&r->run, t, error));
    TRY(check_no_overlap(call, r, t, &q, p->shape.heads_q, error));
    TRY(attn_append_plan(&append, call, &r->options, error));
    if (r->q || r->angles) {
        TRY(plan_queries(&queries, call, p->shape.heads_q, &q, r, error));
        attn_run_transfer(&queries);
    }
    attn_append_run(&append, call);
    return attn_execute_rotated(r->run.plan, t, r->angles ? &r->rotation : NULL, r->run.workspace, r->run.size, error);
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
                  {"k_tail", &t->k_tail},
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
    attn_append call;
    attn_problem p;
    attn_tensors t;
    scratch r = {.q = NULL};
    CHECK(problem, ATTN_ERR_ARGUMENT, "problem is NULL");
    CHECK(tensors, ATTN_ERR_ARGUMENT, "tensors is NULL");
    TRY(struct_read(&p, sizeof p, sizeof p, problem, "attn_problem", error));
    TRY(slots_read(&t, sizeof t, sizeof t, tensors, "attn_tensors", error));
    TRY(options_read(&r.options, options, error));
    TRY(attn_append_read(&call, cache, tokens, error));
    CHECK(!attn_append_has_slots(&call), ATTN_ERR_ARGUMENT,
          "cache: tokens.slots is set; attending tells by lengths which keys a query sees: append, then compute");
    CHECK(!attn_append_is_packed(&call), ATTN_ERR_ARGUMENT,
          "cache: tokens.cu_seqlens is set; attending has queries of [batch, heads_q, len, dim]: append, then compute");
    CHECK(!call.tokens.options, ATTN_ERR_ARGUMENT, "cache: tokens.options is set; attending has options of its own");
    TRY(check_filled(call.cache.heads_kv, &p, &t, error));
    describe(&call, &p);
    attn_status status = attend(&call, &p, &t, &r, error);
    free_scratch(&r);
    return status;
}
