/* SPDX-License-Identifier: MIT
 *
 * attn_ref.h - attention by definition: loops in double over dense arrays, without dependencies.
 *
 * This is the specification: every kernel, option and gradient of libattn is tested against it.  It is written to be read, not to
 * be fast, and it stores whole score matrices.  Letters are those of docs/notation.md.
 */
#ifndef ATTN_REF_H
#define ATTN_REF_H

#include <stdint.h>

/* The score before the scale (score.c has the loops). */
typedef enum ref_kind {
    REF_DOT,      /* q.k */
    REF_GENERAL,  /* q.(W k), W [D][Dk] */
    REF_METRIC,   /* (W q).(W k), W [R][D] */
    REF_COSINE,   /* q.k / (|q| |k|); 0 if q or k is 0 */
    REF_DISTANCE, /* -|q - k|^2 */
    REF_ADDITIVE  /* sum_c w_c tanh(q_c + k_c + b_c), W [1 or 2][D]: w, and b if R is 2 */
} ref_kind;

/* How a distance p_i - j maps to a row of a table. */
typedef enum ref_buckets {
    REF_CLIPPED,  /* clamp(d, -reach, reach) + reach */
    REF_T5,       /* half the buckets for each direction */
    REF_T5_CAUSAL /* all of them for keys before the query */
} ref_buckets;

/* How the scores of the keys that a query sees become weights. */
typedef enum ref_normaliser {
    REF_BY_SOFTMAX,
    REF_BY_SOFTMAX_ONE, /* with 1 in the denominator */
    REF_BY_SIGMOID,     /* 1 / (1 + exp(-s - shift)) */
    REF_BY_RELU         /* max(s, 0) over the number of these keys */
} ref_normaliser;

/* Arrays are dense: Q [B][Hq][Sq][D], K [B][Hkv][Skv][D], V [B][Hkv][Skv][Dv], keep, bias and Z [B][Hq][Sq][Skv].  A field that is
 * 0 or NULL means that the option is not used. */
typedef struct ref_problem {
    int64_t B, Hq, Hkv, Sq, Skv, D, Dv;
    const double *Q, *K, *V;
    double scale;

    int causal;
    int window; /* 1: window_left and window_right apply; -1 means no bound */
    int64_t window_left, window_right;
    int64_t chunk;               /* a query sees only keys of its own chunk of this size */
    int64_t dilation;            /* only keys at multiples of this distance */
    int64_t least_distance;      /* no key nearer than this */
    int64_t global_q, global_kv; /* how many first queries and keys are exempt from window and dilation */
    const int64_t *ranges;       /* [B][Hq][Sq][2]: the first key, and one past the last */
    /* Trees of drafts: which of the last tree_keys keys of a sequence a query sees, [B][Sq][tree_keys rounded up to 64] bits. */
    const uint64_t *tree;
    int64_t tree_keys;
    const int64_t *offset;     /* [B]: query i has the position of key i + offset[b] */
    const int64_t *len_q;      /* [B] */
    const int64_t *len_kv;     /* [B] */
    const unsigned char *keep; /* 1: this query may see this key */

    const double *scale_of_head; /* [Hq]: instead of scale */
    double temperature;
    double softcap;
    const double *bias;
    const double *slopes; /* [B][Hq]: ALiBi */
    const double *sink;   /* [Hq] */
    const double *Z;      /* dropout: 0 for a dropped weight, 1/(1-p) for a kept one */
    int uniform;          /* a query that sees no key has uniform weights instead of none: REF_UNIFORM_ */

    /* s becomes f(s), after the softcap; *slope = f'(s).  NULL: none. */
    double (*modify)(void *context, int64_t b, int64_t h, int64_t i, int64_t j, double s, double *slope);
    void *modify_context;

    ref_normaliser normaliser;
    double shift;
    ref_kind kind;
    int64_t Dk;         /* columns of K; 0: D */
    int64_t R;          /* rows of W; 0: D (additive: 1) */
    const double *W;    /* [Hq or 1][rows][columns] */
    int W_of_each_head; /* 1: Hq of them */

    /* Relative keys and values by distance p_i - j, whose row is clamp(distance - relative_first, 0, relative_rows - 1); dot
     * products only: x = (q + u).(k) + (q + v).row, and values v_j + row. */
    const double *relative_keys, *relative_values; /* [Hq or 1][relative_rows][D or Dv] */
    const double *relative_u, *relative_v;         /* [Hq][D] */
    int64_t relative_first, relative_rows;
    int relative_of_each_head; /* 1: Hq tables */

    const double *bias_table; /* [Hq or 1][buckets]: added to scores by distance */
    ref_buckets bucket_rule;
    int64_t buckets, reach;      /* reach: the distance beyond which nothing changes */
    int bias_table_of_each_head; /* 1: Hq of them */
} ref_problem;

