/* SPDX-License-Identifier: MIT
 *
 * cost.c - `attn cost`: what attention and its layers cost by counting: operations, bytes, parameters, caches. */
#include "attn/cost.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/base/commands.h"
#include "cli/base/options.h"
#include "cli/measure/work.h"
#include "testing/problem/problem.h"
#include "testing/problem/sparse.h"
#include "testing/problem/tensors.h"
#include "testing/text/failure.h"
#include "testing/text/json.h"
#if ATTN_CLI_LAYERS
#include "attn/latent.h"
#endif

static const command_usage usage = {
    .name = "cost",
    .synopsis = "PROBLEM [options]",
    .summary = "Counts what a problem costs as attention in tiles, with a matrix of all scores, and as\n"
               "linear attention: operations, bytes moved, memory; and how many parameters the layers\n"
               "around it have, and how large their caches are. Nothing is measured; `attn bench` does that.\n",
    .notes = "Pairs that a causal mask, a window or chunks hide are not counted. With --peak and\n"
             "--bandwidth, also the rate that a machine can attain: the smaller of the peak, and of\n"
             "bandwidth times intensity.\n"
             "\n"
             "Examples:\n"
             "  attn cost fwd:f16:hq32:hkv8:sq8192:d128:causal\n"
             "  attn cost fwd:bf16:hq128:sq4096:d128 --width=7168 --rank=512 --rotary=64\n"
             "  attn cost fwd:f16:hq32:sq8192:d128 --peak=156000 --bandwidth=2000 --json\n",
    .without = "threads isa seed",
    .operands = {"problem"},
    .example = "attn cost fwd:f16:hq32:hkv8:sq8192:d128:causal",
};

typedef struct cost_settings {
    int64_t width, rank, rotary, features, fast;
    double peak, bandwidth; /* GFLOP/s, GB/s */
    common_settings common;
} cost_settings;

static const option_row cost_options[] = {
    {"fast", 0, "BYTES", "fast memory of a core, for tiles (default: this CPU's L2)", WHOLE(cost_settings, fast, 1, INT64_MAX)},
    {"features", 0, "N", "features of linear attention (default: channels)", WHOLE(cost_settings, features, 1, INT32_MAX)},
    {"peak", 0, "GFLOPS", "what a machine computes: 10^9 operations a second", ABOVE_0(cost_settings, peak, 0)},
    {"bandwidth", 0, "GBS", "what its memory moves: 10^9 bytes a second", ABOVE_0(cost_settings, bandwidth, 0)},
    {0},
};

#if ATTN_CLI_LAYERS
static const option_row layer_options[] = {
    {"width", 0, "N", "channels of the model (default: heads times channels)", WHOLE(cost_settings, width, 1, INT32_MAX)},
    {"rank", 0, "N", "also a latent layer, with N channels of the latent", WHOLE(cost_settings, rank, 1, INT32_MAX)},
    {"rotary", 0, "N", "rotated channels of the latent layer (default: none)", WHOLE(cost_settings, rotary, 2, INT32_MAX)},
    {0},
};
#endif

/* ---- attention ---- */

static const char *const method_names[] = {"tiled", "matrix", "linear"};
enum { METHODS = 3, MAX_LAYERS = 4 };

typedef struct layer_cost {
    const char *kind;
    int64_t heads_kv; /* 0: a latent */
    int64_t parameters;
    double per_token, all; /* bytes of a cache */
    double flops;
} layer_cost;

typedef struct cost_work {
    const cost_settings *settings;
    problem_spec spec;
    attn_cost_problem counted;
    attn_cost method[METHODS];
    int has[METHODS]; /* 0: not with these types */
    layer_cost layer[MAX_LAYERS];
    int layers;
} cost_work;

