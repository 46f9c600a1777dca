/* SPDX-License-Identifier: MIT
 * origin.c - see origin.h. */
#include "origin.h"

#include <string.h>

#include "../common/slots.h"

#define MODULE "distributed"

/* The rules of a call (attn_origin), for all of its cells. */
static attn_status check_places(const attn_origin *o, const attn_shape *s, attn_error *error)
{
    const int64_t most = INT64_C(1) << 60;
    const struct {
        const char *name;
        int64_t value, most;
    } places[] = {
        {"batch", o->batch, most}, {"head", o->head, most}, {"heads", o->heads, most}, {"q", o->q, most}, {"kv", o->kv, most}};
    for (size_t n = 0; n < sizeof places / sizeof *places; n++)
        CHECK(places[n].value >= 0 && places[n].value <= most, ATTN_ERR_ARGUMENT,
              "origin.%s is %" PRId64 "; it must be between 0 and 2^60", places[n].name, places[n].value);
    CHECK(o->q <= most - s->len_q && o->kv <= most - s->len_kv, ATTN_ERR_ARGUMENT,
          "origin.q (%" PRId64 ") or origin.kv (%" PRId64 ") is too large: the last position must be below 2^60", o->q, o->kv);
    CHECK(o->heads == 0 ? o->head == 0 : o->head <= o->heads && s->heads_q <= o->heads - o->head, ATTN_ERR_ARGUMENT,
          "origin.head is %" PRId64 " and heads_q %" PRId64 "; origin.heads (%" PRId64 ") is too small", o->head, s->heads_q,
          o->heads);
    for (int n = 0; n < 3; n++)
        CHECK(o->reserved[n] == 0, ATTN_ERR_ARGUMENT, "origin.reserved[%d] is %" PRId64 "; it must be 0", n, o->reserved[n]);
    return ATTN_OK;
}

attn_status attn_origin_read(attn_cells *c, attn_error *error)
{
    if (!c->call.origin) return ATTN_OK;
    c->origin = *c->call.origin;
    c->call.origin = &c->origin;
    CHECK(c->problem.mask.align == ATTN_ALIGN_TOP_LEFT, ATTN_ERR_ARGUMENT,
          "mask.align is bottom-right and the call has an origin, whose lengths are those of a part; give offset_q");
    CHECK(!c->planned.cu_seqlens_q.data, ATTN_ERR_UNSUPPORTED,
          MODULE ": call.origin is set with cu_seqlens_q, which is not there yet");
    CHECK(slot_is_absent(&c->planned.block_mask), ATTN_ERR_UNSUPPORTED,
          MODULE ": call.origin is set with block_mask, which is not there yet");
    TRY(check_places(&c->origin, &c->problem.shape, error));
    c->index.origin_q = c->origin.q, c->index.origin_kv = c->origin.kv;
    return ATTN_OK;
}

attn_status attn_origin_check(const attn_cells *c, const attn_call *call, attn_error *error)
{
    CHECK(!call->origin == !c->call.origin, ATTN_ERR_ARGUMENT, "call.origin is %s; the plan was made %s one",
          call->origin ? "set" : "NULL", c->call.origin ? "with" : "without");
    CHECK(!call->origin || memcmp(call->origin, &c->origin, sizeof c->origin) == 0, ATTN_ERR_ARGUMENT,
          MODULE ": call.origin is not that of the plan");
    return ATTN_OK;
}
