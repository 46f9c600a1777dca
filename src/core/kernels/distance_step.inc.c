/* SPDX-License-Identifier: MIT
 *
 * distance_step.inc.c - terms by the distance between a tile's queries and keys.  Query lane i and key j of a block of n are i +
 * n-1 - j further apart than the first query and the last key, so a row of a tile reads a table by distance as one unaligned
 * vector.  Included by forward.inc.c.
 */
#ifdef VF_LANES

VF_INLINE void add_diagonals_rows(const int width, int64_t n, real *S, const real *diagonals, real *block_max)
{
    vf most[VF_VECTORS];
    VF_UNROLL
    for (int v = 0; v < width; v++) most[v] = vf_set(-(real)INFINITY);
    for (int64_t j = 0; j < n; j++) {
        VF_UNROLL
        for (int v = 0; v < width; v++) {
            real *at = S + j * TILE + v * VF_LANES;
            vf s = vf_add(vf_load(at), vf_load(diagonals + (n - 1 - j) + v * VF_LANES));
            vf_store(at, s);
            most[v] = vf_max(s, most[v]);
        }
    }
    VF_UNROLL
    for (int v = 0; v < width; v++) vf_store(block_max + v * VF_LANES, most[v]);
}

static void step_add_diagonals(int width, int64_t n, void *S, const void *diagonals, void *block_max)
{
    VF_EACH_WIDTH(add_diagonals_rows, width, n, S, diagonals, block_max);
}

/* ---- bands: products with a table by distance; row i + n-1 - j has the term of lane i and key j ---- */

/*
 * Diagonals of a buffer, from one vector of it, row by row in descending order: lane i of the result at row t is the number of row
 * t + i.  Each level looks back twice as far as the one before, in the lanes whose index has its bit.  The first VF_LANES-1 rows
 * only fill `held`.
 */
typedef struct diagonal {
    vm bit[VF_LANES];  /* of level b, at b */
    vf held[VF_LANES]; /* the last b rows of level b, from b on */
} diagonal;

VF_INLINE void diagonal_start(diagonal *d)
{
    VF_UNROLL
    for (int b = 1; b < VF_LANES; b *= 2) {
        int32_t lanes[VF_LANES];
        for (int i = 0; i < VF_LANES; i++) lanes[i] = (i & b) != 0;
        d->bit[b] = vf_gt(vf_of_i32(lanes), vf_zero());
    }
    VF_UNROLL
    for (int i = 0; i < VF_LANES; i++) d->held[i] = vf_zero();
}

/* r: counts rows, modulo VF_LANES. */
VF_INLINE vf diagonal_next(diagonal *d, const int r, vf x)
{
    VF_UNROLL
    for (int b = 1; b < VF_LANES; b *= 2) {
        vf before = d->held[b + r % b];
        d->held[b + r % b] = x;
        x = vf_select(d->bit[b], before, x);
    }
    return x;
}

VF_INLINE vf add_diagonal(diagonal *d, const int r, const real *g, real *s, vf most)
{
    vf sum = vf_add(vf_load(s), diagonal_next(d, r, vf_load(g)));
    vf_store(s, sum);
    return vf_max(sum, most);
}

static void step_add_relative_shift(int width, int64_t n, const void *G, void *S, void *block_max)
{
    for (int v = 0; v < width; v++) {
        const real *g = (const real *)G + (n - 1 + (v + 1) * VF_LANES - 1) * TILE + v * VF_LANES;
        real *s = (real *)S + v * VF_LANES;
        vf most = vf_load((real *)block_max + v * VF_LANES);
        diagonal d;
        int64_t j = 0;
        diagonal_start(&d);
        VF_UNROLL
        for (int r = 1; r < VF_LANES; r++, g -= TILE) (void)diagonal_next(&d, r, vf_load(g));
        for (; j + VF_LANES <= n; j += VF_LANES) {
            VF_UNROLL
            for (int r = 0; r < VF_LANES; r++, g -= TILE, s += TILE) most = add_diagonal(&d, r, g, s, most);
        }
        VF_UNROLL
        for (int r = 0; r < VF_LANES; r++)
            if (j + r < n) most = add_diagonal(&d, r, g - r * TILE, s + r * TILE, most);
        vf_store((real *)block_max + v * VF_LANES, most);
    }
}

static void step_relative_shift(int width, int64_t n, const void *S, void *G)
{
    const int64_t rows = n + (int64_t)width * VF_LANES - 1;
    for (int v = 0; v < width; v++) {
        real *g = (real *)G + v * VF_LANES;
        const real *s = (const real *)S + v * VF_LANES;
        const int64_t first = (int64_t)v * VF_LANES, end = first + n + VF_LANES - 1; /* rows that have a key */
        diagonal d;
        diagonal_start(&d);
        for (int64_t t = 0; t < first; t++) vf_store(g + t * TILE, vf_zero());
        for (int64_t t = first; t < end; t += VF_LANES) {
            VF_UNROLL
            for (int r = 0; r < VF_LANES; r++) {
                const int64_t j = n - 1 - (t + r - first);
                if (t + r < end) vf_store(g + (t + r) * TILE, diagonal_next(&d, r, j >= 0 ? vf_load(s + j * TILE) : vf_zero()));
            }
        }
        for (int64_t t = end; t < rows; t++) vf_store(g + t * TILE, vf_zero());
    }
}

VF_INLINE void add_lanes_rows(const int width, int64_t n, real *S, const real *lanes, real *block_max)
{
    vf more[VF_VECTORS], most[VF_VECTORS];
    VF_UNROLL
    for (int v = 0; v < width; v++) more[v] = vf_load(lanes + v * VF_LANES), most[v] = vf_load(block_max + v * VF_LANES);
    for (int64_t j = 0; j < n; j++, S += TILE) {
        VF_UNROLL
        for (int v = 0; v < width; v++) {
            vf s = vf_add(vf_load(S + v * VF_LANES), more[v]);
            vf_store(S + v * VF_LANES, s);
            most[v] = vf_max(s, most[v]);
        }
    }
    VF_UNROLL
    for (int v = 0; v < width; v++) vf_store(block_max + v * VF_LANES, most[v]);
}

static void step_add_to_lanes(int width, int64_t n, void *S, const void *lanes, void *block_max)
{
    VF_EACH_WIDTH(add_lanes_rows, width, n, S, lanes, block_max);
}

VF_INLINE void sum_keys_rows(const int width, int64_t n, const real *S, real *sums)
{
    vf sum[VF_VECTORS];
    VF_UNROLL
    for (int v = 0; v < width; v++) sum[v] = vf_zero();
    for (int64_t j = 0; j < n; j++, S += TILE) {
        VF_UNROLL
        for (int v = 0; v < width; v++) sum[v] = vf_add(sum[v], vf_load(S + v * VF_LANES));
    }
    VF_UNROLL
    for (int v = 0; v < width; v++) vf_store(sums + v * VF_LANES, sum[v]);
}

static void step_sum_keys(int width, int64_t n, const void *S, void *sums) { VF_EACH_WIDTH(sum_keys_rows, width, n, S, sums); }

#endif
