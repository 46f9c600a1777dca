/* SPDX-License-Identifier: MIT
 * slots.c - the slots of a caller's struct of tensors: which are present when planning, and the same ones when executing. */
#include <inttypes.h>
#include <string.h>

#include "../base/error.h"
#include "../base/names.h"
#include "../base/struct.h"
#include "plan.h"
#include "tensors.h"

_Static_assert(sizeof(attn_input) == sizeof(attn_output), "slots look alike");
_Static_assert(sizeof(void *) != 8 || sizeof(attn_input) == 48, "a slot has 48 bytes where pointers have 8");

int attn_is_address(const void *data) { return data && data != ATTN_LATER && data != ATTN_EMPTY; }

static int is_blank(const attn_input *slot)
{
    return !slot->dtype && !slot->stride[0] && !slot->stride[1] && !slot->stride[2] && !slot->stride[3];
}

attn_status attn_tensors_check_size(const attn_tensor_family *family, const void *tensors, attn_error *error)
{
    const size_t size = sizeof(attn_tensors_head) + (size_t)family->count * sizeof(attn_input);
    return attn_slots_check(tensors, size, size, family->name, error);
}

static attn_status check_slot(const attn_tensor_family *family, int n, const attn_input *slot, unsigned char *has,
                              attn_error *error)
{
    const char *name = family->rows[n].name;
    CHECK_TENSOR(slot->data != ATTN_MISSING, n, ATTN_ERR_ARGUMENT, "%s is NULL", name);
    CHECK_TENSOR(slot->data || is_blank(slot), n, ATTN_ERR_ARGUMENT,
                 "%s is NULL and has a type or strides; a slot that is not set must be all 0", name);
    *has = slot->data != NULL;
    return ATTN_OK;
}

enum { RUN = 4 }; /* slots that are tested together */

static uint64_t word_at(const char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* 1 if slot n is all zeros, or past the end of an older struct, like most slots of every call. */
static int is_absent(const void *tensors, int n, int given)
{
    const char *at = (const char *)tensors + sizeof(attn_tensors_head) + (size_t)n * sizeof(attn_input);
    uintptr_t data;
    uint32_t dtype;
    uint64_t any = 0;
    if (n >= given) return 1;
    memcpy(&data, at + offsetof(attn_input, data), sizeof data);
    memcpy(&dtype, at + offsetof(attn_input, dtype), sizeof dtype);
    for (size_t axis = 0; axis < 4; axis++) any |= word_at(at + offsetof(attn_input, stride) + axis * sizeof(int64_t));
    return !(any | data | dtype);
}

/* How many slots from n on, up to `end`, are all zeros, in groups of four; the struct has them.  Most slots of every call are, and
 * testing each of them would take longer than the rest of a small call. */
static int zeros(const void *tensors, int n, int end)
{
    const int first = n;
    for (; n + RUN <= end; n += RUN) {
        uint64_t any = 0;
        for (int k = 0; k < RUN; k++) { /* except the padding, which is unspecified */
            const attn_input slot = attn_slot_of(tensors, n + k);
            any |= (uintptr_t)slot.data | (uint64_t)slot.dtype;
            for (int axis = 0; axis < 4; axis++) any |= (uint64_t)slot.stride[axis];
        }
        if (any) break;
    }
    return n - first;
}

/* How many whole slots the caller's struct has; attn_slots_check has checked its size. */
static int slots_passed(const void *tensors)
{
    size_t given;
    memcpy(&given, tensors, sizeof given);
    return (int)((given - sizeof(attn_tensors_head)) / sizeof(attn_input));
}

attn_status attn_slots_presence(const attn_tensor_family *family, const void *tensors, unsigned char *has, attn_error *error)
{
    TRY(attn_tensors_check_size(family, tensors, error));
    const int given = slots_passed(tensors);
    memset(has, 0, (size_t)family->count);
    for (int n = 0; n < family->count; n++) {
        if (n % RUN == 0) n += zeros(tensors, n, given < family->count ? given : family->count);
        if (n == family->count || is_absent(tensors, n, given)) continue;
        const attn_input slot = attn_slot_of(tensors, n);
        TRY(check_slot(family, n, &slot, &has[n], error));
    }
    return ATTN_OK;
}

static int same_strides(const int64_t a[4], const int64_t b[4])
{
    return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3];
}

/* Has no elements in any call. */
static int is_empty(const attn_planned_tensor *t) { return t->low == t->high && !t->packed; }

