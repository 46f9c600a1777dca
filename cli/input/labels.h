/* SPDX-License-Identifier: MIT
 *
 * labels.h - what the axes of a file mean: layers, batch entries, tokens. */
#ifndef ATTN_CLI_INPUT_LABELS_H
#define ATTN_CLI_INPUT_LABELS_H

#include "input.h"

typedef struct token_list {
    int64_t count;
    char **word;
} token_list;

/*
 * The leading axes of the input as layers and entries (sentences).  The metadata's `layout` says which axis is the layer, as in
 * "q k v o: [layer, head, token, head_dim]".  Without it the first leading axis is the layer, unless the tokens are
 * a list of lists, one for each entry of a single leading axis.  Packed sequences are entries; a plain list has the tokens of all.
 */
typedef struct labels {
    int64_t layers, entries;
    int64_t inner;         /* batch entries between two layers */
    int has_layers;        /* 1: an axis is the layer */
    int layer_axis;        /* its number among the leading ones; -1: none */
    int64_t *layer_number; /* from the metadata's `layers` or `layer`; otherwise 0, 1, ... */
    int64_t lists;         /* 0: no tokens; 1: the same for all entries; else one for each entry */
    token_list *list;
} labels;

/* Adds the lines of a file to a list, whose words and array the caller frees, also after a failure. */
attn_status labels_read_file(token_list *list, const char *path, attn_error *error);

/* tokens_path: a file with one token a line; NULL: the metadata's `tokens`, a JSON list of words or of lists of words. */
attn_status labels_read(labels *l, const attention_input *input, const char *tokens_path, attn_error *error);
void labels_free(labels *l);

/* Writes `tokens` into the metadata of a file: one list of words, or one for each entry. */
attn_status labels_write(attn_archive *out, const token_list *list, int64_t lists, attn_error *error);

/* The batch entry of the problem for this layer of this entry. */
int64_t labels_batch(const labels *l, int64_t layer, int64_t entry);

/* The token of query i or key j; NULL if there is none.  If the lengths differ, the tokens are those of the keys, and queries have
 * the positions of causal masks and windows; without these, the tokens belong to the side that has as many. */
const char *labels_query(const labels *l, const attention_input *input, int64_t entry, int64_t i);
const char *labels_key(const labels *l, const attention_input *input, int64_t entry, int64_t j);

/* 1 if queries and keys are tokens of one text: query i of the problem's batch entry b has the place of key i + *offset. */
int labels_aligned(const attention_input *input, int64_t b, int64_t *offset);

/* A token's number as a label: "#9". */
enum { LABEL_NUMBER = 24 };
const char *label_or_number(const char *label, int64_t number, char text[LABEL_NUMBER]);

/* 1 for [CLS], <s>, <|endoftext|> and the like, and for tokens that are only punctuation. */
int label_is_special(const char *label);

/* Parses a list such as "0,3-5" of numbers in `known`, which has `count` of them (NULL: 0 .. count-1): *chosen gets their indices,
 * in memory from need_memory, in the order of known.  text NULL selects all. */
attn_status labels_choose(const char *option, const char *text, const int64_t *known, int64_t count, int64_t **chosen,
                          int64_t *chosen_count, attn_error *error);

/* The same for one number or range, such as "3-5", of 0 .. count-1. */
attn_status labels_choose_range(const char *option, const char *text, int64_t count, int64_t **chosen, int64_t *chosen_count,
                                attn_error *error);

/* The error for a number that is not in `known`. */
attn_status labels_unknown(const char *option, int64_t number, const int64_t *known, int64_t count, attn_error *error);

#endif
