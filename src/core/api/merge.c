/* SPDX-License-Identifier: MIT
 * merge.c - attn_merge and attn_merge_backward: their rules; the loops are in walk/merge/merge.c. */
#include "../walk/merge/merge.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../base/checked.h"
#include "../base/error.h"
#include "../base/names.h"
#include "../plan/plan.h"
#include "../threads/threads.h"

/* One tensor of a call, for the common rules. */
typedef struct tensor {
    const char *name;
    int64_t part; /* -1: not an array of parts */
    int output;
    attn_input slot; /* as given */
    int64_t dim;     /* dim_v, or 1 for lse */
    attn_dtype natural;
    int needed, last_contiguous;
} tensor;

typedef struct text {
    char name[48];
} text;

/* "o_parts[3]" */
static text name_of(const tensor *t)
{
    text n;
    if (t->part < 0) (void)snprintf(n.name, sizeof n.name, "%s", t->name);
    else (void)snprintf(n.name, sizeof n.name, "%s[%" PRId64 "]", t->name, t->part);
    return n;
}

static attn_input read_only(const attn_output *slot)
{
    attn_input s;
    memcpy(&s, slot, sizeof s);
    return s;
}

static int is_blank(const attn_input *s) { return !s->dtype && !s->stride[0] && !s->stride[1] && !s->stride[2] && !s->stride[3]; }

static attn_status check_present(const tensor *t, int some, attn_error *error)
{
    const attn_input *s = &t->slot;
    CHECK(s->data != ATTN_MISSING, ATTN_ERR_ARGUMENT, "merge: %s is NULL", name_of(t).name);
    CHECK(s->data || is_blank(s), ATTN_ERR_ARGUMENT,
          "merge: %s is NULL and has a type or strides; a slot that is not set must be all 0", name_of(t).name);
    CHECK(s->data || !t->needed, ATTN_ERR_ARGUMENT, "merge: %s is missing", name_of(t).name);
    CHECK(s->data != ATTN_LATER, ATTN_ERR_ARGUMENT, "merge: %s is ATTN_LATER; this call needs its pointer", name_of(t).name);
    CHECK(s->data != ATTN_EMPTY || !some, ATTN_ERR_ARGUMENT, "merge: %s is ATTN_EMPTY and has elements", name_of(t).name);
    return ATTN_OK;
}

static void shape_of(const void *problem, int number, int64_t shape[4])
{
    (void)number;
    memcpy(shape, problem, 4 * sizeof *shape);
}

/* Prefixes the engine's message, which begins with the tensor. */
static attn_status pass_on(const attn_error *inner, attn_error *error)
{
    if (!error) return inner->status;
    *error = *inner;
    (void)snprintf(error->message, sizeof error->message, "merge: %.*s", (int)sizeof error->message - 8, inner->message);
    return inner->status;
}

/* Types, strides and extent, resolved by the engine like all tensors; these are in no table, so a row is made up with their
 * name. */
static attn_status resolve(const attn_merge_call *c, const tensor *t, attn_planned_tensor *planned, attn_error *error)
{
    const text name = name_of(t);
    const int64_t shape[4] = {c->batch, c->heads, c->len_q, t->dim};
    const attn_tensor_row row = {name.name, {0}, {0}, {0}, ATTN_TYPE_FLOAT, t->last_contiguous ? ATTN_LAST_CONTIGUOUS : 0, -1, -1};
    const attn_tensor_family family = {&row, 1, "attn_merge_tensors", NULL};
    const attn_tensor_facts facts = {ATTN_FORWARD, 0, 0, c->dtype, shape_of, shape};
    attn_error inner;
    *planned = (attn_planned_tensor){.role = t->output ? ATTN_ROLE_OUTPUT : ATTN_ROLE_INPUT};
    planned->given.dtype = t->slot.dtype ? t->slot.dtype : t->natural;
    memcpy(planned->given.stride, t->slot.stride, sizeof planned->given.stride);
    const attn_status status = attn_tensor_resolve(&family, &facts, planned, NULL, &inner);
    if (status != ATTN_OK) return pass_on(&inner, error);
    CHECK(planned->at.dtype == t->natural, ATTN_ERR_UNSUPPORTED, "merge: %s.dtype is %s; it must be %s", name.name,
          attn_dtype_text(planned->at.dtype), attn_dtype_text(t->natural));
    CHECK(planned->low == planned->high || (uintptr_t)t->slot.data % attn_dtype_bytes(t->natural) == 0, ATTN_ERR_ARGUMENT,
          "merge: %s is not aligned to its elements of %zu bytes", name.name, attn_dtype_bytes(t->natural));
    return ATTN_OK;
}

