/* SPDX-License-Identifier: MIT
 *
 * gate_step.inc.c - chunks of linear attention with per-channel decays, and of the delta rule, which reads what it wrote: products
 * of gates run along the tokens, one multiplication each, so that nothing is divided and nothing overflows; and the triangular
 * systems of the delta rule.  Included by linear.inc.c.
 */
#ifdef VF_LANES

static void step_gates(int64_t n, int64_t dim, void *X, int64_t ld)
{
    const vf least = vf_set(REAL_BITS == 32 ? -110 : -750);
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < dim; c += VF_LANES) {
            vf x = load_some(REAL_DTYPE, X, i * ld + c, dim - c);
            store_some(REAL_DTYPE, X, i * ld + c, exp_finite(vf_max(least, x)), dim - c);
        }
}

static void step_decay_rows(int64_t n, int64_t dim, const void *X, const void *gates, int64_t ld, int after, void *out, void *total)
{
    for (int64_t c = 0; c < dim; c += VF_LANES) {
        vf product = vf_set(1);
        for (int64_t k = 0; k < n; k++) {
            const int64_t at = (after ? n - 1 - k : k) * ld + c;
            const vf gate = vf_load((const real *)gates + at), x = vf_load((const real *)X + at);
            if (!after) product = vf_mul(product, gate);
            vf_store((real *)out + at, vf_mul(x, product));
            if (after) product = vf_mul(product, gate);
        }
        vf_store((real *)total + c, product);
    }
}

/* The tokens of a tile's lanes. */
VF_INLINE vf lane_tokens(int64_t first, int v)
{
    int32_t steps[VF_LANES];
    for (int i = 0; i < VF_LANES; i++) steps[i] = (int32_t)v * VF_LANES + i;
    return vf_add(vf_of_i32(steps), vf_set((real)first));
}

/* sums[v] = sum_c X[c][lane] row_c, and X[c][lane] *= gate_c in the lanes set in `moved`: after the sum, or with `before` before
 * it. */
VF_INLINE void dot_and_move(const int width, const int before, int64_t dim, real *X, const real *row, const real *gate,
                            const vm *moved, vf *sums)
{
    vf other[VF_VECTORS];
    VF_UNROLL
    for (int v = 0; v < width; v++) sums[v] = other[v] = vf_zero();
    for (int64_t c = 0; c < dim; c++, X += TILE) {
        const vf factor = vf_set(gate[c]), key = vf_set(row[c]);
        VF_UNROLL
        for (int v = 0; v < width; v++) {
            const vf x = vf_load(X + v * VF_LANES), next = vf_select(moved[v], vf_mul(x, factor), x);
            if (c % 2) other[v] = vf_fma(before ? next : x, key, other[v]);
            else sums[v] = vf_fma(before ? next : x, key, sums[v]);
            vf_store(X + v * VF_LANES, next);
        }
    }
    VF_UNROLL
    for (int v = 0; v < width; v++) sums[v] = vf_add(sums[v], other[v]);
}

VF_INLINE void score_gated(const int width, const int reverse, int64_t n, int64_t dim, real *Xt, const real *rows,
                           const real *gates, int64_t ld, int64_t first, int strict, real *S)
{
    vf tokens[VF_VECTORS], sums[VF_VECTORS];
    vm moved[VF_VECTORS];
    VF_UNROLL
    for (int v = 0; v < width; v++) tokens[v] = lane_tokens(first, v);
    for (int64_t k = 0; k < n; k++) {
        const int64_t r = reverse ? k : n - 1 - k;
        const vf row = vf_set((real)r), kept = vf_set((real)(reverse ? r - strict : r + strict));
        VF_UNROLL
        for (int v = 0; v < width; v++) moved[v] = reverse ? vf_gt(row, tokens[v]) : vf_ge(tokens[v], row);
        dot_and_move(width, reverse, dim, Xt, rows + r * ld, gates + r * ld, moved, sums);
        VF_UNROLL
        for (int v = 0; v < width; v++)
            vf_store(S + r * TILE + v * VF_LANES,
                     vf_select(reverse ? vf_ge(kept, tokens[v]) : vf_ge(tokens[v], kept), sums[v], vf_zero()));
    }
}

static void step_score_gated(int width, int64_t n, int64_t dim, void *Xt, const void *rows, const void *gates, int64_t ld,
                             int64_t first, int strict, int reverse, void *S)
{
    if (reverse) VF_EACH_WIDTH(score_gated, width, 1, n, dim, Xt, rows, gates, ld, first, strict, S);
    else VF_EACH_WIDTH(score_gated, width, 0, n, dim, Xt, rows, gates, ld, first, strict, S);
}

