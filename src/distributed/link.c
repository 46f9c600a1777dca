/* SPDX-License-Identifier: MIT
 * link.c - see link.h. */
#include "link.h"

#include "../common/slots.h"
#include "grid.h"

attn_status attn_transport_read(attn_transport *copy, const attn_transport *caller, attn_error *error)
{
    *copy = (attn_transport){.struct_size = sizeof *copy, .ranks = 1};
    if (!caller) return ATTN_OK;
    TRY(struct_read(copy, sizeof *copy, sizeof *copy, caller, "attn_transport", error));
    CHECK(copy->ranks >= 1 && copy->rank >= 0 && copy->rank < copy->ranks, ATTN_ERR_ARGUMENT,
          "transport.rank is %d of %d; it must be at least 0 and below transport.ranks", copy->rank, copy->ranks);
    CHECK(copy->ranks == 1 || (copy->send && copy->receive && copy->wait), ATTN_ERR_ARGUMENT, "transport.%s is NULL",
          !copy->send      ? "send"
          : !copy->receive ? "receive"
                           : "wait");
    return ATTN_OK;
}

attn_status attn_transport_check(const attn_transport *t, attn_error *error)
{
    for (size_t n = 0; n < sizeof t->reserved / sizeof *t->reserved; n++)
        CHECK(t->reserved[n] == 0, ATTN_ERR_ARGUMENT, "transport.reserved[%zu] is %" PRId64 "; it must be 0", n, t->reserved[n]);
    return ATTN_OK;
}

/* ---- messages ---- */

/* rank -1: no one in particular.  After a failure the memory of messages is the caller's again, once they were waited for. */
static void check(attn_link *link, int failed, const char *what, int rank)
{
    const attn_transport *t = link->transport;
    if (!failed || link->status != ATTN_OK) return;
    if (rank >= 0)
        link->status =
            fail(link->error, ATTN_ERR_IO, "distributed: the transport failed (%d) while it %s rank %d", failed, what, rank);
    else link->status = fail(link->error, ATTN_ERR_IO, "distributed: the transport failed (%d) while it %s", failed, what);
    if (link->begun > 0) (void)t->wait(t->context, link->begun, link->requests);
    link->begun = 0;
}

/* The number of the next message; -1: it is not sent. */
static int64_t begin(attn_link *link)
{
    const int64_t number = link->begun++;
    if (link->begun > link->requests_most) link->requests_most = link->begun;
    if (!link->requests || link->status != ATTN_OK) return -1;
    link->requests[number] = NULL;
    return number;
}

int64_t attn_link_send(attn_link *link, int to, int tag, const void *data, size_t bytes)
{
    const attn_transport *t = link->transport;
    const int64_t number = begin(link);
    link->messages++;
    link->bytes = attn_bytes_sent(link->bytes, bytes);
    if (number >= 0) check(link, t->send(t->context, to, tag, data, bytes, &link->requests[number]), "sent to", to);
    return number;
}

int64_t attn_link_receive(attn_link *link, int from, int tag, void *data, size_t bytes)
{
    const attn_transport *t = link->transport;
    const int64_t number = begin(link);
    if (number >= 0) check(link, t->receive(t->context, from, tag, data, bytes, &link->requests[number]), "received from", from);
    return number;
}

void attn_link_wait(attn_link *link, int64_t number)
{
    const attn_transport *t = link->transport;
    if (number < 0 || link->status != ATTN_OK) return;
    void *request = link->requests[number];
    link->requests[number] = NULL;
    check(link, t->wait(t->context, 1, &request), "waited for messages", -1);
}

void attn_link_wait_all(attn_link *link)
{
    const attn_transport *t = link->transport;
    const int64_t count = link->begun;
    link->begun = 0; /* whether or not `wait` fails, nothing is left to wait for */
    if (link->requests && count > 0 && link->status == ATTN_OK)
        check(link, t->wait(t->context, count, link->requests), "waited for messages", -1);
}

void attn_link_progress(attn_link *link)
{
    const attn_transport *t = link->transport;
    if (link->requests && t->ranks > 1 && t->progress && link->status == ATTN_OK)
        check(link, t->progress(t->context), "made progress", -1);
}

void attn_link_spread(attn_link *link, int root, int tag, void *data, size_t bytes)
{
    const int64_t ranks = link->transport->ranks, me = (link->transport->rank - root + ranks) % ranks;
    int64_t bit = 1;
    while (bit < ranks && !(me & bit)) bit *= 2;
    if (me != 0) {
        (void)attn_link_receive(link, (int)((me - bit + root) % ranks), tag, data, bytes);
        attn_link_wait_all(link);
    }
    for (bit /= 2; bit > 0; bit /= 2)
        if (me + bit < ranks) (void)attn_link_send(link, (int)((me + bit + root) % ranks), tag, data, bytes);
    attn_link_wait_all(link);
}
