/* SPDX-License-Identifier: MIT
 *
 * position.h - positions as plain functions on tensors: rotary (RoPE) with its scalings, sinusoidal and learned absolute positions,
 * ALiBi slopes, biases by distance (T5 buckets, clipped distances).  Conventions of attn.h hold: statuses, errors, slots,
 * ownership, threads.
 */
#ifndef ATTN_POSITION_H
#define ATTN_POSITION_H

#include "attn/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which channels form a pair.  The two are different functions: a model needs the one it was trained with. */
typedef enum attn_rope_pairs {
    ATTN_ROPE_PAIRS_INTERLEAVED = 0, /* channels 2i and 2i+1 (the paper, GPT-J) */
    ATTN_ROPE_PAIRS_HALVES = 1       /* channels i and i + dim_rotary/2 (GPT-NeoX, Llama in Hugging Face's layout) */
} attn_rope_pairs;

typedef struct attn_rope {
    size_t struct_size; /* sizeof(attn_rope) */
    attn_rope_pairs pairs;
    int64_t dim_rotary;        /* the first dim_rotary channels are rotated, the others copied; even; 0: all */
    double base;               /* 0: 10000 */
    double stretch;            /* positions are divided by this, linear interpolation (Chen et al. 2023); 0: 1 */
    int inverse;               /* 1: rotate back; with the same magnitude, this is the gradient */
    int64_t reserved[4];       /* must be 0 */
    const double *frequencies; /* [dim_rotary / 2], for example from attn_rope_frequencies; NULL: base^(-2i / dim_rotary) */
    double magnitude;          /* the rotated channels are also multiplied by this (YaRN); 0: 1 */
    /* Both [table_rows][dim_rotary / 2]: row p holds cos a and sin a of position p, overriding base, stretch, frequencies and
     * magnitude (the caches of ONNX); NULL: computed.  These arrays and the frequencies are borrowed for the call. */
    const double *cosines, *sines;
    int64_t table_rows;
    /*
     * The same two tables as slots, instead of cosines and sines: [1, 1, table_rows, dim_rotary / 2] of f32 (default), f64, f16 or
     * bf16 with any strides, so that an engine's tables fit as they are.  Rows of dim_rotary, cosines before sines (vLLM): both
     * have strides {0, 0, dim_rotary, 1}, and sin_table begins at column dim_rotary / 2.  Rows of dim_rotary where each number is
     * twice (Hugging Face): the same strides, or {0, 0, dim_rotary, 2} if a pair's two are adjacent.
     */
    attn_input cos_table, sin_table;
} attn_rope;

/* How to extend a model trained on `original_length` tokens to longer sequences. */
typedef enum attn_rope_scaling_kind {
    ATTN_ROPE_SCALING_LINEAR = 0, /* frequencies / factor: interpolated positions (Chen et al. 2023) */
    ATTN_ROPE_SCALING_NTK = 1,    /* base * factor^(dim / (dim - 2)): the lowest frequency is divided by factor, the highest kept */
    ATTN_ROPE_SCALING_NTK_DYNAMIC = 2, /* the same with factor * length / original_length - (factor - 1) for factor, once length is
                                          above original_length */
    ATTN_ROPE_SCALING_YARN = 3,        /* Peng et al. 2023, section 3.2: fast frequencies are kept, slow ones divided by factor */
    ATTN_ROPE_SCALING_LLAMA3 = 4 /* Llama 3.1: by wavelength, smooth between original_length / high and original_length / low */
} attn_rope_scaling_kind;

typedef struct attn_rope_scaling {
    size_t struct_size; /* sizeof(attn_rope_scaling) */
    attn_rope_scaling_kind kind;
    int64_t dim;             /* rotated channels: even; above 2 for NTK */
    double base;             /* 0: 10000 */
    double factor;           /* at least 1 */
    int64_t original_length; /* NTK_DYNAMIC, YARN, LLAMA3 */
    int64_t length;          /* NTK_DYNAMIC: current number of tokens */
    double fast, slow;       /* YARN: turns within original_length above and below which a frequency is fast or slow; 0: 32 and 1.
                                LLAMA3: high_freq_factor and low_freq_factor; 0: 4 and 1 */
} attn_rope_scaling;

/*
 * Frequencies for attn_rope.frequencies, dim / 2 of them, highest first.  With f_i = base^(-2i / dim):
 *
 *      LINEAR   f_i / factor
 *      NTK      (base factor^(dim / (dim - 2)))^(-2i / dim)
 *      YARN     (1 - r_i) f_i + r_i f_i / factor,  r_i = clamp((i - a) / (b - a), 0, 1),  a and b the channels that turn `fast` and
 *               `slow` times within original_length, rounded down and up: dim log(original_length / (2 pi turns)) / (2 log base)
 *      LLAMA3   with s_i = clamp((original_length f_i / (2 pi) - slow) / (fast - slow), 0, 1): (1 - s_i) f_i / factor + s_i f_i
 *
 * magnitude [out, may be NULL]: 0.1 log(factor) + 1 for YaRN, else 1.
 * Returns ATTN_ERR_ARGUMENT with outputs untouched.
 */
