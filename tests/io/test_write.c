/* SPDX-License-Identifier: MIT
 *
 * test_write.c - writing: a file appears complete or not at all, whatever the operating system rejects.
 */
#include "io_test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *const paths[] = {"o.safetensors", "o.npz", "o.npy"};

static int time_stands; /* 1: the clock shows 5 s */

static int clear_folder(void **state)
{
    (void)state;
    time_stands = 0;
    for (int i = 0; i < 3; i++) unlink(paths[i]);
    return 0;
}

static attn_archive *sample(void)
{
    attn_archive *tensors = io_create();
    io_add_counting(tensors, "o", ATTN_F64, 2, (int64_t[]){64, 64});
    return tensors;
}

static void unwritable_tensors_are_rejected(void **state)
{
    (void)state;
    attn_archive *tensors = sample();
    FAILS(attn_archive_write(tensors, "o.txt", &error), ATTN_ERR_ARGUMENT,
          "o.txt: the name must end in .safetensors, .npz or .npy");
    FAILS(attn_archive_write(tensors, "folder.npy/o", &error), ATTN_ERR_ARGUMENT,
          "folder.npy/o: the name must end in .safetensors, .npz or .npy");
    FAILS(attn_archive_write(tensors, NULL, &error), ATTN_ERR_ARGUMENT, "path is NULL");
    FAILS(attn_archive_write(NULL, "o.npy", &error), ATTN_ERR_ARGUMENT, "o.npy: tensors is NULL");
    io_add_counting(tensors, "p", ATTN_BF16, 1, (int64_t[]){3});
    FAILS(attn_archive_write(tensors, "o.npy", &error), ATTN_ERR_SHAPE,
          "o.npy: .npy holds one tensor, not 2: write .safetensors or .npz");
    FAILS(attn_archive_write(tensors, "o.npz", &error), ATTN_ERR_UNSUPPORTED,
          "o.npz: tensor 'p': NumPy has no type for bf16: write .safetensors, or convert to f32");
    attn_archive_destroy(tensors);
    tensors = io_create();
    FAILS(attn_archive_write(tensors, "o.npy", &error), ATTN_ERR_SHAPE,
          "o.npy: .npy holds one tensor, not 0: write .safetensors or .npz");
    io_add_counting(tensors, "p", ATTN_BF16, 1, (int64_t[]){3});
    FAILS(attn_archive_write(tensors, "o.npy", &error), ATTN_ERR_UNSUPPORTED,
          "o.npy: tensor 'p': NumPy has no type for bf16: write .safetensors, or convert to f32");
    attn_archive_destroy(tensors);
    tensors = io_create();
    io_add_counting(tensors, "a\x01", ATTN_F32, 1, (int64_t[]){3});
    FAILS(attn_archive_write(tensors, "o.npz", &error), ATTN_ERR_UNSUPPORTED,
          "o.npz: tensor 'a?': a name with the control character 0x01 is not possible in .npz");
    attn_archive_destroy(tensors);
    tensors = io_create();
    char *name = malloc(70001);
    memset(name, 'n', 70000);
    name[70000] = '\0';
    io_add_counting(tensors, name, ATTN_F32, 1, (int64_t[]){3});
    FAILS(attn_archive_write(tensors, "o.npz", &error), ATTN_ERR_UNSUPPORTED,
          "o.npz: tensor 'nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn...': a name of 70000 bytes is too "
          "long for .npz");
    io_write(tensors, "o.safetensors");
    free(name);
    attn_archive_destroy(tensors);
    assert_int_equal(io_count_files(), 1);
}

static void rejections_of_the_system_are_said(void **state)
{
    (void)state;
    attn_archive *tensors = sample(), *read;
    attn_error too_long;
    char name[300];
    memset(name, 'n', sizeof name);
    strcpy(name + 290, ".npy");
    FAILS(attn_archive_read(&read, "absent.npz", &error), ATTN_ERR_IO, "absent.npz: cannot open: No such file or directory");
    FAILS(attn_archive_read(&read, ".", &error), ATTN_ERR_IO, ".: is a directory");
    FAILS(attn_archive_read(&read, "/dev/null", &error), ATTN_ERR_IO, "/dev/null: is neither a file nor a pipe");
    FAILS(attn_archive_read(&read, NULL, &error), ATTN_ERR_ARGUMENT, "path is NULL");
    FAILS(attn_archive_write(tensors, "absent/o.npz", &error), ATTN_ERR_IO,
          "absent/o.npz: cannot create a file beside it: No such file or directory");
    assert_int_equal(attn_archive_write(tensors, name, &too_long), ATTN_ERR_IO);
    assert_non_null(strstr(too_long.message, "n.npy: cannot write: File name too long"));
    assert_int_equal(mkdir("o.npz", 0700), 0);
    FAILS(attn_archive_write(tensors, "o.npz", &error), ATTN_ERR_IO, "o.npz: is a directory");
    assert_int_equal(rmdir("o.npz"), 0);
    assert_int_equal(mkfifo("o.npy", 0600), 0);
    FAILS(attn_archive_write(tensors, "o.npy", &error), ATTN_ERR_IO, "o.npy: exists and is not a file");
    assert_int_equal(unlink("o.npy"), 0);
    assert_int_equal(io_count_files(), 0);
    attn_archive_destroy(tensors);
}

