/* SPDX-License-Identifier: MIT
 *
 * problem_terms.c - score kinds and terms by distance: from words to the library's structs. */
#include "problem_terms.h"

#include <stdlib.h>
#include <string.h>

#include "tensors.h"
#include "testing/text/failure.h"

static const char *const score_names[] = {
    [ATTN_SCORE_DOT] = "",          [ATTN_SCORE_GENERAL] = "general",   [ATTN_SCORE_METRIC] = "metric",
    [ATTN_SCORE_COSINE] = "cosine", [ATTN_SCORE_DISTANCE] = "distance", [ATTN_SCORE_ADDITIVE] = "additive"};

attn_score_kind problem_score_kind(const problem_spec *spec)
{
    const size_t length = strcspn(spec->score, "/");
    for (int kind = ATTN_SCORE_GENERAL; kind <= ATTN_SCORE_ADDITIVE; kind++)
        if (strlen(score_names[kind]) == length && strncmp(spec->score, score_names[kind], length) == 0)
            return (attn_score_kind)kind;
    return ATTN_SCORE_DOT;
}

int problem_has_w(const problem_spec *spec)
{
    const attn_score_kind kind = problem_score_kind(spec);
    return kind == ATTN_SCORE_GENERAL || kind == ATTN_SCORE_METRIC || kind == ATTN_SCORE_ADDITIVE;
}

int64_t problem_after_slash(const char *word)
{
    const char *slash = strchr(word, '/');
    return slash ? strtoll(slash + 1, NULL, 10) : 0;
}

static int is_shaw(const problem_spec *spec) { return strncmp(spec->rel, "shaw", 4) == 0; }
int problem_has_relative_values(const problem_spec *spec) { return strncmp(spec->rel, "shaw-values", 11) == 0; }

int64_t problem_relative_rows(const problem_spec *spec)
{
    const int64_t rows = is_shaw(spec) ? 2 * problem_after_slash(spec->rel) + 1 : spec->shape.len_q + spec->shape.len_kv - 1;
    return rows > 1 ? rows : 1;
}

attn_status problem_check_terms(problem_spec *spec, attn_error *error)
{
    const int tables = (spec->rel[0] ? SPEC_SHARED_REL : 0) | (spec->t5 || spec->clipped ? SPEC_SHARED_TABLE : 0);
    if (spec->t5 && spec->clipped) return failure(error, ATTN_ERR_ARGUMENT, "t5 and clipped both define the bias by distance");
    if (spec->shared && !(spec->shared & tables))
        return failure(error, ATTN_ERR_ARGUMENT, "shared needs rel, t5 or clipped: all heads then share one table");
    if (spec->w && !problem_has_w(spec))
        return failure(error, ATTN_ERR_ARGUMENT, "w needs score=general, metric or additive: it describes their weights");
    if (spec->w & SPEC_W_BIAS && problem_score_kind(spec) != ATTN_SCORE_ADDITIVE)
        return failure(error, ATTN_ERR_ARGUMENT, "score=%s has no biases; w=heads gives each head its own w", spec->score);
    spec->shared &= tables;
    return ATTN_OK;
}

/* The number in score= is the width to which q and k are projected (additive), the channels of keys (general), or the rows of w. */
static attn_status build_score(const problem_spec *spec, attn_problem *p, attn_tensors *all, attn_error *error)
{
    const int64_t size = problem_after_slash(spec->score), channels = p->shape.dim_qk;
    attn_score *score = &p->score;
    score->kind = problem_score_kind(spec);
    if (score->kind == ATTN_SCORE_ADDITIVE && size && size != channels)
        return failure(error, ATTN_ERR_ARGUMENT,
                       "score=%s has %lld hidden units and d is %lld; q and k must already be projected to them", spec->score,
                       (long long)size, (long long)channels);
    if (score->kind == ATTN_SCORE_GENERAL && size != channels) score->dim_k = size;
    if (score->kind == ATTN_SCORE_METRIC && size != channels) score->dim_metric = size;
    score->additive_bias = (spec->w & SPEC_W_BIAS) != 0;
    score->normaliser = (attn_normaliser)spec->normaliser;
    score->shift = spec->shift;
    if (spec->has_scale) score->scale_kind = ATTN_SCALE_VALUE, score->scale = spec->scale;
    if (spec->scale_heads) tensors_request(all, TENSOR(scale));
    score->softcap = spec->softcap;
    score->temperature = spec->temperature;
    if (!problem_has_w(spec)) return ATTN_OK;
    tensors_request(all, TENSOR(score_matrix));
    if (p->op == ATTN_BACKWARD) tensors_request(all, TENSOR(grad_score_matrix));
    int64_t shape[4];
    tensors_shape(p, all, TENSOR(score_matrix), shape);
    if (!(spec->w & SPEC_W_HEADS) || tensors_lay(tensors_slot(all, TENSOR(score_matrix)), shape, (const int[4]){0, 1, 2, 3}, 0))
        return ATTN_OK;
    return failure(error, ATTN_ERR_SHAPE, "score=%s: one w for each head is too large: its elements overflow 64 bits", spec->score);
}

