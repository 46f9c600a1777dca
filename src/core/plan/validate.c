/* SPDX-License-Identifier: MIT
 *
 * validate.c - every rule that a problem and its options must satisfy, as lists; rules for single tensors are in resolve.c, rules
 * for what an execution reads in validate_args.c.  Each rule has a row with its exact message in tests/unit/test_validate*.c.
 */
#include <float.h>
#include <inttypes.h>
#include <math.h>

#include "../base/checked.h"
#include "../base/distance.h"
#include "../base/error.h"
#include "../base/inference.h"
#include "../base/names.h"
#include "../gradient/bias_gradient.h"
#include "../prepare/prepare.h"
#include "../threads/pool.h"
#include "../walk/walks.h"
#include "plan.h"
#include "tensors.h"

static attn_status check_enums(const attn_resolved *p, attn_error *error)
{
    CHECK(p->op >= ATTN_FORWARD && p->op <= ATTN_DOUBLE_BACKWARD, ATTN_ERR_ARGUMENT,
          "op is %d; known: 0 (forward), 1 (backward), 2 (jvp), 3 (double backward)", (int)p->op);
    CHECK(ATTN_TRAINS || p->op == ATTN_FORWARD, ATTN_ERR_UNSUPPORTED, "op is %s" ATTN_LEFT_OUT,
          attn_attention_family.operations[p->op]);
    CHECK(p->score.kind >= ATTN_SCORE_DOT && p->score.kind <= ATTN_SCORE_ADDITIVE, ATTN_ERR_ARGUMENT,
          "score.kind is %d; known: 0 (dot), 1 (general), 2 (metric), 3 (cosine), 4 (distance), 5 (additive)", (int)p->score.kind);
    CHECK(p->score.scale_kind >= ATTN_SCALE_DEFAULT && p->score.scale_kind <= ATTN_SCALE_VALUE, ATTN_ERR_ARGUMENT,
          "score.scale_kind is %d; known: 0 (default), 1 (value)", (int)p->score.scale_kind);
    CHECK(p->score.normaliser >= ATTN_NORMALISER_SOFTMAX && p->score.normaliser <= ATTN_NORMALISER_RELU, ATTN_ERR_ARGUMENT,
          "score.normaliser is %d; known: 0 (softmax), 1 (softmax one), 2 (sigmoid), 3 (relu)", (int)p->score.normaliser);
    CHECK(p->mask.empty == ATTN_EMPTY_ZERO || p->mask.empty == ATTN_EMPTY_UNIFORM, ATTN_ERR_ARGUMENT,
          "mask.empty is %d; known: 0 (zero), 1 (uniform)", (int)p->mask.empty);
    CHECK(p->mask.align >= ATTN_ALIGN_TOP_LEFT && p->mask.align <= ATTN_ALIGN_BOTTOM_RIGHT, ATTN_ERR_ARGUMENT,
          "mask.align is %d; known: 0 (top-left), 1 (bottom-right)", (int)p->mask.align);
    return ATTN_OK;
}

#define LENGTH(array) (int)(sizeof(array) / sizeof *(array))

/* 1 if one of these words is not 0. */
static int any_set(const int64_t *words, int count)
{
    int64_t any = 0;
    for (int k = 0; k < count; k++) any |= words[k];
    return any != 0;
}

static attn_status reject_flags(const attn_resolved *p, attn_error *error)
{
    const struct {
        const char *name;
        int value;
    } flags[] = {
        {"mask.causal", p->mask.causal},
        {"mask.window", p->mask.window},
        {"outputs.after_dropout", p->outputs.after_dropout},
        {"score.additive_bias", p->score.additive_bias},
        {"bias_table.causal", p->bias_table.causal},
        {"mask.block_heads", (int)attn_clamp(p->mask.block_heads, -1, 2)},
    };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        CHECK(flags[i].value == 0 || flags[i].value == 1, ATTN_ERR_ARGUMENT, "%s is %d; it must be 0 or 1", flags[i].name,
              flags[i].value);

    const struct {
        const char *name;
        const int64_t *words;
        int count;
    } reserved[] = {
        {"score", p->score.reserved, LENGTH(p->score.reserved)},
        {"mask", p->mask.reserved, LENGTH(p->mask.reserved)},
        {"dropout", p->dropout.reserved, LENGTH(p->dropout.reserved)},
        {"outputs", p->outputs.reserved, LENGTH(p->outputs.reserved)},
        {"paging", p->paging.reserved, LENGTH(p->paging.reserved)},
        {"bias_table", p->bias_table.reserved, LENGTH(p->bias_table.reserved)},
        {"relative", p->relative.reserved, LENGTH(p->relative.reserved)},
    };
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        for (int k = 0; k < reserved[i].count; k++)
            CHECK(reserved[i].words[k] == 0, ATTN_ERR_ARGUMENT, "%s.reserved[%d] is %" PRId64 "; it must be 0", reserved[i].name, k,
                  reserved[i].words[k]);
    return ATTN_OK;
}

