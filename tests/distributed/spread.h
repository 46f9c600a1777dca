/* SPDX-License-Identifier: MIT
 *
 * spread.h - a problem with all its tensors, computed in one call, and divided among ranks by the table of tensors. */
#ifndef ATTN_TESTS_DISTRIBUTED_SPREAD_H
#define ATTN_TESTS_DISTRIBUTED_SPREAD_H

#include "cut/cut.h"

#include "attn/distributed.h"
#include "testing/ranks/ranks.h"

enum { SPREAD_TENSORS = 80 };

/* A tensor of the whole problem or of a rank: dense. */
typedef struct spread_tensor {
    attn_tensor_description about;
    attn_role role; /* in this operation; ATTN_ROLE_NONE: absent */
    attn_dtype dtype;
    int64_t shape[4];
    char *data;
} spread_tensor;

/* Options that cut.h does not draw. */
typedef struct spread_more {
    attn_normaliser normaliser;
    array sink; /* data NULL: none */
    /* Above 0: the first entry of the whole is so many packed sequences, which begin at these tokens. */
    int64_t documents, starts_q[10], starts_kv[10];
    attn_dtype types[SPREAD_TENSORS]; /* of f32 tensors that are stored in 16 bits; 0: w->dtype */
    array given;                      /* dropout_given; data NULL: none */
    /* Instead of the whole's: of size 1 on axes that `shares` has, or for each packed sequence; data NULL: none. */
    array bias, mask, ranges, slopes, tan_bias;
    int shares[4];
    attn_outputs how; /* of forward's outputs */
    int outputs;      /* bits of spread_outputs */
    attn_empty empty;
} spread_more;

typedef struct spread {
    const whole *w;
    const spread_more *more;
    attn_problem problem;
    attn_call call;
    spread_tensor all[SPREAD_TENSORS];
    int count;
    uint64_t shared[MAX_RANKS]; /* a checksum of what each rank got of outputs that all share */
} spread;

/* Further outputs of forward that are drawn. */
enum { SPREAD_EXTRAS = 9 };
extern const char *const spread_outputs[SPREAD_EXTRAS];

/* Kinds of problems, as bits. */
enum {
    SPREAD_PACKED = 1,
    SPREAD_EMPTY = 2,    /* a size is 0 */
    SPREAD_MIXED = 4,    /* tensors of 16 bits among those of f32 */
    SPREAD_SHARED = 8,   /* a bias that all queries or all keys share */
    SPREAD_OUTPUTS = 16, /* further outputs of forward */
    SPREAD_UNIFORM = 32, /* ATTN_EMPTY_UNIFORM */
    SPREAD_COLUMNS = 64  /* with SPREAD_OUTPUTS: none with a number for each pair */
};

/* Draws a problem of these kinds.  Returns the size of its parts, or 0 if it has options that parts do not have. */
int64_t spread_draw(whole *w, spread_more *more, uint64_t seed, attn_dtype dtype, int kinds);
void spread_more_free(spread_more *more);
/* 1 if it wants one of spread_outputs. */
int spread_wants(const spread_more *more, const char *output);

/* An operation of a whole with all outputs that attn/distributed.h has, which are computed in one call.  forward: has outputs of
 * other operations of the same problem that are inputs of this one. */
void spread_make(spread *s, const whole *w, const spread_more *more, attn_op op, const spread *forward);
/* 1 if the operation supports all options. */
int spread_has(const whole *w, const spread_more *more, attn_op op);
/* 1 if a result is a sum over all heads. */
int spread_sums_heads(const spread_more *more, attn_op op);
void spread_free(spread *s);

/* One execution by `ranks` ranks; *out has what they computed, in the shape of the whole. */
typedef struct spread_way {
    int ranks;
    attn_split split;
    uint64_t delays;
    int threads;
    /* What the rank has sent so far; NULL: unknown. */
    void (*sent)(const attn_transport *transport, int64_t *messages, int64_t *bytes);
} spread_way;
void spread_run(const spread *s, const spread_way *way, spread *out);
/* The same for one of the ranks, of any transport: fills in its rows of *out (spread_output), its out->shared, and *error. */
void spread_run_rank(const spread *s, const spread_way *way, const attn_transport *transport, spread *out, attn_error *error);
void spread_output(const spread *s, spread *out);

/* The largest difference between outputs, as a fraction of (tolerance + the rounding unit of its type) (1 + |number|); fails
 * above 1. */
double spread_compare(const spread *expected, const spread *got, double tolerance);
/* 1 if all outputs have the same bits. */
int spread_same(const spread *a, const spread *b);

#endif
