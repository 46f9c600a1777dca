/* SPDX-License-Identifier: MIT
 * plan.c - the grid of walks over tiles, and the memory of a worker. */
#include "plan.h"

#include "../base/checked.h"
#include "../base/names.h"
#include "relative.h"

/* Strided keys and values are read in place only if there are at most this many: rows far apart touch a page and a cache set each
 * (measured: 75 % of the ceiling at a row stride of 8*dim, 85 % at dim, S2048 D64). */
enum { SHORT_ENOUGH_FOR_STRIDES = 256 };

int attn_must_compact(const attn_walk *walk, const attn_layout *layout, int64_t dim)
{
    if (layout->dtype != walk->compute || attn_is_paged(&walk->problem) || attn_has_choices(&walk->problem)) return 1;
    return layout->stride[2] != dim && layout->stride[2] != 0 && walk->problem.shape.len_kv > SHORT_ENOUGH_FOR_STRIDES;
}

/* 1 if a row's result is the same in any tile: the keys that a tile visits are contiguous, and nothing is summed over its rows. */
static int has_even_tiles(const attn_resolved *p)
{
    const attn_mask *m = &p->mask;
    return (p->op == ATTN_FORWARD || p->op == ATTN_JVP) && !p->has.column_sum && !attn_has_relative(p) && !p->has.block_mask &&
           !p->has.block_starts && m->dilation <= 1 && m->global_q == 0 && m->global_kv == 0;
}

void attn_tiles_begin(attn_tile_walk *plan)
{
    attn_walk *walk = &plan->walk;
    const attn_resolved *p = &walk->problem;
    const int64_t lanes = walk->kernel.lanes;
    walk->tile_q = lanes * walk->kernel.vectors;
    walk->block_kv = attn_block_of_tiles(p, walk->kernel.product);
    walk->tiles = attn_ceil_div(attn_ceil_div(p->shape.len_q, lanes), walk->kernel.vectors);
    walk->tiling = has_even_tiles(p) ? ATTN_TILING_EVEN : ATTN_TILING_GRID;
    plan->compact_k = attn_is_additive(p) || attn_must_compact(walk, &p->at.k, p->shape.dim_qk);
    plan->compact_v = attn_must_compact(walk, &p->at.v, p->shape.dim_v);
}

int attn_tiles_measure(attn_tile_walk *plan)
{
    attn_tile_scratch *s = &plan->scratch;
    const attn_walk *walk = &plan->walk;
    const int64_t D = walk->problem.shape.dim_qk, q = walk->tile_q;
    const size_t size = attn_dtype_bytes(walk->compute);
    s->Qt_bytes = attn_step_bytes(attn_is_additive(&walk->problem) ? attn_additive_rows(D) : D, q, size);
    s->lane_bytes = attn_step_bytes(1, q, size);
    s->reused_bytes = ATTN_REUSED_HEAD + attn_step_bytes(q, q, size);
    if (s->Qt_bytes < 0 || s->lane_bytes < 0) return 0;
    if (!plan->relative.two) return 1;
    plan->relative.Qrt = s->Qt_bytes; /* after each place's tile of q + u, that of q + v */
    return attn_add(s->Qt_bytes, s->Qt_bytes, &s->Qt_bytes);
}

int attn_tiles_lay_out(attn_tile_walk *plan, const attn_part_of *beside, size_t n_beside, const attn_part_of *after, size_t n_after)
{
    attn_walk *walk = &plan->walk;
    attn_tile_scratch *s = &plan->scratch;
    const attn_resolved *p = &walk->problem;
    const int64_t D = p->shape.dim_qk, Dv = p->shape.dim_v, n = walk->block_kv, q = walk->tile_q, group = plan->group;
    const int64_t padded = attn_ceil_div(n, walk->kernel.lanes) * walk->kernel.lanes;
    const size_t size = attn_dtype_bytes(walk->compute);
    const int pairs = p->has.block_mask || p->has.block_starts || p->has.tree || p->mask.dilation > 1 || p->mask.global_kv > 0;
    const int additive = attn_is_additive(p), bf16 = attn_scores_bf16(walk), backward = p->op == ATTN_BACKWARD;
    const attn_part_of queries = {&s->Qt, s->Qt_bytes, group, 1};
    const attn_part_of scores[] = {
        {&s->S, n, q, size},
        {&s->block_max, 1, q, size},
        {&s->low, 1, q, sizeof(int32_t)},
        {&s->high, 1, q, sizeof(int32_t)},
        {&s->modifiers, padded, q, size},
        {&s->expanded, pairs ? n : 0, q, 1},
        {&s->K, plan->compact_k && (!bf16 || backward) ? n : 0, additive ? attn_additive_key(D) : D, size},
        {&s->K_pairs, bf16 ? n : 0, attn_bf16_pairs(D), size},
        {&s->V, plan->compact_v ? n : 0, bf16 && backward ? attn_bf16_pairs(Dv) : Dv, size},
    };
    const attn_part_of options[] = {
        {&s->band, attn_has_relative(p) ? n + 2 * q + 1 : 0, q, size},
        {&s->reused_rows, attn_has_relative(p) ? 2 * group : 0, s->reused_bytes, 1},
        {&s->unmodified, p->op != ATTN_FORWARD && p->has.modifier ? n : 0, q, size},
    };
    int64_t *end = &walk->worker_bytes;
    return attn_place(&queries, 1, end) && attn_place(beside, n_beside, end) &&
           attn_place(scores, sizeof scores / sizeof *scores, end) && attn_place(after, n_after, end) &&
           attn_place(options, sizeof options / sizeof *options, end);
}
