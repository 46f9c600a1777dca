/* SPDX-License-Identifier: MIT
 *
 * roles.h - the part of `attn analyze` that says what heads do: `--roles`. */
#ifndef ATTN_CLI_ANALYZE_ROLES_H
#define ATTN_CLI_ANALYZE_ROLES_H

#include "cli/input/labels.h"
#include "testing/text/json.h"

typedef struct roles_settings {
    int roles, content;
} roles_settings;

/* The numbers of --roles, for --help. */
void roles_print(void);

/* ATTN_ERR_ARGUMENT for flags without effect. */
attn_status roles_check(const roles_settings *settings, attn_error *error);

/* Prints a table; or adds to each item of the object's list `heads`, which are in the order of entries, layers and heads. */
attn_status analyze_roles(const attention_input *input, const labels *l, const roles_settings *settings,
                          const common_settings *common, cJSON *object, attn_error *error);

#endif
