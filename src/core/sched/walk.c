/* SPDX-License-Identifier: MIT
 * walk.c - how a problem is cut into tiles, tasks and workers, and what memory a worker needs. */
#include "walk.h"

#include "../base/checked.h"
#include "../base/names.h"
#include "tile.h"
#include "visible.h"

/* Keys and values of this shape are read in place only while they lie close together: rows that are strided apart touch a page
 * and a cache set each (measured: 75 % of the ceiling at a row stride of 8*dim, 85 % at dim, S2048 D64). */
enum { SHORT_ENOUGH_FOR_STRIDES = 256 };

static int must_compact(const attn_walk *walk, const attn_layout *layout, int64_t dim)
{
    if (layout->dtype != walk->compute) return 1;
    return layout->stride[2] != dim && layout->stride[2] != 0 && walk->problem.shape.len_kv > SHORT_ENOUGH_FOR_STRIDES;
}

/* Adds a part of `count` times `each` elements of `size` bytes to the layout; *at is its offset. */
static int place(int64_t *end, int64_t *at, int64_t count, int64_t each, size_t size)
{
    int64_t bytes;
    *at = *end;
    if (!attn_mul(count, each, &bytes) || !attn_mul(bytes, (int64_t)size, &bytes) || bytes > INT64_MAX - 64) return 0;
    return attn_add(*end, attn_round_64(bytes), end);
}

static int lay_out_scratch(attn_walk *walk)
{
    attn_scratch *s = &walk->scratch;
    const attn_shape *shape = &walk->problem.shape;
    size_t size = attn_dtype_bytes(walk->compute);
    int64_t n = walk->block_kv, q = walk->tile_q, group = walk->group, end = 0, rest;
    int64_t padded = attn_ceil_div(n, walk->kernel->lanes) * walk->kernel->lanes;

    if (!place(&end, &s->Qt, shape->dim_qk, q, size)) return 0;
    s->Qt_bytes = end;
    if (!attn_mul(end, group, &end)) return 0;
    if (!place(&end, &s->Ot, shape->dim_v, q, size)) return 0;
    s->Ot_bytes = end - s->Ot;
    if (!attn_mul(s->Ot_bytes, group - 1, &rest) || !attn_add(end, rest, &end)) return 0;
    s->lane_bytes = attn_round_64(q * (int64_t)size);

    if (!place(&end, &s->m, group, s->lane_bytes, 1) || !place(&end, &s->l, group, s->lane_bytes, 1)) return 0;
    if (!place(&end, &s->S, n, q, size) || !place(&end, &s->block_max, 1, q, size)) return 0;
    if (!place(&end, &s->low, 1, q, sizeof(int32_t)) || !place(&end, &s->high, 1, q, sizeof(int32_t))) return 0;
    if (!place(&end, &s->scratch, padded, q, size)) return 0;
    if (!place(&end, &s->K, walk->compact_k ? n : 0, shape->dim_qk, size)) return 0;
    if (!place(&end, &s->V, walk->compact_v ? n : 0, shape->dim_v, size)) return 0;
    s->bytes = end;
    return 1;
}

int attn_walk_init(attn_walk *walk, int threads)
{
    const attn_problem *p = &walk->problem;
    int64_t heads, lanes = walk->kernel->lanes;

    walk->tile_q = lanes * walk->kernel->vectors;
    walk->block_kv = walk->kernel->block_kv(p->shape.dim_qk, p->shape.dim_v);
    walk->tiles = attn_ceil_div(attn_ceil_div(p->shape.len_q, lanes), walk->kernel->vectors);
    walk->compact_k = must_compact(walk, &p->k, p->shape.dim_qk);
    walk->compact_v = must_compact(walk, &p->v, p->shape.dim_v);
    if (!attn_mul(p->shape.batch, p->shape.heads_q, &heads)) return 0;

    /* A task's tiles share each block of keys and values: that pays where blocks are copied, and costs balance and cache.
     * Results do not depend on it. */
    int64_t most = walk->compact_k || walk->compact_v ? 8 : 2;
    int64_t tile_bytes;
    if (!attn_add(p->shape.dim_qk, p->shape.dim_v, &tile_bytes)) return 0;
    if (!attn_mul(tile_bytes, walk->tile_q * (int64_t)attn_dtype_bytes(walk->compute), &tile_bytes)) return 0;
    while (most > 1 && tile_bytes > (256 << 10) / most) most /= 2;
    int64_t all;
    if (!attn_mul(heads, walk->tiles, &all)) return 0;
    while (most > 1 && all / most < 4 * (int64_t)threads) most /= 2;
    walk->group = most;
    if (!attn_mul(heads, attn_ceil_div(walk->tiles, most), &walk->tasks)) return 0;

    /* Waking threads costs some microseconds: work below about ten of them stays on the calling thread. */
    double flops =
        2.0 * (double)heads * (double)p->shape.len_q * (double)p->shape.len_kv * (double)(p->shape.dim_qk + p->shape.dim_v);
    walk->workers = flops < 1e6 ? 1 : (int)attn_clamp(walk->tasks, 1, threads);

    if (!lay_out_scratch(walk)) return 0;
    int64_t bytes;
    return attn_mul(walk->scratch.bytes, walk->workers, &bytes) && bytes <= INT64_MAX - 64;
}

void attn_walk_count(const attn_walk *walk, attn_tile_count *count)
{
    const attn_problem *p = &walk->problem;
    int64_t blocks = attn_ceil_div(p->shape.len_kv, walk->block_kv);
    double heads = (double)p->shape.batch * (double)p->shape.heads_q;
    attn_sight sight = attn_sight_of(p, NULL, 0);
    int64_t visited = 0, whole = 0;
    double pairs = 0;

    for (int64_t t = 0; t < walk->tiles; t++) {
        attn_tile tile = attn_tile_at(walk, t);
        attn_interval keys = attn_keys_of_tile(&sight, tile.first, tile.rows);
        for (int64_t i = tile.first; i < tile.first + tile.rows; i++) {
            attn_interval seen = attn_keys_of_query(&sight, i);
            pairs += (double)(seen.high - seen.low);
        }
        if (keys.low == keys.high) continue;
        visited += attn_ceil_div(keys.high, walk->block_kv) - keys.low / walk->block_kv;
        for (int64_t j = keys.low; j < keys.high;) {
            int64_t end = attn_block_end(walk, j, keys.high);
            whole += attn_tile_sees_all(&sight, tile.first, tile.rows, j, end);
            j = end;
        }
    }
    if (p->mask.boolean || p->bias.additive) whole = 0;
    count->total = (int64_t)(heads * (double)walk->tiles * (double)blocks);
    count->visited = (int64_t)(heads * (double)visited);
    count->modified = (int64_t)(heads * (double)(visited - whole));
    count->pairs = heads * pairs;
}
