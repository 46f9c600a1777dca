/* SPDX-License-Identifier: MIT
 *
 * distance_step.inc.c - what a tile has of the distance between its queries and keys.  Query lane i and key j of a block of n are
 * i + n-1 - j further apart than its first query and last key, so a row of a tile reads a table by distance as one unaligned
 * vector.  Included by forward.inc.c.
 */
#ifdef VF_LANES

VF_INLINE void add_strip_rows(const int width, int64_t n, real *S, const real *strip, real *block_max)
{
    vf most[VF_VECTORS];
    VF_UNROLL
    for (int v = 0; v < width; v++) most[v] = vf_set(-(real)INFINITY);
    for (int64_t j = 0; j < n; j++) {
        VF_UNROLL
        for (int v = 0; v < width; v++) {
            real *at = S + j * TILE + v * VF_LANES;
            vf s = vf_add(vf_load(at), vf_load(strip + (n - 1 - j) + v * VF_LANES));
            vf_store(at, s);
            most[v] = vf_max(s, most[v]);
        }
    }
    VF_UNROLL
    for (int v = 0; v < width; v++) vf_store(block_max + v * VF_LANES, most[v]);
}

static void step_add_strip(int width, int64_t n, void *S, const void *strip, void *block_max)
{
    VF_EACH_WIDTH(add_strip_rows, width, n, S, strip, block_max);
}

#endif
