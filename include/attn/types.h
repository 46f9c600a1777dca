/* SPDX-License-Identifier: MIT
 *
 * types.h - shared by all headers of libattn: statuses and errors, element types, slots of tensors.
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
    ATTN_ERR_SHAPE = 2,       /* sizes that do not match, or whose product overflows */
    ATTN_ERR_STRIDE = 3,      /* invalid strides: last axis not contiguous, an output that overlaps itself or another tensor */
    ATTN_ERR_UNSUPPORTED = 4, /* well formed, but this build or this CPU has no kernel for it */
    ATTN_ERR_MEMORY = 5,      /* the allocator returned NULL, or the workspace is too small */
    ATTN_ERR_IO = 6,          /* libattn_io: the operating system failed an open, read, write or rename */
    ATTN_ERR_FORMAT = 7       /* libattn_io: a file that is not what it claims to be */
} attn_status;

/* The caller's memory; filled on failure (and set to ATTN_OK with an empty message on success).
 * The message is one line without a final period: `heads_q (30) is not a multiple of heads_kv (8)`. */
typedef struct attn_error {
    attn_status status;
    int tensor; /* index of the tensor that the message is about, in attn_tensor_describe of the call's family; -1: none */
    int other;  /* the other tensor of a pair that the message is about; -1: none */
    char message[244];
} attn_error;

/* A short constant text, such as "shapes do not fit".  Never NULL, even for values that are not a status. */
ATTN_API const char *attn_status_string(attn_status status);

/* "MAJOR.MINOR.PATCH" of the linked library (the macros are those compiled against). */
ATTN_API const char *attn_version(void);

/* ---- element types and slots ---------------------------------------------------------------------------------- */

/* Zero means the natural type: f32 for q, the type of q for k, v and o, the compute type for bias and weights, i64 for index
 * arrays.  Integer types other than i64, i32, i8 and u8 are only for files (libattn_io).
 *
 * Types of 8 and 4 bits are formats of keys and values: i8 and f8 with a tensor of scales (attn_tensors), and blocks with their
 * own. f8 is "OCP 8-bit Floating Point Specification (OFP8)", revision 1.0: e4m3 has a bias of 7, no infinity and a NaN at 0x7f, so
 * that its largest number is 448; e5m2, the upper half of an f16, has 57344.
 *
 * An element of a block type is a block of ATTN_BLOCK neighbouring channels, as in ggml (its block_q8_0, block_q4_0 and
 * block_q4_1).  So a last axis of D channels has D / ATTN_BLOCK elements, D must be a multiple of ATTN_BLOCK, and strides count
 * blocks: a dense [batch, head, token, D] has the strides of [batch, head, token, D / ATTN_BLOCK].  Blocks need no alignment.  The
 * bytes of a block, its f16 numbers first, are
 *
 *      q8_0    d, then the i8 q_0 .. q_31                                  channel c is d * q_c
 *      q4_0    d, then 16 bytes; byte c has q_c below and q_(c+16) above   channel c is d * (q_c - 8)
 *      q4_1    d and m, then 16 bytes as in q4_0                           channel c is d * q_c + m, rounded to f32
 *
 * q4_1c, for keys only, has a channel in each block (KIVI: Liu et al. 2024, arXiv 2402.02750), since some channels of keys are much
 * larger than others.  A block is one of q4_1 whose numbers q_0 .. q_31 are those of one channel of a group, ATTN_BLOCK keys from a
 * multiple of ATTN_BLOCK on.  A group has the memory that its keys would have in q4_1: block i of its key t, i < D / ATTN_BLOCK, is
 * channel t * (D / ATTN_BLOCK) + i.  The last keys of a sequence, which are no whole group, are exact, in another tensor (k_tail of
 * attn_tensors).
 */
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
    ATTN_U64 = 13,
    ATTN_F8_E4M3 = 14,
    ATTN_F8_E5M2 = 15,
    ATTN_Q8_0 = 16, /* blocks of 34 bytes */
    ATTN_Q4_0 = 17, /* of 18 */
    ATTN_Q4_1 = 18, /* of 20 */
    ATTN_Q4_1C = 19 /* of 20, each a channel of ATTN_BLOCK keys */
} attn_dtype;

