/* SPDX-License-Identifier: MIT
 *
 * distributed.h - one attention problem over several ranks (processes of one or many machines), each of which holds some of the
 * queries and keys.  The same bits for any number of ranks.  Conventions of attn.h hold.
 *
 * The queries and the keys of a problem are cut into parts of `part` tokens, part n from token n part on.  A pair of a part of
 * queries and a part of keys, a cell, is one call of the library, whose result depends on nothing else; and the results of the
 * cells are combined in an order that their numbers alone decide:
 *
 *      o, lse                of a part of queries: as attn_merge does, two at a time, in a binary tree over the parts of keys
 *                            (of queries that see no key, with ATTN_EMPTY_UNIFORM: the mean, by numbers of keys)
 *      row_max, entropy, effective_keys, topk_index, topk_weight
 *                            in the same tree: with w = exp(lse_p - lse), the largest, sum_p w_p (entropy_p - log w_p), and the
 *                            largest of w_p weight_j (of those that are 0, rounded, not always the keys with the lowest index)
 *      grad_q, tangents, second_q
 *                            of a part of queries: their sum, in the same tree
 *      grad_k, grad_v, second_k, second_v, column_sum
 *                            of a part of keys: their sum, in a binary tree over the parts of queries
 *      weights, scores, dropout_keep
 *                            of a cell, in place; weights are those of its own keys times exp(lse_cell - lse)
 *      other gradients       (of tables, slopes, ...): their sum over the parts of keys, then over those of queries; of a bias that
 *                            all queries share, too.  That of one that all keys share: for each query, as grad_q
 *
 * A node of level L and number N of a tree combines nodes 2N and 2N + 1 of level L - 1; what does not exist is left out.  So it
 * does not matter which rank computes a cell, or when: one rank gets the bits that any number of them gets (Liu et al. 2023, "Ring
 * Attention", has the idea of the ring; its sums follow the ring, as do those of attn_split.any_order).  These bits are not those
 * of attn_compute, which cuts at other places; docs/distributed.md says how near they are.
 */
#ifndef ATTN_DISTRIBUTED_H
#define ATTN_DISTRIBUTED_H

#include "attn/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which rank owns a part.  With R ranks and G parts, part n belongs to */
typedef enum attn_layout {
    ATTN_LAYOUT_CONTIGUOUS = 0, /* rank n R / G: each rank has neighbours only */
    ATTN_LAYOUT_ZIGZAG = 1,     /* c = 2 n R / G; rank c, or 2R - 1 - c where c >= R: causal work is even */
    ATTN_LAYOUT_STRIPED = 2,    /* rank n mod R */
    ATTN_LAYOUT_OWNERS = 3      /* rank owners[n] */
} attn_layout;

/* How keys and values reach the ranks whose queries see them.  No result depends on it (but with attn_split.any_order). */
typedef enum attn_way {
    /* That of ATTN_WAY_DIRECT, _HEADS, _HEADS_RING (in groups of each number of ranks, up to the key heads, that divides them) and
     * _GATHER which is predicted to take the least time on split.machine (attn_split_predict); direct if none takes less, and where
     * heads cannot be computed apart or that way cannot be planned.  attn_distributed_describe says which one it is, and why. */
    ATTN_WAY_AUTO = 0,
    ATTN_WAY_RING = 1,   /* from neighbour to neighbour, all of them */
    ATTN_WAY_DIRECT = 2, /* from their owner, and only to ranks with queries that see them: with a window, the halo */
    /* Not at all: each rank has all queries, whatever the layout says of them, and its own keys; what ranks have computed is
     * combined, each rank doing that for some heads, in 2 log2 R rounds of R ranks, and all of them get all of o and lse.  For
     * decode, where queries are few; ATTN_FORWARD only.  (Split-KV: Dao et al. 2023, "Flash-Decoding", over ranks.) */
    ATTN_WAY_SPLIT_KEYS = 3,
    /* Once: before anything is computed, each rank gets all tokens of some key heads, with the query heads that read them, and
     * gives back what it has computed (Jacobs et al. 2023, "DeepSpeed Ulysses").  Ranks beyond heads_kv have no head, and wait. */
    ATTN_WAY_HEADS = 4,
    /* Both: `ranks_heads` ranks after one another, a group, divide the heads in that manner, of all tokens of the group; and keys
     * come, as in ATTN_WAY_DIRECT, from the ranks of the other groups with the same heads (Fang and Zhao 2024, "USP"). */
    ATTN_WAY_HEADS_RING = 5,
    /* One key head after another, with the query heads that read it: while a rank computes a head, the keys of the next one come
     * from all ranks whose keys its queries see.  It waits once for each key head, instead of once for each rank, and has memory
     * for all keys of two heads, instead of for all heads of the keys of two ranks. */
    ATTN_WAY_GATHER = 6
} attn_way;

