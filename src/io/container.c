/* SPDX-License-Identifier: MIT
 *
 * container.c - the container: building it and querying it.
 */
#include "container.h"

#include <stdlib.h>
#include <string.h>

#include "element.h"
#include "text.h"

typedef struct tensor_item {
    attn_archive_tensor tensor;
    void *owned;
    char name[];
} tensor_item;

typedef struct metadata_item {
    attn_metadata metadata;
    char text[]; /* key, NUL, value, NUL */
} metadata_item;

enum { DATA_ALIGNMENT = 64 };

/* ---- for the readers ------------------------------------------------------------------------------------------- */

attn_status attn_io_check_name(const attn_io_context *context, attn_status status, const char *name)
{
    char excerpt[ATTN_IO_EXCERPT];
    if (!name[0]) return attn_io_fail(context, status, "a tensor has an empty name");
    if (!attn_io_utf8(name, strlen(name)))
        return attn_io_fail(context, status, "tensor name '%s' is not UTF-8", attn_io_excerpt(excerpt, name));
    if (!strcmp(name, ATTN_IO_METADATA)) return attn_io_fail(context, status, "no tensor can have the name '%s'", name);
    return ATTN_OK;
}

bool attn_io_aligned(const void *data, attn_dtype dtype) { return (uintptr_t)data % attn_dtype_size(dtype) == 0; }

static attn_status insert_tensor(const attn_io_context *context, attn_archive *tensors, size_t position,
                                 const attn_archive_tensor *tensor, void *owned)
{
    size_t length = strlen(tensor->name) + 1;
    tensor_item *item = malloc(sizeof *item + length);
    if (item) {
        item->tensor = *tensor;
        item->tensor.name = memcpy(item->name, tensor->name, length);
        item->owned = owned;
        if (attn_io_list_insert(&tensors->tensors, position, item)) return ATTN_OK;
    }
    free(item);
    free(owned);
    return attn_io_fail_memory(context);
}

bool attn_io_wanted(const attn_archive *tensors, const attn_archive_tensor *tensor)
{
    attn_archive_tensor about = *tensor;
    about.data = NULL;
    return !tensors->wanted || tensors->wanted(tensors->wanted_context, &about);
}

attn_status attn_io_append(const attn_io_context *context, attn_archive *tensors, const attn_archive_tensor *tensor, void *owned)
{
    return insert_tensor(context, tensors, tensors->tensors.count, tensor, owned);
}

static metadata_item *new_metadata(const char *key, const char *value)
{
    size_t key_length = strlen(key) + 1, value_length = strlen(value) + 1;
    metadata_item *item = malloc(sizeof *item + key_length + value_length);
    if (!item) return NULL;
    item->metadata.key = memcpy(item->text, key, key_length);
    item->metadata.value = memcpy(item->text + key_length, value, value_length);
    return item;
}

static attn_status insert_metadata(const attn_io_context *context, attn_archive *tensors, size_t position, const char *key,
                                   const char *value)
{
    metadata_item *item = new_metadata(key, value);
    if (item && attn_io_list_insert(&tensors->metadata, position, item)) return ATTN_OK;
    free(item);
    return attn_io_fail_memory(context);
}

attn_status attn_io_append_metadata(const attn_io_context *context, attn_archive *tensors, const char *key, const char *value)
{
    return insert_metadata(context, tensors, tensors->metadata.count, key, value);
}

attn_status attn_io_sort(const attn_io_context *context, attn_archive *tensors)
{
    char excerpt[ATTN_IO_EXCERPT];
    const char *twice = attn_io_list_sort(&tensors->tensors);
    if (twice) return attn_io_fail(context, ATTN_ERR_FORMAT, "two tensors have the name '%s'", attn_io_excerpt(excerpt, twice));
    twice = attn_io_list_sort(&tensors->metadata);
    if (twice) return attn_io_fail(context, ATTN_ERR_FORMAT, "metadata has the key '%s' twice", attn_io_excerpt(excerpt, twice));
    return ATTN_OK;
}

/* ---- building -------------------------------------------------------------------------------------------------- */

attn_status attn_archive_create(attn_archive **tensors, attn_error *error)
{
    attn_io_context context = {.error = error};
    if (!tensors) return attn_io_fail(&context, ATTN_ERR_ARGUMENT, "tensors is NULL");
    *tensors = calloc(1, sizeof **tensors);
    return *tensors ? attn_io_succeed(&context) : attn_io_fail_memory(&context);
}

