/* SPDX-License-Identifier: MIT
 * scaling_report.c - the figures of `attn-mpi bench` as JSON and as tables; docs/distributed.md explains each. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/measure/head.h"
#include "scaling.h"

static const char *const kinds[] = {"strong", "weak"};

static const char *cpu_name(attn_cpu_description *cpu)
{
    cpu->struct_size = sizeof *cpu;
    return attn_cpu_describe(cpu, NULL) == ATTN_OK ? cpu->name : "";
}

/* "Open MPI v4.1.4", without what follows. */
static void mpi_name(char name[MPI_MAX_LIBRARY_VERSION_STRING])
{
    int length = 0;
    (void)MPI_Get_library_version(name, &length);
    name[strcspn(name, ",\n")] = 0;
    for (char *at = name; *at; at++)
        if (*at == '\t') *at = ' ';
}

static void add_point(cJSON *row, const scaling_point *p)
{
    json_text(row, "problem", p->problem);
    json_text(row, "measured", p->measured);
    json_text(row, "scaling", kinds[p->kind]);
    json_int(row, "ranks", p->ranks);
    json_int(row, "part", p->split.part ? p->split.part : 1024);
    json_text(row, "layout", split_layout_name(p->split.layout));
    json_text(row, "way", split_way_name(p->about.way));
    json_int(row, "ranks_heads", p->about.ranks_heads);
    json_flag(row, "any_order", p->split.any_order != 0);
    json_text(row, "why", p->about.why);
    json_number(row, "predicted", p->about.seconds);
    cJSON *seconds = json_object(row, "seconds");
    json_number(seconds, "p10", p->p10);
    json_number(seconds, "median", p->median);
    json_number(seconds, "p90", p->p90);
    json_int(row, "samples", p->samples);
    json_number(row, "flops", p->flops);
    json_number(row, "gflops", p->flops / p->median / 1e9);
    json_number(row, "gflops_best", p->flops / p->p10 / 1e9);
    json_number(row, "speedup", p->speedup);
    json_number(row, "efficiency", p->efficiency);
    json_number(row, "efficiency_best", p->efficiency_best);
    json_number(row, "share_of_messages", p->share);
    json_int(row, "messages", p->messages);
    json_int(row, "bytes", p->bytes);
    json_int(row, "cells", p->cells);
    json_int(row, "cells_most", p->cells_most);
    json_int(row, "workspace_bytes", p->workspace_bytes);
}

void scaling_print_json(const scaling_point *points, int count, const ranks *r, int threads, double seconds)
{
    attn_cpu_description cpu;
    char mpi[MPI_MAX_LIBRARY_VERSION_STRING];
    mpi_name(mpi);
    cJSON *object = measure_json_begin();
    json_number(object, "seconds_per_point", seconds);
    cJSON *machine = json_object(object, "machine");
    json_text(machine, "cpu", cpu_name(&cpu));
    json_text(machine, "mpi", mpi);
    json_int(machine, "ranks", r->count);
    json_int(machine, "threads", threads);
    cJSON *results = json_list(object, "results");
    for (int k = 0; k < count; k++) add_point(json_item(results), &points[k]);
    json_end(object);
}

void scaling_print_text(const scaling_point *points, int count, const ranks *r, int threads)
{
    attn_cpu_description cpu;
    char mpi[MPI_MAX_LIBRARY_VERSION_STRING];
    mpi_name(mpi);
    printf("%s, %s, %d rank%s of %d thread%s\n", cpu_name(&cpu), mpi, r->count, r->count > 1 ? "s" : "", threads,
           threads > 1 ? "s" : "");
    for (int k = 0; k < count; k++) {
        const scaling_point *p = &points[k];
        if (k == 0 || p->kind != p[-1].kind || p->problem != p[-1].problem)
            printf("\n%s: %s, parts of %" PRId64 ", %s\n%6s %11s %11s %12s %9s %11s %9s %9s  %s\n", p->problem,
                   p->kind == SCALING_STRONG ? "strong scaling" : "weak scaling (so many tokens for each rank)",
                   p->split.part ? p->split.part : 1024, split_layout_name(p->split.layout), "ranks", "median ms", "best ms",
                   "predicted ms", "speed-up", "efficiency", "messages", "MiB sent", "way");
        printf("%6d %11.3f %11.3f %12.3f %9.2f %10.1f%% %8.1f%% %9.2f  %s\n", p->ranks, 1e3 * p->median, 1e3 * p->p10,
               1e3 * p->about.seconds, p->speedup, 100 * p->efficiency, 100 * p->share, (double)p->bytes / 1048576,
               split_way_name(p->about.way));
    }
    printf("\nAgainst one rank: the time that it would need, and the speed of a rank. messages: the share of the time of\n"
           "all ranks that is spent in MPI, mostly waiting for others. predicted: by a model, with --network, --latency\n"
           "and --flops.\n");
}
