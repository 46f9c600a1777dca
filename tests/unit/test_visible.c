/* SPDX-License-Identifier: MIT
 * test_visible.c - the interval of keys that a query sees, against the rule itself in 128-bit integers. */
#include "test.h"

#include "testing/random/random.h"
#include "testing/random/share.h"
#include "visible/visible.h"

__extension__ typedef __int128 wide;

/* attn.h, attn_mask: the position of a query saturates at the ends of int64_t. */
static int sees(const attn_visibility *s, int64_t i, int64_t j)
{
    wide position = (wide)i + s->offset;
    if (position > INT64_MAX) position = INT64_MAX;
    if (position < INT64_MIN) position = INT64_MIN;
    if (i >= s->len_q || j >= s->len_kv) return 0;
    if (s->chunk && j / s->chunk != (position - ((position % s->chunk) + s->chunk) % s->chunk) / s->chunk) return 0;
    if (s->causal && j > position) return 0;
    if (s->ranges) {
        const int64_t *range = (const int64_t *)s->ranges + i * s->ranges_stride;
        if (j < range[0] || j >= range[s->ranges_step]) return 0;
    }
    if (j < s->global_kv || (position >= 0 && position < s->global_q)) return 1;
    if (s->dilation > 1 && (position - j) % s->dilation != 0) return 0;
    if (s->left != INT64_MAX && j < position - s->left) return 0;
    return s->right == INT64_MAX || j <= position + s->right;
}

/* A tile's interval of places on a list stays on it, also where the window of its last queries lies past the last key. */
static void test_list_behind_the_window(void **state)
{
    static const int64_t list[1] = {0};
    (void)state;
    for (int64_t offset = 0; offset < 60; offset++) {
        const attn_visibility v = {.len_q = 30,
                                   .len_kv = 1,
                                   .all_kv = 40,
                                   .rows_of_query = 1,
                                   .offset = offset,
                                   .left = 16,
                                   .right = INT64_MAX,
                                   .dilation = 1,
                                   .list = list,
                                   .list_dtype = ATTN_I64,
                                   .listed = 1,
                                   .block = 1};
        const attn_tile_visibility seen = attn_visibility_of_tile(&v, 0, 30);
        assert_in_range(seen.any.local.high, 0, 1);
        assert_in_range(seen.any.local.low, 0, seen.any.local.high);
    }
}

static const int64_t lengths[] = {0, 1, 2, 5, 9};
static const int64_t offsets[] = {0,
                                  1,
                                  2,
                                  4,
                                  8,
                                  9,
                                  10,
                                  100,
                                  INT64_MAX - 9,
                                  -1,
                                  -2,
                                  -8,
                                  -9,
                                  -100,
                                  INT64_MIN,
                                  INT64_MIN + 1,
                                  INT64_MAX,
                                  INT64_MAX - 1,
                                  3,
                                  5,
                                  -10,
                                  INT32_MAX,
                                  INT32_MIN,
                                  (int64_t)INT32_MAX + 1};
static const int64_t bounds[] = {0, 1, 2, 3, 8, 9, 100, INT64_MAX - 1, INT64_MAX, (int64_t)INT32_MAX + 1};

enum {
    LENGTHS = sizeof lengths / sizeof *lengths,
    OFFSETS = sizeof offsets / sizeof *offsets,
    BOUNDS = sizeof bounds / sizeof *bounds
};

enum { QUERIES = 11, KEYS = 11 };

/* Queries first .. first+rows-1 against the rule, for every block of keys.  `exact`: visibility is known to the key; otherwise a
 * block may be visited or masked unnecessarily, but never skipped or left unmasked wrongly. */