/* All Skv keys, or the first len_kv of them. */
enum { REF_UNIFORM_ALL = 1, REF_UNIFORM_OWN = 2 };

/* The bucket of distance d. */
int64_t ref_bucket(const ref_problem *p, int64_t d);

/* 1 if query i of head h sees key j. */
int ref_visible(const ref_problem *p, int64_t b, int64_t h, int64_t i, int64_t j);

/* Masks by name: the letters A, B, ... of a name are its sizes. */
typedef enum ref_pattern_kind {
    REF_WINDOW,     /* A keys before the query, B after it; -1: no bound */
    REF_SLIDING,    /* A keys that end with the query's own */
    REF_RADIUS,     /* A keys on either side */
    REF_LOCAL,      /* a window of width A around the query */
    REF_DIAGONAL,   /* the same block of A */
    REF_STRIDED,    /* distances that are multiples of A */
    REF_COLUMNS,    /* keys 0, A, 2A ... */
    REF_DILATED,    /* A keys on either side, B apart */
    REF_FIXED,      /* the same block of A, and the last B keys of each block */
    REF_LONGFORMER, /* a window of width A, and B global tokens */
    REF_BIGBIRD,    /* blocks of A: a window of B, C global ones, D random ones */
    REF_PREFIX,     /* keys up to the query, and the first A */
    REF_LENGTHS,    /* the first A queries and B keys */
    REF_DOCUMENTS   /* the same of `count` documents, one after the other */
} ref_pattern_kind;

typedef struct ref_pattern {
    ref_pattern_kind kind;
    int64_t size[4];
    uint64_t seed; /* of REF_BIGBIRD */
    int64_t count;
    const int64_t *lengths;
} ref_pattern;

/* 1 if query i, whose position is that of key `position`, sees key j of `keys`. */
int ref_pattern_shows(const ref_pattern *pattern, int64_t keys, int64_t i, int64_t j, int64_t position);

/* Philox4x32-10, in place. */
void ref_philox(uint64_t seed, uint32_t word[4]);

/* O [B][Hq][Sq][Dv], lse [B][Hq][Sq], S (scores; -infinity where not visible) and P (weights) [B][Hq][Sq][Skv]; none NULL. */
void ref_forward(const ref_problem *p, double *O, double *lse, double *S, double *P);

/*
 * Quantises a row to integers within -127 .. 127; returns the scale, max |x_c| / 127 rounded to f32; quantised_c = x_c / scale
 * rounded to nearest, ties to even; 0 if the scale is 0.  NaN or an infinity makes the scale NaN, and so the whole row.
 */
double ref_quantise(int64_t n, const double *x, double *quantised);

/* x[j][:] = scale[j] quantised[j][:], rows of n; x may be quantised. */
void ref_dequantise(int64_t rows, int64_t n, const double *quantised, const double *scale, double *x);

/* f8 and ggml's blocks, as attn/types.h defines them. */
typedef enum ref_format { REF_E4M3, REF_E5M2, REF_Q8_0, REF_Q4_0, REF_Q4_1 } ref_format;
enum { REF_BLOCK = 32 };
/* The number of a byte, and the byte of the nearest number (which saturates). */
double ref_f8_value(ref_format format, int byte);
int ref_f8_of(ref_format format, double x);
/* y = H x / sqrt(n); n is a power of 2. */
void ref_hadamard(int64_t n, const double *x, double *y);
/* The steps of a block of f32, and its scale and minimum before they are rounded to f16. */
void ref_block_steps(ref_format format, const double *x, int *steps, double *d, double *m);
/* One channel, from the scale and the minimum as they are stored. */
double ref_block_value(ref_format format, double d, double m, int step);
/* The f16 nearest to x, ties to even; beyond 65504 and half a unit, an infinity. */
double ref_f16(double x);
/*
 * What a cache of n keys by channel (q4_1c) holds of the keys x, n rows of dim: each number is rounded to f16; then, in each whole
 * group of REF_BLOCK rows from a multiple of REF_BLOCK on, the numbers of a channel become those of the q4_1 block that they make.
 */
