/* SPDX-License-Identifier: MIT
 *
 * tensors.h - from a caller's struct of tensors to validated tensors.  Every family of problems has a table of such rows, a
 * function that gives their shapes, and rules of its own; the rest is common to all and is done here.
 *
 *      while planning     attn_slots_presence      which tensors are present
 *                         attn_tensors_resolve     roles, types, strides, extents: the list of those present
 *      while executing    attn_tensors_bind        the same ones again, their addresses, and that outputs share nothing
 */
#ifndef ATTN_PLAN_TENSORS_H
#define ATTN_PLAN_TENSORS_H

#include <stddef.h>
#include <string.h>

#include "../../common/overlap.h"
#include "../base/layout.h"
#include "attn/attn.h"

/* Upper bound on the tensors of a family. */
enum { ATTN_MAX_TENSORS = 80 };

/* The head of a struct of tensors; slots follow, of 48 bytes each (40 with 4-byte pointers). */
typedef struct attn_tensors_head {
    size_t struct_size;
    const attn_call *call;
} attn_tensors_head;

/* Which storage types a tensor may have, and which is the default. */
typedef enum attn_type_rule {
    ATTN_TYPE_QUERY,   /* any float type, which others follow; default f32 */
    ATTN_TYPE_KEY,     /* f64 if and only if q is; or i8; default that of q */
    ATTN_TYPE_SAME,    /* f64 if and only if q is; default that of q */
    ATTN_TYPE_COMPUTE, /* the compute type */
    ATTN_TYPE_FLOAT,   /* any float type; default the compute type, or that of the tensor whose gradient it is */
    ATTN_TYPE_STORED,  /* as ATTN_TYPE_SAME; default the compute type */
    ATTN_TYPE_F32,
    ATTN_TYPE_F16,
    ATTN_TYPE_BYTE, /* bool or u8 */
    ATTN_TYPE_WORD, /* u64 or i64 */
    ATTN_TYPE_INDEX /* i64 or i32 */
} attn_type_rule;

enum {
    ATTN_LAST_CONTIGUOUS = 1,
    ATTN_DENSE = 2,           /* only the strides of a dense array */
    ATTN_PACKED = 4,          /* in packed problems, the tokens of all sequences concatenated: dense is [token, head, channel] */
    ATTN_BROADCAST_BATCH = 8, /* broadcasts on axis 0 by default */
    ATTN_BROADCAST_HEAD = 16, /* on axis 1 */
    ATTN_GRADIENT_INDEPENDENT = 32, /* a gradient that may be present without its tensor */
    ATTN_GRADIENT_UNREDUCED = 64    /* a gradient that is not summed over axes that its tensor broadcasts */
};

/* A row of a family's table, which holds for all problems. */
typedef struct attn_tensor_row {
    const char *name;
    attn_role role[ATTN_OPERATIONS];
    attn_need need[ATTN_OPERATIONS];
    attn_axis axes[4];
    attn_type_rule type;
    unsigned flags;
    int gradient_of; /* number of the tensor, or -1 */
    int may_alias;
} attn_tensor_row;

typedef struct attn_tensor_family {
    const attn_tensor_row *rows;
    int count;
    const char *name;              /* of the caller's struct */
    const char *const *operations; /* their names */
} attn_tensor_family;

/* A tensor of a plan. */
typedef struct attn_planned_tensor {
    int number;
    attn_role role;
    int packed;
    attn_dtype natural; /* what ATTN_DTYPE_DEFAULT means */
    attn_layout given;  /* as given when planning */
    attn_layout at;     /* with defaults resolved */
    int64_t shape[4];   /* packed: of one sequence */
    int64_t low,
        high; /* bytes from the first element to the lowest, and to the end of the highest; both 0 if there are no elements */
} attn_planned_tensor;

/* What the engine needs to know of a family's problem. */
typedef struct attn_tensor_facts {
    attn_op op;
    int packed_q, packed_kv; /* which sides of the problem are packed */
    attn_dtype query;        /* the type of q, or ATTN_DTYPE_DEFAULT */
    /* The sizes of tensor `number`; broadcast axes of gradients are handled by the engine. */
    void (*shape)(const void *problem, int number, int64_t shape[4]);
    const void *problem;
} attn_tensor_facts;

/* The size of an axis that every family has; NULL for all other axes. */
static inline const int64_t *attn_axis_of_shape(const attn_shape *s, attn_axis axis)
{
    switch (axis) {
    case ATTN_AXIS_BATCH:
        return &s->batch;
    case ATTN_AXIS_HEAD_Q:
        return &s->heads_q;
    case ATTN_AXIS_HEAD_KV:
        return &s->heads_kv;
    case ATTN_AXIS_QUERY:
        return &s->len_q;
    case ATTN_AXIS_KEY:
        return &s->len_kv;
    case ATTN_AXIS_DIM_QK:
        return &s->dim_qk;
    case ATTN_AXIS_DIM_V:
        return &s->dim_v;
    default:
        return NULL;
    }
}

