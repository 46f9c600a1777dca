/* SPDX-License-Identifier: MIT
 *
 * normalise_step.inc.c - elementwise weights in place of the softmax: the sigmoid, and ReLU divided by the number of keys that the
 * query sees.  l counts these, m is 0.  Included by forward.inc.c.
 */
#ifdef VF_LANES

/* The weight before the division, and its derivative; both are 0 for a dropped key, and NaN stays NaN. */
VF_INLINE void elementwise_weight(const attn_normaliser kind, vf s, vf shift, vf *weight, vf *slope)
{
    if (kind == ATTN_NORMALISER_RELU) {
        *weight = vf_select(vf_gt(vf_zero(), s), vf_zero(), s);
        *slope = vf_select(vf_gt(s, vf_zero()), vf_set(1), vf_zero());
        return;
    }
    /* Below `least` the weight is less than the smallest normal number, and vf_exp(-x) soon leaves its range. */
    const vf least = vf_set(REAL_BITS == 32 ? (real)-87.33 : (real)-708.39), x = vf_add(s, shift);
    const vm none = vf_gt(least, x);
    vf e = vf_exp(vf_sub(vf_zero(), x)), w = vf_div(vf_set(1), vf_add(vf_set(1), e));
    *weight = vf_select(none, vf_zero(), w);
    *slope = vf_select(none, vf_zero(), vf_mul(vf_mul(e, w), w));
}

VF_INLINE void elementwise_weights_block(const attn_normaliser kind, int width, int64_t n, vf shift, real *S, real *l)
{
    const vf dropped = vf_set(-(real)INFINITY);
    for (int v = 0; v < width; v++) {
        vf count = vf_load(l + v * VF_LANES), slope;
        for (int64_t j = 0; j < n; j++) {
            real *at = S + j * TILE + v * VF_LANES;
            vf s = vf_load(at), w;
            count = vf_add(count, vf_select(vf_eq(s, dropped), vf_zero(), vf_set(1)));
            elementwise_weight(kind, s, shift, &w, &slope);
            vf_store(at, w);
        }
        vf_store(l + v * VF_LANES, count);
    }
}

/* S becomes weights before the division, l counts keys. */
static void elementwise_weights(attn_normaliser kind, double shift, int width, int64_t n, real *S, real *l)
{
    if (kind == ATTN_NORMALISER_RELU) elementwise_weights_block(ATTN_NORMALISER_RELU, width, n, vf_zero(), S, l);
    else elementwise_weights_block(ATTN_NORMALISER_SIGMOID, width, n, vf_set((real)shift), S, l);
}

static void step_elementwise_weights(attn_normaliser kind, double shift, int width, int64_t n, void *S, const attn_drop *drop,
                                     void *l)
{
    elementwise_weights(kind, shift, width, n, S, l);
    if (drop) step_drop(width, n, S, drop);
}

static void step_clamp_denominator(int width, void *l)
{
    for (int v = 0; v < width; v++) {
        real *at = (real *)l + v * VF_LANES;
        vf_store(at, vf_select(vf_gt(vf_load(at), vf_zero()), vf_set(1), vf_zero()));
    }
}

static void step_elementwise_weights_over(attn_normaliser kind, double shift, int width, int64_t n, void *S, const void *l)
{
    real ignored[TILE] = {0};
    elementwise_weights(kind, shift, width, n, S, ignored);
    for (int v = 0; v < width; v++) {
        vf sum = vf_load((const real *)l + v * VF_LANES), inverse = vf_div(vf_set(1), sum);
        vm empty = vf_eq(sum, vf_zero());
        for (int64_t j = 0; j < n; j++) {
            real *at = (real *)S + j * TILE + v * VF_LANES;
            vf_store(at, vf_select(empty, vf_zero(), vf_mul(vf_load(at), inverse)));
        }
    }
}

VF_INLINE void elementwise_gradient_block(const attn_normaliser kind, vf shift, int width, int64_t n, real *S, real *dP,
                                          const real *lse, const attn_drop *drop, double keep, real *after)
{
    const vf kept = vf_set((real)keep);
    for (int v = 0; v < width; v++) { /* after: 1 where the weight is kept */
        for (int64_t j = 0; drop && j < n; j++) vf_store(after + j * TILE + v * VF_LANES, vf_set(1));
    }
    if (drop) step_drop(width, n, after, drop);
    for (int v = 0; v < width; v++) {
        vf part = vf_exp(vf_sub(vf_zero(), vf_load(lse + v * VF_LANES))); /* 0 where the query sees no key */
        for (int64_t j = 0; j < n; j++) {
            const int64_t at = j * TILE + v * VF_LANES;
            vf weight, slope, factor = drop ? vf_mul(kept, vf_load(after + at)) : vf_set(1);
            elementwise_weight(kind, vf_load(S + at), shift, &weight, &slope);
            slope = vf_mul(factor, vf_mul(part, slope));
            vf_store(S + at, vf_mul(factor, vf_mul(part, weight)));
            vf_store(dP + at, vf_select(vf_eq(slope, vf_zero()), vf_zero(), vf_mul(slope, vf_load(dP + at))));
        }
    }
}

static void step_elementwise_gradient(attn_normaliser kind, double shift, int width, int64_t n, void *S, void *dP, const void *lse,
                                      const attn_drop *drop, double keep, void *scratch)
{
    if (kind == ATTN_NORMALISER_RELU)
        elementwise_gradient_block(ATTN_NORMALISER_RELU, vf_zero(), width, n, S, dP, lse, drop, keep, scratch);
    else elementwise_gradient_block(ATTN_NORMALISER_SIGMOID, vf_set((real)shift), width, n, S, dP, lse, drop, keep, scratch);
}

#endif
