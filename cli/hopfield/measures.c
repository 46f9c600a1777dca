/* SPDX-License-Identifier: MIT
 *
 * measures.c - what `attn hopfield` says about a memory beside retrieval. */
#include <inttypes.h>
#include <math.h>

#include "cli/input/small_tensor.h"
#include "hopfield.h"
#include "testing/text/failure.h"

static attn_status add_basins(hopfield_work *w, attn_error *error)
{
    const hopfield_settings *s = w->settings;
    const double tolerance = s->tolerance < 0 ? 1e-6 : s->tolerance;
    attn_status status = ATTN_OK;
    w->basins = need_memory(w->memory.stored, sizeof *w->basins);
    for (int64_t m = 0; m < w->memory.stored && status == ATTN_OK; m++)
        status =
            attn_hopfield_basin(&w->memory, m, s->basin, s->noise, s->common.seed, s->iterations, tolerance, &w->basins[m], error);
    return status;
}

/* The energy from -r to r, half again as far as the patterns are from 0 along this channel. */
static attn_status add_landscape(hopfield_work *w, attn_error *error)
{
    const attn_hopfield *m = &w->memory;
    const int64_t axis = w->settings->landscape, points = LANDSCAPE_POINTS;
    double reach = 0;
    void *x, *energy;
    if (axis >= m->dim)
        return failure(error, ATTN_ERR_ARGUMENT, "--landscape (%" PRId64 ") is not between 0 and %" PRId64, axis, m->dim - 1);
    for (int64_t k = 0; k < m->stored; k++) reach = fmax(reach, fabs(hopfield_number(w, m->patterns.data, k * m->dim + axis)));
    reach = reach > 0 ? 1.5 * reach : 1;
    attn_status status = attn_archive_allocate(w->out, "landscape_x", ATTN_F64, 1, &points, &x, error);
    if (status == ATTN_OK) status = attn_archive_allocate(w->out, "landscape_energy", ATTN_F64, 1, &points, &energy, error);
    return status == ATTN_OK ? attn_hopfield_landscape(m, axis, points, -reach, reach, x, energy, error) : status;
}

/* A gradient of the file, if it is there, in the shape and type of what it belongs to. */
static attn_status find_gradient(const hopfield_work *w, const char *name, int rank, const int64_t *shape, attn_input *slot,
                                 attn_error *error)
{
    const attn_archive_tensor *t;
    if (!attn_archive_find(w->file, name)) return ATTN_OK;
    const attn_status status =
        small_tensor_find_shape(w->file, name, rank, shape, rank > 1 ? "[state, channel]" : "[state]", &t, error);
    if (status != ATTN_OK) return status;
    if (t->dtype != w->memory.dtype)
        return failure(error, ATTN_ERR_UNSUPPORTED, "tensor '%s' is %s, and patterns are %s", name, attn_dtype_name(t->dtype),
                       attn_dtype_name(w->memory.dtype));
    *slot = attn_in(t->data);
    return ATTN_OK;
}

static attn_status add_gradients(hopfield_work *w, attn_error *error)
{
    const attn_hopfield *m = &w->memory;
    const int64_t states[2] = {w->count, m->dim}, patterns[2] = {m->stored, m->dim};
    attn_hopfield_tensors forward = {.struct_size = sizeof forward, .states = attn_in(w->states)}, backward = forward;
    attn_status status = find_gradient(w, "dupdated", 2, states, &backward.grad_updated, error);
    if (status == ATTN_OK) status = find_gradient(w, "denergy", 1, states, &backward.grad_energy, error);
    if (status == ATTN_OK && !backward.grad_updated.data && !backward.grad_energy.data)
        status = failure(error, ATTN_ERR_ARGUMENT, "--backward needs a tensor 'dupdated' or 'denergy'");
    const struct {
        const char *name;
        int rank;
        const int64_t *shape;
        attn_output *slot;
    } made[] = {{"updated", 2, states, &forward.updated},
                {"energy", 1, states, &forward.energy},
                {"dstates", 2, states, &backward.grad_states},
                {"dpatterns", 2, patterns, &backward.grad_patterns}};
    for (int k = 0; k < 4 && status == ATTN_OK; k++)
        status = attn_archive_allocate(w->out, made[k].name, m->dtype, made[k].rank, made[k].shape, &made[k].slot->data, error);
    if (status == ATTN_OK) status = attn_hopfield_update(m, w->count, &forward, error);
    return status == ATTN_OK ? attn_hopfield_update_backward(m, w->count, &backward, error) : status;
}

attn_status hopfield_measure(hopfield_work *w, attn_error *error)
{
    attn_status status = attn_hopfield_separation(&w->memory, &w->separation, error);
    if (status == ATTN_OK && w->settings->basin) status = add_basins(w, error);
    if (status == ATTN_OK && w->settings->landscape >= 0) status = add_landscape(w, error);
    return status == ATTN_OK && w->settings->backward ? add_gradients(w, error) : status;
}
