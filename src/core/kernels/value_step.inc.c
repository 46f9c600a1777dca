/* SPDX-License-Identifier: MIT
 *
 * value_step.inc.c - adds a block of keys to the output (O^T = V^T P), by the product of product_step.inc.c. Included by
 * forward.inc.c.
 */
#ifdef VF_LANES

/* The product over segments: beside them P is 0, so the wider form is right if there is no narrower one. */
VF_INLINE void value_band(const int rows, const int width, const segment *segments, int count, const real *P, const real *V,
                          int64_t ldv, prefetch_stream *next, vf (*acc)[VF_VECTORS])
{
    int64_t j = segments[0].last - segments[0].first == width ? segments[0].end : 0;
    product(rows, width, j, V, 1, ldv, P, next, acc);
    for (int s = j > 0; s < count; j = segments[s++].end) {
        const int64_t n = segments[s].end - j;
        const int first = segments[s].first, last = segments[s].last;
        const real *B = P + j * TILE, *A = V + j * ldv;
#define BAND(from, to) product_more(rows, from, to, n, A, 1, ldv, B, TILE, next, acc)
        if (first == last) continue;
#if VF_VECTORS > 4
        if (width > 3 && (first >= 3 || last == 3)) {
            if (first >= 3) BAND(width > 3 ? 3 : 0, width);
            else BAND(0, width > 3 ? 3 : 1);
            continue;
        }
#endif
        if (width > 2 && first == 2) BAND(width > 2 ? 2 : 0, width);
        else if (width > 1 && first == 1) BAND(width > 1 ? 1 : 0, width);
        else if (width > 1 && last == 1) BAND(0, 1);
        else if (width > 2 && last == 2) BAND(0, width > 2 ? 2 : 1);
        else BAND(0, width);
#undef BAND
    }
}

/* segments: NULL, or where P is not 0. */
VF_INLINE void value_rows(const int rows, const int width, int64_t n, const real *P, const real *V, int64_t ldv, real *Ot,
                          const vf *factor, const segment *segments, int count, prefetch_stream *next)
{
    vf acc[VF_MAX_ROWS][VF_VECTORS];
    if (ATTN_TRAINS && segments && rows == VF_ROWS(width) && width > 1)
        value_band(rows, width, segments, count, P, V, ldv, next, acc);
    else product(rows, width, n, V, 1, ldv, P, next, acc);
    VF_UNROLL
    for (int i = 0; i < rows; i++) {
        VF_UNROLL
        for (int v = 0; v < width; v++) {
            real *o = Ot + i * TILE + v * VF_LANES;
            vf_store(o, vf_fma(vf_load(o), factor[v], acc[i][v]));
        }
    }
}

VF_INLINE void value_block(const int width, int64_t n, int64_t dim_v, const real *P, const real *V, int64_t ldv, real *Ot,
                           const vf *factor, const segment *segments, int count, prefetch_stream *next)
{
    int64_t c = 0;
#define VALUE_ROWS(rows)                                                                                                           \
    do {                                                                                                                           \
        prefetch_stream_rows(next, c *n / dim_v, (c + (rows)) * n / dim_v);                                                        \
        value_rows(rows, width, n, P, V + c, ldv, Ot + c * TILE, factor, segments, count, next);                                   \
        c += (rows);                                                                                                               \
    } while (0)
    while (c + VF_ROWS(width) <= dim_v) VALUE_ROWS(VF_ROWS(width));
    if (VF_TAILS && VF_ROWS(width) > 8 && dim_v - c >= 8) VALUE_ROWS(8);
    if (VF_TAILS && VF_ROWS(width) > 4 && dim_v - c >= 4) VALUE_ROWS(4);
    if (VF_TAILS && dim_v - c >= 2) VALUE_ROWS(2);
    while (dim_v - c >= 1) VALUE_ROWS(1);
#undef VALUE_ROWS
}

/* Ot = factor Ot + V^T P over n keys; segments (or NULL) tell where P is not 0.  One function for all callers: with every register
 * tile of every width it is long. */
