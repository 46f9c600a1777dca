/* SPDX-License-Identifier: MIT
 * append_slots.c - the slots of packed tokens: each exists, and is given once.  Nothing is allocated. */
#include <inttypes.h>
#include <string.h>

#include "cache.h"

enum { WINDOW = 1 << 16 }; /* slots whose bits are on the stack */

static int64_t slot_at(const attn_append *call, int64_t n) { return attn_cache_index(&call->tokens.slots, n); }

/* The first token before n that has its slot; -1: none. */
static int64_t find_before(const attn_append *call, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (slot_at(call, i) == slot_at(call, n)) return i;
    return -1;
}

/* A token whose slot another one before it has; -1: none. */
static int64_t find_twice(const attn_append *call, int64_t least, int64_t most)
{
    uint64_t taken[WINDOW / 64];
    const int64_t len = call->tokens.len;
    if ((most - least) / WINDOW >= len) { /* few tokens far apart */
        for (int64_t n = 0; n < len; n++)
            if (slot_at(call, n) >= 0 && find_before(call, n) >= 0) return n;
        return -1;
    }
    for (int64_t first = least;; first += WINDOW) {
        memset(taken, 0, sizeof taken);
        for (int64_t n = 0; n < len; n++) {
            const int64_t at = slot_at(call, n) - first;
            if (at < 0 || at >= WINDOW) continue; /* also -1: least is at least 0 */
            if (taken[at / 64] >> at % 64 & 1) return n;
            taken[at / 64] |= UINT64_C(1) << at % 64;
        }
        if (most - first < WINDOW) return -1; /* (first + WINDOW may be beyond INT64_MAX) */
    }
}

attn_status attn_append_check_slots(const attn_append *call, attn_error *error)
{
    const attn_cache *c = &call->cache;
    const attn_rope *rope = c->rope;
    const int64_t all = attn_append_slots(call);
    int64_t least = INT64_MAX, most = -1;
    int ascending = 1;
    for (int64_t n = 0; n < call->tokens.len; n++) {
        const int64_t slot = slot_at(call, n);
        if (slot == -1) continue;
        CHECK(slot >= 0 && slot < all, ATTN_ERR_ARGUMENT,
              "cache: tokens.slots[%" PRId64 "] is %" PRId64 "; it must be -1, which skips the token, or below %" PRId64, n, slot,
              all);
        if (rope && attn_rope_has_table(rope)) {
            const int64_t at = attn_cache_index(&call->tokens.positions, n);
            CHECK(at >= 0 && at < rope->table_rows, ATTN_ERR_ARGUMENT,
                  "cache: tokens.positions[%" PRId64 "] is %" PRId64 "; the tables of the rope have %" PRId64 " rows", n, at,
                  rope->table_rows);
        }
        ascending &= slot > most;
        if (slot > most) most = slot;
        if (slot < least) least = slot;
    }
    if (ascending) return ATTN_OK;
    const int64_t twice = find_twice(call, least, most);
    if (twice < 0) return ATTN_OK;
    return fail(error, ATTN_ERR_ARGUMENT,
                "cache: tokens.slots[%" PRId64 "] and [%" PRId64 "] are both %" PRId64 "; a slot takes one token",
                find_before(call, twice), twice, slot_at(call, twice));
}
