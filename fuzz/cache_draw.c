/* SPDX-License-Identifier: MIT
 * cache_draw.c - random caches, and steps of tokens for them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attn_ref.h"
#include "cache_case.h"

static attn_dtype draw_float(draws *d, int wide)
{
    static const attn_dtype types[] = {ATTN_F32, ATTN_F16, ATTN_BF16};
    return wide ? ATTN_F64 : types[draw_below(d, 3)];
}

static attn_dtype draw_type(draws *d, int wide)
{
    static const attn_dtype formats[] = {ATTN_I8, ATTN_I8, ATTN_F8_E4M3, ATTN_F8_E5M2, ATTN_Q8_0, ATTN_Q4_0, ATTN_Q4_1};
    return !wide && draw_one_in(d, 2) ? formats[draw_below(d, 7)] : draw_float(d, wide);
}

/* Channels of a row of this type. */
static int64_t draw_dim(draws *d, attn_dtype dtype)
{
    static const int64_t dims[] = {1, 2, 3, 4, 7, 8, 12, 16, 17, 20, 32, 33, 64, 0}, of_blocks[] = {32, 64, 0};
    return format_is_blocks(dtype) ? of_blocks[draw_below(d, 3)] : dims[draw_below(d, 14)];
}

static void draw_rope(cache_case *c)
{
    draws *d = c->from;
    attn_rope *r = &c->rope;
    r->struct_size = sizeof *r;
    r->pairs = draw_one_in(d, 2) ? ATTN_ROPE_PAIRS_HALVES : ATTN_ROPE_PAIRS_INTERLEAVED;
    r->dim_rotary = c->cache.dim_qk % 2 || draw_one_in(d, 2) ? c->cache.dim_qk / 2 / 2 * 2 : 0;
    const int64_t rotary = r->dim_rotary ? r->dim_rotary : c->cache.dim_qk;
    if (rotary == 0 || rotary % 2 || rotary > MAX_ROTARY) return;
    c->cache.rope = r;
    if (!draw_one_in(d, 3)) return;
    r->cosines = c->tables[0], r->sines = c->tables[1], r->table_rows = 1 + draw_below(d, MAX_CAPACITY);
    for (int64_t i = 0; i < r->table_rows * rotary / 2; i++) {
        const double angle = draw_real(d, -4, 4);
        c->tables[0][i] = cos(angle), c->tables[1][i] = sin(angle);
    }
}

static void make(cache_case *c, int at, block b, int strides)
{
    block_free(&c->blocks[at]);
    c->blocks[at] = b;
    if (strides && draw_one_in(c->from, 2)) block_draw_strides(&c->blocks[at], c->from, 1);
    if (!block_allocate(&c->blocks[at])) finding("%s is too large", b.name);
}

static void draw_pages(cache_case *c)
{
    attn_cache *k = &c->cache;
    draws *d = c->from;
    k->page_size = 1 + draw_below(d, 17);
    const int64_t columns = (k->capacity + k->page_size - 1) / k->page_size;
    k->pages = k->batch * columns + draw_below(d, 4);
    const attn_dtype type = draw_one_in(d, 2) ? ATTN_I32 : ATTN_I64;
    block wider = block_of("page_table", type, 0, k->batch, 1, 1, columns > 0 ? columns : 1);
    if (draw_one_in(d, 2)) wider.stride[0] += draw_below(d, 5);
    make(c, C_TABLE, wider, 0);
    const block *table = &c->blocks[C_TABLE];
    if (table->memory) memset(table->memory, 0xFF, table->bytes); /* bytes between rows are compared too */
    /* A permutation: no page is used twice. */
    const int64_t step = 1 + 2 * draw_below(d, 4), first = draw_below(d, k->pages > 0 ? k->pages : 1);
    int64_t free_page = first;
    unsigned char *taken = calloc((size_t)k->pages + 1, 1);
    for (int64_t b = 0; taken && b < k->batch; b++)
        for (int64_t i = 0; i < columns; i++) {
            for (free_page = (free_page + step) % k->pages; taken[free_page];) free_page = (free_page + 1) % k->pages;
            taken[free_page] = 1;
            block_put(table, b, 0, 0, i, (double)free_page);
        }
    free(taken);
}

