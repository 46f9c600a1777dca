/* SPDX-License-Identifier: MIT
 * cache_shift.c - attn_cache_shift and attn_cache_move on the cache as it is between two steps. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cache_case.h"

static attn_error last;

static int64_t held(const cache_case *c, int64_t b) { return (int64_t)block_get(&c->blocks[C_LENGTHS], b, 0, 0, 0); }

/* The bytes of a row of a shadow become those of another. */
static void copy_row(cache_case *c, int which, const int64_t from[2], const int64_t to[2])
{
    const block *b = &c->blocks[which];
    if (!b->name || b->shape[3] == 0) return;
    for (int64_t h = 0; h < b->shape[1]; h++)
        memcpy(c->shadow[which] + (block_at(b, to[0], h, to[1], 0) - b->memory),
               c->shadow[which] + (block_at(b, from[0], h, from[1], 0) - b->memory), (size_t)b->shape[3] * b->element);
}

static void check_all(const cache_case *c, const char *what)
{
    for (int t = 0; t < C_OWN; t++)
        if (c->blocks[t].bytes && memcmp(c->blocks[t].memory, c->shadow[t], c->blocks[t].bytes) != 0)
            finding("%s: %s is not as expected", what, c->blocks[t].name);
}

/* Key `was` of entry b, in double and rotated on to position `now`: row x of each head. */
static void turn(cache_case *c, int64_t b, int64_t was, int64_t now, double *x)
{
    const int64_t heads = c->cache.heads_kv, dim = c->cache.dim_qk, shape[4] = {1, heads, 1, dim};
    attn_rope back = *c->cache.rope;
    int64_t at[2];
    cache_where(c, b, was, at);
    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < dim; i++) x[h * dim + i] = block_get(&c->blocks[C_K], at[0], h, at[1], i);
    const attn_input from = {x, ATTN_F64, {0, 0, 0, 0}}, old = attn_in(&was), new = attn_in(&now);
    const attn_output to = {x, ATTN_F64, {0, 0, 0, 0}};
    back.inverse = !back.inverse;
    if (attn_rope_apply(&back, shape, &from, &old, &to, &last) || attn_rope_apply(c->cache.rope, shape, &from, &new, &to, &last))
        finding("attn_rope_apply rejects keys of the cache: %s", last.message);
}

/* Without the page where one of the tokens that move is or goes, a shift is rejected; behind a window it may have been freed. */
static void shift_without_page(cache_case *c, int64_t b, int64_t keep, const attn_input *drop)
{
    const attn_cache *k = &c->cache;
    block *table = &c->blocks[C_TABLE];
    const int64_t less = ((const int64_t *)drop->data)[b], to = keep + draw_below(c->from, held(c, b) - keep - less);
    const int64_t column = (draw_one_in(c->from, 2) ? to : to + less) / k->page_size;
    const double right = block_get(table, b, 0, 0, column);
    block_put(table, b, 0, 0, column, draw_one_in(c->from, 2) ? -1 : (double)k->pages);
    memcpy(c->shadow[C_TABLE], table->memory, table->bytes);
    if (attn_cache_shift(k, keep, drop, &last) == ATTN_OK) finding("tokens of a page out of range are shifted");
    check_all(c, "a shift without a page");
    block_put(table, b, 0, 0, column, right);
    memcpy(c->shadow[C_TABLE], table->memory, table->bytes);
}

