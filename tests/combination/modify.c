/* SPDX-License-Identifier: MIT
 * modify.c - combinations with a modifier: f(s) = c s / (1 + |s| / bend) + shift, where c and shift depend on the indices. */
#include "test.h"

#include "bound.h"
#include "combination.h"

#include <math.h>

/* of_part: NULL, or an attn_origin to add to the indices. */
static double modify(void *of_part, int64_t b, int64_t h, int64_t i, int64_t j, double s, double *slope)
{
    const attn_origin *o = of_part;
    if (o) b += o->batch, h += o->head, i += o->q, j += o->kv;
    const double c = 1 - 0.5 * (double)((b + h + i) % 3) / 2, flat = 1 + fabs(s) / MODIFIER_CURVATURE;
    *slope = c / (flat * flat);
    return c * s / flat + MODIFIER_SHIFT * (double)((i + 2 * j) % 5 - 2) / 2;
}

typedef enum modifier_output { SCORES, SLOPES } modifier_output;

static void apply(const attn_score_tile *t, modifier_output which)
{
    for (int64_t i = 0; i < t->queries; i++)
        for (int64_t j = 0; j < t->keys; j++) {
            const int64_t at = j * t->stride + i;
            double slope, s = t->dtype == ATTN_F32 ? (double)((float *)t->scores)[at] : ((double *)t->scores)[at];
            double changed = modify(NULL, t->batch, t->head, t->first_q + i, t->first_kv + j, s, &slope);
            void *to = which == SCORES ? t->scores : t->slopes;
            if (which == SLOPES) changed = slope;
            if (t->dtype == ATTN_F32) ((float *)to)[at] = (float)changed;
            else ((double *)to)[at] = changed;
        }
}

static void scores(void *context, const attn_score_tile *tile)
{
    (void)context;
    apply(tile, SCORES);
}

static void slopes(void *context, const attn_score_tile *tile)
{
    (void)context;
    apply(tile, SLOPES);
}

void combination_modify(combination *c)
{
    c->call.modify_scores = scores;
    c->call.modify_slopes = slopes;
    c->ref.modify = modify, c->ref.modify_context = &c->origin;
}
