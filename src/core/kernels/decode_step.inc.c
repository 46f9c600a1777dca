/* SPDX-License-Identifier: MIT
 *
 * decode_step.inc.c - few queries, many keys: rows stay rows, channels lie in the lanes, and keys and values are read once, in
 * place, in their storage type.  Included by decode.inc.c.
 *
 * A key is multiplied with all rows while it is in registers: a register tile of scores is `rows` queries x VF_DOT_SUMS / rows
 * keys, whose lanes are finally added by the same tree for each.  Values are read in strips of VF_STRIP vectors.
 */
#ifdef VF_LANES

enum { PAIR = 2 * VF_LANES }; /* channels of vf_load_two */

/* Rows of a register tile: 4, then 1 or 2 if no more are left (3 are computed as 4). */
#define EACH_ROWS(f, rows, ...)                                                                                                    \
    do {                                                                                                                           \
        int64_t first_row = 0;                                                                                                     \
        for (; (rows)-first_row > 2; first_row += 4) f(4, first_row, __VA_ARGS__);                                                 \
        if ((rows)-first_row == 2) f(2, first_row, __VA_ARGS__);                                                                   \
        if ((rows)-first_row == 1) f(1, first_row, __VA_ARGS__);                                                                   \
    } while (0)

/* EACH_ROWS with a last argument that says whether keys come from memory, as a constant.  An inference-only build has one version
 * of a loop instead of six: it computes 2 rows as 4, and asks at run time. */
#ifdef ATTN_INFERENCE_ONLY
#undef EACH_ROWS
#define EACH_ROWS(f, rows, ...)                                                                                                    \
    do {                                                                                                                           \
        int64_t first_row = 0;                                                                                                     \
        for (; (rows)-first_row > 1; first_row += 4) f(4, first_row, __VA_ARGS__);                                                 \
        if ((rows)-first_row == 1) f(1, first_row, __VA_ARGS__);                                                                   \
    } while (0)
#define EACH_ROWS_OF(f, streaming, rows, ...) EACH_ROWS(f, rows, __VA_ARGS__, streaming)
#else
#define EACH_ROWS_OF(f, streaming, rows, ...)                                                                                      \
    do {                                                                                                                           \
        if (streaming) EACH_ROWS(f, rows, __VA_ARGS__, 1);                                                                         \
        else EACH_ROWS(f, rows, __VA_ARGS__, 0);                                                                                   \
    } while (0)
#endif

/* The place of channel c of `dim` in a row combined with loads of `order`: bf16 comes as even and odd channels. */
VF_INLINE int64_t place_of(const attn_dtype order, int64_t c, int64_t dim)
{
    if (!VF_SPLITS(order) || c / PAIR * PAIR + PAIR > dim) return c;
    return c / PAIR * PAIR + c % 2 * VF_LANES + c % PAIR / 2;
}

/* The row in natural order: undoes place_of. */
VF_INLINE void natural_row(const attn_dtype order, int64_t dim, const real *x, real *natural)
{
    int64_t c = 0;
    for (; VF_SPLITS(order) && c + PAIR <= dim; c += PAIR)
        for (int i = 0; i < VF_LANES; i++) {
            natural[c + 2 * i] = x[c + i];
            natural[c + 2 * i + 1] = x[c + VF_LANES + i];
        }
    memcpy(natural + c, x + c, (size_t)(dim - c) * sizeof(real));
}

/* ---- queries ---- */

VF_INLINE void pack_row(const attn_dtype dtype, int64_t dim, const void *q, real scale, attn_dtype order, real *Q)
{
    const vf factor = vf_set(scale);
    int64_t c = 0;
    for (; c + PAIR <= dim; c += PAIR) {
        vf x[2];
        if (dtype == order) {
            vf_load_two(dtype, q, c, x);
        } else {
            x[0] = vf_load_as(dtype, q, c);
            x[1] = vf_load_as(dtype, q, c + VF_LANES);
        }
        if (dtype != order && VF_SPLITS(order)) {
            real pair[PAIR];
            for (int h = 0; h < 2; h++) vf_store(pair + h * VF_LANES, vf_mul(factor, x[h]));
            for (int i = 0; i < PAIR; i++) Q[c + i % 2 * VF_LANES + i / 2] = pair[i];
        } else {
            for (int h = 0; h < 2; h++) vf_store(Q + c + h * VF_LANES, vf_mul(factor, x[h]));
        }
    }
    for (; c < dim; c += VF_LANES) {
        int64_t count = least(dim - c, VF_LANES);
        vf_store_part(Q + c, vf_mul(factor, load_some(dtype, q, c, count)), count);
    }
}

