/* SPDX-License-Identifier: MIT
 * guard.c - blocks of memory between pages that fault (mmap and mprotect of POSIX). */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "guard.h"

#if GUARD_HAS_PAGES
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int guarded_create(guarded *g, size_t bytes, guard_side side, size_t shift)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    *g = (guarded){0};
    if (bytes > SIZE_MAX / 2) return 0;
    const size_t inside = (bytes + shift + page - 1) / page * page + page; /* at least one page of zone on the open side */
    g->map_bytes = inside + 2 * page;
    g->map = mmap(NULL, g->map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g->map == MAP_FAILED) return 0;
    g->pages = (unsigned char *)g->map + page;
    g->pages_bytes = inside;
    g->bytes = bytes;
    if (mprotect(g->pages, inside, PROT_READ | PROT_WRITE) != 0) {
        guarded_destroy(g);
        return 0;
    }
    memset(g->pages, GUARD_BYTE, inside);
    g->data = side == GUARD_BEFORE ? g->pages + shift : g->pages + inside - bytes - shift;
    return 1;
}

void guarded_destroy(guarded *g)
{
    if (g->map && g->map != MAP_FAILED) munmap(g->map, g->map_bytes);
    *g = (guarded){0};
}

void guarded_freeze(guarded *g) { (void)mprotect(g->pages, g->pages_bytes, PROT_READ); }

static char fault_text[1200];

/* Calls only async-signal-safe functions. */
static void report_fault(int number)
{
    (void)number;
    static const char what[] = ": read or wrote outside of a tensor\n";
    if (write(STDERR_FILENO, fault_text, strlen(fault_text)) < 0 || write(STDERR_FILENO, what, sizeof what - 1) < 0) _exit(1);
    _exit(1);
}

void guard_on_fault(const char *text)
{
    const int faults[] = {SIGSEGV, SIGBUS};
    snprintf(fault_text, sizeof fault_text, "%s", text ? text : "");
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) signal(faults[i], text ? report_fault : SIG_DFL);
}
#endif
