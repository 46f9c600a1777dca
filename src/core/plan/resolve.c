/* SPDX-License-Identifier: MIT
 * resolve.c - types, strides and extents of tensors: defaults filled in, rules checked.  tensors.h has the overview. */
#include <inttypes.h>
#include <stdlib.h>

#include "../base/checked.h"
#include "../base/error.h"
#include "../base/names.h"
#include "tensors.h"

/* Sets of storage types. */
enum {
    INDICES = 1u << ATTN_I32 | 1u << ATTN_I64,
    HALVES = 1u << ATTN_F16 | 1u << ATTN_BF16,
    FLOATS = HALVES | 1u << ATTN_F32 | 1u << ATTN_F64,
    BYTES = 1u << ATTN_BOOL | 1u << ATTN_U8,
    WORDS = 1u << ATTN_U64 | 1u << ATTN_I64,
    QUANTISED = 1u << ATTN_I8 | 1u << ATTN_F8_E4M3 | 1u << ATTN_F8_E5M2 | 1u << ATTN_Q8_0 | 1u << ATTN_Q4_0 | 1u << ATTN_Q4_1 |
                1u << ATTN_Q4_1C
};

typedef struct types {
    unsigned allowed; /* bits 1 << dtype */
    attn_dtype natural;
    const char *text;
    int of_query; /* because of the type of q */
} types;

/* like: the type of the tensor whose gradient it is, or ATTN_DTYPE_DEFAULT. */
static types types_of(attn_type_rule rule, attn_dtype query, attn_dtype like)
{
    const attn_dtype stored = query ? query : ATTN_F32, compute = stored == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    const int wide = stored == ATTN_F64;
    const unsigned same = wide ? 1u << ATTN_F64 : HALVES | 1u << ATTN_F32;
    const char *same_text = wide ? "f64, as q is f64" : "f32, f16 or bf16, as q is not f64";
    switch (rule) {
    case ATTN_TYPE_QUERY:
        return (types){FLOATS, ATTN_F32, "f32, f64, f16 or bf16", 0};
    case ATTN_TYPE_KEY:
        return wide ? (types){same, stored, same_text, 1}
                    : (types){same | QUANTISED, stored, "f32, f16, bf16, i8, f8 or blocks, as q is not f64", 1};
    case ATTN_TYPE_SAME:
        return (types){same, stored, same_text, 1};
    case ATTN_TYPE_STORED:
        return (types){same, compute, same_text, 1};
    case ATTN_TYPE_COMPUTE:
        return (types){1u << compute, compute, wide ? "f64, the compute type" : "f32, the compute type", 0};
    case ATTN_TYPE_FLOAT:
        return (types){FLOATS, like ? like : compute, "f32, f64, f16 or bf16", 0};
    case ATTN_TYPE_F32:
        return (types){1u << ATTN_F32, ATTN_F32, "f32", 0};
    case ATTN_TYPE_F16:
        return (types){1u << ATTN_F16, ATTN_F16, "f16", 0};
    case ATTN_TYPE_BYTE:
        return (types){BYTES, ATTN_BOOL, "bool or u8", 0};
    case ATTN_TYPE_WORD:
        return (types){WORDS, ATTN_U64, "u64 or i64", 0};
    case ATTN_TYPE_INDEX:
        break;
    }
    return (types){INDICES, ATTN_I64, "i32 or i64", 0};
}

unsigned attn_types_ever(attn_type_rule rule)
{
    return types_of(rule, ATTN_F32, ATTN_DTYPE_DEFAULT).allowed | types_of(rule, ATTN_F64, ATTN_DTYPE_DEFAULT).allowed;
}

static attn_status resolve_dtype(const attn_tensor_row *row, attn_planned_tensor *t, const types *expected, attn_error *error)
{
    const attn_dtype dtype = t->given.dtype;
    t->at.dtype = dtype;
    t->natural = expected->natural;
    if (dtype == ATTN_DTYPE_DEFAULT) {
        t->at.dtype = expected->natural;
        return ATTN_OK;
    }
    CHECK_TENSOR(attn_is_dtype(dtype), t->number, ATTN_ERR_ARGUMENT, "%s.dtype is %d; it is not a type", row->name, (int)dtype);
    /* In each family q comes first. */
    CHECK_TENSORS(expected->allowed >> dtype & 1, t->number, expected->of_query ? 0 : -1, ATTN_ERR_UNSUPPORTED,
                  "%s.dtype is %s; it must be %s", row->name, attn_dtype_text(dtype), expected->text);
    return ATTN_OK;
}

static int broadcasts_by_default(const attn_tensor_row *row, int axis)
{
    return (axis == 0 && row->flags & ATTN_BROADCAST_BATCH) || (axis == 1 && row->flags & ATTN_BROADCAST_HEAD);
}