static void free_tensor(tensor_item *item)
{
    free(item->owned);
    free(item);
}

void attn_archive_destroy(attn_archive *tensors)
{
    if (!tensors) return;
    for (size_t i = 0; i < tensors->tensors.count; i++) free_tensor(tensors->tensors.items[i]);
    for (size_t i = 0; i < tensors->metadata.count; i++) free(tensors->metadata.items[i]);
    free(tensors->tensors.items);
    free(tensors->metadata.items);
    attn_io_input_close(&tensors->input);
    free(tensors);
}

/* Checks the arguments of add and allocate; fills everything but the data, and finds the position of the name. */
static attn_status check_tensor(attn_io_context *context, const attn_archive *tensors, attn_archive_tensor *tensor,
                                const int64_t *shape, size_t *position)
{
    char text[ATTN_IO_SHAPE_TEXT];
    bool taken;
    if (!tensors) return attn_io_fail(context, ATTN_ERR_ARGUMENT, "tensors is NULL");
    if (!tensor->name) return attn_io_fail(context, ATTN_ERR_ARGUMENT, "name is NULL");
    attn_status status = attn_io_check_name(context, ATTN_ERR_ARGUMENT, tensor->name);
    if (status) return status;
    context->noun = "tensor";
    context->name = tensor->name;
    if (!attn_dtype_size(tensor->dtype))
        return attn_io_fail(context, ATTN_ERR_ARGUMENT, "dtype %d is not a type", (int)tensor->dtype);
    if (!attn_io_safetensors_name(tensor->dtype))
        return attn_io_fail(context, ATTN_ERR_UNSUPPORTED, "files have no tensors of %s", attn_dtype_name(tensor->dtype));
    if (tensor->rank < 0 || tensor->rank > ATTN_MAX_RANK)
        return attn_io_fail(context, ATTN_ERR_ARGUMENT, "rank %d is not between 0 and %d", tensor->rank, ATTN_MAX_RANK);
    if (!shape && tensor->rank) return attn_io_fail(context, ATTN_ERR_ARGUMENT, "shape is NULL");
    if (!attn_io_shape_bytes(tensor->dtype, tensor->rank, shape, &tensor->bytes))
        return attn_io_fail(context, ATTN_ERR_SHAPE, "no tensor of %s can have the shape %s", attn_dtype_name(tensor->dtype),
                            attn_io_shape_text(text, tensor->rank, shape));
    if (shape) memcpy(tensor->shape, shape, (size_t)tensor->rank * sizeof *shape);
    *position = attn_io_list_search(&tensors->tensors, tensor->name, &taken);
    return taken ? attn_io_fail(context, ATTN_ERR_ARGUMENT, "the name is taken") : ATTN_OK;
}

attn_status attn_archive_add(attn_archive *tensors, const char *name, attn_dtype dtype, int rank, const int64_t *shape,
                             const void *data, attn_error *error)
{
    attn_io_context context = {.error = error};
    attn_archive_tensor tensor = {.name = name, .dtype = dtype, .rank = rank, .data = data};
    size_t position = 0;
    attn_status status = check_tensor(&context, tensors, &tensor, shape, &position);
    if (status) return status;
    if (!data && tensor.bytes) return attn_io_fail(&context, ATTN_ERR_ARGUMENT, "data is NULL");
    if (!attn_io_aligned(data, dtype))
        return attn_io_fail(&context, ATTN_ERR_ARGUMENT, "data is not aligned to an element of %s", attn_dtype_name(dtype));
    status = insert_tensor(&context, tensors, position, &tensor, NULL);
    return status ? status : attn_io_succeed(&context);
}

