/* SPDX-License-Identifier: MIT
 *
 * writer.h - reads prompts and writes on, for several sequences at once.
 */
#ifndef WRITER_H
#define WRITER_H

#include "model.h"
#include "sample.h"

typedef struct sequence {
    int *tokens; /* the prompt's, then those that were written; room for `most` */
    int64_t count, prompt, most;
    int done;
    int64_t drafted, right; /* drafts, and how many of them were what would have been written anyway */
} sequence;

typedef struct writer {
    model *m;
    pages *p;
    const sampling *s;
    int64_t chunk, drafts; /* tokens of a prompt at once; drafts at once */
    int end;               /* the token that ends a text, or -1 */
    float *logits;         /* the writer's own memory: NULL at first, to be freed */
    int64_t logit_rows;
} writer;

/* Runs the next chunk of a prompt, and writes its first token after the last; *left: tokens that are still to be read. */
attn_status writer_read(writer *w, sequence *all, int64_t which, int64_t *left, attn_error *error);

/* Writes one token to each of `count` sequences that is not done, or more where drafts were right. */
attn_status writer_step(writer *w, sequence *all, int64_t count, attn_error *error);

#endif
