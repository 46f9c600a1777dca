/* SPDX-License-Identifier: MIT
 *
 * io_test.h - helpers of the io tests: a temporary folder, whole files, and counting tensors, whose element k is the number k
 * (bool: k odd).
 */
#ifndef ATTN_IO_TEST_H
#define ATTN_IO_TEST_H

#include "fails.h"

#include <stdbool.h>

#include <attn/io.h>

extern const attn_dtype io_dtypes[13];

/* Element k becomes the number k. */
void io_fill(attn_dtype dtype, void *data, size_t count);

/* Fails the test unless the tensor exists, has this type and shape, and counts. */
void io_assert_counts(const attn_archive *tensors, const char *name, attn_dtype dtype, int rank, const int64_t *shape);

/* Adds an owned counting tensor. */
void io_add_counting(attn_archive *tensors, const char *name, attn_dtype dtype, int rank, const int64_t *shape);

attn_archive *io_create(void);
/* Reads, or fails the test with the message. */
attn_archive *io_read(const char *path);
/* Reads a file in memory and discards what it holds.  Takes bytes, an allocation of exactly `size`, so that sanitizers catch reads
 * past the end of the file. */
attn_status io_try_bytes(const char *name, unsigned char *bytes, size_t size, attn_error *error);
/* Writes, or fails the test with the message. */
void io_write(const attn_archive *tensors, const char *path);

/* The bytes of a file; the caller frees them. */
unsigned char *io_load(const char *path, size_t *size);
void io_store(const char *path, const void *bytes, size_t size);
void io_assert_same_file(const char *path, const void *bytes, size_t size);

/* Group fixtures: enter an empty folder; remove it with its content. */
int io_enter_folder(void **state);
int io_leave_folder(void **state);
/* How many entries the current folder has. */
int io_count_files(void);

#endif
