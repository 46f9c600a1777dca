/* SPDX-License-Identifier: MIT
 *
 * test_round_trip.c - files read back as they were written: every type, rank and format, sizes of zero, metadata; and writing again
 * gives the same bytes.
 */
#include "io_test.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

static const int64_t shape_of_rank[ATTN_MAX_RANK] = {3, 2, 1, 4, 1, 2, 1, 2};

static bool npy_has(attn_dtype dtype) { return dtype != ATTN_BF16; }

static attn_archive *all_types(bool bf16)
{
    attn_archive *tensors = io_create();
    for (int i = 0; i < 13; i++)
        for (int rank = 0; rank <= ATTN_MAX_RANK; rank++) {
            char name[32];
            snprintf(name, sizeof name, "%s/%d", attn_dtype_name(io_dtypes[i]), rank);
            if (bf16 || npy_has(io_dtypes[i])) io_add_counting(tensors, name, io_dtypes[i], rank, shape_of_rank);
        }
    io_add_counting(tensors, "none", ATTN_F64, 3, (int64_t[]){4, 0, 3});
    return tensors;
}

static void assert_all_types(const attn_archive *tensors, bool bf16)
{
    assert_int_equal(attn_archive_count(tensors), (bf16 ? 13 : 12) * 9 + 1);
    for (int i = 0; i < 13; i++)
        for (int rank = 0; rank <= ATTN_MAX_RANK; rank++) {
            char name[32];
            snprintf(name, sizeof name, "%s/%d", attn_dtype_name(io_dtypes[i]), rank);
            if (bf16 || npy_has(io_dtypes[i])) io_assert_counts(tensors, name, io_dtypes[i], rank, shape_of_rank);
        }
    io_assert_counts(tensors, "none", ATTN_F64, 3, (int64_t[]){4, 0, 3});
}

static void round_trip(const char *path, const char *again, bool bf16)
{
    attn_archive *written = all_types(bf16);
    attn_archive_set_metadata(written, "tokens", "[\"na\xC3\xAFve\", \"\\u0000\", \"a\\\"b\"]", NULL);
    attn_archive_set_metadata(written, "", "line\nline\ttab \x01", NULL);
    io_write(written, path);
    attn_archive *read = io_read(path);
    assert_all_types(read, bf16);
    assert_int_equal(attn_archive_metadata_count(read), 2);
    assert_string_equal(attn_archive_get_metadata(read, "tokens"), "[\"na\xC3\xAFve\", \"\\u0000\", \"a\\\"b\"]");
    assert_string_equal(attn_archive_get_metadata(read, ""), "line\nline\ttab \x01");
    /* Written over the file that was read, and to another one: the same bytes. */
    size_t size;
    unsigned char *bytes = io_load(path, &size);
    io_write(read, path);
    io_assert_same_file(path, bytes, size);
    assert_all_types(read, bf16);
    io_write(read, again);
    io_assert_same_file(again, bytes, size);
    free(bytes);
    attn_archive_destroy(read);
    attn_archive_destroy(written);
}

static void safetensors_holds_everything(void **state)
{
    (void)state;
    round_trip("all.safetensors", "again.safetensors", true);
}

static void npz_holds_everything_but_bf16(void **state)
{
    (void)state;
    round_trip("all.npz", "again.npz", false);
}

static void npy_holds_one(void **state)
{
    (void)state;
    for (int i = 0; i < 13; i++)
        for (int rank = 0; rank <= ATTN_MAX_RANK; rank++) {
            if (!npy_has(io_dtypes[i])) continue;
            attn_archive *written = io_create();
            io_add_counting(written, "q", io_dtypes[i], rank, shape_of_rank);
            attn_archive_set_metadata(written, "tokens", "[]", NULL);
            io_write(written, "one.more.npy");
            attn_archive *read = io_read("./one.more.npy");
            assert_int_equal(attn_archive_count(read), 1);
            assert_int_equal(attn_archive_metadata_count(read), 0);
            io_assert_counts(read, "one.more", io_dtypes[i], rank, shape_of_rank);
            attn_archive_destroy(read);
            attn_archive_destroy(written);
        }
}

