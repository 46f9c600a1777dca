/* SPDX-License-Identifier: MIT
 *
 * role_pass.h - the roles of the heads that are shown, from their rows as these pass by: once as they are, and where there are
 * separators once more without these. */
#ifndef ATTN_CLI_VIEW_ROLE_PASS_H
#define ATTN_CLI_VIEW_ROLE_PASS_H

#include "chosen.h"

enum { ROLE_PASSES = 2 };

/* The layers of an entry, one after the other. */
typedef struct role_pass {
    int64_t heads;
    int passes; /* 1: there are no separators */
    head_text text[ROLE_PASSES];
    head_sums **sums[ROLE_PASSES];  /* [heads] */
    head_roles *roles[ROLE_PASSES]; /* [layers][heads], those of the sequence */
} role_pass;

/* Sets roles and content_roles of the entry's sequence. */
void role_pass_begin(role_pass *pass, shown *s, int64_t entry);
void role_pass_clear(const role_pass *pass);
/* visible: [keys] 1 for a key that the row sees */
void role_pass_add(const role_pass *pass, int64_t head, int64_t i, const float *weights, const uint8_t *visible);
void role_pass_finish(const role_pass *pass, int64_t layer);
void role_pass_end(role_pass *pass);

#endif
