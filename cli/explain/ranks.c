/* SPDX-License-Identifier: MIT
 * ranks.c - see ranks.h. */
#include "ranks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "testing/problem/linear_problem.h"
#include "testing/problem/sparse.h"
#include "testing/text/failure.h"
#include "testing/text/json.h"

/* ---- flags ---- */

const option_row ranks_options[] = {
    {"ranks", 0, "N", "predict what N machines would take instead", WHOLE(ranks_settings, ranks, 1, 1 << 24)},
    {0},
};

attn_status ranks_check_flags(const ranks_settings *s, const common_settings *common, attn_error *error)
{
    const char *local = common->threads        ? "threads"
                        : common->isa          ? "isa"
                        : common->invariant    ? "invariant"
                        : common->reproducible ? "reproducible"
                                               : NULL;
    if (s->ranks && local) return failure(error, ATTN_ERR_ARGUMENT, "--%s has no effect with --ranks", local);
    const char *machine = machine_given(&s->split.machine);
    const char *given = machine                ? machine
                        : s->split.part > 0    ? "part"
                        : s->split.has_layout  ? "layout"
                        : s->split.way         ? "way"
                        : s->split.ranks_heads ? "ranks-heads"
                        : s->split.any_order   ? "any-order"
                                               : NULL;
    if (s->ranks && s->split.way) return split_check(&s->split, error); /* without --way, it is that of one of the rows */
    if (s->ranks || !given) return ATTN_OK;
    return failure(error, ATTN_ERR_ARGUMENT, "--%s has no effect without --ranks", given);
}

/* ---- predicting ---- */

typedef struct outlook {
    const char *problem;
    const ranks_settings *settings;
    attn_split split;
    attn_split_machine machine;
    way_row rows[MOST_WAYS];
    int count;
    attn_split_prediction taken; /* by a plan that is told nothing else */
} outlook;

static int by_time(const void *a, const void *b)
{
    const way_row *x = a, *y = b;
    return x->of.seconds != y->of.seconds ? (x->of.seconds < y->of.seconds ? -1 : 1) : y->in_library - x->in_library;
}

/* A way of the library; of groups that divide the heads, which are 2, 3, ... up to the key heads, that which takes the least. */
static attn_status predict_way(outlook *o, way_row *row, const attn_problem *problem, const attn_tensors *tensors,
                               attn_error *error)
{
    const int ranks = o->settings->ranks;
    attn_split_prediction best = {.struct_size = 0};
    attn_status status = attn_split_predict(problem, ranks, tensors, &o->split, &o->machine, &row->of, error);
    if (o->split.way != ATTN_WAY_HEADS_RING || o->split.ranks_heads) return status;
    for (int64_t n = 2; status == ATTN_OK && n <= problem->shape.heads_kv && n < ranks; n++) {
        if (ranks % n || n == row->of.ranks_heads) continue;
        attn_split_prediction other = {.struct_size = sizeof other};
        attn_split split = o->split;
        split.ranks_heads = n;
        status = attn_split_predict(problem, ranks, tensors, &split, &o->machine, &other, error);
        if (status == ATTN_OK && (!best.struct_size || other.seconds < best.seconds)) best = other;
    }
    if (best.struct_size && best.seconds < row->of.seconds) row->of = best;
    return status;
}

/* 1 for what is not worth a line unless it is asked for. */
static int is_of_no_use(const outlook *o, attn_way way, const attn_problem *problem)
{
    return (way == ATTN_WAY_SPLIT_KEYS && problem->op != ATTN_FORWARD) ||
           (way == ATTN_WAY_HEADS && o->settings->ranks > problem->shape.heads_kv);
}

