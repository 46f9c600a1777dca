/* SPDX-License-Identifier: MIT
 *
 * test_view_write.c - view_write without a browser: what it rejects, with which message; escaping; the same bytes every time.
 */
#include "test.h"

#include <math.h>

#include "encode.h"
#include "page.h"

static float ones[4 * 4] = {1};
static view_sequence sequence;
static view_summary summary;

static view_data small(void)
{
    sequence = (view_sequence){.rows = 4, .columns = 4, .len_q = 4, .len_k = 4, .weights = ones, .summary = &summary};
    return (view_data){.sequences = 1, .layers = 1, .heads = 1, .sequence = &sequence};
}

static void rejects(view_data data, attn_status expected, const char *message)
{
    attn_error error = {.status = ATTN_OK};
    text_buffer text = {0};
    assert_int_equal(view_write(&text, &data, &error), expected);
    assert_int_equal(error.status, expected);
    assert_string_equal(error.message, message);
    assert_int_equal(view_write(&text, &data, NULL), expected);
    assert_int_equal(text.count, 0);
    assert_null(text.bytes);
}

static void rejects_with_reason(void **state)
{
    (void)state;
    view_data data = small();
    data.sequence = NULL;
    rejects(data, ATTN_ERR_ARGUMENT, "out, data or sequence is NULL");
    assert_int_equal(view_write(NULL, &data, NULL), ATTN_ERR_ARGUMENT);

    data = small(), sequence.rows = 0;
    rejects(data, ATTN_ERR_SHAPE, "queries (0) is below 1: there is nothing to show");
    data = small(), data.layers = -3;
    rejects(data, ATTN_ERR_SHAPE, "layers (-3) is below 1: there is nothing to show");
    data = small(), sequence.len_k = 5;
    rejects(data, ATTN_ERR_SHAPE, "length 5 of sequence 0 is not between 0 and 4 keys");
    data = small(), sequence.len_q = -1;
    rejects(data, ATTN_ERR_SHAPE, "length -1 of sequence 0 is not between 0 and 4 queries");
}

static void rejects_too_much(void **state)
{
    (void)state;
    view_data data = small();
    data.layers = 12, data.heads = 12, sequence.rows = sequence.columns = sequence.len_q = sequence.len_k = 4096;
    rejects(data, ATTN_ERR_UNSUPPORTED,
            "1 x 12 x 12 x 4096 x 4096 weights (sequences x layers x heads x queries x keys) are too many for a page "
            "(at most 50331648): choose fewer of them");
    data = small(), sequence.rows = sequence.columns = sequence.len_q = sequence.len_k = INT64_MAX;
    rejects(data, ATTN_ERR_UNSUPPORTED,
            "1 x 1 x 1 x 9223372036854775807 x 9223372036854775807 weights (sequences x layers x heads x queries x keys) are too "
            "many for a page (at most 50331648): choose fewer of them");
    data = small(), data.layers = INT64_MAX, data.heads = 2;
    rejects(
        data, ATTN_ERR_UNSUPPORTED,
        "9223372036854775807 layers x 2 heads are too many for a page (at most 16384 heads in all): choose fewer layers or heads");
}

/* ---- what is known of a head before any weight is computed ---- */

enum { QUERIES = 201, KEYS = 130 };

static void check_level(const view_level *level, const float *weights)
{
    assert_int_equal(level->rows, SUMMARY_SMALL);
    assert_int_equal(level->columns, SUMMARY_SMALL);
    for (int64_t y = 0; y < level->rows; y++)
        for (int64_t x = 0; x < level->columns; x++) {
            float most = -INFINITY;
            double sum = 0;
            int64_t count = 0;
            for (int64_t i = y * QUERIES / level->rows; i < (y + 1) * QUERIES / level->rows; i++)
                for (int64_t j = x * KEYS / level->columns; j < (x + 1) * KEYS / level->columns; j++, count++) {
                    most = weights[i * KEYS + j] > most || isnan(weights[i * KEYS + j]) ? weights[i * KEYS + j] : most;
                    sum += (double)weights[i * KEYS + j];
                }
            const float mean = level->mean[y * level->columns + x];
            if (isnan(sum)) {
                assert_true(isnan(level->most[y * level->columns + x]) && isnan(mean));
                continue;
            }
            assert_true(level->most[y * level->columns + x] == most);
            assert_true(fabs((double)mean - sum / (double)count) <= 0x1p-22 * sum); /* sums of 12 floats at most */
        }
}

