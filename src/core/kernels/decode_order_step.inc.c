/* SPDX-License-Identifier: MIT
 *
 * decode_order_step.inc.c - decode in the order of tiles: few queries get the bits that forward.inc.c gives them in a tile.
 * Included by decode.inc.c.
 *
 * An ordered score is VF_CHAINS chains of multiply-adds, of the channels c mod VF_CHAINS, whose ends are added in ascending order
 * (product_step.inc.c).  So the chains of a key lie in the lanes here, just as keys and queries lie in memory.  Sums over keys are
 * chains in both, and everything else is elementwise.
 */
#ifdef VF_LANES

#ifndef VF_CHAIN_SUMS
#define VF_CHAIN_SUMS VF_DOT_SUMS
#endif
#ifndef HF_PIN
#define HF_PIN VF_PIN
#endif

/* Numbers u .. u+VF_CHAINS-1 of a key, all of which exist.  pairs: a number is two neighbouring channels of bf16, as in memory. */
VF_INLINE hf load_chains(const int pairs, const attn_dtype dtype, const char *key, int64_t u)
{
    return hf_load_as(pairs ? ATTN_F32 : dtype, key, u);
}

/* The same where the row may end earlier; 0 past its last channel. */
VF_INLINE hf load_last_chains(const int pairs, const attn_dtype dtype, const char *key, int64_t dim, int64_t u)
{
    double part[VF_CHAINS] = {0}; /* large enough for any type */
    const int64_t size = bytes_of(dtype), c = pairs ? 2 * u : u;
    memcpy(part, key + c * size, (size_t)((dim - c) * size));
    return load_chains(pairs, dtype, (const char *)part, 0);
}

/* The next chains of a query that has `numbers` left, and 0 past the last vector of its row: if there are more chains than lanes,
 * another query's data follows. */
VF_INLINE hf load_query_chains(const real *Q, int64_t numbers)
{
#if VF_CHAINS > VF_LANES
    if (numbers <= VF_LANES) {
        real part[VF_CHAINS] = {0};
        vf_store(part, vf_load(Q));
        return hf_load(part);
    }
#endif
    (void)numbers;
    return hf_load(Q);
}

VF_INLINE hf chains_add(const int pairs, hf a, hf b, hf c)
{
#ifdef VF_PAIRS
    if (pairs) return hf_fma_pairs(a, b, c);
#endif
    (void)pairs;
    return hf_fma(a, b, c);
}

/* Lane i is the sum of 0 and the lanes of x[i], one after the other. */
VF_INLINE hf chain_ends(const hf *x)
{
    hf r[VF_CHAINS], sum = hf_zero();
    VF_UNROLL
    for (int i = 0; i < VF_CHAINS; i++) r[i] = x[i];
    hf_transpose(r);
    VF_UNROLL
    for (int i = 0; i < VF_CHAINS; i++) sum = hf_add(sum, r[i]);
    return sum;
}

/* As dot_tile and, for pairs, pair_tile, including what is prefetched and when. */
VF_INLINE void chain_tile(const int pairs, const int rows, const attn_dtype dtype, const int whole, int64_t keys, int64_t dim,
                          const real *Q, int64_t ldq, const char *K, int64_t ldk, real *S, int64_t lds, const prefetch_order *next)
{
    const int n = VF_CHAIN_SUMS / rows, step = pairs ? VF_LANES : PAIR, at_once = step / VF_CHAINS;
    const int64_t stride = ldk * bytes_of(dtype), size = pairs ? 4 : bytes_of(dtype), numbers = pairs ? attn_bf16_pairs(dim) : dim;
    const int64_t complete = pairs ? dim / 2 : dim; /* complete numbers */
    const int by_key = ATTN_TRAINS && rows == 1;    /* an inference-only build has one loop for all */
    hf acc[VF_CHAIN_SUMS];
    int64_t u = 0;
    VF_UNROLL
    for (int i = 0; i < VF_CHAIN_SUMS; i++) acc[i] = hf_zero();
#define KEY(k) (K + (whole ? (k) : least(k, keys - 1)) * stride)
    if (by_key) VF_UNROLL
    for (int k = 0; k < n; k++) {
        if (!whole && k >= keys) continue;
        VF_ROLLED
        for (u = 0; u + step <= complete; u += step) {
            prefetch_in_step(next, KEY(k), u * size, 1, (int)(step * size), 0, 1);
            VF_UNROLL
            for (int h = 0; h < at_once; h++) {
                const int64_t at = u + h * VF_CHAINS;
                acc[k] = chains_add(pairs, load_chains(pairs, dtype, KEY(k), at), hf_load(Q + at), acc[k]);
            }
        }
    }
    if (!by_key) VF_ROLLED
    for (; u + step <= complete; u += step) {
        if (pairs || rows < 4) prefetch_in_step(next, K, u * size, n, (int)(step * size), 0, 1);
        VF_UNROLL
        for (int h = 0; h < at_once; h++) {
            const int64_t at = u + h * VF_CHAINS;
            hf x[VF_CHAIN_SUMS];
            VF_UNROLL
            for (int k = 0; k < n; k++) {
                x[k] = load_chains(pairs, dtype, KEY(k), at);
                HF_PIN(x[k]);
            }
            VF_UNROLL
            for (int r = 0; r < rows; r++) {
                hf y = hf_load(Q + r * ldq + at);
                HF_PIN(y);
                VF_UNROLL
                for (int k = 0; k < n; k++) acc[r * n + k] = chains_add(pairs, x[k], y, acc[r * n + k]);
                if (!pairs && rows == 4) prefetch_in_step(next, K, u * size, n, (int)(step * size), h * rows + r, at_once * rows);
            }
        }
    }
    VF_ROLLED
    for (; u < numbers; u += VF_CHAINS) {
        hf x[VF_CHAIN_SUMS];
        VF_UNROLL_TAIL
        for (int k = 0; k < n; k++)
            x[k] =
                u + VF_CHAINS <= complete ? load_chains(pairs, dtype, KEY(k), u) : load_last_chains(pairs, dtype, KEY(k), dim, u);
        VF_UNROLL
        for (int r = 0; r < rows; r++) {
            const hf y = load_query_chains(Q + r * ldq + u, numbers - u);
            VF_UNROLL
            for (int k = 0; k < n; k++) acc[r * n + k] = chains_add(pairs, x[k], y, acc[r * n + k]);
        }
    }
#undef KEY
    real sums[VF_CHAIN_SUMS];
    VF_UNROLL
    for (int i = 0; i < VF_CHAIN_SUMS; i += VF_CHAINS) hf_store(sums + i, chain_ends(acc + i));
    STORE_SUMS(VF_CHAIN_SUMS, rows, whole, keys, sums, S, lds);
}

