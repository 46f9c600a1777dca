/* SPDX-License-Identifier: MIT
 * linear.c - the inputs of linear attention in a file. */
#include <string.h>

#include "make.h"
#include "testing/case/linear_numbers.h"
#include "testing/problem/linear_problem.h"
#include "testing/text/failure.h"

typedef struct drawing {
    attn_archive *archive;
    const problem_spec *spec;
    const attn_linear_problem *problem;
    random_state random;
    attn_status status;
    attn_error *error;
} drawing;

/* 1 for the tensors of each token whose shape says which axes there are: q, k, v and the gradient of o. */
static int has_tokens(int t) { return t <= LINEAR(v) || t == LINEAR(grad_o); }

static void fill(drawing *d, int t, const attn_tensor_plan *about, int64_t count, char *to)
{
    const size_t size = attn_dtype_size(about->dtype);
    for (int64_t i = 0; i < count; i++) {
        const double x = linear_number(d->problem, t, &d->random);
        (void)attn_convert(1, &x, ATTN_F64, to + (size_t)i * size, about->dtype, NULL);
    }
}

/* Draws an input into the archive; outputs, some of which backward reads, get an address that nobody uses. */
static void *take(void *context, int t, const attn_tensor_plan *about)
{
    static char nowhere;
    drawing *d = context;
    void *to = NULL;
    const int first = has_tokens(t) ? 2 - make_leading(d->spec) : t == LINEAR(feature_matrix) ? 2 : 0;
    const int64_t count = about->shape[0] * about->shape[1] * about->shape[2] * about->shape[3];
    if (about->role != ATTN_ROLE_INPUT || d->status != ATTN_OK) return &nowhere;
    d->status =
        attn_archive_allocate(d->archive, linear_file_name(t), about->dtype, 4 - first, about->shape + first, &to, d->error);
    if (d->status == ATTN_OK) fill(d, t, about, count, to);
    return &nowhere;
}

attn_status make_linear(attn_archive *archive, const problem_spec *spec, attn_error *error)
{
    attn_linear_problem p;
    attn_linear_tensors all;
    drawing d = {archive, spec, &p, {spec->seed}, ATTN_OK, error};
    attn_status status = linear_problem_build(spec, &p, &all, error);
    if (status != ATTN_OK) return status;
    const attn_op last = p.op;
    linear_request_states(&p, &all);
    for (int pass = 0; pass < 1 + (last == ATTN_BACKWARD) && status == ATTN_OK; pass++) { /* the order in which they are drawn */
        attn_linear_plan *plan = NULL;
        p.op = pass ? ATTN_BACKWARD : ATTN_FORWARD;
        status = linear_plan(&plan, &p, &all, NULL, take, &d, error);
        attn_linear_plan_destroy(plan);
    }
    return status == ATTN_OK ? d.status : status;
}
