/* SPDX-License-Identifier: MIT
 *
 * linear_step.inc.c - the steps of linear attention on a tile of queries and the state, other than the products of forward and
 * backward: weights without softmax, products with the state in both orientations, and the state's update.  Included by
 * linear.inc.c.
 */
#ifdef VF_LANES

/* One vector of lanes, at tokens at + lane, over rows from .. to-1 of S; tokens of both are counted from row 0.  cut: a row is kept
 * if it is not after the lane (reverse: not before it). */
VF_INLINE vf decay_triangle_rows(const int decayed, const int cut, int64_t from, int64_t to, real *S, int64_t at, int reverse,
                                 vf add, const real *add_rows, vf lane_log, const real *row_log, vf total)
{
    int32_t steps[VF_LANES];
    for (int i = 0; i < VF_LANES; i++) steps[i] = i;
    const vf position = vf_of_i32(steps);
    for (int64_t r = from; r < to; r++) {
        vf x = vf_add(vf_load(S + r * TILE), add);
        if (add_rows) x = vf_add(x, vf_set(add_rows[r]));
        if (decayed) {
            vf row = vf_set(row_log[r]);
            x = vf_mul(x, exp_finite(reverse ? vf_sub(row, lane_log) : vf_sub(lane_log, row)));
        }
        if (cut) {
            vf row = vf_set((real)(r - at));
            x = vf_select(reverse ? vf_ge(row, position) : vf_ge(position, row), x, vf_zero());
        }
        vf_store(S + r * TILE, x);
        total = vf_add(total, x);
    }
    return total;
}

VF_INLINE vf sum_rows(int64_t from, int64_t to, const real *S, vf total)
{
    for (int64_t r = from; r < to; r++) total = vf_add(total, vf_load(S + r * TILE));
    return total;
}

static void step_decay_triangle(int width, int64_t n, void *S, int64_t first, int reverse, const void *add_lanes,
                                const void *add_rows, const void *lane_log, const void *row_log, void *sums)
{
    for (int v = 0; v < width; v++) {
        const int64_t lane = v * VF_LANES, at = first + lane;
        const int64_t edge = reverse ? at + VF_LANES - 1 : at + 1, split = edge < 0 ? 0 : least(edge, n);
        const int64_t kept = reverse ? split : 0, kept_end = reverse ? n : split; /* rows that every lane keeps */
        const int64_t cut = reverse ? 0 : split, cut_end = reverse ? split : n;
        const vf add = add_lanes ? vf_load((const real *)add_lanes + lane) : vf_zero();
        const vf log = row_log ? vf_load((const real *)lane_log + lane) : vf_zero();
        real *column = (real *)S + lane;
        vf total = sums ? vf_load((const real *)sums + lane) : vf_zero();
        if (row_log) {
            total = decay_triangle_rows(1, 0, kept, kept_end, column, at, reverse, add, add_rows, log, row_log, total);
            total = decay_triangle_rows(1, 1, cut, cut_end, column, at, reverse, add, add_rows, log, row_log, total);
        } else {
            if (add_lanes || add_rows)
                total = decay_triangle_rows(0, 0, kept, kept_end, column, at, reverse, add, add_rows, log, NULL, total);
            else if (sums) total = sum_rows(kept, kept_end, column, total);
            total = decay_triangle_rows(0, 1, cut, cut_end, column, at, reverse, add, add_rows, log, NULL, total);
        }
        if (sums) vf_store((real *)sums + lane, total);
    }
}

/* Row tiles over `n` rows: full ones, then the rest. */
#define EACH_ROWS(width, n, f, ...)                                                                                                \
    do {                                                                                                                           \
        int64_t at = 0;                                                                                                            \
        for (; at + VF_ROWS(width) <= (n); at += VF_ROWS(width)) f(VF_ROWS(width), __VA_ARGS__);                                   \
        if (VF_TAILS && VF_ROWS(width) > 8 && (n)-at >= 8) {                                                                       \
            f(8, __VA_ARGS__);                                                                                                     \
            at += 8;                                                                                                               \
        }                                                                                                                          \
        if (VF_TAILS && VF_ROWS(width) > 4 && (n)-at >= 4) {                                                                       \
            f(4, __VA_ARGS__);                                                                                                     \
            at += 4;                                                                                                               \
        }                                                                                                                          \
        if (VF_TAILS && (n)-at >= 2) {                                                                                             \
            f(2, __VA_ARGS__);                                                                                                     \
            at += 2;                                                                                                               \
        }                                                                                                                          \
        for (; (n)-at >= 1; at++) f(1, __VA_ARGS__);                                                                               \
    } while (0)