void ref_keys_by_channel(int64_t n, int64_t dim, const double *x, double *stored);

/* Further outputs; every array is written. */
typedef struct ref_outputs {
    double *raw, *capped; /* [B][Hq][Sq][Skv]: scores of every pair, visible or not, before and after the softcap */
    double *row_max, *entropy, *effective_keys; /* [B][Hq][Sq] */
    int64_t k;
    int64_t *topk_index; /* [B][Hq][Sq][k] */
    double *topk_weight;
    int64_t share;      /* heads that share a column sum: 1, Hq/Hkv or Hq; 0: none is written */
    int64_t last;       /* queries of each sequence that count, from its end; 0: all */
    double *column_sum; /* [B][Hq/share][Skv] */
} ref_outputs;

/* From S and P of ref_forward; P may also come from elsewhere, to derive outputs from given weights. */
void ref_outputs_of(const ref_problem *p, const double *S, const double *P, const ref_outputs *out);

/* In: dO, and dlse (NULL: 0).  Out: gradients, each of the shape of its tensor; all of them are written. */
typedef struct ref_gradients {
    const double *dO, *dlse;
    double *dQ, *dK, *dV;
    double *P;       /* [B][Hq][Sq][Skv]: the weights, as a by-product */
    double *dS;      /* [B][Hq][Sq][Skv]: also the gradient of a bias that is not broadcast */
    double *dscale;  /* [Hq]: of the scale */
    double *dslopes; /* [B][Hq]; may be NULL without slopes */
    double *dsink;   /* [Hq]; may be NULL without sinks */
    double *dW;      /* like W; may be NULL without W */
    double *drelative_keys, *drelative_values, *drelative_u, *drelative_v; /* like their tensors; may be NULL without them */
    double *dbias_table;                                                   /* like bias_table; may be NULL without it */
} ref_gradients;
void ref_backward(const ref_problem *p, const ref_gradients *g);

/* Forward mode: tangents of the inputs (NULL: 0) give tangents of the outputs.  Returns 0 if out of memory. */
typedef struct ref_tangents {
    const double *Qd, *Kd, *Vd, *biasd;
    double *Od, *lsed;
} ref_tangents;
int ref_jvp(const ref_problem *p, const ref_tangents *t);

/* The gradient of the gradient.  dO and dlse (NULL: 0) as in ref_backward; Qd, Kd, Vd, biasd (NULL: 0): the gradients with respect
 * to dQ, dK, dV and dS.  Outputs have the shapes of their tensors, S2 that of dS; all are written.  Returns 0 if out of memory. */
typedef struct ref_gradgrad {
    const double *dO, *dlse, *Qd, *Kd, *Vd, *biasd;
    double *dO2, *dlse2, *Q2, *K2, *V2, *S2;
} ref_gradgrad;
int ref_double_backward(const ref_problem *p, const ref_gradgrad *s);

/* Modern Hopfield network: a state x [N] and M patterns X [M][N]; p [M] are the weights, updated = X^T p; returns the energy,
 * |x|^2 / 2 - log(sum exp(beta X x)) / beta. */
double ref_hopfield_update(int64_t M, int64_t N, double beta, const double *X, const double *x, double *p, double *updated);

/* Its gradient; grad_x is written, grad_X added to. */
void ref_hopfield_backward(int64_t M, int64_t N, double beta, const double *X, const double *x, const double *p,
                           const double *grad_updated, double grad_energy, double *grad_x, double *grad_X);

/*
 * The dropout mask: 1 if weight (b, h, i, j) is kept at probability p of being dropped.  Philox4x32-10 (Salmon et al. 2011) with
 * key = seed and counter = (offset, b*Hq + h, i, j/4); word j%4 of the result, as a 32-bit number, is at least p * 2^32.
 */
int ref_dropout_keeps(uint64_t seed, uint32_t offset, int64_t head, int64_t i, int64_t j, double p);

