/* SPDX-License-Identifier: MIT
 *
 * choose.c - attn_choose_blocks: the best blocks of each key head, as lists.
 *
 *      for each list      the key of its last block, found by counting digits of keys, the highest first
 *                         blocks above it, and as many with that key as are left, in ascending order
 */
#include "attn/choose.h"

#include <inttypes.h>
#include <string.h>

#include "../../common/bound.h"
#include "../base/checked.h"
#include "../base/names.h"
#include "../plan/plan.h"
#include "../threads/threads.h"

enum { DIGIT = 11, DIGITS = 1 << DIGIT };

typedef struct choosing {
    attn_choice choice;
    bound_tensor lengths, scores, starts, index;
} choosing;

static int64_t blocks_of(const choosing *c, int64_t entry)
{
    return attn_ceil_div(attn_index_at(c->lengths.data, c->lengths.dtype, entry), c->choice.block);
}

static int64_t listed_of(const choosing *c, int64_t entry) { return attn_min(blocks_of(c, entry), c->choice.count); }

/* A number that orders scores: NaN above all. */
static uint32_t key_of(float score)
{
    const float x = score + 0.0F; /* -0 becomes 0 */
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return x != x ? UINT32_MAX : bits >> 31 ? ~bits : bits | UINT32_C(1) << 31;
}

/* The key of number `count` of n scores in descending order, from 1; *above: how many have a greater one. */
static uint32_t find_last(const float *scores, int64_t n, int64_t count, int64_t *above)
{
    uint32_t key = 0, known = 0; /* known: a mask of the digits that are */
    *above = 0;
    for (int shift = 32 - DIGIT; shift >= 0; shift -= shift < DIGIT && shift > 0 ? shift : DIGIT) {
        int64_t with[DIGITS] = {0};
        for (int64_t i = 0; i < n; i++) {
            const uint32_t k = key_of(scores[i]);
            with[k >> shift & (DIGITS - 1)] += (k & known) == key;
        }
        int digit = DIGITS - 1;
        while (*above + with[digit] < count) *above += with[digit--];
        key |= (uint32_t)digit << shift;
        known |= (uint32_t)(DIGITS - 1) << shift;
    }
    return key;
}

static void put(const bound_tensor *list, int64_t at, int64_t x)
{
    if (list->dtype == ATTN_I32) ((int32_t *)list->data)[at] = (int32_t)x;
    else ((int64_t *)list->data)[at] = x;
}

static void choose_list(void *context, int64_t worker, int64_t task)
{
    const choosing *c = context;
    const attn_choice *choice = &c->choice;
    const int64_t entry = task / choice->heads_kv, blocks = blocks_of(c, entry), count = listed_of(c, entry);
    const float *scores = (const float *)c->scores.data + bound_at(&c->scores, entry, task % choice->heads_kv, 0, 0);
    int64_t at = attn_index_at(c->starts.data, c->starts.dtype, task), above = 0;
    (void)worker;
    const int64_t first = count < blocks ? choice->keep_first : blocks, end = count < blocks ? blocks - choice->keep_last : blocks,
                  free = count - first - (blocks - end); /* places for the blocks first .. end-1 */
    const uint32_t last = free > 0 ? find_last(scores + first, end - first, free, &above) : 0;
    int64_t equal = free - above; /* how many of those with the last key are taken */
    for (int64_t n = 0; n < first; n++) put(&c->index, at++, n);
    for (int64_t n = first; n < end && free > 0; n++) {
        const uint32_t key = key_of(scores[n]);
        if (key > last || (key == last && equal-- > 0)) put(&c->index, at++, n);
    }
    for (int64_t n = end; n < blocks; n++) put(&c->index, at++, n);
}

