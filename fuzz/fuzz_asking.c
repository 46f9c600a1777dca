/* SPDX-License-Identifier: MIT
 *
 * fuzz_asking.c - fuzzes queries (target.h): names of invalid values, rows past the end of tables, structs of other versions,
 * shorter and longer than these, and resolved options. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/linear.h"
#include "calls.h"

const char *const target_cases = "questions";

static struct {
    draws *from;
    int kind, index;
    attn_options options;
} c;

enum { TENSOR, KERNEL, CPU, LINEAR_TENSOR, LINEAR_PLAN, RESOLVE, KINDS };

void target_print(void)
{
    fprintf(stderr, "kind %d index %d threads %d isa %d\n", c.kind, c.index, c.options.threads, (int)c.options.isa);
}

static void text(const char *s)
{
    if (!s || !memchr(s, 0, 256) || strchr(s, '\n')) finding("not a line of text");
}

static attn_linear_plan *plan;

static attn_status ask(void *to, attn_error *error)
{
    switch (c.kind) {
    case TENSOR:
    case LINEAR_TENSOR:
        return attn_tensor_describe(c.kind == TENSOR ? ATTN_FAMILY_ATTENTION : ATTN_FAMILY_LINEAR, c.index, to, error);
    case KERNEL:
        return attn_kernel_describe(c.index, to, error);
    case CPU:
        return attn_cpu_describe(to, error);
    case LINEAR_PLAN:
        return attn_linear_plan_describe(plan, to, error);
    default:
        return attn_options_resolve(&c.options, to, error);
    }
}

/* A struct is filled up to the caller's struct_size and no further. */
static void query_struct(size_t whole)
{
    const size_t size = draw_one_in(c.from, 3)   ? whole + 8 * (size_t)draw_below(c.from, 9)
                        : draw_one_in(c.from, 2) ? whole
                                                 : (size_t)draw_below(c.from, (int64_t)whole + 80);
    unsigned char *to = malloc(size + (size == 0)), *before = malloc(whole + 200);
    attn_error error;
    if (!to || !before) abort();
    memset(to, 0x5A, size), memset(&error, 0x55, sizeof error);
    const int fits = size >= sizeof size;
    size_t given = draw_one_in(c.from, 8) ? (size_t)draw_hostile(c.from) | 1 << 22 : size;
    if (!fits) given = 0; /* not even its struct_size fits */
    if (fits) memcpy(to, &given, sizeof given);
    else {
        free(to);
        to = malloc(sizeof given);
        if (!to) abort();
        memcpy(to, &given, sizeof given);
    }
    memcpy(before, to, fits ? size : sizeof given);
    const attn_status status = ask(to, &error);
    check_error(status, &error);
    if (status != ATTN_OK && memcmp(before, to, fits ? size : sizeof given) != 0) finding("rejected, but filled in");
    if (status == ATTN_OK && given != size) finding("a struct of %zu bytes is filled in", given);
    for (size_t i = whole; status == ATTN_OK && i < size; i++)
        if (to[i] != 0) finding("byte %zu, past the known struct, is %d", i, to[i]);
    if (status == ATTN_OK) target_ran++;
    else target_rejected++;
    free(to), free(before);
}

static void draw_plan(void)
{
    attn_linear_problem p = {.struct_size = sizeof p, .shape = {1, 1, 1, draw_below(c.from, 40), 1 + draw_below(c.from, 40), 4, 3}};
    attn_linear_tensors t = {.struct_size = sizeof t,
                             .q = attn_in(ATTN_LATER),
                             .k = attn_in(ATTN_LATER),
                             .v = attn_in(ATTN_LATER),
                             .o = attn_out(ATTN_LATER)};
    if (p.shape.len_q == 0) t.q = attn_in(ATTN_EMPTY), t.o = attn_out(ATTN_EMPTY);
    if (attn_linear_plan_create(&plan, &p, &t, &c.options, &calls_last)) finding("%s", calls_last.message);
    attn_linear_plan_description about = {.struct_size = sizeof about};
    if (attn_linear_plan_describe(plan, &about, &calls_last)) finding("%s", calls_last.message);
    text(about.kernel), text(about.why);
    if (about.threads > c.options.threads || about.workspace_bytes != attn_linear_plan_workspace_size(plan))
        finding("%d threads, %zu bytes", about.threads, about.workspace_bytes);
}

void target_run(draws *from)
{
    static const size_t sizes[KINDS] = {sizeof(attn_tensor_description),      sizeof(attn_kernel_description),
                                        sizeof(attn_cpu_description),         sizeof(attn_tensor_description),
                                        sizeof(attn_linear_plan_description), sizeof(attn_options)};
    memset(&c, 0, sizeof c);
    c.from = from, plan = NULL;
    c.kind = (int)draw_below(from, KINDS), c.index = draw_one_in(from, 6) ? (int)draw_hostile(from) : (int)draw_below(from, 90);
    c.options = calls_options(from);
    target_drawn();
    const int none = (int)draw_hostile(from);
    text(attn_status_string((attn_status)none)), text(attn_dtype_name((attn_dtype)none)), text(attn_isa_name((attn_isa)none)),
        text(attn_version());
    if ((none <= 0 || none > ATTN_U64) && attn_dtype_size((attn_dtype)none) != 0) finding("type %d has a size", none);
    if (attn_features_count((attn_features)none, 3, 5) < 0) finding("invalid features have a negative count");
    if (c.kind == LINEAR_PLAN) draw_plan();
    if (c.kind == RESOLVE && draw_one_in(from, 4)) c.options.threads = none, c.options.isa = (attn_isa)draw_hostile(from);
    query_struct(sizes[c.kind]);
    attn_linear_plan_destroy(plan);
}
