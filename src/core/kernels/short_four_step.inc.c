/* SPDX-License-Identifier: MIT
 *
 * short_four_step.inc.c - the queries of a short head that remain after whole vectors, if they are at most four: 16 lanes hold four
 * queries with four keys, instead of one key and 12 idle lanes.  Their numbers are those of a tile, in the same order: S has rows
 * of four.  Included by short_step.inc.c.
 */
#ifdef VF_LANES

#if VF_LANES == 16

enum { FOUR = ATTN_SHORT_FOUR, FOUR_VECTORS = 4 }; /* as many independent sums as a multiply-add takes cycles */

/* Scores of four keys per vector, and the largest per lane.  at: offsets of the rows of the four keys, in elements. */
VF_INLINE vf four_scores(const int vectors, int64_t dim, const real *Qt, const real *K, int64_t ldk, const int64_t *at, real *S,
                         vf most, prefetch_stream *next)
{
    vf acc[FOUR_VECTORS];
    VF_UNROLL
    for (int v = 0; v < vectors; v++) acc[v] = vf_zero();
    VF_ROLLED
    for (int64_t c = 0; c < dim; c += FOUR) {
        vf q[FOUR];
        VF_UNROLL
        for (int i = 0; i < FOUR; i++) {
            q[i] = vf_load_four(Qt + (c + i) * TILE);
            VF_PIN(q[i]);
        }
        VF_UNROLL
        for (int v = 0; v < vectors; v++, next->at += (uintptr_t)next->hop) {
            const vf k = vf_load_fours(K + v * FOUR * ldk + c, at);
            __builtin_prefetch((const void *)next->at);
            acc[v] = vf_fma(vf_of_fours(k, 0), q[0], acc[v]);
            acc[v] = vf_fma(vf_of_fours(k, 1), q[1], acc[v]);
            acc[v] = vf_fma(vf_of_fours(k, 2), q[2], acc[v]);
            acc[v] = vf_fma(vf_of_fours(k, 3), q[3], acc[v]);
        }
    }
    VF_UNROLL
    for (int v = 0; v < vectors; v++) {
        vf_store(S + v * VF_LANES, acc[v]);
        most = vf_max(acc[v], most);
    }
    return most;
}

/* The same with ordered scores. */
VF_INLINE vf four_scores_in_order(const int vectors, int64_t dim, const real *Qt, const real *K, int64_t ldk, const int64_t *at,
                                  real *S, vf most, prefetch_stream *next)
{
    vf acc[FOUR_VECTORS][VF_CHAINS];
    VF_UNROLL
    for (int v = 0; v < vectors; v++) {
        VF_UNROLL
        for (int i = 0; i < VF_CHAINS; i++) acc[v][i] = vf_zero();
    }
    VF_ROLLED
    for (int64_t c = 0; c < dim; c += VF_CHAINS) {
        VF_UNROLL
        for (int h = 0; h < VF_CHAINS; h += FOUR) {
            vf q[FOUR];
            VF_UNROLL
            for (int i = 0; i < FOUR; i++) {
                q[i] = vf_load_four(Qt + (c + h + i) * TILE);
                VF_PIN(q[i]);
            }
            VF_UNROLL
            for (int v = 0; v < vectors; v++, next->at += (uintptr_t)next->hop) {
                const vf k = vf_load_fours(K + v * FOUR * ldk + c + h, at);
                __builtin_prefetch((const void *)next->at);
                acc[v][h] = vf_fma(vf_of_fours(k, 0), q[0], acc[v][h]);
                acc[v][h + 1] = vf_fma(vf_of_fours(k, 1), q[1], acc[v][h + 1]);
                acc[v][h + 2] = vf_fma(vf_of_fours(k, 2), q[2], acc[v][h + 2]);
                acc[v][h + 3] = vf_fma(vf_of_fours(k, 3), q[3], acc[v][h + 3]);
            }
        }
    }
    VF_UNROLL
    for (int v = 0; v < vectors; v++) {
        vf sum = vf_zero();
        VF_UNROLL
        for (int i = 0; i < VF_CHAINS; i++) sum = vf_add(sum, acc[v][i]);
        vf_store(S + v * VF_LANES, sum);
        most = vf_max(sum, most);
    }
    return most;
}