static attn_status count_attention(cost_work *w, attn_error *error)
{
    attn_problem problem;
    attn_tensors tensors;
    attn_cpu_description cpu = {.struct_size = sizeof cpu};
    if (w->spec.op == SPEC_LINEAR || w->spec.op == SPEC_LINEAR_BACKWARD) w->spec.op = SPEC_FORWARD; /* all methods are counted */
    attn_status status = problem_build(&w->spec, &problem, &tensors, error);
    if (status == ATTN_OK) status = attn_cpu_describe(&cpu, error);
    if (status != ATTN_OK) return status;
    attn_cost_problem *p = &w->counted;
    *p = (attn_cost_problem){.struct_size = sizeof *p, .shape = problem.shape, .dtype = tensors.q.dtype};
    if (problem_stored_dtype(&w->spec, TENSOR(k)) != p->dtype) p->k_dtype = tensors.k.dtype;
    if (problem_stored_dtype(&w->spec, TENSOR(v)) != p->dtype) p->v_dtype = tensors.v.dtype;
    p->k_scaled = tensors.k_scale.data != NULL && p->k_dtype != ATTN_I8;
    p->v_scaled = tensors.v_scale.data != NULL && p->v_dtype != ATTN_I8;
    sparse_mask mask;
    status = sparse_make(&mask, &w->spec, error);
    if (status == ATTN_OK) status = sparse_put(&mask, &w->spec, 0, &problem, &tensors, error);
    if (status == ATTN_OK) p->pairs = visible_pairs(&problem, &tensors, NULL, NULL, NULL);
    sparse_free(&mask);
    const int64_t fast = w->settings->fast ? w->settings->fast : (int64_t)cpu.cache_l2;
    p->fast_elements = fast / (int64_t)attn_dtype_size(p->dtype ? p->dtype : ATTN_F32);
    p->features = w->settings->features, p->rank = w->settings->rank;
    for (int m = 0; m < METHODS && status == ATTN_OK; m++) {
        p->method = (attn_cost_method)m;
        w->method[m].struct_size = sizeof w->method[m];
        status = attn_cost_estimate(p, &w->method[m], error);
        w->has[m] = status == ATTN_OK;
        if (m == ATTN_COST_METHOD_LINEAR && status == ATTN_ERR_UNSUPPORTED) status = ATTN_OK; /* quantised keys */
    }
    return status;
}

/* ---- layers ---- */

#if ATTN_CLI_LAYERS
/* Of a layer with these heads; its cache has the types of the problem. */
static attn_status add_layer(cost_work *w, const char *kind, int64_t heads_kv, const attn_layer_counts *counts, attn_error *error)
{
    attn_cost_problem p = w->counted;
    attn_cost cost = {.struct_size = sizeof cost};
    const double tokens = (double)p.shape.batch * (double)p.shape.len_kv;
    p.method = ATTN_COST_METHOD_MATRIX, p.pairs = 0;
    if (heads_kv) p.shape.heads_kv = heads_kv;
    const attn_status status = attn_cost_estimate(&p, &cost, error);
    /* the counts of a latent layer, in f32, have its rotated channels too */
    const double latent = (double)counts->cache_per_token / 4 * (double)attn_dtype_size(problem_dtype(&w->spec)) * tokens;
    const double all = heads_kv ? cost.cache_bytes : latent;
    w->layer[w->layers++] = (layer_cost){kind, heads_kv, counts->parameters, tokens > 0 ? all / tokens : 0, all, counts->flops};
    return status;
}

