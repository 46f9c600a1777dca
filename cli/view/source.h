/* SPDX-License-Identifier: MIT
 *
 * source.h - the page's source up to the end of its policy, from there to the place of its data, and after that; embed.cmake
 * generates the definitions.
 */
#ifndef ATTN_CLI_VIEW_SOURCE_H
#define ATTN_CLI_VIEW_SOURCE_H

#include <stddef.h>

extern const unsigned char view_source_start[];
extern const size_t view_source_start_size;
extern const unsigned char view_source_before[];
extern const size_t view_source_before_size;
extern const unsigned char view_source_after[];
extern const size_t view_source_after_size;

#endif