/* `vectors` vectors at a time; past the last key it is repeated. */
#define FOUR_SCORES(scores, vectors)                                                                                               \
    do {                                                                                                                           \
        prefetch_stream next_rows = prefetch_stream_of(next, next_ld, dim);                                                        \
        vf most = vf_set(-(real)INFINITY), all = most;                                                                             \
        real lanes[VF_LANES];                                                                                                      \
        int64_t j = 0;                                                                                                             \
        (void)width;                                                                                                               \
        for (; j + (vectors)*FOUR <= n; j += (vectors)*FOUR) FOUR_KEYS(scores, vectors);                                           \
        for (; j < n; j += FOUR) FOUR_KEYS(scores, 1);                                                                             \
        vf_store(lanes, most);                                                                                                     \
        for (int i = 0; i < VF_LANES; i += FOUR) all = vf_max(vf_load_four(lanes + i), all);                                       \
        vf_store(block_max, all);                                                                                                  \
    } while (0)
#define FOUR_KEYS(scores, vectors)                                                                                                 \
    do {                                                                                                                           \
        const int64_t last = n - 1 - j, at[FOUR] = {0, least(1, last) * ldk, least(2, last) * ldk, least(3, last) * ldk};          \
        prefetch_stream_rows(&next_rows, j, least(j + (vectors)*FOUR, n));                                                         \
        most = scores(vectors, dim, Qt, (const real *)K + j * ldk, ldk, at, (real *)S + j * FOUR, most, &next_rows);               \
    } while (0)

static void step_four_score(int width, int64_t n, int64_t dim, const void *Qt, const void *K, int64_t ldk, void *S, void *block_max,
                            const void *next, int64_t next_ld)
{
    FOUR_SCORES(four_scores, FOUR_VECTORS);
}

static void step_four_score_in_order(int width, int64_t n, int64_t dim, const void *Qt, const void *K, int64_t ldk, void *S,
                                     void *block_max, const void *next, int64_t next_ld)
{
    FOUR_SCORES(four_scores_in_order, 2);
}
#undef FOUR_SCORES
#undef FOUR_KEYS

static int step_four_exponentiate(int width, int64_t rows, int64_t n, void *S, void *block_max, void *factors, void *lse,
                                  int64_t lse_stride)
{
    const vf at = vf_max(vf_load(block_max), vf_set(REAL_LOWEST));
    real *P = S;
    vf sum = vf_zero();
    (void)width;
    for (int64_t j = 0; j < n; j += FOUR) vf_store(P + j * FOUR, vf_exp(vf_sub(vf_load(P + j * FOUR), at)));
    for (int64_t j = 0; j < n; j++) sum = vf_add(sum, vf_load_four(P + j * FOUR));
    vf_store(block_max, at);
    vf_store(factors, sum);
    return step_short_finish(rows, block_max, factors, lse, lse_stride);
}

VF_INLINE void four_value_strip(const int width, int64_t rows, int64_t n, const real *P, const real *V, int64_t ldv,
                                const real *factors, real *O, int64_t ldo)
{
    vf acc[VF_MAX_ROWS][VF_VECTORS];
    product_rows(FOUR, width, n, P, 1, FOUR, V, ldv, acc);
    VF_UNROLL
    for (int i = 0; i < FOUR; i++) {
        if (i >= rows) continue;
        VF_UNROLL
        for (int v = 0; v < width; v++) vf_store(O + i * ldo + v * VF_LANES, times_factor(acc[i][v], VF_ELEMENT(factors + i)));
    }
}

static void step_four_values(int64_t rows, int64_t n, int64_t dim, const void *P, const void *V, int64_t ldv, const void *factors,
                             void *O, int64_t ldo, attn_prefetch *prefetch)
{
    for (int64_t c = 0; c < dim;) {
        const int width = strip_width(dim - c);
        prefetch_during(prefetch, 2 * FOUR * width, n);
        VF_EACH_WIDTH(four_value_strip, width, rows, n, P, (const real *)V + c, ldv, factors, (real *)O + c, ldo);
        c += width * VF_LANES;
    }
}

#define ATTN_FOUR_STEPS                                                                                                            \
    {                                                                                                                              \
        step_four_score, step_four_score_in_order, step_four_exponentiate, step_four_values                                        \
    }
#else
#define ATTN_FOUR_STEPS                                                                                                            \
    {                                                                                                                              \
        0                                                                                                                          \
    }
#endif

#endif
