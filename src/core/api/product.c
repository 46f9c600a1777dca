/* SPDX-License-Identifier: MIT
 * product.c - the public functions of attn/product.h. */
#include "../plan/product.h"

#include "../base/error.h"
#include "../base/inference.h"
#include "../base/names.h"
#include "../plan/plan.h"
#include "../threads/threads.h"
#include "../walk/product/product.h"

/* A checked product, with the bytes of workspace it needs (0: none). */
typedef struct made {
    attn_product_walk walk;
    attn_options options;
    size_t need;
    int threads;
} made;

static attn_status read_options(attn_options *copy, const attn_options *given, attn_error *error)
{
    if (!given) {
        *copy = (attn_options){0};
        return ATTN_OK;
    }
    TRY(attn_struct_read(copy, sizeof *copy, sizeof *copy, given, "attn_options", error));
    return attn_options_validate(copy, error);
}

/* sizes_only: without tensors. */
static attn_status make(made *m, const attn_product_problem *problem, const attn_product_tensors *tensors, int sizes_only,
                        const attn_options *options, attn_error *error)
{
    attn_options *const o = &m->options;
    attn_product_walk *w = &m->walk;
    const attn_kernel_row *row;
    CHECK(problem, ATTN_ERR_ARGUMENT, "problem is NULL");
    TRY(read_options(o, options, error));
    TRY(attn_product_resolve(problem, &w->problem, error));
    if (!sizes_only) TRY(attn_product_lay_out(tensors, &w->problem, error));
    w->problem.in_chains = o->reproducible || o->invariant;
    TRY(attn_kernel_best(ATTN_PRODUCT, w->problem.dtype, o, &row, error));
    w->kernel = attn_kernel_matrix(row);
    CHECK(w->kernel, ATTN_ERR_UNSUPPORTED, "this build has no kernel for %s on %s" ATTN_LEFT_OUT, attn_dtype_text(w->problem.dtype),
          attn_isa_text(row->isa));
    w->parallel_for = o->parallel_for;
    w->parallel_context = o->parallel_context;
    m->threads = 1;
    if (!attn_product_is_small(&w->problem)) TRY(attn_threads_choose(o->threads, &m->threads, error));
    attn_product_walk_init(w, m->threads);
    m->need = w->bytes ? (size_t)(w->workers * w->bytes) + 63 : 0; /* for alignment */
    return ATTN_OK;
}

static void execute(const made *m, void *workspace) { attn_run_product(&m->walk, attn_workspace_align(workspace)); }

attn_status attn_product(const attn_product_problem *problem, const attn_product_tensors *tensors, const attn_options *options,
                         attn_error *error)
{
    made m;
    void *workspace;
    TRY(make(&m, problem, tensors, 0, options, error));
    const attn_allocator allocator = attn_allocator_or_default(&m.options.allocator);
    TRY(attn_workspace_acquire(&allocator, m.need, &workspace, error));
    execute(&m, workspace);
    attn_workspace_release(&allocator, workspace);
    return attn_succeed(error);
}

attn_status attn_product_workspace_size(const attn_product_problem *problem, size_t *bytes, const attn_options *options,
                                        attn_error *error)
{
    made m;
    CHECK(bytes, ATTN_ERR_ARGUMENT, "bytes is NULL");
    TRY(make(&m, problem, NULL, 1, options, error));
    const int64_t most = attn_product_walk_max(&m.walk, m.threads);
    *bytes = most ? (size_t)most + 63 : 0;
    return attn_succeed(error);
}

attn_status attn_product_in(const attn_product_problem *problem, const attn_product_tensors *tensors, void *workspace,
                            size_t workspace_size, const attn_options *options, attn_error *error)
{
    made m;
    TRY(make(&m, problem, tensors, 0, options, error));
    CHECK(m.need == 0 || workspace, ATTN_ERR_ARGUMENT, "workspace is NULL; the product needs %zu bytes", m.need);
    CHECK(workspace_size >= m.need, ATTN_ERR_MEMORY, "workspace has %zu bytes; the product needs %zu", workspace_size, m.need);
    TRY(attn_product_check_workspace(&m.walk.problem, (attn_bytes){workspace, m.need}, error));
    execute(&m, workspace);
    return attn_succeed(error);
}
