/* SPDX-License-Identifier: MIT
 * main.c - `attn check` and `attn info` alone, without files, signals and other processes. */
#include <stdio.h>
#include <string.h>

#include "cli/base/commands.h"
#include "cli/base/file.h"
#include "cli/check/foreign.h"
#include "testing/text/failure.h"

attn_status foreign_run(const char *folder, const common_settings *settings, attn_error *error)
{
    (void)folder, (void)settings;
    return failure(error, ATTN_ERR_UNSUPPORTED, "this build runs no other programs");
}

/* Of cli/base/file.c, which is about signals too; nothing here names a file to write. */
attn_status file_check_name(const char *path, const char *ends, attn_error *error)
{
    (void)path, (void)ends, (void)error;
    return ATTN_OK;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "check") == 0) return attn_cmd_check(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "info") == 0) return attn_cmd_info(argc - 1, argv + 1);
    fputs("usage: attn-check.wasm check|info [options]\n", stderr);
    return EXIT_USAGE;
}
