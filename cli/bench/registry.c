/* SPDX-License-Identifier: MIT
 * registry.c - the table of names. */
#include "registry.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/base/options.h"
#include "testing/text/failure.h"
#include "testing/text/nearest.h"

static const registered entries[] = {
    {"standard", "sdpa", "softmax", "matrix:f32", "",
     .note = "all scores in memory: two matrix products and a softmax between them"},
    {"flash_v2", "flash", "softmax", "fwd:f32", "", .has_cache = 1, .has_lengths = 1,
     .note = "tiles and an online softmax; never a matrix of scores"},
    {"xformers", "memory_efficient", "softmax", "fwd:f32", "", .has_cache = 1, .has_lengths = 1,
     .note = "the same function and the same walk as flash_v2"},
    {"triton_flash", "triton", "softmax", "fwd:bf16", "", .has_cache = 1, .has_lengths = 1,
     .note = "the walk of flash_v2 with tensors of bf16, on the CPU"},
    {"multi_head", "mha", "layer", "layer:mha:f32", "", .has_cache = 1, .note = "with its projections"},
    {"grouped_query", "gqa", "layer", "layer:gqa:f32", "", .grouped = 1, .has_cache = 1,
     .note = "with its projections; a quarter of the key heads"},
    {"multi_latent", "mla", "layer", "layer:mla:f32", "", .latent = 1, .has_cache = 1,
     .note = "with its projections; a latent of four heads' width"},
    {"mla_rope", "", "layer", "layer:mla:f32", "", .latent = 1, .rotary = 1, .has_cache = 1,
     .note = "the same, and rotated channels, half a head's width"},
    {"linear", "linear_attention", "linear", "linear:f32", "", .has_cache = 1,
     .note = "features elu + 1, a state instead of scores, in the fastest form"},
    {"performer", "", "linear", "linear:f32", ":phi=favor/256", .has_cache = 1,
     .note = "256 random features of the softmax (FAVOR+)"},
    {"triton_linear", "fast_linear", "linear", "linear:f32", ":form=chunked", .has_cache = 1,
     .note = "linear, in chunks whatever the length"},
};
enum { ENTRIES = sizeof entries / sizeof *entries };

const registered *registry_at(int index) { return index >= 0 && index < ENTRIES ? &entries[index] : NULL; }

int registry_has(const registered *entry) { return ATTN_CLI_LAYERS || strcmp(entry->type, "layer") != 0; }

attn_status registry_find(const char *given, const registered **found, attn_error *error)
{
    char name[41], hint[160], known[300] = "";
    static char alias[ENTRIES][41]; /* nearest borrows them */
    nearest near;
    snprintf(name, sizeof name, "%s", given);
    for (char *c = name; *c; c++)
        if (*c == '-') *c = '_';
    nearest_init(&near, name);
    for (int k = 0; k < ENTRIES; k++) {
        const registered *e = *found = &entries[k];
        if (strcmp(name, e->name) == 0 || options_has_word(e->aliases, name)) return ATTN_OK;
        snprintf(alias[k], sizeof alias[k], "%s", e->aliases);
        nearest_offer(&near, e->name);
        if (alias[k][0]) nearest_offer(&near, alias[k]);
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", k ? ", " : "", e->name);
    }
    nearest_print(&near, "", hint, sizeof hint);
    return failure(error, ATTN_ERR_ARGUMENT, "neither a problem string, which has colons, nor a name%s; known: %s", hint, known);
}

/* Key heads: the most that are at most a quarter of the heads and divide them. */
static int64_t groups_of(int64_t heads)
{
    int64_t groups = heads / 4 > 0 ? heads / 4 : 1;
    while (heads % groups) groups--;
    return groups;
}

void registry_string(const registered *e, const registry_sizes *x, char *text, size_t size)
{
    const int64_t dim = x->width / x->heads, even = dim / 2 - dim / 2 % 2;
    char groups[32] = "", model[120] = "";
    if (e->grouped) snprintf(groups, sizeof groups, ":hkv%" PRId64, groups_of(x->heads));
    if (strcmp(e->type, "layer") == 0) snprintf(model, sizeof model, ":m%" PRId64, x->width);
    const size_t used = strlen(model);
    if (e->latent) snprintf(model + used, sizeof model - used, ":rank=%" PRId64, 4 * dim);
    const size_t more = strlen(model);
    if (e->rotary) snprintf(model + more, sizeof model - more, ":rotary=%" PRId64, even > 0 ? even : 2);
    snprintf(text, size, "%s:b%" PRId64 ":hq%" PRId64 "%s:sq%" PRId64 ":d%" PRId64 "%s%s%s", e->begin, x->batch, x->heads, groups,
             x->tokens, dim, x->causal ? ":causal" : "", model, e->end);
}
