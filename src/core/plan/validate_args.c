/* SPDX-License-Identifier: MIT
 *
 * validate_args.c - every rule for what an execution reads from its arguments before it begins: the call, and the numbers in
 * lengths, pages and lists of blocks.  Each rule has a row with its exact message in tests/unit/test_validate_args.c.
 */
#include <inttypes.h>
#include <string.h>

#include "../base/checked.h"
#include "../base/error.h"
#include "../base/names.h"
#include "../visible/visible.h"
#include "plan.h"
#include "tensors.h"

static attn_status check_lengths(int slot, const void *array, attn_dtype dtype, int64_t batch, int64_t most, attn_error *error)
{
    const char *name = attn_attention_family.rows[slot].name;
    for (int64_t b = 0; b < batch; b++) {
        int64_t length = attn_index_at(array, dtype, b);
        CHECK_TENSOR(length >= 0 && length <= most, slot, ATTN_ERR_ARGUMENT,
                     "%s[%" PRId64 "] (%" PRId64 ") is not between 0 and %" PRId64 "%s", name, b, length, most,
                     attn_index_hint(dtype, length));
    }
    return ATTN_OK;
}

/* Keeps sums of positions far from the ends of int64_t, as the limits of an origin do. */
static attn_status check_offsets(const attn_resolved *p, const attn_args *args, attn_error *error)
{
    const int64_t most = (int64_t)1 << 60;
    for (int64_t b = 0; b < p->shape.batch; b++) {
        const int64_t offset = attn_index_at(args->offset_q, p->at.offset_q.dtype, b);
        CHECK_TENSOR(offset >= -most && offset <= most, ATTN_SLOT_offset_q, ATTN_ERR_ARGUMENT,
                     "offset_q[%" PRId64 "] (%" PRId64 ") is not between -2^60 and 2^60", b, offset);
    }
    return ATTN_OK;
}

/* The lists of pages, before their pages are read, and the lengths of the last ones. */
static attn_status check_page_lists(const attn_resolved *p, const attn_args *args, attn_error *error)
{
    const attn_paging *g = &p->paging;
    const attn_dtype of_starts = p->at.page_starts.dtype, of_lengths = p->at.lengths_last_page.dtype;
    const int64_t most = attn_ceil_div(p->shape.len_kv, g->page_size);
    int64_t start = attn_index_at(args->page_starts, of_starts, 0);
    CHECK_TENSOR(start == 0, ATTN_SLOT_page_starts, ATTN_ERR_ARGUMENT, "page_starts[0] (%" PRId64 ") is not 0%s", start,
                 attn_index_hint(of_starts, start));
    for (int64_t b = 0; b < p->shape.batch; b++) {
        const int64_t end = attn_index_at(args->page_starts, of_starts, b + 1);
        CHECK_TENSOR(end >= start && end <= g->page_entries, ATTN_SLOT_page_starts, ATTN_ERR_ARGUMENT,
                     "page_starts[%" PRId64 "] (%" PRId64 ") is not between its predecessor (%" PRId64
                     ") and paging.page_entries (%" PRId64 ")%s",
                     b + 1, end, start, g->page_entries, attn_index_hint(of_starts, end));
        const int64_t pages = end - start; /* (of a wrong end the difference may not fit) */
        start = end;
        if (!p->has.lengths_last_page) continue;
        const int64_t length = attn_index_at(args->lengths_last_page, of_lengths, b), least = pages > 0;
        CHECK_TENSOR(length >= least && length <= g->page_size, ATTN_SLOT_lengths_last_page, ATTN_ERR_ARGUMENT,
                     "lengths_last_page[%" PRId64 "] (%" PRId64 ") is not between %" PRId64 " and paging.page_size (%" PRId64 ")%s",
                     b, length, least, g->page_size, attn_index_hint(of_lengths, length));
        CHECK_TENSOR(pages <= most && (pages == 0 || (pages - 1) * g->page_size + length <= p->shape.len_kv),
                     ATTN_SLOT_lengths_last_page, ATTN_ERR_ARGUMENT,
                     "lengths_last_page[%" PRId64 "] (%" PRId64 ") after %" PRId64 " full pages is more than len_kv (%" PRId64 ")",
                     b, length, pages - 1, p->shape.len_kv);
    }
    return ATTN_OK;
}

