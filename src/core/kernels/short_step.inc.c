/* SPDX-License-Identifier: MIT
 *
 * short_step.inc.c - the steps of short heads (attn_small_part): rows stay rows, and keys lie in the lanes, or, without a mask, a
 * tile of queries.  Included by forward.inc.c.
 */
#ifdef VF_LANES

VF_INLINE int all_zero(vf x) { return !vm_any(vf_bits(x)); }

VF_INLINE int64_t clamped(int64_t x, int64_t most) { return x < 0 ? 0 : least(x, most); }

/* With fewer lanes than SHORT_FOUR, the rows that are exponentiated together, short heads are left to tiles, and no plan chooses
 * this part. */
#if VF_LANES < 4
#define ATTN_SMALL_PART                                                                                                            \
    {                                                                                                                              \
        .shape = ATTN_TILE_SHAPE,                                                                                                  \
    }
#else

/*
 * Calls STEP(rows) for register tiles of at most `most` rows, n rows in all; i is the next row.  If fewer than 4 are left, the last
 * 4 are done, some of them again: a row's numbers do not depend on its neighbours.
 */
#define SHORT_TILES(most, n, i, STEP)                                                                                              \
    do {                                                                                                                           \
        while ((n) - (i) >= (most) && ((most) != 6 || (n) - (i) != 8) && /* 8 are 4 + 4 */                                         \
               ((most) != 12 || (n) - (i) == 12 || (n) - (i) > 14))      /* 13 and 14 are 8 + 6 */                                 \
            STEP(most);                                                                                                            \
        if ((most) > 8 && (n) - (i) >= 8) STEP(8);                                                                                 \
        if ((most) > 6 && (n) >= 6 && ((n) - (i) == 5 || (n) - (i) == 6)) {                                                        \
            (i) = (n)-6;                                                                                                           \
            STEP(6);                                                                                                               \
        }                                                                                                                          \
        while ((most) > 4 && (n) - (i) >= 4) STEP(4);                                                                              \
        if ((i) < (n) && (n) >= 4) {                                                                                               \
            (i) = (n)-4;                                                                                                           \
            STEP(4);                                                                                                               \
        }                                                                                                                          \
        while ((i) < (n)) STEP(1);                                                                                                 \
    } while (0)

/* ---- scores ---- */

VF_INLINE void short_scores(const int in_order, const int rows, const int width, int64_t dim, const real *X, int64_t ldx,
                            const real *Kt, real *S, int64_t ld)
{
    vf acc[VF_MAX_ROWS][VF_VECTORS];
    prefetch_stream none = {.at = (uintptr_t)X};
    if (in_order) product_in_order(0, rows, width, dim, X, ldx, Kt, &none, acc);
    else product(rows, width, dim, X, ldx, 1, Kt, &none, acc);
    VF_UNROLL
    for (int i = 0; i < rows; i++) {
        VF_UNROLL
        for (int v = 0; v < width; v++) vf_store(S + i * ld + v * VF_LANES, acc[i][v]);
    }
}

VF_INLINE void short_score_block(const int width, const int in_order, int64_t n, int64_t dim, const real *X, int64_t ldx,
                                 const real *Kt, real *S, int64_t ld, attn_prefetch *prefetch)
{
    const int most = in_order ? VF_ORDERED_ROWS(width) : VF_ROWS(width);
    int64_t i = 0;
#define SCORE(rows)                                                                                                                \
    do {                                                                                                                           \
        prefetch_during(prefetch, (rows)*width, dim);                                                                              \
        short_scores(in_order, rows, width, dim, X + i * ldx, ldx, Kt, S + i * ld, ld);                                            \
        i += (rows);                                                                                                               \
    } while (0)
    SHORT_TILES(most, n, i, SCORE);
#undef SCORE
}

