/* SPDX-License-Identifier: MIT
 *
 * chosen.h - what of one file is on the page: its layers, heads, entries and queries, and their numbers. */
#ifndef ATTN_CLI_VIEW_CHOSEN_H
#define ATTN_CLI_VIEW_CHOSEN_H

#include "cli/input/input.h"
#include "cli/input/labels.h"
#include "page.h"
#include "rows.h"

/* Which parts of a file: lists of numbers; NULL: all. */
typedef struct shown_choice {
    const char *layers, *heads, *entries, *queries;
} shown_choice;

typedef struct shown {
    attention_input input;
    labels labels;
    int64_t *layer, *head, *entry, *query; /* chosen indices */
    int64_t layers, heads, entries, rows;
    int64_t *layer_number;
    int by_rows;             /* 1: q and k are in the page, and no weights */
    view_sequence *sequence; /* [entries] */
    view_doubts doubts;
    double difference; /* by_rows: the largest one of a weight of the page, computed from rounded q and k, from that of the file */

    void **owned; /* what the sequences point to */
    int64_t owned_count;
} shown;

/* Reads the lists of numbers; layers and the others are then set. */
attn_status shown_choose(shown *s, const shown_choice *choice, attn_error *error);

/* count zeroed elements of `size` bytes, which shown_free releases. */
void *shown_memory(shown *s, int64_t count, size_t size);

/* The batch entry of a chosen layer of a chosen entry. */
int64_t shown_batch(const shown *s, int64_t layer, int64_t entry);

#endif
