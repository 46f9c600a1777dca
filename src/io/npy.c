/* SPDX-License-Identifier: MIT
 *
 * npy.c - reads and writes .npy.  Aligned little-endian data in C order stays where it is; other data is copied into that form.
 */
#include "npy.h"

#include <stdlib.h>
#include <string.h>

#include "element.h"
#include "text.h"

static const unsigned char magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

/* Eight sizes of 20 digits take far less; anything longer is not an honest header. */
enum { HEADER_MAX = 1 << 16, FIXED = sizeof magic + 2 };

/* dst[k] = src[...] for k in C order over the shape, src in Fortran order. */
static void copy_fortran(unsigned char *dst, const unsigned char *src, int rank, const int64_t *shape, size_t width)
{
    int64_t stride[ATTN_MAX_RANK], index[ATTN_MAX_RANK] = {0}, product = 1;
    for (int axis = 0; axis < rank; axis++) {
        stride[axis] = product * (int64_t)width;
        product *= shape[axis];
    }
    const unsigned char *from = src;
    for (int64_t k = 0; k < product; k++, dst += width) {
        memcpy(dst, from, width);
        for (int axis = rank - 1; axis >= 0; axis--) {
            from += stride[axis];
            if (++index[axis] < shape[axis]) break;
            from -= stride[axis] * shape[axis];
            index[axis] = 0;
        }
    }
}

static void swap_bytes(unsigned char *data, size_t bytes, size_t width)
{
    for (unsigned char *element = data; element < data + bytes; element += width)
        for (size_t i = 0; i < width / 2; i++) {
            unsigned char byte = element[i];
            element[i] = element[width - 1 - i];
            element[width - 1 - i] = byte;
        }
}

/* Parses everything before the data; *begin: the offset of the data. */
static attn_status parse(const attn_io_context *context, const unsigned char *bytes, size_t size, attn_io_npy_header *header,
                         size_t *begin)
{
    if (size < sizeof magic || memcmp(bytes, magic, sizeof magic))
        return attn_io_fail(context, ATTN_ERR_FORMAT, "does not begin like an .npy file");
    if (size < FIXED + 4) return attn_io_fail(context, ATTN_ERR_FORMAT, "%zu bytes are too few for an .npy file", size);
    int major = bytes[6], minor = bytes[7];
    if (major < 1 || major > 3 || minor != 0)
        return attn_io_fail(context, ATTN_ERR_UNSUPPORTED, "version %d.%d of .npy is not 1.0, 2.0 or 3.0", major, minor);
    size_t length = (size_t)bytes[8] | (size_t)bytes[9] << 8, text = FIXED + 2;
    if (major > 1) {
        length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
        text = FIXED + 4;
    }
    if (length > HEADER_MAX)
        return attn_io_fail(context, ATTN_ERR_FORMAT, "header of %zu bytes, at most %d are allowed", length, HEADER_MAX);
    if (length > size - text)
        return attn_io_fail(context, ATTN_ERR_FORMAT, "header of %zu bytes, the file has %zu after its length", length,
                            size - text);
    *begin = text + length;
    return attn_io_npy_parse_header(context, (const char *)bytes + text, length, header);
}

/* Parses and checks; fills everything of the tensor but its name; data points into the file. */
static attn_status describe(const attn_io_context *context, const unsigned char *bytes, size_t size, attn_io_npy_header *header,
                            attn_archive_tensor *tensor)
{
    char text[ATTN_IO_SHAPE_TEXT];
    size_t begin = 0;
    attn_status status = parse(context, bytes, size, header, &begin);
    if (status) return status;
    const char *type = attn_dtype_name(header->dtype);
    tensor->dtype = header->dtype;
    tensor->rank = header->rank;
    memcpy(tensor->shape, header->shape, sizeof tensor->shape);
    tensor->data = bytes + begin;
    attn_io_shape_text(text, header->rank, header->shape);
    if (!attn_io_shape_bytes(header->dtype, header->rank, header->shape, &tensor->bytes))
        return attn_io_fail(context, ATTN_ERR_FORMAT, "no array of %s can have the shape %s", type, text);
    if (tensor->bytes != size - begin)
        return attn_io_fail(context, ATTN_ERR_FORMAT, "holds %zu bytes of data, shape %s of %s needs %zu", size - begin, text, type,
                            tensor->bytes);
    return ATTN_OK;
}

