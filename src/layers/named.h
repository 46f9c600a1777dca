/* SPDX-License-Identifier: MIT
 * named.h - tensors of a file as weights. */
#ifndef ATTN_LAYERS_NAMED_H
#define ATTN_LAYERS_NAMED_H

#include "layer.h"

enum { NAMED = 200 };

/* prefix and end as one name; the longer half may come from a user. */
attn_status named_full(char name[NAMED], const char *prefix, const char *end, attn_error *error);
/* [rows, columns], or [rows] where columns is 0, of the layer's type, without NaN. */
attn_status named_check(const layer *l, const attn_archive_tensor *t, int64_t rows, int64_t columns, attn_error *error);
/* Its data, or NULL where there is none and none is needed. */
attn_status named_find(const layer *l, const attn_archive *tensors, const char *prefix, const char *end, int64_t rows,
                       int64_t columns, int needed, char **data, attn_error *error);

enum { NAMED_MOST = 12 };

/* What one call adds to an archive: all of it, or nothing. */
typedef struct named_new {
    attn_archive *tensors;
    const char *prefix;           /* NULL: "" */
    const char *ends[NAMED_MOST]; /* added so far; they live longer */
    int count;
} named_new;

/* A new one, dense and of the layer's type. */
attn_status named_allocate(const layer *l, named_new *to, const char *end, int rank, const int64_t *shape, char **data,
                           attn_error *error);
/* A new one, of rank 1 where columns is 0. */
attn_status named_add(const layer *l, named_new *to, const char *end, int64_t rows, int64_t columns, char **data,
                      attn_error *error);
/* The end of a call: takes all back if it failed.  Returns its status. */
attn_status named_end(const named_new *to, attn_status status, attn_error *error);

#endif
