/* SPDX-License-Identifier: MIT
 *
 * shown.h - text that came from outside, on a terminal: names, tokens, paths, words of the command line.
 *
 * It may hold anything.  A terminal must not obey it (control characters, C1 ones too), and a reader must see what is there: not
 * text that runs the other way (U+202E) or is not visible at all (U+200B).  All of these are shown as '?'. */
#ifndef ATTN_TESTING_TEXT_SHOWN_H
#define ATTN_TESTING_TEXT_SHOWN_H

#include <stdint.h>
#include <stdio.h>

/* Reads one code point from NUL-terminated UTF-8 and moves on; a byte that begins no valid sequence counts alone, as U+FFFD.
 * Rejects overlong forms, surrogates and what lies beyond U+10FFFF. */
uint32_t next_code_point(const char **text);

/* 0 for control characters, format characters (direction marks, joiners, tags, ...), separators of lines and paragraphs, U+FFFD and
 * what is no character. */
int code_point_is_shown(uint32_t code);

/* Writes the text, in one line whatever it holds. */
void put_shown(FILE *out, const char *text);

/* How many letters put_shown writes, which is the width of most scripts. */
int shown_width(const char *text);

#endif