VF_INLINE void chain_tiles(const int rows, int64_t first, const int pairs, const attn_dtype dtype, int64_t n, int64_t dim,
                           const real *Q, int64_t ldq, const char *K, int64_t ldk, real *S, int64_t lds, uintptr_t fetch,
                           const int streaming)
{
    const int64_t each = VF_CHAIN_SUMS / rows, size = bytes_of(dtype);
    const int twice = streaming && (pairs ? rows <= 2 : few_instructions_between(dtype, rows));
    const prefetch_order next =
        prefetch_order_of(pairs ? streaming : bytes_of(dtype) > 2 || twice, fetch, twice, ldk == dim, ldk * size);
    Q += first * ldq;
    S += first * lds;
    int64_t j = 0;
    if (ATTN_TRAINS) VF_ROLLED
    for (; j + each <= n; j += each)
        chain_tile(pairs, rows, dtype, 1, each, dim, Q, ldq, K + j * ldk * size, ldk, S + j, lds, &next);
    VF_ROLLED
    for (; j < n; j += each)
        chain_tile(pairs, rows, dtype, 0, least(n - j, each), dim, Q, ldq, K + j * ldk * size, ldk, S + j, lds, &next);
}

VF_INLINE void ordered_scores_as(const attn_dtype dtype, int64_t rows, int64_t n, int64_t dim, const real *Q, int64_t ldq,
                                 const char *K, int64_t ldk, real *S, int64_t lds, uintptr_t fetch, int streaming)
{
    EACH_ROWS_OF(chain_tiles, streaming && streaming_matters(dtype), rows, 0, dtype, n, dim, Q, ldq, K, ldk, S, lds, fetch);
}

FOR_KEYS(ordered_scores_as,
         (int64_t rows, int64_t n, int64_t dim, const real *Q, int64_t ldq, const char *K, int64_t ldk, real *S, int64_t lds,
          uintptr_t fetch, int streaming),
         rows, n, dim, Q, ldq, K, ldk, S, lds, fetch, streaming)

static void step_ordered_scores(int64_t rows, int64_t n, int64_t dim, const void *Q, int64_t ldq, const void *K, attn_dtype dtype,
                                int64_t ldk, void *S, int64_t lds, int64_t fetch, int streaming)
{
    EACH_KEYS(ordered_scores_as, dtype, rows, n, dim, Q, ldq, K, ldk, S, lds, (uintptr_t)fetch, streaming);
}

/* As add_diagonals_rows: a bias by distance, which decreases along the keys. */
static void step_add_diagonals_row(int64_t n, void *S, const void *last)
{
    for (int64_t j = 0; j < n; j++) ((real *)S)[j] += ((const real *)last)[-j];
}

/* ---- the online softmax, as in fold_step.inc.c ---- */

VF_INLINE real first_lane(vf x)
{
    real lanes[VF_LANES];
    vf_store(lanes, x);
    return lanes[0];
}

