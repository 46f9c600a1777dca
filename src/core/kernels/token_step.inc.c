/* SPDX-License-Identifier: MIT
 *
 * token_step.inc.c - one token of linear attention: the state is read, updated and queried in one pass, with value channels in the
 * lanes.  Included by linear.inc.c.
 */
#ifdef VF_LANES

/* A block of `vectors` vectors of a row of the state or the like (`count` channels of the last one). */
VF_INLINE void load_block(const int vectors, const real *x, int64_t count, vf *to)
{
    VF_UNROLL
    for (int v = 0; v < vectors; v++) to[v] = vectors == 1 ? load_some(REAL_DTYPE, x, 0, count) : vf_load(x + v * VF_LANES);
}

VF_INLINE void store_block(const int vectors, real *x, int64_t count, const vf *from)
{
    VF_UNROLL
    for (int v = 0; v < vectors; v++) {
        if (vectors == 1) store_some(REAL_DTYPE, x, 0, from[v], count);
        else vf_store(x + v * VF_LANES, from[v]);
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

/* sums = sum_c x_c gate_c S[c][:] */
VF_INLINE void recall_block(const int vectors, int64_t d, int64_t count, const int gated, int64_t dim_k, const real *x,
                            const real *gate, const real *S, int64_t ld, real *sums)
{
    vf acc[TOKEN_BLOCK], s[TOKEN_BLOCK];
    VF_UNROLL
    for (int v = 0; v < vectors; v++) acc[v] = vf_zero();
    for (int64_t c = 0; c < dim_k; c++) {
        vf factor = vf_set(x[c]);
        if (gated) factor = vf_mul(factor, gate_at(gated, gate, c));
        load_block(vectors, S + c * ld + d, count, s);
        VF_UNROLL
        for (int v = 0; v < vectors; v++) acc[v] = vf_fma(factor, s[v], acc[v]);
    }
    store_block(vectors, sums + d, count, acc);
}

/* S[c][:] = gate_c S[c][:] + k_c u;   y = sum_c q_c S[c][:] */
VF_INLINE void token_block(const int vectors, int64_t d, int64_t count, const int gated, int64_t dim_k, const real *q,
                           const real *k, const real *u, const real *gate, real *S, int64_t ld, real *y)
{
    vf acc[TOKEN_BLOCK], s[TOKEN_BLOCK], add[TOKEN_BLOCK];
    load_block(vectors, u + d, count, add);
    VF_UNROLL
    for (int v = 0; v < vectors; v++) acc[v] = vf_zero();
    VF_ROLLED
    for (int64_t c = 0; c < dim_k; c++) {
        const vf key = vf_set(k[c]), query = vf_set(q[c]);
        load_block(vectors, S + c * ld + d, count, s);
        VF_UNROLL
        for (int v = 0; v < vectors; v++) {
            if (gated) s[v] = vf_mul(s[v], gate_at(gated, gate, c));
            s[v] = vf_fma(key, add[v], s[v]);
            acc[v] = vf_fma(query, s[v], acc[v]);
        }
        store_block(vectors, S + c * ld + d, count, s);
    }
    store_block(vectors, y + d, count, acc);
}

/* Calls f with the kind of gate as a constant. */
#define EACH_GATE(gated, f, dim, ...)                                                                                              \
    do {                                                                                                                           \
        if ((gated) == UNGATED) EACH_TOKEN_BLOCK(dim, f, UNGATED, __VA_ARGS__);                                                    \
        else if ((gated) == GATED_HEAD) EACH_TOKEN_BLOCK(dim, f, GATED_HEAD, __VA_ARGS__);                                         \
        else EACH_TOKEN_BLOCK(dim, f, GATED_CHANNEL, __VA_ARGS__);                                                                 \
    } while (0)

static int gate_kind(const attn_token *t) { return !t->gate ? UNGATED : t->gate_channels ? GATED_CHANNEL : GATED_HEAD; }

/* u = beta (v - k^T S of the gated state), by the delta rule; else v itself. */
VF_INLINE const real *token_value(const attn_token *t, const real *S)
{
    real *u = t->u;
    const real *v = t->v;
    if (!t->delta) return v;
    EACH_GATE(gate_kind(t), recall_block, t->dim_v, t->dim_k, t->k, t->gate, S, t->ld, u);
    for (int64_t d = 0; d < t->dim_v; d++) u[d] = (real)t->beta * (v[d] - u[d]);
    return u;
}

static void step_token(const attn_token *t)
{
    const real *u = token_value(t, t->S);
    EACH_GATE(gate_kind(t), token_block, t->dim_v, t->dim_k, t->q, t->k, u, t->gate, t->S, t->ld, t->y);
}

static void step_recall(int64_t dim_k, int64_t dim_v, const void *q, const void *S, int64_t ld, void *y)
{
    EACH_TOKEN_BLOCK(dim_v, recall_block, UNGATED, dim_k, q, NULL, S, ld, y);
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
    EACH_TOKEN_BLOCK(t->dim_v, recall_block, UNGATED, t->dim_k, k, NULL, dS, t->ld, du);
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
