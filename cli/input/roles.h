/* SPDX-License-Identifier: MIT
 *
 * roles.h - what a tensor is for: its name in files, and the flag that chooses another. */
#ifndef ATTN_CLI_INPUT_ROLES_H
#define ATTN_CLI_INPUT_ROLES_H

#include "attn/position.h"
#include "cli/base/options.h"
#include "testing/problem/problem.h"
#include "testing/problem/tensors.h"

/* The tensors that files may have: those of the library, by number, and the positions of tokens, for --rope. */
enum { ROLE_POSITIONS_Q = TENSORS, ROLE_POSITIONS_KV, ROLES };

const char *role_name(int role); /* in files; the slot's own name is accepted too */
const char *role_flag(int role); /* without dashes: "query"; NULL: files do not have it */

/* ATTN_ERR_ARGUMENT for --ignore: no such tensor.  The message lists those that `has` is 1 for (NULL: all), the nearest first. */
attn_status role_reject_ignored(const char *name, int (*has)(int role), attn_error *error);

/* Sets an attn_rope_pairs: interleaved or halves. */
attn_status role_set_pairs(void *target, const char *name, const char *value, attn_error *error);

/* "yarn/4/2048": the kind, the factor, and the length that the model was trained on. */
attn_status role_read_scaling(const char *name, const char *value, attn_rope_scaling *s, attn_error *error);

/* 1 if forward reads a tensor of this role that no flag gives: a page table, say. */
int role_without_flag(int role);

/* 1 if an operation (spec_op) uses the role; what forward uses, all operations use. */
int role_used_by(int role, int op);

/* Options that change no weights: of commands that show them, and of analyze, which may read values for other figures. */
extern const option_lacked role_lacked_of_weights[], role_lacked_of_analysis[];

/* Tokens of the whole. */
typedef struct token_range {
    int64_t first, tokens;
} token_range;

/* What one of several processes has of the queries [0] and of the keys [1] of a file: ranges that rise. */
typedef struct input_share {
    token_range *ranges[2];
    int64_t count[2];
    int64_t tokens[2]; /* of all ranges */
} input_share;

/* Fills in *share, whose memory is the context's.  Queries and keys are those of the file, of all packed sequences together. */
typedef attn_status input_choose(void *context, int64_t queries, int64_t keys, input_share *share, attn_error *error);

/* The flags of run, top, view and analyze that are not their own. */
typedef struct input_settings {
    problem_spec spec;         /* options and operation; start from problem_init */
    int mask_drop;             /* 1: in the mask, 1 = hide */
    int has_dtype;             /* 1: convert q, k and v to spec.dtype */
    const char *chosen[ROLES]; /* NULL: the name of the role, if the file has it */
    int by_file[ROLES];        /* 1: chosen by the flag of its name in files, not by that of its slot */
    const char **ignored;      /* names, NULL-terminated */
    int ignored_count;
    attn_rope rope;              /* of --rope; struct_size 0: no flag of it given */
    attn_rope_scaling stretched; /* of --rope-scaling; struct_size 0: none */
    const char *rope_word;       /* the last of these flags, after "rope-" */
    const char *tokens;          /* a file with one token a line; NULL: from the metadata */
    common_settings common;
    input_choose *choose; /* which rows are used (share.h); NULL: all.  No flag sets it */
    void *choose_context;
} input_settings;

/* What a command does with the tensors of a file: path, NULL if --query and the others name .npy files. */
typedef attn_status input_use(const char *path, const void *own, input_settings *in, attn_error *error);

/*
 * A command over the tensors of a file: options_begin with its own groups (four at most, ended by one without rows) and those of
 * the input and of its mechanism (problem_options(words)), which set *in, then use(path, own, in, ...).  `own` is what the
 * command's groups set.  Returns the exit status.
 */
int input_command(const command_usage *usage, const option_group *groups, problem_word_flag words, int argc, char **argv,
                  input_settings *in, input_use *use, const void *own);

#endif