static tensor part_of(const attn_merge_call *c, const char *name, const attn_input *slots, int64_t part, int is_lse)
{
    return (tensor){name, part, 0, slots[part], is_lse ? 1 : c->dim_v, is_lse ? c->compute : c->dtype, 1, !is_lse};
}

static tensor output_part(const attn_merge_call *c, const char *name, const attn_output *slots, int64_t part, int is_lse)
{
    return (tensor){name, part, 1, read_only(&slots[part]), is_lse ? 1 : c->dim_v, is_lse ? c->compute : c->dtype, 1, !is_lse};
}

/* Tensor number n of a call; returns 0 past the last one. */
static int tensor_at(const attn_merge_call *c, const attn_merge_tensors *t, int backward, int64_t n, tensor *out)
{
    if (n < c->parts) *out = part_of(c, "o_parts", t->o_parts, n, 0);
    else if (n < 2 * c->parts) *out = part_of(c, "lse_parts", t->lse_parts, n - c->parts, 1);
    else if (n == 2 * c->parts)
        *out = backward ? (tensor){"grad_o", -1, 0, t->grad_o, c->dim_v, c->dtype, 1, 1}
                        : (tensor){"o", -1, 1, read_only(&t->o), c->dim_v, c->dtype, 1, 1};
    else if (n == 2 * c->parts + 1)
        *out = backward ? (tensor){"grad_lse", -1, 0, t->grad_lse, 1, c->compute, 0, 0}
                        : (tensor){"lse", -1, 1, read_only(&t->lse), 1, c->compute, 0, 0};
    else if (!backward) return 0;
    else if (n < 3 * c->parts + 2) *out = output_part(c, "grad_o_parts", t->grad_o_parts, n - 2 * c->parts - 2, 0);
    else if (n < 4 * c->parts + 2) *out = output_part(c, "grad_lse_parts", t->grad_lse_parts, n - 3 * c->parts - 2, 1);
    else return 0;
    return 1;
}

static attn_status check_unused(const attn_merge_tensors *t, int backward, attn_error *error)
{
    const attn_input outputs[2] = {read_only(&t->o), read_only(&t->lse)}, gradients[2] = {t->grad_o, t->grad_lse};
    static const char *const names[2][2] = {{"grad_o", "grad_lse"}, {"o", "lse"}};
    for (int i = 0; i < 2; i++) {
        const attn_input *s = backward ? &outputs[i] : &gradients[i];
        CHECK(!s->data && is_blank(s), ATTN_ERR_ARGUMENT, "merge: %s is set; %s does not use it", names[backward][i],
              backward ? "attn_merge_backward" : "attn_merge");
    }
    CHECK(backward || (!t->grad_o_parts && !t->grad_lse_parts), ATTN_ERR_ARGUMENT, "merge: %s is set; attn_merge does not use it",
          t->grad_o_parts ? "grad_o_parts" : "grad_lse_parts");
    CHECK(t->o_parts && t->lse_parts, ATTN_ERR_ARGUMENT, "merge: %s is NULL", t->o_parts ? "lse_parts" : "o_parts");
    CHECK(!backward || (t->grad_o_parts && t->grad_lse_parts), ATTN_ERR_ARGUMENT, "merge: %s is NULL",
          t->grad_o_parts ? "grad_lse_parts" : "grad_o_parts");
    return ATTN_OK;
}