static void compare_tile(const attn_visibility *s, int64_t first, int64_t rows, int exact)
{
    attn_tile_visibility view = attn_visibility_of_tile(s, first, rows);
    attn_interval tile = attn_keys_of_tile(&view);
    int64_t low = KEYS, high = -1;
    for (int64_t i = first; i < first + rows; i++)
        for (int64_t j = 0; j < KEYS; j++) {
            if (!sees(s, i, j)) continue;
            low = low < j ? low : j;
            high = high > j ? high : j;
        }
    if (exact && high < 0) assert_true(tile.low == tile.high);
    if (exact && high >= 0) assert_true(tile.low == low && tile.high == high + 1);
    if (high >= 0) assert_true(tile.low <= low && tile.high > high);

    for (int64_t from = 0; from < s->len_kv; from++)
        for (int64_t to = from + 1; to <= s->len_kv; to++) {
            int all = 1, any = 0;
            for (int64_t i = first; i < first + rows; i++)
                for (int64_t j = from; j < to; j++) all &= sees(s, i, j), any |= sees(s, i, j);
            int covers = attn_tile_sees_all(s, &view, from, to), misses = attn_tile_sees_none(s, &view, first, rows, from, to);
            if (exact) assert_int_equal(covers, all);
            if (covers) assert_true(all);
            if (misses) assert_false(any);
            if (exact && rows == 1) assert_int_equal(misses, !any);
        }
}

static void compare(const attn_visibility *s, int exact)
{
    for (int64_t i = 0; i < QUERIES; i++) {
        attn_visible_keys seen = attn_keys_of_query(s, i);
        int64_t count = 0;
        assert_true(0 <= seen.local.low && seen.local.low <= seen.local.high && seen.local.high <= s->len_kv);
        assert_true(seen.global.high == 0 || (seen.global.low < seen.global.high && seen.global.high < seen.local.low));
        unsigned char all[KEYS], some[KEYS];
        const int64_t from = i % KEYS, to = from + (KEYS - from) / 2;
        attn_query_mark(s, &seen, i, 0, KEYS, all);
        attn_query_mark(s, &seen, i, from, to, some);
        for (int64_t j = from; j < to; j++) assert_int_equal(all[j], some[j - from]);
        for (int64_t j = 0; j < KEYS; j++) {
            assert_int_equal(sees(s, i, j), all[j]);
            count += sees(s, i, j) && j >= seen.local.low;
        }
        assert_int_equal(attn_count_local(s, &seen, i), count);
    }
    for (int64_t first = 0; first < QUERIES; first += 2)
        for (int64_t rows = 1; first + rows <= QUERIES; rows += 3) compare_tile(s, first, rows, exact);
}

static void test_intervals(void **state)
{
    (void)state;
    for (int n = 0; n < LENGTHS * LENGTHS; n++)
        for (int at = 0; at < OFFSETS; at++)
            for (int w = 0; w < BOUNDS * BOUNDS; w++) {
                if (!share_has((n * OFFSETS + at) * BOUNDS * BOUNDS + w)) continue;
                attn_visibility s = {.len_q = lengths[n / LENGTHS],
                                     .len_kv = lengths[n % LENGTHS],
                                     .all_kv = lengths[n % LENGTHS],
                                     .offset = offsets[at],
                                     .left = bounds[w / BOUNDS],
                                     .right = bounds[w % BOUNDS],
                                     .dilation = 1};
                compare(&s, 1);
                s.chunk = 1 + w % 4;
                compare(&s, 1);
            }
}

/* Random combinations of everything: gaps between global keys and the window, ranges, dilations. */
static void test_gaps(void **state)
{
    (void)state;
    random_state draw = {1};
    for (int n = 0; n < share_of_cases(6000); n++) {
        int64_t ranges[QUERIES * 2];
        for (int i = 0; i < QUERIES * 2; i++)
            ranges[i] = random_below(&draw, 5) ? random_below(&draw, KEYS + 1) : (random_below(&draw, 2) ? INT64_MAX : INT64_MIN);
        attn_visibility s = {.dilation = 1};
        s.len_q = 8 + random_below(&draw, 4);
        s.len_kv = s.all_kv = 8 + random_below(&draw, 4);
        s.offset = offsets[random_below(&draw, OFFSETS)];
        s.left = random_below(&draw, 3) ? random_below(&draw, 4) : INT64_MAX;
        s.right = random_below(&draw, 3) ? random_below(&draw, 4) : INT64_MAX;
        if (random_below(&draw, 3) == 0) s.causal = 1, s.right = 0;
        if (random_below(&draw, 2)) s.dilation = bounds[1 + random_below(&draw, BOUNDS - 1)];
        if (random_below(&draw, 2)) s.global_q = bounds[random_below(&draw, BOUNDS)];
        if (random_below(&draw, 2)) s.global_kv = bounds[random_below(&draw, BOUNDS)];
        if (random_below(&draw, 3) == 0) s.chunk = 1 + random_below(&draw, 6);
        if (random_below(&draw, 2))
            s.ranges = ranges, s.ranges_dtype = ATTN_I64, s.ranges_stride = 2 * random_below(&draw, 2), s.ranges_step = 1;
        compare(&s, 0);
    }
}

