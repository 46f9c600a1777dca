/* SPDX-License-Identifier: MIT
 *
 * cut.h - a random attention problem with many options; the parts into which it is cut (ranges of batch entries, heads, queries and
 * keys), each with its origin, as in ring attention over several devices or a prompt in chunks; and the parts recombined. */
#ifndef ATTN_TESTS_CUT_CUT_H
#define ATTN_TESTS_CUT_CUT_H

#include "test.h"

#include "array.h"
#include "testing/random/random.h"

enum { CUT_ARRAYS = 48 };

/* The outputs of all operations. */
enum {
    CUT_O,
    CUT_LSE,
    CUT_KEEP,
    CUT_GRAD_Q,
    CUT_GRAD_K,
    CUT_GRAD_V,
    CUT_TAN_O,
    CUT_TAN_LSE,
    CUT_SECOND_GRAD_O,
    CUT_SECOND_GRAD_LSE,
    CUT_SECOND_Q,
    CUT_SECOND_K,
    CUT_SECOND_V,
    CUT_RESULTS
};
typedef enum cut_dim { CUT_ONE, CUT_DIM_QK, CUT_DIM_V, CUT_KEYS } cut_dim;
typedef struct cut_result {
    const char *name;
    attn_op op;
    int of_keys; /* 1: a row for each key, 0: for each query */
    cut_dim dim;
} cut_result;
extern const cut_result cut_results[CUT_RESULTS];

typedef struct results {
    array of[CUT_RESULTS];
} results;

typedef struct whole {
    attn_problem problem;
    attn_dtype dtype; /* of everything but masks and indices: f32 or f64 */
    random_state random;
    attn_call call;
    int bottom_right; /* offset_q holds the offsets of bottom-right alignment */
    int invariant;    /* attn_options.invariant in forward */
    array q, k, v, mask, bias, block_mask, ranges, slopes, table, relative_keys, relative_values, relative_u, relative_v, scale;
    array grad_o, grad_lse, tan_q, tan_k, tan_v, tan_bias;
    array page_table, k_pages, v_pages; /* keys and values of forward, if there is a page table */
    int64_t page_size;
    array lists; /* block lists, kept as a block mask */
    results is;
    int64_t lengths_q[8], lengths_kv[8], offset_q[8];
    int has_lengths, has_offset;
    char text[300]; /* the options, for messages */
    void *owned[CUT_ARRAYS];
    int count;
} whole;

/* A part: first index and count of batch entries, key heads, queries and keys. */
typedef struct part {
    int64_t batch, entries, head, heads, q, queries, kv, keys;
} part;

/* The part's own inputs of operations other than forward; NULL: those of the whole, at the part's position. */
typedef struct flows {
    const array *o, *lse, *grad_o, *grad_lse;
} flows;

void whole_draw(whole *w, uint64_t seed, attn_dtype dtype);
void whole_free(whole *w);
/* 1 if the operation supports all options of the problem. */
int whole_has(const whole *w, attn_op op);
/* Queries and keys may be cut at multiples of these. */
int64_t whole_step_q(const whole *w);
int64_t whole_step_kv(const whole *w);

/* Computes the whole, or a part.  Forward runs before the other operations, whose o and lse are the whole's unless f has others. */
void whole_run(whole *w, attn_op op);
void part_run(const whole *w, const part *p, attn_op op, results *r, flows f);
results results_make(const whole *w, const part *p);
void results_free(results *r);

/* The slopes of the score modifier, for those problems that have one. */
void cut_slopes(void *context, const attn_score_tile *t);

/* ---- parts recombined ---- */

enum { CUT_PARTS = 4 };

/* The cuts of an axis: n parts, part k from at[k] to at[k + 1]. */
typedef struct cut_axis {
    int n;
    int64_t at[CUT_PARTS + 1];
} cut_axis;
typedef struct cuts {
    cut_axis batch, heads, q, kv;
} cuts;

/* max_...: maximum number of parts of an axis. */
cuts cuts_draw(whole *w, int max_batch, int max_heads, int max_q, int max_kv);
part cuts_part(const cuts *c, int batch, int head, int q, int kv);

/* Sums over parts, in the shapes of the whole. */
typedef struct sums {
    double *of[CUT_RESULTS];
} sums;
sums sums_make(const whole *w);
void sums_free(sums *s);
void sums_add(sums *s, const whole *w, int result, const part *p, const array *x);
/* Fails if a sum differs from the whole's number by more than tolerance (1 + |number|), and returns the largest fraction of that;
 * tolerance 0: if it differs at all. */
double sums_compare(const sums *s, const whole *w, int result, double tolerance);

/* o and lse of the same queries over `count` parts of the keys, by attn_merge. */
void parts_merge(const whole *w, const part *p, const results *r, int count, results *into);

#endif