/* Looks for the wrong one only if there is one, since building the lists takes longer. */
static attn_status check_flags(const attn_resolved *p, attn_error *error)
{
#define SET(group) any_set(p->group.reserved, LENGTH(p->group.reserved))
    const unsigned flags = (unsigned)p->mask.causal | (unsigned)p->mask.window | (unsigned)p->outputs.after_dropout |
                           (unsigned)p->score.additive_bias | (unsigned)p->bias_table.causal |
                           (unsigned)(p->mask.block_heads >> 1 != 0) << 1;
    const int reserved = SET(score) | SET(mask) | SET(dropout) | SET(outputs) | SET(paging) | SET(bias_table) | SET(relative);
#undef SET
    return flags > 1 || reserved ? reject_flags(p, error) : ATTN_OK;
}

attn_status attn_shape_validate(const attn_shape *s, attn_error *error)
{
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {
        {"batch", s->batch},   {"heads_q", s->heads_q}, {"heads_kv", s->heads_kv}, {"len_q", s->len_q},
        {"len_kv", s->len_kv}, {"dim_qk", s->dim_qk},   {"dim_v", s->dim_v},
    };
    int64_t any = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        CHECK(sizes[i].value >= 0, ATTN_ERR_SHAPE, "%s (%" PRId64 ") is negative", sizes[i].name, sizes[i].value);
        any |= sizes[i].value;
    }
    for (size_t i = 0; any > ATTN_MAX_SIZE && i < sizeof sizes / sizeof *sizes; i++)
        CHECK(sizes[i].value <= ATTN_MAX_SIZE, ATTN_ERR_SHAPE, "%s (%" PRId64 ") is more than 2^48, the most of any size",
              sizes[i].name, sizes[i].value);
    CHECK(any, ATTN_ERR_SHAPE, "shape is all 0: it was not set (an empty batch has batch 0 and the sizes of its heads)");
    CHECK(s->heads_kv > 0 || s->heads_q == 0, ATTN_ERR_SHAPE,
          "heads_kv is 0 and heads_q is %" PRId64 ": query heads need a key head", s->heads_q);
    CHECK(s->heads_kv == 0 || s->heads_q % s->heads_kv == 0, ATTN_ERR_SHAPE,
          "heads_q (%" PRId64 ") is not a multiple of heads_kv (%" PRId64 ")", s->heads_q, s->heads_kv);
    return ATTN_OK;
}

static attn_status check_score(const attn_resolved *p, attn_error *error)
{
    const attn_score *score = &p->score;
    const double most = attn_resolved_compute(p) == ATTN_F64 ? DBL_MAX : FLT_MAX, least = 1 / most;
    CHECK(score->scale_kind != ATTN_SCALE_VALUE || fabs(score->scale) <= most, ATTN_ERR_ARGUMENT,
          "score.scale is %g; it must be finite in the compute type", score->scale);
    CHECK(score->scale_kind == ATTN_SCALE_VALUE || score->scale == 0, ATTN_ERR_ARGUMENT,
          "score.scale is %g but score.scale_kind is not ATTN_SCALE_VALUE", score->scale);
    CHECK(
        score->temperature == 0 || (score->temperature >= least && score->temperature <= most), ATTN_ERR_ARGUMENT,
        "score.temperature is %g; it must be above 0, and it and its reciprocal finite in the compute type (0 for the default, 1)",
        score->temperature);
    CHECK(score->scale_kind != ATTN_SCALE_VALUE || score->temperature == 0 || fabs(score->scale) / score->temperature <= most,
          ATTN_ERR_ARGUMENT, "score.scale / score.temperature is %g / %g; it must be finite in the compute type", score->scale,
          score->temperature);
    CHECK(score->softcap == 0 || (score->softcap >= least && score->softcap <= most), ATTN_ERR_ARGUMENT,
          "score.softcap is %g; it must be above 0, and it and its reciprocal finite in the compute type (0 for none)",
          score->softcap);
    CHECK_TENSOR(score->scale_kind == ATTN_SCALE_DEFAULT || !p->has.scale, ATTN_SLOT_scale, ATTN_ERR_ARGUMENT,
                 "scale is set and score.scale_kind is ATTN_SCALE_VALUE; set only one of them");
    return ATTN_OK;
}

