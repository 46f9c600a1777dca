/* SPDX-License-Identifier: MIT
 *
 * problem.h - the internal form of a problem: the caller's options, which tensors are present, their layouts, and, for one
 * execution, their addresses.  Each of these structs has one field per tensor, named like its slot.
 */
#ifndef ATTN_BASE_PROBLEM_H
#define ATTN_BASE_PROBLEM_H

#include "attn/attn.h"
#include "layout.h"

/* Numbers of the tensors, as attn_tensor_describe counts them. */
enum {
#define INPUT(name)  ATTN_SLOT_##name,
#define OUTPUT(name) ATTN_SLOT_##name,
#include "slots.def"
#undef INPUT
#undef OUTPUT
    ATTN_SLOTS
};

/* Types and strides; indexed by number through attn_layout_at. */
typedef struct attn_layouts {
#define INPUT(name)  attn_layout name;
#define OUTPUT(name) attn_layout name;
#include "slots.def"
#undef INPUT
#undef OUTPUT
} attn_layouts;

/* 1: the tensor is present; likewise for arguments that are not tensors. */
typedef struct attn_presence {
#define INPUT(name)  unsigned char name;
#define OUTPUT(name) unsigned char name;
#include "slots.def"
#undef INPUT
#undef OUTPUT
    unsigned char modifier; /* attn_call.modify_scores */
    unsigned char rows;     /* attn_call.visit_rows */
    unsigned char origin;
} attn_presence;

/* The arguments of one execution: pointers to first elements, and the arguments that are not tensors. */
typedef struct attn_args {
#define INPUT(name)  const void *name;
#define OUTPUT(name) void *name;
#include "slots.def"
#undef INPUT
#undef OUTPUT
    attn_call call;
    attn_origin origin;                        /* with `heads` resolved */
    int idle;                                  /* attn_plan_is_idle */
    const struct attn_part_schedule *schedule; /* of the part that runs (task/schedule.h); NULL: none */
    const struct attn_rotation *rotation;      /* of queries while they are packed (tile/rotate.h); NULL: none */
} attn_args;

/* Which sequences are short enough for the walk that processes a whole head at once (walk/small/small.h), by their lengths. */
typedef struct attn_small {
    int64_t min_q, max_q; /* max_q 0: none */
    int64_t max_kv;       /* sequences have at least one key */
    int64_t of_query;     /* the most keys per query */
} attn_small;

/* With default types, implied strides and ATTN_BROADCAST resolved. */
typedef struct attn_resolved {
    attn_op op;
    attn_shape shape;
    attn_score score;
    attn_mask mask;
    attn_dropout dropout;
    attn_outputs outputs;
    attn_paging paging;
    attn_bias_table bias_table;
    attn_relative relative;
    attn_presence has;
    attn_layouts at;
    int invariant;              /* attn_options.invariant */
    int reproducible;           /* attn_options.reproducible */
    int64_t rows_of_query;      /* if a walk's rows are queries of several heads (walk/rows/rows.c), how many per query; else 0 */
    int64_t min_q, max_q;       /* if a walk has only sequences of some lengths: their range of queries; max_q 0: it has all */
    unsigned char skips_others; /* 1: other sequences are left to other walks, 0: they count as empty */
    unsigned char small_only;   /* of these sequences, 1: only the small ones, 0: all but them */
    attn_small small;
} attn_resolved;

static inline attn_layout *attn_layout_at(attn_layouts *layouts, int slot) { return (attn_layout *)(void *)layouts + slot; }

/* Queries of sequences are concatenated; keys may be, too. */
static inline int attn_is_packed(const attn_resolved *p) { return p->has.cu_seqlens_q; }
static inline int attn_keys_are_packed(const attn_resolved *p) { return p->has.cu_seqlens_kv; }
/* Lengths of keys within their tensor, or within their pages. */
static inline int attn_has_lengths_kv(const attn_resolved *p) { return p->has.lengths_kv || p->has.lengths_last_page; }
static inline int attn_is_paged(const attn_resolved *p) { return p->has.page_table || p->has.page_index; }

/* The keys of a key head are those of a list: its queries go over the list, as over a sequence of only these keys. */
static inline int attn_has_choices(const attn_resolved *p)
{
    const int64_t len_q = p->rows_of_query > 1 ? p->shape.len_q / p->rows_of_query : p->shape.len_q;
    return p->has.block_starts && p->mask.block_heads && len_q > 0 && p->mask.block_q >= len_q;
}

/* Lists of each key head, or of all heads together. */
static inline int64_t attn_lists_of_head(const attn_resolved *p)
{
    return p->mask.block_q > 0 ? p->shape.len_q / p->mask.block_q + (p->shape.len_q % p->mask.block_q != 0) : p->shape.len_q;
}
static inline int64_t attn_block_lists(const attn_resolved *p)
{
    return attn_lists_of_head(p) * (p->mask.block_heads ? p->shape.batch * p->shape.heads_kv : 1);
}

/* Needs of the score kind: a matrix w, its rows and columns (0 without w), and the channels of a key. */
static inline int attn_problem_has_matrix(const attn_resolved *p)
{
    return p->score.kind == ATTN_SCORE_GENERAL || p->score.kind == ATTN_SCORE_METRIC || p->score.kind == ATTN_SCORE_ADDITIVE;
}

static inline int64_t attn_problem_dim_k(const attn_resolved *p) { return p->score.dim_k ? p->score.dim_k : p->shape.dim_qk; }

static inline void attn_problem_matrix_shape(const attn_resolved *p, int64_t shape[2])
{
    const int64_t D = p->shape.dim_qk;
    shape[0] = !attn_problem_has_matrix(p) ? 0 : p->score.dim_metric ? p->score.dim_metric : D;
    shape[1] = !attn_problem_has_matrix(p) ? 0 : attn_problem_dim_k(p);
    if (p->score.kind == ATTN_SCORE_ADDITIVE) shape[0] = p->score.additive_bias ? 2 : 1;
}

/* Which tables are per head or per batch entry, and which are shared. */
static inline int attn_matrix_per_head(const attn_resolved *p) { return p->at.score_matrix.stride[1] != 0; }
static inline int attn_slopes_per_batch(const attn_resolved *p) { return p->at.alibi_slopes.stride[0] != 0; }
static inline int attn_bias_table_shared(const attn_resolved *p) { return p->at.bias_table.stride[1] == 0; }
static inline int attn_relative_shared(const attn_resolved *p)
{
    /* (Strides of a table without channels are meaningless.) */
    const int by_keys = p->has.relative_keys && (p->shape.dim_qk > 0 || !p->has.relative_values);
    return (by_keys ? p->at.relative_keys : p->at.relative_values).stride[1] == 0;
}

/* How many such tables there are to read: one for each head, or one that all share; without heads none, whatever the strides. */
static inline int64_t attn_tables_to_read(const attn_resolved *p, int shared)
{
    return shared && p->shape.heads_q > 0 ? 1 : p->shape.heads_q;
}

/* Number of column sums per key. */
static inline int64_t attn_column_heads(const attn_resolved *p)
{
    return p->outputs.column_heads == ATTN_COLUMNS_EACH    ? p->shape.heads_q
           : p->outputs.column_heads == ATTN_COLUMNS_GROUP ? p->shape.heads_kv
                                                           : 1;
}

/* 1 if the gradient of a relative table, of u or of v is requested. */
static inline int attn_grads_relative(const attn_resolved *p)
{
    return p->has.grad_relative_keys || p->has.grad_relative_values || p->has.grad_relative_u || p->has.grad_relative_v;
}

#endif
