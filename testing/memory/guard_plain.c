/* SPDX-License-Identifier: MIT
 * guard_plain.c - guard.h where pages cannot be protected (WebAssembly): writes outside of a block are detected afterwards, reads
 * not. */
#include "guard.h"

#if !GUARD_HAS_PAGES
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ZONE = 4096 };

int guarded_create(guarded *g, size_t bytes, guard_side side, size_t shift)
{
    *g = (guarded){0};
    if (bytes > SIZE_MAX / 2) return 0;
    const size_t inside = (bytes + shift + ZONE - 1) / ZONE * ZONE + ZONE;
    g->map = aligned_alloc(ZONE, inside);
    if (!g->map) return 0;
    g->map_bytes = g->pages_bytes = inside;
    g->pages = g->map;
    g->bytes = bytes;
    memset(g->pages, GUARD_BYTE, inside);
    g->data = side == GUARD_BEFORE ? g->pages + shift : g->pages + inside - bytes - shift;
    return 1;
}

void guarded_destroy(guarded *g)
{
    free(g->map);
    *g = (guarded){0};
}

void guarded_freeze(guarded *g) { (void)g; }
void guard_on_fault(const char *text) { (void)text; }
#endif
