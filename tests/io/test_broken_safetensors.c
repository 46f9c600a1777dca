/* SPDX-License-Identifier: MIT
 *
 * test_broken_safetensors.c - broken .safetensors files, one by one, each with its exact message.
 */
#include "io_test.h"

#define T(name, dtype, shape, offsets) "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static const struct {
    const char *header;
    size_t data;
    attn_status status;
    const char *message; /* after "bad.safetensors: " */
} broken[] = {
    /* sizes and offsets */
    {"{" T("q", "F32", "[2,13]", "[0,100]") "}", 100, ATTN_ERR_FORMAT,
     "tensor 'q': offsets [0, 100] hold 100 bytes, shape [2, 13] of f32 needs 104"},
    {"{" T("q", "F32", "[]", "[0,0]") "}", 0, ATTN_ERR_FORMAT, "tensor 'q': offsets [0, 0] hold 0 bytes, shape [] of f32 needs 4"},
    {"{" T("q", "U8", "[0]", "[0,1]") "}", 1, ATTN_ERR_FORMAT, "tensor 'q': offsets [0, 1] hold 1 bytes, shape [0] of u8 needs 0"},
    {"{" T("q", "U8", "[4]", "[0,4]") "}", 3, ATTN_ERR_FORMAT, "tensor 'q': offsets [0, 4] reach past the 3 bytes of data"},
    {"{" T("q", "U8", "[0]", "[9,9]") "}", 3, ATTN_ERR_FORMAT, "tensor 'q': offsets [9, 9] reach past the 3 bytes of data"},
    {"{" T("q", "U8", "[4]", "[4,0]") "}", 4, ATTN_ERR_FORMAT, "tensor 'q': offsets [4, 0] run backwards"},
    {"{" T("q", "U8", "[4]", "[0,4]") "}", 5, ATTN_ERR_FORMAT, "the file has 5 bytes of data, its tensors hold 4"},
    {"{}", 1, ATTN_ERR_FORMAT, "the file has 1 bytes of data, its tensors hold 0"},
    {"{" T("q", "U8", "[4]", "[0,4]") "," T("k", "U8", "[4]", "[2,6]") "}", 6, ATTN_ERR_FORMAT,
     "tensor 'k': data begins at 2, inside the tensor before it, which ends at 4"},
    {"{" T("q", "U8", "[4]", "[0,4]") "," T("k", "U8", "[4]", "[0,4]") "}", 4, ATTN_ERR_FORMAT,
     "tensor 'k': data begins at 0, inside the tensor before it, which ends at 4"},
    {"{" T("q", "U8", "[4]", "[0,4]") "," T("k", "U8", "[4]", "[6,10]") "}", 10, ATTN_ERR_FORMAT,
     "tensor 'k': data begins at 6, which leaves a hole: the tensor before it ends at 4"},
    {"{" T("q", "U8", "[2]", "[1,3]") "}", 3, ATTN_ERR_FORMAT,
     "tensor 'q': data begins at 1, which leaves a hole: the tensor before it ends at 0"},
    {"{" T("q", "F32", "[2147483648,2147483648]", "[0,4]") "}", 4, ATTN_ERR_FORMAT,
     "tensor 'q': no tensor of f32 can have the shape [2147483648, 2147483648]"},
    {"{" T("q", "F64", "[0,4503599627370496,4503599627370496]", "[0,0]") "}", 0, ATTN_ERR_FORMAT,
     "tensor 'q': no tensor of f64 can have the shape [0, 4503599627370496, 4503599627370496]"},
    /* numbers */
    {"{" T("q", "U8", "[-1]", "[0,1]") "}", 1, ATTN_ERR_FORMAT, "tensor 'q': size 0 of shape is not an integer from 0 to 2^53-1"},
    {"{" T("q", "U8", "[1,9007199254740992]", "[0,1]") "}", 1, ATTN_ERR_FORMAT,
     "tensor 'q': size 1 of shape is not an integer from 0 to 2^53-1"},
    {"{" T("q", "U8", "[\"1\"]", "[0,1]") "}", 1, ATTN_ERR_FORMAT,
     "tensor 'q': size 0 of shape is not an integer from 0 to 2^53-1"},
    {"{" T("q", "U8", "[1]", "[0,9007199254740993]") "}", 1, ATTN_ERR_FORMAT,
     "tensor 'q': data_offsets is not a list of two integers from 0 to 2^53-1"},
    {"{" T("q", "U8", "[1]", "[-1,0]") "}", 1, ATTN_ERR_FORMAT,
     "tensor 'q': data_offsets is not a list of two integers from 0 to 2^53-1"},
    {"{" T("q", "U8", "[1]", "[0]") "}", 1, ATTN_ERR_FORMAT,
     "tensor 'q': data_offsets is not a list of two integers from 0 to 2^53-1"},
    {"{" T("q", "U8", "[1]", "[0,1,2]") "}", 1, ATTN_ERR_FORMAT,
     "tensor 'q': data_offsets is not a list of two integers from 0 to 2^53-1"},
    {"{" T("q", "U8", "[1]", "1") "}", 1, ATTN_ERR_FORMAT,
     "tensor 'q': data_offsets is not a list of two integers from 0 to 2^53-1"},
    {"{" T("q", "U8", "[1.0]", "[0,1]") "}", 1, ATTN_ERR_FORMAT, "header: byte 28: number that is not an integer"},
    {"{" T("q", "U8", "[1e0]", "[0,1]") "}", 1, ATTN_ERR_FORMAT, "header: byte 28: number that is not an integer"},
    {"{" T("q", "U8", "[01]", "[0,1]") "}", 1, ATTN_ERR_FORMAT, "header: byte 28: number that is not an integer"},
    {"{" T("q", "U8", "[-]", "[0,1]") "}", 1, ATTN_ERR_FORMAT, "header: byte 28: number that is not an integer"},
    {"{" T("q", "U8", "[1.00000000000000000001]", "[0,1]") "}", 1, ATTN_ERR_FORMAT,
     "header: byte 28: number that is not an integer"},
    /* types and ranks */
    {"{" T("q", "F8_E4M3", "[1]", "[0,1]") "}", 1, ATTN_ERR_UNSUPPORTED,
     "tensor 'q': dtype 'F8_E4M3' is not one of F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32 U16 U8 BOOL"},
    {"{" T("q", "f32", "[1]", "[0,4]") "}", 4, ATTN_ERR_UNSUPPORTED,
     "tensor 'q': dtype 'f32' is not one of F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32 U16 U8 BOOL"},
    {"{" T("q", "U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 1, ATTN_ERR_UNSUPPORTED,
     "tensor 'q': shape has 9 sizes, at most 8 are supported"},
    /* structure */
    {"{\"q\":{\"dtype\":1,\"shape\":[],\"data_offsets\":[0,1]}}", 1, ATTN_ERR_FORMAT, "tensor 'q': dtype is not a string"},
    {"{\"q\":{\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]}}", 1, ATTN_ERR_FORMAT, "tensor 'q': shape is not a list"},
    {"{\"q\":{\"shape\":[],\"data_offsets\":[0,1]}}", 1, ATTN_ERR_FORMAT, "tensor 'q': key 'dtype' is missing"},
    {"{\"q\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, ATTN_ERR_FORMAT, "tensor 'q': key 'shape' is missing"},
    {"{\"q\":{\"dtype\":\"U8\",\"shape\":[]}}", 1, ATTN_ERR_FORMAT, "tensor 'q': key 'data_offsets' is missing"},
    {"{\"q\":{\"dtype\":\"U8\",\"shape\":[],\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, ATTN_ERR_FORMAT,
     "tensor 'q': key 'dtype' occurs twice"},
    {"{\"q\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1],\"scale\":2}}", 1, ATTN_ERR_FORMAT,
     "tensor 'q': key 'scale' is not one of dtype, shape, data_offsets"},
    {"{\"q\":[]}", 0, ATTN_ERR_FORMAT, "tensor 'q': not a JSON object"},
    {"{\"q\":null}", 0, ATTN_ERR_FORMAT, "tensor 'q': not a JSON object"},
    /* names */
    {"{" T("q", "U8", "[1]", "[0,1]") "," T("q", "U8", "[1]", "[1,2]") "}", 2, ATTN_ERR_FORMAT, "two tensors have the name 'q'"},
    {"{" T("q", "U8", "[1]", "[0,1]") "," T("k", "U8", "[1]", "[1,2]") "," T("\\u0071", "U8", "[1]", "[2,3]") "}", 3,
     ATTN_ERR_FORMAT, "two tensors have the name 'q'"},
    {"{" T("", "U8", "[1]", "[0,1]") "}", 1, ATTN_ERR_FORMAT, "a tensor has an empty name"},
    {"{" T("q\\u0000k", "U8", "[1]", "[0,1]") "}", 1, ATTN_ERR_FORMAT, "header: byte 3: NUL in a string"},
    {"{" T("q\nk", "U8", "[1]", "[0,1]") "}", 1, ATTN_ERR_FORMAT, "header: byte 3: control character in a string"},
    {"{" T("caf\xE9", "U8", "[1]", "[0,1]") "}", 1, ATTN_ERR_FORMAT, "header: not UTF-8"},
    {"{" T("q\\ud800", "U8", "[1]", "[0,1]") "}", 1, ATTN_ERR_FORMAT, "header: byte 3: not valid JSON"},
    {"{" T("q\\nk", "U8", "[2]", "[0,1]") "}", 1, ATTN_ERR_FORMAT,
     "tensor 'q?k': offsets [0, 1] hold 1 bytes, shape [2] of u8 needs 2"},
    /* metadata */
    {"{\"__metadata__\":{\"a\":\"b\"},\"__metadata__\":{}}", 0, ATTN_ERR_FORMAT, "the header has __metadata__ twice"},
    {"{\"__metadata__\":{\"a\":\"b\",\"a\":\"c\"}}", 0, ATTN_ERR_FORMAT, "metadata has the key 'a' twice"},
    {"{\"__metadata__\":{\"a\":1}}", 0, ATTN_ERR_FORMAT, "metadata 'a' is not a string"},
    {"{\"__metadata__\":[]}", 0, ATTN_ERR_FORMAT, "__metadata__ is not an object of strings"},
    /* JSON */
    {"{\"q\":{\"a\":[{}]}}", 0, ATTN_ERR_FORMAT, "header: byte 11: nested too deeply"},
    {"[[[[", 0, ATTN_ERR_FORMAT, "header: byte 0: JSON object expected"},
    {"\xEF\xBB\xBF{}", 0, ATTN_ERR_FORMAT, "header: byte 0: JSON object expected"},
    {"", 0, ATTN_ERR_FORMAT, "header: byte 0: JSON object expected"},
    {"{", 0, ATTN_ERR_FORMAT, "header: byte 0: not valid JSON"},
    {"{\"q", 0, ATTN_ERR_FORMAT, "header: byte 1: unterminated string"},
    {"{\"q\\", 0, ATTN_ERR_FORMAT, "header: byte 1: unterminated string"},
    {"{\"q\":tru}", 0, ATTN_ERR_FORMAT, "header: byte 5: not valid JSON"},
    {"{\"q\":1,}", 0, ATTN_ERR_FORMAT, "header: byte 7: not valid JSON"},
    {"{} {}", 0, ATTN_ERR_FORMAT, "header: byte 3: trailing text after the object"},
    {"{}\n", 0, ATTN_ERR_FORMAT, "header: byte 2: trailing text after the object"},
    {"{\x01}", 0, ATTN_ERR_FORMAT, "header: byte 1: character that is not JSON"},
    {"{/**/}", 0, ATTN_ERR_FORMAT, "header: byte 1: character that is not JSON"},
};

/* A file of this header and `data` bytes of zeros. */
static attn_status read_file(const char *header, size_t header_size, uint64_t header_says, size_t data, attn_error *error)
{
    size_t size = 8 + header_size + data;
    unsigned char *bytes = calloc(1, size);
    memcpy(bytes, &header_says, 8);
    memcpy(bytes + 8, header, header_size);
    return io_try_bytes("bad.safetensors", bytes, size, error);
}

static void says_what_is_wrong(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        char expected[sizeof(attn_error)];
        size_t length = strlen(broken[i].header);
        snprintf(expected, sizeof expected, "bad.safetensors: %s", broken[i].message);
        FAILS(read_file(broken[i].header, length, length, broken[i].data, &error), broken[i].status, expected);
    }
}

static void lying_header_lengths_are_rejected(void **state)
{
    (void)state;
    attn_archive *tensors;
    FAILS(read_file("{}", 2, 3, 0, &error), ATTN_ERR_FORMAT, "bad.safetensors: header of 3 bytes, the file has 2 after its length");
    FAILS(read_file("{}", 2, UINT64_MAX, 0, &error), ATTN_ERR_FORMAT,
          "bad.safetensors: header of 18446744073709551615 bytes, at most 100000000 are allowed");
    FAILS(read_file("{}", 2, 100000001, 0, &error), ATTN_ERR_FORMAT,
          "bad.safetensors: header of 100000001 bytes, at most 100000000 are allowed");
    FAILS(read_file("{}", 2, 0, 0, &error), ATTN_ERR_FORMAT, "bad.safetensors: header: byte 0: JSON object expected");
    FAILS(read_file("{}\0", 3, 3, 0, &error), ATTN_ERR_FORMAT, "bad.safetensors: header: byte 2: character that is not JSON");
    FAILS(attn_archive_read_memory(&tensors, "bad.safetensors", "1234567", 7, &error), ATTN_ERR_FORMAT,
          "bad.safetensors: 7 bytes are too few for a .safetensors file");
}

/* Unusual but valid. */
static void unusual_files_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t data;
    } unusual[] = {
        {"{}", 0},
        {"{}      ", 0},
        {"{ \"q\" :\n{\t\"data_offsets\":[0,1] , \"shape\":[],\r\"dtype\":\"U8\"} }", 1},
        {"{" T("b", "U8", "[2]", "[1,3]") "," T("a", "U8", "[0]", "[1,1]") "," T("c", "U8", "[1]", "[0,1]") "}", 3},
        {"{" T("a", "U8", "[0]", "[0,0]") "," T("b", "F32", "[0,9007199254740991]", "[0,0]") "}", 0},
        {"{\"__metadata__\":{}}", 0},
        {"{" T("q\\ud83d\\udc15\\\"\\\\", "BOOL", "[1,1,1,1,1,1,1,1]", "[0,1]") "}", 1},
    };
    for (size_t i = 0; i < sizeof unusual / sizeof unusual[0]; i++) {
        attn_error error;
        size_t length = strlen(unusual[i].header);
        if (read_file(unusual[i].header, length, length, unusual[i].data, &error)) fail_msg("%zu: %s", i, error.message);
    }
}

