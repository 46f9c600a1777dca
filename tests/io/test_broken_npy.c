/* SPDX-License-Identifier: MIT
 *
 * test_broken_npy.c - broken .npy files, one by one, each with its exact message.
 */
#include "io_test.h"

#define HEADER(descr, order, shape) "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }\n"

static const struct {
    const char *header;
    size_t data;
    attn_status status;
    const char *message; /* after "bad.npy: " */
} broken[] = {
    {HEADER("'<f4'", "False", "(2, 13)"), 100, ATTN_ERR_FORMAT, "holds 100 bytes of data, shape [2, 13] of f32 needs 104"},
    {HEADER("'<f4'", "False", "(2, 13)"), 105, ATTN_ERR_FORMAT, "holds 105 bytes of data, shape [2, 13] of f32 needs 104"},
    {HEADER("'<f4'", "True", "()"), 0, ATTN_ERR_FORMAT, "holds 0 bytes of data, shape [] of f32 needs 4"},
    {HEADER("'<f4'", "False", "(4294967296, 4294967296)"), 0, ATTN_ERR_FORMAT,
     "no array of f32 can have the shape [4294967296, 4294967296]"},
    {HEADER("'<f8'", "False", "(0, 9223372036854775807)"), 0, ATTN_ERR_FORMAT,
     "no array of f64 can have the shape [0, 9223372036854775807]"},
    {HEADER("'<f4'", "False", "(9223372036854775808,)"), 0, ATTN_ERR_FORMAT, "header: byte 51: expected a size from 0 to 2^63-1"},
    {HEADER("'<f4'", "False", "(-1,)"), 0, ATTN_ERR_FORMAT, "header: byte 51: expected a size from 0 to 2^63-1"},
    {HEADER("'<f4'", "False", "(1.5,)"), 0, ATTN_ERR_FORMAT, "header: byte 52: expected a comma"},
    {HEADER("'<f4'", "False", "(007,)"), 0, ATTN_ERR_FORMAT, "header: byte 51: expected a size without leading zeros"},
    {HEADER("'<f4'", "False", "(3)"), 12, ATTN_ERR_FORMAT, "header: byte 53: expected a comma in a tuple of one"},
    {HEADER("'<f4'", "False", "(,)"), 0, ATTN_ERR_FORMAT, "header: byte 51: expected a size from 0 to 2^63-1"},
    {HEADER("'<f4'", "False", "(1 2)"), 0, ATTN_ERR_FORMAT, "header: byte 53: expected a comma"},
    {HEADER("'<f4'", "False", "[3]"), 12, ATTN_ERR_FORMAT, "header: byte 50: expected a tuple of sizes"},
    {HEADER("'<f4'", "False", "(1, 1, 1, 1, 1, 1, 1, 1, 1)"), 4, ATTN_ERR_UNSUPPORTED, "shape has more than 8 sizes"},
    {HEADER("'<f4'", "0", "()"), 4, ATTN_ERR_FORMAT, "header: byte 34: expected True or False"},
    {HEADER("'<f4'", "Falsey", "()"), 4, ATTN_ERR_FORMAT, "header: byte 39: expected a comma"},
    {HEADER("'|O'", "False", "()"), 8, ATTN_ERR_UNSUPPORTED,
     "dtype '|O' is not one of bool, int, uint and float with 8 to 64 bits"},
    {HEADER("'|V2'", "False", "()"), 2, ATTN_ERR_UNSUPPORTED,
     "dtype '|V2' is not one of bool, int, uint and float with 8 to 64 bits"},
    {HEADER("'<f16'", "False", "()"), 16, ATTN_ERR_UNSUPPORTED,
     "dtype '<f16' is not one of bool, int, uint and float with 8 to 64 bits"},
    {HEADER("'|f4'", "False", "()"), 4, ATTN_ERR_UNSUPPORTED,
     "dtype '|f4' is not one of bool, int, uint and float with 8 to 64 bits"},
    {HEADER("'f4'", "False", "()"), 4, ATTN_ERR_UNSUPPORTED,
     "dtype 'f4' is not one of bool, int, uint and float with 8 to 64 bits"},
    {HEADER("''", "False", "()"), 4, ATTN_ERR_UNSUPPORTED, "dtype '' is not one of bool, int, uint and float with 8 to 64 bits"},
    {HEADER("[('a', '<f4')]", "False", "()"), 4, ATTN_ERR_UNSUPPORTED,
     "structured arrays are not supported: descr is a list of fields"},
    {HEADER("'\\x3cf4'", "False", "()"), 4, ATTN_ERR_FORMAT, "header: byte 10: expected a short string without escapes"},
    {HEADER("'<f4", "False", "()"), 4, ATTN_ERR_UNSUPPORTED,
     "dtype '<f4, ' is not one of bool, int, uint and float with 8 to 64 bits"},
    {HEADER("__import__('os')", "False", "()"), 4, ATTN_ERR_FORMAT, "header: byte 10: expected a string"},
    {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}", 4, ATTN_ERR_FORMAT,
     "header: key 'descr' occurs twice"},
    {"{'descr': '<f4', 'fortran_order': False}", 4, ATTN_ERR_FORMAT, "header: key 'shape' is missing"},
    {"{'fortran_order': False, 'shape': ()}", 4, ATTN_ERR_FORMAT, "header: key 'descr' is missing"},
    {"{'descr': '<f4', 'shape': ()}", 4, ATTN_ERR_FORMAT, "header: key 'fortran_order' is missing"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (), 'x': 1}", 4, ATTN_ERR_FORMAT,
     "header: key 'x' is not one of descr, fortran_order, shape"},
    {"{'descr' '<f4'}", 4, ATTN_ERR_FORMAT, "header: byte 9: expected a colon"},
    {"{'descr': '<f4' 'shape': ()}", 4, ATTN_ERR_FORMAT, "header: byte 16: expected a comma"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': ()} x", 4, ATTN_ERR_FORMAT, "header: byte 54: expected nothing after '}'"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': ()", 4, ATTN_ERR_FORMAT, "header: byte 52: expected a comma"},
    {"{'descr': '<f4', ", 4, ATTN_ERR_FORMAT, "header: byte 17: expected a string"},
    {"()", 4, ATTN_ERR_FORMAT, "header: byte 0: expected '{'"},
    {"", 4, ATTN_ERR_FORMAT, "header: byte 0: expected '{'"},
};

