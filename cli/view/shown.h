/* SPDX-License-Identifier: MIT
 *
 * shown.h - reads one file, and computes what the page holds of it. */
#ifndef ATTN_CLI_VIEW_SHOWN_H
#define ATTN_CLI_VIEW_SHOWN_H

#include "chosen.h"

/* Reads and chooses, and fills in the sequences but for what they hold; `file` is their number.  Checks the size of the page before
 * anything of that size is allocated.  Release with shown_free, also after a failure. */
attn_status shown_load(shown *s, const char *path, const shown_choice *choice, int file, const input_settings *in,
                       attn_error *error);
/* Fills in what the sequences hold. */
attn_status shown_compute(shown *s, const input_settings *in, attn_error *error);
/* The weights [rows][keys] of the first head of the first layer and entry, which the caller frees. */
attn_status shown_head(shown *s, const input_settings *in, float **weights, attn_error *error);
void shown_free(shown *s);

#endif
