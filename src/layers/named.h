/* SPDX-License-Identifier: MIT
 * named.h - tensors of a file as weights. */
#ifndef ATTN_LAYERS_NAMED_H
#define ATTN_LAYERS_NAMED_H

#include "layer.h"

enum { NAMED = 200 };

/* Joins prefix and end to one name.  Fails if it is too long: the prefix may come from a user. */
attn_status attn_named_full(char name[NAMED], const char *prefix, const char *end, attn_error *error);
/* Checks that t is [rows, columns], or [rows] if columns is 0, of the layer's type, without NaN. */
attn_status attn_named_check(const layer *l, const attn_archive_tensor *t, int64_t rows, int64_t columns, attn_error *error);
/* *data: the tensor's data; NULL if it does not exist and is not needed. */
attn_status attn_named_find(const layer *l, const attn_archive *tensors, const char *prefix, const char *end, int64_t rows,
                            int64_t columns, int needed, char **data, attn_error *error);

enum { MAX_NAMED = 12 };

/* The tensors that one call adds to an archive: all or nothing. */
typedef struct named_new {
    attn_archive *tensors;
    const char *prefix;          /* NULL: "" */
    const char *ends[MAX_NAMED]; /* added so far; the strings outlive the call */
    int count;
} named_new;

/* Adds a tensor, dense and of the layer's type. */
attn_status attn_named_allocate(const layer *l, named_new *to, const char *end, int rank, const int64_t *shape, char **data,
                                attn_error *error);
/* The same with rank 2, or 1 if columns is 0. */
attn_status attn_named_add(const layer *l, named_new *to, const char *end, int64_t rows, int64_t columns, char **data,
                           attn_error *error);
/* Ends a call: removes all added tensors if it failed.  Returns status. */
attn_status attn_named_end(const named_new *to, attn_status status, attn_error *error);

#endif
