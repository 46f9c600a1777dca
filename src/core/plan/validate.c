/* SPDX-License-Identifier: MIT
 *
 * validate.c - every rule that a problem and its options must keep, as lists; those of arguments are in validate_args.c.  Each rule
 * has a row with its exact message in tests/unit/test_validate*.c.
 */
#include <inttypes.h>
#include <math.h>

#include "../base/checked.h"
#include "../base/distance.h"
#include "../base/error.h"
#include "../base/names.h"
#include "plan.h"
#include "tensors.h"

static attn_status check_enums(const attn_problem *p, attn_error *error)
{
    CHECK(p->op >= ATTN_FORWARD && p->op <= ATTN_DOUBLE_BACKWARD, ATTN_ERR_ARGUMENT,
          "op is %d; known: 0 (forward), 1 (backward), 2 (jvp), 3 (double backward)", (int)p->op);
    CHECK(p->score.kind >= ATTN_SCORE_DOT && p->score.kind <= ATTN_SCORE_ADDITIVE, ATTN_ERR_ARGUMENT,
          "score.kind is %d; known: 0 (dot), 1 (general), 2 (metric), 3 (cosine), 4 (distance), 5 (additive)", (int)p->score.kind);
    CHECK(p->score.scale_kind >= ATTN_SCALE_DEFAULT && p->score.scale_kind <= ATTN_SCALE_PER_HEAD, ATTN_ERR_ARGUMENT,
          "score.scale_kind is %d; known: 0 (default), 1 (value), 2 (per head)", (int)p->score.scale_kind);
    CHECK(p->score.normaliser >= ATTN_NORMALISER_SOFTMAX && p->score.normaliser <= ATTN_NORMALISER_RELU, ATTN_ERR_ARGUMENT,
          "score.normaliser is %d; known: 0 (softmax), 1 (softmax one), 2 (sigmoid), 3 (relu)", (int)p->score.normaliser);
    CHECK(p->bias.alibi >= ATTN_ALIBI_NONE && p->bias.alibi <= ATTN_ALIBI_BATCH_HEAD, ATTN_ERR_ARGUMENT,
          "bias.alibi is %d; known: 0 (none), 1 (per head), 2 (per batch and head)", (int)p->bias.alibi);
    CHECK(p->mask.empty == ATTN_EMPTY_ZERO || p->mask.empty == ATTN_EMPTY_UNIFORM, ATTN_ERR_ARGUMENT,
          "mask.empty is %d; known: 0 (zero), 1 (uniform)", (int)p->mask.empty);
    CHECK(p->mask.align >= ATTN_ALIGN_TOP_LEFT && p->mask.align <= ATTN_ALIGN_OFFSET, ATTN_ERR_ARGUMENT,
          "mask.align is %d; known: 0 (top-left), 1 (bottom-right), 2 (offset)", (int)p->mask.align);
    CHECK(p->mask.index_dtype == ATTN_DTYPE_DEFAULT || p->mask.index_dtype == ATTN_I32 || p->mask.index_dtype == ATTN_I64,
          ATTN_ERR_ARGUMENT, "mask.index_dtype is %s; lengths and offsets are i32 or i64", attn_dtype_text(p->mask.index_dtype));
    return ATTN_OK;
}

