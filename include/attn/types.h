/* SPDX-License-Identifier: MIT
 *
 * types.h - what every header of libattn is made of: statuses and errors, element types, layouts of tensors.
 */
#ifndef ATTN_TYPES_H
#define ATTN_TYPES_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32) || defined(__CYGWIN__)
#if defined(ATTN_BUILD_SHARED)
#define ATTN_API __declspec(dllexport)
#else
#define ATTN_API
#endif
#elif defined(__GNUC__)
#define ATTN_API __attribute__((visibility("default")))
#else
#define ATTN_API
#endif

#define ATTN_VERSION_MAJOR 0
#define ATTN_VERSION_MINOR 1
#define ATTN_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

/* ---- status and errors ---------------------------------------------------------------------------------------- */

/* The values are pinned: they never change meaning. */
typedef enum attn_status {
    ATTN_OK = 0,
    ATTN_ERR_ARGUMENT = 1,    /* a NULL pointer, an unknown enum value, a number out of its range */
    ATTN_ERR_SHAPE = 2,       /* sizes that do not fit each other, or whose product overflows */
    ATTN_ERR_STRIDE = 3,      /* a layout that cannot be: last axis not contiguous, an output that overlaps itself */
    ATTN_ERR_UNSUPPORTED = 4, /* well formed, and this build or this CPU has no kernel for it */
    ATTN_ERR_MEMORY = 5,      /* the allocator returned NULL, or the workspace is too small */
    ATTN_ERR_IO = 6,          /* libattn_io: the operating system refused (open, read, write, rename) */
    ATTN_ERR_FORMAT = 7       /* libattn_io: a file that is not what it claims to be */
} attn_status;

/* The caller's memory; filled on failure (and set to ATTN_OK with an empty message on success).
 * The message is one line without a final period: `heads_q (30) is not a multiple of heads_kv (8)`. */
typedef struct attn_error {
    attn_status status;
    char message[240];
} attn_error;

/* A short constant text, such as "shapes do not fit".  Never NULL, also for values that are no status. */
ATTN_API const char *attn_status_string(attn_status status);

/* "MAJOR.MINOR.PATCH" of the library that is linked (the macros tell what was compiled against). */
ATTN_API const char *attn_version(void);

/* ---- element types and layouts -------------------------------------------------------------------------------- */

/* Zero means "the natural one": f32 for q, the type of q for k, v and o, the compute type for bias and weights,
 * i64 for index arrays.  The integer types beyond index arrays and ATTN_BOOL serve files (libattn_io). */
typedef enum attn_dtype {
    ATTN_DTYPE_DEFAULT = 0,
    ATTN_F32 = 1,
    ATTN_F64 = 2,
    ATTN_F16 = 3,  /* IEEE binary16 */
    ATTN_BF16 = 4, /* the upper half of an f32 */
    ATTN_BOOL = 5, /* one byte, 0 or not 0 */
    ATTN_I8 = 6,
    ATTN_U8 = 7,
    ATTN_I16 = 8,
    ATTN_U16 = 9,
    ATTN_I32 = 10,
    ATTN_U32 = 11,
    ATTN_I64 = 12,
    ATTN_U64 = 13
} attn_dtype;

/* Bytes of one element; 0 for ATTN_DTYPE_DEFAULT and for values that are no type. */
ATTN_API size_t attn_dtype_size(attn_dtype dtype);
/* "f32", "bf16", "bool", ...; "default" for 0, "unknown" for values that are no type. */
ATTN_API const char *attn_dtype_name(attn_dtype dtype);

/* A stride that broadcasts like 0, and does not count as "all strides 0 = dense". */
#define ATTN_BROADCAST INT64_MIN

/*
 * How a tensor of shape [batch, head, token, channel] lies in memory.  Element (b, h, t, c) is at
 *
 *      base + b*stride[0] + h*stride[1] + t*stride[2] + c*stride[3]        (elements)
 *
 * All four strides 0 means dense in that order.  For q, k, v and o the last stride must be 1.  Inputs may broadcast
 * (stride 0) and run backwards (negative stride); outputs must not overlap themselves.
 * [batch, token, head, channel] is {token*heads*dim, dim, heads*dim, 1}; packed QKV and slices work the same way.
 */
typedef struct attn_layout {
    attn_dtype dtype;
    int64_t stride[4];
} attn_layout;

#ifdef __cplusplus
}
#endif

#endif
