/* SPDX-License-Identifier: MIT
 * linear.c - every rule that a problem of linear attention and its arguments must keep.  Each has a row with its exact message in
 * tests/unit/test_linear_refused.c. */
#include "linear.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "../base/error.h"
#include "../base/names.h"
#include "plan.h"
#include "tensors.h"

static int has_sum(const attn_linear_problem *p) { return p->denominator != ATTN_DENOMINATOR_NONE; }

/* The tensors of problem p, and where their pointers stand in the arguments. */
static int tensor_table(attn_linear_problem *p, attn_tensor_row *out, size_t *offsets)
{
    const attn_shape *s = &p->shape;
    const int64_t B = s->batch, Hq = s->heads_q, Hkv = s->heads_kv, Sq = s->len_q, Skv = s->len_kv;
    const int64_t df = attn_features_count(p->features, s->dim_qk, p->random_features);
    const int64_t of_decay = p->decay == ATTN_DECAY_CHANNEL ? df : 1;
    const attn_dtype stored = p->q.dtype ? p->q.dtype : ATTN_F32, compute = stored == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    const unsigned halves = 1u << ATTN_F16 | 1u << ATTN_BF16, floats = halves | 1u << ATTN_F32 | 1u << ATTN_F64;
    const unsigned same = stored == ATTN_F64 ? 1u << ATTN_F64 : halves | 1u << ATTN_F32, only = 1u << compute;
    const char *floats_text = "f32, f64, f16 or bf16";
    const char *same_text = stored == ATTN_F64 ? "f64, as q is f64" : "f32, f16 or bf16, as q is not f64";
    const char *only_text = stored == ATTN_F64 ? "f64, the compute type" : "f32, the compute type";
    const int backward = p->op == ATTN_BACKWARD, sum = has_sum(p), delta = p->rule == ATTN_RULE_DELTA,
              low = p->rule == ATTN_RULE_LOW_RANK;

/* clang-format off */
#define T(used, output, name, field, h, t, c, natural, types, text, last) \
    {{#name, output, used, &p->field, {B, h, t, c}, natural, types, text, last, 0, NULL}, offsetof(attn_linear_args, name)}
#define ARRAY(used, name, n, dtype) {{#name, 0, used, NULL, {n, 1, 1, 1}, dtype, 0, "", 0, 0, NULL}, offsetof(attn_linear_args, name)}
    /* clang-format on */
    const struct {
        attn_tensor_row row;
        size_t offset;
    } table[] = {
        T(1, 0, q, q, Hq, Sq, s->dim_qk, ATTN_F32, floats, floats_text, 1),
        T(1, 0, k, k, Hkv, Skv, s->dim_qk, stored, same, same_text, 1),
        T(1, 0, v, v, Hkv, Skv, s->dim_v, stored, same, same_text, 1),
        T(!backward || sum, !backward, o, o, Hq, Sq, s->dim_v, stored, same, same_text, 1),
        T(p->decay != ATTN_DECAY_NONE, 0, decay, decay_layout, Hkv, Skv, of_decay, compute, floats, floats_text, 0),
        T(delta, 0, beta, beta, Hkv, Skv, 1, compute, floats, floats_text, 0),
        T(low, 0, erase, erase, Hkv, Skv, df, compute, floats, floats_text, 1),
        T(low, 0, write, write, Hkv, Skv, df, compute, floats, floats_text, 1),
        T(p->final_state, 1, final_state, state, Hkv, df, s->dim_v, compute, only, only_text, 1),
        T(p->final_state && sum, 1, final_sum, state_sum, Hkv, df, 1, compute, only, only_text, 0),
        T(p->initial_state, 0, initial_state, state, Hkv, df, s->dim_v, compute, only, only_text, 1),
        T(p->initial_state && sum, 0, initial_sum, state_sum, Hkv, df, 1, compute, only, only_text, 0),
        T(p->want_denominator, !backward, denominators, denominators, Hq, Sq, 1, compute, only, only_text, 0),
        T(backward, 0, grad_o, grad_o, Hq, Sq, s->dim_v, stored, same, same_text, 1),
        T(backward, 1, grad_q, grad_q, Hq, Sq, s->dim_qk, stored, same, same_text, 1),
        T(backward, 1, grad_k, grad_k, Hkv, Skv, s->dim_qk, stored, same, same_text, 1),
        T(backward, 1, grad_v, grad_v, Hkv, Skv, s->dim_v, stored, same, same_text, 1),
        T(backward && p->decay, 1, grad_decay, grad_decay, Hkv, Skv, of_decay, compute, floats, floats_text, 0),
        T(backward && delta, 1, grad_beta, grad_beta, Hkv, Skv, 1, compute, floats, floats_text, 0),
        T(backward && low, 1, grad_erase, grad_erase, Hkv, Skv, df, compute, floats, floats_text, 1),
        T(backward && low, 1, grad_write, grad_write, Hkv, Skv, df, compute, floats, floats_text, 1),
        T(p->grad_final_state, 0, grad_final_state, state, Hkv, df, s->dim_v, compute, only, only_text, 1),
        T(p->grad_final_state && sum, 0, grad_final_sum, state_sum, Hkv, df, 1, compute, only, only_text, 0),
        T(p->grad_initial_state, 1, grad_initial_state, state, Hkv, df, s->dim_v, compute, only, only_text, 1),
        T(p->grad_initial_state && sum, 1, grad_initial_sum, state_sum, Hkv, df, 1, compute, only, only_text, 0),
        ARRAY(p->features >= ATTN_FEATURES_FAVOR, omega, s->dim_qk ? p->random_features : 0, compute),
        ARRAY(p->lengths, lengths, B, p->index_dtype),
    };
#undef T
#undef ARRAY
    int count = 0;
    _Static_assert(sizeof table / sizeof *table <= ATTN_LINEAR_TENSORS, "raise ATTN_LINEAR_TENSORS");
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].row.used) out[count] = table[i].row, offsets[count++] = table[i].offset;
    return count;
}