VF_INLINE void add_gated(const int width, const int reverse, int64_t n, int64_t dim, const real *S, const real *rows,
                         const real *gates, int64_t ld, int64_t first, real *Gt)
{
    vf tokens[VF_VECTORS];
    VF_UNROLL
    for (int v = 0; v < width; v++) tokens[v] = lane_tokens(first, v);
    for (int64_t c = 0; c < dim; c++, Gt += TILE) {
        vf acc[VF_VECTORS];
        VF_UNROLL
        for (int v = 0; v < width; v++) acc[v] = vf_load(Gt + v * VF_LANES);
        for (int64_t k = 0; k < n; k++) {
            const int64_t r = reverse ? n - 1 - k : k;
            const vf at = vf_set((real)r), x = vf_set(rows[r * ld + c]), factor = vf_set(gates[r * ld + c]);
            VF_UNROLL
            for (int v = 0; v < width; v++) {
                const vf s = vf_load(S + r * TILE + v * VF_LANES);
                if (reverse) {
                    acc[v] = vf_fma(s, x, acc[v]);
                    acc[v] = vf_select(vf_gt(at, tokens[v]), vf_mul(acc[v], factor), acc[v]);
                } else {
                    acc[v] = vf_select(vf_ge(tokens[v], at), vf_mul(acc[v], factor), acc[v]);
                    acc[v] = vf_fma(s, x, acc[v]);
                }
            }
        }
        VF_UNROLL
        for (int v = 0; v < width; v++) vf_store(Gt + v * VF_LANES, acc[v]);
    }
}

static void step_add_gated(int width, int64_t n, int64_t dim, const void *S, const void *rows, const void *gates, int64_t ld,
                           int64_t first, int reverse, void *Gt)
{
    if (reverse) VF_EACH_WIDTH(add_gated, width, 1, n, dim, S, rows, gates, ld, first, Gt);
    else VF_EACH_WIDTH(add_gated, width, 0, n, dim, S, rows, gates, ld, first, Gt);
}

/* Channels from d on of all rows: W_i = V_i - X_i - sum_(j<i) S[j][i] beta_j W_j and U_i = beta_i W_i. */
VF_INLINE void solve_block(const int vectors, int64_t d, int64_t count, int64_t n, const real *S, const real *X, const real *V,
                           int64_t ldv, const real *beta, real *W, real *U, int64_t ld)
{
    vf acc[TOKEN_BLOCK], x[TOKEN_BLOCK];
    for (int64_t i = 0; i < n; i++) {
        const vf factor = vf_set(beta[i]);
        load_block(vectors, V + i * ldv + d, count, acc);
        load_block(vectors, X + i * ld + d, count, x);
        VF_UNROLL
        for (int v = 0; v < vectors; v++) acc[v] = vf_sub(acc[v], x[v]);
        for (int64_t j = 0; j < i; j++) {
            const vf s = vf_set(-S[j * TILE + i]);
            load_block(vectors, U + j * ld + d, count, x);
            VF_UNROLL
            for (int v = 0; v < vectors; v++) acc[v] = vf_fma(s, x[v], acc[v]);
        }
        store_block(vectors, W + i * ld + d, count, acc);
        VF_UNROLL
        for (int v = 0; v < vectors; v++) acc[v] = vf_mul(factor, acc[v]);
        store_block(vectors, U + i * ld + d, count, acc);
    }
}

static void step_solve(int64_t n, int64_t dim, const void *S, const void *X, const void *V, int64_t ldv, const void *beta, void *W,
                       void *U, int64_t ld)
{
    EACH_TOKEN_BLOCK(dim, solve_block, n, S, X, V, ldv, beta, W, U, ld);
}

/* Backward: dU_j += sum_(i>j) S[i][j] N_i, and N_j = -beta_j dU_j, the negative gradient of W_j. */
VF_INLINE void solve_back_block(const int vectors, int64_t d, int64_t count, int64_t n, const real *S, real *dU, const real *beta,
                                real *N, int64_t ld)
{
    vf acc[TOKEN_BLOCK], x[TOKEN_BLOCK];
    for (int64_t j = n; j-- > 0;) {
        const vf factor = vf_set(-beta[j]);
        load_block(vectors, dU + j * ld + d, count, acc);
        for (int64_t i = j + 1; i < n; i++) {
            const vf s = vf_set(S[i * TILE + j]);
            load_block(vectors, N + i * ld + d, count, x);
            VF_UNROLL
            for (int v = 0; v < vectors; v++) acc[v] = vf_fma(s, x[v], acc[v]);
        }
        store_block(vectors, dU + j * ld + d, count, acc);
        VF_UNROLL
        for (int v = 0; v < vectors; v++) acc[v] = vf_mul(factor, acc[v]);
        store_block(vectors, N + j * ld + d, count, acc);
    }
}

static void step_solve_back(int64_t n, int64_t dim, const void *S, void *dU, const void *beta, void *N, int64_t ld)
{
    EACH_TOKEN_BLOCK(dim, solve_back_block, n, S, dU, beta, N, ld);
}

static void step_add_multiplied(int64_t n, int64_t dim, double sign, const void *X, int64_t ldx, const void *Y, int64_t ldy,
                                void *Z, int64_t ldz)
{
    const vf factor = vf_set((real)sign);
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < dim; c += VF_LANES) {
            const vf x = load_some(REAL_DTYPE, X, i * ldx + c, dim - c), y = load_some(REAL_DTYPE, Y, i * ldy + c, dim - c);
            const vf z = load_some(REAL_DTYPE, Z, i * ldz + c, dim - c);
            store_some(REAL_DTYPE, Z, i * ldz + c, vf_fma(vf_mul(factor, x), y, z), dim - c);
        }
}

/* Along each column, from the last row back. */
static void step_sums_from(int64_t n, int64_t dim, const void *last, void *X, int64_t ld)
{
    for (int64_t c = 0; c < dim; c++) {
        double sum = (double)((const real *)last)[c];
        for (int64_t i = n; i-- > 0;) {
            real *x = (real *)X + i * ld + c;
            sum += (double)*x;
            *x = (real)sum;
        }
    }
}

#endif
