/* SPDX-License-Identifier: MIT
 *
 * rows.c - see rows.h.  With w = exp(lse_p - lse), the share that the keys of node p have of the weights,
 *
 *      row_max  = the larger one
 *      entropy  = sum_p w_p (entropy_p - log(w_p))         over nodes with keys: a sink has weight, and is no key
 *      top k    = the k largest of w_p weight_j
 */
#include "rows.h"

#include <math.h>

int64_t attn_rows_at(const attn_cells *c, size_t offset)
{
    for (int n = 0; n < c->bounds.count; n++)
        if (c->bounds.all[n].offset == offset) return c->at[n];
    return -1;
}

/* ---- numbers ---- */

static double get(attn_dtype dtype, const void *numbers, int64_t at)
{
    return dtype == ATTN_F64 ? ((const double *)numbers)[at] : (double)((const float *)numbers)[at];
}

static void put(attn_dtype dtype, void *numbers, int64_t at, double x)
{
    if (dtype == ATTN_F64) ((double *)numbers)[at] = x;
    else ((float *)numbers)[at] = (float)x;
}

/* The results of a node that there are; NULL: absent. */
typedef struct row_results {
    char *lse, *row_max, *entropy, *effective, *weight;
    int64_t *index;
} row_results;

static row_results results_of(const attn_cells *c, const char *node)
{
    char *const base = (char *)(uintptr_t)node;
    row_results r;
    const struct {
        char **to;
        size_t offset;
    } all[] = {{&r.lse, offsetof(attn_tensors, lse)},
               {&r.row_max, offsetof(attn_tensors, row_max)},
               {&r.entropy, offsetof(attn_tensors, entropy)},
               {&r.effective, offsetof(attn_tensors, effective_keys)},
               {&r.weight, offsetof(attn_tensors, topk_weight)}};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
        const int64_t at = attn_rows_at(c, all[n].offset);
        *all[n].to = at < 0 ? NULL : base + at;
    }
    const int64_t at = attn_rows_at(c, offsetof(attn_tensors, topk_index));
    r.index = at < 0 ? NULL : (int64_t *)(void *)(base + at);
    return r;
}

/* ---- before they are combined ---- */

void attn_rows_clear(const attn_cells *c, char *node)
{
    const row_results r = results_of(c, node);
    const int64_t rows = c->problem.shape.batch * c->problem.shape.heads_q * attn_part_most(&c->grid.q);
    for (int64_t n = 0; n < rows; n++) {
        put(c->bounds.compute, r.lse, n, -(double)INFINITY);
        if (r.row_max) put(c->bounds.compute, r.row_max, n, -(double)INFINITY);
    }
    for (int64_t n = 0; r.index && n < rows * c->problem.outputs.topk; n++) r.index[n] = -1;
}

void attn_rows_place(const attn_cells *c, const attn_cell *cell, const attn_piece *p)
{
    const row_results r = results_of(c, cell->node[ATTN_NODE_ROW]);
    const int64_t heads = c->problem.shape.batch * c->problem.shape.heads_q, space = attn_part_most(&c->grid.q),
                  topk = c->problem.outputs.topk, first = p->first_q - attn_part_first(&c->grid.q, cell->i);
    if (c->problem.op != ATTN_FORWARD || !r.index) return;
    for (int64_t h = 0; h < heads; h++)
        for (int64_t n = (h * space + first) * topk; n < (h * space + first + p->queries) * topk; n++)
            if (r.index[n] >= 0) r.index[n] += p->origin_kv;
}

/* ---- combining ---- */

static double larger(double a, double b) { return isnan(a) || a > b ? a : b; }

/* Of a node whose lse is `lse`. */
static double entropy_of(const attn_cells *c, const row_results *r, int64_t row, double lse, double total)
{
    const attn_dtype t = c->bounds.compute;
    const double log_share = lse - total, share = exp(log_share);
    return share > 0 && get(t, r->effective, row) > 0 ? share * (get(t, r->entropy, row) - log_share) : 0;
}

