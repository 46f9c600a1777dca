/* SPDX-License-Identifier: MIT
 *
 * sentence.h - sentences of the library with the names that callers from Python know: "mask.chunk is -3; ..." becomes "chunk is
 * ...".
 */
#ifndef ATTN_PYTHON_COMMON_SENTENCE_H
#define ATTN_PYTHON_COMMON_SENTENCE_H

#include <stddef.h>

enum { SENTENCE_MOST = 1024 };

/* Replaces words of words.def in a message, in memory of `size` bytes, SENTENCE_MOST at most.  forward: the output o is the keyword
 * out. */
void sentence_python(char *message, size_t size, int forward);

#endif