/* The tensor that puts keys in pages. */
static int pages_slot(const attn_resolved *p) { return p->has.page_index ? ATTN_SLOT_page_index : ATTN_SLOT_page_table; }
static const char *pages_name(const attn_resolved *p) { return attn_attention_family.rows[pages_slot(p)].name; }

static const char *kind_text(attn_score_kind kind)
{
    static const char *const names[] = {"dot", "general", "metric", "cosine", "distance", "additive"};
    return names[kind];
}

/* Fields of attn_score that only some kinds have. */
static attn_status check_kind(const attn_resolved *p, attn_error *error)
{
    const attn_score *s = &p->score;
    const char *kind = kind_text(s->kind);
    CHECK(s->kind == ATTN_SCORE_DOT || p->op == ATTN_FORWARD || p->op == ATTN_BACKWARD, ATTN_ERR_UNSUPPORTED,
          "score.kind is %s and op is neither ATTN_FORWARD nor ATTN_BACKWARD; the other operations are for dot products only",
          kind);
    CHECK(s->dim_k >= 0, ATTN_ERR_SHAPE, "score.dim_k (%" PRId64 ") is negative", s->dim_k);
    CHECK(s->dim_k == 0 || s->kind == ATTN_SCORE_GENERAL, ATTN_ERR_ARGUMENT,
          "score.dim_k is %" PRId64 " and score.kind is %s; only general allows keys of another width than queries", s->dim_k,
          kind);
    CHECK(s->dim_metric >= 0, ATTN_ERR_SHAPE, "score.dim_metric (%" PRId64 ") is negative", s->dim_metric);
    CHECK(s->dim_metric == 0 || s->kind == ATTN_SCORE_METRIC, ATTN_ERR_ARGUMENT,
          "score.dim_metric is %" PRId64 " and score.kind is %s; only metric has it", s->dim_metric, kind);
    CHECK(!s->additive_bias || s->kind == ATTN_SCORE_ADDITIVE, ATTN_ERR_ARGUMENT,
          "score.additive_bias is set and score.kind is %s; only additive has biases", kind);
    CHECK_TENSOR(!p->has.score_matrix || attn_problem_has_matrix(p), ATTN_SLOT_score_matrix, ATTN_ERR_ARGUMENT,
                 "score_matrix is set and score.kind is %s, which has none", kind);
    CHECK_TENSOR(p->has.score_matrix || !attn_problem_has_matrix(p), ATTN_SLOT_score_matrix, ATTN_ERR_ARGUMENT,
                 "score_matrix is missing; score.kind is %s", kind);
    CHECK_TENSOR(!attn_is_paged(p) || !attn_prepares_keys(p), pages_slot(p), ATTN_ERR_UNSUPPORTED,
                 "%s is set and score.kind is %s; keys in pages can be scored by dot, general, metric and additive", pages_name(p),
                 kind);
    return ATTN_OK;
}

static const char *normaliser_text(attn_normaliser normaliser)
{
    static const char *const names[] = {"softmax", "softmax one", "sigmoid", "relu"};
    return names[normaliser];
}

/* What only a softmax has. */
static attn_status check_normaliser(const attn_resolved *p, attn_error *error)
{
    const attn_normaliser kind = p->score.normaliser;
    static const int of_softmax[] = {ATTN_SLOT_entropy, ATTN_SLOT_effective_keys, ATTN_SLOT_topk_index, ATTN_SLOT_topk_weight,
                                     ATTN_SLOT_grad_lse};
    const unsigned char *has = (const unsigned char *)&p->has;
    CHECK(isfinite(p->score.shift), ATTN_ERR_ARGUMENT, "score.shift is %g; it must be finite", p->score.shift);
    CHECK(kind == ATTN_NORMALISER_SIGMOID || p->score.shift == 0, ATTN_ERR_ARGUMENT,
          "score.shift is %g and score.normaliser is %s; only sigmoid has it", p->score.shift, normaliser_text(kind));
    CHECK_TENSOR(kind == ATTN_NORMALISER_SOFTMAX || !p->has.sink, ATTN_SLOT_sink, ATTN_ERR_ARGUMENT,
                 "sink is set and score.normaliser is %s; a sink joins the denominator of softmax", normaliser_text(kind));
    CHECK(
        kind != ATTN_NORMALISER_SOFTMAX_ONE || p->mask.empty == ATTN_EMPTY_ZERO, ATTN_ERR_ARGUMENT,
        "mask.empty is uniform and score.normaliser is softmax one; with a sink a fully masked row has all its weight on the sink");
    if (!attn_is_elementwise(p)) return ATTN_OK;
    CHECK(p->op == ATTN_FORWARD || p->op == ATTN_BACKWARD, ATTN_ERR_UNSUPPORTED,
          "score.normaliser is %s and op is neither ATTN_FORWARD nor ATTN_BACKWARD; the other operations are for softmax only",
          normaliser_text(kind));
    CHECK(p->mask.empty == ATTN_EMPTY_ZERO, ATTN_ERR_ARGUMENT,
          "mask.empty is uniform and score.normaliser is %s; it is for softmax only", normaliser_text(kind));
    for (size_t i = 0; i < sizeof of_softmax / sizeof *of_softmax; i++)
        CHECK_TENSOR(!has[of_softmax[i]], of_softmax[i], ATTN_ERR_ARGUMENT,
                     "%s is set and score.normaliser is %s; it is for softmax only", attn_attention_family.rows[of_softmax[i]].name,
                     normaliser_text(kind));
    return ATTN_OK;
}

