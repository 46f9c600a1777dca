/* SPDX-License-Identifier: MIT
 *
 * jvp.c - forward mode, by definition.  Primes mark tangents:
 *
 *      x' = scale (Q'K^T + Q K'^T)      S' = f'(x) x' + bias'      lse'_i = sum_j P_ij S'_ij
 *      O'_i = sum_j Z_ij P_ij ((S'_ij - lse'_i) v_j + v'_j)
 */
#include "row.h"

#include <stdlib.h>

static double tangent_of_score(const ref_problem *p, const ref_tangents *t, const row *r, int64_t j)
{
    const double *k = r->K + j * p->D;
    double xd = 0;
    if (t->Qd) xd += dot(t->Qd + r->index * p->D, k, p->D);
    if (t->Kd) xd += dot(r->q, t->Kd + ((r->b * p->Hkv + r->g) * p->Skv + j) * p->D, p->D);
    return row_slope(p, r, j) * r->scale * xd + (t->biasd ? t->biasd[r->index * p->Skv + j] : 0);
}

static double row_jvp(const ref_problem *p, const ref_tangents *t, const row *r, double *s, double *w)
{
    double mu = 0, *od = t->Od + r->index * p->Dv;
    int all = row_is_uniform(p, r);
    row_weights(p, r, s, w);
    for (int64_t j = 0; j < p->Skv; j++)
        if (ref_visible(p, r->b, r->h, r->i, j)) mu += w[j] * tangent_of_score(p, t, r, j);

    for (int64_t c = 0; c < p->Dv; c++) od[c] = 0;
    for (int64_t j = 0; j < p->Skv; j++) {
        int seen = ref_visible(p, r->b, r->h, r->i, j);
        double z = p->Z ? p->Z[r->index * p->Skv + j] : 1;
        if ((!seen && !all) || z == 0) continue;
        double sd = seen ? tangent_of_score(p, t, r, j) - mu : 0;
        const double *vd = t->Vd ? t->Vd + ((r->b * p->Hkv + r->g) * p->Skv + j) * p->Dv : 0;
        for (int64_t c = 0; c < p->Dv; c++) od[c] += z * w[j] * (sd * r->V[j * p->Dv + c] + (vd ? vd[c] : 0));
    }
    return mu;
}

int ref_jvp(const ref_problem *p, const ref_tangents *t)
{
    double *s = malloc((size_t)(2 * p->Skv + 1) * sizeof *s); /* scores and weights of one query */
    if (!s) return 0;
    for (int64_t b = 0; b < p->B; b++)
        for (int64_t h = 0; h < p->Hq; h++)
            for (int64_t i = 0; i < p->Sq; i++) {
                row r = row_at(p, b, h, i);
                t->lsed[r.index] = row_jvp(p, t, &r, s, s + p->Skv);
            }
    free(s);
    return 1;
}
