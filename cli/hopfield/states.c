/* SPDX-License-Identifier: MIT
 *
 * states.c - the patterns and states of a file. */
#include <inttypes.h>
#include <math.h>

#include "attn/linear.h"
#include "cli/input/small_tensor.h"
#include "hopfield.h"
#include "testing/text/failure.h"

static double number_of(const void *array, attn_dtype dtype, int64_t i)
{
    return dtype == ATTN_F64 ? ((const double *)array)[i] : (double)((const float *)array)[i];
}

static attn_status find_rows(const hopfield_work *w, const char *name, const attn_archive_tensor **t, attn_error *error)
{
    const attn_status status = small_tensor_find(w->file, name, t, error);
    if (status != ATTN_OK) return status;
    if ((*t)->dtype != ATTN_F32 && (*t)->dtype != ATTN_F64)
        return failure(error, ATTN_ERR_UNSUPPORTED, "tensor '%s' is %s; it must be f32 or f64", name, attn_dtype_name((*t)->dtype));
    if ((*t)->rank != 2 || (*t)->shape[0] < 1 || (*t)->shape[1] < 1)
        return failure(error, ATTN_ERR_SHAPE, "tensor '%s' is not [row, channel] with at least one row and one channel", name);
    for (int64_t i = 0; i < (*t)->shape[0] * (*t)->shape[1]; i++)
        if (!isfinite(number_of((*t)->data, (*t)->dtype, i)))
            return failure(error, ATTN_ERR_ARGUMENT, "tensor '%s' has %g at row %" PRId64 ", channel %" PRId64, name,
                           number_of((*t)->data, (*t)->dtype, i), i / (*t)->shape[1], i % (*t)->shape[1]);
    return ATTN_OK;
}

double hopfield_number(const hopfield_work *w, const void *array, int64_t i) { return number_of(array, w->memory.dtype, i); }

/* States: each pattern plus noise; the signs of that for the classical network. */
static attn_status add_noise(hopfield_work *w, attn_error *error)
{
    const attn_hopfield *m = &w->memory;
    w->count = m->stored;
    w->noisy = need_memory(w->count * m->dim, attn_dtype_size(m->dtype));
    w->states = w->noisy;
    const attn_output noise = {w->noisy, m->dtype, {0, 0, 0, 0}};
    const attn_status status =
        attn_random_features(ATTN_RANDOM_ROWS_NORMAL, w->count, m->dim, w->settings->common.seed, 0, &noise, error);
    for (int64_t i = 0; status == ATTN_OK && i < w->count * m->dim; i++) {
        double x = hopfield_number(w, m->patterns.data, i) + w->settings->noise * hopfield_number(w, w->noisy, i);
        if (w->settings->classical != HOPFIELD_MODERN) x = x < 0 ? -1 : 1;
        if (m->dtype == ATTN_F64) ((double *)w->noisy)[i] = x;
        else ((float *)w->noisy)[i] = (float)x;
    }
    return status;
}

attn_status hopfield_prepare(hopfield_work *w, attn_error *error)
{
    const attn_archive_tensor *patterns, *states = NULL;
    attn_status status = find_rows(w, "patterns", &patterns, error);
    if (status != ATTN_OK) return status;
    w->options = options_for_library(&w->settings->common);
    w->memory = (attn_hopfield){.struct_size = sizeof(attn_hopfield),
                                .dtype = patterns->dtype,
                                .stored = patterns->shape[0],
                                .dim = patterns->shape[1],
                                .beta = w->settings->beta > 0 ? w->settings->beta : 1,
                                .patterns = attn_in(patterns->data),
                                .options = &w->options};
    if (!attn_archive_find(w->file, "states")) return add_noise(w, error);
    status = find_rows(w, "states", &states, error);
    if (status != ATTN_OK) return status;
    if (states->shape[1] != patterns->shape[1] || states->dtype != patterns->dtype)
        return failure(error, ATTN_ERR_SHAPE, "tensor 'states' is %s with %" PRId64 " channels, and patterns are %s with %" PRId64,
                       attn_dtype_name(states->dtype), states->shape[1], attn_dtype_name(patterns->dtype), patterns->shape[1]);
    w->count = states->shape[0];
    w->states = states->data;
    return ATTN_OK;
}