static attn_status check_flags(const attn_problem *p, attn_error *error)
{
    const struct {
        const char *name;
        int value;
    } flags[] = {
        {"mask.causal", p->mask.causal},
        {"mask.window", p->mask.window},
        {"mask.lengths_q", p->mask.lengths_q},
        {"mask.lengths_kv", p->mask.lengths_kv},
        {"mask.boolean", p->mask.boolean},
        {"bias.additive", p->bias.additive},
        {"want.lse", p->want.lse},
        {"want.weights", p->want.weights},
        {"want.after_dropout", p->want.after_dropout},
        {"want.scores", p->want.scores},
        {"want.rows", p->want.rows},
        {"want.dropout_keep", p->want.dropout_keep},
        {"want.row_max", p->want.row_max},
        {"want.entropy", p->want.entropy},
        {"want.effective_keys", p->want.effective_keys},
        {"want.column_sum", p->want.column_sum},
        {"mask.packed", p->mask.packed},
        {"mask.block", p->mask.block},
        {"mask.ranges", p->mask.ranges},
        {"mask.block_lists", p->mask.block_lists},
        {"bias.sink", p->bias.sink},
        {"dropout.given", p->dropout.given},
        {"gradients.lse", p->gradients.lse},
        {"gradients.bias", p->gradients.bias},
        {"gradients.slopes", p->gradients.slopes},
        {"gradients.sink", p->gradients.sink},
        {"gradients.scale", p->gradients.scale},
        {"gradients.w", p->gradients.w},
        {"score.w_heads", p->score.w_heads},
        {"score.w_bias", p->score.w_bias},
        {"tangents.q", p->tangents.q},
        {"tangents.k", p->tangents.k},
        {"tangents.v", p->tangents.v},
        {"tangents.bias", p->tangents.bias},
        {"tangents.lse", p->tangents.lse},
        {"second.bias", p->second.bias},
        {"second.grad_lse", p->second.grad_lse},
        {"paging.paged", p->paging.paged},
        {"modifier.used", p->modifier.used},
        {"relative.keys", p->relative.keys},
        {"relative.values", p->relative.values},
        {"relative.u", p->relative.u},
        {"relative.v", p->relative.v},
        {"relative.shared", p->relative.shared},
        {"gradients.relative", p->gradients.relative},
        {"bias_table.used", p->bias_table.used},
        {"bias_table.shared", p->bias_table.shared},
        {"gradients.bias_table", p->gradients.bias_table},
    };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        CHECK(flags[i].value == 0 || flags[i].value == 1, ATTN_ERR_ARGUMENT, "%s is %d; it is 0 or 1", flags[i].name,
              flags[i].value);

    const struct {
        const char *name;
        const int64_t *words;
    } reserved[] = {
        {"score", p->score.reserved},
        {"mask", p->mask.reserved},
        {"bias", p->bias.reserved},
        {"dropout", p->dropout.reserved},
        {"want", p->want.reserved},
        {"gradients", p->gradients.reserved},
        {"tangents", p->tangents.reserved},
        {"second", p->second.reserved},
        {"paging", p->paging.reserved},
        {"quantised", p->quantised.reserved},
        {"bias_table", p->bias_table.reserved},
        {"modifier", p->modifier.reserved},
        {"relative", p->relative.reserved},
    };
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        for (int k = 0; k < 4; k++)
            CHECK(reserved[i].words[k] == 0, ATTN_ERR_ARGUMENT, "%s.reserved[%d] is %" PRId64 "; it must be 0", reserved[i].name, k,
                  reserved[i].words[k]);
    return ATTN_OK;
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
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        CHECK(sizes[i].value >= 0, ATTN_ERR_SHAPE, "%s (%" PRId64 ") is negative", sizes[i].name, sizes[i].value);
    CHECK(s->heads_kv > 0 || s->heads_q == 0, ATTN_ERR_SHAPE,
          "heads_kv is 0 and heads_q is %" PRId64 ": query heads need a key head", s->heads_q);
    CHECK(s->heads_kv == 0 || s->heads_q % s->heads_kv == 0, ATTN_ERR_SHAPE,
          "heads_q (%" PRId64 ") is not a multiple of heads_kv (%" PRId64 ")", s->heads_q, s->heads_kv);
    return ATTN_OK;
}

static attn_status check_score(const attn_score *score, attn_error *error)
{
    CHECK(score->scale_kind != ATTN_SCALE_VALUE || isfinite(score->scale), ATTN_ERR_ARGUMENT,
          "score.scale is %g; it must be finite", score->scale);
    CHECK(score->scale_kind == ATTN_SCALE_VALUE || score->scale == 0, ATTN_ERR_ARGUMENT,
          "score.scale is %g but score.scale_kind is not ATTN_SCALE_VALUE", score->scale);
    CHECK(score->temperature >= 0 && isfinite(score->temperature), ATTN_ERR_ARGUMENT,
          "score.temperature is %g; it must be above 0 and finite (0 for the default, 1)", score->temperature);
    CHECK(score->softcap >= 0 && isfinite(score->softcap), ATTN_ERR_ARGUMENT,
          "score.softcap is %g; it must be above 0 and finite (0 for none)", score->softcap);
    return ATTN_OK;
}

