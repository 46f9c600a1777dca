/* SPDX-License-Identifier: MIT
 * random_problem.c - a random combination of all options, as a problem. */
#include "test.h"

#include "combination.h"

/* 1 .. small or 1 .. large, and sometimes 0. */
static int64_t draw_size(random_state *r, int64_t small, int64_t large)
{
    int64_t size = 1 + random_below(r, random_below(r, 3) ? small : large);
    return random_below(r, 30) ? size : 0;
}

/* True once in n. */
static int once_in(random_state *r, int64_t n) { return random_below(r, n) == 0; }

/* Any set of axes, each with probability 1/3. */
static int some_axes(random_state *r)
{
    int axes = 0;
    for (int axis = 0; axis < 4; axis++) axes |= once_in(r, 3) << axis;
    return axes;
}

static void draw_masks(problem_spec *s, random_state *r)
{
    const int64_t Sq = s->shape.len_q, Skv = s->shape.len_kv;
    if (once_in(r, 5)) s->packed = 1;
    else if (once_in(r, 4)) s->lengths = (int)(SPEC_LENGTHS_BOTH + random_below(r, 3));
    if (once_in(r, 2)) s->causal = SPEC_CAUSAL_TOP_LEFT;
    if (once_in(r, 3))
        *(s->causal ? &s->causal : &s->align) = s->causal ? (int)SPEC_CAUSAL_BOTTOM_RIGHT : (int)SPEC_ALIGN_BOTTOM_RIGHT;
    else if (once_in(r, 3)) s->offset_kind = SPEC_OFFSET_EACH;
    if (once_in(r, 4)) {
        s->window = 1;
        s->window_left = random_below(r, Skv + 2) - 1;
        s->window_right = random_below(r, Skv + 2) - 1;
    }
    if (once_in(r, 6)) s->chunk = 1 + random_below(r, Skv + 1);
    if (once_in(r, 4)) s->mask = 1, s->mask_drop = 0.3, s->mask_one = some_axes(r);
    if (once_in(r, 6)) {
        s->block = 1, s->block_drop = 0.5, s->block_one = some_axes(r);
        s->block_q = 1 + random_below(r, Sq < 40 ? 40 : Sq);
        s->block_kv = 1 + random_below(r, 80);
    }
}

static void draw_scores(problem_spec *s, random_state *r)
{
    if (once_in(r, 3)) s->bias = 1, s->bias_one = some_axes(r);
    if (once_in(r, 3)) s->alibi = (int)(SPEC_ALIBI_HEAD + random_below(r, 2));
    s->sink = once_in(r, 3);
    if (once_in(r, 5)) s->has_scale = 1, s->scale = (double)(random_below(r, 17) - 8) / 8;
    else if (once_in(r, 5)) s->scale_heads = 1;
    if (once_in(r, 3)) s->temperature = 0.5 + (double)random_below(r, 8) / 4;
    if (once_in(r, 3)) s->softcap = 0.5 + (double)random_below(r, 16) / 4;
    /* In packed tensors the mean is over the sequence's own keys; ref/ has padded tensors. */
    if (!s->sink && !s->packed && once_in(r, 4)) s->empty = SPEC_EMPTY_UNIFORM;
    if (once_in(r, 3)) s->dropout = once_in(r, 10) ? 1 : (double)(1 + random_below(r, 7)) / 8;
}

void random_problem(problem_spec *s, uint64_t seed, attn_dtype dtype)
{
    static const int types[] = {[ATTN_F32] = SPEC_F32, [ATTN_F64] = SPEC_F64, [ATTN_F16] = SPEC_F16, [ATTN_BF16] = SPEC_BF16};
    random_state r = random_from(seed);
    problem_init(s);
    s->dtype = types[dtype];
    s->seed = seed;
    s->shape.batch = draw_size(&r, 3, 3);
    s->shape.heads_kv = 1 + random_below(&r, 3);
    s->shape.heads_q = s->shape.heads_kv * (1 + random_below(&r, 3));
    s->shape.len_q = draw_size(&r, 12, 130);
    s->shape.len_kv = draw_size(&r, 12, 300);
    s->shape.dim_qk = draw_size(&r, 8, 70);
    s->shape.dim_v = draw_size(&r, 8, 70);
    draw_masks(s, &r);
    draw_scores(s, &r);
}
