/* SPDX-License-Identifier: MIT
 *
 * gradient_step.inc.c - the steps of backward.  Three of its five products are those of forward (S = K Q^T, dP = V dO^T and
 * dQ^T += K^T dS); the other two, dK += dS Q and dV += P dO, run along a tile's queries, with the channels in the lanes.
 * Included by backward.inc.c.
 */
#ifdef VF_LANES

/* Column panels: element (i, c) of a tile's rows at (c / TILE)*TILE*TILE + i*TILE + c % TILE, so that a product reads TILE columns
 * of one row as it reads the lanes of a transposed tile. */
VF_INLINE int64_t panels_of(int64_t dim) { return (dim + TILE - 1) / TILE; }

VF_INLINE void pack_rows_as(const attn_dtype dtype, int64_t rows, int64_t dim, const void *src, int64_t stride, double scale,
                            real *dst, vf *sums)
{
    const vf factor = vf_set((real)scale);
    for (int64_t first = 0; first < dim; first += TILE, dst += TILE * TILE)
        for (int64_t i = 0; i < rows; i++)
            for (int v = 0; v < VF_VECTORS; v++) {
                int64_t c = first + v * VF_LANES;
                vf x = c < dim ? vf_mul(factor, load_some(dtype, src, i * stride + c, dim - c)) : vf_zero();
                vf_store(dst + i * TILE + v * VF_LANES, x);
                sums[v] = vf_fma(x, vf_zero(), sums[v]); /* 0 times a finite number is 0, else NaN */
            }
}

static int step_pack_rows(int64_t rows, int64_t dim, const void *src, attn_dtype dtype, int64_t stride, double scale, void *dst)
{
    vf sums[VF_VECTORS], sum = vf_zero();
    for (int v = 0; v < VF_VECTORS; v++) sums[v] = vf_zero();
    EACH_STORAGE(pack_rows_as, dtype, rows, dim, src, stride, scale, dst, sums);
    for (int v = 0; v < VF_VECTORS; v++) sum = vf_add(sum, sums[v]);
    return all_zero(sum);
}

static int step_rows_not_finite(int64_t n, int64_t dim, const void *K, int64_t ldk)
{
    vf sum = vf_zero();
    for (int64_t j = 0; j < n; j++)
        for (int64_t c = 0; c < dim; c += VF_LANES) sum = vf_fma(load_some(REAL_DTYPE, K, j * ldk + c, dim - c), vf_zero(), sum);
    return !all_zero(sum);
}

static void step_delta(int width, int64_t rows, int64_t dim_v, const void *dOt, const void *Ot, const void *lse, int64_t lse_stride,
                       const void *grad_lse, int64_t grad_lse_stride, int64_t live, void *delta, void *lse_lanes)
{
    for (int v = 0; v < width; v++) {
        vf sum = vf_zero();
        for (int64_t c = 0; c < dim_v; c++) {
            int64_t at = c * TILE + v * VF_LANES;
            vf o = vf_load((const real *)Ot + at), more = vf_fma(vf_load((const real *)dOt + at), o, sum);
            sum = vf_select(vf_eq(o, vf_zero()), sum, more); /* ignores the gradient of a fully masked row, NaN too */
        }
        vf_store((real *)delta + v * VF_LANES, sum);
    }
    for (int64_t i = 0; i < (int64_t)width * VF_LANES; i++) {
        int64_t row = least(i, rows - 1);
        real at = ((const real *)lse)[row * lse_stride];
        ((real *)lse_lanes)[i] = at == -(real)INFINITY || row >= live ? -REAL_LOWEST : at;
        if (grad_lse) ((real *)delta)[i] -= ((const real *)grad_lse)[row * grad_lse_stride];
    }
}

/* dS = P~ dP - P delta, or 0 where P is 0, whatever dP is.  P~ is P after dropout. */
VF_INLINE vf gradient_of_score(vf weight, vf after, vf dP, vf delta)
{
    vf kept = vf_select(vf_eq(after, vf_zero()), vf_zero(), vf_mul(after, dP));
    return vf_select(vf_eq(weight, vf_zero()), vf_zero(), vf_sub(kept, vf_mul(weight, delta)));
}

static void step_gradient(int width, int64_t n, void *S, void *dP, const void *lse, const void *delta, const attn_drop *drop,
                          double keep, void *scratch)
{
    real *after = drop ? scratch : S;
    weights_before_and_after(width, n, S, lse, drop, keep, after);
    for (int v = 0; v < width; v++) {
        vf less = vf_load((const real *)delta + v * VF_LANES);
        for (int64_t j = 0; j < n; j++) {
            int64_t k = j * TILE + v * VF_LANES;
            vf p = vf_load((const real *)S + k), a = vf_load(after + k);
            vf_store((real *)dP + k, gradient_of_score(p, a, vf_load((const real *)dP + k), less));
            if (drop) vf_store((real *)S + k, a);
        }
    }
}

static void step_multiply(int width, int64_t n, void *X, const void *Y)
{
    for (int64_t j = 0; j < n; j++)
        for (int v = 0; v < width; v++) {
            int64_t k = j * TILE + v * VF_LANES;
            vf_store((real *)X + k, times_if_any(vf_load((const real *)X + k), vf_load((const real *)Y + k)));
        }
}

