/* SPDX-License-Identifier: MIT
 *
 * kind_hopfield.c - associative memory at work: energies that fall, states that converge to patterns, and in two dimensions the
 * landscape with the trajectories through it. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/analysis.h"
#include "attn/hopfield.h"
#include "color.h"
#include "contour.h"
#include "kinds.h"
#include "testing/text/failure.h"

enum { MAX_STATES = 8, GRID = 50, LEVELS = 20, POINTS = 50 };

typedef struct memory {
    int64_t patterns, dim, states, updates; /* updates + 1 points of a path */
    double *pattern, *path, *energy, beta;  /* [patterns][dim], [states][updates + 1][dim], [states][updates + 1] */
    int64_t *done;                          /* updates of each state */
} memory;

static attn_status read_tensor(const source *from, const char *name, int rank, double **numbers, const attn_archive_tensor **t,
                               attn_error *error)
{
    attn_status status = source_find(from, name, "attn hopfield -o", t, error);
    if (status != ATTN_OK) return status;
    int64_t count = 1;
    for (int axis = 0; axis < (*t)->rank; axis++) count *= (*t)->shape[axis];
    if ((*t)->rank != rank || count == 0)
        return failure(error, ATTN_ERR_SHAPE, "%.100s: tensor '%s' has %d axes and %" PRId64 " numbers; %d axes are expected",
                       from->path, name, (*t)->rank, count, rank);
    *numbers = need_memory(count, sizeof **numbers);
    return source_numbers(from, *t, 0, count, 0, *numbers, error);
}

static attn_status read_memory(const source *from, memory *m, attn_error *error)
{
    const attn_archive_tensor *patterns = NULL, *path = NULL, *energies = NULL, *iterations = NULL, *beta = NULL;
    double *number = NULL, *done = NULL;
    attn_status status = read_tensor(from, "path", 3, &m->path, &path, error);
    if (status == ATTN_OK) status = read_tensor(from, "patterns", 2, &m->pattern, &patterns, error);
    if (status == ATTN_OK) status = read_tensor(from, "energies", 2, &m->energy, &energies, error);
    if (status == ATTN_OK) status = read_tensor(from, "iterations", 1, &done, &iterations, error);
    if (status == ATTN_OK) status = read_tensor(from, "beta", 0, &number, &beta, error);
    if (status == ATTN_OK) {
        m->states = path->shape[0], m->updates = path->shape[1] - 1, m->dim = path->shape[2];
        m->patterns = patterns->shape[0], m->beta = number[0];
        if (patterns->shape[1] != m->dim || energies->shape[0] != m->states || energies->shape[1] != m->updates + 1 ||
            iterations->shape[0] != m->states)
            status =
                failure(error, ATTN_ERR_SHAPE, "%.100s: path, patterns, energies and iterations do not fit each other", from->path);
    }
    m->done = need_memory(m->states, sizeof *m->done);
    for (int64_t i = 0; status == ATTN_OK && i < m->states; i++) {
        m->done[i] = (int64_t)done[i];
        if (done[i] < 0 || done[i] > (double)m->updates)
            status = failure(error, ATTN_ERR_ARGUMENT,
                             "%.100s: tensor 'iterations': number %" PRId64 " (%g) is not between 0 and %" PRId64, from->path, i,
                             done[i], m->updates);
    }
    if (status == ATTN_OK && !(m->beta > 0))
        status = failure(error, ATTN_ERR_ARGUMENT, "%.100s: beta is %g; it must be above 0", from->path, m->beta);
    free(number), free(done);
    return status;
}

/* What --json prints: energies alone. */
static attn_status read_json(const source *from, memory *m, attn_error *error)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(from->json, "states"), *item;
    if (!cJSON_IsArray(list) || !list->child)
        return failure(error, ATTN_ERR_FORMAT, "%.100s: no 'states'; `attn hopfield --json` writes them", from->path);
    m->states = cJSON_GetArraySize(list);
    cJSON_ArrayForEach(item, list)
    {
        const cJSON *energies = cJSON_GetObjectItemCaseSensitive(item, "energies");
        if (!cJSON_IsArray(energies) || !energies->child)
            return failure(error, ATTN_ERR_FORMAT, "%.100s: a state has no 'energies'", from->path);
        if (cJSON_GetArraySize(energies) - 1 > m->updates) m->updates = cJSON_GetArraySize(energies) - 1;
    }
    m->energy = need_memory(m->states * (m->updates + 1), sizeof *m->energy);
    m->done = need_memory(m->states, sizeof *m->done);
    int64_t i = 0;
    cJSON_ArrayForEach(item, list)
    {
        const cJSON *number;
        int64_t k = 0;
        cJSON_ArrayForEach(number, cJSON_GetObjectItemCaseSensitive(item, "energies"))
        {
            if (!cJSON_IsNumber(number))
                return failure(error, ATTN_ERR_FORMAT, "%.100s: state %" PRId64 ": an energy is not a number", from->path, i);
            m->energy[i * (m->updates + 1) + k++] = number->valuedouble;
        }
        m->done[i++] = k - 1;
    }
    return ATTN_OK;
}

