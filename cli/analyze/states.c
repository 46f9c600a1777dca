/* SPDX-License-Identifier: MIT
 *
 * states.c - a query's scores as a Gibbs distribution at the temperature of its softmax: means over the queries of a head;
 * its entropy at other temperatures; and the steps between q, k, v and o, into a file. */
#include "states.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/analysis.h"
#include "attn/io.h"
#include "testing/text/failure.h"

attn_status states_set_temperatures(void *target, const char *name, const char *value, attn_error *error)
{
    states_settings *s = target;
    s->count = 0;
    for (const char *at = value;; at++) {
        char *end;
        const double t = strtod(at, &end);
        if (end == at || strspn(at, "+-.0123456789eE") < (size_t)(end - at) || (*end && *end != ',') || !(t > 0) || !isfinite(t))
            return failure(error, ATTN_ERR_ARGUMENT, "%s (%.60s) is not a list of numbers above 0", name, value);
        if (s->count == MAX_TEMPERATURES)
            return failure(error, ATTN_ERR_ARGUMENT, "%s has more than %d numbers", name, MAX_TEMPERATURES);
        s->temperatures[s->count++] = t;
        at = end;
        if (!*at) return ATTN_OK;
    }
}

attn_status states_check(const states_settings *settings, const attention_input *input, attn_error *error)
{
    static const char *const names[] = {"softmax", "softmax-one", "sigmoid", "relu"};
    const attn_normaliser normaliser = input->problem.score.normaliser;
    const char *flag = settings->states ? "states" : "sweep";
    if (!settings->states && !settings->count) return ATTN_OK;
    if (normaliser != ATTN_NORMALISER_SOFTMAX)
        return failure(error, ATTN_ERR_ARGUMENT, "%.100s: --%s is set and --normaliser is %s; it is for softmax only", input->path,
                       flag, names[normaliser]);
    if (input->tensors.sink.data)
        return failure(error, ATTN_ERR_ARGUMENT, "%.100s: --%s is set and sink is present; it is for softmax without a sink",
                       input->path, flag);
    return ATTN_OK;
}

/* The results of attn_decompose for all batch entries and heads. */
typedef struct decomposed {
    attn_steps steps;
    double *o;
    int64_t len_q, len_kv, heads;
    double temperature;
    double *row, *weights, *uniform, *sweep, *entropy; /* scratch for a query */
} decomposed;

static attn_status decompose(const attention_input *input, int with_output, decomposed *d, attn_error *error)
{
    attn_problem problem = input->problem;
    attn_tensors tensors = input->tensors;
    const attn_shape *s = &problem.shape;
    const int64_t rows = s->batch * s->heads_q * s->len_q, pairs = rows * s->len_kv;
    if (!with_output) problem.shape.dim_v = 0; /* scores do not need values */
    problem.op = ATTN_FORWARD;
    problem.dropout.probability = 0;
    *d = (decomposed){.steps.struct_size = sizeof d->steps, .len_q = s->len_q, .len_kv = s->len_kv, .heads = s->heads_q};
    d->temperature = problem.score.temperature > 0 ? problem.score.temperature : 1;
    d->steps.scores = need_memory(pairs, sizeof(double));
    if (with_output) {
        d->steps.raw = need_memory(pairs, sizeof(double));
        d->steps.weights = need_memory(pairs, sizeof(double));
        d->steps.log_partition = need_memory(rows, sizeof(double));
        d->steps.partition = need_memory(rows, sizeof(double));
    }
    d->o = need_memory(rows * problem.shape.dim_v, sizeof(double));
    tensors.o = (attn_output){with_output ? d->o : ATTN_EMPTY, ATTN_F64, {0, 0, 0, 0}};
    d->row = need_memory(d->len_kv, sizeof(double));
    d->weights = need_memory(d->len_kv, sizeof(double));
    d->uniform = need_memory(d->len_kv, sizeof(double));
    d->sweep = need_memory(MAX_TEMPERATURES * d->len_kv, sizeof(double));
    d->entropy = need_memory(MAX_TEMPERATURES, sizeof(double));
    return attn_decompose(&problem, &tensors, &d->steps, NULL, error);
}

static void release(decomposed *d)
{
    double *all[] = {
        d->steps.raw, d->steps.scores, d->steps.weights, d->steps.log_partition, d->steps.partition, d->o, d->row, d->weights,
        d->uniform,   d->sweep,        d->entropy};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) free(all[k]);
}