extern const attn_tensor_family attn_attention_family, attn_linear_family;
/* NULL for a number that is not a family. */
const attn_tensor_family *attn_family_of(attn_family family);

/* The slot of tensor `number`; all zeros past the end of an older struct. */
static inline attn_input attn_slot_of(const void *tensors, int number)
{
    attn_input slot = {NULL, ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}};
    size_t given, at = sizeof(attn_tensors_head) + (size_t)number * sizeof slot;
    memcpy(&given, tensors, sizeof given);
    if (at + sizeof slot <= given) memcpy(&slot, (const char *)tensors + at, sizeof slot);
    return slot;
}

/* 1 if the pointer points to data: neither NULL, ATTN_LATER nor ATTN_EMPTY. */
int attn_is_address(const void *data);

/* Checks that struct_size is valid and nothing unknown is set beyond it, and finds which tensors are present: has[0 ..
 * family->count-1]. */
attn_status attn_slots_presence(const attn_tensor_family *family, const void *tensors, unsigned char *has, attn_error *error);

/*
 * Checks that every present tensor has a role, that every needed one is present, and that types and layouts are valid.  Fills
 * list[0 .. *count-1], in order of number.
 */
attn_status attn_tensors_resolve(const attn_tensor_family *family, const attn_tensor_facts *facts, const void *tensors,
                                 const unsigned char *has, attn_planned_tensor *list, int *count, attn_error *error);

/*
 * Checks that the tensors of an execution are those of the plan in presence, type and strides; pointers[number] is the address of
 * tensor `number` (of a place of its own if it has no elements).  Nothing is read through a pointer.
 */
attn_status attn_tensors_bind(const attn_tensor_family *family, const attn_planned_tensor *list, int count, const void *tensors,
                              void **pointers, attn_error *error);

/* Likewise for one tensor of a plan. */
attn_status attn_tensor_bind(const attn_tensor_family *family, const attn_planned_tensor *t, const void *tensors, void **pointer,
                             attn_error *error);

/* Checks that struct_size is one that this library reads. */
attn_status attn_tensors_check_size(const attn_tensor_family *family, const void *tensors, attn_error *error);

/* Checks that no output shares an element with another tensor, and no tensor a byte with the workspace (of 0 bytes: none).  Packed
 * tensors have tokens_q or tokens_kv tokens. */
attn_status attn_tensors_check_overlap(const attn_tensor_family *family, const attn_planned_tensor *list, int count,
                                       void *const *pointers, int64_t tokens_q, int64_t tokens_kv, attn_bytes workspace,
                                       attn_error *error);

/* 1 if no output of a call has elements. */
int attn_tensors_write_nothing(const attn_tensor_family *family, const attn_planned_tensor *list, int count, int64_t tokens_q,
                               int64_t tokens_kv);

/* ---- parts of these ---- */

/* The types that a rule allows in some problem: bits 1 << dtype. */
unsigned attn_types_ever(attn_type_rule rule);

/* The strides of a tensor whose four strides are 0.  Returns 0 if the number of elements overflows 64 bits. */
int attn_tensor_dense_strides(const attn_tensor_row *row, const attn_planned_tensor *t, int64_t stride[4]);

/* Shape, type, strides and extent of t, whose number, role and `given` are set.  of: NULL, or the tensor whose gradient it is. */
attn_status attn_tensor_resolve(const attn_tensor_family *family, const attn_tensor_facts *facts, attn_planned_tensor *t,
                                const attn_planned_tensor *primal, attn_error *error);

/* Checks that the distance from the lowest to the highest element fits a pointer difference; fills low and high. */
attn_status attn_tensor_extent(const attn_tensor_row *row, attn_planned_tensor *t, const int64_t shape[4], attn_error *error);

/* Checks that no two elements of an output share an address. */
attn_status attn_tensor_self_overlap(const attn_tensor_row *row, const attn_planned_tensor *t, const int64_t shape[4],
                                     attn_error *error);

/* Whether elements of two tensors share bytes: 0 no, 1 yes, -1 undecided. */
int attn_elements_meet(const attn_elements *a, const attn_elements *b);

/* Whether an element of a tensor shares a byte with this memory, likewise. */
int attn_elements_meet_bytes(const attn_elements *a, attn_bytes memory);

/* 1 if each element of one tensor has the address of the same element of the other; shapes are equal. */
int attn_elements_coincide(const attn_elements *a, const attn_elements *b);

#endif
