/* SPDX-License-Identifier: MIT
 *
 * state.c - the state of training as a file, and back. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/file.h"
#include "testing/text/failure.h"
#include "train.h"

static const char key_task[] = "attn_train", key_steps[] = "attn_train_steps", key_seed[] = "attn_train_seed",
                  key_random[] = "attn_train_random", key_text[] = "attn_train_text";

/* ---- writing ---- */

static attn_status set_number(attn_archive *out, const char *key, uint64_t number, attn_error *error)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRIu64, number);
    return attn_archive_set_metadata(out, key, text, error);
}

static attn_status set_list(attn_archive *out, const char *key, const cJSON *list, attn_error *error)
{
    char *text = cJSON_PrintUnformatted(list);
    const attn_status status = attn_archive_set_metadata(out, key, text, error);
    cJSON_free(text);
    return status;
}

static attn_status set_vocabulary(const trainee *t, attn_archive *out, attn_error *error)
{
    cJSON *list = cJSON_CreateArray();
    for (int64_t c = 0; c < t->kinds; c++) cJSON_AddItemToArray(list, cJSON_CreateString(t->characters[c]));
    const attn_status status = set_list(out, "vocabulary", list, error);
    cJSON_Delete(list);
    return status;
}

static attn_status set_metadata(const trainee *t, attn_archive *out, attn_error *error)
{
    attn_status status = attn_archive_set_metadata(out, key_task, t->task->name, error);
    if (status == ATTN_OK) status = attn_archive_set_metadata(out, "attn_version", attn_version(), error);
    if (status == ATTN_OK) status = set_number(out, key_steps, (uint64_t)t->learner->steps, error);
    if (status == ATTN_OK) status = set_number(out, key_seed, t->seed, error);
    if (status == ATTN_OK) status = set_number(out, key_random, t->random, error);
    if (status == ATTN_OK && t->task->reads) status = set_number(out, key_text, t->digest, error);
    if (status == ATTN_OK && t->kinds) status = set_vocabulary(t, out, error);
    return status == ATTN_OK && t->labels ? set_list(out, "tokens", t->labels, error) : status;
}

attn_status train_compose(const trainee *t, attn_archive **out, attn_error *error)
{
    const learner *l = t->learner;
    attn_status status = attn_archive_create(out, error);
    for (int n = 0; n < l->tensor_count && status == ATTN_OK; n++) {
        const learn_tensor *tensor = &l->tensors[n];
        status = attn_archive_add(*out, tensor->name, ATTN_F32, tensor->rank, tensor->shape, l->values + tensor->at, error);
    }
    if (status == ATTN_OK) status = attn_archive_add(*out, "moment1", ATTN_F32, 1, &l->count, l->moment1, error);
    if (status == ATTN_OK) status = attn_archive_add(*out, "moment2", ATTN_F32, 1, &l->count, l->moment2, error);
    if (status == ATTN_OK) status = attn_archive_add(*out, "loss", ATTN_F64, 1, &l->steps, t->losses, error);
    if (status == ATTN_OK && t->weights) status = attn_archive_add(*out, "weights", ATTN_F32, t->rank, t->shape, t->weights, error);
    return status == ATTN_OK ? set_metadata(t, *out, error) : status;
}

attn_status train_save(const trainee *t, const char *path, attn_error *error)
{
    attn_archive *out = NULL;
    attn_status status = train_compose(t, &out, error);
    if (status == ATTN_OK) status = file_write_archive(out, path, error);
    attn_archive_destroy(out);
    return status;
}

/* ---- reading ---- */

static attn_status get_number(const attn_archive *file, const char *key, uint64_t *number, attn_error *error)
{
    const char *text = attn_archive_get_metadata(file, key);
    char *end;
    if (!text) return failure(error, ATTN_ERR_FORMAT, "no metadata '%s'; `attn train -o` writes it", key);
    errno = 0;
    *number = strtoull(text, &end, 10);
    if (!*text || strspn(text, "0123456789") != strlen(text) || *end || errno)
        return failure(error, ATTN_ERR_FORMAT, "metadata '%s' ('%.40s') is not an integer of at least 0", key, text);
    return ATTN_OK;
}