static attn_status check_mask(const attn_resolved *p, attn_error *error)
{
    const attn_mask *m = &p->mask;
    if (m->window) {
        CHECK(m->window_left >= -1, ATTN_ERR_ARGUMENT, "mask.window_left is %" PRId64 "; it must be at least 0, or -1 for no bound",
              m->window_left);
        CHECK(m->window_right >= -1, ATTN_ERR_ARGUMENT,
              "mask.window_right is %" PRId64 "; it must be at least 0, or -1 for no bound", m->window_right);
    } else {
        CHECK(m->window_left <= 0 && m->window_right <= 0, ATTN_ERR_ARGUMENT,
              "mask.window_left is %" PRId64 " and window_right %" PRId64 " but mask.window is 0; set it to 1", m->window_left,
              m->window_right);
    }
    CHECK(m->chunk >= 0, ATTN_ERR_ARGUMENT, "mask.chunk is %" PRId64 "; it must be at least 1, or 0 for none", m->chunk);
    CHECK(m->dilation >= 0, ATTN_ERR_ARGUMENT, "mask.dilation is %" PRId64 "; it must be at least 1, or 0 for every key",
          m->dilation);
    CHECK(m->least_distance >= 0, ATTN_ERR_ARGUMENT, "mask.least_distance is %" PRId64 "; it must be at least 1, or 0 for none",
          m->least_distance);
    CHECK(m->global_q >= 0 && m->global_kv >= 0, ATTN_ERR_ARGUMENT,
          "mask.global_q is %" PRId64 " and mask.global_kv %" PRId64 "; both must be at least 0", m->global_q, m->global_kv);
    const int blocks = p->has.block_mask || p->has.block_starts;
    CHECK(m->block_entries >= 0, ATTN_ERR_ARGUMENT, "mask.block_entries is %" PRId64 "; it must be at least 0", m->block_entries);
    CHECK_TENSOR(m->block_entries == 0 || p->has.block_index, ATTN_SLOT_block_index, ATTN_ERR_ARGUMENT,
                 "mask.block_entries is %" PRId64 " and block_index is not set", m->block_entries);
    CHECK_TENSOR(!blocks || (m->block_q > 0 && m->block_kv > 0), p->has.block_mask ? ATTN_SLOT_block_mask : ATTN_SLOT_block_starts,
                 ATTN_ERR_ARGUMENT, "%s needs mask.block_q and mask.block_kv of at least 1; they are %" PRId64 " and %" PRId64,
                 p->has.block_mask ? "block_mask" : "block_starts", m->block_q, m->block_kv);
    CHECK_TENSORS(blocks || (m->block_q == 0 && m->block_kv == 0), ATTN_SLOT_block_mask, ATTN_SLOT_block_starts, ATTN_ERR_ARGUMENT,
                  "mask.block_q is %" PRId64 " and mask.block_kv %" PRId64 " but neither block_mask nor block_starts is set",
                  m->block_q, m->block_kv);
    TRY(attn_choices_validate(p, error));
    CHECK_TENSOR(m->empty == ATTN_EMPTY_ZERO || !p->has.sink, ATTN_SLOT_sink, ATTN_ERR_ARGUMENT,
                 "mask.empty is uniform and sink is set; with a sink a fully masked row has all its weight on the sink");
    CHECK_TENSOR(m->align == ATTN_ALIGN_TOP_LEFT || !p->has.offset_q, ATTN_SLOT_offset_q, ATTN_ERR_ARGUMENT,
                 "offset_q is set and mask.align is bottom-right; set only one of them");
    CHECK_TENSOR(m->align == ATTN_ALIGN_TOP_LEFT || !p->has.origin, ATTN_SLOT_offset_q, ATTN_ERR_ARGUMENT,
                 "mask.align is bottom-right and the call has an origin, whose lengths are those of a part; give offset_q");
    return ATTN_OK;
}