/* i8 has a scale for each row; f8 has them too, or none, or its caller's: of the tensor, or of each head. */
static void draw_scales(cache_case *c, int which, int64_t entries, int64_t space)
{
    draws *d = c->from;
    const attn_dtype type = c->blocks[which].dtype;
    const int64_t kind = type == ATTN_I8 ? 3 : draw_below(d, 6); /* 0 tensor, 1 head, 2 none, else row */
    block scale = block_of(which == C_K ? "k_scale" : "v_scale", ATTN_F32, 1, entries, c->cache.heads_kv, space, 1);
    if (!format_is_any(type) || format_is_blocks(type) || kind == 2) return;
    if (kind < 2) scale.stride[0] = scale.stride[2] = 0, scale.stride[1] = kind;
    make(c, which + C_K_SCALE - C_K, scale, kind > 2);
    block *made = &c->blocks[which + C_K_SCALE - C_K];
    if (kind > 2 && (made->stride[2] == 0 || made->stride[2] == ATTN_BROADCAST))
        made->stride[2] = 1; /* of an axis of one token: not the caller's */
}

/* The caller's scales, after the cache has been filled with NaN. */
static void give_scales(cache_case *c, int which)
{
    draws *d = c->from;
    if (!cache_gives_scale(c, which)) return;
    const block *scale = &c->blocks[which + C_K_SCALE - C_K];
    for (int64_t h = 0; scale->bytes && h < c->cache.heads_kv; h++)
        block_put(scale, 0, h, 0, 0, ldexp(draw_real(d, 1, 2), (int)draw_below(d, 16) - 12) * (draw_one_in(d, 8) ? -1 : 1));
}

void cache_draw(cache_case *c)
{
    draws *d = c->from;
    attn_cache *k = &c->cache;
    const int wide = draw_one_in(d, 5);
    k->struct_size = sizeof *k;
    k->batch = 1 + draw_below(d, MAX_BATCH), k->heads_kv = 1 + draw_below(d, 2);
    k->capacity = draw_one_in(d, 4) ? draw_below(d, MAX_CAPACITY + 1) : draw_below(d, 40);
    const attn_dtype key = draw_type(d, wide), value = draw_type(d, wide);
    k->dim_qk = draw_dim(d, key), k->dim_v = draw_dim(d, value);
    if (draw_one_in(d, 3)) draw_rope(c);
    if (draw_one_in(d, 2)) draw_pages(c);
    const int64_t entries = k->page_size ? k->pages : k->batch, space = k->page_size ? k->page_size : k->capacity;
    make(c, C_K, block_of("k", key, 1, entries, k->heads_kv, space, format_elements(key, k->dim_qk)), 1);
    make(c, C_V, block_of("v", value, 1, entries, k->heads_kv, space, format_elements(value, k->dim_v)), 1);
    draw_scales(c, C_K, entries, space), draw_scales(c, C_V, entries, space);
    make(c, C_LENGTHS, block_of("lengths", ATTN_I64, 1, k->batch, 1, 1, 1), 0);
    blocks_canary(c->blocks, C_OWN, 0xFF); /* NaN where no token has been written */
    give_scales(c, C_K), give_scales(c, C_V);
    memset(c->blocks[C_LENGTHS].memory, 0, c->blocks[C_LENGTHS].bytes);
    for (int t = 0; t < C_OWN; t++) {
        c->shadow[t] = malloc(c->blocks[t].bytes + 1);
        if (!c->shadow[t]) abort();
        if (c->blocks[t].memory) memcpy(c->shadow[t], c->blocks[t].memory, c->blocks[t].bytes);
    }
    k->k = block_out(&c->blocks[C_K]), k->v = block_out(&c->blocks[C_V]);
    k->k_scale = block_out(&c->blocks[C_K_SCALE]), k->v_scale = block_out(&c->blocks[C_V_SCALE]);
    k->lengths = attn_out(c->blocks[C_LENGTHS].memory);
    if (k->dim_qk == 0 && draw_one_in(d, 2)) memset(k->k.stride, 0, sizeof k->k.stride);
    if (k->page_size)
        k->page_table = (attn_input){c->blocks[C_TABLE].memory, c->blocks[C_TABLE].dtype, {c->blocks[C_TABLE].stride[0], 0, 0, 1}};
}

