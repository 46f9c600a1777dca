/* SPDX-License-Identifier: MIT
 *
 * picture.h - one head as an .svg file: what the page exports too (script/export.js). */
#ifndef ATTN_CLI_VIEW_PICTURE_H
#define ATTN_CLI_VIEW_PICTURE_H

#include "cli/base/text_buffer.h"

/* Up to PICTURE_CELLS rows and columns each weight is a rectangle; more are one image inside, of at most PICTURE_PIXELS each way.
 */
enum { PICTURE_CELLS = 64, PICTURE_PIXELS = 2048 };

typedef struct picture {
    const char *title, *about; /* two lines above it */
    int64_t rows, columns, stride;
    const float *weights;       /* weight of row i and column j at i * stride + j */
    int64_t first_query;        /* the number of row 0 */
    const char *const *queries; /* [rows]; NULL: their numbers */
    const char *const *keys;    /* [columns]; NULL: their numbers */
} picture;

/* ATTN_ERR_MEMORY if the image cannot be made. */
attn_status picture_draw(text_buffer *out, const picture *p, attn_error *error);

#endif
