/* SPDX-License-Identifier: MIT
 *
 * run_linear.c - see run_linear.h. */
#include "run_linear.h"

#include <stdio.h>
#include <stdlib.h>

#include "bench/linear.h"
#include "failure.h"

static attn_status execute(const attn_linear_problem *p, const attn_linear_args *args, const common_settings *common, char *kernel,
                           size_t size, attn_error *error)
{
    const attn_options options = options_for_library(common);
    attn_linear_description says = {.struct_size = sizeof says};
    attn_linear_plan *plan = NULL;
    attn_status status = attn_linear_plan_create(&plan, p, &options, error);
    if (status == ATTN_OK) status = attn_linear_plan_describe(plan, &says, error);
    if (status == ATTN_OK) {
        const size_t bytes = (attn_linear_workspace_size(plan) + 63) / 64 * 64;
        void *workspace = aligned_alloc(64, bytes ? bytes : 64);
        snprintf(kernel, size, "%s", says.kernel);
        status = workspace ? attn_linear_execute(plan, args, workspace, bytes, error)
                           : failure(error, ATTN_ERR_MEMORY, "no memory for %zu bytes of workspace", bytes);
        free(workspace);
    }
    attn_linear_plan_destroy(plan);
    return status;
}

/* The rows of random features, drawn from the seed. */
static attn_status make_omega(const attention_input *input, const attn_linear_problem *p, void **omega, attn_error *error)
{
    const attn_dtype wide = p->q.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    if (!p->random_features) return ATTN_OK;
    *omega = need_memory(p->random_features * p->shape.dim_qk, attn_dtype_size(wide));
    return attn_random_features(ATTN_ROWS_ORTHOGONAL, p->random_features, p->shape.dim_qk, input->spec.seed, 0, *omega, wide,
                                error);
}

/* The identity [keys][keys], which every head and batch entry reads. */
static void *make_identity(int64_t keys, attn_dtype dtype)
{
    static const double one = 1;
    const size_t size = attn_dtype_size(dtype);
    char *identity = need_memory(keys * keys, size);
    for (int64_t j = 0; j < keys; j++) attn_convert(identity + (size_t)(j * keys + j) * size, dtype, &one, ATTN_F64, 1);
    return identity;
}

attn_status run_linear(const attention_input *input, const attn_args *args, const common_settings *common, char *kernel,
                       size_t size, attn_error *error)
{
    problem_spec spec = input->spec;
    attn_linear_problem p;
    void *omega = NULL, *identity = NULL;
    spec.op = SPEC_LINEAR;
    spec.weights = 0;
    attn_status status = linear_problem_build(&spec, &p, error);
    if (status != ATTN_OK) return status;
    p.initial_state = p.final_state = 0;
    p.q = input->problem.q, p.k = input->problem.k, p.v = input->problem.v, p.o = input->problem.o;
    status = make_omega(input, &p, &omega, error);
    attn_linear_args a = {.struct_size = sizeof a, .q = args->q, .k = args->k, .v = args->v, .o = args->o, .omega = omega};
    if (status == ATTN_OK) status = execute(&p, &a, common, kernel, size, error);
    if (status == ATTN_OK && args->weights) {
        const int64_t keys = p.shape.len_kv;
        identity = make_identity(keys, p.v.dtype);
        p.shape.dim_v = keys;
        p.v = (attn_layout){p.v.dtype, {0, 0, keys, 1}};
        p.o = (attn_layout){p.q.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32, {0, 0, 0, 0}};
        a.v = identity, a.o = args->weights;
        status = execute(&p, &a, common, kernel, size, error);
    }
    free(omega);
    free(identity);
    return status;
}
