/* SPDX-License-Identifier: MIT
 *
 * fold_step.inc.c - the online softmax: a block of scores and values is absorbed into m, l and Ot.  Included by forward.inc.c.
 */
#ifdef VF_LANES

/* A lane keeps its old maximum while that costs at most this factor, e^5.5 < 2^8, in l and Ot. */
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

/* m and l absorb the block, S becomes its weights; Ot is to be scaled by factor, which is exactly 1 in the lanes whose maximum
 * stays. */
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

static void absorb_scores(int width, int64_t n, real *S, const real *block_max, real *m, real *l, vf *factor)
{
    VF_EACH_WIDTH(absorb_block, width, n, S, block_max, m, l, factor);
}

static void fold_keys(int width, int64_t n, int64_t dim_v, real *S, const real *block_max, const attn_drop *drop, const real *V,
                      int64_t ldv, real *m, real *l, real *Ot, const stair *stairs, int count, ahead *next)
{
    vf factor[VF_VECTORS];
    absorb_scores(width, n, S, block_max, m, l, factor);
    if (drop) step_drop(width, n, S, drop);
    absorb_values(width, n, dim_v, S, V, ldv, Ot, factor, stairs, count, next);
}

static void step_fold(int width, int64_t n, int64_t dim_v, void *S, const void *block_max, const attn_drop *drop, const void *V,
                      int64_t ldv, void *m, void *l, void *Ot, const void *next, int64_t next_ld)
{
    ahead coming = ahead_of(next, next_ld, dim_v);
    fold_keys(width, n, dim_v, S, block_max, drop, V, ldv, m, l, Ot, NULL, 0, &coming);
}

static void step_fold_seen(int width, int64_t n, int64_t dim_v, void *S, const void *block_max, const attn_drop *drop,
                           const void *V, int64_t ldv, void *m, void *l, void *Ot, const int32_t *low, const int32_t *high,
                           const void *next, int64_t next_ld)
{
    ahead coming = ahead_of(next, next_ld, dim_v);
    stair stairs[MOST_STAIRS];
    int count = stairs_of(width, n, low, high, stairs);
#ifdef VF_ASM_PRODUCT /* begins chains and does not go on with them */
    count = level_stairs(width, count, stairs);
#endif
    fold_keys(width, n, dim_v, S, block_max, drop, V, ldv, m, l, Ot, stairs, count, &coming);
}

/* For careful folds: scores as they were tell which keys are dropped, when S has become weights. */
static void keep_scores(int width, int64_t n, const void *S, real *scores)
{
    for (int64_t j = 0; j < n; j++)
        for (int v = 0; v < width; v++)
            vf_store(scores + j * TILE + v * VF_LANES, vf_load((const real *)S + j * TILE + v * VF_LANES));
}

/* Ot becomes Ot (times factor, where there is one) + sum_j S[j] V[j], in which keys that are dropped are not read. */
static void add_kept_values(int width, int64_t n, int64_t dim_v, const void *S, const real *scores, const attn_drop *drop,
                            const void *V, int64_t ldv, const vf *factor, void *Ot)
{
    const vf dropped = vf_set(-(real)INFINITY);
    for (int64_t c = 0; c < dim_v; c++)
        for (int v = 0; v < width; v++) {
            real *o = (real *)Ot + c * TILE + v * VF_LANES;
            vf acc = vf_zero();
            for (int64_t j = 0; j < n; j++) {
                int64_t at = j * TILE + v * VF_LANES;
                vf p = vf_load((const real *)S + at), with = vf_fma(vf_set(((const real *)V)[j * ldv + c]), p, acc);
                vm skip = vf_eq(vf_load(scores + at), dropped);
                if (drop) skip = vm_or(skip, vf_eq(p, vf_zero()));
                acc = vf_select(skip, acc, with);
            }
            vf_store(o, factor ? vf_fma(vf_load(o), factor[v], acc) : vf_add(vf_load(o), acc));
        }
}

static void step_fold_careful(int width, int64_t n, int64_t dim_v, void *S, const void *block_max, const attn_drop *drop,
                              const void *V, int64_t ldv, void *m, void *l, void *Ot, void *scratch)
{
    vf factor[VF_VECTORS];
    keep_scores(width, n, S, scratch);
    absorb_scores(width, n, S, block_max, m, l, factor);
    if (drop) step_drop(width, n, S, drop);
    add_kept_values(width, n, dim_v, S, scratch, drop, V, ldv, factor, Ot);
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
        vf sum = vf_zero(); /* 0 times anything finite is 0, else NaN */
        for (int64_t c = 0; c < dim_v; c++) sum = vf_fma(vf_load((const real *)Ot + c * TILE + v * VF_LANES), vf_zero(), sum);
        vf_store(lanes + v * VF_LANES, sum);
    }
    for (int64_t i = 0; i < rows; i++)
        if (lanes[i] != 0) return 1;
    return 0;
}

#endif
