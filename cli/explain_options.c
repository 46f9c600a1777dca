/* SPDX-License-Identifier: MIT
 *
 * explain_options.c - what each option of a problem costs: a table, one row an option. */
#include "explain_options.h"

#include "problem.h"

/* ---- bytes ---- */

static int64_t compute_size(const attn_problem *p) { return p->q.dtype == ATTN_F64 ? 8 : 4; }

static int64_t rows_of(const attn_problem *p) { return p->shape.batch * p->shape.heads_q * p->shape.len_q; }

/* Elements of a tensor whose axes may broadcast; the axes that are laid out. */
static int64_t elements(const attn_layout *layout, const int64_t size[4])
{
    int64_t count = 1;
    for (int axis = 0; axis < 4; axis++) count *= layout->stride[axis] == ATTN_BROADCAST ? 1 : size[axis];
    return count;
}

static int64_t pairs(const attn_problem *p, const attn_layout *layout)
{
    const attn_shape *s = &p->shape;
    return elements(layout, (const int64_t[4]){s->batch, s->heads_q, s->len_q, s->len_kv});
}

static int64_t mask_bytes(const attn_problem *p) { return pairs(p, &p->mask.mask); }

static int64_t block_bytes(const attn_problem *p)
{
    const attn_shape *s = &p->shape;
    return elements(&p->mask.blocks, (const int64_t[4]){s->batch, s->heads_q, problem_blocks(s->len_q, p->mask.block_q),
                                                        problem_blocks(s->len_kv, p->mask.block_kv)});
}

static int64_t bias_bytes(const attn_problem *p)
{
    const int64_t size = p->bias.bias.dtype ? (int64_t)attn_dtype_size(p->bias.bias.dtype) : compute_size(p);
    return pairs(p, &p->bias.bias) * size;
}

static int problem_has_matrix(const attn_problem *p)
{
    return p->score.kind == ATTN_SCORE_GENERAL || p->score.kind == ATTN_SCORE_METRIC;
}

/* Prepared queries, and keys unless a matrix is all of it; in backward their gradients too. */
static int64_t prepared_bytes(const attn_problem *p)
{
    const attn_shape *s = &p->shape;
    const int64_t keys = problem_has_matrix(p) ? 0 : s->batch * s->heads_kv * s->len_kv,
                  width = problem_dim_k(p) + (p->score.kind == ATTN_SCORE_DISTANCE ? 2 : 0);
    return (rows_of(p) + keys) * width * compute_size(p) * (p->op == ATTN_BACKWARD ? 2 : 1);
}

static int64_t head_bytes(const attn_problem *p) { return p->shape.heads_q * compute_size(p); }

static int64_t slope_bytes(const attn_problem *p)
{
    return head_bytes(p) * (p->bias.alibi == ATTN_ALIBI_BATCH_HEAD ? p->shape.batch : 1);
}

static int64_t table_bytes(const attn_problem *p)
{
    return (p->bias_table.shared ? compute_size(p) : head_bytes(p)) * problem_buckets(&p->bias_table);
}

static int64_t relative_bytes(const attn_problem *p)
{
    return (p->relative.shared ? compute_size(p) : head_bytes(p)) * p->relative.rows *
           (p->shape.dim_qk + (p->relative.values ? p->shape.dim_v : 0));
}

static int64_t row_bytes(const attn_problem *p) { return rows_of(p) * compute_size(p); }

static int64_t weight_bytes(const attn_problem *p) { return rows_of(p) * p->shape.len_kv * compute_size(p); }

static int64_t begin_bytes(const attn_problem *p) { return 2 * (p->shape.batch + 1) * (p->mask.index_dtype == ATTN_I32 ? 4 : 8); }

static int64_t length_bytes(const attn_problem *p)
{
    return (p->mask.lengths_q + p->mask.lengths_kv) * p->shape.batch * (p->mask.index_dtype == ATTN_I32 ? 4 : 8);
}

/* ---- the options ---- */