attn_status attn_archive_allocate(attn_archive *tensors, const char *name, attn_dtype dtype, int rank, const int64_t *shape,
                                  void **data, attn_error *error)
{
    attn_io_context context = {.error = error};
    attn_archive_tensor tensor = {.name = name, .dtype = dtype, .rank = rank};
    size_t position = 0;
    if (!data) return attn_io_fail(&context, ATTN_ERR_ARGUMENT, "data is NULL");
    *data = NULL;
    attn_status status = check_tensor(&context, tensors, &tensor, shape, &position);
    if (status) return status;
    /* calloc, not aligned_alloc and memset: the zero pages of a large tensor then stay untouched. */
    char *owned = tensor.bytes > SIZE_MAX - DATA_ALIGNMENT ? NULL : calloc(1, tensor.bytes + DATA_ALIGNMENT);
    if (!owned) return attn_io_fail_memory(&context);
    char *aligned = owned + (DATA_ALIGNMENT - (uintptr_t)owned % DATA_ALIGNMENT) % DATA_ALIGNMENT;
    tensor.data = aligned;
    status = insert_tensor(&context, tensors, position, &tensor, owned);
    if (status) return status;
    *data = aligned;
    return attn_io_succeed(&context);
}

attn_status attn_archive_remove(attn_archive *tensors, const char *name, attn_error *error)
{
    attn_io_context context = {.error = error};
    char excerpt[ATTN_IO_EXCERPT];
    bool found;
    if (!tensors) return attn_io_fail(&context, ATTN_ERR_ARGUMENT, "tensors is NULL");
    if (!name) return attn_io_fail(&context, ATTN_ERR_ARGUMENT, "name is NULL");
    const size_t position = attn_io_list_search(&tensors->tensors, name, &found);
    if (!found) return attn_io_fail(&context, ATTN_ERR_ARGUMENT, "no tensor has the name '%s'", attn_io_excerpt(excerpt, name));
    free_tensor(attn_io_list_remove(&tensors->tensors, position));
    return attn_io_succeed(&context);
}

attn_status attn_archive_set_metadata(attn_archive *tensors, const char *key, const char *value, attn_error *error)
{
    attn_io_context context = {.error = error};
    char excerpt[ATTN_IO_EXCERPT];
    bool found;
    if (!tensors) return attn_io_fail(&context, ATTN_ERR_ARGUMENT, "tensors is NULL");
    if (!key) return attn_io_fail(&context, ATTN_ERR_ARGUMENT, "key is NULL");
    if (!value) return attn_io_fail(&context, ATTN_ERR_ARGUMENT, "value is NULL");
    if (!attn_io_utf8(key, strlen(key)))
        return attn_io_fail(&context, ATTN_ERR_ARGUMENT, "metadata key '%s' is not UTF-8", attn_io_excerpt(excerpt, key));
    if (!attn_io_utf8(value, strlen(value)))
        return attn_io_fail(&context, ATTN_ERR_ARGUMENT, "metadata '%s' is not UTF-8", attn_io_excerpt(excerpt, key));
    size_t position = attn_io_list_search(&tensors->metadata, key, &found);
    if (!found) {
        attn_status status = insert_metadata(&context, tensors, position, key, value);
        return status ? status : attn_io_succeed(&context);
    }
    metadata_item *item = new_metadata(key, value);
    if (!item) return attn_io_fail_memory(&context);
    attn_io_list_replace(&tensors->metadata, position, item);
    return attn_io_succeed(&context);
}

/* ---- querying -------------------------------------------------------------------------------------------------- */

static const void *item_at(const attn_io_list *list, int64_t index)
{
    return index >= 0 && (uint64_t)index < list->count ? list->items[index] : NULL;
}

static const void *item_named(const attn_io_list *list, const char *name)
{
    bool found;
    size_t position = attn_io_list_search(list, name, &found);
    return found ? list->items[position] : NULL;
}

int64_t attn_archive_count(const attn_archive *tensors) { return tensors ? (int64_t)tensors->tensors.count : 0; }

const attn_archive_tensor *attn_archive_at(const attn_archive *tensors, int64_t index)
{
    return tensors ? item_at(&tensors->tensors, index) : NULL;
}

const attn_archive_tensor *attn_archive_find(const attn_archive *tensors, const char *name)
{
    return tensors && name ? item_named(&tensors->tensors, name) : NULL;
}

int64_t attn_archive_metadata_count(const attn_archive *tensors) { return tensors ? (int64_t)tensors->metadata.count : 0; }

const attn_metadata *attn_archive_metadata_at(const attn_archive *tensors, int64_t index)
{
    return tensors ? item_at(&tensors->metadata, index) : NULL;
}

const char *attn_archive_get_metadata(const attn_archive *tensors, const char *key)
{
    const attn_metadata *metadata = tensors && key ? item_named(&tensors->metadata, key) : NULL;
    return metadata ? metadata->value : NULL;
}
