/* SPDX-License-Identifier: MIT
 * place.c - one query's rows, the keys it sees, and the table rows for a key. */
#include "row.h"

#include <math.h>
#include <stdlib.h>

row row_at(const ref_problem *p, int64_t b, int64_t h, int64_t i)
{
    row r;
    r.b = b;
    r.h = h;
    r.g = h / (p->Hq / p->Hkv); /* the key and value head that query head h shares with its group */
    r.i = i;
    r.index = (b * p->Hq + h) * p->Sq + i;
    r.position = i + (p->offset ? p->offset[b] : 0);
    r.q = p->Q + r.index * p->D;
    r.K = p->K + (b * p->Hkv + r.g) * p->Skv * dim_k(p);
    r.V = p->V + (b * p->Hkv + r.g) * p->Skv * p->Dv;
    r.scale = p->scale_of_head ? p->scale_of_head[h] : p->scale;
    if (p->temperature > 0) r.scale /= p->temperature;
    return r;
}

/* x / y rounded down, for y > 0. */
static int64_t floor_div(int64_t x, int64_t y) { return x / y - (x % y < 0); }

int64_t ref_bucket(const ref_problem *p, int64_t d)
{
    if (p->bucket_rule == REF_CLIPPED) return (d < -p->reach ? -p->reach : d > p->reach ? p->reach : d) + p->reach;
    /* In each direction the first half of the buckets have one distance each, the others ranges that grow by a factor. */
    int both = p->bucket_rule == REF_T5;
    int64_t each = both ? p->buckets / 2 : p->buckets, exact = each / 2, first = both && d < 0 ? each : 0;
    int64_t n = d >= 0 ? d : both ? -d : 0;
    if (n < exact) return first + n;
    double share = log((double)n / (double)exact) / log((double)p->reach / (double)exact);
    int64_t bucket =
        exact + (int64_t)floor(share * (double)(each - exact) + 1e-9); /* rounding may bring an integer just below itself */
    return first + (bucket < each ? bucket : each - 1);
}

int64_t bias_table_at(const ref_problem *p, int64_t h, int64_t d)
{
    return (p->bias_table_of_each_head ? h * p->buckets : 0) + ref_bucket(p, d);
}

int64_t relative_row(const ref_problem *p, const row *r, int64_t j)
{
    int64_t t = r->position - j - p->relative_first, last = p->relative_rows - 1;
    t = t < 0 ? 0 : t > last ? last : t;
    return (p->relative_of_each_head ? r->h * p->relative_rows : 0) + t;
}

/* 1 if key j of Skv has no bit, or one that is set. */
static int tree_shows(const ref_problem *p, int64_t b, int64_t i, int64_t j, int64_t Skv)
{
    const int64_t bit = j - (Skv - p->tree_keys), words = (p->tree_keys + 63) / 64;
    return bit < 0 || (p->tree[(b * p->Sq + i) * words + bit / 64] >> (bit % 64) & 1);
}

int ref_visible(const ref_problem *p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    int64_t Sq = p->len_q ? p->len_q[b] : p->Sq;
    int64_t Skv = p->len_kv ? p->len_kv[b] : p->Skv;
    int64_t pos = i + (p->offset ? p->offset[b] : 0);
    int64_t at = ((b * p->Hq + h) * p->Sq + i) * p->Skv + j, range = ((b * p->Hq + h) * p->Sq + i) * 2;

    if (i >= Sq || j >= Skv) return 0;
    if (p->causal && j > pos) return 0;
    int global = j < p->global_kv || (pos >= 0 && pos < p->global_q);
    if (!global && p->window && p->window_left >= 0 && pos - j > p->window_left) return 0;
    if (!global && p->window && p->window_right >= 0 && j - pos > p->window_right) return 0;
    if (!global && p->dilation > 1 && (pos - j) % p->dilation != 0) return 0;
    if (p->ranges && (j < p->ranges[range] || j >= p->ranges[range + 1])) return 0;
    if (llabs(pos - j) < p->least_distance) return 0;
    if (p->tree && !tree_shows(p, b, i, j, Skv)) return 0;
    if (p->chunk && j / p->chunk != floor_div(pos, p->chunk)) return 0;
    if (p->keep && !p->keep[at]) return 0;
    if (p->bias && p->bias[at] == -INFINITY) return 0;
    if (p->bias_table && p->bias_table[bias_table_at(p, h, pos - j)] == -INFINITY) return 0;
    return 1;
}

int row_is_live(const ref_problem *p, const row *r) { return r->i < (p->len_q ? p->len_q[r->b] : p->Sq); }

int row_sees_any(const ref_problem *p, const row *r)
{
    for (int64_t j = 0; j < p->Skv; j++)
        if (ref_visible(p, r->b, r->h, r->i, j)) return 1;
    return 0;
}

int row_is_uniform(const ref_problem *p, const row *r) { return p->uniform && row_is_live(p, r) && !row_sees_any(p, r); }