static int64_t shown(const memory *m) { return m->states < MAX_STATES ? m->states : MAX_STATES; }

/* One line for each state over its updates. */
static void draw_updates(plot_task *task, const memory *m, const char *title, const char *what, const double *values, double low,
                         double high)
{
    double *x = need_memory(m->updates + 1, sizeof *x);
    char names[MAX_STATES][40];
    chart_series series[MAX_STATES];
    int64_t most = 1;
    for (int64_t k = 0; k <= m->updates; k++) x[k] = (double)k;
    chart c = {.title = title,
               .y = {what, AXIS_LINEAR, low, high, 0},
               .width = 400,
               .height = 300,
               .series = series,
               .series_count = (int)shown(m)};
    for (int64_t i = 0; i < shown(m); i++) {
        snprintf(names[i], sizeof names[i], "state %" PRId64, i);
        series[i] = (chart_series){names[i], MARK_POINTS, (int)i, m->done[i] + 1, x, values + i * (m->updates + 1), 0};
        if (m->done[i] > most) most = m->done[i];
    }
    c.x = (chart_axis){"update", AXIS_LINEAR, -0.15, (double)most + 0.15, 1};
    if (!(low < high)) {
        chart_range(&c.y, shown(m) * (m->updates + 1), values);
        const double size = c.y.high - c.y.low;
        c.y.low -= 0.02 * size, c.y.high += 0.02 * size;
    }
    (void)chart_put(task->figure, &c);
    free(x);
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t c = 0; c < n; c++) sum += a[c] * b[c];
    return sum;
}

/* The cosine with the pattern where each state ended. */
static void draw_similarity(plot_task *task, const memory *m)
{
    double *values = need_memory(shown(m) * (m->updates + 1), sizeof *values), lowest = 0;
    for (int64_t i = 0; i < shown(m); i++) {
        const double *path = m->path + i * (m->updates + 1) * m->dim, *end = path + m->updates * m->dim;
        const double *goal = m->pattern;
        double least = INFINITY;
        for (int64_t p = 0; p < m->patterns; p++) {
            const double *pattern = m->pattern + p * m->dim;
            const double distance = dot(pattern, pattern, m->dim) - 2 * dot(pattern, end, m->dim);
            if (distance < least) least = distance, goal = pattern;
        }
        for (int64_t k = 0; k <= m->updates; k++) {
            const double *state = path + k * m->dim, size = sqrt(dot(state, state, m->dim) * dot(goal, goal, m->dim));
            values[i * (m->updates + 1) + k] = size > 0 ? dot(state, goal, m->dim) / size : 0;
            lowest = fmin(lowest, values[i * (m->updates + 1) + k]);
        }
    }
    draw_updates(task, m, "Similarity to the pattern retrieved", "cosine", values, lowest < -0.05 ? -1.05 : lowest - 0.02, 1.05);
    free(values);
}

static attn_status energies_of(const memory *m, int64_t count, const double *states, double *energies, attn_error *error)
{
    const attn_hopfield h = {.struct_size = sizeof h,
                             .dtype = ATTN_F64,
                             .stored = m->patterns,
                             .dim = m->dim,
                             .beta = m->beta,
                             .patterns = attn_in(m->pattern)};
    const attn_hopfield_tensors t = {.struct_size = sizeof t, .states = attn_in(states), .energy = attn_out(energies)};
    return attn_hopfield_update(&h, count, &t, error);
}

