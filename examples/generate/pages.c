/* SPDX-License-Identifier: MIT
 *
 * pages.c - see pages.h. */
#include "pages.h"

#include <stdlib.h>

/* Memory for rows of keys or values, and for their scales; f8 has none, since numbers of this size need none. */
static int make_rows(attn_output *rows, attn_output *scales, int64_t count, int64_t dim)
{
    const int64_t channels = rows->dtype >= ATTN_Q8_0 ? ATTN_BLOCK : 1; /* of an element */
    if (dim % channels) return 0;
    rows->data = malloc((size_t)(count * dim / channels) * attn_dtype_size(rows->dtype));
    if (rows->dtype == ATTN_I8) scales->data = malloc((size_t)count * sizeof(float));
    return rows->data && (rows->dtype != ATTN_I8 || scales->data);
}

/* Keys by channel have their last ones of each sequence in a tail, and whole groups in pages. */
static int make_tail(attn_cache *c, int64_t sequences)
{
    if (c->k.dtype != ATTN_Q4_1C) return 1;
    c->k_tail.data = malloc((size_t)(sequences * c->heads_kv * ATTN_TAIL * c->dim_qk) * sizeof(uint16_t));
    return c->k_tail.data && c->page_size % ATTN_BLOCK == 0;
}

static int make_cache(attn_cache *c, const attn_cache *like, int64_t sequences, int64_t count)
{
    const int64_t tokens = count * like->page_size * like->heads_kv;
    *c = *like;
    c->pages = count;
    return make_rows(&c->k, &c->k_scale, tokens, c->dim_qk) && make_rows(&c->v, &c->v_scale, tokens, c->dim_v) &&
           make_tail(c, sequences);
}

int pages_make(pages *p, int64_t layers, int64_t sequences, int64_t longest, int64_t count, int64_t page_size,
               const attn_cache *like)
{
    *p = (pages){.layers = layers,
                 .sequences = sequences,
                 .page_size = page_size,
                 .row = (longest + page_size - 1) / page_size,
                 .unused_count = count};
    attn_cache cache = *like;
    p->table = calloc((size_t)(sequences * p->row), sizeof *p->table);
    p->held = calloc((size_t)sequences, sizeof *p->held);
    p->lengths = calloc((size_t)sequences, sizeof *p->lengths);
    p->unused = calloc((size_t)count, sizeof *p->unused);
    p->caches = calloc((size_t)layers, sizeof *p->caches);
    if (!p->table || !p->held || !p->lengths || !p->unused || !p->caches) return 0;
    for (int64_t i = 0; i < count; i++) p->unused[i] = i;
    cache.page_size = page_size;
    cache.capacity = p->row * page_size;
    for (int64_t l = 0; l < layers; l++)
        if (!make_cache(&p->caches[l], &cache, sequences, count)) return 0;
    return 1;
}

void pages_free(pages *p)
{
    for (int64_t l = 0; p->caches && l < p->layers; l++) {
        free(p->caches[l].k.data);
        free(p->caches[l].v.data);
        free(p->caches[l].k_scale.data);
        free(p->caches[l].v_scale.data);
        free(p->caches[l].k_tail.data);
    }
    free(p->table);
    free(p->held);
    free(p->lengths);
    free(p->unused);
    free(p->caches);
    *p = (pages){0};
}

int64_t pages_length(const pages *p, int64_t sequence) { return p->lengths[sequence]; }

int pages_reserve(pages *p, int64_t sequence, int64_t tokens)
{
    const int64_t needed = (p->lengths[sequence] + tokens + p->page_size - 1) / p->page_size;
    int64_t *held = &p->held[sequence];
    if (needed > p->row || needed - *held > p->unused_count) return 0;
    while (*held < needed) p->table[sequence * p->row + (*held)++] = p->unused[--p->unused_count];
    return 1;
}

void pages_grow(pages *p, int64_t sequence, int64_t length) { p->lengths[sequence] = length; }

void pages_keep(pages *p, int64_t sequence, int64_t length)
{
    int64_t *held = &p->held[sequence];
    p->lengths[sequence] = length;
    while (*held > (length + p->page_size - 1) / p->page_size) p->unused[p->unused_count++] = p->table[sequence * p->row + --*held];
}
