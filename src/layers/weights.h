/* SPDX-License-Identifier: MIT
 * weights.h - structs of weights, which are struct_size and then slots: what each slot has to be, and that what a call writes
 * shares elements with nothing. */
#ifndef ATTN_LAYERS_WEIGHTS_H
#define ATTN_LAYERS_WEIGHTS_H

#include "../common/places.h"
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

/* Those that are there, among the tensors of a call. */
void attn_places_add_weights(places *p, const char *what, const weight_slot *rows, int count, int output);

#endif