static int has_general(const attn_problem *p) { return p->score.kind == ATTN_SCORE_GENERAL; }
static int has_metric(const attn_problem *p) { return p->score.kind == ATTN_SCORE_METRIC; }
static int has_cosine(const attn_problem *p) { return p->score.kind == ATTN_SCORE_COSINE; }
static int has_distance(const attn_problem *p) { return p->score.kind == ATTN_SCORE_DISTANCE; }
static int has_additive(const attn_problem *p) { return p->score.kind == ATTN_SCORE_ADDITIVE; }
static int has_softmax_one(const attn_problem *p) { return p->score.normaliser == ATTN_NORMALISER_SOFTMAX_ONE; }
static int has_alone(const attn_problem *p) { return p->score.normaliser >= ATTN_NORMALISER_SIGMOID; }
static int has_scale_heads(const attn_problem *p) { return p->score.scale_kind == ATTN_SCALE_PER_HEAD; }
static int has_scale(const attn_problem *p) { return p->score.scale_kind == ATTN_SCALE_VALUE; }
static int has_temperature(const attn_problem *p)
{
    return p->score.temperature > 0 && (p->score.temperature < 1 || p->score.temperature > 1);
}
static int has_softcap(const attn_problem *p) { return p->score.softcap > 0; }
static int has_bias(const attn_problem *p) { return p->bias.additive; }
static int has_alibi(const attn_problem *p) { return p->bias.alibi != ATTN_ALIBI_NONE; }
static int has_t5(const attn_problem *p) { return p->bias_table.used && p->bias_table.kind == ATTN_DISTANCE_T5; }
static int has_clipped(const attn_problem *p) { return p->bias_table.used && p->bias_table.kind == ATTN_DISTANCE_CLIPPED; }
static int has_dtable(const attn_problem *p) { return p->gradients.bias_table; }
static int has_relative(const attn_problem *p) { return p->relative.keys; }
static int has_drel(const attn_problem *p) { return p->gradients.relative; }
static int has_causal(const attn_problem *p) { return p->mask.causal; }
static int has_window(const attn_problem *p) { return p->mask.window; }
static int has_global(const attn_problem *p) { return p->mask.global_q > 0 || p->mask.global_kv > 0; }
static int has_chunk(const attn_problem *p) { return p->mask.chunk > 0; }
static int has_lengths(const attn_problem *p) { return p->mask.lengths_q || p->mask.lengths_kv; }
static int has_packed(const attn_problem *p) { return p->mask.packed; }
static int has_mask(const attn_problem *p) { return p->mask.boolean; }
static int has_block(const attn_problem *p) { return p->mask.block; }
static int has_sink(const attn_problem *p) { return p->bias.sink; }
static int has_uniform(const attn_problem *p) { return p->mask.empty == ATTN_EMPTY_UNIFORM; }
static int has_dropout(const attn_problem *p) { return p->dropout.probability > 0; }
static int has_lse(const attn_problem *p) { return p->op == ATTN_FORWARD && p->want.lse; }
static int has_weights(const attn_problem *p) { return p->op == ATTN_FORWARD && p->want.weights; }
static int has_jvp(const attn_problem *p) { return p->op == ATTN_JVP; }
static int has_second(const attn_problem *p) { return p->op == ATTN_DOUBLE_BACKWARD; }
static int has_dlse(const attn_problem *p) { return p->gradients.lse; }
static int has_dscale(const attn_problem *p) { return p->gradients.scale; }
static int has_dslopes(const attn_problem *p) { return p->gradients.slopes; }
static int has_dsink(const attn_problem *p) { return p->gradients.sink; }

/* Scores that share an element of the bias are summed in a walk of their own (src/core/sched/bias_gradient.c). */
static int bias_is_shared(const attn_problem *p)
{
    const attn_shape *s = &p->shape;
    const int64_t size[4] = {s->batch, s->heads_q, s->len_q, s->len_kv};
    for (int axis = 0; axis < 4; axis++)
        if (p->bias.bias.stride[axis] == ATTN_BROADCAST && size[axis] > 1) return 1;
    return 0;
}

static int has_dbias(const attn_problem *p) { return p->gradients.bias && !bias_is_shared(p); }
static int has_shared_dbias(const attn_problem *p) { return p->gradients.bias && bias_is_shared(p); }

static const char skipped[] = "tiles without a visible key are skipped, those at an edge compare two bounds a row";

