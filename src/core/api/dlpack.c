/* SPDX-License-Identifier: MIT
 * dlpack.c - attn_dlpack_input, attn_dlpack_output: a DLTensor as a slot. */
#include "attn/dlpack.h"

#include <inttypes.h>
#include <string.h>

#include "../base/error.h"

/* DLTensor, whose layout every version of dlpack.h shares. */
typedef struct dl_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides; /* strides NULL: dense */
    uint64_t byte_offset;
} dl_tensor;

/* DLDataTypeCode and bits. */
static const struct {
    uint8_t code, bits;
    attn_dtype dtype;
} types[] = {{0, 8, ATTN_I8},   {0, 16, ATTN_I16},  {0, 32, ATTN_I32}, {0, 64, ATTN_I64},     {1, 8, ATTN_U8},
             {1, 16, ATTN_U16}, {1, 32, ATTN_U32},  {1, 64, ATTN_U64}, {2, 16, ATTN_F16},     {2, 32, ATTN_F32},
             {2, 64, ATTN_F64}, {4, 16, ATTN_BF16}, {6, 8, ATTN_BOOL}, {10, 8, ATTN_F8_E4M3}, {12, 8, ATTN_F8_E5M2}};

/* kDLCPU, kDLCUDAHost, kDLROCMHost. */
static int is_host(int32_t device) { return device == 1 || device == 3 || device == 11; }

enum { MOST_AXES = 8 };

static attn_status read_type(const dl_tensor *t, attn_dtype *dtype, attn_error *error)
{
    CHECK(is_host(t->device_type), ATTN_ERR_ARGUMENT,
          "the DLTensor is on a device of type %d; libattn computes on the CPU (types 1, 3 and 11)", (int)t->device_type);
    CHECK(t->lanes == 1, ATTN_ERR_UNSUPPORTED, "the DLTensor has elements of %d lanes; they must have 1", (int)t->lanes);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].code == t->code && types[i].bits == t->bits) *dtype = types[i].dtype;
    CHECK(*dtype, ATTN_ERR_UNSUPPORTED, "the DLTensor has elements of type code %d with %d bits, which libattn does not have",
          (int)t->code, (int)t->bits);
    return ATTN_OK;
}

static attn_status check_axes(const dl_tensor *t, const char *axes, attn_error *error)
{
    static const char letters[] = "bhtc";
    const size_t count = strlen(axes);
    int good = count <= MOST_AXES;
    for (size_t i = 0; good && i < count; i++)
        good = (axes[i] >= '0' && axes[i] <= '9') || (strchr(letters, axes[i]) && !memchr(axes + i + 1, axes[i], count - i - 1));
    CHECK(good, ATTN_ERR_ARGUMENT, "axes is \"%s\"; it has at most 8 of the letters b, h, t and c, each once, and digits", axes);
    CHECK(t->ndim >= 0 && (size_t)t->ndim == count, ATTN_ERR_SHAPE, "the DLTensor has %d axes, and \"%s\" has %d", (int)t->ndim,
          axes, (int)count);
    CHECK(t->shape || t->ndim == 0, ATTN_ERR_ARGUMENT, "the DLTensor has %d axes, and its shape is NULL", (int)t->ndim);
    return ATTN_OK;
}

/* A tensor of these axes: *at has its strides, *first the element that the digits select, *empty that there is none. */
static attn_status read_axes(const dl_tensor *t, const char *axes, const int64_t *shape, attn_input *at, uint64_t *first,
                             int *empty, attn_error *error)
{
    static const char letters[] = "bhtc", *const names[] = {"b", "h", "t", "c"};
    int64_t size[4] = {1, 1, 1, 1}, dense = 1;
    for (int i = t->ndim - 1; i >= 0; i--) {
        const int64_t n = t->shape[i], step = t->strides ? t->strides[i] : dense;
        CHECK(n >= 0, ATTN_ERR_SHAPE, "axis %d of the DLTensor has size %" PRId64, i, n);
        dense = n > 0 && dense > INT64_MAX / n ? 0 : dense * n;
        if (axes[i] >= '0' && axes[i] <= '9') {
            CHECK(axes[i] - '0' < n, ATTN_ERR_SHAPE, "axis %d of the DLTensor has size %" PRId64 ", and \"%s\" takes index %d", i,
                  n, axes, axes[i] - '0');
            *first += (uint64_t)(axes[i] - '0') * (uint64_t)step;
            continue;
        }
        const int k = (int)(strchr(letters, axes[i]) - letters);
        size[k] = n;
        at->stride[k] = n == 1 ? 0 : step;
        *empty |= n == 0;
    }
    for (int k = 0; shape && k < 4; k++)
        CHECK(size[k] == shape[k], ATTN_ERR_SHAPE, "axis %s of the DLTensor has size %" PRId64 "; it must have %" PRId64, names[k],
              size[k], shape[k]);
    const int64_t *s = at->stride;
    if (!s[0] && !s[1] && !s[2] && !s[3]) at->stride[0] = ATTN_BROADCAST; /* one number, which does not stand for a dense tensor */
    return ATTN_OK;
}

attn_status attn_dlpack_input(const void *tensor, const char *axes, const int64_t *shape, attn_input *slot, attn_error *error)
{
    dl_tensor t;
    attn_input at = {.data = NULL};
    uint64_t first = 0;
    int empty = 0;
    CHECK(tensor, ATTN_ERR_ARGUMENT, "tensor is NULL");
    CHECK(axes, ATTN_ERR_ARGUMENT, "axes is NULL");
    CHECK(slot, ATTN_ERR_ARGUMENT, "slot is NULL");
    memcpy(&t, tensor, sizeof t); /* it is of another type */
    TRY(read_type(&t, &at.dtype, error));
    TRY(check_axes(&t, axes, error));
    TRY(read_axes(&t, axes, shape, &at, &first, &empty, error));
    const size_t bytes = attn_dtype_size(at.dtype);
    if (empty) {
        at.data = ATTN_EMPTY;
        memset(at.stride, 0, sizeof at.stride);
    } else {
        CHECK(t.data, ATTN_ERR_ARGUMENT, "the DLTensor has elements, and its data is NULL");
        at.data = (const void *)((uintptr_t)t.data + (uintptr_t)(t.byte_offset + first * bytes));
        CHECK((uintptr_t)at.data % bytes == 0, ATTN_ERR_ARGUMENT, "the DLTensor is not aligned to its elements of %zu bytes",
              bytes);
    }
    *slot = at;
    return attn_succeed(error);
}

attn_status attn_dlpack_output(const void *tensor, const char *axes, const int64_t *shape, attn_output *slot, attn_error *error)
{
    attn_input at;
    TRY(attn_dlpack_input(tensor, axes, shape, slot ? &at : NULL, error));
    *slot = (attn_output){(void *)(uintptr_t)at.data, at.dtype, {at.stride[0], at.stride[1], at.stride[2], at.stride[3]}};
    return ATTN_OK;
}