/* Type and strides are equivalent to those of the plan. */
static attn_status check_layout(const attn_tensor_row *row, const attn_planned_tensor *t, const attn_input *slot, attn_error *error)
{
    const int64_t *given = slot->stride;
    CHECK_TENSOR(slot->dtype == t->given.dtype || slot->dtype == t->at.dtype ||
                     (slot->dtype == ATTN_DTYPE_DEFAULT && t->at.dtype == t->natural),
                 t->number, ATTN_ERR_ARGUMENT, "%s.dtype is %s; the plan was made with %s", row->name, attn_dtype_text(slot->dtype),
                 attn_dtype_text(t->at.dtype));
    if (same_strides(given, t->given.stride)) return ATTN_OK;
    if (is_empty(t)) return ATTN_OK; /* without elements strides are ignored */
    const int implied = !given[0] && !given[1] && !given[2] && !given[3];
    int64_t dense[4];
    if (implied) attn_tensor_dense_strides(row, t, dense);
    for (int axis = 0; axis < 4; axis++) {
        const int64_t meant = implied ? dense[axis] : given[axis] == ATTN_BROADCAST ? 0 : given[axis];
        /* In packed tensors axis 0 is unused, and axis 2 has the tokens of all sequences, however short each is. */
        const int counts = t->packed && axis != 1 && axis != 3 ? axis == 2 : t->shape[axis] > 1;
        CHECK_TENSOR(meant == t->at.stride[axis] || !counts, t->number, ATTN_ERR_STRIDE,
                     "%s.stride[%d] is %" PRId64 "; the plan was made with %" PRId64, row->name, axis, given[axis],
                     t->at.stride[axis]);
    }
    return ATTN_OK;
}

/* An address for a tensor without elements, distinct from all others: pointer arithmetic starts there, nothing is read. */
static void *nowhere(int number)
{
    static const _Alignas(8) char nothing[ATTN_MAX_TENSORS * 8] = {0};
    return (void *)(uintptr_t)(nothing + 8 * number);
}

static attn_status bind(const attn_tensor_row *row, const attn_planned_tensor *t, const attn_input *slot, void **pointer,
                        attn_error *error)
{
    const int empty = is_empty(t);
    TRY(check_layout(row, t, slot, error));
    *pointer = nowhere(t->number);
    CHECK_TENSOR(slot->data != ATTN_LATER || empty, t->number, ATTN_ERR_ARGUMENT,
                 "%s is ATTN_LATER; an execution needs its pointer", row->name);
    if (slot->data == ATTN_EMPTY) {
        CHECK_TENSOR(empty || t->packed, t->number, ATTN_ERR_ARGUMENT, "%s is ATTN_EMPTY and has elements", row->name);
        return ATTN_OK;
    }
    if (empty) return ATTN_OK;
    const size_t size = attn_dtype_bytes(t->at.dtype);
    CHECK_TENSOR(attn_is_blocks(t->at.dtype) || ((uintptr_t)slot->data & (size - 1)) == 0, t->number, ATTN_ERR_ARGUMENT,
                 "%s is not aligned to its elements of %zu bytes", row->name, size);
    *pointer = (void *)(uintptr_t)slot->data;
    return ATTN_OK;
}

attn_status attn_tensor_bind(const attn_tensor_family *family, const attn_planned_tensor *t, const void *tensors, void **pointer,
                             attn_error *error)
{
    const attn_input slot = attn_slot_of(tensors, t->number);
    unsigned char has = 0;
    TRY(check_slot(family, t->number, &slot, &has, error));
    CHECK_TENSOR(has, t->number, ATTN_ERR_ARGUMENT, "%s is missing; the plan was made with it", family->rows[t->number].name);
    return bind(&family->rows[t->number], t, &slot, pointer, error);
}

attn_status attn_tensors_bind(const attn_tensor_family *family, const attn_planned_tensor *list, int count, const void *tensors,
                              void **pointers, attn_error *error)
{
    TRY(attn_tensors_check_size(family, tensors, error));
    const int given = slots_passed(tensors);
    for (int n = 0, i = 0; n < family->count; n++) {
        const int next = i < count ? list[i].number : family->count;
        if (n % RUN == 0) n += zeros(tensors, n, next < given ? next : given);
        const int planned = i < count && n == next;
        if (n == family->count || (!planned && is_absent(tensors, n, given))) continue;
        const attn_input slot = attn_slot_of(tensors, n);
        unsigned char has = 0;
        TRY(check_slot(family, n, &slot, &has, error));
        CHECK_TENSOR(has || !planned, n, ATTN_ERR_ARGUMENT, "%s is missing; the plan was made with it", family->rows[n].name);
        CHECK_TENSOR(!has || planned, n, ATTN_ERR_ARGUMENT, "%s is set; the plan was made without it", family->rows[n].name);
        if (planned) TRY(bind(&family->rows[n], &list[i++], &slot, &pointers[n], error));
    }
    return ATTN_OK;
}

static void shape_of_call(const attn_tensor_row *row, const attn_planned_tensor *t, int64_t tokens_q, int64_t tokens_kv,
                          int64_t shape[4])
{
    memcpy(shape, t->shape, 4 * sizeof *shape);
    if (t->packed) shape[2] = row->axes[2] == ATTN_AXIS_KEY ? tokens_kv : tokens_q;
}