/*
 * How ranks exchange messages.  A message is sent once and received once, with the same number of bytes (0 or more); those from one
 * rank to another with one tag arrive in the order in which they were sent.  Both begin without waiting, and set *request; it is
 * passed to `wait` once, also if they failed.  Each function returns 0, or another number if it failed.  After a failure nothing
 * more is sent or received; what has begun is passed to `wait`, which must not wait for other ranks any more.  When `wait` returns,
 * whatever it returns, the memory of its messages is no longer used.
 */
typedef struct attn_transport {
    size_t struct_size; /* sizeof(attn_transport) */
    int rank;           /* of the caller, 0 .. ranks - 1 */
    int ranks;
    void *context;
    int (*send)(void *context, int to, int tag, const void *data, size_t bytes, void **request);
    int (*receive)(void *context, int from, int tag, void *data, size_t bytes, void **request);
    int (*wait)(void *context, int64_t count, void **requests); /* until all are done; NULL requests are skipped */
    int (*progress)(void *context);                             /* NULL, or called between cells, to let messages go on */
    int64_t reserved[4];                                        /* must be 0 */
} attn_transport;

/* The ranks of a prediction: all alike, each pair of them joined alike.  (attn_split_machine_describe: an assumption.) */
typedef struct attn_split_machine {
    size_t struct_size;         /* sizeof(attn_split_machine) */
    double flops_per_second;    /* of a rank, in attention; above 0 */
    double bytes_per_second;    /* that a rank sends, and as many that it receives at the same time; above 0 */
    double seconds_per_message; /* from its beginning to that of its arrival, from 0 on */
    double seconds_per_sum;     /* of a rank, to add or merge one number of two results; 0: nothing */
    int64_t reserved[4];        /* must be 0 */
} attn_split_machine;

/* How a problem is divided. */
typedef struct attn_split {
    size_t struct_size; /* sizeof(attn_split) */
    int64_t part;       /* tokens of a part, the same on all ranks whatever their number; 0: 1024 */
    attn_layout layout;
    attn_way way;
    const int32_t *owners_q;  /* ATTN_LAYOUT_OWNERS: the rank of each part of queries, read by attn_distributed_plan_create */
    const int32_t *owners_kv; /* likewise of each part of keys */
    /* ATTN_WAY_HEADS_RING: ranks of a group, which divides the ranks.  0: the greatest number that divides the ranks and heads_kv.
     * (ATTN_WAY_HEADS: 0, or all ranks.  Other ways: 0.)  A rank has heads_kv / ranks_heads key heads, or one more. */
    int64_t ranks_heads;
    /* Of predictions, by which plans take ATTN_WAY_AUTO: the same on all ranks, and read by attn_distributed_plan_create and
     * attn_split_predict alone.  NULL: that of attn_split_machine_describe. */
    const attn_split_machine *machine;
    /* 1: results of cells are added as they come, so that one for each part of queries and of keys waits, where in a tree many do.
     * Bits then depend on ranks, layout and way, but not on time: a run of the same problem, split and ranks has the same.  Not in
     * linear attention.  0: in the trees */
    int64_t any_order;
    int64_t reserved[3]; /* must be 0 */
} attn_split;

/*
 * A problem planned for the ranks of a transport.  Immutable; one execution at a time uses its transport.
 */
typedef struct attn_distributed_plan attn_distributed_plan;

