/* SPDX-License-Identifier: MIT
 *
 * match.h - which layer of a file is meant, and which of its tensors are its weights. */
#ifndef ATTN_CLI_LAYER_MATCH_H
#define ATTN_CLI_LAYER_MATCH_H

#include "family.h"

enum { MATCH_ROOT = 200 };

typedef struct layer_match {
    const layer_family *family;
    char root[MATCH_ROOT]; /* what stands before the names of the family */
    const attn_archive_tensor *found[WEIGHT_ROLES];
    layer_family own; /* of --names */
    char *own_text;   /* its words */
} layer_match;

/* What the flags say. */
typedef struct match_request {
    const char *prefix;     /* NULL: any */
    const char *names_file; /* NULL: names of a family */
    const char *kind;       /* NULL: any */
    int64_t layer;          /* -1: any */
    int no_output;
} match_request;

/*
 * Finds the one layer that the request leaves.  match->family is NULL if the file has no weights of a layer.  ATTN_ERR_ARGUMENT if
 * it has several, with their prefixes in the message, or if none of them is the one that is requested.  Release with match_free.
 */
attn_status match_find(layer_match *match, const attn_archive *file, const match_request *request, attn_error *error);
void match_free(layer_match *match);

/* The first number among the words of a name: "model.layers.3.self_attn." and "layers_3/attention/" are layer 3; -1: none. */
int64_t match_layer(const char *name);

#endif
