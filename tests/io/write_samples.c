/* SPDX-License-Identifier: MIT
 *
 * write_samples.c - writes samples.safetensors, samples.npz and an .npy of each type into the current folder, for read_back.py.
 */
#include "io_test.h"

static void write_samples(void **state)
{
    (void)state;
    const int64_t shape[] = {2, 3};
    attn_archive *all = io_create(), *numpy = io_create();
    for (int i = 0; i < 13; i++) {
        char path[32];
        const char *name = attn_dtype_name(io_dtypes[i]);
        io_add_counting(all, name, io_dtypes[i], 2, shape);
        if (io_dtypes[i] == ATTN_BF16) continue;
        io_add_counting(numpy, name, io_dtypes[i], 2, shape);
        attn_archive *one = io_create();
        io_add_counting(one, name, io_dtypes[i], 2, shape);
        snprintf(path, sizeof path, "%s.npy", name);
        io_write(one, path);
        attn_archive_destroy(one);
    }
    attn_archive *both[] = {all, numpy};
    for (int i = 0; i < 2; i++) {
        io_add_counting(both[i], "scalar", ATTN_F32, 0, NULL);
        io_add_counting(both[i], "none", ATTN_F64, 2, (int64_t[]){0, 3});
        attn_archive_set_metadata(both[i], "tokens", "[\"na\xC3\xAFve\", \"\\\"\"]", NULL);
        io_write(both[i], i ? "samples.npz" : "samples.safetensors");
        attn_archive_destroy(both[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(write_samples)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
