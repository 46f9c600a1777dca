/* SPDX-License-Identifier: MIT
 *
 * test_gguf.c - tensors and metadata of .gguf files: numbers as they are, blocks packed here by ggml's definitions
 * (src/ggml-quants.c in github.com/ggml-org/ggml, quantize_row_*_ref), and every type of metadata as text.
 */
#include "gguf_file.h"
#include "io_test.h"

/* A scale in binary16, and its value. */
static const struct {
    uint16_t bits;
    double value;
} scales[] = {{0x3800, 0.5},
              {0x3E01, 1.5009765625},
              {0xB555, -0.333251953125},
              {0x0001, 0x1p-24},
              {0x83FF, -1023 * 0x1p-24},
              {0x0400, 0x1p-14},
              {0x7BFF, 65504},
              {0x0000, 0}};
enum { SCALES = sizeof scales / sizeof scales[0], MOST = 256 };

static unsigned draw(unsigned below)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % below;
}

/* The bytes of one block with scale number s and, where there is one, minimum number m; fills its numbers, exact in double. */
typedef size_t packer(unsigned char *block, int s, int m, double *numbers);

static void put_scale(unsigned char *at, int s) { memcpy(at, &scales[s].bits, 2); }

static size_t pack_q8_0(unsigned char *block, int s, int m, double *numbers)
{
    (void)m;
    put_scale(block, s);
    for (int i = 0; i < 32; i++) {
        const int digit = (int)draw(256) - 128;
        block[2 + i] = (unsigned char)digit;
        numbers[i] = scales[s].value * digit;
    }
    return 34;
}

static size_t pack_q4_0(unsigned char *block, int s, int m, double *numbers)
{
    (void)m;
    put_scale(block, s);
    for (int i = 0; i < 32; i++) {
        const unsigned digit = draw(16);
        block[2 + i % 16] |= (unsigned char)(digit << (i / 16 * 4));
        numbers[i] = scales[s].value * ((int)digit - 8);
    }
    return 18;
}

static size_t pack_q4_1(unsigned char *block, int s, int m, double *numbers)
{
    put_scale(block, s), put_scale(block + 2, m);
    for (int i = 0; i < 32; i++) {
        const unsigned digit = draw(16);
        block[4 + i % 16] |= (unsigned char)(digit << (i / 16 * 4));
        numbers[i] = scales[s].value * digit + scales[m].value;
    }
    return 20;
}

static size_t pack_q4_k(unsigned char *block, int s, int m, double *numbers)
{
    unsigned char *steps = block + 4, *digits = block + 16;
    put_scale(block, s), put_scale(block + 2, m);
    for (int run = 0; run < 8; run++) {
        const unsigned step = draw(64), minimum = draw(64);
        if (run < 4) {
            steps[run] = (unsigned char)step;
            steps[run + 4] = (unsigned char)minimum;
        } else {
            steps[run + 4] = (unsigned char)((step & 15) | (minimum & 15) << 4);
            steps[run - 4] |= (unsigned char)(step >> 4 << 6);
            steps[run] |= (unsigned char)(minimum >> 4 << 6);
        }
        for (int i = 0; i < 32; i++) {
            const unsigned digit = draw(16);
            digits[run / 2 * 32 + i] |= (unsigned char)(digit << (run % 2 * 4));
            numbers[run * 32 + i] = scales[s].value * step * digit - scales[m].value * minimum;
        }
    }
    return 144;
}

static size_t pack_q6_k(unsigned char *block, int s, int m, double *numbers)
{
    unsigned digits[256];
    (void)m;
    put_scale(block + 208, s);
    for (int i = 0; i < 256; i++) digits[i] = draw(64);
    for (int run = 0; run < 16; run++) {
        const int step = (int)draw(256) - 128;
        block[192 + run] = (unsigned char)step;
        for (int i = 16 * run; i < 16 * run + 16; i++) numbers[i] = scales[s].value * step * ((int)digits[i] - 32);
    }
    for (int part = 0; part < 2; part++)
        for (int i = 0; i < 32; i++) {
            const unsigned *d = digits + 128 * part + i;
            block[64 * part + i] = (unsigned char)((d[0] & 15) | (d[64] & 15) << 4);
            block[64 * part + i + 32] = (unsigned char)((d[32] & 15) | (d[96] & 15) << 4);
            block[128 + 32 * part + i] = (unsigned char)(d[0] >> 4 | d[32] >> 4 << 2 | d[64] >> 4 << 4 | d[96] >> 4 << 6);
        }
    return 210;
}