/* Runs a check in a child process, since it changes its limits, user or signals. */
static void in_a_process(void (*check)(void))
{
    pid_t child = fork();
    int status;
    assert_true(child >= 0);
    if (child == 0) {
        check();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

#define EXIT_UNLESS(condition)                                                                                                     \
    do {                                                                                                                           \
        if (!(condition)) {                                                                                                        \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                                                \
            _exit(1);                                                                                                              \
        }                                                                                                                          \
    } while (0)

static void check_full_disk(void)
{
    attn_archive *tensors = sample();
    attn_error error;
    char expected[80];
    signal(SIGXFSZ, SIG_IGN);
    /* 32 KiB are to be written: the first block fails, one in the middle, the last. */
    const rlim_t limits[] = {0, 5000, 32768 + 63};
    for (int l = 0; l < 3; l++)
        for (int i = 0; i < 3; i++) {
            EXIT_UNLESS(!setrlimit(RLIMIT_FSIZE, &(struct rlimit){limits[l], RLIM_INFINITY}));
            snprintf(expected, sizeof expected, "%s: cannot write: File too large", paths[i]);
            EXIT_UNLESS(attn_archive_write(tensors, paths[i], &error) == ATTN_ERR_IO);
            EXIT_UNLESS(!strcmp(error.message, expected));
            EXIT_UNLESS(error.status == ATTN_ERR_IO);
        }
    EXIT_UNLESS(attn_file_write("page.html", "text", 4, &error) == ATTN_OK);
    EXIT_UNLESS(!unlink("page.html"));
    attn_archive_destroy(tensors);
}

static void a_full_disk_leaves_nothing_behind(void **state)
{
    (void)state;
    in_a_process(check_full_disk);
    assert_int_equal(io_count_files(), 0);
}

static void a_full_disk_leaves_the_old_file(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) io_store(paths[i], "old", 3);
    in_a_process(check_full_disk);
    for (int i = 0; i < 3; i++) io_assert_same_file(paths[i], "old", 3);
    assert_int_equal(io_count_files(), 3);
}

static attn_unfinished unfinished;
static int was_there; /* when the signal came */

static void on_limit(int number)
{
    (void)number;
    was_there = unfinished.there && access(unfinished.path, F_OK) == 0;
    attn_unfinished_remove(&unfinished);
}

/* Here, exceeding the limit on file sizes raises a signal in the middle of a write. */
static void check_watched(void)
{
    attn_archive *tensors = sample();
    char *text = calloc(1, 9000);
    attn_error error;
    EXIT_UNLESS(!sigaction(SIGXFSZ, &(struct sigaction){.sa_handler = on_limit}, NULL));
    EXIT_UNLESS(!setrlimit(RLIMIT_FSIZE, &(struct rlimit){5000, RLIM_INFINITY}));
    for (int i = 0; i < 4; i++) {
        was_there = 0;
        EXIT_UNLESS((i < 3 ? attn_archive_write_watched(tensors, paths[i], &unfinished, &error)
                           : attn_file_write_watched("page.html", text, 9000, &unfinished, &error)) == ATTN_ERR_IO);
        EXIT_UNLESS(was_there);
        EXIT_UNLESS(!unfinished.there);
        EXIT_UNLESS(io_count_files() == 0);
    }
    EXIT_UNLESS(attn_file_write_watched("page.html", text, 4000, &unfinished, &error) == ATTN_OK);
    EXIT_UNLESS(!unfinished.there);
    attn_unfinished_remove(&unfinished); /* nothing to remove: the file has its final name */
    attn_unfinished_remove(NULL);
    EXIT_UNLESS(io_count_files() == 1);
    EXIT_UNLESS(attn_file_write_watched("absent/page.html", text, 1, &unfinished, &error) == ATTN_ERR_IO);
    EXIT_UNLESS(!unfinished.there);
    EXIT_UNLESS(!unlink("page.html"));
    free(text);
    attn_archive_destroy(tensors);
}

static void a_signal_handler_can_remove_the_temporary_file(void **state)
{
    (void)state;
    in_a_process(check_watched);
    assert_int_equal(io_count_files(), 0);
}

static void check_read_only_folder(void)
{
    attn_archive *tensors = sample();
    attn_error error;
    if (geteuid() == 0) EXIT_UNLESS(!setuid(65534));
    for (int i = 0; i < 3; i++) {
        char expected[80];
        snprintf(expected, sizeof expected, "%s: cannot create a file beside it: Permission denied", paths[i]);
        EXIT_UNLESS(attn_archive_write(tensors, paths[i], &error) == ATTN_ERR_IO);
        EXIT_UNLESS(!strcmp(error.message, expected));
    }
    attn_archive_destroy(tensors);
}

static void a_read_only_folder_stays_as_it_is(void **state)
{
    (void)state;
    io_store("o.npz", "old", 3);
    assert_int_equal(chmod(".", 0555), 0);
    in_a_process(check_read_only_folder);
    assert_int_equal(chmod(".", 0700), 0);
    io_assert_same_file("o.npz", "old", 3);
    assert_int_equal(io_count_files(), 1);
}

static void new_files_have_the_umask_permissions(void **state)
{
    (void)state;
    attn_archive *tensors = sample();
    const mode_t masks[] = {022, 077, 002};
    for (int m = 0; m < 3; m++)
        for (int i = 0; i < 3; i++) {
            struct stat description;
            mode_t before = umask(masks[m]);
            io_write(tensors, paths[i]);
            umask(before);
            assert_int_equal(stat(paths[i], &description), 0);
            assert_int_equal(description.st_mode & 0777, 0666 & ~masks[m]);
        }
    assert_int_equal(io_count_files(), 3);
    attn_archive_destroy(tensors);
}

static void links_are_followed(void **state)
{
    (void)state;
    attn_archive *tensors = sample();
    struct stat description;
    assert_int_equal(mkdir("there", 0700), 0);
    assert_int_equal(symlink("there/real.npy", "o.npy"), 0);
    FAILS(attn_archive_write(tensors, "o.npy", &error), ATTN_ERR_IO, "o.npy: cannot follow the link: No such file or directory");
    io_store("there/real.npy", "old", 3);
    io_write(tensors, "o.npy");
    assert_int_equal(lstat("o.npy", &description), 0);
    assert_true(S_ISLNK(description.st_mode));
    attn_archive_destroy(tensors);
    tensors = io_read("there/real.npy");
    io_assert_counts(tensors, "real", ATTN_F64, 2, (int64_t[]){64, 64});
    attn_archive_destroy(tensors);
    assert_int_equal(unlink("there/real.npy"), 0);
    assert_int_equal(rmdir("there"), 0);
    assert_int_equal(io_count_files(), 1);
}

int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    if (!time_stands) return __real_clock_gettime(clock, now);
    *now = (struct timespec){.tv_sec = 5};
    return 0;
}