/* The energy between the first two patterns. */
static attn_status draw_segment(plot_task *task, const memory *m, attn_error *error)
{
    double at[POINTS], energy[POINTS], *states = need_memory(POINTS * m->dim, sizeof *states);
    for (int k = 0; k < POINTS; k++) {
        at[k] = -0.25 + 1.5 * k / (POINTS - 1);
        for (int64_t c = 0; c < m->dim; c++) states[k * m->dim + c] = (1 - at[k]) * m->pattern[c] + at[k] * m->pattern[m->dim + c];
    }
    const attn_status status = energies_of(m, POINTS, states, energy, error);
    const chart_series series = {"energy", MARK_LINE, 0, POINTS, at, energy, 0};
    const chart_line lines[] = {{1, 0, "pattern 0"}, {1, 1, "pattern 1"}};
    chart c = {.title = "Energy on the way from pattern 0 to pattern 1",
               .x = {"place on the segment (0: pattern 0, 1: pattern 1)", AXIS_LINEAR, -0.25, 1.25, 0},
               .y = {"energy", AXIS_LINEAR, 0, 1, 0},
               .width = 400,
               .height = 300,
               .series = &series,
               .series_count = 1,
               .lines = lines,
               .lines_count = 2};
    chart_range(&c.y, POINTS, energy);
    if (status == ATTN_OK) (void)chart_put(task->figure, &c);
    free(states);
    return status;
}

/* softmax(beta X x) of the first state for other betas. */
static attn_status draw_betas(plot_task *task, const memory *m, attn_error *error)
{
    const int64_t patterns = m->patterns < MAX_STATES ? m->patterns : MAX_STATES;
    double beta[POINTS], *scores = need_memory(m->patterns, sizeof *scores), *weights = need_memory(m->patterns, sizeof *weights);
    double *y = need_memory(patterns * POINTS, sizeof *y);
    char names[MAX_STATES][40], own[60];
    chart_series series[MAX_STATES];
    attn_status status = ATTN_OK;
    for (int64_t p = 0; p < m->patterns; p++) scores[p] = dot(m->pattern + p * m->dim, m->path, m->dim);
    for (int k = 0; k < POINTS && status == ATTN_OK; k++) {
        beta[k] = m->beta * pow(10, 3.0 * k / (POINTS - 1) - 1.5);
        status = attn_softmax(m->patterns, 1 / beta[k], scores, NULL, weights, NULL, error);
        for (int64_t p = 0; p < patterns; p++) y[p * POINTS + k] = weights[p];
    }
    for (int64_t p = 0; p < patterns; p++) {
        snprintf(names[p], sizeof names[p], "pattern %" PRId64, p);
        series[p] = (chart_series){names[p], MARK_LINE, (int)p, POINTS, beta, y + p * POINTS, 0};
    }
    snprintf(own, sizeof own, "beta of this memory: %.4g", m->beta);
    const chart_line line = {1, m->beta, own};
    const chart c = {.title = "Weights of the patterns for state 0",
                     .x = {"beta (1/temperature)", AXIS_LOG, beta[0] * 0.999, beta[POINTS - 1] * 1.001, 0},
                     .y = {"weight", AXIS_LINEAR, -0.02, 1.02, 0},
                     .width = 400,
                     .height = 300,
                     .series = series,
                     .series_count = (int)patterns,
                     .lines = &line,
                     .lines_count = 1};
    if (status == ATTN_OK) (void)chart_put(task->figure, &c);
    free(scores), free(weights), free(y);
    return status;
}

static void draw_capacity(plot_task *task, const memory *m)
{
    enum { DIMS = 64 };
    double dim[DIMS], classical[DIMS], modern[DIMS];
    const double last = m->dim < 32 ? 64 : 2.0 * (double)m->dim;
    for (int k = 0; k < DIMS; k++) {
        dim[k] = 1 + (last - 1) * k / (DIMS - 1);
        classical[k] = attn_hopfield_classical_capacity((int64_t)dim[k]);
        modern[k] = attn_hopfield_modern_capacity((int64_t)dim[k]);
    }
    char own[80];
    snprintf(own, sizeof own, "this memory: %" PRId64 " patterns of %" PRId64 " channels", m->patterns, m->dim);
    const double x = (double)m->dim, y = (double)m->patterns;
    const chart_series series[] = {{"modern, of the order of exp(N/2)", MARK_LINE, 0, DIMS, dim, modern, 0},
                                   {"classical, 0.14 N", MARK_LINE, 1, DIMS, dim, classical, 0},
                                   {own, MARK_DOTS, 2, 1, &x, &y, 0}};
    const chart c = {.title = "How many random patterns a memory holds",
                     .x = {"channels N", AXIS_LINEAR, 0, last, 0},
                     .y = {"patterns", AXIS_LOG, 0.1, fmin(1e30, fmax(modern[DIMS - 1], 10 * y)), 0},
                     .width = 400,
                     .height = 300,
                     .series = series,
                     .series_count = 3};
    (void)chart_put(task->figure, &c);
}

