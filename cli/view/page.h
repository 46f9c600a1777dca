/* SPDX-License-Identifier: MIT
 *
 * page.h - writes attention as one HTML page that needs no network and no other file.
 *
 * The page shows every head as a small heat map; a head opens large, a token shows where it attends.  Its source is
 * page.html, page.css and script/, which embed.cmake puts into the program.  Called by `attn view` only.
 */
#ifndef ATTN_CLI_VIEW_PAGE_H
#define ATTN_CLI_VIEW_PAGE_H

#include "attn/attn.h"

#include <stdint.h>

#include "cli/base/embedded.h"
#include "cli/base/text_buffer.h"
#include "cli/compute/roles.h"
#include "rule.h"
#include "summary.h"

/* Weights without queries and keys: up to VIEW_EXACT_WEIGHTS the page holds every weight as f32.  Above, as 16-bit steps between
 * the smallest and the largest weight of its head, which is off by at most 1/131068 of that range, so three decimals stay.  Above
 * VIEW_MAX_WEIGHTS (a page of 128 MiB) it is rejected: browsers open such a page, but slowly.
 * Queries and keys: up to VIEW_EXACT_NUMBERS as f32, up to VIEW_MAX_NUMBERS as f16. */
#define VIEW_EXACT_WEIGHTS (INT64_C(2) << 20)
#define VIEW_MAX_WEIGHTS   (INT64_C(48) << 20)
#define VIEW_EXACT_NUMBERS (INT64_C(256) << 10)
#define VIEW_MAX_NUMBERS   VIEW_MAX_WEIGHTS
#define VIEW_MAX_HEADS     (INT64_C(16) << 10)

/* A line of "About this file": `model`, `sentence-transformers/all-MiniLM-L6-v2`. */
typedef struct view_fact {
    const char *name;
    const char *value;
} view_fact;

/* Queries and keys of a sequence, of which the page computes weights.  Rows have rule->dim numbers, which rule->dtype can hold. */
typedef struct view_rows {
    const float *const *q;     /* [layers][heads] -> [len_q][dim] */
    const float *const *k;     /* [layers][rule->groups] -> [len_k][dim] */
    const float *const *norms; /* [layers][rule->groups] -> [len_k] the length of each value; NULL: there are no values */
    const float *lse;          /* [layers][heads][rows] */
} view_rows;

/* One batch entry of one file.  Texts are UTF-8 of any content; what is not valid UTF-8 is shown as U+FFFD. */
typedef struct view_sequence {
    const char *name; /* for the list of sequences; NULL: its first tokens */
    int file;         /* 0, or 1: of the file that is compared with */
    int64_t rows;     /* queries and keys of the tensors */
    int64_t columns;
    int64_t len_q; /* real queries and keys, at most those: the rest is padding, not drawn */
    int64_t len_k;
    int64_t first_query;        /* the number of row 0: not 0 if only some rows were chosen */
    const char *const *queries; /* len_q labels; NULL: their numbers */
    const char *const *keys;    /* len_k labels; NULL: their numbers */

    const view_rule *rule; /* NULL: `weights` are in the page; else `data` */
    view_rows data;
    const float *weights;            /* dense [layer][head][rows][columns] */
    const view_summary *summary;     /* [layer][head] */
    const head_roles *roles;         /* [layer][head]; NULL: not known */
    const head_roles *content_roles; /* the same without separators; NULL: there are none */
} view_sequence;

/* Everything is borrowed for the call.  Any text may be NULL: it is left out. */
typedef struct view_data {
    const char *title;
    const char *sources[2];  /* one line each under the title: the file, what was computed; the second is that compared with */
    const char *attribution; /* one line at the foot of the page */
    int64_t sequences;
    int64_t layers;
    int64_t heads;
    const view_sequence *sequence;
    const int64_t *layer_numbers; /* as shown, increasing; NULL: 0, 1, ... */
    const int64_t *head_numbers;
    const view_fact *facts;
    int64_t facts_count;
    const embedded_package *library; /* to compute heads anew with other options; NULL: the page does not */
} view_data;

/* The summaries of a sequence whose weights are given: [layers * heads], to be released one by one. */
view_summary *view_summarise(const view_sequence *sequence, int64_t layers, int64_t heads);

/*
 * Appends the page to `out`.
 *
 *  data   [in]
 *  error  [out] may be NULL
 *
 * Equal data gives equal bytes.  Returns ATTN_OK, or
 *      ATTN_ERR_ARGUMENT     NULL for out, data or the sequences
 *      ATTN_ERR_SHAPE        a size below 1, lengths beyond the tensor
 *      ATTN_ERR_UNSUPPORTED  more weights or heads than a page can show; the message says what to choose fewer of
 *      ATTN_ERR_MEMORY       out of memory: `out` is incomplete
 * Nothing has been appended unless it is ATTN_ERR_MEMORY.
 */
attn_status view_write(text_buffer *out, const view_data *data, attn_error *error);

#endif