/* C[i][lane] = (add: +=) sum_k A[i*row + k*step] Xt[k][lane] in a register tile. */
VF_INLINE void rows_times(const int rows, const int width, const int add, int64_t steps, const real *A, int64_t row, int64_t step,
                          const real *Xt, real *C, int64_t ldc, attn_prefetch *prefetch)
{
    vf acc[VF_MAX_ROWS][VF_VECTORS];
    prefetch_stream none = {.at = (uintptr_t)A, .rows = (uintptr_t)A};
    prefetch_during(prefetch, rows * width, steps);
    product(rows, width, steps, A, row, step, Xt, &none, acc);
    VF_UNROLL
    for (int i = 0; i < rows; i++) {
        VF_UNROLL
        for (int v = 0; v < width; v++) {
            real *c = C + i * ldc + v * VF_LANES;
            vf_store(c, add ? vf_add(vf_load(c), acc[i][v]) : acc[i][v]);
        }
    }
}

VF_INLINE void pairs_block(const int width, int64_t n, int64_t dim, const real *Xt, const real *K, int64_t ldk, real *S,
                           attn_prefetch *prefetch)
{
    EACH_ROWS(width, n, rows_times, width, 0, dim, K + at * ldk, ldk, 1, Xt, S + at * TILE, TILE, prefetch);
}

static void step_pairs(int width, int64_t n, int64_t dim, const void *Xt, const void *K, int64_t ldk, void *S,
                       attn_prefetch *prefetch)
{
    prefetch_pages(prefetch);
    VF_EACH_WIDTH(pairs_block, width, n, dim, Xt, K, ldk, S, prefetch);
}

VF_INLINE void read_block(const int width, const int add, int64_t n, int64_t dim, const real *Xt, const real *V, int64_t ldv,
                          real *Ot, attn_prefetch *prefetch)
{
    EACH_ROWS(width, dim, rows_times, width, add, n, V + at, 1, ldv, Xt, Ot + at * TILE, TILE, prefetch);
}

static void step_read(int width, int64_t n, int64_t dim, const void *Xt, const void *V, int64_t ldv, int add, void *Ot,
                      attn_prefetch *prefetch)
{
    prefetch_pages(prefetch);
    if (add) VF_EACH_WIDTH(read_block, width, 1, n, dim, Xt, V, ldv, Ot, prefetch);
    else VF_EACH_WIDTH(read_block, width, 0, n, dim, Xt, V, ldv, Ot, prefetch);
}

static void step_read_nan_safe(int width, int64_t n, int64_t dim, const void *Xt, const void *V, int64_t ldv, void *Ot)
{
    for (int64_t c = 0; c < dim; c++)
        for (int v = 0; v < width; v++) {
            real *to = (real *)Ot + c * TILE + v * VF_LANES;
            vf acc = vf_load(to);
            for (int64_t j = 0; j < n; j++) {
                const vf x = vf_load((const real *)Xt + j * TILE + v * VF_LANES);
                acc = vf_select(vf_eq(x, vf_zero()), acc, vf_fma(vf_set(((const real *)V)[j * ldv + c]), x, acc));
            }
            vf_store(to, acc);
        }
}

/* Rows in the compute type; sum becomes NaN if one of them has NaN or an infinity. */
VF_INLINE void take_rows_as(const attn_dtype dtype, int64_t n, int64_t dim, const void *src, int64_t stride, real *dst, int64_t ld,
                            vf *sum)
{
    for (int64_t j = 0; j < n; j++)
        for (int64_t c = 0; c < dim; c += VF_LANES) {
            vf x = load_some(dtype, src, j * stride + c, dim - c);
            vf_store(dst + j * ld + c, x);
            *sum = vf_fma(x, vf_zero(), *sum); /* 0 times a finite number is 0, else NaN */
        }
}

static int step_take_rows(int64_t n, int64_t dim, const void *src, attn_dtype dtype, int64_t stride, void *dst, int64_t ld)
{
    vf sum = vf_zero();
    EACH_STORAGE(take_rows_as, dtype, n, dim, src, stride, dst, ld, &sum);
    return !vm_any(vf_bits(sum));
}

static void step_pack_panels(int64_t n, int64_t dim, const void *X, int64_t ld, const void *weights, void *panels)
{
    real *to = panels;
    for (int64_t first = 0; first < dim; first += TILE)
        for (int64_t j = 0; j < n; j++, to += TILE) {
            const vf weight = vf_set(weights ? ((const real *)weights)[j] : 1);
            for (int v = 0; v < VF_VECTORS; v++) {
                int64_t c = first + v * VF_LANES;
                if (c >= dim) continue;
                vf x = load_some(REAL_DTYPE, (const real *)X, j * ld + c, dim - c);
                vf_store(to + v * VF_LANES, weights ? vf_mul(weight, x) : x);
            }
        }
}