#define SHORT_SCORE(width)                                                                                                         \
    static VF_NOINLINE void short_score_##width(int64_t n, int64_t dim, const real *X, int64_t ldx, const real *Kt, real *S,       \
                                                int64_t ld, attn_prefetch *prefetch)                                               \
    {                                                                                                                              \
        short_score_block(width, 0, n, dim, X, ldx, Kt, S, ld, prefetch);                                                          \
    }                                                                                                                              \
    static VF_NOINLINE void short_score_in_order_##width(int64_t n, int64_t dim, const real *X, int64_t ldx, const real *Kt,       \
                                                         real *S, int64_t ld, attn_prefetch *prefetch)                             \
    {                                                                                                                              \
        short_score_block(width, 1, n, dim, X, ldx, Kt, S, ld, prefetch);                                                          \
    }
VF_WIDTHS(SHORT_SCORE)

/* Rows first .. end-1 see w vectors of keys: the first row that sees lane l is l - sees + 1. */
#define SHORT_SCORES(score)                                                                                                        \
    do {                                                                                                                           \
        prefetch_pages(prefetch);                                                                                                  \
        for (int w = 1; w <= width; w++) {                                                                                         \
            const int64_t first = clamped((w - 1) * VF_LANES - sees + 1, rows);                                                    \
            const int64_t end = w < width ? clamped(w * VF_LANES - sees + 1, rows) : rows;                                         \
            VF_CALL_WIDTH(score, w, end - first, dim, (const real *)X + first * ldx, ldx, Kt, (real *)S + first * ld, ld,          \
                          prefetch);                                                                                               \
        }                                                                                                                          \
    } while (0)

static void step_short_score(int width, int64_t rows, int64_t dim, const void *X, int64_t ldx, const void *Kt, int64_t sees,
                             void *S, int64_t ld, attn_prefetch *prefetch)
{
    SHORT_SCORES(short_score);
}

static void step_short_score_in_order(int width, int64_t rows, int64_t dim, const void *X, int64_t ldx, const void *Kt,
                                      int64_t sees, void *S, int64_t ld, attn_prefetch *prefetch)
{
    SHORT_SCORES(short_score_in_order);
}
#undef SHORT_SCORES

/* ---- weights ---- */

/*
 * Rows are exponentiated in groups of as many as a vector has lanes, four at a time, whose chains hide each other's latency.  All
 * rows of a group see the keys before `whole`; before `end` each sees its own number of `keys`, and after that none.
 */
enum { SHORT_FOUR = 4 };
typedef struct short_group {
    int rows; /* that exist, rounded up to four */
    int64_t whole, end;
    real keys[VF_LANES], m[VF_LANES];
} short_group;

/* x at j in the lanes that a row sees, and `other` in those that it does not. */
VF_INLINE vf seen_or(const real *keys, int64_t j, vf lane, vf x, vf other)
{
    return vf_select(vf_gt(VF_ELEMENT(keys), vf_add(lane, vf_set((real)j))), x, other);
}

/* The keys that the rows from `first` on see, and their largest scores. */
VF_INLINE void start_group(int64_t first, int64_t rows, int64_t n, int64_t sees, const real *S, int64_t ld, vf lane, short_group *g)
{
    vf most[VF_LANES], top = vf_set(REAL_LOWEST);
    g->rows = (int)((least(rows - first, VF_LANES) + SHORT_FOUR - 1) / SHORT_FOUR * SHORT_FOUR);
    for (int i = g->rows; i < VF_LANES; i++) most[i] = vf_zero();
    g->whole = clamped(sees + first, n) / VF_LANES * VF_LANES;
    g->end = clamped(sees + first + VF_LANES - 1, n);
    vf_store(g->keys, vf_min(vf_max(vf_add(lane, vf_set((real)(sees + first))), vf_zero()), vf_set((real)n)));
    VF_ROLLED
    for (int k = 0; k < g->rows; k += SHORT_FOUR) {
        const real *row = S + (first + k) * ld;
        vf x[SHORT_FOUR];
        int64_t j = 0;
        VF_UNROLL
        for (int i = 0; i < SHORT_FOUR; i++) x[i] = vf_set(-(real)INFINITY);
        VF_ROLLED
        for (; j < g->whole; j += VF_LANES) {
            VF_UNROLL
            for (int i = 0; i < SHORT_FOUR; i++) x[i] = vf_max(vf_load(row + i * ld + j), x[i]);
        }
        VF_ROLLED
        for (; j < g->end; j += VF_LANES) {
            VF_UNROLL
            for (int i = 0; i < SHORT_FOUR; i++)
                x[i] = vf_max(seen_or(g->keys + k + i, j, lane, vf_load(row + i * ld + j), vf_set(-(real)INFINITY)), x[i]);
        }
        VF_UNROLL
        for (int i = 0; i < SHORT_FOUR; i++) most[k + i] = x[i];
    }
    vf_transpose(most);
    VF_UNROLL
    for (int i = 0; i < VF_LANES; i++) top = vf_max(most[i], top);
    vf_store(g->m, top);
}

