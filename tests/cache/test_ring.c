/* SPDX-License-Identifier: MIT
 *
 * test_ring.c - a ring of pages with sinks in front (docs/serving.md): the oldest page of the ring becomes the newest, sinks are
 * rotated anew, and no other key moves; results are those of a cache in which all keys have the positions of their places.
 */
#include "test.h"

#include <math.h>

#include "attn/cache.h"
#include "draw.h"

enum { HQ = 4, HKV = 2, D = 16, PAGE = 4, SINKS = 4, COLUMNS = 6, CAPACITY = COLUMNS * PAGE, TEXT = 90, MOST = 5 };

static float keys[TEXT][HKV][D], values[TEXT][HKV][D], queries[TEXT][HQ][D]; /* as the model has them: not rotated */
static float page_k[COLUMNS][HKV][PAGE][D], page_v[COLUMNS][HKV][PAGE][D];
static int32_t table[COLUMNS];
static const attn_rope rope = {.struct_size = sizeof rope};

static void check(attn_status status, const attn_error *error)
{
    if (status != ATTN_OK) fail_msg("%s", error->message);
}

/* Rotates heads x tokens rows by the positions of their tokens. */
static void rotate(int64_t heads, int64_t tokens, const float *x, int64_t from, float *y)
{
    const int64_t shape[4] = {1, heads, tokens, D};
    int64_t at[CAPACITY];
    attn_error error;
    for (int64_t i = 0; i < tokens; i++) at[i] = from + i;
    const attn_input source = {x, ATTN_F32, {0, D, heads * D, 1}}, positions = {at, ATTN_I64, {0, 0, 1, 0}};
    const attn_output to = {y, ATTN_F32, {0, D, heads * D, 1}};
    check(attn_rope_apply(&rope, shape, &source, &positions, &to, &error), &error);
}

/* The place of the next token: where the ring is full, its oldest page becomes its newest. */
static int64_t next_slot(int64_t *length)
{
    if (*length == CAPACITY) {
        const int32_t oldest = table[SINKS / PAGE];
        for (int i = SINKS / PAGE; i + 1 < COLUMNS; i++) table[i] = table[i + 1];
        table[COLUMNS - 1] = oldest;
        *length -= PAGE;
    }
    const int64_t slot = table[*length / PAGE] * PAGE + *length % PAGE;
    ++*length;
    return slot;
}

/* Appends tokens first .. first+count-1, and the sinks once more, as far before the newest token as their places are. */
static void append(int64_t first, int64_t count, int64_t *length)
{
    static float new_k[SINKS + MOST][HKV][D], new_v[SINKS + MOST][HKV][D];
    int64_t slots[SINKS + MOST], positions[SINKS + MOST];
    attn_error error;
    for (int64_t t = 0; t < count; t++) slots[SINKS + t] = next_slot(length), positions[SINKS + t] = first + t;
    const int64_t before = first + count - *length; /* tokens that are gone */
    for (int64_t s = 0; s < SINKS; s++) {
        slots[s] = before > 0 ? table[s / PAGE] * PAGE + s % PAGE : -1;
        positions[s] = before + s;
    }
    memcpy(new_k, keys, sizeof keys[0] * SINKS), memcpy(new_v, values, sizeof values[0] * SINKS);
    memcpy(new_k + SINKS, keys + first, sizeof keys[0] * (size_t)count);
    memcpy(new_v + SINKS, values + first, sizeof values[0] * (size_t)count);
    const attn_cache cache = {.struct_size = sizeof cache,
                              .heads_kv = HKV,
                              .dim_qk = D,
                              .dim_v = D,
                              .page_size = PAGE,
                              .pages = COLUMNS,
                              .rope = &rope,
                              .k = attn_out(page_k),
                              .v = attn_out(page_v)};
    const attn_cache_tokens tokens = {.struct_size = sizeof tokens,
                                      .len = SINKS + count,
                                      .k = {new_k, ATTN_F32, {0, D, HKV * D, 1}},
                                      .v = {new_v, ATTN_F32, {0, D, HKV * D, 1}},
                                      .slots = attn_in(slots),
                                      .positions = attn_in(positions)};
    check(attn_cache_append(&cache, &tokens, &error), &error);
}

/* What queries at the end of the cache see: over pages, or over rows of all keys. */
static void attend(int64_t count, int64_t length, const float *q, const attn_input *k, const attn_input *v, int paged, float *o)
{
    attn_error error;
    attn_problem p = {.struct_size = sizeof p, .shape = {1, HQ, HKV, count, CAPACITY, D, D}, .mask.causal = 1};
    attn_tensors t = {.struct_size = sizeof t,
                      .q = {q, ATTN_F32, {0, D, HQ * D, 1}},
                      .k = *k,
                      .v = *v,
                      .o = {o, ATTN_F32, {0, D, HQ * D, 1}},
                      .lengths_kv = attn_in(&length)};
    p.mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
    if (paged) p.paging = (attn_paging){.page_size = PAGE, .pages = COLUMNS}, t.page_table = (attn_input){table, ATTN_I32, {0}};
    check(attn_compute(&p, &t, &error), &error);
}

static void compare(int64_t first, int64_t count, int64_t length)
{
    static float q[MOST][HQ][D], o[MOST][HQ][D], kept_k[CAPACITY][HKV][D], kept_v[CAPACITY][HKV][D], expected[MOST][HQ][D];
    const int64_t end = first + count, gone = end - length;
    const attn_input pages[] = {attn_in(page_k), attn_in(page_v)},
                     rows[] = {{kept_k, ATTN_F32, {0, D, HKV * D, 1}}, {kept_v, ATTN_F32, {0, D, HKV * D, 1}}};
    rotate(HQ, count, queries[first][0], first, q[0][0]);
    attend(count, length, q[0][0], &pages[0], &pages[1], 1, o[0][0]);
    for (int64_t j = 0; j < length; j++) { /* the sinks, then the last tokens, each at its place */
        const int64_t token = j < SINKS ? j : j + gone;
        rotate(HKV, 1, keys[token][0], j, kept_k[j][0]);
        memcpy(kept_v[j], values[token], sizeof kept_v[j]);
    }
    rotate(HQ, count, queries[first][0], length - count, q[0][0]);
    attend(count, length, q[0][0], &rows[0], &rows[1], 0, expected[0][0]);
    for (int64_t i = 0; i < count; i++)
        for (int h = 0; h < HQ; h++)
            for (int c = 0; c < D; c++)
                if (!(fabsf(o[i][h][c] - expected[i][h][c]) < 4e-6f))
                    fail_msg("token %d: %g, should be %g", (int)(first + i), (double)o[i][h][c], (double)expected[i][h][c]);
}

static void test_ring(void **state)
{
    (void)state;
    float *const all_k = keys[0][0], *const all_v = values[0][0], *const all_q = queries[0][0];
    for (int i = 0; i < TEXT * HKV * D; i++) all_k[i] = 2 * draw_real(), all_v[i] = draw_real();
    for (int i = 0; i < TEXT * HQ * D; i++) all_q[i] = 2 * draw_real();
    for (int step = 0; step < 2; step++) {
        int64_t length = 0;
        for (int i = 0; i < COLUMNS; i++) table[i] = (i * 5 + step) % COLUMNS;
        for (int64_t first = 0, count; first < TEXT; first += count) { /* one by one, then some at a time */
            count = step ? 1 + draw(MOST) : 1;
            count = count < TEXT - first ? count : TEXT - first;
            append(first, count, &length);
            compare(first, count, length);
        }
        assert_true(length > CAPACITY - PAGE && length <= CAPACITY);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ring)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