void cache_place(cache_case *c, int64_t first, int64_t count, const int64_t *added)
{
    attn_cache_tokens *t = &c->tokens;
    *t = (attn_cache_tokens){
        .struct_size = sizeof *t, .len = count, .k = block_in(&c->blocks[C_NEW_K]), .v = block_in(&c->blocks[C_NEW_V])};
    c->tensors = (attn_tensors){.struct_size = sizeof c->tensors,
                                .q = block_in(&c->blocks[C_Q]),
                                .o = block_out(&c->blocks[C_O]),
                                .lse = block_out(&c->blocks[C_LSE])};
    if (c->blocks[C_NEW_K].bytes) t->k.data = block_at(&c->blocks[C_NEW_K], 0, 0, first, 0);
    if (c->blocks[C_NEW_V].bytes) t->v.data = block_at(&c->blocks[C_NEW_V], 0, 0, first, 0);
    if (c->blocks[C_Q].bytes) c->tensors.q.data = block_at(&c->blocks[C_Q], 0, 0, first, 0);
    if (c->blocks[C_O].bytes) c->tensors.o.data = block_at(&c->blocks[C_O], 0, 0, first, 0);
    if (c->blocks[C_LSE].bytes) c->tensors.lse.data = block_at(&c->blocks[C_LSE], 0, 0, first, 0);
    for (int64_t b = 0; b < c->cache.batch; b++) block_put(&c->blocks[C_NEW_LENGTHS], b, 0, 0, 0, (double)added[b]);
    t->lengths = (attn_input){c->blocks[C_NEW_LENGTHS].memory, c->blocks[C_NEW_LENGTHS].dtype, {0, 0, 0, 0}};
}

void cache_draw_step(cache_case *c)
{
    draws *d = c->from;
    const attn_cache *k = &c->cache;
    const int wide = c->blocks[C_K].dtype == ATTN_F64;
    const int64_t len = draw_one_in(d, 3) ? 1 : draw_one_in(d, 4) ? draw_below(d, 40) : draw_below(d, 8);
    const int64_t heads = k->heads_kv * (1 + draw_below(d, 4));
    const attn_dtype q = draw_float(d, wide);
    make(c, C_NEW_K, block_of("the new k", draw_float(d, wide), 0, k->batch, k->heads_kv, len, k->dim_qk), 1);
    make(c, C_NEW_V, block_of("the new v", draw_float(d, wide), 0, k->batch, k->heads_kv, len, k->dim_v), 1);
    make(c, C_NEW_LENGTHS, block_of("tokens.lengths", draw_one_in(d, 2) ? ATTN_I32 : ATTN_I64, 0, k->batch, 1, 1, 1), 0);
    make(c, C_Q, block_of("q", q, 0, k->batch, heads, len, k->dim_qk), 1);
    make(c, C_O, block_of("o", draw_float(d, wide), 1, k->batch, heads, len, k->dim_v), 1);
    block_free(&c->blocks[C_LSE]);
    if (draw_one_in(d, 2)) make(c, C_LSE, block_of("lse", wide ? ATTN_F64 : ATTN_F32, 1, k->batch, heads, len, 1), 1);
    block_fill(&c->blocks[C_NEW_K], d, -2, 2, 0), block_fill(&c->blocks[C_NEW_V], d, -2, 2, 0),
        block_fill(&c->blocks[C_Q], d, -2, 2, 0);
    for (int64_t b = 0; b < k->batch; b++) {
        c->lengths[b] = (int64_t)block_get(&c->blocks[C_LENGTHS], b, 0, 0, 0);
        c->added[b] = draw_one_in(d, 2) ? len : draw_below(d, len + 1);
        if (c->added[b] > k->capacity - c->lengths[b]) c->added[b] = k->capacity - c->lengths[b];
        /* NaN in tokens past those added. */
        for (int which = C_NEW_K; which <= C_NEW_V; which++)
            for (int64_t t = c->added[b]; t < len && !block_may_overlap(&c->blocks[which]); t++)
                for (int64_t h = 0; h < k->heads_kv; h++)
                    for (int64_t x = 0; x < c->blocks[which].shape[3]; x++) block_put(&c->blocks[which], b, h, t, x, NAN);
    }
    c->problem = (attn_problem){.struct_size = sizeof c->problem, .shape = {.heads_q = heads}};
    if (draw_one_in(d, 4))
        c->problem.mask.window = 1, c->problem.mask.window_left = draw_below(d, 20), c->problem.mask.window_right = -1;
    if (draw_one_in(d, 4)) c->problem.score.softcap = 3;
    c->options =
        (attn_options){.struct_size = sizeof c->options, .threads = 1 + (int)draw_below(d, 3), .invariant = draw_one_in(d, 2)};
    cache_place(c, 0, len, c->added);
}