static attn_status check_paging(const attn_resolved *p, attn_error *error)
{
    const attn_paging *g = &p->paging;
    CHECK_TENSOR(p->has.page_index || g->page_entries == 0, ATTN_SLOT_page_index, ATTN_ERR_ARGUMENT,
                 "paging.page_entries is %" PRId64 " and page_index is not set", g->page_entries);
    if (!attn_is_paged(p)) {
        CHECK_TENSORS(g->page_size == 0 && g->pages == 0, ATTN_SLOT_page_table, ATTN_SLOT_page_index, ATTN_ERR_ARGUMENT,
                      "paging.page_size is %" PRId64 " and paging.pages %" PRId64 " but neither page_table nor page_index is set",
                      g->page_size, g->pages);
        return ATTN_OK;
    }
    const int slot = pages_slot(p), lengths = p->has.lengths_kv ? ATTN_SLOT_lengths_kv : ATTN_SLOT_lengths_last_page;
    const char *name = pages_name(p);
    CHECK_TENSOR(p->op == ATTN_FORWARD, slot, ATTN_ERR_UNSUPPORTED,
                 "%s is set and op is not ATTN_FORWARD; paged keys have no gradients", name);
    CHECK_TENSORS(p->mask.empty == ATTN_EMPTY_ZERO || !attn_has_lengths_kv(p), slot, lengths, ATTN_ERR_ARGUMENT,
                  "mask.empty is uniform and %s is set; keys after %s have no page to average", name,
                  attn_attention_family.rows[lengths].name);
    CHECK_TENSOR(g->page_size > 0, slot, ATTN_ERR_ARGUMENT, "%s needs paging.page_size of at least 1; it is %" PRId64, name,
                 g->page_size);
    CHECK_TENSOR(g->pages >= 0, slot, ATTN_ERR_ARGUMENT, "%s needs paging.pages of at least 0; it is %" PRId64, name, g->pages);
    CHECK_TENSOR(g->page_entries >= 0, ATTN_SLOT_page_index, ATTN_ERR_ARGUMENT,
                 "page_index needs paging.page_entries of at least 0; it is %" PRId64, g->page_entries);
    return ATTN_OK;
}

static attn_status check_bias_table(attn_resolved *p, attn_error *error)
{
    attn_bias_table *t = &p->bias_table;
    attn_distance_bias rule;
    if (!p->has.bias_table) {
        CHECK_TENSOR(!t->kind && !t->buckets && !t->max_distance && !t->causal, ATTN_SLOT_bias_table, ATTN_ERR_ARGUMENT,
                     "bias_table has a rule but the tensor bias_table is not set");
        return ATTN_OK;
    }
    CHECK(t->max_distance <= 1 << 24, ATTN_ERR_ARGUMENT, "bias_table.max_distance is %" PRId64 "; it must be at most 16777216",
          t->max_distance);
    const attn_distance_bias given = {
        .struct_size = sizeof given, .kind = t->kind, .buckets = t->buckets, .max_distance = t->max_distance, .causal = t->causal};
    TRY(attn_distance_resolve(&given, &rule, error));
    t->buckets = rule.buckets;
    t->max_distance = rule.max_distance;
    return ATTN_OK;
}

static attn_status check_relative(const attn_resolved *p, attn_error *error)
{
    const attn_relative *r = &p->relative;
    const char *first = p->has.relative_keys ? "relative_keys" : "relative_values";
    const int slot = p->has.relative_keys ? ATTN_SLOT_relative_keys : ATTN_SLOT_relative_values;
    const int of_keys = p->has.relative_u ? ATTN_SLOT_relative_u : ATTN_SLOT_relative_v;
    CHECK_TENSORS(p->has.relative_keys || (!p->has.relative_u && !p->has.relative_v), of_keys, ATTN_SLOT_relative_keys,
                  ATTN_ERR_ARGUMENT, "%s is set and relative_keys is not", p->has.relative_u ? "relative_u" : "relative_v");
    if (!p->has.relative_keys && !p->has.relative_values) {
        CHECK_TENSORS(r->rows == 0 && r->first == 0, ATTN_SLOT_relative_keys, ATTN_SLOT_relative_values, ATTN_ERR_ARGUMENT,
                      "relative.rows is %" PRId64 " and relative.first %" PRId64
                      " but neither relative_keys nor relative_values is set",
                      r->rows, r->first);
        return ATTN_OK;
    }
    CHECK_TENSOR(p->op == ATTN_FORWARD || p->op == ATTN_BACKWARD, slot, ATTN_ERR_UNSUPPORTED,
                 "%s is set and op is neither ATTN_FORWARD nor ATTN_BACKWARD", first);
    CHECK_TENSOR(p->score.kind == ATTN_SCORE_DOT, slot, ATTN_ERR_UNSUPPORTED,
                 "%s is set and score.kind is %s; relative terms are for dot products only", first, kind_text(p->score.kind));
    CHECK(r->rows >= 1 && r->rows <= (int64_t)1 << 40, ATTN_ERR_SHAPE,
          "relative.rows is %" PRId64 "; it must be between 1 and 2^40", r->rows);
    CHECK(r->first >= -((int64_t)1 << 40) && r->first <= (int64_t)1 << 40, ATTN_ERR_ARGUMENT,
          "relative.first is %" PRId64 "; it must be between -2^40 and 2^40", r->first);
    return ATTN_OK;
}

