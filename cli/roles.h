/* SPDX-License-Identifier: MIT
 *
 * roles.h - what a tensor is for: its name in files, and the flag that chooses another. */
#ifndef ATTN_CLI_ROLES_H
#define ATTN_CLI_ROLES_H

#include "attn/position.h"
#include "options.h"
#include "problem.h"

typedef enum tensor_role {
    ROLE_Q,
    ROLE_K,
    ROLE_V,
    ROLE_MASK,
    ROLE_BIAS,
    ROLE_LENGTHS_Q,
    ROLE_LENGTHS_KV,
    ROLE_OFFSET,
    ROLE_SLOPES,
    ROLE_BIAS_TABLE,
    ROLE_RELATIVE_KEYS,
    ROLE_RELATIVE_VALUES,
    ROLE_RELATIVE_U,
    ROLE_RELATIVE_V,
    ROLE_SINK,
    ROLE_SCALE,
    ROLE_W,
    ROLE_BLOCKS,
    ROLE_DROPOUT_KEEP,
    ROLE_CU_SEQLENS_Q,
    ROLE_CU_SEQLENS_KV,
    ROLE_DO,
    ROLE_DLSE,
    ROLE_TAN_Q,
    ROLE_TAN_K,
    ROLE_TAN_V,
    ROLE_TAN_BIAS,
    ROLE_POSITIONS_Q,
    ROLE_POSITIONS_KV,
    ROLE_K_SCALE,
    ROLE_V_SCALE,
    ROLES
} tensor_role;

/* Of role_row. */
enum {
    ROLE_OP_GRADIENT = 1 << SPEC_BACKWARD | 1 << SPEC_DOUBLE_BACKWARD,
    ROLE_OP_TANGENT = 1 << SPEC_JVP | 1 << SPEC_DOUBLE_BACKWARD
};

typedef struct role_row {
    const char *name; /* in files */
    const char *flag; /* --query */
    const char *help;
    int ops; /* ROLE_OP_ bits of the operations beside forward that use it; 0: all do */
} role_row;

extern const role_row roles[ROLES];

/* 1 if an operation (spec_op) uses the role. */
int role_used_by(tensor_role role, int op);

/* What the flags of run, top and view say about the input. */
typedef struct input_settings {
    problem_spec spec;         /* options and operation; start from problem_init */
    int has_dtype;             /* 1: convert q, k and v to spec.dtype */
    const char *chosen[ROLES]; /* NULL: the name of the role, if the file has it */
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
