/* SPDX-License-Identifier: MIT
 *
 * fuzz_tensors.c - fuzz target of the file parsers: reads the input as a file and checks the result against the promises of
 * attn/io.h.  Built once for each format; FUZZ_FILE is the file name passed with the input.  docs/io.md and CMakeLists.txt show how
 * to run it.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <attn/io.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void require(int condition)
{
    if (!condition) abort();
}

static volatile unsigned char sink; /* keeps the reads from being optimised away */

static void check_tensor(const attn_archive *tensors, int64_t index)
{
    const attn_archive_tensor *tensor = attn_archive_at(tensors, index), *before = attn_archive_at(tensors, index - 1);
    size_t width = attn_dtype_size(tensor->dtype), bytes = width;
    require(width > 0 && tensor->rank >= 0 && tensor->rank <= ATTN_MAX_RANK);
    for (int i = 0; i < tensor->rank; i++) bytes *= (size_t)tensor->shape[i];
    require(tensor->bytes == bytes);
    require(bytes == 0 || (uintptr_t)tensor->data % width == 0);
    require(tensor->name[0] && strcmp(tensor->name, "__metadata__"));
    require(!before || strcmp(before->name, tensor->name) < 0);
    require(attn_archive_find(tensors, tensor->name) == tensor);
    for (size_t i = 0; i < bytes; i++) sink = ((const unsigned char *)tensor->data)[i];
}

/* Items lie one after the other, so that a wrong count or length is out of bounds. */
static void check_list(const attn_archive *tensors, const attn_metadata *metadata)
{
    attn_metadata_list *list;
    attn_error error;
    attn_status status = attn_metadata_list_create(&list, tensors, metadata->key, &error);
    require(status == ATTN_OK || status == ATTN_ERR_FORMAT);
    require(error.status == status && (status == ATTN_OK) == (list != NULL));
    for (int64_t i = 0; list && i < list->count; i++) require(strlen(list->items[i]) <= strlen(metadata->value));
    attn_metadata_list_destroy(list);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    attn_archive *tensors;
    attn_error error;
    attn_status status = attn_archive_read_memory(&tensors, FUZZ_FILE, bytes, size, &error);
    require(error.status == status);
    require(memchr(error.message, 0, sizeof error.message) && !strchr(error.message, '\n'));
    require((status == ATTN_OK) == (tensors != NULL) && (status == ATTN_OK) == (error.message[0] == 0));
    for (int64_t i = 0; i < attn_archive_count(tensors); i++) check_tensor(tensors, i);
    for (int64_t i = 0; i < attn_archive_metadata_count(tensors); i++) {
        const attn_metadata *metadata = attn_archive_metadata_at(tensors, i);
        require(attn_archive_get_metadata(tensors, metadata->key) == metadata->value);
        check_list(tensors, metadata);
    }
    attn_archive_destroy(tensors);
    return 0;
}