/* Double backward computes the tangents of o and lse, or is given them. */
static attn_status check_tangents(const attn_resolved *p, attn_error *error)
{
    const int given = p->has.tan_o ? ATTN_SLOT_tan_o : ATTN_SLOT_tan_lse,
              missing = p->has.tan_o ? ATTN_SLOT_tan_lse : ATTN_SLOT_tan_o,
              computed = p->has.second_grad_o ? ATTN_SLOT_second_grad_o : ATTN_SLOT_second_grad_lse;
    const attn_tensor_row *rows = attn_attention_family.rows;
    CHECK_TENSORS(p->has.tan_o == p->has.tan_lse, given, missing, ATTN_ERR_ARGUMENT, "%s is set and %s is not; set both or neither",
                  rows[given].name, rows[missing].name);
    CHECK_TENSORS(p->has.tan_o || p->has.second_grad_o, ATTN_SLOT_second_grad_o, ATTN_SLOT_tan_o, ATTN_ERR_ARGUMENT,
                  "second_grad_o is missing; ATTN_DOUBLE_BACKWARD needs it, or tan_o");
    CHECK_TENSORS(!p->has.tan_o || (!p->has.second_grad_o && !p->has.second_grad_lse), computed, given, ATTN_ERR_ARGUMENT,
                  "%s and tan_o are both set, and are the same; set only one of them", rows[computed].name);
    return ATTN_OK;
}

/* Tensors that must come together, and tensors that exclude each other. */
static attn_status check_company(const attn_resolved *p, attn_error *error)
{
    static const struct {
        int one, other;
    } company[] = {{ATTN_SLOT_cu_seqlens_kv, ATTN_SLOT_cu_seqlens_q}, {ATTN_SLOT_block_starts, ATTN_SLOT_block_index},
                   {ATTN_SLOT_block_index, ATTN_SLOT_block_starts},   {ATTN_SLOT_page_starts, ATTN_SLOT_page_index},
                   {ATTN_SLOT_page_index, ATTN_SLOT_page_starts},     {ATTN_SLOT_lengths_last_page, ATTN_SLOT_page_starts}},
      exclusive[] = {
          {ATTN_SLOT_cu_seqlens_q, ATTN_SLOT_lengths_q},   {ATTN_SLOT_cu_seqlens_kv, ATTN_SLOT_lengths_kv},
          {ATTN_SLOT_cu_seqlens_kv, ATTN_SLOT_page_table}, {ATTN_SLOT_cu_seqlens_kv, ATTN_SLOT_page_index},
          {ATTN_SLOT_page_table, ATTN_SLOT_page_index},    {ATTN_SLOT_lengths_kv, ATTN_SLOT_lengths_last_page},
          {ATTN_SLOT_block_mask, ATTN_SLOT_block_starts},
      };
    const unsigned char *has = (const unsigned char *)&p->has;
    const attn_tensor_row *rows = attn_attention_family.rows;
    for (size_t i = 0; i < sizeof company / sizeof *company; i++)
        CHECK_TENSORS(!has[company[i].one] || has[company[i].other], company[i].one, company[i].other, ATTN_ERR_ARGUMENT,
                      "%s is set and %s is not; set both", rows[company[i].one].name, rows[company[i].other].name);
    CHECK_TENSORS(p->op == ATTN_FORWARD || p->has.cu_seqlens_q == p->has.cu_seqlens_kv, ATTN_SLOT_cu_seqlens_q,
                  ATTN_SLOT_cu_seqlens_kv, ATTN_ERR_UNSUPPORTED,
                  "cu_seqlens_q is set and cu_seqlens_kv is not; only ATTN_FORWARD takes packed queries over keys that are not");
    for (size_t i = 0; i < sizeof exclusive / sizeof *exclusive; i++)
        CHECK_TENSORS(!has[exclusive[i].one] || !has[exclusive[i].other], exclusive[i].one, exclusive[i].other, ATTN_ERR_ARGUMENT,
                      "%s and %s are both set; set only one of them", rows[exclusive[i].one].name, rows[exclusive[i].other].name);
    CHECK(!p->has.rows || p->op == ATTN_FORWARD, ATTN_ERR_ARGUMENT, "visit_rows is set; only ATTN_FORWARD visits rows");
    return p->op == ATTN_DOUBLE_BACKWARD ? check_tangents(p, error) : ATTN_OK;
}

