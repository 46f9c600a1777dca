/* SPDX-License-Identifier: MIT
 *
 * linformer.c - projections along the tokens.  sum_j projection[j] x[j]^T is the final state of a linear attention with the
 * projection's rows as keys, x as values and no queries; its gradients are therefore those of that attention.
 */
#include "../common/options.h"
#include "../common/places.h"
#include "attn/linear.h"

/* The caller's structs with types and strides filled in. */
typedef struct linformer {
    attn_linformer_problem p;
    attn_linformer_tensors t;
    attn_dtype compute;
    int shared;
} linformer;

static attn_status check_sizes(const attn_linformer_problem *p, attn_error *error)
{
    const struct {
        const char *name;
        int64_t size;
    } sizes[] = {{"batch", p->batch}, {"heads", p->heads}, {"len", p->len}, {"rank", p->rank}, {"dim", p->dim}};
    int64_t bytes = 16;
    for (int i = 0; i < 5; i++)
        CHECK(sizes[i].size >= 0, ATTN_ERR_SHAPE, "linformer: %s (%" PRId64 ") is negative", sizes[i].name, sizes[i].size);
    for (int i = 0; i < 5; i++) {
        CHECK(sizes[i].size <= INT64_MAX / bytes, ATTN_ERR_SHAPE,
              "linformer: the arrays are too large: their bytes overflow 64 bits");
        bytes *= sizes[i].size > 1 ? sizes[i].size : 1;
    }
    for (int k = 0; k < 4; k++)
        CHECK(p->reserved[k] == 0, ATTN_ERR_ARGUMENT, "linformer: reserved[%d] is %" PRId64 "; it must be 0", k, p->reserved[k]);
    return ATTN_OK;
}

/* x and projection must be present; projection [1, heads, len, rank], shared if it broadcasts along the heads. */
static attn_status resolve(const attn_linformer_problem *problem, const attn_linformer_tensors *tensors, linformer *l,
                           attn_error *error)
{
    CHECK(problem, ATTN_ERR_ARGUMENT, "linformer: problem is NULL");
    CHECK(tensors, ATTN_ERR_ARGUMENT, "linformer: tensors is NULL");
    TRY(struct_read(&l->p, sizeof l->p, sizeof l->p, problem, "attn_linformer_problem", error));
    TRY(slots_read(&l->t, sizeof l->t, sizeof l->t, tensors, "attn_linformer_tensors", error));
    TRY(check_sizes(&l->p, error));
    CHECK(!l->t.call, ATTN_ERR_ARGUMENT, "linformer: tensors.call is set; it must be NULL");
    CHECK(l->t.x.data, ATTN_ERR_ARGUMENT, "linformer: x is NULL");
    CHECK(l->t.projection.data, ATTN_ERR_ARGUMENT, "linformer: projection is NULL");
    const int64_t shape[4] = {1, l->p.heads, l->p.len, l->p.rank};
    if (l->t.x.dtype == ATTN_DTYPE_DEFAULT) l->t.x.dtype = ATTN_F32;
    l->compute = l->t.x.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    TRY(slot_resolve(&l->t.projection, "linformer: projection", shape, l->compute, error));
    l->shared = l->p.heads > 1 && l->t.projection.stride[1] == 0;
    l->t.projection.stride[0] = ATTN_BROADCAST; /* one for the whole batch */
    return ATTN_OK;
}

/* For y, grad_y and grad_projection, which have the compute type. */
static attn_status check_type(const linformer *l, const char *name, attn_dtype dtype, attn_error *error)
{
    CHECK(dtype == ATTN_DTYPE_DEFAULT || dtype == l->compute, ATTN_ERR_UNSUPPORTED, "linformer: %s is %s; it must be %s", name,
          attn_dtype_name(dtype), attn_dtype_name(l->compute));
    return ATTN_OK;
}

