/* SPDX-License-Identifier: MIT
 * view.c - tensors as the library sees them. */
#include <stdio.h>

#include "shim.h"

static struct {
    int32_t code;
    attn_dtype dtype;
} types[9];
static int32_t cpu;

void view_types(void)
{
    int n = 0;
#define TYPE(name, is) types[n].code = torch.aoti_torch_dtype_##name(), types[n++].dtype = is
    TYPE(float32, ATTN_F32);
    TYPE(bfloat16, ATTN_BF16);
    TYPE(float16, ATTN_F16);
    TYPE(float64, ATTN_F64);
    TYPE(bool, ATTN_BOOL);
    TYPE(int64, ATTN_I64);
    TYPE(int32, ATTN_I32);
    TYPE(uint8, ATTN_U8);
    TYPE(int8, ATTN_I8);
#undef TYPE
    cpu = torch.aoti_torch_device_type_cpu();
}

static int fail(attn_error *error, attn_status status, const char *name, const char *what)
{
    error->status = status;
    snprintf(error->message, sizeof error->message, "%s %s", name, what);
    return -1;
}

int view_of(AtenTensorHandle tensor, const char *name, view *v, attn_error *error)
{
    int64_t ndim, *size, *stride;
    int32_t code, device;
    v->handle = tensor;
    if (torch.aoti_torch_get_dim(tensor, &ndim) || torch.aoti_torch_get_dtype(tensor, &code) ||
        torch.aoti_torch_get_device_type(tensor, &device))
        return fail(error, ATTN_ERR_ARGUMENT, name, "is not a dense tensor");
    if (device != cpu) return fail(error, ATTN_ERR_ARGUMENT, name, "is not on the CPU, where libattn computes");
    if (ndim > 4) return fail(error, ATTN_ERR_SHAPE, name, "has more than 4 axes");
    if (torch.aoti_torch_get_sizes(tensor, &size) || torch.aoti_torch_get_strides(tensor, &stride) ||
        torch.aoti_torch_get_data_ptr(tensor, &v->data))
        return fail(error, ATTN_ERR_ARGUMENT, name, "is not a dense tensor");
    v->ndim = (int)ndim;
    for (int i = 0; i < v->ndim; i++) v->size[i] = size[i], v->stride[i] = stride[i];
    v->dtype = ATTN_DTYPE_DEFAULT;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].code == code) v->dtype = types[i].dtype;
    return v->dtype ? 0 : fail(error, ATTN_ERR_ARGUMENT, name, "has a type that libattn does not know");
}

int view_new(view *v, int ndim, const int64_t size[4], const int64_t stride[4], attn_dtype dtype, attn_error *error)
{
    int32_t code = 0;
    v->ndim = ndim;
    v->dtype = dtype;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].dtype == dtype) code = types[i].code;
    for (int i = 0; i < ndim; i++) v->size[i] = size[i], v->stride[i] = stride[i];
    if (torch.aoti_torch_empty_strided(ndim, size, stride, code, cpu, 0, &v->handle) ||
        torch.aoti_torch_get_data_ptr(v->handle, &v->data))
        return fail(error, ATTN_ERR_MEMORY, "a result", "could not be allocated");
    return 0;
}

void view_dense(int ndim, const int64_t size[4], const view *like, int64_t stride[4])
{
    int order[4] = {0, 1, 2, 3};
    int64_t step = 1;
    if (like && ndim >= 3 && like->stride[ndim - 3] < like->stride[ndim - 2]) {
        order[ndim - 3] = ndim - 2;
        order[ndim - 2] = ndim - 3;
    }
    for (int i = ndim - 1; i >= 0; i--) {
        stride[order[i]] = step;
        step *= size[order[i]] > 1 ? size[order[i]] : 1;
    }
}

int view_rows(view *v, AtenTensorHandle *copy, attn_error *error)
{
    view dense = {0};
    int64_t stride[4];
    *copy = NULL;
    if (!v->ndim || v->size[v->ndim - 1] <= 1 || v->stride[v->ndim - 1] == 1) return 0;
    view_dense(v->ndim, v->size, NULL, stride);
    if (view_new(&dense, v->ndim, v->size, stride, v->dtype, error)) return -1;
    *copy = dense.handle;
    if (torch.aoti_torch_copy_(dense.handle, v->handle, 0))
        return fail(error, ATTN_ERR_ARGUMENT, "a tensor", "could not be copied");
    *v = dense;
    return 0;
}

void view_drop(AtenTensorHandle tensor)
{
    if (tensor) torch.aoti_torch_delete_tensor_object(tensor);
}