static void leftover_name(char name[80], int attempt)
{
    (void)snprintf(name, 80, ".attn-%ld-500000000-%d.tmp", (long)getpid(), attempt);
}

/* Temporary files that are there already, as after the crash of a process with our number, are left alone. */
static void leftovers_of_others_are_left_alone(void **state)
{
    enum { SOME = 3, ALL = 1000 }; /* attempts to find another name */
    char name[80];
    attn_archive *tensors = sample();
    (void)state;
    time_stands = 1;
    for (int n = 0; n < ALL; n++) {
        if (n == SOME) io_write(tensors, "o.npy");
        leftover_name(name, n);
        io_store(name, "theirs", 6);
    }
    FAILS(attn_archive_write(tensors, "o.npz", &error), ATTN_ERR_IO, "o.npz: cannot create a file beside it: File exists");
    time_stands = 0;
    assert_int_equal(io_count_files(), ALL + 1);
    for (int n = 0; n < ALL; n++) {
        leftover_name(name, n);
        io_assert_same_file(name, "theirs", 6);
        assert_int_equal(unlink(name), 0);
    }
    attn_archive_destroy(tensors);
}

static void any_file_is_written_the_same_way(void **state)
{
    (void)state;
    attn_error good = {.status = ATTN_ERR_IO};
    assert_int_equal(attn_file_write("page.html", "<p>", 3, &good), ATTN_OK);
    assert_int_equal(good.status, ATTN_OK);
    io_assert_same_file("page.html", "<p>", 3);
    assert_int_equal(attn_file_write("page.html", NULL, 0, NULL), ATTN_OK);
    io_assert_same_file("page.html", "", 0);
    FAILS(attn_file_write("page.html", NULL, 1, &error), ATTN_ERR_ARGUMENT, "page.html: bytes is NULL");
    FAILS(attn_file_write(NULL, "", 0, &error), ATTN_ERR_ARGUMENT, "path is NULL");
    FAILS(attn_file_write("absent/page.html", "", 0, &error), ATTN_ERR_IO,
          "absent/page.html: cannot create a file beside it: No such file or directory");
    assert_int_equal(unlink("page.html"), 0);
}

#define IN_EMPTY_FOLDER(test) cmocka_unit_test_setup_teardown(test, clear_folder, clear_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_EMPTY_FOLDER(unwritable_tensors_are_rejected),
        IN_EMPTY_FOLDER(rejections_of_the_system_are_said),
        IN_EMPTY_FOLDER(a_full_disk_leaves_nothing_behind),
        IN_EMPTY_FOLDER(a_full_disk_leaves_the_old_file),
        IN_EMPTY_FOLDER(a_signal_handler_can_remove_the_temporary_file),
        IN_EMPTY_FOLDER(a_read_only_folder_stays_as_it_is),
        IN_EMPTY_FOLDER(new_files_have_the_umask_permissions),
        IN_EMPTY_FOLDER(links_are_followed),
        IN_EMPTY_FOLDER(leftovers_of_others_are_left_alone),
        IN_EMPTY_FOLDER(any_file_is_written_the_same_way),
    };
    return cmocka_run_group_tests(tests, io_enter_folder, io_leave_folder);
}
