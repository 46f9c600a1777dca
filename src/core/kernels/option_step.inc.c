/* SPDX-License-Identifier: MIT
 *
 * option_step.inc.c - further modifiers of scores: softcap, ALiBi, fully masked rows.  Included by forward.inc.c.
 */
#ifdef VF_LANES

/* x * y, and 0 where x is 0, whatever y is. */
VF_INLINE vf times_if_any(vf x, vf y) { return vf_select(vf_eq(x, vf_zero()), vf_zero(), vf_mul(x, y)); }

/* tanh(x), with a small relative error everywhere.  NaN stays NaN. */
#if REAL_BITS == 32

/*
 * x P(z) / Q(z) with z = x^2: minimax in the relative error for |x| <= 8.2 (0.7 units of 2^-24; 5.0 as evaluated), constant once it
 * reaches 1.  A branch for scores far below the cap would save a third of the time, but cost as much if a few are not.
 */
VF_INLINE vf vf_tanh(vf x)
{
    const vf most = vf_set(8.02071667f);
    x = vf_min(most, vf_max(vf_sub(vf_zero(), most), x));
    vf z = vf_mul(x, x), p = vf_fma(z, vf_set(1.29884477e-08f), vf_set(2.04452517e-05f));
    vf q = vf_fma(z, vf_set(7.65751793e-07f), vf_set(0.000327296439f));
    p = vf_fma(p, z, vf_set(0.00348940119f)), q = vf_fma(q, z, vf_set(0.0258569717f));
    p = vf_fma(p, z, vf_set(0.133769289f)), q = vf_fma(q, z, vf_set(0.467102617f));
    p = vf_fma(p, z, vf_set(0.99999994f)), q = vf_fma(q, z, vf_set(1));
    return vf_div(vf_mul(p, x), q);
}

#else

/* tanh|x| = -e / (2 + e)  with  e = exp(-2|x|) - 1,  and e = 2^n r q(r) + (2^n - 1) with the polynomial p(r) = 1 + r q(r) of
 * exp_step.inc.c, so that nothing cancels near 0. */
VF_INLINE vf vf_tanh(vf x)
{
    vf size = vf_max(x, vf_sub(vf_zero(), x)), power, r, q;
    exp_parts(vf_mul(vf_set(-2), size), &power, &r, &q);
    vf e = vf_fma(power, vf_mul(r, q), vf_sub(power, vf_set(1)));
    vf t = vf_div(vf_sub(vf_zero(), e), vf_add(vf_set(2), e));
    return vf_select(vf_gt(vf_zero(), x), vf_sub(vf_zero(), t), t);
}

#endif

VF_INLINE void softcap_rows(const int width, int64_t n, real *S, real *block_max, double cap, real *slope, real *curvature)
{
    const vf cap_v = vf_set((real)cap), inverse = vf_set((real)(1 / cap)), twice = vf_set((real)(-2 / cap));
    vf most[VF_VECTORS];
    VF_UNROLL
    for (int v = 0; v < width; v++) most[v] = vf_set(-(real)INFINITY);
    for (int64_t j = 0; j < n; j++) {
        vf t[VF_VECTORS];
        VF_UNROLL
        for (int v = 0; v < width; v++) t[v] = vf_tanh(vf_mul(vf_load(S + j * TILE + v * VF_LANES), inverse));
        VF_UNROLL
        for (int v = 0; v < width; v++) {
            int64_t at = j * TILE + v * VF_LANES;
            vf s = vf_mul(cap_v, t[v]), first = vf_fma(vf_sub(vf_zero(), t[v]), t[v], vf_set(1));
            vf_store(S + at, s);
            most[v] = vf_max(s, most[v]);
            if (slope) vf_store(slope + at, first);
            if (curvature) vf_store(curvature + at, vf_mul(twice, vf_mul(t[v], first)));
        }
    }
    VF_UNROLL
    for (int v = 0; v < width; v++) vf_store(block_max + v * VF_LANES, most[v]);
}

static void step_softcap(int width, int64_t n, void *S, void *block_max, double cap, void *slope, void *curvature)
{
    if (slope) VF_EACH_WIDTH(softcap_rows, width, n, S, block_max, cap, slope, curvature);
    else VF_EACH_WIDTH(softcap_rows, width, n, S, block_max, cap, NULL, NULL);
}

/* Lane indices, the last real one repeated. */
VF_INLINE vf lane_index(int v, int64_t rows)
{
    int32_t index[VF_LANES];
    for (int i = 0; i < VF_LANES; i++) index[i] = (int32_t)least(v * VF_LANES + i, rows - 1);
    return vf_of_i32(index);
}

static inline int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }

/* From a block's first key: up to here, all distances within a tile are exact numbers of the type. */
#if REAL_BITS == 64
#define ALIBI_NEAR (INT64_C(1) << 51)
#else
#define ALIBI_NEAR (INT64_C(1) << 22)
#endif

/* Distances that are no exact numbers: each is rounded by itself, so that it does not depend on which queries share the tile. */
static void far_alibi(int width, int64_t rows, int64_t n, void *S, void *block_max, double slope, int64_t first)
{
    const vf down = vf_set((real)-slope);
    for (int v = 0; v < width; v++) {
        vf most = vf_set(-(real)INFINITY);
        for (int64_t j = 0; j < n; j++) {
            real distance[VF_LANES], *s = (real *)S + j * TILE + v * VF_LANES;
            for (int i = 0; i < VF_LANES; i++) distance[i] = (real)magnitude(first + least(v * VF_LANES + i, rows - 1) - j);
            vf x = vf_fma(down, vf_load(distance), vf_load(s));
            vf_store(s, x), most = vf_max(x, most);
        }
        vf_store((real *)block_max + v * VF_LANES, most);
    }
}

static void step_add_alibi(int width, int64_t rows, int64_t n, void *S, void *block_max, double slope, int64_t first)
{
    const vf down = vf_set((real)-slope);
    if (magnitude(first) > ALIBI_NEAR) {
        far_alibi(width, rows, n, S, block_max, slope, first);
        return;
    }
    for (int v = 0; v < width; v++) {
        vf position = vf_add(vf_set((real)first), lane_index(v, rows)), most = vf_set(-(real)INFINITY);
        for (int64_t j = 0; j < n; j++) {
            real *s = (real *)S + j * TILE + v * VF_LANES;
            vf d = vf_sub(position, vf_set((real)j));
            vf x = vf_fma(down, vf_max(d, vf_sub(vf_zero(), d)), vf_load(s));
            vf_store(s, x), most = vf_max(x, most);
        }
        vf_store((real *)block_max + v * VF_LANES, most);
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

static void step_unmask_empty(int width, int64_t n, void *S, const int32_t *empty)
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