/*
 * Plans an operation over all ranks.  Collective: each rank calls it, with the same problem and split.
 *
 *  problem    [in]  the whole problem: len_q and len_kv are those of all ranks together (of packed sequences, as ever, the longest)
 *  tensors    [in]  the rank's own: of its parts in rising order, one after another along the axis of tokens
 *                      a tensor with a row for each query                       the rows of its queries
 *                      a tensor with a row for each key                         the rows of its keys
 *                      weights, scores, dropout_keep                            the rows of its queries, with all keys
 *                      mask, bias, dropout_given, block_mask                    the rows of its queries, with all keys
 *                      these and ranges of packed sequences                     all of it, the same on all ranks
 *                      slopes, tables, scales, the sink                         all of it, the same on all ranks
 *                      gradients of these                                       all of it; they get the same bits on all ranks
 *                      grad_bias, second_bias                                   the rows of its queries; or, if all queries share
 *                                                                               the bias or sequences are packed, all of it.  The
 *                                                                               strides say that, 0 or ATTN_BROADCAST, on all
 *                                                                               ranks alike: also where there is one row, or none;
 *                                                                               of one query in all, ATTN_BROADCAST says it
 *                      lengths_q, lengths_kv, offset_q, cu_seqlens              all of it; the numbers are read now
 *                    As in attn_plan_create, other pointers may be ATTN_LATER; what has no rows on this rank is ATTN_EMPTY
 *  split      [in]   NULL: all defaults
 *  transport  [in]   NULL: one rank, which has everything.  It is copied; its context must outlive the plan
 *  options    [in]   NULL: all defaults.  The instruction set must be the same on all ranks
 *
 * ATTN_DOUBLE_BACKWARD, unless it has tan_o and tan_lse, goes over all cells twice, with all messages of keys: first for the
 * tangents of o and lse, which are sums over all keys, as ATTN_JVP does; these stay in the workspace, in the compute type, and each
 * cell then reads them.
 *
 * ATTN_FORWARD with weights, scores of ATTN_STAGE_WEIGHTS or column_sum does so, too: first for all else, with lse of all keys, and
 * then, with the keys alone, for these, in 64 queries of a cell at a time: memory beside the tensors does not grow with len_q
 * len_kv.  With dropout_keep, and scores of an earlier stage than ATTN_STAGE_BIASED, all cells exist, visible or not.
 *
 * tensors->call->origin, if it is set, says where the problem lies in a larger one, of which it is a range of queries, of keys or
 * of heads (attn_origin).  Where it begins with a part of the larger one, and without any_order, results of queries have the bits
 * that the larger one has; and so have sums over queries, if it has 2^n parts and begins with a multiple of these: they are a node
 * of the larger tree.
 *
 * All ranks return the same status, and the message of the lowest rank that failed; ATTN_ERR_ARGUMENT if they disagree about the
 * problem, the split, its machine, types, the instruction set, or about which tensors and functions there are.  (Not agreed about:
 * a transport whose struct_size, rank or functions are invalid.  Its rank fails alone, and the others wait for it.)  Otherwise
 * returns what attn_plan_create returns, or
 *      ATTN_ERR_UNSUPPORTED  what is not there yet: pages, block lists; block masks, weights, scores and dropout_keep of packed
 *                            sequences; a part that is not a multiple of the blocks of a block mask; an origin with a block mask
 *                            or packed sequences; where heads are divided, or computed one after another, gradients that all
 *                            heads share (of a bias, a table, ... that broadcasts over them) and column_sum with
 *                            ATTN_COLUMNS_ALL; with ATTN_WAY_SPLIT_KEYS weights, scores and dropout_keep, since no rank has
 *                            whole rows
 *      ATTN_ERR_MEMORY       also if the workspace would be larger than options.workspace_limit
 *      ATTN_ERR_IO           the transport failed
 */
ATTN_API attn_status attn_distributed_plan_create(attn_distributed_plan **plan, const attn_problem *problem,
                                                  const attn_tensors *tensors, const attn_split *split,
                                                  const attn_transport *transport, const attn_options *options, attn_error *error);

/* Bytes of workspace of attn_distributed_execute on this rank; 0 for NULL. */
ATTN_API size_t attn_distributed_workspace_size(const attn_distributed_plan *plan);

