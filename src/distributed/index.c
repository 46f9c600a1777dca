/* SPDX-License-Identifier: MIT
 * index.c - see index.h. */
#include "index.h"

#include "../common/slots.h"
#include "split.h"

/* What is read of an index tensor. */
typedef struct index_rule {
    const attn_input *slot;
    const char *name;
    int64_t count, least, most;
} index_rule;

/* Its numbers, as 64-bit ones; NULL if it is absent. */
static attn_status read_index(const index_rule *r, int64_t *to, const int64_t **numbers, attn_error *error)
{
    const attn_input *slot = r->slot;
    *numbers = NULL;
    TRY(slot_check(slot, r->name, r->count > 0, error));
    if (!slot->data) return ATTN_OK;
    CHECK(slot->dtype == 0 || slot->dtype == ATTN_I64 || slot->dtype == ATTN_I32, ATTN_ERR_UNSUPPORTED,
          "%s is %s; it must be i64 or i32", r->name, attn_dtype_name(slot->dtype));
    CHECK(r->count < 2 || slot_is_dense(slot) || slot->stride[0] == 1, ATTN_ERR_STRIDE, "%s must be dense", r->name);
    TRY(slot_aligned(slot, r->name, slot->dtype == ATTN_I32 ? 4 : 8, error));
    for (int64_t n = 0; n < r->count; n++) {
        to[n] = slot->dtype == ATTN_I32 ? ((const int32_t *)slot->data)[n] : ((const int64_t *)slot->data)[n];
        CHECK(to[n] >= r->least && to[n] <= r->most, ATTN_ERR_ARGUMENT,
              "%s[%" PRId64 "] (%" PRId64 ") is not between %" PRId64 " and %" PRId64, r->name, n, to[n], r->least, r->most);
    }
    *numbers = to;
    return ATTN_OK;
}

static attn_status check_starts(const int64_t *starts, int64_t count, int64_t longest, const char *name, attn_error *error)
{
    CHECK(starts[0] == 0, ATTN_ERR_ARGUMENT, "%s[0] is %" PRId64 "; it must be 0", name, starts[0]);
    for (int64_t b = 0; b < count; b++)
        CHECK(starts[b + 1] >= starts[b] && starts[b + 1] - starts[b] <= longest, ATTN_ERR_ARGUMENT,
              "%s[%" PRId64 "] (%" PRId64 ") is not between %" PRId64 " and %" PRId64, name, b + 1, starts[b + 1], starts[b],
              starts[b] + longest);
    return ATTN_OK;
}

enum { INDEX_TENSORS = 5 };

attn_status attn_index_read(attn_grid_index *x, const attn_tensors *t, const attn_problem *problem, int64_t *memory,
                            attn_error *error)
{
    const attn_shape *s = &problem->shape;
    const int bottom_right = problem->mask.align == ATTN_ALIGN_BOTTOM_RIGHT;
    const int64_t far = INT64_C(1) << 60, most = INT64_C(1) << 48, each = s->batch + 1;
    const index_rule rules[INDEX_TENSORS] = {{&t->lengths_q, "lengths_q", s->batch, 0, s->len_q},
                                             {&t->lengths_kv, "lengths_kv", s->batch, 0, s->len_kv},
                                             {&t->offset_q, "offset_q", s->batch, -far, far},
                                             {&t->cu_seqlens_q, "cu_seqlens_q", each, 0, most},
                                             {&t->cu_seqlens_kv, "cu_seqlens_kv", each, 0, most}};
    const int64_t **const to[INDEX_TENSORS] = {&x->lengths_q, &x->lengths_kv, &x->offset_q, &x->starts_q, &x->starts_kv};
    CHECK(bottom_right || problem->mask.align == ATTN_ALIGN_TOP_LEFT, ATTN_ERR_ARGUMENT,
          "mask.align is %d; known: 0 (top-left), 1 (bottom-right)", (int)problem->mask.align);
    CHECK(!t->cu_seqlens_q.data == !t->cu_seqlens_kv.data, ATTN_ERR_ARGUMENT, "cu_seqlens_%s is missing; set both or neither",
          t->cu_seqlens_q.data ? "kv" : "q");
    CHECK(!t->cu_seqlens_q.data || (!t->lengths_q.data && !t->lengths_kv.data), ATTN_ERR_ARGUMENT,
          "cu_seqlens_q and lengths_%s are set; set only one of them", t->lengths_q.data ? "q" : "kv");
    CHECK(!bottom_right || !t->offset_q.data, ATTN_ERR_ARGUMENT, "offset_q is set; mask.align is 1 (bottom-right), which sets it");
    x->entries = s->batch;
    for (int n = 0; n < INDEX_TENSORS; n++) TRY(read_index(&rules[n], memory + n * each, to[n], error));
    if (x->starts_q) {
        TRY(check_starts(x->starts_q, s->batch, s->len_q, "cu_seqlens_q", error));
        TRY(check_starts(x->starts_kv, s->batch, s->len_kv, "cu_seqlens_kv", error));
    }
    if (!bottom_right) return ATTN_OK;
    int64_t *const offset = memory + 2 * each;
    for (int64_t b = 0; b < s->batch; b++) {
        const attn_entry e = attn_entry_at(x, s, b);
        offset[b] = e.keys - e.queries;
    }
    x->offset_q = offset;
    return ATTN_OK;
}

attn_status attn_index_check(const attn_shape *s, attn_error *error)
{
    CHECK(s->batch >= 0 && s->batch < INT32_MAX, ATTN_ERR_SHAPE, "shape.batch is %" PRId64 "; over parts it must be 0 to 2^31",
          s->batch);
    CHECK(s->len_q >= 0, ATTN_ERR_SHAPE, "shape.len_q is %" PRId64 "; it must not be negative", s->len_q);
    CHECK(s->len_kv >= 0, ATTN_ERR_SHAPE, "shape.len_kv is %" PRId64 "; it must not be negative", s->len_kv);
    return ATTN_OK;
}

size_t attn_index_bytes(int64_t batch) { return INDEX_TENSORS * (size_t)(batch + 1) * sizeof(int64_t); }

attn_range attn_index_tokens(const attn_grid_index *x, const attn_problem *problem)
{
    const attn_shape *s = &problem->shape;
    return (attn_range){x->starts_q ? x->starts_q[s->batch] : s->len_q, x->starts_kv ? x->starts_kv[s->batch] : s->len_kv};
}

attn_status attn_index_begin(attn_grid_index *x, const attn_tensors *tensors, attn_problem *problem, int64_t *memory,
                             attn_split *split, attn_range *tokens, attn_error *error)
{
    TRY(attn_index_read(x, tensors, problem, memory, error));
    x->all_pairs = problem->op == ATTN_FORWARD &&
                   (tensors->dropout_keep.data || (tensors->scores.data && problem->outputs.scores_stage < ATTN_STAGE_BIASED));
    problem->mask.align = ATTN_ALIGN_TOP_LEFT;
    *tokens = attn_index_tokens(x, problem);
    TRY(attn_split_check(split, tokens->first, ATTN_AXIS_QUERY, "the number of queries", error));
    TRY(attn_split_check(split, tokens->end, ATTN_AXIS_KEY, "the number of keys", error));
    const int64_t longest = attn_max(tokens->first, tokens->end);
    if (split->part > longest && longest > 0) split->part = longest;
    return ATTN_OK;
}
