/* SPDX-License-Identifier: MIT
 *
 * additive_gradient_step.inc.c - backward of additive scores.  With r of additive_step.inc.c and tanh' = 4 r (1 - r):
 *
 *      u_ija = dS_ij r (1 - r)      dx_ia = 4 w_a sum_j u_ija      dy_ja = 4 w_a sum_i u_ija      dw_a = sum_ij dS_ij (1 - 2 r)
 *
 * Two hidden units of the same query and key share a division, so that no pair depends on another's numbers.  Sums over queries run
 * across the lanes: they are kept as vectors for a few hidden units and keys, and then added as rows.  Included by backward.inc.c.
 */
#ifdef VF_LANES

enum { ADDITIVE_UNITS = VF_LANES < 2 ? 2 : VF_LANES, ADDITIVE_KEYS = 32 };

typedef struct additive_gradient {
    int64_t hidden;
    const real *x, *E, *near; /* of the tile, at hidden unit `first` */
    const real *K;            /* of the first key of the current ones */
    int64_t ldk;
    const real *dS;
    int64_t n, first, count; /* keys and hidden units processed together */
    vf *keys;                /* [n][ADDITIVE_UNITS]: sums over the vectors of queries */
} additive_gradient;

/* r, computed directly for a far query or key; 0 where dS is, so that NaN stays out. */
VF_INLINE vf additive_nan_safe(vf r, vf dS, vf near, real near_key, vf x, real y)
{
    vf close = vf_mul(near, vf_set(near_key)), any = vf_select(vf_gt(close, vf_zero()), r, additive_far(x, vf_set(y)));
    return vf_select(vf_eq(dS, vf_zero()), vf_zero(), any);
}

/* Hidden units unit .. unit+units-1 of the current ones, for all current keys: into dx [units][TILE] and, across the lanes, dw. */
VF_INLINE void additive_gradient_units(const int units, const int width, const int nan_safe, const additive_gradient *g,
                                       int64_t unit, real *dx, double *dw)
{
    const int64_t at = unit * TILE, near_at = 2 * g->hidden;
    const real *y = g->K + g->first + unit;
    vf of_query[2][VF_VECTORS], of_weight[2];
    VF_UNROLL
    for (int u = 0; u < units; u++) {
        of_weight[u] = vf_zero();
        VF_UNROLL
        for (int v = 0; v < width; v++) of_query[u][v] = vf_zero();
    }
    VF_ROLLED
    for (int64_t j = 0; j < g->n; j++, y += g->ldk) {
        const vf G0 = VF_ELEMENT(y + g->hidden), G1 = units > 1 ? VF_ELEMENT(y + g->hidden + 1) : vf_zero();
        vf of_key[2];
        VF_UNROLL
        for (int v = 0; v < width; v++) {
            const int64_t lane = v * VF_LANES;
            const vf dS = vf_load(g->dS + j * TILE + lane);
            vf r[2], d0 = vf_add(vf_load(g->E + at + lane), G0);
            if (units > 1) {
                vf d1 = vf_add(vf_load(g->E + at + TILE + lane), G1), inverse = vf_div(vf_set(1), vf_mul(d0, d1));
                r[0] = vf_mul(vf_mul(G0, d1), inverse);
                r[1] = vf_mul(vf_mul(G1, d0), inverse);
            } else {
                r[0] = vf_div(G0, d0);
            }
            VF_UNROLL
            for (int u = 0; u < units; u++) {
                if (nan_safe)
                    r[u] = additive_nan_safe(r[u], dS, vf_load(g->near + lane), g->K[j * g->ldk + near_at],
                                             vf_load(g->x + at + u * TILE + lane), y[u]);
                vf w = vf_mul(r[u], dS), more = vf_fma(vf_sub(vf_zero(), w), r[u], w);
                of_weight[u] = vf_add(of_weight[u], w);
                of_query[u][v] = vf_add(of_query[u][v], more);
                of_key[u] = v ? vf_add(of_key[u], more) : more;
            }
        }
        VF_UNROLL
        for (int u = 0; u < units; u++) g->keys[j * ADDITIVE_UNITS + unit + u] = of_key[u];
    }
    for (int u = 0; u < units; u++) {
        real lanes[VF_LANES];
        double sum = 0;
        for (int v = 0; v < width; v++) {
            real *to = dx + at + u * TILE + v * VF_LANES;
            vf_store(to, vf_add(vf_load(to), of_query[u][v]));
        }
        vf_store(lanes, of_weight[u]);
        for (int i = 0; i < VF_LANES; i++) sum += (double)lanes[i];
        if (dw) dw[unit + u] -= 2 * sum;
    }
}

