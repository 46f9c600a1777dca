/* SPDX-License-Identifier: MIT
 *
 * validate.c - every rule that a problem, its options and its arguments must keep, as lists.  Each rule has a row with its exact
 * message in tests/unit/test_validate.c.
 */
#include <inttypes.h>
#include <math.h>

#include "../base/checked.h"
#include "../base/error.h"
#include "../base/names.h"
#include "plan.h"
#include "tensors.h"

static attn_status check_enums(const attn_problem *p, attn_error *error)
{
    CHECK(p->op == ATTN_FORWARD, ATTN_ERR_ARGUMENT, "op is %d; known: 0 (forward)", (int)p->op);
    CHECK(p->score.kind == ATTN_SCORE_DOT, ATTN_ERR_ARGUMENT, "score.kind is %d; known: 0 (dot)", (int)p->score.kind);
    CHECK(p->score.scale_kind == ATTN_SCALE_DEFAULT || p->score.scale_kind == ATTN_SCALE_VALUE, ATTN_ERR_ARGUMENT,
          "score.scale_kind is %d; known: 0 (default), 1 (value)", (int)p->score.scale_kind);
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
    };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        CHECK(flags[i].value == 0 || flags[i].value == 1, ATTN_ERR_ARGUMENT, "%s is %d; it is 0 or 1", flags[i].name,
              flags[i].value);

    const struct {
        const char *name;
        const int64_t *words;
    } reserved[] = {
        {"score", p->score.reserved}, {"mask", p->mask.reserved}, {"bias", p->bias.reserved}, {"want", p->want.reserved}};
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        for (int k = 0; k < 4; k++)
            CHECK(reserved[i].words[k] == 0, ATTN_ERR_ARGUMENT, "%s.reserved[%d] is %" PRId64 "; it must be 0", reserved[i].name, k,
                  reserved[i].words[k]);
    return ATTN_OK;
}

static attn_status check_shape(const attn_shape *s, attn_error *error)
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

static attn_status check_values(const attn_problem *p, attn_error *error)
{
    CHECK(p->score.scale_kind == ATTN_SCALE_DEFAULT || isfinite(p->score.scale), ATTN_ERR_ARGUMENT,
          "score.scale is %g; it must be finite", p->score.scale);
    CHECK(p->score.scale_kind == ATTN_SCALE_VALUE || p->score.scale == 0, ATTN_ERR_ARGUMENT,
          "score.scale is %g but score.scale_kind is the default; set it to ATTN_SCALE_VALUE", p->score.scale);
    if (p->mask.window) {
        CHECK(p->mask.window_left >= -1, ATTN_ERR_ARGUMENT, "mask.window_left is %" PRId64 "; it is at least 0, or -1 for no bound",
              p->mask.window_left);
        CHECK(p->mask.window_right >= -1, ATTN_ERR_ARGUMENT,
              "mask.window_right is %" PRId64 "; it is at least 0, or -1 for no bound", p->mask.window_right);
    } else {
        CHECK(p->mask.window_left <= 0 && p->mask.window_right <= 0, ATTN_ERR_ARGUMENT,
              "mask.window_left is %" PRId64 " and window_right %" PRId64 " but mask.window is 0; set it to 1", p->mask.window_left,
              p->mask.window_right);
    }
    return ATTN_OK;
}

attn_dtype attn_problem_compute(const attn_problem *problem) { return problem->q.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32; }

attn_status attn_problem_resolve(attn_problem *p, attn_error *error)
{
    TRY(check_enums(p, error));
    TRY(check_flags(p, error));
    TRY(check_shape(&p->shape, error));
    TRY(check_values(p, error));
    TRY(attn_tensors_resolve(p, error));
    if (p->score.scale_kind == ATTN_SCALE_DEFAULT) p->score.scale = p->shape.dim_qk > 0 ? 1 / sqrt((double)p->shape.dim_qk) : 1;
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

static attn_status check_lengths(const char *name, const void *array, attn_dtype dtype, int64_t batch, int64_t most,
                                 attn_error *error)
{
    for (int64_t b = 0; b < batch; b++) {
        int64_t length = attn_index_at(array, dtype, b);
        CHECK(length >= 0 && length <= most, ATTN_ERR_ARGUMENT, "%s[%" PRId64 "] (%" PRId64 ") is not within 0..%" PRId64, name, b,
              length, most);
    }
    return ATTN_OK;
}

attn_status attn_args_validate(const attn_problem *p, const attn_args *args, attn_error *error)
{
    TRY(attn_tensors_check_pointers(p, args, error));
    if (p->mask.lengths_q)
        TRY(check_lengths("lengths_q", args->lengths_q, p->mask.index_dtype, p->shape.batch, p->shape.len_q, error));
    if (p->mask.lengths_kv)
        TRY(check_lengths("lengths_kv", args->lengths_kv, p->mask.index_dtype, p->shape.batch, p->shape.len_kv, error));
    return ATTN_OK;
}
