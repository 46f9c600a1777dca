/* SPDX-License-Identifier: MIT
 * foreign.h - `attn check --conformance`: becomes attn-conformance (testing/conformance). */
#ifndef ATTN_CLI_CHECK_FOREIGN_H
#define ATTN_CLI_CHECK_FOREIGN_H

#include "cli/base/options.h"

/* Becomes the program, which lies beside this one in a build tree; an installed command has none.  Returns only with
 * ATTN_ERR_UNSUPPORTED: there is no such program. */
attn_status foreign_run(const char *folder, const common_settings *settings, attn_error *error);

#endif