/* The energy over [-2, 2]^2, or as far as patterns and states reach, with the trajectories of the states. */
static attn_status draw_landscape(plot_task *task, const memory *m, attn_error *error)
{
    double reach = 2, *states = need_memory(GRID * GRID * 2, sizeof *states), *energy = need_memory(GRID * GRID, sizeof *energy);
    double low = INFINITY, high = -INFINITY, paths[2][MAX_STATES][64], marks[2][64];
    const int64_t places = m->updates + 1 < 64 ? m->updates + 1 : 64, patterns = m->patterns < 64 ? m->patterns : 64;
    char names[MAX_STATES][40];
    chart_series series[MAX_STATES + 1];
    for (int64_t n = 0; n < m->patterns * 2; n++) reach = fmax(reach, 1.1 * fabs(m->pattern[n]));
    for (int64_t n = 0; n < m->states * (m->updates + 1) * 2; n++) reach = fmax(reach, 1.1 * fabs(m->path[n]));
    for (int64_t i = 0; i < GRID; i++)
        for (int64_t j = 0; j < GRID; j++) {
            states[(i * GRID + j) * 2] = reach * (2.0 * (double)j / (GRID - 1) - 1);
            states[(i * GRID + j) * 2 + 1] = reach * (2.0 * (double)i / (GRID - 1) - 1);
        }
    const attn_status status = energies_of(m, GRID * GRID, states, energy, error);
    for (int64_t n = 0; n < GRID * GRID; n++) low = fmin(low, energy[n]), high = fmax(high, energy[n]);
    for (int64_t i = 0; i < shown(m); i++) {
        for (int64_t k = 0; k < places; k++)
            for (int axis = 0; axis < 2; axis++) paths[axis][i][k] = m->path[(i * (m->updates + 1) + k) * 2 + axis];
        snprintf(names[i], sizeof names[i], "trajectory of state %" PRId64, i);
        series[i] = (chart_series){names[i],    MARK_POINTS, (int)i, m->done[i] + 1 < places ? m->done[i] + 1 : places,
                                   paths[0][i], paths[1][i], 0};
    }
    for (int64_t p = 0; p < patterns; p++) marks[0][p] = m->pattern[p * 2], marks[1][p] = m->pattern[p * 2 + 1];
    series[shown(m)] = (chart_series){"patterns", MARK_DOTS, COLOR_SERIES - 1, patterns, marks[0], marks[1], 0};
    const chart c = {.title = "Energy over both channels, and the trajectories of the states",
                     .x = {"channel 0", AXIS_LINEAR, -reach, reach, 0},
                     .y = {"channel 1", AXIS_LINEAR, -reach, reach, 0},
                     .width = 460,
                     .height = 460,
                     .series = series,
                     .series_count = (int)shown(m) + 1};
    double width, height, x, y;
    if (status == ATTN_OK) {
        chart_size(&c, &width, &height);
        figure_place(task->figure, width, height + 16 + HEAT_BAR_HEIGHT, &x, &y);
        const chart_space space = chart_frame(task->figure, &c, x, y);
        contour_fill(task->figure, &space, GRID, energy, LEVELS, low, high);
        chart_fill(task->figure, &c, &space);
        heat_bar(task->figure, HEAT_SEQUENTIAL, low, high, "energy: 20 lines, evenly spaced", space.left, y + height + 16);
    }
    free(states), free(energy);
    return status;
}

attn_status plot_hopfield(plot_task *task, attn_error *error)
{
    const source *from = &task->sources[0];
    memory m = {0};
    attn_status status = from->json ? read_json(from, &m, error) : read_memory(from, &m, error);
    if (status == ATTN_OK) {
        draw_updates(task, &m, "Energy of each state", "energy", m.energy, 0, 0);
        if (m.path) draw_similarity(task, &m);
    }
    if (status == ATTN_OK && m.path && m.dim == 2) status = draw_landscape(task, &m, error);
    if (status == ATTN_OK && m.path && m.patterns > 1) status = draw_segment(task, &m, error);
    if (status == ATTN_OK && m.path) status = draw_betas(task, &m, error);
    if (status == ATTN_OK && m.path) draw_capacity(task, &m);
    snprintf(task->title, sizeof task->title, "Associative memory: trajectories of %" PRId64 " states%s", m.states,
             m.states > MAX_STATES ? ", the first 8 shown" : "");
    if (m.path)
        snprintf(task->about, sizeof task->about, "%.150s: %" PRId64 " patterns of %" PRId64 " channels, beta %.4g", from->path,
                 m.patterns, m.dim, m.beta);
    else snprintf(task->about, sizeof task->about, "%.150s", from->path);
    task->note =
        "One update is one attention, with the state as query and the patterns as keys and values; no update raises the energy.";
    free(m.pattern), free(m.path), free(m.energy), free(m.done);
    return status;
}