VF_INLINE void pack_rows_as(const attn_dtype dtype, int64_t rows, int64_t dim, const void *q, int64_t stride, double scale,
                            attn_dtype order, real *Q, int64_t ldq)
{
    for (int64_t i = 0; i < rows; i++)
        pack_row(dtype, dim, (const char *)q + i * stride * bytes_of(dtype), (real)scale, order, Q + i * ldq);
}

static void step_pack_rows(int64_t rows, int64_t dim, const void *q, attn_dtype dtype, int64_t stride, double scale,
                           attn_dtype order, void *Q, int64_t ldq)
{
    EACH_STORAGE(pack_rows_as, dtype, rows, dim, q, stride, scale, order, Q, ldq);
}

/* ---- scores ---- */

/* Stores the sums of a register tile as scores.  A macro: if it were a function with an array of its caller's, gcc 12 would store
 * the sums twice, 3 to 5 % of decode from a level 2 cache. */
#define STORE_SUMS(most, rows, whole, keys, sums, S, lds)                                                                          \
    do {                                                                                                                           \
        const int each = (most) / (rows);                                                                                          \
        if (whole) {                                                                                                               \
            VF_UNROLL                                                                                                              \
            for (int r = 0; r < (rows); r++) memcpy((S) + r * (lds), (sums) + r * each, (size_t)each * sizeof(real));              \
        } else {                                                                                                                   \
            for (int i = 0; i < each * (rows); i++)                                                                                \
                if (i % each < (keys)) (S)[i / each * (lds) + i % each] = (sums)[i];                                               \
        }                                                                                                                          \
    } while (0)

/* Adds the lanes of a tile's sums, and stores them. */
VF_INLINE void store_dots(const int rows, const int whole, int64_t keys, const vf *acc, real *S, int64_t lds)
{
    real sums[VF_DOT_SUMS];
    VF_UNROLL
    for (int i = 0; i < VF_DOT_SUMS; i += VF_LANES) vf_store(sums + i, vf_sums(acc + i));
    STORE_SUMS(VF_DOT_SUMS, rows, whole, keys, sums, S, lds);
}

/* Scores of `rows` queries and up to VF_DOT_SUMS / rows keys, of which `keys` exist. */
VF_INLINE void dot_tile(const int rows, const attn_dtype dtype, const int whole, int64_t keys, int64_t dim, const real *Q,
                        int64_t ldq, const char *K, int64_t ldk, real *S, int64_t lds, uintptr_t fetch, const int streaming)
{
    const int n = VF_DOT_SUMS / rows;
    const int64_t size = bytes_of(dtype);
    const int twice = streaming && few_instructions_between(dtype, rows);
    const prefetch_order next = prefetch_order_of(bytes_of(dtype) > 2 || twice, fetch, twice, ldk == dim, ldk * size);
    vf acc[VF_DOT_SUMS];
    int64_t c = 0;
    VF_UNROLL
    for (int i = 0; i < VF_DOT_SUMS; i++) acc[i] = vf_zero();
#define KEY(k) (K + (whole ? (k) : least(k, keys - 1)) * ldk * size)
    if (rows == 1) VF_UNROLL /* two multiply-adds a line: the order of the lines matters most, so key by key */
    for (int k = 0; k < n; k++) {
        if (!whole && k >= keys) continue; /* with pages of one token, most of the time */
        VF_ROLLED
        for (c = 0; c + PAIR <= dim; c += PAIR) {
            vf x[2];
            prefetch_in_step(&next, KEY(k), c * size, 1, (int)(PAIR * size), 0, 1);
            vf_load_two(dtype, KEY(k), c, x);
            VF_UNROLL
            for (int h = 0; h < 2; h++) acc[k] = vf_fma(x[h], vf_load(Q + c + h * VF_LANES), acc[k]);
        }
    }
    if (rows > 1) VF_ROLLED
    for (; c + PAIR <= dim; c += PAIR) {
        if (rows == 4) {
            vf x[VF_DOT_SUMS / 4][2];
            VF_UNROLL
            for (int k = 0; k < n; k++) vf_load_two(dtype, KEY(k), c, x[k]);
            VF_UNROLL
            for (int h = 0; h < 2; h++) {
                VF_UNROLL
                for (int r = 0; r < rows; r++) {
                    vf y = vf_load(Q + r * ldq + c + h * VF_LANES);
                    VF_PIN(y);
                    VF_UNROLL
                    for (int k = 0; k < n; k++) acc[r * n + k] = vf_fma(x[k][h], y, acc[r * n + k]);
                    prefetch_in_step(&next, K, c * size, n, (int)(PAIR * size), h * rows + r, 2 * rows);
                }
            }
        } else {
            prefetch_in_step(&next, K, c * size, n, (int)(PAIR * size), 0, 1);
            vf y[2][2], x[2];
            VF_UNROLL
            for (int r = 0; r < rows; r++) {
                VF_UNROLL
                for (int h = 0; h < 2; h++) y[r][h] = vf_load(Q + r * ldq + c + h * VF_LANES);
            }
            VF_UNROLL
            for (int k = 0; k < n; k++) {
                vf_load_two(dtype, KEY(k), c, x);
                VF_UNROLL
                for (int h = 0; h < 2; h++) {
                    VF_UNROLL
                    for (int r = 0; r < rows; r++) acc[r * n + k] = vf_fma(x[h], y[r][h], acc[r * n + k]);
                }
            }
        }
    }
    VF_ROLLED
    for (; c < dim; c += VF_LANES) {
        int64_t count = least(dim - c, VF_LANES);
        vf x[VF_DOT_SUMS];
        VF_UNROLL_TAIL
        for (int k = 0; k < n; k++) x[k] = load_some(dtype, KEY(k), c, count);
        VF_UNROLL
        for (int r = 0; r < rows; r++) {
            VF_UNROLL
            for (int k = 0; k < n; k++) acc[r * n + k] = vf_fma(x[k], vf_load(Q + r * ldq + c), acc[r * n + k]);
        }
    }
#undef KEY
    store_dots(rows, whole, keys, acc, S, lds);
}

