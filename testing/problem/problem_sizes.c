/* SPDX-License-Identifier: MIT
 *
 * problem_sizes.c - sizes and types derived from a problem. */
#include "problem.h"
#include "tensors.h"

int64_t problem_dim_k(const attn_problem *problem) { return problem->score.dim_k ? problem->score.dim_k : problem->shape.dim_qk; }

void problem_matrix_size(const attn_problem *problem, int64_t size[2])
{
    const attn_score *s = &problem->score;
    const int64_t dim = problem->shape.dim_qk;
    size[0] = s->kind == ATTN_SCORE_GENERAL    ? dim
              : s->kind == ATTN_SCORE_METRIC   ? (s->dim_metric ? s->dim_metric : dim)
              : s->kind == ATTN_SCORE_ADDITIVE ? 1 + s->additive_bias
                                               : 0;
    size[1] = problem_dim_k(problem);
}

int64_t problem_buckets(const attn_bias_table *table)
{
    if (table->kind == ATTN_DISTANCE_CLIPPED) return 2 * table->max_distance + 1;
    return table->buckets ? table->buckets : 32;
}

int64_t problem_blocks(int64_t length, int64_t block) { return block > 0 ? length / block + (length % block != 0) : 0; }

attn_dtype problem_dtype(const problem_spec *spec)
{
    static const attn_dtype dtype[] = {
        [SPEC_F32] = ATTN_F32, [SPEC_F64] = ATTN_F64, [SPEC_F16] = ATTN_F16, [SPEC_BF16] = ATTN_BF16, [SPEC_INT8] = ATTN_F32};
    return spec->dtype >= 0 && spec->dtype < (int)(sizeof dtype / sizeof *dtype) ? dtype[spec->dtype] : ATTN_DTYPE_DEFAULT;
}

/* Types by spec_stored, and whether rows have scales. */
static const struct {
    attn_dtype dtype;
    int scaled;
} stored[SPEC_STORED_KINDS] = {[SPEC_STORED_F32] = {ATTN_F32, 0},
                               [SPEC_STORED_F16] = {ATTN_F16, 0},
                               [SPEC_STORED_BF16] = {ATTN_BF16, 0},
                               [SPEC_STORED_I8] = {ATTN_I8, 1},
                               [SPEC_STORED_F8_E4M3] = {ATTN_F8_E4M3, 1},
                               [SPEC_STORED_F8_E5M2] = {ATTN_F8_E5M2, 1},
                               [SPEC_STORED_F8_E4M3_UNSCALED] = {ATTN_F8_E4M3, 0},
                               [SPEC_STORED_F8_E5M2_UNSCALED] = {ATTN_F8_E5M2, 0},
                               [SPEC_STORED_Q8_0] = {ATTN_Q8_0, 0},
                               [SPEC_STORED_Q4_0] = {ATTN_Q4_0, 0},
                               [SPEC_STORED_Q4_1] = {ATTN_Q4_1, 0},
                               [SPEC_STORED_Q4_1C] = {ATTN_Q4_1C, 0}};

int problem_stored(const problem_spec *spec, int t)
{
    const int given = t == TENSOR(k) ? spec->k_type : spec->v_type;
    if (given > SPEC_STORED_LIKE_Q && given < SPEC_STORED_KINDS) return given;
    switch (spec->dtype) {
    case SPEC_F32:
        return SPEC_STORED_F32;
    case SPEC_F16:
        return SPEC_STORED_F16;
    case SPEC_BF16:
        return SPEC_STORED_BF16;
    case SPEC_INT8:
        return SPEC_STORED_I8;
    default:
        return SPEC_STORED_LIKE_Q;
    }
}

attn_dtype problem_stored_dtype(const problem_spec *spec, int t)
{
    const int kind = problem_stored(spec, t);
    return kind == SPEC_STORED_LIKE_Q ? problem_dtype(spec) : stored[kind].dtype;
}

int problem_stored_scaled(const problem_spec *spec, int t) { return stored[problem_stored(spec, t)].scaled; }
