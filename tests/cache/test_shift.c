/* SPDX-License-Identifier: MIT
 *
 * test_shift.c - tokens dropped behind the sinks: what is left is what appending it would give, keys within the rounding of their
 * type; tokens copied from slot to slot; calls that are rejected.
 */
#include "test.h"

#include <math.h>

#include "attn/cache.h"
#include "draw.h"

enum { B = 2, HEADS = 2, CAPACITY = 24, DIM = 10, DIM_V = 6, PAGE = 4, COLUMNS = CAPACITY / PAGE, PAGES = B * COLUMNS };

/* A cache with its memory, for elements of up to 8 bytes. */
typedef struct kept {
    double k[B * HEADS * CAPACITY * DIM], v[B * HEADS * CAPACITY * DIM_V];
    float k_scale[B * HEADS * CAPACITY], v_scale[B * HEADS * CAPACITY];
    int64_t lengths[B], table[B][COLUMNS];
} kept;

static kept shifted, fresh, before;
static float tokens_k[B * HEADS * CAPACITY * DIM], tokens_v[B * HEADS * CAPACITY * DIM_V];

static attn_cache over(kept *s, attn_dtype type, const attn_rope *rope, int paged)
{
    attn_cache c = {.struct_size = sizeof c,
                    .batch = B,
                    .heads_kv = HEADS,
                    .capacity = CAPACITY,
                    .dim_qk = DIM,
                    .dim_v = DIM_V,
                    .rope = rope,
                    .k = {s->k, type, {0, 0, 0, 0}},
                    .v = {s->v, type, {0, 0, 0, 0}},
                    .lengths = attn_out(s->lengths)};
    if (type >= ATTN_I8) c.k_scale = attn_out(s->k_scale), c.v_scale = attn_out(s->v_scale);
    if (paged) c.page_size = PAGE, c.pages = PAGES, c.page_table = attn_in(s->table);
    for (int b = 0; b < B; b++)
        for (int i = 0; i < COLUMNS; i++) s->table[b][i] = (b * COLUMNS + i) * 5 % PAGES;
    return c;
}

/* Appends tokens first .. first+count-1 of every entry, or for a count[b] of each. */
static void append(const attn_cache *c, const int64_t *first, const int64_t *count)
{
    for (int64_t b = 0; b < B; b++) {
        int64_t more[B] = {0};
        more[b] = count[b];
        attn_cache_tokens t = {.struct_size = sizeof t,
                               .len = count[b],
                               .k = {tokens_k + first[b] * DIM, ATTN_F32, {HEADS * CAPACITY * DIM, CAPACITY * DIM, DIM, 1}},
                               .v = {tokens_v + first[b] * DIM_V, ATTN_F32, {HEADS * CAPACITY * DIM_V, CAPACITY * DIM_V, DIM_V, 1}},
                               .lengths = attn_in(more)};
        static double wide_k[B * HEADS * CAPACITY * DIM], wide_v[B * HEADS * CAPACITY * DIM_V];
        if (c->k.dtype == ATTN_F64) {
            (void)attn_convert(B * HEADS * CAPACITY * DIM, tokens_k, ATTN_F32, wide_k, ATTN_F64, NULL);
            (void)attn_convert(B * HEADS * CAPACITY * DIM_V, tokens_v, ATTN_F32, wide_v, ATTN_F64, NULL);
            t.k.data = wide_k + first[b] * DIM, t.v.data = wide_v + first[b] * DIM_V;
            t.k.dtype = t.v.dtype = ATTN_F64;
        }
        attn_error error;
        if (attn_cache_append(c, &t, &error) != ATTN_OK) fail_msg("%s", error.message);
    }
}

/* Row of token j, entry b, head h. */
static int64_t row_of(const attn_cache *c, const kept *s, int64_t b, int64_t h, int64_t j)
{
    if (!c->page_size) return (b * HEADS + h) * CAPACITY + j;
    return (s->table[b][j / PAGE] * HEADS + h) * PAGE + j % PAGE;
}

static double element(const void *base, attn_dtype type, int64_t at)
{
    double x;
    (void)attn_convert(1, (const char *)base + at * (int64_t)attn_dtype_size(type), type, &x, ATTN_F64, NULL);
    return x;
}

