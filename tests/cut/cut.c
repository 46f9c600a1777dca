/* SPDX-License-Identifier: MIT
 * cut.c - drawing a random attention problem. */
#include "cut.h"

#include <math.h>

/* Loops over all elements, at indices b, h, i and c. */
#define EACH(a)                                                                                                                    \
    for (int64_t b = 0; b < (a)->shape[0]; b++)                                                                                    \
        for (int64_t h = 0; h < (a)->shape[1]; h++)                                                                                \
            for (int64_t i = 0; i < (a)->shape[2]; i++)                                                                            \
                for (int64_t c = 0; c < (a)->shape[3]; c++)

static array owned(whole *w, array a)
{
    assert_in_range(w->count, 0, CUT_ARRAYS - 1);
    w->owned[w->count++] = a.data;
    return a;
}

/* Numbers in -size .. size. */
static array numbers(whole *w, double size, int64_t b, int64_t h, int64_t i, int64_t c)
{
    const array a = owned(w, array_make(w->dtype, b, h, i, c));
    for (int64_t n = 0; n < b * h * i * c; n++) {
        const double x = size * random_signed(&w->random);
        (void)attn_convert(1, &x, ATTN_F64, a.data + (size_t)n * attn_dtype_size(a.dtype), a.dtype, NULL);
    }
    return a;
}

static array bits(whole *w, int64_t one_in, int64_t b, int64_t h, int64_t i, int64_t c)
{
    const array a = owned(w, array_make(ATTN_BOOL, b, h, i, c));
    for (int64_t n = 0; n < b * h * i * c; n++) a.data[n] = random_below(&w->random, one_in) != 0;
    return a;
}

static int option(whole *w, int64_t one_in, const char *name)
{
    if (random_below(&w->random, one_in)) return 0;
    strcat(strcat(w->text, " "), name);
    return 1;
}

static int64_t below(whole *w, int64_t n) { return random_below(&w->random, n); }

/* ---- the caller's modifier: a bias and a mask computed from the indices, and a slope by distance ---- */

static double added(int64_t b, int64_t h, int64_t i, int64_t j, int64_t distance)
{
    if ((i + 2 * j) % 19 == 0) return -(double)INFINITY;
    return (double)((b * 3 + h * 5 + i * 7 + j * 11) % 13) / 16 - 0.02 * (double)llabs(distance);
}

static void modify(void *context, const attn_score_tile *t)
{
    (void)context;
    for (int64_t j = 0; j < t->keys; j++)
        for (int64_t i = 0; i < t->queries; i++) {
            const double x = added(t->batch, t->head, t->first_q + i, t->first_kv + j, t->position + i - t->first_kv - j);
            if (t->dtype == ATTN_F64) ((double *)t->scores)[j * t->stride + i] += x;
            else ((float *)t->scores)[j * t->stride + i] += (float)x;
        }
}

void cut_slopes(void *context, const attn_score_tile *t)
{
    (void)context;
    for (int64_t j = 0; j < t->keys; j++)
        for (int64_t i = 0; i < t->queries; i++)
            if (t->dtype == ATTN_F64) ((double *)t->slopes)[j * t->stride + i] = 1;
            else ((float *)t->slopes)[j * t->stride + i] = 1;
}

/* ---- drawing ---- */

static void draw_positions(whole *w)
{
    attn_problem *p = &w->problem;
    attn_mask *m = &p->mask;
    const attn_shape *s = &p->shape;
    m->causal = option(w, 2, "causal");
    if (option(w, 3, "window")) m->window = 1, m->window_left = below(w, s->len_kv) - 1, m->window_right = below(w, s->len_kv) - 1;
    if (option(w, 5, "chunk")) m->chunk = 1 + below(w, s->len_kv);
    if (option(w, 5, "dilation")) m->dilation = 2 + below(w, 4);
    if (option(w, 4, "global")) m->global_q = below(w, 9), m->global_kv = below(w, 9);
    w->has_lengths = option(w, 3, "lengths");
    for (int b = 0; b < s->batch; b++) {
        w->lengths_q[b] = w->has_lengths ? below(w, s->len_q + 1) : s->len_q;
        w->lengths_kv[b] = w->has_lengths ? below(w, s->len_kv + 1) : s->len_kv;
    }
    w->has_offset = option(w, 2, "offset");
    w->bottom_right = w->has_offset && option(w, 2, "bottom-right");
    for (int b = 0; b < s->batch; b++) {
        w->offset_q[b] = below(w, s->len_kv + s->len_q) - s->len_q;
        if (w->bottom_right) w->offset_q[b] = w->lengths_kv[b] - w->lengths_q[b];
    }
}

