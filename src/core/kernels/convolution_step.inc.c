/* SPDX-License-Identifier: MIT
 * convolution_step.inc.c - the short causal convolution, a vector of channels at a time.  Included by linear.inc.c. */
#ifdef VF_LANES

enum { CONVOLUTION_WIDTH = 4 }; /* the most */

/* Calls f with the width as a constant. */
#define EACH_CONVOLUTION(width, f, ...)                                                                                            \
    do {                                                                                                                           \
        if ((width) == 4) f(4, __VA_ARGS__);                                                                                       \
        else if ((width) == 3) f(3, __VA_ARGS__);                                                                                  \
        else f(2, __VA_ARGS__);                                                                                                    \
    } while (0)

/* The rows before a token of one vector of channels, the oldest first; taking a token makes it the last of them. */
VF_INLINE vf convolve(const int width, const vf *weights, vf bias, vf *before, vf x)
{
    VF_UNROLL
    for (int i = 0; i + 1 < width; i++) {
        bias = vf_fma(weights[i], before[i], bias);
        before[i] = i + 2 < width ? before[i + 1] : x;
    }
    return vf_fma(weights[width - 1], x, bias);
}

VF_INLINE void load_column(const int rows, const real *from, int64_t ld, vf *to)
{
    VF_UNROLL
    for (int i = 0; i < rows; i++) to[i] = vf_load(from + i * ld);
}

/* 1 / (1 + exp(-x)), from exp(-|x|), which cannot overflow. */
VF_INLINE vf sigmoid(vf x)
{
    const vf e = vf_exp(vf_min(x, vf_sub(vf_zero(), x)));
    return vf_div(vf_select(vf_ge(x, vf_zero()), vf_set(1), e), vf_add(vf_set(1), e));
}

VF_INLINE void convolution_rows(const int width, int64_t n, int64_t channels, int silu, const real *X, const real *weights,
                                const real *bias, real *Y, int64_t ld)
{
    for (int64_t c = 0; c < channels; c += VF_LANES) {
        vf w[CONVOLUTION_WIDTH], before[CONVOLUTION_WIDTH];
        load_column(width, weights + c, ld, w);
        load_column(width - 1, X + c, ld, before);
        const vf add = vf_load(bias + c);
        for (int64_t t = 0; t < n; t++) {
            const vf y = convolve(width, w, add, before, vf_load(X + (t + width - 1) * ld + c));
            vf_store(Y + t * ld + c, silu ? vf_mul(y, sigmoid(y)) : y);
        }
    }
}

static void step_convolution(int64_t n, int64_t channels, int width, int silu, const void *X, const void *weights, const void *bias,
                             void *Y, int64_t ld)
{
    EACH_CONVOLUTION(width, convolution_rows, n, channels, silu, X, weights, bias, Y, ld);
}

VF_INLINE void convolution_through(const int width, int64_t n, int64_t channels, const real *X, const real *weights,
                                   const real *bias, real *G, int64_t ld)
{
    for (int64_t c = 0; c < channels; c += VF_LANES) {
        vf w[CONVOLUTION_WIDTH], before[CONVOLUTION_WIDTH];
        load_column(width, weights + c, ld, w);
        load_column(width - 1, X + c, ld, before);
        const vf add = vf_load(bias + c), one = vf_set(1);
        for (int64_t t = 0; t < n; t++) {
            const vf y = convolve(width, w, add, before, vf_load(X + (t + width - 1) * ld + c)), s = sigmoid(y);
            const vf slope = vf_mul(s, vf_fma(y, vf_sub(one, s), one));
            real *g = G + t * ld + c;
            vf_store(g, vf_mul(vf_load(g), slope));
        }
    }
}

static void step_convolution_through(int64_t n, int64_t channels, int width, const void *X, const void *weights, const void *bias,
                                     void *G, int64_t ld)
{
    EACH_CONVOLUTION(width, convolution_through, n, channels, X, weights, bias, G, ld);
}

VF_INLINE void convolution_inputs(const int width, int64_t n, int64_t channels, const real *G, const real *weights, real *dX,
                                  int64_t ld)
{
    for (int64_t c = 0; c < channels; c += VF_LANES) {
        vf w[CONVOLUTION_WIDTH];
        load_column(width, weights + c, ld, w);
        for (int64_t t = 0; t < n; t++) {
            vf sum = vf_load(dX + t * ld + c);
            VF_UNROLL
            for (int i = 0; i < width; i++) sum = vf_fma(w[i], vf_load(G + (t + width - 1 - i) * ld + c), sum);
            vf_store(dX + t * ld + c, sum);
        }
    }
}

static void step_convolution_inputs(int64_t n, int64_t channels, int width, const void *G, const void *weights, void *dX,
                                    int64_t ld)
{
    EACH_CONVOLUTION(width, convolution_inputs, n, channels, G, weights, dX, ld);
}

/* Sums over these tokens, then added to those of the others. */
VF_INLINE void convolution_weights(const int width, int64_t n, int64_t channels, const real *X, const real *G, real *dweights,
                                   real *dbias, int64_t ld)
{
    for (int64_t c = 0; c < channels; c += VF_LANES) {
        vf sums[CONVOLUTION_WIDTH], bias = vf_zero();
        VF_UNROLL
        for (int i = 0; i < width; i++) sums[i] = vf_zero();
        for (int64_t t = 0; t < n; t++) {
            const vf g = vf_load(G + t * ld + c);
            bias = vf_add(bias, g);
            VF_UNROLL
            for (int i = 0; i < width; i++) sums[i] = vf_fma(g, vf_load(X + (t + i) * ld + c), sums[i]);
        }
        VF_UNROLL
        for (int i = 0; i < width; i++) vf_store(dweights + i * ld + c, vf_add(vf_load(dweights + i * ld + c), sums[i]));
        vf_store(dbias + c, vf_add(vf_load(dbias + c), bias));
    }
}

static void step_convolution_weights(int64_t n, int64_t channels, int width, const void *X, const void *G, void *dweights,
                                     void *dbias, int64_t ld)
{
    EACH_CONVOLUTION(width, convolution_weights, n, channels, X, G, dweights, dbias, ld);
}

#endif