/* Twice the rounding of the type for numbers up to 4, and of the arithmetic. */
static double bound_of(attn_dtype type)
{
    const double unit = type == ATTN_F64 ? 0x1p-53 : type == ATTN_F32 ? 0x1p-24 : type == ATTN_F16 ? 0x1p-11 : 0x1p-8;
    return 2 * 4 * unit + 0x1p-47;
}

static void compare(const attn_cache *c, int exact)
{
    const attn_dtype type = c->k.dtype;
    const size_t size = attn_dtype_size(type);
    for (int64_t b = 0; b < B; b++) {
        assert_int_equal(shifted.lengths[b], fresh.lengths[b]);
        for (int64_t h = 0; h < HEADS; h++)
            for (int64_t j = 0; j < fresh.lengths[b]; j++) {
                const int64_t row = row_of(c, &fresh, b, h, j);
                assert_memory_equal((char *)shifted.v + (size_t)row * DIM_V * size, (char *)fresh.v + (size_t)row * DIM_V * size,
                                    DIM_V * size);
                if (exact)
                    assert_memory_equal((char *)shifted.k + (size_t)row * DIM * size, (char *)fresh.k + (size_t)row * DIM * size,
                                        DIM * size);
                for (int64_t x = 0; x < DIM && !exact; x++)
                    assert_true(fabs(element(shifted.k, type, row * DIM + x) - element(fresh.k, type, row * DIM + x)) <=
                                bound_of(type));
                if (type >= ATTN_I8)
                    assert_true(shifted.k_scale[row] == fresh.k_scale[row] && shifted.v_scale[row] == fresh.v_scale[row]);
            }
    }
}

static void check(attn_dtype type, const attn_rope *rope, int paged, int64_t keep, const int32_t *drop)
{
    static const int64_t held[B] = {CAPACITY, 9}, none[B] = {0};
    const int64_t sinks[B] = {drop[0] ? keep : held[0], drop[1] ? keep : held[1]},
                  first[B] = {sinks[0] + drop[0], sinks[1] + drop[1]}, rest[B] = {held[0] - first[0], held[1] - first[1]};
    const attn_input less = {drop, ATTN_I32, {0, 0, 0, 0}};
    attn_error error;
    memset(&shifted, 0, sizeof shifted);
    memset(&fresh, 0, sizeof fresh);
    const attn_cache a = over(&shifted, type, rope, paged), b = over(&fresh, type, rope, paged);
    append(&a, none, held);
    if (attn_cache_shift(&a, keep, &less, &error) != ATTN_OK) fail_msg("%s", error.message);
    append(&b, none, sinks);
    append(&b, first, rest);
    compare(&a, !rope);
}

static void test_shift(void **state)
{
    static const attn_dtype types[] = {ATTN_F32, ATTN_F64, ATTN_F16, ATTN_BF16, ATTN_I8, ATTN_F8_E5M2};
    static const int32_t drops[][B] = {{5, 2}, {1, 0}, {0, 7}, {22, 7}, {0, 0}};
    static double cosines[CAPACITY * DIM / 2], sines[CAPACITY * DIM / 2];
    static float narrow[2][CAPACITY * DIM / 2];
    const attn_rope plain = {.struct_size = sizeof plain, .stretch = 2, .magnitude = 1.5},
                    partial = {.struct_size = sizeof partial, .pairs = ATTN_ROPE_PAIRS_HALVES, .dim_rotary = 6, .inverse = 1},
                    tables = {.struct_size = sizeof tables, .cosines = cosines, .sines = sines, .table_rows = CAPACITY},
                    floats = {.struct_size = sizeof floats,
                              .inverse = 1,
                              .cos_table = attn_in(narrow[0]),
                              .sin_table = attn_in(narrow[1]),
                              .table_rows = CAPACITY};
    const attn_rope *const ropes[] = {NULL, &plain, &partial, &tables, &floats};
    (void)state;
    for (int i = 0; i < CAPACITY * DIM / 2; i++) { /* not quite rotations: with a magnitude, and any angles */
        cosines[i] = 0.75 * cos(i), sines[i] = 0.75 * sin(i);
        narrow[0][i] = (float)cosines[i], narrow[1][i] = (float)sines[i];
    }
    for (int i = 0; i < B * HEADS * CAPACITY * DIM; i++) tokens_k[i] = draw_real();
    for (int i = 0; i < B * HEADS * CAPACITY * DIM_V; i++) tokens_v[i] = draw_real();
    for (int t = 0; t < 6; t++)
        for (int r = 0; r < 5; r++)
            for (int d = 0; d < 5; d++)
                if (types[t] < ATTN_I8 || !ropes[r]) check(types[t], ropes[r], (t + r + d) % 2, d == 1 ? 0 : 2, drops[d]);
}

