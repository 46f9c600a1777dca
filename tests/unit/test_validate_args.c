/* SPDX-License-Identifier: MIT
 *
 * test_validate_args.c - the rules of arguments: pointers, lengths, packed sequences, pages and lists of blocks. */
#include "fails.h"
#include "rejected.h"

static void test_pointers(void **state)
{
    (void)state;
    REJECTED(s.tensors.q.data = NULL, ATTN_ERR_ARGUMENT, "q is missing; ATTN_FORWARD needs it");
    REJECTED(s.tensors.k.data = NULL, ATTN_ERR_ARGUMENT, "k is missing; ATTN_FORWARD needs it");
    REJECTED(s.tensors.v.data = NULL, ATTN_ERR_ARGUMENT, "v is missing; ATTN_FORWARD needs it");
    REJECTED(s.tensors.o.data = NULL, ATTN_ERR_ARGUMENT, "o is missing; ATTN_FORWARD needs it");
    REJECTED(s.tensors.mask.data = ATTN_LATER, ATTN_ERR_ARGUMENT, "mask is ATTN_LATER; an execution needs its pointer");
    REJECTED(s.tensors.lse.data = ATTN_LATER, ATTN_ERR_ARGUMENT, "lse is ATTN_LATER; an execution needs its pointer");
    REJECTED(s.tensors.weights.data = ATTN_MISSING, ATTN_ERR_ARGUMENT, "weights is NULL");
    REJECTED(s.tensors.lengths_q.data = ATTN_MISSING, ATTN_ERR_ARGUMENT, "lengths_q is NULL");
    REJECTED(s.tensors.lengths_kv.data = ATTN_EMPTY, ATTN_ERR_ARGUMENT, "lengths_kv is ATTN_EMPTY and has elements");
    REJECTED(s.tensors.offset_q.data = ATTN_EMPTY, ATTN_ERR_ARGUMENT, "offset_q is ATTN_EMPTY and has elements");
    REJECTED(s.tensors.k.data = (char *)s.k + 2, ATTN_ERR_ARGUMENT, "k is not aligned to its elements of 4 bytes");
    REJECTED(s.tensors.offset_q.data = (char *)s.offset + 4, ATTN_ERR_ARGUMENT,
             "offset_q is not aligned to its elements of 8 bytes");
    REJECTED(s.tensors.o.data = s.v, ATTN_ERR_STRIDE, "o and v share elements; an output must not overlap another tensor");
    REJECTED(s.tensors.lse.data = s.weights, ATTN_ERR_STRIDE,
             "lse and weights share elements; an output must not overlap another tensor");
    REJECTED(s.tensors.weights.data = s.bias, ATTN_ERR_STRIDE,
             "weights and bias share elements; an output must not overlap another tensor");
    ACCEPTED(s.tensors.k.data = s.q); /* inputs may be one another */
}

/* Execution must match the plan. */
static attn_status otherwise(void (*change)(small *s), attn_error *error)
{
    attn_plan *plan;
    small s;
    small_init(&s);
    s.call.origin = &(attn_origin){.heads = SMALL_HQ};
    assert_int_equal(attn_plan_create(&plan, &s.problem, &s.tensors, NULL, NULL), ATTN_OK);
    const size_t size = attn_plan_workspace_size(plan);
    void *workspace = malloc(size + 1);
    change(&s);
    const attn_status status = attn_execute(plan, &s.tensors, workspace, size, error);
    assert_true(small_outputs_untouched(&s));
    free(workspace);
    attn_plan_destroy(plan);
    return status;
}

static void no_modifier(void *context, const attn_score_tile *tile) { (void)context, (void)tile; }
static void no_visit(void *context, const attn_rows *rows) { (void)context, (void)rows; }

static void without_mask(small *s) { s->tensors.mask = (attn_input){0}; }
static void with_sink(small *s) { s->tensors.sink = attn_in(s->q); }
static void other_type(small *s) { s->tensors.q.dtype = ATTN_BF16; }
static void other_stride(small *s) { sets(s->tensors.k.stride, 40, 4, 8, 1); }
static void an_origin(small *s) { s->tensors.call = &s->call; }
static void a_modifier(small *s) { s->call.origin = NULL, s->call.modify_scores = no_modifier, s->tensors.call = &s->call; }
static void a_visitor(small *s) { s->call.origin = NULL, s->call.visit_rows = no_visit, s->tensors.call = &s->call; }

