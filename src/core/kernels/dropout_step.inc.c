/* SPDX-License-Identifier: MIT
 *
 * dropout_step.inc.c - Philox4x32-10 (Salmon et al. 2011) beside the weights: a lane is a query, the four words of a result are
 * four keys, so nothing is shuffled.  Plain loops over lanes, which compilers turn into vectors.  Included by forward.inc.c.
 */
#ifdef VF_LANES

/* x[word][lane]: the random words of keys 4*group .. 4*group+3. */
VF_INLINE void philox_lanes(const attn_drop *drop, int lanes, int64_t group, uint32_t (*x)[TILE])
{
    uint32_t k0 = (uint32_t)drop->seed, k1 = (uint32_t)(drop->seed >> 32);
    for (int i = 0; i < lanes; i++) {
        x[0][i] = drop->offset;
        x[1][i] = drop->head;
        x[2][i] = (uint32_t)(drop->first_q + least(i, drop->rows - 1));
        x[3][i] = (uint32_t)group;
    }
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < lanes; i++) {
            uint64_t a = (uint64_t)0xD2511F53u * x[0][i], b = (uint64_t)0xCD9E8D57u * x[2][i];
            uint32_t y0 = (uint32_t)(b >> 32) ^ x[1][i] ^ k0, y2 = (uint32_t)(a >> 32) ^ x[3][i] ^ k1;
            x[0][i] = y0;
            x[1][i] = (uint32_t)b;
            x[2][i] = y2;
            x[3][i] = (uint32_t)a;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* factor[lane] = 1 where word >= threshold, else 0. */
VF_INLINE void keep_factor(const uint32_t *word, int lanes, uint64_t threshold, real *factor)
{
    for (int i = 0; i < lanes; i++) factor[i] = word[i] >= threshold ? (real)1 : (real)0;
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

static void step_drop(int width, int64_t n, void *P, const attn_drop *drop)
{
    uint32_t x[4][TILE];
    real factor[TILE];
    for (int64_t j = 0; j < n; j++) {
        drop_factor(drop, width * VF_LANES, j, x, factor);
        for (int v = 0; v < width; v++) {
            real *p = (real *)P + j * TILE + v * VF_LANES;
            vf_store(p, vf_select(vf_gt(vf_load(factor + v * VF_LANES), vf_zero()), vf_load(p), vf_zero()));
        }
    }
}

#endif