static attn_status check_outputs(const attn_resolved *p, attn_dtype index, attn_error *error)
{
    const attn_outputs *o = &p->outputs;
    const int top = p->has.topk_index || p->has.topk_weight;
    CHECK(p->dropout.probability >= 0 && p->dropout.probability <= 1, ATTN_ERR_ARGUMENT,
          "dropout.probability is %g; it must be between 0 and 1", p->dropout.probability);
    CHECK(o->scores_stage >= ATTN_STAGE_RAW && o->scores_stage <= ATTN_STAGE_WEIGHTS, ATTN_ERR_ARGUMENT,
          "outputs.scores_stage is %d; known: 0 (raw), 1 (capped), 2 (biased), 3 (weights)", (int)o->scores_stage);
    CHECK(o->rows_stage >= ATTN_STAGE_RAW && o->rows_stage <= ATTN_STAGE_WEIGHTS, ATTN_ERR_ARGUMENT,
          "outputs.rows_stage is %d; known: 0 (raw), 1 (capped), 2 (biased), 3 (weights)", (int)o->rows_stage);
    CHECK(o->column_heads >= ATTN_COLUMNS_EACH && o->column_heads <= ATTN_COLUMNS_ALL, ATTN_ERR_ARGUMENT,
          "outputs.column_heads is %d; known: 0 (each), 1 (group), 2 (all)", (int)o->column_heads);
    CHECK(o->column_queries >= 0, ATTN_ERR_ARGUMENT, "outputs.column_queries is %" PRId64 "; it must be at least 1, or 0 for all",
          o->column_queries);
    CHECK(o->topk >= 0, ATTN_ERR_ARGUMENT, "outputs.topk is %" PRId64 "; it must be at least 1, or 0 for none", o->topk);
    CHECK_TENSORS(o->topk == 0 || top, ATTN_SLOT_topk_index, ATTN_SLOT_topk_weight, ATTN_ERR_ARGUMENT,
                  "outputs.topk is %" PRId64 " but neither topk_index nor topk_weight is set", o->topk);
    CHECK_TENSOR(o->topk > 0 || !top, p->has.topk_index ? ATTN_SLOT_topk_index : ATTN_SLOT_topk_weight, ATTN_ERR_ARGUMENT,
                 "%s is set and outputs.topk is 0; set outputs.topk to the number of keys",
                 p->has.topk_index ? "topk_index" : "topk_weight");
    CHECK_TENSOR(p->shape.len_kv <= INT32_MAX || index != ATTN_I32, ATTN_SLOT_topk_index, ATTN_ERR_UNSUPPORTED,
                 "topk_index.dtype is i32 and len_kv (%" PRId64 ") does not fit in it", p->shape.len_kv);
    return ATTN_OK;
}

