/* SPDX-License-Identifier: MIT
 * test_patterns.c - named mask patterns against pictures drawn by hand and known counts. */
#include "fails.h"

#include "attn/mask.h"
#include "attn_ref.h"

#include <math.h>
#include <string.h>

static attn_pattern_set *make(const attn_pattern *patterns, int64_t count, int64_t len_q, int64_t len_kv)
{
    attn_pattern_set *set;
    attn_error error;
    if (attn_pattern_set_create(&set, len_q, len_kv, count, patterns, &error) != ATTN_OK) fail_msg("%s", error.message);
    return set;
}

/* A picture is rows of # and . separated by spaces. */
static void expect(const char *picture, attn_pattern a, attn_pattern b, int line)
{
    const int64_t len_kv = (int64_t)strcspn(picture, " "), len_q = ((int64_t)strlen(picture) + 1) / (len_kv + 1);
    const attn_pattern patterns[] = {a, b};
    attn_pattern_set *set = make(patterns, b.kind ? 2 : 1, len_q, len_kv);
    unsigned char keep[400];
    char text[400];
    const attn_output to = {keep, ATTN_U8, {0, 0, len_kv + 1, 1}};
    assert_int_equal(attn_pattern_set_fill(set, &to, NULL), ATTN_OK);
    for (int64_t i = 0; i < len_q; i++) {
        for (int64_t j = 0; j < len_kv; j++) text[i * (len_kv + 1) + j] = keep[i * (len_kv + 1) + j] ? '#' : '.';
        text[i * (len_kv + 1) + len_kv] = i + 1 < len_q ? ' ' : 0;
    }
    if (strcmp(text, picture) != 0) fail_msg("line %d:\nexpected %s\ngot      %s", line, picture, text);
    attn_pattern_set_destroy(set);
}

static const attn_pattern nothing;
#define EXPECT(picture, pattern)   expect(picture, pattern, nothing, __LINE__)
#define EXPECT_BOTH(picture, a, b) expect(picture, a, b, __LINE__)

static void test_causal(void **state)
{
    (void)state;
    EXPECT("#", attn_pattern_causal());
    EXPECT("#... ##.. ###. ####", attn_pattern_causal());
    EXPECT("#.... ##... ###..", attn_pattern_causal());              /* more keys than queries: top-left */
    EXPECT("###.. ####. #####", attn_pattern_causal_bottom_right()); /* the last query is at the last key */
    EXPECT("#.. ##. ### ### ###", attn_pattern_causal());            /* rows past the keys see everything */
    EXPECT("... ... #.. ##. ###", attn_pattern_causal_bottom_right());
}

/* Every convention for windows, distinguished by name. */
static void test_windows(void **state)
{
    (void)state;
    EXPECT("##... ###.. .###. ..### ...##", attn_pattern_window(1, 1));
    EXPECT("##... ###.. ####. ##### .####", attn_pattern_window(3, 1));
    EXPECT("##... ###.. ####. ##### #####", attn_pattern_window(-1, 1));
    EXPECT("##### ##### .#### ..### ...##", attn_pattern_window(1, -1));
    EXPECT("#.... ##... .##.. ..##. ...##", attn_pattern_sliding_window(2)); /* 2 keys, including the query's own */
    EXPECT("#... .#.. ..#. ...#", attn_pattern_sliding_window(1));
    EXPECT("#... ##.. ###. ####", attn_pattern_sliding_window(99));
    EXPECT("##... ###.. .###. ..### ...##", attn_pattern_radius(1));
    EXPECT("#... .#.. ..#. ...#", attn_pattern_radius(0));
    EXPECT("#... .#.. ..#. ...#", attn_pattern_local(1));
    EXPECT("##... ###.. .###. ..### ...##", attn_pattern_local(3));
    EXPECT("##... ###.. .###. ..### ...##", attn_pattern_local(2)); /* an even width behaves as the next odd one */
    EXPECT_BOTH("..##. ...##", attn_pattern_window(1, 0), attn_pattern_causal_bottom_right());
}