static void test_as_planned(void **state)
{
    (void)state;
    FAILS(otherwise(without_mask, &error), ATTN_ERR_ARGUMENT, "mask is missing; the plan was made with it");
    FAILS(otherwise(with_sink, &error), ATTN_ERR_ARGUMENT, "sink is set; the plan was made without it");
    FAILS(otherwise(other_type, &error), ATTN_ERR_ARGUMENT, "q.dtype is bf16; the plan was made with f32");
    FAILS(otherwise(other_stride, &error), ATTN_ERR_STRIDE, "k.stride[1] is 4; the plan was made with 20");
    FAILS(otherwise(an_origin, &error), ATTN_ERR_ARGUMENT, "call.origin is set; the plan was made without one");
    FAILS(otherwise(a_modifier, &error), ATTN_ERR_ARGUMENT, "call.modify_scores is set; the plan was made without it");
    FAILS(otherwise(a_visitor, &error), ATTN_ERR_ARGUMENT, "call.visit_rows is set; the plan was made without it");
}

static void test_origin(void **state)
{
    attn_origin origin;
    (void)state;
#define ORIGIN(...) (origin = (attn_origin){__VA_ARGS__}, s.call.origin = &origin, s.tensors.call = &s.call)
    ACCEPTED(ORIGIN(0));
    ACCEPTED(ORIGIN(.batch = 3, .head = 8, .heads = 12, .q = 70, .kv = 35));
    REJECTED(ORIGIN(.q = -1), ATTN_ERR_ARGUMENT, "origin.q is -1; it must be between 0 and 2^60");
    REJECTED(ORIGIN(.kv = INT64_MAX), ATTN_ERR_ARGUMENT, "origin.kv is 9223372036854775807; it must be between 0 and 2^60");
    REJECTED(ORIGIN(.batch = INT64_MIN), ATTN_ERR_ARGUMENT, "origin.batch is -9223372036854775808; it must be between 0 and 2^60");
    REJECTED(ORIGIN(.head = 9, .heads = 12), ATTN_ERR_ARGUMENT, "origin.head is 9 and heads_q 4; origin.heads (12) is too small");
    REJECTED(ORIGIN(.reserved = {0, 0, 5}), ATTN_ERR_ARGUMENT, "origin.reserved[2] is 5; it must be 0");
    REJECTED(ORIGIN(.head = 4), ATTN_ERR_ARGUMENT,
             "origin.head is 4 and origin.heads is 0; set it to heads_q of the whole problem");
    REJECTED((ORIGIN(.q = 3), s.tensors.block_mask = attn_in(s.mask), s.problem.mask.block_q = s.problem.mask.block_kv = 2),
             ATTN_ERR_ARGUMENT, "origin.q (3) is not a multiple of mask.block_q (2)");
    REJECTED(
        (ORIGIN(.q = 4, .kv = 5), s.tensors.block_mask = attn_in(s.mask), s.problem.mask.block_q = s.problem.mask.block_kv = 2),
        ATTN_ERR_ARGUMENT, "origin.kv (5) is not a multiple of mask.block_kv (2)");
    REJECTED((ORIGIN(0), s.tensors.offset_q = (attn_input){0}, s.problem.mask.align = ATTN_ALIGN_BOTTOM_RIGHT), ATTN_ERR_ARGUMENT,
             "mask.align is bottom-right and the call has an origin, whose lengths are those of a part; give offset_q");
}

