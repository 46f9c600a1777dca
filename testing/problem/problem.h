/* SPDX-License-Identifier: MIT
 *
 * problem.h - problem strings: one line that names a case everywhere (commands, tests, benchmarks, bug reports).
 *
 *      fwd:bf16:b2:hq32:hkv8:sq1024:skv4096:d128:causal
 *
 * Words are separated by colons and come in any order; problem_print writes them in the order of the table (problem_word_at)
 * and omits defaults.
 */
#ifndef ATTN_TESTING_PROBLEM_H
#define ATTN_TESTING_PROBLEM_H

#include <stddef.h>
#include <stdint.h>

#include "attn/attn.h"

/* The first of each list is the default. */
typedef enum spec_op {
    SPEC_FORWARD,
    SPEC_BACKWARD,
    SPEC_JVP,
    SPEC_DOUBLE_BACKWARD,
    SPEC_DECODE, /* SPEC_FORWARD of new tokens over a cache that ends with them; `attn bench` also appends them */
    SPEC_LINEAR,
    SPEC_LINEAR_BACKWARD
} spec_op;
typedef enum spec_dtype { SPEC_F32, SPEC_F64, SPEC_F16, SPEC_BF16, SPEC_INT8 } spec_dtype; /* int8: k and v, with scales; f32 */
/* Of keys and of values: the order is that of the words in problem_rules.c.  i8 and f8 have a scale for each row. */
typedef enum spec_stored {
    SPEC_STORED_LIKE_Q,
    SPEC_STORED_F32,
    SPEC_STORED_F16,
    SPEC_STORED_BF16,
    SPEC_STORED_I8,
    SPEC_STORED_F8_E4M3,
    SPEC_STORED_F8_E5M2,
    SPEC_STORED_F8_E4M3_UNSCALED,
    SPEC_STORED_F8_E5M2_UNSCALED,
    SPEC_STORED_Q8_0,
    SPEC_STORED_Q4_0,
    SPEC_STORED_Q4_1,
    SPEC_STORED_Q4_1C, /* of keys only */
    SPEC_STORED_KINDS
} spec_stored;
typedef enum spec_causal { SPEC_CAUSAL_NONE, SPEC_CAUSAL_TOP_LEFT, SPEC_CAUSAL_BOTTOM_RIGHT, SPEC_CAUSAL_OFFSET } spec_causal;
typedef enum spec_align { SPEC_ALIGN_NONE, SPEC_ALIGN_TOP_LEFT, SPEC_ALIGN_BOTTOM_RIGHT } spec_align;
typedef enum spec_offset { SPEC_OFFSET_NONE, SPEC_OFFSET_EACH, SPEC_OFFSET_VALUE } spec_offset;
typedef enum spec_lengths { SPEC_LENGTHS_NONE, SPEC_LENGTHS_BOTH, SPEC_LENGTHS_Q, SPEC_LENGTHS_KV } spec_lengths;
typedef enum spec_spread { SPEC_SPREAD_EVEN, SPEC_SPREAD_LOG } spec_spread;
typedef enum spec_ragged { SPEC_RAGGED_NONE, SPEC_RAGGED_RANDOM, SPEC_RAGGED_MIXED } spec_ragged;
typedef enum spec_alibi { SPEC_ALIBI_NONE, SPEC_ALIBI_HEAD, SPEC_ALIBI_BATCH_HEAD } spec_alibi;
typedef enum spec_w { SPEC_W_ONE, SPEC_W_HEADS, SPEC_W_BIAS, SPEC_W_HEADS_BIAS } spec_w;                         /* bits */
typedef enum spec_shared { SPEC_SHARED_NONE, SPEC_SHARED_REL, SPEC_SHARED_TABLE, SPEC_SHARED_BOTH } spec_shared; /* bits */
typedef enum spec_t5 { SPEC_T5_NONE, SPEC_T5_BOTH, SPEC_T5_CAUSAL } spec_t5;
typedef enum spec_decay { SPEC_DECAY_NONE, SPEC_DECAY_HEAD, SPEC_DECAY_CHANNEL } spec_decay;
typedef enum spec_rule { SPEC_RULE_ADD, SPEC_RULE_DELTA, SPEC_RULE_LOW_RANK } spec_rule;
typedef enum spec_empty { SPEC_EMPTY_ZERO, SPEC_EMPTY_UNIFORM } spec_empty;
typedef enum spec_order { SPEC_BHSD, SPEC_BSHD } spec_order;

