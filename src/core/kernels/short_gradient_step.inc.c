/* SPDX-License-Identifier: MIT
 *
 * short_gradient_step.inc.c - the steps of backward for short heads, on top of short_step.inc.c.  Included by backward.inc.c.
 */
#ifdef VF_LANES

static void step_short_delta(int64_t rows, int64_t dim_v, const void *dO, int64_t lddo, const void *O, int64_t ldo, const void *lse,
                             int64_t lse_stride, const void *grad_lse, int64_t grad_lse_stride, void *delta, void *lse_rows)
{
    for (int64_t first = 0; first < rows; first += VF_LANES) {
        const int64_t count = least(rows - first, VF_LANES);
        vf sum[VF_LANES];
        for (int i = 0; i < VF_LANES; i++) sum[i] = vf_zero();
        for (int i = 0; i < count; i++) {
            const real *o = (const real *)O + (first + i) * ldo, *d = (const real *)dO + (first + i) * lddo;
            for (int64_t c = 0; c < dim_v; c += VF_LANES) {
                vf x = vf_load(o + c), more = vf_fma(vf_load(d + c), x, sum[i]);
                sum[i] = vf_select(vf_eq(x, vf_zero()), sum[i], more); /* ignores the gradient of a fully masked row, NaN too */
            }
        }
        vf_store((real *)delta + first, vf_sums(sum));
    }
    for (int64_t i = 0; i < rows; i++) {
        const real at = ((const real *)lse)[i * lse_stride];
        ((real *)lse_rows)[i] = at == -(real)INFINITY ? -REAL_LOWEST : at;
        if (grad_lse) ((real *)delta)[i] -= ((const real *)grad_lse)[i * grad_lse_stride];
    }
}

VF_INLINE void short_gradient_rows(const int width, int64_t rows, int64_t sees, real *S, int64_t ld, real *dS, int64_t ldd,
                                   const real *lse, const real *delta)
{
    const vf lane = lane_index(0, VF_LANES);
    for (int64_t i = clamped(1 - sees - VF_MAX_ROWS, rows); i < rows; i++) {
        const int64_t n = clamped(sees + i, width * VF_LANES), end = clamped(sees + i + VF_MAX_ROWS, width * VF_LANES);
        const vf at = vf_set(lse[i]), less = vf_set(delta[i]);
        real *s = S + i * ld, *d = dS + i * ldd;
        VF_UNROLL
        for (int v = 0; v < width; v++) {
            const int64_t j = v * VF_LANES;
            if (j + VF_LANES <= n) {
                vf p = weight_from_lse(vf_load(s + j), at);
                vf_store(s + j, p);
                vf_store(d + j, gradient_of_score(p, p, vf_load(d + j), less));
            } else if (j < n) {
                vf p = weight_from_lse(vf_load(s + j), at);
                p = vf_select(vf_gt(vf_set((real)(n - j)), lane), p, vf_zero());
                vf_store(s + j, p);
                vf_store(d + j, gradient_of_score(p, p, vf_load(d + j), less));
            } else if (j < end) {
                vf_store(s + j, vf_zero());
                vf_store(d + j, vf_zero());
            }
        }
    }
}

static void step_short_gradient(int width, int64_t rows, int64_t sees, void *S, int64_t ld, void *dS, int64_t ldd, const void *lse,
                                const void *delta)
{
    VF_EACH_WIDTH(short_gradient_rows, width, rows, sees, S, ld, dS, ldd, lse, delta);
}

#endif