VF_INLINE void update_panel(const int width, int64_t n, int64_t dim, const real *K, int64_t ldk, const real *panel, real *St,
                            int64_t ld, attn_prefetch *prefetch)
{
    EACH_ROWS(width, dim, rows_times, width, 1, n, K + at, 1, ldk, panel, St + at * ld, ld, prefetch);
}

static void step_update_state(int64_t n, int64_t dim_k, int64_t dim_v, const void *K, int64_t ldk, const void *panels, void *St,
                              int64_t ld, attn_prefetch *prefetch)
{
    const real *panel = panels;
    prefetch_pages(prefetch);
    for (int64_t first = 0; first < dim_v; first += TILE, panel += n * TILE) {
        int width = (int)least((dim_v - first + VF_LANES - 1) / VF_LANES, VF_VECTORS);
        VF_EACH_WIDTH(update_panel, width, n, dim_k, K, ldk, panel, (real *)St + first, ld, prefetch);
    }
}

static void step_add_columns(int64_t n, int64_t dim, const void *X, int64_t ld, const void *weights, void *z)
{
    for (int64_t c = 0; c < dim; c += VF_LANES) {
        vf sum = vf_zero();
        for (int64_t j = 0; j < n; j++) {
            vf x = load_some(REAL_DTYPE, (const real *)X, j * ld + c, dim - c);
            sum = weights ? vf_fma(vf_set(((const real *)weights)[j]), x, sum) : vf_add(sum, x);
        }
        store_some(REAL_DTYPE, z, c, vf_add(load_some(REAL_DTYPE, z, c, dim - c), sum), dim - c);
    }
}

static void step_add_lanes(int width, int64_t dim, const void *z, const void *lanes, void *Ot)
{
    for (int v = 0; v < width; v++) {
        const vf factor = lanes ? vf_load((const real *)lanes + v * VF_LANES) : vf_set(1);
        for (int64_t c = 0; c < dim; c++) {
            real *o = (real *)Ot + c * TILE + v * VF_LANES;
            vf_store(o, vf_fma(factor, vf_set(((const real *)z)[c]), vf_load(o)));
        }
    }
}

static void step_dot_lanes(int width, int64_t dim, const void *z, const void *Xt, void *sums)
{
    for (int v = 0; v < width; v++) {
        real *to = (real *)sums + v * VF_LANES;
        vf sum = vf_load(to), other = vf_zero();
        int64_t c = 0;
        for (; c + 2 <= dim; c += 2) {
            sum = vf_fma(vf_set(((const real *)z)[c]), vf_load((const real *)Xt + c * TILE + v * VF_LANES), sum);
            other = vf_fma(vf_set(((const real *)z)[c + 1]), vf_load((const real *)Xt + (c + 1) * TILE + v * VF_LANES), other);
        }
        if (c < dim) sum = vf_fma(vf_set(((const real *)z)[c]), vf_load((const real *)Xt + c * TILE + v * VF_LANES), sum);
        vf_store(to, vf_add(sum, other));
    }
}

static void step_inner_lanes(int width, int64_t dim, const void *Xt, const void *Yt, void *sums)
{
    for (int v = 0; v < width; v++) {
        vf sum = vf_zero();
        for (int64_t c = 0; c < dim; c++) {
            const int64_t at = c * TILE + v * VF_LANES;
            sum = vf_fma(vf_load((const real *)Xt + at), vf_load((const real *)Yt + at), sum);
        }
        vf_store((real *)sums + v * VF_LANES, sum);
    }
}

static void step_scale_lanes(int width, int64_t n, const void *factors, void *X)
{
    for (int v = 0; v < width; v++) {
        const vf factor = vf_load((const real *)factors + v * VF_LANES);
        for (int64_t c = 0; c < n; c++) {
            real *x = (real *)X + c * TILE + v * VF_LANES;
            vf_store(x, vf_mul(vf_load(x), factor));
        }
    }
}

static void step_row_terms(int64_t n, int64_t dim, void *A, int64_t lda, const void *O, int64_t ldo, const void *factors,
                           void *terms)
{
    for (int64_t i = 0; i < n; i++) {
        real *a = (real *)A + i * lda;
        const vf factor = vf_set(factors ? ((const real *)factors)[i] : 1);
        vf sum = vf_zero();
        for (int64_t c = 0; c < dim; c += VF_LANES) {
            vf x = vf_mul(factor, load_some(REAL_DTYPE, a, c, dim - c));
            store_some(REAL_DTYPE, a, c, x, dim - c);
            if (terms) sum = vf_fma(x, load_some(REAL_DTYPE, (const real *)O, i * ldo + c, dim - c), sum);
        }
        if (terms) ((real *)terms)[i] = -sum_of_lanes(sum);
    }
}

#endif
