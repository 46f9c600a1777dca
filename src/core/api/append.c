/* SPDX-License-Identifier: MIT
 * append.c - attn_cache_append: where new tokens go. */
#include "cache.h"

/* Token n of all entries, each with as many as the longest, of which some may be padding. */
static int find_in_entry(const void *context, int64_t n, attn_transfer_token *t)
{
    const attn_append *call = context;
    const attn_cache *c = &call->cache;
    const int64_t b = n / call->longest, i = n % call->longest;
    if (i >= attn_append_count(call, b)) return 0;
    const int64_t at = attn_cache_lengths(c)[b] + i;
    const int packed = attn_append_is_packed(call);
    *t = (attn_transfer_token){
        packed ? 0 : b, attn_append_first(call, b) + i, attn_cache_entry(c, b, at), attn_cache_token(c, at), at, 0, 0, 0};
    return 1;
}

static int find_slot(const void *context, int64_t n, attn_transfer_token *t)
{
    const attn_append *call = context;
    const attn_cache *c = &call->cache;
    const int64_t slot = attn_cache_index(&call->tokens.slots, n), each = attn_cache_has_pages(c) ? c->page_size : c->capacity;
    if (slot < 0) return 0;
    *t = (attn_transfer_token){0, n, slot / each, slot % each, 0, 0, 0, 0};
    if (c->rope) t->position = attn_cache_index(&call->tokens.positions, n);
    return 1;
}

attn_status attn_append_plan(attn_transfer_walk *walk, const attn_append *call, const attn_options *options, attn_error *error)
{
    const attn_cache *c = &call->cache;
    const int slots = attn_append_has_slots(call),
              written = c->heads_kv > 0 && (c->dim_qk > 0 || c->dim_v > 0 || c->k_scale.data || c->v_scale.data);
    const attn_transfer_tensor
        k = {c->heads_kv, c->dim_qk, call->tokens.k, c->k, c->k_scale, c->rope, attn_cache_gives_scale(&c->k, &c->k_scale), 0},
        v = {c->heads_kv, c->dim_v, call->tokens.v, c->v, c->v_scale, NULL, attn_cache_gives_scale(&c->v, &c->v_scale), 0};
    const int by_channel = attn_is_by_channel(c->k.dtype);
    CHECK(!by_channel || !slots, ATTN_ERR_UNSUPPORTED,
          "cache: k is %s and tokens.slots is set; the last keys of an entry are in its tail, so append by lengths or cu_seqlens",
          attn_dtype_name(c->k.dtype));
    /* What is written fits memory; of no heads or channels there may be 2^48 tokens. */
    *walk = (attn_transfer_walk){.tokens = !written ? 0
                                           : slots  ? call->tokens.len
                                                    : c->batch * call->longest,
                                 .find = slots ? find_slot : find_in_entry,
                                 .context = call,
                                 .tensor = {by_channel ? v : k, v},
                                 .tensors = by_channel || attn_cache_has_values_in_keys(c) ? 1 : 2};
    if (by_channel) walk->groups = (attn_transfer_groups){c->batch, call->longest, k, c->k_tail};
    return attn_transfer_plan(walk, options, 0, error);
}

void attn_append_run(const attn_transfer_walk *walk, const attn_append *call)
{
    attn_run_transfer(walk);
    for (int64_t b = 0; !attn_append_has_slots(call) && b < call->cache.batch; b++)
        attn_cache_lengths(&call->cache)[b] += attn_append_count(call, b);
}

attn_status attn_cache_append(const attn_cache *cache, const attn_cache_tokens *tokens, attn_error *error)
{
    attn_append call;
    attn_transfer_walk walk;
    TRY(attn_append_read(&call, cache, tokens, error));
    TRY(attn_append_plan(&walk, &call, call.tokens.options, error));
    attn_append_run(&walk, &call);
    return succeed(error);
}
