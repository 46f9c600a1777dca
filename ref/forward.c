/* SPDX-License-Identifier: MIT
 * forward.c - softmax attention, forward, by definition. */
#include "row.h"

void ref_forward(const ref_problem *p, double *O, double *lse, double *S, double *P)
{
    for (int64_t b = 0; b < p->B; b++)
        for (int64_t h = 0; h < p->Hq; h++)
            for (int64_t i = 0; i < p->Sq; i++) {
                row r = row_at(p, b, h, i);
                double *w = P + r.index * p->Skv, *o = O + r.index * p->Dv;
                lse[r.index] = row_weights(p, &r, S + r.index * p->Skv, w);

                /* The output is the weighted mean of the values.  A masked or dropped value is never read. */
                for (int64_t c = 0; c < p->Dv; c++) o[c] = 0;
                int all = row_is_uniform(p, &r);
                for (int64_t j = 0; j < p->Skv; j++) {
                    if (!all && !ref_visible(p, b, h, i, j)) continue;
                    double z = p->Z ? p->Z[r.index * p->Skv + j] : 1;
                    if (p->Z && z == 0) continue;
                    for (int64_t c = 0; c < p->Dv; c++) o[c] += z * w[j] * row_value(p, &r, j, c);
                }
            }
}