int attn_tensors_write_nothing(const attn_tensor_family *family, const attn_planned_tensor *list, int count, int64_t tokens_q,
                               int64_t tokens_kv)
{
    for (int i = 0; i < count; i++) {
        int64_t shape[4];
        if (list[i].role != ATTN_ROLE_OUTPUT || is_empty(&list[i])) continue;
        shape_of_call(&family->rows[list[i].number], &list[i], tokens_q, tokens_kv, shape);
        if (shape[0] > 0 && shape[1] > 0 && shape[2] > 0 && shape[3] > 0) return 0;
    }
    return 1;
}

static attn_status check_pair(const attn_tensor_family *family, const attn_planned_tensor *a, const attn_planned_tensor *b,
                              const int64_t shape_a[4], const int64_t shape_b[4], void *const *pointers, attn_error *error)
{
    const char *first = family->rows[a->number].name, *second = family->rows[b->number].name;
    const attn_elements x = {pointers[a->number], shape_a, a->at.stride, attn_dtype_bytes(a->at.dtype)},
                        y = {pointers[b->number], shape_b, b->at.stride, attn_dtype_bytes(b->at.dtype)};
    const int may_alias = family->rows[a->number].may_alias == b->number || family->rows[b->number].may_alias == a->number;
    if (may_alias && attn_elements_coincide(&x, &y)) return ATTN_OK;
    const int meet = attn_elements_meet(&x, &y);
    CHECK_TENSORS(meet <= 0, a->number, b->number, ATTN_ERR_STRIDE,
                  "%s and %s share elements; an output must not overlap another tensor", first, second);
    CHECK_TENSORS(meet == 0, a->number, b->number, ATTN_ERR_STRIDE,
                  "whether %s and %s share elements cannot be decided from their strides; give them separate memory", first,
                  second);
    return ATTN_OK;
}

static attn_status check_workspace(const attn_tensor_family *family, const attn_planned_tensor *t, const int64_t shape[4],
                                   const void *pointer, attn_bytes workspace, attn_error *error)
{
    const attn_elements elements = {pointer, shape, t->at.stride, attn_dtype_bytes(t->at.dtype)};
    CHECK_TENSOR(attn_elements_meet_bytes(&elements, workspace) == 0, t->number, ATTN_ERR_ARGUMENT,
                 "%s and the workspace overlap, or its strides make it impossible to tell", family->rows[t->number].name);
    return ATTN_OK;
}

attn_status attn_tensors_check_overlap(const attn_tensor_family *family, const attn_planned_tensor *list, int count,
                                       void *const *pointers, int64_t tokens_q, int64_t tokens_kv, attn_bytes workspace,
                                       attn_error *error)
{
    const uintptr_t from = (uintptr_t)workspace.base, to = from + workspace.count;
    uintptr_t low[ATTN_MAX_TENSORS], high[ATTN_MAX_TENSORS];
    for (int i = 0; i < count; i++) {
        attn_planned_tensor t = list[i];
        const uintptr_t base = (uintptr_t)pointers[t.number];
        if (t.packed) {
            int64_t shape[4];
            shape_of_call(&family->rows[t.number], &t, tokens_q, tokens_kv, shape);
            TRY(attn_tensor_extent(&family->rows[t.number], &t, shape, error));
            TRY(attn_tensor_self_overlap(&family->rows[t.number], &t, shape, error));
            CHECK_TENSOR(pointers[t.number] != nowhere(t.number) || t.low == t.high, t.number, ATTN_ERR_ARGUMENT,
                         "%s is ATTN_EMPTY and has elements", family->rows[t.number].name);
        }
        low[i] = base + (uintptr_t)t.low;
        high[i] = base + (uintptr_t)t.high;
        if (low[i] < to && from < high[i] && low[i] < high[i]) {
            int64_t shape[4];
            shape_of_call(&family->rows[t.number], &t, tokens_q, tokens_kv, shape);
            TRY(check_workspace(family, &t, shape, pointers[t.number], workspace, error));
        }
    }
    for (int i = 0; i < count; i++) {
        if (list[i].role != ATTN_ROLE_OUTPUT) continue;
        for (int k = 0; k < count; k++) {
            if (k == i || (k < i && list[k].role == ATTN_ROLE_OUTPUT)) continue;
            if (high[i] <= low[k] || high[k] <= low[i] || low[i] == high[i] || low[k] == high[k]) continue;
            int64_t shape_a[4], shape_b[4];
            shape_of_call(&family->rows[list[i].number], &list[i], tokens_q, tokens_kv, shape_a);
            shape_of_call(&family->rows[list[k].number], &list[k], tokens_q, tokens_kv, shape_b);
            TRY(check_pair(family, &list[i], &list[k], shape_a, shape_b, pointers, error));
        }
    }
    return ATTN_OK;
}