static void empty_containers_are_files(void **state)
{
    (void)state;
    const char *paths[] = {"nothing.safetensors", "nothing.npz"};
    for (int with_metadata = 0; with_metadata < 2; with_metadata++)
        for (int i = 0; i < 2; i++) {
            attn_archive *tensors = io_create();
            if (with_metadata) attn_archive_set_metadata(tensors, "only", "text", NULL);
            io_write(tensors, paths[i]);
            attn_archive_destroy(tensors);
            tensors = io_read(paths[i]);
            assert_int_equal(attn_archive_count(tensors), 0);
            assert_int_equal(attn_archive_metadata_count(tensors), with_metadata);
            attn_archive_destroy(tensors);
        }
}

/* From 1e15 on a JSON printer of doubles would use an exponent, which other readers reject. */
static void huge_sizes_stay_integers(void **state)
{
    (void)state;
    const int64_t shape[] = {0, 4000000000000000};
    const char *paths[] = {"huge.safetensors", "huge.npz", "huge.npy"};
    for (int i = 0; i < 3; i++) {
        attn_archive *tensors = io_create();
        io_add_counting(tensors, "huge", ATTN_I8, 2, shape);
        io_write(tensors, paths[i]);
        attn_archive_destroy(tensors);
        tensors = io_read(paths[i]);
        io_assert_counts(tensors, "huge", ATTN_I8, 2, shape);
        attn_archive_destroy(tensors);
    }
}

static void format_is_told_by_content(void **state)
{
    (void)state;
    attn_archive *written = io_create();
    io_add_counting(written, "q", ATTN_F32, 1, &(int64_t){3});
    const char *paths[] = {"q.safetensors", "q.npz", "q.npy"};
    for (int i = 0; i < 3; i++) {
        io_write(written, paths[i]);
        assert_int_equal(rename(paths[i], "q"), 0);
        attn_archive *read = io_read("q");
        io_assert_counts(read, "q", ATTN_F32, 1, &(int64_t){3});
        attn_archive_destroy(read);
    }
    attn_archive_destroy(written);
}

static void memory_of_any_alignment_is_read(void **state)
{
    (void)state;
    const char *paths[] = {"q.safetensors", "q.npz", "q.npy"};
    attn_archive *written = io_create();
    io_add_counting(written, "q", ATTN_F64, 2, (int64_t[]){5, 3});
    for (int i = 0; i < 3; i++) {
        size_t size;
        io_write(written, paths[i]);
        unsigned char *bytes = io_load(paths[i], &size), *buffer = malloc(size + 8);
        for (int shift = 0; shift < 8; shift++) {
            attn_archive *read;
            memcpy(buffer + shift, bytes, size);
            assert_int_equal(attn_archive_read_memory(&read, paths[i], buffer + shift, size, NULL), ATTN_OK);
            io_assert_counts(read, "q", ATTN_F64, 2, (int64_t[]){5, 3});
            attn_archive_destroy(read);
        }
        free(buffer);
        free(bytes);
    }
    attn_archive_destroy(written);
}

/* Our files are read without a copy, whatever the length of the header, and with a tensor of odd size that sorts first. */
static void safetensors_are_mapped_not_copied(void **state)
{
    (void)state;
    for (int longer = 0; longer < 8; longer++) {
        char name[16] = "bbbbbbbbbbb";
        size_t size;
        name[longer + 1] = '\0';
        attn_archive *tensors = io_create();
        io_add_counting(tensors, "a", ATTN_U8, 1, &(int64_t){1001});
        io_add_counting(tensors, name, ATTN_F64, 1, &(int64_t){7});
        io_write(tensors, "mapped.safetensors");
        attn_archive_destroy(tensors);
        unsigned char *bytes = io_load("mapped.safetensors", &size);
        assert_int_equal(attn_archive_read_memory(&tensors, "mapped.safetensors", bytes, size, NULL), ATTN_OK);
        for (int i = 0; i < 2; i++) {
            const unsigned char *data = attn_archive_at(tensors, i)->data;
            assert_true(data >= bytes && data < bytes + size);
        }
        attn_archive_destroy(tensors);
        free(bytes);
    }
}