static void absorb_values(int width, int64_t n, int64_t dim_v, const real *P, const real *V, int64_t ldv, real *Ot,
                          const vf *factor, const segment *segments, int count, prefetch_stream *next)
{
    VF_EACH_WIDTH(value_block, width, n, dim_v, P, V, ldv, Ot, factor, segments, count, next);
}

static void add_values(int width, int64_t n, int64_t dim_v, const real *P, const real *V, int64_t ldv, real *Ot,
                       prefetch_stream *next)
{
    vf one[VF_VECTORS];
    for (int v = 0; v < VF_VECTORS; v++) one[v] = vf_set(1);
    absorb_values(width, n, dim_v, P, V, ldv, Ot, one, NULL, 0, next);
}

static void step_values(int width, int64_t n, int64_t dim_v, const void *P, const void *V, int64_t ldv, const void *factor,
                        void *Ot, const void *next, int64_t next_ld)
{
    prefetch_stream next_rows = prefetch_stream_of(next, next_ld, dim_v);
    if (factor) absorb_values(width, n, dim_v, P, V, ldv, Ot, factor, NULL, 0, &next_rows);
    else add_values(width, n, dim_v, P, V, ldv, Ot, &next_rows);
}

static void step_values_seen(int width, int64_t n, int64_t dim_v, const void *P, const void *V, int64_t ldv, const void *factor,
                             void *Ot, const int32_t *low, const int32_t *high, const void *next, int64_t next_ld)
{
    prefetch_stream next_rows = prefetch_stream_of(next, next_ld, dim_v);
    segment segments[MAX_SEGMENTS];
    int count = segments_of(width, n, low, high, segments);
#if defined(VF_ASM_PRODUCT) && !defined(VF_ASM_PRODUCT_MORE) /* the asm starts chains and cannot continue them */
    count = join_full_segments(width, count, segments);
#endif
    absorb_values(width, n, dim_v, P, V, ldv, Ot, factor, segments, count, &next_rows);
}

static void step_values_nan_safe(int width, int64_t n, int64_t dim_v, const void *P, const void *scores, int drops, const void *V,
                                 int64_t ldv, const void *factor, void *Ot)
{
    const vf dropped = vf_set(-(real)INFINITY);
    for (int64_t c = 0; c < dim_v; c++)
        for (int v = 0; v < width; v++) {
            real *o = (real *)Ot + c * TILE + v * VF_LANES;
            vf acc = vf_zero();
            for (int64_t j = 0; j < n; j++) {
                int64_t at = j * TILE + v * VF_LANES;
                vf p = vf_load((const real *)P + at), with = vf_fma(vf_set(((const real *)V)[j * ldv + c]), p, acc);
                vm skip = vf_eq(vf_load((const real *)scores + at), dropped);
                if (drops) skip = vm_or(skip, vf_eq(p, vf_zero()));
                acc = vf_select(skip, acc, with);
            }
            vf_store(o, factor ? vf_fma(vf_load(o), ((const vf *)factor)[v], acc) : vf_add(vf_load(o), acc));
        }
}

/* ---- the same without a softmax ---- */

static void step_add_values(int width, int64_t n, int64_t dim, const void *P, const void *V, int64_t ldv, void *Ot)
{
    prefetch_stream none = {.at = (uintptr_t)V, .rows = (uintptr_t)V, .ld = dim, .dim = dim};
    add_values(width, n, dim, P, V, ldv, Ot, &none);
}

static void step_add_values_nan_safe(int width, int64_t n, int64_t dim, const void *P, const void *V, int64_t ldv, void *Ot)
{
    for (int64_t c = 0; c < dim; c++)
        for (int v = 0; v < width; v++) {
            real *to = (real *)Ot + c * TILE + v * VF_LANES;
            vf acc = vf_zero();
            for (int64_t j = 0; j < n; j++) {
                vf p = vf_load((const real *)P + j * TILE + v * VF_LANES);
                vf with = vf_fma(vf_set(((const real *)V)[j * ldv + c]), p, acc);
                acc = vf_select(vf_eq(p, vf_zero()), acc, with);
            }
            vf_store(to, vf_add(vf_load(to), acc));
        }
}

#endif