static attn_status check_enums(const attn_linear_problem *p, attn_error *error)
{
    CHECK(p->op == ATTN_FORWARD || p->op == ATTN_BACKWARD, ATTN_ERR_ARGUMENT, "op is %d; known: 0 (forward), 1 (backward)",
          (int)p->op);
    CHECK(p->features >= ATTN_FEATURES_ELU1 && p->features <= ATTN_FEATURES_TRIGONOMETRIC, ATTN_ERR_ARGUMENT,
          "features is %d; known: 0 (elu1), 1 (identity), 2 (relu), 3 (softmax), 4 (favor), 5 (fourier), 6 (trigonometric)",
          (int)p->features);
    CHECK(p->scale_kind == ATTN_SCALE_DEFAULT || p->scale_kind == ATTN_SCALE_VALUE, ATTN_ERR_ARGUMENT,
          "scale_kind is %d; known: 0 (default), 1 (value)", (int)p->scale_kind);
    CHECK(p->denominator >= ATTN_DENOMINATOR_CLAMP && p->denominator <= ATTN_DENOMINATOR_NONE, ATTN_ERR_ARGUMENT,
          "denominator is %d; known: 0 (clamp), 1 (add), 2 (none)", (int)p->denominator);
    CHECK(p->rule >= ATTN_RULE_ADD && p->rule <= ATTN_RULE_LOW_RANK, ATTN_ERR_ARGUMENT,
          "rule is %d; known: 0 (add), 1 (delta), 2 (low rank)", (int)p->rule);
    CHECK(p->decay >= ATTN_DECAY_NONE && p->decay <= ATTN_DECAY_CHANNEL, ATTN_ERR_ARGUMENT,
          "decay is %d; known: 0 (none), 1 (per head), 2 (per channel)", (int)p->decay);
    CHECK(p->form >= ATTN_LINEAR_AUTO && p->form <= ATTN_LINEAR_QUADRATIC, ATTN_ERR_ARGUMENT,
          "form is %d; known: 0 (auto), 1 (chunked), 2 (recurrent), 3 (quadratic)", (int)p->form);
    CHECK(p->index_dtype == ATTN_DTYPE_DEFAULT || p->index_dtype == ATTN_I32 || p->index_dtype == ATTN_I64, ATTN_ERR_ARGUMENT,
          "index_dtype is %s; lengths are i32 or i64", attn_dtype_text(p->index_dtype));
    const struct {
        const char *name;
        int value;
    } flags[] = {
        {"causal", p->causal},
        {"lengths", p->lengths},
        {"initial_state", p->initial_state},
        {"final_state", p->final_state},
        {"want_denominator", p->want_denominator},
        {"grad_final_state", p->grad_final_state},
        {"grad_initial_state", p->grad_initial_state},
    };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        CHECK(flags[i].value == 0 || flags[i].value == 1, ATTN_ERR_ARGUMENT, "%s is %d; it is 0 or 1", flags[i].name,
              flags[i].value);
    for (int i = 0; i < 8; i++)
        CHECK(p->reserved[i] == 0, ATTN_ERR_ARGUMENT, "reserved[%d] is %" PRId64 "; it must be 0", i, p->reserved[i]);
    return ATTN_OK;
}