/* The first key that an execution reads of an entry: an engine may have freed the pages behind a window or a chunk.  Queries follow
 * one another, so the first one sees the earliest keys; if there is none, the next one would. */
static int64_t first_key_read(const attn_resolved *p, const attn_args *args, int64_t b)
{
    const attn_mask *m = &p->mask;
    attn_visibility v;
    if ((!m->window && !m->chunk) || m->global_q || m->global_kv || p->has.ranges || m->empty == ATTN_EMPTY_UNIFORM) return 0;
    if (p->has.weights || p->has.scores || p->has.column_sum) return 0; /* of all keys */
    if (p->has.rows && p->outputs.rows_stage < ATTN_STAGE_BIASED) return 0;
    if (p->has.tree || p->has.block_starts) return 0;
    attn_visibility_of(p, args, b, 0, &v);
    v.len_q = attn_max(v.len_q, 1);
    return attn_keys_of_query(&v, 0).local.low;
}

static attn_status check_pages(const attn_resolved *p, const attn_args *args, attn_error *error)
{
    const attn_paging *g = &p->paging;
    const int slot = p->has.page_index ? ATTN_SLOT_page_index : ATTN_SLOT_page_table;
    const attn_dtype dtype = p->has.page_index ? p->at.page_index.dtype : p->at.page_table.dtype;
    if (p->shape.len_kv == 0) return ATTN_OK; /* (any number of entries) */
    /* Entries of one length that share a row of the table have the same pages. */
    const int shared = p->has.page_table && p->at.page_table.stride[0] == 0 && !p->has.lengths_kv;
    const int64_t entries = shared ? attn_min(1, p->shape.batch) : p->shape.batch;
    for (int64_t b = 0; b < entries; b++) {
        const int64_t keys = attn_tokens_of(p, args, b).len_kv, pages = attn_ceil_div(keys, g->page_size),
                      first = shared ? 0 : first_key_read(p, args, b);
        if (p->has.page_index) {
            const int64_t start = attn_index_at(args->page_starts, p->at.page_starts.dtype, b),
                          end = attn_index_at(args->page_starts, p->at.page_starts.dtype, b + 1);
            CHECK_TENSOR(end - start >= pages, ATTN_SLOT_page_starts, ATTN_ERR_ARGUMENT,
                         "batch entry %" PRId64 " has %" PRId64 " pages in page_starts; its keys need %" PRId64, b, end - start,
                         pages);
        }
        for (int64_t i = first / g->page_size; i < pages && first < keys; i++) { /* (all keys may be behind) */
            const int64_t page = attn_page_of(p, args, b, i);
            CHECK_TENSOR(page >= 0 && page < g->pages, slot, ATTN_ERR_ARGUMENT,
                         "page %" PRId64 " of batch entry %" PRId64 " is %" PRId64 " in %s; paging.pages is %" PRId64 "%s", i, b,
                         page, attn_attention_family.rows[slot].name, g->pages, attn_index_hint(dtype, page));
        }
    }
    return ATTN_OK;
}

