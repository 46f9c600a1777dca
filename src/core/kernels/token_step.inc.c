/* SPDX-License-Identifier: MIT
 *
 * token_step.inc.c - one token of linear attention: the state is read, updated and queried in one pass, with value channels in the
 * lanes.  Included by linear.inc.c.
 */
#ifdef VF_LANES

/* A block of `vectors` vectors of a row of the state or the like, from element `at` on (`count` channels of the last one). */
VF_INLINE void load_block_as(const attn_dtype dtype, const int vectors, const void *x, int64_t at, int64_t count, vf *to)
{
    VF_UNROLL
    for (int v = 0; v < vectors; v++)
        to[v] = vectors == 1 ? load_some(dtype, x, at, count) : vf_load_as(dtype, x, at + v * VF_LANES);
}

VF_INLINE void store_block_as(const attn_dtype dtype, const int vectors, void *x, int64_t at, int64_t count, const vf *from)
{
    VF_UNROLL
    for (int v = 0; v < vectors; v++) {
        if (vectors == 1) store_some(dtype, x, at, from[v], count);
        else vf_store_as(dtype, x, at + v * VF_LANES, from[v]);
    }
}

/* Whole blocks of a state of bf16 have the even and the odd channels of each pair of vectors apart: that takes half of the
 * instructions. */
#ifdef VF_STORES_TWO
#define STATE_SPLITS(dtype, vectors) (VF_SPLITS(dtype) && (vectors) > 1)
#else
#define STATE_SPLITS(dtype, vectors) ((void)(dtype), (void)(vectors), 0)
#define vf_store_two(base, index, x) ((void)(base), (void)(index), (void)(x))
#endif

VF_INLINE void load_state(const attn_dtype dtype, const int vectors, const void *S, int64_t at, int64_t count, vf *to)
{
    if (!STATE_SPLITS(dtype, vectors)) {
        load_block_as(dtype, vectors, S, at, count, to);
        return;
    }
    VF_UNROLL
    for (int v = 0; v + 1 < vectors; v += 2) vf_load_two(dtype, S, at + v * VF_LANES, to + v);
}

VF_INLINE void store_state(const attn_dtype dtype, const int vectors, void *S, int64_t at, int64_t count, const vf *from)
{
    if (!STATE_SPLITS(dtype, vectors)) {
        store_block_as(dtype, vectors, S, at, count, from);
        return;
    }
    VF_UNROLL
    for (int v = 0; v + 1 < vectors; v += 2) vf_store_two(S, at + v * VF_LANES, from + v);
}

/* The same of the compute type. */
VF_INLINE void load_block(const int vectors, const real *x, int64_t count, vf *to)
{
    load_block_as(REAL_DTYPE, vectors, x, 0, count, to);
}

VF_INLINE void store_block(const int vectors, real *x, int64_t count, const vf *from)
{
    store_block_as(REAL_DTYPE, vectors, x, 0, count, from);
}

/* The same in the order of the channels of a state. */
VF_INLINE void load_ordered(const attn_dtype dtype, const int vectors, const real *x, int64_t count, vf *to)
{
    real part[2 * VF_LANES];
    if (!STATE_SPLITS(dtype, vectors)) {
        load_block(vectors, x, count, to);
        return;
    }
    for (int v = 0; v + 1 < vectors; v += 2, x += 2 * VF_LANES) {
        for (int i = 0; i < VF_LANES; i++) part[i] = x[2 * i], part[VF_LANES + i] = x[2 * i + 1];
        to[v] = vf_load(part);
        to[v + 1] = vf_load(part + VF_LANES);
    }
}

VF_INLINE void store_ordered(const attn_dtype dtype, const int vectors, real *x, int64_t count, const vf *from)
{
    real part[2 * VF_LANES];
    if (!STATE_SPLITS(dtype, vectors)) {
        store_block(vectors, x, count, from);
        return;
    }
    for (int v = 0; v + 1 < vectors; v += 2, x += 2 * VF_LANES) {
        vf_store(part, from[v]);
        vf_store(part + VF_LANES, from[v + 1]);
        for (int i = 0; i < VF_LANES; i++) x[2 * i] = part[i], x[2 * i + 1] = part[VF_LANES + i];
    }
}

