/* SPDX-License-Identifier: MIT
 * part.c - combinations that are a part of a larger problem: for ref/, which has no origin, masks by absolute position become a
 * mask of pairs, and distances an offset. */
#include "test.h"

#include "combination.h"

void combination_origin(combination *c, random_state *r)
{
    attn_origin *o = &c->origin;
    o->batch = random_below(r, 4), o->head = random_below(r, 3), o->heads = c->ref.Hq + o->head + random_below(r, 3);
    o->q = random_below(r, 25), o->kv = random_below(r, 25);
    if (c->tensors.block_mask.data) o->q -= o->q % c->problem.mask.block_q, o->kv -= o->kv % c->problem.mask.block_kv;
    c->call.origin = o;
}

void combination_place(combination *c)
{
    const attn_origin *o = &c->origin;
    ref_problem *p = &c->ref, whole = {.causal = p->causal,
                                       .window = p->window,
                                       .window_left = p->window_left,
                                       .window_right = p->window_right,
                                       .chunk = p->chunk,
                                       .dilation = p->dilation,
                                       .least_distance = p->least_distance,
                                       .global_q = p->global_q,
                                       .global_kv = p->global_kv,
                                       .offset = p->offset,
                                       .Sq = o->q + p->Sq,
                                       .Skv = o->kv + p->Skv};
    int64_t at = 0;
    for (int64_t b = 0; b < p->B; b++)
        for (int64_t h = 0; h < p->Hq; h++)
            for (int64_t i = 0; i < p->Sq; i++)
                for (int64_t j = 0; j < p->Skv; j++, at++) c->keep[at] &= ref_visible(&whole, b, h, o->q + i, o->kv + j) != 0;
    p->keep = c->keep;
    p->causal = p->window = 0;
    p->chunk = p->dilation = p->least_distance = p->global_q = p->global_kv = 0;
    for (int64_t n = 0; p->ranges && n < 2 * p->B * p->Hq * p->Sq; n++) c->ranges_of_ref[n] -= o->kv;
    c->offset_of_ref = calloc((size_t)p->B + 1, sizeof *c->offset_of_ref);
    assert_non_null(c->offset_of_ref);
    for (int64_t b = 0; b < p->B; b++) c->offset_of_ref[b] = p->offset[b] + o->q - o->kv;
    p->offset = c->offset_of_ref;
}
