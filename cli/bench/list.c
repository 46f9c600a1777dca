/* SPDX-License-Identifier: MIT
 * list.c - the kernels of this build, and the names under which benchmark suites register implementations, each with the problem
 * string that is its counterpart here. */
#include "list.h"

#include <stdio.h>

#include "attn/attn.h"
#include "testing/text/json.h"

typedef struct counterpart {
    const char *name;
    const char *aliases; /* separated by spaces */
    const char *problem; /* a string to start from */
    const char *note;
} counterpart;

static const counterpart counterparts[] = {
    {"standard", "sdpa", "fwd:f32:b8:hq8:sq1024:d64", "softmax attention; never forms the score matrix"},
    {"multi_head", "mha", "fwd:f32:b8:hq12:sq1024:d64", "the attention between the projections"},
    {"grouped_query", "gqa", "fwd:f32:b8:hq32:hkv8:sq1024:d128:causal", "hkv is the number of groups; hkv1 is multi-query"},
    {"multi_latent", "mla", "fwd:f32:hq16:hkv1:sq1024:d576:dv512:causal",
     "the attention between the projections: 512 latent channels are key and value"},
    {"mla_rope", "", "fwd:f32:hq16:hkv1:sq1024:d576:dv512:causal", "the same: 64 of the 576 channels are the rotated ones"},
    {"linear", "linear_attention", "linear:f32:b8:hq8:sq4096:d64", "a state instead of scores; linear-bwd is its backward"},
    {"performer", "", "linear:f32:b8:hq8:sq4096:d64:phi=favor/256", "the same walk, with 256 random features"},
    {"flash_v2", "flash", "fwd:f32:b8:hq8:sq4096:d64:causal", "the same walk over tiles as `standard`: there is only one"},
    {"xformers", "memory_efficient", "fwd:f32:b8:hq8:sq4096:d64:bias", "the same walk, with an additive bias"},
    {"triton_flash", "triton", "fwd:bf16:b8:hq8:sq4096:d64", "the same walk, in 16-bit storage, on the CPU"},
    {"triton_linear", "fast_linear", "linear:f32:b8:hq8:sq4096:d64:causal", "the same walk in chunks, a state between them"},
};
enum { COUNTERPARTS = sizeof counterparts / sizeof *counterparts };

static void list_json(void)
{
    cJSON *object = json_begin();
    cJSON *kernels = json_list(object, "kernels");
    attn_kernel_description kernel = {.struct_size = sizeof kernel};
    for (int k = 0; attn_kernel_describe(k, &kernel, NULL) == ATTN_OK; k++) {
        cJSON *row = json_item(kernels);
        json_text(row, "name", kernel.name);
        json_text(row, "isa", attn_isa_name(kernel.isa));
        json_text(row, "compute", attn_dtype_name(kernel.compute));
        json_flag(row, "usable", kernel.usable);
    }
    cJSON *names = json_list(object, "counterparts");
    for (int k = 0; k < COUNTERPARTS; k++) {
        const counterpart *c = &counterparts[k];
        cJSON *row = json_item(names);
        json_text(row, "name", c->name);
        json_words(row, "aliases", c->aliases);
        json_text(row, "problem", c->problem);
        json_flag(row, "available", 1);
        json_text(row, "note", c->note);
    }
    json_end(object);
}

static void list_text(void)
{
    attn_kernel_description kernel = {.struct_size = sizeof kernel};
    printf("kernels, chosen by --isa NAME and by the storage type of a problem\n");
    for (int k = 0; attn_kernel_describe(k, &kernel, NULL) == ATTN_OK; k++)
        printf("  %-22s --isa=%-7s computes in %s%s%s\n", kernel.name, attn_isa_name(kernel.isa), attn_dtype_name(kernel.compute),
               kernel.usable ? "" : "; this CPU lacks some of: ", kernel.usable ? "" : kernel.needs);
    printf("\nnames in other benchmarks, and the problem that measures the same here\n");
    for (int k = 0; k < COUNTERPARTS; k++) {
        const counterpart *c = &counterparts[k];
        char both[48];
        snprintf(both, sizeof both, "%s%s%s", c->name, c->aliases[0] ? " = " : "", c->aliases);
        printf("  %-28s %-42s %s\n", both, c->problem, c->note);
    }
}

void bench_list(int json) { (json ? list_json : list_text)(); }
