/* SPDX-License-Identifier: MIT
 * timed.c - see timed.h. */
#include "timed.h"

#include "cli/base/progress.h"

/* The result of a call, after which the time that it took is added. */
#define TIMED(call)                                                                                                                \
    timed *const t = context;                                                                                                      \
    const double begin = seconds_now();                                                                                            \
    const int failed = t->inner->call;                                                                                             \
    t->seconds += seconds_now() - begin;                                                                                           \
    return failed

static int timed_send(void *context, int to, int tag, const void *data, size_t bytes, void **request)
{
    TIMED(send(t->inner->context, to, tag, data, bytes, request));
}

static int timed_receive(void *context, int from, int tag, void *data, size_t bytes, void **request)
{
    TIMED(receive(t->inner->context, from, tag, data, bytes, request));
}

static int timed_wait(void *context, int64_t count, void **requests) { TIMED(wait(t->inner->context, count, requests)); }

static int timed_progress(void *context) { TIMED(progress(t->inner->context)); }

void timed_init(timed *t, const attn_transport *inner)
{
    *t = (timed){.transport = *inner, .inner = inner};
    t->transport.context = t;
    t->transport.send = timed_send;
    t->transport.receive = timed_receive;
    t->transport.wait = timed_wait;
    t->transport.progress = inner->progress ? timed_progress : NULL;
}
