/* SPDX-License-Identifier: MIT
 *
 * guard.h - memory that detects reads and writes outside of it.
 *
 * The bytes of a block adjoin an inaccessible page, before or after them; the rest of the block's pages is filled with 0xff (a NaN
 * in every float type).  So reading or writing past one side faults, and writing past the other is detected afterwards.
 */
#ifndef ATTN_TESTING_MEMORY_GUARD_H
#define ATTN_TESTING_MEMORY_GUARD_H

#include <stddef.h>

/* WebAssembly protects no pages: there only writes are detected, and nothing faults (guard_plain.c). */
#ifdef __wasm__
#define GUARD_HAS_PAGES 0
#else
#define GUARD_HAS_PAGES 1
#endif

enum { GUARD_BYTE = 0xff };

typedef enum guard_side {
    GUARD_AFTER, /* the page after the last byte faults */
    GUARD_BEFORE /* the page before the first byte faults */
} guard_side;

typedef struct guarded {
    unsigned char *data; /* `bytes` bytes of GUARD_BYTE; never NULL, even for 0 bytes */
    size_t bytes;
    unsigned char *pages; /* all accessible pages */
    size_t pages_bytes;
    void *map;
    size_t map_bytes;
} guarded;

/* `shift` moves the data away from the faulting page, to give it an odd address.  Returns 0 if out of memory. */
int guarded_create(guarded *g, size_t bytes, guard_side side, size_t shift);
void guarded_destroy(guarded *g);

/* 1 if the bytes around the data are still GUARD_BYTE. */
static inline int guarded_intact(const guarded *g)
{
    for (const unsigned char *p = g->pages; p < g->data; p++)
        if (*p != GUARD_BYTE) return 0;
    for (const unsigned char *p = g->data + g->bytes; p < g->pages + g->pages_bytes; p++)
        if (*p != GUARD_BYTE) return 0;
    return 1;
}

/* From now on, writing to the block faults. */
void guarded_freeze(guarded *g);

/* Installs a message for faults: "TEXT: read or wrote outside of a tensor" on standard error, then exit status 1.  The text is
 * copied; NULL removes the message. */
void guard_on_fault(const char *text);

#endif
