/* SPDX-License-Identifier: MIT
 *
 * test_view_write.c - view_write without a browser: what it refuses and how it says so, what it escapes, what it repeats.
 */
#include "test.h"

#include "encode.h"
#include "page.h"

static float ones[4 * 4] = {1};
static const view_sequence too_long[] = {{.len_q = 4, .len_k = 5}};
static const view_sequence negative[] = {{.len_q = -1, .len_k = 4}};

static view_data small(void)
{
    return (view_data){.sequences = 1, .layers = 1, .heads = 1, .len_q = 4, .len_k = 4, .weights = ones};
}

/* What view_write puts into a file; the caller frees it. */
static attn_status write_page(const view_data *data, char **text, size_t *bytes, attn_error *error)
{
    FILE *out = open_memstream(text, bytes);
    assert_non_null(out);
    attn_status status = view_write(out, data, error);
    fclose(out);
    return status;
}

static void refuses(view_data data, attn_status expected, const char *message)
{
    attn_error error = {.status = ATTN_OK};
    char *text;
    size_t bytes;
    assert_int_equal(write_page(&data, &text, &bytes, &error), expected);
    assert_int_equal(error.status, expected);
    assert_string_equal(error.message, message);
    assert_int_equal(bytes, 0);
    free(text);
    assert_int_equal(write_page(&data, &text, &bytes, NULL), expected);
    free(text);
}

static void refuses_with_reason(void **state)
{
    (void)state;
    view_data data = small();
    data.weights = NULL;
    refuses(data, ATTN_ERR_ARGUMENT, "out, data or weights is NULL");
    assert_int_equal(view_write(NULL, &data, NULL), ATTN_ERR_ARGUMENT);

    data = small(), data.len_q = 0;
    refuses(data, ATTN_ERR_SHAPE, "queries (0) is below 1: there is nothing to show");
    data = small(), data.layers = -3;
    refuses(data, ATTN_ERR_SHAPE, "layers (-3) is below 1: there is nothing to show");
    data = small(), data.sequence = too_long;
    refuses(data, ATTN_ERR_SHAPE, "length 5 of sequence 0 is not within 0 and 4 keys");
    data = small(), data.sequence = negative;
    refuses(data, ATTN_ERR_SHAPE, "length -1 of sequence 0 is not within 0 and 4 queries");
}

static void refuses_too_much(void **state)
{
    (void)state;
    view_data data = small();
    data.layers = 12, data.heads = 12, data.len_q = data.len_k = 4096;
    refuses(data, ATTN_ERR_UNSUPPORTED,
            "1 x 12 x 12 x 4096 x 4096 weights (sequences x layers x heads x queries x keys) are too many for a page "
            "(at most 50331648): choose fewer of them");
    data = small(), data.len_q = data.len_k = INT64_MAX;
    refuses(data, ATTN_ERR_UNSUPPORTED,
            "1 x 1 x 1 x 9223372036854775807 x 9223372036854775807 weights (sequences x layers x heads x queries x keys) are too "
            "many for a page (at most 50331648): choose fewer of them");
    data = small(), data.layers = INT64_MAX, data.heads = 2;
    refuses(
        data, ATTN_ERR_UNSUPPORTED,
        "9223372036854775807 layers x 2 heads are too many for a page (at most 16384 heads in all): choose fewer layers or heads");
}

static void says_that_the_disk_is_full(void **state)
{
    (void)state;
    FILE *full = fopen("/dev/full", "wb");
    if (!full) skip();
    view_data data = small();
    attn_error error;
    assert_int_equal(view_write(full, &data, &error), ATTN_ERR_IO);
    assert_string_equal(error.message, "the page cannot be written");
    fclose(full);
}

static void repeats_its_bytes(void **state)
{
    (void)state;
    view_data data = small();
    char *one, *two;
    size_t bytes_one, bytes_two;
    attn_error error = {.status = ATTN_ERR_IO, .message = "old"};
    assert_int_equal(write_page(&data, &one, &bytes_one, &error), ATTN_OK);
    assert_int_equal(error.status, ATTN_OK);
    assert_string_equal(error.message, "");
    assert_int_equal(write_page(&data, &two, &bytes_two, NULL), ATTN_OK);
    assert_int_equal(bytes_one, bytes_two);
    assert_memory_equal(one, two, bytes_one);
    free(one);
    free(two);
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
        char *text;
        size_t bytes;
        FILE *out = open_memstream(&text, &bytes);
        assert_non_null(out);
        view_encode_text(out, cases[n].text);
        fclose(out);
        assert_string_equal(text, cases[n].json);
        free(text);
    }
}

static void encodes_little_endian(void **state)
{
    (void)state;
    char *text;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    view_base64 stream = {.out = out};
    view_base64_f32(&stream, 1.0f);   /* 00 00 80 3f */
    view_base64_u16(&stream, 0xfe01); /* 01 fe */
    view_base64_u16(&stream, 0x0203); /* 03 02, and a zero to fill */
    view_base64_end(&stream);
    fclose(out);
    assert_string_equal(text, "AACAPwH+AwIA");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_with_reason),        cmocka_unit_test(refuses_too_much),  cmocka_unit_test(escapes_text),
        cmocka_unit_test(says_that_the_disk_is_full), cmocka_unit_test(repeats_its_bytes), cmocka_unit_test(encodes_little_endian),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
