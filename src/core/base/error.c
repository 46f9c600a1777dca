/* SPDX-License-Identifier: MIT
 * error.c - filling in attn_error. */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>

#undef attn_fail
#undef attn_fail_tensor

static void fill(attn_error *error, attn_status status, int tensor, int other, const char *format, va_list list)
{
    error->status = status;
    error->tensor = tensor;
    error->other = other;
    (void)vsnprintf(error->message, sizeof error->message, format, list);
}

attn_status attn_fail(attn_error *error, attn_status status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (error) fill(error, status, -1, -1, format, list);
    va_end(list);
    return status;
}

attn_status attn_fail_tensor(attn_error *error, int tensor, int other, attn_status status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (error) fill(error, status, tensor, other, format, list);
    va_end(list);
    return status;
}

attn_status attn_succeed(attn_error *error)
{
    if (error) {
        error->status = ATTN_OK;
        error->tensor = error->other = -1;
        error->message[0] = '\0';
    }
    return ATTN_OK;
}