ATTN_API attn_status attn_rope_frequencies(const attn_rope_scaling *scaling, double *frequencies, double *magnitude,
                                           attn_error *error);

/*
 * Rotates pairs of channels by an angle that depends on the position (Su et al. 2021, equation 34).  For every b, h, t and pair i
 * of channels (x, y),
 *
 *      a  = position[b,t] / stretch * base^(-2i / dim_rotary)        or * frequencies[i]
 *      x' = magnitude (x cos a - y sin a)
 *      y' = magnitude (x sin a + y cos a)
 *
 * in double, rounded once on store.  cos a and sin a are within 1.5 * 2^-52, and the C library's where |a| exceeds 10^6; they are
 * computed once for all heads of a token.  Bits depend on neither neighbours, strides nor the instruction set.  Runs on the calling
 * thread.
 *
 *  rope       [in]  the rotation
 *  shape      [in]  batch, heads, tokens, channels of x and y
 *  x          [in]  f32 (default), f64, f16 or bf16
 *  positions  [in]  [batch, 1, tokens, 1] of i64 (default) or i32; NULL or absent: position t for token t
 *  y          [out] any of these types, by default that of x; may be x if types and strides are equal
 *
 * Returns ATTN_ERR_ARGUMENT (also for a position outside the tables), ATTN_ERR_SHAPE, ATTN_ERR_STRIDE or ATTN_ERR_UNSUPPORTED with
 * y untouched.
 */
ATTN_API attn_status attn_rope_apply(const attn_rope *rope, const int64_t shape[4], const attn_input *x,
                                     const attn_input *positions, const attn_output *y, attn_error *error);

/* ---- absolute positions ---- */

/*
 * Sinusoidal positions (Vaswani et al. 2017, section 3.5): for every t and i,
 *
 *      a = position[t] * base^(-2i / channels)      table[t][2i] = sin a      table[t][2i+1] = cos a
 *
 * in double, rounded once.  With ATTN_ROPE_PAIRS_HALVES the sines fill the first half of the channels and the cosines the second
 * (as in fairseq and tensor2tensor, except for their exponent).  With an odd number of channels there is one more sine.
 *
 *  base       [in]  0: 10000
 *  positions  [in]  [1, 1, tokens, 1] of i64 (default) or i32; NULL or absent: position t for token t
 *  table      [out] [1, 1, tokens, channels] of f32 (default), f64, f16 or bf16
 */
ATTN_API attn_status attn_sinusoidal(attn_rope_pairs order, int64_t tokens, int64_t channels, double base,
                                     const attn_input *positions, const attn_output *table, attn_error *error);

/*
 * y[b,h,t,:] = x[b,h,t,:] + table[position[b,t],:]: learned absolute positions, added in double and rounded once.  table is
 * [1, 1, rows, channels] of f32 (default), f64, f16 or bf16; shape, x, y and positions as in attn_rope_apply.  A position outside
 * 0 .. rows-1 is ATTN_ERR_ARGUMENT, with y untouched.
 */
ATTN_API attn_status attn_position_add(int64_t rows, const int64_t shape[4], const attn_input *x, const attn_input *table,
                                       const attn_input *positions, const attn_output *y, attn_error *error);

/* The gradient of the table: grad_table[p,:] = sum over b, h, t with position[b,t] = p of grad_y[b,h,t,:], for all rows, in this
 * order and in double.  (The gradient of x is grad_y.)  shape is that of grad_y. */
ATTN_API attn_status attn_position_add_backward(int64_t rows, const int64_t shape[4], const attn_input *grad_y,
                                                const attn_input *positions, const attn_output *grad_table, attn_error *error);

/*
 * y = x [rows][channels] resized to rows_y rows by linear interpolation, as vision models resize a learned table: row t of y is
 * sampled at s = max((t + 1/2) rows / rows_y - 1/2, 0) of x, between rows floor(s) and floor(s) + 1, or at the last row (like
 * PyTorch's interpolate without align_corners).  Computed in double.  If rows_y is at least 1, rows must be too.
 *
 *  x  [in]  [1, 1, rows, channels] of f32 (default) or f64
 *  y  [out] [1, 1, rows_y, channels] of f32 or f64, by default of x's type
 */
ATTN_API attn_status attn_position_resize(int64_t channels, int64_t rows, int64_t rows_y, const attn_input *x, const attn_output *y,
                                          attn_error *error);
/* Its gradient: grad_x like x, summed over the rows of grad_y in their order; grad_y is f32 by default, grad_x of its type. */
ATTN_API attn_status attn_position_resize_backward(int64_t channels, int64_t rows, int64_t rows_y, const attn_input *grad_y,
                                                   const attn_output *grad_x, attn_error *error);

/* ---- biases by distance ---- */