static attn_status count_layers(cost_work *w, attn_error *error)
{
    const cost_settings *settings = w->settings;
    const attn_shape *s = &w->counted.shape;
    const int64_t width = settings->width ? settings->width : s->heads_q * s->dim_qk;
    const struct {
        const char *kind;
        int64_t heads_kv;
    } kinds[] = {{"multi-head", s->heads_q}, {"grouped-query", s->heads_kv}, {"multi-query", 1}};
    attn_status status = ATTN_OK;
    for (int k = 0; k < 3 && status == ATTN_OK; k++) {
        attn_layer_counts counts = {.struct_size = sizeof counts};
        const attn_layer layer = {.struct_size = sizeof layer,
                                  .dim_model = width,
                                  .heads_q = s->heads_q,
                                  .heads_kv = kinds[k].heads_kv,
                                  .head_dim = s->dim_qk,
                                  .head_dim_v = s->dim_v};
        if (k == 1 && (s->heads_kv == 1 || s->heads_kv == s->heads_q)) continue;
        status = attn_layer_count(&layer, s->batch, s->len_q, s->len_kv, NULL, &counts, error);
        if (status == ATTN_OK) status = add_layer(w, kinds[k].kind, kinds[k].heads_kv, &counts, error);
    }
    if (status != ATTN_OK || !settings->rank) return status;
    attn_layer_counts counts = {.struct_size = sizeof counts};
    const attn_latent latent = {.struct_size = sizeof latent,
                                .dim_model = width,
                                .heads = s->heads_q,
                                .head_dim = s->dim_qk,
                                .head_dim_v = s->dim_v,
                                .rank = settings->rank,
                                .dim_rotary = settings->rotary};
    status = attn_latent_count(&latent, s->batch, s->len_q, s->len_kv, NULL, &counts, error);
    return status == ATTN_OK ? add_layer(w, "latent", 0, &counts, error) : status;
}
#else
static attn_status count_layers(cost_work *w, attn_error *error)
{
    (void)w, (void)error;
    return ATTN_OK;
}
#endif

/* ---- output ---- */

static double rate_of(const cost_work *w, int m)
{
    return attn_attainable_rate(1e9 * w->settings->peak, 1e9 * w->settings->bandwidth, w->method[m].intensity);
}

/* The numbers that differ by method. */
static const struct {
    const char *name, *label;
    size_t at;
} of_method[] = {{"operations", "operations", offsetof(attn_cost, operations)},
                 {"backward_operations", "operations of backward", offsetof(attn_cost, backward_operations)},
                 {"traffic_bytes", "bytes moved", offsetof(attn_cost, traffic_bytes)},
                 {"extra_bytes", "bytes besides q, k, v, o", offsetof(attn_cost, extra_bytes)},
                 {"intensity", "operations a byte", offsetof(attn_cost, intensity)}},
  of_problem[] = {{"pairs", "visible pairs", offsetof(attn_cost, pairs)},
                  {"scores", "scores", offsetof(attn_cost, scores)},
                  {"qkv_bytes", "bytes of q, k, v", offsetof(attn_cost, qkv_bytes)},
                  {"output_bytes", "bytes of o", offsetof(attn_cost, output_bytes)},
                  {"lse_bytes", "bytes of lse", offsetof(attn_cost, lse_bytes)},
                  {"matrix_bytes", "bytes of a matrix of scores", offsetof(attn_cost, matrix_bytes)},
                  {"cache_bytes", "bytes of a cache of k, v", offsetof(attn_cost, cache_bytes)},
                  {"latent_bytes", "bytes of a cache of latents", offsetof(attn_cost, latent_bytes)}};

static double number_of(const attn_cost *cost, size_t at) { return *(const double *)(const void *)((const char *)cost + at); }

static void print_json(const cost_work *w, const char *problem)
{
    cJSON *object = json_begin(), *list;
    json_text(object, "problem", problem);
    for (size_t n = 0; n < sizeof of_problem / sizeof *of_problem; n++)
        json_number(object, of_problem[n].name, number_of(&w->method[0], of_problem[n].at));
    if (w->has[ATTN_COST_METHOD_LINEAR]) json_number(object, "state_bytes", w->method[ATTN_COST_METHOD_LINEAR].state_bytes);
    cJSON *methods = json_object(object, "methods");
    for (int m = 0; m < METHODS; m++) {
        if (!w->has[m]) continue;
        cJSON *row = json_object(methods, method_names[m]);
        for (size_t n = 0; n < sizeof of_method / sizeof *of_method; n++)
            json_number(row, of_method[n].name, number_of(&w->method[m], of_method[n].at));
        if (w->settings->peak > 0) json_number(row, "attainable", rate_of(w, m));
    }
    list = json_list(object, "layers");
    for (int k = 0; k < w->layers; k++) {
        const layer_cost *l = &w->layer[k];
        cJSON *row = json_item(list);
        json_text(row, "kind", l->kind);
        if (l->heads_kv) json_int(row, "heads_kv", l->heads_kv);
        json_int(row, "parameters", l->parameters);
        json_number(row, "cache_bytes_per_token", l->per_token);
        json_number(row, "cache_bytes", l->all);
        json_number(row, "flops", l->flops);
    }
    json_end(object);
}