static void shift(cache_case *c)
{
    draws *d = c->from;
    const attn_cache *k = &c->cache;
    const int64_t keep = draw_below(d, 4);
    const int turned = k->rope && k->dim_qk > 0, whole = format_is_any(c->blocks[C_K].dtype);
    int64_t drop[MAX_BATCH], most = 0;
    double *keys = calloc((size_t)(MAX_BATCH * MAX_CAPACITY * k->heads_kv * k->dim_qk) + 1, sizeof *keys);
    if (!keys) abort();
    for (int64_t b = 0; b < k->batch; b++) {
        drop[b] = held(c, b) > keep ? draw_below(d, held(c, b) - keep + 1) : 0;
        if (drop[b] > most) most = drop[b];
        for (int64_t j = keep; turned && drop[b] && j + drop[b] < held(c, b); j++)
            turn(c, b, j + drop[b], j, keys + (b * MAX_CAPACITY + j) * k->heads_kv * k->dim_qk);
    }
    const attn_input less = attn_in(drop);
    for (int64_t b = 0; k->page_size && b < k->batch; b++)
        if (drop[b] > 0 && drop[b] < held(c, b) - keep && draw_one_in(d, 3)) shift_without_page(c, b, keep, &less);
    unsigned char *const table = cache_hide_pages(c, drop);
    const attn_status status = attn_cache_shift(k, keep, &less, &last);
    check_error(status, &last);
    cache_show_pages(c, table);
    if (turned && whole) {
        if (status == ATTN_OK) finding("rotated keys of 8 or 4 bits are shifted");
        check_all(c, "a rejected shift");
        free(keys);
        return;
    }
    if (status != ATTN_OK) finding("a valid shift is rejected: %s", last.message);
    for (int64_t b = 0; b < k->batch; b++) {
        const int64_t now = held(c, b), was = now + drop[b];
        memcpy(c->shadow[C_LENGTHS] + b * 8, &now, 8);
        for (int64_t j = keep; drop[b] && j + drop[b] < was; j++) {
            int64_t from[2], to[2];
            cache_where(c, b, j + drop[b], from), cache_where(c, b, j, to);
            for (int t = C_K; t <= C_V_SCALE; t++) copy_row(c, t, from, to);
            for (int64_t h = 0; turned && h < k->heads_kv; h++) {
                const double *x = keys + ((b * MAX_CAPACITY + j) * k->heads_kv + h) * k->dim_qk;
                const block *K = &c->blocks[C_K];
                for (int64_t i = 0; i < k->dim_qk; i++) block_check(K, to[0], h, to[1], i, x[i], 0x1p-40);
                memcpy(c->shadow[C_K] + (block_at(K, to[0], h, to[1], 0) - K->memory), block_at(K, to[0], h, to[1], 0),
                       (size_t)k->dim_qk * K->element);
            }
        }
    }
    check_all(c, "shift");
    free(keys);
}

/* Tokens of entry b, which are not NaN, to any slots. */
static void move(cache_case *c, int64_t b)
{
    enum { MOST = 8 };
    draws *d = c->from;
    const attn_cache *k = &c->cache;
    const int64_t each = k->page_size ? k->page_size : k->capacity, all = (k->page_size ? k->pages : k->batch) * each;
    int64_t from[MOST], to[MOST], count = held(c, b) > 0 ? draw_below(d, MOST + 1) : 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t at[2];
        cache_where(c, b, draw_below(d, held(c, b)), at);
        from[i] = at[0] * each + at[1], to[i] = draw_below(d, all);
    }
    const attn_input source = attn_in(from), target = attn_in(to);
    if (count > 0 && draw_one_in(d, 4)) {
        const int64_t right = from[count - 1];
        from[count - 1] = draw_one_in(d, 2) ? -1 : all;
        if (attn_cache_move(k, count, &source, &target, &last) == ATTN_OK) finding("a slot out of range is moved");
        check_all(c, "a rejected move");
        from[count - 1] = right;
    }
    const attn_status status = attn_cache_move(k, count, &source, &target, &last);
    check_error(status, &last);
    if (status != ATTN_OK) finding("a valid move is rejected: %s", last.message);
    for (int64_t i = 0; i < count; i++) {
        const int64_t was[2] = {from[i] / each, from[i] % each}, now[2] = {to[i] / each, to[i] % each};
        for (int t = C_K; t <= C_V_SCALE; t++) copy_row(c, t, was, now);
    }
    check_all(c, "move");
}

void cache_rearrange(cache_case *c)
{
    if (draw_one_in(c->from, 2)) shift(c);
    else move(c, draw_below(c->from, c->cache.batch));
}