/* The last keys of one query.  With 16 sums it is a function of its own, since gcc 12 otherwise spills those of whole tiles, a
 * fifth of decode in bf16 from a cache; with the 8 of AVX2, decode in f16 would take 6 % longer. */
VF_INLINE void last_dots_as(const attn_dtype dtype, int64_t keys, int64_t dim, const real *Q, const char *K, int64_t ldk, real *S,
                            uintptr_t fetch, int streaming)
{
    dot_tile(1, dtype, 0, keys, dim, Q, 0, K, ldk, S, 0, fetch, streaming);
}

FOR_KEYS(last_dots_as,
         (int64_t keys, int64_t dim, const real *Q, const char *K, int64_t ldk, real *S, uintptr_t fetch, int streaming), keys, dim,
         Q, K, ldk, S, fetch, streaming)

VF_INLINE void dot_rows(const int rows, int64_t first, const attn_dtype dtype, int64_t n, int64_t dim, const real *Q, int64_t ldq,
                        const char *K, int64_t ldk, real *S, int64_t lds, uintptr_t fetch, const int streaming)
{
    const int64_t each = VF_DOT_SUMS / rows, size = bytes_of(dtype);
    int64_t j = 0;
    /* Keys of four bytes come from memory no faster than the tile of the last keys takes them. */
    if (ATTN_TRAINS || (dtype != ATTN_F32 && dtype != ATTN_F16)) VF_ROLLED
    for (; j + each <= n; j += each)
        dot_tile(rows, dtype, 1, each, dim, Q + first * ldq, ldq, K + j * ldk * size, ldk, S + first * lds + j, lds, fetch,
                 streaming);
    if (ATTN_TRAINS && j < n && rows == 1 && VF_DOT_SUMS == 16) {
        EACH_KEYS(last_dots_as, dtype, n - j, dim, Q + first * ldq, K + j * ldk * size, ldk, S + first * lds + j, fetch, streaming);
        return;
    }
    VF_ROLLED
    for (; j < n; j += each)
        dot_tile(rows, dtype, 0, least(n - j, each), dim, Q + first * ldq, ldq, K + j * ldk * size, ldk, S + first * lds + j, lds,
                 fetch, streaming);
}

VF_INLINE void dots_as(const attn_dtype dtype, int64_t rows, int64_t n, int64_t dim, const real *Q, int64_t ldq, const char *K,
                       int64_t ldk, real *S, int64_t lds, uintptr_t fetch, int streaming)
{
    EACH_ROWS_OF(dot_rows, streaming && streaming_matters(dtype), rows, dtype, n, dim, Q, ldq, K, ldk, S, lds, fetch);
}