static void test_lengths(void **state)
{
    (void)state;
    REJECTED(s.lengths_q[0] = 4, ATTN_ERR_ARGUMENT, "lengths_q[0] (4) is not between 0 and 3");
    REJECTED(s.lengths_q[1] = -1, ATTN_ERR_ARGUMENT, "lengths_q[1] (-1) is not between 0 and 3");
    REJECTED(s.lengths_kv[1] = 6, ATTN_ERR_ARGUMENT, "lengths_kv[1] (6) is not between 0 and 5");
    REJECTED((s.tensors.lengths_q.dtype = s.tensors.lengths_kv.dtype = ATTN_I32,
              s.tensors.lengths_kv.data = memcpy(s.lengths_kv, (int32_t[]){5, -7}, 8),
              s.tensors.lengths_q.data = memcpy(s.lengths_q, (int32_t[]){3, 0}, 8)),
             ATTN_ERR_ARGUMENT, "lengths_kv[1] (-7) is not between 0 and 5");
    REJECTED(s.tensors.lengths_kv.data = memcpy(s.lengths_kv, (int32_t[]){3, 5}, 8), ATTN_ERR_ARGUMENT,
             "lengths_kv[0] (21474836483) is not between 0 and 5; the array was read as i64 (set its dtype if it is i32)");
    ACCEPTED((s.lengths_q[0] = 0, s.lengths_kv[1] = 0, s.offset[0] = -(INT64_C(1) << 60), s.offset[1] = INT64_C(1) << 60));
    REJECTED(s.offset[0] = -(INT64_C(1) << 60) - 1, ATTN_ERR_ARGUMENT,
             "offset_q[0] (-1152921504606846977) is not between -2^60 and 2^60");
    REJECTED(s.offset[1] = INT64_MAX, ATTN_ERR_ARGUMENT, "offset_q[1] (9223372036854775807) is not between -2^60 and 2^60");
}

static void test_packed(void **state)
{
    static const int64_t late[] = {1, 2, 3}, falling[] = {0, 2, 1}, far[] = {0, 1, 99}, valid[] = {0, 1, 2}, none[] = {0, 0, 0},
                         full[] = {0, 3, 6}, joined[] = {INT64_C(2) << 32, 3, 0};
    (void)state;
#define PACKED(q, kv)                                                                                                              \
    (s.tensors.lengths_q = s.tensors.lengths_kv = (attn_input){0}, s.tensors.cu_seqlens_q = attn_in(q),                            \
     s.tensors.cu_seqlens_kv = attn_in(kv))
    REJECTED(PACKED(late, valid), ATTN_ERR_ARGUMENT, "cu_seqlens_q[0] (1) is not 0");
    REJECTED(PACKED(joined, valid), ATTN_ERR_ARGUMENT,
             "cu_seqlens_q[0] (8589934592) is not 0; the array was read as i64 (set its dtype if it is i32)");
    REJECTED(PACKED(valid, falling), ATTN_ERR_ARGUMENT,
             "cu_seqlens_kv[2] (1) minus cu_seqlens_kv[1] (2) is not between 0 and len_kv (5)");
    REJECTED(PACKED(far, valid), ATTN_ERR_ARGUMENT,
             "cu_seqlens_q[2] (99) minus cu_seqlens_q[1] (1) is not between 0 and len_q (3)");
    REJECTED(PACKED(NULL, valid), ATTN_ERR_ARGUMENT, "cu_seqlens_q is NULL");
    REJECTED((PACKED(valid, valid), s.problem.shape.heads_q = INT64_C(1) << 32, s.problem.shape.heads_kv = 1,
              s.problem.shape.dim_qk = INT64_C(1) << 31, s.problem.shape.len_q = 0),
             ATTN_ERR_SHAPE, "q has the shape [1, 4294967296, 0, 2147483648]: the number of elements overflows 64 bits");
    ACCEPTED(PACKED(valid, valid));
    /* The token of a sequence of one is followed by those of the others, so its stride counts. */
    REJECTED((PACKED(valid, valid), s.problem.shape.len_q = 1, sets(s.tensors.q.stride, 0, SMALL_D, INT64_C(1) << 56, 1)),
             ATTN_ERR_SHAPE, "q.stride[2] (72057594037927936) times its size (1) overflows 64-bit addresses");
    /* Whether a tensor has elements depends on all sequences, too. */
    REJECTED((PACKED(valid, valid), s.tensors.v.data = ATTN_EMPTY), ATTN_ERR_ARGUMENT, "v is ATTN_EMPTY and has elements");
    REJECTED((PACKED(valid, valid), s.tensors.o.data = ATTN_EMPTY), ATTN_ERR_ARGUMENT, "o is ATTN_EMPTY and has elements");
    ACCEPTED((PACKED(valid, none), s.tensors.k.data = s.tensors.v.data = ATTN_EMPTY));
    /* Whether [head, token, channel] overlaps depends on the number of tokens, 2, not on len_q, 3. */
    ACCEPTED((PACKED(valid, valid), sets(s.tensors.o.stride, 0, 2 * SMALL_DV, SMALL_DV, 1)));
    REJECTED((PACKED(valid, valid), sets(s.tensors.o.stride, 0, 2 * SMALL_DV - 1, SMALL_DV, 1)), ATTN_ERR_STRIDE,
             "o overlaps itself: stride[1] is 11 and the axes with smaller strides span 12 elements");
    REJECTED((PACKED(full, valid), sets(s.tensors.q.stride, 0, 1, INT64_MAX / 12, 1)), ATTN_ERR_SHAPE,
             "q.stride[2] (768614336404564650) times its size (6) overflows 64-bit addresses");
    ACCEPTED((PACKED(none, none), sets(s.tensors.o.stride, 0, 0, SMALL_DV, 1), s.tensors.o.data = ATTN_EMPTY));
    ACCEPTED((PACKED(none, none), s.problem.shape.batch = 0, s.tensors.o.data = s.tensors.lse.data = ATTN_EMPTY));
}