static void test_blocks_and_strides(void **state)
{
    (void)state;
    EXPECT("##... ##... ..##. ..##. ....#", attn_pattern_block_diagonal(2)); /* a ragged last block */
    EXPECT("#.. .#. ..#", attn_pattern_block_diagonal(1));
    EXPECT_BOTH("#.... ##... ..#.. ..##. ....#", attn_pattern_block_diagonal(2), attn_pattern_causal());
    EXPECT("#..#. .#..# ..#.. #..#. .#..#", attn_pattern_strided(3));
    EXPECT("##### #####", attn_pattern_strided(1));
    EXPECT("#..#. #..#.", attn_pattern_columns(3));
    EXPECT("#.#.... .#.#... #.#.#.. .#.#.#. ..#.#.# ...#.#. ....#.#", attn_pattern_dilated(1, 2));
    EXPECT("##.#.# ##.#.# .###.# .###.# .#.### .#.###", attn_pattern_fixed(2, 1));
    const unsigned char map[] = {1, 0, 1, 1};
    EXPECT("###... ###... ###... ######", attn_pattern_block_map(3, 3, map));
    const unsigned char ragged[] = {0, 1, 1, 0};
    EXPECT("..# ..# ##.", attn_pattern_block_map(2, 2, ragged));
}

static void test_global_tokens(void **state)
{
    (void)state;
    EXPECT("##### ###.. ####. #.### #..##", attn_pattern_global_local(3, 1));
    EXPECT("##... ###.. .###. ..### ...##", attn_pattern_global_local(3, 0));
    EXPECT("#### #### ####", attn_pattern_global_local(1, 9));
    EXPECT_BOTH("#.... ##... ###.. #.##. #..##", attn_pattern_global_local(3, 1), attn_pattern_causal());
    EXPECT("##... ##... ###.. ####. #####", attn_pattern_prefix(2));
    EXPECT("#... ##.. ###. ####", attn_pattern_prefix(0));
}

static void test_lengths_and_documents(void **state)
{
    (void)state;
    const int64_t three[] = {3, 2, 1}, queries[] = {3, 1, 1}, keys[] = {2, 3, 3}, gaps[] = {2, 0, 1};
    EXPECT("###.. ###.. .....", attn_pattern_lengths(2, 3));
    EXPECT("..... .....", attn_pattern_lengths(2, 0));
    EXPECT("###... ###... ###... ...##. ...##. .....#", attn_pattern_documents(3, three, NULL));
    EXPECT("##...... ##...... ##...... ..###... .....###", attn_pattern_documents(3, queries, keys)); /* xFormers' test */
    EXPECT("##.. ##.. ..#. ....", attn_pattern_documents(3, gaps, NULL)); /* after the last one: nothing */
    EXPECT_BOTH("#..... ##.... ###... ...#.. ...##. .....#", attn_pattern_documents(3, three, NULL), attn_pattern_causal());
}

/* P14, 2.5 and 2.16 of docs/coverage.md: known counts of pairs and tiles, and sparsity. */
static void test_counts(void **state)
{
    (void)state;
    attn_pattern_set_counts count = {.struct_size = sizeof count};
    for (int64_t n = 1; n < 40; n += 3) {
        const attn_pattern causal = attn_pattern_causal();
        attn_pattern_set *set = make(&causal, 1, n, n);
        assert_int_equal(attn_pattern_set_count(set, 4, 8, &count, NULL), ATTN_OK);
        assert_int_equal(count.pairs, n * (n + 1) / 2);
        assert_true(count.tiles == ((n + 3) / 4) * ((n + 7) / 8));
        assert_true(count.sparsity == 1 - (double)count.pairs / (double)(n * n));
        attn_pattern_set_destroy(set);
    }
    const attn_pattern diagonal = attn_pattern_block_diagonal(8), short_of = attn_pattern_lengths(3, 4);
    attn_pattern_set *set = make(&diagonal, 1, 40, 40);
    assert_int_equal(attn_pattern_set_count(set, 8, 8, &count, NULL), ATTN_OK);
    assert_true(count.pairs == 5 * 64 && count.tiles == 25 && count.tiles_empty == 20 && count.queries_empty == 0);
    attn_pattern_set_destroy(set);
    set = make(&short_of, 1, 5, 7);
    assert_int_equal(attn_pattern_set_count(set, 1, 1, &count, NULL), ATTN_OK);
    assert_true(count.pairs == 12 && count.queries_empty == 2);
    attn_pattern_set_destroy(set);
    set = make(NULL, 0, 0, 7);
    assert_int_equal(attn_pattern_set_count(set, 1, 1, &count, NULL), ATTN_OK);
    assert_true(count.pairs == 0 && count.sparsity == 0 && count.tiles == 0);
    assert_false(attn_pattern_set_sees(set, 0, 0));
    attn_pattern_set_destroy(set);
}

