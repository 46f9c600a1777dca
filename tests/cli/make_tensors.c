/* SPDX-License-Identifier: MIT
 *
 * make_tensors.c - writes a tensor file for the tests of the command:
 *
 *      make_tensors OUT NAME:DTYPE:SHAPE[:VALUE]... KEY=TEXT...
 *
 * SHAPE is sizes joined by x, such as 2x3, or empty; without VALUE the elements are different numbers within -1..1. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/io.h"
#include "testing/memory/element.h"

static attn_dtype dtype_of(const char *name)
{
    for (int d = ATTN_F32; d <= ATTN_Q4_1C; d++)
        if (strcmp(name, attn_dtype_name((attn_dtype)d)) == 0) return (attn_dtype)d;
    return ATTN_DTYPE_DEFAULT;
}

static void write_element(attn_dtype dtype, void *at, double value)
{
    switch (dtype) {
    case ATTN_BOOL:
    case ATTN_I8:
    case ATTN_U8:
        *(signed char *)at = (signed char)value;
        break;
    case ATTN_I16:
    case ATTN_U16:
        *(int16_t *)at = (int16_t)value;
        break;
    case ATTN_I32:
    case ATTN_U32:
        *(int32_t *)at = (int32_t)value;
        break;
    case ATTN_I64:
    case ATTN_Q4_1:
        *(int64_t *)at = (int64_t)value;
        break;
    default:
        element_write(dtype, at, value);
    }
}

static attn_status add_tensor(attn_archive *out, char *word, int number, attn_error *error)
{
    char *dtype_name = strchr(word, ':'), *sizes = strchr(dtype_name + 1, ':'), *value;
    *dtype_name++ = 0;
    *sizes++ = 0;
    if ((value = strchr(sizes, ':'))) *value++ = 0;
    int64_t shape[ATTN_MAX_RANK], count = 1;
    int rank = 0;
    for (char *at = strtok(sizes, "x"); at && rank < ATTN_MAX_RANK; at = strtok(NULL, "x")) count *= shape[rank++] = atoll(at);
    void *data;
    attn_dtype dtype = dtype_of(dtype_name);
    attn_status status = attn_archive_allocate(out, word, dtype, rank, shape, &data, error);
    for (int64_t k = 0; status == ATTN_OK && k < count; k++)
        write_element(dtype, (char *)data + (size_t)k * attn_dtype_size(dtype),
                      value ? atof(value) : sin((double)(3 * k + number)));
    return status;
}

int main(int argc, char **argv)
{
    attn_error error;
    attn_archive *out = NULL;
    if (argc < 2) return 2;
    attn_status status = attn_archive_create(&out, &error);
    for (int a = 2; a < argc && status == ATTN_OK; a++) {
        char *equals = strchr(argv[a], '=');
        if (equals) *equals = 0;
        status = equals ? attn_archive_set_metadata(out, argv[a], equals + 1, &error) : add_tensor(out, argv[a], a, &error);
    }
    if (status == ATTN_OK) status = attn_archive_write(out, argv[1], &error);
    if (status != ATTN_OK) fprintf(stderr, "make_tensors: %s\n", error.message);
    attn_archive_destroy(out);
    return status != ATTN_OK;
}
