/* SPDX-License-Identifier: MIT
 *
 * retrieve.c - states move to patterns. */
#include <stdlib.h>
#include <string.h>

#include "hopfield.h"
#include "testing/text/failure.h"

/* The trajectory of each state, before each update and after the last, with the patterns and beta. */
static attn_status add_path(hopfield_work *w, attn_error *error)
{
    const attn_hopfield *m = &w->memory;
    const int64_t most = w->settings->iterations, shapes[2][3] = {{w->count, most + 1, m->dim}, {m->stored, m->dim}};
    const size_t row = (size_t)m->dim * attn_dtype_size(m->dtype);
    void *path, *beta;
    attn_status status = attn_archive_allocate(w->out, "path", m->dtype, 3, shapes[0], &path, error);
    if (status == ATTN_OK) status = attn_archive_allocate(w->out, "beta", ATTN_F64, 0, NULL, &beta, error);
    if (status == ATTN_OK) status = attn_archive_add(w->out, "patterns", m->dtype, 2, shapes[1], m->patterns.data, error);
    if (status != ATTN_OK) return status;
    *(double *)beta = m->beta;
    for (int64_t i = 0; i < w->count && status == ATTN_OK; i++) {
        char *at = (char *)path + (size_t)(i * (most + 1)) * row;
        memcpy(at, (const char *)w->states + (size_t)i * row, row);
        for (int64_t k = 0; k < most && status == ATTN_OK; k++, at += row) {
            const attn_hopfield_tensors t = {.struct_size = sizeof t, .states = attn_in(at), .updated = attn_out(at + row)};
            if (k < w->iterations[i]) status = attn_hopfield_update(m, 1, &t, error);
            else memcpy(at + row, at, row);
        }
    }
    return status;
}

/* Updates of the classical network until one changes nothing, for each state. */
static attn_status retrieve_classical(hopfield_work *w, attn_error *error)
{
    const attn_hopfield *m = &w->memory;
    const int64_t most = w->settings->iterations, shape[2] = {m->stored, m->dim};
    const size_t row = (size_t)m->dim * attn_dtype_size(m->dtype);
    const attn_hopfield_order order = (attn_hopfield_order)w->settings->classical;
    char *next = need_memory(m->dim, attn_dtype_size(m->dtype));
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < w->count && status == ATTN_OK; i++) {
        char *state = (char *)w->found + (size_t)i * row;
        double *energies = w->energies + i * (most + 1);
        int changed = 1;
        memcpy(state, (const char *)w->states + (size_t)i * row, row);
        for (int64_t k = 0; k <= most && status == ATTN_OK; k++) {
            double energy = 0; /* room for either type */
            const attn_hopfield_tensors t = {
                .struct_size = sizeof t, .states = attn_in(state), .updated = attn_out(next), .energy = attn_out(&energy)};
            status = attn_hopfield_classical(m, order, 1, &t, error);
            energies[k] = hopfield_number(w, &energy, 0);
            if (k == most || !changed || status != ATTN_OK) continue;
            changed = memcmp(state, next, row) != 0;
            memcpy(state, next, row);
            w->iterations[i]++;
        }
    }
    free(next);
    if (status != ATTN_OK || !w->settings->output) return status;
    return attn_archive_add(w->out, "patterns", m->dtype, 2, shape, m->patterns.data, error);
}

attn_status hopfield_retrieve(hopfield_work *w, attn_error *error)
{
    const int64_t most = w->settings->iterations;
    const int64_t shapes[3][2] = {{w->count, w->memory.dim}, {w->count}, {w->count, most + 1}};
    void *data[3];
    attn_status status = attn_archive_create(&w->out, error);
    if (status == ATTN_OK) status = attn_archive_allocate(w->out, "found", w->memory.dtype, 2, shapes[0], &data[0], error);
    if (status == ATTN_OK) status = attn_archive_allocate(w->out, "iterations", ATTN_I64, 1, shapes[1], &data[1], error);
    if (status == ATTN_OK) status = attn_archive_allocate(w->out, "energies", ATTN_F64, 2, shapes[2], &data[2], error);
    if (status != ATTN_OK) return status;
    w->found = data[0], w->iterations = data[1], w->energies = data[2];
    if (w->settings->classical != HOPFIELD_MODERN) return retrieve_classical(w, error);
    const attn_hopfield_tensors t = {.struct_size = sizeof t,
                                     .states = attn_in(w->states),
                                     .updated = attn_out(w->found),
                                     .iterations = attn_out(w->iterations),
                                     .energies = attn_out(w->energies)};
    status =
        attn_hopfield_retrieve(&w->memory, w->count, most, w->settings->tolerance < 0 ? 1e-6 : w->settings->tolerance, &t, error);
    if (status == ATTN_OK && w->settings->output) status = add_path(w, error);
    return status;
}
