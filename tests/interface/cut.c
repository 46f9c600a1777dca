/* SPDX-License-Identifier: MIT
 * cut.c - a random attention, and parts of it. */
#include "cut.h"

#include <math.h>

static size_t bytes_of(const array *a)
{
    return (size_t)(a->shape[0] * a->shape[1] * a->shape[2] * a->shape[3]) * attn_dtype_size(a->dtype);
}

static array array_make(attn_dtype dtype, int64_t b, int64_t h, int64_t i, int64_t c)
{
    array a = {.dtype = dtype, .shape = {b, h, i, c}, .stride = {h * i * c, i * c, c, 1}};
    a.data = calloc(bytes_of(&a) + 8, 1);
    assert_non_null(a.data);
    return a;
}

static char *place(const array *a, int64_t b, int64_t h, int64_t i, int64_t c)
{
    return a->data +
           (b * a->stride[0] + h * a->stride[1] + i * a->stride[2] + c * a->stride[3]) * (int64_t)attn_dtype_size(a->dtype);
}

double array_at(const array *a, int64_t b, int64_t h, int64_t i, int64_t c)
{
    const char *at = place(a, b, h, i, c);
    double x = 0;
    if (a->dtype == ATTN_BOOL) return *(const unsigned char *)at;
    attn_convert(&x, ATTN_F64, at, a->dtype, 1);
    return x;
}

static void put(const array *a, int64_t b, int64_t h, int64_t i, int64_t c, double x)
{
    if (a->dtype == ATTN_BOOL) *(unsigned char *)place(a, b, h, i, c) = x != 0;
    else if (a->dtype == ATTN_I64) *(int64_t *)(void *)place(a, b, h, i, c) = (int64_t)x;
    else attn_convert(place(a, b, h, i, c), a->dtype, &x, ATTN_F64, 1);
}

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
        attn_convert(a.data + (size_t)n * attn_dtype_size(a.dtype), a.dtype, &x, ATTN_F64, 1);
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

/* ---- the caller's modifier: a number and a mask by whole numbers, and a slope by distance ---- */

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

static void slopes(void *context, const attn_score_tile *t)
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
    if (option(w, 5, "ranges")) {
        w->ranges = owned(w, array_make(ATTN_I64, B, H, Sq, 2));
        EACH(&w->ranges) put(&w->ranges, b, h, i, c, (double)(c ? below(w, Skv + 5) : below(w, Skv / 2 + 1)));
    }
    if (option(w, 4, "bias")) {
        w->bias = numbers(w, 2, B, H, Sq, Skv);
        EACH(&w->bias) if (below(w, 12) == 0) put(&w->bias, b, h, i, c, -(double)INFINITY);
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
    w->o = owned(w, array_make(dtype, B, H, Sq, Dv)), w->lse = owned(w, array_make(dtype, B, H, Sq, 1));
    w->keep = owned(w, array_make(ATTN_BOOL, B, H, Sq, Skv));
    w->grad_q = owned(w, array_make(dtype, B, H, Sq, D));
    w->grad_k = owned(w, array_make(dtype, B, Hkv, Skv, D)), w->grad_v = owned(w, array_make(dtype, B, Hkv, Skv, Dv));
    draw_positions(w);
    draw_masks(w);
    draw_scores(w);
}

void whole_free(whole *w)
{
    for (int n = 0; n < w->count; n++) free(w->owned[n]);
}

/* ---- running ---- */

static attn_input input_at(const array *a, int64_t b, int64_t h, int64_t i, int64_t c)
{
    attn_input slot = {NULL, ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}};
    if (!a->data) return slot;
    slot = attn_in(place(a, b, h, i, c));
    slot.dtype = a->dtype;
    memcpy(slot.stride, a->stride, sizeof slot.stride);
    return slot;
}

static attn_output output_of(const array *a)
{
    attn_output slot = attn_out(a->data);
    slot.dtype = a->dtype;
    memcpy(slot.stride, a->stride, sizeof slot.stride);
    return slot;
}

static int64_t clamp(int64_t x, int64_t most) { return x < 0 ? 0 : x < most ? x : most; }