static const struct {
    const char *name;
    uint32_t type;
    int numbers;
    packer *pack;
} quantised[] = {{"Q8_0", 8, 32, pack_q8_0},
                 {"Q4_0", 2, 32, pack_q4_0},
                 {"Q4_1", 3, 32, pack_q4_1},
                 {"Q4_K", 12, 256, pack_q4_k},
                 {"Q6_K", 14, 256, pack_q6_k}};

/* A row of three blocks, and another one, so that blocks and rows lie where they should. */
static void blocks_are_decoded(void **state)
{
    (void)state;
    for (size_t t = 0; t < sizeof quantised / sizeof quantised[0]; t++) {
        const uint64_t row = 3 * (uint64_t)quantised[t].numbers;
        for (int s = 0; s < SCALES; s++) {
            gguf_file f;
            double numbers[6 * MOST];
            gguf_begin(&f, 1, 0);
            gguf_tensor(&f, quantised[t].name, 2, (uint64_t[]){row, 2}, quantised[t].type, 0);
            gguf_pad(&f, 32);
            for (int b = 0; b < 6; b++) {
                unsigned char block[MOST] = {0};
                const size_t bytes = quantised[t].pack(block, s, (s + b) % SCALES, numbers + b * quantised[t].numbers);
                gguf_put(&f, block, bytes);
            }
            attn_archive *file;
            attn_error error;
            if (attn_archive_read_memory(&file, "x.gguf", f.bytes, f.size, &error)) fail_msg("%s", error.message);
            const attn_archive_tensor *tensor = attn_archive_find(file, quantised[t].name);
            assert_true(tensor->dtype == ATTN_F32 && tensor->rank == 2 && tensor->shape[0] == 2 &&
                        tensor->shape[1] == (int64_t)row && tensor->bytes == 8 * row);
            for (uint64_t i = 0; i < 2 * row; i++)
                if (((const float *)tensor->data)[i] != (float)numbers[i])
                    fail_msg("%s, scale %d, number %d: %.9g, not %.9g", quantised[t].name, s, (int)i,
                             (double)((const float *)tensor->data)[i], numbers[i]);
            attn_archive_destroy(file);
            free(f.bytes);
        }
    }
}

/* Types that need no decoding, at an offset that is aligned and, in memory that is not, copied; either version. */
static void numbers_are_kept(void **state)
{
    (void)state;
    static const struct {
        uint32_t type;
        attn_dtype dtype;
    } plain[] = {{0, ATTN_F32}, {1, ATTN_F16},  {30, ATTN_BF16}, {28, ATTN_F64},
                 {24, ATTN_I8}, {25, ATTN_I16}, {26, ATTN_I32},  {27, ATTN_I64}};
    enum { PLAIN = sizeof plain / sizeof plain[0], COUNT = 24 };
    gguf_file f;
    uint64_t offset = 0;
    gguf_begin(&f, PLAIN, 0);
    for (int i = 0; i < PLAIN; i++) {
        gguf_tensor(&f, attn_dtype_name(plain[i].dtype), 3, (uint64_t[]){4, 3, 2}, plain[i].type, offset);
        offset = (offset + COUNT * attn_dtype_size(plain[i].dtype) + 31) / 32 * 32;
    }
    for (int i = 0; i < PLAIN; i++) {
        unsigned char data[COUNT * 8];
        gguf_pad(&f, 32);
        io_fill(plain[i].dtype, data, COUNT);
        gguf_put(&f, data, COUNT * attn_dtype_size(plain[i].dtype));
    }
    for (size_t shift = 0; shift < 2; shift++) {
        attn_archive *file;
        attn_error error;
        unsigned char *copy = malloc(f.size + shift);
        memcpy(copy + shift, f.bytes, f.size);
        copy[shift + 4] = (unsigned char)(2 + shift); /* the version */
        if (attn_archive_read_memory(&file, "x.gguf", copy + shift, f.size, &error)) fail_msg("%s", error.message);
        assert_int_equal(attn_archive_count(file), PLAIN);
        for (int i = 0; i < PLAIN; i++)
            io_assert_counts(file, attn_dtype_name(plain[i].dtype), plain[i].dtype, 3, (int64_t[]){2, 3, 4});
        if (shift == 0) /* not copied */
            assert_true((const unsigned char *)attn_archive_find(file, "f64")->data > copy &&
                        (const unsigned char *)attn_archive_find(file, "f64")->data < copy + f.size);
        attn_archive_destroy(file);
        free(copy);
    }
    free(f.bytes);
}

