/* SPDX-License-Identifier: MIT
 *
 * source.h - the page's source before and after the place of its data; embed.cmake generates the definitions.
 */
#ifndef ATTN_CLI_VIEW_SOURCE_H
#define ATTN_CLI_VIEW_SOURCE_H

#include <stddef.h>

extern const unsigned char view_source_before[];
extern const size_t view_source_before_size;
extern const unsigned char view_source_after[];
extern const size_t view_source_after_size;

#endif
