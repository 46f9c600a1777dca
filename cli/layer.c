/* SPDX-License-Identifier: MIT
 *
 * layer.c - `attn layer`: an attention layer with the weights of a file, forward and backward. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attn/io.h"
#include "attn/layers.h"
#include "commands.h"
#include "difference.h"
#include "failure.h"
#include "input.h"
#include "json.h"
#include "options.h"
#include "progress.h"

static const command_usage usage = {
    .name = "layer",
    .synopsis = "IN -o OUT --heads=N [options]",
    .summary = "Runs an attention layer: the input x of IN ([token, channel] or [batch, token, channel])\n"
               "through query, key and value projections, attention, and an output projection; writes y\n"
               "to OUT. With a tensor context in IN, keys and values come from there.\n",
    .notes = "Weights are [out, in] under PyTorch's names, in IN or in the file of --weights-file:\n"
             "in_proj_weight or q_proj_weight, k_proj_weight, v_proj_weight; in_proj_bias;\n"
             "out_proj.weight, out_proj.bias; or q_proj.weight ..., or wq wk wv wo and bq bk bv bo.\n"
             "bias_k and bias_v are a learned key and value that every query sees besides.\n"
             "A tensor lengths_kv of IN says how many tokens of each entry are real.\n"
             "--backward reads dy, and writes dx (and dcontext), dwq dwk dwv dwo, dbq dbk dbv dbo,\n"
             "dbias_k dbias_v.\n"
             "\n"
             "Examples:\n"
             "  attn layer layer.safetensors -o out.safetensors --heads=12 --weights --compare\n"
             "  attn layer x.safetensors -o y.safetensors --heads=32 --heads-kv=8 --causal \\\n"
             "       --weights-file=model.safetensors --prefix=layers.3.self_attn.\n",
};

typedef struct layer_settings {
    const char *output, *weights_file, *prefix;
    int64_t heads, heads_kv, head_dim, head_dim_v;
    int weights, weights_mean, backward, compare;
} layer_settings;

static attn_status set_text(void *target, const char *name, const char *value, attn_error *error)
{
    layer_settings *s = target;
    (void)error;
    *(strcmp(name, "output") == 0 ? &s->output : strcmp(name, "prefix") == 0 ? &s->prefix : &s->weights_file) = value;
    return ATTN_OK;
}

static attn_status set_number(void *target, const char *name, const char *value, attn_error *error)
{
    layer_settings *s = target;
    int64_t *field = strcmp(name, "heads") == 0      ? &s->heads
                     : strcmp(name, "heads-kv") == 0 ? &s->heads_kv
                     : strcmp(name, "head-dim") == 0 ? &s->head_dim
                                                     : &s->head_dim_v;
    return option_whole(name, value, 1, INT32_MAX, field, error);
}

static attn_status set_flag(void *target, const char *name, const char *value, attn_error *error)
{
    layer_settings *s = target;
    (void)value, (void)error;
    *(strcmp(name, "weights") == 0        ? &s->weights
      : strcmp(name, "weights-mean") == 0 ? &s->weights_mean
      : strcmp(name, "backward") == 0     ? &s->backward
                                          : &s->compare) = 1;
    return ATTN_OK;
}

static const option_row layer_options[] = {
    {"output", 'o', "FILE", "where to write: .safetensors or .npz (needed)", set_text},
    {"heads", 0, "N", "query heads (needed)", set_number},
    {"heads-kv", 0, "N", "key and value heads (default: as many)", set_number},
    {"head-dim", 0, "N", "channels of a head (default: the width of x / heads)", set_number},
    {"head-dim-v", 0, "N", "channels of a head's values (default: the same)", set_number},
    {"weights-file", 0, "FILE", "the file that has the weights (default: IN)", set_text},
    {"prefix", 0, "TEXT", "what stands before the names of weights", set_text},
    {"weights", 0, NULL, "write the attention weights of every head", set_flag},
    {"weights-mean", 0, NULL, "write them averaged over the heads", set_flag},
    {"backward", 0, NULL, "write gradients too; needs dy", set_flag},
    {"compare", 0, NULL, "tell how far the results are from those in IN", set_flag},
    {NULL, 0, NULL, NULL, NULL},
};

/* ---- the layer of a file ---- */

enum { WEIGHTS = 8 };
static const char *const gradient_names[WEIGHTS] = {"dwq", "dwk", "dwv", "dwo", "dbq", "dbk", "dbv", "dbo"};

typedef struct work {
    const layer_settings *settings;
    attn_tensors *file, *weights_file, *out;
    const attn_tensor *x, *context;
    int64_t len_kv, *lengths;
    attn_problem attention;
    attn_args attention_args;
    attn_options options;
    attn_layer layer;
    attn_layer_weights weights, gradients;
    attn_layer_args args;
    void *saved;
} work;