const char *cache_corrupt(cache_case *c, int *attend)
{
    draws *d = c->from;
    attn_cache *k = &c->cache;
    attn_cache_tokens *t = &c->tokens;
    const int64_t b = draw_below(d, k->batch),
                  pages = k->page_size ? (c->lengths[b] + c->added[b] + k->page_size - 1) / k->page_size : 0,
                  full = k->page_size ? c->lengths[b] / k->page_size : 0; /* pages, which appending does not look at */
    attn_output *const own[] = {&k->k, &k->v, &k->lengths};
    attn_output *slot = own[draw_below(d, 3)];
    *attend = 0;
    switch (draw_below(d, 21)) {
    case 0:
        (&k->batch)[draw_below(d, 7)] = -1 - draw_below(d, 2) * INT64_MAX;
        return "a negative size";
    case 1:
        t->len = INT64_MIN;
        return "a negative number of tokens";
    case 2:
        k->reserved[draw_below(d, 3)] = draw_hostile(d) | 1;
        return "a reserved word";
    case 3:
        *(draw_one_in(d, 2) ? &k->struct_size : &t->struct_size) = (size_t)draw_hostile(d) | 1 << 22;
        return "a struct of megabytes";
    case 4:
        memset(slot, 0, sizeof *slot);
        return "a tensor of the cache is missing";
    case 5:
        slot->data = draw_one_in(d, 2) ? ATTN_MISSING : ATTN_LATER;
        return "ATTN_MISSING or ATTN_LATER";
    case 6:
        slot->dtype = ATTN_BOOL;
        return "a type that a cache cannot have";
    case 7:
        for (int axis = 0; axis < 3; axis++)
            if (c->blocks[C_K].shape[axis] > 1 && c->blocks[C_K].bytes > 0) {
                k->k.stride[axis] = draw_one_in(d, 2) ? 0 : ATTN_BROADCAST;
                return "a cache that broadcasts";
            }
        return NULL;
    case 8:
    case 9:
        block_put(&c->blocks[C_LENGTHS], b, 0, 0, 0,
                  draw_one_in(d, 3)   ? -1
                  : draw_one_in(d, 2) ? (double)(k->capacity + 1)
                                      : 0x1p62);
        return "a length outside the cache";
    case 10:
        block_put(&c->blocks[C_NEW_LENGTHS], b, 0, 0, 0, draw_one_in(d, 2) ? -1 : (double)(t->len + 1));
        return "more tokens than there are";
    case 11:
        if (pages <= full || c->added[b] == 0) return NULL;
        block_put(&c->blocks[C_TABLE], b, 0, 0, full + draw_below(d, pages - full), draw_one_in(d, 2) ? -1 : (double)k->pages);
        return "a page that does not exist";
    case 12:
        if (c->lengths[b] + c->added[b] < 1) return NULL;
        k->capacity = c->lengths[b] + c->added[b] - 1;
        return "tokens beyond the capacity";
    case 13:
        *attend = 1,
        c->problem.shape.heads_q = c->problem.shape.heads_q * k->heads_kv + (k->heads_kv > 1 ? 1 : -c->problem.shape.heads_q);
        return "a number of heads that does not fit";
    case 14:
        *attend = 1, c->problem.op = ATTN_BACKWARD;
        return "another operation";
    case 15:
        *attend = 1, c->tensors.lengths_kv = attn_in(c->lengths);
        return "lengths_kv from the caller";
    case 16:
        *attend = 1, memset(draw_one_in(d, 2) ? (void *)&c->tensors.o : (void *)&c->tensors.q, 0, sizeof(attn_output));
        return "o or q is missing";
    case 17:
        if (!format_is_blocks(c->blocks[C_K].dtype)) return NULL;
        k->dim_qk += ATTN_BLOCK / 2;
        return "half a block of channels";
    case 18:
        if (format_is_any(c->blocks[C_V].dtype) && !format_is_blocks(c->blocks[C_V].dtype)) return NULL;
        k->v_scale = attn_out(c->lengths);
        return "scales of a type that has none";
    case 19:
        if (k->dim_qk < 2 || c->blocks[C_Q].bytes == 0) return NULL;
        *attend = 1, c->tensors.q.stride[3] = draw_one_in(d, 2) ? 2 : ATTN_BROADCAST;
        return "queries of strided channels";
    default: /* an output that overlaps an input */
        if (c->blocks[C_K].bytes == 0 || c->blocks[C_O].bytes == 0 || c->blocks[C_O].element != c->blocks[C_K].element) return NULL;
        *attend = 1, c->tensors.o.data = k->k.data;
        return "o overlaps the cache";
    }
}

/* ---- entries without tokens ---- */

