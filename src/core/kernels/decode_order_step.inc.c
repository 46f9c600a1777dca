/* SPDX-License-Identifier: MIT
 *
 * decode_order_step.inc.c - decode in the order of tiles: few queries get the bits that forward.inc.c gives them in a tile.
 * Included by decode.inc.c.
 *
 * A tile has queries in its lanes and takes a score for one chain of multiply-adds over the channels.  Few queries would leave
 * those lanes empty, so here keys lie in them: a square of keys and channels is transposed in registers, once for all rows, and
 * then each score is that chain too.  Sums over keys are chains in both, and what else there is goes number by number.
 */
#ifdef VF_LANES

/* Vectors of keys that share what is read of a query, and whose chains run side by side, so that none waits for itself. */
enum { KEY_VECTORS = 2, STRIP_LANES = KEY_VECTORS * VF_LANES };

/*
 * What a number of a transposed square is: a channel; or, of 16 bits, two neighbouring channels as they lie in memory, for which
 * half the shuffles will do.  Those of bf16 are multiplied as they are (vf_fma_pairs), or come apart when they are stored; those of
 * f16 come apart too and stay what they are until they are multiplied.
 */
typedef enum square { SQUARE_CHANNELS, SQUARE_PAIRS, SQUARE_BF16, SQUARE_F16 } square;

/* Numbers u .. u+count-1 of a key, and 0 behind them. */
VF_INLINE vf load_numbers(const square kind, const attn_dtype dtype, const char *key, int64_t dim, int64_t u, int64_t count)
{
    if (kind == SQUARE_CHANNELS) return load_some(dtype, key, u, count);
    if (2 * (u + VF_LANES) <= dim) return vf_load_as(ATTN_F32, key, u);
    uint16_t part[2 * VF_LANES] = {0};
    memcpy(part, key + 4 * u, (size_t)(2 * (dim - 2 * u)));
    return vf_load_as(ATTN_F32, part, 0);
}

/* To vector v of T: rows of a strip of keys, one for each channel or pair, of T; or, of f16, two rows side by side for each v. */
VF_INLINE void store_square(const square kind, const vf *x, real *T, int v)
{
    VF_UNROLL
    for (int i = 0; i < VF_LANES; i++) {
        if (kind == SQUARE_BF16) {
            vf y[2];
            vf_split(x[i], y);
            vf_store(T + (2 * i * KEY_VECTORS + v) * VF_LANES, y[0]);
            vf_store(T + ((2 * i + 1) * KEY_VECTORS + v) * VF_LANES, y[1]);
        } else {
            vf_store(T + (i * KEY_VECTORS + v) * VF_LANES, kind == SQUARE_F16 ? vf_unzip(x[i]) : x[i]);
        }
    }
}

/* Vector v of row i. */
VF_INLINE vf load_stored(const square kind, const real *T, int64_t i, int v)
{
    if (kind == SQUARE_F16) return vf_load_as(ATTN_F16, T, ((i / 2 * KEY_VECTORS + v) * 2 + i % 2) * VF_LANES);
    return vf_load(T + (i * KEY_VECTORS + v) * VF_LANES);
}

/* All of a square, from p on, with bytes from key to key.  Functions of their own, since the addresses of all its rows would not
 * fit the registers of the loop around them. */
#define WHOLE_SQUARE(name, kind)                                                                                                   \
    static VF_APART void name(const char *p, int64_t stride, real *T, int v)                                                       \
    {                                                                                                                              \
        vf x[VF_LANES];                                                                                                            \
        vf_load_square(p, stride, x);                                                                                              \
        store_square(kind, x, T, v);                                                                                               \
    }
WHOLE_SQUARE(whole_square, SQUARE_CHANNELS)
WHOLE_SQUARE(whole_bf16_square, SQUARE_BF16)
WHOLE_SQUARE(whole_f16_square, SQUARE_F16)
#undef WHOLE_SQUARE

/* A square of which not all is there: the last of its keys is repeated, and numbers u .. u+count-1 are there. */
VF_INLINE void load_rest(const square kind, const attn_dtype dtype, int64_t keys, int64_t dim, int64_t u, int64_t count,
                         const char *K, int64_t stride, real *T, int v)
{
    vf x[VF_LANES];
    for (int i = 0; i < VF_LANES; i++) x[i] = load_numbers(kind, dtype, K + least(i, keys - 1) * stride, dim, u, count);
    vf_transpose(x);
    store_square(kind, x, T, v);
}

