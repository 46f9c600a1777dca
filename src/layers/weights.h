/* SPDX-License-Identifier: MIT
 * weights.h - structs of weights, which are struct_size and then slots: the rules of each slot, and the check that written ones
 * do not overlap. */
#ifndef ATTN_LAYERS_WEIGHTS_H
#define ATTN_LAYERS_WEIGHTS_H

#include "../common/places.h"
#include "../common/slots.h"

/* How a call uses a struct of weights. */
typedef enum weights_role {
    WEIGHTS_READ,     /* read; all needed ones are present */
    WEIGHTS_STARTED,  /* written; all needed ones are present */
    WEIGHTS_OPTIONAL, /* those present are written: gradients */
    WEIGHTS_COUNTED   /* only presence matters; no data is accessed */
} weights_role;

/* One tensor of a struct of weights: its rules, then its data and strides. */
typedef struct weight_slot {
    const char *name;
    int64_t shape[4];
    attn_need need;
    const char *because; /* why ATTN_NEED_NEVER, for the message */
    int dense;
    char *data; /* NULL: absent */
    int64_t stride[4];
} weight_slot;

/* Reads `count` slots of the caller's struct, whose type is called `type`; module and what ("weights") are for messages. */
attn_status attn_weights_read(const char *module, const char *what, weights_role role, const char *type, const void *given,
                              attn_dtype dtype, weight_slot *rows, int count, attn_error *error);

/* The reverse: fills the caller's struct with dense tensors of this type. */
attn_status attn_weights_write(void *caller, const char *type, char *const *data, attn_dtype dtype, int count, attn_error *error);

/* Adds the weights that are present to the tensors of a call. */
void attn_places_add_weights(places *p, const char *what, const weight_slot *rows, int count, int output);

#endif