/* The first word of Philox with counter (0, n, t, 0), found by bisecting the probability at which ref/ drops it. */
static uint32_t word(uint64_t seed, int64_t n, int64_t t)
{
    uint64_t x = 0;
    for (int bit = 31; bit >= 0; bit--)
        if (ref_dropout_keeps(seed, 0, n, t, 0, (double)(x + (1ull << bit)) / 4294967296.0)) x += 1ull << bit;
    return (uint32_t)x;
}

/* BigBird by its definition, with lists of the blocks that are left. */
static void test_bigbird(void **state)
{
    (void)state;
    enum { BLOCKS = 13, SIZE = 3, LENGTH = BLOCKS * SIZE - 1 };
    for (uint64_t seed = 0; seed < 20; seed++) {
        const int64_t window = 1 + 2 * (int64_t)(seed % 3), global = (int64_t)(seed % 4), random = (int64_t)(seed % 5);
        const attn_pattern bigbird = attn_pattern_bigbird(SIZE, window, global, random, seed << 32 | 77);
        attn_pattern_set *set = make(&bigbird, 1, LENGTH, LENGTH), *again = make(&bigbird, 1, LENGTH, LENGTH);
        for (int64_t n = 0; n < BLOCKS; n++) {
            int64_t left[BLOCKS], count = 0, drawn = 0;
            int sees[BLOCKS] = {0};
            for (int64_t k = 0; k < BLOCKS; k++) {
                sees[k] = (n - k <= window / 2 && k - n <= window / 2) || k < global || n < global;
                if (!sees[k]) left[count++] = k;
            }
            while (drawn < random && count > 0) {
                int64_t at = (int64_t)((uint64_t)word(seed << 32 | 77, n, drawn) * (uint64_t)count >> 32);
                sees[left[at]] = 1;
                memmove(left + at, left + at + 1, (size_t)(--count - at) * sizeof *left);
                drawn++;
            }
            for (int64_t i = n * SIZE; i < (n + 1) * SIZE && i < LENGTH; i++)
                for (int64_t j = 0; j < LENGTH; j++) {
                    assert_int_equal(attn_pattern_set_sees(set, i, j), sees[j / SIZE]);
                    assert_int_equal(attn_pattern_set_sees(again, i, j), sees[j / SIZE]);
                }
        }
        attn_pattern_set_destroy(set);
        attn_pattern_set_destroy(again);
    }
}

