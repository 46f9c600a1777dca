/* SPDX-License-Identifier: MIT
 * outputs.c - outputs other than O and lse, by definition. */
#include "row.h"

#include <math.h>

static void row_undropped(const ref_problem *p, const row *r, double *raw, double *capped)
{
    for (int64_t j = 0; j < p->Skv; j++) {
        raw[j] = r->scale * row_raw_score(p, r, j);
        capped[j] = p->softcap > 0 ? p->softcap * tanh(raw[j] / p->softcap) : raw[j];
    }
}

static double entropy_of(const double *w, int64_t n)
{
    double sum = 0;
    for (int64_t j = 0; j < n; j++)
        if (w[j] != 0) sum -= w[j] * log(w[j]);
    return sum;
}

/* The largest weight among those not yet taken, k times. */
static void row_top(const ref_problem *p, const row *r, const double *w, int64_t k, int64_t *index, double *weight)
{
    int all = row_is_uniform(p, r);
    for (int64_t t = 0; t < k; t++) {
        index[t] = -1;
        weight[t] = 0;
        for (int64_t j = 0; j < p->Skv; j++) {
            int taken = 0;
            for (int64_t u = 0; u < t; u++) taken |= index[u] == j;
            if (taken || (!all && !ref_visible(p, r->b, r->h, r->i, j))) continue;
            if (index[t] >= 0 && w[j] <= weight[t]) continue;
            index[t] = j;
            weight[t] = w[j];
        }
    }
}

void ref_outputs_of(const ref_problem *p, const double *S, const double *P, const ref_outputs *out)
{
    int64_t heads = out->share > 0 ? p->Hq / out->share : 0; /* column sums of each batch entry */
    for (int64_t c = 0; c < p->B * heads * p->Skv; c++) out->column_sum[c] = 0;

    for (int64_t b = 0; b < p->B; b++)
        for (int64_t h = 0; h < p->Hq; h++)
            for (int64_t i = 0; i < p->Sq; i++) {
                row r = row_at(p, b, h, i);
                const double *s = S + r.index * p->Skv, *w = P + r.index * p->Skv;
                int sees = row_sees_any(p, &r);
                row_undropped(p, &r, out->raw + r.index * p->Skv, out->capped + r.index * p->Skv);

                double most = -INFINITY;
                for (int64_t j = 0; j < p->Skv; j++)
                    if (s[j] > most) most = s[j];
                out->row_max[r.index] = most;
                out->entropy[r.index] = entropy_of(w, p->Skv);
                out->effective_keys[r.index] = sees || row_is_uniform(p, &r) ? exp(out->entropy[r.index]) : 0;
                row_top(p, &r, w, out->k, out->topk_index + r.index * out->k, out->topk_weight + r.index * out->k);

                int64_t len_q = p->len_q ? p->len_q[b] : p->Sq;
                if (heads == 0 || i >= len_q || (out->last > 0 && i < len_q - out->last)) continue;
                double *sums = out->column_sum + (b * heads + h / out->share) * p->Skv;
                for (int64_t j = 0; j < p->Skv; j++) sums[j] += w[j];
            }
}
