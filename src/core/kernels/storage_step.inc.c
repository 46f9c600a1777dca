/* SPDX-License-Identifier: MIT
 *
 * storage_step.inc.c - conversions between the caller's tensors, in rows of any storage type, and tile buffers, transposed in the
 * compute type.  Included by forward.inc.c.
 */
#ifdef VF_LANES

/* Parts of a vector, in any type but the compute type. */
VF_RARE vf load_part_as(const attn_dtype dtype, const void *base, int64_t index, int64_t count)
{
    double part[VF_LANES] = {0}; /* large enough for any type */
    memcpy(part, (const char *)base + index * bytes_of(dtype), (size_t)(count * bytes_of(dtype)));
    return vf_load_as(dtype, part, 0);
}

VF_RARE void store_part_as(const attn_dtype dtype, void *base, int64_t index, vf x, int64_t count)
{
    double part[VF_LANES];
    vf_store_as(dtype, part, 0, x);
    memcpy((char *)base + index * bytes_of(dtype), part, (size_t)(count * bytes_of(dtype)));
}

/* `count` elements from `index` on, 1 <= count; the lanes past them are 0.  Nothing else is read. */
VF_INLINE vf load_some(const attn_dtype dtype, const void *base, int64_t index, int64_t count)
{
    if (VF_LANES == 1 || count >= VF_LANES) return vf_load_as(dtype, base, index);
    if (dtype == REAL_DTYPE) return vf_load_part((const real *)base + index, count);
    return load_part_as(dtype, base, index, count);
}

VF_INLINE void store_some(const attn_dtype dtype, void *base, int64_t index, vf x, int64_t count)
{
    if (count >= VF_LANES) vf_store_as(dtype, base, index, x);
    else if (dtype == REAL_DTYPE) vf_store_part((real *)base + index, x, count);
    else if (VF_LANES > 1) store_part_as(dtype, base, index, x, count);
}

#ifdef VF_PAIRS
/* The pairs from pair p on of a row of dim channels: a vector of them, 0 past the last channel. */
VF_RARE vf load_pairs(const char *row, int64_t dim, int64_t p)
{
    if (2 * (p + VF_LANES) <= dim) return vf_load_as(ATTN_F32, row, p);
    uint16_t part[2 * VF_LANES] = {0};
    memcpy(part, row + 4 * p, (size_t)(2 * (dim - 2 * p)));
    return vf_load_as(ATTN_F32, part, 0);
}
#endif

/* Calls f(constant, ...) for the storage type given. */
#define EACH_STORAGE_TYPE(f, dtype, ...)                                                                                           \
    do {                                                                                                                           \
        switch (dtype) {                                                                                                           \
        case ATTN_F32:                                                                                                             \
            f(ATTN_F32, __VA_ARGS__);                                                                                              \
            break;                                                                                                                 \
        case ATTN_F64:                                                                                                             \
            f(ATTN_F64, __VA_ARGS__);                                                                                              \
            break;                                                                                                                 \
        case ATTN_F16:                                                                                                             \
            f(ATTN_F16, __VA_ARGS__);                                                                                              \
            break;                                                                                                                 \
        default:                                                                                                                   \
            f(ATTN_BF16, __VA_ARGS__);                                                                                             \
            break;                                                                                                                 \
        }                                                                                                                          \
    } while (0)

/* For what takes little of the time: an inference-only build asks for the type in the loop. */
#ifdef ATTN_INFERENCE_ONLY
#define EACH_STORAGE(f, dtype, ...) f(dtype, __VA_ARGS__)
#else
#define EACH_STORAGE EACH_STORAGE_TYPE
#endif

VF_INLINE void pack_as(const attn_dtype dtype, int width, int64_t rows, int64_t dim, const void *q, int64_t stride, double scale,
                       real *Qt)
{
    const vf factor = vf_set((real)scale);
    for (int v = 0; v < width; v++)
        for (int64_t c = 0; c < dim; c += VF_LANES) {
            int64_t count = least(dim - c, VF_LANES);
            vf r[VF_LANES];
            VF_UNROLL
            for (int i = 0; i < VF_LANES; i++)
                r[i] = vf_mul(factor, load_some(dtype, q, least(v * VF_LANES + i, rows - 1) * stride + c, count));
            vf_transpose(r);
            real *to = Qt + c * TILE + v * VF_LANES;
            if (count == VF_LANES) {
                VF_UNROLL
                for (int i = 0; i < VF_LANES; i++) vf_store(to + i * TILE, r[i]);
            } else {
                for (int i = 0; i < count; i++) vf_store(to + i * TILE, r[i]);
            }
        }
}

static void step_pack_query(int width, int64_t rows, int64_t dim, const void *q, attn_dtype dtype, int64_t stride, double scale,
                            void *Qt)
{
    EACH_STORAGE(pack_as, dtype, width, rows, dim, q, stride, scale, Qt);
}

VF_INLINE void load_rows_as(const attn_dtype dtype, int64_t n, int64_t dim, const void *src, int64_t stride, real *dst, int64_t ld)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t c = 0;
        for (; c + VF_LANES <= dim; c += VF_LANES) vf_store(dst + i * ld + c, vf_load_as(dtype, src, i * stride + c));
        if (c < dim) vf_store_part(dst + i * ld + c, load_some(dtype, src, i * stride + c, dim - c), dim - c);
    }
}

