/* SPDX-License-Identifier: MIT
 *
 * hopfield.c - `attn hopfield`: stores the patterns of a file, and retrieves them from noisy ones. */
#include "hopfield.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/commands.h"
#include "cli/base/file.h"
#include "cli/base/options.h"
#include "cli/base/tensor_file.h"
#include "testing/text/failure.h"
#include "testing/text/json.h"

static const command_usage usage = {
    .name = "hopfield",
    .synopsis = "IN [-o OUT] [options]",
    .summary = "Stores the rows of the tensor patterns [pattern, channel] of IN and retrieves them from\n"
               "the rows of states [state, channel], or, without states, from each pattern plus noise.\n"
               "Prints the pattern nearest to each final state, and the energy of the state before\n"
               "every update and after the last; then how far apart the patterns are, and how many random\n"
               "ones classical and modern networks can store.\n",
    .notes = "OUT receives found [state, channel], iterations [state], energies [state, update], the\n"
             "trajectory of each state as path [state, update, channel], patterns and beta;\n"
             "`attn plot hopfield` draws them. With --classical it has no path and no beta (draw what\n"
             "--json prints), and states that are drawn are the signs of patterns plus noise.\n"
             "--landscape adds landscape_x and landscape_energy; --backward adds, for one update of each\n"
             "state, updated and energy, and from dupdated and denergy of IN the gradients dstates and\n"
             "dpatterns.\n"
             "\n"
             "Examples:\n"
             "  attn hopfield patterns.safetensors --beta=8 --noise=0.3 --seed=1\n"
             "  attn hopfield signs.safetensors --classical=asynchronous\n"
             "  attn hopfield patterns.safetensors --basin=200 --noise=0.5\n"
             "  attn hopfield memory.safetensors -o found.safetensors --beta=4 --json\n",
    .operands = {"input file"},
    .example = "attn hopfield patterns.safetensors --beta=8",
};

static attn_status set_classical(void *target, const char *name, const char *value, attn_error *error)
{
    hopfield_settings *s = target;
    s->classical = ATTN_HOPFIELD_ORDER_SYNCHRONOUS;
    if (!value || strcmp(value, "synchronous") == 0) return ATTN_OK;
    s->classical = ATTN_HOPFIELD_ORDER_ASYNCHRONOUS;
    if (strcmp(value, "asynchronous") == 0) return ATTN_OK;
    return failure(error, ATTN_ERR_ARGUMENT, "%s: unknown order '%.40s'; known: synchronous, asynchronous", name, value);
}

static const option_row retrieval_options[] = {
    {"output", 'o', "FILE", "output file: .safetensors or .npz; - prints it",
     OUTPUT(hopfield_settings, output, ".safetensors or .npz")},
    {"beta", 0, "B", "inverse temperature: the scale of attention (default: 1)", ABOVE_0(hopfield_settings, beta, 0)},
    {"noise", 0, "S", "standard deviation of the noise, without states (default: 0.1)", FROM_0(hopfield_settings, noise)},
    {"iterations", 0, "N", "at most N updates (default: 10)", WHOLE(hopfield_settings, iterations, 1, 1000000)},
    {"tolerance", 0, "T", "stop when no element changes by as much as T (default: 1e-6)", FROM_0(hopfield_settings, tolerance)},
    {"classical", 0, "[=ORDER]", "the network of 1982; all units at once, or asynchronous", CALL(set_classical)},
    {0},
};

static const option_row measure_options[] = {
    {"basin", 0, "N", "the share of N noisy states of each pattern that return to it", WHOLE(hopfield_settings, basin, 1, 1000000)},
    {"landscape", 0, "CHANNEL", "also write the energy along this channel", WHOLE(hopfield_settings, landscape, 0, INT64_MAX)},
    {"backward", 0, NULL, "also write the gradients of one update", FLAG(hopfield_settings, backward)},
    {0},
};

static attn_status check_settings(const hopfield_settings *s, attn_error *error)
{
    const char *modern = s->beta > 0         ? "--beta"
                         : s->tolerance >= 0 ? "--tolerance"
                         : s->basin          ? "--basin"
                         : s->landscape >= 0 ? "--landscape"
                         : s->backward       ? "--backward"
                                             : NULL;
    if (s->classical != HOPFIELD_MODERN && modern)
        return failure(error, ATTN_ERR_ARGUMENT, "%s has no effect with --classical; it is of the modern network", modern);
    if (!s->output && (s->landscape >= 0 || s->backward))
        return failure(error, ATTN_ERR_ARGUMENT, "%s has no effect without -o", s->backward ? "--backward" : "--landscape");
    return ATTN_OK;
}

