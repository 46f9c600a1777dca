/* SPDX-License-Identifier: MIT
 * error.c - statuses and their texts. */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>

attn_status attn_fail(attn_error *error, attn_status status, const char *format, ...)
{
    if (error) {
        va_list list;
        va_start(list, format);
        error->status = status;
        (void)vsnprintf(error->message, sizeof error->message, format, list);
        va_end(list);
    }
    return status;
}

attn_status attn_succeed(attn_error *error)
{
    if (error) {
        error->status = ATTN_OK;
        error->message[0] = '\0';
    }
    return ATTN_OK;
}