static attn_linear_problem problem_of(const attn_linformer_problem *p)
{
    return (attn_linear_problem){.struct_size = sizeof(attn_linear_problem),
                                 .shape = {p->batch, p->heads, p->heads, 0, p->len, p->rank, p->dim},
                                 .features = ATTN_FEATURES_IDENTITY,
                                 .denominator = ATTN_DENOMINATOR_NONE};
}

/* There are no queries: q and its companions have no elements; q's type sets that of the others. */
static attn_linear_tensors tensors_of(const linformer *l)
{
    return (attn_linear_tensors){.struct_size = sizeof(attn_linear_tensors),
                                 .q = {ATTN_EMPTY, l->t.x.dtype, {0, 0, 0, 0}},
                                 .k = l->t.projection,
                                 .v = l->t.x};
}

/* attn_linear_compute with options applied to its workspace too. */
static attn_status compute(const attn_linear_problem *problem, const attn_linear_tensors *tensors, const attn_options *options,
                           attn_error *error)
{
    attn_linear_plan *plan;
    TRY(attn_linear_plan_create(&plan, problem, tensors, options, error));
    const size_t size = attn_linear_plan_workspace_size(plan);
    void *workspace = options_acquire(options, size);
    attn_status status = workspace ? attn_linear_execute(plan, tensors, workspace, size, error)
                                   : fail(error, ATTN_ERR_MEMORY, "linformer: cannot allocate a workspace of %zu bytes", size);
    options_release(options, workspace);
    attn_linear_plan_destroy(plan);
    return status;
}

attn_status attn_linformer_project(const attn_linformer_problem *problem, const attn_linformer_tensors *tensors,
                                   const attn_options *options, attn_error *error)
{
    linformer l;
    attn_options o;
    TRY(options_read(&o, options, error));
    TRY(resolve(problem, tensors, &l, error));
    TRY(check_type(&l, "y", l.t.y.dtype, error));
    const attn_output *const others[] = {&l.t.grad_x, &l.t.grad_projection};
    static const char *const names[] = {"linformer: grad_x", "linformer: grad_projection"};
    TRY(slot_absent(&l.t.grad_y, "linformer: grad_y", "attn_linformer_project", error));
    for (int i = 0; i < 2; i++) {
        const attn_input slot = slot_of(others[i]);
        TRY(slot_absent(&slot, names[i], "attn_linformer_project", error));
    }
    CHECK(l.t.y.data, ATTN_ERR_ARGUMENT, "linformer: y is NULL");
    const attn_linear_problem p = problem_of(&l.p);
    attn_linear_tensors t = tensors_of(&l);
    t.o = attn_out(ATTN_EMPTY);
    t.final_state = l.t.y;
    return compute(&p, &t, &o, error);
}

/* An invalid slot is skipped: the linear plan rejects it, with its own message. */
static void add_place(places *p, const char *name, const attn_input *slot, const int64_t shape[4], attn_dtype natural, int output)
{
    attn_input s = *slot;
    if (slot_resolve(&s, name, shape, natural, NULL) != ATTN_OK || !slot_is_address(&s)) return;
    p->size = attn_dtype_size(s.dtype);
    if (p->size) places_add(p, "", name, s.data, shape, s.stride, output);
}

/* grad_projection, which the linear plan does not see, must not overlap another tensor. */
static attn_status check_no_overlap(const linformer *l, const attn_input *total, const int64_t shape[4], attn_error *error)
{
    const attn_linformer_problem *n = &l->p;
    const int64_t x[4] = {n->batch, n->heads, n->len, n->dim}, y[4] = {n->batch, n->heads, n->rank, n->dim},
                  projection[4] = {1, n->heads, n->len, n->rank};
    const attn_input grad_x = slot_of(&l->t.grad_x);
    places p = {.count = 0};
    int64_t span;
    const int axis = elements_self_overlap(shape, total->stride, &span);
    CHECK(axis < 0, ATTN_ERR_STRIDE,
          "linformer: grad_projection overlaps itself: stride[%d] is %" PRId64 " and the axes with smaller strides span %" PRId64
          " elements",
          axis, total->stride[axis < 0 ? 0 : axis], span);
    add_place(&p, "grad_projection", total, shape, l->compute, 1);
    add_place(&p, "projection", &l->t.projection, projection, l->compute, 0);
    add_place(&p, "x", &l->t.x, x, l->t.x.dtype, 0);
    add_place(&p, "grad_y", &l->t.grad_y, y, l->compute, 0);
    add_place(&p, "grad_x", &grad_x, x, l->compute, 1);
    return places_check(&p, "linformer", error);
}

