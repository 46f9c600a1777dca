/* SPDX-License-Identifier: MIT
 *
 * shown.h - showing text from elsewhere on a terminal, safely: names, tokens, paths, words of the command line.
 *
 * Such text may contain anything.  It must not control the terminal (control characters, including C1), and must show what is
 * there: no reversed (U+202E) or invisible (U+200B) characters.  All of these are shown as '?'. */
#ifndef ATTN_TESTING_TEXT_SHOWN_H
#define ATTN_TESTING_TEXT_SHOWN_H

#include <stdint.h>
#include <stdio.h>

/* Reads one code point from NUL-terminated UTF-8 and advances *text; a byte that does not begin a valid sequence is consumed by
 * itself, as U+FFFD.  Overlong forms, surrogates and anything beyond U+10FFFF are invalid. */
uint32_t next_code_point(const char **text);

/* 0 for control and format characters (direction marks, joiners, ...), line and paragraph separators, U+FFFD, noncharacters. */
int code_point_is_shown(uint32_t code);

/* Writes the text, always in one line. */
void put_shown(FILE *out, const char *text);

/* The number of characters that put_shown writes, which is the width in most scripts. */
int shown_width(const char *text);

#endif
