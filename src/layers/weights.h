/* SPDX-License-Identifier: MIT
 * weights.h - structs of weights, which are struct_size and then slots: what each slot has to be, and that what a call writes
 * shares elements with nothing. */
#ifndef ATTN_LAYERS_WEIGHTS_H
#define ATTN_LAYERS_WEIGHTS_H

#include "../common/overlap.h"
#include "../common/slots.h"

/* What is done with a struct of weights. */
typedef enum weights_role {
    WEIGHTS_READ,    /* all that are needed are there */
    WEIGHTS_STARTED, /* the same, and they are written */
    WEIGHTS_WANTED,  /* those that are there are written: gradients */
    WEIGHTS_COUNTED  /* nothing is touched: which ones there are */
} weights_role;

/* One tensor of a struct of weights: what it has to be, and then where it is. */
typedef struct weight_slot {
    const char *name;
    int64_t shape[4];
    attn_need need;
    const char *because; /* there is none */
    int dense;
    char *data; /* NULL: it is not there */
    int64_t stride[4];
} weight_slot;

/* Reads `count` slots of a struct of theirs that is called `type`; module and what ("weights") are for messages. */
attn_status attn_weights_read(const char *module, const char *what, weights_role role, const char *type, const void *given,
                              attn_dtype dtype, weight_slot *rows, int count, attn_error *error);

/* The other way: a struct of the caller's is filled with dense tensors of this type. */
attn_status attn_weights_write(void *theirs, const char *type, char *const *data, attn_dtype dtype, int count, attn_error *error);

/* ---- what a call reads and writes ---- */

typedef struct place {
    char name[48];
    const void *data;
    int64_t shape[4], stride[4];
    int output;
} place;

/* All tensors of a call, each of elements of `size` bytes. */
typedef struct places {
    place all[40];
    int count;
    size_t size;
} places;

void attn_places_add(places *p, const char *name, const void *data, const int64_t shape[4], const int64_t stride[4], int output);
void attn_places_add_bytes(places *p, const char *name, const void *data, int64_t bytes, int output);
void attn_places_add_weights(places *p, const char *what, const weight_slot *rows, int count, int output);
/* No output shares an element with another tensor. */
attn_status attn_places_check(const places *p, const char *module, attn_error *error);

#endif
