/* SPDX-License-Identifier: MIT
 * foreign.c - see foreign.h. */
#include "foreign.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "testing/text/failure.h"

/* The program beside this one; if the system does not tell the path of this one, the program in PATH. */
static void find_program(char *path, size_t size)
{
    static const char name[] = "attn-conformance";
    const ssize_t length = readlink("/proc/self/exe", path, size - 1);
    path[length > 0 ? length : 0] = 0;
    char *slash = strrchr(path, '/');
    if (slash && (size_t)(slash + 1 - path) + sizeof name <= size) memcpy(slash + 1, name, sizeof name);
    else (void)snprintf(path, size, "%s", name);
}

attn_status foreign_run(const char *folder, const common_settings *settings, attn_error *error)
{
    char path[4096], threads[32], isa[32];
    char program[] = "attn check", json[] = "--json", end[] = "--"; /* a folder may begin with - */
    char *words[8] = {program};
    int count = 1;
    find_program(path, sizeof path);
    (void)snprintf(threads, sizeof threads, "--threads=%d", settings->threads);
    (void)snprintf(isa, sizeof isa, "--isa=%s", attn_isa_name(settings->isa));
    if (settings->json) words[count++] = json;
    if (settings->threads) words[count++] = threads;
    if (settings->isa != ATTN_ISA_DEFAULT) words[count++] = isa;
    words[count++] = end;
    char *place = need_text(folder, strlen(folder));
    words[count] = place;
    execvp(path, words);
    free(place);
    return failure(error, ATTN_ERR_UNSUPPORTED, "--conformance needs %.150s, which is built beside attn and not installed", path);
}
