/* SPDX-License-Identifier: MIT
 * sequences.c - see sequences.h. */
#include "sequences.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

#include "../base/error.h"
#include "../base/names.h"

attn_status attn_starts_check(const void *starts, attn_dtype dtype, int64_t batch, int64_t most, const char *len, int number,
                              attn_error *error)
{
    int64_t start = attn_index_at(starts, dtype, 0);
    CHECK_TENSOR(start == 0, number, ATTN_ERR_ARGUMENT, "cu_seqlens[0] (%" PRId64 ") is not 0%s", start,
                 attn_index_hint(dtype, start));
    for (int64_t b = 0; b < batch; b++) {
        const int64_t end = attn_index_at(starts, dtype, b + 1);
        CHECK_TENSOR(end >= start && end - start <= most, number, ATTN_ERR_ARGUMENT,
                     "cu_seqlens[%" PRId64 "] (%" PRId64 ") minus cu_seqlens[%" PRId64 "] (%" PRId64
                     ") is not between 0 and %s (%" PRId64 ")%s",
                     b + 1, end, b, start, len, most, attn_index_hint(dtype, end));
        start = end;
    }
    return ATTN_OK;
}

enum { PLACE = 48 };

/* The place of entry i of a list, as C writes it: [3], or [3][0] if there are columns. */
static const char *place_of(int64_t i, int64_t columns, char text[PLACE])
{
    if (columns > 1) (void)snprintf(text, PLACE, "[%" PRId64 "][%" PRId64 "]", i / columns, i % columns);
    else (void)snprintf(text, PLACE, "[%" PRId64 "]", i);
    return text;
}

static attn_status check_rows(const attn_state_lists *l, int final, attn_error *error)
{
    const void *list = final ? l->final : l->initial;
    const attn_dtype dtype = final ? l->final_type : l->initial_type;
    const int64_t columns = final ? l->columns : 1;
    char at[PLACE];
    for (int64_t i = 0; list && i < l->batch * columns; i++) {
        const int64_t row = attn_index_at(list, dtype, i);
        CHECK_TENSOR(row >= -1 && row < l->pool, final ? l->final_number : l->initial_number, ATTN_ERR_ARGUMENT,
                     "%s%s is %" PRId64 "; it must be -1 or below pool (%" PRId64 ")%s", final ? "final_slots" : "initial_slots",
                     place_of(i, columns, at), row, l->pool, attn_index_hint(dtype, row));
    }
    return ATTN_OK;
}

attn_status attn_state_lists_check(const attn_state_lists *lists, attn_error *error)
{
    TRY(check_rows(lists, 0, error));
    return check_rows(lists, 1, error);
}

/* A hash table of the rows that are written, half full at most. */
typedef struct entry {
    int64_t row, at; /* row -1: free; which entry of final_slots */
} entry;

_Static_assert(sizeof(entry) == 16, "entries of 16 bytes");

typedef struct table {
    entry *entries;
    uint64_t mask;
} table;

int64_t attn_state_lists_capacity(int has_lists, int64_t batch, int64_t columns)
{
    int64_t capacity = 2;
    if (!has_lists) return 0;
    if (batch > 0 && columns > (INT64_C(1) << 50) / batch) return -1;
    while (capacity < 2 * batch * columns) capacity *= 2;
    return capacity;
}

/* The entry of a row, or the free one where it belongs. */
static entry *find(const table *t, int64_t row)
{
    uint64_t at = (uint64_t)row * UINT64_C(0x9e3779b97f4a7c15) >> 20;
    while (t->entries[at & t->mask].row != row && t->entries[at & t->mask].row != -1) at++;
    return &t->entries[at & t->mask];
}

attn_status attn_state_lists_distinct(const attn_state_lists *l, void *memory, attn_error *error)
{
    const int64_t capacity = attn_state_lists_capacity(l->initial || l->final, l->batch, l->columns);
    if (capacity == 0) return ATTN_OK;
    const table t = {memory, (uint64_t)capacity - 1};
    char at[2][PLACE];
    for (int64_t i = 0; i < capacity; i++) t.entries[i].row = -1;
    for (int64_t i = 0; l->stores && i < l->batch * l->columns; i++) {
        const int64_t row = l->final ? attn_index_at(l->final, l->final_type, i) : i;
        if (row < 0) continue;
        entry *e = find(&t, row);
        CHECK_TENSOR(e->row < 0, l->final_number, ATTN_ERR_ARGUMENT, "final_slots%s is %" PRId64 ", as is final_slots%s",
                     place_of(i, l->columns, at[0]), row, place_of(e->at, l->columns, at[1]));
        *e = (entry){row, i};
    }
    for (int64_t b = 0; l->in_place && b < l->batch; b++) {
        const int64_t row = l->initial ? attn_index_at(l->initial, l->initial_type, b) : b;
        if (row < 0) continue;
        const entry *e = find(&t, row);
        CHECK_TENSORS(e->row < 0 || e->at / l->columns == b, l->initial_number, l->final_number, ATTN_ERR_ARGUMENT,
                      "initial_slots[%" PRId64 "] is %" PRId64 ", as is final_slots%s of another sequence", b, row,
                      place_of(e->at, l->columns, at[0]));
    }
    return ATTN_OK;
}