static attn_status check_cu_seqlens(int slot, const void *array, attn_dtype dtype, int64_t batch, int64_t most, attn_error *error)
{
    const char *name = attn_attention_family.rows[slot].name;
    int64_t start = attn_index_at(array, dtype, 0);
    CHECK_TENSOR(start == 0, slot, ATTN_ERR_ARGUMENT, "%s[0] (%" PRId64 ") is not 0%s", name, start, attn_index_hint(dtype, start));
    for (int64_t b = 0; b < batch; b++) {
        int64_t end = attn_index_at(array, dtype, b + 1);
        CHECK_TENSOR(end >= start && end - start <= most, slot, ATTN_ERR_ARGUMENT,
                     "%s[%" PRId64 "] (%" PRId64 ") minus %s[%" PRId64 "] (%" PRId64 ") is not between 0 and %s (%" PRId64 ")%s",
                     name, b + 1, end, name, b, start, slot == ATTN_SLOT_cu_seqlens_q ? "len_q" : "len_kv", most,
                     attn_index_hint(dtype, end));
        start = end;
    }
    return ATTN_OK;
}

/* Where lists begin, and, once they are given, their blocks. */
static attn_status check_block_lists(const attn_resolved *p, const attn_args *args, attn_error *error)
{
    const attn_mask *m = &p->mask;
    const int64_t lists = attn_block_lists(p), blocks = attn_ceil_div(p->shape.len_kv, m->block_kv);
    const attn_dtype of_starts = p->at.block_starts.dtype, of_index = p->at.block_index.dtype;
    int64_t start = attn_index_at(args->block_starts, of_starts, 0);
    CHECK_TENSOR(start == 0, ATTN_SLOT_block_starts, ATTN_ERR_ARGUMENT, "block_starts[0] (%" PRId64 ") is not 0%s", start,
                 attn_index_hint(of_starts, start));
    for (int64_t n = 0; n < lists; n++) {
        int64_t end = attn_index_at(args->block_starts, of_starts, n + 1), last = -1;
        CHECK_TENSOR(end >= start && end <= m->block_entries, ATTN_SLOT_block_starts, ATTN_ERR_ARGUMENT,
                     "block_starts[%" PRId64 "] (%" PRId64 ") is not between its predecessor (%" PRId64
                     ") and mask.block_entries (%" PRId64 ")%s",
                     n + 1, end, start, m->block_entries, attn_index_hint(of_starts, end));
        for (int64_t k = start; args->block_index && k < end; k++) {
            int64_t block = attn_index_at(args->block_index, of_index, k);
            CHECK_TENSOR(block > last && block < blocks, ATTN_SLOT_block_index, ATTN_ERR_ARGUMENT,
                         "block_index[%" PRId64 "] (%" PRId64 ") is not above its predecessor in the list and below %" PRId64
                         ", the blocks of keys%s",
                         k, block, blocks, attn_index_hint(of_index, block));
            last = block;
        }
        start = end;
    }
    return ATTN_OK;
}

