/* SPDX-License-Identifier: MIT
 *
 * short_step.inc.c - the steps of short heads (attn_short_kernel of kernel.h): rows stay rows, and keys lie in the lanes.
 * Included by forward.inc.c.
 */
#ifdef VF_LANES

VF_INLINE int all_zero(vf x) { return !vm_any(vf_bits(x)); }

VF_INLINE int64_t clamped(int64_t x, int64_t most) { return x < 0 ? 0 : least(x, most); }

/*
 * STEP(rows) for register tiles of a width that together have n rows, i being the next one.  Where fewer than 4 are left the last
 * 4 are done, some of them again: a row's numbers do not depend on those beside it.
 */
#define SHORT_TILES(width, n, i, STEP)                                                                                             \
    do {                                                                                                                           \
        while ((n) - (i) >= VF_ROWS(width) && (VF_ROWS(width) != 6 || (n) - (i) != 8)) STEP(VF_ROWS(width)); /* 8 are 4 + 4 */     \
        if (VF_ROWS(width) > 8 && (n) - (i) >= 8) STEP(8);                                                                         \
        while (VF_ROWS(width) > 4 && (n) - (i) >= 4) STEP(4);                                                                      \
        if ((i) < (n) && (n) >= 4) {                                                                                               \
            (i) = (n)-4;                                                                                                           \
            STEP(4);                                                                                                               \
        }                                                                                                                          \
        while ((i) < (n)) STEP(1);                                                                                                 \
    } while (0)

/* ---- scores ---- */

VF_INLINE void short_scores(const int rows, const int width, int64_t dim, const real *X, int64_t ldx, const real *Kt, real *S,
                            int64_t ld)
{
    vf acc[VF_MOST_ROWS][VF_VECTORS];
    ahead none = {.at = (uintptr_t)X};
    product(rows, width, dim, X, ldx, 1, Kt, &none, acc);
    VF_UNROLL
    for (int i = 0; i < rows; i++) {
        VF_UNROLL
        for (int v = 0; v < width; v++) vf_store(S + i * ld + v * VF_LANES, acc[i][v]);
    }
}

VF_INLINE void short_score_block(const int width, int64_t n, int64_t dim, const real *X, int64_t ldx, const real *Kt, real *S,
                                 int64_t ld, attn_soon *soon)
{
    int64_t i = 0;
#define SCORE(rows)                                                                                                                \
    do {                                                                                                                           \
        ask_while(soon, (rows)*width, dim);                                                                                        \
        short_scores(rows, width, dim, X + i * ldx, ldx, Kt, S + i * ld, ld);                                                      \
        i += (rows);                                                                                                               \
    } while (0)
    SHORT_TILES(width, n, i, SCORE);
#undef SCORE
}

static void step_short_score(int width, int64_t rows, int64_t dim, const void *X, int64_t ldx, const void *Kt, int64_t sees,
                             void *S, int64_t ld, attn_soon *soon)
{
    /* The first row that sees lane l is l - sees + 1. */
    ask_pages(soon);
    for (int w = 1; w <= width; w++) {
        const int64_t first = clamped((w - 1) * VF_LANES - sees + 1, rows);
        const int64_t end = w < width ? clamped(w * VF_LANES - sees + 1, rows) : rows;
        VF_EACH_WIDTH(short_score_block, w, end - first, dim, (const real *)X + first * ldx, ldx, Kt, (real *)S + first * ld, ld,
                      soon);
    }
}

/* ---- weights ---- */

/* The largest of n scores, in some lane. */
VF_INLINE vf most_of_row(int64_t n, const real *S, vf lane)
{
    vf most = vf_set(-(real)INFINITY);
    int64_t j = 0;
    for (; j + VF_LANES <= n; j += VF_LANES) most = vf_max(vf_load(S + j), most);
    if (j < n) most = vf_max(vf_select(vf_gt(vf_set((real)(n - j)), lane), vf_load(S + j), vf_set(-(real)INFINITY)), most);
    return most;
}

/* S = exp(S - at) for n scores, and 0 for at least VF_MOST_ROWS behind them, as far as the row goes; returns sums by lane. */
VF_INLINE vf weigh_row(int64_t n, int64_t ld, real *S, vf at, vf lane)
{
    vf sum = vf_zero();
    int64_t j = 0, end = least(n + VF_MOST_ROWS, ld);
    for (; j + VF_LANES <= n; j += VF_LANES) {
        vf p = vf_exp(vf_sub(vf_load(S + j), at));
        vf_store(S + j, p);
        sum = vf_add(sum, p);
    }
    if (j < n) {
        vf p = vf_select(vf_gt(vf_set((real)(n - j)), lane), vf_exp(vf_sub(vf_load(S + j), at)), vf_zero());
        vf_store(S + j, p);
        sum = vf_add(sum, p);
        j += VF_LANES;
    }
    for (; j < end; j += VF_LANES) vf_store(S + j, vf_zero());
    return sum;
}

