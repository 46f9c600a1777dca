/* SPDX-License-Identifier: MIT
 * picture.h - a matrix of grey values as a PNG file, by libpng. */
#ifndef ATTN_CLI_MASK_PICTURE_H
#define ATTN_CLI_MASK_PICTURE_H

#include <stdint.h>

#include "attn/attn.h"

/* Writes height x width pixels (0 black .. 255 white), each as a square of scale x scale, to a new file that replaces `path` when
 * it is whole.  ATTN_ERR_IO names the path; ATTN_ERR_MEMORY. */
attn_status picture_write(const char *path, const unsigned char *pixels, int64_t height, int64_t width, int scale,
                          attn_error *error);

#endif
