/* SPDX-License-Identifier: MIT
 * count.h - shared by interpose.c and wrap.c: counts down to the allocation that fails.  To be included once. */
#include "fault.h"

static long live;
static long countdown; /* the allocation that makes it 0 fails */
static int failed;

void fault_arm(long n)
{
    countdown = n;
    failed = 0;
}

int fault_disarm(void)
{
    countdown = 0;
    return failed;
}

long fault_live(void) { return live; }

/* 1: this allocation fails. */
static int fails(void)
{
    if (countdown == 0 || --countdown > 0) return 0;
    failed = 1;
    return 1;
}