static void test_paged(void **state)
{
    static const int64_t table[4] = {0, 1, 2, 7};
    (void)state;
#define PAGED(size, count)                                                                                                         \
    (s.problem.paging.page_size = (size), s.problem.paging.pages = (count), s.tensors.page_table = attn_in(table))
    REJECTED(s.problem.paging.page_size = 2, ATTN_ERR_ARGUMENT,
             "paging.page_size is 2 and paging.pages 0 but neither page_table nor page_index is set");
    REJECTED(s.problem.paging.reserved[2] = 1, ATTN_ERR_ARGUMENT, "paging.reserved[2] is 1; it must be 0");
    REJECTED((small_backward(&s), PAGED(3, 3)), ATTN_ERR_UNSUPPORTED,
             "page_table is set and op is not ATTN_FORWARD; paged keys have no gradients");
    REJECTED((PAGED(3, 3), s.tensors.cu_seqlens_q = s.tensors.cu_seqlens_kv = attn_in(table),
              s.tensors.lengths_q = s.tensors.lengths_kv = (attn_input){0}),
             ATTN_ERR_ARGUMENT, "cu_seqlens_kv and page_table are both set; set only one of them");
    REJECTED(PAGED(0, 3), ATTN_ERR_ARGUMENT, "page_table needs paging.page_size of at least 1; it is 0");
    REJECTED(PAGED(3, -1), ATTN_ERR_ARGUMENT, "page_table needs paging.pages of at least 0; it is -1");
    REJECTED((PAGED(3, 3), sets(s.tensors.page_table.stride, 1, 0, 0, 2)), ATTN_ERR_STRIDE,
             "page_table.stride[3] is 2; the last axis must be contiguous (1)");
    ACCEPTED((PAGED(3, 3), sets(s.tensors.page_table.stride, 1, 0, 0, 1))); /* rows may overlap: they are read */
    REJECTED((PAGED(3, 2), s.tensors.lengths_kv = (attn_input){0}), ATTN_ERR_ARGUMENT,
             "page 0 of batch entry 1 is 2 in page_table; paging.pages is 2");
    REJECTED((PAGED(3, 3), s.tensors.page_table = attn_in(NULL)), ATTN_ERR_ARGUMENT, "page_table is NULL");
    /* Pages behind the window of the first query may have been freed. */
    static const int64_t freed[6] = {-1, 1, 2, INT32_MIN, 0, 1};
#define FREED(left)                                                                                                                \
    (PAGED(2, 3), s.tensors.page_table = attn_in(freed), s.tensors.offset_q = (attn_input){0},                                     \
     s.problem.mask = (attn_mask){.align = ATTN_ALIGN_BOTTOM_RIGHT, .window = 1, .window_left = (left)},                           \
     s.tensors.weights = (attn_output){0})
    ACCEPTED(FREED(0));
    REJECTED(FREED(1), ATTN_ERR_ARGUMENT, "page 0 of batch entry 0 is -1 in page_table; paging.pages is 3");
    REJECTED((FREED(0), s.tensors.weights = attn_out(s.weights)), ATTN_ERR_ARGUMENT,
             "page 0 of batch entry 0 is -1 in page_table; paging.pages is 3"); /* of all keys */
    REJECTED((FREED(0), s.problem.mask.global_kv = 1), ATTN_ERR_ARGUMENT,
             "page 0 of batch entry 0 is -1 in page_table; paging.pages is 3");
    /* All keys are behind: also the page that they do not fill. */
    static const int64_t all_freed[6] = {-1, -1, -1, -1, -1, -1}, beyond[2] = {100, 100};
    ACCEPTED((FREED(0), s.problem.mask.align = ATTN_ALIGN_TOP_LEFT, s.tensors.page_table = attn_in(all_freed),
              s.tensors.offset_q = attn_in(beyond)));
    REJECTED((FREED(0), s.call.visit_rows = no_visit, s.tensors.call = &s.call, s.problem.outputs.rows_stage = ATTN_STAGE_CAPPED),
             ATTN_ERR_ARGUMENT, "page 0 of batch entry 0 is -1 in page_table; paging.pages is 3");
    ACCEPTED((FREED(0), s.call.visit_rows = no_visit, s.tensors.call = &s.call, s.problem.outputs.rows_stage = ATTN_STAGE_WEIGHTS));
}

