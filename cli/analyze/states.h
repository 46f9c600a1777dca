/* SPDX-License-Identifier: MIT
 * states.h - the parts of `attn analyze` that need the scores: states of a Gibbs distribution, temperatures, steps. */
#ifndef ATTN_CLI_ANALYZE_STATES_H
#define ATTN_CLI_ANALYZE_STATES_H

#include "cli/input/labels.h"
#include "testing/text/json.h"

enum { MAX_TEMPERATURES = 16 };

typedef struct states_settings {
    int states; /* 1: a table of them */
    double temperatures[MAX_TEMPERATURES];
    int count;         /* of temperatures */
    const char *steps; /* a file; NULL: none */
} states_settings;

static inline int states_requested(const states_settings *s) { return s->states || s->count || s->steps; }

/* Sets the temperatures of a states_settings: "0.5,1,2". */
attn_status states_set_temperatures(void *target, const char *name, const char *value, attn_error *error);

/* ATTN_ERR_ARGUMENT where scores alone do not determine the weights: for states and temperatures, but not for steps. */
attn_status states_check(const states_settings *settings, const attention_input *input, attn_error *error);

/* Prints them, or adds them to an object.  The input is in f64.  *steps: where settings->steps names a file, what is to be written
 * to it; destroy it also after a failure. */
attn_status analyze_states(const attention_input *input, const labels *l, const states_settings *settings, cJSON *object,
                           attn_archive **steps, attn_error *error);

#endif
