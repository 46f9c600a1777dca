/* SPDX-License-Identifier: MIT
 * split.c - see split.h. */
#include "split.h"

#include <stdlib.h>
#include <string.h>

#include "testing/text/failure.h"

/* ---- the machine ---- */

static const struct {
    const char *name;
    double bytes; /* a second */
} units[] = {{"Gbit/s", 1e9 / 8}, {"Mbit/s", 1e6 / 8}, {"Tbit/s", 1e12 / 8}, {"GB/s", 1e9}, {"MB/s", 1e6}};

/* "200Gbit/s", or "200". */
static attn_status set_network(void *target, const char *name, const char *value, attn_error *error)
{
    char *end;
    const double number = strtod(value, &end);
    double bytes = *end ? 0 : number * units[0].bytes;
    for (size_t n = 0; n < sizeof units / sizeof *units; n++)
        if (strcmp(end, units[n].name) == 0) bytes = number * units[n].bytes;
    if (end == value || !(bytes > 0 && bytes < 1e18))
        return failure(error, ATTN_ERR_ARGUMENT,
                       "%s: '%.40s' is not a rate above 0, such as 200Gbit/s (or Mbit/s, Tbit/s, GB/s, MB/s)", name, value);
    ((machine_settings *)target)->network = bytes;
    return ATTN_OK;
}

static attn_status set_latency(void *target, const char *name, const char *value, attn_error *error)
{
    machine_settings *settings = target;
    const attn_status status = option_real(name, value, 0, 1000000000, &settings->latency, error);
    settings->has_latency |= status == ATTN_OK;
    return status;
}

const option_row machine_options[] = {
    {"network", 0, "RATE", "of a machine, such as 10Gbit/s (default 200Gbit/s)", CALL(set_network)},
    {"latency", 0, "US", "microseconds of a message (default 5)", CALL(set_latency)},
    {"flops", 0, "T", "10^12 operations a second of a machine (default 5)", ABOVE_0(machine_settings, flops, 1000000000)},
    {0},
};

attn_split_machine machine_of(const machine_settings *settings)
{
    attn_split_machine machine = {.struct_size = sizeof machine};
    (void)attn_split_machine_describe(&machine, NULL);
    if (settings->flops > 0) machine.flops_per_second = settings->flops * 1e12;
    if (settings->network > 0) machine.bytes_per_second = settings->network;
    if (settings->has_latency) machine.seconds_per_message = settings->latency * 1e-6;
    return machine;
}

const char *machine_given(const machine_settings *s)
{
    return s->network > 0 ? "network" : s->has_latency ? "latency" : s->flops > 0 ? "flops" : NULL;
}

/* ---- ways ---- */

static const char *const layouts[] = {"contiguous", "zigzag", "striped"};
static const struct {
    const char *name;
    attn_way way;
} ways[] = {{"auto", ATTN_WAY_AUTO},   {"direct", ATTN_WAY_DIRECT},         {"ring", ATTN_WAY_RING},
            {"heads", ATTN_WAY_HEADS}, {"heads-ring", ATTN_WAY_HEADS_RING}, {"gather", ATTN_WAY_GATHER}};
enum { WAYS = sizeof ways / sizeof *ways };

/* ---- flags ---- */

/* Who has which part; the order of axes in files has the same flag in `attn run`. */
static attn_status set_layout(void *target, const char *name, const char *value, attn_error *error)
{
    split_settings *settings = target;
    for (int n = 0; n < 3; n++)
        if (strcmp(value, layouts[n]) == 0) {
            settings->layout = (attn_layout)n;
            settings->has_layout = 1;
            return ATTN_OK;
        }
    if (settings->spec && problem_set(settings->spec, name, value, NULL) == ATTN_OK) return ATTN_OK;
    return failure(error, ATTN_ERR_ARGUMENT, "%s: '%.40s' is not contiguous, zigzag or striped%s", name, value,
                   settings->spec ? ", nor an order of the axes, bhsd or bshd" : "");
}