/* C[j][c] += sum_i A[j][i] B[i][c] for one register tile of `rows` keys and `width` vectors of channels. */
VF_INLINE void outer_rows(const int rows, const int width, int64_t queries, const real *A, const real *B, real *C, int64_t ldc)
{
    vf acc[VF_MAX_ROWS][VF_VECTORS];
    prefetch_stream none = {.at = (uintptr_t)A, .rows = (uintptr_t)A};
    VF_UNROLL
    for (int i = 0; i < rows; i++) {
        VF_UNROLL
        for (int v = 0; v < width; v++) __builtin_prefetch(C + i * ldc + v * VF_LANES, 1, 3);
    }
    product(rows, width, queries, A, TILE, 1, B, &none, acc);
    VF_UNROLL
    for (int i = 0; i < rows; i++) {
        VF_UNROLL
        for (int v = 0; v < width; v++) {
            real *c = C + i * ldc + v * VF_LANES;
            vf_store(c, vf_add(vf_load(c), acc[i][v]));
        }
    }
}

VF_INLINE void outer_panel(const int width, int64_t n, int64_t queries, const real *A, const real *B, real *C, int64_t ldc,
                           attn_prefetch *prefetch)
{
    int64_t j = 0;
#define OUTER_ROWS(rows)                                                                                                           \
    do {                                                                                                                           \
        prefetch_lines(prefetch, queries / 2);                                                                                     \
        outer_rows(rows, width, queries, A + j * TILE, B, C + j * ldc, ldc);                                                       \
        j += (rows);                                                                                                               \
    } while (0)
    while (j + VF_ROWS(width) <= n) OUTER_ROWS(VF_ROWS(width));
    if (VF_ROWS(width) > 8 && n - j >= 8) OUTER_ROWS(8);
    if (VF_ROWS(width) > 4 && n - j >= 4) OUTER_ROWS(4);
    if (n - j >= 2) OUTER_ROWS(2);
    if (n - j >= 1) OUTER_ROWS(1);
#undef OUTER_ROWS
}

static void step_add_outer(int64_t n, int64_t rows, int64_t dim, const void *A, const void *panels, void *C, int64_t ldc,
                           attn_prefetch *prefetch)
{
    prefetch_pages(prefetch);
    for (int64_t p = 0; p < panels_of(dim); p++) {
        int64_t left = dim - p * TILE;
        int width = (int)least((left + VF_LANES - 1) / VF_LANES, VF_VECTORS);
        VF_EACH_WIDTH(outer_panel, width, n, rows, A, (const real *)panels + p * TILE * TILE, (real *)C + p * TILE, ldc, prefetch);
    }
}

/* The same chains without the queries for which A is 0, and so with the same bits where those are finite. */
static void step_add_outer_nan_safe(int64_t n, int64_t rows, int64_t dim, const void *A, const void *panels, void *C, int64_t ldc,
                                    attn_prefetch *prefetch)
{
    (void)prefetch;
    for (int64_t j = 0; j < n; j++)
        for (int64_t c = 0; c < dim; c += VF_LANES) {
            const real *b = (const real *)panels + c / TILE * TILE * TILE + c % TILE;
            real *to = (real *)C + j * ldc + c;
            vf acc = vf_zero();
            for (int64_t i = 0; i < rows; i++) {
                const real a = ((const real *)A)[j * TILE + i];
                if (a != 0) acc = vf_fma(vf_set(a), vf_load(b + i * TILE), acc); /* NaN too */
            }
            vf_store(to, vf_add(vf_load(to), acc));
        }
}

static void step_add(int64_t count, const void *src, void *dst)
{
    int64_t i = 0;
    for (; i + VF_LANES <= count; i += VF_LANES)
        vf_store((real *)dst + i, vf_add(vf_load((real *)dst + i), vf_load((const real *)src + i)));
    for (; i < count; i++) ((real *)dst)[i] += ((const real *)src)[i];
}

static double step_inner(int64_t rows, int64_t dim, const void *X, const void *Y)
{
    double sum = 0;
    for (int64_t c = 0; c < dim; c++)
        for (int64_t i = 0; i < rows; i++) {
            real y = ((const real *)Y)[c * TILE + i];
            if (y != 0) sum += (double)((const real *)X)[c * TILE + i] * (double)y;
        }
    return sum;
}

static double step_sum_distances(int64_t rows, int64_t n, const void *dS, double first)
{
    double sum = 0;
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < rows; i++) sum += (double)((const real *)dS)[j * TILE + i] * fabs(first + (double)i - (double)j);
    return sum;
}

/* Every VF_LANES-th key has a strip of its own: consecutive rows of a strip touch the same vectors or disjoint ones, never half of
 * one just written, for which the CPU would have to wait. */
static void step_sum_diagonals(int width, int64_t rows, int64_t n, const void *dS, void *scratch, double *sums)
{
    const int64_t length = n + (int64_t)width * VF_LANES - 1, ld = length + VF_LANES;
    real *strips = scratch;
    for (int64_t t = 0; t < VF_LANES * ld; t++) strips[t] = 0;
    for (int v = 0; v < width; v++) {
        int32_t index[VF_LANES];
        for (int i = 0; i < VF_LANES; i++) index[i] = (int32_t)(rows - v * VF_LANES - i);
        vm real_rows = vf_gt(vf_of_i32(index), vf_zero());
        for (int64_t j = 0; j < n; j++) {
            real *to = strips + j % VF_LANES * ld + (n - 1 - j) + v * VF_LANES;
            vf s = vf_load((const real *)dS + j * TILE + v * VF_LANES);
            vf_store(to, vf_add(vf_load(to), vf_select(real_rows, s, vf_zero())));
        }
    }
    for (int64_t t = 0; t < length; t++) {
        real sum = 0;
        for (int k = 0; k < VF_LANES; k++) sum += strips[k * ld + t];
        sums[t] += (double)sum;
    }
}

static void step_reduce_pairs(int64_t rows, int64_t n, const void *dS, int over_queries, int over_keys, void *sums)
{
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < rows; i++)
            ((real *)sums)[(over_keys ? 0 : j * TILE) + (over_queries ? 0 : i)] += ((const real *)dS)[j * TILE + i];
}

#endif
