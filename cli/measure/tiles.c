/* SPDX-License-Identifier: MIT
 * tiles.c - see tiles.h. */
#include "tiles.h"

#include <stdlib.h>
#include <string.h>

#include "seen.h"
#include "testing/text/failure.h"

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* The rows of one tile, and what is found out about its blocks of keys. */
typedef struct row_of_tiles {
    const seen_rules *rules;
    int64_t first, rows, block_kv, offset;
    seen_interval near, global; /* all that some row sees */
    seen_interval all;          /* what every row sees */
    unsigned char *seen;        /* of each block of keys: 1 if it is visited */
    int64_t *kept;              /* keys of each that the lists of the tile keep, over these lists */
    double pairs;
} row_of_tiles;

static void gather(seen_interval *hull, const seen_interval *more)
{
    if (more->low >= more->high) return;
    *hull = hull->low < hull->high ? (seen_interval){least(hull->low, more->low), most(hull->high, more->high)} : *more;
}

static void look_at_rows(row_of_tiles *t)
{
    t->near = t->global = (seen_interval){0, 0};
    t->all = (seen_interval){0, INT64_MAX};
    for (int64_t i = t->first; i < t->first + t->rows; i++) {
        seen_interval near, global;
        seen_keys(t->rules, i, i + t->offset, &near, &global);
        t->pairs += seen_count(t->rules, i, i + t->offset);
        gather(&t->near, &near);
        gather(&t->global, &global);
        t->all = (seen_interval){most(t->all.low, near.low), least(t->all.high, near.high)};
    }
}

/* Marks the blocks that overlap keys low .. high-1. */
static void mark(row_of_tiles *t, const seen_interval *hull, int64_t low, int64_t high)
{
    low = most(low, hull->low), high = least(high, hull->high);
    if (low < high) memset(t->seen + low / t->block_kv, 1, (size_t)((high - 1) / t->block_kv - low / t->block_kv + 1));
}

static void look_at_lists(row_of_tiles *t)
{
    const seen_rules *r = t->rules;
    const int64_t block = r->mask.block_kv, last = (t->first + t->rows - 1) / r->mask.block_q;
    for (int64_t row = t->first / r->mask.block_q; row <= last; row++)
        for (int64_t n = r->starts[row]; n < r->starts[row + 1]; n++) {
            const int64_t low = r->index[n] * block, high = least(low + block, r->len_kv);
            mark(t, &t->near, low, high);
            mark(t, &t->global, low, high);
            for (int64_t k = low / t->block_kv; k * t->block_kv < high; k++)
                t->kept[k] += least(high, (k + 1) * t->block_kv) - most(low, k * t->block_kv);
        }
}

/* 1 if no distance of a row and of keys low .. high-1 is a multiple of the dilation: the distances are consecutive numbers. */
static int falls_between(const row_of_tiles *t, int64_t low, int64_t high)
{
    const int64_t step = t->rules->mask.dilation, from = t->first + t->offset - (high - 1), count = t->rows + high - low - 1;
    const int64_t rest = (from % step + step) % step;
    return rest && step - rest >= count;
}

static void count_row(row_of_tiles *t, tile_numbers *n)
{
    const seen_rules *r = t->rules;
    const int64_t blocks = (r->len_kv + t->block_kv - 1) / t->block_kv;
    const int64_t lists = r->starts ? (t->first + t->rows - 1) / r->mask.block_q - t->first / r->mask.block_q + 1 : 0;
    memset(t->seen, 0, (size_t)blocks);
    memset(t->kept, 0, (size_t)blocks * sizeof *t->kept);
    look_at_rows(t);
    if (r->starts) {
        look_at_lists(t);
    } else {
        mark(t, &t->near, 0, r->len_kv);
        mark(t, &t->global, 0, r->len_kv);
    }
    for (int64_t k = 0; k < blocks; k++) {
        const int64_t low = k * t->block_kv, high = least(low + t->block_kv, r->len_kv);
        if (!t->seen[k] || (r->mask.dilation > 1 && falls_between(t, low, high))) continue;
        n->visited++;
        n->full += t->all.low <= low && high <= t->all.high && r->mask.dilation < 2 && t->kept[k] == lists * (high - low);
    }
}

tile_numbers tiles_count(const attn_problem *problem, const attn_tensors *tensors, int64_t tile_q, int64_t block_kv)
{
    const attn_shape *s = &problem->shape;
    const double most_steps = 1 << 27;
    const seen_rules rules = seen_rules_of(problem, tensors, s->len_kv);
    const int64_t tiles = (s->len_q + tile_q - 1) / tile_q, blocks = (s->len_kv + block_kv - 1) / block_kv;
    const double steps = (double)tile_q * (double)blocks + 1, heads = (double)s->batch * (double)s->heads_q;
    const int64_t sampled = (double)tiles * steps <= most_steps ? tiles : most(1, (int64_t)(most_steps / steps));
    row_of_tiles t = {.rules = &rules, .block_kv = block_kv};
    tile_numbers n = {0};
    t.offset = problem->mask.align == ATTN_ALIGN_BOTTOM_RIGHT ? s->len_kv - s->len_q : 0;
    t.seen = need_memory(blocks, 1);
    t.kept = need_memory(blocks, sizeof *t.kept);
    for (int64_t k = 0; k < sampled; k++) {
        t.first = (sampled == tiles ? k : (int64_t)((double)k * (double)tiles / (double)sampled)) * tile_q;
        t.rows = least(tile_q, s->len_q - t.first);
        count_row(&t, &n);
    }
    free(t.seen);
    free(t.kept);
    const double scale = sampled ? heads * ((double)tiles / (double)sampled) : 0;
    return (tile_numbers){(int64_t)(heads * (double)tiles * (double)blocks), (int64_t)(scale * (double)n.visited),
                          (int64_t)(scale * (double)n.full), scale * t.pairs};
}
