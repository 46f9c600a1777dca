/* SPDX-License-Identifier: MIT
 *
 * explain.c - `attn explain`: which kernel, tiles and memory a problem gets, and why. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "attn/cost.h"
#include "cli/base/commands.h"
#include "cli/base/options.h"
#include "cli/measure/tiles.h"
#include "options.h"
#include "ranks.h"
#include "schedule.h"
#include "testing/problem/linear_problem.h"
#include "testing/problem/problem.h"
#include "testing/problem/sparse.h"
#include "testing/text/json.h"

/* The words of problem strings, from their table. */
static void print_words(void)
{
    printf("\nWords of a problem string, in any order, separated by colons (required: sq and d):\n");
    for (int w = 0; problem_word_at(w); w++) {
        const problem_word *word = problem_word_at(w);
        if (word->form == WORD_FLAG) continue;
        const char *argument = word->argument ? word->argument : "";
        const char *between = word->form == WORD_OPTION && argument[0] && argument[0] != '[' ? "=" : "";
        int wide = printf("  %s%s%s", word->name, between, argument);
        printf("%*s%s\n", wide < 28 ? 28 - wide : 1, "", word->help);
    }
}

static const command_usage usage = {
    .name = "explain",
    .without = "seed",
    .synopsis = "PROBLEM [options]",
    .summary = "Prints which kernel, tiles, threads and memory a problem gets, and why.\n"
               "PROBLEM is a problem string, such as fwd:bf16:b2:hq32:hkv8:sq1024:d128:causal.\n"
               "With --ranks, predicts time, bytes and memory over many machines, and the best way.\n",
    .notes = "Each option of the problem has a line with its cost; `fused` tells whether all options are\n"
             "done inside one walk over the tiles (all but the gradient of a bias that broadcasts).\n",
    .more = print_words,
    .operands = {"problem"},
    .word = problem_word_name,
    .example = "attn explain fwd:f32:hq8:sq1024:d64:causal",
};

static int64_t tiles(int64_t length, int64_t tile) { return tile > 0 ? (length + tile - 1) / tile : 0; }

/* The costs of the walk over tiles, with the L2 cache as fast memory, and of a matrix of all scores. */
static int costs_of(const attn_problem *problem, const attn_tensors *all, const attn_plan_description *d, attn_cost *tiled,
                    attn_cost *matrix)
{
    const attn_shape *s = &problem->shape;
    const double width = 2.0 * (double)(s->dim_qk + s->dim_v);
    attn_cpu_description cpu = {.struct_size = sizeof cpu};
    attn_cost_problem p = {.struct_size = sizeof p,
                           .shape = *s,
                           .dtype = all->q.dtype,
                           .pairs = width > 0 ? d->flops / width : 0,
                           .k_dtype = all->k.dtype,
                           .v_dtype = all->v.dtype,
                           .k_scaled = all->k_scale.data != NULL,
                           .v_scaled = all->v_scale.data != NULL};
    attn_cpu_describe(&cpu, NULL);
    const double pairs = (double)s->batch * (double)s->heads_q * (double)s->len_q * (double)s->len_kv;
    if (!(p.pairs <= pairs)) p.pairs = pairs; /* counted from a sample of rows */
    p.fast_elements = (int64_t)(cpu.cache_l2 / attn_dtype_size(d->compute));
    if (attn_cost_estimate(&p, tiled, NULL) != ATTN_OK) return 0;
    p.method = ATTN_COST_METHOD_MATRIX;
    return attn_cost_estimate(&p, matrix, NULL) == ATTN_OK;
}

static void json_cost(cJSON *object, const attn_problem *problem, const attn_tensors *all, const attn_plan_description *d)
{
    attn_cost tiled = {.struct_size = sizeof tiled}, matrix = {.struct_size = sizeof matrix};
    if (!costs_of(problem, all, d, &tiled, &matrix)) return;
    cJSON *cost = json_object(object, "cost");
    json_number(cost, "pairs", tiled.pairs);
    json_number(cost, "traffic_bytes", tiled.traffic_bytes);
    json_number(cost, "intensity", tiled.intensity);
    json_number(cost, "matrix_bytes", matrix.matrix_bytes);
    json_number(cost, "matrix_traffic_bytes", matrix.traffic_bytes);
    json_number(cost, "matrix_intensity", matrix.intensity);
}

