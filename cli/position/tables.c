/* SPDX-License-Identifier: MIT
 * tables.c - tables that follow from sizes: sinusoidal, slopes, frequencies, buckets. */
#include <inttypes.h>
#include <stdlib.h>

#include "cli/input/small_tensor.h"
#include "position.h"
#include "testing/text/failure.h"

/* ---- positions ---- */

attn_status position_list(const position_work *w, int64_t batch, int64_t tokens, attn_input *slot, attn_error *error)
{
    const attn_archive_tensor *t = w->file ? attn_archive_find(w->file, "positions") : NULL;
    *slot = (attn_input){0};
    if (!t) return ATTN_OK;
    if (t->dtype != ATTN_I64 && t->dtype != ATTN_I32)
        return failure(error, ATTN_ERR_UNSUPPORTED, "tensor 'positions' is %s; it must be i64 or i32", attn_dtype_name(t->dtype));
    const int64_t count = small_tensor_count(t);
    if (t->rank < 1 || t->rank > 2 || t->shape[t->rank - 1] != tokens || (count != tokens && count != batch * tokens))
        return failure(error, ATTN_ERR_SHAPE, "tensor 'positions' is not [%" PRId64 "], a position for each token", tokens);
    *slot = (attn_input){.data = t->data, .dtype = t->dtype};
    if (count == tokens) slot->stride[2] = slot->stride[3] = 1; /* the same for all entries */
    return ATTN_OK;
}

/* ---- tables ---- */

attn_status position_sinusoidal(position_work *w, attn_error *error)
{
    const position_settings *s = w->settings;
    const attn_archive_tensor *given = w->file ? attn_archive_find(w->file, "positions") : NULL;
    const int64_t tokens = given && given->rank ? given->shape[given->rank - 1] : s->tokens, shape[2] = {tokens, s->channels};
    const attn_dtype dtype = s->dtype ? s->dtype : ATTN_F32;
    attn_input positions;
    void *data;
    if (!tokens) return failure(error, ATTN_ERR_ARGUMENT, "sinusoidal needs --tokens, or a file with a tensor 'positions'");
    if (given && s->tokens && s->tokens != tokens)
        return failure(error, ATTN_ERR_ARGUMENT, "--tokens (%" PRId64 ") is not the number of positions in the file, %" PRId64,
                       s->tokens, tokens);
    attn_status status = position_list(w, 1, tokens, &positions, error);
    if (status == ATTN_OK) status = attn_archive_allocate(w->out, "table", dtype, 2, shape, &data, error);
    if (status != ATTN_OK) return status;
    const attn_output table = {.data = data, .dtype = dtype};
    return attn_sinusoidal(s->pairs, tokens, s->channels, s->base, &positions, &table, error);
}

attn_status position_slopes(position_work *w, attn_error *error)
{
    const attn_dtype dtype = w->settings->dtype ? w->settings->dtype : ATTN_F32;
    void *data;
    const attn_status status = attn_archive_allocate(w->out, "slopes", dtype, 1, &w->settings->heads, &data, error);
    if (status != ATTN_OK) return status;
    const attn_output slopes = {.data = data, .dtype = dtype};
    return attn_alibi_slopes(w->settings->heads, &slopes, error);
}

attn_status position_frequencies_of(const position_work *w, int64_t channels, double *frequencies, double *magnitude,
                                    attn_error *error)
{
    const position_settings *s = w->settings;
    attn_rope_scaling scaling = s->scaling;
    if (channels % 2) return failure(error, ATTN_ERR_ARGUMENT, "--channels (%" PRId64 ") is odd; pairs are rotated", channels);
    if (!scaling.struct_size) scaling = (attn_rope_scaling){.struct_size = sizeof scaling, .factor = 1};
    scaling.dim = channels, scaling.base = s->base, scaling.length = s->tokens;
    if (scaling.kind == ATTN_ROPE_SCALING_NTK_DYNAMIC && s->scaling.struct_size && !s->tokens)
        return failure(error, ATTN_ERR_ARGUMENT, "--scaling=ntk-dynamic needs --tokens, the length of the sequence");
    return attn_rope_frequencies(&scaling, frequencies, magnitude, error);
}

attn_status position_frequencies(position_work *w, attn_error *error)
{
    const int64_t channels = w->settings->channels, pairs = channels / 2;
    void *frequencies, *magnitude;
    attn_status status = attn_archive_allocate(w->out, "frequencies", ATTN_F64, 1, &pairs, &frequencies, error);
    if (status == ATTN_OK) status = attn_archive_allocate(w->out, "magnitude", ATTN_F64, 0, NULL, &magnitude, error);
    return status == ATTN_OK ? position_frequencies_of(w, channels, frequencies, magnitude, error) : status;
}

/* ---- distances ---- */

attn_status position_rule(const position_work *w, int64_t heads, attn_distance_bias *rule, attn_error *error)
{
    const position_settings *s = w->settings;
    const int is_t5 = s->spec.t5 != SPEC_T5_NONE;
    if (is_t5 == (s->spec.clipped > 0))
        return failure(error, ATTN_ERR_ARGUMENT, "%s",
                       is_t5 ? "--t5 and --clipped are two rules; set only one of them" : "no rule; --t5 or --clipped=N sets it");
    *rule = (attn_distance_bias){.struct_size = sizeof *rule,
                                 .kind = is_t5 ? ATTN_DISTANCE_T5 : ATTN_DISTANCE_CLIPPED,
                                 .heads = heads,
                                 .buckets = is_t5 ? s->spec.t5_buckets : 0,
                                 .max_distance = is_t5 ? s->spec.t5_distance : s->spec.clipped,
                                 .causal = s->spec.t5 == SPEC_T5_CAUSAL,
                                 .len_q = s->tokens,
                                 .len_kv = s->keys ? s->keys : s->tokens,
                                 .offset_q = s->offset};
    if (attn_distance_buckets(rule) > 0) return ATTN_OK;
    return failure(error, ATTN_ERR_ARGUMENT, "--t5: %" PRId64 " buckets up to %" PRId64 " are no rule of T5", s->spec.t5_buckets,
                   s->spec.t5_distance);
}

attn_status position_buckets(position_work *w, attn_error *error)
{
    attn_distance_bias rule = {0};
    void *data, *count;
    attn_status status = position_rule(w, 1, &rule, error);
    const int64_t shape[2] = {rule.len_q, rule.len_kv};
    if (status == ATTN_OK) status = attn_archive_allocate(w->out, "buckets", ATTN_I64, 2, shape, &data, error);
    if (status == ATTN_OK) status = attn_archive_allocate(w->out, "count", ATTN_I64, 0, NULL, &count, error);
    if (status != ATTN_OK) return status;
    *(int64_t *)count = attn_distance_buckets(&rule);
    for (int64_t i = 0; i < rule.len_q; i++)
        for (int64_t j = 0; j < rule.len_kv; j++)
            ((int64_t *)data)[i * rule.len_kv + j] = attn_distance_bucket(&rule, i + rule.offset_q - j);
    return ATTN_OK;
}
