/* SPDX-License-Identifier: MIT
 *
 * failure.h - how the parts of the command fill an attn_error. */
#ifndef ATTN_CLI_FAILURE_H
#define ATTN_CLI_FAILURE_H

#include "attn/attn.h"

/* Fills *error (which may be NULL) and returns status. */
__attribute__((format(printf, 3, 4))) attn_status failure(attn_error *error, attn_status status, const char *format, ...);

#endif