/* 2.1 to 2.4 of docs/coverage.md: the same mask as keep, as drop, and as an additive bias. */
static void test_forms(void **state)
{
    (void)state;
    const unsigned char drop[] = {0, 1, 0, 255};
    _Alignas(4) unsigned char keep[4];
    float single[4];
    double wide[4];
    uint16_t half[4];
    const attn_input dropped = attn_in(drop), kept = attn_in(keep), second = attn_in(keep + 1);
    const attn_output to_keep = attn_out(keep);
    assert_int_equal(attn_mask_keep_from_drop(4, &dropped, &to_keep, NULL), ATTN_OK);
    assert_true(keep[0] == 1 && keep[1] == 0 && keep[2] == 1 && keep[3] == 0);
    assert_int_equal(attn_mask_keep_from_drop(4, &kept, &to_keep, NULL), ATTN_OK); /* in place, and back */
    assert_true(keep[0] == 0 && keep[1] == 1 && keep[2] == 0 && keep[3] == 1);
    assert_int_equal(attn_mask_keep_from_drop(4, &kept, &to_keep, NULL), ATTN_OK);
    const attn_output to_single = attn_out(single), to_wide = {wide, ATTN_F64, {0, 0, 0, 0}},
                      to_half = {half, ATTN_F16, {0, 0, 0, 0}}, integers = {half, ATTN_I16, {0, 0, 0, 0}},
                      apart = {single, ATTN_F32, {0, 0, 0, 2}}, over = {keep, ATTN_F32, {0, 0, 0, 0}};
    assert_int_equal(attn_mask_bias_from_keep(4, -INFINITY, &kept, &to_single, NULL), ATTN_OK);
    assert_true(single[0] == 0 && single[1] == -INFINITY && single[2] == 0 && single[3] == -INFINITY);
    assert_int_equal(attn_mask_bias_from_keep(4, -1e9, &kept, &to_wide, NULL), ATTN_OK);
    assert_true(wide[0] == 0 && wide[1] == -1e9);
    assert_int_equal(attn_mask_bias_from_keep(4, -1e9, &kept, &to_half, NULL), ATTN_OK); /* f16 cannot hold it (16.2): -infinity */
    assert_true(half[0] == 0 && half[1] == 0xfc00);
    assert_int_equal(attn_mask_bias_from_keep(2, 5, &second, &apart, NULL), ATTN_OK);
    assert_true(single[0] == 5 && single[1] == -INFINITY && single[2] == 0 && single[3] == -INFINITY);
    FAILS(attn_mask_bias_from_keep(4, 1, &dropped, &integers, &error), ATTN_ERR_UNSUPPORTED,
          "mask: bias is i16; it must be f32, f64, f16 or bf16");
    FAILS(attn_mask_bias_from_keep(-1, 1, &dropped, &to_half, &error), ATTN_ERR_SHAPE, "mask: count (-1) is negative");
    FAILS(attn_mask_bias_from_keep(4, 1, NULL, &to_half, &error), ATTN_ERR_ARGUMENT, "mask: keep is NULL");
    FAILS(attn_mask_bias_from_keep(4, 1, &dropped, NULL, &error), ATTN_ERR_ARGUMENT, "mask: bias is NULL");
    OVERLAPS(attn_mask_bias_from_keep(1, 1, &kept, &over, &error), "mask: bias and keep");
    FAILS(attn_mask_bias_from_keep(4, 1, &(attn_input){half, ATTN_F16, {0}}, &to_single, &error), ATTN_ERR_UNSUPPORTED,
          "mask: keep is f16; it must be bool or u8");
    FAILS(attn_mask_keep_from_drop(-1, &dropped, &to_keep, &error), ATTN_ERR_SHAPE, "mask: count (-1) is negative");
    FAILS(attn_mask_keep_from_drop(4, NULL, &to_keep, &error), ATTN_ERR_ARGUMENT, "mask: drop is NULL");
    FAILS(attn_mask_keep_from_drop(4, &dropped, NULL, &error), ATTN_ERR_ARGUMENT, "mask: keep is NULL");
    OVERLAPS(attn_mask_keep_from_drop(3, &second, &to_keep, &error), "mask: keep and drop");
    assert_true(half[0] == 0 && half[1] == 0xfc00 && keep[0] == 1 && keep[1] == 0);
    const attn_output alone = {keep, ATTN_BOOL, {0, 0, 0, 5}}; /* the stride of an axis of size 1 is ignored */
    assert_int_equal(attn_mask_keep_from_drop(1, &kept, &alone, NULL), ATTN_OK);
    assert_true(keep[0] == 0);
    assert_int_equal(attn_pattern_set_sees(NULL, 0, 0), 0);
}

/* The matrix is written into a slot of any strides; a rejected call writes nothing. */
static void test_fill(void **state)
{
    (void)state;
    const attn_pattern causal = attn_pattern_causal();
    attn_pattern_set *set = make(&causal, 1, 2, 2);
    unsigned char keep[4] = {9, 9, 9, 9};
    const attn_output floats = {keep, ATTN_F16, {0, 0, 0, 0}}, over = {keep, ATTN_U8, {0, 0, 1, 1}}, none = {.data = NULL},
                      transposed = {keep, ATTN_BOOL, {0, 0, 1, 2}};
    FAILS(attn_pattern_set_fill(NULL, &transposed, &error), ATTN_ERR_ARGUMENT, "set is NULL");
    FAILS(attn_pattern_set_fill(set, NULL, &error), ATTN_ERR_ARGUMENT, "mask: keep is NULL");
    FAILS(attn_pattern_set_fill(set, &none, &error), ATTN_ERR_ARGUMENT, "mask: keep is missing");
    FAILS(attn_pattern_set_fill(set, &floats, &error), ATTN_ERR_UNSUPPORTED, "mask: keep is f16; it must be bool or u8");
    assert_int_equal(attn_pattern_set_fill(set, &over, NULL), ATTN_ERR_STRIDE);
    for (int k = 0; k < 4; k++) assert_true(keep[k] == 9);
    assert_int_equal(attn_pattern_set_fill(set, &transposed, NULL), ATTN_OK);
    assert_true(keep[0] == 1 && keep[1] == 1 && keep[2] == 0 && keep[3] == 1);
    attn_pattern_set_destroy(set);
}

