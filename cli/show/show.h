/* SPDX-License-Identifier: MIT
 *
 * show.h - the parts of `attn show`: slices, figures about numbers, printing, differences of two files. */
#ifndef ATTN_CLI_SHOW_SHOW_H
#define ATTN_CLI_SHOW_SHOW_H

#include "cli/base/tensor_view.h"
#include "testing/text/json.h"

/* What is shown of a file. */
typedef struct selection {
    const char *word;  /* "q[0, :4]"; NULL: all tensors */
    char *name;        /* "q"; NULL: all; the caller frees it */
    const char *slice; /* "[0, :4]", in word; "" if there is none */
} selection;

/* Splits the word: all of it is a name if the file has a tensor with it. */
selection selection_of(const char *word, const attn_archive *file);

/* Cuts a view as NumPy does: indices from 0, or with a minus from the end, ranges FIRST:END:STEP, "..." for all axes between. */
attn_status slice_view(tensor_view *v, const char *slice, attn_error *error);

/* ---- figures ---- */

/* Of the finite numbers; NAN if there are none. */
typedef struct figures {
    int64_t count, nan, inf;
    double least, largest, mean, norm;
} figures;

figures figures_of(const tensor_view *v);

/* ---- printing ---- */

/* Metadata, and a line of figures for each tensor; the line of one view. */
void print_file(const char *path, const attn_archive *file);
void print_figures(const char *name, const tensor_view *v);

/* The same as CSV; the numbers of a view of at most two axes, from which the same bits are read again. */
void csv_file(const attn_archive *file);
attn_status csv_view(const tensor_view *v, const char *name, attn_error *error);

/* One object; one: NULL, or the view that is shown alone, with its numbers. */
attn_status json_file(const char *path, const attn_archive *file, const tensor_view *one, attn_error *error);

/* ---- differences ---- */

typedef enum agreement { AGREE_SAME, AGREE_NUMBERS, AGREE_TYPE, AGREE_SHAPE, AGREE_MISSING, AGREE_ADDED } agreement;

/* The largest of one kind of error, and where. */
typedef struct worst {
    double error;
    int64_t at; /* in the order of the axes; -1: nowhere */
} worst;

typedef struct difference_of {
    const char *name;
    tensor_view one, other; /* of AGREE_MISSING no other, of AGREE_ADDED no one */
    agreement agreement;
    int64_t differ; /* numbers that differ; NaN equals NaN */
    worst absolute, relative, units;
} difference_of;

/* Compares two views of the same name.  If the types differ too, units are those of the type with fewer digits. */
difference_of compare_views(const char *name, const tensor_view *one, const tensor_view *other);

/* The tensors of both files, or the one that is selected, whose slice is that of both.  Returns the number of those that differ, or
 * -1 with an error. */
int show_differences(const attn_archive *file, const attn_archive *other, const selection *chosen, const char *path,
                     const char *other_path, cJSON *object, attn_error *error);

#endif
