/* SPDX-License-Identifier: MIT
 * one.c - a platform without threads: the calling thread does all the work. */
#include "pool.h"

#if ATTN_ONE_THREAD
int attn_pool_cpus(void) { return 1; }

void attn_pool_run(int workers, void (*body)(void *context, int64_t worker), void *context)
{
    (void)workers;
    body(context, 0);
}
#endif