static void files_are_read_and_mapped(void **state)
{
    (void)state;
    gguf_file f = gguf_sample();
    io_store("model.bin", f.bytes, f.size); /* the name does not matter */
    for (int map = 0; map < 2; map++) {
        attn_archive *file;
        attn_error error;
        if ((map ? attn_archive_map : attn_archive_read)(&file, "model.bin", &error)) fail_msg("%s", error.message);
        io_assert_counts(file, "q", ATTN_F32, 2, (int64_t[]){2, 3});
        const float *k = attn_archive_find(file, "k")->data;
        for (int i = 0; i < 32; i++) assert_true(k[i] == 0.5F * (float)(i - 16));
        assert_string_equal(attn_archive_get_metadata(file, "tokens"), "[\"it\"]");
        attn_archive_destroy(file);
    }
    free(f.bytes);
}

/* One of those that attn_archive_read_some asks for; counts the calls. */
static int is_k(void *context, const attn_archive_tensor *tensor)
{
    ++*(int *)context;
    assert_null(tensor->data);
    assert_true(tensor->dtype == ATTN_F32 && tensor->bytes);
    return !strcmp(tensor->name, "k");
}

static void some_are_read(void **state)
{
    (void)state;
    static const char *const paths[] = {"some.gguf", "some.safetensors", "some.npz"};
    gguf_file f = gguf_sample();
    attn_archive *file;
    io_store(paths[0], f.bytes, f.size);
    for (int kind = 0; kind < 3; kind++) {
        attn_error error;
        int calls = 0;
        if (kind) { /* the same in another format */
            assert_int_equal(attn_archive_read(&file, paths[0], &error), ATTN_OK);
            assert_int_equal(attn_archive_write(file, paths[kind], &error), ATTN_OK);
            attn_archive_destroy(file);
        }
        if (attn_archive_read_some(&file, paths[kind], is_k, &calls, &error)) fail_msg("%s", error.message);
        assert_int_equal(calls, 3);
        assert_int_equal(attn_archive_count(file), 1);
        const float *k = attn_archive_find(file, "k")->data;
        for (int i = 0; i < 32; i++) assert_true(k[i] == 0.5F * (float)(i - 16));
        attn_archive_destroy(file);
    }
    FAILS(attn_archive_read_some(&file, "some.gguf", NULL, NULL, &error), ATTN_ERR_ARGUMENT, "some.gguf: wanted is NULL");
    assert_null(file);
    free(f.bytes);
}

