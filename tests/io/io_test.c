/* SPDX-License-Identifier: MIT
 *
 * io_test.c - helpers of the io tests.
 */
#include "io_test.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

const attn_dtype io_dtypes[13] = {ATTN_F32, ATTN_F64, ATTN_F16, ATTN_BF16, ATTN_BOOL, ATTN_I8, ATTN_U8,
                                  ATTN_I16, ATTN_U16, ATTN_I32, ATTN_U32,  ATTN_I64,  ATTN_U64};

static char folder[64], home[4096];

/* The bits of a small integer in a format of `mantissa` bits under `bias`. */
static uint16_t small_float(unsigned k, int mantissa, int bias)
{
    if (k == 0) return 0;
    int exponent = 0;
    while (k >> (exponent + 1)) exponent++;
    unsigned fraction = (k - (1u << exponent)) << (mantissa - exponent);
    return (uint16_t)((unsigned)(exponent + bias) << mantissa | fraction);
}

void io_fill(attn_dtype dtype, void *data, size_t count)
{
    for (size_t k = 0; k < count; k++) switch (dtype) {
        case ATTN_F32:
            ((float *)data)[k] = (float)k;
            break;
        case ATTN_F64:
            ((double *)data)[k] = (double)k;
            break;
        case ATTN_F16:
            ((uint16_t *)data)[k] = small_float((unsigned)k, 10, 15);
            break;
        case ATTN_BF16:
            ((uint16_t *)data)[k] = small_float((unsigned)k, 7, 127);
            break;
        case ATTN_BOOL:
            ((uint8_t *)data)[k] = k & 1;
            break;
        case ATTN_I8:
        case ATTN_U8:
            ((uint8_t *)data)[k] = (uint8_t)k;
            break;
        case ATTN_I16:
        case ATTN_U16:
            ((uint16_t *)data)[k] = (uint16_t)k;
            break;
        case ATTN_I32:
        case ATTN_U32:
            ((uint32_t *)data)[k] = (uint32_t)k;
            break;
        case ATTN_I64:
        case ATTN_U64:
            ((uint64_t *)data)[k] = k;
            break;
        default:
            fail_msg("dtype %d", (int)dtype);
        }
}

static size_t elements(int rank, const int64_t *shape)
{
    size_t count = 1;
    for (int i = 0; i < rank; i++) count *= (size_t)shape[i];
    return count;
}

void io_assert_counts(const attn_archive *tensors, const char *name, attn_dtype dtype, int rank, const int64_t *shape)
{
    const attn_archive_tensor *tensor = attn_archive_find(tensors, name);
    if (!tensor) fail_msg("no tensor '%s'", name);
    assert_string_equal(tensor->name, name);
    assert_string_equal(attn_dtype_name(tensor->dtype), attn_dtype_name(dtype));
    assert_int_equal(tensor->rank, rank);
    for (int i = 0; i < rank; i++) assert_true(tensor->shape[i] == shape[i]);
    size_t count = elements(rank, shape), bytes = count * attn_dtype_size(dtype);
    assert_true(tensor->bytes == bytes);
    if (!bytes) return;
    assert_true((uintptr_t)tensor->data % attn_dtype_size(dtype) == 0);
    void *expected = malloc(bytes);
    io_fill(dtype, expected, count);
    assert_memory_equal(tensor->data, expected, bytes);
    free(expected);
}

void io_add_counting(attn_archive *tensors, const char *name, attn_dtype dtype, int rank, const int64_t *shape)
{
    attn_error error;
    void *data;
    if (attn_archive_allocate(tensors, name, dtype, rank, shape, &data, &error)) fail_msg("%s", error.message);
    assert_true((uintptr_t)data % 64 == 0);
    io_fill(dtype, data, elements(rank, shape));
}

attn_archive *io_create(void)
{
    attn_archive *tensors;
    assert_int_equal(attn_archive_create(&tensors, NULL), ATTN_OK);
    return tensors;
}

attn_archive *io_read(const char *path)
{
    attn_archive *tensors;
    attn_error error = {.status = ATTN_ERR_IO, .message = "stale"};
    if (attn_archive_read(&tensors, path, &error)) fail_msg("%s", error.message);
    assert_int_equal(error.status, ATTN_OK);
    assert_string_equal(error.message, "");
    return tensors;
}

attn_status io_try_bytes(const char *name, unsigned char *bytes, size_t size, attn_error *error)
{
    attn_archive *tensors;
    const attn_status status = attn_archive_read_memory(&tensors, name, bytes, size, error);
    if (status) assert_null(tensors);
    attn_archive_destroy(tensors);
    free(bytes);
    return status;
}

void io_write(const attn_archive *tensors, const char *path)
{
    attn_error error = {.status = ATTN_ERR_IO, .message = "stale"};
    if (attn_archive_write(tensors, path, &error)) fail_msg("%s", error.message);
    assert_int_equal(error.status, ATTN_OK);
    assert_string_equal(error.message, "");
}

unsigned char *io_load(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("cannot open %s", path);
    struct stat description;
    assert_int_equal(fstat(fileno(file), &description), 0);
    *size = (size_t)description.st_size;
    unsigned char *bytes = malloc(*size + 1);
    assert_int_equal(fread(bytes, 1, *size, file), *size);
    fclose(file);
    return bytes;
}

void io_store(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    if (size) assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

void io_assert_same_file(const char *path, const void *bytes, size_t size)
{
    size_t is_size;
    unsigned char *is = io_load(path, &is_size);
    assert_int_equal(is_size, size);
    assert_memory_equal(is, bytes, size);
    free(is);
}

int io_enter_folder(void **state)
{
    (void)state;
    const char *parent = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/attn-io-XXXXXX", parent && strlen(parent) < 40 ? parent : "/tmp");
    return !getcwd(home, sizeof home) || !mkdtemp(folder) || chdir(folder);
}

int io_leave_folder(void **state)
{
    (void)state;
    DIR *entries = opendir(folder);
    if (!entries || chdir(folder)) return -1;
    for (struct dirent *entry; (entry = readdir(entries));) remove(entry->d_name);
    closedir(entries);
    return chdir(home) || rmdir(folder);
}

int io_count_files(void)
{
    int count = 0;
    DIR *entries = opendir(".");
    assert_non_null(entries);
    for (struct dirent *entry; (entry = readdir(entries));) count += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
    closedir(entries);
    return count;
}