static void draw_masks(whole *w)
{
    attn_mask *m = &w->problem.mask;
    const attn_shape *s = &w->problem.shape;
    const int64_t B = s->batch, H = s->heads_q, Sq = s->len_q, Skv = s->len_kv;
    if (option(w, 4, "mask")) w->mask = bits(w, 4, B, H, Sq, Skv);
    if (option(w, 4, "block")) {
        m->block_q = 1 + below(w, 20), m->block_kv = 1 + below(w, 30);
        w->block_mask = bits(w, 3, B, H, (Sq + m->block_q - 1) / m->block_q, (Skv + m->block_kv - 1) / m->block_kv);
    }
    if (!w->block_mask.data && option(w, 6, "lists")) {
        m->block_q = 1 + below(w, 20), m->block_kv = 1 + below(w, 30);
        w->lists = bits(w, 3, 1, 1, (Sq + m->block_q - 1) / m->block_q, (Skv + m->block_kv - 1) / m->block_kv);
    }
    if (option(w, 5, "ranges")) {
        w->ranges = owned(w, array_make(ATTN_I64, B, H, Sq, 2));
        EACH(&w->ranges) array_put(&w->ranges, b, h, i, c, (double)(c ? below(w, Skv + 5) : below(w, Skv / 2 + 1)));
    }
    if (option(w, 4, "bias")) {
        w->bias = numbers(w, 2, B, H, Sq, Skv);
        EACH(&w->bias) if (below(w, 12) == 0) array_put(&w->bias, b, h, i, c, -(double)INFINITY);
    }
}

static void draw_scores(whole *w)
{
    attn_problem *p = &w->problem;
    const attn_shape *s = &p->shape;
    const int64_t H = s->heads_q;
    if (option(w, 4, "alibi")) w->slopes = numbers(w, 0.2, s->batch, H, 1, 1);
    if (option(w, 5, "table")) {
        p->bias_table.kind = below(w, 2) ? ATTN_DISTANCE_CLIPPED : ATTN_DISTANCE_T5;
        p->bias_table.max_distance = p->bias_table.kind == ATTN_DISTANCE_CLIPPED ? 9 : 0;
        w->table = numbers(w, 1, 1, H, p->bias_table.kind == ATTN_DISTANCE_CLIPPED ? 19 : 32, 1);
    }
    if (option(w, 5, "relative")) {
        p->relative = (attn_relative){.first = -7, .rows = 15};
        w->relative_keys = numbers(w, 0.5, 1, H, 15, s->dim_qk), w->relative_values = numbers(w, 0.5, 1, H, 15, s->dim_v);
        w->relative_u = numbers(w, 0.5, 1, H, 1, s->dim_qk), w->relative_v = numbers(w, 0.5, 1, H, 1, s->dim_qk);
    } else if (option(w, 6, "distance")) p->score.kind = ATTN_SCORE_DISTANCE;
    if (option(w, 5, "scales")) w->scale = numbers(w, 0.5, 1, H, 1, 1);
    if (option(w, 5, "softcap")) p->score.softcap = 3;
    if (option(w, 3, "dropout")) p->dropout.probability = 0.35;
    if (option(w, 4, "modifier")) w->call.modify_scores = modify;
}

static int is_dot(const whole *w) { return w->problem.score.kind == ATTN_SCORE_DOT; }