static attn_status find_rows(const work *w, const char *name, int rank, const attn_tensor **t, attn_error *error)
{
    char shape[SHAPE_TEXT];
    *t = attn_tensors_find(w->file, name);
    if (!*t) return failure(error, ATTN_ERR_ARGUMENT, "no tensor is named %s", name);
    if ((*t)->dtype != ATTN_F32 && (*t)->dtype != ATTN_F64)
        return failure(error, ATTN_ERR_UNSUPPORTED, "tensor '%s' is %s; a layer computes in f32 or f64", name,
                       attn_dtype_name((*t)->dtype));
    if ((*t)->rank != 2 && (*t)->rank != 3)
        return failure(error, ATTN_ERR_SHAPE, "tensor '%s' has shape %.100s; expected [token, channel] or [batch, token, channel]",
                       name, shape_text(shape, (*t)->rank, (*t)->shape));
    if (rank && ((*t)->rank != rank || (rank == 3 && (*t)->shape[0] != w->x->shape[0]) || (*t)->dtype != w->x->dtype))
        return failure(error, ATTN_ERR_SHAPE, "tensor '%s' is %s %.80s; it does not fit x", name, attn_dtype_name((*t)->dtype),
                       shape_text(shape, (*t)->rank, (*t)->shape));
    return ATTN_OK;
}

static int64_t batch_of(const attn_tensor *t) { return t->rank == 3 ? t->shape[0] : 1; }
static int64_t tokens_of(const attn_tensor *t) { return t->shape[t->rank - 2]; }
static int64_t width_of(const attn_tensor *t) { return t->shape[t->rank - 1]; }

static attn_status find_lengths(work *w, attn_error *error)
{
    const attn_tensor *t = attn_tensors_find(w->file, "lengths_kv");
    if (!t) return ATTN_OK;
    if ((t->dtype != ATTN_I32 && t->dtype != ATTN_I64) || t->rank != 1 || t->shape[0] != batch_of(w->x))
        return failure(error, ATTN_ERR_SHAPE, "tensor 'lengths_kv' is not [%" PRId64 "] of i32 or i64", batch_of(w->x));
    w->attention.mask.lengths_kv = 1;
    w->attention.mask.index_dtype = t->dtype;
    w->attention_args.lengths_kv = t->data;
    return ATTN_OK;
}

/* The options of the flags, in a problem whose sizes the layer fills in. */
static attn_status describe(work *w, const problem_spec *given, attn_error *error)
{
    const layer_settings *s = w->settings;
    problem_spec spec = *given;
    if (!s->head_dim && width_of(w->x) % s->heads)
        return failure(error, ATTN_ERR_SHAPE,
                       "the width of x (%" PRId64 ") is not a multiple of --heads (%" PRId64 "); set --head-dim", width_of(w->x),
                       s->heads);
    const int64_t head_dim = s->head_dim ? s->head_dim : width_of(w->x) / s->heads;
    spec.dtype = w->x->dtype == ATTN_F64 ? SPEC_F64 : SPEC_F32;
    spec.shape = (attn_shape){batch_of(w->x), s->heads, s->heads_kv ? s->heads_kv : s->heads,    tokens_of(w->x),
                              w->len_kv,      head_dim, s->head_dim_v ? s->head_dim_v : head_dim};
    attn_status status = problem_build(&spec, &w->attention, error);
    if (status == ATTN_OK && (spec.offset_kind || spec.order))
        status = failure(error, ATTN_ERR_UNSUPPORTED, "a layer takes no %s; x is [batch, token, channel]",
                         spec.order ? "layout" : "offset");
    w->attention.shape = (attn_shape){0};
    w->attention.q = w->attention.k = w->attention.v = w->attention.o = (attn_layout){0};
    w->attention.want.weights = s->weights;
    w->attention_args = (attn_args){.struct_size = sizeof(attn_args), .dropout_seed = spec.seed};
    w->layer = (attn_layer){.struct_size = sizeof(attn_layer),
                            .dtype = w->x->dtype,
                            .dim_model = width_of(w->x),
                            .dim_key = w->context ? width_of(w->context) : 0,
                            .heads_q = s->heads,
                            .heads_kv = s->heads_kv,
                            .head_dim = s->head_dim,
                            .head_dim_v = s->head_dim_v,
                            .attention = &w->attention};
    return status == ATTN_OK ? find_lengths(w, error) : status;
}

/* ---- outputs ---- */

static attn_status add(work *w, const char *name, int rank, const int64_t *shape, void *to, attn_error *error)
{
    return attn_tensors_allocate(w->out, name, w->x->dtype, rank, shape, to, error);
}

