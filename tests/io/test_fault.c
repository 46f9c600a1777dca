/* SPDX-License-Identifier: MIT
 *
 * test_fault.c - every allocation fails once, by itself and together with all later ones: the call then fails for lack of memory,
 * nothing leaks (LeakSanitizer), no file is left behind and an old one is unchanged.
 *
 * Without sanitizers malloc is replaced for the whole process, libzip and cJSON included.  Sanitizers have their own malloc, so
 * there the linker wraps the calls of libattn_io (ATTN_FAULT_WRAP), and the hooks of cJSON cover cJSON.
 */
#include "gguf_file.h"
#include "io_test.h"

#include <cJSON.h>
#include <errno.h>
#include <time.h>
#include <unistd.h>

static long allocations_left = -1; /* -1: none fails */
static bool all_after, failed;

static bool fails(void)
{
    if (allocations_left < 0) return false;
    if (allocations_left > 0) {
        allocations_left--;
        return false;
    }
    if (!all_after) allocations_left = -1;
    errno = ENOMEM;
    return failed = true;
}

#ifdef ATTN_FAULT_WRAP
#define REAL(name)   __real_##name
#define FAULTY(name) __wrap_##name
#else
#define REAL(name)   __libc_##name
#define FAULTY(name) name
#endif

void *REAL(malloc)(size_t size);
void *REAL(calloc)(size_t count, size_t size);
void *REAL(realloc)(void *memory, size_t size);
void *FAULTY(malloc)(size_t size);
void *FAULTY(calloc)(size_t count, size_t size);
void *FAULTY(realloc)(void *memory, size_t size);

static long held; /* allocations that were not freed */

static void *count(void *memory)
{
    held += memory != NULL;
    return memory;
}

void *FAULTY(malloc)(size_t size) { return fails() ? NULL : count(REAL(malloc)(size)); }
void *FAULTY(calloc)(size_t number, size_t size) { return fails() ? NULL : count(REAL(calloc)(number, size)); }

void *FAULTY(realloc)(void *memory, size_t size)
{
    if (fails()) return NULL;
    return memory ? REAL(realloc)(memory, size) : count(REAL(realloc)(memory, size));
}

#ifdef ATTN_FAULT_WRAP
/* These two allocate inside libc, where the linker's wrap of malloc does not reach. */
char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);
char *__real_realpath(const char *path, char *resolved);
char *__wrap_realpath(const char *path, char *resolved);
char *__wrap_strdup(const char *text) { return fails() ? NULL : __real_strdup(text); }
char *__wrap_realpath(const char *path, char *resolved) { return !resolved && fails() ? NULL : __real_realpath(path, resolved); }

#define COUNTED 0 /* free is the sanitizer's */
#else
#define COUNTED 1
void __libc_free(void *memory);
void free(void *memory)
{
    held -= memory != NULL;
    __libc_free(memory);
}
#endif

/* Runs `attempt` with the n-th allocation failing, for every n; it returns whether it succeeded, with `error` as the library left
 * it.
 */
static void fail_every_allocation(bool (*attempt)(const char *path, attn_error *error),
                                  void (*check)(const char *path, bool succeeded), const char *path)
{
    for (int after = 0; after < 2; after++) {
        long n = 0, rejections = 0;
        do {
            attn_error error = {.status = ATTN_OK};
            all_after = after;
            failed = false;
            allocations_left = n++;
            long before = held;
            bool succeeded = attempt(path, &error);
            allocations_left = -1;
            check(path, succeeded);
            /* libzip 1.7 itself loses a few bytes when its own allocations fail (zip_close, zip_fopen_index). */
            bool libzip = path && strstr(path, ".npz");
            if (COUNTED && !libzip && held != before) fail_msg("allocation %ld: %ld are not freed", n - 1, held - before);
            if (!failed) assert_true(succeeded);
            if (succeeded) continue; /* libzip can do without some allocations */
            rejections++;
            /* cJSON and libzip do not always distinguish lack of memory from invalid JSON or zip. */
            bool untold = error.status == ATTN_ERR_FORMAT &&
                          (strstr(error.message, ": not valid JSON") || strstr(error.message, ": not a valid zip"));
            if (error.status != ATTN_ERR_MEMORY && !untold)
                fail_msg("allocation %ld: status %d: %s", n - 1, error.status, error.message);
            if (error.status == ATTN_ERR_MEMORY) assert_non_null(strstr(error.message, "cannot allocate memory"));
        } while (failed);
        assert_true(rejections > 0);
    }
}

static attn_archive *read_result;

static bool attempt_read(const char *path, attn_error *error) { return attn_archive_read(&read_result, path, error) == ATTN_OK; }

static void check_read(const char *path, bool succeeded)
{
    (void)path;
    if (!succeeded) assert_null(read_result);
    if (succeeded) {
        io_assert_counts(read_result, "q", ATTN_F32, 2, (int64_t[]){2, 3});
        const char *tokens = attn_archive_get_metadata(read_result, "tokens");
        assert_string_equal(tokens ? tokens : "none", strstr(path, ".npy") ? "none" : strstr(path, ".gguf") ? "[\"it\"]" : "[]");
    }
    attn_archive_destroy(read_result);
}

