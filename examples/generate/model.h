/* SPDX-License-Identifier: MIT
 *
 * model.h - a Llama-shaped model (Touvron et al. 2023) from a .gguf file.  A layer, with rms(x) = gain x / sqrt(mean(x^2) +
 * epsilon):
 *
 *      x = x + Wo attention(rope(Wq h), rope(Wk h), Wv h)          h = rms(x), attention causal and over the cache
 *      x = x + Wdown (silu(Wgate h) * Wup h)                       h = rms(x)
 *
 * Logits are W rms(x), where W is the table of embeddings in models without an output matrix.  Every number of a token depends on
 * the tokens before it alone, bit by bit: not on the batch, on how its sequence was cut, or on threads.
 */
#ifndef MODEL_H
#define MODEL_H

#include "attn/io.h"
#include "pages.h"

typedef struct model model;

/* Opens a file.  NULL, with *error filled, if it is not the file of such a model. */
model *model_open(const char *path, int threads, attn_error *error);
void model_close(model *m);

const attn_archive *model_file(const model *m);
int64_t model_words(const model *m);
int64_t model_context(const model *m); /* the longest sequence that it was trained on */

/* Makes the cache of `sequences` sequences, for model_run.  0: no memory, or the heads do not fit the type. */
int model_make_pages(const model *m, int64_t sequences, int64_t longest, int64_t count, int64_t page_size, attn_dtype keys,
                     attn_dtype values, pages *p);

/*
 * Runs new tokens of the sequences first .. first + count - 1 through the model, at once.
 *
 *  tokens  [in]  one sequence after the other
 *  counts  [in]  [count]: how many each sequence has, perhaps 0; pages_reserve has made room for them
 *  wanted  [in]  [count]: for how many of its last tokens logits are wanted
 *  logits  [out] [sum of wanted][words]
 */
attn_status model_run(model *m, pages *p, int64_t first, int64_t count, const int *tokens, const int64_t *counts,
                      const int64_t *wanted, float *logits, attn_error *error);

#endif