/* Copies the scores of the keys that a query sees, before the temperature; returns how many. */
static int64_t seen_scores(const decomposed *d, int64_t head, int64_t i)
{
    const double *scores = d->steps.scores + (head * d->len_q + i) * d->len_kv;
    int64_t n = 0;
    for (int64_t j = 0; j < d->len_kv; j++)
        if (scores[j] > -INFINITY) d->row[n++] = d->temperature * scores[j];
    return n;
}

/* ---- states ---- */

typedef struct head_states {
    double log_partition, free_energy, mean_energy, entropy, heat_capacity, from_uniform, response;
    int64_t rows;
} head_states;

/* How much the weights move with the scores: the trace of the Jacobian. */
static double response_of(const double *p, int64_t n, double temperature)
{
    double sum = 0;
    for (int64_t j = 0; j < n; j++) sum += p[j] * (1 - p[j]) / temperature;
    return sum;
}

static head_states states_of(const decomposed *d, int64_t head)
{
    head_states all = {0};
    for (int64_t i = 0; i < d->len_q; i++) {
        const int64_t n = seen_scores(d, head, i);
        attn_gibbs g = {.struct_size = sizeof g};
        if (n == 0 || attn_softmax(n, d->temperature, d->row, NULL, d->weights, &g, NULL) != ATTN_OK) continue;
        for (int64_t j = 0; j < n; j++) d->uniform[j] = 1 / (double)n;
        all.rows++;
        all.log_partition += g.log_partition, all.free_energy += g.free_energy, all.mean_energy += g.mean_energy;
        all.entropy += g.entropy, all.heat_capacity += g.heat_capacity;
        all.from_uniform += attn_kl_divergence(n, d->weights, d->uniform);
        all.response += response_of(d->weights, n, d->temperature);
    }
    double *const sums[] = {&all.log_partition, &all.free_energy,  &all.mean_energy, &all.entropy,
                            &all.heat_capacity, &all.from_uniform, &all.response};
    for (size_t k = 0; all.rows && k < sizeof sums / sizeof *sums; k++) *sums[k] /= (double)all.rows;
    return all;
}

static cJSON *item_of(cJSON *list, const labels *l, int64_t layer, int64_t entry, int64_t head)
{
    cJSON *item = json_item(list);
    if (l->entries > 1) json_int(item, "entry", entry);
    json_int(item, "layer", l->layer_number[layer]);
    json_int(item, "head", head);
    return item;
}

static void print_place(const labels *l, int64_t layer, int64_t entry, int64_t head)
{
    if (l->entries > 1) printf("%5" PRId64 "  ", entry);
    printf("%5" PRId64 "  %4" PRId64, l->layer_number[layer], head);
}

static void show_states(const decomposed *d, const labels *l, int64_t layer, int64_t entry, int64_t head, cJSON *list)
{
    const head_states s = states_of(d, labels_batch(l, layer, entry) * d->heads + head);
    const struct {
        const char *name;
        double x;
        int width;
    } all[] = {{"log_partition", s.log_partition, 13},
               {"free_energy", s.free_energy, 11},
               {"mean_energy", s.mean_energy, 11},
               {"entropy", s.entropy, 7},
               {"heat_capacity", s.heat_capacity, 13},
               {"from_uniform", s.from_uniform, 12},
               {"response", s.response, 8}};
    cJSON *item = list ? item_of(list, l, layer, entry, head) : NULL;
    if (!item) print_place(l, layer, entry, head);
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        if (item) json_number(item, all[k].name, all[k].x);
        else printf("  %*.3f", all[k].width, all[k].x);
    }
    if (!item) printf("\n");
}

/* ---- temperatures ---- */

static void show_sweep(const decomposed *d, const labels *l, int64_t layer, int64_t entry, int64_t head, const states_settings *s,
                       cJSON *list)
{
    const int64_t at = labels_batch(l, layer, entry) * d->heads + head;
    double mean[MAX_TEMPERATURES] = {0};
    int64_t rows = 0;
    for (int64_t i = 0; i < d->len_q; i++) {
        const int64_t n = seen_scores(d, at, i);
        if (n == 0 || attn_temperature_sweep(n, s->count, d->row, s->temperatures, d->sweep, d->entropy, NULL) != ATTN_OK) continue;
        rows++;
        for (int k = 0; k < s->count; k++) mean[k] += d->entropy[k];
    }
    if (!list) print_place(l, layer, entry, head);
    cJSON *entropies = list ? json_list(item_of(list, l, layer, entry, head), "entropy") : NULL;
    for (int k = 0; k < s->count; k++) {
        const double entropy = rows ? mean[k] / (double)rows : 0;
        if (entropies) cJSON_AddItemToArray(entropies, cJSON_CreateNumber(entropy));
        else printf("  %7.3f", entropy);
    }
    if (!list) printf("\n");
}

