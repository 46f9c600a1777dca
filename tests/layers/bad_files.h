/* SPDX-License-Identifier: MIT
 * bad_files.h - files that do not fit a layer: loading from one fails with its message, and the weights stay unchanged. */
#ifndef ATTN_TESTS_LAYERS_BAD_FILES_H
#define ATTN_TESTS_LAYERS_BAD_FILES_H

#include "fails.h"

#include <math.h>

#include "attn/io.h"

/* What is wrong with a matrix: it is missing, has a column less, is of f64, or has a NaN as element 2. */
enum { BAD_MISSING, BAD_SHAPE, BAD_TYPE, BAD_NUMBER, BAD_KINDS, GOOD };

static inline attn_archive *empty_file(void)
{
    attn_archive *file = NULL;
    assert_int_equal(attn_archive_create(&file, NULL), ATTN_OK);
    return file;
}

/* Adds a matrix with this fault where a layer reads [rows, columns] of f32. */
static inline void add_matrix(attn_archive *file, const char *name, int64_t rows, int64_t columns, int fault)
{
    static const double zeros[64];
    static const float with_nan[64] = {[2] = NAN};
    const int64_t shape[2] = {rows, columns - (fault == BAD_SHAPE)};
    const void *data = fault == BAD_NUMBER ? (const void *)with_nan : zeros;
    if (fault == BAD_MISSING) return;
    assert_int_equal(attn_archive_add(file, name, fault == BAD_TYPE ? ATTN_F64 : ATTN_F32, 2, shape, data, NULL), ATTN_OK);
}

/* The call, with &weights, file and &error, must fail with this message; destroys the file. */
#define LOAD_FAILS(call, text)                                                                                                     \
    do {                                                                                                                           \
        unsigned char before[sizeof weights];                                                                                      \
        attn_error error;                                                                                                          \
        memset(before, 0x5a, sizeof before);                                                                                       \
        memcpy(&weights, before, sizeof before);                                                                                   \
        assert_int_not_equal(call, ATTN_OK);                                                                                       \
        assert_string_equal(error.message, text);                                                                                  \
        assert_memory_equal(&weights, before, sizeof before);                                                                      \
        attn_archive_destroy(file);                                                                                                \
    } while (0)

#endif
