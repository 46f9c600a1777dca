/* SPDX-License-Identifier: MIT
 * agree.c - see agree.h. */
#include "agree.h"

#include <string.h>

#include "../common/fail.h"
#include "steps.h"

typedef struct opinion {
    int64_t status, rank; /* of the lowest rank that failed; status ATTN_OK: none has */
    uint64_t least, most; /* of what was asked */
    attn_error error;
} opinion;

static void hear(opinion *mine, const opinion *other)
{
    if (other->least < mine->least) mine->least = other->least;
    if (other->most > mine->most) mine->most = other->most;
    if (other->status == ATTN_OK || (mine->status != ATTN_OK && mine->rank <= other->rank)) return;
    mine->status = other->status;
    mine->rank = other->rank;
    mine->error = other->error;
}

attn_status attn_agree(const attn_transport *t, attn_status status, uint64_t asked, const char *differs, attn_error *error)
{
    opinion mine = {.status = status, .rank = t->rank, .least = asked, .most = asked};
    if (status != ATTN_OK && error) mine.error = *error;
    for (int distance = 1; distance < t->ranks; distance *= 2) {
        const int to = (t->rank + distance) % t->ranks, from = (t->rank - distance + t->ranks) % t->ranks;
        const opinion said = mine;
        opinion heard;
        void *requests[2] = {NULL, NULL};
        int failed = t->receive(t->context, from, ATTN_TAG_AGREE, &heard, sizeof heard, &requests[0]);
        if (!failed) failed = t->send(t->context, to, ATTN_TAG_AGREE, &said, sizeof said, &requests[1]);
        if (!failed) failed = t->wait(t->context, 2, requests);
        CHECK(!failed, ATTN_ERR_IO, "distributed: the transport failed (%d) while ranks %d and %d agreed with rank %d", failed,
              from, to, t->rank);
        hear(&mine, &heard);
    }
    if (mine.status != ATTN_OK) {
        if (error) *error = mine.error;
        return (attn_status)mine.status;
    }
    CHECK(mine.least == mine.most, ATTN_ERR_ARGUMENT, "%s", differs);
    return succeed(error);
}

int attn_agree_messages(const attn_transport *t)
{
    int count = 0;
    for (int distance = 1; distance < t->ranks; distance *= 2) count++;
    return count;
}

size_t attn_agree_bytes(void) { return sizeof(opinion); }
