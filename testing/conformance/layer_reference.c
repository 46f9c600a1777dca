/* SPDX-License-Identifier: MIT
 *
 * layer_reference.c - a layer by definition: loops in double around ref_forward, over all keys at once, with every mask explicit.
 *
 * Bounds, to first order in the rounding unit u and doubled.  A projection of n products has an error of at most (n+2) u M, with M
 * the sum of the absolute values.  The error of a score is then e = (C + D + 8) u scale Mq.Mk + |bias| u, of a weight 2 max e +
 * (keys + 8) u relative to itself, of a head's output (2 max e + (keys + C + 8) u) max M_v, and of y that times |W_o|, plus (n+2) u
 * M.
 */
#include <math.h>
#include <string.h>

#include "attn_ref.h"
#include "layer_case.h"

typedef struct side {
    double *x, *m; /* numbers, and the sums of absolute values behind them */
} side;

static side take_side(layer_case *c, int64_t count)
{
    return (side){pool_take(&c->pool, count, sizeof(double)), pool_take(&c->pool, count, sizeof(double))};
}

static double *numbers(layer_case *c, const view *v)
{
    double *x = pool_take(&c->pool, view_count(v), sizeof *x);
    for (int64_t n = 0; n < view_count(v); n++) x[n] = view_get(v, n);
    return x;
}

/* The row of token t of sequence b in an input. */
static int64_t row_of(const layer_case *c, int64_t b, int64_t t, int64_t tokens)
{
    return c->packed ? c->begin[b] + t : b * tokens + t;
}

static int64_t tokens_of(const layer_case *c, int64_t b, int64_t tokens)
{
    return c->packed ? c->begin[b + 1] - c->begin[b] : tokens;
}

/* Projects the rows of input i to [b][h][first + t][c], with `space` tokens for each head. */
static void project(layer_case *c, int i, int64_t tokens, int64_t heads, int64_t dim, int64_t first, int64_t space, side to)
{
    const case_projection *p = &c->projection[i];
    const view *in = &c->input[i == VALUE && !view_present(&c->input[VALUE]) ? KEY : i];
    const double *x, *w = numbers(c, &p->weight), *bias = view_present(&p->bias) ? numbers(c, &p->bias) : NULL;
    if (!view_present(in)) in = &c->input[QUERY];
    x = numbers(c, in);
    const int64_t width = in->size[2];
    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t t = 0; t < tokens_of(c, b, tokens); t++)
            for (int64_t h = 0; h < heads; h++)
                for (int64_t k = 0; k < dim; k++) {
                    double sum = bias ? bias[p->bias_at + h * dim + k] : 0, all = fabs(sum);
                    for (int64_t m = 0; m < width; m++) {
                        const double one = x[row_of(c, b, t, tokens) * width + m] *
                                           w[p->at + h * p->stride[0] + k * p->stride[1] + m * p->stride[2]];
                        sum += one, all += fabs(one);
                    }
                    const int64_t at = ((b * heads + h) * space + first + t) * dim + k;
                    to.x[at] = sum, to.m[at] = all * (double)(width + 2);
                }
}

/* Rotates `tokens` tokens from `first` on; positions follow those of the past if the case has none. */
static void rotate(const layer_case *c, side s, int64_t heads, int64_t dim, int64_t first, int64_t tokens, int64_t space)
{
    const int64_t width = c->rope.dim_rotary ? c->rope.dim_rotary : dim, pairs = width / 2;
    const double base = c->rope.base > 0 ? c->rope.base : 10000;
    const int halves = c->rope.pairs == ATTN_ROPE_PAIRS_HALVES;
    for (int64_t n = 0; n < c->batch * heads; n++)
        for (int64_t t = 0; t < tokens; t++)
            for (int64_t i = 0; i < pairs; i++) {
                const int64_t at = (n * space + first + t) * dim, a = at + (halves ? i : 2 * i), b = halves ? a + pairs : a + 1;
                const double position = c->positions ? (double)c->positions[n / heads * tokens + t] : (double)(c->past_len + t),
                             angle = position * pow(base, -2.0 * (double)i / (double)width), u = s.x[a], v = s.x[b];
                s.x[a] = u * cos(angle) - v * sin(angle);
                s.x[b] = u * sin(angle) + v * cos(angle);
                s.m[a] = s.m[b] = s.m[a] + s.m[b] + 4 * (fabs(u) + fabs(v));
            }
}

