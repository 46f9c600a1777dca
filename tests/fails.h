/* SPDX-License-Identifier: MIT
 * fails.h - FAILS: a call must fail with this status and exactly this message.  Pass &error in the call; the macro declares it.
 * OVERLAPS: the same where two tensors of the call overlap. */
#ifndef ATTN_TESTS_FAILS_H
#define ATTN_TESTS_FAILS_H

#include "test.h"

#include "attn/types.h"

#define FAILS(call, expected, text)                                                                                                \
    do {                                                                                                                           \
        attn_error error;                                                                                                          \
        memset(&error, 0xa5, sizeof error);                                                                                        \
        assert_int_equal(call, expected);                                                                                          \
        assert_int_equal(error.status, expected);                                                                                  \
        assert_string_equal(error.message, text);                                                                                  \
    } while (0)

/* The call must fail since these overlap: "bilinear: form and u". */
#define OVERLAPS(call, both) FAILS(call, ATTN_ERR_STRIDE, both " share elements; an output must not overlap another tensor")

#endif
