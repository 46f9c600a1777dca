/* SPDX-License-Identifier: MIT
 *
 * chunks.h - the numbers of the page: elements <script type="text/plain" id="attn-..."> of base64, each decoded on first use.
 *
 *      attn-summary-S-L    of each head of sequence S and layer L: largest weight, spread [len_q], received [len_k] as f32; if
 * there is a small picture, two levels: that of maxima, then of means attn-large-S-L-H    two levels, if there is a large picture
 *      attn-q-S-L-H        q [len_q][dim] as f32 or f16, lse [len_q] as f32
 *      attn-k-S-L-G        of a key head: k [len_k][dim], then the lengths of values [len_k] as f32 if there are any
 *      attn-weights-S-L    in place of q and k, of all heads, padding left out:
 *                          as f32: len_q * len_k values a head;
 *                          as u16: smallest and largest weight as f32, then len_q * len_k steps; 65535 is "not a finite number"
 *
 * A level is its smallest and largest number as f32, then a step of 8 bits for each part; 255 is "not a finite number". */
#ifndef ATTN_CLI_VIEW_CHUNKS_H
#define ATTN_CLI_VIEW_CHUNKS_H

#include "page.h"

/* All chunks of sequence s.  exact: weights as f32. */
void view_write_chunks(text_buffer *out, const view_data *data, int64_t s, int exact);

#endif
