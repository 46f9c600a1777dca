/* SPDX-License-Identifier: MIT
 * report_json.c - the JSON object; spec of the fields: docs/benchmarks.md. */
#include <stdio.h>

#include "cli/measure/head.h"
#include "clock.h"
#include "report.h"
#include "testing/text/json.h"

static double giga(const ceiling *c) { return ceiling_median(c) / 1e9; }

/* The three most important ones are repeated in `machine` itself. */
static void add_ceilings(cJSON *machine, ceilings *all)
{
    json_number(machine, "fma_f32_gflops", giga(ceiling_of_fma(all, all->isa, ATTN_F32)));
    json_number(machine, "fma_f64_gflops", giga(ceiling_of_fma(all, all->isa, ATTN_F64)));
    json_number(machine, "stream_gbs", giga(ceiling_of_read(all, CEILING_MEMORY)));
    cJSON *object = json_object(machine, "ceilings");
    json_number(object, "fma_f32_gflops", giga(ceiling_of_fma(all, all->isa, ATTN_F32)));
    json_number(object, "fma_f64_gflops", giga(ceiling_of_fma(all, all->isa, ATTN_F64)));
    json_number(object, "stream_gbs", giga(ceiling_of_read(all, CEILING_MEMORY)));
    for (int k = 0; k < all->count; k++) {
        const ceiling *c = &all->list[k];
        char name[64];
        if (c->kind == CEILING_FMA)
            snprintf(name, sizeof name, "fma_%s_%s_gflops", attn_dtype_name(c->loop->compute), attn_isa_name(c->isa));
        else if (c->kind == CEILING_MEMORY) continue;
        else snprintf(name, sizeof name, "stream_%s_gbs", c->kind == CEILING_L2 ? "l2" : "l3");
        json_number(object, name, giga(c));
    }
}

static void add_machine(cJSON *object, ceilings *all)
{
    attn_cpu_description cpu = {.struct_size = sizeof cpu};
    attn_cpu_describe(&cpu, NULL);
    cJSON *machine = json_object(object, "machine");
    json_text(machine, "cpu", cpu.name);
    json_words(machine, "features", cpu.features);
    json_text(machine, "isa", attn_isa_name(all->isa));
    json_int(machine, "threads", all->threads);
    json_text(machine, "clock", clock_name());
    json_int(machine, "cache_l1d", (int64_t)cpu.cache_l1d);
    json_int(machine, "cache_l2", (int64_t)cpu.cache_l2);
    json_int(machine, "cache_l3", (int64_t)cpu.cache_l3);
    add_ceilings(machine, all);
}

/* null if the system does not tell. */
static void add_bytes(cJSON *object, const char *name, int64_t bytes)
{
    if (bytes < 0) cJSON_AddNullToObject(object, name);
    else json_int(object, name, bytes);
}

static void add_histogram(cJSON *row, const result *x)
{
    enum { PARTS = 20 };
    int64_t counts[PARTS];
    cJSON *histogram = json_object(row, "histogram");
    json_number(histogram, "low", x->least);
    json_number(histogram, "high", x->most);
    series_histogram(&x->candidate->seconds, PARTS, counts);
    cJSON *list = json_list(histogram, "counts");
    for (int k = 0; k < PARTS; k++) cJSON_AddItemToArray(list, cJSON_CreateNumber((double)counts[k]));
}

static void add_result(cJSON *row, const result *x, const result *baseline, int samples)
{
    const candidate *c = x->candidate;
    json_text(row, "problem", c->text);
    if (c->name) json_text(row, "name", c->name);
    else cJSON_AddNullToObject(row, "name");
    json_text(row, "kernel", c->plan_says.kernel);
    json_text(row, "isa", attn_isa_name(c->plan_says.isa));
    json_text(row, "compute", attn_dtype_name(c->plan_says.compute));
    json_int(row, "threads", c->plan_says.threads);
    cJSON *seconds = json_object(row, "seconds");
    json_number(seconds, "p10", x->p10);
    json_number(seconds, "median", x->median);
    json_number(seconds, "p90", x->p90);
    json_number(seconds, "p95", x->p95);
    json_number(seconds, "p99", x->p99);
    json_number(seconds, "p999", x->p999);
    json_number(seconds, "min", x->least);
    json_number(seconds, "max", x->most);
    json_number(seconds, "mean", x->mean);
    json_number(seconds, "std", x->deviation);
    add_histogram(row, x);
    json_number(row, "speedup", baseline->median / x->median);
    json_text(row, "baseline", baseline->candidate->text);
    json_int(row, "samples", c->seconds.count);
    cJSON *all = samples ? json_list(row, "seconds_all") : NULL;
    for (int64_t k = 0; samples && k < c->seconds.count; k++) cJSON_AddItemToArray(all, cJSON_CreateNumber(c->seconds.value[k]));
    json_int(row, "calls_per_sample", c->calls);
    json_number(row, "flops", c->flops);
    json_number(row, "gflops", x->gflops.median);
    json_number(row, "gflops_best", x->gflops.best);
    json_number(row, "ceiling_gflops", x->ceiling_gflops);
    json_number(row, "share_of_ceiling", x->share_of_ceiling.median);
    json_number(row, "share_of_ceiling_best", x->share_of_ceiling.best);
    json_number(row, "gbs", x->gbs.median);
    json_number(row, "gbs_best", x->gbs.best);
    json_text(row, "stream", ceiling_kind_name(x->stream));
    json_number(row, "stream_gbs", x->stream_gbs);
    json_number(row, "share_of_stream", x->share_of_stream.median);
    json_number(row, "share_of_stream_best", x->share_of_stream.best);
    json_text(row, "bound", x->stream_bound ? "stream" : "fma");
    json_number(row, "tokens_per_second", x->tokens_per_second);
    json_number(row, "tensor_bytes", c->data.bytes);
    json_int(row, "workspace_bytes", (int64_t)(c->plan_says.workspace_bytes + c->call_bytes));
    json_int(row, "plan_bytes", (int64_t)c->plan_bytes);
    json_number(row, "memory_estimate_bytes", x->estimate_bytes);
    add_bytes(row, "extra_bytes", c->extra_bytes);
    add_bytes(row, "peak_bytes", c->peak_bytes);
    json_number(row, "scores_bytes", x->scores_bytes);
}

cJSON *report_object(const report *r)
{
    cJSON *object = measure_json_begin();
    if (r->iterations) json_int(object, "iterations", r->iterations);
    else json_number(object, "seconds_per_problem", r->seconds);
    add_machine(object, r->ceilings);
    cJSON *results = json_list(object, "results");
    for (int k = 0; k < r->count; k++) add_result(json_item(results), &r->results[k], &r->results[r->base[k]], r->samples);
    return object;
}

void report_json(const report *r) { json_end(report_object(r)); }
