/* SPDX-License-Identifier: MIT
 * threads.h - XLA's threads for the library's loops. */
#ifndef ATTN_PYTHON_XLA_THREADS_H
#define ATTN_PYTHON_XLA_THREADS_H

#include "ffi.h"

/* How many threads the runtime has for a call; 1 if it does not say. */
int xla_threads(const xla_call_frame *frame);

/* An attn_parallel_for.  Loops of this thread run on the threads of the call that it is in: xla_enter(frame) before a call into the
 * library, xla_leave() after it. */
void xla_parallel_for(void *context, int64_t n, void (*body)(void *body_context, int64_t i), void *body_context);
void xla_enter(const xla_call_frame *frame, int threads);
void xla_leave(void);

#endif