/* One table for all heads. */
static void share(attn_tensors *all, int t, int64_t row, int64_t channel)
{
    attn_output *slot = tensors_slot(all, t);
    slot->stride[2] = row;
    slot->stride[3] = channel;
}

static void build_bias_table(const problem_spec *spec, attn_problem *p, attn_tensors *all)
{
    attn_bias_table *table = &p->bias_table;
    if (!spec->t5 && !spec->clipped) return;
    table->kind = spec->clipped ? ATTN_DISTANCE_CLIPPED : ATTN_DISTANCE_T5;
    table->buckets = spec->t5 ? spec->t5_buckets : 0;
    table->max_distance = spec->clipped ? spec->clipped : spec->t5_distance;
    table->causal = spec->t5 == SPEC_T5_CAUSAL;
    tensors_request(all, TENSOR(bias_table));
    if (spec->dtable) tensors_request(all, TENSOR(grad_bias_table));
    if (spec->shared & SPEC_SHARED_TABLE) share(all, TENSOR(bias_table), 1, 1);
}

/* The smallest possible distance, where a full table begins.  Offsets that differ by batch entry count as 0; the library rejects
 * those that are clamped here. */
static int64_t least_distance(const problem_spec *spec)
{
    static const int64_t limit = (int64_t)1 << 41;
    const attn_shape *s = &spec->shape;
    const int bottom_right = spec->causal == SPEC_CAUSAL_BOTTOM_RIGHT || spec->align == SPEC_ALIGN_BOTTOM_RIGHT;
    const int64_t offset = spec->offset_kind == SPEC_OFFSET_VALUE ? spec->offset : 0;
    if (bottom_right) return 1 - s->len_q;
    if (offset > limit || offset < -limit || s->len_kv > limit) return offset > limit ? limit : -limit;
    return offset + 1 - s->len_kv;
}

/* Relative terms: clipped to a distance, or with a row for every possible distance. */
static void build_relative(const problem_spec *spec, attn_problem *p, attn_tensors *all)
{
    attn_relative *r = &p->relative;
    const int64_t most = is_shaw(spec) ? problem_after_slash(spec->rel) : 0;
    const int xl = strcmp(spec->rel, "xl") == 0, values = problem_has_relative_values(spec);
    if (!spec->rel[0]) return;
    r->first = is_shaw(spec) ? -most : least_distance(spec);
    r->rows = problem_relative_rows(spec);
    const struct {
        int t, grad, present;
        int64_t width; /* of a table; -1: no table */
    } terms[] = {{TENSOR(relative_keys), TENSOR(grad_relative_keys), 1, p->shape.dim_qk},
                 {TENSOR(relative_values), TENSOR(grad_relative_values), values, p->shape.dim_v},
                 {TENSOR(relative_u), TENSOR(grad_relative_u), xl, -1},
                 {TENSOR(relative_v), TENSOR(grad_relative_v), xl, -1}};
    for (size_t k = 0; k < sizeof terms / sizeof *terms; k++) {
        if (!terms[k].present) continue;
        tensors_request(all, terms[k].t);
        if (spec->drel) tensors_request(all, terms[k].grad);
        const int64_t width = terms[k].width;
        if (spec->shared & SPEC_SHARED_REL && width >= 0) share(all, terms[k].t, width ? width : 1, 1);
    }
}

attn_status problem_build_terms(const problem_spec *spec, attn_problem *problem, attn_tensors *tensors, attn_error *error)
{
    attn_status status = build_score(spec, problem, tensors, error);
    if (status != ATTN_OK) return status;
    build_bias_table(spec, problem, tensors);
    build_relative(spec, problem, tensors);
    return ATTN_OK;
}
