/* SPDX-License-Identifier: MIT
 *
 * timed.h - a transport that measures the time spent in another one. */
#ifndef ATTN_CLI_MPI_TIMED_H
#define ATTN_CLI_MPI_TIMED_H

#include "attn/distributed.h"

/* Must not move: the transport points to it. */
typedef struct timed {
    attn_transport transport;
    const attn_transport *inner;
    double seconds; /* in its functions, above all in waiting; the user sets it to 0 */
} timed;

void timed_init(timed *t, const attn_transport *inner);

#endif
