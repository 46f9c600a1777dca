/* SPDX-License-Identifier: MIT
 * settings.c - the tables of flags of `attn bench`. */
#include "settings.h"

#include <stdio.h>
#include <string.h>

#include "testing/text/failure.h"

const bench_settings bench_defaults = {
    .seconds = 3, .warmup = -1, .sizes = {.batch = {1}, .tokens = {1024}, .batches = 1, .lengths = 1, .width = 768, .heads = 12}};

static attn_status set_csv(void *target, const char *name, const char *value, attn_error *error)
{
    if (!*value) return failure(error, ATTN_ERR_ARGUMENT, "%s: the name of the file is empty", name);
    ((bench_settings *)target)->csv = value;
    return ATTN_OK;
}

static attn_status set_clock(void *target, const char *name, const char *value, attn_error *error)
{
    const int cpu = strcmp(value, "cpu") == 0;
    if (!cpu && strcmp(value, "wall") != 0)
        return failure(error, ATTN_ERR_ARGUMENT, "%s: unknown clock '%.40s' (known: wall, cpu)", name, value);
    ((bench_settings *)target)->clock = cpu ? CLOCK_CPU : CLOCK_WALL;
    return ATTN_OK;
}

/* "1,8,64". */
static attn_status read_list(const char *name, const char *value, int64_t *number, int *count, attn_error *error)
{
    char part[41];
    *count = 0;
    for (const char *at = value;; at++) {
        const size_t length = strcspn(at, ",");
        if (*count == MAX_SIZES) return failure(error, ATTN_ERR_ARGUMENT, "%s: more than %d numbers", name, MAX_SIZES);
        snprintf(part, sizeof part, "%.*s", (int)(length < 40 ? length : 40), at);
        const attn_status status = option_int(name, part, 1, INT32_MAX, &number[(*count)++], error);
        if (status != ATTN_OK) return status;
        at += length;
        if (!*at) return ATTN_OK;
    }
}

static attn_status set_size(void *target, const char *name, const char *value, attn_error *error)
{
    name_sizes *s = &((bench_settings *)target)->sizes;
    s->given = name;
    if (strcmp(name, "batch-sizes") == 0) return read_list(name, value, s->batch, &s->batches, error);
    if (strcmp(name, "seq-lengths") == 0) return read_list(name, value, s->tokens, &s->lengths, error);
    if (strcmp(name, "embed-dim") == 0) return option_int(name, value, 1, INT32_MAX, &s->width, error);
    if (strcmp(name, "num-heads") == 0) return option_int(name, value, 1, INT32_MAX, &s->heads, error);
    s->causal = 1;
    return ATTN_OK;
}

const option_row bench_options[] = {
    {"seconds", 0, "S", "time each problem for S seconds in all (default 3)", ABOVE_0(bench_settings, seconds, 86400)},
    {"iterations", 'i', "N", "time N calls of each instead, one by one", WHOLE(bench_settings, iterations, 1, 1000000000)},
    {"warmup", 'w', "N", "call each N times first, untimed", WHOLE(bench_settings, warmup, 0, 1000000000)},
    {"baseline", 0, "WHICH", "speed-ups are over this name, string or number (default: the first)", TEXT(bench_settings, baseline)},
    {"problems", 0, "FILE", "also measure those of FILE, one per line, # for comments", TEXT(bench_settings, problems)},
    {"clock", 0, "NAME", "wall (default) or cpu, for one thread on a busy machine", CALL(set_clock)},
    {"csv", 'o', "FILE", "write a row for each problem to FILE", CALL(set_csv)},
    {"samples", 0, NULL, "put the time of each sample into --json, for attn plot latency", FLAG(bench_settings, samples)},
    {"list", 0, NULL, "list the kernels, and the names with what each stands for", FLAG(bench_settings, list)},
    {0},
};

const option_row name_options[] = {
    {"batch-sizes", 'b', "N,...", "batch sizes (default 1)", CALL(set_size)},
    {"seq-lengths", 's', "N,...", "numbers of tokens (default 1024)", CALL(set_size)},
    {"embed-dim", 'e', "N", "channels of the model (default 768)", CALL(set_size)},
    {"num-heads", 'n', "N", "heads (default 12)", CALL(set_size)},
    {"causal", 0, NULL, "with a causal mask", CALL(set_size)},
    {0},
};