unsigned char *cache_hide_pages(cache_case *c, const int64_t *tokens)
{
    const block *table = &c->blocks[C_TABLE];
    unsigned char *was = malloc(table->bytes + 1);
    if (!was) abort();
    if (table->memory) memcpy(was, table->memory, table->bytes);
    for (int64_t b = 0; c->cache.page_size && b < c->cache.batch; b++)
        for (int64_t i = 0; tokens[b] == 0 && i < table->shape[3]; i++)
            block_put(table, b, 0, 0, i, draw_one_in(c->from, 2) ? -1 : (double)c->cache.pages);
    if (table->memory) memcpy(c->shadow[C_TABLE], table->memory, table->bytes);
    return was;
}

void cache_show_pages(cache_case *c, unsigned char *was)
{
    const block *table = &c->blocks[C_TABLE];
    if (table->memory) memcpy(table->memory, was, table->bytes), memcpy(c->shadow[C_TABLE], was, table->bytes);
    free(was);
}

/* ---- slots ---- */

void cache_draw_slots(cache_case *c)
{
    draws *d = c->from;
    const attn_cache *k = &c->cache;
    const int64_t len = c->tokens.len, each = k->page_size ? k->page_size : k->capacity,
                  all = (k->page_size ? k->pages : k->batch) * each, rows = c->rope.table_rows;
    const int64_t first = draw_below(d, all > 0 ? all : 1), step = draw_one_in(d, 2) ? 1 : all - 1;
    make(c, C_SLOTS, block_of("slots", draw_one_in(d, 2) ? ATTN_I32 : ATTN_I64, 0, len, 1, 1, 1), 0);
    make(c, C_POSITIONS, block_of("positions", draw_one_in(d, 2) ? ATTN_I32 : ATTN_I64, 0, len, 1, 1, 1), 0);
    for (int64_t t = 0; t < len; t++) { /* up or down, all around: each once; tokens past those added are NaN */
        const int some = t < all && t < c->added[0] && !draw_one_in(d, 4);
        block_put(&c->blocks[C_SLOTS], t, 0, 0, 0, some ? (double)((first + t * step) % all) : -1);
        block_put(&c->blocks[C_POSITIONS], t, 0, 0, 0, (double)(rows ? draw_below(d, rows) : draw_below(d, 3000) - 1000));
    }
    cache_place(c, 0, len, c->added);
    c->tokens.lengths = (attn_input){.data = NULL};
    c->tokens.slots = (attn_input){c->blocks[C_SLOTS].memory, c->blocks[C_SLOTS].dtype, {0, 0, 0, 0}};
    if (k->rope) c->tokens.positions = (attn_input){c->blocks[C_POSITIONS].memory, c->blocks[C_POSITIONS].dtype, {0, 0, 0, 0}};
    c->tokens.options = draw_one_in(d, 2) ? &c->options : NULL;
}

const char *cache_corrupt_slots(cache_case *c)
{
    draws *d = c->from;
    const int64_t len = c->tokens.len,
                  all = (c->cache.page_size ? c->cache.pages * c->cache.page_size : c->cache.batch * c->cache.capacity);
    const block *slots = &c->blocks[C_SLOTS];
    if (len < 2) return NULL;
    const int64_t a = draw_below(d, len - 1), b = a + 1 + draw_below(d, len - 1 - a);
    switch (draw_below(d, 4)) {
    case 0:
        block_put(slots, a, 0, 0, 0, draw_one_in(d, 2) ? (double)all : -2 - (double)draw_below(d, 1000));
        return "a slot out of range";
    case 1:
        if (all == 0) return NULL;
        block_put(slots, a, 0, 0, 0, block_get(slots, b, 0, 0, 0) < 0 ? 0 : block_get(slots, b, 0, 0, 0));
        block_put(slots, b, 0, 0, 0, block_get(slots, a, 0, 0, 0));
        return "a slot twice";
    case 2:
        if (c->cache.rope) c->tokens.positions = (attn_input){.data = NULL};
        else c->tokens.positions = attn_in(c->lengths);
        return "no positions, or positions without a rope";
    default:
        if (!c->rope.table_rows || !c->cache.rope) return NULL;
        block_put(&c->blocks[C_POSITIONS], a, 0, 0, 0, draw_one_in(d, 2) ? -1 : (double)c->rope.table_rows);
        return block_get(slots, a, 0, 0, 0) < 0 ? NULL : "a position outside the tables";
    }
}

/* ---- expected contents ---- */