/* Axes of a mask or bias that have size 1: "b1h1" is SPEC_ONE_B | SPEC_ONE_H. */
enum { SPEC_ONE_B = 1, SPEC_ONE_H = 2, SPEC_ONE_Q = 4, SPEC_ONE_K = 8 };

enum { SPEC_NAME = 48, SPEC_SPARSE = 192 };

/* The contents of a problem string.  Start from problem_init. */
typedef struct problem_spec {
    int op;           /* spec_op */
    int dtype;        /* spec_dtype */
    attn_shape shape; /* -1: not specified */
    int k_type;       /* spec_stored; both I8 in f32 is int8, which problem_check makes of it */
    int v_type;

    int causal;      /* spec_causal; problem_check turns OFFSET into TOP_LEFT, which an offset overrides */
    int align;       /* spec_align: positions of queries, for windows without causal */
    int offset_kind; /* spec_offset: VALUE: `offset` for every batch entry; EACH: one for each entry, drawn from the seed */
    int64_t offset;
    int window; /* 1: the bounds apply; -1 is no bound */
    int64_t window_left, window_right;
    int mask;
    double mask_drop; /* the fraction of pairs that is dropped, drawn from the seed */
    int mask_one;     /* SPEC_ONE_ bits */
    int bias;
    int bias_one;
    int lengths; /* spec_lengths, drawn from the seed */
    int has_scale;
    double scale;
    int scale_heads; /* 1: one number for each query head, instead of `scale` */
    int order;       /* spec_order */
    int lse;
    int weights;
    uint64_t seed;

    double softcap, temperature, dropout; /* off: 0, 1, 0 */
    int alibi;                            /* spec_alibi */
    int sink;
    int packed;
    int ragged;     /* spec_ragged: queries alone are packed */
    int spread;     /* spec_spread: of random lengths */
    int64_t page;   /* tokens of a page of keys and values; 0: no pages */
    int64_t prefix; /* keys that all sequences share, in the same pages; 0: none */
    int64_t tree;   /* drafts, the last keys: a random tree of them; 0: none */
    int schedule;   /* commands execute with a schedule; problem_build ignores it */
    int empty;      /* spec_empty */
    int64_t chunk;  /* 0: none */
    int block;
    int64_t block_q, block_kv;
    double block_drop; /* like mask_drop */
    int block_one;
    int dlse, dbias, dslopes, dsink, dscale; /* optional gradients of a backward pass */

    int normaliser;        /* attn_normaliser */
    double shift;          /* of the sigmoid */
    char score[SPEC_NAME]; /* "cosine", "distance", "additive/128" (hidden units: d), "general/48" (channels of a key), "metric/16"
                              (rows of w); the number may be omitted and is then d; "" is dot */
    int w;                 /* spec_w: the weights of general, metric and additive; their gradient is part of bwd */

    int t5;                          /* spec_t5: a bias by T5's buckets */
    int64_t t5_buckets, t5_distance; /* 0: 32 buckets up to 128 */
    int64_t clipped;                 /* 0, or a bias by distance up to here */
    int dtable;                      /* the gradient of the table of t5 or clipped */
    int shared;                      /* spec_shared: which tables all heads share */

    char phi[SPEC_NAME]; /* of linear attention: "elu1", "favor/256" */
    int decay;           /* spec_decay */
    int rule;            /* spec_rule */
    int denominator;     /* 0: that of the map and the rule; else an attn_denominator plus 1 */
    double epsilon;      /* of its guard; 0: the default */
    int form;            /* attn_linear_form */
    int linear;          /* `attn run --linear`, --phi or --rule; has no word */
    char rel[SPEC_NAME]; /* "shaw/64", "shaw-values/64", "full", "xl" */
    int drel;            /* the gradients of its tables */

    int rope;                 /* a command rotates its input; problem_build rejects it */
    int64_t steps;            /* of decode: sq tokens each, appended in one call of `attn bench`; a problem is the last */
    char sparse[SPEC_SPARSE]; /* "longformer/256/16", "documents/3/2/5+strided/8": see sparse.h */
} problem_spec;

typedef enum problem_word_form {
    WORD_IS_VALUE, /* the word is the value: fwd, bf16 */
    WORD_SIZE,     /* a name and a number: b2, hq32 */
    WORD_OPTION,   /* name, name=value */
    WORD_FLAG      /* a flag of commands, in the strings that they print; in a string that is given it is rejected */
} problem_word_form;