int attn_problem_has_w(const attn_problem *p)
{
    return p->score.kind == ATTN_SCORE_GENERAL || p->score.kind == ATTN_SCORE_METRIC || p->score.kind == ATTN_SCORE_ADDITIVE;
}

int64_t attn_problem_dim_k(const attn_problem *p) { return p->score.dim_k ? p->score.dim_k : p->shape.dim_qk; }

void attn_problem_w_shape(const attn_problem *p, int64_t shape[2])
{
    const int64_t D = p->shape.dim_qk;
    shape[0] = !attn_problem_has_w(p) ? 0 : p->score.dim_metric ? p->score.dim_metric : D;
    shape[1] = !attn_problem_has_w(p) ? 0 : attn_problem_dim_k(p);
    if (p->score.kind == ATTN_SCORE_ADDITIVE) shape[0] = p->score.w_bias ? 2 : 1;
}

static const char *kind_text(attn_score_kind kind)
{
    static const char *const names[] = {"dot", "general", "metric", "cosine", "distance", "additive"};
    return names[kind];
}

/* Fields of attn_score that only some kinds have. */
static attn_status check_kind(const attn_problem *p, attn_error *error)
{
    const attn_score *s = &p->score;
    const char *kind = kind_text(s->kind);
    CHECK(s->kind == ATTN_SCORE_DOT || p->op == ATTN_FORWARD || p->op == ATTN_BACKWARD, ATTN_ERR_UNSUPPORTED,
          "score.kind is %s and op is neither ATTN_FORWARD nor ATTN_BACKWARD; the other operations are there for dot products",
          kind);
    CHECK(s->dim_k >= 0, ATTN_ERR_SHAPE, "score.dim_k (%" PRId64 ") is negative", s->dim_k);
    CHECK(s->dim_k == 0 || s->kind == ATTN_SCORE_GENERAL, ATTN_ERR_ARGUMENT,
          "score.dim_k is %" PRId64 " and score.kind is %s; only with general do keys have other channels than queries", s->dim_k,
          kind);
    CHECK(s->dim_metric >= 0, ATTN_ERR_SHAPE, "score.dim_metric (%" PRId64 ") is negative", s->dim_metric);
    CHECK(s->dim_metric == 0 || s->kind == ATTN_SCORE_METRIC, ATTN_ERR_ARGUMENT,
          "score.dim_metric is %" PRId64 " and score.kind is %s; only metric has it", s->dim_metric, kind);
    CHECK(!s->w_heads || attn_problem_has_w(p), ATTN_ERR_ARGUMENT, "score.w_heads is set and score.kind is %s, which has no w",
          kind);
    CHECK(!s->w_bias || s->kind == ATTN_SCORE_ADDITIVE, ATTN_ERR_ARGUMENT,
          "score.w_bias is set and score.kind is %s; only additive has biases", kind);
    CHECK(!p->gradients.w || attn_problem_has_w(p), ATTN_ERR_ARGUMENT, "gradients.w is set and score.kind is %s, which has no w",
          kind);
    CHECK(!p->paging.paged || !attn_prepares_keys(p), ATTN_ERR_UNSUPPORTED,
          "paging.paged is set and score.kind is %s; keys in pages can be scored by dot, general, metric and additive", kind);
    return ATTN_OK;
}

static const char *normaliser_text(attn_normaliser normaliser)
{
    static const char *const names[] = {"softmax", "softmax one", "sigmoid", "relu"};
    return names[normaliser];
}

