/* SPDX-License-Identifier: MIT
 *
 * weight_step.inc.c - recomputes the weights of a block from scores and lse, for backward and double backward.  Included by
 * backward.inc.c and double_backward.inc.c.
 */
#ifdef VF_LANES

/* A row whose lse is NaN has weight NaN for each key that it sees, and 0 for the rest as usual: exp(-infinity - NaN) would be NaN
 * there too, and reach the gradients of keys that no query sees.  So NaN moves from lse to the scores; returns lse with 0 in its
 * place. */
static vf move_nan(int64_t n, real *S, vf lse)
{
    const vm is_number = vf_eq(lse, lse);
    for (int64_t j = 0; j < n; j++) {
        const vf s = vf_load(S + j * TILE);
        const vm stays = vm_or(is_number, vf_eq(s, vf_set(-(real)INFINITY)));
        vf_store(S + j * TILE, vf_select(stays, s, lse));
    }
    return vf_select(is_number, lse, vf_zero());
}

/* S = P = exp(min(S - lse, 0)) and, with drop, after = keep * P or 0; without dropout both are the same. */
VF_INLINE void weights_before_and_after(int width, int64_t n, real *S, const real *lse, const attn_drop *drop, double keep,
                                        real *after)
{
    for (int v = 0; v < width; v++) {
        vf at = vf_load(lse + v * VF_LANES);
        if (!vm_all(vf_eq(at, at))) at = move_nan(n, S + v * VF_LANES, at);
        for (int64_t j = 0; j < n; j++) {
            int64_t k = j * TILE + v * VF_LANES;
            vf p = weight_from_lse(vf_load(S + k), at);
            vf_store(S + k, p);
            if (drop) vf_store(after + k, vf_mul(vf_set((real)keep), p));
        }
    }
    if (drop) step_drop(width, n, after, drop);
}

#endif