static void summarises(void **state)
{
    (void)state;
    float *weights = calloc(QUERIES * KEYS, sizeof *weights);
    uint8_t visible[KEYS];
    view_summary s;
    assert_non_null(weights);
    summary_begin(&s, QUERIES, KEYS);
    assert_int_equal(s.large.rows, 0);
    for (int64_t i = 0; i < QUERIES; i++) { /* row i: uniform over its first 1 + i % 7 keys, of which 10 are visible */
        for (int64_t j = 0; j <= i % 7; j++) weights[i * KEYS + j] = 1 / (float)(1 + i % 7);
        for (int64_t j = 0; j < KEYS; j++) visible[j] = j < 10;
        if (i == 7) weights[7 * KEYS + 120] = NAN;
        summary_add(&s, i, weights + i * KEYS, i % 2 ? visible : NULL);
    }
    summary_end(&s);
    assert_true(s.largest == 1);
    check_level(&s.small, weights);
    assert_true(isnan(s.spread[7]) && isnan(s.spread[14]) && !isnan(s.spread[21])); /* NaN; one key; one of ten */
    for (int64_t i = 1; i < QUERIES; i++) {
        const double seen = i % 2 ? 10 : (double)(1 + i % 7);
        if (seen > 1 && i != 7) assert_true(fabs((double)s.spread[i] - log((double)(1 + i % 7)) / log(seen)) <= 0x1p-22);
    }
    double first = 0;
    for (int64_t i = 0; i < QUERIES; i++) first += (double)weights[i * KEYS];
    assert_true(fabs((double)s.received[0] - first / QUERIES) <= 0x1p-24);
    assert_true(isnan(s.received[120]) && s.received[121] == 0);
    summary_free(&s);
    summary_begin(&s, 1, SUMMARY_LONG + SUMMARY_PLAIN);
    assert_true(s.large.rows == 1 && s.large.columns == SUMMARY_LARGE && s.small.columns == SUMMARY_SMALL);
    summary_end(&s);
    summary_free(&s);
    free(weights);
}

/* After memory has run out nothing is added, and the page is not reported as complete. */
static void says_that_memory_is_out(void **state)
{
    (void)state;
    view_data data = small();
    attn_error error;
    text_buffer text = {.failed = 1};
    assert_int_equal(view_write(&text, &data, &error), ATTN_ERR_MEMORY);
    assert_string_equal(error.message, "cannot allocate memory for the page");
    assert_int_equal(text.count, 0);
    text_add(&text, "more", SIZE_MAX);
    text_print(&text, "%d", 1);
    assert_null(text.bytes);

    text = (text_buffer){0};
    text_string(&text, "whole");
    assert_int_equal(text_status(&text, "it", &error), ATTN_OK);
    text_add(&text, "more than there is", SIZE_MAX - 5);
    assert_int_equal(text_status(&text, "it", &error), ATTN_ERR_MEMORY);
    assert_string_equal(error.message, "cannot allocate memory for it");
    text_letter(&text, '.');
    assert_int_equal(text.count, 5);
    text_free(&text);
}