/* What is a matter of a softmax. */
static attn_status check_normaliser(const attn_problem *p, attn_error *error)
{
    const attn_want *want = &p->want;
    const attn_normaliser kind = p->score.normaliser;
    const struct {
        const char *name;
        int value;
    } of_softmax[] = {
        {"mask.empty uniform", p->mask.empty != ATTN_EMPTY_ZERO},
        {"want.entropy", want->entropy},
        {"want.effective_keys", want->effective_keys},
        {"want.topk", want->topk != 0},
        {"gradients.lse", p->gradients.lse},
    };
    CHECK(isfinite(p->score.shift), ATTN_ERR_ARGUMENT, "score.shift is %g; it must be finite", p->score.shift);
    CHECK(kind == ATTN_NORMALISER_SIGMOID || p->score.shift == 0, ATTN_ERR_ARGUMENT,
          "score.shift is %g and score.normaliser is %s; only sigmoid has it", p->score.shift, normaliser_text(kind));
    CHECK(kind == ATTN_NORMALISER_SOFTMAX || !p->bias.sink, ATTN_ERR_ARGUMENT,
          "bias.sink is set and score.normaliser is %s; a sink joins the denominator of softmax", normaliser_text(kind));
    CHECK(kind != ATTN_NORMALISER_SOFTMAX_ONE || p->mask.empty == ATTN_EMPTY_ZERO, ATTN_ERR_ARGUMENT,
          "mask.empty is uniform and score.normaliser is softmax one; with a sink an empty row has all its weight on the sink");
    if (!attn_weighs_alone(p)) return ATTN_OK;
    CHECK(p->op == ATTN_FORWARD || p->op == ATTN_BACKWARD, ATTN_ERR_UNSUPPORTED,
          "score.normaliser is %s and op is neither ATTN_FORWARD nor ATTN_BACKWARD; the other operations are there for softmax",
          normaliser_text(kind));
    for (size_t i = 0; i < sizeof of_softmax / sizeof *of_softmax; i++)
        CHECK(!of_softmax[i].value, ATTN_ERR_ARGUMENT, "%s is asked for and score.normaliser is %s; it is a matter of softmax",
              of_softmax[i].name, normaliser_text(kind));
    return ATTN_OK;
}

static attn_status check_mask(const attn_problem *p, attn_error *error)
{
    const attn_mask *m = &p->mask;
    if (m->window) {
        CHECK(m->window_left >= -1, ATTN_ERR_ARGUMENT, "mask.window_left is %" PRId64 "; it is at least 0, or -1 for no bound",
              m->window_left);
        CHECK(m->window_right >= -1, ATTN_ERR_ARGUMENT, "mask.window_right is %" PRId64 "; it is at least 0, or -1 for no bound",
              m->window_right);
    } else {
        CHECK(m->window_left <= 0 && m->window_right <= 0, ATTN_ERR_ARGUMENT,
              "mask.window_left is %" PRId64 " and window_right %" PRId64 " but mask.window is 0; set it to 1", m->window_left,
              m->window_right);
    }
    CHECK(m->chunk >= 0, ATTN_ERR_ARGUMENT, "mask.chunk is %" PRId64 "; it is at least 1, or 0 for none", m->chunk);
    CHECK(!m->packed || (!m->lengths_q && !m->lengths_kv), ATTN_ERR_ARGUMENT,
          "mask.packed and mask.lengths_%s are both set; packed sequences have their lengths from cu_seqlens",
          m->lengths_q ? "q" : "kv");
    CHECK(m->dilation >= 0, ATTN_ERR_ARGUMENT, "mask.dilation is %" PRId64 "; it is at least 1, or 0 for every key", m->dilation);
    CHECK(m->global_q >= 0 && m->global_kv >= 0, ATTN_ERR_ARGUMENT,
          "mask.global_q is %" PRId64 " and mask.global_kv %" PRId64 "; both are at least 0", m->global_q, m->global_kv);
    CHECK(!m->block || !m->block_lists, ATTN_ERR_ARGUMENT,
          "mask.block and mask.block_lists are both set; a block mask is given in one form");
    CHECK(m->block_entries >= 0, ATTN_ERR_ARGUMENT, "mask.block_entries is %" PRId64 "; it is at least 0", m->block_entries);
    CHECK((!m->block && !m->block_lists) || (m->block_q > 0 && m->block_kv > 0), ATTN_ERR_ARGUMENT,
          "mask.block_q is %" PRId64 " and mask.block_kv %" PRId64 "; with a block mask both are at least 1", m->block_q,
          m->block_kv);
    CHECK(m->empty == ATTN_EMPTY_ZERO || !p->bias.sink, ATTN_ERR_ARGUMENT,
          "mask.empty is uniform and bias.sink is set; with a sink an empty row has all its weight on the sink");
    return ATTN_OK;
}

