/* SPDX-License-Identifier: MIT
 *
 * kinds.h - the kinds of pictures: each draws its panels from the given files and sets the text around them. */
#ifndef ATTN_CLI_PLOT_KINDS_H
#define ATTN_CLI_PLOT_KINDS_H

#include "chart.h"
#include "figure.h"
#include "heat.h"
#include "source.h"

/* The flags; NULL and -1: not given. */
typedef struct plot_settings {
    const char *output, *title, *tensor;
    const char *layers, *heads;
    int64_t entry, query;
    double high; /* of the scale of weights; 0: the largest */
} plot_settings;

typedef struct plot_task {
    const plot_settings *settings;
    const source *sources;
    int count;
    figure *figure;
    char title[240], about[600], text[1400]; /* [out] text: memory for a note */
    const char *note;                        /* [out] */
} plot_task;

typedef struct plot_kind {
    const char *name;
    const char *files; /* what it reads, for --help */
    const char *help;
    int most;          /* files */
    const char *takes; /* the flags that it reads, of those of some kinds: "layer head entry" */
    attn_status (*draw)(plot_task *task, attn_error *error);
} plot_kind;

attn_status plot_weights(plot_task *task, attn_error *error);
attn_status plot_heads(plot_task *task, attn_error *error);
attn_status plot_steps(plot_task *task, attn_error *error);
attn_status plot_mask(plot_task *task, attn_error *error);
attn_status plot_compare(plot_task *task, attn_error *error);
attn_status plot_entropy(plot_task *task, attn_error *error);
attn_status plot_roles(plot_task *task, attn_error *error);
attn_status plot_temperature(plot_task *task, attn_error *error);
attn_status plot_gradients(plot_task *task, attn_error *error);
attn_status plot_hopfield(plot_task *task, attn_error *error);
attn_status plot_loss(plot_task *task, attn_error *error);
attn_status plot_runtime(plot_task *task, attn_error *error);
attn_status plot_latency(plot_task *task, attn_error *error);
attn_status plot_peers(plot_task *task, attn_error *error);
attn_status plot_scaling(plot_task *task, attn_error *error);

/* ---- shared by the kinds ---- */

/* The chosen matrices of a stack. */
typedef struct choice {
    int64_t *layer, *head; /* indices */
    int64_t layers, heads, entry;
} choice;

/* The largest size of a number, to which --high=max sets the end of a scale; 1 if there is none above 0. */
double plot_largest(const double *numbers, int64_t count);

/* Chooses by --layer, --head and --entry; by default all layers and heads, or with `one` the first of each. */
attn_status choice_make(choice *c, const plot_task *task, const stack *s, int one, attn_error *error);
void choice_free(choice *c);

/* The query of --query; `otherwise` if it is not given. */
attn_status choose_query(const plot_task *task, const stack *s, int64_t otherwise, int64_t *query, attn_error *error);

/* "layer 3, head 1", without what the file has only one of. */
void name_head(const stack *s, int64_t layer, int64_t head, char text[80]);
/* "3.1" */
void name_head_shortly(const stack *s, int64_t layer, int64_t head, char text[40]);

/* Sets task->about to the file, and the problem and kernel of its metadata. */
void tell_source(plot_task *task, const source *s);

/* The `results` of what `attn bench` wrote, and its machine as task->about. */
attn_status find_results(const source *from, const cJSON **list, attn_error *error);
void tell_machine(plot_task *task, const source *from);

/* ATTN_ERR_ARGUMENT if a weight is below 0. */
attn_status check_weights(const stack *s, const double *weights, attn_error *error);

/* The first row of a head that sums neither to 1 nor, seeing no key, to 0, and its sum; -1 if there is none.  Such rows have no
 * entropy: they are of sigmoid and ReLU, have a sink, or were thinned by dropout. */
int64_t row_without_entropy(const stack *s, const double *weights, double *sum);

/* The caveat of every heat map of weights; distributions: every row of them sums to 1. */
const char *weights_note(int distributions);

#endif