/* Puts the past before the new tokens, and the extra key and the zero after them. */
static void put_others(layer_case *c, int value, int64_t heads, int64_t dim, int64_t space, side to)
{
    const view *past = &c->past[value], *extra = &c->extra[value];
    for (int64_t n = 0; n < c->batch * heads; n++) {
        for (int64_t t = 0; view_present(past) && t < c->past_len; t++)
            for (int64_t k = 0; k < dim; k++) to.x[(n * space + t) * dim + k] = view_get(past, (n * past->size[2] + t) * dim + k);
        const int64_t after = c->past_len + c->len_kv;
        for (int64_t k = 0; view_present(extra) && k < dim; k++)
            to.x[(n * space + after) * dim + k] = view_get(extra, n % heads * dim + k);
    }
}

static int sees(const layer_case *c, int64_t b, int64_t i, int64_t j)
{
    if (j >= c->past_len + c->len_kv) return 1;
    if (c->packed && (i >= tokens_of(c, b, 0) || j >= tokens_of(c, b, 0))) return 0;
    if (c->lengths_kv && j >= c->lengths_kv[b]) return 0;
    return !c->causal || j <= i + c->past_len;
}

void layer_expect(layer_case *c, layer_expectation *e)
{
    const attn_layer *l = &c->layer;
    const int64_t B = c->batch, Hq = l->heads_q, Hkv = l->heads_kv, D = l->head_dim, Dv = l->head_dim_v, Sq = c->len_q,
                  S = c->past_len + c->len_kv, T = S + view_present(&c->extra[0]) + c->zero_key, out = l->dim_output,
                  widest = c->input[QUERY].size[2] > Hq * Dv ? c->input[QUERY].size[2] : Hq * Dv;
    const side q = take_side(c, B * Hq * Sq * D), k = take_side(c, B * Hkv * T * D), v = take_side(c, B * Hkv * T * Dv);
    double *added = pool_take(&c->pool, B * Hq * Sq * T, sizeof *added), *lse = pool_take(&c->pool, B * Hq * Sq, sizeof *lse),
           *O = pool_take(&c->pool, B * Hq * Sq * Dv, sizeof *O), *scores = pool_take(&c->pool, B * Hq * Sq * T, sizeof *scores);
    unsigned char *keep = pool_take(&c->pool, B * Hq * Sq * T, 1);
    project(c, QUERY, Sq, Hq, D, 0, Sq, q);
    if (!c->only_cached)
        project(c, KEY, c->len_kv, Hkv, D, c->past_len, T, k), project(c, VALUE, c->len_kv, Hkv, Dv, c->past_len, T, v);
    if (c->rotated) rotate(c, q, Hq, D, 0, Sq, Sq), rotate(c, k, Hkv, D, c->past_len, c->len_kv, T);
    put_others(c, 0, Hkv, D, T, k), put_others(c, 1, Hkv, Dv, T, v);

    const int64_t full[4] = {B, Hq, Sq, S};
    view keep_all, bias_all;
    if (view_present(&c->keep)) (void)view_expand(&c->keep, full, &keep_all);
    if (view_present(&c->bias)) (void)view_expand(&c->bias, full, &bias_all);
    for (int64_t n = 0; n < B * Hq * Sq * T; n++) {
        const int64_t j = n % T, i = n / T % Sq, b = n / T / Sq / Hq, at = n / T * S + j;
        keep[n] = sees(c, b, i, j) && (j >= S || !view_present(&c->keep) || view_get(&keep_all, at) != 0);
        added[n] = j < S && view_present(&c->bias) ? view_get(&bias_all, at) : 0;
        if (added[n] == -INFINITY) keep[n] = 0, added[n] = 0;
    }
    const double scale = c->has_scale ? c->scale : 1 / sqrt((double)D);
    ref_problem p = {
        .B = B, .Hq = Hq, .Hkv = Hkv, .Sq = Sq, .Skv = T, .D = D, .Dv = Dv, .Q = q.x, .K = k.x, .V = v.x, .scale = scale};
    p.keep = keep, p.bias = added;
    e->len_q = Sq, e->keys = T;
    e->P = pool_take(&c->pool, B * Hq * Sq * T, sizeof(double)), e->P_bound = pool_take(&c->pool, B * Hq * Sq * T, sizeof(double));
    e->Q = q.x, e->Q_bound = q.m, e->K = k.x, e->V = v.x, e->K_bound = k.m, e->V_bound = v.m;
    ref_forward(&p, O, lse, scores, e->P);

    double *off = pool_take(&c->pool, B * Hq * Sq * Dv, sizeof *off); /* of O */
    double *own = pool_take(&c->pool, T, sizeof *own);                /* of a key's score */
    for (int64_t r = 0; r < B * Hq * Sq; r++) {
        const int64_t g = r / Sq / Hq * Hkv + r / Sq % Hq / (Hq / Hkv);
        double worst = 0;
        for (int64_t j = 0; j < T; j++) {
            double products = 0;
            for (int64_t a = 0; a < D; a++) {
                const double x = fabs(q.x[r * D + a]), y = fabs(k.x[(g * T + j) * D + a]);
                products += q.m[r * D + a] * y + x * k.m[(g * T + j) * D + a] + (double)(D + 8) * x * y;
            }
            own[j] = fabs(scale) * products + 2 * fabs(added[r * T + j]);
            if (e->P[r * T + j] > 1e-30) worst = fmax(worst, own[j]);
        }
        for (int64_t j = 0; j < T; j++) e->P_bound[r * T + j] = 2 * (worst + fmax(worst, own[j]) + (double)T + 8) * e->P[r * T + j];
        for (int64_t a = 0; a < Dv; a++) {
            double most = 0, rounded = 0;
            for (int64_t j = 0; j < T; j++) {
                if (!keep[r * T + j]) continue;
                most = fmax(most, fabs(v.x[(g * T + j) * Dv + a]));
                rounded = fmax(rounded, v.m[(g * T + j) * Dv + a]);
            }
            off[r * Dv + a] = (2 * worst + (double)T + 8) * most + rounded;
        }
    }
    const case_projection *o = &c->projection[OUTPUT];
    const double *w = l->no_output ? NULL : numbers(c, &o->weight),
                 *bias = !l->no_output && view_present(&o->bias) ? numbers(c, &o->bias) : NULL;
    e->y = pool_take(&c->pool, B * Sq * out, sizeof(double)), e->y_bound = pool_take(&c->pool, B * Sq * out, sizeof(double));
    for (int64_t n = 0; n < B * Sq * out; n++) {
        const int64_t m = n % out, t = n / out % Sq, b = n / out / Sq;
        double sum = bias ? bias[o->bias_at + m] : 0, all = (double)(widest + 2) * fabs(sum);
        for (int64_t h = 0; h < Hq; h++)
            for (int64_t a = 0; a < Dv; a++) {
                const int64_t at = ((b * Hq + h) * Sq + t) * Dv + a;
                const double factor = w ? w[o->at + h * o->stride[0] + a * o->stride[1] + m * o->stride[2]] : h * Dv + a == m;
                sum += O[at] * factor;
                all += fabs(factor) * (off[at] + (w ? (double)(widest + 2) * fabs(O[at]) : 0));
            }
        e->y[n] = sum, e->y_bound[n] = 2 * all;
    }
}
