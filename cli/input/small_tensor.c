/* SPDX-License-Identifier: MIT
 * small_tensor.c - see small_tensor.h. */
#include "small_tensor.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "cli/base/tensor_view.h"
#include "find.h"
#include "input.h"
#include "testing/memory/element.h"
#include "testing/text/failure.h"
#include "testing/text/shown.h"

attn_status small_tensor_find(const attn_archive *file, const char *name, const attn_archive_tensor **t, attn_error *error)
{
    char names[100];
    *t = attn_archive_find(file, name);
    if (*t) return ATTN_OK;
    input_list(file, names, sizeof names);
    return failure(error, ATTN_ERR_ARGUMENT, "no tensor '%.40s' (available: %s)", name, names);
}

attn_status small_tensor_find_shape(const attn_archive *file, const char *name, int rank, const int64_t *shape, const char *axes,
                                    const attn_archive_tensor **t, attn_error *error)
{
    char found[SHAPE_TEXT], wanted[SHAPE_TEXT];
    attn_status status = small_tensor_find(file, name, t, error);
    if (status != ATTN_OK) return status;
    int fits = (*t)->rank == rank, any = 0;
    for (int k = 0; k < rank; k++) {
        if (fits) fits = shape[k] < 0 ? (*t)->shape[k] > 0 : (*t)->shape[k] == shape[k];
        any |= shape[k] < 0;
    }
    if (!fits)
        return failure(error, ATTN_ERR_SHAPE, "tensor '%.40s' is %s; it must be %s%s%s", name,
                       shape_text(found, (*t)->rank, (*t)->shape), axes, any ? "" : ", ",
                       any ? "" : shape_text(wanted, rank, shape));
    for (int64_t i = 0; i < small_tensor_count(*t); i++)
        if (!isfinite(tensor_view_number(*t, i)))
            return failure(error, ATTN_ERR_ARGUMENT, "tensor '%.40s': number %" PRId64 " is %g", name, i,
                           tensor_view_number(*t, i));
    return ATTN_OK;
}

int64_t small_tensor_count(const attn_archive_tensor *t) { return (int64_t)(t->bytes / attn_dtype_size(t->dtype)); }

double *small_tensor_read(const attn_archive_tensor *t)
{
    const int64_t count = small_tensor_count(t);
    double *numbers = need_memory(count + 1, sizeof *numbers);
    for (int64_t i = 0; i < count; i++) numbers[i] = tensor_view_number(t, i);
    return numbers;
}

static int64_t product(int rank, const int64_t *shape)
{
    int64_t count = 1;
    for (int k = 0; k < rank; k++) count *= shape[k];
    return count;
}

attn_status small_tensor_add(attn_archive *out, const char *name, attn_dtype dtype, int rank, const int64_t *shape,
                             const double *numbers, attn_error *error)
{
    void *data;
    const attn_status status = attn_archive_allocate(out, name, dtype, rank, shape, &data, error);
    if (status != ATTN_OK) return status;
    for (int64_t i = 0; i < product(rank, shape); i++)
        element_write(dtype, (char *)data + (size_t)i * attn_dtype_size(dtype), numbers[i]);
    return ATTN_OK;
}

static void add_json(cJSON *list, const attn_archive_tensor *t)
{
    const int64_t count = small_tensor_count(t);
    cJSON *object = json_item(list), *sizes, *numbers;
    json_text(object, "name", t->name);
    sizes = json_list(object, "shape");
    for (int k = 0; k < t->rank; k++) cJSON_AddItemToArray(sizes, cJSON_CreateNumber((double)t->shape[k]));
    if (count > SMALL_TENSOR_NUMBERS) return;
    numbers = json_list(object, "numbers");
    for (int64_t i = 0; i < count; i++) {
        char text[VIEW_NUMBER];
        tensor_view_exact(text, t, i);
        cJSON_AddItemToArray(numbers, isfinite(tensor_view_number(t, i)) ? cJSON_CreateRaw(text) : cJSON_CreateNull());
    }
}

void small_tensor_json(const attn_archive *archive, cJSON *list)
{
    for (int64_t k = 0; k < attn_archive_count(archive); k++) add_json(list, attn_archive_at(archive, k));
}

void small_tensor_print(const attn_archive *archive, const common_settings *common, const char *output)
{
    if (common->prints_numbers || (output && common->quiet)) return;
    tensor_view_print_archive(stdout, archive);
}

void small_tensor_tell(const common_settings *common, const char *output)
{
    if (!output || !options_tell(common)) return;
    printf("wrote ");
    put_shown(stdout, output);
    printf("\n");
}