static attn_status check_numbers(const attn_linear_problem *p, attn_error *error)
{
    const int random = p->features >= ATTN_FEATURES_FAVOR;
    CHECK(!random || p->random_features >= 1, ATTN_ERR_ARGUMENT, "random_features is %" PRId64 "; this map needs at least 1",
          p->random_features);
    CHECK(random || p->random_features == 0, ATTN_ERR_ARGUMENT, "random_features is %" PRId64 "; only the random maps have them",
          p->random_features);
    CHECK(p->random_features <= INT64_MAX / 16, ATTN_ERR_SHAPE, "random_features (%" PRId64 ") is too large", p->random_features);
    CHECK(isfinite(p->feature_scale), ATTN_ERR_ARGUMENT, "feature_scale is %g; it must be finite", p->feature_scale);
    CHECK(random || p->feature_scale == 0, ATTN_ERR_ARGUMENT, "feature_scale is %g; only the random maps have it",
          p->feature_scale);
    CHECK(isfinite(p->scale), ATTN_ERR_ARGUMENT, "scale is %g; it must be finite", p->scale);
    CHECK(p->scale_kind == ATTN_SCALE_VALUE || p->scale == 0, ATTN_ERR_ARGUMENT,
          "scale is %g but scale_kind is not ATTN_SCALE_VALUE", p->scale);
    CHECK(p->epsilon >= 0 && isfinite(p->epsilon), ATTN_ERR_ARGUMENT,
          "epsilon is %g; it must be at least 0 and finite (0 for the default, 1e-6)", p->epsilon);
    CHECK(p->chunk >= 0, ATTN_ERR_ARGUMENT, "chunk is %" PRId64 "; it is at least 1, or 0 for the default", p->chunk);
    return ATTN_OK;
}

static attn_status check_fit(const attn_linear_problem *p, attn_error *error)
{
    const attn_shape *s = &p->shape;
    const int backward = p->op == ATTN_BACKWARD;
    CHECK(!p->causal || s->len_q == s->len_kv, ATTN_ERR_SHAPE, "causal needs len_q (%" PRId64 ") equal to len_kv (%" PRId64 ")",
          s->len_q, s->len_kv);
    const char *rule = p->rule == ATTN_RULE_DELTA ? "delta" : "low-rank";
    CHECK(p->causal || p->rule == ATTN_RULE_ADD, ATTN_ERR_UNSUPPORTED, "the %s rule is causal; set causal", rule);
    CHECK(p->causal || p->decay == ATTN_DECAY_NONE, ATTN_ERR_UNSUPPORTED, "a decay is causal; set causal");
    CHECK(p->causal || p->form != ATTN_LINEAR_RECURRENT, ATTN_ERR_UNSUPPORTED, "the recurrent form is causal; set causal");
    CHECK(p->rule == ATTN_RULE_ADD || !has_sum(p), ATTN_ERR_UNSUPPORTED,
          "the %s rule has no denominator; set denominator to ATTN_DENOMINATOR_NONE", rule);
    const int chunked = p->form == ATTN_LINEAR_CHUNKED || p->form == ATTN_LINEAR_QUADRATIC;
    CHECK(!chunked || p->rule != ATTN_RULE_LOW_RANK, ATTN_ERR_UNSUPPORTED, "the low-rank rule has the recurrent form only");
    CHECK(!p->want_denominator || has_sum(p), ATTN_ERR_ARGUMENT, "want_denominator is set but there is no denominator");
    CHECK(backward || !(p->grad_final_state || p->grad_initial_state), ATTN_ERR_ARGUMENT,
          "grad_%s_state is set but op is not ATTN_BACKWARD", p->grad_final_state ? "final" : "initial");
    CHECK(!backward || !p->final_state, ATTN_ERR_ARGUMENT, "final_state is set but op is ATTN_BACKWARD; it is written by forward");
    CHECK(!p->grad_initial_state || p->initial_state, ATTN_ERR_ARGUMENT, "grad_initial_state is set but initial_state is not");
    return ATTN_OK;
}