/* ---- tables ---- */

static void show_all(const decomposed *d, const labels *l, const states_settings *s, int sweep, cJSON *list)
{
    for (int64_t e = 0; e < l->entries; e++)
        for (int64_t y = 0; y < l->layers; y++)
            for (int64_t h = 0; h < d->heads; h++) {
                if (sweep) show_sweep(d, l, y, e, h, s, list);
                else show_states(d, l, y, e, h, list);
            }
}

static void show(const decomposed *d, const labels *l, const states_settings *s, cJSON *object)
{
    const char *first = l->entries > 1 ? "entry  " : "";
    if (s->states) {
        if (!object)
            printf("%slayer  head  log partition  free energy  mean energy  entropy  heat capacity  from uniform  response\n",
                   first);
        show_all(d, l, s, 0, object ? json_list(object, "states") : NULL);
    }
    if (!s->count) return;
    if (object) {
        cJSON *list = json_list(object, "temperatures");
        for (int k = 0; k < s->count; k++) cJSON_AddItemToArray(list, cJSON_CreateNumber(s->temperatures[k]));
    } else {
        printf("%slayer  head  entropy at temperature", first);
        for (int k = 0; k < s->count; k++) printf("%s %g", k ? "," : "", s->temperatures[k]);
        printf("\n");
    }
    show_all(d, l, s, 1, object ? json_list(object, "sweep") : NULL);
}

/* ---- steps ---- */

static attn_status make_steps(const attention_input *input, const decomposed *d, attn_archive **out, attn_error *error)
{
    int64_t dense[ATTN_MAX_RANK], pairs[ATTN_MAX_RANK], outputs[ATTN_MAX_RANK], size[4];
    tensors_shape(&input->problem, &input->tensors, TENSOR(weights), size);
    const int rank = input_file_shape(input, TENSOR(lse), size, dense);
    (void)input_file_shape(input, TENSOR(weights), size, pairs);
    (void)input_file_shape(input, TENSOR(weights), size, outputs); /* [head, query, channel], as o is made here */
    outputs[rank] = input->problem.shape.dim_v;
    const struct {
        const char *name;
        const int64_t *shape;
        int rank;
        const double *from;
    } all[] = {{"raw", pairs, rank + 1, d->steps.raw},         {"scores", pairs, rank + 1, d->steps.scores},
               {"weights", pairs, rank + 1, d->steps.weights}, {"log_partition", dense, rank, d->steps.log_partition},
               {"partition", dense, rank, d->steps.partition}, {"o", outputs, rank + 1, d->o}};
    attn_status status = attn_archive_create(out, error);
    for (size_t k = 0; k < sizeof all / sizeof *all && status == ATTN_OK; k++) {
        int64_t count = 1;
        void *data;
        for (int axis = 0; axis < all[k].rank; axis++) count *= all[k].shape[axis];
        status = attn_archive_allocate(*out, all[k].name, ATTN_F64, all[k].rank, all[k].shape, &data, error);
        if (status == ATTN_OK) (void)attn_convert(count, all[k].from, ATTN_F64, data, ATTN_F64, NULL);
    }
    if (status == ATTN_OK) status = attn_archive_set_metadata(*out, "attn_version", attn_version(), error);
    return status;
}

attn_status analyze_states(const attention_input *input, const labels *l, const states_settings *settings, cJSON *object,
                           attn_archive **steps, attn_error *error)
{
    decomposed d;
    attn_status status = decompose(input, settings->steps != NULL, &d, error);
    if (status == ATTN_OK && settings->steps) status = make_steps(input, &d, steps, error);
    if (status == ATTN_OK) show(&d, l, settings, object);
    if (status == ATTN_OK && settings->steps && object) json_text(object, "steps", settings->steps);
    release(&d);
    return status;
}
