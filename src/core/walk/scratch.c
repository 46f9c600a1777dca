/* SPDX-License-Identifier: MIT
 * scratch.c - where everything lies in a worker's memory. */
#include "../base/checked.h"
#include "../base/names.h"
#include "../gradient/gradient.h"
#include "../task/tile.h"
#include "../task/walk.h"
#include "../tile/relative.h"

int attn_scratch_init(attn_walk *walk)
{
    attn_scratch *s = &walk->scratch;
    const attn_resolved *p = &walk->problem;
    const attn_resolved *g = p;
    const attn_resolved *want = p;
    const int64_t D = p->shape.dim_qk, Dv = p->shape.dim_v, n = walk->block_kv, q = walk->tile_q, group = walk->group;
    const size_t size = attn_dtype_bytes(walk->compute);
    const int64_t padded = attn_ceil_div(n, walk->kernel->lanes) * walk->kernel->lanes;
    const int second = p->op == ATTN_DOUBLE_BACKWARD, tangents = second || p->op == ATTN_JVP;
    const int backward = attn_walk_sums(walk), own_sums = backward && walk->at_once == 1 && !walk->sums_in_place,
              capped = p->score.softcap > 0;
    const int pairs = p->has.block_mask || p->has.block_starts || p->mask.dilation > 1 || p->mask.global_kv > 0;
    const int table = backward && p->has.grad_bias_table;
    const int64_t lanes = walk->kernel->lanes;
    const int64_t panels = attn_ceil_div(D, q) * q, panels_v = attn_ceil_div(Dv, q) * q;

    const int additive = attn_is_additive(p), bf16 = attn_scores_bf16(walk);
    s->Qt_bytes = attn_step_bytes(additive ? attn_additive_rows(D) : D, q, size);
    if (walk->relative.two) walk->relative.Qrt = s->Qt_bytes;
    s->Ot_bytes = attn_step_bytes(backward ? attn_max(D, Dv) : Dv, q, size);
    s->lane_bytes = attn_step_bytes(1, q, size);
    s->panel_bytes = attn_step_bytes(attn_max(panels, panels_v), q, size);
    s->kept_bytes = ATTN_KEPT_HEAD + attn_step_bytes(q, q, size);
    if (s->Qt_bytes < 0 || s->Ot_bytes < 0 || s->lane_bytes < 0 || s->panel_bytes < 0) return 0;
    if (walk->relative.two) { /* after each slot's tile of q + u, that of q + v */
        if (!attn_add(s->Qt_bytes, s->Qt_bytes, &s->Qt_bytes)) return 0;
        walk->relative.Qr_panels = s->panel_bytes;
        if (!attn_add(s->panel_bytes, s->panel_bytes, &s->panel_bytes)) return 0;
    }

    const attn_part_of parts[] = {
        {&s->Qt, s->Qt_bytes, group, 1},
        {&s->Ot, s->Ot_bytes, group, 1},
        {&s->m, s->lane_bytes, group, 1},
        {&s->l, s->lane_bytes, group, 1},
        {&s->part, walk->parts > 1 ? s->Ot_bytes + 2 * s->lane_bytes : 0, group, 1},
        {&s->S, n, q, size},
        {&s->block_max, 1, q, size},
        {&s->low, 1, q, sizeof(int32_t)},
        {&s->high, 1, q, sizeof(int32_t)},
        {&s->empty, group, q, sizeof(int32_t)},
        {&s->scratch, padded, q, size},
        {&s->spread, pairs ? n : 0, q, 1},
        {&s->K, walk->compact_k && !(bf16 && !backward) ? n : 0, additive ? attn_additive_key(D) : D, size},
        {&s->K_pairs, bf16 ? n : 0, attn_bf16_pairs(D), size},
        {&s->V, walk->compact_v ? n : 0, bf16 && backward ? attn_bf16_pairs(Dv) : Dv, size},
        {&s->dOt, backward ? s->Ot_bytes : 0, group, 1},
        {&s->dQt, backward ? s->Qt_bytes : 0, group, 1},
        {&s->dP, backward ? n : 0, q, size},
        {&s->slope, (backward || tangents) && capped ? n : 0, q, size},
        {&s->Q_panels, backward ? s->panel_bytes : 0, group, 1},
        {&s->dO_panels, backward ? s->panel_bytes : 0, group, 1},
        {&s->rows, want->has.rows ? p->shape.len_kv : 0, q, size},
        {&s->row_max, 1, q, size},
        {&s->row_sums, 2, q, sizeof(double)},
        {&s->top, attn_topk_kept(p), q, size},
        {&s->top_index, attn_topk_kept(p), q, sizeof(int64_t)},
        {&s->columns, want->has.column_sum ? n : 0, 1, sizeof(double)},
        {&s->Qdt, tangents ? D : 0, q, size},
        {&s->At, tangents ? Dv : 0, q, size},
        {&s->mu, tangents, q, size},
        {&s->Sd, tangents ? n : 0, q, size},
        {&s->other, tangents ? n : 0, q, size},
        {&s->Kd, walk->compact_tan_k ? n : 0, D, size},
        {&s->Vd, walk->compact_tan_v ? n : 0, Dv, size},
        {&s->kappa, second, q, size},
        {&s->bend, second && capped ? n : 0, q, size},
        {&s->before, second && capped ? n : 0, q, size},
        {&s->Qd_panels, second ? panels : 0, q, size},
        {&s->band, attn_has_relative(p) ? n + 2 * q + 1 : 0, q, size},
        {&s->kept, attn_has_relative(p) ? 2 * group : 0, s->kept_bytes, 1},
        {&s->unmodified, (backward || tangents) && p->has.modifier ? n : 0, q, size},
        {&s->strips, table ? lanes * (n + q + lanes) : 0, 1, size},
        {&s->strip_sums, table ? walk->tables.length : 0, group, sizeof(double)},
        {&s->group, backward, 1, sizeof(attn_gradient_group)},
        {&s->sums, backward ? group : 0, 1, sizeof(attn_head_sums)},
        {&s->dw, backward && attn_sums_weights(p) ? 2 * group : 0, D, sizeof(double)},
        {&s->relative_sums, attn_grads_relative(p), ATTN_SUMS_HEAD + walk->relative.sum_bytes, 1},
        {&s->pairs, g->has.grad_bias || p->has.second_bias ? n : 0, q, size},
        {&s->dK, own_sums ? p->shape.len_kv : 0, walk->ld_dK, size},
        {&s->dV, own_sums ? p->shape.len_kv : 0, walk->ld_dV, size},
    };
    walk->worker_bytes = 0;
    return attn_place(parts, sizeof parts / sizeof *parts, &walk->worker_bytes);
}