/* The sums of a group's weights, keys ascending from 0, as in tiles. */
VF_INLINE vf sums_in_order(const short_group *g, const real *S, int64_t ld)
{
    vf sum = vf_zero();
    VF_ROLLED
    for (int64_t j = 0; j < g->end; j += VF_LANES) {
        vf x[VF_LANES];
        VF_UNROLL
        for (int i = 0; i < VF_LANES; i++) x[i] = vf_load(S + least(i, g->rows - 1) * ld + j);
        vf_transpose(x);
        VF_UNROLL
        for (int i = 0; i < VF_LANES; i++) sum = vf_add(sum, x[i]);
    }
    return sum;
}

/* S = exp(S - m), and 0 for at least VF_MAX_ROWS of the n keys past those that a row sees; returns the sum of each row. */
VF_INLINE vf exponentiate_group(const short_group *g, int64_t n, const int in_order, real *S, int64_t ld, vf lane)
{
    const int64_t last = least(g->end + VF_MAX_ROWS, n);
    vf sum[VF_LANES];
    for (int i = g->rows; i < VF_LANES; i++) sum[i] = vf_zero();
    VF_ROLLED
    for (int k = 0; k < g->rows; k += SHORT_FOUR) {
        real *rows = S + k * ld;
        vf p[SHORT_FOUR], at[SHORT_FOUR], all[SHORT_FOUR];
        int64_t j = 0;
        VF_UNROLL
        for (int i = 0; i < SHORT_FOUR; i++) all[i] = vf_zero(), at[i] = vf_set(g->m[k + i]);
        VF_ROLLED
        for (; j < g->end; j += VF_LANES) {
            VF_UNROLL
            for (int i = 0; i < SHORT_FOUR; i++) p[i] = vf_exp(vf_sub(vf_load(rows + i * ld + j), at[i]));
            if (j >= g->whole) {
                VF_UNROLL
                for (int i = 0; i < SHORT_FOUR; i++) p[i] = seen_or(g->keys + k + i, j, lane, p[i], vf_zero());
            }
            VF_UNROLL
            for (int i = 0; i < SHORT_FOUR; i++) vf_store(rows + i * ld + j, p[i]), all[i] = vf_add(all[i], p[i]);
        }
        VF_ROLLED
        for (; j < last; j += VF_LANES) {
            VF_UNROLL
            for (int i = 0; i < SHORT_FOUR; i++) vf_store(rows + i * ld + j, vf_zero());
        }
        VF_UNROLL
        for (int i = 0; i < SHORT_FOUR; i++) sum[k + i] = all[i];
    }
    return in_order ? sums_in_order(g, S, ld) : vf_sums(sum);
}

