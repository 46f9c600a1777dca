/* SPDX-License-Identifier: MIT
 *
 * outputs_step.inc.c - the second pass over a block of scores, with the finished m and l of its rows: weights, their entropy, the
 * largest of them, sums over queries.  Included by forward.inc.c.
 */
#ifdef VF_LANES

/* exp(s - m) / l, where `inverse` is 1/l; exactly 0 for a dropped key and in a row whose l is 0, whatever inverse is. */
VF_INLINE vf weight_of(vf s, vf m, vf inverse, vm empty)
{
    vf p = vf_exp(vf_sub(s, m));
    return vf_select(vm_or(empty, vf_eq(p, vf_zero())), vf_zero(), vf_mul(p, inverse));
}

static void step_normalise(int width, int64_t n, void *S, const void *m, const void *l)
{
    for (int v = 0; v < width; v++) {
        vf at = vf_load((const real *)m + v * VF_LANES), sum = vf_load((const real *)l + v * VF_LANES);
        vf inverse = vf_div(vf_set(1), sum);
        vm empty = vf_eq(sum, vf_zero());
        for (int64_t j = 0; j < n; j++) {
            real *s = (real *)S + j * TILE + v * VF_LANES;
            vf_store(s, weight_of(vf_load(s), at, inverse, empty));
        }
    }
}

static void step_drop_weights(int width, int64_t n, void *W, const attn_drop *drop, double keep)
{
    const vf factor = vf_set((real)keep);
    step_drop(width, n, W, drop);
    for (int64_t j = 0; j < n; j++)
        for (int v = 0; v < width; v++) {
            real *w = (real *)W + j * TILE + v * VF_LANES;
            vf_store(w, vf_mul(factor, vf_load(w)));
        }
}

static void step_store_columns(int width, int64_t rows, int64_t n, double factor, const void *X, void *dst, attn_dtype dtype,
                               int64_t stride)
{
    for (int v = 0; v < width && v * VF_LANES < rows; v++)
        store_transposed(dtype, rows - v * VF_LANES, n, (const real *)X + v * VF_LANES, vf_set((real)factor),
                         vf_gt(vf_zero(), vf_zero()), (char *)dst + v * VF_LANES * stride * bytes_of(dtype), stride);
}

static void step_keep_max(int width, const void *block_max, void *most)
{
    for (int v = 0; v < width; v++) {
        real *to = (real *)most + v * VF_LANES;
        vf_store(to, vf_max(vf_load((const real *)block_max + v * VF_LANES), vf_load(to)));
    }
}

static void step_add_entropy(int width, int64_t n, const void *S, const void *m, double *sums)
{
    for (int v = 0; v < width; v++) {
        vf at = vf_load((const real *)m + v * VF_LANES), mass = vf_zero(), moment = vf_zero();
        real lanes[2][VF_LANES];
        for (int64_t j = 0; j < n; j++) {
            vf d = vf_sub(vf_load((const real *)S + j * TILE + v * VF_LANES), at), p = vf_exp(d);
            mass = vf_add(mass, p);
            moment = vf_add(moment, vf_select(vf_eq(p, vf_zero()), vf_zero(), vf_mul(p, d))); /* d may be -infinity there */
        }
        vf_store(lanes[0], mass);
        vf_store(lanes[1], moment);
        for (int i = 0; i < VF_LANES; i++) {
            sums[v * VF_LANES + i] += (double)lanes[0][i];
            sums[TILE + v * VF_LANES + i] += (double)lanes[1][i];
        }
    }
}

/* Inserts key `key` with weight w into the sorted list of one lane, after those that are as large. */
VF_INLINE void insert_top(real w, int64_t key, int64_t k, real *top, int64_t *index)
{
    int64_t at = k - 1;
    for (; at > 0 && top[(at - 1) * TILE] < w; at--) {
        top[at * TILE] = top[(at - 1) * TILE];
        index[at * TILE] = index[(at - 1) * TILE];
    }
    top[at * TILE] = w;
    index[at * TILE] = key;
}

