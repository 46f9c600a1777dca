/* SPDX-License-Identifier: MIT
 *
 * additive_step.inc.c - additive scores, sum_a w_a tanh(x_a + y_a).  With E = exp(2 x) of a query, G = exp(-2 y) of a key, both
 * computed once, and r = G / (E + G), tanh(x + y) = 1 - 2 r: each pair costs a sum and a quotient instead of an exponential, and
 * two terms share the division that bounds the loop:
 *
 *      1 - tanh = W1/d1 + W2/d2 = (W1 d2 + W2 d1) / (d1 d2)        d = E + G,  1 - r = E/d,  so W = 2 w E gives 1 + tanh
 *
 * The products must stay within the type, so this is for |x| and |y| up to ADDITIVE_NEAR; a query or key with a larger number, an
 * infinity or NaN is "far", and its r comes from x + y directly.  Included by forward.inc.c.
 */
#ifdef VF_LANES

#if REAL_BITS == 32
#define ADDITIVE_NEAR 18.0f /* E and G within 2^-52 .. 2^52, products of two sums below 2^106 */
#else
#define ADDITIVE_NEAR 69.0 /* likewise 2^200 and 2^402 */
#endif

/* Hidden units per pass: E and W of a tile stay in the level 1 cache for all keys of a block. */
enum { ADDITIVE_STRIP = 64 };

VF_INLINE vm additive_is_near(vf x) { return vf_ge(vf_set(ADDITIVE_NEAR), vf_max(x, vf_sub(vf_zero(), x))); /* NaN is not */ }

static void step_prepare_queries(int width, int64_t hidden, const void *weights, void *Qt)
{
    const real *w = weights, *bias = w + hidden;
    real *E = (real *)Qt + hidden * TILE, *W = E + hidden * TILE, *near = W + hidden * TILE;
    for (int v = 0; v < width; v++) {
        vf all = vf_set(1);
        for (int64_t a = 0; a < hidden; a++) {
            const int64_t at = a * TILE + v * VF_LANES;
            vf x = vf_add(vf_load((real *)Qt + at), vf_set(bias[a])), e = vf_exp(vf_mul(vf_set(2), x));
            vf_store((real *)Qt + at, x);
            vf_store(E + at, e);
            vf_store(W + at, vf_mul(vf_set(2 * w[a]), e));
            all = vf_select(additive_is_near(x), all, vf_zero());
        }
        vf_store(near + v * VF_LANES, all);
    }
}

static void step_prepare_keys(int64_t n, int64_t hidden, void *K, int64_t ldk)
{
    for (int64_t j = 0; j < n; j++) {
        real *y = (real *)K + j * ldk, *G = y + hidden;
        vf far = vf_zero();
        for (int64_t a = 0; a < hidden; a += VF_LANES) {
            vf x = load_some(REAL_DTYPE, y, a, hidden - a);
            store_some(REAL_DTYPE, G, a, vf_exp(vf_mul(vf_set(-2), x)), hidden - a);
            far = vf_select(additive_is_near(x), far, vf_set(1));
        }
        G[hidden] = vm_any(vf_gt(far, vf_zero())) ? 0 : 1;
    }
}

/* r of far queries and keys: 1 / (1 + exp(2 (x + y))).  NaN stays NaN. */
VF_INLINE vf additive_far(vf x, vf y)
{
    const vf most = vf_set(40); /* large enough: r is below 2^-115 */
    vf z = vf_add(x, y), power, r, q;
    exp_parts(vf_mul(vf_set(2), vf_select(vf_gt(z, most), most, z)), &power, &r, &q);
    return vf_div(vf_set(1), vf_fma(vf_fma(q, r, vf_set(1)), power, vf_set(1)));
}

/* sum[i][v] += sum_a 2 w (1 - r) over hidden units 0 .. count-1: a chain of pairs that depends on nothing else. */
VF_INLINE void additive_near_sums(const int keys, const int width, int64_t count, const real *E, const real *W, const real *G,
                                  int64_t ldk, vf (*sum)[VF_VECTORS])
{
    int64_t a = 0;
    VF_ROLLED
    for (; a + 2 <= count; a += 2) {
        VF_UNROLL
        for (int v = 0; v < width; v++) {
            const int64_t at = a * TILE + v * VF_LANES;
            const vf e0 = vf_load(E + at), e1 = vf_load(E + at + TILE), w0 = vf_load(W + at), w1 = vf_load(W + at + TILE);
            VF_UNROLL
            for (int i = 0; i < keys; i++) {
                vf d0 = vf_add(e0, VF_ELEMENT(G + i * ldk + a)), d1 = vf_add(e1, VF_ELEMENT(G + i * ldk + a + 1));
                vf top = vf_fma(w0, d1, vf_mul(w1, d0));
                sum[i][v] = vf_add(sum[i][v], vf_div(top, vf_mul(d0, d1)));
            }
        }
    }
    for (; a < count; a++) {
        VF_UNROLL
        for (int v = 0; v < width; v++) {
            const int64_t at = a * TILE + v * VF_LANES;
            VF_UNROLL
            for (int i = 0; i < keys; i++) {
                vf d = vf_add(vf_load(E + at), VF_ELEMENT(G + i * ldk + a));
                sum[i][v] = vf_add(sum[i][v], vf_div(vf_load(W + at), d));
            }
        }
    }
}

/* The same if x or y may be far. */
VF_INLINE vf additive_far_sum(int64_t count, const real *w, const real *x, const real *y, vf sum)
{
    for (int64_t a = 0; a < count; a++) {
        vf r = additive_far(vf_load(x + a * TILE), vf_set(y[a]));
        sum = vf_fma(vf_set(2 * w[a]), vf_sub(vf_set(1), r), sum);
    }
    return sum;
}