/* The numbers of a tensor of this type and shape. */
static attn_status get_numbers(const attn_archive *file, const char *name, attn_dtype dtype, int rank, const int64_t *shape,
                               void *numbers, attn_error *error)
{
    const attn_archive_tensor *t = attn_archive_find(file, name);
    if (!t) return failure(error, ATTN_ERR_FORMAT, "no tensor '%s'; `attn train -o` writes it", name);
    int same = t->dtype == dtype && t->rank == rank;
    for (int k = 0; k < rank && same; k++) same = t->shape[k] == shape[k];
    if (!same) return failure(error, ATTN_ERR_SHAPE, "tensor '%s' does not have the type and shape of this model's", name);
    for (int64_t i = 0; i < (int64_t)(t->bytes / attn_dtype_size(dtype)); i++) {
        const double x = dtype == ATTN_F64 ? ((const double *)t->data)[i] : (double)((const float *)t->data)[i];
        if (!isfinite(x)) return failure(error, ATTN_ERR_ARGUMENT, "tensor '%s' has %g at %" PRId64, name, x, i);
    }
    memcpy(numbers, t->data, t->bytes);
    return ATTN_OK;
}

attn_status train_peek(trainee *t, const attn_archive *file, int64_t *steps, attn_error *error)
{
    const char *task = attn_archive_get_metadata(file, key_task);
    const attn_archive_tensor *losses = attn_archive_find(file, "loss");
    uint64_t seed, done;
    if (!task) return failure(error, ATTN_ERR_FORMAT, "no metadata '%s'; `attn train -o` writes it", key_task);
    if (strcmp(task, t->task->name) != 0)
        return failure(error, ATTN_ERR_ARGUMENT, "was trained on the task %.40s, not %s", task, t->task->name);
    attn_status status = get_number(file, key_steps, &done, error);
    if (status == ATTN_OK) status = get_number(file, key_seed, &seed, error);
    if (status == ATTN_OK) status = get_number(file, key_random, &t->random, error);
    if (status != ATTN_OK) return status;
    if (!losses || losses->rank != 1 || losses->shape[0] < 0 || (uint64_t)losses->shape[0] != done)
        return failure(error, ATTN_ERR_FORMAT, "tensor 'loss' does not have one number for each of %" PRIu64 " steps", done);
    if (t->common->seed && t->common->seed != seed)
        return failure(error, ATTN_ERR_ARGUMENT, "was trained with the seed %" PRIu64 "; --seed cannot change it", seed);
    *steps = (int64_t)done;
    t->seed = seed;
    return ATTN_OK;
}

attn_status train_resume(trainee *t, const attn_archive *file, int64_t steps, attn_error *error)
{
    learner *l = t->learner;
    uint64_t digest = 0;
    attn_status status = t->task->reads ? get_number(file, key_text, &digest, error) : ATTN_OK;
    if (status == ATTN_OK && digest != t->digest) status = failure(error, ATTN_ERR_ARGUMENT, "was trained on another text");
    for (int n = 0; n < l->tensor_count && status == ATTN_OK; n++) {
        const learn_tensor *tensor = &l->tensors[n];
        status = get_numbers(file, tensor->name, ATTN_F32, tensor->rank, tensor->shape, l->values + tensor->at, error);
    }
    if (status == ATTN_OK) status = get_numbers(file, "moment1", ATTN_F32, 1, &l->count, l->moment1, error);
    if (status == ATTN_OK) status = get_numbers(file, "moment2", ATTN_F32, 1, &l->count, l->moment2, error);
    if (status == ATTN_OK) status = get_numbers(file, "loss", ATTN_F64, 1, &steps, t->losses, error);
    l->steps = steps;
    return status;
}