/* Sums the gradients of all batch entries, and of all heads if they share the projection. */
static void sum_projections(const linformer *l, const void *each, const attn_input *total)
{
    const attn_linformer_problem *p = &l->p;
    const int64_t size = p->len * p->rank, heads = l->shared ? 1 : p->heads;
    for (int64_t i = 0; i < heads * size; i++) {
        double sum = 0;
        for (int64_t b = 0; b < p->batch; b++)
            for (int64_t h = 0; h < p->heads; h += heads) {
                const int64_t at = (b * p->heads + h) * size + i;
                sum += l->compute == ATTN_F64 ? ((const double *)each)[at] : (double)((const float *)each)[at];
            }
        const int64_t to = i / size * total->stride[1] + i % size / p->rank * total->stride[2] + i % p->rank * total->stride[3];
        if (l->compute == ATTN_F64) ((double *)slot_written(total))[to] = sum;
        else ((float *)slot_written(total))[to] = (float)sum;
    }
}

attn_status attn_linformer_backward(const attn_linformer_problem *problem, const attn_linformer_tensors *tensors,
                                    const attn_options *options, attn_error *error)
{
    linformer l;
    attn_options o;
    TRY(options_read(&o, options, error));
    TRY(resolve(problem, tensors, &l, error));
    TRY(check_type(&l, "grad_y", l.t.grad_y.dtype, error));
    const attn_linformer_problem *n = &l.p;
    const attn_input y = slot_of(&l.t.y);
    attn_input total = slot_of(&l.t.grad_projection);
    TRY(slot_absent(&y, "linformer: y", "attn_linformer_backward", error));
    CHECK(l.t.grad_y.data, ATTN_ERR_ARGUMENT, "linformer: grad_y is NULL");
    CHECK(l.t.grad_x.data, ATTN_ERR_ARGUMENT, "linformer: grad_x is NULL");
    CHECK(total.data, ATTN_ERR_ARGUMENT, "linformer: grad_projection is NULL");
    const int64_t shape[4] = {1, l.shared ? 1 : n->heads, n->len, n->rank};
    TRY(check_type(&l, "grad_projection", total.dtype, error));
    TRY(slot_resolve(&total, "linformer: grad_projection", shape, l.compute, error));
    const int some = n->len > 0 && n->rank > 0 && shape[1] > 0; /* else dense strides are 0 */
    for (int axis = 1; axis < 4 && some; axis++)
        CHECK(shape[axis] <= 1 || total.stride[axis] != 0, ATTN_ERR_STRIDE,
              "linformer: grad_projection.stride[%d] is 0; an output cannot broadcast", axis);
    TRY(check_no_overlap(&l, &total, shape, error));
    const size_t bytes = (size_t)(n->batch * n->heads * n->len * n->rank) * attn_dtype_size(l.compute);
    void *each = options_acquire(&o, bytes);
    CHECK(each, ATTN_ERR_MEMORY, "linformer: cannot allocate %zu bytes", bytes);
    attn_linear_problem p = problem_of(n);
    attn_linear_tensors t = tensors_of(&l);
    p.op = ATTN_BACKWARD;
    t.grad_o = attn_in(ATTN_EMPTY);
    t.grad_q = attn_out(ATTN_EMPTY);
    t.grad_final_state = l.t.grad_y;
    t.grad_k = (attn_output){each, l.compute, {0, 0, 0, 0}};
    t.grad_v = l.t.grad_x;
    const attn_status status = compute(&p, &t, &o, error);
    if (status == ATTN_OK) sum_projections(&l, each, &total);
    options_release(&o, each);
    return status;
}