static attn_status check_numbers(const attn_choice *c, attn_error *error)
{
    const struct {
        const char *name;
        int64_t value, least;
    } numbers[] = {{"batch", c->batch, 0}, {"heads_kv", c->heads_kv, 0},     {"blocks", c->blocks, 0},      {"block", c->block, 1},
                   {"count", c->count, 0}, {"keep_first", c->keep_first, 0}, {"keep_last", c->keep_last, 0}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        CHECK(numbers[i].value >= numbers[i].least && numbers[i].value <= ATTN_MAX_SIZE, ATTN_ERR_SHAPE,
              "choice: %s (%" PRId64 ") is not between %" PRId64 " and 2^48", numbers[i].name, numbers[i].value, numbers[i].least);
    CHECK(c->keep_first + c->keep_last <= c->count, ATTN_ERR_ARGUMENT,
          "choice: keep_first (%" PRId64 ") and keep_last (%" PRId64 ") are together more than count (%" PRId64 ")", c->keep_first,
          c->keep_last, c->count);
    return ATTN_OK;
}

static attn_status check_index(const bound_tensor *t, const char *name, int64_t size, attn_error *error)
{
    CHECK(size <= 1 || t->stride[0] == 1, ATTN_ERR_STRIDE, "choice: %s.stride[0] is %" PRId64 "; it must be dense (1)", name,
          t->stride[0]);
    return ATTN_OK;
}

static attn_status read_choice(choosing *c, attn_error *error)
{
    const attn_choice *choice = &c->choice;
    int64_t lists, entries;
    TRY(check_numbers(choice, error));
    CHECK(attn_mul(choice->batch, choice->heads_kv, &lists) && attn_mul(lists, choice->count, &entries) && lists < INT64_MAX,
          ATTN_ERR_SHAPE, "choice: the number of lists overflows 64 bits");
    bound_call call = {.module = "choice"};
    TRY(bound_input(&call, (bound_rule){"lengths", {choice->batch, 1, 1, 1}, ATTN_I64, BOUND_INDEX, choice->batch == 0, 0},
                    &choice->lengths, &c->lengths, error));
    TRY(bound_input(&call, (bound_rule){"scores", {choice->batch, choice->heads_kv, 1, choice->blocks}, ATTN_F32, BOUND_F32, 0, 1},
                    &choice->scores, &c->scores, error));
    TRY(bound_output(&call, (bound_rule){"block_starts", {lists + 1, 1, 1, 1}, ATTN_I64, BOUND_INDEX, 0, 0}, &choice->block_starts,
                     &c->starts, error));
    TRY(bound_output(&call, (bound_rule){"block_index", {entries, 1, 1, 1}, ATTN_I64, BOUND_INDEX, 0, 0}, &choice->block_index,
                     &c->index, error));
    TRY(check_index(&c->lengths, "lengths", choice->batch, error));
    TRY(check_index(&c->starts, "block_starts", lists + 1, error));
    TRY(check_index(&c->index, "block_index", entries, error));
    CHECK(c->starts.dtype != ATTN_I32 || entries <= INT32_MAX, ATTN_ERR_UNSUPPORTED,
          "choice: block_starts is i32, in which %" PRId64 " entries do not fit", entries);
    CHECK(c->index.dtype != ATTN_I32 || choice->blocks <= INT32_MAX, ATTN_ERR_UNSUPPORTED,
          "choice: block_index is i32, in which block %" PRId64 " does not fit", choice->blocks);
    for (int64_t b = 0; b < choice->batch; b++) {
        const int64_t len = attn_index_at(c->lengths.data, c->lengths.dtype, b);
        CHECK(len >= 0 && attn_ceil_div(len, choice->block) <= choice->blocks, ATTN_ERR_ARGUMENT,
              "choice: lengths[%" PRId64 "] is %" PRId64 "; %" PRId64 " blocks of %" PRId64 " keys do not hold them", b, len,
              choice->blocks, choice->block);
    }
    return bound_no_overlap(&call, error);
}

attn_status attn_choose_blocks(const attn_choice *choice, attn_error *error)
{
    choosing c;
    attn_options options = {.struct_size = sizeof options};
    int threads;
    CHECK(choice, ATTN_ERR_ARGUMENT, "choice is NULL");
    TRY(slots_read(&c.choice, sizeof c.choice, sizeof c.choice, choice, "attn_choice", error));
    if (c.choice.options) {
        TRY(attn_struct_read(&options, sizeof options, sizeof options, c.choice.options, "attn_options", error));
        TRY(attn_options_validate(&options, error));
    }
    TRY(attn_threads_choose(options.threads, &threads, error));
    TRY(read_choice(&c, error));
    int64_t start = 0, list = 0;
    for (int64_t b = 0; b < c.choice.batch; b++)
        for (int64_t g = 0; g < c.choice.heads_kv; g++, start += listed_of(&c, b)) put(&c.starts, list++, start);
    put(&c.starts, list, start);
    if (c.choice.count > 0) attn_threads_run(options.parallel_for, options.parallel_context, threads, list, choose_list, &c);
    return succeed(error);
}