/*
 * Runs a plan.  Collective; the plan must not be NULL.  Allocates nothing.  Returns, on all ranks alike and with all outputs
 * untouched, what attn_execute returns; or ATTN_ERR_IO, if the transport fails, with outputs that are lost: ranks may return that
 * at different times, or not at all, and the job must end.
 */
ATTN_API attn_status attn_distributed_execute(const attn_distributed_plan *plan, const attn_tensors *tensors, void *workspace,
                                              size_t workspace_size, attn_error *error);

/* What a plan does on this rank. */
typedef struct attn_distributed_description {
    size_t struct_size; /* in: sizeof(attn_distributed_description) */
    int64_t parts_q;    /* of the whole */
    int64_t parts_kv;
    int64_t queries; /* tokens of this rank */
    int64_t keys;
    int64_t cells;          /* that this rank computes, with ATTN_WAY_GATHER for each key head; two runs do so twice */
    int64_t cells_most;     /* of the rank that has the most; all ranks wait for it */
    int64_t cells_total;    /* of all ranks */
    int64_t messages;       /* that this rank sends in an execution */
    int64_t bytes;          /* of these */
    int64_t row_nodes;      /* results of parts of queries that wait at the same time, at most, */
    int64_t column_nodes;   /* and of parts of keys, */
    int64_t shared_nodes;   /* and of gradients that all ranks share, of which each is as large as all of these together */
    size_t workspace_bytes; /* with heads, also of the tensors that came from other ranks, and of messages; with ATTN_WAY_GATHER,
                             * what is for one key head and the keys of the next; with two runs, also of the tangents of o and
                             * lse, or of lse that the caller does not want */
    attn_way way;
    int ranks;
    int64_t ranks_heads; /* that divide the heads; 1: a rank has all heads of its tokens */
    double seconds;      /* that an execution is predicted to take on split.machine: attn_split_prediction.seconds of this way */
    char why[240];       /* why it is this way, for people: "heads-ring by 2: 12 ms predicted, direct 20 ms (waiting 9.8 ms)" */
} attn_distributed_description;

/* Fills in *description, whose struct_size is set.  ATTN_ERR_ARGUMENT: NULL, or an invalid struct_size. */
ATTN_API attn_status attn_distributed_describe(const attn_distributed_plan *plan, attn_distributed_description *description,
                                               attn_error *error);

/* Frees a plan; NULL is a no-op.  Not collective. */
ATTN_API void attn_distributed_plan_destroy(attn_distributed_plan *plan);

/* What a rank owns of an axis of tokens. */
typedef struct attn_split_description {
    size_t struct_size;  /* in: sizeof(attn_split_description) */
    int64_t parts_total; /* of all ranks */
    int64_t parts;       /* of this rank */
    int64_t tokens;      /* of these */
} attn_split_description;

/*
 * How many parts and tokens a rank has, for allocating its tensors.  Local: needs neither a plan nor a transport.
 *
 *  split   [in]  NULL: all defaults
 *  tokens  [in]  of the whole axis
 *  axis    [in]  ATTN_AXIS_QUERY or ATTN_AXIS_KEY: the axes may have different lengths and owners
 *
 * Returns ATTN_ERR_ARGUMENT or ATTN_ERR_SHAPE.
 */
ATTN_API attn_status attn_split_describe(const attn_split *split, int64_t tokens, attn_axis axis, int rank, int ranks,
                                         attn_split_description *description, attn_error *error);

/* A part of a rank. */
typedef struct attn_split_part {
    size_t struct_size; /* in: sizeof(attn_split_part) */
    int64_t number;     /* among the parts of all ranks */
    int64_t first;      /* token of the whole */
    int64_t tokens;     /* split.part, or fewer in the last */
    int64_t local;      /* token of the rank's tensor with which it begins there */
} attn_split_part;

/* Part number `index` (0, 1, ...) of those of a rank.  ATTN_ERR_ARGUMENT past the last one. */
ATTN_API attn_status attn_split_part_describe(const attn_split *split, int64_t tokens, attn_axis axis, int rank, int ranks,
                                              int64_t index, attn_split_part *part, attn_error *error);