/* Two entries of at most 5 keys, in pages of 2. */
static void test_page_lists(void **state)
{
    (void)state;
    static const int64_t rows[] = {0, 3, 5}, late[] = {1, 3, 5}, falling[] = {0, 3, 2}, far[] = {0, 3, 7},
                         lowest[] = {0, 3, INT64_MIN}, few[] = {0, 3, 3}, many[] = {0, 4, 5};
    static const int64_t pages[] = {0, 2, 1, 2, 2, -1}, beyond[] = {0, 3, 1, 2, 2, 0};
    static const int64_t one[] = {1, 1}, two[] = {1, 2}, none[] = {0, 1}, three[] = {1, 3};
#define PAGE_LISTS(starts, index, last)                                                                                            \
    (s.problem.paging.page_size = 2, s.problem.paging.pages = 3, s.problem.paging.page_entries = 6,                                \
     s.tensors.lengths_kv = (attn_input){0}, s.tensors.page_starts = attn_in(starts), s.tensors.page_index = attn_in(index),       \
     s.tensors.lengths_last_page = attn_in(last))
    REJECTED((s.problem.paging.page_size = 2, s.problem.paging.page_entries = 1, s.tensors.page_table = attn_in(pages)),
             ATTN_ERR_ARGUMENT, "paging.page_entries is 1 and page_index is not set");
    REJECTED((PAGE_LISTS(rows, pages, one), s.problem.paging.page_entries = -1), ATTN_ERR_ARGUMENT,
             "page_index needs paging.page_entries of at least 0; it is -1");
    REJECTED((PAGE_LISTS(rows, pages, one), s.problem.paging.page_entries = INT64_MAX), ATTN_ERR_SHAPE,
             "paging.page_entries (9223372036854775807) is more than 2^48, the most of any size");
    ACCEPTED(PAGE_LISTS(rows, pages, two));
    REJECTED(PAGE_LISTS(late, pages, two), ATTN_ERR_ARGUMENT, "page_starts[0] (1) is not 0");
    REJECTED(PAGE_LISTS(falling, pages, two), ATTN_ERR_ARGUMENT,
             "page_starts[2] (2) is not between its predecessor (3) and paging.page_entries (6)");
    REJECTED(PAGE_LISTS(lowest, pages, two), ATTN_ERR_ARGUMENT,
             "page_starts[2] (-9223372036854775808) is not between its predecessor (3) and paging.page_entries (6); the array was "
             "read as i64 (set its dtype if it is i32)");
    REJECTED(PAGE_LISTS(far, pages, two), ATTN_ERR_ARGUMENT,
             "page_starts[2] (7) is not between its predecessor (3) and paging.page_entries (6)");
    REJECTED(PAGE_LISTS(rows, pages, none), ATTN_ERR_ARGUMENT,
             "lengths_last_page[0] (0) is not between 1 and paging.page_size (2)");
    REJECTED(PAGE_LISTS(rows, pages, three), ATTN_ERR_ARGUMENT,
             "lengths_last_page[1] (3) is not between 1 and paging.page_size (2)");
    REJECTED(PAGE_LISTS(many, pages, two), ATTN_ERR_ARGUMENT,
             "lengths_last_page[0] (1) after 3 full pages is more than len_kv (5)");
    REJECTED(PAGE_LISTS(rows, beyond, two), ATTN_ERR_ARGUMENT, "page 1 of batch entry 0 is 3 in page_index; paging.pages is 3");
    REJECTED((PAGE_LISTS(few, pages, two), s.tensors.lengths_last_page = (attn_input){0}), ATTN_ERR_ARGUMENT,
             "batch entry 1 has 0 pages in page_starts; its keys need 3");
}