void cache_where(const cache_case *c, int64_t b, int64_t j, int64_t at[2])
{
    const int64_t size = c->cache.page_size;
    at[0] = size ? (int64_t)block_get(&c->blocks[C_TABLE], b, 0, 0, j / size) : b;
    at[1] = size ? j % size : j;
}

/* Writes a row of the shadow, converted to the cache's type. */
static void expect_row(cache_case *c, int which, const int64_t at[2], int64_t h, const double *x, int64_t dim)
{
    const block *b = &c->blocks[which], *scales = &c->blocks[which + C_K_SCALE - C_K];
    double whole[MAX_ROTARY + 1];
    unsigned char *to = dim ? c->shadow[which] + (block_at(b, at[0], h, at[1], 0) - b->memory) : NULL;
    float scale = 1;
    if (b->dtype == ATTN_I8) scale = (float)ref_quantise(dim, x, whole);
    else if (cache_gives_scale(c, which)) scale = scales->bytes ? (float)block_get(scales, at[0], h, at[1], 0) : 1;
    else if (scales->name) scale = (float)cache_row_scale(b->dtype, dim, x);
    if (scales->bytes)
        memcpy(c->shadow[which + C_K_SCALE - C_K] + (block_at(scales, at[0], h, at[1], 0) - scales->memory), &scale, sizeof scale);
    if (dim == 0) return;
    if (!format_is_any(b->dtype)) (void)attn_convert(dim, x, ATTN_F64, to, b->dtype, NULL);
    else if (b->dtype != ATTN_I8) cache_pack(b->dtype, dim, x, (double)scale, to);
    for (int64_t i = 0; i < dim && b->dtype == ATTN_I8; i++) to[i] = (unsigned char)(int8_t)whole[i];
}

/* Token t of entry b, which goes to `at` and has this position. */
static void expect_token(cache_case *c, int64_t b, int64_t t, const int64_t at[2], int64_t place)
{
    const attn_cache *k = &c->cache;
    double x[MAX_ROTARY + 1];
    for (int64_t h = 0; h < k->heads_kv; h++) {
        for (int64_t i = 0; i < k->dim_v; i++) x[i] = block_get(&c->blocks[C_NEW_V], b, h, t, i);
        expect_row(c, C_V, at, h, x, k->dim_v);
        for (int64_t i = 0; i < k->dim_qk; i++) x[i] = block_get(&c->blocks[C_NEW_K], b, h, t, i);
        if (k->rope && k->dim_qk > 0) { /* rotated into the type that the cache rotates to, then to f64, which is exact */
            const attn_dtype type = format_is_any(c->blocks[C_K].dtype) ? ATTN_F32 : c->blocks[C_K].dtype;
            const int64_t shape[4] = {1, 1, 1, k->dim_qk};
            const attn_input from = {block_at(&c->blocks[C_NEW_K], b, h, t, 0), c->blocks[C_NEW_K].dtype, {0, 0, 0, 0}},
                             position = attn_in(&place);
            double rotated[MAX_ROTARY + 1];
            const attn_output to = {rotated, type, {0, 0, 0, 0}};
            if (attn_rope_apply(k->rope, shape, &from, &position, &to, NULL))
                finding("attn_rope_apply rejects a key that was appended");
            (void)attn_convert(k->dim_qk, rotated, type, x, ATTN_F64, NULL);
        }
        expect_row(c, C_K, at, h, x, k->dim_qk);
    }
}

void cache_expect(cache_case *c)
{
    for (int64_t b = 0; b < c->cache.batch; b++) {
        const int64_t now = c->lengths[b] + c->added[b];
        for (int64_t t = 0; t < c->added[b]; t++) {
            int64_t at[2];
            cache_where(c, b, c->lengths[b] + t, at);
            expect_token(c, b, t, at, c->lengths[b] + t);
        }
        memcpy(c->shadow[C_LENGTHS] + b * 8, &now, 8);
    }
}

void cache_expect_slots(cache_case *c)
{
    const int64_t each = c->cache.page_size ? c->cache.page_size : c->cache.capacity;
    for (int64_t t = 0; t < c->tokens.len; t++) {
        const int64_t slot = (int64_t)block_get(&c->blocks[C_SLOTS], t, 0, 0, 0);
        const int64_t at[2] = {slot < 0 ? 0 : slot / each, slot < 0 ? 0 : slot % each};
        if (slot >= 0) expect_token(c, 0, t, at, (int64_t)block_get(&c->blocks[C_POSITIONS], t, 0, 0, 0));
    }
}
