/* SPDX-License-Identifier: MIT
 *
 * linformer.c - projections along the tokens.  sum_j projection[j] x[j]^T is the final state of a linear attention whose keys are
 * the projection's rows, whose values are x, and which nobody queries; so its gradients are those too.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../common/fail.h"
#include "attn/linear.h"

/* A copy with types and strides filled in. */
static attn_status resolve(const attn_linformer *given, attn_linformer *l, attn_error *error)
{
    CHECK(given, ATTN_ERR_ARGUMENT, "linformer: problem is NULL");
    CHECK(given->struct_size == sizeof *given, ATTN_ERR_ARGUMENT,
          "attn_linformer.struct_size is %zu; set it to sizeof(attn_linformer)", given->struct_size);
    *l = *given;
    const struct {
        const char *name;
        int64_t size;
    } sizes[] = {{"batch", l->batch}, {"heads", l->heads}, {"len", l->len}, {"rank", l->rank}, {"dim", l->dim}};
    int64_t bytes = 16;
    for (int i = 0; i < 5; i++)
        CHECK(sizes[i].size >= 0, ATTN_ERR_SHAPE, "linformer: %s (%" PRId64 ") is negative", sizes[i].name, sizes[i].size);
    for (int i = 0; i < 5; i++) {
        CHECK(sizes[i].size <= INT64_MAX / bytes, ATTN_ERR_SHAPE, "linformer: the arrays have more bytes than 64 bits count");
        bytes *= sizes[i].size > 1 ? sizes[i].size : 1;
    }
    CHECK(l->shared == 0 || l->shared == 1, ATTN_ERR_ARGUMENT, "linformer: shared is %d; it is 0 or 1", l->shared);
    for (int k = 0; k < 4; k++)
        CHECK(l->reserved[k] == 0, ATTN_ERR_ARGUMENT, "linformer: reserved[%d] is %" PRId64 "; it must be 0", k, l->reserved[k]);
    if (l->x.dtype == ATTN_DTYPE_DEFAULT) l->x.dtype = ATTN_F32;
    const attn_dtype compute = l->x.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    CHECK(l->y.dtype == ATTN_DTYPE_DEFAULT || l->y.dtype == compute, ATTN_ERR_UNSUPPORTED, "linformer: y is %s; it must be %s",
          attn_dtype_name(l->y.dtype), attn_dtype_name(compute));
    l->y.dtype = compute;
    l->projection.dtype = l->projection.dtype ? l->projection.dtype : compute;
    int64_t *stride = l->projection.stride;
    if (!stride[0] && !stride[1] && !stride[2] && !stride[3]) stride[1] = l->len * l->rank, stride[2] = l->rank, stride[3] = 1;
    stride[0] = ATTN_BROADCAST;
    if (l->shared) stride[1] = ATTN_BROADCAST;
    return ATTN_OK;
}

static attn_linear_problem problem_of(const attn_linformer *l)
{
    return (attn_linear_problem){.struct_size = sizeof(attn_linear_problem),
                                 .shape = {l->batch, l->heads, l->heads, 0, l->len, l->rank, l->dim},
                                 .q.dtype = l->x.dtype,
                                 .k = l->projection,
                                 .v = l->x,
                                 .state = l->y,
                                 .features = ATTN_FEATURES_IDENTITY,
                                 .denominator = ATTN_DENOMINATOR_NONE};
}

attn_status attn_linformer_project(const attn_linformer *problem, const void *projection, const void *x, void *y, attn_error *error)
{
    attn_linformer l;
    TRY(resolve(problem, &l, error));
    attn_linear_problem p = problem_of(&l);
    p.final_state = 1;
    const attn_linear_args args = {.struct_size = sizeof args, .k = projection, .v = x, .final_state = y};
    return attn_linear(&p, &args, error);
}

/* What the gradients of all batch entries, and of all heads where they share, add up to. */
static void sum_projections(const attn_linformer *l, const void *each, void *total)
{
    const int64_t size = l->len * l->rank, heads = l->shared ? 1 : l->heads;
    for (int64_t i = 0; i < heads * size; i++) {
        double sum = 0;
        for (int64_t b = 0; b < l->batch; b++)
            for (int64_t h = 0; h < l->heads; h += heads) {
                const int64_t at = (b * l->heads + h) * size + i;
                sum += l->y.dtype == ATTN_F64 ? ((const double *)each)[at] : (double)((const float *)each)[at];
            }
        if (l->y.dtype == ATTN_F64) ((double *)total)[i] = sum;
        else ((float *)total)[i] = (float)sum;
    }
}

attn_status attn_linformer_backward(const attn_linformer *problem, const void *projection, const void *x, const void *grad_y,
                                    void *grad_x, void *grad_projection, attn_error *error)
{
    attn_linformer l;
    TRY(resolve(problem, &l, error));
    attn_linear_problem p = problem_of(&l);
    const size_t count = (size_t)(l.batch * l.heads * l.len * l.rank), size = attn_dtype_size(l.y.dtype);
    CHECK(grad_projection || l.len * l.rank * l.heads == 0, ATTN_ERR_ARGUMENT, "linformer: grad_projection is NULL");
    void *each = malloc(count * size + 1);
    CHECK(each, ATTN_ERR_MEMORY, "linformer: cannot allocate %zu bytes", count * size);
    p.op = ATTN_BACKWARD;
    p.grad_final_state = 1;
    p.grad_k.dtype = l.x.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    p.grad_v = l.x;
    const attn_linear_args args = {
        .struct_size = sizeof args, .k = projection, .v = x, .grad_final_state = grad_y, .grad_k = each, .grad_v = grad_x};
    const attn_status status = attn_linear(&p, &args, error);
    if (status == ATTN_OK) sum_projections(&l, each, grad_projection);
    free(each);
    return status;
}