/* Absolute positions are sums of positions in the part and these. */
static attn_status check_origin(const attn_resolved *p, const attn_origin *o, attn_error *error)
{
    const int64_t most = (int64_t)1 << 60;
    const struct {
        const char *name;
        int64_t value;
    } places[] = {{"batch", o->batch}, {"head", o->head}, {"heads", o->heads}, {"q", o->q}, {"kv", o->kv}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        CHECK(places[i].value >= 0 && places[i].value <= most, ATTN_ERR_ARGUMENT,
              "origin.%s is %" PRId64 "; it must be between 0 and 2^60", places[i].name, places[i].value);
    CHECK(o->heads == 0 || o->head + p->shape.heads_q <= o->heads, ATTN_ERR_ARGUMENT,
          "origin.head is %" PRId64 " and heads_q %" PRId64 "; origin.heads (%" PRId64 ") is too small", o->head, p->shape.heads_q,
          o->heads);
    CHECK(o->heads != 0 || o->head == 0, ATTN_ERR_ARGUMENT,
          "origin.head is %" PRId64 " and origin.heads is 0; set it to heads_q of the whole problem", o->head);
    for (int i = 0; i < 3; i++)
        CHECK(o->reserved[i] == 0, ATTN_ERR_ARGUMENT, "origin.reserved[%d] is %" PRId64 "; it must be 0", i, o->reserved[i]);
    if (!p->has.block_mask && !p->has.block_starts) return ATTN_OK;
    CHECK(o->q % p->mask.block_q == 0, ATTN_ERR_ARGUMENT, "origin.q (%" PRId64 ") is not a multiple of mask.block_q (%" PRId64 ")",
          o->q, p->mask.block_q);
    CHECK(o->kv % p->mask.block_kv == 0, ATTN_ERR_ARGUMENT,
          "origin.kv (%" PRId64 ") is not a multiple of mask.block_kv (%" PRId64 ")", o->kv, p->mask.block_kv);
    return ATTN_OK;
}

/* The arguments that are not tensors: the same must be present as when the plan was made. */
static attn_status read_call(const attn_resolved *p, const attn_call *given, attn_args *args, attn_error *error)
{
    if (given) TRY(attn_struct_read(&args->call, sizeof args->call, sizeof args->call, given, "attn_call", error));
    const attn_call *call = &args->call;
    CHECK(call->reserved == 0, ATTN_ERR_ARGUMENT, "call.reserved is %" PRIu32 "; it must be 0", call->reserved);
    CHECK(!p->has.modifier == !call->modify_scores, ATTN_ERR_ARGUMENT, "call.modify_scores is %s; the plan was made %s it",
          call->modify_scores ? "set" : "NULL", p->has.modifier ? "with" : "without");
    CHECK(!p->has.modifier || p->op == ATTN_FORWARD || call->modify_slopes, ATTN_ERR_ARGUMENT,
          "call.modify_scores is set and call.modify_slopes is NULL; the derivatives need it");
    CHECK(call->modify_scores || !call->modify_slopes, ATTN_ERR_ARGUMENT,
          "call.modify_slopes is set and call.modify_scores is NULL");
    CHECK(!p->has.rows == !call->visit_rows, ATTN_ERR_ARGUMENT, "call.visit_rows is %s; the plan was made %s it",
          call->visit_rows ? "set" : "NULL", p->has.rows ? "with" : "without");
    CHECK(!p->has.origin == !call->origin, ATTN_ERR_ARGUMENT, "call.origin is %s; the plan was made %s one",
          call->origin ? "set" : "NULL", p->has.origin ? "with" : "without");
    if (call->origin) TRY(check_origin(p, call->origin, error));
    if (call->origin) args->origin = *call->origin;
    if (args->origin.heads == 0) args->origin.heads = p->shape.heads_q;
    return ATTN_OK;
}

int attn_plan_is_idle(const attn_plan *plan, int64_t tokens_q, int64_t tokens_kv)
{
    const attn_resolved *p = &plan->problem;
    const int queries = p->shape.heads_q > 0 && (attn_is_packed(p) ? tokens_q > 0 : p->shape.batch > 0 && p->shape.len_q > 0);
    return (!queries || (!p->has.rows && !p->has.modifier)) &&
           attn_tensors_write_nothing(&attn_attention_family, plan->tensor, plan->tensors, tokens_q, tokens_kv);
}

/* How many tokens packed tensors have. */
static void count_tokens(const attn_resolved *p, const attn_args *args, int64_t *q, int64_t *kv)
{
    *q = attn_is_packed(p) ? attn_index_at(args->cu_seqlens_q, p->at.cu_seqlens_q.dtype, p->shape.batch) : 0;
    *kv = attn_keys_are_packed(p) ? attn_index_at(args->cu_seqlens_kv, p->at.cu_seqlens_kv.dtype, p->shape.batch) : 0;
}

attn_status attn_args_read(const attn_plan *plan, const attn_tensors *tensors, attn_args *args, attn_error *error)
{
    const attn_resolved *p = &plan->problem;
    void *pointers[ATTN_SLOTS] = {NULL};
    int64_t tokens_q, tokens_kv;
    TRY(attn_tensors_bind(&attn_attention_family, plan->tensor, plan->tensors, tensors, pointers, error));
    memset(args, 0, sizeof *args);
    TRY(read_call(p, tensors->call, args, error));
    _Static_assert(offsetof(attn_args, call) >= sizeof pointers, "one pointer a tensor");
    memcpy(args, pointers, sizeof pointers);
    TRY(attn_latents_validate(p, args->k, args->v, error));
    TRY(attn_args_validate(p, args, error));
    count_tokens(p, args, &tokens_q, &tokens_kv);
    args->idle = attn_plan_is_idle(plan, tokens_q, tokens_kv);
    return ATTN_OK;
}

attn_status attn_args_check_overlap(const attn_plan *plan, const attn_args *args, attn_bytes workspace, attn_error *error)
{
    void *pointers[ATTN_SLOTS];
    int64_t tokens_q, tokens_kv;
    memcpy(pointers, args, sizeof pointers);
    count_tokens(&plan->problem, args, &tokens_q, &tokens_kv);
    return attn_tensors_check_overlap(&attn_attention_family, plan->tensor, plan->tensors, pointers, tokens_q, tokens_kv, workspace,
                                      error);
}

attn_status attn_lengths_read(const attn_plan *plan, const attn_tensors *tensors, attn_args *args, attn_error *error)
{
    static const int lengths[] = {ATTN_SLOT_lengths_kv, ATTN_SLOT_cu_seqlens_q,      ATTN_SLOT_cu_seqlens_kv, ATTN_SLOT_page_starts,
                                  ATTN_SLOT_offset_q,   ATTN_SLOT_lengths_last_page, ATTN_SLOT_block_starts};
    void *pointers[ATTN_SLOTS] = {NULL};
    memset(args, 0, sizeof *args);
    TRY(attn_tensors_check_size(&attn_attention_family, tensors, error));
    const int of_lists = attn_has_choices(&plan->problem), count = (int)(sizeof lengths / sizeof *lengths) - !of_lists;
    for (int i = 0; i < plan->tensors; i++)
        for (int n = 0; n < count; n++)
            if (plan->tensor[i].number == lengths[n])
                TRY(attn_tensor_bind(&attn_attention_family, &plan->tensor[i], tensors, &pointers[lengths[n]], error));
    memcpy(args, pointers, sizeof pointers);
    if (of_lists) TRY(check_block_lists(&plan->problem, args, error));
    return attn_lengths_validate(&plan->problem, args, error);
}

attn_status attn_lengths_validate(const attn_resolved *p, const attn_args *args, attn_error *error)
{
    const int64_t B = p->shape.batch;
    const attn_layouts *at = &p->at;
    if (p->has.lengths_q) TRY(check_lengths(ATTN_SLOT_lengths_q, args->lengths_q, at->lengths_q.dtype, B, p->shape.len_q, error));
    if (p->has.lengths_kv)
        TRY(check_lengths(ATTN_SLOT_lengths_kv, args->lengths_kv, at->lengths_kv.dtype, B, p->shape.len_kv, error));
    if (p->has.offset_q) TRY(check_offsets(p, args, error));
    if (p->has.page_index) TRY(check_page_lists(p, args, error));
    if (attn_is_packed(p))
        TRY(check_cu_seqlens(ATTN_SLOT_cu_seqlens_q, args->cu_seqlens_q, at->cu_seqlens_q.dtype, B, p->shape.len_q, error));
    if (attn_keys_are_packed(p))
        TRY(check_cu_seqlens(ATTN_SLOT_cu_seqlens_kv, args->cu_seqlens_kv, at->cu_seqlens_kv.dtype, B, p->shape.len_kv, error));
    return ATTN_OK;
}

attn_status attn_args_validate(const attn_resolved *p, const attn_args *args, attn_error *error)
{
    TRY(attn_lengths_validate(p, args, error));
    if (attn_is_paged(p)) TRY(check_pages(p, args, error));
    if (p->has.block_starts) TRY(check_block_lists(p, args, error));
    return ATTN_OK;
}
