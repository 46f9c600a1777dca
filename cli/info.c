/* SPDX-License-Identifier: MIT
 *
 * info.c - `attn info`: the CPU, the kernels, and what was built in. */
#include <stdio.h>
#include <string.h>

#include "cli/base/commands.h"
#include "cli/base/options.h"
#include "testing/text/json.h"

static const command_usage usage = {
    .name = "info",
    .synopsis = "[options]",
    .summary = "Prints the features of this CPU, the kernels it can run, how attn was built, and the\n"
               "instruction set and threads that are used.\n",
    .notes = "The environment variable ATTN_ISA (scalar, avx2, avx512, neon, wasm128) caps the instruction set.\n",
    .without = "seed",
};

static void print_json(const attn_cpu_description *cpu)
{
    cJSON *object = json_begin();
    json_text(object, "version", attn_version());
    json_text(object, "cpu", cpu->name);
    json_words(object, "features", cpu->features);
    json_text(object, "isa", attn_isa_name(cpu->isa));
    json_int(object, "threads", cpu->threads);
    json_int(object, "cache_l1d", (int64_t)cpu->cache_l1d);
    json_int(object, "cache_l2", (int64_t)cpu->cache_l2);
    json_int(object, "cache_l3", (int64_t)cpu->cache_l3);
    cJSON *kernels = json_list(object, "kernels");
    attn_kernel_description kernel = {.struct_size = sizeof kernel};
    for (int k = 0; attn_kernel_describe(k, &kernel, NULL) == ATTN_OK; k++) {
        cJSON *row = json_item(kernels);
        json_text(row, "name", kernel.name);
        json_text(row, "needs", kernel.needs);
        json_flag(row, "usable", kernel.usable);
    }
    json_text(object, "built_with", built_with());
    json_end(object);
}

static void print_size(const char *name, size_t bytes)
{
    if (!bytes) return;
    if (bytes < (size_t)1 << 20) printf("%s%zu KiB", name, bytes >> 10);
    else printf("%s%zu MiB", name, bytes >> 20);
}

static void print_text(const attn_cpu_description *cpu)
{
    printf("libattn   %s\n", attn_version());
    printf("built     %s\n", built_with());
    printf("cpu       %s\n", cpu->name);
    printf("features  %s\n", cpu->features[0] ? cpu->features : "none that libattn uses");
    printf("isa       %s\n", attn_isa_name(cpu->isa));
    printf("threads   %d\n", cpu->threads);
    if (cpu->cache_l1d) {
        print_size("caches    L1 ", cpu->cache_l1d);
        print_size(", L2 ", cpu->cache_l2);
        print_size(", L3 ", cpu->cache_l3);
        putchar('\n');
    }
    attn_kernel_description kernel = {.struct_size = sizeof kernel};
    for (int k = 0; attn_kernel_describe(k, &kernel, NULL) == ATTN_OK; k++)
        printf("%s  %-22s %-6s %s%s\n", k ? "       " : "kernels", kernel.name, kernel.usable ? "usable" : "-",
               kernel.needs[0] ? "needs " : "", kernel.needs);
}

int attn_cmd_info(int argc, char **argv)
{
    common_settings common = {0};
    const option_group groups[] = {{0}};
    attn_error error;
    int operands, exit = options_begin(&usage, groups, &common, argc, argv, 0, &operands);
    if (exit >= 0) return exit;

    attn_cpu_description cpu = {.struct_size = sizeof cpu};
    if (attn_cpu_describe(&cpu, &error) != ATTN_OK || options_find_isa(&common, &cpu.isa, &error) != ATTN_OK)
        return command_fail(usage.name, NULL, &error);
    if (common.threads) cpu.threads = common.threads;
    if (common.json) print_json(&cpu);
    else print_text(&cpu);
    return EXIT_DONE;
}