/* The version and the header length in the file may be wrong. */
static attn_status read_file(int major, int minor, const char *header, uint32_t header_says, size_t data, attn_error *error)
{
    size_t length = strlen(header), begin = major == 1 ? 10 : 12, size = begin + length + data;
    unsigned char *bytes = calloc(1, size);
    memcpy(bytes, "\x93NUMPY", 6);
    bytes[6] = (unsigned char)major;
    bytes[7] = (unsigned char)minor;
    memcpy(bytes + 8, &header_says, begin - 8);
    memcpy(bytes + begin, header, length);
    return io_try_bytes("bad.npy", bytes, size, error);
}

static void says_what_is_wrong(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++)
        for (int version = 1; version <= 3; version++) {
            char expected[sizeof(attn_error)];
            snprintf(expected, sizeof expected, "bad.npy: %s", broken[i].message);
            uint32_t length = (uint32_t)strlen(broken[i].header);
            FAILS(read_file(version, 0, broken[i].header, length, broken[i].data, &error), broken[i].status, expected);
        }
}

static void broken_beginnings_are_rejected(void **state)
{
    (void)state;
    const char *good = HEADER("'<f4'", "False", "()");
    attn_archive *tensors;
    FAILS(read_file(4, 0, good, 60, 4, &error), ATTN_ERR_UNSUPPORTED, "bad.npy: version 4.0 of .npy is not 1.0, 2.0 or 3.0");
    FAILS(read_file(1, 1, good, 60, 4, &error), ATTN_ERR_UNSUPPORTED, "bad.npy: version 1.1 of .npy is not 1.0, 2.0 or 3.0");
    FAILS(read_file(1, 0, "{}", 99, 4, &error), ATTN_ERR_FORMAT, "bad.npy: header of 99 bytes, the file has 6 after its length");
    FAILS(read_file(2, 0, "{}", UINT32_MAX, 4, &error), ATTN_ERR_FORMAT,
          "bad.npy: header of 4294967295 bytes, at most 65536 are allowed");
    FAILS(attn_archive_read_memory(&tensors, "bad.npy", "\x93NUMPY\x01", 7, &error), ATTN_ERR_FORMAT,
          "bad.npy: 7 bytes are too few for an .npy file");
    FAILS(attn_archive_read_memory(&tensors, "bad.npy", "nonsense", 8, &error), ATTN_ERR_FORMAT,
          "bad.npy: does not begin like an .npy file");
    FAILS(attn_archive_read_memory(&tensors, "caf\xE9.npy", "\x93NUMPY nonsense", 15, &error), ATTN_ERR_FORMAT,
          "caf?.npy: tensor name 'caf?' is not UTF-8");
}

/* Unusual but valid. */
static void unusual_files_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t data;
    } unusual[] = {
        {"{'descr':'<f4','fortran_order':False,'shape':()}", 4},
        {"{\"shape\": (3L,4L,), \"fortran_order\": True, \"descr\": \">f2\"}   \n", 24},
        {HEADER("'<u1'", "True", "(0, 5)"), 0},
        {HEADER("'>i8'", "True", "(1, 1, 1, 1, 1, 1, 1, 1)"), 8},
    };
    for (size_t i = 0; i < sizeof unusual / sizeof unusual[0]; i++) {
        attn_error error;
        if (read_file(1, 0, unusual[i].header, (uint32_t)strlen(unusual[i].header), unusual[i].data, &error))
            fail_msg("%zu: %s", i, error.message);
    }
}

static void files_that_are_none_are_rejected(void **state)
{
    (void)state;
    attn_archive *tensors;
    const char *text = "the animal did not cross the street";
    FAILS(attn_archive_read_memory(&tensors, "notes.txt", text, strlen(text), &error), ATTN_ERR_FORMAT,
          "notes.txt: none of .safetensors, .npz, .npy and .gguf");
    FAILS(attn_archive_read_memory(&tensors, "q.npy", "", 0, &error), ATTN_ERR_FORMAT, "q.npy: the file is empty");
    FAILS(attn_archive_read_memory(&tensors, "q", NULL, 0, &error), ATTN_ERR_FORMAT, "q: the file is empty");
    FAILS(attn_archive_read_memory(&tensors, "q", NULL, 1, &error), ATTN_ERR_ARGUMENT, "q: bytes is NULL");
    FAILS(attn_archive_read_memory(&tensors, NULL, "q", 1, &error), ATTN_ERR_ARGUMENT, "name is NULL");
    FAILS(attn_archive_read_memory(NULL, "q", "q", 1, &error), ATTN_ERR_ARGUMENT, "tensors is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_what_is_wrong),
        cmocka_unit_test(broken_beginnings_are_rejected),
        cmocka_unit_test(unusual_files_are_read),
        cmocka_unit_test(files_that_are_none_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