static attn_status predict(outlook *o, const attn_problem *problem, const attn_tensors *tensors, attn_error *error)
{
    static const struct {
        const char *name;
        attn_way way;
    } ways[] = {{"direct", ATTN_WAY_DIRECT},           {"ring", ATTN_WAY_RING},
                {"split keys", ATTN_WAY_SPLIT_KEYS},   {"heads", ATTN_WAY_HEADS},
                {"heads x ring", ATTN_WAY_HEADS_RING}, {"gather", ATTN_WAY_GATHER}};
    const attn_way only = o->settings->split.way;
    const int64_t ranks_heads = o->split.ranks_heads;
    o->taken.struct_size = sizeof o->taken;
    if (!only) o->split.ranks_heads = 0; /* of one of the ways alone */
    const attn_status planned = attn_split_predict(problem, o->settings->ranks, tensors, &o->split, &o->machine, &o->taken, error);
    if (planned != ATTN_OK) return planned;
    for (size_t n = 0; n < sizeof ways / sizeof *ways; n++) {
        way_row *row = &o->rows[o->count];
        const attn_way way = ways[n].way;
        if (only ? only != way : is_of_no_use(o, way, problem)) continue;
        *row = (way_row){.name = ways[n].name, .in_library = 1, .of.struct_size = sizeof row->of};
        o->split.way = way;
        o->split.ranks_heads = only || way == ATTN_WAY_HEADS_RING ? ranks_heads : 0;
        const attn_status status = predict_way(o, row, problem, tensors, error);
        /* Gradients that all heads share, by heads; whole rows of weights, by split keys. */
        if (status == ATTN_ERR_UNSUPPORTED && !only) continue;
        if (status != ATTN_OK) return status;
        const int is_another = row->of.ranks_heads > 1 && row->of.ranks_heads < o->settings->ranks;
        if (only || way != ATTN_WAY_HEADS_RING || is_another) o->count++;
    }
    /* Their formulas are for causal and dense problems: with a window, gathering would take what nobody sees. */
    if (!only && !problem->mask.window && !problem->mask.chunk)
        o->count +=
            ways_elsewhere(problem, tensors->q.dtype, o->settings->ranks, &o->machine, o->rows[0].of.flops, o->rows + o->count);
    qsort(o->rows, (size_t)o->count, sizeof *o->rows, by_time);
    return ATTN_OK;
}

static const way_row *best_of(const outlook *o)
{
    for (int n = 0; n < o->count; n++)
        if (o->rows[n].in_library) return &o->rows[n];
    return o->rows;
}

/* ---- printing ---- */

static void print_json(const outlook *o)
{
    const attn_split_machine *m = &o->machine;
    const way_row *best = best_of(o);
    cJSON *object = json_begin();
    json_text(object, "problem", o->problem);
    json_int(object, "ranks", o->settings->ranks);
    cJSON *machine = json_object(object, "machine");
    json_number(machine, "flops_per_second", m->flops_per_second);
    json_number(machine, "bytes_per_second", m->bytes_per_second);
    json_number(machine, "seconds_per_message", m->seconds_per_message);
    json_number(machine, "seconds_per_sum", m->seconds_per_sum);
    json_text(object, "layout", split_layout_name(o->split.layout));
    json_int(object, "part", o->split.part ? o->split.part : 1024);
    json_int(object, "parts_q", best->of.parts_q);
    json_int(object, "parts_kv", best->of.parts_kv);
    json_number(object, "flops", best->of.flops);
    json_text(object, "best", best->name);
    cJSON *plan = json_object(object, "plan");
    json_text(plan, "way", split_way_name(o->taken.way));
    json_int(plan, "ranks_heads", o->taken.ranks_heads);
    json_number(plan, "seconds", o->taken.seconds);
    json_text(plan, "why", o->taken.why);
    cJSON *ways = json_list(object, "ways");
    for (int n = 0; n < o->count; n++) {
        const way_row *row = &o->rows[n];
        const attn_split_prediction *d = &row->of;
        cJSON *item = json_item(ways);
        json_text(item, "way", row->name);
        json_flag(item, "in_library", row->in_library);
        json_number(item, "seconds", d->seconds);
        json_number(item, "computing", d->computing);
        json_number(item, "combining", d->combining);
        json_number(item, "waiting", d->waiting);
        json_number(item, "efficiency", d->efficiency);
        json_number(item, "imbalance", d->imbalance);
        if (!row->in_library) continue;
        json_int(item, "cells", d->cells_total);
        json_int(item, "cells_most", d->cells_most);
        json_int(item, "messages", d->messages_total);
        json_int(item, "messages_most", d->messages);
        json_int(item, "bytes", d->bytes_total);
        json_int(item, "bytes_most", d->bytes);
        json_int(item, "key_bytes", d->key_bytes);
        json_int(item, "steps", d->steps);
        json_int(item, "ranks_heads", d->ranks_heads);
        json_number(item, "sampled", d->sampled);
    }
    json_end(object);
}