int attn_shared_init(attn_walk *walk)
{
    const attn_resolved *p = &walk->problem;
    const size_t size = attn_dtype_bytes(walk->compute);
    attn_shared *s = &walk->shared;
    int64_t heads, states = 0, rows = 0, kept = 0;
    const int64_t lanes = walk->kernel->lanes, vectors = attn_ceil_div(p->shape.len_q, lanes);
    walk->shared_bytes = 0;
    s->state_bytes = walk->scratch.Ot_bytes + 2 * walk->scratch.lane_bytes + 64;
    if (!attn_mul(p->shape.batch, p->shape.heads_q, &heads)) return 0;
    if (p->has.column_sum && (!attn_mul(vectors, lanes, &kept) || !attn_mul(heads, kept, &kept))) return 0;
    const int64_t sums = attn_walk_sums(walk) && walk->at_once > 1 && !walk->sums_in_place ? p->shape.len_kv : 0;
    if (p->op == ATTN_FORWARD && walk->at_once > 1 && !attn_mul(heads, walk->at_once + 1, &states)) return 0;
    int64_t places = 0;
    if (attn_grads_relative(p)) {
        walk->relative.places = walk->at_once == 1 ? walk->workers : 1;
        int64_t tables = attn_relative_shared(p) || !p->shape.heads_kv ? 1 : p->shape.heads_q / p->shape.heads_kv;
        if (!attn_mul(walk->relative.places, tables, &places)) return 0;
    }
    s->rows_bytes = 2 * walk->scratch.lane_bytes;
    if (p->has.second_bias && !attn_mul(heads, walk->tiles, &rows)) return 0;
    const attn_part_of parts[] = {
        {&s->states, states, s->state_bytes, 1},
        {&s->row_m, kept, 1, size},
        {&s->row_l, kept, 1, size},
        {&s->row_empty, p->mask.empty == ATTN_EMPTY_UNIFORM ? kept : 0, 1, sizeof(int32_t)},
        {&s->dK, sums, walk->ld_dK, size},
        {&s->dV, sums, walk->ld_dV, size},
        {&s->sums, attn_walk_sums(walk) ? heads : 0, 1, sizeof(attn_head_sums)},
        {&s->rows, rows, s->rows_bytes, 1},
        {&s->relative_sums, places, ATTN_SUMS_HEAD + walk->relative.sum_bytes, 1},
        {&s->relative_totals, attn_grads_relative(p) ? walk->relative.tables : 0, walk->relative.sum_bytes, 1},
        {&s->table_sums, p->has.grad_bias_table ? heads : 0, walk->tables.length, sizeof(double)},
        {&s->table_totals, p->has.grad_bias_table ? walk->tables.count : 0, walk->tables.rule.buckets, sizeof(double)},
        {&s->dw, attn_sums_weights(p) ? heads : 0, 2 * p->shape.dim_qk, sizeof(double)},
        {&s->counters, walk->at_once > 1 ? walk->at_once : 0, 1, sizeof(int64_t)},
    };
    return attn_place(parts, sizeof parts / sizeof *parts, &walk->shared_bytes);
}