/* Blocks of two queries and two keys: lists for queries 0, 1 and for query 2, of the blocks 0, 1 and 2. */
static void test_block_lists(void **state)
{
    (void)state;
    static const int64_t rows[] = {0, 2, 3}, late[] = {1, 2, 3}, falling[] = {0, 2, 1}, far[] = {0, 2, 4};
    static const int64_t columns[] = {0, 2, 1}, again[] = {0, 0, 1}, beyond[] = {0, 3, 1}, below[] = {-1, 0, 1};
#define LISTS(r, c)                                                                                                                \
    (s.problem.mask.block_q = s.problem.mask.block_kv = 2, s.problem.mask.block_entries = 3, s.tensors.block_starts = attn_in(r),  \
     s.tensors.block_index = attn_in(c))
    ACCEPTED(LISTS(rows, columns));
    REJECTED(LISTS(late, columns), ATTN_ERR_ARGUMENT, "block_starts[0] (1) is not 0");
    REJECTED(LISTS(falling, columns), ATTN_ERR_ARGUMENT,
             "block_starts[2] (1) is not between its predecessor (2) and mask.block_entries (3)");
    REJECTED(LISTS(far, columns), ATTN_ERR_ARGUMENT,
             "block_starts[2] (4) is not between its predecessor (2) and mask.block_entries (3)");
    REJECTED(LISTS(rows, again), ATTN_ERR_ARGUMENT,
             "block_index[1] (0) is not above its predecessor in the list and below 3, the blocks of keys");
    REJECTED(LISTS(rows, beyond), ATTN_ERR_ARGUMENT,
             "block_index[1] (3) is not above its predecessor in the list and below 3, the blocks of keys");
    REJECTED(LISTS(rows, below), ATTN_ERR_ARGUMENT,
             "block_index[0] (-1) is not above its predecessor in the list and below 3, the blocks of keys");
    REJECTED(LISTS(NULL, columns), ATTN_ERR_ARGUMENT, "block_starts is NULL");
    REJECTED(LISTS(rows, NULL), ATTN_ERR_ARGUMENT, "block_index is NULL");
    REJECTED(s.tensors.ranges = attn_in(NULL), ATTN_ERR_ARGUMENT, "ranges is NULL");
    REJECTED(s.problem.mask.block_entries = 2, ATTN_ERR_ARGUMENT, "mask.block_entries is 2 and block_index is not set");
    REJECTED(s.problem.mask.block_q = 2, ATTN_ERR_ARGUMENT,
             "mask.block_q is 2 and mask.block_kv 0 but neither block_mask nor block_starts is set");
}