static void print_cost(const attn_problem *problem, const attn_tensors *all, const attn_plan_description *d)
{
    attn_cost tiled = {.struct_size = sizeof tiled}, matrix = {.struct_size = sizeof matrix};
    if (!costs_of(problem, all, d, &tiled, &matrix)) return;
    printf("traffic    %.4g MiB between memory and cache, %.3g flop a byte; with a matrix of %.4g MiB it would be "
           "%.4g MiB and %.3g with the same cache\n",
           tiled.traffic_bytes / 1048576, tiled.intensity, matrix.matrix_bytes / 1048576, matrix.traffic_bytes / 1048576,
           matrix.intensity);
}

static void json_options(cJSON *object, const option_cost *costs, int count)
{
    cJSON *list = json_list(object, "options");
    for (int k = 0; k < count; k++) {
        cJSON *item = json_item(list);
        json_text(item, "name", costs[k].name);
        json_text(item, "cost", costs[k].cost);
        json_int(item, "bytes", costs[k].bytes);
        cJSON_AddBoolToObject(item, "fused", costs[k].fused);
    }
}

static void print_options(const option_cost *costs, int count)
{
    int separate = 0;
    for (int k = 0; k < count; k++) {
        printf("%-10s %-11s %s", k ? "" : "options", costs[k].name, costs[k].cost);
        if (costs[k].bytes >= 1024) printf(" (%.1f KiB)", (double)costs[k].bytes / 1024);
        else if (costs[k].bytes) printf(" (%" PRId64 " bytes)", costs[k].bytes);
        putchar('\n');
        separate += !costs[k].fused;
    }
    printf("fused      %s\n", separate ? "all but the gradient of the bias, which has a walk of its own"
                              : count  ? "all options are done inside one walk over the tiles"
                                       : "one walk over the tiles");
}

/* A problem, its plan and its costs; not to be copied. */
typedef struct explanation {
    sparse_mask mask;
    attn_problem problem;
    attn_tensors tensors;
    attn_plan_description description;
    option_cost costs[MAX_COSTS + 1];
    int count;
    char matrix[SPEC_SPARSE + 160]; /* what its last cost says */
    int scheduled;
    schedule_facts schedule;
} explanation;

/* 1 if some option but masks modifies every tile. */
static int all_are_modified(const explanation *x, const attn_options *options)
{
    attn_problem bare = x->problem;
    attn_tensors all = x->tensors;
    attn_plan *plan;
    attn_plan_description d = {.struct_size = sizeof d};
    bare.mask = (attn_mask){.empty = x->problem.mask.empty};
    all.ranges = all.block_starts = all.block_index = all.block_mask = all.tree = (attn_input){0};
    const int planned =
        !x->problem.mask.tree_keys && !x->tensors.block_mask.data && attn_plan_create(&plan, &bare, &all, options, NULL) == ATTN_OK;
    if (!planned) return 1;
    const int known = attn_plan_describe(plan, &d, NULL) == ATTN_OK;
    attn_plan_destroy(plan);
    return !known || d.tiles_modified > 0;
}

/* Tiles and pairs of ranges and lists of blocks, whose numbers the plan does not know. */
static attn_status count_tiles(explanation *x, const problem_spec *spec, const attn_options *options, attn_error *error)
{
    attn_plan_description *d = &x->description;
    attn_problem same = x->problem;
    attn_tensors all = x->tensors;
    attn_status status = sparse_plan(&x->mask, spec, error);
    if (status == ATTN_OK) status = sparse_put(&x->mask, spec, 0, &same, &all, error);
    if (status != ATTN_OK || (!x->mask.slots.ranges.data && !x->mask.slots.block_starts.data)) return status;
    const tile_numbers n = tiles_count(&x->problem, &all, d->tile_q, d->block_kv);
    d->tiles_visited = n.visited;
    d->tiles_modified = all_are_modified(x, options) ? n.visited : n.visited - n.full;
    d->flops = 2.0 * (double)(x->problem.shape.dim_qk + x->problem.shape.dim_v) * n.pairs;
    return ATTN_OK;
}

