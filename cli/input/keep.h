/* SPDX-License-Identifier: MIT
 *
 * keep.h - boolean masks as files have them: of any type, with 1 = keep or 1 = hide, of keys, queries and keys, or each with a
 * batch; and numbers that are added to scores, which go by the name of a mask too. */
#ifndef ATTN_CLI_INPUT_KEEP_H
#define ATTN_CLI_INPUT_KEEP_H

#include "attn/io.h"
#include "testing/problem/problem.h"

/* A mask of bytes, 1 = keep. */
typedef struct keep_mask {
    attn_archive_tensor tensor; /* with axes that say which they are: [batch, 1, 1, key] for [batch, key] */
    int is_added;               /* 1: not a mask but numbers to be added; the tensor has them as they are */
    unsigned char *bytes;       /* allocated, or NULL */
} keep_mask;

/* 1 if a mask may have this type. */
int keep_type_fits(attn_dtype dtype);

/*
 * Reads a mask of a problem of these sizes, [batch, head, query, key], beside a bias or NULL; with `drop`, 1 hides.  Numbers of a
 * float type that are 0 or large and negative are left to be added.  [key], [batch, key] and [batch, query, key] get axes for what
 * they lack; others stay.  A batch of 0: no tensor has such an axis.
 * ATTN_ERR_ARGUMENT, without a path: another value than 0 and 1; floats that are 0 alone, which may be either; numbers to be added
 * and a bias.  ATTN_ERR_SHAPE: sizes that fit two meanings.  The caller frees bytes, also after a failure.
 */
attn_status keep_mask_read(keep_mask *mask, const attn_archive_tensor *from, const attn_archive_tensor *bias, int drop,
                           const int64_t size[4], attn_error *error);

/* Warns (command_warn) of a mask [batch, head, query, key] of bytes, of which axes in `one` have size 1, if it looks as if 1 hid:
 * the own key of every query is hidden, or all keys of a batch entry. */
void keep_mask_doubt(const char *name, const unsigned char *bytes, const int64_t size[4], int one, int drop);

/* Warns of a bias of 0 and 1 alone, of a float type. */
void keep_bias_doubt(const attn_archive_tensor *bias);

/* Warns of a tensor that has the name of a mask in other libraries, where no flag gives it a role.  used: the bias, or NULL. */
void keep_name_doubt(const attn_archive *file, const attn_archive_tensor *used);

#endif
