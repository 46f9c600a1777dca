/* SPDX-License-Identifier: MIT
 *
 * rows.c - see rows.h.  With w = exp(lse_p - lse), the share that the keys of node p have of the weights,
 *
 *      row_max  = the larger one
 *      entropy  = sum_p w_p (entropy_p - log(w_p))         over nodes with keys: a sink has weight, and is no key
 *      top k    = the k largest of w_p weight_j
 *
 * With ATTN_EMPTY_UNIFORM, a query that sees no key has the mean of the node's values; effective_keys has their number.
 */
#include "rows.h"

#include <float.h>
#include <math.h>

#include "number.h"

int64_t attn_rows_at(const attn_cells *c, size_t offset)
{
    const attn_bound *b = attn_bound_find(&c->bounds, offset);
    return b ? c->at[b - c->bounds.all] : -1;
}

/* ---- results ---- */

/* The results of a node that there are; NULL: absent. */
typedef struct row_results {
    char *o, *lse, *row_max, *entropy, *effective, *weight;
    int64_t *index;
} row_results;

static row_results results_of(const attn_cells *c, const char *node)
{
    char *const base = (char *)(uintptr_t)node;
    row_results r;
    const struct {
        char **to;
        size_t offset;
    } all[] = {{&r.o, offsetof(attn_tensors, o)},
               {&r.lse, offsetof(attn_tensors, lse)},
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

static int is_uniform(const attn_cells *c) { return c->problem.mask.empty == ATTN_EMPTY_UNIFORM; }

/* ---- before they are combined ---- */

void attn_rows_clear(const attn_cells *c, char *node)
{
    const row_results r = results_of(c, node);
    const int64_t rows = c->problem.shape.batch * c->problem.shape.heads_q * attn_part_most(&c->grid.q);
    for (int64_t n = 0; n < rows; n++) {
        attn_number_put(c->bounds.compute, r.lse, n, -(double)INFINITY);
        if (r.row_max) attn_number_put(c->bounds.compute, r.row_max, n, -(double)INFINITY);
    }
    for (int64_t n = 0; r.index && n < rows * c->problem.outputs.topk; n++) r.index[n] = -1;
}

void attn_rows_place(const attn_cells *c, const attn_cell *cell, const attn_piece *p)
{
    const row_results r = results_of(c, cell->node[ATTN_NODE_ROW]);
    const int64_t heads = c->problem.shape.batch * c->problem.shape.heads_q, space = attn_part_most(&c->grid.q),
                  topk = c->problem.outputs.topk, first = p->first_q - attn_part_first(&c->grid.q, cell->i);
    if (c->problem.op != ATTN_FORWARD) return;
    for (int64_t h = 0; h < heads; h++)
        for (int64_t row = h * space + first; row < h * space + first + p->queries; row++) {
            for (int64_t n = row * topk; n < (row + 1) * topk && r.index; n++)
                if (r.index[n] >= 0) r.index[n] += p->origin_kv;
            if (is_uniform(c) && attn_number_get(c->bounds.compute, r.lse, row) == -(double)INFINITY &&
                attn_number_get(c->bounds.compute, r.effective, row) > 0)
                attn_number_put(c->bounds.compute, r.effective, row, (double)p->keys);
        }
}

/* ---- combining ---- */

static double larger(double a, double b) { return isnan(a) || a > b ? a : b; }

/* Of a node whose lse is `lse`. */
static double entropy_of(const attn_cells *c, const row_results *r, int64_t row, double lse, double total)
{
    const attn_dtype t = c->bounds.compute;
    const double log_share = lse - total, share = exp(log_share);
    return share > 0 && attn_number_get(t, r->effective, row) > 0 ? share * (attn_number_get(t, r->entropy, row) - log_share) : 0;
}

/* The k largest of a node. */
typedef struct top_list {
    attn_dtype dtype;
    const char *weights;
    const int64_t *index;
    int sees;     /* 0: the query sees none of these keys */
    double share; /* of these keys; may be rounded to 0 */
    double alike; /* above 0: what all weights are */
} top_list;

static int64_t index_of(const top_list *l, int64_t n) { return l->sees ? l->index[n] : -1; }

static double weight_of(const top_list *l, int64_t n)
{
    const double x = index_of(l, n) < 0 ? 0 : l->alike > 0 ? l->alike : l->share * attn_number_get(l->dtype, l->weights, n);
    return l->dtype == ATTN_F64 ? x : (double)(float)x;
}

/* 1 if number n of a comes before number m of b: the larger one, of equal ones that with the lower index. */
static int comes_first(const top_list *a, int64_t n, const top_list *b, int64_t m)
{
    const double x = weight_of(a, n), y = weight_of(b, m);
    if (index_of(a, n) < 0 || index_of(b, m) < 0) return index_of(a, n) >= 0;
    return x > y || (x == y && index_of(a, n) < index_of(b, m));
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
        const int64_t key = index_of(from, at);
        attn_number_put(left->dtype, weights, n, weight_of(from, at));
        index[n] = key;
    }
}

/* The lse of a row whose o is there already: nothing is added to it. */
static double taken(attn_dtype dtype) { return dtype == ATTN_F64 ? -DBL_MAX : (double)-FLT_MAX; }

/* A query that sees no key of either node: the mean of the values of a + b keys. */
static void combine_uniform(const attn_cells *c, int64_t row, const row_results *l, const row_results *r, double a, double b)
{
    const attn_dtype t = c->bounds.compute;
    const int64_t k = c->problem.outputs.topk, size = (int64_t)attn_dtype_size(t), at = row * k, dim = c->problem.shape.dim_v;
    const double all = a + b;
    for (int64_t n = row * dim; n < (row + 1) * dim; n++)
        attn_number_put(t, l->o, n, (a * attn_number_get(t, l->o, n) + b * attn_number_get(t, r->o, n)) / all);
    attn_number_put(t, l->lse, row, taken(t));
    attn_number_put(t, l->entropy, row, log(all));
    attn_number_put(t, l->effective, row, all);
    if (!l->index) return;
    const top_list left = {t, l->weight + at * size, l->index + at, a > 0, a / all, 1 / all},
                   right = {t, r->weight + at * size, r->index + at, b > 0, b / all, 1 / all};
    combine_top(k, &left, &right, l->weight + at * size, l->index + at);
}

static void combine_row(const attn_cells *c, int64_t row, const row_results *l, const row_results *r)
{
    const attn_dtype t = c->bounds.compute;
    const int64_t k = c->problem.outputs.topk;
    const double a = attn_number_get(t, l->lse, row), b = attn_number_get(t, r->lse, row), most = larger(a, b);
    const double total = most > -(double)INFINITY ? most + log(exp(a - most) + exp(b - most)) : most;
    const int broken = isnan(a) || isnan(b), none = total == -(double)INFINITY;
    if (none && is_uniform(c)) {
        const double of_left = attn_number_get(t, l->effective, row), of_right = attn_number_get(t, r->effective, row);
        if (of_left + of_right > 0) combine_uniform(c, row, l, r, of_left, of_right);
        return;
    }
    if (l->row_max)
        attn_number_put(t, l->row_max, row,
                        broken ? NAN : larger(attn_number_get(t, l->row_max, row), attn_number_get(t, r->row_max, row)));
    if (l->entropy && !none) {
        const double entropy = broken ? (double)NAN : entropy_of(c, l, row, a, total) + entropy_of(c, r, row, b, total);
        const int sees = broken || attn_number_get(t, l->effective, row) > 0 || attn_number_get(t, r->effective, row) > 0;
        attn_number_put(t, l->entropy, row, entropy);
        attn_number_put(t, l->effective, row, sees ? exp(entropy) : 0);
    }
    if (!l->index || none) return;
    const int64_t size = (int64_t)attn_dtype_size(t), at = row * k;
    const top_list left = {t, l->weight + at * size, l->index + at, a > -(double)INFINITY, exp(a - total), 0},
                   right = {t, r->weight + at * size, r->index + at, b > -(double)INFINITY, exp(b - total), 0};
    if (!broken) combine_top(k, &left, &right, l->weight + at * size, l->index + at);
    for (int64_t n = at; n < at + k && broken; n++) {
        attn_number_put(t, l->weight, n, (double)NAN);
        l->index[n] = -1;
    }
}

void attn_rows_end(const attn_cells *c, int64_t tokens, char *left)
{
    const attn_dtype t = c->bounds.compute;
    const row_results l = results_of(c, left);
    const int64_t heads = c->problem.shape.batch * c->problem.shape.heads_q, space = attn_part_most(&c->grid.q);
    for (int64_t h = 0; h < heads && is_uniform(c); h++)
        for (int64_t row = h * space; row < h * space + tokens; row++)
            if (attn_number_get(t, l.lse, row) == taken(t)) attn_number_put(t, l.lse, row, -(double)INFINITY);
}

void attn_rows_finish(const attn_cells *c, int64_t tokens, char *node)
{
    const attn_dtype t = c->bounds.compute;
    if (c->problem.op != ATTN_FORWARD || !is_uniform(c) || !c->documents || !node) return;
    const row_results r = results_of(c, node);
    for (int64_t h = 0; h < c->problem.shape.heads_q; h++)
        for (int64_t row = h * attn_part_most(&c->grid.q); row < h * attn_part_most(&c->grid.q) + tokens; row++)
            if (attn_number_get(t, r.effective, row) == 0)
                attn_number_put(t, r.effective, row, 1); /* exp of an entropy of 0, as in one call */
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
                attn_number_put(
                    c->bounds.compute, l.lse, row,
                    larger(attn_number_get(c->bounds.compute, l.lse, row), attn_number_get(c->bounds.compute, r.lse, row)));
        }
}
