/* SPDX-License-Identifier: MIT
 *
 * link.h - a caller's transport, and the messages of a rank that waits for one of them while others are under way.  A link without
 * memory for requests counts, and sends nothing. */
#ifndef ATTN_DISTRIBUTED_LINK_H
#define ATTN_DISTRIBUTED_LINK_H

#include "attn/distributed.h"

/* (Those from 16 on are of callers who share the transport, such as the bindings of Python.) */
enum {
    ATTN_TAG_KEYS = 1,
    ATTN_TAG_COLUMNS,
    ATTN_TAG_SHARED,
    ATTN_TAG_AGREE,
    ATTN_TAG_ROWS,
    ATTN_TAG_STATES,
    ATTN_TAG_STATE_GRADIENTS,
    ATTN_TAG_MOVED, /* by scatter and gather */
    ATTN_TAG_HEADS
};

/* A copy with what ranks need in order to agree about anything else, checked; NULL is one rank. */
attn_status attn_transport_read(attn_transport *copy, const attn_transport *caller, attn_error *error);
/* Checks the rest. */
attn_status attn_transport_check(const attn_transport *transport, attn_error *error);

typedef struct attn_link {
    const attn_transport *transport;
    void **requests;         /* NULL: counts */
    int64_t begun;           /* since everything was waited for */
    int64_t requests_most;   /* begun at the same time */
    int64_t messages, bytes; /* sent */
    attn_status status;      /* after a failure nothing more is done */
    attn_error *error;
} attn_link;

/* Begin a message; return its number among those that are under way. */
int64_t attn_link_send(attn_link *link, int to, int tag, const void *data, size_t bytes);
int64_t attn_link_receive(attn_link *link, int from, int tag, void *data, size_t bytes);
/* Waits for one message, or for all that are under way, which end then. */
void attn_link_wait(attn_link *link, int64_t number);
void attn_link_wait_all(attn_link *link);
/* Lets the transport work. */
void attn_link_progress(attn_link *link);

/* Sends what rank `root` has to all ranks, along a binomial tree, and waits. */
void attn_link_spread(attn_link *link, int root, int tag, void *data, size_t bytes);

#endif