/* Vectors of a pass over the state: 32 channels of f32.  Four vectors of 16 took 385 ns a token at D64 on Zen 4, two take 332. */
enum { TOKEN_BLOCK = VF_LANES >= 16 ? 2 : 4 };

/* Channels in blocks of TOKEN_BLOCK vectors, then vector by vector. */
#define EACH_TOKEN_BLOCK(dim, f, ...)                                                                                              \
    do {                                                                                                                           \
        int64_t d = 0;                                                                                                             \
        for (; d + TOKEN_BLOCK * VF_LANES <= (dim); d += TOKEN_BLOCK * VF_LANES) f(TOKEN_BLOCK, d, VF_LANES, __VA_ARGS__);         \
        for (; d < (dim); d += VF_LANES) f(1, d, least((dim)-d, VF_LANES), __VA_ARGS__);                                           \
    } while (0)

enum { UNGATED, GATED_HEAD, GATED_CHANNEL };

VF_INLINE vf gate_at(const int gated, const real *gate, int64_t c) { return vf_set(gate[gated == GATED_CHANNEL ? c : 0]); }

/* Adds row c of the state, weighted. */
VF_INLINE void recall_row(const int vectors, int64_t d, int64_t count, const attn_dtype dtype, const int gated, int64_t c,
                          const real *x, const real *gate, const void *S, int64_t ld, vf *acc)
{
    vf s[TOKEN_BLOCK], factor = vf_set(x[c]);
    if (gated) factor = vf_mul(factor, gate_at(gated, gate, c));
    load_state(dtype, vectors, S, c * ld + d, count, s);
    VF_UNROLL
    for (int v = 0; v < vectors; v++) acc[v] = vf_fma(factor, s[v], acc[v]);
}

/* sums = sum_c x_c gate_c S[c][:], even and odd rows apart: a multiply-add waits for the one before it. */
VF_INLINE void recall_block(const int vectors, int64_t d, int64_t count, const attn_dtype dtype, const int gated, int64_t dim_k,
                            const real *x, const real *gate, const void *S, int64_t ld, real *sums)
{
    vf even[TOKEN_BLOCK], odd[TOKEN_BLOCK];
    int64_t c = 0;
    VF_UNROLL
    for (int v = 0; v < vectors; v++) even[v] = odd[v] = vf_zero();
    for (; c + 2 <= dim_k; c += 2) {
        recall_row(vectors, d, count, dtype, gated, c, x, gate, S, ld, even);
        recall_row(vectors, d, count, dtype, gated, c + 1, x, gate, S, ld, odd);
    }
    if (c < dim_k) recall_row(vectors, d, count, dtype, gated, c, x, gate, S, ld, even);
    VF_UNROLL
    for (int v = 0; v < vectors; v++) even[v] = vf_add(even[v], odd[v]);
    store_ordered(dtype, vectors, sums + d, count, even);
}

/* The lines of a block's row of the next state, into the level 2 cache: rows of a block are far apart, which the CPU does not
 * foresee. */
VF_INLINE void prefetch_next(uintptr_t next, int64_t at, int64_t bytes)
{
    for (int64_t i = 0; next && i < bytes; i += 64) __builtin_prefetch((const void *)(next + (uintptr_t)(at + i)), 0, 2);
}

/* From what the state returns for the key: u = beta (v - u). */
VF_INLINE void correct(int64_t from, int64_t to, const attn_token *t)
{
    real *u = t->u;
    const real *v = t->v;
    for (int64_t d = from; d < to; d++) u[d] = (real)t->beta * (v[d] - u[d]);
}

/* S[c][:] = gate_c before[c][:] + k_c u;   y = sum_c q_c S[c][:].  By the delta rule u = beta (v - sum_c k_c gate_c before[c][:]):
 * a block of the state is read twice, the second time from the cache. */
