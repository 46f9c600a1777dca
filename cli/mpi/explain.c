/* SPDX-License-Identifier: MIT
 *
 * explain.c - `attn-mpi explain`: what `attn explain` says, by default of as many ranks as there are processes. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/commands.h"
#include "commands.h"
#include "testing/text/failure.h"

static int names_ranks(const char *word) { return !strcmp(word, "--ranks") || !strncmp(word, "--ranks=", 8); }

int mpi_cmd_explain(int argc, char **argv)
{
    int processes = 1, is_said = 0;
    char all[32], **words = need_memory(argc + 2, sizeof *words);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &processes);
    for (int n = 0; n < argc; n++) words[n] = argv[n], is_said |= names_ranks(argv[n]);
    if (processes > 1 && !is_said) {
        (void)snprintf(all, sizeof all, "--ranks=%d", processes);
        memmove(words + 2, words + 1, (size_t)(argc - 1) * sizeof *words);
        words[1] = all;
        argc++;
    }
    words[argc] = NULL;
    const int status = attn_cmd_explain(argc, words);
    free(words);
    return status;
}