/*
 * attn_tensors.alibi_slopes by the published rule (Press et al. 2022, section 3 and its code): 2^(-8 (h+1) / heads) where heads is
 * a power of two; otherwise those of the next lower power of two, followed by every other one of the next higher.
 *
 *  slopes  [out] [1, heads, 1, 1] of f32 (default) or f64
 */
ATTN_API attn_status attn_alibi_slopes(int64_t heads, const attn_output *slopes, attn_error *error);

/*
 * A bias b[h][bucket(d)] that depends only on the distance d = p_i - j between query and key (attn_bias_table applies it inside
 * attention):
 *
 *      CLIPPED  bucket = clamp(d, -max_distance, max_distance) + max_distance;  2 max_distance + 1 buckets
 *      T5       n = |d|, and half the buckets for each direction, the second half for d < 0 (keys after the query); or with
 *               `causal` all of them for n = max(d, 0).  With N buckets per direction and e = floor(N/2):
 *               n if n < e, else min(N - 1, e + floor(log(n/e) / log(max_distance/e) (N - e)))
 */
typedef struct attn_distance_bias {
    size_t struct_size; /* sizeof(attn_distance_bias) */
    attn_distance_kind kind;
    int64_t heads;
    int64_t buckets;      /* T5: 0 is 32.  CLIPPED: 0, or 2 max_distance + 1 */
    int64_t max_distance; /* T5: 0 is 128; must exceed half the buckets of a direction.  CLIPPED: at least 0 */
    int causal;           /* T5: 1 is T5's decoder, with all buckets for keys before the query */
    int64_t len_q, len_kv;
    int64_t offset_q; /* query i has the position of key i + offset_q */
} attn_distance_bias;

/* The bucket of distance d; -1 for an invalid rule. */
ATTN_API int64_t attn_distance_bucket(const attn_distance_bias *rule, int64_t d);
/* Number of buckets per head in its table; -1 for an invalid rule. */
ATTN_API int64_t attn_distance_buckets(const attn_distance_bias *rule);

/*
 * bias[h][i][j] = table[h][bucket(i + offset_q - j)], for inspection, or for attn_tensors.bias with the batch broadcast.
 *
 *  table  [in]  [1, heads, buckets, 1] of f32 (default) or f64, as attn_tensors.bias_table
 *  bias   [out] [1, heads, len_q, len_kv] of f32 or f64, by default of the table's type
 */
ATTN_API attn_status attn_distance_bias_fill(const attn_distance_bias *rule, const attn_input *table, const attn_output *bias,
                                             attn_error *error);
/* grad_table[h][n] = sum of grad_bias[h][i][j] over all pairs in bucket n, in double, for all buckets; grad_bias is f32 by default,
 * grad_table of its type. */
ATTN_API attn_status attn_distance_bias_backward(const attn_distance_bias *rule, const attn_input *grad_bias,
                                                 const attn_output *grad_table, attn_error *error);

/*
 * A gate that depends on the query and scales a bias (WavLM: Chen et al. 2022, equations 5 to 8): with z = q w + b,
 *
 *      u = sigmoid(sum of the first `width` of z)      r = sigmoid(sum of the others)      gate = u (r a_h - 1) + 2
 *
 * and the bias of a pair is gate[b,h,i] * bias[h,i,j].  Computed in double.
 */
typedef struct attn_bias_gate {
    size_t struct_size; /* sizeof(attn_bias_gate) */
    int64_t batch, heads, len_q, dim;
    int64_t width;
} attn_bias_gate;

/* One slot per tensor, with any strides: each is f32 or f64, by default f32 for q and q's type for the others.  A tensor that a
 * function has no use for is an error. */
typedef struct attn_bias_gate_tensors {
    size_t struct_size;    /* sizeof(attn_bias_gate_tensors) */
    const attn_call *call; /* must be NULL */
    attn_input q;          /* [batch, heads, len_q, dim] */
    attn_input w;          /* [1, 1, dim, 2 width] */
    attn_input b;          /* [1, 1, 1, 2 width] */
    attn_input a;          /* [1, heads, 1, 1] */
    attn_output gates;     /* [batch, heads, len_q, 1]: attn_bias_gate_forward */
    attn_input grad_gates; /* [batch, heads, len_q, 1]: attn_bias_gate_backward, like all below */
    attn_output grad_q;    /* like q; the next three likewise; absent: not requested */
    attn_output grad_w;
    attn_output grad_b;
    attn_output grad_a;
} attn_bias_gate_tensors;

/* gates from q, w, b and a.  Returns ATTN_ERR_ARGUMENT, ATTN_ERR_SHAPE, ATTN_ERR_STRIDE or ATTN_ERR_UNSUPPORTED with outputs
 * untouched. */
ATTN_API attn_status attn_bias_gate_forward(const attn_bias_gate *rule, const attn_bias_gate_tensors *tensors, attn_error *error);
/* Its gradient from that of the gates.  Also ATTN_ERR_MEMORY. */
ATTN_API attn_status attn_bias_gate_backward(const attn_bias_gate *rule, const attn_bias_gate_tensors *tensors, attn_error *error);

#ifdef __cplusplus
}
#endif

#endif
