/* SPDX-License-Identifier: MIT
 *
 * tokenizer.h - text to tokens and back: byte-pair encoding as in GPT-2 (Radford et al. 2019; Sennrich et al. 2016), with the
 * vocabulary of a .gguf file: tokenizer.ggml.tokens, token_type, merges and pre.
 */
#ifndef TOKENIZER_H
#define TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "attn/io.h"

typedef struct tokenizer tokenizer;

/* NULL, with *error filled, for a vocabulary of another kind or one that is inconsistent. */
tokenizer *tokenizer_read(const attn_archive *file, attn_error *error);
void tokenizer_free(tokenizer *t);

int64_t tokenizer_words(const tokenizer *t);

/* Writes the tokens of a text, at most one for each byte, and returns their number.  Special tokens written out, such as
 * <|im_end|>, are themselves; a byte that the vocabulary lacks is left out. */
int64_t tokenizer_encode(const tokenizer *t, const char *text, int *tokens);

/* The bytes of a token, *length of them, which may be a part of a character; those of a special token are its name. */
const char *tokenizer_bytes(const tokenizer *t, int token, size_t *length);
int tokenizer_is_special(const tokenizer *t, int token);

/* The token with exactly these bytes, or -1. */
int tokenizer_find(const tokenizer *t, const char *bytes, size_t length);

#endif