/* Checks that output `a` shares no element with another tensor, except that an output of attn_merge may be one of the parts. */
static attn_status check_pair(const attn_merge_call *c, const tensor *a, const attn_planned_tensor *pa, const tensor *b,
                              int aliasing, attn_error *error)
{
    attn_planned_tensor pb;
    const uintptr_t low = (uintptr_t)a->slot.data + (uintptr_t)pa->low, high = (uintptr_t)a->slot.data + (uintptr_t)pa->high;
    TRY(resolve(c, b, &pb, error));
    if (pa->low == pa->high || pb.low == pb.high) return ATTN_OK;
    if ((uintptr_t)b->slot.data + (uintptr_t)pb.high <= low || high <= (uintptr_t)b->slot.data + (uintptr_t)pb.low) return ATTN_OK;
    const attn_elements x = {a->slot.data, pa->shape, pa->at.stride, attn_dtype_bytes(a->natural)},
                        y = {b->slot.data, pb.shape, pb.at.stride, attn_dtype_bytes(b->natural)};
    if (aliasing && attn_elements_coincide(&x, &y)) return ATTN_OK;
    const int meet = attn_elements_meet(&x, &y);
    CHECK(meet <= 0, ATTN_ERR_STRIDE, "merge: %s and %s share elements; an output must not overlap another tensor", name_of(a).name,
          name_of(b).name);
    CHECK(meet == 0, ATTN_ERR_STRIDE,
          "merge: whether %s and %s share elements cannot be decided from their strides; give them separate memory",
          name_of(a).name, name_of(b).name);
    return ATTN_OK;
}

static attn_status check_tensors(const attn_merge_call *c, const attn_merge_tensors *t, int backward, attn_error *error)
{
    const int some = c->batch > 0 && c->heads > 0 && c->len_q > 0;
    tensor a, b;
    attn_planned_tensor planned;
    for (int64_t n = 0; tensor_at(c, t, backward, n, &a); n++) {
        TRY(check_present(&a, some && a.dim > 0, error));
        if (a.slot.data) TRY(resolve(c, &a, &planned, error));
    }
    for (int64_t n = 2 * c->parts; tensor_at(c, t, backward, n, &a); n++) {
        if (!a.output || !a.slot.data) continue;
        TRY(resolve(c, &a, &planned, error));
        for (int64_t m = 0; tensor_at(c, t, backward, m, &b); m++)
            if (m != n && (m < n || !b.output) && b.slot.data) TRY(check_pair(c, &a, &planned, &b, !backward && !b.output, error));
    }
    return ATTN_OK;
}

static attn_status check_sizes(const attn_merge_problem *p, attn_error *error)
{
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"batch", p->batch}, {"heads", p->heads}, {"len_q", p->len_q}, {"dim_v", p->dim_v}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        CHECK(sizes[i].value >= 0, ATTN_ERR_SHAPE, "merge: %s (%" PRId64 ") is negative", sizes[i].name, sizes[i].value);
    CHECK(p->parts >= 1, ATTN_ERR_ARGUMENT, "merge: parts is %" PRId64 "; it must be at least 1", p->parts);
    CHECK(p->parts <= INT64_MAX / 8, ATTN_ERR_ARGUMENT, "merge: parts (%" PRId64 ") is too large: its bytes overflow 64 bits",
          p->parts);
    for (int i = 0; i < 4; i++)
        CHECK(p->reserved[i] == 0, ATTN_ERR_ARGUMENT, "merge: reserved[%d] is %" PRId64 "; it must be 0", i, p->reserved[i]);
    return ATTN_OK;
}

