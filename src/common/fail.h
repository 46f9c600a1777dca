/* SPDX-License-Identifier: MIT
 * fail.h - how a module outside the core rejects; such modules use public headers only. */
#ifndef ATTN_COMMON_FAIL_H
#define ATTN_COMMON_FAIL_H

#include <stdarg.h>
#include <stdio.h>

#include "attn/attn.h"

#if defined(__GNUC__)
__attribute__((format(printf, 3, 4), unused))
#endif
static attn_status
fail(attn_error *error, attn_status status, const char *format, ...)
{
    if (error) {
        va_list list;
        va_start(list, format);
        error->status = status;
        error->tensor = error->other = -1;
        (void)vsnprintf(error->message, sizeof error->message, format, list);
        va_end(list);
    }
    return status;
}

/* clang's analyser does not follow variadic functions, so does not see that the returned status is never ATTN_OK. */
#if defined(__clang_analyzer__)
static inline attn_status fail_status(attn_status status) { return status; }
#define fail(error, status, ...) (fail(error, status, __VA_ARGS__), fail_status(status))
#endif

/* In a function with a parameter `attn_error *error`: returns with an error unless `condition` holds; propagates a failure. */
#define CHECK(condition, status, ...)                                                                                              \
    do {                                                                                                                           \
        if (!(condition)) return fail(error, status, __VA_ARGS__);                                                                 \
    } while (0)
#define TRY(call)                                                                                                                  \
    do {                                                                                                                           \
        attn_status try_status = (call);                                                                                           \
        if (try_status != ATTN_OK) return try_status;                                                                              \
    } while (0)

static inline attn_status succeed(attn_error *error)
{
    if (error) {
        error->status = ATTN_OK;
        error->tensor = error->other = -1;
        error->message[0] = '\0';
    }
    return ATTN_OK;
}

#endif
