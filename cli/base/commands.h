/* SPDX-License-Identifier: MIT
 *
 * commands.h - the commands of the attn program and what they return to the shell.
 *
 * Each receives only its own arguments (argv[0] is its name, such as "run"), prints results on standard output and at most
 * one line on standard error beside warnings, and returns one of the exit statuses.
 */
#ifndef ATTN_CLI_BASE_COMMANDS_H
#define ATTN_CLI_BASE_COMMANDS_H

#include <stdio.h>

#include "attn/attn.h"
#include "testing/text/failure.h" /* the exit statuses */

int attn_cmd_make(int argc, char **argv);
int attn_cmd_run(int argc, char **argv);
int attn_cmd_show(int argc, char **argv);
int attn_cmd_top(int argc, char **argv);
int attn_cmd_view(int argc, char **argv);
int attn_cmd_plot(int argc, char **argv);
int attn_cmd_layer(int argc, char **argv);
int attn_cmd_train(int argc, char **argv);
int attn_cmd_analyze(int argc, char **argv);
int attn_cmd_mask(int argc, char **argv);
int attn_cmd_merge(int argc, char **argv);
int attn_cmd_hopfield(int argc, char **argv);
int attn_cmd_position(int argc, char **argv);
int attn_cmd_metric(int argc, char **argv);
int attn_cmd_einsum(int argc, char **argv);
int attn_cmd_check(int argc, char **argv);
int attn_cmd_bench(int argc, char **argv);
int attn_cmd_info(int argc, char **argv);
int attn_cmd_cost(int argc, char **argv);
int attn_cmd_explain(int argc, char **argv);

/* Sets the name of the program in messages and --help (from the start "attn"); with `mute`, errors are not printed: another process
 * prints them.  Borrows the name. */
void command_begin(const char *name, int mute);
const char *command_program(void);

/* The last error that was not printed, with its subject in front; its status is ATTN_OK if there is none. */
const attn_error *command_unsaid(void);

/* Prints "attn COMMAND: [SUBJECT: ]MESSAGE" on standard error and returns the exit status of the error.  subject (a file, a
 * problem string) may be NULL. */
int command_fail(const char *command, const char *subject, const attn_error *error);

/* EXIT_DONE if status is ATTN_OK, else as command_fail. */
int command_end(attn_status status, const char *command, const char *subject, const attn_error *error);

/* What a command that succeeds says besides, at most 4 times, each once: command_end prints "attn COMMAND: warning: MESSAGE" on
 * standard error. For --json: adds a list `warnings` of the messages, if there are any. */
struct cJSON;
__attribute__((format(printf, 1, 2))) void command_warn(const char *format, ...);
void command_json_warnings(struct cJSON *object);

/* As command_fail for a surplus operand, and for a missing one; example shows a correct call. */
int command_fail_operand(const char *command, const char *operand);
int command_fail_missing(const char *command, const char *what, const char *example);

/* Prints a text of the library, whose names (mask.chunk) become what users of the command type (--chunk; in problem strings chunk).
 */
void command_put(FILE *out, const char *command, const char *text);

/* The compiler and what was built in: "gcc 12.2.0, sanitizers address". */
const char *built_with(void);

#endif
