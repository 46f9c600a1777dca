/* SPDX-License-Identifier: MIT
 *
 * hopfield.c - `attn hopfield`: stores the patterns of a file, and retrieves them from noisy ones. */
#include "attn/hopfield.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/io.h"
#include "attn/linear.h"
#include "cli/base/commands.h"
#include "cli/base/file.h"
#include "cli/base/options.h"
#include "cli/input/find.h"
#include "testing/text/failure.h"
#include "testing/text/json.h"

static const command_usage usage = {
    .name = "hopfield",
    .synopsis = "IN [-o OUT] [options]",
    .summary = "Stores the rows of the tensor patterns [pattern, channel] of IN and retrieves them from\n"
               "the rows of states [state, channel], or, without states, from each pattern plus noise.\n"
               "Prints the pattern nearest to each final state, and the energy of the state before\n"
               "every update and after the last.\n",
    .notes = "OUT receives found [state, channel], iterations [state], energies [state, update], the\n"
             "trajectory of each state as path [state, update, channel], patterns and beta;\n"
             "`attn plot hopfield` draws them.\n"
             "\n"
             "Examples:\n"
             "  attn hopfield patterns.safetensors --beta=8 --noise=0.3 --seed=1\n"
             "  attn hopfield memory.safetensors -o found.safetensors --beta=4 --json\n",
    .operands = {"input file"},
    .example = "attn hopfield patterns.safetensors --beta=8",
};

typedef struct hopfield_settings {
    const char *output;
    double beta, noise, tolerance;
    int64_t iterations;
    common_settings common;
} hopfield_settings;

static const option_row hopfield_options[] = {
    {"output", 'o', "FILE", "output file: .safetensors or .npz", OUTPUT(hopfield_settings, output, ".safetensors or .npz")},
    {"beta", 0, "B", "inverse temperature: the scale of attention (default: 1)", ABOVE_0(hopfield_settings, beta, 0)},
    {"noise", 0, "S", "standard deviation of the noise, without states (default: 0.1)", FROM_0(hopfield_settings, noise)},
    {"iterations", 0, "N", "at most N updates (default: 10)", WHOLE(hopfield_settings, iterations, 1, 1000000)},
    {"tolerance", 0, "T", "stop when no element changes by as much as T (default: 1e-6)", FROM_0(hopfield_settings, tolerance)},
    {0},
};

typedef struct work {
    const hopfield_settings *settings;
    attn_archive *file, *out;
    attn_hopfield memory;
    attn_options options; /* of memory */
    const void *states;
    void *noisy, *found;
    int64_t count, *iterations;
    double *energies;
} work;

static double number_of(const void *array, attn_dtype dtype, int64_t i)
{
    return dtype == ATTN_F64 ? ((const double *)array)[i] : (double)((const float *)array)[i];
}

