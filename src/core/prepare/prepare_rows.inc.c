/* SPDX-License-Identifier: MIT
 * prepare_rows.inc.c - rows of cosine and distance scores in one type T; NAME(x) appends the type to a name.  Sums are double. */
#ifdef NAME

static double NAME(dot)(int64_t dim, const T *x, const T *y)
{
    double sums[4] = {0, 0, 0, 0}; /* four chains, since one would be bound by the latency of additions */
    int64_t c = 0;
    for (; c + 4 <= dim; c += 4)
        for (int k = 0; k < 4; k++) sums[k] += (double)x[c + k] * (double)y[c + k];
    for (; c < dim; c++) sums[0] += (double)x[c] * (double)y[c];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

static void NAME(prepare)(attn_score_kind kind, attn_side side, int64_t n, int64_t dim, const T *x, T *y)
{
    const int64_t ld = kind == ATTN_SCORE_DISTANCE ? dim + 2 : dim;
    for (int64_t i = 0; i < n; i++, x += dim, y += ld) {
        double square = NAME(dot)(dim, x, x);
        if (kind == ATTN_SCORE_COSINE) {
            double factor = square != 0 ? 1 / sqrt(square) : 0;
            for (int64_t c = 0; c < dim; c++) y[c] = (T)((double)x[c] * factor);
            continue;
        }
        for (int64_t c = 0; c < dim; c++) y[c] = side == ATTN_SIDE_Q ? 2 * x[c] : x[c];
        y[dim] = (T)(side == ATTN_SIDE_Q ? -square : 1);
        y[dim + 1] = (T)(side == ATTN_SIDE_Q ? -1 : square);
    }
}

static int NAME(is_zero)(int64_t n, const T *x)
{
    for (int64_t c = 0; c < n; c++)
        if (x[c] != 0) return 0; /* NaN is not */
    return 1;
}

static void NAME(gradient)(attn_score_kind kind, attn_side side, int64_t n, int64_t dim, const T *x, const T *dy, T *dx)
{
    const int64_t ld = kind == ATTN_SCORE_DISTANCE ? dim + 2 : dim;
    for (int64_t i = 0; i < n; i++, x += dim, dy += ld, dx += dim) {
        if (NAME(is_zero)(ld, dy)) {
            for (int64_t c = 0; c < dim; c++) dx[c] = 0;
        } else if (kind == ATTN_SCORE_COSINE) {
            double square = NAME(dot)(dim, x, x), factor = square != 0 ? 1 / sqrt(square) : 0;
            double along = NAME(dot)(dim, x, dy) * factor * factor; /* projection of dy on x, in units of x */
            for (int64_t c = 0; c < dim; c++) dx[c] = (T)(((double)dy[c] - along * (double)x[c]) * factor);
        } else if (side == ATTN_SIDE_Q) { /* q~ = [2 q, -|q|^2, -1] */
            for (int64_t c = 0; c < dim; c++) dx[c] = (T)(2 * ((double)dy[c] - (double)dy[dim] * (double)x[c]));
        } else { /* k~ = [k, 1, |k|^2] */
            for (int64_t c = 0; c < dim; c++) dx[c] = (T)((double)dy[c] + 2 * (double)dy[dim + 1] * (double)x[c]);
        }
    }
}

#endif