static attn_status add_like(work *w, const char *name, const attn_tensor *t, int64_t width, void *to, attn_error *error)
{
    int64_t shape[ATTN_MAX_RANK];
    memcpy(shape, t->shape, sizeof shape);
    shape[t->rank - 1] = width;
    return add(w, name, t->rank, shape, to, error);
}

static attn_status add_gradients(work *w, attn_error *error)
{
    const attn_projection *from[] = {&w->weights.query, &w->weights.key, &w->weights.value, &w->weights.output};
    attn_projection *to[] = {&w->gradients.query, &w->gradients.key, &w->gradients.value, &w->gradients.output};
    const int64_t dim = w->settings->head_dim ? w->settings->head_dim : width_of(w->x) / w->settings->heads,
                  dim_v = w->settings->head_dim_v ? w->settings->head_dim_v : dim, heads = w->settings->heads,
                  heads_kv = w->settings->heads_kv ? w->settings->heads_kv : heads,
                  key = w->context ? width_of(w->context) : width_of(w->x);
    const int64_t shape[4][2] = {
        {heads * dim, width_of(w->x)}, {heads_kv * dim, key}, {heads_kv * dim_v, key}, {width_of(w->x), heads * dim_v}};
    const attn_tensor *dy;
    attn_status status = find_rows(w, "dy", w->x->rank, &dy, error);
    if (status == ATTN_OK && (tokens_of(dy) != tokens_of(w->x) || width_of(dy) != width_of(w->x)))
        status = failure(error, ATTN_ERR_SHAPE, "tensor 'dy' has another shape than x, which is that of y");
    if (status == ATTN_OK) w->args.grad_output.data = (void *)(uintptr_t)dy->data;
    if (status == ATTN_OK) status = add_like(w, "dx", w->x, width_of(w->x), &w->args.grad_query.data, error);
    if (status == ATTN_OK && w->context) status = add_like(w, "dcontext", w->context, key, &w->args.grad_key.data, error);
    w->gradients.struct_size = sizeof w->gradients;
    for (int i = 0; i < 4 && status == ATTN_OK; i++) {
        status = add(w, gradient_names[i], 2, shape[i], &to[i]->weight, error);
        if (status == ATTN_OK && from[i]->bias) status = add(w, gradient_names[4 + i], 1, shape[i], &to[i]->bias, error);
    }
    if (!w->weights.extra_key) return status;
    const int64_t widths[2] = {heads_kv * dim, heads_kv * dim_v};
    if (status == ATTN_OK) status = add(w, "dbias_k", 1, &widths[0], &w->gradients.extra_key, error);
    if (status == ATTN_OK) status = add(w, "dbias_v", 1, &widths[1], &w->gradients.extra_value, error);
    return status;
}

static attn_status add_outputs(work *w, attn_error *error)
{
    const layer_settings *s = w->settings;
    const int64_t pairs[4] = {batch_of(w->x), s->heads, tokens_of(w->x), w->len_kv},
                  mean[3] = {batch_of(w->x), tokens_of(w->x), w->len_kv + (w->weights.extra_key != NULL)};
    const int single = w->x->rank == 2;
    attn_status status = attn_tensors_create(&w->out, error);
    if (status == ATTN_OK) status = add_like(w, "y", w->x, width_of(w->x), &w->args.output.data, error);
    if (status == ATTN_OK && s->weights) status = add(w, "weights", 4 - single, pairs + single, &w->attention_args.weights, error);
    if (status == ATTN_OK && s->weights_mean)
        status = add(w, "weights_mean", 3 - single, mean + single, &w->args.weights_mean, error);
    if (status == ATTN_OK && s->backward) status = add_gradients(w, error);
    return status;
}

/* ---- the command ---- */

static attn_status prepare(work *w, const char *path, const problem_spec *spec, attn_error *error)
{
    const layer_settings *s = w->settings;
    attn_layer_counts counts = {.struct_size = sizeof counts};
    attn_status status = attn_tensors_read(&w->file, path, error);
    if (status == ATTN_OK && s->weights_file) status = attn_tensors_read(&w->weights_file, s->weights_file, error);
    if (status != ATTN_OK) return status;
    status = find_rows(w, "x", 0, &w->x, error);
    if (status == ATTN_OK && attn_tensors_find(w->file, "context"))
        status = find_rows(w, "context", w->x->rank, &w->context, error);
    if (status == ATTN_OK) {
        w->len_kv = tokens_of(w->context ? w->context : w->x);
        status = describe(w, spec, error);
    }
    if (status == ATTN_OK)
        status =
            attn_layer_load(&w->layer, w->weights_file ? w->weights_file : w->file, s->prefix ? s->prefix : "", &w->weights, error);
    if (status == ATTN_OK)
        status = attn_layer_count(&w->layer, &w->weights, batch_of(w->x), tokens_of(w->x), w->len_kv, &counts, error);
    if (status == ATTN_OK) {
        w->args = (attn_layer_args){.struct_size = sizeof w->args,
                                    .batch = batch_of(w->x),
                                    .len_q = tokens_of(w->x),
                                    .len_kv = w->len_kv,
                                    .query = {(void *)(uintptr_t)w->x->data, 0, 0},
                                    .attention = &w->attention_args,
                                    .options = &w->options};
        if (w->context) w->args.key.data = (void *)(uintptr_t)w->context->data;
        status = add_outputs(w, error);
    }
    if (status == ATTN_OK && s->backward) w->args.saved = w->saved = need_memory(counts.saved_bytes, 1);
    return status == ATTN_OK ? ATTN_OK : failure_about(error, path);
}