/* Sizes outside the shape; their own rules have rejected negative ones. */
static attn_status check_sizes(const attn_resolved *p, attn_error *error)
{
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {
        {"score.dim_k", p->score.dim_k},
        {"score.dim_metric", p->score.dim_metric},
        {"paging.page_size", p->paging.page_size},
        {"paging.pages", p->paging.pages},
        {"mask.block_entries", p->mask.block_entries},
        {"mask.tree_keys", p->mask.tree_keys},
        {"outputs.topk", p->outputs.topk},
        {"paging.page_entries", p->paging.page_entries},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        CHECK(sizes[i].value <= ATTN_MAX_SIZE, ATTN_ERR_SHAPE, "%s (%" PRId64 ") is more than 2^48, the most of any size",
              sizes[i].name, sizes[i].value);
    return ATTN_OK;
}

attn_dtype attn_resolved_compute(const attn_resolved *problem) { return problem->at.q.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32; }

attn_status attn_problem_resolve(attn_resolved *p, const attn_tensors *tensors, attn_planned_tensor *list, int *count,
                                 attn_error *error)
{
    const attn_dtype types[] = {attn_slot_of(tensors, ATTN_SLOT_k).dtype, attn_slot_of(tensors, ATTN_SLOT_v).dtype};
    const attn_dtype index = attn_slot_of(tensors, ATTN_SLOT_topk_index).dtype;
    p->at.q.dtype = attn_slot_of(tensors, ATTN_SLOT_q).dtype;
    TRY(check_enums(p, error));
    TRY(check_flags(p, error));
    TRY(attn_shape_validate(&p->shape, error));
    TRY(check_score(p, error));
    TRY(check_kind(p, error));
    TRY(check_normaliser(p, error));
    TRY(check_mask(p, error));
    TRY(check_paging(p, error));
    TRY(attn_formats_validate(p, types, error));
    TRY(check_bias_table(p, error));
    TRY(check_relative(p, error));
    TRY(check_company(p, error));
    TRY(check_outputs(p, index, error));
    TRY(check_sizes(p, error));
    const attn_tensor_facts facts = {p->op, attn_is_packed(p), attn_keys_are_packed(p), p->at.q.dtype, attn_attention_shape, p};
    TRY(attn_tensors_resolve(&attn_attention_family, &facts, tensors, (const unsigned char *)&p->has, list, count, error));
    for (int i = 0; i < *count; i++) *attn_layout_at(&p->at, list[i].number) = list[i].at;
    TRY(attn_latents_validate(p, attn_slot_of(tensors, ATTN_SLOT_k).data, attn_slot_of(tensors, ATTN_SLOT_v).data, error));
    CHECK_TENSORS(!p->has.relative_keys || !p->has.relative_values || p->shape.heads_q <= 1 || p->shape.dim_qk == 0 ||
                      p->shape.dim_v == 0 || !p->at.relative_keys.stride[1] == !p->at.relative_values.stride[1],
                  ATTN_SLOT_relative_keys, ATTN_SLOT_relative_values, ATTN_ERR_UNSUPPORTED,
                  "one of relative_keys and relative_values is shared by the heads and the other is not");
    /* With these, sums over the keys of a tile depend on which rows share the tile: rows share its runs of keys, or its bands. */
    const attn_feature_set of_tiles = ATTN_USES(RELATIVE) | ATTN_USES(GLOBAL) | ATTN_USES(BLOCKS) | ATTN_USES(HEAD_LISTS);
    const char *variant = p->invariant && p->op == ATTN_FORWARD ? attn_feature_missing(attn_features_of(p) & of_tiles, 0) : NULL;
    CHECK(!variant, ATTN_ERR_UNSUPPORTED, "options.invariant is set and %s; then bits depend on the chunk", variant);
    /* Also sums over the queries of a tile that end as one number: instruction sets have tiles of different sizes. */
    const attn_feature_set summed =
        (p->has.grad_bias_table || (ATTN_TRAINS && attn_bias_is_broadcast(p)) ? ATTN_USES(BIAS_GRADIENT) : 0) |
        (p->op == ATTN_BACKWARD ? ATTN_USES(ADDITIVE) : 0) | ATTN_USES(HEAD_GRADIENTS) | ATTN_USES(RELATIVE_GRADIENT);
    const char *differs = p->reproducible ? attn_feature_missing(attn_features_of(p) & (of_tiles | summed), 0) : NULL;
    CHECK(!differs, ATTN_ERR_UNSUPPORTED, "options.reproducible is set and %s; then bits depend on the instruction set", differs);
    const char *rejection = attn_walks_rejection(p);
    CHECK(!rejection, ATTN_ERR_UNSUPPORTED, "%s does not support this: %s", attn_attention_family.operations[p->op], rejection);
    if (p->score.scale_kind == ATTN_SCALE_DEFAULT)
        p->score.scale = p->score.kind == ATTN_SCORE_DOT && p->shape.dim_qk > 0 ? 1 / sqrt((double)p->shape.dim_qk) : 1;
    if (p->score.temperature == 0) p->score.temperature = 1;
    return ATTN_OK;
}

attn_status attn_options_validate(const attn_options *o, attn_error *error)
{
    CHECK(o->threads >= 0 && o->threads <= ATTN_POOL_MAX, ATTN_ERR_ARGUMENT,
          "options.threads is %d; it must be between 1 and %d, or 0 for the default", o->threads, ATTN_POOL_MAX);
    CHECK(o->isa >= ATTN_ISA_DEFAULT && o->isa <= ATTN_ISA_WASM128, ATTN_ERR_ARGUMENT,
          "options.isa is %d; known: 0 (default), 1 (scalar), 2 (avx2), 3 (avx512), 4 (neon), 5 (wasm128)", (int)o->isa);
    CHECK(o->reproducible == 0 || o->reproducible == 1, ATTN_ERR_ARGUMENT, "options.reproducible is %d; it must be 0 or 1",
          o->reproducible);
    CHECK(o->invariant == 0 || o->invariant == 1, ATTN_ERR_ARGUMENT, "options.invariant is %d; it must be 0 or 1", o->invariant);
    CHECK(!o->allocator.allocate == !o->allocator.release, ATTN_ERR_ARGUMENT,
          "options.allocator has %s and no %s; set both or neither", o->allocator.allocate ? "allocate" : "release",
          o->allocator.allocate ? "release" : "allocate");
    return ATTN_OK;
}
