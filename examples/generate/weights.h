/* SPDX-License-Identifier: MIT
 *
 * weights.h - the sizes and weights of a Llama-shaped model, by the names of .gguf files; a part of model.c.
 */
#ifndef WEIGHTS_H
#define WEIGHTS_H

#include "attn/io.h"

typedef struct layer_weights {
    const float *norm, *query, *key, *value, *output; /* matrices are [in][out], the transposes of those in the file */
    const float *norm_hidden, *gate, *up, *down;
} layer_weights;

typedef struct weights {
    attn_archive *file;
    int64_t layers, width, hidden, heads, heads_kv, dim, rotated, words, context;
    double epsilon, base;
    const float *embedding, *norm, *logits; /* [words][width], [width], [width][words] */
    layer_weights *layer;                   /* [layers] */
} weights;

/* Maps the file; weights that are quantised, or of 16 bits, become f32.  0, with *error filled, if it is not of such a model. */
int weights_open(weights *w, const char *path, attn_error *error);
void weights_close(weights *w);

#endif