static attn_status check_paging(attn_problem *p, attn_error *error)
{
    attn_paging *g = &p->paging;
    if (!g->paged) return ATTN_OK;
    CHECK(p->op == ATTN_FORWARD, ATTN_ERR_UNSUPPORTED,
          "paging.paged is set and op is not ATTN_FORWARD; gradients of pages are not there");
    CHECK(!p->mask.packed, ATTN_ERR_ARGUMENT, "paging.paged and mask.packed are both set; keys are either in pages or packed");
    CHECK(p->mask.empty == ATTN_EMPTY_ZERO || !p->mask.lengths_kv, ATTN_ERR_ARGUMENT,
          "mask.empty is uniform and the keys are in pages; those behind lengths_kv have no page to weigh");
    CHECK(g->page_size > 0, ATTN_ERR_ARGUMENT, "paging.page_size is %" PRId64 "; it is at least 1", g->page_size);
    CHECK(g->pages >= 0, ATTN_ERR_ARGUMENT, "paging.pages is %" PRId64 "; it is at least 0", g->pages);
    int64_t need = attn_ceil_div(p->shape.len_kv, g->page_size);
    CHECK(g->table_stride == 0 || g->table_stride >= need, ATTN_ERR_ARGUMENT,
          "paging.table_stride is %" PRId64 "; len_kv (%" PRId64 ") in pages of %" PRId64 " needs %" PRId64, g->table_stride,
          p->shape.len_kv, g->page_size, need);
    if (g->table_stride == 0) g->table_stride = need;
    return ATTN_OK;
}

static attn_status check_quantised(const attn_problem *p, attn_error *error)
{
    const char *name = p->k.dtype == ATTN_I8 ? "k" : "v";
    CHECK((p->k.dtype != ATTN_I8 && p->v.dtype != ATTN_I8) || p->op == ATTN_FORWARD, ATTN_ERR_UNSUPPORTED,
          "%s.dtype is i8 and op is not ATTN_FORWARD; whole numbers have no gradients", name);
    return ATTN_OK;
}

attn_status attn_bias_table_rule(const attn_bias_table *t, attn_distance_bias *rule, attn_error *error)
{
    const attn_distance_bias given = {
        .struct_size = sizeof given, .kind = t->kind, .buckets = t->buckets, .max_distance = t->max_distance, .causal = t->causal};
    return attn_distance_resolve(&given, rule, error);
}

static attn_status check_bias_table(attn_problem *p, attn_error *error)
{
    attn_bias_table *t = &p->bias_table;
    attn_distance_bias rule;
    if (!t->used) {
        CHECK(!t->shared, ATTN_ERR_ARGUMENT, "bias_table.shared is set but bias_table.used is not");
        return ATTN_OK;
    }
    CHECK(t->max_distance <= 1 << 24, ATTN_ERR_ARGUMENT,
          "bias_table.max_distance is %" PRId64 "; in the walk over tiles it is at most 16777216", t->max_distance);
    TRY(attn_bias_table_rule(t, &rule, error));
    t->buckets = rule.buckets;
    t->max_distance = rule.max_distance;
    return ATTN_OK;
}

