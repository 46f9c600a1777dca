/* SPDX-License-Identifier: MIT
 * memory.c - from /proc/self/status (Linux), else from getrusage. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "cli/base/commands.h"

void *fresh_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        fprintf(stderr, "attn bench: cannot allocate %zu bytes\n", bytes);
        exit(EXIT_USAGE);
    }
    return memory;
}

void fresh_release(void *memory, size_t bytes)
{
    if (memory) munmap(memory, bytes ? bytes : 1);
}

/* The line "NAME:  123 kB"; -1 if there is none. */
static int64_t status_bytes(const char *name)
{
    char line[256];
    long long kibibytes = -1;
    FILE *file = fopen("/proc/self/status", "r");
    if (!file) return -1;
    while (kibibytes < 0 && fgets(line, sizeof line, file)) {
        const size_t length = strlen(name);
        if (strncmp(line, name, length) == 0 && line[length] == ':') kibibytes = strtoll(line + length + 1, NULL, 10);
    }
    fclose(file);
    return kibibytes < 0 ? -1 : (int64_t)kibibytes * 1024;
}

int64_t memory_now(void) { return status_bytes("VmRSS"); }

int64_t memory_peak(void)
{
    struct rusage usage;
    const int64_t peak = status_bytes("VmHWM");
    if (peak >= 0 || getrusage(RUSAGE_SELF, &usage) != 0) return peak;
    return (int64_t)usage.ru_maxrss * 1024;
}

int memory_forget_peak(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (!file) return 0;
    const int written = fputs("5", file) >= 0;
    return fclose(file) == 0 && written;
}