#if REAL_BITS == 32
#include "unpack_step.inc.c"
#endif

static void step_load_rows(int64_t n, int64_t dim, const void *src, attn_dtype dtype, int64_t stride, void *dst, int64_t ld)
{
#if REAL_BITS == 32
    if (unpack_rows(n, dim, src, dtype, stride, dst, ld)) return;
#endif
    EACH_STORAGE_TYPE(load_rows_as, dtype, n, dim, src, stride, dst, ld);
}

static void step_scale_rows(int64_t n, int64_t dim, const void *factors, int64_t stride, void *X, int64_t ld)
{
    for (int64_t i = 0; i < n; i++) {
        const vf factor = vf_set(((const real *)factors)[i * stride]);
        real *row = (real *)X + i * ld;
        int64_t c = 0;
        for (; c + VF_LANES <= dim; c += VF_LANES) vf_store(row + c, vf_mul(factor, vf_load(row + c)));
        if (c < dim) vf_store_part(row + c, vf_mul(factor, vf_load_part(row + c, dim - c)), dim - c);
    }
}

VF_INLINE void store_rows_as(const attn_dtype dtype, int64_t n, int64_t dim, double factor, const real *src, int64_t ld, void *dst,
                             int64_t stride)
{
    for (int64_t j = 0; j < n; j++)
        for (int64_t c = 0; c < dim; c += VF_LANES)
            /* No further than the row: the next head may follow, which another thread writes. */
            store_some(dtype, dst, j * stride + c, vf_mul(vf_set((real)factor), load_some(REAL_DTYPE, src, j * ld + c, dim - c)),
                       dim - c);
}

static void step_store_rows(int64_t n, int64_t dim, double factor, const void *src, int64_t ld, void *dst, attn_dtype dtype,
                            int64_t stride)
{
    EACH_STORAGE(store_rows_as, dtype, n, dim, factor, src, ld, dst, stride);
}

/* dst[i*stride + c] = X[c][i] * factor[i] for `rows` lanes i of one vector and n rows c of X.  guarded: 0 where empty[i], and 0
 * stays 0 even if factor is NaN: a dropped key has weight 0 in every row. */
VF_INLINE void store_lanes(const attn_dtype dtype, int guarded, int64_t rows, int64_t n, const real *X, vf factor, vm empty,
                           void *dst, int64_t stride)
{
    for (int64_t c = 0; c < n; c += VF_LANES) {
        int64_t count = least(n - c, VF_LANES);
        vf r[VF_LANES];
        if (count == VF_LANES) {
            VF_UNROLL
            for (int i = 0; i < VF_LANES; i++) r[i] = vf_load(X + (c + i) * TILE);
        } else {
            VF_UNROLL
            for (int i = 0; i < VF_LANES; i++) r[i] = i < count ? vf_load(X + (c + i) * TILE) : vf_zero();
        }
        if (guarded) {
            VF_UNROLL
            for (int i = 0; i < VF_LANES; i++)
                r[i] = vf_select(vm_or(empty, vf_eq(r[i], vf_zero())), vf_zero(), vf_mul(r[i], factor));
        } else {
            VF_UNROLL
            for (int i = 0; i < VF_LANES; i++) r[i] = vf_fma(r[i], factor, vf_zero()); /* the same bits: no 0 is negative */
        }
        vf_transpose(r);
        if (rows >= VF_LANES) {
            VF_UNROLL
            for (int i = 0; i < VF_LANES; i++) store_some(dtype, dst, i * stride + c, r[i], count);
        } else {
            for (int i = 0; i < rows; i++) store_some(dtype, dst, i * stride + c, r[i], count);
        }
    }
}

/* Decides whether to guard: finite factors, the common case, need no guard. */
static void store_transposed(attn_dtype dtype, int64_t rows, int64_t n, const real *X, vf factor, vm empty, void *dst,
                             int64_t stride)
{
    const vf most = vf_set(-REAL_LOWEST), lowest = vf_set(REAL_LOWEST);
    real inside[VF_LANES];
    int plain = !vm_any(empty);
    vf_store(inside, vf_select(vm_and(vf_ge(factor, lowest), vf_ge(most, factor)), vf_zero(), vf_set(1)));
    for (int i = 0; i < VF_LANES; i++) plain &= inside[i] == 0;
    EACH_STORAGE(store_lanes, dtype, !plain, rows, n, X, factor, empty, dst, stride);
}

static void step_finish(int width, int64_t rows, int64_t dim_v, double keep, const void *m, const void *l, const void *Ot, void *o,
                        attn_dtype dtype, int64_t stride, void *lse, int64_t lse_stride)
{
    for (int v = 0; v < width && v * VF_LANES < rows; v++) { /* times keep / l, or 0 where l is 0 */
        vf sum = vf_load((const real *)l + v * VF_LANES);
        store_transposed(dtype, rows - v * VF_LANES, dim_v, (const real *)Ot + v * VF_LANES, vf_div(vf_set((real)keep), sum),
                         vf_eq(sum, vf_zero()), (char *)o + v * VF_LANES * stride * bytes_of(dtype), stride);
    }
    if (!lse) return;
    for (int64_t i = 0; i < rows; i++) {
        double most = (double)((const real *)m)[i], sum = (double)((const real *)l)[i];
        ((real *)lse)[i * lse_stride] = sum == 0 ? -(real)INFINITY : (real)(most + log(sum));
    }
}

#endif
