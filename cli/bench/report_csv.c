/* SPDX-License-Identifier: MIT
 * report_csv.c - one row a problem, with the machine in each, so that files of several runs can be put together. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../commands.h"
#include "../failure.h"
#include "clock.h"
#include "report.h"

/* Text in quotes, quotes doubled. */
static void put_text(FILE *file, const char *text)
{
    putc('"', file);
    for (; *text; text++) {
        if (*text == '"') putc('"', file);
        putc(*text, file);
    }
    putc('"', file);
}

static void put_number(FILE *file, double value)
{
    if (isfinite(value)) fprintf(file, ",%.9g", value);
    else putc(',', file);
}

static void put_row(FILE *file, const report *r, const result *x, const char *cpu)
{
    const contender *c = x->contender;
    put_text(file, c->text);
    fprintf(file, ",%s,%s,%d,%s,", c->plan_says.kernel, attn_isa_name(c->plan_says.isa), r->ceilings->threads, clock_name());
    put_text(file, cpu);
    putc(',', file);
    put_text(file, attn_version());
    putc(',', file);
    put_text(file, built_with());
    const double numbers[] = {x->p10,
                              x->median,
                              x->p90,
                              x->p99,
                              (double)c->seconds.count,
                              x->gflops.median,
                              x->gflops.best,
                              x->ceiling_gflops,
                              x->share_of_ceiling.median,
                              x->share_of_ceiling.best,
                              x->gbs.median,
                              x->stream_gbs,
                              x->share_of_stream.median,
                              x->share_of_stream.best,
                              x->tokens_per_second,
                              c->data.bytes,
                              (double)c->plan_says.workspace_bytes,
                              c->extra_bytes < 0 ? NAN : (double)c->extra_bytes,
                              c->peak_bytes < 0 ? NAN : (double)c->peak_bytes};
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) put_number(file, numbers[k]);
    putc('\n', file);
}

static const char head[] =
    "problem,kernel,isa,threads,clock,cpu,version,built_with,seconds_p10,seconds_median,seconds_p90,seconds_p99,samples,gflops,"
    "gflops_"
    "best,"
    "ceiling_gflops,share_of_ceiling,share_of_ceiling_best,gbs,stream_gbs,share_of_stream,share_of_stream_best,tokens_per_second,"
    "tensor_bytes,workspace_bytes,extra_bytes,peak_bytes\n";

/* The file under the name that it has until it is whole. */
static FILE *open_part(const char *path, char **part)
{
    const size_t room = strlen(path) + 32;
    *part = need_memory((int64_t)room, 1);
    snprintf(*part, room, "%s.%ld.part", path, (long)getpid());
    return fopen(*part, "w");
}

static attn_status cannot(const char *path, int reason, attn_error *error)
{
    return failure(error, ATTN_ERR_IO, "%s: cannot be written: %s", path, strerror(reason));
}

attn_status report_csv_check(const char *path, attn_error *error)
{
    char *part;
    FILE *file = open_part(path, &part);
    const int reason = errno;
    if (file) {
        fclose(file);
        unlink(part);
    }
    free(part);
    return file ? ATTN_OK : cannot(path, reason, error);
}

attn_status report_csv(const report *r, const char *path, attn_error *error)
{
    char *part;
    attn_cpu_description cpu = {.struct_size = sizeof cpu};
    attn_cpu_describe(&cpu, NULL);
    FILE *file = open_part(path, &part);
    int written = file != NULL;
    if (file) {
        fputs(head, file);
        for (int k = 0; k < r->count; k++) put_row(file, r, &r->results[k], cpu.name);
        written = !ferror(file);
        written &= fclose(file) == 0;
        written = written && rename(part, path) == 0;
    }
    const int reason = errno;
    if (!written && file) unlink(part);
    free(part);
    return written ? ATTN_OK : cannot(path, reason, error);
}