static attn_status check_relative(const attn_problem *p, attn_error *error)
{
    const attn_relative *r = &p->relative;
    CHECK(r->keys || (!r->u && !r->v), ATTN_ERR_ARGUMENT, "relative.%s is set but relative.keys is not", r->u ? "u" : "v");
    if (!r->keys && !r->values) {
        CHECK(!p->gradients.relative, ATTN_ERR_ARGUMENT,
              "gradients.relative is set but neither relative.keys nor relative.values is");
        return ATTN_OK;
    }
    CHECK(p->op == ATTN_FORWARD || p->op == ATTN_BACKWARD, ATTN_ERR_UNSUPPORTED,
          "relative.%s is set and op is neither ATTN_FORWARD nor ATTN_BACKWARD", r->keys ? "keys" : "values");
    CHECK(p->score.kind == ATTN_SCORE_DOT, ATTN_ERR_UNSUPPORTED,
          "relative.%s is set and score.kind is %s; relative terms are there for dot products", r->keys ? "keys" : "values",
          kind_text(p->score.kind));
    CHECK(r->rows >= 1 && r->rows <= (int64_t)1 << 40, ATTN_ERR_SHAPE, "relative.rows is %" PRId64 "; it is within 1..2^40",
          r->rows);
    CHECK(r->first >= -((int64_t)1 << 40) && r->first <= (int64_t)1 << 40, ATTN_ERR_ARGUMENT,
          "relative.first is %" PRId64 "; it is within -2^40..2^40", r->first);
    return ATTN_OK;
}

static attn_status check_gradients(const attn_problem *p, attn_error *error)
{
    const attn_gradients *g = &p->gradients;
    CHECK(p->dropout.probability >= 0 && p->dropout.probability <= 1, ATTN_ERR_ARGUMENT,
          "dropout.probability is %g; it is within 0..1", p->dropout.probability);
    CHECK(p->op == ATTN_BACKWARD || !(g->bias || g->slopes || g->sink || g->scale || g->w || g->bias_table || g->relative),
          ATTN_ERR_ARGUMENT, "gradients are asked for but op is not ATTN_BACKWARD");
    CHECK(p->op == ATTN_BACKWARD || p->op == ATTN_DOUBLE_BACKWARD || !g->lse, ATTN_ERR_ARGUMENT,
          "gradients.lse is set but op is neither ATTN_BACKWARD nor ATTN_DOUBLE_BACKWARD");
    CHECK(!g->bias || p->bias.additive, ATTN_ERR_ARGUMENT, "gradients.bias is set but bias.additive is not");
    CHECK(!p->modifier.used || p->op != ATTN_DOUBLE_BACKWARD, ATTN_ERR_UNSUPPORTED,
          "modifier.used is set and op is ATTN_DOUBLE_BACKWARD; a modifier tells no second derivative");
    CHECK(!g->bias_table || p->bias_table.used, ATTN_ERR_ARGUMENT, "gradients.bias_table is set but bias_table.used is not");
    CHECK(!g->slopes || p->bias.alibi, ATTN_ERR_ARGUMENT, "gradients.slopes is set but bias.alibi is not");
    CHECK(!g->sink || p->bias.sink, ATTN_ERR_ARGUMENT, "gradients.sink is set but bias.sink is not");
    return ATTN_OK;
}

static attn_status check_want(const attn_problem *p, attn_error *error)
{
    const attn_want *want = &p->want;
    const struct {
        const char *name;
        int value;
    } outputs[] = {
        {"weights", want->weights},
        {"scores", want->scores},
        {"rows", want->rows},
        {"dropout_keep", want->dropout_keep},
        {"row_max", want->row_max},
        {"entropy", want->entropy},
        {"effective_keys", want->effective_keys},
        {"column_sum", want->column_sum},
        {"topk", want->topk != 0},
    };
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
        CHECK(p->op == ATTN_FORWARD || !outputs[i].value, ATTN_ERR_ARGUMENT,
              "want.%s is set but op is not ATTN_FORWARD; only forward gives it", outputs[i].name);
    CHECK(want->scores_stage >= ATTN_STAGE_RAW && want->scores_stage <= ATTN_STAGE_WEIGHTS, ATTN_ERR_ARGUMENT,
          "want.scores_stage is %d; known: 0 (raw), 1 (capped), 2 (biased), 3 (weights)", (int)want->scores_stage);
    CHECK(want->rows_stage >= ATTN_STAGE_RAW && want->rows_stage <= ATTN_STAGE_WEIGHTS, ATTN_ERR_ARGUMENT,
          "want.rows_stage is %d; known: 0 (raw), 1 (capped), 2 (biased), 3 (weights)", (int)want->rows_stage);
    CHECK(want->column_heads >= ATTN_COLUMNS_EACH && want->column_heads <= ATTN_COLUMNS_ALL, ATTN_ERR_ARGUMENT,
          "want.column_heads is %d; known: 0 (each), 1 (group), 2 (all)", (int)want->column_heads);
    CHECK(want->column_queries >= 0, ATTN_ERR_ARGUMENT, "want.column_queries is %" PRId64 "; it is at least 1, or 0 for all",
          want->column_queries);
    CHECK(want->topk >= 0, ATTN_ERR_ARGUMENT, "want.topk is %" PRId64 "; it is at least 1, or 0 for none", want->topk);
    CHECK(p->shape.len_kv <= INT32_MAX || want->topk_index_layout.dtype != ATTN_I32, ATTN_ERR_UNSUPPORTED,
          "topk_index.dtype is i32 and len_kv (%" PRId64 ") is more than it holds", p->shape.len_kv);
    return ATTN_OK;
}

