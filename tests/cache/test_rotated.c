/* SPDX-License-Identifier: MIT
 * test_rotated.c - queries that attn_cache_attend rotates, in a copy or while they are packed, have the bits of those that
 * attn_rope_apply has rotated: for every type, rope, length and instruction set. */
#include "test.h"

#include <math.h>

#include "attn/cache.h"
#include "draw.h"
#include "testing/random/share.h"

enum { B = 3, HEADS = 4, GROUPS = 2, MOST = 70, BEFORE = 40, CAPACITY = MOST + BEFORE, WIDEST = 1040 };

/* Of any float type. */
static uint64_t q[B * HEADS * MOST * WIDEST], rotated[B * HEADS * MOST * WIDEST], k[B * GROUPS * CAPACITY * WIDEST],
    v[B * GROUPS * CAPACITY * WIDEST], new_rows[B * GROUPS * MOST * WIDEST], o[2][B * HEADS * MOST * WIDEST];
static double lse[2][B * HEADS * MOST];

typedef struct sample {
    attn_dtype q, stored;
    int64_t dim, len, more[B], lengths[B];
    attn_rope rope;
    int cosine; /* another score */
    attn_options options;
} sample;

static void fill(void *x, attn_dtype dtype, int64_t n)
{
    static double wide[B * HEADS * CAPACITY * WIDEST];
    for (int64_t i = 0; i < n; i++) wide[i] = (double)draw_real();
    assert_int_equal(attn_convert(n, wide, ATTN_F64, x, dtype, NULL), ATTN_OK);
}

static attn_cache cache_of(sample *s, int64_t *lengths, const attn_rope *rope)
{
    return (attn_cache){.struct_size = sizeof(attn_cache),
                        .batch = B,
                        .heads_kv = GROUPS,
                        .capacity = CAPACITY,
                        .dim_qk = s->dim,
                        .dim_v = s->dim,
                        .k = {k, s->stored, {0, 0, 0, 0}},
                        .v = {v, s->stored, {0, 0, 0, 0}},
                        .lengths = {lengths, ATTN_I64, {0, 0, 0, 0}},
                        .rope = rope};
}

/* By the two calls; then by rotated queries over the cache that these have left. */
static void compare(sample *s)
{
    const attn_dtype plain = s->q == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    const size_t bytes = (size_t)(B * HEADS * s->len * s->dim) * attn_dtype_size(s->q);
    int64_t lengths[B], positions[B][MOST], longest = 0;
    attn_error error;
    fill(q, s->q, B * HEADS * s->len * s->dim);
    fill(k, s->stored, B * GROUPS * CAPACITY * s->dim);
    fill(v, s->stored, B * GROUPS * CAPACITY * s->dim);
    fill(new_rows, plain, B * GROUPS * s->len * s->dim);
    memcpy(lengths, s->lengths, sizeof lengths);
    const attn_cache cache = cache_of(s, lengths, &s->rope);
    const attn_input rows = {new_rows, plain, {0, 0, 0, 0}};
    const attn_cache_tokens tokens = {
        .struct_size = sizeof tokens, .len = s->len, .k = rows, .v = rows, .lengths = {s->more, ATTN_I64, {0, 0, 0, 0}}};
    attn_problem p = {
        .struct_size = sizeof p, .shape.heads_q = HEADS, .score.kind = s->cosine ? ATTN_SCORE_COSINE : ATTN_SCORE_DOT};
    attn_tensors t = {.struct_size = sizeof t,
                      .q = {q, s->q, {0, 0, 0, 0}},
                      .o = {o[0], s->q, {0, 0, 0, 0}},
                      .lse = {lse[0], plain, {0, 0, 0, 0}}};
    memset(o, 0xff, sizeof o);
    memset(lse, 0xff, sizeof lse);
    if (attn_cache_attend(&cache, &tokens, &p, &t, &s->options, &error) != ATTN_OK) fail_msg("%s", error.message);

    for (int b = 0; b < B; b++) {
        if (lengths[b] > longest) longest = lengths[b];
        for (int i = 0; i < MOST; i++) positions[b][i] = s->lengths[b] + i;
    }
    const attn_input from = {q, s->q, {0, 0, 0, 0}}, at = {positions, ATTN_I64, {MOST, 0, 1, 0}};
    const attn_output to = {rotated, s->q, {0, 0, 0, 0}};
    const int64_t shape[4] = {B, HEADS, s->len, s->dim}, stride = CAPACITY * s->dim;
    if (attn_rope_apply(&s->rope, shape, &from, &at, &to, &error) != ATTN_OK) fail_msg("%s", error.message);
    p.shape = (attn_shape){B, HEADS, GROUPS, s->len, longest, s->dim, s->dim};
    p.mask.causal = 1, p.mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
    t.q.data = rotated;
    t.o.data = o[1];
    t.lse.data = lse[1];
    t.k = (attn_input){k, s->stored, {GROUPS * stride, stride, s->dim, 1}};
    t.v = (attn_input){v, s->stored, {GROUPS * stride, stride, s->dim, 1}};
    t.lengths_q = (attn_input){s->more, ATTN_I64, {0, 0, 0, 0}};
    t.lengths_kv = (attn_input){lengths, ATTN_I64, {0, 0, 0, 0}};
    attn_plan *plan;
    if (attn_plan_create(&plan, &p, &t, &s->options, &error) != ATTN_OK) fail_msg("%s", error.message);
    const size_t size = attn_plan_workspace_size(plan);
    void *workspace = malloc(size + 1);
    if (attn_execute(plan, &t, workspace, size, &error) != ATTN_OK) fail_msg("%s", error.message);
    free(workspace);
    attn_plan_destroy(plan);
    assert_memory_equal(o[0], o[1], bytes);
    assert_memory_equal(lse[0], lse[1], sizeof lse[0]);
}

static void test_bits(void **state)
{
    static const attn_dtype types[][2] = {{ATTN_F32, ATTN_F32},   {ATTN_F32, ATTN_BF16}, {ATTN_F16, ATTN_F16},
                                          {ATTN_BF16, ATTN_BF16}, {ATTN_BF16, ATTN_F32}, {ATTN_F64, ATTN_F64}};
    static const int64_t lens[] = {15, 16, 33, MOST}, dims[] = {8, 24, 128, WIDEST};
    int number = 0;
    (void)state;
    for (size_t y = 0; y < sizeof types / sizeof *types; y++)
        for (size_t n = 0; n < sizeof lens / sizeof *lens; n++)
            for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
                for (int way = 0; way < (dims[d] < WIDEST ? 8 : lens[n] == 16); way++) {
                    if (!share_has(number++)) continue;
                    sample s = {.q = types[y][0], .stored = types[y][1], .dim = dims[d], .len = lens[n], .cosine = way == 7};
                    s.rope = (attn_rope){.struct_size = sizeof s.rope,
                                         .pairs = way & 1 ? ATTN_ROPE_PAIRS_HALVES : ATTN_ROPE_PAIRS_INTERLEAVED};
                    if (way & 2) s.rope.dim_rotary = dims[d] / 2;
                    s.options =
                        (attn_options){.struct_size = sizeof s.options, .threads = 1 + 2 * (way & 1), .invariant = way >> 2};
                    for (int b = 0; b < B; b++) {
                        s.more[b] = b == 0 ? lens[n] : draw((uint32_t)lens[n] + 1);
                        s.lengths[b] = way == 5 ? 0 : draw(BEFORE + 1);
                    }
                    compare(&s);
                }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
