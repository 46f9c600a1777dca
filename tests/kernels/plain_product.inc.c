/* SPDX-License-Identifier: MIT
 *
 * plain_product.inc.c - the two products of a tile by their definition (attn_product_part), for any tile, in type REAL, with
 * NAME(word) for the names and FMA for its fma().  Included by test_inherited.c, which defines `on`.
 */

/* a b + c, rounded once or twice, by the tile's `fused`. */
static REAL NAME(multiply_add)(REAL a, REAL b, REAL c)
{
    const volatile REAL product = a * b;
    return on.shape.fused ? FMA(a, b, c) : product + c;
}

static int64_t NAME(lanes)(int width) { return (int64_t)width * on.shape.lanes; }
static int64_t NAME(tile_q)(void) { return (int64_t)on.shape.lanes * on.shape.vectors; }

/* chains: number of sums, each over the channels of one c mod chains, which are added to 0 in order; 0: a single sum, not added. */
static void NAME(score_chains)(int64_t chains, int width, int64_t n, int64_t dim, const void *Qt, const void *K, int64_t ldk,
                               void *S, void *block_max, const int32_t *low, const int32_t *high)
{
    const int64_t step = chains ? chains : 1;
    if (chains) on.in_order++;
    else on.scores++;
    for (int64_t i = 0; i < NAME(lanes)(width); i++) {
        REAL most = -(REAL)INFINITY;
        for (int64_t j = 0; j < n; j++) {
            const int seen = !low || (low[i] <= j && j < high[i]);
            REAL s = seen ? 0 : -(REAL)INFINITY;
            for (int64_t first = 0; first < step && seen; first++) {
                REAL chain = 0;
                for (int64_t c = first; c < dim; c += step)
                    chain = NAME(multiply_add)(((const REAL *)K)[j * ldk + c], ((const REAL *)Qt)[c * NAME(tile_q)() + i], chain);
                s = chains ? s + chain : chain;
            }
            ((REAL *)S)[j * NAME(tile_q)() + i] = s;
            if (s > most) most = s;
        }
        ((REAL *)block_max)[i] = most;
    }
}

static void NAME(score_seen)(int width, int64_t n, int64_t dim, const void *Qt, const void *K, int64_t ldk, void *S,
                             void *block_max, const int32_t *low, const int32_t *high, const void *next, int64_t next_ld)
{
    (void)next, (void)next_ld;
    NAME(score_chains)(0, width, n, dim, Qt, K, ldk, S, block_max, low, high);
}

/* In order: as many chains as 256 bits hold numbers; 1 for tiles of one lane. */
static int64_t NAME(chains)(void) { return on.shape.lanes > 1 ? 32 / (int64_t)sizeof(REAL) : 1; }

static void NAME(score_seen_in_order)(int width, int64_t n, int64_t dim, const void *Qt, const void *K, int64_t ldk, void *S,
                                      void *block_max, const int32_t *low, const int32_t *high, const void *next, int64_t next_ld)
{
    (void)next, (void)next_ld;
    NAME(score_chains)(NAME(chains)(), width, n, dim, Qt, K, ldk, S, block_max, low, high);
}

static void NAME(score_beside_in_order)(int width, int64_t n, int64_t dim, const void *Qt, const void *K, int64_t ldk, void *S,
                                        void *block_max, const void *next, int64_t next_ld, const attn_prefetch_hint *beside)
{
    (void)next, (void)next_ld, (void)beside;
    NAME(score_chains)(NAME(chains)(), width, n, dim, Qt, K, ldk, S, block_max, NULL, NULL);
}

static void NAME(score)(int width, int64_t n, int64_t dim, const void *Qt, const void *K, int64_t ldk, void *S, void *block_max,
                        const void *next, int64_t next_ld)
{
    NAME(score_seen)(width, n, dim, Qt, K, ldk, S, block_max, NULL, NULL, next, next_ld);
}

static void NAME(score_beside)(int width, int64_t n, int64_t dim, const void *Qt, const void *K, int64_t ldk, void *S,
                               void *block_max, const void *next, int64_t next_ld, const attn_prefetch_hint *beside)
{
    (void)beside;
    NAME(score_seen)(width, n, dim, Qt, K, ldk, S, block_max, NULL, NULL, next, next_ld);
}

/* scores: NULL, or -infinity for dropped keys; drops: keys with P = 0 are dropped too. */
static void NAME(values_nan_safe)(int width, int64_t n, int64_t dim_v, const void *P, const void *scores, int drops, const void *V,
                                  int64_t ldv, const void *factor, void *Ot)
{
    on.values++;
    for (int64_t i = 0; i < NAME(lanes)(width); i++)
        for (int64_t c = 0; c < dim_v; c++) {
            REAL sum = 0, *o = (REAL *)Ot + c * NAME(tile_q)() + i;
            for (int64_t j = 0; j < n; j++) {
                const REAL p = ((const REAL *)P)[j * NAME(tile_q)() + i];
                if (drops && p == 0) continue;
                if (scores && ((const REAL *)scores)[j * NAME(tile_q)() + i] == -(REAL)INFINITY) continue;
                sum = NAME(multiply_add)(((const REAL *)V)[j * ldv + c], p, sum);
            }
            *o = NAME(multiply_add)(*o, factor ? ((const REAL *)factor)[i] : 1, sum);
        }
}

static void NAME(values)(int width, int64_t n, int64_t dim_v, const void *P, const void *V, int64_t ldv, const void *factor,
                         void *Ot, const void *next, int64_t next_ld)
{
    (void)next, (void)next_ld;
    NAME(values_nan_safe)(width, n, dim_v, P, NULL, 0, V, ldv, factor, Ot);
}

static void NAME(values_seen)(int width, int64_t n, int64_t dim_v, const void *P, const void *V, int64_t ldv, const void *factor,
                              void *Ot, const int32_t *low, const int32_t *high, const void *next, int64_t next_ld)
{
    (void)low, (void)high, (void)next, (void)next_ld;
    NAME(values_nan_safe)(width, n, dim_v, P, NULL, 0, V, ldv, factor, Ot);
}

static void NAME(add_values)(int width, int64_t n, int64_t dim, const void *P, const void *V, int64_t ldv, void *Ot)
{
    NAME(values_nan_safe)(width, n, dim, P, NULL, 0, V, ldv, NULL, Ot);
}

static void NAME(add_values_nan_safe)(int width, int64_t n, int64_t dim, const void *P, const void *V, int64_t ldv, void *Ot)
{
    NAME(values_nan_safe)(width, n, dim, P, NULL, 1, V, ldv, NULL, Ot);
}

static attn_product_part NAME(part)(const attn_product_part *of)
{
    return (attn_product_part){.shape = of->shape,
                               .block_kv = of->block_kv,
                               .score = NAME(score),
                               .score_beside = NAME(score_beside),
                               .score_seen = NAME(score_seen),
                               .score_beside_in_order = NAME(score_beside_in_order),
                               .score_seen_in_order = NAME(score_seen_in_order),
                               .values = NAME(values),
                               .values_seen = NAME(values_seen),
                               .values_nan_safe = NAME(values_nan_safe),
                               .add_values = NAME(add_values),
                               .add_values_nan_safe = NAME(add_values_nan_safe)};
}