VF_INLINE void additive_gradient_block(const int width, const int nan_safe, const additive_gradient *g, real *dx, double *dw)
{
    int64_t unit = 0;
    for (; unit + 2 <= g->count; unit += 2) additive_gradient_units(2, width, nan_safe, g, unit, dx, dw);
    for (; unit < g->count; unit++) additive_gradient_units(1, width, nan_safe, g, unit, dx, dw);
}

static void additive_gradient_any(int width, int nan_safe, const additive_gradient *g, real *dx, double *dw)
{
    if (nan_safe) VF_EACH_WIDTH(additive_gradient_block, width, 1, g, dx, dw);
    else VF_EACH_WIDTH(additive_gradient_block, width, 0, g, dx, dw);
}

/* dy[j][first + u] += factor w_u times the sum of the lanes of keys[j][u]. */
static void additive_add_keys(const additive_gradient *g, double factor, const real *w, real *dy, int64_t ldy)
{
    for (int64_t u = 0; u < g->count; u += VF_LANES) {
        const vf times = vf_mul(vf_set((real)factor), load_some(REAL_DTYPE, w, g->first + u, g->count - u));
        for (int64_t j = 0; j < g->n; j++) {
            real *to = dy + j * ldy + g->first + u;
            vf_store(to, vf_fma(times, vf_sums(g->keys + j * ADDITIVE_UNITS + u), vf_load(to)));
        }
    }
}

/* Clears dS in the lanes that only repeat a query.  Returns the sum of the rest. */
static double additive_sum(int width, int64_t rows, int64_t n, real *dS)
{
    real lanes[VF_LANES];
    double sum = 0;
    vf all = vf_zero();
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = rows; i < (int64_t)width * VF_LANES; i++) dS[j * TILE + i] = 0;
        for (int v = 0; v < width; v++) all = vf_add(all, vf_load(dS + j * TILE + v * VF_LANES));
    }
    vf_store(lanes, all);
    for (int i = 0; i < VF_LANES; i++) sum += (double)lanes[i];
    return sum;
}

static void step_additive_gradient(int width, int64_t rows, int64_t n, int64_t hidden, const void *Qt, const void *K, int64_t ldk,
                                   const void *w, double scale, void *dS, void *dQt, void *dK, int64_t lddk, double *dw)
{
    const real *near = (const real *)Qt + 3 * hidden * TILE;
    const double sum = additive_sum(width, rows, n, dS), factor = 4 * scale * (double)((const real *)w)[2 * hidden + 1];
    const int far_queries = additive_has_far(width, near);
    vf keys[ADDITIVE_KEYS * ADDITIVE_UNITS];
    for (int k = 0; k < ADDITIVE_KEYS * ADDITIVE_UNITS; k++) keys[k] = vf_zero();
    for (int64_t a = 0; dw && a < hidden; a++) dw[a] += sum;
    for (int64_t j = 0; j < n; j += ADDITIVE_KEYS) {
        additive_gradient g = {.hidden = hidden, .near = near, .ldk = ldk, .n = least(ADDITIVE_KEYS, n - j), .keys = keys};
        int nan_safe = far_queries;
        g.K = (const real *)K + j * ldk;
        g.dS = (const real *)dS + j * TILE;
        for (int64_t k = 0; k < g.n; k++) nan_safe |= g.K[k * ldk + 2 * hidden] == 0;
        for (; g.first < hidden; g.first += ADDITIVE_UNITS) {
            g.x = (const real *)Qt + g.first * TILE;
            g.E = g.x + hidden * TILE;
            g.count = least(ADDITIVE_UNITS, hidden - g.first);
            additive_gradient_any(width, nan_safe, &g, (real *)dQt + g.first * TILE, dw ? dw + g.first : NULL);
            additive_add_keys(&g, factor, w, (real *)dK + j * lddk, lddk);
        }
    }
}

static void step_additive_finish(int width, int64_t rows, int64_t hidden, const void *weights, void *dQt, double *db)
{
    const real *w = weights;
    const double power = (double)w[2 * hidden + 1];
    for (int64_t a = 0; a < hidden; a++) {
        real *row = (real *)dQt + a * TILE;
        double sum = 0;
        for (int v = 0; v < width; v++)
            vf_store(row + v * VF_LANES, vf_mul(vf_set((real)(4 * power) * w[a]), vf_load(row + v * VF_LANES)));
        for (int64_t i = 0; db && i < rows; i++) sum += (double)row[i];
        if (db) db[a] += sum;
    }
}

#endif