/* A tile of queries, its keys, and a strip of hidden units first .. first+count-1. */
typedef struct additive_strip {
    int64_t hidden, first, count;
    const real *w, *Qt, *near;
    const real *K;
    int64_t ldk;
    int far_queries;
} additive_strip;

VF_INLINE void additive_keys(const int keys, const int width, const additive_strip *s, int64_t j, real *S)
{
    const real *x = s->Qt + s->first * TILE, *E = x + s->hidden * TILE, *W = E + s->hidden * TILE;
    const real *y = s->K + j * s->ldk + s->first, *G = y + s->hidden;
    vf sum[2][VF_VECTORS];
    VF_UNROLL
    for (int i = 0; i < keys; i++) {
        VF_UNROLL
        for (int v = 0; v < width; v++) sum[i][v] = s->first ? vf_load(S + (j + i) * TILE + v * VF_LANES) : vf_zero();
    }
    additive_near_sums(keys, width, s->count, E, W, G, s->ldk, sum);
    for (int i = 0; i < keys; i++) {
        const vf near_key = vf_set(s->K[(j + i) * s->ldk + 2 * s->hidden]);
        const int far_key = s->K[(j + i) * s->ldk + 2 * s->hidden] == 0;
        if (!s->far_queries && !far_key) continue;
        for (int v = 0; v < width; v++) {
            const real *before = S + (j + i) * TILE + v * VF_LANES;
            vf both = vf_mul(near_key, vf_load(s->near + v * VF_LANES));
            vf far = additive_far_sum(s->count, s->w + s->first, x + v * VF_LANES, y + i * s->ldk,
                                      s->first ? vf_load(before) : vf_zero());
            sum[i][v] = vf_select(vf_gt(both, vf_zero()), sum[i][v], far);
        }
    }
    VF_UNROLL
    for (int i = 0; i < keys; i++) {
        VF_UNROLL
        for (int v = 0; v < width; v++) vf_store(S + (j + i) * TILE + v * VF_LANES, sum[i][v]);
    }
}

VF_INLINE void additive_block(const int width, int64_t n, additive_strip *s, double factor, double shift, real *S, real *block_max)
{
    const vf times = vf_set((real)factor), plus = vf_set((real)shift);
    vf most[VF_VECTORS];
    for (s->first = 0; s->first < s->hidden || s->first == 0; s->first += ADDITIVE_STRIP) {
        int64_t j = 0;
        s->count = least(ADDITIVE_STRIP, s->hidden - s->first);
        for (; j + 2 <= n; j += 2) additive_keys(2, width, s, j, S);
        if (j < n) additive_keys(1, width, s, j, S);
    }
    VF_UNROLL
    for (int v = 0; v < width; v++) most[v] = vf_load(block_max + v * VF_LANES);
    for (int64_t j = 0; j < n; j++) {
        VF_UNROLL
        for (int v = 0; v < width; v++) {
            vf x = vf_fma(times, vf_load(S + j * TILE + v * VF_LANES), plus);
            vf_store(S + j * TILE + v * VF_LANES, x);
            most[v] = vf_max(x, most[v]);
        }
    }
    VF_UNROLL
    for (int v = 0; v < width; v++) vf_store(block_max + v * VF_LANES, most[v]);
}

VF_INLINE int additive_has_far(int width, const real *near)
{
    vf all = vf_set(1);
    for (int v = 0; v < width; v++) all = vf_select(vf_gt(vf_load(near + v * VF_LANES), vf_zero()), all, vf_zero());
    return vm_any(vf_eq(all, vf_zero()));
}

static void additive_segment(int width, int64_t n, int64_t hidden, const real *Qt, const real *K, int64_t ldk, const real *w,
                             double scale, real *S, real *block_max)
{
    const double sum = (double)w[2 * hidden], factor = scale * (double)w[2 * hidden + 1];
    additive_strip s = {.hidden = hidden, .w = w, .Qt = Qt, .near = Qt + 3 * hidden * TILE, .K = K, .ldk = ldk};
    s.far_queries = additive_has_far(width, s.near);
    VF_EACH_WIDTH(additive_block, width, n, &s, factor, -factor * sum, S, block_max);
}

static void step_additive_score(int width, int64_t n, int64_t hidden, const void *Qt, const void *K, int64_t ldk, const void *w,
                                double scale, void *S, void *block_max)
{
    start_max(width, block_max);
    additive_segment(width, n, hidden, Qt, K, ldk, w, scale, S, block_max);
}

/* Keys that no vector sees are left out; keep_segment then cuts the lanes that see less. */
static void step_additive_score_seen(int width, int64_t n, int64_t hidden, const void *Qt, const void *K, int64_t ldk,
                                     const void *w, double scale, void *S, void *block_max, const int32_t *low, const int32_t *high)
{
    segment segments[MAX_SEGMENTS];
    const int count = segments_of(width, n, low, high, segments);
    start_max(width, block_max);
    for (int64_t k = 0, j = 0; k < count; j = segments[k++].end) {
        const int first = segments[k].first, last = segments[k].last;
        const int64_t end = segments[k].end, lane = first * VF_LANES;
        vf before[VF_VECTORS];
        for (int v = first; v < last; v++) before[v] = vf_load((real *)block_max + v * VF_LANES);
        if (first < last)
            additive_segment(last - first, end - j, hidden, (const real *)Qt + lane, (const real *)K + j * ldk, ldk, w, scale,
                             (real *)S + j * TILE + lane, (real *)block_max + lane);
        keep_segment(width, &segments[k], j, low, high, before, S, block_max);
    }
}

#endif
