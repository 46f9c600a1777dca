/* SPDX-License-Identifier: MIT
 *
 * test_broken_gguf.c - broken .gguf files, one by one, each with its exact message.
 */
#include "gguf_file.h"
#include "io_test.h"

static attn_status try(gguf_file f, attn_error *error)
{
    unsigned char *exact = malloc(f.size ? f.size : 1);
    memcpy(exact, f.bytes, f.size);
    free(f.bytes);
    return io_try_bytes("bad.gguf", exact, f.size, error);
}

static void broken_headers_are_rejected(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        attn_status status;
        const char *message;
    } broken[] = {
        {"GGU", 3, ATTN_ERR_FORMAT, "does not begin like a .gguf file"},
        {"GGUX\3\0\0\0", 8, ATTN_ERR_FORMAT, "does not begin like a .gguf file"},
        {"GGUF\3\0", 6, ATTN_ERR_FORMAT, "the file ends inside the header, at byte 6"},
        {"GGUF\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20, ATTN_ERR_FORMAT, "the file ends inside the header, at byte 20"},
        {"GGUF\1\0\0\0", 8, ATTN_ERR_UNSUPPORTED, "version 1 of .gguf is not 2 or 3"},
        {"GGUF\4\0\0\0", 8, ATTN_ERR_UNSUPPORTED, "version 4 of .gguf is not 2 or 3"},
        {"GGUF\0\0\0\3", 8, ATTN_ERR_UNSUPPORTED, "the file is big-endian"},
        {"GGUF\3\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24, ATTN_ERR_FORMAT,
         "1 tensors and 0 metadata entries, the file has 0 bytes after the header"},
        {"GGUF\3\0\0\0\0\0\0\0\0\0\0\0\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\0\0\0\0\0\0\0\0\0\0\0\0\0", 37, ATTN_ERR_FORMAT,
         "0 tensors and 18446744073709551615 metadata entries, the file has 13 bytes after the header"},
    };
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        char expected[sizeof(attn_error)];
        gguf_file f = {0};
        gguf_put(&f, broken[i].bytes, broken[i].size);
        snprintf(expected, sizeof expected, "bad.gguf: %s", broken[i].message);
        FAILS(try(f, &error), broken[i].status, expected);
    }
}

/* Entries whose value is these bytes. */
static void broken_metadata_is_rejected(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        uint32_t type;
        const char *bytes;
        size_t size;
        attn_status status;
        const char *message;
    } broken[] = {
        {"a", 13, "", 0, ATTN_ERR_FORMAT, "metadata 'a': a value of type 13, which is not 0 to 12"},
        {"a", BOOL, "\2", 1, ATTN_ERR_FORMAT, "metadata 'a': a bool is 2"},
        {"a", F64, "1234567", 7, ATTN_ERR_FORMAT, "metadata 'a': the file ends inside metadata, at byte 44"},
        {"a", TEXT, "\4\0\0\0\0\0\0\0abc", 11, ATTN_ERR_FORMAT, "metadata 'a': a text of 4 bytes, the file has 3 after its length"},
        {"a", TEXT, "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 8, ATTN_ERR_FORMAT,
         "metadata 'a': a text of 18446744073709551615 bytes, the file has 0 after its length"},
        {"a", TEXT, "\2\0\0\0\0\0\0\0a\0", 10, ATTN_ERR_FORMAT, "metadata 'a': NUL in a text"},
        {"a", TEXT, "\1\0\0\0\0\0\0\0\xE9", 9, ATTN_ERR_FORMAT, "metadata 'a': a text is not UTF-8"},
        {"caf\xE9", U8, "\1", 1, ATTN_ERR_FORMAT, "a metadata key is not UTF-8"},
        {"a", LIST, "\15\0\0\0\0\0\0\0\0\0\0\0", 12, ATTN_ERR_FORMAT, "metadata 'a': items of type 13, which is not 0 to 12"},
        {"a", LIST, "\0\0\0\0\3\0\0\0\0\0\0\0ab", 14, ATTN_ERR_FORMAT,
         "metadata 'a': a list of 3 items, the file has 2 bytes after its length"},
        {"a", LIST, "\x8\0\0\0\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x1F\0\0\0\0\0\0\0\0", 20, ATTN_ERR_FORMAT,
         "metadata 'a': a list of 2305843009213693951 items, the file has 8 bytes after its length"},
        {"a", LIST,
         "\x9\0\0\0\1\0\0\0\0\0\0\0\x9\0\0\0\1\0\0\0\0\0\0\0\x9\0\0\0\1\0\0\0\0\0\0\0\x9\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
         "\0\0",
         60, ATTN_ERR_UNSUPPORTED, "metadata 'a': lists in more than 4 lists"},
        {"general.alignment", U32, "\x30\0\0\0", 4, ATTN_ERR_FORMAT,
         "metadata 'general.alignment': is 48, not a power of 2 from 8 on in a u32"},
        {"general.alignment", U32, "\0\0\0\0", 4, ATTN_ERR_FORMAT,
         "metadata 'general.alignment': is 0, not a power of 2 from 8 on in a u32"},
        {"general.alignment", U8, "\x20", 1, ATTN_ERR_FORMAT,
         "metadata 'general.alignment': is 32, not a power of 2 from 8 on in a u32"},
        {"general.alignment", TEXT, "\3\0\0\0\0\0\0\0\n\x1b[", 11, ATTN_ERR_FORMAT,
         "metadata 'general.alignment': is ??[, not a power of 2 from 8 on in a u32"},
    };
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        char expected[sizeof(attn_error)];
        gguf_file f;
        gguf_begin(&f, 0, 1);
        gguf_key(&f, broken[i].key, broken[i].type);
        gguf_put(&f, broken[i].bytes, broken[i].size);
        snprintf(expected, sizeof expected, "bad.gguf: %s", broken[i].message);
        FAILS(try(f, &error), broken[i].status, expected);
    }
}