/* in_order: a block of keys is absorbed as in tiles, and `factors` are those of the earlier sums. */
VF_INLINE void exponentiate_short(const int in_order, int64_t rows, int64_t n, int64_t sees, real *S, int64_t ld, real *m, real *l,
                                  real *factors)
{
    const vf lane = lane_index(0, VF_LANES);
    short_group groups[2]; /* the next group's maxima are found before this one fills the pipes: they take long */
    start_group(0, rows, n, sees, S, ld, lane, &groups[0]);
    for (int64_t first = 0, at = 0; first < rows; first += VF_LANES, at ^= 1) {
        short_group *g = &groups[at];
        vf factor = vf_zero();
        if (first + VF_LANES < rows) start_group(first + VF_LANES, rows, n, sees, S, ld, lane, &groups[at ^ 1]);
        if (in_order) {
            const vf old = vf_load(m + first), most = vf_load(g->m);
            vf_store(g->m, vf_select(vf_gt(most, vf_add(old, vf_set(grow_limit))), most, old));
            factor = vf_exp(vf_sub(old, vf_load(g->m)));
        }
        const vf sum = exponentiate_group(g, n, in_order, S + first * ld, ld, lane);
        vf_store(m + first, vf_load(g->m));
        vf_store(l + first, in_order ? vf_fma(vf_load(l + first), factor, sum) : sum);
        if (in_order) vf_store(factors + first, factor);
    }
}

static void step_short_exponentiate(int64_t rows, int64_t n, int64_t sees, void *S, int64_t ld, void *m, void *l)
{
    exponentiate_short(0, rows, n, sees, S, ld, m, l, NULL);
}

static void step_short_absorb(int64_t rows, int64_t n, int64_t sees, void *S, int64_t ld, void *m, void *l, void *factors)
{
    exponentiate_short(1, rows, n, sees, S, ld, m, l, factors);
}

static void step_short_begin(int64_t rows, void *m, void *l)
{
    for (int64_t i = 0; i < rows; i += VF_LANES) {
        vf_store((real *)m + i, vf_set(REAL_LOWEST));
        vf_store((real *)l + i, vf_zero());
    }
}

/* Returns 1 if some l is 0. */
static int step_short_finish(int64_t rows, const void *most, void *sums, void *lse, int64_t lse_stride)
{
    int empty = 0;
    const real *m = most;
    real *l = sums;
    for (int64_t i = 0; lse && i < rows; i++)
        ((real *)lse)[i * lse_stride] = l[i] == 0 ? -(real)INFINITY : (real)((double)m[i] + log((double)l[i]));
    for (int64_t i = 0; i < rows; i += VF_LANES) {
        const vf all = vf_load(l + i);
        const vm none = vf_eq(all, vf_zero());
        vf_store(l + i, vf_select(none, vf_zero(), vf_div(vf_set(1), all)));
        empty |= vm_any(none);
    }
    return empty;
}

/* ---- products with rows ---- */

/* As tiles finish: a result that underflowed to -0 becomes 0. */
VF_INLINE vf times_factor(vf x, vf factor) { return vf_fma(x, factor, vf_zero()); }

VF_INLINE void short_product_rows(const int rows, const int width, const attn_short_product *p, int64_t m, int64_t c,
                                  attn_prefetch *prefetch, vf *bad)
{
    const int64_t from = clamped(m + p->from, p->steps), to = clamped(m + rows - 1 + p->to, p->steps);
    const int64_t steps = to > from ? to - from : 0;
    const real *factor = (const real *)p->factors + m * p->factor_step;
    real *C = (real *)p->C + m * p->ldc + c;
    vf acc[VF_MAX_ROWS][VF_VECTORS];
    prefetch_during(prefetch, rows * width, steps);
    product_rows(rows, width, steps, (const real *)p->A + m * p->row + from * p->step, p->row, p->step,
                 (const real *)p->B + from * p->ldb + c, p->ldb, acc);
    VF_UNROLL
    for (int i = 0; i < rows; i++, C += p->ldc, factor += p->factor_step) {
        VF_UNROLL
        for (int v = 0; v < width; v++) {
            vf x = times_factor(acc[i][v], VF_ELEMENT(factor));
            bad[v] = vf_fma(x, vf_zero(), bad[v]); /* 0 times a finite number is 0, else NaN */
            vf_store(C + v * VF_LANES, x);
        }
    }
}