/*
 * From a tensor that rank 0 has to the rows of each rank.  Collective.
 *
 *  axis       [in]   ATTN_AXIS_QUERY or ATTN_AXIS_KEY: whose tokens the third axis has
 *  shape      [in]   of the whole, [batch, head, token, channel]; of masks and biases [batch, head, query, key]
 *  whole      [in]   on rank 0, of any type; not read on others, and may be NULL there
 *  split      [in]   NULL: all defaults.  With ATTN_WAY_SPLIT_KEYS each rank gets all queries
 *  transport  [in]   NULL: one rank
 *  own        [out]  the tokens that the rank owns (attn_split_describe), part after part, of the same type; ATTN_EMPTY where there
 *                    are none, with that type
 *
 * Strides may be any, those of `own` other ones on each rank.  Messages have at most 64 MiB; so much memory is allocated.  All
 * ranks return the same status and the message of the lowest rank that failed, with nothing written: ATTN_ERR_ARGUMENT (also if
 * ranks disagree about the shape, the axis, the type or the split), ATTN_ERR_SHAPE, ATTN_ERR_STRIDE (also if `own` and `whole`
 * overlap), ATTN_ERR_UNSUPPORTED, ATTN_ERR_MEMORY; or ATTN_ERR_IO, as attn_distributed_execute does, with `own` lost.
 */
ATTN_API attn_status attn_distributed_scatter(attn_axis axis, const int64_t shape[4], const attn_input *whole,
                                              const attn_split *split, const attn_transport *transport, const attn_output *own,
                                              attn_error *error);

/* The reverse: rank 0 gets the whole of what ranks have.  Of what each has all of, it takes its own. */
ATTN_API attn_status attn_distributed_gather(attn_axis axis, const int64_t shape[4], const attn_input *own, const attn_split *split,
                                             const attn_transport *transport, const attn_output *whole, attn_error *error);

/*
 * Owners such that all ranks have about the same work, for ATTN_LAYOUT_OWNERS: for packed sequences and sequences of different
 * lengths, whose parts differ.  The part of queries that sees the most keys goes first, to the rank with the least work so far that
 * has less than its share of the parts (Graham 1969); keys belong to the rank of the queries at their place, if there are as many.
 * Local: all ranks that ask the same get the same.
 *
 *  problem    [in]   the whole, as in attn_distributed_plan_create
 *  tensors    [in]   lengths, offset_q and cu_seqlens, if they are present; the others are not read
 *  split      [in]   its part; NULL: all defaults
 *  owners_q   [out]  [parts] of i32, dense: for attn_split.owners_q; attn_split_describe says how many
 *  owners_kv  [out]  likewise
 *
 * Masks and biases are not looked at, and of the problem only the shape and the mask.  Takes time in proportion to the queries.
 * Whole parts are given away, so a rank should have a dozen or more.  Returns ATTN_ERR_ARGUMENT, ATTN_ERR_SHAPE, ATTN_ERR_STRIDE,
 * ATTN_ERR_UNSUPPORTED or ATTN_ERR_MEMORY.
 */
ATTN_API attn_status attn_split_balance(const attn_problem *problem, int ranks, const attn_tensors *tensors,
                                        const attn_split *split, const attn_output *owners_q, const attn_output *owners_kv,
                                        attn_error *error);

/* What is predicted.  Seconds are those of the rank with the most work, as if it were also the one that gets and sends the most. */
typedef struct attn_split_prediction {
    size_t struct_size; /* in: sizeof(attn_split_prediction) */
    double seconds;     /* computing + combining + waiting */
    double computing;   /* flops of the rank over its speed */
    double combining;   /* results of its cells */
    double waiting;     /* for messages that its work does not hide */
    double efficiency;  /* the time of an even share of the flops, over `seconds` */
    double imbalance;   /* pairs of the rank with the most, over the mean: 1 is even */
    double flops;       /* of all ranks, as `attn bench` counts them */
    double sampled;     /* the share of parts whose sums are counted (1: all); messages and bytes of backward are estimated below */
    int64_t parts_q;    /* of the whole */
    int64_t parts_kv;
    int64_t cells_most; /* of the rank that has the most */
    int64_t cells_total;
    int64_t messages;       /* that a rank sends, at most */
    int64_t bytes;          /* likewise, of another rank perhaps */
    int64_t messages_total; /* of all ranks */
    int64_t bytes_total;
    int64_t steps;     /* ranks that keys come from */
    int64_t key_bytes; /* of workspace for keys, at most: those of the rank and of two steps (and, with heads, those that came from
                        * its group; with ATTN_WAY_GATHER, of one head those of the rank and, twice, all that come); results of
                        * cells come on top */
    attn_way way;      /* what ATTN_WAY_AUTO is */
    int ranks;
    int64_t ranks_heads; /* as in attn_distributed_description */
    char why[240];       /* likewise */
} attn_split_prediction;