VF_INLINE void token_block(const int vectors, int64_t d, int64_t count, const attn_dtype dtype, const int gated,
                           const attn_token *t)
{
    const real *q = t->q, *k = t->k, *u = t->delta ? t->u : t->v, *gate = t->gate;
    real *y = t->y;
    const void *before = t->before;
    void *S = t->S;
    const uintptr_t next = (uintptr_t)t->next;
    const int64_t dim_k = t->dim_k, ld = t->ld, ld_before = t->ld_before;
    vf acc[TOKEN_BLOCK], s[TOKEN_BLOCK], add[TOKEN_BLOCK];
    if (t->delta) {
        recall_block(vectors, d, count, dtype, gated, dim_k, k, gate, before, ld_before, t->u);
        correct(d, least(t->dim_v, d + vectors * VF_LANES), t);
    }
    load_ordered(dtype, vectors, u + d, count, add);
    VF_UNROLL
    for (int v = 0; v < vectors; v++) acc[v] = vf_zero();
    VF_ROLLED
    for (int64_t c = 0; c < dim_k; c++) {
        const vf key = vf_set(k[c]), query = vf_set(q[c]);
        prefetch_next(next, (c * ld_before + d) * bytes_of(dtype), vectors * VF_LANES * bytes_of(dtype));
        load_state(dtype, vectors, before, c * ld_before + d, count, s);
        VF_UNROLL
        for (int v = 0; v < vectors; v++) {
            if (gated) s[v] = vf_mul(s[v], gate_at(gated, gate, c));
            s[v] = vf_fma(key, add[v], s[v]);
            acc[v] = vf_fma(query, s[v], acc[v]);
        }
        store_state(dtype, vectors, S, c * ld + d, count, s);
    }
    store_ordered(dtype, vectors, y + d, count, acc);
}

/* Calls f with the kind of gate as a constant. */
#define EACH_GATE(dtype, gated, f, dim, ...)                                                                                       \
    do {                                                                                                                           \
        if ((gated) == UNGATED) EACH_TOKEN_BLOCK(dim, f, dtype, UNGATED, __VA_ARGS__);                                             \
        else if ((gated) == GATED_HEAD) EACH_TOKEN_BLOCK(dim, f, dtype, GATED_HEAD, __VA_ARGS__);                                  \
        else EACH_TOKEN_BLOCK(dim, f, dtype, GATED_CHANNEL, __VA_ARGS__);                                                          \
    } while (0)

static int gate_kind(const attn_token *t) { return !t->gate ? UNGATED : t->gate_channels ? GATED_CHANNEL : GATED_HEAD; }

/* u = beta (v - k^T S of the gated state), by the delta rule; else v itself. */
VF_INLINE const real *token_value(const attn_token *t, const real *S)
{
    if (!t->delta) return t->v;
    EACH_GATE(REAL_DTYPE, gate_kind(t), recall_block, t->dim_v, t->dim_k, t->k, t->gate, S, t->ld, t->u);
    correct(0, t->dim_v, t);
    return t->u;
}

VF_INLINE void token_as(const attn_dtype dtype, const attn_token *t) { EACH_GATE(dtype, gate_kind(t), token_block, t->dim_v, t); }

static void step_token(const attn_token *t)
{
#if REAL_BITS == 32
    if (t->stored == ATTN_BF16) token_as(ATTN_BF16, t);
    else if (t->stored == ATTN_F16) token_as(ATTN_F16, t);
    else token_as(ATTN_F32, t);
#else
    token_as(ATTN_F64, t);
#endif
}

static void step_recall(int64_t dim_k, int64_t dim_v, const void *q, const void *S, int64_t ld, void *y)
{
    EACH_TOKEN_BLOCK(dim_v, recall_block, REAL_DTYPE, UNGATED, dim_k, q, NULL, S, ld, y);
}

