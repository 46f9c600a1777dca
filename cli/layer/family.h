/* SPDX-License-Identifier: MIT
 *
 * family.h - the names under which models keep the weights of an attention layer: one row for each family, so that another family
 * is another row.  A name is the end of a tensor's whole name; what stands before it is the layer's root. */
#ifndef ATTN_CLI_LAYER_FAMILY_H
#define ATTN_CLI_LAYER_FAMILY_H

#include "attn/io.h"

/* What a weight is for. */
typedef enum weight_role {
    WEIGHT_QUERY,
    WEIGHT_KEY,
    WEIGHT_VALUE,
    WEIGHT_OUTPUT,
    WEIGHT_QKV, /* queries, keys and values in one matrix */
    WEIGHT_BIAS_QUERY,
    WEIGHT_BIAS_KEY,
    WEIGHT_BIAS_VALUE,
    WEIGHT_BIAS_OUTPUT,
    WEIGHT_BIAS_QKV,
    WEIGHT_EXTRA_KEY, /* a learned key and its value */
    WEIGHT_EXTRA_VALUE,
    WEIGHT_NORM_QUERY, /* of the projected queries and keys of each head */
    WEIGHT_NORM_KEY,
    WEIGHT_NORM_BIAS_QUERY,
    WEIGHT_NORM_BIAS_KEY,
    WEIGHT_NORM, /* of x, before the layer */
    WEIGHT_NORM_BIAS,
    WEIGHT_TABLE, /* a bias by distance [buckets, heads] */
    WEIGHT_SCORE, /* additive: the weights of the hidden channels; general: the matrix */
    WEIGHT_STATE, /* additive: of the decoder's state, of what it attends to, and of both side by side */
    WEIGHT_MEMORY,
    WEIGHT_BOTH,
    WEIGHT_BIAS_STATE,
    WEIGHT_BIAS_MEMORY,
    WEIGHT_BIAS_BOTH,
    WEIGHT_COMBINE,
    WEIGHT_ROLES
} weight_role;

/* The words of --names: "wq". */
extern const char *const weight_words[WEIGHT_ROLES];

/* How the axes of a matrix are stored. */
typedef enum family_axes {
    FAMILY_OUT_IN,      /* PyTorch's Linear */
    FAMILY_IN_OUT,      /* x W, Conv1D */
    FAMILY_BY_SHAPE,    /* of a fused matrix: either */
    FAMILY_MODEL_FIRST, /* [model, head, channel], where others with three axes have [head, model, channel] */
} family_axes;

/* How a fused matrix has its rows. */
typedef enum family_fused {
    FAMILY_PARTS,  /* all queries, all keys, all values */
    FAMILY_GROUPS, /* of each key head: its queries, its key, its value */
} family_fused;

typedef enum family_rope { FAMILY_NO_ROPE, FAMILY_HALVES, FAMILY_INTERLEAVED } family_rope;

/* What a model of the family computes beside its weights; --plain leaves it out. */
typedef struct family_model {
    family_rope rope;
    int rope_in_part; /* 1: a part of the channels is rotated, which the weights do not tell */
    int causal;
    int unscaled; /* scores are plain dot products */
    int t5;       /* the table is T5's */
} family_model;

/* Without an output projection: the row does not match, or y is the heads side by side, or --no-output must say so. */
typedef enum family_end { FAMILY_NEEDS_OUTPUT, FAMILY_MAY_END, FAMILY_ASKS } family_end;

typedef struct layer_family {
    const char *name;
    const char *kind;                /* of layer_kind */
    const char *names[WEIGHT_ROLES]; /* alternatives separated by '|'; "../" leaves the last word of the root; NULL: none */
    family_axes axes;
    family_fused fused;
    family_model model;
    int native;    /* 1: the kind reads its weights itself */
    int only_here; /* 1: the root must be that of --prefix: the name is too short to be looked for */
    family_end end;
    const char *sign; /* a tensor that such a layer has, in the words of `names`; NULL: its weights suffice */
} layer_family;

/* In order of precedence; a row without a name ends them. */
extern const layer_family layer_families[];

/* Prints the table for --help. */
void family_print(void);

/* 1 for what stands between the words of a name: "a.b", or in JAX "a/b". */
int family_separates(char c);

/* Of other parts of attention that some models of these families have, and that are not computed. */
extern const char family_beyond[];

/* The tensor with one of these names after the root; NULL: there is none. */
const attn_archive_tensor *family_find(const attn_archive *file, const char *root, const char *names);

#endif
