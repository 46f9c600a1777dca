/* SPDX-License-Identifier: MIT
 * frequencies.c - RoPE frequencies for sequences longer than those a model was trained on. */
#include <inttypes.h>
#include <math.h>

#include "../common/slots.h"
#include "attn/position.h"

static const double TWO_PI = 6.283185307179586476925286766559;

/* A frequency is fast with more than fast_turns within the original length, and slow with fewer than slow_turns. */
static double fast_turns(const attn_rope_scaling *s)
{
    return s->fast > 0 ? s->fast : s->kind == ATTN_ROPE_SCALING_LLAMA3 ? 4 : 32;
}
static double slow_turns(const attn_rope_scaling *s) { return s->slow > 0 ? s->slow : 1; }

static attn_status check_scaling(const attn_rope_scaling *s, attn_error *error)
{
    CHECK(s->kind >= ATTN_ROPE_SCALING_LINEAR && s->kind <= ATTN_ROPE_SCALING_LLAMA3, ATTN_ERR_ARGUMENT,
          "scaling.kind is %d; known: 0 (linear), 1 (NTK), 2 (dynamic NTK), 3 (YaRN), 4 (Llama 3)", (int)s->kind);
    const int ntk = s->kind == ATTN_ROPE_SCALING_NTK || s->kind == ATTN_ROPE_SCALING_NTK_DYNAMIC;
    CHECK(s->dim >= (ntk ? 4 : 0) && s->dim % 2 == 0, ATTN_ERR_ARGUMENT, "scaling.dim is %" PRId64 "; it must be even%s", s->dim,
          ntk ? " and above 2 for NTK" : "");
    CHECK(s->base >= 0 && (s->base > 1 || s->base == 0) && isfinite(s->base), ATTN_ERR_ARGUMENT,
          "scaling.base is %g; it must be above 1 and finite (0 for 10000)", s->base);
    CHECK(s->factor >= 1 && isfinite(s->factor), ATTN_ERR_ARGUMENT, "scaling.factor is %g; it must be at least 1", s->factor);
    CHECK(s->kind < ATTN_ROPE_SCALING_NTK_DYNAMIC || s->original_length > 0, ATTN_ERR_ARGUMENT,
          "scaling.original_length is %" PRId64 "; it must be at least 1", s->original_length);
    CHECK(s->length >= 0, ATTN_ERR_ARGUMENT, "scaling.length is %" PRId64 "; it must be at least 0", s->length);
    CHECK(s->fast >= 0 && s->slow >= 0 && isfinite(s->fast) && isfinite(s->slow) && (s->fast == 0 || s->fast > s->slow),
          ATTN_ERR_ARGUMENT, "scaling.fast is %g and slow %g; fast must be above slow (0 for the defaults)", s->fast, s->slow);
    CHECK(s->kind < ATTN_ROPE_SCALING_YARN || fast_turns(s) > slow_turns(s), ATTN_ERR_ARGUMENT,
          "scaling.fast is %g and slow %g; fast must be above slow", fast_turns(s), slow_turns(s));
    return ATTN_OK;
}

/* The base whose lowest frequency is 1/stretch that of the old base. */
static double ntk_base(double base, double stretch, double dim) { return base * pow(stretch, dim / (dim - 2)); }

static double clamped(double x) { return fmin(fmax(x, 0), 1); }

/* The (fractional) pair of channels that makes this many turns within the original length. */
static double pair_of_turns(const attn_rope_scaling *s, double base, double turns)
{
    return (double)s->dim * log((double)s->original_length / (turns * TWO_PI)) / (2 * log(base));
}

static void yarn(const attn_rope_scaling *s, double base, double *frequencies)
{
    double a = fmax(floor(pair_of_turns(s, base, fast_turns(s))), 0);
    double b = fmin(ceil(pair_of_turns(s, base, slow_turns(s))), (double)s->dim - 1);
    /* As YaRN's authors do.  If no channel turns often enough, b < a leaves all frequencies unchanged, as in their code. */
    if (b == a) b = a + 0.001;
    for (int64_t i = 0; i < s->dim / 2; i++) {
        double r = clamped(((double)i - a) / (b - a));
        frequencies[i] *= (1 - r) + r / s->factor;
    }
}

static void llama3(const attn_rope_scaling *s, double *frequencies)
{
    const double fast = fast_turns(s), slow = slow_turns(s);
    for (int64_t i = 0; i < s->dim / 2; i++) {
        double keep = clamped(((double)s->original_length * frequencies[i] / TWO_PI - slow) / (fast - slow));
        frequencies[i] *= (1 - keep) / s->factor + keep;
    }
}

attn_status attn_rope_frequencies(const attn_rope_scaling *scaling, double *frequencies, double *magnitude, attn_error *error)
{
    attn_rope_scaling copy;
    const attn_rope_scaling *s = &copy;
    CHECK(scaling, ATTN_ERR_ARGUMENT, "scaling is NULL");
    TRY(struct_read(&copy, sizeof copy, sizeof copy, scaling, "attn_rope_scaling", error));
    TRY(check_scaling(s, error));
    CHECK(sizes_fit((int64_t)sizeof *frequencies, &s->dim, 1), ATTN_ERR_SHAPE,
          "rope: dim (%" PRId64 ") is too large: the bytes of its frequencies overflow 64 bits", s->dim);
    CHECK(frequencies || s->dim == 0, ATTN_ERR_ARGUMENT, "frequencies is NULL");
    double base = s->base > 0 ? s->base : 10000, original = base, dim = (double)s->dim;
    if (s->kind == ATTN_ROPE_SCALING_NTK) base = ntk_base(base, s->factor, dim);
    if (s->kind == ATTN_ROPE_SCALING_NTK_DYNAMIC && s->length > s->original_length)
        base = ntk_base(base, s->factor * (double)s->length / (double)s->original_length - (s->factor - 1), dim);
    for (int64_t i = 0; i < s->dim / 2; i++) {
        frequencies[i] = pow(base, -2.0 * (double)i / dim);
        if (s->kind == ATTN_ROPE_SCALING_LINEAR) frequencies[i] /= s->factor;
    }
    if (s->kind == ATTN_ROPE_SCALING_YARN) yarn(s, original, frequencies);
    if (s->kind == ATTN_ROPE_SCALING_LLAMA3) llama3(s, frequencies);
    if (magnitude) *magnitude = s->kind == ATTN_ROPE_SCALING_YARN ? 0.1 * log(s->factor) + 1 : 1;
    return succeed(error);
}