/* Says which masks no tile is skipped for. */
static void add_matrix(explanation *x)
{
    const char *const *names = x->mask.matrix;
    size_t used = 0;
    if (!names[0]) return;
    for (int n = 0; names[n]; n++)
        used += (size_t)snprintf(x->matrix + used, sizeof x->matrix - used, "%s%s", n ? ", " : "", names[n]);
    snprintf(x->matrix + used, sizeof x->matrix - used,
             ": no fields beside those of the other masks, so a matrix of queries x keys, for which no tile is skipped");
    x->costs[x->count++] = (option_cost){.name = "sparse", .cost = x->matrix, .fused = 1};
}

static void print_json(const char *text, const explanation *x)
{
    const attn_shape *shape = &x->problem.shape;
    const attn_plan_description *d = &x->description;
    cJSON *object = json_begin();
    json_text(object, "problem", text);
    json_text(object, "kernel", d->kernel);
    json_text(object, "why", d->why);
    json_text(object, "compute", attn_dtype_name(d->compute));
    cJSON *tile = json_object(object, "tile");
    json_int(tile, "queries", d->tile_q);
    json_int(tile, "keys", d->block_kv);
    cJSON *blocks = json_object(object, "blocks");
    json_int(blocks, "queries", tiles(shape->len_q, d->tile_q));
    json_int(blocks, "keys", tiles(shape->len_kv, d->block_kv));
    json_int(object, "threads", d->threads);
    json_int(object, "workspace_bytes", (int64_t)d->workspace_bytes);
    json_int(object, "tiles_total", d->tiles_total);
    json_int(object, "tiles_visited", d->tiles_visited);
    json_int(object, "tiles_modified", d->tiles_modified);
    json_number(object, "flops", d->flops);
    if (x->problem.op == ATTN_FORWARD) json_cost(object, &x->problem, &x->tensors, d);
    json_options(object, x->costs, x->count);
    if (x->scheduled) schedule_json(object, &x->schedule);
    json_end(object);
}

static double percent(int64_t part, int64_t whole) { return whole ? 100.0 * (double)part / (double)whole : 0; }

static void print_text(const char *text, const explanation *x)
{
    const attn_shape *shape = &x->problem.shape;
    const attn_plan_description *d = &x->description;
    printf("problem    %s\n", text);
    printf("kernel     %s (computes in %s)\n", d->kernel, attn_dtype_name(d->compute));
    printf("why        ");
    command_put(stdout, "explain", d->why);
    putchar('\n');
    printf("tile       %" PRId64 " queries x %" PRId64 " keys\n", d->tile_q, d->block_kv);
    printf("blocks     %" PRId64 " x %" PRId64 " for each head\n", tiles(shape->len_q, d->tile_q),
           tiles(shape->len_kv, d->block_kv));
    printf("tiles      %" PRId64 " in all; %" PRId64 " visited (%.1f %%), %" PRId64 " of them through a mask or bias (%.1f %%)\n",
           d->tiles_total, d->tiles_visited, percent(d->tiles_visited, d->tiles_total), d->tiles_modified,
           percent(d->tiles_modified, d->tiles_total));
    printf("threads    %d\n", d->threads);
    printf("workspace  %.1f KiB\n", (double)d->workspace_bytes / 1024);
    printf("work       %.4g Gflop\n", d->flops / 1e9);
    if (x->problem.op == ATTN_FORWARD) print_cost(&x->problem, &x->tensors, d);
    print_options(x->costs, x->count);
    if (x->scheduled) schedule_print(&x->schedule, d->threads);
}

/* ---- linear attention ---- */

static const char *const forms[] = {"", "chunked", "recurrent", "quadratic"};

static void json_linear(const char *text, const attn_linear_plan_description *d)
{
    cJSON *object = json_begin();
    json_text(object, "problem", text);
    json_text(object, "kernel", d->kernel);
    json_text(object, "why", d->why);
    json_text(object, "compute", attn_dtype_name(d->compute));
    json_text(object, "form", forms[d->form]);
    json_int(object, "chunk", d->chunk);
    json_int(object, "features", d->dim_features);
    json_int(object, "threads", d->threads);
    json_int(object, "workspace_bytes", (int64_t)d->workspace_bytes);
    json_number(object, "flops", d->flops);
    json_end(object);
}

