/* SPDX-License-Identifier: MIT
 *
 * validate_args.c - every rule that the arguments of a call must keep: pointers, and the numbers in lengths, pages and lists of
 * blocks.  Each rule has a row with its exact message in tests/unit/test_validate_args.c.
 */
#include <inttypes.h>

#include "../base/checked.h"
#include "../base/error.h"
#include "../base/names.h"
#include "plan.h"
#include "tensors.h"

static attn_status check_lengths(const char *name, const void *array, attn_dtype dtype, int64_t batch, int64_t most,
                                 attn_error *error)
{
    for (int64_t b = 0; b < batch; b++) {
        int64_t length = attn_index_at(array, dtype, b);
        CHECK(length >= 0 && length <= most, ATTN_ERR_ARGUMENT, "%s[%" PRId64 "] (%" PRId64 ") is not within 0..%" PRId64, name, b,
              length, most);
    }
    return ATTN_OK;
}

static attn_status check_pages(const attn_problem *p, const attn_args *args, attn_error *error)
{
    const attn_paging *g = &p->paging;
    for (int64_t b = 0; b < p->shape.batch; b++) {
        int64_t length = p->mask.lengths_kv ? attn_index_at(args->lengths_kv, p->mask.index_dtype, b) : p->shape.len_kv;
        for (int64_t i = 0; i < attn_ceil_div(length, g->page_size); i++) {
            int64_t page = attn_index_at(args->page_table, p->mask.index_dtype, b * g->table_stride + i);
            CHECK(page >= 0 && page < g->pages, ATTN_ERR_ARGUMENT,
                  "page %" PRId64 " of batch entry %" PRId64 " is %" PRId64 " in page_table; there are %" PRId64 " pages", i, b,
                  page, g->pages);
        }
    }
    return ATTN_OK;
}

static attn_status check_cu_seqlens(const char *name, const void *array, attn_dtype dtype, int64_t batch, int64_t most,
                                    attn_error *error)
{
    int64_t start = attn_index_at(array, dtype, 0);
    CHECK(start == 0, ATTN_ERR_ARGUMENT, "%s[0] (%" PRId64 ") is not 0", name, start);
    for (int64_t b = 0; b < batch; b++) {
        int64_t end = attn_index_at(array, dtype, b + 1);
        CHECK(end >= start && end - start <= most, ATTN_ERR_ARGUMENT,
              "%s[%" PRId64 "] (%" PRId64 ") is not within 0..%" PRId64 " behind its predecessor (%" PRId64 ")", name, b + 1, end,
              most, start);
        start = end;
    }
    return ATTN_OK;
}

static attn_status check_block_lists(const attn_problem *p, const attn_args *args, attn_error *error)
{
    const attn_mask *m = &p->mask;
    const int64_t lists = attn_ceil_div(p->shape.len_q, m->block_q), blocks = attn_ceil_div(p->shape.len_kv, m->block_kv);
    int64_t start = attn_index_at(args->block_rows, m->index_dtype, 0);
    CHECK(start == 0, ATTN_ERR_ARGUMENT, "block_rows[0] (%" PRId64 ") is not 0", start);
    for (int64_t n = 0; n < lists; n++) {
        int64_t end = attn_index_at(args->block_rows, m->index_dtype, n + 1), last = -1;
        CHECK(end >= start && end <= m->block_entries, ATTN_ERR_ARGUMENT,
              "block_rows[%" PRId64 "] (%" PRId64 ") is not within its predecessor (%" PRId64 ") and block_entries (%" PRId64 ")",
              n + 1, end, start, m->block_entries);
        for (int64_t k = start; k < end; k++) {
            int64_t block = attn_index_at(args->block_columns, m->index_dtype, k);
            CHECK(block > last && block < blocks, ATTN_ERR_ARGUMENT,
                  "block_columns[%" PRId64 "] (%" PRId64 ") is not above its predecessor in the list and below %" PRId64
                  ", the blocks of keys",
                  k, block, blocks);
            last = block;
        }
        start = end;
    }
    return ATTN_OK;
}

attn_status attn_args_validate(const attn_problem *p, const attn_args *args, attn_error *error)
{
    TRY(attn_tensors_check_pointers(p, args, error));
    CHECK(!p->modifier.used || args->modify_scores, ATTN_ERR_ARGUMENT, "modifier.used is set but args.modify_scores is NULL");
    CHECK(!p->modifier.used || p->op == ATTN_FORWARD || args->modify_slopes, ATTN_ERR_ARGUMENT,
          "modifier.used is set but args.modify_slopes is NULL; the derivatives need it");
    CHECK(!p->want.rows || args->visit_rows, ATTN_ERR_ARGUMENT, "want.rows is set but args.visit_rows is NULL");
    if (p->mask.lengths_q)
        TRY(check_lengths("lengths_q", args->lengths_q, p->mask.index_dtype, p->shape.batch, p->shape.len_q, error));
    if (p->mask.lengths_kv)
        TRY(check_lengths("lengths_kv", args->lengths_kv, p->mask.index_dtype, p->shape.batch, p->shape.len_kv, error));
    if (p->paging.paged) TRY(check_pages(p, args, error));
    if (p->mask.block_lists) TRY(check_block_lists(p, args, error));
    if (p->mask.packed) {
        TRY(check_cu_seqlens("cu_seqlens_q", args->cu_seqlens_q, p->mask.index_dtype, p->shape.batch, p->shape.len_q, error));
        TRY(check_cu_seqlens("cu_seqlens_kv", args->cu_seqlens_kv, p->mask.index_dtype, p->shape.batch, p->shape.len_kv, error));
        TRY(attn_tensors_check_packed(p, args, error));
    }
    return ATTN_OK;
}
