/* SPDX-License-Identifier: MIT
 *
 * option_step.inc.c - what else may happen to scores: softcap, ALiBi, rows that see no key.  Included by forward.inc.c.
 */
#ifdef VF_LANES

/* x * y, and 0 where x is 0 whatever stands in y. */
VF_INLINE vf times_if_any(vf x, vf y) { return vf_select(vf_eq(x, vf_zero()), vf_zero(), vf_mul(x, y)); }

/*
 * tanh(x), with a small relative error everywhere:  tanh|x| = -e / (2 + e)  with  e = exp(-2|x|) - 1,  and e = 2^n r q(r) + (2^n -
 * 1) with the polynomial p(r) = 1 + r q(r) of exp_step.inc.c, so that nothing cancels near 0.  NaN stays NaN.
 */
VF_INLINE vf vf_tanh(vf x)
{
    vf size = vf_max(x, vf_sub(vf_zero(), x)), power, r, q;
    exp_parts(vf_mul(vf_set(-2), size), &power, &r, &q);
    vf e = vf_fma(power, vf_mul(r, q), vf_sub(power, vf_set(1)));
    vf t = vf_div(vf_sub(vf_zero(), e), vf_add(vf_set(2), e));
    return vf_select(vf_gt(vf_zero(), x), vf_sub(vf_zero(), t), t);
}

static void step_softcap(int width, int64_t n, void *S, double cap, void *slope, void *bend)
{
    const vf most = vf_set((real)cap), inverse = vf_set((real)(1 / cap)), twice = vf_set((real)(-2 / cap));
    for (int64_t j = 0; j < n; j++)
        for (int v = 0; v < width; v++) {
            int64_t at = j * TILE + v * VF_LANES;
            vf t = vf_tanh(vf_mul(vf_load((real *)S + at), inverse));
            vf_store((real *)S + at, vf_mul(most, t));
            vf first = vf_fma(vf_sub(vf_zero(), t), t, vf_set(1));
            if (slope) vf_store((real *)slope + at, first);
            if (bend) vf_store((real *)bend + at, vf_mul(twice, vf_mul(t, first)));
        }
}

/* Lane indices, the last real one repeated. */
VF_INLINE vf lane_index(int v, int64_t rows)
{
    int32_t index[VF_LANES];
    for (int i = 0; i < VF_LANES; i++) index[i] = (int32_t)least(v * VF_LANES + i, rows - 1);
    return vf_of_i32(index);
}

static void step_add_alibi(int width, int64_t rows, int64_t n, void *S, double slope, double first)
{
    const vf down = vf_set((real)-slope);
    for (int v = 0; v < width; v++) {
        vf position = vf_add(vf_set((real)first), lane_index(v, rows));
        for (int64_t j = 0; j < n; j++) {
            real *s = (real *)S + j * TILE + v * VF_LANES;
            vf d = vf_sub(position, vf_set((real)j));
            vf_store(s, vf_fma(down, vf_max(d, vf_sub(vf_zero(), d)), vf_load(s)));
        }
    }
}

static int step_find_empty(int width, int64_t rows, const void *l, int32_t *empty)
{
    int any = 0;
    for (int64_t i = 0; i < (int64_t)width * VF_LANES; i++) {
        empty[i] = ((const real *)l)[least(i, rows - 1)] == 0;
        any |= empty[i];
    }
    return any;
}

static void step_revive(int width, int64_t n, void *S, const int32_t *empty)
{
    for (int v = 0; v < width; v++) {
        vm dead = vf_gt(vf_of_i32(empty + v * VF_LANES), vf_zero());
        for (int64_t j = 0; j < n; j++) {
            real *s = (real *)S + j * TILE + v * VF_LANES;
            vf_store(s, vf_select(dead, vf_zero(), vf_load(s)));
        }
    }
}

#endif