/* A container that was read no longer depends on its file; a mapped one does, but not on the file's name. */
static void files_may_change_once_they_are_read(void **state)
{
    (void)state;
    static const char *const names[] = {"a.safetensors", "a.npz", "a.npy"};
    for (int i = 0; i < 3; i++) {
        attn_archive *tensors = io_create(), *mapped;
        io_add_counting(tensors, "a", ATTN_F64, 2, (int64_t[]){300, 40});
        io_write(tensors, names[i]);
        attn_archive_destroy(tensors);
        tensors = io_read(names[i]);
        assert_int_equal(attn_archive_map(&mapped, names[i], NULL), ATTN_OK);
        io_assert_counts(mapped, "a", ATTN_F64, 2, (int64_t[]){300, 40});
        attn_archive_destroy(mapped);
        assert_int_equal(truncate(names[i], 4096), 0);
        io_assert_counts(tensors, "a", ATTN_F64, 2, (int64_t[]){300, 40});
        io_write(tensors, names[i]);
        assert_int_equal(attn_archive_map(&mapped, names[i], NULL), ATTN_OK);
        attn_archive_destroy(tensors);
        assert_int_equal(attn_file_write(names[i], "another", 7, NULL), ATTN_OK);
        io_assert_counts(mapped, "a", ATTN_F64, 2, (int64_t[]){300, 40});
        attn_archive_destroy(mapped);
    }
    assert_int_equal(attn_archive_map(NULL, "a.npz", NULL), ATTN_ERR_ARGUMENT);
}

/* Members carry 1980-01-01, the first day of zip's clock, and not the time of writing. */
static void npz_does_not_tell_the_time(void **state)
{
    (void)state;
    static const unsigned char first_day[4] = {0, 0, 0x21, 0};
    size_t size;
    attn_archive *tensors = io_create();
    io_add_counting(tensors, "q", ATTN_F32, 1, &(int64_t){3});
    io_write(tensors, "q.npz");
    attn_archive_destroy(tensors);
    unsigned char *bytes = io_load("q.npz", &size);
    assert_memory_equal(bytes + 10, first_day, 4);
    free(bytes);
}

typedef struct pipe_feed {
    const unsigned char *bytes;
    size_t size;
} pipe_feed;

static void *feed_pipe(void *argument)
{
    const pipe_feed *feed = argument;
    FILE *pipe = fopen("pipe", "wb");
    if (pipe) fwrite(feed->bytes, 1, feed->size, pipe), fclose(pipe);
    return NULL;
}

static void pipes_are_read_to_their_end(void **state)
{
    (void)state;
    const int64_t shape = 100000;
    pipe_feed feed;
    attn_archive *tensors = io_create();
    io_add_counting(tensors, "q", ATTN_I32, 1, &shape);
    io_write(tensors, "q.safetensors");
    attn_archive_destroy(tensors);
    unsigned char *bytes = io_load("q.safetensors", &feed.size);
    feed.bytes = bytes;
    pthread_t thread;
    assert_int_equal(mkfifo("pipe", 0600), 0);
    assert_int_equal(pthread_create(&thread, NULL, feed_pipe, &feed), 0);
    tensors = io_read("pipe");
    pthread_join(thread, NULL);
    io_assert_counts(tensors, "q", ATTN_I32, 1, &shape);
    attn_archive_destroy(tensors);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(safetensors_holds_everything),
        cmocka_unit_test(npz_holds_everything_but_bf16),
        cmocka_unit_test(npy_holds_one),
        cmocka_unit_test(empty_containers_are_files),
        cmocka_unit_test(huge_sizes_stay_integers),
        cmocka_unit_test(format_is_told_by_content),
        cmocka_unit_test(memory_of_any_alignment_is_read),
        cmocka_unit_test(safetensors_are_mapped_not_copied),
        cmocka_unit_test(files_may_change_once_they_are_read),
        cmocka_unit_test(npz_does_not_tell_the_time),
        cmocka_unit_test(pipes_are_read_to_their_end),
    };
    return cmocka_run_group_tests(tests, io_enter_folder, io_leave_folder);
}
