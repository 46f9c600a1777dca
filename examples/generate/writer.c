/* SPDX-License-Identifier: MIT
 *
 * writer.c - see writer.h. */
#include "writer.h"

#include <stdlib.h>
#include <string.h>

#include "draft.h"

static attn_status fail_memory(attn_error *error)
{
    *error = (attn_error){.status = ATTN_ERR_MEMORY, .message = "cannot allocate memory"};
    return ATTN_ERR_MEMORY;
}

static attn_status make_room(writer *w, int64_t rows, attn_error *error)
{
    if (rows <= w->logit_rows) return ATTN_OK;
    free(w->logits);
    w->logit_rows = rows;
    w->logits = malloc((size_t)(rows * model_words(w->m)) * sizeof *w->logits);
    return w->logits ? ATTN_OK : fail_memory(error);
}

/* The token after those of a sequence, by a row of logits, becomes one of them. */
static attn_status write_token(const writer *w, sequence *s, const float *logits, attn_error *error)
{
    const int token = sample_token(w->s, logits, model_words(w->m), s->count);
    if (token < 0) return fail_memory(error);
    s->tokens[s->count++] = token;
    s->done = token == w->end || s->count == s->most;
    return ATTN_OK;
}

attn_status writer_read(writer *w, sequence *all, int64_t which, int64_t *left, attn_error *error)
{
    sequence *s = &all[which];
    const int64_t read = pages_length(w->p, which), rest = s->prompt - read, count = rest < w->chunk ? rest : w->chunk;
    const int64_t wanted = count == rest;
    attn_status status = make_room(w, 1, error);
    if (status == ATTN_OK && !pages_reserve(w->p, which, count)) status = fail_memory(error);
    if (status == ATTN_OK) status = model_run(w->m, w->p, which, 1, s->tokens + read, &count, &wanted, w->logits, error);
    if (status != ATTN_OK) return status;
    *left = rest - count;
    return wanted ? write_token(w, s, w->logits, error) : ATTN_OK;
}

/* The tokens that a sequence runs through the model: its last one and drafts.  Returns how many. */
static int64_t next_tokens(const writer *w, sequence *s, int *tokens)
{
    if (s->done) return 0;
    const int64_t room = s->most - s->count - 1, most = w->drafts < room ? w->drafts : room;
    tokens[0] = s->tokens[s->count - 1];
    const int64_t drafts = most > 0 ? draft_tokens(s->tokens, s->count, most, tokens + 1) : 0;
    s->drafted += drafts;
    return 1 + drafts;
}

/* Writes a token for each row of logits, as long as the token before it was the one that had been run. */
static attn_status accept(writer *w, sequence *all, int64_t which, const int *tokens, int64_t count, const float *logits,
                          attn_error *error)
{
    sequence *s = &all[which];
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < count && !s->done && status == ATTN_OK; i++) {
        if (i > 0 && s->tokens[s->count - 1] != tokens[i]) break;
        s->right += i > 0;
        status = write_token(w, s, logits + i * model_words(w->m), error);
    }
    pages_keep(w->p, which, s->count - 1); /* the last token is yet to be run */
    return status;
}

attn_status writer_step(writer *w, sequence *all, int64_t count, attn_error *error)
{
    int *tokens = calloc((size_t)(count * (1 + w->drafts)), sizeof *tokens);
    int64_t *counts = calloc((size_t)count, sizeof *counts), rows = 0;
    attn_status status = tokens && counts ? ATTN_OK : fail_memory(error);
    for (int64_t b = 0; b < count && status == ATTN_OK; b++) {
        counts[b] = next_tokens(w, &all[b], tokens + rows);
        rows += counts[b];
        if (!pages_reserve(w->p, b, counts[b])) status = fail_memory(error);
    }
    if (status == ATTN_OK) status = make_room(w, rows, error);
    if (status == ATTN_OK) status = model_run(w->m, w->p, 0, count, tokens, counts, counts, w->logits, error);
    rows = 0;
    for (int64_t b = 0; b < count && status == ATTN_OK; rows += counts[b++])
        if (counts[b]) status = accept(w, all, b, tokens + rows, counts[b], w->logits + rows * model_words(w->m), error);
    free(tokens);
    free(counts);
    return status;
}
