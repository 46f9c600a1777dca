/* SPDX-License-Identifier: MIT
 *
 * agree.h - all ranks learn whether one of them failed, and whether they were asked the same: in log2 of their number messages of a
 * few hundred bytes (the dissemination barrier of Hensgen, Finkel and Manber 1988, with the lowest failing rank as the value). */
#ifndef ATTN_DISTRIBUTED_AGREE_H
#define ATTN_DISTRIBUTED_AGREE_H

#include "attn/distributed.h"

/* What a rank knows: how it and those that it has heard of are. */
typedef struct attn_verdict {
    int64_t status, rank; /* of the lowest rank that failed; status ATTN_OK: none has */
    uint64_t least, most; /* of what was asked */
    uint64_t any;         /* bits that one of them has set */
    attn_error error;
} attn_verdict;

/* What a rank asks, and what it tells the others. */
typedef struct attn_asking {
    uint64_t asked;
    const char *differs; /* the message if these are not equal */
    uint64_t bits;       /* in: of this rank; out: those of all, or-ed */
} attn_asking;

/* Returns `status`, of this rank with its *error, or the status and message of the lowest rank that failed; or ATTN_ERR_ARGUMENT,
 * if all were successful and asked different things. */
attn_status attn_agree(const attn_transport *transport, attn_status status, attn_asking *what, attn_error *error);

/* Messages that each rank sends for that, of sizeof(attn_verdict) bytes. */
int attn_agree_messages(const attn_transport *transport);

/* A number that differs, almost certainly, if something that the ranks have to agree about does (FNV-1a). */
typedef struct attn_digest {
    uint64_t value;
} attn_digest;

static inline attn_digest attn_digest_begin(void) { return (attn_digest){0xcbf29ce484222325u}; }
static inline void attn_digest_add(attn_digest *d, const void *bytes, size_t count)
{
    for (size_t n = 0; n < count; n++) d->value = (d->value ^ ((const unsigned char *)bytes)[n]) * 0x100000001B3u;
}
static inline void attn_digest_number(attn_digest *d, int64_t x) { attn_digest_add(d, &x, sizeof x); }

#endif
