/* SPDX-License-Identifier: MIT
 * linformer.c - see linformer.h. */
#include "linformer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/input/small_tensor.h"
#include "testing/text/failure.h"

const option_row linformer_options[] = {
    {"linformer", 0, NULL, "project keys and values along the tokens, by projection_k, _v", FLAG(linformer_settings, given)},
    {0},
};

static const int slots[2] = {TENSOR(k), TENSOR(v)}, gradient_slots[2] = {TENSOR(grad_k), TENSOR(grad_v)};
static const char *const names[2] = {"projection_k", "projection_v"};

/* ---- what it goes with ---- */

/* Options that need no position of a key. */
static attn_status check_options(const attention_input *input, attn_error *error)
{
    static const char allowed[] = "fwd bwd f32 f64 b hq hkv sq skv d dv scale softcap temperature score normaliser shift sink lse "
                                  "weights layout dlse dsink dscale seed";
    char text[512];
    if (input->spec.linear || (input->spec.op != SPEC_FORWARD && input->spec.op != SPEC_BACKWARD))
        return failure(error, ATTN_ERR_UNSUPPORTED, "--linformer is softmax attention, forward and --backward");
    if (input->spec.dtype != SPEC_F32 && input->spec.dtype != SPEC_F64)
        return failure(error, ATTN_ERR_UNSUPPORTED, "--linformer computes in f32 and f64; --dtype=f32 converts");
    problem_print(&input->spec, text, sizeof text);
    for (char *word = text, *next; word; word = next) {
        char name[40];
        next = strchr(word, ':');
        if (next) *next++ = 0;
        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
        if (options_has_word(allowed, name)) continue;
        const size_t letters = strcspn(name, "0123456789");
        name[letters] = 0; /* sq128 */
        if (word[letters] && !strchr(word, '=') && options_has_word(allowed, name)) continue;
        return failure(error, ATTN_ERR_ARGUMENT, "--linformer does not go with %.80s: every projected key mixes all tokens", word);
    }
    return ATTN_OK;
}

/* ---- the matrices ---- */

static attn_status find_matrix(linformer_work *work, const attention_input *input, int n, attn_error *error)
{
    const int64_t heads = input->problem.shape.heads_kv;
    const attn_archive_tensor *t = attn_archive_find(input->file, names[n]);
    char text[SHAPE_TEXT];
    if (!t) t = attn_archive_find(input->file, "projection");
    if (!t)
        return failure(error, ATTN_ERR_ARGUMENT, "--linformer needs a tensor '%s', or 'projection' for keys and values", names[n]);
    const int rank = t->rank;
    if ((rank != 2 && !(rank == 3 && t->shape[0] == heads)) || t->shape[rank - 2] != work->tokens || t->shape[rank - 1] < 1)
        return failure(error, ATTN_ERR_SHAPE,
                       "tensor '%s' is %s; it must be [%" PRId64
                       ", rank], a row for each key, or one such matrix for each of %" PRId64 " heads",
                       t->name, shape_text(text, rank, t->shape), work->tokens, heads);
    if (n && t->shape[rank - 1] != work->rank)
        return failure(error, ATTN_ERR_SHAPE, "projection_k has %" PRId64 " columns, and projection_v %" PRId64, work->rank,
                       t->shape[rank - 1]);
    work->matrix[n] = t;
    work->rank = t->shape[rank - 1];
    double *numbers = small_tensor_read(t);
    const int64_t count = small_tensor_count(t);
    work->converted[n] = need_memory(count, sizeof(double));
    for (int64_t i = 0; i < count; i++)
        if (input->spec.dtype == SPEC_F64) ((double *)work->converted[n])[i] = numbers[i];
        else ((float *)work->converted[n])[i] = (float)numbers[i];
    free(numbers);
    return ATTN_OK;
}

static attn_linformer_problem problem_of(const linformer_work *work, const attention_input *input, int n)
{
    const attn_shape *s = &input->problem.shape;
    return (attn_linformer_problem){.struct_size = sizeof(attn_linformer_problem),
                                    .batch = s->batch,
                                    .heads = s->heads_kv,
                                    .len = work->tokens,
                                    .rank = work->rank,
                                    .dim = n ? s->dim_v : s->dim_qk};
}

static attn_linformer_tensors tensors_of(const linformer_work *work, const attention_input *input, int n)
{
    attn_linformer_tensors t = {.struct_size = sizeof t, .x = work->plain[n], .projection = {.data = work->converted[n]}};
    t.projection.dtype = input->spec.dtype == SPEC_F64 ? ATTN_F64 : ATTN_F32;
    if (work->matrix[n]->rank == 2) t.projection.stride[2] = work->rank, t.projection.stride[3] = 1; /* of all heads */
    return t;
}