static attn_status set_way(void *target, const char *name, const char *value, attn_error *error)
{
    for (int n = 0; n < WAYS; n++)
        if (strcmp(value, ways[n].name) == 0) {
            ((split_settings *)target)->way = ways[n].way;
            return ATTN_OK;
        }
    return failure(error, ATTN_ERR_ARGUMENT, "%s: '%.40s' is not auto, direct, ring, heads, heads-ring or gather", name, value);
}

const option_row split_options[] = {
    {"part", 0, "N", "tokens of a part (default 1024), on which the bits depend", WHOLE(split_settings, part, 1, INT64_MAX)},
    {"layout", 0, "KIND", "who has which parts: contiguous, zigzag, striped", CALL(set_layout)},
    {"way", 0, "WAY", "how keys travel: auto (default), direct, ring, heads, heads-ring, gather", CALL(set_way)},
    {"ranks-heads", 0, "N", "with heads-ring: how many divide the heads", WHOLE(split_settings, ranks_heads, 1, INT32_MAX)},
    {"any-order", 0, NULL, "less memory, and bits that depend on ranks, layout and way", FLAG(split_settings, any_order)},
    {0},
};

attn_split split_of(const split_settings *settings, const problem_spec *spec)
{
    /* In zigzag all have the same work; with a window neighbours talk, and the states of linear attention go along the ranks. */
    const int even = spec->causal && !spec->window && !spec->linear;
    const attn_way usual = spec->linear ? ATTN_WAY_RING : ATTN_WAY_AUTO;
    return (attn_split){.struct_size = sizeof(attn_split),
                        .part = settings->part,
                        .layout = settings->has_layout ? settings->layout
                                  : even               ? ATTN_LAYOUT_ZIGZAG
                                                       : ATTN_LAYOUT_CONTIGUOUS,
                        .way = settings->way == ATTN_WAY_AUTO ? usual : settings->way,
                        .ranks_heads = settings->ranks_heads,
                        .any_order = settings->any_order};
}

attn_status split_check(const split_settings *settings, attn_error *error)
{
    if (!settings->ranks_heads || settings->way == ATTN_WAY_HEADS_RING) return ATTN_OK;
    return failure(error, ATTN_ERR_ARGUMENT, "--ranks-heads has no effect without --way=heads-ring");
}

const char *split_layout_name(attn_layout layout) { return layouts[layout]; }

const char *split_way_name(attn_way way)
{
    for (int n = 0; n < WAYS; n++)
        if (ways[n].way == way) return ways[n].name;
    return ways[0].name;
}

/* ---- rows ---- */

static attn_status choose_axis(split_rank *of, int64_t tokens, int keys, input_share *share, attn_error *error)
{
    const attn_axis axis = keys ? ATTN_AXIS_KEY : ATTN_AXIS_QUERY;
    attn_split_description about = {.struct_size = sizeof about};
    attn_status status = attn_split_describe(&of->split, tokens, axis, of->rank, of->ranks, &about, error);
    if (status != ATTN_OK) return status;
    of->ranges[keys] = need_memory(about.parts, sizeof **of->ranges);
    for (int64_t n = 0; n < about.parts && status == ATTN_OK; n++) {
        attn_split_part part = {.struct_size = sizeof part};
        status = attn_split_part_describe(&of->split, tokens, axis, of->rank, of->ranks, n, &part, error);
        of->ranges[keys][n] = (token_range){part.first, part.tokens};
    }
    share->ranges[keys] = of->ranges[keys];
    share->count[keys] = about.parts;
    share->tokens[keys] = about.tokens;
    return status;
}

attn_status split_choose(void *context, int64_t queries, int64_t keys, input_share *share, attn_error *error)
{
    split_rank *of = context;
    const attn_status status = choose_axis(of, queries, 0, share, error);
    return status == ATTN_OK ? choose_axis(of, keys, 1, share, error) : status;
}

void split_rank_free(split_rank *of)
{
    free(of->ranges[0]);
    free(of->ranges[1]);
}