/* The same keys and values in pages, in shuffled order; page storage that belongs to no sequence is NaN. */
static void draw_pages(whole *w)
{
    const attn_shape *s = &w->problem.shape;
    const int64_t size = w->problem.mask.block_kv > 0 ? w->problem.mask.block_kv : 1 + below(w, 12), B = s->batch;
    const int64_t count = (s->len_kv + size - 1) / size;
    const array *dense[] = {&w->k, &w->v};
    array *pages[] = {&w->k_pages, &w->v_pages};
    w->page_size = size;
    w->page_table = owned(w, array_make(ATTN_I64, B, 1, 1, count));
    for (int n = 0; n < 2; n++) {
        *pages[n] = owned(w, array_make(w->dtype, B * count + 1, s->heads_kv, size, dense[n]->shape[3]));
        EACH(pages[n]) array_put(pages[n], b, h, i, c, (double)NAN);
    }
    EACH(&w->page_table)
    {
        const int64_t page = (b * count + c) * 7 % (B * count % 7 ? B * count : B * count + 1); /* a permutation */
        array_put(&w->page_table, b, h, i, c, (double)page);
        for (int n = 0; n < 2; n++)
            for (int64_t g = 0; g < s->heads_kv; g++)
                for (int64_t j = c * size; j < (c + 1) * size && j < w->lengths_kv[b]; j++)
                    for (int64_t x = 0; x < dense[n]->shape[3]; x++)
                        array_put(pages[n], page, g, j % size, x, array_at(dense[n], b, g, j, x));
    }
}

void whole_draw(whole *w, uint64_t seed, attn_dtype dtype)
{
    memset(w, 0, sizeof *w);
    w->random = random_from(seed);
    w->dtype = dtype;
    const int few = below(w, 5) == 0, large = below(w, 4) == 0;
    const int64_t B = 1 + below(w, 3), Hkv = 1 + below(w, 3), H = Hkv * (1 + below(w, 3));
    const int64_t Sq = few ? 1 + below(w, 4) : 2 + below(w, large ? 150 : 40), Skv = 2 + below(w, large || few ? 300 : 60);
    const int64_t D = 1 + below(w, 24), Dv = 1 + below(w, 12);
    (void)snprintf(w->text, sizeof w->text, "seed %d, %s, b%d hq%d hkv%d sq%d skv%d:", (int)seed, attn_dtype_name(dtype), (int)B,
                   (int)H, (int)Hkv, (int)Sq, (int)Skv);
    w->problem = (attn_problem){.struct_size = sizeof w->problem, .shape = {B, H, Hkv, Sq, Skv, D, Dv}};
    w->call =
        (attn_call){.struct_size = sizeof w->call, .dropout_seed = seed * 0x9E3779B97F4A7C15u, .dropout_offset = (uint32_t)seed};
    w->q = numbers(w, 1, B, H, Sq, D), w->k = numbers(w, 1, B, Hkv, Skv, D), w->v = numbers(w, 1, B, Hkv, Skv, Dv);
    w->grad_o = numbers(w, 1, B, H, Sq, Dv);
    w->tan_q = numbers(w, 1, B, H, Sq, D), w->tan_k = numbers(w, 1, B, Hkv, Skv, D), w->tan_v = numbers(w, 1, B, Hkv, Skv, Dv);
    draw_positions(w);
    draw_masks(w);
    draw_scores(w);
    if (option(w, 2, "grad_lse")) w->grad_lse = numbers(w, 1, B, H, Sq, 1);
    if (w->bias.data) w->tan_bias = numbers(w, 1, B, H, Sq, Skv);
    if (is_dot(w) && option(w, 3, "pages")) draw_pages(w);
    w->is = results_make(w, &(part){0, B, 0, Hkv, 0, Sq, 0, Skv});
}

void whole_free(whole *w)
{
    for (int n = 0; n < w->count; n++) free(w->owned[n]);
    results_free(&w->is);
}
