/* SPDX-License-Identifier: MIT
 *
 * options.c - what each option of a problem costs: a table, one row per option. */
#include "options.h"

#include <string.h>

#include "testing/problem/problem.h"
#include "testing/problem/tensors.h"

/* ---- which options a problem has, besides those that are tensors ---- */

typedef int has_option(const attn_problem *p, const attn_tensors *all);

#define HAS(name, condition)                                                                                                       \
    static int has_##name(const attn_problem *p, const attn_tensors *all)                                                          \
    {                                                                                                                              \
        (void)p, (void)all;                                                                                                        \
        return condition;                                                                                                          \
    }
HAS(general, p->score.kind == ATTN_SCORE_GENERAL)
HAS(metric, p->score.kind == ATTN_SCORE_METRIC)
HAS(cosine, p->score.kind == ATTN_SCORE_COSINE)
HAS(distance, p->score.kind == ATTN_SCORE_DISTANCE)
HAS(additive, p->score.kind == ATTN_SCORE_ADDITIVE)
HAS(softmax_one, p->score.normaliser == ATTN_NORMALISER_SOFTMAX_ONE)
HAS(elementwise, p->score.normaliser >= ATTN_NORMALISER_SIGMOID)
HAS(scale, p->score.scale_kind == ATTN_SCALE_VALUE)
HAS(temperature, p->score.temperature > 0 && (p->score.temperature < 1 || p->score.temperature > 1))
HAS(softcap, p->score.softcap > 0)
HAS(t5, all->bias_table.data && p->bias_table.kind == ATTN_DISTANCE_T5)
HAS(clipped, all->bias_table.data && p->bias_table.kind == ATTN_DISTANCE_CLIPPED)
HAS(causal, p->mask.causal)
HAS(window, p->mask.window)
HAS(global, p->mask.global_q > 0 || p->mask.global_kv > 0)
HAS(chunk, p->mask.chunk > 0)
HAS(dilation, p->mask.dilation > 1)
HAS(ktype, tensors_dtype(all, TENSOR(k)) != tensors_dtype(all, TENSOR(q)))
HAS(vtype, tensors_dtype(all, TENSOR(v)) != tensors_dtype(all, TENSOR(q)))
HAS(lengths, all->lengths_q.data || all->lengths_kv.data)
HAS(ragged, all->cu_seqlens_q.data && !all->cu_seqlens_kv.data)
HAS(uniform, p->mask.empty == ATTN_EMPTY_UNIFORM)
HAS(dropout, p->dropout.probability > 0)
HAS(lse, p->op == ATTN_FORWARD && all->lse.data)
HAS(jvp, p->op == ATTN_JVP)
HAS(double_backward, p->op == ATTN_DOUBLE_BACKWARD)

/* Scores that share an element of the bias are summed in a separate walk (src/core/walk/backward/bias_gradient.c). */
static int bias_is_shared(const attn_problem *p, const attn_tensors *all)
{
    int64_t shape[4], extent[4];
    tensors_shape(p, all, TENSOR(bias), shape);
    tensors_extent(p, all, TENSOR(bias), extent);
    return memcmp(shape, extent, sizeof shape) != 0;
}

HAS(dbias, all->grad_bias.data && !bias_is_shared(p, all))
HAS(shared_dbias, all->grad_bias.data &&bias_is_shared(p, all))

/* ---- the options ---- */

/* Bytes of prepared queries, and of prepared keys unless the score has a matrix; in backward of their gradients too. */
static int64_t prepared_bytes(const attn_problem *p, const attn_tensors *all)
{
    const attn_shape *s = &p->shape;
    const int64_t keys = all->score_matrix.data ? 0 : s->batch * s->heads_kv * s->len_kv,
                  width = problem_dim_k(p) + (p->score.kind == ATTN_SCORE_DISTANCE ? 2 : 0);
    return (s->batch * s->heads_q * s->len_q + keys) * width * (int64_t)attn_dtype_size(tensors_compute(all)) *
           (p->op == ATTN_BACKWARD ? 2 : 1);
}

static const char stored_otherwise[] = "rows are read as they are stored, and unpacked in registers or a few rows at a time";
static const char skipped[] = "tiles without a visible key are skipped, those at an edge compare two bounds a row";

