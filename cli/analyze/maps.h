/* SPDX-License-Identifier: MIT
 *
 * maps.h - the parts of `attn analyze` that write maps over tokens made of weights: attention rollout, attention flow, weights
 * times their gradients.  A map is a file of weights for `attn view`, `top` and `plot`. */
#ifndef ATTN_CLI_ANALYZE_MAPS_H
#define ATTN_CLI_ANALYZE_MAPS_H

#include "cli/input/labels.h"

typedef struct maps_settings {
    const char *rollout, *flow, *gradient; /* files; NULL: none */
} maps_settings;

/* The one file that is written; NULL: none. */
static inline const char *maps_output(const maps_settings *s) { return s->rollout ? s->rollout : s->flow ? s->flow : s->gradient; }

/* ATTN_ERR_ARGUMENT for several of them; steps: that of --steps, or NULL. */
attn_status maps_check(const maps_settings *settings, const char *steps, attn_error *error);

/* grad_o: the gradient of the output; NULL data: it is not known.  *out: what is to be written; destroy it also after a failure. */
attn_status analyze_maps(const attention_input *input, const labels *l, const maps_settings *settings, const attn_input *grad_o,
                         const common_settings *common, attn_archive **out, attn_error *error);

#endif
