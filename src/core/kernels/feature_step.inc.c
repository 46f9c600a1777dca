/* SPDX-License-Identifier: MIT
 *
 * feature_step.inc.c - the feature maps of linear attention and their gradients, in rows.  Rows are padded to whole vectors (ld a
 * multiple of the lanes); the padding may hold anything.  Included by linear.inc.c.
 */
#ifdef VF_LANES

VF_INLINE real sum_of_lanes(vf x)
{
    real lanes[VF_LANES], sum = 0;
    vf_store(lanes, x);
    for (int i = 0; i < VF_LANES; i++) sum += lanes[i];
    return sum;
}

/* exp, kept finite where it would overflow. */
VF_INLINE vf exp_finite(vf d)
{
    const vf most = vf_set(REAL_BITS == 32 ? (real)-88 : (real)-709);
    return vf_exp(vf_sub(vf_zero(), vf_max(most, vf_sub(vf_zero(), d))));
}

/* max(1 + x, exp(min(x, 0))): since exp(x) >= 1 + x, the larger one is right. */
VF_INLINE vf elu1(vf x)
{
    vf low = vf_sub(vf_zero(), vf_max(vf_zero(), vf_sub(vf_zero(), x)));
    return vf_max(vf_exp(low), vf_add(x, vf_set(1)));
}

VF_INLINE void softmax_row(int64_t dim, real *x)
{
    real most = -(real)INFINITY;
    for (int64_t c = 0; c < dim; c++) most = x[c] > most ? x[c] : most;
    vf sum = vf_zero();
    for (int64_t c = 0; c < dim; c += VF_LANES) {
        vf e = vf_exp(vf_sub(load_some(REAL_DTYPE, x, c, dim - c), vf_set(most)));
        store_some(REAL_DTYPE, x, c, e, dim - c);
        sum = vf_add(sum, load_some(REAL_DTYPE, x, c, dim - c));
    }
    const vf factor = vf_set(1 / sum_of_lanes(sum));
    for (int64_t c = 0; c < dim; c += VF_LANES) vf_store(x + c, vf_mul(vf_load(x + c), factor));
}

static void step_features(int kind, int64_t n, int64_t dim, void *X, int64_t ld)
{
    for (int64_t j = 0; j < n; j++) {
        real *x = (real *)X + j * ld;
        if (kind == ATTN_FEATURES_SOFTMAX) softmax_row(dim, x);
        if (kind == ATTN_FEATURES_RELU)
            for (int64_t c = 0; c < dim; c += VF_LANES) vf_store(x + c, vf_max(vf_zero(), vf_load(x + c)));
        if (kind == ATTN_FEATURES_ELU1)
            for (int64_t c = 0; c < dim; c += VF_LANES) store_some(REAL_DTYPE, x, c, elu1(vf_load(x + c)), dim - c);
    }
}

static void step_lane_features(int kind, int width, int64_t dim, void *Xt)
{
    for (int64_t c = 0; c < dim; c++) {
        real *x = (real *)Xt + c * TILE;
        for (int v = 0; v < width * VF_LANES; v += VF_LANES) {
            if (kind == ATTN_FEATURES_ELU1) vf_store(x + v, elu1(vf_load(x + v)));
            else vf_store(x + v, vf_max(vf_zero(), vf_load(x + v)));
        }
    }
}

/* G, the gradient of features F, becomes the gradient of x. */
static void step_features_backward(int kind, int64_t n, int64_t dim, const void *F, void *G, int64_t ld)
{
    for (int64_t j = 0; j < n; j++) {
        const real *f = (const real *)F + j * ld;
        real *g = (real *)G + j * ld;
        vf inner = vf_zero();
        if (kind == ATTN_FEATURES_SOFTMAX)
            for (int64_t c = 0; c < dim; c += VF_LANES)
                inner = vf_fma(load_some(REAL_DTYPE, f, c, dim - c), load_some(REAL_DTYPE, g, c, dim - c), inner);
        const vf mean = vf_set(kind == ATTN_FEATURES_SOFTMAX ? sum_of_lanes(inner) : 0);
        for (int64_t c = 0; c < dim; c += VF_LANES) {
            vf y = vf_load(f + c), d = load_some(REAL_DTYPE, g, c, dim - c);
            if (kind == ATTN_FEATURES_ELU1) d = vf_mul(d, vf_select(vf_gt(y, vf_set(1)), vf_set(1), y));
            else if (kind == ATTN_FEATURES_RELU) d = vf_select(vf_gt(y, vf_zero()), d, vf_zero());
            else d = vf_mul(y, vf_sub(d, mean));
            vf_store(g + c, d);
        }
    }
}

VF_INLINE real half_square(int64_t dim, const real *x)
{
    vf sum = vf_zero();
    for (int64_t c = 0; c < dim; c += VF_LANES) {
        vf v = load_some(REAL_DTYPE, x, c, dim - c);
        sum = vf_fma(v, v, sum);
    }
    return sum_of_lanes(sum) / 2;
}

static void step_random_features(int kind, int64_t n, int64_t dim, int64_t count, const void *X, int64_t ldx, void *U, int64_t ldu)
{
    const real unit = 1 / (real)sqrt((double)count);
    for (int64_t j = 0; j < n; j++) {
        real *u = (real *)U + j * ldu, square = kind == ATTN_FEATURES_FOURIER ? 0 : half_square(dim, (const real *)X + j * ldx);
        if (kind == ATTN_FEATURES_FAVOR) {
            for (int64_t c = 0; c < count; c += VF_LANES) {
                vf e = vf_mul(exp_finite(vf_sub(load_some(REAL_DTYPE, u, c, count - c), vf_set(square))), vf_set(unit));
                store_some(REAL_DTYPE, u, c, e, count - c);
            }
            continue;
        }
        real lanes[VF_LANES];
        vf_store(lanes, vf_mul(exp_finite(vf_set(square)), vf_set(unit)));
        for (int64_t c = 0; c < count; c++) {
            real at = u[c];
            u[c] = (real)cos((double)at) * lanes[0];
            u[count + c] = (real)sin((double)at) * lanes[0];
        }
    }
}

static void step_random_features_backward(int kind, int64_t n, int64_t count, const void *F, void *G, int64_t ld, void *sums)
{
    for (int64_t j = 0; j < n; j++) {
        const real *f = (const real *)F + j * ld;
        real *g = (real *)G + j * ld, sum = 0;
        for (int64_t c = 0; c < count; c++) {
            if (kind == ATTN_FEATURES_FAVOR) {
                g[c] *= f[c];
                sum -= g[c];
            } else {
                real by_cos = g[c], by_sin = g[count + c];
                if (kind == ATTN_FEATURES_TRIGONOMETRIC) sum += by_cos * f[c] + by_sin * f[count + c];
                g[c] = by_sin * f[c] - by_cos * f[count + c];
            }
        }
        ((real *)sums)[j] = sum;
    }
}

#endif
