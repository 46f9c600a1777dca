/* SPDX-License-Identifier: MIT
 * list.c - the kernels of this build, and the registry of names, each with its string. */
#include "list.h"

#include <stdio.h>
#include <string.h>

#include "attn/attn.h"
#include "registry.h"
#include "testing/text/json.h"

static void list_json(const registry_sizes *sizes)
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
    const registered *e;
    for (int k = 0; (e = registry_at(k)); k++) {
        char text[200];
        registry_string(e, sizes, text, sizeof text);
        cJSON *row = json_item(names);
        json_text(row, "name", e->name);
        json_words(row, "aliases", e->aliases);
        json_text(row, "type", e->type);
        json_text(row, "backend", "cpu");
        json_text(row, "problem", text);
        json_flag(row, "available", registry_has(e));
        json_flag(row, "supports_cache", e->has_cache);
        json_flag(row, "supports_lengths", e->has_lengths);
        json_text(row, "note", e->note);
    }
    json_end(object);
}

static void list_text(const registry_sizes *sizes)
{
    attn_kernel_description kernel = {.struct_size = sizeof kernel};
    printf("kernels, chosen by --isa NAME and by the storage type of a problem\n");
    for (int k = 0; attn_kernel_describe(k, &kernel, NULL) == ATTN_OK; k++)
        printf("  %-22s --isa=%-7s computes in %s%s%s\n", kernel.name, attn_isa_name(kernel.isa), attn_dtype_name(kernel.compute),
               kernel.usable ? "" : "; this CPU lacks some of: ", kernel.usable ? "" : kernel.needs);
    printf("\nnames, and the string that each stands for\n");
    const registered *e;
    for (int k = 0; (e = registry_at(k)); k++) {
        char both[48], text[200];
        registry_string(e, sizes, text, sizeof text);
        snprintf(both, sizeof both, "%s%s%s", e->name, e->aliases[0] ? " = " : "", e->aliases);
        printf("  %-29s %-8s %s\n%42s%s%s\n", both, e->type, text, "", e->note,
               registry_has(e) ? "" : "; not in this build, which has no libattn_layers");
    }
}

void bench_list(const registry_sizes *sizes, int json) { (json ? list_json : list_text)(sizes); }