static void print_methods(const cost_work *w)
{
    printf("\n%-28s", "");
    for (int m = 0; m < METHODS; m++)
        if (w->has[m]) printf("%12s", method_names[m]);
    for (size_t n = 0; n < sizeof of_method / sizeof *of_method; n++) {
        printf("\n%-28s", of_method[n].label);
        for (int m = 0; m < METHODS; m++)
            if (w->has[m]) printf("%12.5g", number_of(&w->method[m], of_method[n].at));
    }
    if (w->settings->peak > 0) printf("\n%-28s", "attainable operations / s");
    for (int m = 0; m < METHODS && w->settings->peak > 0; m++)
        if (w->has[m]) printf("%12.5g", rate_of(w, m));
    printf("\n");
}

static void print_text(const cost_work *w, const char *problem)
{
    printf("%s\n", problem);
    for (size_t n = 0; n < sizeof of_problem / sizeof *of_problem; n++) {
        const double number = number_of(&w->method[0], of_problem[n].at);
        if (number > 0) printf("%-28s%12.6g\n", of_problem[n].label, number);
    }
    if (w->has[ATTN_COST_METHOD_LINEAR])
        printf("%-28s%12.6g\n", "bytes of a linear state", w->method[ATTN_COST_METHOD_LINEAR].state_bytes);
    print_methods(w);
    if (w->layers) printf("\n%-20s%14s%14s%14s%14s\n", "layer", "parameters", "cache a token", "cache", "operations");
    for (int k = 0; k < w->layers; k++) {
        const layer_cost *l = &w->layer[k];
        char name[40];
        if (l->heads_kv) (void)snprintf(name, sizeof name, "%s, %" PRId64, l->kind, l->heads_kv);
        else (void)snprintf(name, sizeof name, "%s, %" PRId64, l->kind, w->settings->rank);
        printf("%-20s%14" PRId64 "%14.6g%14.6g%14.5g\n", name, l->parameters, l->per_token, l->all, l->flops);
    }
}

int attn_cmd_cost(int argc, char **argv)
{
    cost_settings settings = {0};
    const option_group groups[] = {
        {"Attention", cost_options, &settings},
#if ATTN_CLI_LAYERS
        {"Layers", layer_options, &settings},
#endif
        {0}
    };
    cost_work w = {.settings = &settings};
    attn_error error;
    char problem[512];
    int operand;
    const int early = options_begin(&usage, groups, &settings.common, argc, argv, 1, &operand);
    if (early >= 0) return early;
    attn_status status = ATTN_OK;
    if ((settings.peak > 0) != (settings.bandwidth > 0))
        status = failure(&error, ATTN_ERR_ARGUMENT, "--peak and --bandwidth go together");
    if (status == ATTN_OK && settings.rotary && !settings.rank)
        status = failure(&error, ATTN_ERR_ARGUMENT, "--rotary has no effect without --rank");
    if (status != ATTN_OK) return command_fail(usage.name, NULL, &error);
    status = problem_parse(argv[operand], &w.spec, &error);
    if (status == ATTN_OK) (void)problem_print(&w.spec, problem, sizeof problem);
    if (status == ATTN_OK) status = count_attention(&w, &error);
    if (status == ATTN_OK) status = count_layers(&w, &error);
    if (status != ATTN_OK) return command_fail(usage.name, argv[operand], &error);
    (settings.common.json ? print_json : print_text)(&w, problem);
    return EXIT_DONE;
}