/* Calls of strcmp by the library. */
static long comparisons;
int __real_strcmp(const char *left, const char *right);
int __wrap_strcmp(const char *left, const char *right);
int __wrap_strcmp(const char *left, const char *right) { return comparisons++, __real_strcmp(left, right); }

/* How many comparisons of names it takes to read a file of so many tensors, whose names descend. */
static long comparisons_of(int count)
{
    enum { ENTRY = 64 };
    char *header = malloc((size_t)count * ENTRY + 2);
    size_t used = 0;
    assert_non_null(header);
    for (int i = count; i-- > 0;) used += (size_t)sprintf(header + used, "%c" T("%06d", "U8", "[0]", "[0,0]"), used ? ',' : '{', i);
    header[used++] = '}';
    attn_error error;
    comparisons = 0;
    if (read_file(header, used, used, 0, &error)) fail_msg("%s", error.message);
    free(header);
    return comparisons;
}

/* Sorting is not quadratic: 10 times the names take far fewer than 100 times the comparisons. */
static void many_tensors_take_few_comparisons(void **state)
{
    (void)state;
    const long few = comparisons_of(20000), many = comparisons_of(200000);
    assert_true(few > 20000);
    if (many > 15 * few) fail_msg("%ld comparisons of 20000 names, %ld of 200000", few, many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_what_is_wrong),
        cmocka_unit_test(lying_header_lengths_are_rejected),
        cmocka_unit_test(unusual_files_are_read),
        cmocka_unit_test(many_tensors_take_few_comparisons),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