/* Pages where no token that moves is or goes are not looked at: those of sinks, of tokens behind a window, of entries that stay. */
static void test_freed_pages(void **state)
{
    static const int64_t drops[][B] = {{16, 0}, {20, 8}};
    (void)state;
    for (int d = 0; d < 2; d++) {
        attn_error error;
        const attn_cache c = over(&shifted, ATTN_F32, NULL, 1);
        const attn_input less = attn_in(drops[d]);
        for (int i = 0; i < B * HEADS * CAPACITY * DIM; i++) ((float *)shifted.k)[i] = draw_real();
        before = shifted;
        shifted.lengths[0] = CAPACITY, shifted.lengths[1] = 12;
        for (int i = 0; i < B * COLUMNS; i++)
            if (d == 1 || (i != 1 && i != COLUMNS - 1)) shifted.table[i / COLUMNS][i % COLUMNS] = -1;
        if (attn_cache_shift(&c, 4, &less, &error) != ATTN_OK) fail_msg("%s", error.message);
        for (int b = 0; b < B; b++) assert_int_equal(shifted.lengths[b], (b ? 12 : CAPACITY) - drops[d][b]);
        for (int64_t h = 0; d == 0 && h < HEADS; h++) { /* tokens 20 .. 23 go to 4 .. 7 */
            const int64_t to = (before.table[0][1] * HEADS + h) * PAGE * DIM, from = (before.table[0][5] * HEADS + h) * PAGE * DIM;
            memcpy((float *)before.k + to, (float *)before.k + from, PAGE * DIM * sizeof(float));
        }
        assert_memory_equal(shifted.k, before.k, sizeof before.k);
    }
}

/* One after another: 3 goes to 7, 7 (which was 3) to 20, and 30 stays. */
static void test_move(void **state)
{
    static const int64_t from[3] = {3, 7, 30}, to[3] = {7, 20, 30};
    const attn_input source = attn_in(from), target = attn_in(to);
    (void)state;
    for (int paged = 0; paged < 2; paged++)
        for (int i8 = 0; i8 < 2; i8++) {
            const attn_dtype type = i8 ? ATTN_I8 : ATTN_F32;
            const int64_t size = (int64_t)attn_dtype_size(type), each = paged ? PAGE : CAPACITY;
            attn_error error;
            attn_cache c = over(&shifted, type, NULL, paged);
            for (int i = 0; i < B * HEADS * CAPACITY * DIM * 2; i++) ((float *)shifted.k)[i] = draw_real();
            for (int i = 0; i < B * HEADS * CAPACITY * DIM_V * 2; i++) ((float *)shifted.v)[i] = draw_real();
            for (int i = 0; i < B * HEADS * CAPACITY; i++) shifted.k_scale[i] = draw_real(), shifted.v_scale[i] = draw_real();
            before = shifted;
            c.lengths = (attn_output){0}, c.page_table = (attn_input){0};
            if (attn_cache_move(&c, 3, &source, &target, &error) != ATTN_OK) fail_msg("%s", error.message);
            for (int64_t h = 0; h < HEADS; h++) /* the rows that change, of what was before */
                for (int n = 0; n < 2; n++) {
                    const int64_t row = (to[n] / each * HEADS + h) * each + to[n] % each,
                                  was = (3 / each * HEADS + h) * each + 3 % each;
                    memcpy((char *)before.k + row * DIM * size, (char *)before.k + was * DIM * size, (size_t)(DIM * size));
                    memcpy((char *)before.v + row * DIM_V * size, (char *)before.v + was * DIM_V * size, (size_t)(DIM_V * size));
                    if (i8) before.k_scale[row] = before.k_scale[was], before.v_scale[row] = before.v_scale[was];
                }
            assert_memory_equal(&shifted, &before, sizeof before);
        }
}