static const struct {
    const char *name;
    has_option *used; /* NULL: the option is there if its first tensor is */
    const char *cost;
    const char *tensors[2]; /* that it reads or writes */
    int prepares, fused;
} table[] = {
    {"ktype", has_ktype, stored_otherwise, {"k_scale"}, 0, 1},
    {"vtype", has_vtype, stored_otherwise, {"v_scale"}, 0, 1},
    {"score=general", has_general, "queries are multiplied by w once, in memory of their size; keys as they are", {0}, 1, 1},
    {"score=metric", has_metric, "queries are multiplied by w and by its transpose once; the metric is never formed", {0}, 1, 1},
    {"score=cosine", has_cosine, "queries and keys are normalised once, in memory of their size", {0}, 1, 1},
    {"score=distance", has_distance, "two more channels, in queries and keys that are prepared once", {0}, 1, 1},
    {"score=additive",
     has_additive,
     "a sum and half a division for each score and hidden unit; exponentials once for each tile",
     {0},
     0,
     1},
    {"normaliser", has_softmax_one, "one exponential a query", {0}, 0, 1},
    {"normaliser", has_elementwise, "less than a softmax: no maxima, no rescaling", {0}, 0, 1},
    {"scale", has_scale, "nothing: it is multiplied into the queries of a tile", {0}, 0, 1},
    {"scale=heads", NULL, "nothing: it is multiplied into the queries of a tile", {"scale"}, 0, 1},
    {"temperature", has_temperature, "nothing: it is part of the scale", {0}, 0, 1},
    {"softcap", has_softcap, "one pass over each tile: a tanh a score, about 20 operations", {0}, 0, 1},
    {"bias", NULL, "one addition a score; read once for each walk over the tiles", {"bias"}, 0, 1},
    {"alibi", NULL, "one pass over each tile: 3 operations a score, no bias in memory", {"alibi_slopes"}, 0, 1},
    {"t5", has_t5, "one pass over each tile: an addition a score, from a table by distance", {"bias_table"}, 0, 1},
    {"clipped", has_clipped, "one pass over each tile: an addition a score, from a table by distance", {"bias_table"}, 0, 1},
    {"rel",
     NULL,
     "a product with the rows of a table between the distances of each tile, one row beyond its ends",
     {"relative_keys", "relative_values"},
     0,
     1},
    {"causal", has_causal, skipped, {0}, 0, 1},
    {"window", has_window, skipped, {0}, 0, 1},
    {"global", has_global, "tiles of global queries and keys; the gap to the window is skipped", {0}, 0, 1},
    {"chunk", has_chunk, skipped, {0}, 0, 1},
    {"dilation",
     has_dilation,
     "tiles without a key at a multiple of it are skipped: none, if it is below the size of a tile",
     {0},
     0,
     1},
    {"ranges", NULL, "two bounds a query; tiles without a visible key are skipped", {"ranges"}, 0, 1},
    {"blocks",
     NULL,
     "a list of the blocks that a query sees; tiles that have none are skipped, tiles that it cuts take one pass",
     {"block_starts", "block_index"},
     0,
     1},
    {"lens", has_lengths, skipped, {"lengths_q", "lengths_kv"}, 0, 1},
    {"packed",
     NULL,
     "nothing: each sequence is walked at its own length, without padding",
     {"cu_seqlens_kv", "cu_seqlens_q"},
     0,
     1},
    {"ragged",
     has_ragged,
     "nothing: each sequence is walked at its own length, few queries as rows and many as tiles",
     {"cu_seqlens_q"},
     0,
     1},
    {"page", NULL, "rows of a page are read where they are; pages of few tokens cost an address a row", {"page_table"}, 0, 1},
    {"tree",
     NULL,
     "keys before the drafts as ever; of those of the drafts, a word of bits a query is looked at for each tile",
     {"tree"},
     0,
     1},
    {"mask", NULL, "one pass over each tile: a byte a score, read once for each walk over the tiles", {"mask"}, 0, 1},
    {"block", NULL, "tiles that it drops are skipped, tiles that it cuts take one pass, the others nothing", {"block_mask"}, 0, 1},
    {"sink", NULL, "one exponential a query", {"sink"}, 0, 1},
    {"empty", has_uniform, "nothing but for queries that see no key, which read all values", {0}, 0, 1},
    {"dropout", has_dropout, "Philox4x32, 10 rounds for 4 scores, drawn again in each later pass; nothing is stored", {0}, 0, 1},
    {"lse", has_lse, "one logarithm a query", {"lse"}, 0, 1},
    {"weights", NULL, "scores a second time, after each tile of queries; queries x keys numbers are written", {"weights"}, 0, 1},
    {"jvp", has_jvp, "three more products of width d or dv a score, in one walk; nothing of size queries x keys", {0}, 0, 1},
    {"bwd2", has_double_backward, "two walks, with a few numbers a query between them; nothing of size queries x keys", {0}, 0, 1},
    {"dlse", NULL, "one addition a query", {"grad_lse"}, 0, 1},
    {"dscale", NULL, "one product a query and channel", {"grad_scale"}, 0, 1},
    {"dslopes", NULL, "one product a score", {"grad_alibi_slopes"}, 0, 1},
    {"dtable", NULL, "an addition a score", {"grad_bias_table"}, 0, 1},
    {"drel", NULL, "the same again for each gradient", {"grad_relative_keys", "grad_relative_values"}, 0, 1},
    {"dsink", NULL, "one exponential a query", {"grad_sink"}, 0, 1},
    {"dbias", has_dbias, "one number a score is written", {"grad_bias"}, 0, 1},
    {"dbias",
     has_shared_dbias,
     "two more products a score, in a walk of its own that sums over the axes of size 1",
     {"grad_bias"},
     0,
     0},
};

/* The bytes of a tensor; of a packed one, as if all sequences had the greatest length. */
static int64_t bytes_of(const char *name, const attn_problem *p, const attn_tensors *all, const attn_plan *plan)
{
    attn_tensor_plan tensor = {.struct_size = sizeof tensor};
    const int t = tensors_find(name);
    if (attn_plan_tensor(plan, t, &tensor, NULL) != ATTN_OK) return 0;
    return tensor.bytes * (tensors_are_packed(all, t) ? p->shape.batch : 1);
}

int option_costs(const attn_problem *problem, const attn_tensors *tensors, const attn_plan *plan, option_cost list[MAX_COSTS])
{
    _Static_assert(sizeof table / sizeof *table <= MAX_COSTS, "raise MAX_COSTS");
    int count = 0;
    for (size_t r = 0; r < sizeof table / sizeof *table; r++) {
        const char *const *names = table[r].tensors;
        if (!(table[r].used ? table[r].used(problem, tensors) : tensors_has(tensors, tensors_find(names[0])))) continue;
        option_cost *one = &list[count++];
        *one = (option_cost){table[r].name, table[r].cost, table[r].fused, 0};
        if (table[r].prepares) one->bytes = prepared_bytes(problem, tensors);
        for (int k = 0; k < 2 && names[k]; k++) one->bytes += bytes_of(names[k], problem, tensors, plan);
    }
    return count;
}