/* Lists of each of the two key heads of both entries, for queries 0, 1 and for query 2; or one for all queries. */
static void test_head_lists(void **state)
{
    (void)state;
    static const int64_t rows[] = {0, 1, 1, 2, 3, 3, 3, 3, 3}, far[] = {0, 1, 1, 2, 4}, columns[] = {0, 2, 1};
    ACCEPTED((LISTS(rows, columns), s.problem.mask.block_heads = 1));
    REJECTED((LISTS(rows, columns), s.problem.mask.block_heads = 2), ATTN_ERR_ARGUMENT, "mask.block_heads is 2; it must be 0 or 1");
    REJECTED(s.problem.mask.block_heads = 1, ATTN_ERR_ARGUMENT, "mask.block_heads is 1 and block_starts is not set");
    REJECTED((LISTS(far, columns), s.problem.mask.block_heads = 1), ATTN_ERR_ARGUMENT,
             "block_starts[4] (4) is not between its predecessor (2) and mask.block_entries (3)");
    REJECTED((LISTS(rows, columns), s.problem.mask.block_heads = 1, s.call.origin = &(attn_origin){0}, s.tensors.call = &s.call),
             ATTN_ERR_UNSUPPORTED,
             "mask.block_heads is 1 and the call has an origin; lists of each key head are those of a whole problem");
    REJECTED(
        (LISTS(rows, columns), s.problem.mask.block_heads = 1, s.problem.mask.block_q = 3, s.problem.dropout.probability = 0.5),
        ATTN_ERR_UNSUPPORTED, "mask.block_heads is 1, so that each key head goes over a list of its own, and dropout is requested");
    REJECTED((LISTS(rows, columns), s.problem.mask.block_heads = 1,
              s.problem.shape.batch = s.problem.shape.heads_kv = INT64_C(1) << 40,
              s.problem.shape.heads_q = s.problem.shape.heads_kv),
             ATTN_ERR_SHAPE, "block_starts has more lists than 64 bits can count");
    REJECTED((small_backward(&s), LISTS(rows, columns), s.problem.mask.block_heads = 1), ATTN_ERR_UNSUPPORTED,
             "mask.block_heads is 1 and op is not ATTN_FORWARD; lists of each key head have no gradients");
}

static void test_tree(void **state)
{
    (void)state;
    static const uint64_t words[6] = {~UINT64_C(0), 1, 2, 3, 4, 5};
    ACCEPTED((s.tensors.tree = attn_in(words), s.problem.mask.tree_keys = 64));
    REJECTED(s.tensors.tree = attn_in(words), ATTN_ERR_ARGUMENT, "tree is set and mask.tree_keys is 0; set both or neither");
    REJECTED(s.problem.mask.tree_keys = 3, ATTN_ERR_ARGUMENT, "tree is not set and mask.tree_keys is 3; set both or neither");
    REJECTED((s.tensors.tree = attn_in(words), s.problem.mask.tree_keys = -1), ATTN_ERR_ARGUMENT,
             "mask.tree_keys is -1; it must be at least 1, or 0 for none");
    REJECTED((s.tensors.tree = attn_in(words), s.problem.mask.tree_keys = (INT64_C(1) << 48) + 1), ATTN_ERR_SHAPE,
             "mask.tree_keys (281474976710657) is more than 2^48, the most of any size");
    REJECTED((s.tensors.tree = (attn_input){words, ATTN_BOOL, {0, 0, 0, 0}}, s.problem.mask.tree_keys = 3), ATTN_ERR_UNSUPPORTED,
             "tree.dtype is bool; it must be u64 or i64");
    REJECTED((s.tensors.tree = attn_in(words), s.problem.mask.tree_keys = 3, s.call.origin = &(attn_origin){0},
              s.tensors.call = &s.call),
             ATTN_ERR_UNSUPPORTED, "tree is set and the call has an origin, whose last keys are those of a part");
    REJECTED((small_backward(&s), s.tensors.tree = attn_in(words), s.problem.mask.tree_keys = 3), ATTN_ERR_ARGUMENT,
             "tree is set; ATTN_BACKWARD does not use it");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pointers),   cmocka_unit_test(test_as_planned),  cmocka_unit_test(test_origin),
        cmocka_unit_test(test_lengths),    cmocka_unit_test(test_packed),      cmocka_unit_test(test_paged),
        cmocka_unit_test(test_page_lists), cmocka_unit_test(test_block_lists), cmocka_unit_test(test_head_lists),
        cmocka_unit_test(test_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