/* Which commands have a flag --name for an option.  Options without one follow from the tensors given. */
typedef enum problem_word_flag {
    FLAG_NONE,
    FLAG_INPUT, /* run, top, view: it changes the weights */
    FLAG_OUTPUT /* run only */
} problem_word_flag;

/* One entry of the language, for --help and for flags. */
typedef struct problem_word {
    const char *name;
    const char *argument; /* "C"; NULL: none; "[=KIND]": optional */
    const char *help;     /* a phrase */
    problem_word_form form;
    problem_word_flag flag;
} problem_word;

/* Entry `index` in the order of printing; NULL past the last. */
const problem_word *problem_word_at(int index);

/* What its value may be, or the form of it ("shaw/DISTANCE"); NULL: a number, or no list says it. */
const char *const *problem_word_choices(const problem_word *word);

/* A forward problem in f32, without sizes. */
void problem_init(problem_spec *spec);

/* Sets one option by name: ("window", "5,0"), ("causal", NULL).  ATTN_ERR_ARGUMENT: an unknown name (the message lists the nearest
 * known ones) or an invalid value. */
attn_status problem_set(problem_spec *spec, const char *name, const char *value, attn_error *error);

/* ATTN_ERR_ARGUMENT if two options conflict (both set the positions of queries).  Normalises: equal problems become equal specs. */
attn_status problem_check(problem_spec *spec, attn_error *error);

/* Parses a whole string.  sq and d are required; b and hq default to 1, hkv, skv and dv to hq, sq and d.
 * ATTN_ERR_ARGUMENT names the word that is unknown, malformed, given twice, or in conflict; *spec must then not be used.
 */
attn_status problem_parse(const char *text, problem_spec *spec, attn_error *error);

/* Like snprintf, writes the shortest string that parses to `spec`, truncated to `size`, and returns its full length. */
size_t problem_print(const problem_spec *spec, char *text, size_t size);

/* Checks a spec (problem_check) and converts it to a problem of the library and its tensors.  Present tensors are ATTN_LATER:
 * dense, of one storage type but for keys and values, in the order of `layout`; mask and bias with broadcast strides; lengths and
 * offsets i64.  offset=N becomes the tensor offset_q, which the caller fills with N.  ATTN_ERR_UNSUPPORTED names the first word
 * that this version does not support; ATTN_ERR_SHAPE: sizes whose product overflows. Packed tensors are dense, with tokens
 * outermost.  bwd has the gradients of q, k and v; of the bias, slopes, sink and scale with dbias, dslopes, dsink and dscale; and
 * of the weights of a score.  sparse= becomes fields and, where it must, ranges,
 * block_starts, block_index or the mask (sparse.h).  jvp has tangents of q, k, v and the bias, if there is one; so has bwd2, the
 * gradient of bwd. */
attn_status problem_build(const problem_spec *spec, attn_problem *problem, attn_tensors *tensors, attn_error *error);

/* The meaning of score= and rel=. */
attn_score_kind problem_score_kind(const problem_spec *spec);
int problem_has_w(const problem_spec *spec); /* general, metric and additive */
int problem_has_relative_values(const problem_spec *spec);
/* Rows of a relative table: 2 N + 1, or one for every distance possible with the lengths of the shape. */
int64_t problem_relative_rows(const problem_spec *spec);
/* The number in "general/48"; 0 if there is none. */
int64_t problem_after_slash(const char *word);

/* "fwd", "linear-bwd". */
const char *problem_op_name(const problem_spec *spec);

/* ---- problem_sizes.c ---- */

int64_t problem_dim_k(const attn_problem *problem);    /* channels of a key */
int64_t problem_buckets(const attn_bias_table *table); /* numbers for each head */
/* Rows and columns of score_matrix; no rows if the score has no matrix. */
void problem_matrix_size(const attn_problem *problem, int64_t size[2]);

/* The number of entries of a block mask that cover `length` queries or keys. */
int64_t problem_blocks(int64_t length, int64_t block);

/* The storage type of the tensors; f32 if keys and values are int8. */
attn_dtype problem_dtype(const problem_spec *spec);
/* The spec_stored of TENSOR(k) or TENSOR(v), with int8 and the type of q resolved; its type, and 1 if its rows have scales. */
int problem_stored(const problem_spec *spec, int t);
attn_dtype problem_stored_dtype(const problem_spec *spec, int t);
int problem_stored_scaled(const problem_spec *spec, int t);

#endif