static attn_archive *source;

static bool attempt_write(const char *path, attn_error *error) { return attn_archive_write(source, path, error) == ATTN_OK; }

static void check_written(const char *path, bool succeeded)
{
    if (succeeded) {
        attn_archive *tensors = io_read(path);
        io_assert_counts(tensors, "q", ATTN_F32, 2, (int64_t[]){2, 3});
        attn_archive_destroy(tensors);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(io_count_files(), 0);
}

static void check_old_file(const char *path, bool succeeded)
{
    if (!succeeded) io_assert_same_file(path, "old", 3);
    io_store(path, "old", 3);
    assert_int_equal(io_count_files(), 1);
}

static attn_archive *new_sample(bool alone)
{
    attn_archive *tensors = io_create();
    io_add_counting(tensors, "q", ATTN_F32, 2, (int64_t[]){2, 3});
    if (!alone) io_add_counting(tensors, "mask", ATTN_BOOL, 1, (int64_t[]){3});
    attn_archive_set_metadata(tensors, "tokens", "[]", NULL);
    return tensors;
}

static const char *const paths[] = {"q.safetensors", "q.npz", "q.npy"};

static void writing_survives(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        source = new_sample(i == 2);
        fail_every_allocation(attempt_write, check_written, paths[i]);
        io_store(paths[i], "old", 3);
        fail_every_allocation(attempt_write, check_old_file, paths[i]);
        assert_int_equal(unlink(paths[i]), 0);
        attn_archive_destroy(source);
    }
}

static void reading_survives(void **state)
{
    (void)state;
    /* Big-endian and in Fortran order, so that it is copied: element k of the C order is k. */
    static const char fortran[] = "\x93NUMPY\x01\x00\x3A\x00{'descr': '>f4', 'fortran_order': True, 'shape': (2, 3), }"
                                  "\0\0\0\0\x40\x40\0\0\x3F\x80\0\0\x40\x80\0\0\x40\0\0\0\x40\xA0\0";
    for (int i = 0; i < 2; i++) {
        source = new_sample(false);
        io_write(source, paths[i]);
        attn_archive_destroy(source);
        fail_every_allocation(attempt_read, check_read, paths[i]);
        assert_int_equal(unlink(paths[i]), 0);
    }
    io_store("q.npy", fortran, sizeof fortran);
    fail_every_allocation(attempt_read, check_read, "q.npy");
    assert_int_equal(unlink("q.npy"), 0);
    gguf_file gguf = gguf_sample();
    io_store("q.gguf", gguf.bytes, gguf.size);
    free(gguf.bytes);
    fail_every_allocation(attempt_read, check_read, "q.gguf");
    assert_int_equal(unlink("q.gguf"), 0);
}

static attn_metadata_list *listed;

static bool attempt_list(const char *path, attn_error *error)
{
    (void)path;
    return attn_metadata_list_create(&listed, source, "tokens", error) == ATTN_OK;
}

static void check_list(const char *path, bool succeeded)
{
    (void)path;
    if (succeeded) assert_int_equal(listed->count, 0);
    else assert_null(listed);
    attn_metadata_list_destroy(listed);
}

static void listing_survives(void **state)
{
    (void)state;
    source = new_sample(true);
    fail_every_allocation(attempt_list, check_list, NULL);
    attn_archive_destroy(source);
}

static attn_archive *built;

static bool attempt_build(const char *path, attn_error *error)
{
    static const float numbers[6] = {0, 1, 2, 3, 4, 5};
    void *data;
    (void)path;
    if (attn_archive_create(&built, error)) return false;
    return !attn_archive_add(built, "q", ATTN_F32, 2, (int64_t[]){2, 3}, numbers, error) &&
           !attn_archive_allocate(built, "o", ATTN_F64, 1, (int64_t[]){3}, &data, error) &&
           !attn_archive_set_metadata(built, "tokens", "", error) && !attn_archive_set_metadata(built, "tokens", "[]", error);
}

static void check_built(const char *path, bool succeeded)
{
    (void)path;
    if (attn_archive_find(built, "q")) io_assert_counts(built, "q", ATTN_F32, 2, (int64_t[]){2, 3});
    if (succeeded) assert_string_equal(attn_archive_get_metadata(built, "tokens"), "[]");
    attn_archive_destroy(built);
    built = NULL;
}

static void building_survives(void **state)
{
    (void)state;
    fail_every_allocation(attempt_build, check_built, NULL);
}

int main(void)
{
    cJSON_Hooks hooks = {.malloc_fn = FAULTY(malloc), .free_fn = free};
    cJSON_InitHooks(&hooks);
    /* libzip asks for the time zone, which libc loads once and keeps. */
    setenv("TZ", "UTC0", 1);
    tzset();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writing_survives),
        cmocka_unit_test(reading_survives),
        cmocka_unit_test(listing_survives),
        cmocka_unit_test(building_survives),
    };
    return cmocka_run_group_tests(tests, io_enter_folder, io_leave_folder);
}