static void step_take_top(int width, int64_t rows, int64_t n, const void *S, const void *m, const void *l, int64_t first, int64_t k,
                          void *top, int64_t *index)
{
    const vf dropped = vf_set(-(real)INFINITY), never = vf_set(-2); /* unused entries have weight -1 */
    for (int v = 0; v < width; v++) {
        vf at = vf_load((const real *)m + v * VF_LANES), sum = vf_load((const real *)l + v * VF_LANES);
        vf inverse = vf_div(vf_set(1), sum);
        vm empty = vf_eq(sum, vf_zero());
        real *list = (real *)top + v * VF_LANES, *last = list + (k - 1) * TILE;
        for (int64_t j = 0; j < n; j++) {
            vf s = vf_load((const real *)S + j * TILE + v * VF_LANES);
            vf w = vf_select(vf_eq(s, dropped), never, weight_of(s, at, inverse, empty));
            if (!vm_any(vf_gt(w, vf_load(last)))) continue;
            real lanes[VF_LANES];
            vf_store(lanes, w);
            for (int64_t i = 0; i < least(VF_LANES, rows - v * VF_LANES); i++)
                if (lanes[i] > last[i]) insert_top(lanes[i], first + j, k, list + i, index + v * VF_LANES + i);
        }
    }
}

/* Queries that are summed in T before that sum is added in double: 256 bits of them for every instruction set that has lanes, be
 * they half a vector or two, so that the result does not depend on how tiles are cut. */
enum {
    QUERIES_AT_ONCE = VF_LANES == 1 ? 1 : 256 / REAL_BITS,
    VECTORS_AT_ONCE = QUERIES_AT_ONCE > VF_LANES ? QUERIES_AT_ONCE / VF_LANES : 1,
    LANES_AT_ONCE = QUERIES_AT_ONCE / VECTORS_AT_ONCE
};

/* Keys j .. j+count-1 of vector v, transposed: r[i] has them for the query of lane i, or 0 if `keep` leaves it out. */
VF_INLINE void turn_weights(const real *W, int v, int64_t j, int64_t count, vm keep, vf *r)
{
    const real *w = W + j * TILE + v * VF_LANES;
    for (int i = 0; i < VF_LANES; i++) r[i] = i < count ? vf_select(keep, vf_load(w + i * TILE), vf_zero()) : vf_zero();
    vf_transpose(r);
}

VF_INLINE void add_lanes(vf sum, int64_t count, double *sums)
{
    real lanes[VF_LANES];
    vf_store(lanes, sum);
    for (int64_t i = 0; i < count; i++) sums[i] += (double)lanes[i];
}

static void step_sum_columns(int width, int64_t first, int64_t end, int64_t n, const void *W, double *sums)
{
    for (int v = 0; v < width; v += VECTORS_AT_ONCE) {
        const int vectors = (int)least(width - v, VECTORS_AT_ONCE);
        vm keep[VECTORS_AT_ONCE];
        for (int u = 0; u < vectors; u++) {
            int32_t inside[VF_LANES];
            for (int i = 0; i < VF_LANES; i++) inside[i] = (v + u) * VF_LANES + i >= first && (v + u) * VF_LANES + i < end;
            keep[u] = vf_gt(vf_of_i32(inside), vf_zero());
        }
        for (int64_t j = 0; j < n; j += VF_LANES) {
            const int64_t count = least(n - j, VF_LANES);
            vf sum = vf_zero();
            for (int u = 0; u < vectors; u++) {
                vf r[VF_LANES];
                turn_weights(W, v + u, j, count, keep[u], r);
                for (int from = 0; from < VF_LANES; from += LANES_AT_ONCE) {
                    for (int i = from; i < from + LANES_AT_ONCE; i++) sum = vf_add(sum, r[i]);
                    if (VECTORS_AT_ONCE > 1) continue;
                    add_lanes(sum, count, sums + j);
                    sum = vf_zero();
                }
            }
            if (VECTORS_AT_ONCE > 1) add_lanes(sum, count, sums + j);
        }
    }
}

static void step_store_keep(int64_t n, const attn_drop *drop, unsigned char *keep, int64_t stride)
{
    uint32_t x[4][TILE];
    philox generator;
    if (!drop->given.base) philox_of(drop, (int)drop->rows, &generator);
    for (int64_t j = 0; j < n; j++) {
        const uint32_t *word = drop->given.base ? NULL : philox_words(drop, &generator, (int)drop->rows, j, x);
        for (int64_t i = 0; i < drop->rows; i++)
            keep[i * stride + j] = (unsigned char)(word ? word[i] >= drop->threshold : given_keeps(drop, i, j));
    }
}

#define ATTN_OUTPUTS_PART                                                                                                          \
    {                                                                                                                              \
        .shape = ATTN_TILE_SHAPE, .normalise = step_normalise, .drop_weights = step_drop_weights, .keep_max = step_keep_max,       \
        .add_entropy = step_add_entropy, .take_top = step_take_top, .sum_columns = step_sum_columns, .store_keep = step_store_keep \
    }

#endif
