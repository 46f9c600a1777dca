/* SPDX-License-Identifier: MIT
 *
 * completions.h - scripts that complete the words of a program in bash, zsh and fish, from the tables of --help. */
#ifndef ATTN_CLI_BASE_COMPLETIONS_H
#define ATTN_CLI_BASE_COMPLETIONS_H

#include "attn/attn.h"
#include "program.h"

/* Prints what the script is for, or the script.  ATTN_ERR_ARGUMENT: NULL, or no shell that is known. */
void completions_help(const program *p);
attn_status completions_print(const program *p, const char *shell, attn_error *error);

#endif
