/* SPDX-License-Identifier: MIT
 *
 * dropout_step.inc.c - Philox4x32-10 (Salmon et al. 2011) in the layout of the weights: a lane is a query, and the four words of a
 * result are four keys, so nothing is shuffled.  Included by forward.inc.c.
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

enum { ROUNDS = 10, SHARED_ROUNDS = 3 };

/*
 * A round takes the counter (x0, x1, x2, x3) = (offset, head, query, group of keys) and the key (k0, k1) to
 *
 *      a = M0 x0;  b = M1 x2;      x0 = hi(b) ^ x1 ^ k0;   x1 = lo(b);   x2 = hi(a) ^ x3 ^ k1;   x3 = lo(a)
 *
 * Two words of the counter are the same for a whole tile, one for a query and one for a group of keys, so most of the first three
 * rounds is done once per query, a little once per group, and one multiplication per pair.
 */
typedef struct philox {
    uint64_t early[TILE], middle[TILE], x1[TILE], late[TILE]; /* per lane, words in the lower halves */
    uint64_t keys[ROUNDS - SHARED_ROUNDS][2][VU_LANES];
    uint32_t offset_upper; /* hi(M0 offset) ^ k1 of the first round */
} philox;

static const uint64_t philox_m0 = 0xD2511F53u, philox_m1 = 0xCD9E8D57u;

VF_INLINE uint64_t philox_product(uint64_t m, uint64_t x) { return m * (uint32_t)x; }

static void philox_of(const attn_drop *drop, int lanes, philox *to)
{
    uint32_t k0[ROUNDS], k1[ROUNDS];
    k0[0] = (uint32_t)drop->seed;
    k1[0] = (uint32_t)(drop->seed >> 32);
    for (int r = 1; r < ROUNDS; r++) k0[r] = k0[r - 1] + 0x9E3779B9u, k1[r] = k1[r - 1] + 0xBB67AE85u;
    for (int r = SHARED_ROUNDS; r < ROUNDS; r++)
        for (int i = 0; i < VU_LANES; i++) to->keys[r - SHARED_ROUNDS][0][i] = k0[r], to->keys[r - SHARED_ROUNDS][1][i] = k1[r];
    const uint64_t a0 = philox_product(philox_m0, drop->offset);
    to->offset_upper = (uint32_t)(a0 >> 32) ^ k1[0];
    for (int i = 0; i < TILE; i++) { /* up to whole vectors of words */
        if (i >= lanes && i % VU_LANES == 0) break;
        const uint64_t b0 = philox_product(philox_m1, (uint64_t)(drop->first_q + least(i, drop->rows - 1)));
        const uint64_t a1 = philox_product(philox_m0, (b0 >> 32) ^ drop->head ^ k0[0]);
        const uint64_t b2 = philox_product(philox_m1, (a1 >> 32) ^ a0 ^ k1[1]);
        to->early[i] = b0 ^ k0[1];
        to->middle[i] = (b2 >> 32) ^ k0[2];
        to->x1[i] = b2;
        to->late[i] = a1 ^ k1[2];
    }
}

/* x[word][lane]: the random words of keys 4*group .. 4*group+3.  A word is the lower half of 64 bits, so that a product is one
 * instruction and has both its halves in place; the upper half is never used. */
VF_INLINE void philox_draw(const philox *generator, int lanes, int64_t group, uint32_t (*x)[TILE])
{
    const vu m0 = vu_set(philox_m0), m1 = vu_set(philox_m1);
    const uint64_t of_group = philox_product(philox_m1, generator->offset_upper ^ (uint32_t)group);
    const vu upper = vu_set(of_group >> 32), lower = vu_set(of_group);
    VF_ROLLED
    for (int i = 0; i < lanes; i += VU_LANES) {
        const vu a = vu_multiply(m0, vu_xor(upper, vu_load(generator->early + i)));
        vu x0 = vu_xor(lower, vu_load(generator->middle + i)), x1 = vu_load(generator->x1 + i);
        vu x2 = vu_xor(vu_upper(a), vu_load(generator->late + i)), x3 = a;
        VF_UNROLL
        for (int r = 0; r < ROUNDS - SHARED_ROUNDS; r++) {
            const vu c = vu_multiply(m0, x0), d = vu_multiply(m1, x2);
            x0 = vu_xor(vu_xor(vu_upper(d), x1), vu_load(generator->keys[r][0]));
            x2 = vu_xor(vu_xor(vu_upper(c), x3), vu_load(generator->keys[r][1]));
            x1 = d;
            x3 = c;
        }
        vu_store_lower(x[0] + i, x0);
        vu_store_lower(x[1] + i, x1);
        vu_store_lower(x[2] + i, x2);
        vu_store_lower(x[3] + i, x3);
    }
}

/* The words of key j of the block, drawn with the first key of its group of four. */
VF_INLINE const uint32_t *philox_words(const attn_drop *drop, const philox *generator, int lanes, int64_t j, uint32_t (*x)[TILE])
{
    const int64_t key = drop->first_kv + j;
    if (j == 0 || key % 4 == 0) philox_draw(generator, lanes, key / 4, x);
    return x[key % 4];
}

/* Whether the caller's mask keeps query i and key j of the tile. */
VF_INLINE int given_keeps(const attn_drop *drop, int64_t i, int64_t j)
{
    const attn_block *given = &drop->given;
    return ((const unsigned char *)given->base)[least(i, drop->rows - 1) * given->stride_q + j * given->stride_k] != 0;
}

VF_INLINE void drop_given(const int width, int64_t n, real *P, const attn_drop *drop)
{
    for (int64_t j = 0; j < n; j++)
        for (int i = 0; i < width * VF_LANES; i++)
            if (!given_keeps(drop, i, j)) P[j * TILE + i] = 0;
}

VF_INLINE void drop_block(const int width, int64_t n, real *P, const attn_drop *drop)
{
    const int none = drop->threshold >> 32 != 0; /* no weight is kept */
    uint32_t x[4][TILE];
    philox generator;
    if (drop->given.base) {
        drop_given(width, n, P, drop);
        return;
    }
    philox_of(drop, width * VF_LANES, &generator);
    for (int64_t j = 0; j < n; j++) {
        const uint32_t *word = philox_words(drop, &generator, width * VF_LANES, j, x);
        VF_UNROLL
        for (int v = 0; v < width; v++) {
            real *p = P + j * TILE + v * VF_LANES;
            vf kept = vf_select(vf_at_least(word + v * VF_LANES, (uint32_t)drop->threshold), vf_load(p), vf_zero());
            vf_store(p, none ? vf_zero() : kept);
        }
    }
}

static void step_drop(int width, int64_t n, void *P, const attn_drop *drop) { VF_EACH_WIDTH(drop_block, width, n, P, drop); }

#endif