/* Blocks in the gap, and between the steps of a wide dilation, are recognised as invisible. */
static void test_misses(void **state)
{
    (void)state;
    attn_visibility s = {.len_q = 1000, .len_kv = 1000, .all_kv = 1000, .left = 10, .right = 10, .dilation = 1, .global_kv = 5};
    attn_tile_visibility view = attn_visibility_of_tile(&s, 500, 20);
    assert_true(attn_tile_sees_none(&s, &view, 500, 20, 5, 490));
    assert_false(attn_tile_sees_none(&s, &view, 500, 20, 4, 6));
    assert_false(attn_tile_sees_none(&s, &view, 500, 20, 489, 491));
    assert_true(attn_tile_sees_none(&s, &view, 500, 20, 530, 1000));
    assert_true(attn_tile_sees_all(&s, &view, 0, 5));
    assert_true(attn_tile_sees_all(&s, &view, 509, 511));
    assert_false(attn_tile_sees_all(&s, &view, 508, 511));

    attn_visibility far_apart = {
        .len_q = 1000, .len_kv = 1000, .all_kv = 1000, .left = INT64_MAX, .right = INT64_MAX, .dilation = 100};
    view = attn_visibility_of_tile(&far_apart, 500, 20);
    assert_true(attn_tile_sees_none(&far_apart, &view, 500, 20, 220, 300));
    assert_false(attn_tile_sees_none(&far_apart, &view, 500, 20, 219, 300));
    assert_false(attn_tile_sees_none(&far_apart, &view, 500, 20, 220, 301));
}

/* How the fields of a problem become a visibility. */
static void test_visibility_of(void **state)
{
    const int64_t length_q[] = {7, 2}, length_kv[] = {9, 1}, offset[] = {3, -4};
    const int32_t offset32[] = {5, -6};
    attn_args args = {.lengths_q = length_q, .lengths_kv = length_kv, .offset_q = offset};
    attn_resolved p = {.shape = {.batch = 2, .len_q = 8, .len_kv = 10}};
    attn_visibility s;
    (void)state;
    p.at.lengths_q.dtype = p.at.lengths_kv.dtype = p.at.offset_q.dtype = ATTN_I64;

    attn_visibility_of(&p, NULL, 1, 0, &s);
    assert_true(s.len_q == 8 && s.len_kv == 10 && s.offset == 0 && s.left == INT64_MAX && s.right == INT64_MAX);

    p.mask.window = 1, p.mask.window_left = 4, p.mask.window_right = 2;
    attn_visibility_of(&p, &args, 0, 0, &s);
    assert_true(s.left == 4 && s.right == 2);
    p.mask.window_left = -1;
    attn_visibility_of(&p, &args, 0, 0, &s);
    assert_true(s.left == INT64_MAX && s.right == 2);
    p.mask.causal = 1;
    attn_visibility_of(&p, &args, 0, 0, &s);
    assert_true(s.right == 0);

    p.mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
    attn_visibility_of(&p, &args, 1, 0, &s);
    assert_true(s.offset == 2); /* lengths are not in use */
    p.has.lengths_q = p.has.lengths_kv = 1;
    attn_visibility_of(&p, &args, 1, 0, &s);
    assert_true(s.len_q == 2 && s.len_kv == 1 && s.offset == -1);
    attn_visibility_of(&p, NULL, 1, 0, &s);
    assert_true(s.len_q == 8 && s.len_kv == 10 && s.offset == 2);

    p.mask.align = ATTN_ALIGN_TOP_LEFT;
    p.has.offset_q = 1;
    attn_visibility_of(&p, &args, 1, 0, &s);
    assert_true(s.offset == -4);
    p.has.lengths_q = p.has.lengths_kv = 0;
    p.at.offset_q.dtype = ATTN_I32, args.offset_q = offset32;
    attn_visibility_of(&p, &args, 1, 0, &s);
    assert_true(s.offset == -6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_intervals), cmocka_unit_test(test_gaps), cmocka_unit_test(test_misses),
                                       cmocka_unit_test(test_visibility_of), cmocka_unit_test(test_list_behind_the_window)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