/*
 * Linear attention: f(x) features (F of them), a state S [F][Dv] and its sum z [F] for each key head, token by token:
 *
 *      S = diag(exp(log_decay)) S + f(k) u^T      u = v, or beta (v - S^T f(k)) with the decayed S      z likewise, with 1 for u
 *      o = scale S^T f(q) / guarded(n)            n = scale f(q).z
 *
 * causal: query i reads the state after token i (Sq = Skv); otherwise all queries read the last state.
 */
typedef enum ref_map { REF_ELU1, REF_IDENTITY, REF_RELU, REF_SOFTMAX, REF_FAVOR, REF_FOURIER, REF_TRIGONOMETRIC } ref_map;
typedef enum ref_denominator { REF_CLAMP, REF_ADD, REF_NONE } ref_denominator;
typedef struct ref_linear {
    int64_t B, Hq, Hkv, Sq, Skv, D, Dv, M;
    const double *Q, *K, *V;
    ref_map map;
    const double *omega;  /* [M][D] */
    double feature_scale; /* of x, for the maps with omega */
    double scale, epsilon;
    ref_denominator denominator;
    int causal;
    const double *log_decay; /* [B][Hkv][Skv], or with decay_channels [B][Hkv][Skv][F]; NULL: 0 */
    int decay_channels;
    const double *beta;          /* [B][Hkv][Skv]: the delta rule */
    const double *erase, *write; /* [B][Hkv][Skv][F]: the low-rank rule */
    const double *S0, *z0;       /* [B][Hkv][F][Dv] and [B][Hkv][F]: the initial state; NULL: 0 */
    /* 1: every term by its absolute value, if V, S0 and the gradients are absolute values too: rounding errors are proportional to
     * these sums, however small the results are.  Not with beta or erase. */
    int absolute;
} ref_linear;

/* O [B][Hq][Sq][Dv], n [B][Hq][Sq], and the final state S1, z1; none NULL.  Both functions return 0 if out of memory. */
int ref_linear_forward(const ref_linear *p, double *O, double *n, double *S1, double *z1);

/* In: dO, and dS1, dz1 (NULL: 0), and O as it was stored (NULL: as computed).  Out: dQ, dK, dV; dlog_decay, dbeta, derase and
 * dwrite if these are used; dS0, dz0 may be NULL. */
typedef struct ref_linear_gradients {
    const double *dO, *dS1, *dz1, *O;
    double *dQ, *dK, *dV, *dlog_decay, *dbeta, *derase, *dwrite, *dS0, *dz0;
} ref_linear_gradients;
int ref_linear_backward(const ref_linear *p, const ref_linear_gradients *g);

/* The short causal convolution of one sequence: x [L][C], weight [W][C], bias [C] or NULL, before [W-1][C] or NULL (0). */
typedef struct ref_convolution {
    int64_t L, C, W;
    int silu;
    const double *x, *weight, *bias, *before;
    int absolute; /* 1: all inputs are absolute values; the results bound the sums of their terms, and what silu makes of errors */
} ref_convolution;

/* y [L][C], and the state after the sequence, [W-1][C]. */
void ref_convolution_forward(const ref_convolution *p, double *y, double *after);
/* From dy, dafter (NULL: 0): dx, dbefore; and adds to dweight and dbias. */
void ref_convolution_backward(const ref_convolution *p, const double *dy, const double *dafter, double *dx, double *dbefore,
                              double *dweight, double *dbias);

/* C = A B, or C += A B: a(i, k) = A[i*stride_a + k], or transposed A[k*stride_a + i]; B likewise, C never transposed. */
typedef struct ref_matrices {
    int64_t rows, columns, inner, stride_a, stride_b, stride_c;
    int a_transposed, b_transposed, add;
} ref_matrices;
void ref_product(const ref_matrices *p, const double *A, const double *B, double *C);

/* Projections along the tokens: E [H][n][R], or [n][R] if heads share it; X [B][H][n][D], Y [B][H][R][D]. */
void ref_linformer(int64_t B, int64_t H, int64_t n, int64_t R, int64_t D, int shared, const double *E, const double *X, double *Y);
void ref_linformer_backward(int64_t B, int64_t H, int64_t n, int64_t R, int64_t D, int shared, const double *E, const double *X,
                            const double *dY, double *dX, double *dE);

#endif