static void place(const attn_merge_call *c, attn_merge_slot *to, const attn_input *slot, int64_t dim)
{
    to->data = attn_is_address(slot->data) ? (void *)(uintptr_t)slot->data : NULL;
    attn_merge_strides(c, slot->stride, dim, to->stride);
}

static attn_status begin(attn_merge_call *c, const attn_merge_problem *problem, const attn_merge_tensors *tensors,
                         const attn_options *options, int backward, attn_error *error)
{
    attn_merge_problem p;
    attn_merge_tensors t;
    attn_options o = {0};
    const attn_kernel_row *row;
    char why[160];
    CHECK(problem, ATTN_ERR_ARGUMENT, "problem is NULL");
    CHECK(tensors, ATTN_ERR_ARGUMENT, "tensors is NULL");
    if (options) TRY(attn_struct_read(&o, sizeof o, sizeof o, options, "attn_options", error));
    TRY(attn_options_validate(&o, error));
    CHECK(!o.reproducible || !backward, ATTN_ERR_UNSUPPORTED,
          "merge: options.reproducible is set; gradients of lse_parts are sums whose order depends on the instruction set");
    TRY(attn_struct_read(&p, sizeof p, sizeof p, problem, "attn_merge_problem", error));
    TRY(attn_struct_read(&t, sizeof t, sizeof t, tensors, "attn_merge_tensors", error));
    TRY(check_sizes(&p, error));
    CHECK(!t.call, ATTN_ERR_ARGUMENT, "merge: call is set; it must be NULL");
    TRY(check_unused(&t, backward, error));
    const attn_dtype dtype = t.o_parts[0].dtype ? t.o_parts[0].dtype : ATTN_F32;
    CHECK(dtype >= ATTN_F32 && dtype <= ATTN_BF16, ATTN_ERR_UNSUPPORTED,
          "merge: o_parts[0].dtype is %s; it must be f32, f64, f16 or bf16", attn_dtype_text(dtype));
    *c = (attn_merge_call){.parts = p.parts,
                           .batch = p.batch,
                           .heads = p.heads,
                           .len_q = p.len_q,
                           .dim_v = p.dim_v,
                           .dtype = dtype,
                           .compute = dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32,
                           .o_parts = t.o_parts,
                           .lse_parts = t.lse_parts,
                           .grad_o_parts = t.grad_o_parts,
                           .grad_lse_parts = t.grad_lse_parts,
                           .parallel_for = o.parallel_for,
                           .parallel_context = o.parallel_context};
    TRY(attn_threads_choose(o.threads, &c->threads, error));
    TRY(check_tensors(c, &t, backward, error));
    const attn_resolved like = {.op = ATTN_LINEAR, .at.q.dtype = dtype}; /* the kernels of every operation have merge */
    TRY(attn_kernel_choose(&like, &o, 0, &row, why, sizeof why, error));
    c->kernel = attn_kernel_merge(row);
    const attn_input out = read_only(&t.o), lse = read_only(&t.lse);
    place(c, &c->o, &out, c->dim_v);
    place(c, &c->lse, &lse, 1);
    place(c, &c->grad_o, &t.grad_o, c->dim_v);
    place(c, &c->grad_lse, &t.grad_lse, 1);
    return ATTN_OK;
}

attn_status attn_merge(const attn_merge_problem *problem, const attn_merge_tensors *tensors, const attn_options *options,
                       attn_error *error)
{
    attn_merge_call call;
    TRY(begin(&call, problem, tensors, options, 0, error));
    attn_run_merge(&call);
    return attn_succeed(error);
}

attn_status attn_merge_backward(const attn_merge_problem *problem, const attn_merge_tensors *tensors, const attn_options *options,
                                attn_error *error)
{
    attn_merge_call call;
    TRY(begin(&call, problem, tensors, options, 1, error));
    attn_run_merge_backward(&call);
    return attn_succeed(error);
}