/* S = exp(S - at) of `rows` rows, and their sums, keys ascending: chains whose latency the exponentials hide. */
VF_INLINE void exponentiate_rows(const int rows, int64_t n, real *S, int64_t lds, const real *at, real *sum)
{
    VF_UNROLL
    for (int r = 0; r < rows; r++) sum[r] = 0;
    VF_ROLLED
    for (int64_t j = 0; j < n; j += VF_LANES) {
        VF_UNROLL
        for (int r = 0; r < rows; r++) {
            real *s = S + r * lds + j;
            vf_store(s, vf_exp(vf_sub(vf_load(s), vf_set(at[r]))));
        }
        /* Weights past the last key are 0, which changes no sum. */
        VF_UNROLL
        for (int i = 0; i < VF_LANES; i++) {
            VF_UNROLL
            for (int r = 0; r < rows; r++) sum[r] += S[r * lds + j + i];
        }
    }
}

VF_INLINE real max_row(int64_t n, real *s)
{
    vf most = vf_set(-(real)INFINITY);
    for (int64_t j = n; j % VF_LANES != 0; j++) s[j] = -(real)INFINITY;
    for (int64_t j = 0; j < n; j += VF_LANES) most = vf_max(vf_load(s + j), most);
    return max_of_lanes(most);
}

/* `rows` rows from row `first` on. */
VF_INLINE void absorb_some(const int rows, int64_t first, int64_t n, real *S, int64_t lds, real *m, real *l, int64_t ld,
                           real *factors)
{
    real at[4], sum[4];
    for (int r = 0; r < rows; r++) {
        const real most = max_row(n, S + (first + r) * lds), old = m[(first + r) * ld];
        const int grown = most > old + grow_limit;
        factors[first + r] = grown ? first_lane(vf_exp(vf_sub(vf_set(old), vf_set(most)))) : 1;
        m[(first + r) * ld] = at[r] = grown ? most : old;
    }
    exponentiate_rows(rows, n, S + first * lds, lds, at, sum);
    for (int r = 0; r < rows; r++) {
        real *total = l + (first + r) * ld;
        *total = first_lane(vf_fma(vf_set(*total), vf_set(factors[first + r]), vf_set(sum[r])));
    }
}

static void step_absorb_rows(int64_t rows, int64_t n, void *S, int64_t lds, void *m, void *l, int64_t ld, void *factors)
{
    int64_t first = 0;
    for (; first + 4 <= rows; first += 4) absorb_some(4, first, n, S, lds, m, l, ld, factors);
    if (first + 2 <= rows) {
        absorb_some(2, first, n, S, lds, m, l, ld, factors);
        first += 2;
    }
    if (first < rows) absorb_some(1, first, n, S, lds, m, l, ld, factors);
}

/* O = factor O + sum. */
static void step_join_row(int64_t dim_v, const void *factor, const void *sum, void *O)
{
    const vf f = vf_set(*(const real *)factor);
    for (int64_t c = 0; c < dim_v; c += VF_LANES)
        vf_store((real *)O + c, vf_fma(vf_load((real *)O + c), f, vf_load((const real *)sum + c)));
}

/* As step_merge. */
static void step_merge_row(int64_t dim_v, const void *m_other, const void *l_other, const void *O_other, void *m, void *l, void *O)
{
    const vf a = vf_set(*(real *)m), b = vf_set(*(const real *)m_other), most = vf_max(a, b);
    const vf keep = vf_exp(vf_sub(a, most)), take = vf_exp(vf_sub(b, most));
    *(real *)m = first_lane(most);
    *(real *)l = first_lane(vf_fma(keep, vf_set(*(real *)l), vf_mul(take, vf_set(*(const real *)l_other))));
    for (int64_t c = 0; c < dim_v; c += VF_LANES) {
        const vf other = vf_mul(take, vf_load((const real *)O_other + c));
        vf_store((real *)O + c, vf_fma(keep, vf_load((real *)O + c), other));
    }
}

/* As step_finish, which stores 0 for 0 too, whatever the factor. */
static void step_normalise_row(int64_t dim_v, const void *m, const void *l, const void *O, attn_dtype order, void *scratch, void *o,
                               attn_dtype dtype, void *lse)
{
    const real most = *(const real *)m, total = *(const real *)l;
    const vf factor = vf_div(vf_set(1), vf_set(total)), none = vf_zero();
    real *sum = scratch, *natural = sum + (dim_v + VF_LANES - 1) / VF_LANES * VF_LANES;
    for (int64_t c = 0; c < dim_v; c += VF_LANES) {
        const vf x = vf_load((const real *)O + c);
        vf_store(sum + c, total == 0 ? none : vf_select(vf_eq(x, none), none, vf_fma(x, factor, none)));
    }
    natural_row(order, dim_v, sum, natural);
    EACH_STORAGE(store_row, dtype, dim_v, natural, o);
    if (lse) *(real *)lse = total == 0 ? -(real)INFINITY : (real)((double)most + log((double)total));
}

#define ATTN_DECODE_ORDER                                                                                                          \
    {                                                                                                                              \
        .scores = step_ordered_scores, .add_diagonals_row = step_add_diagonals_row, .absorb_rows = step_absorb_rows,               \
        .join_row = step_join_row, .merge_row = step_merge_row, .normalise_row = step_normalise_row                                \
    }

#endif
