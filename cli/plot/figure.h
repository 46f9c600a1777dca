/* SPDX-License-Identifier: MIT
 *
 * figure.h - a picture: shapes and text in pixels, then one self-contained .svg or .html file.
 *
 * Text from outside may hold anything: it is escaped here.  Classes are those of color.h. */
#ifndef ATTN_CLI_PLOT_FIGURE_H
#define ATTN_CLI_PLOT_FIGURE_H

#include <stddef.h>

#include "attn/attn.h"
#include "cli/base/text_buffer.h"

typedef struct figure {
    text_buffer out;      /* what is drawn so far */
    double right, bottom; /* of everything drawn */
    double x, y, row;     /* where the next panel goes; the height of its row */
} figure;

/* The text around the panels. */
typedef struct figure_words {
    const char *title; /* at the top */
    const char *about; /* below it: what was computed from what; may be NULL */
    const char *note;  /* at the bottom: how to read it; may be NULL */
} figure_words;

void figure_begin(figure *f);

/* A place for a panel of this size: beside the last one, or in a new row if it would be too far to the right. */
void figure_place(figure *f, double width, double height, double *x, double *y);
void figure_new_row(figure *f);

/* Writes the file, whole or not at all, in the format of the extension of `path`.  Frees the figure. */
attn_status figure_write(figure *f, const figure_words *words, const char *path, attn_error *error);
/* Frees it without a file. */
void figure_drop(figure *f);

/* ---- shapes ---- */

/* The baseline of the text is at y.  Turned text starts at x, y and goes up by `degrees`. */
__attribute__((format(printf, 5, 6))) void figure_text(figure *f, const char *class, double x, double y, const char *format, ...);
void figure_turned_text(figure *f, const char *class, double x, double y, double degrees, const char *text);
void figure_line(figure *f, const char *class, double x0, double y0, double x1, double y1);
/* hover (may be NULL) is the text that a browser shows under the mouse. */
void figure_box(figure *f, const char *class, double x, double y, double width, double height, const char *hover);
void figure_dot(figure *f, const char *class, double x, double y, double radius, const char *hover);
/* Opens and closes a group with a name for programs: <g class="CLASS" data-name="NAME">. */
void figure_group(figure *f, const char *class, const char *name);
void figure_group_end(figure *f);
/* The approximate width of a text. */
double figure_text_width(const char *text);

#endif
