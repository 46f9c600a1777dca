/* SPDX-License-Identifier: MIT
 *
 * test_foreign.c - files written by NumPy and the safetensors package (make_fixtures.py), and those of examples/data.
 */
#include "io_test.h"

#include <math.h>

#define DATA "tests/io/data/"

static const struct {
    const char *name;
    attn_dtype dtype;
} named[] = {{"f8", ATTN_F64}, {"f4", ATTN_F32}, {"f2", ATTN_F16}, {"i8", ATTN_I64}, {"i4", ATTN_I32}, {"i2", ATTN_I16},
             {"i1", ATTN_I8},  {"u8", ATTN_U64}, {"u4", ATTN_U32}, {"u2", ATTN_U16}, {"u1", ATTN_U8},  {"b1", ATTN_BOOL}};

static const int64_t shape[] = {2, 3}, none[] = {0, 3};

static void assert_all(const attn_archive *tensors)
{
    for (int i = 0; i < 12; i++) io_assert_counts(tensors, named[i].name, named[i].dtype, 2, shape);
    io_assert_counts(tensors, "scalar", ATTN_F32, 0, NULL);
    io_assert_counts(tensors, "none", ATTN_F64, 2, none);
}

static void reads_safetensors_of_its_package(void **state)
{
    (void)state;
    attn_archive *tensors = io_read(DATA "python.safetensors");
    assert_int_equal(attn_archive_count(tensors), 15);
    assert_all(tensors);
    io_assert_counts(tensors, "bf16", ATTN_BF16, 2, shape);
    assert_int_equal(attn_archive_metadata_count(tensors), 2);
    assert_string_equal(attn_archive_get_metadata(tensors, "tokens"), "[\"the\", \"na\xC3\xAFve\", \"\xE7\x8B\x97\"]");
    assert_string_equal(attn_archive_get_metadata(tensors, "note"), "tab\tquote\"");
    attn_archive_destroy(tensors);
    tensors = io_read(DATA "python_empty.safetensors");
    assert_int_equal(attn_archive_count(tensors), 0);
    attn_archive_destroy(tensors);
}

static void reads_npz_of_numpy(void **state)
{
    (void)state;
    const char *paths[] = {DATA "numpy.npz", DATA "numpy_deflated.npz"};
    for (int i = 0; i < 2; i++) {
        attn_archive *tensors = io_read(paths[i]);
        assert_int_equal(attn_archive_count(tensors), 14);
        assert_all(tensors);
        attn_archive_destroy(tensors);
    }
    attn_archive *tensors = io_read(DATA "numpy_empty.npz");
    assert_int_equal(attn_archive_count(tensors), 0);
    attn_archive_destroy(tensors);
}

static void reads_npy_of_numpy(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        attn_dtype dtype;
        int rank;
        int64_t shape[3];
    } files[] = {{"numpy_plain", ATTN_F32, 2, {2, 3}},      {"numpy_scalar", ATTN_I64, 0, {0}},
                 {"numpy_big_endian", ATTN_F32, 2, {2, 3}}, {"numpy_fortran", ATTN_F64, 3, {2, 3, 4}},
                 {"numpy_version_2", ATTN_U32, 1, {5}},     {"numpy_big_endian_fortran", ATTN_I16, 3, {2, 3, 4}},
                 {"numpy_version_3", ATTN_U32, 1, {5}},     {"python2", ATTN_F32, 2, {2, 3}}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[64];
        snprintf(path, sizeof path, DATA "%s.npy", files[i].name);
        attn_archive *tensors = io_read(path);
        assert_int_equal(attn_archive_count(tensors), 1);
        io_assert_counts(tensors, files[i].name, files[i].dtype, files[i].rank, files[i].shape);
        attn_archive_destroy(tensors);
    }
}

static void rejects_what_a_tensor_cannot_be(void **state)
{
    (void)state;
    attn_archive *tensors;
    FAILS(attn_archive_read(&tensors, DATA "numpy_complex.npy", &error), ATTN_ERR_UNSUPPORTED,
          DATA "numpy_complex.npy: dtype '<c8' is not one of bool, int, uint and float with 8 to 64 bits");
    assert_null(tensors);
    FAILS(attn_archive_read(&tensors, DATA "numpy_structured.npy", &error), ATTN_ERR_UNSUPPORTED,
          DATA "numpy_structured.npy: structured arrays are not supported: descr is a list of fields");
    assert_null(tensors);
}

/* Byte for byte what np.save writes. */
static void writes_npy_like_numpy(void **state)
{
    (void)state;
    const char *paths[] = {DATA "numpy_plain.npy", DATA "numpy_scalar.npy"};
    unsigned char *bytes[2];
    size_t sizes[2];
    attn_archive *tensors[2];
    for (int i = 0; i < 2; i++) {
        bytes[i] = io_load(paths[i], &sizes[i]);
        tensors[i] = io_read(paths[i]);
    }
    assert_int_equal(io_enter_folder(NULL), 0);
    for (int i = 0; i < 2; i++) {
        io_write(tensors[i], "ours.npy");
        io_assert_same_file("ours.npy", bytes[i], sizes[i]);
        attn_archive_destroy(tensors[i]);
        free(bytes[i]);
    }
    assert_int_equal(io_leave_folder(NULL), 0);
}

static void reads_a_real_file(void **state)
{
    (void)state;
    attn_archive *tensors = io_read("examples/data/animal_street.safetensors");
    const int64_t heads[] = {6, 12, 14, 32}, square[] = {6, 12, 14, 14};
    const char *names[] = {"q", "k", "v", "o", "weights"};
    for (int i = 0; i < 5; i++) {
        const attn_archive_tensor *tensor = attn_archive_find(tensors, names[i]);
        assert_non_null(tensor);
        assert_int_equal(tensor->dtype, ATTN_F32);
        assert_int_equal(tensor->rank, 4);
        assert_memory_equal(tensor->shape, i < 4 ? heads : square, sizeof heads);
    }
    /* Layer 3, head 1: "it" gives 0.687 of its weight to "animal". */
    const char *tokens = attn_archive_get_metadata(tensors, "tokens");
    assert_non_null(strstr(tokens, "\"animal\""));
    const float *weights = attn_archive_find(tensors, "weights")->data;
    const float *head = weights + (3 * 12 + 1) * 14 * 14;
    for (int i = 0; i < 14; i++) {
        float sum = 0;
        for (int j = 0; j < 14; j++) sum += head[i * 14 + j];
        assert_true(fabsf(sum - 1) < 1e-5f);
    }
    assert_true(fabsf(head[9 * 14 + 2] - 0.687f) < 1e-3f);
    attn_archive *layer = io_read("examples/data/animal_street_layer2.safetensors");
    assert_int_equal(attn_archive_count(layer), 11);
    const float *same = attn_archive_find(layer, "weights")->data;
    for (int i = 0; i < 12 * 14 * 14; i++) assert_true(fabsf(same[i] - weights[2 * 12 * 14 * 14 + i]) < 1e-6f);
    attn_archive_destroy(layer);
    attn_archive_destroy(tensors);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_safetensors_of_its_package),
        cmocka_unit_test(reads_npz_of_numpy),
        cmocka_unit_test(reads_npy_of_numpy),
        cmocka_unit_test(rejects_what_a_tensor_cannot_be),
        cmocka_unit_test(writes_npy_like_numpy),
        cmocka_unit_test(reads_a_real_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