/* The channels of a strip from c on; returns 1 if one is not finite. */
VF_INLINE int short_product_strip(const int width, const attn_short_product *product, int64_t c, attn_prefetch *prefetch)
{
    const attn_short_product p = *product; /* a copy that no store can change */
    int64_t m = 0;
    vf bad[VF_VECTORS];
    VF_UNROLL
    for (int v = 0; v < width; v++) bad[v] = vf_zero();
#define PRODUCT(rows)                                                                                                              \
    do {                                                                                                                           \
        short_product_rows(rows, width, &p, m, c, prefetch, bad);                                                                  \
        m += (rows);                                                                                                               \
    } while (0)
    SHORT_TILES(VF_ROWS(width), p.rows, m, PRODUCT);
#undef PRODUCT
    VF_UNROLL
    for (int v = 1; v < width; v++) bad[0] = vf_add(bad[0], bad[v]);
    return !all_zero(bad[0]);
}

#define SHORT_PRODUCT(width)                                                                                                       \
    static VF_NOINLINE int short_product_##width(const attn_short_product *p, int64_t c, attn_prefetch *prefetch)                  \
    {                                                                                                                              \
        return short_product_strip(width, p, c, prefetch);                                                                         \
    }
VF_WIDTHS(SHORT_PRODUCT)

/* Vectors of a strip if `left` channels are left: avoids strips of a single vector. */
static int strip_width(int64_t left)
{
    const int64_t vectors = left / VF_LANES;
    return (int)(vectors == VF_VECTORS + 1 ? (VF_VECTORS + 1) / 2 : least(vectors, VF_VECTORS));
}

static int step_short_product(const attn_short_product *p, attn_prefetch *prefetch)
{
    int bad = 0;
    for (int64_t c = 0; c < p->dim;) {
        const int width = strip_width(p->dim - c);
        VF_CALL_WIDTH(bad |= short_product, width, p, c, prefetch);
        c += width * VF_LANES;
    }
    return bad;
}

static void step_short_product_nan_safe(const attn_short_product *p)
{
    for (int64_t m = 0; m < p->rows; m++) {
        const int64_t from = clamped(m + p->from, p->steps), to = clamped(m + p->to, p->steps);
        const vf factor = vf_set(((const real *)p->factors)[m * p->factor_step]);
        for (int64_t c = 0; c < p->dim; c += VF_LANES) {
            vf sum = vf_zero();
            for (int64_t k = from; k < to; k++)
                sum = vf_fma(vf_set(((const real *)p->A)[m * p->row + k * p->step]), vf_load((const real *)p->B + k * p->ldb + c),
                             sum);
            vf_store((real *)p->C + m * p->ldc + c, times_factor(sum, factor));
        }
    }
}

/* C = C factor + X, times 1 / l if that is given. */
static void step_short_join(int64_t rows, int64_t dim, const void *factors, const void *inverse, const void *X, int64_t ldx,
                            void *C, int64_t ldc)
{
    for (int64_t i = 0; i < rows; i++) {
        const vf factor = vf_set(((const real *)factors)[i]), last = inverse ? vf_set(((const real *)inverse)[i]) : vf_zero();
        const real *x = (const real *)X + i * ldx;
        real *c = (real *)C + i * ldc;
        for (int64_t k = 0; k < dim; k += VF_LANES) {
            const vf all = vf_fma(vf_load(c + k), factor, vf_load(x + k));
            vf_store(c + k, inverse ? times_factor(all, last) : all);
        }
    }
}

/* ---- a tile of queries in the lanes ---- */

VF_INLINE void exponentiate_lanes_block(const int width, int64_t n, real *S, real *m, real *factors)
{
    const vf lowest = vf_set(REAL_LOWEST);
    vf at[VF_VECTORS] = {lowest}, sum[VF_VECTORS];
    VF_UNROLL
    for (int v = 0; v < width; v++) at[v] = vf_max(vf_load(m + v * VF_LANES), lowest);
    weights_block(width, n, S, at, sum);
    VF_UNROLL
    for (int v = 0; v < width; v++) {
        vf_store(m + v * VF_LANES, at[v]);
        vf_store(factors + v * VF_LANES, sum[v]);
    }
}

