/* SPDX-License-Identifier: MIT
 * draw.h - random patterns, for tests. */
#ifndef ATTN_TESTS_MASK_DRAW_H
#define ATTN_TESTS_MASK_DRAW_H

#include "test.h"

#include "attn/mask.h"
#include "testing/random/random.h"

enum { MAX_Q = 150, MAX_KV = 170 };

static random_state draw_source;

static inline int64_t below(int64_t n) { return random_below(&draw_source, n); }

static const int64_t lengths_of_q[] = {40, 0, 27, 60}, lengths_of_kv[] = {50, 31, 0, 70};
static unsigned char some_blocks[MAX_Q * MAX_KV];

enum { LAST_KIND = ATTN_PATTERN_BLOCK_MAP }; /* the newest (the test interface/last); the switch below has them all */

/* A pattern of any kind, with sizes that make a difference for 150 tokens. */
static inline attn_pattern draw_pattern(int64_t kind, int64_t len_q, int64_t len_kv)
{
    switch ((attn_pattern_kind)kind) {
    case ATTN_PATTERN_CAUSAL:
        return attn_pattern_causal();
    case ATTN_PATTERN_CAUSAL_BOTTOM_RIGHT:
        return attn_pattern_causal_bottom_right();
    case ATTN_PATTERN_WINDOW:
        return attn_pattern_window(below(60) - 1, below(60) - 1);
    case ATTN_PATTERN_SLIDING_WINDOW:
        return attn_pattern_sliding_window(1 + below(90));
    case ATTN_PATTERN_RADIUS:
        return attn_pattern_radius(below(90));
    case ATTN_PATTERN_LOCAL:
        return attn_pattern_local(1 + below(90));
    case ATTN_PATTERN_BLOCK_DIAGONAL:
        return attn_pattern_block_diagonal(1 + below(90));
    case ATTN_PATTERN_STRIDED:
        return attn_pattern_strided(1 + below(below(2) ? 6 : 160));
    case ATTN_PATTERN_COLUMNS:
        return attn_pattern_columns(1 + below(below(2) ? 9 : 50));
    case ATTN_PATTERN_DILATED:
        return attn_pattern_dilated(below(20), 1 + below(12));
    case ATTN_PATTERN_FIXED:
        return attn_pattern_fixed(9, below(4));
    case ATTN_PATTERN_GLOBAL_LOCAL:
        return attn_pattern_global_local(1 + below(40), below(30));
    case ATTN_PATTERN_BIGBIRD:
        return attn_pattern_bigbird(1 + below(40), 1 + below(4), below(3), below(3), (uint64_t)below(1000));
    case ATTN_PATTERN_PREFIX:
        return attn_pattern_prefix(below(100));
    case ATTN_PATTERN_LENGTHS:
        return attn_pattern_lengths(below(len_q + 3), below(len_kv + 3));
    case ATTN_PATTERN_DOCUMENTS:
        return attn_pattern_documents(len_q >= 127 && len_kv >= 151 ? 4 : 0, lengths_of_q, below(2) ? lengths_of_kv : NULL);
    case ATTN_PATTERN_BLOCK_MAP:
        break;
    }
    return attn_pattern_block_map(1 + below(40), 1 + below(40), some_blocks);
}

static inline void draw_blocks(void)
{
    for (size_t n = 0; n < sizeof some_blocks; n++) some_blocks[n] = (unsigned char)(below(3) == 0);
}

static inline void describe(const attn_pattern *patterns, int64_t count, char *text, size_t size)
{
    size_t at = 0;
    for (int64_t k = 0; k < count && at < size; k++)
        at += (size_t)snprintf(text + at, size - at, " %d(%d,%d,%d,%d)", (int)patterns[k].kind, (int)patterns[k].size[0],
                               (int)patterns[k].size[1], (int)patterns[k].size[2], (int)patterns[k].size[3]);
}

/* Fails if a pattern of this kind, on its own, needs a matrix. */
static inline void expect_fields(int64_t kind, int has_fields)
{
    if (!has_fields) fail_msg("no fields express a pattern of kind %d (mask.h) on its own", (int)kind);
}

#endif
