/* SPDX-License-Identifier: MIT
 *
 * metric.c - `attn metric`: checks a metric, and applies it to vectors. */
#include "metric.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/commands.h"
#include "cli/base/file.h"
#include "cli/base/tensor_file.h"
#include "cli/input/small_tensor.h"
#include "testing/text/failure.h"
#include "testing/text/json.h"

static const command_usage usage = {
    .name = "metric",
    .synopsis = "IN [-o OUT] [options]",
    .summary = "Says whether a bilinear form is a metric, and applies it to the vectors of IN, in f64. The\n"
               "form is the tensor g [channel, channel], w [row, channel] (g is w^T w), diagonal\n"
               "[channel], or --scaled. Results are printed as `attn show` does.\n",
    .notes = "From the tensors v [vector, channel], u like v, q and k of IN, OUT receives\n"
             "  lowered      g v of each vector             raised   with --inverse: g^-1 v\n"
             "  quadratic    v^T g v                        form     u^T g v\n"
             "  scores       q^T g k of all pairs; `attn run --score=general` attends by them\n"
             "With --backward, gradients dlowered, draised, dquadratic, dform, dscores and dinverse of IN\n"
             "give du, dv, dq, dk, dg, and dw or ddiagonal.\n"
             "\n"
             "Examples:\n"
             "  attn metric metric.safetensors\n"
             "  attn metric vectors.safetensors -o out.safetensors --inverse --backward\n"
             "  attn metric pairs.npz --inner=scaled\n",
    .without = "threads isa seed",
    .operands = {"input file"},
    .example = "attn metric metric.safetensors",
};

static attn_status set_scaled(void *target, const char *name, const char *value, attn_error *error)
{
    double *scaled = target;
    *scaled = 0;
    return value ? option_real(name, value, 1, 0, scaled, error) : ATTN_OK;
}

static attn_status set_inner(void *target, const char *name, const char *value, attn_error *error)
{
    *(const char **)target = value;
    if (strcmp(value, "euclidean") == 0 || strcmp(value, "scaled") == 0) return ATTN_OK;
    return failure(error, ATTN_ERR_ARGUMENT, "%s: '%.40s' is not euclidean or scaled", name, value);
}

static const option_row metric_options[] = {
    {"output", 'o', "FILE", "output file: .safetensors or .npz", OUTPUT(metric_settings, output, ".safetensors or .npz")},
    {"scaled", 0, "[=X]", "the metric X times the identity (default: 1/sqrt(channels))",
     CALL_ON(set_scaled, metric_settings, scaled)},
    {"inner", 0, "KIND", "no metric: form by inner products, euclidean or scaled", CALL_ON(set_inner, metric_settings, inner)},
    {"tolerance", 0, "T", "asymmetry allowed, as a share of g (default: 1e-6)", ABOVE_0(metric_settings, tolerance, 0)},
    {"inverse", 0, NULL, "also the inverse of g, and raised vectors", FLAG(metric_settings, inverse)},
    {"backward", 0, NULL, "also gradients", FLAG(metric_settings, backward)},
    {0},
};

static attn_status check_settings(const metric_settings *s, attn_error *error)
{
    const char *without = s->inverse ? "--inverse" : s->backward ? "--backward" : s->tolerance > 0 ? "--tolerance" : NULL;
    if (s->inner && without)
        return failure(error, ATTN_ERR_ARGUMENT, "%s has no effect with --inner, which has no metric", without);
    return ATTN_OK;
}

static char *compose_json(const metric_work *w)
{
    cJSON *object = json_begin();
    json_int(object, "dim", w->dim);
    if (w->g) {
        json_flag(object, "symmetric", w->properties.symmetric);
        json_flag(object, "positive_definite", w->properties.positive_definite);
        json_flag(object, "valid", w->properties.valid);
        json_number(object, "min_eigenvalue", w->properties.min_eigenvalue);
        json_number(object, "max_eigenvalue", w->properties.max_eigenvalue);
    }
    small_tensor_json(w->out, json_list(object, "results"));
    if (w->settings->output) json_text(object, "output", w->settings->output);
    return json_compose(object);
}

static void print_text(const metric_work *w)
{
    const attn_metric_properties *p = &w->properties;
    if (w->g)
        printf("%s of %" PRId64 " channels: %ssymmetric, %spositive definite, eigenvalues from %.6g to %.6g\n",
               p->valid ? "a metric" : "not a metric", w->dim, p->symmetric ? "" : "not ", p->positive_definite ? "" : "not ",
               p->min_eigenvalue, p->max_eigenvalue);
    small_tensor_print(w->out, &w->settings->common, w->settings->output);
}

static void release(metric_work *w)
{
    double *const owned[] = {w->made, w->g, w->u, w->v, w->q, w->k, w->dg, w->dinverse};
    for (size_t n = 0; n < sizeof owned / sizeof *owned; n++) free(owned[n]);
    attn_archive_destroy(w->out);
    attn_archive_destroy(w->file);
}

int attn_cmd_metric(int argc, char **argv)
{
    metric_settings settings = {.scaled = -1};
    const option_group groups[] = {{"Metric", metric_options, &settings}, {0}};
    metric_work w = {.settings = &settings, .properties.struct_size = sizeof w.properties};
    attn_error error;
    char *json = NULL;
    int operand;
    const int early = options_begin(&usage, groups, &settings.common, argc, argv, 1, &operand);
    if (early >= 0) return early;
    attn_status status = check_settings(&settings, &error);
    if (status == ATTN_OK) status = file_check_distinct(settings.output, argv[operand], &error);
    if (status == ATTN_OK) status = tensor_file_open(&w.file, argv[operand], NULL, &error);
    if (status == ATTN_OK) status = attn_archive_create(&w.out, &error);
    if (status != ATTN_OK) return release(&w), command_fail(usage.name, NULL, &error);
    status = metric_read(&w, &error);
    if (status == ATTN_OK) status = metric_compute(&w, &error);
    if (status == ATTN_OK && settings.backward) status = metric_backward(&w, &error);
    if (status != ATTN_OK) failure_about(&error, argv[operand]);
    if (status == ATTN_OK && settings.common.json) json = compose_json(&w);
    status = file_finish(status, w.out, settings.output, json, &error);
    if (status == ATTN_OK && !settings.common.json && !settings.common.prints_numbers) print_text(&w);
    if (status == ATTN_OK) small_tensor_tell(&settings.common, settings.output);
    release(&w);
    return command_end(status, usage.name, NULL, &error);
}
