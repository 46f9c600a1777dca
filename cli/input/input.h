/* SPDX-License-Identifier: MIT
 *
 * input.h - from the tensors of a file to a problem and its arguments.
 *
 * Rank 1 is the channels of one token, 2 is [token, channel], 3 [head, token, channel], 4 [batch, head, token, channel] (or with
 * --layout=bshd token before head); axes before these count as batch too: they are folded into one.  Messages name the file, the
 * tensor and both shapes.
 */
#ifndef ATTN_CLI_INPUT_INPUT_H
#define ATTN_CLI_INPUT_INPUT_H

#include "attn/attn.h"
#include "attn/io.h"
#include "keep.h"
#include "named_masks.h"
#include "roles.h"

/* One tensor that is used. */
typedef struct input_tensor {
    const char *path;                  /* of the file that it is in */
    const attn_archive_tensor *tensor; /* as the file has it, or some of its rows (share.h); NULL: the role is not used */
    const attn_archive_tensor *in_file;
} input_tensor;

typedef struct attention_input {
    const char *path;   /* for messages: the input file, or that of the queries */
    attn_archive *file; /* the input file; NULL if every tensor is an .npy file of its own */
    const char *tokens; /* the file of --tokens; NULL: none */
    input_tensor used[ROLES];
    problem_spec spec; /* from the tensors and flags */
    attn_problem problem;
    attn_tensors tensors;                      /* inputs; requested outputs are ATTN_LATER */
    attn_call call;                            /* tensors.call points to it */
    int64_t total_q, total_kv;                 /* tokens of the tensors, which hold all packed sequences one after the other */
    const int64_t *begins_q, *begins_kv;       /* where packed sequences began that are now batch entries; NULL: none */
    attn_rope rope;                            /* of --rope: q and k are rotated copies */
    const int64_t *positions_q, *positions_kv; /* of the tokens, with --rope */
    keep_mask keep;                            /* the mask of the file */
    named_masks masks;                         /* of --sparse */
    int keep_one;                              /* axes of size 1 of dropout_keep, like spec.mask_one */
    const attn_archive_tensor *weights;        /* of a file without q: what commands show; NULL: they are computed from q and k */
    int leading; /* axes before [head, token, channel]; the product of their sizes is problem.shape.batch */
    int64_t lead[ATTN_MAX_RANK];

    int is_shared; /* 1: the rows of `share` alone are used */
    input_share share;
    attn_archive_tensor own[TENSORS]; /* of the tensors that are used in part, or are vectors */

    attn_archive *single[ROLES]; /* .npy files */
    void *owned[96];             /* converted copies */
    int owned_count;
} attention_input;

/* Whether v is read, and whether the problem can be cut between any two queries (compute/slice.h): packed sequences are then batch
 * entries, and a mask of blocks has a row for each query. */
enum { INPUT_NO_VALUE = 0, INPUT_VALUE = 1, INPUT_VALUE_CUT = 2 };

/*
 * Reads path (NULL if --query and the others name .npy files) and builds input->problem.  With value INPUT_NO_VALUE, for commands
 * that need only the weights, v is left out, with dim_v 0; such a problem can be cut, too.  Release with input_free, also after a
 * failure.
 */
attn_status input_load(attention_input *input, const char *path, const input_settings *settings, int value, attn_error *error);
/* The same without values, for commands that need only the weights: a file without q that has `weights` [leading axes, head, query,
 * key], as `attn run --weights` and `attn layer --weights` write it, is taken too; input->weights are then all that is there. */
attn_status input_load_weights(attention_input *input, const char *path, const input_settings *settings, attn_error *error);
/* 1 if the file that was read, maybe in vain, is such a file. */
int input_has_weights_alone(const attention_input *input, const input_settings *settings);
void input_free(attention_input *input);

/* Sets the alignment of queries and keys that the metadata's problem string says, for labels. */
void input_recall_alignment(attention_input *input);

/* ATTN_ERR_ARGUMENT if `output` (may be NULL) is a file that a tensor was read from. */
attn_status input_check_output(const attention_input *input, const char *output, attn_error *error);

/* With --rope: the gradients of q and k from those of their rotated copies, in place. */
attn_status input_rotate_back(const attention_input *input, const attn_tensors *tensors, attn_error *error);

/* ATTN_ERR_ARGUMENT for a flag that sets the positions of queries (NULL: none is given) where nothing depends on them.  The spec is
 * that of the flags and the tensors; rotated: q is rotated by these positions. */
attn_status input_check_positions(const problem_spec *spec, const char *flag, int rotated, attn_error *error);
/* 1 if a mask, bias or term of the spec depends on the positions of queries. */
int input_positions_matter(const problem_spec *spec);

/* Element k of an integer tensor; 0 if it is a u64 beyond i64. */
int input_integer(const attn_archive_tensor *t, int64_t k, int64_t *value);

/* "[6, 12, 14, 32]" */
enum { SHAPE_TEXT = 200 };
const char *shape_text(char text[SHAPE_TEXT], int rank, const int64_t *shape);

/* The shape in a file of tensor t, which the library has as `size` [batch, head, token, channel]: that of q with another width, or
 * the leading axes and [head, token], with a last axis if the table has one.  Packed: [head, token, ...] of all sequences.  Returns
 * the rank. */
int input_file_shape(const attention_input *input, int t, const int64_t size[4], int64_t shape[ATTN_MAX_RANK]);

/* Sets the strides of all packed tensors that are there to their layout in files. */
void input_lay_packed(attention_input *input);

/* Which entry of an array of this shape, whose axes may have size 1, belongs to batch entry b. */
int64_t input_entry_of(const attention_input *input, int rank, const int64_t *shape, int64_t b);

#endif
