/* SPDX-License-Identifier: MIT
 *
 * ranks.h - ranks as threads of one process, with a transport over their common memory: messages arrive late and in any order but
 * that which the interface promises. */
#ifndef ATTN_TESTING_RANKS_RANKS_H
#define ATTN_TESTING_RANKS_RANKS_H

#include "attn/distributed.h"

enum { MAX_RANKS = 16 };

/* Calls body on each rank, on a thread of its own, and returns when all have returned.  delays: 0, or the seed of random ones. */
void ranks_run(int ranks, uint64_t delays, void (*body)(void *context, const attn_transport *transport), void *context);

/* From now on, the call of a transport's function with this number (0, 1, ..., of all ranks) fails, and all later ones do; -1: none
 * does. */
void ranks_fail_at(int64_t number);

/* What the last ranks_run has seen that attn/distributed.h excludes: receives that nobody waited for, messages that nobody
 * received, or new ones after a failure; NULL: nothing. */
const char *ranks_wrong(void);

/* What this rank has sent so far. */
void ranks_sent(const attn_transport *transport, int64_t *messages, int64_t *bytes);

#endif
