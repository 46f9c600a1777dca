/* SPDX-License-Identifier: MIT
 *
 * program.h - a program of several commands: passes the command line to one of them. */
#ifndef ATTN_CLI_BASE_PROGRAM_H
#define ATTN_CLI_BASE_PROGRAM_H

typedef struct program_command {
    const char *name;
    const char *synopsis;
    const char *help;
    int (*run)(int argc, char **argv);
    const char *group; /* of the first of a group: what --help prints above it; else NULL */
} program_command;

typedef struct program {
    const char *name;  /* "attn" */
    const char *about; /* a paragraph of --help, without its last newline */
    const program_command *commands;
    int count;
} program;

/* Runs a command, --help or --version, and returns the exit status; output that cannot be written is an error. */
int program_run(const program *p, int argc, char **argv);

#endif