/* Row i of T. */
VF_INLINE void multiply_row(const square kind, const int rows, const int vectors, int64_t i, const real *T, const real *Q,
                            int64_t ldq, vf (*acc)[KEY_VECTORS])
{
    vf x[KEY_VECTORS];
    VF_UNROLL
    for (int v = 0; v < vectors; v++) {
        x[v] = load_stored(kind, T, i, v);
        VF_PIN(x[v]);
    }
    VF_UNROLL
    for (int r = 0; r < rows; r++) {
        const vf q = vf_set(Q[r * ldq + i]);
        VF_UNROLL
        for (int v = 0; v < vectors; v++) acc[r][v] = multiply_add(kind == SQUARE_PAIRS, x[v], q, acc[r][v]);
    }
}

/* S[r][lanes] goes on, by `count` rows of T. */
VF_INLINE void multiply_rows(const square kind, const int rows, const int vectors, int64_t count, const real *T, const real *Q,
                             int64_t ldq, real *S, int64_t lds)
{
    vf acc[4][KEY_VECTORS];
    VF_UNROLL
    for (int r = 0; r < rows; r++) {
        VF_UNROLL
        for (int v = 0; v < vectors; v++) acc[r][v] = vf_load(S + r * lds + v * VF_LANES);
    }
    enum { AT_ONCE = 4 };
    VF_ROLLED
    for (; count >= AT_ONCE; count -= AT_ONCE) {
        VF_UNROLL
        for (int i = 0; i < AT_ONCE; i++) multiply_row(kind, rows, vectors, i, T, Q, ldq, acc);
        T += AT_ONCE * STRIP_LANES / (kind == SQUARE_F16 ? 2 : 1);
        Q += AT_ONCE;
    }
    VF_ROLLED
    for (int64_t i = 0; i < count; i++) multiply_row(kind, rows, vectors, i, T, Q, ldq, acc);
    VF_UNROLL
    for (int r = 0; r < rows; r++) {
        VF_UNROLL
        for (int v = 0; v < vectors; v++) vf_store(S + r * lds + v * VF_LANES, acc[r][v]);
    }
}

#define MULTIPLY_STRIP(name, kind)                                                                                                 \
    static VF_APART void name(int64_t rows, int vectors, int64_t count, const real *T, const real *Q, int64_t ldq, real *S,        \
                              int64_t lds)                                                                                         \
    {                                                                                                                              \
        if (vectors == KEY_VECTORS) EACH_ROWS(MULTIPLY, rows, kind, KEY_VECTORS);                                                  \
        else EACH_ROWS(MULTIPLY, rows, kind, 1);                                                                                   \
    }
#define MULTIPLY(rows, first, kind, vectors)                                                                                       \
    multiply_rows(kind, rows, vectors, count, T, Q + (first)*ldq, ldq, S + (first)*lds, lds)
MULTIPLY_STRIP(multiply_strip, SQUARE_CHANNELS)
MULTIPLY_STRIP(multiply_f16_strip, SQUARE_F16)
#ifdef VF_PAIRS
MULTIPLY_STRIP(multiply_pairs_strip, SQUARE_PAIRS)
#endif
#undef MULTIPLY
#undef MULTIPLY_STRIP

/* Scores of up to STRIP_LANES keys. */
VF_INLINE void score_strip(const square kind, const attn_dtype dtype, const int full, int64_t keys, int64_t rows, int64_t dim,
                           const real *Q, int64_t ldq, const char *K, int64_t ldk, real *S, int64_t lds, const ask_order *next)
{
    const int64_t size = bytes_of(dtype) * (kind == SQUARE_CHANNELS ? 1 : 2), stride = ldk * bytes_of(dtype);
    const int64_t numbers = kind == SQUARE_CHANNELS ? dim : attn_bf16_pairs(dim), all = dim * bytes_of(dtype) / size;
    const int vectors = full ? KEY_VECTORS : 1, apart = kind == SQUARE_BF16 || kind == SQUARE_F16;
    real T[2 * VF_LANES * STRIP_LANES];
    VF_ROLLED
    for (int64_t u = 0; u < numbers; u += VF_LANES) {
        const int64_t left = least(numbers - u, VF_LANES);
        VF_UNROLL
        for (int v = 0; v < vectors; v++) {
            const char *at = K + v * VF_LANES * stride, *p = at + u * size;
            ask_step(next, at, u * size, VF_LANES, (int)(VF_LANES * size), 0, 1);
            if (u + VF_LANES > all || keys < VF_LANES || (kind == SQUARE_CHANNELS && dtype != REAL_DTYPE))
                load_rest(kind, dtype, full ? VF_LANES : keys, dim, u, left, at, stride, T, v);
            else if (kind == SQUARE_BF16) whole_bf16_square(p, stride, T, v);
            else if (kind == SQUARE_F16) whole_f16_square(p, stride, T, v);
            else whole_square(p, stride, T, v);
        }
        const real *query = Q + (apart ? 2 * u : u);
        const int64_t count = apart ? least(dim - 2 * u, 2 * VF_LANES) : left;
        if (kind == SQUARE_F16) multiply_f16_strip(rows, vectors, count, T, query, ldq, S, lds);
        else if (kind != SQUARE_PAIRS) multiply_strip(rows, vectors, count, T, query, ldq, S, lds);
#ifdef VF_PAIRS
        else multiply_pairs_strip(rows, vectors, count, T, query, ldq, S, lds);
#endif
    }
}