int attn_tensor_dense_strides(const attn_tensor_row *row, const attn_planned_tensor *t, int64_t stride[4])
{
    int64_t dense = 1;
    for (int axis = 3; axis >= 0; axis--) {
        stride[axis] = broadcasts_by_default(row, axis) ? 0 : dense;
        if (!attn_mul(dense, t->shape[axis], &dense)) return 0;
    }
    if (!t->packed) return 1;
    stride[0] = 0;
    stride[1] = t->shape[3];
    return attn_mul(t->shape[1], t->shape[3], &stride[2]);
}

static int has_elements(const int64_t shape[4]) { return shape[0] && shape[1] && shape[2] && shape[3]; }

/* Without elements strides may be anything, but walks compute addresses with them: those that a tensor with elements could not have
 * become 1. */
static void tame_strides(const attn_planned_tensor *t, int64_t stride[4])
{
    int64_t span = 0, step;
    for (int axis = 0; axis < 4; axis++) {
        const int64_t size = t->shape[axis] > 1 ? t->shape[axis] : 1;
        const int fits = stride[axis] > -INT64_MAX && attn_mul(size, llabs(stride[axis]), &step) && attn_add(span, step, &span);
        if (!fits || span > INT64_MAX >> 4) stride[axis] = 1, span = 0;
    }
}

static attn_status resolve_strides(const attn_tensor_row *row, attn_planned_tensor *t, attn_error *error)
{
    int64_t *stride = t->at.stride, dense[4];
    const int64_t *given = t->given.stride;
    const int implied = given[0] == 0 && given[1] == 0 && given[2] == 0 && given[3] == 0;
    CHECK_TENSOR(attn_tensor_dense_strides(row, t, dense), t->number, ATTN_ERR_SHAPE,
                 "%s has the shape [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "]: the number of elements overflows 64 bits",
                 row->name, t->shape[0], t->shape[1], t->shape[2], t->shape[3]);
    for (int axis = 0; axis < 4; axis++) {
        stride[axis] = implied ? dense[axis] : given[axis] == ATTN_BROADCAST ? 0 : given[axis];
        CHECK_TENSOR(!(row->flags & ATTN_DENSE) || stride[axis] == dense[axis] || t->shape[axis] <= 1, t->number, ATTN_ERR_STRIDE,
                     "%s.stride[%d] is %" PRId64 "; it must be dense (0, or %" PRId64 ")", row->name, axis, given[axis],
                     dense[axis]);
        if (row->flags & ATTN_DENSE) stride[axis] = dense[axis];
        /* Ignored strides must still be safe to multiply with tile sizes. */
        if (t->packed && axis == 0) stride[axis] = 0;
        else if (t->shape[axis] == 1 && !t->packed && stride[axis] != 0) stride[axis] = dense[axis];
    }
    if (row->flags & ATTN_LAST_CONTIGUOUS) {
        CHECK_TENSOR(stride[3] == 1 || t->shape[3] <= 1, t->number, ATTN_ERR_STRIDE,
                     "%s.stride[3] is %" PRId64 "; the last axis must be contiguous (1)", row->name, stride[3]);
        stride[3] = 1;
    }
    if (!has_elements(t->shape) && !t->packed) tame_strides(t, stride);
    return ATTN_OK;
}

attn_status attn_tensor_extent(const attn_tensor_row *row, attn_planned_tensor *t, const int64_t shape[4], attn_error *error)
{
    const int64_t size = (int64_t)attn_dtype_bytes(t->at.dtype);
    const int shift = (size >= 2) + (size >= 4) + (size >= 8) + 3 * (size > 8); /* 64 for a block; divisions are slow */
    int64_t span = 0, below = 0, step;
    t->low = t->high = 0;
    if (!has_elements(shape)) return ATTN_OK;
    for (int axis = 0; axis < 4; axis++) {
        const int64_t stride = t->at.stride[axis];
        /* The stride of an axis of size 1 is ignored, but concatenated sequences may have more tokens, or prefetch them. */
        if (shape[axis] == 1 && !(t->packed && axis == 2)) continue;
        const int64_t most = shape[axis] == 1 ? INT64_MAX >> 6 >> shift : INT64_MAX;
        int fits = stride > -INT64_MAX && llabs(stride) <= most;
        fits = fits && attn_mul(shape[axis] - 1, llabs(stride), &step) && attn_add(span, step, &span);
        CHECK_TENSOR(fits && span <= (INT64_MAX >> shift) - 1, t->number, ATTN_ERR_SHAPE,
                     "%s.stride[%d] (%" PRId64 ") times its size (%" PRId64 ") overflows 64-bit addresses", row->name, axis, stride,
                     shape[axis]);
        if (stride < 0) below += step;
    }
    t->low = -below * size;
    t->high = (span - below + 1) * size;
    return ATTN_OK;
}