static void print_text(const outlook *o)
{
    const attn_split_machine *m = &o->machine;
    const way_row *best = best_of(o);
    int missing = 0;
    printf("problem    %s\n", o->problem);
    printf("machines   %d, each with %g Tflop/s and %g Gbit/s; %g us a message\n", o->settings->ranks, m->flops_per_second / 1e12,
           m->bytes_per_second * 8 / 1e9, m->seconds_per_message * 1e6);
    printf("split      %" PRId64 " x %" PRId64 " parts of %" PRId64 " tokens, %s\n", best->of.parts_q, best->of.parts_kv,
           o->split.part ? o->split.part : 1024, split_layout_name(o->split.layout));
    printf("work       %.4g Gflop; the busiest machine has %.3g times the mean\n", best->of.flops / 1e9, best->of.imbalance);
    printf("best       %s\n", best->name);
    printf("plan       %s\n\n", o->taken.why);
    printf("%-20s %11s %11s %11s %11s %10s %12s %12s\n", "way", "seconds", "computing", "combining", "waiting", "efficiency",
           "GiB sent", "keys MiB");
    for (int n = 0; n < o->count; n++) {
        const way_row *row = &o->rows[n];
        const attn_split_prediction *d = &row->of;
        char title[40];
        (void)snprintf(title, sizeof title, "%s", row->name);
        if (d->way == ATTN_WAY_HEADS_RING) (void)snprintf(title, sizeof title, "%s, %" PRId64, row->name, d->ranks_heads);
        printf("%-19s%s %11.4g %11.4g %11.4g %11.4g %9.1f%%", title, row->in_library ? " " : "*", d->seconds, d->computing,
               d->combining, d->waiting, 100 * d->efficiency);
        if (row->in_library) printf(" %12.4g %12.4g\n", (double)d->bytes_total / 1073741824, (double)d->key_bytes / 1048576);
        else putchar('\n');
        missing |= !row->in_library;
    }
    printf("\nA prediction, not a measurement: docs/distributed.md has the model. Seconds are those of the busiest machine;\n"
           "waiting is for messages that work does not hide; keys is memory for keys on their way. heads x ring, N:\n"
           "N machines divide the heads. gather: one key head after another.\n");
    if (missing) printf("* not in the library; as if work were even and nothing were cut into parts.\n");
}

attn_status ranks_explain(const char *name, const problem_spec *spec, const ranks_settings *settings, int json, attn_error *error)
{
    attn_problem problem;
    attn_tensors tensors;
    outlook o = {.problem = name,
                 .settings = settings,
                 .split = split_of(&settings->split, spec),
                 .machine = machine_of(&settings->split.machine)};
    if (linear_problem_is(spec))
        return failure(error, ATTN_ERR_UNSUPPORTED,
                       "--ranks predicts softmax attention; there is no model of linear attention over ranks yet");
    if (spec->packed || spec->ragged || spec->page || spec->schedule || spec->lengths || spec->offset_kind == SPEC_OFFSET_EACH)
        return failure(error, ATTN_ERR_UNSUPPORTED,
                       "--ranks predicts sequences of one length: without packed, ragged, page, schedule, lens, offset");
    attn_status status = problem_build(spec, &problem, &tensors, error);
    if (status == ATTN_OK) status = sparse_check_fields(spec, error);
    if (status != ATTN_OK) return status;
    int64_t *offsets = NULL;
    if (tensors.offset_q.data) {
        offsets = need_memory(problem.shape.batch, sizeof *offsets);
        for (int64_t b = 0; b < problem.shape.batch; b++) offsets[b] = spec->offset;
        tensors.offset_q.data = offsets;
    }
    status = predict(&o, &problem, &tensors, error);
    free(offsets);
    if (status == ATTN_OK && json) print_json(&o);
    if (status == ATTN_OK && !json) print_text(&o);
    return status;
}