static attn_linear_need need_of(const attn_tensor_row *t, size_t offset)
{
    const int state = offset == offsetof(attn_linear_args, initial_state) || offset == offsetof(attn_linear_args, final_state);
    const int sum = offset == offsetof(attn_linear_args, initial_sum) || offset == offsetof(attn_linear_args, final_sum);
    return (attn_linear_need){t->name, offset, attn_dtype_bytes(t->layout ? t->layout->dtype : t->natural), t->output,
                              state ? 1
                              : sum ? 2
                                    : 0};
}

attn_status attn_linear_resolve(attn_linear_problem *p, attn_linear_needs *needs, attn_error *error)
{
    attn_tensor_row tensors[ATTN_LINEAR_TENSORS];
    size_t offsets[ATTN_LINEAR_TENSORS];
    TRY(check_enums(p, error));
    TRY(attn_shape_validate(&p->shape, error));
    TRY(check_numbers(p, error));
    TRY(check_fit(p, error));
    if (p->op == ATTN_BACKWARD && has_sum(p)) p->want_denominator = 1; /* it is an input */
    if (p->index_dtype == ATTN_DTYPE_DEFAULT) p->index_dtype = ATTN_I64;
    if (p->epsilon == 0) p->epsilon = 1e-6;
    const double dim = p->shape.dim_qk > 0 ? (double)p->shape.dim_qk : 1;
    if (p->features >= ATTN_FEATURES_FAVOR && p->feature_scale == 0) p->feature_scale = 1 / sqrt(sqrt(dim));
    if (p->scale_kind == ATTN_SCALE_DEFAULT) p->scale = has_sum(p) ? 1 : 1 / sqrt(dim);
    const int count = tensor_table(p, tensors, offsets);
    TRY(attn_tensor_list_resolve(tensors, count, error));
    needs->count = 0;
    for (int i = 0; i < count; i++) {
        const int64_t *n = tensors[i].shape;
        if (n[0] > 0 && n[1] > 0 && n[2] > 0 && n[3] > 0) needs->list[needs->count++] = need_of(&tensors[i], offsets[i]);
    }
    return ATTN_OK;
}

static const void *pointer_at(const attn_linear_args *args, const attn_linear_need *need)
{
    const void *pointer;
    memcpy(&pointer, (const char *)args + need->offset, sizeof pointer);
    return pointer;
}

attn_status attn_linear_args_validate(const attn_linear_problem *p, const attn_linear_needs *needs, const attn_linear_args *args,
                                      attn_error *error)
{
    for (int i = 0; i < needs->count; i++) {
        const attn_linear_need *n = &needs->list[i];
        const void *pointer = pointer_at(args, n);
        CHECK(pointer, ATTN_ERR_ARGUMENT, "args.%s is NULL", n->name);
        CHECK(((uintptr_t)pointer & (n->size - 1)) == 0, ATTN_ERR_ARGUMENT, "args.%s is not aligned to its elements of %zu bytes",
              n->name, n->size);
        for (int k = 0; n->output && k < needs->count; k++) {
            const attn_linear_need *other = &needs->list[k];
            CHECK(k == i || pointer_at(args, other) != pointer || (n->state && n->state == other->state), ATTN_ERR_ARGUMENT,
                  "args.%s and args.%s are the same pointer; outputs overlap nothing", n->name, other->name);
        }
    }
    const int in_place = args->final_state == args->initial_state;
    CHECK(!(p->initial_state && p->final_state && in_place && has_sum(p) && args->final_state) ||
              args->final_sum == args->initial_sum,
          ATTN_ERR_ARGUMENT, "args.final_state is args.initial_state, so args.final_sum must be args.initial_sum");
    for (int64_t b = 0; p->lengths && b < p->shape.batch; b++) {
        const int64_t length = attn_index_at(args->lengths, p->index_dtype, b);
        CHECK(length >= 0 && length <= p->shape.len_kv, ATTN_ERR_ARGUMENT,
              "lengths[%" PRId64 "] is %" PRId64 "; it must be within 0 and %" PRId64, b, length, p->shape.len_kv);
    }
    return ATTN_OK;
}
