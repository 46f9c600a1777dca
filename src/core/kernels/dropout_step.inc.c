/* SPDX-License-Identifier: MIT
 *
 * dropout_step.inc.c - Philox4x32-10 (Salmon et al. 2011) beside the weights: a lane is a query, the four words of a result are
 * four keys, so nothing is shuffled.  Included by forward.inc.c.
 */
#ifdef VF_LANES

#ifndef VU_LANES
#define VU_LANES 1
typedef uint64_t vu;
VF_INLINE vu vu_set(uint64_t x) { return x; }
VF_INLINE vu vu_load(const uint64_t *p) { return *p; }
VF_INLINE vu vu_xor(vu a, vu b) { return a ^ b; }
VF_INLINE vu vu_multiply(vu a, vu b) { return (a & 0xffffffff) * (b & 0xffffffff); }
VF_INLINE vu vu_upper(vu a) { return a >> 32; }
VF_INLINE void vu_store_lower(uint32_t *p, vu a) { *p = (uint32_t)a; }
#endif

/* x[word][lane]: the random words of keys 4*group .. 4*group+3.  A word is the lower half of 64 bits, so that a product is one
 * instruction and has both its halves in place; what stands in the upper half is never used. */
VF_INLINE void philox_lanes(const attn_drop *drop, int lanes, int64_t group, uint32_t (*x)[TILE])
{
    const vu m0 = vu_set(0xD2511F53u), m1 = vu_set(0xCD9E8D57u);
    uint64_t query[TILE];
    for (int i = 0; i < TILE; i++) query[i] = (uint64_t)(drop->first_q + least(i, drop->rows - 1));
    VF_ROLLED
    for (int i = 0; i < lanes; i += VU_LANES) {
        vu x0 = vu_set(drop->offset), x1 = vu_set(drop->head), x2 = vu_load(query + i), x3 = vu_set((uint32_t)group);
        uint32_t k0 = (uint32_t)drop->seed, k1 = (uint32_t)(drop->seed >> 32);
        VF_UNROLL
        for (int round = 0; round < 10; round++) {
            const vu a = vu_multiply(m0, x0), b = vu_multiply(m1, x2);
            x0 = vu_xor(vu_xor(vu_upper(b), x1), vu_set(k0));
            x2 = vu_xor(vu_xor(vu_upper(a), x3), vu_set(k1));
            x1 = b;
            x3 = a;
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        vu_store_lower(x[0] + i, x0);
        vu_store_lower(x[1] + i, x1);
        vu_store_lower(x[2] + i, x2);
        vu_store_lower(x[3] + i, x3);
    }
}

/* factor[lane] = 1 where word >= threshold, else 0. */
VF_INLINE void keep_factor(const uint32_t *word, int lanes, uint64_t threshold, real *factor)
{
    const uint32_t least_kept = (uint32_t)threshold, any = threshold >> 32 == 0;
    for (int i = 0; i < lanes; i++) factor[i] = any && word[i] >= least_kept ? (real)1 : (real)0;
}

/* factor[lane] = 1 where the caller's mask keeps key j of the block, else 0. */
VF_INLINE void given_factor(const attn_drop *drop, int lanes, int64_t j, real *factor)
{
    const unsigned char *keep = (const unsigned char *)drop->given.base + j * drop->given.stride_k;
    for (int i = 0; i < lanes; i++) factor[i] = keep[least(i, drop->rows - 1) * drop->given.stride_q] ? (real)1 : (real)0;
}

/* The same for key j, from the words of its group of four keys, which the first of them draws. */
VF_INLINE void drawn_factor(const attn_drop *drop, int lanes, int64_t j, uint32_t (*x)[TILE], real *factor)
{
    int64_t key = drop->first_kv + j;
    if (j == 0 || key % 4 == 0) philox_lanes(drop, lanes, key / 4, x);
    keep_factor(x[key % 4], lanes, drop->threshold, factor);
}

VF_INLINE void drop_factor(const attn_drop *drop, int lanes, int64_t j, uint32_t (*x)[TILE], real *factor)
{
    if (drop->given.base) given_factor(drop, lanes, j, factor);
    else drawn_factor(drop, lanes, j, x, factor);
}

VF_INLINE void drop_block(const int width, int64_t n, real *P, const attn_drop *drop)
{
    uint32_t x[4][TILE];
    real factor[TILE];
    for (int64_t j = 0; j < n; j++) {
        drop_factor(drop, width * VF_LANES, j, x, factor);
        VF_UNROLL
        for (int v = 0; v < width; v++) {
            real *p = P + j * TILE + v * VF_LANES;
            vf_store(p, vf_select(vf_gt(vf_load(factor + v * VF_LANES), vf_zero()), vf_load(p), vf_zero()));
        }
    }
}

static void step_drop(int width, int64_t n, void *P, const attn_drop *drop) { VF_EACH_WIDTH(drop_block, width, n, P, drop); }

#endif