/* Text of any length: the buffer grows at any position in a number and in a long text. */
static void grows(void **state)
{
    (void)state;
    text_buffer text = {0};
    char long_one[3000];
    memset(long_one, 'x', sizeof long_one - 1);
    long_one[sizeof long_one - 1] = 0;
    for (int n = 0; n < 2000; n++) text_print(&text, "%04d", n);
    for (int n = 0; n < 9; n++) text_print(&text, "%s%04d", long_one, n);
    assert_int_equal(text.count, 8000 + 9 * 3003);
    for (int n = 0; n < 2000; n++) {
        char digits[5];
        (void)snprintf(digits, sizeof digits, "%04d", n);
        assert_memory_equal(text.bytes + (ptrdiff_t)n * 4, digits, 4);
    }
    assert_memory_equal(text.bytes + 8000 + 8 * 3003, long_one, 2999);
    assert_memory_equal(text.bytes + text.count - 4, "0008", 4);
    text_free(&text);
}

static void repeats_its_bytes(void **state)
{
    (void)state;
    view_data data = small();
    text_buffer one = {0}, two = {0};
    attn_error error = {.status = ATTN_ERR_IO, .message = "old"};
    assert_int_equal(view_write(&one, &data, &error), ATTN_OK);
    assert_int_equal(error.status, ATTN_OK);
    assert_string_equal(error.message, "");
    assert_int_equal(view_write(&two, &data, NULL), ATTN_OK);
    assert_int_equal(one.count, two.count);
    assert_memory_equal(one.bytes, two.bytes, one.count);
    text_free(&one);
    text_free(&two);
}

/* No text may leave its element, and bytes that are not UTF-8 may not swallow their neighbors. */
static void escapes_text(void **state)
{
    (void)state;
    static const struct {
        const char *text, *json;
    } cases[] = {
        {NULL, "null"},
        {"", "\"\""},
        {"cat", "\"cat\""},
        {"</script>", "\"\\u003c/script\\u003e\""},
        {"<!--&\"\\", "\"\\u003c!--\\u0026\\u0022\\u005c\""},
        {"a\n\t\x01\x7f", "\"a\\u000a\\u0009\\u0001\\u007f\""},
        {"\xc3\xa9\xe2\x80\xa8", "\"\\u00e9\\u2028\""},
        {"\xf0\x9f\x98\x80", "\"\\ud83d\\ude00\""},
        {"\xf4\x8f\xbf\xbf", "\"\\udbff\\udfff\""},
        {"\xff"
         "a",
         "\"\\ufffda\""},
        {"\xc3", "\"\\ufffd\""},
        {"\xe2\x80"
         "a",
         "\"\\ufffd\\ufffda\""},
        {"\xc0\xaf", "\"\\ufffd\\ufffd\""},                       /* overlong */
        {"\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\""},            /* a surrogate */
        {"\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\""}, /* beyond U+10FFFF */
    };
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        text_buffer text = {0};
        view_encode_text(&text, cases[n].text);
        text_letter(&text, 0);
        assert_string_equal(text.bytes, cases[n].json);
        text_free(&text);
    }
}

static void encodes_little_endian(void **state)
{
    (void)state;
    text_buffer text = {0};
    view_base64 stream = {.out = &text};
    view_base64_f32(&stream, 1.0f);   /* 00 00 80 3f */
    view_base64_u16(&stream, 0xfe01); /* 01 fe */
    view_base64_u16(&stream, 0x0203); /* 03 02, and a zero to fill */
    view_base64_end(&stream);
    assert_int_equal(text.count, 12);
    assert_memory_equal(text.bytes, "AACAPwH+AwIA", 12);
    text_free(&text);
}

int main(void)
{
    summary_begin(&summary, 4, 4);
    for (int64_t i = 0; i < 4; i++) summary_add(&summary, i, ones + i * 4, NULL);
    summary_end(&summary);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rejects_with_reason), cmocka_unit_test(rejects_too_much),        cmocka_unit_test(escapes_text),
        cmocka_unit_test(summarises),          cmocka_unit_test(says_that_memory_is_out), cmocka_unit_test(grows),
        cmocka_unit_test(repeats_its_bytes),   cmocka_unit_test(encodes_little_endian),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    summary_free(&summary);
    return failed;
}