static void print(const work *w, const char *path, double seconds, const difference *list, int count, const common_settings *common)
{
    if (common->json) {
        cJSON *object = json_begin(), *written, *differences;
        json_text(object, "input", path);
        json_text(object, "output", w->settings->output);
        json_number(object, "seconds", seconds);
        written = json_list(object, "written");
        for (int64_t k = 0; k < attn_tensors_count(w->out); k++)
            cJSON_AddItemToArray(written, cJSON_CreateString(attn_tensors_at(w->out, k)->name));
        differences = count ? json_list(object, "differences") : NULL;
        for (int d = 0; d < count; d++) {
            cJSON *item = json_item(differences);
            json_text(item, "name", list[d].name);
            json_number(item, "largest", list[d].largest);
        }
        json_end(object);
        return;
    }
    if (!common->quiet && isatty(STDOUT_FILENO)) printf("wrote %s in %.3g ms\n", w->settings->output, 1e3 * seconds);
    for (int d = 0; d < count; d++) printf("compare %-11s largest difference %.2g\n", list[d].name, list[d].largest);
}

static attn_status run(work *w, const char *path, const problem_spec *spec, const common_settings *common, attn_error *error)
{
    difference list[24];
    int count = 0;
    attn_status status = prepare(w, path, spec, error);
    const double begin = seconds_now();
    if (status == ATTN_OK) {
        status = attn_layer_forward(&w->layer, &w->weights, &w->args, error);
        if (status == ATTN_OK && w->settings->backward)
            status = attn_layer_backward(&w->layer, &w->weights, &w->args, &w->gradients, error);
        if (status == ATTN_OK && w->settings->compare) status = differences_find(w->out, w->file, list, &count, error);
        if (status != ATTN_OK) failure_about(error, path);
    }
    const double seconds = seconds_now() - begin;
    if (status == ATTN_OK) status = attn_tensors_set_metadata(w->out, "attn_version", attn_version(), error);
    if (status == ATTN_OK) status = attn_tensors_write(w->out, w->settings->output, error);
    if (status == ATTN_OK) print(w, path, seconds, list, count, common);
    return status;
}

static int check_settings(const layer_settings *s, attn_error *error)
{
    const char *dot = strrchr(s->output, '.');
    if (dot && (strcmp(dot, ".safetensors") == 0 || (strcmp(dot, ".npz") == 0))) return 1;
    failure(error, ATTN_ERR_ARGUMENT, "%.150s: expected a name that ends in .safetensors or .npz", s->output);
    return 0;
}

int attn_cmd_layer(int argc, char **argv)
{
    static const char example[] = "attn layer IN.safetensors -o OUT.safetensors --heads=12";
    common_settings common = {0};
    layer_settings settings = {0};
    problem_spec spec;
    problem_init(&spec);
    const option_group groups[] = {{"Layer", layer_options, &settings},
                                   {"Attention, in the words of problem strings", problem_options(FLAG_INPUT), &spec},
                                   {"All commands", common_options, &common},
                                   {0}};
    attn_error error;
    int operands, exit = options_begin(&usage, groups, argc, argv, 1, &operands);
    if (exit >= 0) return exit;
    spec.seed = common.seed;
    if (operands == argc) return command_fail_missing(usage.name, "input file", example);
    if (!settings.output) return command_fail_missing(usage.name, "output file", example);
    if (!settings.heads) return command_fail_missing(usage.name, "number of heads", example);
    if (!check_settings(&settings, &error)) return command_fail(usage.name, NULL, &error);

    work w = {.settings = &settings, .options = options_for_library(&common)};
    attn_status status = run(&w, argv[operands], &spec, &common, &error);
    attn_tensors_destroy(w.out);
    attn_tensors_destroy(w.weights_file);
    attn_tensors_destroy(w.file);
    free(w.saved);
    return status == ATTN_OK ? EXIT_DONE : command_fail(usage.name, NULL, &error);
}
