/* SPDX-License-Identifier: MIT
 * export.c - a file or a part of a tensor as CSV and JSON. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/base/text_buffer.h"
#include "cli/input/input.h"
#include "show.h"
#include "testing/text/failure.h"
#include "testing/text/shown.h"

/* ---- CSV ---- */

/* In quotes, where a comma or a quote would end the field. */
static void put_field(const char *text)
{
    const int quoted = text[strcspn(text, ",\"\r\n")] != 0;
    text_buffer field = {0};
    for (const char *at = text; *at; at++) {
        if (*at == '"') text_letter(&field, '"');
        text_letter(&field, *at);
    }
    text_letter(&field, 0);
    if (field.failed) end_out_of_memory("a name");
    if (quoted) putchar('"');
    put_shown(stdout, field.bytes);
    if (quoted) putchar('"');
    text_free(&field);
}

void csv_file(const attn_archive *file)
{
    printf("name,dtype,shape,count,min,max,mean,norm,nan,inf\n");
    for (int64_t k = 0; k < attn_archive_count(file); k++) {
        const tensor_view v = tensor_view_of(attn_archive_at(file, k));
        const figures f = figures_of(&v);
        put_field(v.tensor->name);
        printf(",%s,", attn_dtype_name(v.tensor->dtype));
        for (int axis = 0; axis < v.rank; axis++) printf("%s%" PRId64, axis ? "x" : "", v.shape[axis]);
        printf(",%" PRId64 ",%.17g,%.17g,%.17g,%.17g,%" PRId64 ",%" PRId64 "\n", f.count, f.least, f.largest, f.mean, f.norm, f.nan,
               f.inf);
    }
}

attn_status csv_view(const tensor_view *v, const char *name, attn_error *error)
{
    char text[VIEW_NUMBER];
    if (v->rank > 2)
        return failure(error, ATTN_ERR_ARGUMENT,
                       "--csv has rows and columns, and '%.60s' has %d axes; a slice such as '%.60s[0]' has fewer", name, v->rank,
                       name);
    const int64_t columns = v->rank ? v->shape[v->rank - 1] : 1;
    for (int64_t n = 0; n < tensor_view_count(v); n++) {
        tensor_view_exact(text, v->tensor, tensor_view_at(v, n, NULL));
        printf("%s%c", text, (n + 1) % columns ? ',' : '\n');
    }
    return ATTN_OK;
}

/* ---- JSON ---- */

static void json_values(text_buffer *text, const tensor_view *v)
{
    const int64_t count = tensor_view_count(v);
    for (int64_t n = 0; n < count; n++) {
        char number[VIEW_NUMBER];
        const int64_t at = tensor_view_at(v, n, NULL);
        int64_t block = 1; /* lists that begin and end here */
        for (int axis = v->rank - 1; axis >= 0; axis--)
            if (n % (block *= v->shape[axis]) == 0) text_letter(text, '[');
        if (isfinite(tensor_view_number(v->tensor, at))) tensor_view_exact(number, v->tensor, at);
        text_string(text, isfinite(tensor_view_number(v->tensor, at)) ? number : "null");
        block = 1;
        for (int axis = v->rank - 1; axis >= 0; axis--)
            if ((n + 1) % (block *= v->shape[axis]) == 0) text_letter(text, ']');
        if (n + 1 < count) text_letter(text, ',');
    }
    if (!count) text_string(text, "[]");
    text_letter(text, 0);
}

static attn_status json_tensor(cJSON *list, const tensor_view *v, int values, attn_error *error)
{
    const figures f = figures_of(v);
    char shape[SHAPE_TEXT];
    cJSON *item = json_item(list);
    text_buffer text = {0};
    json_text(item, "name", v->tensor->name);
    json_text(item, "dtype", attn_dtype_name(v->tensor->dtype));
    cJSON_AddRawToObject(item, "shape", shape_text(shape, v->rank, v->shape));
    json_int(item, "count", f.count);
    json_number(item, "min", f.least);
    json_number(item, "max", f.largest);
    json_number(item, "mean", f.mean);
    json_number(item, "norm", f.norm);
    json_int(item, "nan", f.nan);
    json_int(item, "inf", f.inf);
    if (!values) return ATTN_OK;
    json_values(&text, v);
    const attn_status status = text_status(&text, "the numbers", error);
    if (status == ATTN_OK) cJSON_AddRawToObject(item, "values", text.bytes);
    text_free(&text);
    return status;
}

attn_status json_file(const char *path, const attn_archive *file, const tensor_view *one, attn_error *error)
{
    cJSON *object = json_begin(), *metadata, *list;
    attn_status status = ATTN_OK;
    json_text(object, "file", path);
    metadata = json_object(object, "metadata");
    for (int64_t k = 0; k < attn_archive_metadata_count(file); k++)
        json_text(metadata, attn_archive_metadata_at(file, k)->key, attn_archive_metadata_at(file, k)->value);
    list = json_list(object, "tensors");
    if (one) status = json_tensor(list, one, 1, error);
    for (int64_t k = 0; !one && k < attn_archive_count(file); k++) {
        const tensor_view v = tensor_view_of(attn_archive_at(file, k));
        (void)json_tensor(list, &v, 0, error);
    }
    if (status == ATTN_OK) json_end(object);
    else cJSON_Delete(object);
    return status;
}
