/* SPDX-License-Identifier: MIT
 *
 * ffi.h - what libattn uses of XLA's foreign function interface, version 0.3: the layout of its structs, under names of our own.
 *
 * Nothing of XLA is needed to build or to load this: a handler gets everything through its call frame.  Names, order and types are
 * those of xla/ffi/api/c_api.h, which the wheels of jaxlib 0.5 to 0.10 ship; python/tests/xla_layout.c compares them.
 */
#ifndef ATTN_PYTHON_XLA_FFI_H
#define ATTN_PYTHON_XLA_FFI_H

#include <stddef.h>
#include <stdint.h>

enum { XLA_API_MAJOR = 0, XLA_API_MINOR = 1 }; /* the least version that has all that is used here */

enum { XLA_EXTENSION_METADATA = 1 };
enum { XLA_STAGE_EXECUTE = 3 };
enum { XLA_ERROR_INVALID_ARGUMENT = 3, XLA_ERROR_RESOURCE_EXHAUSTED = 8, XLA_ERROR_UNIMPLEMENTED = 12, XLA_ERROR_INTERNAL = 13 };
enum { XLA_ATTRIBUTE_ARRAY = 1 };

typedef struct xla_extension {
    size_t struct_size;
    int type;
    struct xla_extension *next;
} xla_extension;

typedef struct xla_version {
    size_t struct_size;
    xla_extension *extension_start;
    int major_version;
    int minor_version;
} xla_version;

/* The runtime asks a handler for its version: a call frame with this extension, and nothing to compute. */
typedef struct xla_metadata {
    size_t struct_size;
    xla_version api_version;
    uint32_t traits;
} xla_metadata;

typedef struct xla_metadata_extension {
    xla_extension base;
    xla_metadata *metadata;
} xla_metadata_extension;

typedef struct xla_error xla_error; /* made by error_create; owned by the runtime once a handler returns it */
typedef struct xla_context xla_context;

typedef struct xla_buffer {
    size_t struct_size;
    xla_extension *extension_start;
    int dtype;
    void *data;
    int64_t rank;
    int64_t *dims;
} xla_buffer;

typedef struct xla_span {
    const char *text;
    size_t length;
} xla_span;

typedef struct xla_array { /* an attribute: a dense array */
    int dtype;
    size_t size;
    void *data;
} xla_array;

typedef struct xla_values { /* the arguments, or the results */
    size_t struct_size;
    xla_extension *extension_start;
    int64_t size;
    int *types;
    void **values;
} xla_values;

typedef struct xla_attributes {
    size_t struct_size;
    xla_extension *extension_start;
    int64_t size;
    int *types;
    xla_span **names;
    void **values;
} xla_attributes;

typedef struct xla_error_create {
    size_t struct_size;
    xla_extension *extension_start;
    const char *message;
    int code;
} xla_error_create;

typedef struct xla_error_destroy {
    size_t struct_size;
    xla_extension *extension_start;
    xla_error *error;
} xla_error_destroy;

typedef struct xla_schedule {
    size_t struct_size;
    xla_extension *extension_start;
    xla_context *context;
    void (*task)(void *data);
    void *data;
} xla_schedule;

typedef struct xla_count_threads {
    size_t struct_size;
    xla_extension *extension_start;
    xla_context *context;
    int64_t *threads;
} xla_count_threads;

/* The functions of the runtime up to the last one that is used; the others stand as their place. */
typedef struct xla_api {
    size_t struct_size;
    xla_extension *extension_start;
    xla_version api_version;
    const void *internal;
    xla_error *(*error_create)(xla_error_create *);
    void *error_get_message;
    void (*error_destroy)(xla_error_destroy *);
    void *unused[8]; /* Handler_Register to DeviceMemory_Free */
    xla_error *(*schedule)(xla_schedule *);
    xla_error *(*count_threads)(xla_count_threads *);
} xla_api;

typedef struct xla_call_frame {
    size_t struct_size;
    xla_extension *extension_start;
    const xla_api *api;
    xla_context *context;
    int stage;
    xla_values arguments;
    xla_values results;
    xla_attributes attributes;
} xla_call_frame;

#endif
