/* SPDX-License-Identifier: MIT
 *
 * words.h - cuts text into the words that byte-pair encoding works on, by GPT-2's pattern
 *
 *      's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * which some models (SmolLM) apply to what is left when every digit has become a word of its own.
 */
#ifndef WORDS_H
#define WORDS_H

#include <stddef.h>

/* The length in bytes of the first word of a text of `length` bytes, above 0. */
size_t words_first(const char *text, size_t length, int single_digits);

#endif
