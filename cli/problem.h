/* SPDX-License-Identifier: MIT
 *
 * problem.h - problem strings: one line that names a case everywhere (commands, tests, benchmarks, bug reports).
 *
 *      fwd:bf16:b2:hq32:hkv8:sq1024:skv4096:d128:causal
 *
 * Words are separated by colons and come in any order; problem_print writes them in the order of the table (problem_words)
 * and leaves out what is the default.  Every word that ../shared/spec knows parses; a word whose mechanism this version of
 * the library does not have is kept, printed, and refused by problem_build with ATTN_ERR_UNSUPPORTED.
 */
#ifndef ATTN_CLI_PROBLEM_H
#define ATTN_CLI_PROBLEM_H

#include <stddef.h>
#include <stdint.h>

#include "attn/attn.h"

typedef enum spec_op { SPEC_FORWARD, SPEC_BACKWARD, SPEC_JVP, SPEC_DECODE, SPEC_LINEAR } spec_op;

/* f32 comes first because it is the default; int8 is for the cache of decode. */
typedef enum spec_dtype { SPEC_F32, SPEC_F64, SPEC_F16, SPEC_BF16, SPEC_INT8 } spec_dtype;

typedef enum spec_causal { SPEC_CAUSAL_NONE, SPEC_CAUSAL_TOP_LEFT, SPEC_CAUSAL_BOTTOM_RIGHT } spec_causal;
typedef enum spec_align { SPEC_ALIGN_NONE, SPEC_ALIGN_TOP_LEFT, SPEC_ALIGN_BOTTOM_RIGHT } spec_align;
typedef enum spec_offset { SPEC_OFFSET_NONE, SPEC_OFFSET_EACH, SPEC_OFFSET_VALUE } spec_offset;
typedef enum spec_lengths { SPEC_LENGTHS_NONE, SPEC_LENGTHS_BOTH, SPEC_LENGTHS_Q, SPEC_LENGTHS_KV } spec_lengths;
typedef enum spec_order { SPEC_BHSD, SPEC_BSHD } spec_order;

/* Axes of a mask or bias that have size 1: "b1h1" is SPEC_ONE_B | SPEC_ONE_H. */
enum { SPEC_ONE_B = 1, SPEC_ONE_H = 2, SPEC_ONE_Q = 4, SPEC_ONE_K = 8 };

enum { SPEC_NAME = 32 };

/* What a problem string says.  A field of an option holds only where its flag (or its kind) says so; the unused are 0, so that
 * two equal problems are equal bytes but for padding. */
typedef struct problem_spec {
    spec_op op;
    spec_dtype dtype;
    attn_shape shape;

    spec_causal causal;
    spec_align align; /* where queries stand, said without causal: for windows */
    spec_offset offset_kind;
    int64_t offset; /* SPEC_OFFSET_VALUE: the same for every batch entry; SPEC_OFFSET_EACH: each its own, drawn from the seed */
    int window;
    int64_t window_left, window_right; /* -1 is no bound */
    int mask;
    double mask_drop; /* this share of keys is dropped, at random */
    int mask_one;     /* SPEC_ONE_ bits */
    int bias;
    int bias_one;
    spec_lengths lengths; /* drawn from the seed */
    int has_scale;
    double scale;
    spec_order order;
    int lse;
    int weights;
    int has_seed;
    uint64_t seed; /* 0 unless said */

    /* What later versions compute. */
    int has_softcap, has_temperature, has_dropout;
    double softcap, temperature, dropout;
    int alibi, sink, packed, dbias, t5, rope;
    char score[SPEC_NAME];  /* "additive/128" */
    char rel[SPEC_NAME];    /* "shaw/64", "xl" */
    char sparse[SPEC_NAME]; /* "longformer/256/16" */
    char phi[SPEC_NAME];    /* "elu1" */
} problem_spec;

/* One word of the language. */
typedef struct problem_word {
    const char *name;
    const char *argument; /* "C", "L,R"; NULL: the word has none; "[=KIND]": it may be left out */
    const char *help;     /* a phrase for --help */
    int flag;             /* 1: also a flag of run, top and view (--name); the others follow from the tensors */
    int size;             /* 1: a letter and a number without '=' (b2, hq32); 2: an operation or a type, alone */
} problem_word;

/* The table, in the order of printing; ends with a NULL name. */
extern const problem_word problem_words[];

/* A forward problem in f32 with batch and heads 1 and no length or width yet. */
void problem_init(problem_spec *spec);

/* Sets one option by its word: ("window", "5,0"), ("causal", NULL).  Sizes, operation and type too ("sq", "14"; "bf16", NULL).
 * Refuses unknown words with the nearest known ones, values out of range, and what contradicts an earlier word. */
attn_status problem_set(problem_spec *spec, const char *name, const char *value, attn_error *error);

/* Parses a whole string: sq and d are required; hkv, skv and dv default to hq, sq and d.  A word given twice is an error.
 * ATTN_ERR_ARGUMENT names the word; *spec is then not to be used. */
attn_status problem_parse(const char *text, problem_spec *spec, attn_error *error);

/* Writes the shortest string that parses to `spec` into text, terminated and cut to `size`; returns its whole length as snprintf. */
size_t problem_print(const problem_spec *spec, char *text, size_t size);

/* Turns a spec into a problem for the library: dense tensors of one storage type in the order that `layout` says, masks and biases with
 * broadcast strides, lengths and offsets as i64.  ATTN_ERR_UNSUPPORTED names the first word that this version cannot do. */
attn_status problem_build(const problem_spec *spec, attn_problem *problem, attn_error *error);

/* The dtype of the storage (ATTN_DTYPE_DEFAULT for int8 caches) and its word. */
attn_dtype problem_dtype(const problem_spec *spec);
const char *problem_dtype_word(spec_dtype dtype);

#endif
