/* SPDX-License-Identifier: MIT
 * promptly.h - PROMPTLY(call): ends the program, and so fails the test, if a call computes for longer than five seconds.  Measured
 * in CPU time, so that a busy machine does not matter. */
#ifndef ATTN_TESTS_PROMPTLY_H
#define ATTN_TESTS_PROMPTLY_H

#include "test.h"

#include <sys/time.h>

static inline void promptly_limit(int seconds)
{
    const struct itimerval limit = {.it_value.tv_sec = seconds};
    assert_int_equal(setitimer(ITIMER_VIRTUAL, &limit, NULL), 0);
}

#define PROMPTLY(call, expected)                                                                                                   \
    do {                                                                                                                           \
        promptly_limit(5);                                                                                                         \
        const int status_ = (int)(call);                                                                                           \
        promptly_limit(0);                                                                                                         \
        assert_int_equal(status_, expected);                                                                                       \
    } while (0)

#endif
