/* SPDX-License-Identifier: MIT
 *
 * guard.h - memory that tells when something reads or writes outside of it.
 *
 * The bytes of a block lie against a page that cannot be touched: before it, or after it; the rest of its pages is a zone of 0xff
 * bytes (a NaN in every type).  So reading or writing past one side is a fault, and writing past the other is found afterwards.
 */
#ifndef ATTN_TESTING_MEMORY_GUARD_H
#define ATTN_TESTING_MEMORY_GUARD_H

#include <stddef.h>

enum { GUARD_BYTE = 0xff };

typedef enum guard_side {
    GUARD_AFTER, /* the page behind the last byte faults */
    GUARD_BEFORE /* the page before the first byte faults */
} guard_side;

typedef struct guarded {
    unsigned char *data; /* `bytes` bytes of GUARD_BYTE; never NULL, also for 0 bytes */
    size_t bytes;
    unsigned char *pages; /* all that can be touched */
    size_t pages_bytes;
    void *map;
    size_t map_bytes;
} guarded;

/* `shift` moves the data away from the faulting page, to give it an odd address.  0 where memory is out. */
int guarded_create(guarded *g, size_t bytes, guard_side side, size_t shift);
void guarded_destroy(guarded *g);

/* 1 if the bytes around the data still are GUARD_BYTE. */
int guarded_intact(const guarded *g);

/* From now on writing to the block faults. */
void guarded_freeze(guarded *g);

/* Sets up a message for when the program faults: "TEXT: read or wrote outside of a tensor" on standard error and exit status 1.
 * The text is copied; NULL takes the message away. */
void guard_on_fault(const char *text);

#endif