/* Channels of a block; keys of a group that is quantised by channel. */
#define ATTN_BLOCK 32
/* The last keys of a sequence, in k_tail of attn_tensors: two groups. */
#define ATTN_TAIL 64

/* Bytes of one element, or of a block; 0 for ATTN_DTYPE_DEFAULT and for values that are not a type. */
ATTN_API size_t attn_dtype_size(attn_dtype dtype);
/* "f32", "bf16", "bool", ...; "default" for 0, "unknown" for values that are not a type. */
ATTN_API const char *attn_dtype_name(attn_dtype dtype);

/* dst[i] = src[i] for `count` elements of f32, f64, f16 or bf16, rounded once, to nearest even.  dst may be src if the types have
 * the same size; otherwise they must not overlap.  Returns ATTN_ERR_UNSUPPORTED for other types, ATTN_ERR_SHAPE, ATTN_ERR_STRIDE,
 * or ATTN_ERR_ARGUMENT (also for memory not aligned to its elements), with dst untouched. */
ATTN_API attn_status attn_convert(int64_t count, const void *src, attn_dtype src_dtype, void *dst, attn_dtype dst_dtype,
                                  attn_error *error);

/* Use in place of 0 in a tensor that broadcasts on every axis, since four zero strides mean dense. */
#define ATTN_BROADCAST INT64_MIN

/*
 * One tensor of a call: its address, type and layout in memory.  Element (b, h, t, c) of a tensor of shape [batch, head, token,
 * channel] is at
 *
 *      data + b*stride[0] + h*stride[1] + t*stride[2] + c*stride[3]        (elements)
 *
 * and likewise for tensors whose axes have other names.  All four strides 0 means dense in that order.  [batch, token, head,
 * channel] is {token*heads*dim, dim, heads*dim, 1}; packed QKV, slices and caches work the same way.  Inputs may broadcast (stride
 * 0) and run backwards (negative stride); outputs must not overlap themselves.  Strides of axes of size 1 are ignored.
 *
 * A slot of zeros is an absent tensor.  NULL with a type or a stride is an error, so that a failed allocation does not silently
 * drop a mask.  `const` memory cannot become an output without a cast: the type of a slot shows whether it is read or written.
 */
typedef struct attn_input {
    const void *data;
    attn_dtype dtype;
    int64_t stride[4];
} attn_input;

typedef struct attn_output {
    void *data;
    attn_dtype dtype;
    int64_t stride[4];
} attn_output;

/* In place of a pointer: a tensor without elements (for which bindings may have NULL). */
#define ATTN_EMPTY ((void *)2)
/* In place of a pointer: a tensor whose memory is not known while a plan is made.  An error when the plan is executed. */
#define ATTN_LATER ((void *)4)
/* What attn_in, attn_out and attn_saved turn NULL into; rejected everywhere. */
#define ATTN_MISSING ((void *)6)

/* Slots of dense tensors of the natural type.  NULL is rejected by the call that gets the slot. */
static inline attn_input attn_in(const void *data)
{
    attn_input slot = {NULL, ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}};
    slot.data = data ? data : ATTN_MISSING;
    return slot;
}

static inline attn_output attn_out(void *data)
{
    attn_output slot = {NULL, ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}};
    slot.data = data ? data : ATTN_MISSING;
    return slot;
}

/* An output of another operation that is an input of this one (o and lse in ATTN_BACKWARD): only read. */
static inline attn_output attn_saved(const void *data)
{
    attn_output slot = {NULL, ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}};
    slot.data = data ? (void *)(uintptr_t)data : ATTN_MISSING;
    return slot;
}

#ifdef __cplusplus
}
#endif

#endif