attn_status linformer_begin(linformer_work *work, attention_input *input, const attn_options *options, attn_error *error)
{
    attn_shape *s = &input->problem.shape;
    const attn_dtype dtype = input->spec.dtype == SPEC_F64 ? ATTN_F64 : ATTN_F32;
    *work = (linformer_work){.given = 1, .options = options, .tokens = s->len_kv};
    attn_status status = input->file ? check_options(input, error)
                                     : failure(error, ATTN_ERR_ARGUMENT, "--linformer needs an input file with its matrices");
    for (int n = 0; n < 2 && status == ATTN_OK; n++) {
        status = find_matrix(work, input, n, error);
        if (status != ATTN_OK) break;
        const attn_linformer_problem p = problem_of(work, input, n);
        attn_output *slot = tensors_slot(&input->tensors, slots[n]);
        work->plain[n] = (attn_input){.data = slot->data, .dtype = dtype};
        tensors_strides(&input->problem, &input->tensors, slots[n], work->plain[n].stride);
        work->projected[n] = need_memory(p.batch * p.heads * p.rank * p.dim, sizeof(double));
        attn_linformer_tensors t = tensors_of(work, input, n);
        t.y = (attn_output){.data = work->projected[n], .dtype = dtype};
        status = attn_linformer_project(&p, &t, work->options, error);
    }
    for (int n = 0; n < 2 && status == ATTN_OK; n++)
        *tensors_slot(&input->tensors, slots[n]) = (attn_output){.data = work->projected[n], .dtype = dtype};
    if (status == ATTN_OK) s->len_kv = input->spec.shape.len_kv = input->total_kv = work->rank;
    return status == ATTN_OK ? ATTN_OK : failure_about(error, input->path);
}

/* ---- gradients ---- */

/* Allocates dNAME for the matrix, or finds it if keys and values share the matrix: then `sum` gets its gradient. */
static attn_status add_matrix_gradient(const linformer_work *work, int n, attn_archive *out, attn_dtype dtype, void **data,
                                       void **sum, attn_error *error)
{
    const attn_archive_tensor *t = work->matrix[n];
    char name[40];
    (void)snprintf(name, sizeof name, "d%s", t->name);
    if (n && work->matrix[0] == t) {
        *sum = (void *)(uintptr_t)attn_archive_find(out, name)->data;
        *data = need_memory(small_tensor_count(t), sizeof(double));
        return ATTN_OK;
    }
    return attn_archive_allocate(out, name, dtype, t->rank, t->shape, data, error);
}

attn_status linformer_backward(const linformer_work *work, const attention_input *input, const attn_tensors *gradients,
                               attn_archive *out, attn_error *error)
{
    const attn_dtype dtype = input->spec.dtype == SPEC_F64 ? ATTN_F64 : ATTN_F32;
    attn_status status = ATTN_OK;
    for (int n = 0; n < 2 && status == ATTN_OK; n++) {
        const char *name = tensors_file_name(gradient_slots[n]);
        const attn_archive_tensor *like = input->used[slots[n]].tensor, *small = attn_archive_find(out, name);
        const attn_linformer_problem p = problem_of(work, input, n);
        void *of_projected = need_memory((int64_t)small->bytes + 1, 1), *matrix = NULL, *sum = NULL, *x;
        attn_linformer_tensors t = tensors_of(work, input, n);
        memcpy(of_projected, small->data, small->bytes);
        t.grad_y = (attn_input){.data = of_projected, .dtype = dtype};
        tensors_strides(&input->problem, gradients, gradient_slots[n], t.grad_y.stride);
        status = attn_archive_remove(out, name, error);
        if (status == ATTN_OK) status = attn_archive_allocate(out, name, dtype, like->rank, like->shape, &x, error);
        if (status == ATTN_OK) status = add_matrix_gradient(work, n, out, dtype, &matrix, &sum, error);
        if (status == ATTN_OK) {
            t.grad_x = (attn_output){.data = x, .dtype = dtype};
            memcpy(t.grad_x.stride, work->plain[n].stride, sizeof t.grad_x.stride);
            t.grad_projection = (attn_output){.data = matrix, .dtype = dtype};
            status = attn_linformer_backward(&p, &t, work->options, error);
        }
        for (int64_t i = 0; sum && status == ATTN_OK && i < small_tensor_count(work->matrix[n]); i++)
            if (dtype == ATTN_F64) ((double *)sum)[i] += ((double *)matrix)[i];
            else ((float *)sum)[i] += ((float *)matrix)[i];
        if (sum) free(matrix);
        free(of_projected);
    }
    return status;
}

void linformer_end(linformer_work *work)
{
    for (int n = 0; n < 2; n++) free(work->projected[n]), free(work->converted[n]);
}
