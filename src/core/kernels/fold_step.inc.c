/* SPDX-License-Identifier: MIT
 *
 * fold_step.inc.c - the online softmax: a block of scores is absorbed into m and l.  Included by forward.inc.c.
 */
#ifdef VF_LANES

/* A lane keeps its old maximum while l and Ot grow by at most this factor, e^5.5 < 2^8. */
static const real grow_limit = (real)5.5;

static void step_start(int width, int64_t dim_v, double sink, void *m, void *l, void *Ot)
{
    const int joins = sink > -(double)INFINITY || sink != sink;
    for (int v = 0; v < width; v++) {
        vf_store((real *)m + v * VF_LANES, vf_set(joins ? (real)sink : REAL_LOWEST));
        vf_store((real *)l + v * VF_LANES, vf_set(joins ? 1 : 0));
        for (int64_t c = 0; c < dim_v; c++) vf_store((real *)Ot + c * TILE + v * VF_LANES, vf_zero());
    }
}

/* S = exp(S - at) over n keys; sum[v] is the sum of each lane, keys ascending from 0. */
VF_INLINE void weights_block(const int width, int64_t n, real *S, const vf *at, vf *sum)
{
    VF_UNROLL
    for (int v = 0; v < width; v++) sum[v] = vf_zero();
    VF_ROLLED
    for (int64_t j = 0; j < n; j++, S += TILE) {
        VF_UNROLL
        for (int v = 0; v < width; v++) {
            vf p = vf_exp(vf_sub(vf_load(S + v * VF_LANES), at[v]));
            vf_store(S + v * VF_LANES, p);
            sum[v] = vf_add(sum[v], p);
        }
    }
}

/* m and l absorb the block, S becomes its weights; Ot must be scaled by factor, which is exactly 1 in lanes whose maximum stays. */
VF_INLINE void absorb_block(const int width, int64_t n, real *S, const real *block_max, real *m, real *l, vf *factor)
{
    vf at[VF_VECTORS], sum[VF_VECTORS];
    int rescale = 0;
    VF_UNROLL
    for (int v = 0; v < width; v++) {
        vf old = vf_load(m + v * VF_LANES), most = vf_load(block_max + v * VF_LANES);
        vm grown = vf_gt(most, vf_add(old, vf_set(grow_limit)));
        at[v] = vf_select(grown, most, old);
        rescale |= vm_any(grown);
    }
    VF_UNROLL
    for (int v = 0; v < width; v++) factor[v] = vf_set(1);
    if (rescale) VF_UNROLL
    for (int v = 0; v < width; v++) {
        factor[v] = vf_exp(vf_sub(vf_load(m + v * VF_LANES), at[v]));
        vf_store(m + v * VF_LANES, at[v]);
    }
    weights_block(width, n, S, at, sum);
    VF_UNROLL
    for (int v = 0; v < width; v++) vf_store(l + v * VF_LANES, vf_fma(vf_load(l + v * VF_LANES), factor[v], sum[v]));
}

static void step_exponentiate_block(int width, int64_t n, void *S, const void *block_max, const attn_drop *drop, void *m, void *l,
                                    void *factor)
{
    VF_EACH_WIDTH(absorb_block, width, n, S, block_max, m, l, factor);
    if (drop) step_drop(width, n, S, drop);
}

static void step_merge(int width, int64_t dim_v, const void *m_other, const void *l_other, const void *Ot_other, void *m, void *l,
                       void *Ot)
{
    for (int v = 0; v < width; v++) {
        int64_t lane = v * VF_LANES;
        vf a = vf_load((const real *)m + lane), b = vf_load((const real *)m_other + lane), most = vf_max(a, b);
        vf keep = vf_exp(vf_sub(a, most)), take = vf_exp(vf_sub(b, most));
        vf sum = vf_mul(take, vf_load((const real *)l_other + lane));
        vf_store((real *)m + lane, most);
        vf_store((real *)l + lane, vf_fma(keep, vf_load((const real *)l + lane), sum));
        for (int64_t c = 0; c < dim_v; c++) {
            vf other = vf_mul(take, vf_load((const real *)Ot_other + c * TILE + lane));
            vf_store((real *)Ot + c * TILE + lane, vf_fma(keep, vf_load((const real *)Ot + c * TILE + lane), other));
        }
    }
}

static int step_not_finite(int width, int64_t rows, int64_t dim_v, const void *Ot)
{
    real lanes[TILE];
    for (int v = 0; v < width; v++) {
        vf sum = vf_zero(); /* 0 times a finite number is 0, else NaN */
        for (int64_t c = 0; c < dim_v; c++) sum = vf_fma(vf_load((const real *)Ot + c * TILE + v * VF_LANES), vf_zero(), sum);
        vf_store(lanes + v * VF_LANES, sum);
    }
    for (int64_t i = 0; i < rows; i++)
        if (lanes[i] != 0) return 1;
    return 0;
}

#endif
