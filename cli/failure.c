/* SPDX-License-Identifier: MIT
 *
 * failure.c - how the parts of the command fill an attn_error. */
#include "failure.h"

#include <stdarg.h>
#include <stdio.h>

attn_status failure(attn_error *error, attn_status status, const char *format, ...)
{
    if (error) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(error->message, sizeof error->message, format, arguments);
        va_end(arguments);
        error->status = status;
    }
    return status;
}
