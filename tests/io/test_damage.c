/* SPDX-License-Identifier: MIT
 *
 * test_damage.c - files truncated at any byte are rejected; files with any one bit flipped are rejected or read, without other
 * harm. Under sanitizers this shows that no reader accesses memory outside the file.
 */
#include "gguf_file.h"
#include "io_test.h"

static const char *const paths[] = {"q.safetensors", "q.npz", "q.npy", "q.gguf"};
enum { FILES = sizeof paths / sizeof paths[0] };

static void write_samples(void)
{
    attn_archive *tensors = io_create(), *one = io_create();
    io_add_counting(tensors, "q", ATTN_F32, 2, (int64_t[]){2, 3});
    io_add_counting(tensors, "mask", ATTN_BOOL, 1, (int64_t[]){3});
    io_add_counting(tensors, "none", ATTN_F16, 2, (int64_t[]){0, 3});
    io_add_counting(one, "q", ATTN_F32, 2, (int64_t[]){2, 3});
    attn_archive_set_metadata(tensors, "tokens", "[\"it\"]", NULL);
    for (int i = 0; i < 3; i++) io_write(i < 2 ? tensors : one, paths[i]);
    attn_archive_destroy(one);
    attn_archive_destroy(tensors);
    gguf_file gguf = gguf_sample();
    io_store(paths[3], gguf.bytes, gguf.size);
    free(gguf.bytes);
}

/* Reads all data of all tensors, so that an invalid pointer is found. */
static attn_status read_and_use(const char *path, const unsigned char *bytes, size_t size)
{
    unsigned char *exact = malloc(size ? size : 1);
    memcpy(exact, bytes, size);
    attn_archive *tensors;
    attn_error error;
    attn_status status = attn_archive_read_memory(&tensors, path, exact, size, &error);
    assert_int_equal(error.status, status);
    if (status) {
        assert_null(tensors);
        assert_true(strlen(error.message) > strlen(path) + 2);
        assert_null(strchr(error.message, '\n'));
    } else assert_string_equal(error.message, "");
    for (int64_t i = 0; i < attn_archive_count(tensors); i++) {
        const attn_archive_tensor *tensor = attn_archive_at(tensors, i);
        assert_true((uintptr_t)tensor->data % attn_dtype_size(tensor->dtype) == 0 || !tensor->bytes);
        unsigned char *copy = malloc(tensor->bytes + 1);
        if (tensor->bytes) memcpy(copy, tensor->data, tensor->bytes);
        free(copy);
    }
    attn_archive_destroy(tensors);
    free(exact);
    return status;
}

static void cut_off_files_are_rejected(void **state)
{
    (void)state;
    write_samples();
    for (int i = 0; i < FILES; i++) {
        size_t size;
        unsigned char *bytes = io_load(paths[i], &size);
        assert_int_equal(read_and_use(paths[i], bytes, size), ATTN_OK);
        for (size_t cut = 0; cut < size; cut++)
            if (!read_and_use(paths[i], bytes, cut)) fail_msg("%s was read from %zu of %zu bytes", paths[i], cut, size);
        /* On disk as well, read and mapped. */
        for (size_t cut = 0; cut < size; cut += 7) {
            attn_archive *tensors;
            io_store(paths[i], bytes, cut);
            assert_int_not_equal(attn_archive_read(&tensors, paths[i], NULL), ATTN_OK);
            assert_null(tensors);
            assert_int_not_equal(attn_archive_map(&tensors, paths[i], NULL), ATTN_OK);
            assert_null(tensors);
        }
        free(bytes);
    }
}

static void longer_files_are_rejected(void **state)
{
    (void)state;
    write_samples();
    for (int i = 0; i < FILES; i++) {
        size_t size;
        unsigned char *bytes = io_load(paths[i], &size); /* io_load allocates one byte more */
        bytes[size] = 0;
        assert_int_equal(read_and_use(paths[i], bytes, size + 1), ATTN_ERR_FORMAT);
        free(bytes);
    }
}

static void turned_bits_harm_nothing(void **state)
{
    (void)state;
    write_samples();
    for (int i = 0; i < FILES; i++) {
        size_t size;
        int rejected = 0;
        unsigned char *bytes = io_load(paths[i], &size);
        for (size_t bit = 0; bit < size * 8; bit++) {
            bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
            rejected += read_and_use(paths[i], bytes, size) != ATTN_OK;
            bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
        assert_true(rejected > (int)size); /* the headers are more than an eighth of each file */
        free(bytes);
    }
}

/* Data in an .npz is under a CRC, so no change goes undetected. */
static void turned_data_of_npz_is_rejected(void **state)
{
    (void)state;
    attn_archive *tensors = io_create();
    size_t size;
    io_add_counting(tensors, "q", ATTN_U8, 1, (int64_t[]){100});
    io_write(tensors, "q.npz");
    attn_archive_destroy(tensors);
    unsigned char *bytes = io_load("q.npz", &size);
    size_t found = 0;
    for (size_t i = 0; i + 100 < size; i++)
        if (bytes[i] == 0 && bytes[i + 1] == 1 && bytes[i + 2] == 2 && bytes[i + 99] == 99) found = i;
    assert_true(found > 0);
    for (size_t i = found; i < found + 100; i++) {
        bytes[i] ^= 4;
        assert_int_equal(read_and_use("q.npz", bytes, size), ATTN_ERR_FORMAT);
        bytes[i] ^= 4;
    }
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_off_files_are_rejected),
        cmocka_unit_test(longer_files_are_rejected),
        cmocka_unit_test(turned_bits_harm_nothing),
        cmocka_unit_test(turned_data_of_npz_is_rejected),
    };
    return cmocka_run_group_tests(tests, io_enter_folder, io_leave_folder);
}
