/* SPDX-License-Identifier: MIT
 *
 * linear_scan.h - the states before all parts at once (a scan: Blelloch 1990): each rank makes, of its own parts, what they do to
 * any state, and sends it to the ranks after it.  Part n begins with
 *
 *      M_k ( ... (M_1 (state at the beginning)))      M_1, M_2, ...: the largest nodes that make up parts 0 .. n - 1
 *
 * where node N of level L of a binary tree over the numbers of parts is node 2N + 1 of the level below after node 2N.  No rank's
 * parts matter to that, so it has the same bits for any number of them. */
#ifndef ATTN_DISTRIBUTED_LINEAR_SCAN_H
#define ATTN_DISTRIBUTED_LINEAR_SCAN_H

#include "linear_walk.h"

/* Bytes of attn_linear_memory.scan; 0 for a chain. */
size_t attn_linear_scan_bytes(const attn_linear_passes *passes);

/* A walk whose parts do not wait for those before them. */
void attn_linear_scan(attn_linear_running *r, const attn_state_walk *w, const attn_stretch *s);

#endif