static void metadata_is_text(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        uint32_t type;
        const char *bytes;
        size_t size;
        const char *text;
    } entries[] = {
        {"u8", U8, "\xFF", 1, "255"},
        {"i8", I8, "\xFF", 1, "-1"},
        {"u16", U16, "\x01\x80", 2, "32769"},
        {"i16", I16, "\x00\x80", 2, "-32768"},
        {"u32", U32, "\xFF\xFF\xFF\xFF", 4, "4294967295"},
        {"i32", I32, "\xFE\xFF\xFF\xFF", 4, "-2"},
        {"u64", U64, "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 8, "18446744073709551615"},
        {"i64", I64, "\x00\x00\x00\x00\x00\x00\x00\x80", 8, "-9223372036854775808"},
        {"f32", F32, "\xAC\xC5\x27\x37", 4, "1e-05"},
        {"f32 of 8 digits", F32, "\x01\x00\x80\x3F", 4, "1.0000001"},
        {"infinity", F32, "\x00\x00\x80\xFF", 4, "-inf"},
        {"f64", F64, "\x9A\x99\x99\x99\x99\x99\xB9\x3F", 8, "0.1"},
        {"true", BOOL, "\x01", 1, "true"},
        {"false", BOOL, "\x00", 1, "false"},
        {"text", TEXT, "\6\0\0\0\0\0\0\0a\"\\\n\xC3\xA9", 8 + 6, "a\"\\\n\xC3\xA9"},
        {"list", LIST, "\1\0\0\0\3\0\0\0\0\0\0\0\x01\xFF\x80", 15, "[1,-1,-128]"},
        {"texts", LIST, "\x8\0\0\0\2\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\"\2\0\0\0\0\0\0\0\x1F\n", 31, "[\"\\\"\",\"\\u001f\\u000a\"]"},
        {"reals", LIST, "\6\0\0\0\2\0\0\0\0\0\0\0\0\0\x80\x7F\0\0\0\x3F", 20, "[\"inf\",0.5]"},
        {"empty", LIST, "\0\0\0\0\0\0\0\0\0\0\0\0", 12, "[]"},
        {"lists", LIST, "\x9\0\0\0\2\0\0\0\0\0\0\0\7\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0", 37, "[[true],[]]"},
    };
    enum { COUNT = sizeof entries / sizeof entries[0] };
    gguf_file f;
    attn_archive *file;
    attn_error error;
    gguf_begin(&f, 0, COUNT);
    for (int i = 0; i < COUNT; i++) {
        gguf_key(&f, entries[i].key, entries[i].type);
        gguf_put(&f, entries[i].bytes, entries[i].size);
    }
    if (attn_archive_read_memory(&file, "x.gguf", f.bytes, f.size, &error)) fail_msg("%s", error.message);
    assert_int_equal(attn_archive_metadata_count(file), COUNT);
    for (int i = 0; i < COUNT; i++) assert_string_equal(attn_archive_get_metadata(file, entries[i].key), entries[i].text);
    attn_archive_destroy(file);
    free(f.bytes);
}

/* general.alignment moves the data. */
static void alignment_is_kept(void **state)
{
    (void)state;
    for (uint32_t alignment = 8; alignment <= 4096; alignment *= 8) {
        gguf_file f;
        gguf_begin(&f, 2, 1);
        gguf_key(&f, "general.alignment", U32);
        gguf_u32(&f, alignment);
        gguf_tensor(&f, "a", 1, (uint64_t[]){6}, 0, 0);
        gguf_tensor(&f, "b", 0, NULL, 0, (24 + alignment - 1) / alignment * alignment);
        gguf_pad(&f, alignment);
        gguf_put(&f, (float[]){0, 1, 2, 3, 4, 5}, 24);
        gguf_pad(&f, alignment);
        gguf_put(&f, (float[]){0}, 4);
        attn_archive *file;
        attn_error error;
        if (attn_archive_read_memory(&file, "x.gguf", f.bytes, f.size, &error)) fail_msg("%s", error.message);
        io_assert_counts(file, "a", ATTN_F32, 1, (int64_t[]){6});
        io_assert_counts(file, "b", ATTN_F32, 0, NULL);
        attn_archive_destroy(file);
        free(f.bytes);
    }
}

static void is_not_written(void **state)
{
    (void)state;
    attn_archive *file = io_create();
    FAILS(attn_archive_write(file, "x.gguf", &error), ATTN_ERR_ARGUMENT, "x.gguf: the name must end in .safetensors, .npz or .npy");
    attn_archive_destroy(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_decoded), cmocka_unit_test(numbers_are_kept),  cmocka_unit_test(files_are_read_and_mapped),
        cmocka_unit_test(metadata_is_text),   cmocka_unit_test(alignment_is_kept), cmocka_unit_test(is_not_written),
        cmocka_unit_test(some_are_read),
    };
    return cmocka_run_group_tests(tests, io_enter_folder, io_leave_folder);
}
