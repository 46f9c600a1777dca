/* SPDX-License-Identifier: MIT
 * agree.c - see agree.h. */
#include "agree.h"

#include "../common/fail.h"
#include "link.h"

static void learn(attn_verdict *mine, const attn_verdict *other)
{
    if (other->least < mine->least) mine->least = other->least;
    if (other->most > mine->most) mine->most = other->most;
    mine->any |= other->any;
    if (other->status == ATTN_OK || (mine->status != ATTN_OK && mine->rank <= other->rank)) return;
    mine->status = other->status;
    mine->rank = other->rank;
    mine->error = other->error;
}

attn_status attn_agree(const attn_transport *t, attn_status status, attn_asking *what, attn_error *error)
{
    attn_verdict mine = {.status = status, .rank = t->rank, .least = what->asked, .most = what->asked, .any = what->bits};
    if (status != ATTN_OK && error) mine.error = *error;
    for (int64_t distance = 1; distance < t->ranks; distance *= 2) {
        const int to = (int)((t->rank + distance) % t->ranks), from = (int)((t->rank - distance + t->ranks) % t->ranks);
        const attn_verdict said = mine;
        attn_verdict heard = {.status = ATTN_OK};
        void *requests[2] = {NULL, NULL};
        int failed = t->receive(t->context, from, ATTN_TAG_AGREE, &heard, sizeof heard, &requests[0]);
        if (!failed) failed = t->send(t->context, to, ATTN_TAG_AGREE, &said, sizeof said, &requests[1]);
        const int late = t->wait(t->context, 2, requests); /* also after a failure: `heard` and `said` go out of scope */
        if (!failed) failed = late;
        CHECK(!failed, ATTN_ERR_IO, "distributed: the transport failed (%d) while ranks agreed: sending to %d, receiving from %d",
              failed, to, from);
        learn(&mine, &heard);
    }
    what->bits = mine.any;
    if (mine.status != ATTN_OK) {
        if (error) *error = mine.error;
        return (attn_status)mine.status;
    }
    CHECK(mine.least == mine.most, ATTN_ERR_ARGUMENT, "%s", what->differs);
    return succeed(error);
}

int attn_agree_messages(const attn_transport *t)
{
    int count = 0;
    for (int64_t distance = 1; distance < t->ranks; distance *= 2) count++;
    return count;
}
