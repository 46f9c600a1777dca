/* SPDX-License-Identifier: MIT
 *
 * test_validate_args.c - the rules of arguments: pointers, lengths, packed sequences, pages and lists of blocks. */
#include "refused.h"

static void test_pointers(void **state)
{
    (void)state;
    REFUSED(s.args.q = NULL, ATTN_ERR_ARGUMENT, "args.q is NULL");
    REFUSED(s.args.k = NULL, ATTN_ERR_ARGUMENT, "args.k is NULL");
    REFUSED(s.args.v = NULL, ATTN_ERR_ARGUMENT, "args.v is NULL");
    REFUSED(s.args.o = NULL, ATTN_ERR_ARGUMENT, "args.o is NULL");
    REFUSED(s.args.mask = NULL, ATTN_ERR_ARGUMENT, "args.mask is NULL");
    REFUSED(s.args.bias = NULL, ATTN_ERR_ARGUMENT, "args.bias is NULL");
    REFUSED(s.args.lse = NULL, ATTN_ERR_ARGUMENT, "args.lse is NULL");
    REFUSED(s.args.weights = NULL, ATTN_ERR_ARGUMENT, "args.weights is NULL");
    REFUSED(s.args.lengths_q = NULL, ATTN_ERR_ARGUMENT, "args.lengths_q is NULL");
    REFUSED(s.args.lengths_kv = NULL, ATTN_ERR_ARGUMENT, "args.lengths_kv is NULL");
    REFUSED(s.args.offset = NULL, ATTN_ERR_ARGUMENT, "args.offset is NULL");
    REFUSED(s.args.k = (char *)s.k + 2, ATTN_ERR_ARGUMENT, "args.k is not aligned to its elements of 4 bytes");
    REFUSED(s.args.offset = (char *)s.offset + 4, ATTN_ERR_ARGUMENT, "args.offset is not aligned to its elements of 8 bytes");
    REFUSED(s.args.o = s.v, ATTN_ERR_ARGUMENT, "args.o and args.v are the same pointer; outputs overlap nothing");
    REFUSED(s.args.lse = s.weights, ATTN_ERR_ARGUMENT, "args.lse and args.weights are the same pointer; outputs overlap nothing");
    REFUSED(s.args.weights = s.bias, ATTN_ERR_ARGUMENT, "args.weights and args.bias are the same pointer; outputs overlap nothing");
    ACCEPTED(s.args.k = s.args.q); /* inputs may be one another */
}

static void test_lengths(void **state)
{
    (void)state;
    REFUSED(s.lengths_q[0] = 4, ATTN_ERR_ARGUMENT, "lengths_q[0] (4) is not within 0..3");
    REFUSED(s.lengths_q[1] = -1, ATTN_ERR_ARGUMENT, "lengths_q[1] (-1) is not within 0..3");
    REFUSED(s.lengths_kv[1] = 6, ATTN_ERR_ARGUMENT, "lengths_kv[1] (6) is not within 0..5");
    REFUSED((s.problem.mask.index_dtype = ATTN_I32, s.args.lengths_kv = memcpy(s.lengths_kv, (int32_t[]){5, -7}, 8),
             s.args.lengths_q = memcpy(s.lengths_q, (int32_t[]){3, 0}, 8)),
            ATTN_ERR_ARGUMENT, "lengths_kv[1] (-7) is not within 0..5");
    ACCEPTED((s.lengths_q[0] = 0, s.lengths_kv[1] = 0, s.offset[0] = INT64_MIN, s.offset[1] = INT64_MAX));
}

static void test_packed(void **state)
{
    static const int64_t late[] = {1, 2, 3}, falling[] = {0, 2, 1}, far[] = {0, 1, 99}, sound[] = {0, 1, 2}, none[] = {0, 0, 0},
                         full[] = {0, 3, 6};
    (void)state;
#define PACKED(q, kv)                                                                                                              \
    (s.problem.mask.packed = 1, s.problem.mask.lengths_q = s.problem.mask.lengths_kv = 0, s.args.cu_seqlens_q = (q),               \
     s.args.cu_seqlens_kv = (kv))
    REFUSED(PACKED(late, sound), ATTN_ERR_ARGUMENT, "cu_seqlens_q[0] (1) is not 0");
    REFUSED(PACKED(sound, falling), ATTN_ERR_ARGUMENT, "cu_seqlens_kv[2] (1) is not within 0..5 behind its predecessor (2)");
    REFUSED(PACKED(far, sound), ATTN_ERR_ARGUMENT, "cu_seqlens_q[2] (99) is not within 0..3 behind its predecessor (1)");
    REFUSED(PACKED(NULL, sound), ATTN_ERR_ARGUMENT, "args.cu_seqlens_q is NULL");
    REFUSED((PACKED(sound, sound), s.problem.shape.heads_q = INT64_C(1) << 32, s.problem.shape.heads_kv = 1,
             s.problem.shape.dim_qk = INT64_C(1) << 31, s.problem.shape.len_q = 0),
            ATTN_ERR_SHAPE, "q has rows of more elements than 64 bits count");
    ACCEPTED(PACKED(sound, sound));
    /* Whether [head, token, channel] overlaps depends on the tokens that there are, 2, and not on len_q, 3. */
    ACCEPTED((PACKED(sound, sound), sets(s.problem.o.stride, 0, 2 * SMALL_DV, SMALL_DV, 1)));
    REFUSED((PACKED(sound, sound), sets(s.problem.o.stride, 0, 2 * SMALL_DV - 1, SMALL_DV, 1)), ATTN_ERR_STRIDE,
            "o overlaps itself: stride[1] is 11 and the axes with smaller strides span 12 elements");
    REFUSED((PACKED(full, sound), sets(s.problem.q.stride, 0, 1, INT64_MAX / 12, 1)), ATTN_ERR_SHAPE,
            "q.stride[2] (768614336404564650) times its size (6) overflows 64-bit addresses");
    ACCEPTED((PACKED(none, none), sets(s.problem.o.stride, 0, 0, SMALL_DV, 1), s.args.o = NULL));
    ACCEPTED((PACKED(none, none), s.problem.shape.batch = 0, s.args.o = s.args.lse = NULL));
}

