/* SPDX-License-Identifier: MIT
 *
 * linear_step.inc.c - what linear attention does to a tile of queries and to its state, beside the products of forward and
 * backward: weights without softmax, products with the state in both orientations, and the state's update.  Included by
 * linear.inc.c.
 */
#ifdef VF_LANES

/*
 * One vector of lanes, at tokens at + lane, over rows of S at tokens 0 .. n-1 (both counted from row 0).  A row is kept where it is
 * not after the lane (reverse: not before it).
 */
VF_INLINE void weigh_lanes(const int decayed, int64_t n, real *S, int64_t at, int reverse, vf add, const real *add_rows,
                           vf lane_log, const real *row_log, real *sum)
{
    int32_t steps[VF_LANES];
    for (int i = 0; i < VF_LANES; i++) steps[i] = i;
    const vf position = vf_of_i32(steps);
    vf total = vf_load(sum);
    for (int64_t r = 0; r < n; r++) {
        vf x = vf_add(vf_load(S + r * TILE), add);
        if (add_rows) x = vf_add(x, vf_set(add_rows[r]));
        if (decayed) {
            vf row = vf_set(row_log[r]);
            x = vf_mul(x, exp_finite(reverse ? vf_sub(row, lane_log) : vf_sub(lane_log, row)));
        }
        if (reverse ? r < at + VF_LANES - 1 : r > at) {
            vf row = vf_set((real)(r - at));
            x = vf_select(reverse ? vf_ge(row, position) : vf_ge(position, row), x, vf_zero());
        }
        vf_store(S + r * TILE, x);
        total = vf_add(total, x);
    }
    vf_store(sum, total);
}

static void step_weigh_triangle(int width, int64_t n, void *S, int64_t first, int reverse, const void *add_lanes,
                                const void *add_rows, const void *lane_log, const void *row_log, void *sums)
{
    for (int v = 0; v < width; v++) {
        const int64_t lane = v * VF_LANES;
        const vf add = add_lanes ? vf_load((const real *)add_lanes + lane) : vf_zero();
        if (row_log)
            weigh_lanes(1, n, (real *)S + lane, first + lane, reverse, add, add_rows, vf_load((const real *)lane_log + lane),
                        row_log, (real *)sums + lane);
        else weigh_lanes(0, n, (real *)S + lane, first + lane, reverse, add, add_rows, vf_zero(), NULL, (real *)sums + lane);
    }
}

/* Ot[c][lane] += sum_d St[c][d] Xt[d][lane]. */
VF_INLINE void through_rows(const int rows, const int width, int64_t dim, const real *Xt, const real *St, int64_t ld, real *Ot)
{
    vf acc[VF_MOST_ROWS][VF_VECTORS];
    ahead none = {.at = (uintptr_t)St, .rows = (uintptr_t)St};
    product(rows, width, dim, St, ld, 1, Xt, &none, acc);
    VF_UNROLL
    for (int i = 0; i < rows; i++) {
        VF_UNROLL
        for (int v = 0; v < width; v++) {
            real *o = Ot + i * TILE + v * VF_LANES;
            vf_store(o, vf_add(vf_load(o), acc[i][v]));
        }
    }
}

/* Row tiles over `n` rows: as many full ones as fit, then what is left. */
#define EACH_ROWS(width, n, f, ...)                                                                                                \
    do {                                                                                                                           \
        int64_t at = 0;                                                                                                            \
        for (; at + VF_ROWS(width) <= (n); at += VF_ROWS(width)) f(VF_ROWS(width), __VA_ARGS__);                                   \
        if (VF_ROWS(width) > 8 && (n)-at >= 8) {                                                                                   \
            f(8, __VA_ARGS__);                                                                                                     \
            at += 8;                                                                                                               \
        }                                                                                                                          \
        if (VF_ROWS(width) > 4 && (n)-at >= 4) {                                                                                   \
            f(4, __VA_ARGS__);                                                                                                     \
            at += 4;                                                                                                               \
        }                                                                                                                          \
        if ((n)-at >= 2) {                                                                                                         \
            f(2, __VA_ARGS__);                                                                                                     \
            at += 2;                                                                                                               \
        }                                                                                                                          \
        if ((n)-at >= 1) f(1, __VA_ARGS__);                                                                                        \
    } while (0)

VF_INLINE void through_block(const int width, int64_t n, int64_t dim, const real *Xt, const real *St, int64_t ld, real *Ot)
{
    EACH_ROWS(width, n, through_rows, width, dim, Xt, St + at * ld, ld, Ot + at * TILE);
}

static void step_add_through(int width, int64_t n, int64_t dim, const void *Xt, const void *St, int64_t ld, void *Ot)
{
    VF_EACH_WIDTH(through_block, width, n, dim, Xt, St, ld, Ot);
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

VF_INLINE void update_rows(const int rows, const int width, int64_t n, const real *K, int64_t ldk, const real *panel, real *St,
                           int64_t ld)
{
    vf acc[VF_MOST_ROWS][VF_VECTORS];
    ahead none = {.at = (uintptr_t)K, .rows = (uintptr_t)K};
    product(rows, width, n, K, 1, ldk, panel, &none, acc);
    VF_UNROLL
    for (int i = 0; i < rows; i++) {
        VF_UNROLL
        for (int v = 0; v < width; v++) {
            real *s = St + i * ld + v * VF_LANES;
            vf_store(s, vf_add(vf_load(s), acc[i][v]));
        }
    }
}

VF_INLINE void update_panel(const int width, int64_t n, int64_t dim, const real *K, int64_t ldk, const real *panel, real *St,
                            int64_t ld)
{
    EACH_ROWS(width, dim, update_rows, width, n, K + at, ldk, panel, St + at * ld, ld);
}

static void step_update_state(int64_t n, int64_t dim_k, int64_t dim_v, const void *K, int64_t ldk, const void *panels, void *St,
                              int64_t ld)
{
    const real *panel = panels;
    for (int64_t first = 0; first < dim_v; first += TILE, panel += n * TILE) {
        int width = (int)least((dim_v - first + VF_LANES - 1) / VF_LANES, VF_VECTORS);
        VF_EACH_WIDTH(update_panel, width, n, dim_k, K, ldk, panel, (real *)St + first, ld);
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