/* The k largest of a node. */
typedef struct top_list {
    attn_dtype dtype;
    const char *weights;
    const int64_t *index;
    double share;
} top_list;

static double weight_of(const top_list *l, int64_t n)
{
    const double x = l->share * get(l->dtype, l->weights, n);
    return l->dtype == ATTN_F64 ? x : (double)(float)x;
}

/* 1 if number n of a comes before number m of b: the larger one, of equal ones that with the lower index. */
static int comes_first(const top_list *a, int64_t n, const top_list *b, int64_t m)
{
    const double x = weight_of(a, n), y = weight_of(b, m);
    if (a->index[n] < 0 || b->index[m] < 0) return a->index[n] >= 0;
    return x > y || (x == y && a->index[n] < b->index[m]);
}

/* In place: first how many of each are among the k, and then these from the last one on. */
static void combine_top(int64_t k, const top_list *left, const top_list *right, char *weights, int64_t *index)
{
    int64_t a = 0, b = 0;
    while (a + b < k)
        if (comes_first(right, b, left, a)) b++;
        else a++;
    for (int64_t n = k - 1; n >= 0; n--) {
        const int is_right = b > 0 && (a == 0 || comes_first(left, a - 1, right, b - 1));
        const top_list *from = is_right ? right : left;
        const int64_t at = is_right ? --b : --a;
        put(left->dtype, weights, n, weight_of(from, at));
        index[n] = from->index[at];
    }
}

static void combine_row(const attn_cells *c, int64_t row, const row_results *l, const row_results *r)
{
    const attn_dtype t = c->bounds.compute;
    const int64_t k = c->problem.outputs.topk;
    const double a = get(t, l->lse, row), b = get(t, r->lse, row), most = larger(a, b);
    const double total = most > -(double)INFINITY ? most + log(exp(a - most) + exp(b - most)) : most;
    const int broken = isnan(a) || isnan(b), none = total == -(double)INFINITY;
    if (l->row_max) put(t, l->row_max, row, broken ? NAN : larger(get(t, l->row_max, row), get(t, r->row_max, row)));
    if (l->entropy && !none) {
        const double entropy = broken ? (double)NAN : entropy_of(c, l, row, a, total) + entropy_of(c, r, row, b, total);
        const int sees = broken || get(t, l->effective, row) > 0 || get(t, r->effective, row) > 0;
        put(t, l->entropy, row, entropy);
        put(t, l->effective, row, sees ? exp(entropy) : 0);
    }
    if (!l->index || none) return;
    const int64_t size = (int64_t)attn_dtype_size(t), at = row * k;
    const top_list left = {t, l->weight + at * size, l->index + at, exp(a - total)},
                   right = {t, r->weight + at * size, r->index + at, exp(b - total)};
    if (!broken) combine_top(k, &left, &right, l->weight + at * size, l->index + at);
    for (int64_t n = at; n < at + k && broken; n++) {
        put(t, l->weight, n, (double)NAN);
        l->index[n] = -1;
    }
}

void attn_rows_combine(const attn_cells *c, int64_t tokens, char *left, const char *right)
{
    const row_results l = results_of(c, left), r = results_of(c, right);
    const int64_t heads = c->problem.shape.batch * c->problem.shape.heads_q, space = attn_part_most(&c->grid.q);
    const int sums = c->problem.score.normaliser == ATTN_NORMALISER_SIGMOID, more = l.row_max || l.entropy || l.index;
    for (int64_t h = 0; h < heads && (more || sums); h++)
        for (int64_t row = h * space; row < h * space + tokens; row++) {
            if (more) combine_row(c, row, &l, &r);
            /* Both are -infinity or the logarithm of the divisor, 1, for a normaliser that divides by nothing. */
            if (sums)
                put(c->bounds.compute, l.lse, row, larger(get(c->bounds.compute, l.lse, row), get(c->bounds.compute, r.lse, row)));
        }
}
