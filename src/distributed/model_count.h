/* SPDX-License-Identifier: MIT
 *
 * model_count.h - what each rank would do, without planning its cells: work, messages and bytes.  Time and memory grow with the
 * parts and the ranks, and not with the cells. */
#ifndef ATTN_DISTRIBUTED_MODEL_COUNT_H
#define ATTN_DISTRIBUTED_MODEL_COUNT_H

#include "cell.h"

/* The parts of an axis, rank by rank: those of rank r are part[first[r]] .. part[first[r + 1] - 1], in rising order. */
typedef struct attn_by_rank {
    int64_t *first;
    int32_t *part;
} attn_by_rank;

typedef struct attn_model {
    attn_cells cells; /* problem, planned, index, grid, bounds and nodes; no plans */
    attn_way way;     /* not ATTN_WAY_AUTO */
    int ranks;        /* where heads are divided, groups: all of this is about ranks with the same heads */
    int agreeing;     /* ranks that agree, all of them */
    int64_t rounds;   /* of each run: 1, or the key heads, one of which the cells have then (ATTN_WAY_GATHER) */
    attn_by_rank q, kv;
    int32_t *by_seen[ATTN_SEEN_RANGES]; /* q.part, but of each rank in the order in which ranges of a kind begin */
    double *row_pairs;                  /* of each part of queries, with all its keys, of a head */
    int64_t *seen;                      /* space for the parts of keys and one */
    int32_t *bundles;                   /* NULL: a message is a part; or space in which those of several are counted */
    /* Of each rank */
    double *pairs;                /* that it computes, of a head */
    int64_t *cells_of;            /* that it computes */
    int64_t *counted;             /* the sum of which it was counted last; with any_order */
    double *keys_sent, *keys_got; /* parts of keys */
    double *nodes_sent;           /* results of ATTN_NODE_ROW, _COLUMN or _SHARED, at ATTN_NODE_KINDS r + kind */
    double *bytes_got;
    double *bytes_sent, *messages_sent; /* all of these, and agreements, in this run and those before it */
    double *row_bytes;                  /* of the messages of ATTN_NODE_ROW, of some heads each (halving.h) */
    double *group_nodes;                /* space for a number */
    double row_rounds;                  /* in which these go, one after another */
    int64_t sums;                       /* that were counted */
    double sampled; /* the share of the parts whose sums were counted; those of the others are taken to be alike */
} attn_model;

/* Bytes of the arrays, which attn_model_carve takes from memory aligned for int64_t. */
size_t attn_model_bytes(attn_range parts, int ranks);
void attn_model_carve(attn_model *model, void *memory, attn_range parts);

/* The parts of a rank among first .. end - 1. */
int64_t attn_model_between(const attn_by_rank *by, int rank, int64_t first, int64_t end);

/* Fills in by_seen. */
void attn_model_sort_seen(attn_model *model);
/* Calls for what a rank sees, as ranges without parts in common or side by side, in rising order. */
typedef void attn_model_range(attn_model *model, int rank, attn_range range);
void attn_model_each_seen(attn_model *model, int rank, attn_model_range *call);

/* Lets keys_sent be messages of ATTN_WAY_GATHER (model_bundles.c), in attn_model_bundles_bytes at model->bundles. */
size_t attn_model_bundles_bytes(attn_range parts, int ranks);
void attn_model_bundles(attn_model *model);

/* Fills in the arrays for run number `run` of an execution, 0 first; its cells, way, ranks, rounds and bundles are there. */
void attn_model_count(attn_model *model, int run);

/* Parts first, first + stride, ..., of which each stands for `weight`: of `parts` parts with so many cells, at least one, and such
 * that few enough cells are visited. */
typedef struct attn_part_sample {
    int64_t first, stride;
    double weight;
} attn_part_sample;
static inline attn_part_sample attn_model_sample(int64_t parts, double cells)
{
    const int64_t most = 1 << 20; /* of cells, where sums are counted */
    attn_part_sample s = {0, 1, 1};
    if (cells <= (double)most) return s;
    s.stride = attn_max(attn_min((int64_t)(cells / (double)most) + 1, parts), 1);
    s.first = s.stride / 2;
    s.weight = (double)parts / (double)attn_parts_of(parts - s.first, s.stride);
    return s;
}

/* Adds the messages of ATTN_WAY_SPLIT_KEYS. */
void attn_model_rows(attn_model *model);

/* Of a rank: cells with its own keys, and how many ranks its other keys come from.  Overwrites model->seen. */
void attn_model_look(attn_model *model, int rank, int64_t *own_cells, int64_t *sources);

#endif