static attn_status check_tangents(const attn_problem *p, attn_error *error)
{
    const attn_tangents *t = &p->tangents;
    CHECK(p->op == ATTN_JVP || p->op == ATTN_DOUBLE_BACKWARD || !(t->q || t->k || t->v || t->bias), ATTN_ERR_ARGUMENT,
          "tangents are given but op is neither ATTN_JVP nor ATTN_DOUBLE_BACKWARD");
    CHECK(p->op == ATTN_JVP || !t->lse, ATTN_ERR_ARGUMENT, "tangents.lse is set but op is not ATTN_JVP");
    CHECK(!t->bias || p->bias.additive, ATTN_ERR_ARGUMENT, "tangents.bias is set but bias.additive is not");
    CHECK(p->op == ATTN_DOUBLE_BACKWARD || !(p->second.bias || p->second.grad_lse), ATTN_ERR_ARGUMENT,
          "second.%s is set but op is not ATTN_DOUBLE_BACKWARD", p->second.bias ? "bias" : "grad_lse");
    CHECK(!p->second.bias || p->bias.additive, ATTN_ERR_ARGUMENT, "second.bias is set but bias.additive is not");
    return ATTN_OK;
}

attn_dtype attn_problem_compute(const attn_problem *problem) { return problem->q.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32; }

attn_status attn_problem_resolve(attn_problem *p, attn_error *error)
{
    TRY(check_enums(p, error));
    TRY(check_flags(p, error));
    TRY(attn_shape_validate(&p->shape, error));
    TRY(check_score(&p->score, error));
    TRY(check_kind(p, error));
    TRY(check_normaliser(p, error));
    TRY(check_mask(p, error));
    TRY(check_paging(p, error));
    TRY(check_quantised(p, error));
    TRY(check_bias_table(p, error));
    TRY(check_relative(p, error));
    TRY(check_gradients(p, error));
    TRY(check_want(p, error));
    TRY(check_tangents(p, error));
    if (p->op != ATTN_FORWARD) p->want.lse = 1; /* an input there */
    TRY(attn_tensors_resolve(p, error));
    if (p->score.scale_kind == ATTN_SCALE_DEFAULT)
        p->score.scale = p->score.kind == ATTN_SCORE_DOT && p->shape.dim_qk > 0 ? 1 / sqrt((double)p->shape.dim_qk) : 1;
    if (p->score.temperature == 0) p->score.temperature = 1;
    return ATTN_OK;
}

attn_status attn_options_validate(const attn_options *o, attn_error *error)
{
    CHECK(o->threads >= 0, ATTN_ERR_ARGUMENT, "options.threads is %d; it is at least 1, or 0 for the default", o->threads);
    CHECK(o->isa >= ATTN_ISA_DEFAULT && o->isa <= ATTN_ISA_AVX512, ATTN_ERR_ARGUMENT,
          "options.isa is %d; known: 0 (default), 1 (scalar), 2 (avx2), 3 (avx512)", (int)o->isa);
    CHECK(!o->allocator.allocate == !o->allocator.release, ATTN_ERR_ARGUMENT,
          "options.allocator has %s and no %s; give both or none", o->allocator.allocate ? "allocate" : "release",
          o->allocator.allocate ? "release" : "allocate");
    return ATTN_OK;
}
