/* SPDX-License-Identifier: MIT
 * test_allocator.c - attn_cache_attend with the caller's allocator: it frees every block, whichever allocation fails. */
#include "test.h"

#include "attn/cache.h"

enum { B = 2, HEADS = 2, CAPACITY = 4, DIM = 8 };

/* The plan, two arrays of lengths, the rotated queries, and the workspace. */
enum { BLOCKS = 5 };

typedef struct ledger {
    int taken, out, fails; /* allocation number `fails` fails; -1: none does */
} ledger;

static void *allocate(void *context, size_t bytes)
{
    ledger *l = context;
    if (l->taken++ == l->fails) return NULL;
    l->out++;
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void release(void *context, void *memory)
{
    assert_non_null(memory);
    ((ledger *)context)->out--;
    free(memory);
}

static float k[B * HEADS * CAPACITY * DIM], v[B * HEADS * CAPACITY * DIM], x[B * HEADS * DIM], o[B * HEADS * DIM];
static int64_t lengths[B];

static attn_status attend(const attn_options *options, attn_error *error)
{
    const attn_rope rope = {.struct_size = sizeof rope};
    const attn_cache cache = {.struct_size = sizeof cache,
                              .batch = B,
                              .heads_kv = HEADS,
                              .capacity = CAPACITY,
                              .dim_qk = DIM,
                              .dim_v = DIM,
                              .rope = &rope,
                              .k = attn_out(k),
                              .v = attn_out(v),
                              .lengths = attn_out(lengths)};
    const attn_cache_tokens tokens = {.struct_size = sizeof tokens, .len = 1, .k = attn_in(x), .v = attn_in(x)};
    const attn_problem problem = {.struct_size = sizeof problem, .shape.heads_q = HEADS};
    const attn_tensors tensors = {.struct_size = sizeof tensors, .q = attn_in(x), .o = attn_out(o)};
    return attn_cache_attend(&cache, &tokens, &problem, &tensors, options, error);
}

static void test_balance(void **state)
{
    ledger l = {0, 0, -1};
    const attn_options options = {.struct_size = sizeof options, .allocator = {allocate, release, &l}};
    (void)state;
    assert_int_equal(attend(&options, NULL), ATTN_OK);
    assert_int_equal(l.taken, BLOCKS);
    assert_int_equal(l.out, 0);
    assert_int_equal(lengths[0], 1);
}

static void test_each_fails(void **state)
{
    static const char *const messages[] = {"cache: cannot allocate the lengths of 2 entries",
                                           "cache: cannot allocate 128 bytes to rotate queries"};
    int seen[2] = {0};
    (void)state;
    for (int block = 0; block < BLOCKS; block++) {
        ledger l = {0, 0, block};
        const attn_options options = {.struct_size = sizeof options, .allocator = {allocate, release, &l}};
        attn_error error;
        lengths[0] = lengths[1] = 2;
        assert_int_equal(attend(&options, &error), ATTN_ERR_MEMORY);
        assert_int_equal(error.status, ATTN_ERR_MEMORY);
        for (size_t n = 0; n < sizeof messages / sizeof *messages; n++) seen[n] |= strcmp(error.message, messages[n]) == 0;
        assert_int_equal(l.out, 0);
        assert_true(lengths[0] == 2 && lengths[1] == 2); /* nothing was appended */
    }
    assert_true(seen[0] && seen[1]);
}

/* Half an allocator is rejected and never called. */
static void test_half(void **state)
{
    ledger l = {0, 0, -1};
    attn_options options = {.struct_size = sizeof options, .allocator = {allocate, NULL, &l}};
    (void)state;
    lengths[0] = lengths[1] = 2;
    assert_int_equal(attend(&options, NULL), ATTN_ERR_ARGUMENT);
    assert_int_equal(l.taken, 0);
    options.struct_size = 0;
    assert_int_equal(attend(&options, NULL), ATTN_ERR_ARGUMENT);
    assert_int_equal(lengths[0], 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_balance), cmocka_unit_test(test_each_fails),
                                       cmocka_unit_test(test_half)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