/* A copy of the data in native form; NULL when out of memory. */
static void *copy_native(const attn_io_npy_header *header, const attn_archive_tensor *tensor)
{
    size_t width = attn_dtype_size(header->dtype);
    void *copy = malloc(tensor->bytes);
    if (!copy) return NULL;
    if (header->fortran_order) copy_fortran(copy, tensor->data, header->rank, header->shape, width);
    else memcpy(copy, tensor->data, tensor->bytes);
    if (header->swap) swap_bytes(copy, tensor->bytes, width);
    return copy;
}

attn_status attn_io_npy_append(const attn_io_context *context, const char *name, const unsigned char *bytes, size_t size,
                               void *owned, attn_archive *tensors)
{
    attn_io_npy_header header;
    attn_archive_tensor tensor = {.name = name};
    attn_status status = describe(context, bytes, size, &header, &tensor);
    if (!status && !attn_io_wanted(tensors, &tensor)) {
        free(owned);
        return ATTN_OK;
    }
    bool native = !status && !header.swap && !header.fortran_order && attn_io_aligned(tensor.data, tensor.dtype);
    if (!status && (native || !tensor.bytes)) return attn_io_append(context, tensors, &tensor, owned);
    void *copy = status ? NULL : copy_native(&header, &tensor);
    free(owned);
    if (!copy) return status ? status : attn_io_fail_memory(context);
    tensor.data = copy;
    return attn_io_append(context, tensors, &tensor, copy);
}

attn_status attn_io_npy_check_dtype(const attn_io_context *context, const attn_archive_tensor *tensor)
{
    if (attn_io_npy_name(tensor->dtype)) return ATTN_OK;
    attn_io_context at = *context;
    at.noun = "tensor";
    at.name = tensor->name;
    return attn_io_fail(&at, ATTN_ERR_UNSUPPORTED, "NumPy has no type for %s: write .safetensors, or convert to f32",
                        attn_dtype_name(tensor->dtype));
}

static bool recognize(const unsigned char *bytes, size_t size)
{
    return size >= sizeof magic && !memcmp(bytes, magic, sizeof magic);
}

/* "dir/q.npy" holds q; a name that is only an extension is kept whole. */
static attn_status read_file(const attn_io_context *context, const unsigned char *bytes, size_t size, attn_archive *tensors)
{
    const char *slash = strrchr(context->path, '/');
    const char *begin = slash ? slash + 1 : context->path;
    const char *dot = strrchr(begin, '.');
    size_t length = dot && dot != begin ? (size_t)(dot - begin) : strlen(begin);
    char *name = malloc(length + 1);
    if (!name) return attn_io_fail_memory(context);
    memcpy(name, begin, length);
    name[length] = '\0';
    attn_status status = attn_io_check_name(context, ATTN_ERR_FORMAT, name);
    if (!status) status = attn_io_npy_append(context, name, bytes, size, NULL, tensors);
    free(name);
    return status;
}

static attn_status check(const attn_io_context *context, const attn_archive *tensors)
{
    long long count = attn_archive_count(tensors);
    if (count != 1)
        return attn_io_fail(context, ATTN_ERR_SHAPE, ".npy holds one tensor, not %lld: write .safetensors or .npz", count);
    return attn_io_npy_check_dtype(context, attn_archive_at(tensors, 0));
}

static attn_status write_file(const attn_io_context *context, const attn_archive *tensors, attn_io_output *output)
{
    const attn_archive_tensor *tensor = attn_archive_at(tensors, 0);
    char preamble[ATTN_IO_NPY_PREAMBLE];
    attn_status status = attn_io_output_write(context, output, preamble, attn_io_npy_print_preamble(preamble, tensor));
    return status ? status : attn_io_output_write(context, output, tensor->data, tensor->bytes);
}

const attn_io_format attn_io_npy = {
    .extension = ".npy", .recognize = recognize, .read = read_file, .check = check, .write = write_file};