static void rejected(attn_pattern pattern, int64_t len_q, int64_t len_kv, const char *message)
{
    attn_pattern_set *set = (attn_pattern_set *)&pattern;
    attn_error error;
    attn_status status = attn_pattern_set_create(&set, len_q, len_kv, 1, &pattern, &error);
    assert_string_equal(error.message, message);
    assert_true(status == ATTN_ERR_ARGUMENT || status == ATTN_ERR_SHAPE);
    assert_null(set);
}

/* If one side is empty there is nothing to do, however long the other is. */
static void test_nothing(void **state)
{
    const int64_t sizes[][2] = {{INT64_C(1) << 55, 0}, {0, INT64_C(1) << 55}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        const attn_pattern pattern = attn_pattern_causal();
        const attn_output keep = attn_out(ATTN_EMPTY);
        attn_pattern_set_counts counts = {.struct_size = sizeof counts};
        attn_pattern_set *set;
        assert_int_equal(attn_pattern_set_create(&set, sizes[i][0], sizes[i][1], 1, &pattern, NULL), ATTN_OK);
        assert_int_equal(attn_pattern_set_fill(set, &keep, NULL), ATTN_OK);
        assert_int_equal(attn_pattern_set_count(set, 1, 1, &counts, NULL), ATTN_OK);
        assert_true(counts.queries_empty == sizes[i][0]);
        assert_true(counts.pairs == 0 && counts.tiles == 0 && counts.tiles_empty == 0 && counts.sparsity == 0);
        attn_pattern_set_destroy(set);
    }
}

static void test_rejected(void **state)
{
    (void)state;
    const int64_t lengths[] = {3, -1, 9};
    attn_pattern odd = attn_pattern_causal(), bare = attn_pattern_documents(-1, lengths, NULL);
    odd.kind = (attn_pattern_kind)99;
    rejected(odd, 4, 4, "pattern kind is 99; known: 1 (causal) .. 17 (block map)");
    rejected(attn_pattern_window(-2, 0), 4, 4, "window: left is -2; it must be between -1 and 2^60");
    rejected(attn_pattern_sliding_window(0), 4, 4, "sliding window: keys is 0; it must be between 1 and 2^60");
    rejected(attn_pattern_local(0), 4, 4, "local: width is 0; it must be between 1 and 2^60");
    rejected(attn_pattern_radius(INT64_MAX), 4, 4, "radius: radius is 9223372036854775807; it must be between 0 and 2^60");
    rejected(attn_pattern_strided(0), 4, 4, "strided: stride is 0; it must be between 1 and 2^60");
    rejected(attn_pattern_dilated(1ll << 40, 1ll << 40), 4, 4,
             "dilated: radius is 1099511627776; multiplied by 1099511627776 it exceeds 2^60");
    rejected(attn_pattern_fixed(3, 4), 4, 4, "fixed: columns is 4; it must be at most the stride, 3");
    rejected(attn_pattern_bigbird(0, 3, 1, 1, 0), 4, 4, "bigbird: block is 0; it must be between 1 and 2^60");
    rejected(attn_pattern_block_map(2, 2, NULL), 4, 4, "block map: blocks is NULL");
    rejected(bare, 4, 4, "documents: count is -1; it must be at least 0");
    rejected(attn_pattern_documents(1, NULL, NULL), 4, 4, "documents: lengths_q is NULL");
    rejected(attn_pattern_documents(2, lengths, NULL), 4, 4,
             "documents: lengths_q[1] is -1; it must be between 0 and 1, what the documents before it leave");
    rejected(attn_pattern_documents(1, lengths, lengths + 2), 4, 4,
             "documents: lengths_kv[0] is 9; it must be between 0 and 4, what the documents before it leave");
    rejected(attn_pattern_causal(), -1, 4, "len_q (-1) is not between 0 and 2^56");
    rejected(attn_pattern_causal(), 4, -2, "len_kv (-2) is not between 0 and 2^56");
    FAILS(attn_pattern_set_create(NULL, 1, 1, 0, NULL, &error), ATTN_ERR_ARGUMENT, "set is NULL");
    attn_pattern_set *set;
    FAILS(attn_pattern_set_create(&set, 1, 1, 1, NULL, &error), ATTN_ERR_ARGUMENT, "patterns is NULL");
    FAILS(attn_pattern_set_create(&set, 1, 1, -1, &odd, &error), ATTN_ERR_ARGUMENT, "count is -1; it must be between 0 and 1000");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_causal),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_blocks_and_strides),
        cmocka_unit_test(test_global_tokens),
        cmocka_unit_test(test_lengths_and_documents),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_bigbird),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_fill),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