/* In descending order of stride, each axis must step over all that the smaller ones span. */
attn_status attn_tensor_self_overlap(const attn_tensor_row *row, const attn_planned_tensor *t, const int64_t shape[4],
                                     attn_error *error)
{
    int64_t span;
    if (t->role != ATTN_ROLE_OUTPUT) return ATTN_OK;
    const int axis = elements_self_overlap(shape, t->at.stride, &span);
    CHECK_TENSOR(axis < 0, t->number, ATTN_ERR_STRIDE,
                 "%s overlaps itself: stride[%d] is %" PRId64 " and the axes with smaller strides span %" PRId64 " elements",
                 row->name, axis, t->at.stride[axis], span);
    return ATTN_OK;
}

static int broadcasts(const attn_tensor_row *row, const attn_planned_tensor *t, int axis)
{
    const int64_t *given = t->given.stride;
    const int implied = !given[0] && !given[1] && !given[2] && !given[3];
    if (t->shape[axis] == 1) return 0;
    /* Dense strides are also 0 if a smaller axis has no elements. */
    return implied ? broadcasts_by_default(row, axis) : t->at.stride[axis] == 0;
}

attn_status attn_tensor_resolve(const attn_tensor_family *family, const attn_tensor_facts *facts, attn_planned_tensor *t,
                                const attn_planned_tensor *primal, attn_error *error)
{
    const attn_tensor_row *row = &family->rows[t->number];
    const types allowed = types_of(row->type, facts->query, primal ? primal->at.dtype : ATTN_DTYPE_DEFAULT);
    t->packed = row->flags & ATTN_PACKED && (row->axes[2] == ATTN_AXIS_KEY ? facts->packed_kv : facts->packed_q);
    facts->shape(facts->problem, t->number, t->shape);
    /* The gradient of a tensor has size 1, and stride 0, on axes that the tensor broadcasts, even if it is an empty sum. */
    const int shrinks = primal && t->role == ATTN_ROLE_OUTPUT && !(row->flags & (ATTN_PACKED | ATTN_GRADIENT_UNREDUCED));
    for (int axis = 0; shrinks && axis < 4; axis++)
        if (broadcasts(&family->rows[primal->number], primal, axis)) t->shape[axis] = 1;
    TRY(resolve_dtype(row, t, &allowed, error));
    t->shape[3] = attn_row_elements(t->at.dtype, t->shape[3]);
    TRY(resolve_strides(row, t, error));
    for (int axis = 0; shrinks && axis < 4; axis++)
        if (broadcasts(&family->rows[primal->number], primal, axis)) t->at.stride[axis] = 0;
    TRY(attn_tensor_extent(row, t, t->shape, error));
    return t->packed ? ATTN_OK : attn_tensor_self_overlap(row, t, t->shape, error);
}

attn_status attn_tensors_resolve(const attn_tensor_family *family, const attn_tensor_facts *facts, const void *tensors,
                                 const unsigned char *has, attn_planned_tensor *list, int *count, attn_error *error)
{
    int place[ATTN_MAX_TENSORS];
    *count = 0;
    for (int n = 0; n < family->count; n++) {
        const attn_tensor_row *row = &family->rows[n];
        CHECK_TENSOR(has[n] || row->need[facts->op] != ATTN_NEED_ALWAYS, n, ATTN_ERR_ARGUMENT, "%s is missing; %s needs it",
                     row->name, family->operations[facts->op]);
        if (!has[n]) continue;
        place[n] = *count;
        CHECK_TENSOR(row->role[facts->op] != ATTN_ROLE_NONE, n, ATTN_ERR_ARGUMENT, "%s is set; %s does not use it", row->name,
                     family->operations[facts->op]);
        const int primal = row->gradient_of;
        CHECK_TENSORS(primal < 0 || has[primal] || row->flags & ATTN_GRADIENT_INDEPENDENT, n, primal, ATTN_ERR_ARGUMENT,
                      "%s is set and %s is not", row->name, family->rows[primal].name);
        const attn_input slot = attn_slot_of(tensors, n);
        attn_planned_tensor *t = &list[(*count)++];
        t->number = n;
        t->role = row->role[facts->op];
        t->given.dtype = slot.dtype;
        for (int axis = 0; axis < 4; axis++) t->given.stride[axis] = slot.stride[axis];
        TRY(attn_tensor_resolve(family, facts, t, primal < 0 || !has[primal] ? NULL : &list[place[primal]], error));
    }
    return ATTN_OK;
}