static void step_lanes_score_in_order(int width, int64_t n, int64_t dim, const void *Qt, const void *K, int64_t ldk, void *S,
                                      void *block_max, const void *next, int64_t next_ld)
{
    const attn_prefetch_hint nothing = {0};
    step_score_beside_in_order(width, n, dim, Qt, K, ldk, S, block_max, next, next_ld, &nothing);
}

static int step_short_exponentiate_lanes(int width, int64_t rows, int64_t n, void *S, void *block_max, void *factors, void *lse,
                                         int64_t lse_stride)
{
    VF_EACH_WIDTH(exponentiate_lanes_block, width, n, S, block_max, factors);
    return step_short_finish(rows, block_max, factors, lse, lse_stride);
}

VF_INLINE void short_value_rows(const int rows, const int width, int64_t n, const real *P, const real *V, int64_t ldv,
                                const real *factors, real *O, int64_t ldo)
{
    vf acc[VF_MAX_ROWS][VF_VECTORS];
    product_rows(rows, width, n, P, 1, TILE, V, ldv, acc);
    VF_UNROLL
    for (int i = 0; i < rows; i++) {
        VF_UNROLL
        for (int v = 0; v < width; v++) vf_store(O + i * ldo + v * VF_LANES, times_factor(acc[i][v], VF_ELEMENT(factors + i)));
    }
}

VF_INLINE void short_value_strip(const int width, int64_t n_rows, int64_t n, const real *P, const real *V, int64_t ldv,
                                 const real *factors, real *O, int64_t ldo, attn_prefetch *prefetch)
{
    int64_t m = 0;
#define VALUES(rows)                                                                                                               \
    do {                                                                                                                           \
        prefetch_during(prefetch, 2 * (rows)*width, n); /* in half the time */                                                     \
        short_value_rows(rows, width, n, P + m, V, ldv, factors + m, O + m * ldo, ldo);                                            \
        m += (rows);                                                                                                               \
    } while (0)
    SHORT_TILES(VF_ROWS(width), n_rows, m, VALUES);
#undef VALUES
}

#define SHORT_VALUES(width)                                                                                                        \
    static VF_NOINLINE void short_values_##width(int64_t rows, int64_t n, const real *P, const real *V, int64_t ldv,               \
                                                 const real *factors, real *O, int64_t ldo, attn_prefetch *prefetch)               \
    {                                                                                                                              \
        short_value_strip(width, rows, n, P, V, ldv, factors, O, ldo, prefetch);                                                   \
    }
VF_WIDTHS(SHORT_VALUES)

static void step_short_values(int64_t rows, int64_t n, int64_t dim, const void *P, const void *V, int64_t ldv, const void *factors,
                              void *O, int64_t ldo, attn_prefetch *prefetch)
{
    prefetch_pages(prefetch);
    for (int64_t c = 0; c < dim;) {
        const int width = strip_width(dim - c);
        VF_CALL_WIDTH(short_values, width, rows, n, P, (const real *)V + c, ldv, factors, (real *)O + c, ldo, prefetch);
        c += width * VF_LANES;
    }
}

#include "short_four_step.inc.c"

#define ATTN_SMALL_PART                                                                                                            \
    {                                                                                                                              \
        .shape = ATTN_TILE_SHAPE, .score = step_short_score, .score_in_order = step_short_score_in_order,                          \
        .exponentiate = step_short_exponentiate, .begin = step_short_begin, .absorb = step_short_absorb,                           \
        .finish = step_short_finish, .product = step_short_product, .nan_safe = step_short_product_nan_safe,                       \
        .join = step_short_join,                                                                                                   \
        .tile = {step_score, step_lanes_score_in_order, step_short_exponentiate_lanes, step_short_values}, .four = ATTN_FOUR_STEPS \
    }

#endif

#endif