static attn_status find_rows(const work *w, const char *name, const attn_archive_tensor **t, attn_error *error)
{
    char names[100];
    *t = attn_archive_find(w->file, name);
    input_list(w->file, names, sizeof names);
    if (!*t) return failure(error, ATTN_ERR_ARGUMENT, "no tensor '%s' (available: %s)", name, names);
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

static double number_at(const work *w, const void *array, int64_t i) { return number_of(array, w->memory.dtype, i); }

/* States: each pattern plus noise. */
static attn_status add_noise(work *w, attn_error *error)
{
    const attn_hopfield *m = &w->memory;
    w->count = m->stored;
    w->noisy = need_memory(w->count * m->dim, attn_dtype_size(m->dtype));
    w->states = w->noisy;
    const attn_output noise = {w->noisy, m->dtype, {0, 0, 0, 0}};
    const attn_status status =
        attn_random_features(ATTN_RANDOM_ROWS_NORMAL, w->count, m->dim, w->settings->common.seed, 0, &noise, error);
    for (int64_t i = 0; status == ATTN_OK && i < w->count * m->dim; i++) {
        const double x = number_at(w, m->patterns.data, i) + w->settings->noise * number_at(w, w->noisy, i);
        if (m->dtype == ATTN_F64) ((double *)w->noisy)[i] = x;
        else ((float *)w->noisy)[i] = (float)x;
    }
    return status;
}

static attn_status prepare(work *w, attn_error *error)
{
    const attn_archive_tensor *patterns, *states = NULL;
    attn_status status = find_rows(w, "patterns", &patterns, error);
    if (status != ATTN_OK) return status;
    w->options = options_for_library(&w->settings->common);
    w->memory = (attn_hopfield){.struct_size = sizeof(attn_hopfield),
                                .dtype = patterns->dtype,
                                .stored = patterns->shape[0],
                                .dim = patterns->shape[1],
                                .beta = w->settings->beta,
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

/* The trajectory of each state, before each update and after the last, with the patterns and beta. */
static attn_status add_path(work *w, attn_error *error)
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

static attn_status retrieve(work *w, attn_error *error)
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
    const attn_hopfield_tensors t = {.struct_size = sizeof t,
                                     .states = attn_in(w->states),
                                     .updated = attn_out(w->found),
                                     .iterations = attn_out(w->iterations),
                                     .energies = attn_out(w->energies)};
    status = attn_hopfield_retrieve(&w->memory, w->count, most, w->settings->tolerance, &t, error);
    if (status == ATTN_OK && w->settings->output) status = add_path(w, error);
    return status;
}

static int64_t nearest_pattern(const work *w, int64_t state, double *distance)
{
    const int64_t dim = w->memory.dim;
    int64_t best = 0;
    *distance = INFINITY;
    for (int64_t k = 0; k < w->memory.stored; k++) {
        double sum = 0;
        for (int64_t c = 0; c < dim; c++) {
            const double d = number_at(w, w->found, state * dim + c) - number_at(w, w->memory.patterns.data, k * dim + c);
            sum += d * d;
        }
        if (sqrt(sum) < *distance) *distance = sqrt(sum), best = k;
    }
    return best;
}

/* Prints the states; with --json, returns them as JSON. */
static char *show(const work *w)
{
    const int64_t most = w->settings->iterations;
    cJSON *object = w->settings->common.json ? json_begin() : NULL, *list = object ? json_list(object, "states") : NULL;
    for (int64_t i = 0; i < w->count; i++) {
        const double *energies = w->energies + i * (most + 1);
        double distance;
        const int64_t pattern = nearest_pattern(w, i, &distance);
        if (object) {
            cJSON *row = json_item(list);
            json_int(row, "state", i);
            json_int(row, "pattern", pattern);
            json_number(row, "distance", distance);
            json_int(row, "iterations", w->iterations[i]);
            cJSON *numbers = json_list(row, "energies");
            for (int64_t k = 0; k <= w->iterations[i]; k++) cJSON_AddItemToArray(numbers, cJSON_CreateNumber(energies[k]));
            continue;
        }
        printf("state %" PRId64 ": pattern %" PRId64 " at distance %.3g after %" PRId64 " updates, energy", i, pattern, distance,
               w->iterations[i]);
        for (int64_t k = 0; k <= w->iterations[i]; k++) printf(" %.6g", energies[k]);
        printf("\n");
    }
    return object ? json_compose(object) : NULL;
}

int attn_cmd_hopfield(int argc, char **argv)
{
    hopfield_settings settings = {.beta = 1, .noise = 0.1, .tolerance = 1e-6, .iterations = 10};
    const option_group groups[] = {{"Retrieval", hopfield_options, &settings}, {0}};
    work w = {.settings = &settings};
    attn_error error;
    int operand;
    const int early = options_begin(&usage, groups, &settings.common, argc, argv, 1, &operand);
    if (early >= 0) return early;
    attn_status status = attn_archive_read(&w.file, argv[operand], &error);
    if (status != ATTN_OK) return command_fail("hopfield", NULL, &error); /* the message names the file */
    status = file_check_distinct(settings.output, argv[operand], &error);
    if (status != ATTN_OK) return attn_archive_destroy(w.file), command_fail("hopfield", NULL, &error);
    status = prepare(&w, &error);
    if (status == ATTN_OK) status = retrieve(&w, &error);
    if (status != ATTN_OK) failure_about(&error, argv[operand]);
    char *json = status == ATTN_OK && settings.common.json ? show(&w) : NULL;
    status = file_finish(status, w.out, settings.output, json, &error);
    if (status == ATTN_OK && !settings.common.json) (void)show(&w);
    const int result = command_end(status, "hopfield", NULL, &error);
    attn_archive_destroy(w.out);
    attn_archive_destroy(w.file);
    free(w.noisy);
    return result;
}
