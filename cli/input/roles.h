/* SPDX-License-Identifier: MIT
 *
 * roles.h - what a tensor is for: its name in files, and the flag that chooses another. */
#ifndef ATTN_CLI_INPUT_ROLES_H
#define ATTN_CLI_INPUT_ROLES_H

#include "attn/position.h"
#include "cli/base/options.h"
#include "testing/problem/problem.h"
#include "testing/problem/tensors.h"

/* The tensors that files may have are those of the library, by number, and where tokens stand, for --rope. */
enum { ROLE_POSITIONS_Q = TENSORS, ROLE_POSITIONS_KV, ROLES };

const char *role_name(int role); /* in files; the slot's own name is read too */
const char *role_flag(int role); /* without dashes: "query"; NULL: files do not have it */

/* 1 if an operation (spec_op) uses the role; what forward uses, all do. */
int role_used_by(int role, int op);

/* What the flags of run, top and view say about the input. */
typedef struct input_settings {
    problem_spec spec;         /* options and operation; start from problem_init */
    int has_dtype;             /* 1: convert q, k and v to spec.dtype */
    const char *chosen[ROLES]; /* NULL: the name of the role, if the file has it */
    int by_file[ROLES];        /* it was chosen by the flag of its name in files, where that of its slot is another */
    const char **ignored;      /* names, ended by NULL */
    int ignored_count;
    attn_rope rope;              /* of --rope; struct_size 0: none of its flags */
    attn_rope_scaling stretched; /* of --rope-scaling; struct_size 0: none */
    const char *rope_word;       /* the last of these flags, behind "rope-" */
    const char *tokens;          /* a file with one token a line; NULL: from the metadata */
} input_settings;

/*
 * How a command over the tensors of a file begins: options_begin with its `own` groups (two at most, ended by one without rows),
 * those of the input and of its mechanism (problem_options(words)), and those of all commands.  *path is the input file; NULL where
 * --query and the others name .npy files.  Without any the command fails, and shows `example`.  In any case settings end in
 * input_settings_free.
 */
int input_begin(const command_usage *usage, const option_group *own, problem_word_flag words, const char *example, int argc,
                char **argv, input_settings *settings, common_settings *common, const char **path);
void input_settings_free(input_settings *settings);

#endif