VF_INLINE void score_lanes(const square kind, const attn_dtype dtype, int64_t rows, int64_t n, int64_t dim, const real *Q,
                           int64_t ldq, const char *K, int64_t ldk, real *S, int64_t lds, uintptr_t fetch, const int far)
{
    const int64_t size = bytes_of(dtype);
    const int twice = far && few_between(dtype, 4);
    const ask_order next = ask_order_of(bytes_of(dtype) > 2 || twice, fetch, twice, ldk == dim, ldk * size);
    const int64_t padded = (rows + 3) / 4 * 4;
    for (int64_t r = 0; r < padded; r++)
        for (int64_t j = 0; j < n; j += VF_LANES) vf_store(S + r * lds + j, vf_zero());
    int64_t j = 0;
    VF_ROLLED
    for (; j + STRIP_LANES <= n; j += STRIP_LANES)
        score_strip(kind, dtype, 1, STRIP_LANES, rows, dim, Q, ldq, K + j * ldk * size, ldk, S + j, lds, &next);
    VF_ROLLED
    for (; j < n; j += VF_LANES)
        score_strip(kind, dtype, 0, least(n - j, VF_LANES), rows, dim, Q, ldq, K + j * ldk * size, ldk, S + j, lds, &next);
}

VF_INLINE void ordered_scores_as(const attn_dtype dtype, int64_t rows, int64_t n, int64_t dim, const real *Q, int64_t ldq,
                                 const char *K, int64_t ldk, real *S, int64_t lds, uintptr_t fetch, int far)
{
    const square kind = !VF_SPLITS(ATTN_BF16) ? SQUARE_CHANNELS
                        : dtype == ATTN_BF16  ? SQUARE_BF16
                        : dtype == ATTN_F16   ? SQUARE_F16
                                              : SQUARE_CHANNELS;
    if (far && heeds_far(dtype)) score_lanes(kind, dtype, rows, n, dim, Q, ldq, K, ldk, S, lds, fetch, 1);
    else score_lanes(kind, dtype, rows, n, dim, Q, ldq, K, ldk, S, lds, fetch, 0);
}

static void step_ordered_scores(int64_t rows, int64_t n, int64_t dim, const void *Q, int64_t ldq, const void *K, attn_dtype dtype,
                                int64_t ldk, void *S, int64_t lds, int64_t fetch, int far)
{
    EACH_KEYS(ordered_scores_as, dtype, rows, n, dim, Q, ldq, K, ldk, S, lds, (uintptr_t)fetch, far);
}

/* As add_strip_rows: a bias by distance, which falls with the keys. */
static void step_add_strip_row(int64_t n, void *S, const void *last)
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

/* S = exp(S - at) of `rows` rows, and their sums, keys ascending: chains that wait for themselves while weights are made. */
VF_INLINE void weigh_rows(const int rows, int64_t n, real *S, int64_t lds, const real *at, real *sum)
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
        /* Weights behind the last key are 0, which changes no sum. */
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
    return most_of_lanes(most);
}

/* `rows` rows from number `first` on. */
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
    weigh_rows(rows, n, S + first * lds, lds, at, sum);
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

/* As step_finish, which stores 0 for 0 too, whatever the factor is. */
static void step_settle_row(int64_t dim_v, const void *m, const void *l, const void *O, attn_dtype order, void *room, void *o,
                            attn_dtype dtype, void *lse)
{
    const real most = *(const real *)m, total = *(const real *)l;
    const vf factor = vf_div(vf_set(1), vf_set(total)), none = vf_zero();
    real *sum = room, *natural = sum + (dim_v + VF_LANES - 1) / VF_LANES * VF_LANES;
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
        .scores = step_ordered_scores, .add_strip_row = step_add_strip_row, .absorb_rows = step_absorb_rows,                       \
        .join_row = step_join_row, .merge_row = step_merge_row, .settle_row = step_settle_row                                      \
    }

#endif
