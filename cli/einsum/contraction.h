/* SPDX-License-Identifier: MIT
 *
 * contraction.h - a contraction in Einstein notation, such as "ij,jk->ik". */
#ifndef ATTN_CLI_EINSUM_CONTRACTION_H
#define ATTN_CLI_EINSUM_CONTRACTION_H

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>

#include "attn/attn.h"

enum { OPERANDS = 8, LETTERS = 128, TERM = 16, SHAPE_OF_ALL = 52 * 16 /* of each letter at most ", a=1073741824" */ };

typedef struct contraction {
    char text[OPERANDS * TERM];
    char inputs[OPERANDS][TERM];
    int count;
    char output[TERM];
    char free_indices[LETTERS], summed[LETTERS]; /* in order of appearance */
    int64_t size[LETTERS];                       /* 0: not given */
} contraction;

/* Reads the text; without an arrow, the indices that occur once are free. */
attn_status contraction_read(contraction *c, const char *text, attn_error *error);

/* How often an index occurs on tensors. */
int contraction_occurrences(const contraction *c, char letter);

/* The sizes of all indices, from "b=2,h=8,...". */
attn_status contraction_size(contraction *c, const char *text, attn_error *error);

/* "[b, h, i, d]", of distinct indices, with sizes where they are known. */
const char *contraction_shape(const contraction *c, const char *indices, char text[SHAPE_OF_ALL]);

/* What it computes, as text or JSON; sized: the sizes are known.  meaning may be NULL. */
void contraction_print(const contraction *c, const char *meaning, int sized);
void contraction_json(cJSON *object, const contraction *c, const char *meaning, int sized);

#endif
