/* SPDX-License-Identifier: MIT
 *
 * shown.h - reads one file, and computes what the page holds of it. */
#ifndef ATTN_CLI_VIEW_SHOWN_H
#define ATTN_CLI_VIEW_SHOWN_H

#include "chosen.h"

/* Reads and chooses; checks the size of the page before anything of that size is allocated.  Release with shown_free, also after
 * a failure. */
attn_status shown_load(shown *s, const char *path, const shown_choice *choice, const input_settings *in, attn_error *error);
/* Fills in the sequences; `file` is their number. */
attn_status shown_compute(shown *s, int file, const input_settings *in, attn_error *error);
void shown_free(shown *s);

#endif
