/* SPDX-License-Identifier: MIT
 * report_text.c - the table for people. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/base/commands.h"
#include "clock.h"
#include "report.h"

/* "1.23 ms" */
static const char *seconds_text(double seconds, char text[24])
{
    static const char *const units[] = {"s", "ms", "us", "ns"};
    int unit = 0;
    while (seconds < 1 && unit < 3) seconds *= 1000, unit++;
    snprintf(text, 24, "%.*f %s", seconds < 10 ? 2 : seconds < 100 ? 1 : 0, seconds, units[unit]);
    return text;
}

static const char *bytes_text(double bytes, char text[24])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    if (bytes < 0) return "unknown";
    while (bytes >= 1024 && unit < 4) bytes /= 1024, unit++;
    snprintf(text, 24, "%.*f %s", unit && bytes < 100 ? 1 : 0, bytes, units[unit]);
    return text;
}

static const char *percent_text(double part, char text[24])
{
    if (isnan(part)) return "-";
    snprintf(text, 24, "%.1f %%", 100 * part);
    return text;
}

static void print_machine(const report *r)
{
    ceilings *all = r->ceilings;
    attn_cpu_description cpu = {.struct_size = sizeof cpu};
    attn_cpu_describe(&cpu, NULL);
    printf("machine   %s, %s, %d thread%s, %s clock\n", cpu.name, attn_isa_name(all->isa), all->threads,
           all->threads == 1 ? "" : "s", clock_name());
    printf("libattn   %s, %s\n", attn_version(), built_with());
    printf("ceilings  ");
    for (int k = 0; k < all->count; k++) {
        const ceiling *c = &all->list[k];
        if (c->kind == CEILING_FMA)
            printf("%sFMA %s %s %.1f GFLOP/s", k ? ", " : "", attn_dtype_name(c->loop->compute), attn_isa_name(c->isa),
                   ceiling_median(c) / 1e9);
        else printf("%s%s %.1f GB/s", k ? ", " : "", ceiling_kind_name(c->kind), ceiling_median(c) / 1e9);
    }
    printf("\n\n");
}

/* A name, and what it stands for. */
static const char *label_of(const candidate *c, char label[600])
{
    snprintf(label, 600, "%s%s%s", c->name ? c->name : "", c->name ? " = " : "", c->text);
    return label;
}

static int widest_problem(const report *r)
{
    size_t wide = strlen("problem");
    char label[600];
    for (int k = 0; k < r->count; k++)
        if (strlen(label_of(r->results[k].candidate, label)) > wide) wide = strlen(label);
    return (int)wide;
}

static void print_speed(const report *r, int wide)
{
    char a[24], b[24], c[24], label[600];
    printf("%-*s %9s %9s %9s %8s %8s %8s %8s %8s %17s %10s\n", wide, "problem", "median", "p10", "p99", "speed-up", "GFLOP/s",
           "of FMA", "best", "GB/s", "of stream, best", "tokens/s");
    for (int k = 0; k < r->count; k++) {
        const result *x = &r->results[k];
        printf("%-*s %9s %9s %9s %7.2fx %8.1f", wide, label_of(x->candidate, label), seconds_text(x->median, a),
               seconds_text(x->p10, b), seconds_text(x->p99, c), r->results[r->base[k]].median / x->median, x->gflops.median);
        printf(" %8s %8s %8.2f", percent_text(x->share_of_ceiling.median, a), percent_text(x->share_of_ceiling.best, b),
               x->gbs.median);
        /* for a compute-bound problem the share of the stream is meaningless */
        snprintf(c, sizeof c, "%.1f, %.1f %% %s", 100 * x->share_of_stream.median, 100 * x->share_of_stream.best,
                 x->stream == CEILING_MEMORY ? "mem" : ceiling_kind_name(x->stream));
        printf(" %17s %10.3g\n", x->stream_bound ? c : "-", x->tokens_per_second);
    }
}

static void print_memory(const report *r, int wide)
{
    char text[6][24], label[600];
    printf("\n%-*s %11s %11s %11s %14s %11s %14s\n", wide, "memory", "tensors", "workspace", "estimate", "extra measured", "peak",
           "of all scores");
    for (int k = 0; k < r->count; k++) {
        const result *x = &r->results[k];
        const candidate *c = x->candidate;
        printf("%-*s %11s %11s %11s %14s %11s %14s\n", wide, label_of(c, label), bytes_text(c->data.bytes, text[0]),
               bytes_text((double)(c->plan_says.workspace_bytes + c->call_bytes), text[1]), bytes_text(x->estimate_bytes, text[2]),
               bytes_text((double)c->extra_bytes, text[3]), bytes_text((double)c->peak_bytes, text[4]),
               bytes_text(x->scores_bytes, text[5]));
    }
}

void report_text(const report *r)
{
    const int wide = widest_problem(r);
    print_machine(r);
    print_speed(r, wide);
    print_memory(r, wide);
}
