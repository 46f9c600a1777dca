/* SPDX-License-Identifier: MIT
 * io.c - an outside program that uses libattn_io: writes a tensor to a file and reads it back. */
#include <attn/io.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    const float numbers[] = {1, 2, 3};
    const int64_t shape[] = {3};
    attn_archive *out = NULL, *in = NULL;
    attn_error error;
    int ok = argc == 2 && attn_archive_create(&out, &error) == ATTN_OK &&
             attn_archive_add(out, "x", ATTN_F32, 1, shape, numbers, &error) == ATTN_OK &&
             attn_archive_write(out, argv[1], &error) == ATTN_OK && attn_archive_read(&in, argv[1], &error) == ATTN_OK;
    if (argc == 2 && !ok) fprintf(stderr, "%s\n", error.message);
    ok = ok && attn_archive_find(in, "x") && ((const float *)attn_archive_find(in, "x")->data)[2] == 3;
    attn_archive_destroy(in);
    attn_archive_destroy(out);
    return !ok;
}