static void step_short_weigh(int64_t rows, int64_t n, int64_t sees, void *S, int64_t ld, void *factors, void *lse,
                             int64_t lse_stride)
{
    const vf lane = lane_index(0, VF_LANES);
    for (int64_t first = 0; first < rows; first += VF_LANES) {
        const int64_t count = least(rows - first, VF_LANES);
        real *row = (real *)S + first * ld, m[VF_LANES], l[VF_LANES];
        vf most[VF_LANES], sum[VF_LANES], top = vf_set(REAL_LOWEST);
        for (int i = 0; i < VF_LANES; i++) most[i] = sum[i] = vf_zero();
        for (int i = 0; i < count; i++) most[i] = most_of_row(clamped(sees + first + i, n), row + i * ld, lane);
        vf_transpose(most);
        VF_UNROLL
        for (int i = 0; i < VF_LANES; i++) top = vf_max(most[i], top);
        vf_store(m, top);
        for (int i = 0; i < count; i++) sum[i] = weigh_row(clamped(sees + first + i, n), ld, row + i * ld, vf_set(m[i]), lane);
        const vf all = vf_sums(sum);
        vf_store((real *)factors + first, vf_select(vf_eq(all, vf_zero()), vf_zero(), vf_div(vf_set(1), all)));
        if (!lse) continue;
        vf_store(l, all);
        for (int64_t i = 0; i < count; i++)
            ((real *)lse)[(first + i) * lse_stride] = l[i] == 0 ? -(real)INFINITY : (real)((double)m[i] + log((double)l[i]));
    }
}

/* ---- products with rows ---- */

VF_INLINE void short_product_rows(const int rows, const int width, const attn_short_product *p, int64_t m, int64_t c,
                                  attn_soon *soon, vf *bad)
{
    const int64_t from = clamped(m + p->from, p->steps), to = clamped(m + rows - 1 + p->to, p->steps);
    const int64_t steps = to > from ? to - from : 0;
    const real *factor = (const real *)p->factors + m * p->factor_step;
    real *C = (real *)p->C + m * p->ldc + c;
    vf acc[VF_MOST_ROWS][VF_VECTORS];
    ask_while(soon, rows * width, steps);
    product_rows(rows, width, steps, (const real *)p->A + m * p->row + from * p->step, p->row, p->step,
                 (const real *)p->B + from * p->ldb + c, p->ldb, acc);
    VF_UNROLL
    for (int i = 0; i < rows; i++, C += p->ldc, factor += p->factor_step) {
        VF_UNROLL
        for (int v = 0; v < width; v++) {
            vf x = vf_mul(acc[i][v], VF_ELEMENT(factor));
            *bad = vf_fma(x, vf_zero(), *bad); /* 0 times anything finite is 0, else NaN */
            vf_store(C + v * VF_LANES, x);
        }
    }
}

VF_INLINE void short_product_strip(const int width, const attn_short_product *p, int64_t c, attn_soon *soon, vf *bad)
{
    int64_t m = 0;
#define PRODUCT(rows)                                                                                                              \
    do {                                                                                                                           \
        short_product_rows(rows, width, p, m, c, soon, bad);                                                                       \
        m += (rows);                                                                                                               \
    } while (0)
    SHORT_TILES(width, p->rows, m, PRODUCT);
#undef PRODUCT
}

static int step_short_product(const attn_short_product *product, attn_soon *soon)
{
    const attn_short_product p = *product; /* which no store can change */
    vf bad = vf_zero();
    for (int64_t c = 0, width; c < p.dim; c += width * VF_LANES) {
        const int64_t left = (p.dim - c) / VF_LANES;
        width = left == VF_VECTORS + 1 ? (VF_VECTORS + 1) / 2 : least(left, VF_VECTORS); /* no strip of one vector */
        VF_EACH_WIDTH(short_product_strip, (int)width, &p, c, soon, &bad);
    }
    return !all_zero(bad);
}

static void step_short_product_careful(const attn_short_product *p)
{
    for (int64_t m = 0; m < p->rows; m++) {
        const int64_t from = clamped(m + p->from, p->steps), to = clamped(m + p->to, p->steps);
        const vf factor = vf_set(((const real *)p->factors)[m * p->factor_step]);
        for (int64_t c = 0; c < p->dim; c += VF_LANES) {
            vf sum = vf_zero();
            for (int64_t k = from; k < to; k++)
                sum = vf_fma(vf_set(((const real *)p->A)[m * p->row + k * p->step]), vf_load((const real *)p->B + k * p->ldb + c),
                             sum);
            vf_store((real *)p->C + m * p->ldc + c, vf_mul(sum, factor));
        }
    }
}

#endif
