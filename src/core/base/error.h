/* SPDX-License-Identifier: MIT
 * error.h - how a rule rejects: a status, and a sentence in the caller's attn_error. */
#ifndef ATTN_BASE_ERROR_H
#define ATTN_BASE_ERROR_H

#include "attn/attn.h"

#if defined(__GNUC__)
#define ATTN_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define ATTN_PRINTF(text, first)
#endif

/* Fills *error (may be NULL) and returns status. */
attn_status attn_fail(attn_error *error, attn_status status, const char *format, ...) ATTN_PRINTF(3, 4);

/* The same about a tensor, by its number, and another one (-1: none). */
attn_status attn_fail_tensor(attn_error *error, int tensor, int other, attn_status status, const char *format, ...)
    ATTN_PRINTF(5, 6);

/* clang's analyser sees one file at a time, so not that the returned status is never ATTN_OK. */
#if defined(__clang_analyzer__)
static inline attn_status attn_fail_status(attn_status status) { return status; }
#define attn_fail(error, status, ...) (attn_fail(error, status, __VA_ARGS__), attn_fail_status(status))
#define attn_fail_tensor(error, tensor, other, status, ...)                                                                        \
    (attn_fail_tensor(error, tensor, other, status, __VA_ARGS__), attn_fail_status(status))
#endif

/* Sets *error (may be NULL) to ATTN_OK with an empty message and returns ATTN_OK. */
attn_status attn_succeed(attn_error *error);

/* In a function with a parameter `attn_error *error`: returns with an error unless `condition` holds. */
#define CHECK(condition, status, ...)                                                                                              \
    do {                                                                                                                           \
        if (!(condition)) return attn_fail(error, status, __VA_ARGS__);                                                            \
    } while (0)

/* The same for an error about a tensor, or two. */
#define CHECK_TENSORS(condition, tensor, other, status, ...)                                                                       \
    do {                                                                                                                           \
        if (!(condition)) return attn_fail_tensor(error, tensor, other, status, __VA_ARGS__);                                      \
    } while (0)
#define CHECK_TENSOR(condition, tensor, status, ...) CHECK_TENSORS(condition, tensor, -1, status, __VA_ARGS__)

/* Propagates a failure. */
#define TRY(call)                                                                                                                  \
    do {                                                                                                                           \
        attn_status try_status = (call);                                                                                           \
        if (try_status != ATTN_OK) return try_status;                                                                              \
    } while (0)

#endif
