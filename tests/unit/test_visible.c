/* SPDX-License-Identifier: MIT
 * test_visible.c - the interval of keys that a query sees, against the rule itself in wide integers. */
#include "test.h"

#include "sched/visible.h"

__extension__ typedef __int128 wide;

/* attn.h, attn_mask: the position of a query saturates at the ends of int64_t. */
static int sees(const attn_sight *s, int64_t i, int64_t j)
{
    wide position = (wide)i + s->offset;
    if (position > INT64_MAX) position = INT64_MAX;
    if (position < INT64_MIN) position = INT64_MIN;
    if (i >= s->len_q || j >= s->len_kv) return 0;
    if (s->chunk && j / s->chunk != (position - ((position % s->chunk) + s->chunk) % s->chunk) / s->chunk) return 0;
    if (s->left != INT64_MAX && j < position - s->left) return 0;
    return s->right == INT64_MAX || j <= position + s->right;
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

/* Queries first .. last against the rule, for every block of keys. */
static void compare_tile(const attn_sight *s, int64_t first, int64_t rows)
{
    attn_interval tile = attn_keys_of_tile(s, first, rows);
    int64_t low = KEYS, high = -1;
    for (int64_t i = first; i < first + rows; i++)
        for (int64_t j = 0; j < KEYS; j++)
            if (sees(s, i, j)) low = j < low ? j : low, high = j > high ? j : high;
    if (high < 0) assert_true(tile.low == tile.high);
    else assert_true(tile.low == low && tile.high == high + 1);

    for (int64_t from = 0; from < s->len_kv; from++)
        for (int64_t to = from + 1; to <= s->len_kv; to++) {
            int all = 1;
            for (int64_t i = first; i < first + rows; i++)
                for (int64_t j = from; j < to; j++) all &= sees(s, i, j);
            assert_int_equal(attn_tile_sees_all(s, first, rows, from, to), all);
        }
}

static void compare(const attn_sight *s)
{
    for (int64_t i = 0; i < QUERIES; i++) {
        attn_interval keys = attn_keys_of_query(s, i);
        assert_true(0 <= keys.low && keys.low <= keys.high && keys.high <= s->len_kv);
        for (int64_t j = 0; j < KEYS; j++) assert_int_equal(sees(s, i, j), keys.low <= j && j < keys.high);
    }
    for (int64_t first = 0; first < QUERIES; first += 2)
        for (int64_t rows = 1; first + rows <= QUERIES; rows += 3) compare_tile(s, first, rows);
}

static void test_intervals(void **state)
{
    (void)state;
    for (int n = 0; n < LENGTHS * LENGTHS; n++)
        for (int at = 0; at < OFFSETS; at++)
            for (int w = 0; w < BOUNDS * BOUNDS; w++) {
                attn_sight s = {.len_q = lengths[n / LENGTHS],
                                .len_kv = lengths[n % LENGTHS],
                                .offset = offsets[at],
                                .left = bounds[w / BOUNDS],
                                .right = bounds[w % BOUNDS]};
                compare(&s);
                s.chunk = 1 + w % 4;
                compare(&s);
            }
}

/* How a problem's words become a sight. */
static void test_sight_of(void **state)
{
    const int64_t length_q[] = {7, 2}, length_kv[] = {9, 1}, offset[] = {3, -4};
    const int32_t offset32[] = {5, -6};
    attn_args args = {.struct_size = sizeof args, .lengths_q = length_q, .lengths_kv = length_kv, .offset = offset};
    attn_problem p = {.struct_size = sizeof p, .shape = {.batch = 2, .len_q = 8, .len_kv = 10}};
    attn_sight s;
    (void)state;
    p.mask.index_dtype = ATTN_I64;

    s = attn_sight_of(&p, NULL, 1);
    assert_true(s.len_q == 8 && s.len_kv == 10 && s.offset == 0 && s.left == INT64_MAX && s.right == INT64_MAX);

    p.mask.window = 1, p.mask.window_left = 4, p.mask.window_right = 2;
    s = attn_sight_of(&p, &args, 0);
    assert_true(s.left == 4 && s.right == 2);
    p.mask.window_left = -1;
    s = attn_sight_of(&p, &args, 0);
    assert_true(s.left == INT64_MAX && s.right == 2);
    p.mask.causal = 1;
    s = attn_sight_of(&p, &args, 0);
    assert_true(s.right == 0);

    p.mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
    s = attn_sight_of(&p, &args, 1);
    assert_true(s.offset == 2); /* lengths are not in use */
    p.mask.lengths_q = p.mask.lengths_kv = 1;
    s = attn_sight_of(&p, &args, 1);
    assert_true(s.len_q == 2 && s.len_kv == 1 && s.offset == -1);
    s = attn_sight_of(&p, NULL, 1);
    assert_true(s.len_q == 8 && s.len_kv == 10 && s.offset == 2);

    p.mask.align = ATTN_ALIGN_OFFSET;
    s = attn_sight_of(&p, &args, 1);
    assert_true(s.offset == -4);
    p.mask.lengths_q = p.mask.lengths_kv = 0;
    p.mask.index_dtype = ATTN_I32, args.offset = offset32;
    s = attn_sight_of(&p, &args, 1);
    assert_true(s.offset == -6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_intervals), cmocka_unit_test(test_sight_of)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
