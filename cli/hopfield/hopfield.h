/* SPDX-License-Identifier: MIT
 *
 * hopfield.h - what `attn hopfield` works on. */
#ifndef ATTN_CLI_HOPFIELD_HOPFIELD_H
#define ATTN_CLI_HOPFIELD_HOPFIELD_H

#include "attn/hopfield.h"
#include "attn/io.h"
#include "cli/base/options.h"

enum { HOPFIELD_MODERN = -1, LANDSCAPE_POINTS = 200 };

typedef struct hopfield_settings {
    const char *output;
    double beta, noise, tolerance; /* beta 0, tolerance -1: not given */
    int64_t iterations;
    int classical;            /* an attn_hopfield_order, or HOPFIELD_MODERN */
    int64_t basin, landscape; /* samples, 0: none; an axis, -1: none */
    int backward;
    common_settings common;
} hopfield_settings;

typedef struct hopfield_work {
    const hopfield_settings *settings;
    attn_archive *file, *out;
    attn_hopfield memory;
    attn_options options; /* of memory */
    const void *states;
    void *noisy, *found;
    int64_t count, *iterations;
    double *energies;
    double separation, *basins; /* basins: of each pattern, NULL without --basin */
} hopfield_work;

/* Element i of an array of the memory's type. */
double hopfield_number(const hopfield_work *w, const void *array, int64_t i);

/* ---- states.c ---- */

/* The patterns and states of the file, or states that are patterns and noise. */
attn_status hopfield_prepare(hopfield_work *w, attn_error *error);

/* ---- retrieve.c ---- */

/* Fills found, iterations and energies, in the archive `out`, and what an output file has besides. */
attn_status hopfield_retrieve(hopfield_work *w, attn_error *error);

/* ---- measures.c ---- */

/* Separation and basins; with an output file, energies along an axis and gradients of an update. */
attn_status hopfield_measure(hopfield_work *w, attn_error *error);

#endif
