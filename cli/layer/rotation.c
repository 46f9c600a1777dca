/* SPDX-License-Identifier: MIT
 *
 * rotation.c - the rotation of a layer's queries and keys: from flags, the family, and what its model's file says, with the
 * scalings for long sequences that the library has. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "layer.h"
#include "testing/text/failure.h"

static const struct {
    const char *name;
    attn_rope_scaling_kind kind;
    int in_gguf; /* 1: llama.cpp computes the same */
} scalings[] = {
    {"linear", ATTN_ROPE_SCALING_LINEAR, 1}, {"llama3", ATTN_ROPE_SCALING_LLAMA3, 0}, {"yarn", ATTN_ROPE_SCALING_YARN, 0}};

static int64_t channels_of(const layer_work *w) { return w->rope.dim_rotary ? w->rope.dim_rotary : w->sizes.head_dim; }

/* A tensor of .gguf files divides each frequency by a number of its own. */
static attn_status divide(layer_work *w, const attn_archive_tensor *factors, attn_error *error)
{
    const int64_t half = channels_of(w) / 2;
    if (factors->dtype != ATTN_F32 || factors->rank != 1 || factors->shape[0] != half)
        return failure(error, ATTN_ERR_SHAPE, "tensor 'rope_freqs.weight' is not f32 [%" PRId64 "]", half);
    const double base = w->rope.base > 0 ? w->rope.base : 10000;
    w->frequencies = need_memory(half, sizeof *w->frequencies);
    for (int64_t i = 0; i < half; i++)
        w->frequencies[i] = pow(base, -(double)i / (double)half) / (double)((const float *)factors->data)[i];
    return ATTN_OK;
}

static attn_status scale(layer_work *w, attn_error *error)
{
    const layer_model *m = &w->model;
    const attn_archive *file = layer_weights_file(w);
    const attn_archive_tensor *factors = attn_archive_find(file, "rope_freqs.weight");
    const int in_gguf = attn_archive_get_metadata(file, "general.architecture") != NULL;
    size_t n = 0;
    if (w->settings->plain) return ATTN_OK;
    if (!m->scaling || strcmp(m->scaling, "none") == 0 || strcmp(m->scaling, "default") == 0)
        return factors && m->family.rope != FAMILY_NO_ROPE ? divide(w, factors, error) : ATTN_OK;
    while (n < sizeof scalings / sizeof *scalings && strcmp(scalings[n].name, m->scaling) != 0) n++;
    if (n == sizeof scalings / sizeof *scalings || (in_gguf && !scalings[n].in_gguf))
        return failure(error, ATTN_ERR_UNSUPPORTED,
                       "rotations that are scaled (%.20s) are not computed; --plain leaves the scaling out", m->scaling);
    const int yarn = scalings[n].kind == ATTN_ROPE_SCALING_YARN;
    const attn_rope_scaling scaling = {.struct_size = sizeof scaling,
                                       .kind = scalings[n].kind,
                                       .dim = channels_of(w),
                                       .base = w->rope.base,
                                       .factor = m->factor,
                                       .original_length = (int64_t)m->original,
                                       .fast = yarn ? m->fast : m->high,
                                       .slow = yarn ? m->slow : m->low};
    w->frequencies = need_memory(channels_of(w) / 2 + 1, sizeof *w->frequencies);
    return attn_rope_frequencies(&scaling, w->frequencies, &w->rope.magnitude, error);
}

attn_status layer_apply_rope(layer_work *w, problem_spec *spec, attn_error *error)
{
    layer_model *m = &w->model;
    const family_model *f = &m->family;
    const layer_settings *s = w->settings;
    char text[120], channels[40] = "", how[40] = "";
    if (f->rope == FAMILY_NO_ROPE && !spec->rope) return ATTN_OK;
    if (!m->rope_channels && m->rope_part > 0) m->rope_channels = (int64_t)(m->rope_part * (double)w->sizes.head_dim);
    if (s->rope_channels) m->rope_channels = s->rope_channels;
    if (f->rope_in_part && !m->rope_channels)
        return failure(error, ATTN_ERR_ARGUMENT,
                       "%s models rotate a part of the channels; --rope-channels=N or --config=config.json tells how many",
                       w->match.family->name);
    w->rope = (attn_rope){.struct_size = sizeof w->rope,
                          .pairs = s->rope_pairs_given        ? s->rope_pairs
                                   : f->rope == FAMILY_HALVES ? ATTN_ROPE_PAIRS_HALVES
                                                              : ATTN_ROPE_PAIRS_INTERLEAVED,
                          .dim_rotary = m->rope_channels,
                          .base = s->rope_base > 0 ? s->rope_base : m->rope_base};
    const attn_status status = scale(w, error);
    w->rope.frequencies = w->frequencies;
    if (status != ATTN_OK || f->rope == FAMILY_NO_ROPE || spec->rope) return status;
    spec->rope = 1;
    if (m->rope_channels) (void)snprintf(channels, sizeof channels, " of %" PRId64 " channels", m->rope_channels);
    if (w->frequencies) (void)snprintf(how, sizeof how, ", scaled by %.20s", m->scaling ? m->scaling : "rope_freqs.weight");
    (void)snprintf(text, sizeof text, "rope %s%s, base %g%s", w->rope.pairs == ATTN_ROPE_PAIRS_HALVES ? "halves" : "interleaved",
                   channels, w->rope.base > 0 ? w->rope.base : 10000, how);
    layer_tell(w, text);
    return ATTN_OK;
}