static void test_paged(void **state)
{
    static const int64_t table[4] = {0, 1, 2, 7};
    (void)state;
#define PAGED(size, count)                                                                                                         \
    (s.problem.paging.paged = 1, s.problem.paging.page_size = (size), s.problem.paging.pages = (count), s.args.page_table = table)
    REFUSED(s.problem.paging.paged = 2, ATTN_ERR_ARGUMENT, "paging.paged is 2; it is 0 or 1");
    REFUSED(s.problem.paging.reserved[2] = 1, ATTN_ERR_ARGUMENT, "paging.reserved[2] is 1; it must be 0");
    REFUSED((backward(&s), PAGED(3, 3)), ATTN_ERR_UNSUPPORTED,
            "paging.paged is set and op is not ATTN_FORWARD; gradients of pages are not there");
    REFUSED((PAGED(3, 3), s.problem.mask.packed = 1, s.problem.mask.lengths_q = s.problem.mask.lengths_kv = 0), ATTN_ERR_ARGUMENT,
            "paging.paged and mask.packed are both set; keys are either in pages or packed");
    REFUSED(PAGED(0, 3), ATTN_ERR_ARGUMENT, "paging.page_size is 0; it is at least 1");
    REFUSED(PAGED(3, -1), ATTN_ERR_ARGUMENT, "paging.pages is -1; it is at least 0");
    REFUSED((PAGED(3, 3), s.problem.paging.table_stride = 1), ATTN_ERR_ARGUMENT,
            "paging.table_stride is 1; len_kv (5) in pages of 3 needs 2");
    REFUSED((PAGED(3, 2), s.problem.mask.lengths_kv = 0), ATTN_ERR_ARGUMENT,
            "page 0 of batch entry 1 is 2 in page_table; there are 2 pages");
    REFUSED((PAGED(3, 3), s.args.page_table = NULL), ATTN_ERR_ARGUMENT, "args.page_table is NULL");
}

/* Blocks of two queries and two keys: lists for queries 0, 1 and for query 2, of the blocks 0, 1 and 2. */
static void test_block_lists(void **state)
{
    (void)state;
    static const int64_t rows[] = {0, 2, 3}, late[] = {1, 2, 3}, falling[] = {0, 2, 1}, far[] = {0, 2, 4};
    static const int64_t columns[] = {0, 2, 1}, again[] = {0, 0, 1}, beyond[] = {0, 3, 1}, below[] = {-1, 0, 1};
#define LISTS(r, c)                                                                                                                \
    (s.problem.mask.block_lists = 1, s.problem.mask.block_q = s.problem.mask.block_kv = 2, s.problem.mask.block_entries = 3,       \
     s.args.block_rows = (r), s.args.block_columns = (c))
    ACCEPTED(LISTS(rows, columns));
    REFUSED(LISTS(late, columns), ATTN_ERR_ARGUMENT, "block_rows[0] (1) is not 0");
    REFUSED(LISTS(falling, columns), ATTN_ERR_ARGUMENT,
            "block_rows[2] (1) is not within its predecessor (2) and block_entries (3)");
    REFUSED(LISTS(far, columns), ATTN_ERR_ARGUMENT, "block_rows[2] (4) is not within its predecessor (2) and block_entries (3)");
    REFUSED(LISTS(rows, again), ATTN_ERR_ARGUMENT,
            "block_columns[1] (0) is not above its predecessor in the list and below 3, the blocks of keys");
    REFUSED(LISTS(rows, beyond), ATTN_ERR_ARGUMENT,
            "block_columns[1] (3) is not above its predecessor in the list and below 3, the blocks of keys");
    REFUSED(LISTS(rows, below), ATTN_ERR_ARGUMENT,
            "block_columns[0] (-1) is not above its predecessor in the list and below 3, the blocks of keys");
    REFUSED(LISTS(NULL, columns), ATTN_ERR_ARGUMENT, "args.block_rows is NULL");
    REFUSED(LISTS(rows, NULL), ATTN_ERR_ARGUMENT, "args.block_columns is NULL");
    REFUSED(s.problem.mask.ranges = 1, ATTN_ERR_ARGUMENT, "args.ranges is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pointers), cmocka_unit_test(test_lengths),     cmocka_unit_test(test_packed),
        cmocka_unit_test(test_paged),    cmocka_unit_test(test_block_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