FOR_KEYS(dots_as,
         (int64_t rows, int64_t n, int64_t dim, const real *Q, int64_t ldq, const char *K, int64_t ldk, real *S, int64_t lds,
          uintptr_t fetch, int streaming),
         rows, n, dim, Q, ldq, K, ldk, S, lds, fetch, streaming)

static void step_dots(int64_t rows, int64_t n, int64_t dim, const void *Q, int64_t ldq, const void *K, attn_dtype dtype,
                      int64_t ldk, void *S, int64_t lds, int64_t fetch, int streaming)
{
    EACH_KEYS(dots_as, dtype, rows, n, dim, Q, ldq, K, ldk, S, lds, (uintptr_t)fetch, streaming);
}

/* ---- modifiers of one row of scores ---- */

static void step_scale_row(int64_t n, void *S, const void *factors)
{
    const real *factor = factors;
    for (int64_t j = 0; j < n; j += VF_LANES) {
        int64_t count = least(n - j, VF_LANES);
        real *s = (real *)S + j;
        vf_store_part(s, vf_mul(vf_load_part(s, count), vf_load_part(factor + j, count)), count);
    }
}

static void step_drop_outside(int64_t n, void *S, int64_t low, int64_t high)
{
    real *s = S;
    for (int64_t j = 0; j < least(low, n); j++) s[j] = -(real)INFINITY;
    for (int64_t j = high; j < n; j++) s[j] = -(real)INFINITY;
}

VF_INLINE void modify_row(const attn_dtype dtype, int64_t n, real *s, const void *base, int64_t stride)
{
    int64_t j = 0;
    if (stride == 1)
        for (; j < n; j += VF_LANES) {
            int64_t count = least(n - j, VF_LANES);
            vf_store_part(s + j, modified(dtype, vf_load_part(s + j, count), load_some(dtype, base, j, count)), count);
        }
    for (; j < n; j++) vf_store_part(s + j, modified(dtype, vf_set(s[j]), vf_set(real_at(dtype, base, j * stride))), 1);
}

static void step_keep_row(int64_t n, void *S, const void *mask, int64_t stride) { modify_row(ATTN_BOOL, n, S, mask, stride); }

static void step_bias_row(int64_t n, void *S, const void *bias, attn_dtype dtype, int64_t stride)
{
    EACH_STORAGE(modify_row, dtype, n, S, bias, stride);
}

static void step_softcap_row(int64_t n, void *S, double cap)
{
    const vf most = vf_set((real)cap), inverse = vf_set((real)(1 / cap));
    for (int64_t j = 0; j < n; j += VF_LANES) {
        int64_t count = least(n - j, VF_LANES);
        real *s = (real *)S + j;
        vf t = vf_tanh(vf_mul(vf_load_part(s, count), inverse));
        vf_store_part(s, vf_mul(most, t), count);
    }
}

static void step_alibi_row(int64_t n, void *S, double slope, int64_t first)
{
    const vf down = vf_set((real)-slope);
    real *s = S;
    for (int64_t j = 0; j < n; j++) {
        vf_store_part(s + j, vf_fma(down, vf_set((real)magnitude(first - j)), vf_set(s[j])), 1);
    }
}

/* ---- weights ---- */

