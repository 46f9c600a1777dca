/* SPDX-License-Identifier: MIT
 *
 * merge_step.inc.c - results of the same queries over disjoint keys: their weights, the sum of their rows, and inner products of
 * rows for the gradient.  Included by forward.inc.c.
 */
#ifdef VF_LANES

/* The weights of up to VF_LANES rows: lanes 0 .. count-1 of most, total and each part's L.  Of a part without keys it is -0; 0 is
 * that of one with keys, rounded. */
VF_INLINE void part_weights(int64_t parts, real *L, int64_t ld, real *most, real *total, int64_t count)
{
    const vf none = vf_set(-(real)INFINITY), absent = vf_set(-(real)0);
    vf m = none, sum = vf_zero();
    for (int64_t p = 0; p < parts; p++) m = vf_max(vf_load_part(L + p * ld, count), m); /* a NaN is left to exp */
    const vf from = vf_select(vf_eq(m, none), vf_zero(), m);
    for (int64_t p = 0; p < parts; p++) {
        const vf l = vf_load_part(L + p * ld, count), e = vf_select(vf_eq(l, none), absent, vf_exp(vf_sub(l, from)));
        sum = vf_add(sum, e);
        vf_store_part(L + p * ld, e, count);
    }
    const vm empty = vf_eq(sum, vf_zero());
    for (int64_t p = 0; p < parts; p++)
        vf_store_part(L + p * ld, vf_select(empty, absent, vf_div(vf_load_part(L + p * ld, count), sum)), count);
    vf_store_part(most, m, count);
    vf_store_part(total, sum, count);
}

static void step_part_weights(int64_t parts, int64_t rows, void *L, int64_t ld, void *most, void *total)
{
    for (int64_t r = 0; r < rows; r += VF_LANES)
        part_weights(parts, (real *)L + r, ld, (real *)most + r, (real *)total + r, least(rows - r, VF_LANES));
}

/* `width` vectors from channel c on, or part of one. */
VF_INLINE void add_parts_at(const attn_dtype dtype, int width, int64_t parts, int64_t c, int64_t count, const void *const *rows,
                            const real *weights, int64_t ld, const real *start, void *out, const attn_dtype to)
{
    vf sum[4];
    VF_UNROLL
    for (int v = 0; v < width; v++) sum[v] = start ? load_some(REAL_DTYPE, start, c + v * VF_LANES, count) : vf_zero();
    for (int64_t p = 0; p < parts; p++) {
        if (weights[p * ld] == 0 && signbit(weights[p * ld])) continue; /* whatever its row holds */
        const vf w = vf_set(weights[p * ld]);
        VF_UNROLL
        for (int v = 0; v < width; v++) sum[v] = vf_fma(w, load_some(dtype, rows[p], c + v * VF_LANES, count), sum[v]);
    }
    VF_UNROLL
    for (int v = 0; v < width; v++) store_some(to, out, c + v * VF_LANES, sum[v], count);
}

VF_INLINE void add_parts(const attn_dtype dtype, int64_t parts, int64_t dim, const void *const *rows, const real *weights,
                         int64_t ld, const real *start, void *out, const attn_dtype to)
{
    int64_t c = 0;
    for (; c + 4 * VF_LANES <= dim; c += 4 * VF_LANES)
        add_parts_at(dtype, 4, parts, c, VF_LANES, rows, weights, ld, start, out, to);
    for (; c < dim; c += VF_LANES) add_parts_at(dtype, 1, parts, c, least(dim - c, VF_LANES), rows, weights, ld, start, out, to);
}

VF_INLINE void add_parts_as(const attn_dtype dtype, int64_t parts, int64_t dim, const void *const *rows, const void *weights,
                            int64_t ld, const void *start, void *out, int last)
{
    if (last) add_parts(dtype, parts, dim, rows, weights, ld, start, out, dtype);
    else add_parts(dtype, parts, dim, rows, weights, ld, start, out, REAL_DTYPE);
}

static void step_add_parts(int64_t parts, int64_t dim, const void *const *rows, attn_dtype dtype, const void *weights, int64_t ld,
                           const void *start, void *out, int last)
{
    EACH_STORAGE(add_parts_as, dtype, parts, dim, rows, weights, ld, start, out, last);
}

VF_INLINE void inner_as(const attn_dtype dtype, int64_t dim, const void *a, const void *b, double *result)
{
    vf sum = vf_zero();
    real lanes[VF_LANES];
    for (int64_t c = 0; c < dim; c += VF_LANES) {
        const int64_t count = least(dim - c, VF_LANES);
        sum = vf_fma(load_some(dtype, a, c, count), load_some(dtype, b, c, count), sum);
    }
    vf_store(lanes, sum);
    *result = 0;
    for (int i = 0; i < VF_LANES; i++) *result += (double)lanes[i];
}

static double step_part_inner(int64_t dim, const void *a, const void *b, attn_dtype dtype)
{
    double result;
    EACH_STORAGE(inner_as, dtype, dim, a, b, &result);
    return result;
}

#endif
