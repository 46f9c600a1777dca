/* SPDX-License-Identifier: MIT
 *
 * double_backward_step.inc.c - the steps of double backward that are not products: the gradient of the gradient for a block of
 * weights.  Included by double_backward.inc.c.
 */
#ifdef VF_LANES

static void step_dot(int width, int64_t dim, const void *Xt, const void *Yt, void *sums)
{
    for (int v = 0; v < width; v++) {
        vf sum = vf_zero();
        for (int64_t c = 0; c < dim; c++) {
            int64_t k = c * TILE + v * VF_LANES;
            sum = vf_fma(vf_load((const real *)Xt + k), vf_load((const real *)Yt + k), sum);
        }
        vf_store((real *)sums + v * VF_LANES, sum);
    }
}

static void step_score_gradients(int width, int64_t n, void *S, void *dP, void *Sd, const void *h, const void *lse,
                                 const void *delta, const void *mu, const void *kappa, const attn_drop *drop, double keep,
                                 void *scratch)
{
    const real *after = drop ? scratch : S;
    weights_before_and_after(width, n, S, lse, drop, keep, scratch);
    for (int v = 0; v < width; v++) {
        vf less = vf_load((const real *)delta + v * VF_LANES), mean = vf_load((const real *)mu + v * VF_LANES);
        vf most = vf_load((const real *)kappa + v * VF_LANES);
        for (int64_t j = 0; j < n; j++) {
            int64_t k = j * TILE + v * VF_LANES;
            vf p = vf_load((const real *)S + k), a = vf_load(after + k);
            vm none = vf_eq(p, vf_zero());
            vf sd = vf_sub(vf_load((const real *)Sd + k), mean);
            vf dS = vf_sub(times_if_any(a, vf_load((const real *)dP + k)), times_if_any(p, less));
            vf r = vf_sub(vf_mul(sd, dS), times_if_any(p, most));
            if (h) r = vf_add(r, times_if_any(a, vf_load((const real *)h + k)));
            vf_store((real *)dP + k, vf_select(none, vf_zero(), dS));
            vf_store((real *)Sd + k, vf_select(none, vf_zero(), r));
            vf_store((real *)S + k, times_if_any(a, sd));
        }
    }
}

static void step_through_softcap(int width, int64_t n, void *R, void *dS, const void *slope, const void *curvature,
                                 const void *before)
{
    for (int64_t j = 0; j < n; j++)
        for (int v = 0; v < width; v++) {
            int64_t k = j * TILE + v * VF_LANES;
            vf d = vf_load((const real *)dS + k), f = vf_load((const real *)slope + k);
            vf curved = vf_mul(vf_load((const real *)curvature + k), vf_load((const real *)before + k));
            vf_store((real *)R + k, vf_add(times_if_any(vf_load((const real *)R + k), f), times_if_any(d, curved)));
            vf_store((real *)dS + k, times_if_any(d, f));
        }
}

#endif
