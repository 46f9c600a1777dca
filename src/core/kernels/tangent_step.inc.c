/* SPDX-License-Identifier: MIT
 *
 * tangent_step.inc.c - the steps of forward mode that are not products: weights, and the tangents of scores times them. Included by
 * jvp.inc.c.
 */
#ifdef VF_LANES

static void step_add_tangents(int width, int64_t n, void *Sd, const void *other)
{
    if (!other) return;
    for (int64_t j = 0; j < n; j++)
        for (int v = 0; v < width; v++) {
            int64_t k = j * TILE + v * VF_LANES;
            vf_store((real *)Sd + k, vf_add(vf_load((const real *)Sd + k), vf_load((const real *)other + k)));
        }
}

static void step_tangent(int width, int64_t n, void *S, void *Sd, const void *lse, const attn_drop *drop, double keep, void *mu)
{
    for (int v = 0; v < width; v++) {
        vf at = vf_load((const real *)lse + v * VF_LANES), sum = vf_zero();
        for (int64_t j = 0; j < n; j++) {
            int64_t k = j * TILE + v * VF_LANES;
            vf p = weight_from_lse(vf_load((const real *)S + k), at);
            sum = vf_add(sum, times_if_any(p, vf_load((const real *)Sd + k)));
            vf_store((real *)S + k, drop ? vf_mul(vf_set((real)keep), p) : p);
        }
        vf_store((real *)mu + v * VF_LANES, vf_add(vf_load((const real *)mu + v * VF_LANES), sum));
    }
    if (drop) step_drop(width, n, S, drop);
    for (int64_t j = 0; j < n; j++)
        for (int v = 0; v < width; v++) {
            int64_t k = j * TILE + v * VF_LANES;
            vf_store((real *)Sd + k, times_if_any(vf_load((const real *)S + k), vf_load((const real *)Sd + k)));
        }
}

static void step_center(int width, int64_t dim_v, const void *mu, const void *Ot, void *At)
{
    for (int v = 0; v < width; v++) {
        vf mean = vf_load((const real *)mu + v * VF_LANES);
        for (int64_t c = 0; c < dim_v; c++) {
            int64_t k = c * TILE + v * VF_LANES;
            vf_store((real *)At + k, vf_sub(vf_load((const real *)At + k), times_if_any(mean, vf_load((const real *)Ot + k))));
        }
    }
}

#endif
