/* SPDX-License-Identifier: MIT
 *
 * text.h - text from files: UTF-8 validation, and excerpts for one-line messages.
 */
#ifndef ATTN_IO_TEXT_H
#define ATTN_IO_TEXT_H

#include <attn/attn.h>
#include <stdbool.h>

/* Well-formed UTF-8 by Unicode table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF. */
bool attn_io_utf8(const char *text, size_t length);

enum { ATTN_IO_EXCERPT = 72, ATTN_IO_SHAPE_TEXT = 192 };

/* Text for a message: control characters, direction marks, invisible characters and broken UTF-8 become '?', and a long text is
 * cut to its beginning (_end: to its end, for a path) with "...".  Returns `buffer`. */
const char *attn_io_excerpt(char buffer[ATTN_IO_EXCERPT], const char *text);
const char *attn_io_excerpt_end(char buffer[ATTN_IO_EXCERPT], const char *text);

/* "[2, 13]", which is also JSON.  Returns `buffer`. */
const char *attn_io_shape_text(char buffer[ATTN_IO_SHAPE_TEXT], int rank, const int64_t *shape);

#endif