/* Files of two tensors with this data. */
static void broken_tensors_are_rejected(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t axes;
        uint64_t ne[5];
        uint32_t type;
        uint64_t offset;
        size_t data;
        attn_status status;
        const char *message;
    } broken[] = {
        {"a", 5, {1, 1, 1, 1, 1}, 0, 32, 36, ATTN_ERR_FORMAT, "tensor 'a': 5 axes, at most 4 are allowed"},
        {"a", 1, {UINT64_MAX}, 0, 32, 36, ATTN_ERR_FORMAT, "tensor 'a': size 18446744073709551615 of axis 0 is too large"},
        {"a",
         2,
         {INT64_MAX, 2},
         24,
         32,
         36,
         ATTN_ERR_FORMAT,
         "tensor 'a': no tensor of I8 can have the shape [2, 9223372036854775807]"},
        {"a",
         1,
         {INT64_MAX / 4 / 32 * 32 + 32},
         2,
         32,
         36,
         ATTN_ERR_FORMAT,
         "tensor 'a': no tensor of Q4_0 can have the shape [2305843009213693952]"},
        {"a",
         1,
         {1},
         11,
         32,
         36,
         ATTN_ERR_UNSUPPORTED,
         "tensor 'a': type 11 (Q3_K) is not one of F64 F32 F16 BF16 I64 I32 I16 I8 Q8_0 Q6_K Q4_K Q4_1 Q4_0"},
        {"a",
         1,
         {1},
         99,
         32,
         36,
         ATTN_ERR_UNSUPPORTED,
         "tensor 'a': type 99 is not one of F64 F32 F16 BF16 I64 I32 I16 I8 Q8_0 Q6_K Q4_K Q4_1 Q4_0"},
        {"a", 2, {33, 32}, 8, 32, 5000, ATTN_ERR_FORMAT, "tensor 'a': rows of shape [32, 33] are no blocks of 32 numbers (Q8_0)"},
        {"a", 0, {0}, 12, 32, 200, ATTN_ERR_FORMAT, "tensor 'a': rows of shape [] are no blocks of 256 numbers (Q4_K)"},
        {"a",
         1,
         {1},
         0,
         36,
         40,
         ATTN_ERR_FORMAT,
         "tensor 'a': data begins at 36, and not at 32, where that of the tensor before it ends"},
        {"a",
         1,
         {1},
         0,
         0,
         36,
         ATTN_ERR_FORMAT,
         "tensor 'a': data begins at 0, and not at 32, where that of the tensor before it ends"},
        {"a", 1, {1}, 0, 32, 35, ATTN_ERR_FORMAT, "tensor 'a': 4 bytes from 32 on reach past the 35 bytes of data"},
        {"a", 1, {32}, 8, 32, 65, ATTN_ERR_FORMAT, "tensor 'a': 34 bytes from 32 on reach past the 65 bytes of data"},
        {"a",
         1,
         {INT64_MAX / 8},
         28,
         32,
         65,
         ATTN_ERR_FORMAT,
         "tensor 'a': 9223372036854775800 bytes from 32 on reach past the 65 bytes of data"},
        {"a", 1, {1}, 0, 32, 65, ATTN_ERR_FORMAT, "the file has 65 bytes of data, its tensors hold 36"},
        {"q", 1, {1}, 0, 32, 36, ATTN_ERR_FORMAT, "two tensors have the name 'q'"},
        {"", 1, {1}, 0, 32, 36, ATTN_ERR_FORMAT, "a tensor has an empty name"},
        {"caf\xE9", 1, {1}, 0, 32, 36, ATTN_ERR_FORMAT, "a tensor's name is not UTF-8"},
        {"__metadata__", 1, {1}, 0, 32, 36, ATTN_ERR_FORMAT, "no tensor can have the name '__metadata__'"},
        {"a", 1, {1}, 0, 32, 36, ATTN_OK, ""},
        {"a", 1, {1}, 0, 32, 64, ATTN_OK, ""}, /* the padding of the last tensor may be there */
    };
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        char expected[sizeof(attn_error)];
        gguf_file f;
        gguf_begin(&f, 2, 0);
        gguf_tensor(&f, "q", 1, (uint64_t[]){1}, 0, 0);
        gguf_tensor(&f, broken[i].name, broken[i].axes, broken[i].ne, broken[i].type, broken[i].offset);
        gguf_pad(&f, 32);
        for (size_t k = 0; k < broken[i].data; k++) gguf_put(&f, "", 1);
        snprintf(expected, sizeof expected, "bad.gguf: %s", broken[i].message);
        if (broken[i].status == ATTN_OK) assert_int_equal(try(f, NULL), ATTN_OK);
        else FAILS(try(f, &error), broken[i].status, expected);
    }
}

static void what_is_twice_is_rejected(void **state)
{
    (void)state;
    gguf_file f;
    gguf_begin(&f, 0, 2);
    gguf_entry(&f, "a", "");
    gguf_entry(&f, "a", "b");
    FAILS(try(f, &error), ATTN_ERR_FORMAT, "bad.gguf: metadata has the key 'a' twice");
    gguf_begin(&f, 1, 0);
    gguf_tensor(&f, "q", 1, (uint64_t[]){0}, 0, 0);
    FAILS(try(f, &error), ATTN_ERR_FORMAT, "bad.gguf: the file ends before its data, at byte 57");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broken_headers_are_rejected),
        cmocka_unit_test(broken_metadata_is_rejected),
        cmocka_unit_test(broken_tensors_are_rejected),
        cmocka_unit_test(what_is_twice_is_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