/* z = gate z + k; returns q.z */
static double step_token_sum(int64_t dim, const void *q, const void *k, const void *gate, int channels, void *z)
{
    vf sum = vf_zero();
    for (int64_t c = 0; c < dim; c += VF_LANES) {
        vf at = load_some(REAL_DTYPE, z, c, dim - c);
        if (gate) at = vf_mul(at, channels ? load_some(REAL_DTYPE, gate, c, dim - c) : vf_set(*(const real *)gate));
        if (k) at = vf_add(at, load_some(REAL_DTYPE, k, c, dim - c));
        if (k) store_some(REAL_DTYPE, z, c, at, dim - c);
        sum = vf_fma(load_some(REAL_DTYPE, q, c, dim - c), at, sum);
    }
    return (double)sum_of_lanes(sum);
}

static void step_recall_backward(int64_t dim_k, int64_t dim_v, const void *q, const void *a, const void *S, int64_t ld, void *dS,
                                 void *dq)
{
    for (int64_t c = 0; c < dim_k; c++) {
        const real *s = (const real *)S + c * ld;
        real *ds = (real *)dS + c * ld;
        const vf query = vf_set(((const real *)q)[c]);
        vf sum = vf_zero();
        for (int64_t d = 0; d < dim_v; d += VF_LANES) {
            vf x = load_some(REAL_DTYPE, a, d, dim_v - d);
            sum = vf_fma(load_some(REAL_DTYPE, s, d, dim_v - d), x, sum);
            store_some(REAL_DTYPE, ds, d, vf_fma(query, x, load_some(REAL_DTYPE, ds, d, dim_v - d)), dim_v - d);
        }
        ((real *)dq)[c] = sum_of_lanes(sum);
    }
}

static void step_token_backward(const attn_token *t, const void *before, void *dS, void *dk, void *dv, double *dbeta, void *dlog)
{
    const real *k = t->k, *gate = t->gate, *S = before;
    real *u = t->u, *du = t->y, *grad_v = dv;
    const int gated = gate_kind(t);

    (void)token_value(t, S);
    EACH_TOKEN_BLOCK(t->dim_v, recall_block, REAL_DTYPE, UNGATED, t->dim_k, k, NULL, dS, t->ld, du);
    *dbeta = 0;
    for (int64_t d = 0; d < t->dim_v; d++) {
        if (t->delta && t->beta != 0) *dbeta += (double)du[d] * (double)u[d] / t->beta;
        grad_v[d] = t->delta ? (real)t->beta * du[d] : du[d];
    }
    if (t->delta && t->beta == 0) { /* u is 0: computes v minus the recalled value again */
        attn_token one = *t;
        one.beta = 1;
        (void)token_value(&one, S);
        for (int64_t d = 0; d < t->dim_v; d++) *dbeta += (double)du[d] * (double)u[d], u[d] = 0;
    }
    const real *written = t->delta ? u : (const real *)t->v;
    for (int64_t c = 0; c < t->dim_k; c++) {
        const vf factor = gated ? gate_at(gated, gate, c) : vf_set(1), key = vf_set(k[c]);
        vf for_key = vf_zero(), for_gate = vf_zero();
        for (int64_t d = 0; d < t->dim_v; d += VF_LANES) {
            const int64_t left = t->dim_v - d;
            real *at = (real *)dS + c * t->ld + d;
            vf g = load_some(REAL_DTYPE, at, 0, left), s = vf_mul(factor, load_some(REAL_DTYPE, S, c * t->ld + d, left));
            for_key = vf_fma(g, load_some(REAL_DTYPE, written, d, left), for_key);
            if (t->delta) {
                vf recalled = vf_sub(vf_zero(), load_some(REAL_DTYPE, grad_v, d, left));
                for_key = vf_fma(s, recalled, for_key);
                g = vf_fma(key, recalled, g);
            }
            for_gate = vf_fma(g, s, for_gate);
            store_some(REAL_DTYPE, at, 0, vf_mul(factor, g), left);
        }
        ((real *)dk)[c] = sum_of_lanes(for_key);
        ((real *)dlog)[c] = sum_of_lanes(for_gate);
    }
}

#endif
