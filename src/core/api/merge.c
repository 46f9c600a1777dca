/* SPDX-License-Identifier: MIT
 * merge.c - attn_merge and attn_merge_backward: their rules; the loops are in sched/merge.c. */
#include "../sched/merge.h"

#include <inttypes.h>

#include "../base/checked.h"
#include "../base/error.h"
#include "../base/names.h"
#include "../plan/plan.h"

static attn_status resolve_layout(attn_layout *layout, const char *name, const int64_t shape[4], attn_dtype natural,
                                  attn_error *error)
{
    int64_t *stride = layout->stride, dense = 1, size;
    int implied = stride[0] == 0 && stride[1] == 0 && stride[2] == 0 && stride[3] == 0;
    if (layout->dtype == ATTN_DTYPE_DEFAULT) layout->dtype = natural;
    for (int axis = 3; axis >= 0; axis--) {
        if (implied) stride[axis] = dense;
        CHECK(attn_mul(dense, shape[axis], &dense), ATTN_ERR_SHAPE, "merge: %s has more elements than 64 bits count", name);
    }
    CHECK(attn_mul(dense, (int64_t)attn_dtype_bytes(layout->dtype), &size), ATTN_ERR_SHAPE,
          "merge: %s has more bytes than 64 bits count", name);
    CHECK(stride[3] == 1 || shape[3] <= 1, ATTN_ERR_STRIDE,
          "merge: %s.stride[3] is %" PRId64 "; the last axis must be contiguous (1)", name, stride[3]);
    for (int axis = 0; axis < 3; axis++)
        CHECK(stride[axis] > 0 || shape[axis] <= 1, ATTN_ERR_STRIDE,
              "merge: %s.stride[%d] is %" PRId64 "; it must be above 0, since the result has this layout too", name, axis,
              stride[axis]);
    return ATTN_OK;
}

static attn_status resolve(attn_merge_call *call, const attn_merge_problem *problem, attn_error *error)
{
    attn_merge_problem *p = &call->problem;
    CHECK(problem, ATTN_ERR_ARGUMENT, "problem is NULL");
    TRY(attn_struct_read(p, sizeof *p, problem, problem->struct_size, "attn_merge_problem", error));
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"batch", p->batch}, {"heads", p->heads}, {"len_q", p->len_q}, {"dim_v", p->dim_v}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        CHECK(sizes[i].value >= 0, ATTN_ERR_SHAPE, "merge: %s (%" PRId64 ") is negative", sizes[i].name, sizes[i].value);
    CHECK(p->parts >= 1, ATTN_ERR_ARGUMENT, "merge: parts is %" PRId64 "; it is at least 1", p->parts);
    const int64_t o[4] = {p->batch, p->heads, p->len_q, p->dim_v}, lse[4] = {p->batch, p->heads, p->len_q, 1};
    TRY(resolve_layout(&p->o, "o", o, ATTN_F32, error));
    CHECK(p->o.dtype >= ATTN_F32 && p->o.dtype <= ATTN_BF16, ATTN_ERR_UNSUPPORTED,
          "merge: o.dtype is %s; it must be f32, f64, f16 or bf16", attn_dtype_text(p->o.dtype));
    attn_dtype compute = p->o.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    TRY(resolve_layout(&p->lse, "lse", lse, compute, error));
    CHECK(p->lse.dtype == compute, ATTN_ERR_UNSUPPORTED, "merge: lse.dtype is %s; it must be %s, as o is %s",
          attn_dtype_text(p->lse.dtype), attn_dtype_text(compute), attn_dtype_text(p->o.dtype));
    return ATTN_OK;
}

/* `parts` pointers that are not NULL, unless rows have no elements. */
static attn_status check_parts(const attn_merge_problem *p, const char *name, const void *const *parts, attn_error *error)
{
    CHECK(parts, ATTN_ERR_ARGUMENT, "merge: %s is NULL", name);
    for (int64_t i = 0; i < p->parts; i++) CHECK(parts[i], ATTN_ERR_ARGUMENT, "merge: %s[%" PRId64 "] is NULL", name, i);
    return ATTN_OK;
}

attn_status attn_merge(const attn_merge_problem *problem, const void *const *o_parts, const void *const *lse_parts, void *o,
                       void *lse, attn_error *error)
{
    attn_merge_call call = {.o_parts = o_parts, .lse_parts = lse_parts, .o = o, .lse = lse};
    TRY(resolve(&call, problem, error));
    TRY(check_parts(&call.problem, "o_parts", o_parts, error));
    TRY(check_parts(&call.problem, "lse_parts", lse_parts, error));
    CHECK(o, ATTN_ERR_ARGUMENT, "merge: o is NULL");
    attn_sched_merge(&call);
    return attn_succeed(error);
}

attn_status attn_merge_backward(const attn_merge_problem *problem, const void *const *o_parts, const void *const *lse_parts,
                                const void *grad_o, const void *grad_lse, void *const *grad_o_parts, void *const *grad_lse_parts,
                                attn_error *error)
{
    attn_merge_call call = {.o_parts = o_parts,
                            .lse_parts = lse_parts,
                            .grad_o = grad_o,
                            .grad_lse = grad_lse,
                            .grad_o_parts = grad_o_parts,
                            .grad_lse_parts = grad_lse_parts};
    TRY(resolve(&call, problem, error));
    TRY(check_parts(&call.problem, "o_parts", o_parts, error));
    TRY(check_parts(&call.problem, "lse_parts", lse_parts, error));
    TRY(check_parts(&call.problem, "grad_o_parts", (const void *const *)grad_o_parts, error));
    TRY(check_parts(&call.problem, "grad_lse_parts", (const void *const *)grad_lse_parts, error));
    CHECK(grad_o, ATTN_ERR_ARGUMENT, "merge: grad_o is NULL");
    attn_sched_merge_backward(&call);
    return attn_succeed(error);
}
