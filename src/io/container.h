/* SPDX-License-Identifier: MIT
 *
 * container.h - the container and the functions with which readers fill it.
 */
#ifndef ATTN_IO_CONTAINER_H
#define ATTN_IO_CONTAINER_H

#include <attn/io.h>

#include "context.h"
#include "input.h"
#include "list.h"

/* The tensor name reserved for metadata, by safetensors and by formats without a place for it. */
#define ATTN_IO_METADATA "__metadata__"

struct attn_archive {
    attn_io_list tensors;
    attn_io_list metadata;
    attn_io_input input;         /* the file that data may point into */
    attn_archive_wanted *wanted; /* which tensors of a file are read; NULL: all */
    void *wanted_context;
};

/* Fails with `status` unless a tensor may have this name: not empty, UTF-8, not ATTN_IO_METADATA. */
attn_status attn_io_check_name(const attn_io_context *context, attn_status status, const char *name);

/* Whether a tensor of a file, whose data need not be set, is to be read. */
bool attn_io_wanted(const attn_archive *tensors, const attn_archive_tensor *tensor);

/*
 * Appends a tensor without a search for its name; `bytes` must match dtype and shape, the name must have passed
 * attn_io_check_name.  `owned`: NULL, or what to free with the tensor; ownership passes even on failure.
 */
attn_status attn_io_append(const attn_io_context *context, attn_archive *tensors, const attn_archive_tensor *tensor, void *owned);

attn_status attn_io_append_metadata(const attn_io_context *context, attn_archive *tensors, const char *key, const char *value);

/* Ends a series of appends: sorts, and rejects names and keys that occur twice. */
attn_status attn_io_sort(const attn_io_context *context, attn_archive *tensors);

/* Whether a pointer is aligned to an element of this type. */
bool attn_io_aligned(const void *data, attn_dtype dtype);

#endif