static const struct {
    const char *name;
    int (*used)(const attn_problem *);
    const char *cost;
    int64_t (*bytes)(const attn_problem *);
    int fused;
} table[] = {
    {"score=general", has_general, "queries are multiplied by w once, in memory of their size; keys as they are", prepared_bytes,
     1},
    {"score=metric", has_metric, "queries are multiplied by w and by its transpose once; the metric is never formed",
     prepared_bytes, 1},
    {"score=cosine", has_cosine, "queries and keys are normalised once, in memory of their size", prepared_bytes, 1},
    {"score=distance", has_distance, "two channels more, in queries and keys that are prepared once", prepared_bytes, 1},
    {"score=additive", has_additive, "a sum and half a division for each score and hidden unit; exponentials once for each tile",
     NULL, 1},
    {"normaliser", has_softmax_one, "one exponential a query", NULL, 1},
    {"normaliser", has_alone, "less than a softmax: no maxima, no rescaling", NULL, 1},
    {"scale", has_scale, "nothing: it is multiplied into the queries of a tile", NULL, 1},
    {"scale=heads", has_scale_heads, "nothing: it is multiplied into the queries of a tile", head_bytes, 1},
    {"temperature", has_temperature, "nothing: it is part of the scale", NULL, 1},
    {"softcap", has_softcap, "one pass over each tile: a tanh a score, about 20 operations", NULL, 1},
    {"bias", has_bias, "one addition a score; read once for each walk over the tiles", bias_bytes, 1},
    {"alibi", has_alibi, "one pass over each tile: 3 operations a score, no bias in memory", slope_bytes, 1},
    {"t5", has_t5, "one pass over each tile: an addition a score, from a table by distance", table_bytes, 1},
    {"clipped", has_clipped, "one pass over each tile: an addition a score, from a table by distance", table_bytes, 1},
    {"rel", has_relative, "a product with the rows of a table between the distances of each tile, one row beyond its ends",
     relative_bytes, 1},
    {"causal", has_causal, skipped, NULL, 1},
    {"window", has_window, skipped, NULL, 1},
    {"global", has_global, "tiles of global queries and keys; the gap to the window is skipped", NULL, 1},
    {"chunk", has_chunk, skipped, NULL, 1},
    {"lens", has_lengths, skipped, length_bytes, 1},
    {"packed", has_packed, "nothing: each sequence is walked at its own length, without padding", begin_bytes, 1},
    {"mask", has_mask, "one pass over each tile: a byte a score, read once for each walk over the tiles", mask_bytes, 1},
    {"block", has_block, "tiles that it drops are skipped, tiles that it cuts have one pass, the others nothing", block_bytes, 1},
    {"sink", has_sink, "one exponential a query", head_bytes, 1},
    {"empty", has_uniform, "nothing but for queries that see no key, which read all values", NULL, 1},
    {"dropout", has_dropout, "Philox4x32, 10 rounds for 4 scores, drawn again in each later pass; nothing is stored", NULL, 1},
    {"lse", has_lse, "one logarithm a query", row_bytes, 1},
    {"weights", has_weights, "scores a second time, behind each tile of queries; queries x keys numbers are written", weight_bytes,
     1},
    {"jvp", has_jvp, "three more products of width d or dv a score, in one walk; nothing of size queries x keys", NULL, 1},
    {"bwd2", has_second, "two walks, with a few numbers a query between them; nothing of size queries x keys", NULL, 1},
    {"dlse", has_dlse, "one addition a query", row_bytes, 1},
    {"dscale", has_dscale, "one product a query and channel", head_bytes, 1},
    {"dslopes", has_dslopes, "one product a score", slope_bytes, 1},
    {"dtable", has_dtable, "an addition a score", table_bytes, 1},
    {"drel", has_drel, "the same again for each gradient", relative_bytes, 1},
    {"dsink", has_dsink, "one exponential a query", head_bytes, 1},
    {"dbias", has_dbias, "one number a score is written", bias_bytes, 1},
    {"dbias", has_shared_dbias, "two more products a score, in a walk of its own that sums over the axes of size 1", bias_bytes, 0},
};

int option_costs(const attn_problem *problem, option_cost list[MOST_COSTS])
{
    _Static_assert(sizeof table / sizeof *table <= MOST_COSTS, "raise MOST_COSTS");
    int count = 0;
    for (size_t r = 0; r < sizeof table / sizeof *table; r++) {
        if (!table[r].used(problem)) continue;
        option_cost *one = &list[count++];
        *one = (option_cost){table[r].name, table[r].cost, table[r].fused, table[r].bytes ? table[r].bytes(problem) : 0};
    }
    return count;
}