static int64_t nearest_pattern(const hopfield_work *w, int64_t state, double *distance)
{
    const int64_t dim = w->memory.dim;
    int64_t best = 0;
    *distance = INFINITY;
    for (int64_t k = 0; k < w->memory.stored; k++) {
        double sum = 0;
        for (int64_t c = 0; c < dim; c++) {
            const double d =
                hopfield_number(w, w->found, state * dim + c) - hopfield_number(w, w->memory.patterns.data, k * dim + c);
            sum += d * d;
        }
        if (sqrt(sum) < *distance) *distance = sqrt(sum), best = k;
    }
    return best;
}

static char *compose_json(const hopfield_work *w)
{
    const int64_t most = w->settings->iterations, dim = w->memory.dim;
    cJSON *object = json_begin(), *list = json_list(object, "states");
    for (int64_t i = 0; i < w->count; i++) {
        cJSON *row = json_item(list);
        double distance;
        json_int(row, "state", i);
        json_int(row, "pattern", nearest_pattern(w, i, &distance));
        json_number(row, "distance", distance);
        json_int(row, "iterations", w->iterations[i]);
        cJSON *numbers = json_list(row, "energies");
        for (int64_t k = 0; k <= w->iterations[i]; k++)
            cJSON_AddItemToArray(numbers, cJSON_CreateNumber(w->energies[i * (most + 1) + k]));
    }
    if (w->basins) list = json_list(object, "basins");
    for (int64_t m = 0; w->basins && m < w->memory.stored; m++) cJSON_AddItemToArray(list, cJSON_CreateNumber(w->basins[m]));
    json_number(object, "separation", w->separation);
    json_number(object, "classical_capacity", attn_hopfield_classical_capacity(dim));
    json_number(object, "modern_capacity", attn_hopfield_modern_capacity(dim));
    return json_compose(object);
}

static void print_text(const hopfield_work *w)
{
    const int64_t most = w->settings->iterations, dim = w->memory.dim;
    for (int64_t i = 0; i < w->count; i++) {
        double distance;
        const int64_t pattern = nearest_pattern(w, i, &distance);
        printf("state %" PRId64 ": pattern %" PRId64 " at distance %.3g after %" PRId64 " updates, energy", i, pattern, distance,
               w->iterations[i]);
        for (int64_t k = 0; k <= w->iterations[i]; k++) printf(" %.6g", w->energies[i * (most + 1) + k]);
        printf("\n");
    }
    for (int64_t m = 0; w->basins && m < w->memory.stored; m++)
        printf("pattern %" PRId64 ": %.0f of %" PRId64 " noisy states return\n", m, w->basins[m] * (double)w->settings->basin,
               w->settings->basin);
    printf("separation %.4g; of %" PRId64 " channels, capacity %.4g classical, %.4g modern\n", w->separation, dim,
           attn_hopfield_classical_capacity(dim), attn_hopfield_modern_capacity(dim));
}

int attn_cmd_hopfield(int argc, char **argv)
{
    hopfield_settings settings = {.noise = 0.1, .tolerance = -1, .iterations = 10, .classical = HOPFIELD_MODERN, .landscape = -1};
    const option_group groups[] = {{"Retrieval", retrieval_options, &settings}, {"Measures", measure_options, &settings}, {0}};
    hopfield_work w = {.settings = &settings};
    attn_error error;
    int operand;
    const int early = options_begin(&usage, groups, &settings.common, argc, argv, 1, &operand);
    if (early >= 0) return early;
    attn_status status = check_settings(&settings, &error);
    if (status != ATTN_OK) return command_fail("hopfield", NULL, &error);
    status = tensor_file_open(&w.file, argv[operand], NULL, &error);
    if (status != ATTN_OK) return command_fail("hopfield", NULL, &error); /* the message names the file */
    status = file_check_distinct(settings.output, argv[operand], &error);
    if (status != ATTN_OK) return attn_archive_destroy(w.file), command_fail("hopfield", NULL, &error);
    status = hopfield_prepare(&w, &error);
    if (status == ATTN_OK) status = hopfield_retrieve(&w, &error);
    if (status == ATTN_OK) status = hopfield_measure(&w, &error);
    if (status != ATTN_OK) failure_about(&error, argv[operand]);
    char *json = status == ATTN_OK && settings.common.json ? compose_json(&w) : NULL;
    status = file_finish(status, w.out, settings.output, json, &error);
    if (status == ATTN_OK && !settings.common.json && !settings.common.prints_numbers) print_text(&w);
    const int result = command_end(status, "hopfield", NULL, &error);
    attn_archive_destroy(w.out);
    attn_archive_destroy(w.file);
    free(w.noisy), free(w.basins);
    return result;
}
