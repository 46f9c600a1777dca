/* SPDX-License-Identifier: MIT
 * report_csv.c - one row per problem, with the machine in each, so that files of several runs can be combined. */
#include <math.h>

#include "cli/base/commands.h"
#include "cli/base/file.h"
#include "clock.h"
#include "report.h"

/* Text in quotes, quotes doubled. */
static void put_text(text_buffer *file, const char *text)
{
    text_letter(file, '"');
    for (; *text; text++) {
        if (*text == '"') text_letter(file, '"');
        text_letter(file, *text);
    }
    text_letter(file, '"');
}

static void put_number(text_buffer *file, double value)
{
    if (isfinite(value)) text_print(file, ",%.9g", value);
    else text_letter(file, ',');
}

static void put_row(text_buffer *file, const report *r, const result *x, const char *cpu)
{
    const candidate *c = x->candidate;
    put_text(file, c->text);
    text_print(file, ",%s,%s,%d,%s,", c->plan_says.kernel, attn_isa_name(c->plan_says.isa), r->ceilings->threads, clock_name());
    put_text(file, cpu);
    text_letter(file, ',');
    put_text(file, attn_version());
    text_letter(file, ',');
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
    text_letter(file, '\n');
}

static const char head[] =
    "problem,kernel,isa,threads,clock,cpu,version,built_with,seconds_p10,seconds_median,seconds_p90,seconds_p99,samples,gflops,"
    "gflops_"
    "best,"
    "ceiling_gflops,share_of_ceiling,share_of_ceiling_best,gbs,stream_gbs,share_of_stream,share_of_stream_best,tokens_per_second,"
    "tensor_bytes,workspace_bytes,extra_bytes,peak_bytes\n";

attn_status report_csv(const report *r, const char *path, attn_error *error)
{
    text_buffer text = {0};
    attn_cpu_description cpu = {.struct_size = sizeof cpu};
    attn_cpu_describe(&cpu, NULL);
    text_string(&text, head);
    for (int k = 0; k < r->count; k++) put_row(&text, r, &r->results[k], cpu.name);
    const attn_status status = file_write_text(&text, path, error);
    text_free(&text);
    return status;
}