/* Halves are added until one lane is left: always the same tree. */
VF_INLINE real sum_of_lanes(vf x)
{
    real lanes[VF_LANES];
    vf_store(lanes, x);
    for (int half = VF_LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
    return lanes[0];
}

VF_INLINE real max_of_lanes(vf x)
{
    real lanes[VF_LANES], most = -(real)INFINITY;
    vf_store(lanes, x);
    for (int i = 0; i < VF_LANES; i++) most = lanes[i] > most ? lanes[i] : most;
    return most;
}

static void step_exponentiate_row(int64_t n, void *S, void *m, void *l)
{
    real *s = S;
    vf most = vf_set(-(real)INFINITY), sum = vf_zero();
    int64_t end = (n + VF_LANES - 1) / VF_LANES * VF_LANES;
    for (int64_t j = n; j < end; j++) s[j] = -(real)INFINITY;
    for (int64_t j = 0; j < end; j += VF_LANES) most = vf_max(vf_load(s + j), most);
    real top = max_of_lanes(most);
    if (top == -(real)INFINITY) top = REAL_LOWEST;
    for (int64_t j = 0; j < end; j += VF_LANES) {
        vf p = vf_exp(vf_sub(vf_load(s + j), vf_set(top)));
        vf_store(s + j, p);
        sum = vf_add(sum, p);
    }
    *(real *)m = top;
    *(real *)l = sum_of_lanes(sum);
}

/* ---- values ---- */

enum { MAX_STRIP = 8 }; /* vectors of a strip for one row: memory prefers long pieces of a key to short ones */

/* One key's part of a strip: `width` vectors from channel c on, the last of them partial if count < VF_LANES. */
VF_INLINE void load_strip(const attn_dtype dtype, const int width, const char *V, int64_t c, int64_t count, vf *x)
{
    if (width == 1) {
        x[0] = load_some(dtype, V, c, count);
        return;
    }
    VF_UNROLL
    for (int w = 0; w < width; w += 2) vf_load_two(dtype, V, c + w * VF_LANES, x + w);
}

/* O[r][c ..] += sum_j P[r][j] V[j][c ..]: chains that continue from the last call, keys ascending. */
VF_INLINE void value_strip(const int rows, const int width, const attn_dtype dtype, int64_t n, int64_t dim_v, const real *P,
                           int64_t ldp, const char *V, int64_t ldv, real *O, int64_t ldo, int64_t c, int64_t count, uintptr_t fetch,
                           const int streaming)
{
    const int64_t size = bytes_of(dtype);
    const int bytes = (int)(width * VF_LANES * size);
    vf acc[4][MAX_STRIP];
    VF_UNROLL
    for (int r = 0; r < rows; r++) {
        VF_UNROLL
        for (int w = 0; w < width; w++) acc[r][w] = vf_load(O + r * ldo + c + w * VF_LANES);
    }
    const int twice = streaming && few_instructions_between(dtype, rows);
    const prefetch_order next = prefetch_order_of(bytes_of(dtype) > 2 || twice, fetch, twice, ldv == dim_v, ldv * size);
    const uintptr_t first = (uintptr_t)V + (uintptr_t)(c * size * (next.dense ? n : 1));
    const uintptr_t step = (uintptr_t)(next.dense ? bytes : ldv * size);
    const int prefetched = !next.dense && c * size % LINE != 0; /* another strip has prefetched its lines */
    VF_ROLLED
    for (int64_t j = 0; j < n; j++) {
        vf x[MAX_STRIP];
        const int prefetches = bytes >= LINE || (next.dense ? j * bytes % LINE == 0 : !prefetched);
        load_strip(dtype, width, V + j * ldv * size, c, count, x);
        VF_UNROLL
        for (int r = 0; r < rows; r++) {
            vf p = vf_set(P[r * ldp + j]);
            VF_UNROLL
            for (int w = 0; w < width; w++) acc[r][w] = vf_fma(p, x[w], acc[r][w]);
            if (prefetches) prefetch_share(&next, first + (uintptr_t)j * step, bytes, r, rows);
        }
    }
    VF_UNROLL
    for (int r = 0; r < rows; r++) {
        VF_UNROLL
        for (int w = 0; w < width; w++) vf_store(O + r * ldo + c + w * VF_LANES, acc[r][w]);
    }
}

VF_INLINE void chain_rows(const int rows, int64_t first, const attn_dtype dtype, int64_t n, int64_t dim_v, const real *P,
                          int64_t ldp, const char *V, int64_t ldv, real *O, int64_t ldo, uintptr_t fetch, const int streaming)
{
    int64_t c = 0;
    P += first * ldp;
    O += first * ldo;
#define STRIP(width, count) value_strip(rows, width, dtype, n, dim_v, P, ldp, V, ldv, O, ldo, c, count, fetch, streaming)
    if (rows < 4) VF_ROLLED
    for (; c + MAX_STRIP / rows * VF_LANES <= dim_v; c += MAX_STRIP / rows * VF_LANES) STRIP(MAX_STRIP / rows, VF_LANES);
    VF_ROLLED
    for (; c + VF_STRIP * VF_LANES <= dim_v; c += VF_STRIP * VF_LANES) STRIP(VF_STRIP, VF_LANES);
    if (VF_STRIP > 2 && c + PAIR <= dim_v) {
        STRIP(2, VF_LANES);
        c += PAIR;
    }
    VF_ROLLED
    for (; c < dim_v; c += VF_LANES) STRIP(1, least(dim_v - c, VF_LANES));
#undef STRIP
}

VF_INLINE void values_as(const attn_dtype dtype, int64_t rows, int64_t n, int64_t dim_v, const real *P, int64_t ldp, const char *V,
                         int64_t ldv, real *O, int64_t ldo, uintptr_t fetch, int streaming)
{
    EACH_ROWS_OF(chain_rows, streaming && streaming_matters(dtype), rows, dtype, n, dim_v, P, ldp, V, ldv, O, ldo, fetch);
}

FOR_KEYS(values_as,
         (int64_t rows, int64_t n, int64_t dim_v, const real *P, int64_t ldp, const char *V, int64_t ldv, real *O, int64_t ldo,
          uintptr_t fetch, int streaming),
         rows, n, dim_v, P, ldp, V, ldv, O, ldo, fetch, streaming)

static void step_decode_values(int64_t rows, int64_t n, int64_t dim_v, const void *P, int64_t ldp, const void *V, attn_dtype dtype,
                               int64_t ldv, void *O, int64_t ldo, int64_t fetch, int streaming)
{
    EACH_KEYS(values_as, dtype, rows, n, dim_v, P, ldp, V, ldv, O, ldo, (uintptr_t)fetch, streaming);
}

/* The same for one row, without the keys whose scores are -infinity, whatever their values. */
static void step_decode_values_nan_safe(int64_t n, int64_t dim_v, const void *S, const void *P, const void *V, attn_dtype dtype,
                                        int64_t ldv, void *O)
{
    for (int64_t j = 0; j < n; j++) {
        if (((const real *)S)[j] == -(real)INFINITY) continue;
        vf p = vf_set(((const real *)P)[j]);
        for (int64_t c = 0; c < dim_v; c++) {
            real *o = (real *)O + place_of(dtype, c, dim_v);
            vf_store_part(o, vf_fma(p, vf_set(real_at(dtype, V, j * ldv + c)), vf_set(*o)), 1);
        }
    }
}

/* ---- results ---- */

static int step_row_not_finite(int64_t dim_v, const void *O)
{
    real sum = 0; /* 0 times a finite number is 0, else NaN */
    for (int64_t c = 0; c < dim_v; c++) sum += 0 * ((const real *)O)[c];
    return sum != 0;
}

VF_INLINE void store_row(const attn_dtype dtype, int64_t dim, const real *x, void *o)
{
    for (int64_t c = 0; c < dim; c += VF_LANES) store_some(dtype, o, c, vf_load(x + c), least(dim - c, VF_LANES));
}

static void step_finish_row(int64_t parts, int64_t dim_v, void *m, const void *l, const void *O, int64_t ldo, attn_dtype order,
                            double sink, void *scratch, void *o, attn_dtype dtype, void *lse)
{
    const real *sums = l;
    real *factor = m, *sum = scratch, *natural = sum + (dim_v + VF_LANES - 1) / VF_LANES * VF_LANES;
    const int joins = sink > -(double)INFINITY || sink != sink;
    real most = joins ? (real)sink : REAL_LOWEST, total = 0;
    for (int64_t part = 0; part < parts; part++)
        if (sums[part] != 0 && factor[part] > most) most = factor[part];
    if (joins) {
        real lanes[VF_LANES];
        vf_store(lanes, vf_exp(vf_sub(vf_set((real)sink), vf_set(most))));
        total = lanes[0];
    }
    for (int64_t part = 0; part < parts; part += VF_LANES) {
        int64_t count = least(parts - part, VF_LANES);
        vf_store_part(factor + part, vf_exp(vf_sub(vf_load_part(factor + part, count), vf_set(most))), count);
    }
    for (int64_t part = 0; part < parts; part++) total += sums[part] == 0 ? 0 : factor[part] * sums[part];

    const vf inverse = vf_div(vf_set(1), vf_set(total));
    for (int64_t c = 0; c < dim_v; c += VF_LANES) {
        vf acc = vf_zero();
        for (int64_t part = 0; part < parts; part++) {
            if (sums[part] == 0) continue;
            acc = vf_fma(vf_set(factor[part]), vf_load((const real *)O + part * ldo + c), acc);
        }
        vf_store(sum + c, total == 0 ? vf_zero() : vf_mul(acc, inverse));
    }
    natural_row(order, dim_v, sum, natural);
    EACH_STORAGE(store_row, dtype, dim_v, natural, o);
    if (lse) *(real *)lse = total == 0 ? -(real)INFINITY : (real)((double)most + log((double)total));
}

#endif
