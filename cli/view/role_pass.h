/* SPDX-License-Identifier: MIT
 *
 * role_pass.h - the roles of the heads that are shown, from their rows as these pass by. */
#ifndef ATTN_CLI_VIEW_ROLE_PASS_H
#define ATTN_CLI_VIEW_ROLE_PASS_H

#include "chosen.h"

/* One layer at a time. */
typedef struct role_pass {
    int64_t heads;
    head_text text;
    head_sums **sums; /* [heads] */
} role_pass;

void role_pass_begin(role_pass *pass, const shown *s, int64_t entry);
void role_pass_clear(const role_pass *pass);
/* visible: [keys] 1 for a key that the row sees */
void role_pass_add(const role_pass *pass, int64_t head, int64_t i, const float *weights, const uint8_t *visible);
void role_pass_finish(const role_pass *pass, head_roles *roles);
void role_pass_end(role_pass *pass);

#endif