static void run(whole *w, const part *p, const attn_origin *origin, attn_op op, const results *r)
{
    attn_problem problem = w->problem;
    attn_shape *s = &problem.shape;
    const int64_t group = s->heads_q / s->heads_kv, h = p->head * group;
    int64_t lengths_q[8], lengths_kv[8];
    attn_call call = w->call;
    attn_error error;
    problem.op = op;
    *s = (attn_shape){p->entries, p->heads * group, p->heads, p->queries, p->keys, s->dim_qk, s->dim_v};
    call.origin = origin;
    if (call.modify_scores && op == ATTN_BACKWARD) call.modify_slopes = slopes;
    attn_tensors t = {.struct_size = sizeof t, .call = &call, .q = input_at(&w->q, p->batch, h, p->q, 0)};
    t.k = input_at(&w->k, p->batch, p->head, p->kv, 0), t.v = input_at(&w->v, p->batch, p->head, p->kv, 0);
    t.mask = input_at(&w->mask, p->batch, h, p->q, p->kv), t.bias = input_at(&w->bias, p->batch, h, p->q, p->kv);
    const attn_mask *m = &problem.mask;
    if (w->block_mask.data) t.block_mask = input_at(&w->block_mask, p->batch, h, p->q / m->block_q, p->kv / m->block_kv);
    t.ranges = input_at(&w->ranges, p->batch, h, p->q, 0);
    t.alibi_slopes = input_at(&w->slopes, p->batch, h, 0, 0);
    t.bias_table = input_at(&w->table, 0, h, 0, 0);
    t.relative_keys = input_at(&w->relative_keys, 0, h, 0, 0), t.relative_values = input_at(&w->relative_values, 0, h, 0, 0);
    t.relative_u = input_at(&w->relative_u, 0, h, 0, 0), t.relative_v = input_at(&w->relative_v, 0, h, 0, 0);
    t.scale = input_at(&w->scale, 0, h, 0, 0);
    for (int64_t b = 0; b < p->entries; b++) {
        lengths_q[b] = clamp(w->lengths_q[p->batch + b] - p->q, p->queries);
        lengths_kv[b] = clamp(w->lengths_kv[p->batch + b] - p->kv, p->keys);
    }
    if (w->has_lengths) t.lengths_q = attn_in(lengths_q), t.lengths_kv = attn_in(lengths_kv);
    if (w->has_offset && (origin || !w->bottom_right)) t.offset_q = attn_in(w->offset_q + p->batch);
    if (w->bottom_right && !origin) problem.mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
    t.o = output_of(&r->o), t.lse = output_of(&r->lse);
    if (op == ATTN_FORWARD) {
        if (problem.dropout.probability > 0) t.dropout_keep = output_of(&r->keep);
    } else {
        const attn_input o = input_at(&w->o, p->batch, h, p->q, 0), lse = input_at(&w->lse, p->batch, h, p->q, 0);
        t.o = attn_saved(o.data), t.lse = attn_saved(lse.data);
        memcpy(t.o.stride, o.stride, sizeof o.stride), memcpy(t.lse.stride, lse.stride, sizeof lse.stride);
        t.grad_o = input_at(&w->grad_o, p->batch, h, p->q, 0);
        t.grad_q = output_of(&r->grad_q), t.grad_k = output_of(&r->grad_k), t.grad_v = output_of(&r->grad_v);
    }
    if (attn_compute(&problem, &t, &error) != ATTN_OK) fail_msg("%s: %s", w->text, error.message);
}

void whole_run(whole *w, attn_op op)
{
    const attn_shape *s = &w->problem.shape;
    const part all = {0, s->batch, 0, s->heads_kv, 0, s->len_q, 0, s->len_kv};
    const results r = {w->o, w->lse, w->keep, w->grad_q, w->grad_k, w->grad_v};
    run(w, &all, NULL, op, &r);
}

void part_run(whole *w, const part *p, attn_op op, results *r)
{
    const attn_shape *s = &w->problem.shape;
    const attn_origin origin = {
        .batch = p->batch, .head = p->head * (s->heads_q / s->heads_kv), .heads = s->heads_q, .q = p->q, .kv = p->kv};
    run(w, p, &origin, op, r);
}

results results_make(const whole *w, const part *p)
{
    const attn_shape *s = &w->problem.shape;
    const int64_t H = p->heads * (s->heads_q / s->heads_kv);
    return (results){.o = array_make(w->dtype, p->entries, H, p->queries, s->dim_v),
                     .lse = array_make(w->dtype, p->entries, H, p->queries, 1),
                     .keep = array_make(ATTN_BOOL, p->entries, H, p->queries, p->keys),
                     .grad_q = array_make(w->dtype, p->entries, H, p->queries, s->dim_qk),
                     .grad_k = array_make(w->dtype, p->entries, p->heads, p->keys, s->dim_qk),
                     .grad_v = array_make(w->dtype, p->entries, p->heads, p->keys, s->dim_v)};
}

void results_free(results *r)
{
    const array all[] = {r->o, r->lse, r->keep, r->grad_q, r->grad_k, r->grad_v};
    for (int n = 0; n < 6; n++) free(all[n].data);
}