static void print_linear(const char *text, const attn_linear_problem *p, const attn_linear_plan_description *d)
{
    const double state = (double)d->dim_features * (double)p->shape.dim_v * (double)attn_dtype_size(d->compute);
    printf("problem    %s\n", text);
    printf("kernel     %s (computes in %s)\n", d->kernel, attn_dtype_name(d->compute));
    printf("why        ");
    command_put(stdout, "explain", d->why);
    putchar('\n');
    if (d->form == ATTN_LINEAR_FORM_RECURRENT) printf("form       recurrent: token by token through the state\n");
    else printf("form       %s: %" PRId64 " tokens at a time, as matrix products\n", forms[d->form], d->chunk);
    printf("state      %" PRId64 " features x %" PRId64 " channels for each head (%.1f KiB)\n", d->dim_features, p->shape.dim_v,
           state / 1024);
    printf("threads    %d\n", d->threads);
    printf("workspace  %.1f KiB\n", (double)d->workspace_bytes / 1024);
    printf("work       %.4g Gflop, which grows with the tokens\n", d->flops / 1e9);
}

static int explain_linear(const char *text, const problem_spec *spec, const common_settings *common)
{
    char canonical[512];
    attn_linear_problem problem;
    attn_linear_tensors tensors;
    attn_linear_plan *plan = NULL;
    attn_linear_plan_description description = {.struct_size = sizeof description};
    attn_options options = options_for_library(common);
    attn_error error;
    attn_status status = linear_problem_build(spec, &problem, &tensors, &error);
    tensors = linear_of_op(&problem, &tensors);
    if (status == ATTN_OK) status = attn_linear_plan_create(&plan, &problem, &tensors, &options, &error);
    if (status == ATTN_OK) status = attn_linear_plan_describe(plan, &description, &error);
    problem_print(spec, canonical, sizeof canonical);
    if (status == ATTN_OK && common->json) json_linear(canonical, &description);
    if (status == ATTN_OK && !common->json) print_linear(canonical, &problem, &description);
    attn_linear_plan_destroy(plan);
    return command_end(status, usage.name, text, &error);
}

int attn_cmd_explain(int argc, char **argv)
{
    common_settings common = {0};
    ranks_settings ranks = {0};
    const option_group groups[] = {{"Plan", bits_options, &common},
                                   {"Many machines", ranks_options, &ranks},
                                   {"Many machines: what they do", machine_options, &ranks.split.machine},
                                   {"Many machines: who has what", split_options, &ranks.split},
                                   {0}};
    attn_error error;
    int operands, exit = options_begin(&usage, groups, &common, argc, argv, 1, &operands);
    if (exit >= 0) return exit;
    if (ranks_check_flags(&ranks, &common, &error) != ATTN_OK) return command_fail(usage.name, NULL, &error);

    const char *text = argv[operands];
    char canonical[512];
    problem_spec spec;
    explanation x = {.description.struct_size = sizeof x.description};
    attn_plan *plan = NULL;
    const attn_options options = options_for_library(&common);
    if (problem_parse(text, &spec, &error) != ATTN_OK || options_check_bits(&common, &spec, &error) != ATTN_OK)
        return command_fail(usage.name, text, &error);
    if (ranks.ranks) {
        problem_print(&spec, canonical, sizeof canonical);
        return command_end(ranks_explain(canonical, &spec, &ranks, common.json, &error), usage.name, text, &error);
    }
    if (linear_problem_is(&spec)) return explain_linear(text, &spec, &common);
    if (problem_build(&spec, &x.problem, &x.tensors, &error) != ATTN_OK ||
        attn_plan_create(&plan, &x.problem, &x.tensors, &options, &error) != ATTN_OK)
        return command_fail(usage.name, text, &error);
    attn_status status = attn_plan_describe(plan, &x.description, &error);
    if (status == ATTN_OK) status = count_tiles(&x, &spec, &options, &error);
    x.scheduled = spec.schedule;
    if (status == ATTN_OK && x.scheduled)
        status = schedule_explain(&x.schedule, &spec, &x.problem, &x.tensors, plan, x.description.threads, &error);
    x.count = option_costs(&x.problem, &x.tensors, plan, x.costs);
    add_matrix(&x);
    problem_print(&spec, canonical, sizeof canonical);
    if (status == ATTN_OK && common.json) print_json(canonical, &x);
    if (status == ATTN_OK && !common.json) print_text(canonical, &x);
    attn_plan_destroy(plan);
    sparse_free(&x.mask);
    return command_end(status, usage.name, text, &error);
}