/*
 * Fills in *machine, whose struct_size is set, with what predictions assume where nothing is said: a machine of 32 cores that
 * computes 5 10^12 operations a second in attention and adds a number on one core in half a nanosecond, and sends 200 Gbit/s, 5
 * microseconds a message.  ATTN_ERR_ARGUMENT: NULL, or an invalid struct_size.
 */
ATTN_API attn_status attn_split_machine_describe(attn_split_machine *machine, attn_error *error);

/*
 * Predicts what an execution over many ranks takes, without any of them.  Local.  Cells, messages and bytes are counted from the
 * layout and the mask, and are those of attn_distributed_describe; only sums of more than 2^20 cells, and work with split keys, are
 * sampled (`sampled`).
 *
 *  problem     [in]   the whole, as in attn_distributed_plan_create
 *  ranks       [in]   how many, at least 1
 *  tensors     [in]   of the whole: which there are, their types and strides (pointers may be ATTN_LATER); lengths, offset_q and
 *                     cu_seqlens are read
 *  split       [in]   NULL: all defaults
 *  machine     [in]   its speeds; NULL: split.machine, or what that stands for
 *  prediction  [out]  its struct_size is set
 *
 * Double backward, and forward with weights or column sums, are two runs (attn_distributed_plan_create), whose times are added.  In
 * a run, with C = computing + combining, the rank with the most work does a share h of C (that of its cells) with its own keys, and
 * the rest evenly in K steps, whose keys arrive while the step before is computed:
 *
 *      m        = seconds_per_message + (bytes of keys that a rank gets) / K / bytes_per_second
 *      waiting  = max(m - h C, 0) + (K - 1) max(m - (1 - h) C / K, 0) + sums
 *      sums     = in backward and the second run, K seconds_per_message + (bytes of the sums for keys that a rank sends) /
 *                 bytes_per_second, and what rank 0 gathers and spreads of results that all ranks share
 *
 * Where heads are divided, that is the time of a rank with the most heads, among those that have the same, and waiting is more by
 * what no work hides, of the rank that sends the most before and after:
 *
 *      (messages within its group) seconds_per_message + (their bytes) / bytes_per_second
 *
 * With ATTN_WAY_GATHER, C is divided evenly by H = heads_kv; the keys of the first head are waited for, and those of another arrive
 * while the head before is computed.  With the sums of one head,
 *
 *      m        = seconds_per_message + (bytes of keys that a rank gets) / H / bytes_per_second
 *      waiting  = m + (H - 1) max(m - C / H, 0) + H sums
 *      sums     = seconds_per_message + (bytes that a rank sends) / bytes_per_second, and what goes through rank 0
 *
 * With ATTN_WAY_SPLIT_KEYS, waiting is, of the rank that sends the most, (its bytes) / bytes_per_second, and seconds_per_message
 * for each of the rounds in which results are combined and returned, or for each of its messages, if these are more.  Not in it:
 * reading memory, agreement about errors, messages that meet in the network, ranks that are late, and masks and biases.
 *
 * Time and memory grow with the parts, the entries of the batch and the ranks: a million parts take less than a second.  Returns
 * ATTN_ERR_ARGUMENT (ranks; a speed that is not above 0, or that makes seconds overflow), what attn_plan_create returns for the
 * problem of one cell, ATTN_ERR_SHAPE, ATTN_ERR_UNSUPPORTED or ATTN_ERR_MEMORY, as attn_distributed_plan_create does.
 */
ATTN_API attn_status attn_split_predict(const attn_problem *problem, int ranks, const attn_tensors *tensors,
                                        const attn_split *split, const attn_split_machine *machine,
                                        attn_split_prediction *prediction, attn_error *error);

#ifdef __cplusplus
}
#endif

#endif