static void test_rejected(void **state)
{
    static const attn_rope rope = {.struct_size = sizeof rope};
    static const double ones[8 * DIM / 2];
    const attn_rope tables = {.struct_size = sizeof tables, .cosines = ones, .sines = ones, .table_rows = 8};
    (void)state;
#define REJECTED(change, call, text)                                                                                               \
    do {                                                                                                                           \
        int64_t drop[B] = {3, 1}, slots[3] = {1, 2, 3};                                                                            \
        attn_input less = attn_in(drop), at = attn_in(slots);                                                                      \
        attn_cache c = over(&shifted, ATTN_F32, &rope, 0);                                                                         \
        int64_t keep = 2;                                                                                                          \
        attn_error error;                                                                                                          \
        shifted.lengths[0] = 9, shifted.lengths[1] = 6;                                                                            \
        (void)less, (void)at, (void)keep;                                                                                          \
        change;                                                                                                                    \
        before = shifted;                                                                                                          \
        assert_int_not_equal(call, ATTN_OK);                                                                                       \
        assert_string_equal(error.message, text);                                                                                  \
        assert_memory_equal(&shifted, &before, sizeof before);                                                                     \
    } while (0)
#define SHIFT(change, text) REJECTED(change, attn_cache_shift(&c, keep, &less, &error), text)
#define MOVE(change, text)  REJECTED(change, attn_cache_move(&c, 3, &at, &at, &error), text)
    SHIFT(keep = -1, "cache: keep (-1) is negative");
    SHIFT(drop[1] = 5, "cache: drop[1] is 5; the entry holds 6 tokens, of which 2 are to be kept");
    SHIFT(drop[0] = -1, "cache: drop[0] is -1; the entry holds 9 tokens, of which 2 are to be kept");
    SHIFT(keep = 7, "cache: drop[0] is 3; the entry holds 9 tokens, of which 7 are to be kept");
    SHIFT(less = (attn_input){0}, "cache: drop is NULL");
    SHIFT(less.dtype = ATTN_F32, "cache: drop is f32; it must be i64 or i32");
    SHIFT(c.rope = &tables, "cache: entry 0 holds 9 tokens; the tables of the rope have 8 rows");
    SHIFT((shifted.lengths[0] = shifted.lengths[1] = 6, less = attn_in(shifted.lengths), keep = 0),
          "cache: lengths and drop share elements; an output must not overlap another tensor");
    SHIFT((c.k.dtype = ATTN_I8, c.k_scale = attn_out(shifted.k_scale)),
          "cache: k is i8 and rotated; a shift would quantise it again");
    /* Pages that moving tokens are in, of which the first may be freed behind a window; not those that stay. */
    SHIFT((c = over(&shifted, ATTN_F32, &rope, 1), shifted.table[0][0] = -1), "cache: page 0 of entry 0 is -1; pages is 12");
    SHIFT((c = over(&shifted, ATTN_F32, &rope, 1), shifted.table[1][1] = PAGES), "cache: page 1 of entry 1 is 12; pages is 12");
    SHIFT(
        (c = over(&shifted, ATTN_F32, &rope, 1), keep = 4, drop[1] = 0, shifted.table[0][0] = -1, shifted.table[0][1] = INT64_MIN),
        "cache: page 1 of entry 0 is -9223372036854775808; pages is 12");
    MOVE(slots[1] = -1, "cache: from[1] is -1; the cache has 48 slots");
    MOVE(slots[2] = 48, "cache: from[2] is 48; the cache has 48 slots");
    MOVE(at = (attn_input){0}, "cache: from is NULL");
    MOVE((memset(shifted.v, 0, sizeof shifted.v), at = attn_in(shifted.v)),
         "cache: v and from share elements; an output must not overlap another tensor");
    REJECTED(c.batch = 2, attn_cache_move(&c, -1, &at, &at, &error), "cache: count (-1) is negative");
    REJECTED(c.batch = 2, attn_cache_shift(&c, 2, NULL, &error), "cache: drop is NULL");
    REJECTED(c.batch = 2, attn_cache_move(&c, 3, &at, NULL, &error), "cache: to is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shift), cmocka_unit_test(test_freed_pages),
                                       cmocka_unit_test(test_move), cmocka_unit_test(test_rejected)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
