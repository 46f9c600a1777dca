/* SPDX-License-Identifier: MIT
 *
 * safetensors_write.c - writes .safetensors.  Wider elements come first and the header is padded to 8 bytes, so that every tensor
 * is aligned in the file without holes, and reading it back copies nothing.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "element.h"
#include "json.h"
#include "safetensors.h"
#include "text.h"

enum { PADDING = 8 };

static const size_t widths[] = {8, 4, 2, 1};

enum { WIDTHS = sizeof widths / sizeof widths[0] };

/* The tensors in file order; the caller frees the list. */
static const attn_archive_tensor **file_order(const attn_archive *tensors)
{
    int64_t count = attn_archive_count(tensors), placed = 0;
    const attn_archive_tensor **order = calloc((size_t)count + 1, sizeof(const attn_archive_tensor *));
    for (int w = 0; order && w < WIDTHS; w++)
        for (int64_t i = 0; i < count; i++)
            if (attn_dtype_size(attn_archive_at(tensors, i)->dtype) == widths[w]) order[placed++] = attn_archive_at(tensors, i);
    return order;
}

/* Numbers are added as raw text: cJSON would write those from 1e15 on with an exponent. */
static bool add_entry(cJSON *header, const attn_archive_tensor *tensor, uint64_t begin)
{
    char text[ATTN_IO_SHAPE_TEXT];
    cJSON *entry = cJSON_AddObjectToObject(header, tensor->name);
    if (!entry || !cJSON_AddStringToObject(entry, "dtype", attn_io_safetensors_name(tensor->dtype))) return false;
    if (!cJSON_AddRawToObject(entry, "shape", attn_io_shape_text(text, tensor->rank, tensor->shape))) return false;
    snprintf(text, sizeof text, "[%" PRIu64 ", %" PRIu64 "]", begin, begin + tensor->bytes);
    return cJSON_AddRawToObject(entry, "data_offsets", text) != NULL;
}

/* The text of the header; free it with cJSON_free.  NULL when out of memory. */
static char *header_text(const attn_archive *tensors, const attn_archive_tensor **order)
{
    uint64_t begin = 0;
    char *text = NULL;
    cJSON *header = cJSON_CreateObject();
    bool complete = header != NULL;
    if (complete && attn_archive_metadata_count(tensors)) {
        cJSON *metadata = attn_io_json_from_metadata(tensors);
        complete = metadata && cJSON_AddItemToObject(header, ATTN_IO_METADATA, metadata);
        if (!complete) cJSON_Delete(metadata);
    }
    for (int64_t i = 0; complete && i < attn_archive_count(tensors); i++) {
        complete = add_entry(header, order[i], begin);
        begin += order[i]->bytes;
    }
    if (complete) text = cJSON_PrintUnformatted(header);
    cJSON_Delete(header);
    return text;
}

static attn_status write_header(const attn_io_context *context, const char *text, attn_io_output *output)
{
    static const char blanks[PADDING + 1] = "        ";
    size_t length = strlen(text), pad = (PADDING - length % PADDING) % PADDING;
    uint64_t padded = length + pad;
    if (padded > ATTN_IO_HEADER_MAX)
        return attn_io_fail(context, ATTN_ERR_UNSUPPORTED, "header of %" PRIu64 " bytes, at most %d are allowed", padded,
                            ATTN_IO_HEADER_MAX);
    attn_status status = attn_io_output_write(context, output, &padded, sizeof padded);
    if (!status) status = attn_io_output_write(context, output, text, length);
    if (!status) status = attn_io_output_write(context, output, blanks, pad);
    return status;
}

static attn_status write_file(const attn_io_context *context, const attn_archive *tensors, attn_io_output *output)
{
    const attn_archive_tensor **order = file_order(tensors);
    if (!order) return attn_io_fail_memory(context);
    char *text = header_text(tensors, order);
    attn_status status = text ? write_header(context, text, output) : attn_io_fail_memory(context);
    for (int64_t i = 0; i < attn_archive_count(tensors) && !status; i++)
        status = attn_io_output_write(context, output, order[i]->data, order[i]->bytes);
    cJSON_free(text);
    free(order);
    return status;
}

static attn_status check(const attn_io_context *context, const attn_archive *tensors)
{
    (void)context, (void)tensors;
    return ATTN_OK; /* the format can hold any container */
}

/* No .npy or .zip file begins with such a small number and a brace. */
static bool recognize(const unsigned char *bytes, size_t size)
{
    uint64_t length;
    if (size <= ATTN_IO_LENGTH_BYTES) return false;
    memcpy(&length, bytes, sizeof length);
    return length <= ATTN_IO_HEADER_MAX && bytes[ATTN_IO_LENGTH_BYTES] == '{';
}

const attn_io_format attn_io_safetensors = {
    .extension = ".safetensors", .recognize = recognize, .read = attn_io_safetensors_read, .check = check, .write = write_file};
