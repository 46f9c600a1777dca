/* SPDX-License-Identifier: MIT
 * test_unload.c - the shared library loaded, used with threads and unloaded repeatedly: its threads end with it. */
#include "test.h"

#include <dirent.h>
#include <dlfcn.h>

#include "attn/attn.h"

static int threads_of_process(void)
{
    int count = -2; /* . and .. */
    DIR *folder = opendir("/proc/self/task");
    if (!folder) return -1;
    while (readdir(folder)) count++;
    (void)closedir(folder);
    return count;
}

static const char *library;

static void test_unload(void **state)
{
    enum { ROUNDS = 20, LEN = 300, DIM = 32 };
    static float x[4 * LEN * DIM];
    (void)state;
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) x[i] = (float)(i % 97) / 97;
    const int before = threads_of_process();
    if (before < 0) SKIP_BECAUSE("the threads of a process cannot be counted here");
    for (int round = 0; round < ROUNDS; round++) {
        void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
        assert_non_null(handle);
        attn_status (*create)(attn_plan **, const attn_problem *, const attn_tensors *, const attn_options *, attn_error *);
        attn_status (*execute)(const attn_plan *, const attn_tensors *, void *, size_t, attn_error *);
        size_t (*size)(const attn_plan *);
        void (*destroy)(attn_plan *);
        *(void **)&create = dlsym(handle, "attn_plan_create");
        *(void **)&execute = dlsym(handle, "attn_execute");
        *(void **)&size = dlsym(handle, "attn_plan_workspace_size");
        *(void **)&destroy = dlsym(handle, "attn_plan_destroy");

        attn_problem problem = {.struct_size = sizeof problem, .shape = {1, 1, 1, LEN, LEN, DIM, DIM}};
        attn_options options = {.struct_size = sizeof options, .threads = 4};
        attn_tensors t = {.struct_size = sizeof t, .q = attn_in(x), .k = attn_in(x + LEN * DIM)};
        t.v = attn_in(x + 2 * LEN * DIM), t.o = attn_out(x + 3 * LEN * DIM);
        attn_plan *plan;
        assert_int_equal(create(&plan, &problem, &t, &options, NULL), ATTN_OK);
        void *workspace = malloc(size(plan));
        for (int n = 0; n < 1 + round % 3; n++) assert_int_equal(execute(plan, &t, workspace, size(plan), NULL), ATTN_OK);
        assert_true(threads_of_process() > before);
        free(workspace);
        destroy(plan);
        assert_int_equal(dlclose(handle), 0);
        assert_null(dlopen(library, RTLD_NOW | RTLD_NOLOAD));
        assert_int_equal(threads_of_process(), before);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_unload)};
    if (argc != 2) return 2;
    library = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
