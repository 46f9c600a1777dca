/* SPDX-License-Identifier: MIT
 *
 * test_slots.c - packed tokens that go to slots: each row has the bits of the same token appended by lengths, nothing else is
 * written, for any threads; calls that are rejected, with the exact message.
 */
#include "test.h"

#include "attn/cache.h"
#include "draw.h"

enum { HEADS = 2, TOKENS = 13, DIM = 32, DIM_V = 32, EACH = 4, ENTRIES = 9, SLOTS = EACH * ENTRIES };
static int64_t dim = 10, dim_v = 7; /* blocks: DIM and DIM_V */

/* Keys, values and scales, for elements of up to 8 bytes. */
typedef struct stored {
    double k[SLOTS * HEADS * DIM], v[SLOTS * HEADS * DIM_V];
    float k_scale[SLOTS * HEADS], v_scale[SLOTS * HEADS];
} stored;

static stored by_length, by_slot, before;
static double new_k[TOKENS * HEADS * DIM], new_v[TOKENS * HEADS * DIM_V];
static int64_t slots[TOKENS], positions[TOKENS];
static int32_t slots_32[TOKENS], positions_32[TOKENS];

static attn_cache cache_over(stored *s, attn_dtype type, const attn_rope *rope, int64_t entries, int64_t each)
{
    attn_cache c = {.struct_size = sizeof c,
                    .batch = entries,
                    .heads_kv = HEADS,
                    .capacity = each,
                    .dim_qk = dim,
                    .dim_v = dim_v,
                    .rope = rope,
                    .k = {s->k, type, {0, 0, 0, 0}},
                    .v = {s->v, type, {0, 0, 0, 0}}};
    if (type == ATTN_I8 || type == ATTN_F8_E4M3) c.k_scale = attn_out(s->k_scale), c.v_scale = attn_out(s->v_scale);
    return c;
}

/* Packed tokens, in the layout [token, head, channel]. */
static attn_cache_tokens packed(attn_dtype type)
{
    return (attn_cache_tokens){.struct_size = sizeof(attn_cache_tokens),
                               .len = TOKENS,
                               .k = {new_k, type, {0, dim, HEADS * dim, 1}},
                               .v = {new_v, type, {0, dim_v, HEADS * dim_v, 1}}};
}

/* A permutation of some slots, two tokens skipped. */
static void draw_tokens(attn_dtype type)
{
    float x[TOKENS * HEADS * DIM];
    for (int i = 0; i < TOKENS * HEADS * dim; i++) x[i] = 2 * draw_real();
    (void)attn_convert(TOKENS * HEADS * dim, x, ATTN_F32, new_k, type, NULL);
    for (int i = 0; i < TOKENS * HEADS * dim_v; i++) x[i] = 2 * draw_real();
    (void)attn_convert(TOKENS * HEADS * dim_v, x, ATTN_F32, new_v, type, NULL);
    const int64_t first = draw(SLOTS), step = 1 + 2 * draw(2) + 4 * (int64_t)draw(2); /* 1, 3, 5 or 7 */
    for (int t = 0; t < TOKENS; t++) {
        slots[t] = (first + t * (step == 3 ? 5 : step)) % SLOTS; /* coprime to SLOTS */
        positions[t] = t;
        if (t == 4 || t == 11) slots[t] = -1;
        slots_32[t] = (int32_t)slots[t], positions_32[t] = t;
    }
}

static int same_rows(const void *a, int64_t row_a, const void *b, int64_t row_b, int64_t bytes)
{
    return memcmp((const char *)a + row_a * bytes, (const char *)b + row_b * bytes, (size_t)bytes) == 0;
}

/* Row (entry, head, place) of each tensor is that of `token` by length, or of before (-1). */
static void check_row(int64_t slot, int64_t token, attn_dtype type)
{
    const int64_t size = (int64_t)attn_dtype_size(type), block = type >= ATTN_Q8_0 ? ATTN_BLOCK : 1;
    for (int64_t h = 0; h < HEADS; h++) {
        const int64_t at = (slot / EACH * HEADS + h) * EACH + slot % EACH, from = token < 0 ? at : h * TOKENS + token;
        const stored *s = token < 0 ? &before : &by_length;
        assert_true(same_rows(by_slot.k, at, s->k, from, dim / block * size));
        assert_true(same_rows(by_slot.v, at, s->v, from, dim_v / block * size));
        assert_true(same_rows(by_slot.k_scale, at, s->k_scale, from, sizeof(float)));
        assert_true(same_rows(by_slot.v_scale, at, s->v_scale, from, sizeof(float)));
    }
}

static void check(attn_dtype type, attn_dtype tokens_type, const attn_rope *rope, int paged, int narrow)
{
    attn_error error;
    int64_t length = 0;
    attn_cache c = cache_over(&by_length, type, rope, 1, TOKENS);
    attn_cache_tokens t = packed(tokens_type);
    draw_tokens(tokens_type);
    memset(&by_length, 0x33, sizeof by_length);
    memset(&by_slot, 0x33, sizeof by_slot);
    before = by_slot;
    c.lengths = attn_out(&length);
    if (attn_cache_append(&c, &t, &error) != ATTN_OK) fail_msg("%s", error.message);
    c = cache_over(&by_slot, type, rope, ENTRIES, EACH);
    if (paged) c.batch = c.capacity = 0, c.pages = ENTRIES, c.page_size = EACH;
    t.slots = narrow ? attn_in(slots_32) : attn_in(slots);
    if (narrow) t.slots.dtype = ATTN_I32;
    if (rope) t.positions = narrow ? (attn_input){positions_32, ATTN_I32, {0, 0, 0, 0}} : attn_in(positions);
    if (attn_cache_append(&c, &t, &error) != ATTN_OK) fail_msg("%s", error.message);
    for (int64_t slot = 0; slot < SLOTS; slot++) {
        int64_t token = -1;
        for (int i = 0; i < TOKENS; i++)
            if (slots[i] == slot) token = i;
        check_row(slot, token, type);
    }
}

static void test_rows(void **state)
{
    static const attn_dtype types[] = {ATTN_F32, ATTN_F16, ATTN_BF16, ATTN_I8, ATTN_F64, ATTN_F8_E4M3, ATTN_Q8_0, ATTN_Q4_1};
    static const attn_rope interleaved = {.struct_size = sizeof interleaved};
    static const attn_rope partial = {.struct_size = sizeof partial, .pairs = ATTN_ROPE_PAIRS_HALVES, .dim_rotary = 6, .base = 500};
    const attn_rope *const ropes[] = {NULL, &interleaved, &partial};
    (void)state;
    for (int n = 0; n < 8; n++) {
        dim = types[n] >= ATTN_Q8_0 ? DIM : 10, dim_v = types[n] >= ATTN_Q8_0 ? DIM_V : 7;
        for (int r = 0; r < 3; r++)
            for (int k = 0; k < 4; k++)
                check(types[n], types[n] == ATTN_F64 ? ATTN_F64 : k % 2 ? ATTN_BF16 : ATTN_F32, ropes[r], k / 2, (k + r) % 2);
    }
    dim = 10, dim_v = 7;
}

/* Enough tokens for several threads: the same bits, also in attn_cache_attend's queries. */
static void test_threads(void **state)
{
    enum { MANY = 300, WIDE = 64, COUNT = MANY * HEADS * WIDE };
    static float k[COUNT], x[COUNT], first[COUNT], o[3][COUNT];
    static int64_t all[MANY];
    const attn_rope rope = {.struct_size = sizeof rope, .pairs = ATTN_ROPE_PAIRS_HALVES};
    (void)state;
    for (int i = 0; i < COUNT; i++) x[i] = draw_real();
    for (int t = 0; t < MANY; t++) all[t] = t * 7 % MANY;
    for (int threads = 1; threads <= 3; threads++) {
        const attn_options options = {.struct_size = sizeof options, .threads = threads};
        int64_t length = 0;
        attn_error error;
        attn_cache c = {.struct_size = sizeof c,
                        .batch = 1,
                        .heads_kv = HEADS,
                        .capacity = MANY,
                        .dim_qk = WIDE,
                        .dim_v = WIDE,
                        .rope = &rope,
                        .k = attn_out(k),
                        .v = attn_out(o[0]),
                        .lengths = attn_out(&length)};
        attn_cache_tokens t = {.struct_size = sizeof t, .len = MANY, .k = attn_in(x), .v = attn_in(x)};
        const attn_problem p = {.struct_size = sizeof p, .shape.heads_q = HEADS};
        const attn_tensors a = {.struct_size = sizeof a, .q = attn_in(x), .o = attn_out(o[threads == 1 ? 1 : 2])};
        memset(k, 0, sizeof k);
        if (attn_cache_attend(&c, &t, &p, &a, &options, &error) != ATTN_OK) fail_msg("%s", error.message);
        assert_memory_equal(o[1], o[threads == 1 ? 1 : 2], sizeof o[1]);
        memset(k, 0, sizeof k);
        t.slots = t.positions = attn_in(all), t.options = &options;
        if (attn_cache_append(&c, &t, &error) != ATTN_OK) fail_msg("%s", error.message);
        if (threads == 1) memcpy(first, k, sizeof k);
        assert_memory_equal(first, k, sizeof k);
    }
}

static void test_rejected(void **state)
{
    static const attn_rope rope = {.struct_size = sizeof rope};
    static const float angles[8 * DIM / 2];
    const attn_rope tables = {
        .struct_size = sizeof tables, .cos_table = attn_in(angles), .sin_table = attn_in(angles), .table_rows = 8};
    const attn_options bad = {.struct_size = sizeof bad, .threads = -1};
    int64_t lengths[ENTRIES] = {0};
    attn_error error;
    (void)state;
#define REJECTED(change, text)                                                                                                     \
    do {                                                                                                                           \
        draw_tokens(ATTN_F32);                                                                                                     \
        for (int n = 0; n < TOKENS; n++) slots[n] = 20 - n, positions[n] = n % 8;                                                  \
        attn_cache c = cache_over(&by_slot, ATTN_F32, &rope, ENTRIES, EACH);                                                       \
        attn_cache_tokens t = packed(ATTN_F32);                                                                                    \
        t.slots = attn_in(slots), t.positions = attn_in(positions);                                                                \
        change;                                                                                                                    \
        before = by_slot;                                                                                                          \
        assert_int_not_equal(attn_cache_append(&c, &t, &error), ATTN_OK);                                                          \
        assert_string_equal(error.message, text);                                                                                  \
        assert_memory_equal(&by_slot, &before, sizeof before);                                                                     \
    } while (0)
    REJECTED(slots[5] = SLOTS, "cache: tokens.slots[5] is 36; it must be -1, which skips the token, or below 36");
    REJECTED((slots[5] = 32, c.batch = 8), "cache: tokens.slots[5] is 32; it must be -1, which skips the token, or below 32");
    REJECTED(slots[0] = -2, "cache: tokens.slots[0] is -2; it must be -1, which skips the token, or below 36");
    REJECTED(slots[7] = 18, "cache: tokens.slots[2] and [7] are both 18; a slot takes one token");
    REJECTED((slots[12] = 0, slots[0] = 0), "cache: tokens.slots[0] and [12] are both 0; a slot takes one token");
    /* Slots far apart, of a cache that the tokens would not be written to. */
    REJECTED((c.pages = INT64_C(1) << 40, c.page_size = 1, c.heads_kv = 0, slots[1] = INT64_C(1) << 39, slots[9] = slots[1]),
             "cache: tokens.slots[1] and [9] are both 549755813888; a slot takes one token");
    REJECTED((c.rope = NULL, t.positions = (attn_input){0}, slots[1] = slots[0]),
             "cache: tokens.slots[0] and [1] are both 20; a slot takes one token");
    /* More slots than are looked at together. */
    REJECTED((c.pages = 1 << 18, c.page_size = 1, c.heads_kv = 0, slots[3] = 200000, slots[4] = 1 << 16, slots[8] = 200000),
             "cache: tokens.slots[3] and [8] are both 200000; a slot takes one token");
    /* The last slots that a number can tell. */
    REJECTED((c.pages = 1 << 17, c.page_size = INT64_C(1) << 46, c.heads_kv = 0, slots[0] = INT64_MAX - 1,
              slots[1] = slots[2] = INT64_MAX - 5, t.len = 3),
             "cache: tokens.slots[1] and [2] are both 9223372036854775802; a slot takes one token");
    REJECTED(c.pages = ENTRIES, "cache: pages is 9 and page_size is 0");
    REJECTED((c.batch = 0, c.pages = ENTRIES, c.page_size = EACH, c.k.dtype = ATTN_I8), "cache: k is i8 and k_scale is NULL");
    REJECTED((c.batch = 0, c.pages = ENTRIES, c.page_size = EACH, c.v.dtype = ATTN_I8), "cache: v is i8 and v_scale is NULL");
    REJECTED(t.positions = (attn_input){0},
             "cache: tokens.positions is missing; with slots, the rope needs the position of each token");
    REJECTED(c.rope = NULL, "cache: tokens.positions is set and the cache has no rope");
    REJECTED((c.rope = &tables, positions[3] = 8), "cache: tokens.positions[3] is 8; the tables of the rope have 8 rows");
    REJECTED((c.rope = &tables, positions[3] = -1), "cache: tokens.positions[3] is -1; the tables of the rope have 8 rows");
    REJECTED(t.lengths = attn_in(slots), "cache: tokens.lengths and tokens.slots are both set; a slot of -1 skips a token");
    REJECTED((t.slots = (attn_input){0}, c.batch = 1, c.capacity = SLOTS, c.lengths = attn_out(lengths)),
             "cache: tokens.positions is set and tokens.slots is not; without slots, positions follow from lengths");
    REJECTED(t.slots.dtype = ATTN_F32, "cache: tokens.slots is f32; it must be i64 or i32");
    REJECTED(t.positions.dtype = ATTN_F32, "cache: tokens.positions is f32; it must be i64 or i32");
    REJECTED(t.slots.stride[0] = 2, "cache: tokens.slots.stride[0] is 2; it must be dense (1)");
    REJECTED(t.k = (attn_input){0}, "cache: tokens.k is NULL");
    REJECTED(c.v = (attn_output){0}, "cache: v is NULL");
    REJECTED((memset(by_slot.k, 0xff, sizeof by_slot.k), t.slots = attn_in(by_slot.k)),
             "cache: k and tokens.slots share elements; an output must not overlap another tensor");
    REJECTED(t.options = &bad, "options.threads is -1; it must be between 1 and 1024, or 0 for the default");
    REJECTED(for (int i = 0; i < TOKENS; i++) slots[i] = i < 9 ? 2 * i : 2 * i - 2, /* upwards but for one */
             "cache: tokens.slots[8] and [9] are both 16; a slot takes one token");
    for (int n = 0; n < TOKENS; n++) slots[n] = 20 - n;
    /* What is skipped need not have a position. */
    attn_cache c = cache_over(&by_slot, ATTN_F32, &tables, ENTRIES, EACH);
    attn_cache_tokens t = packed(ATTN_F32);
    t.slots = attn_in(slots), t.positions = attn_in(positions);
    slots[0] = -1, positions[0] = 99;
    if (attn_cache_append(&c, &t, &error) != ATTN_OK) fail_msg("%s", error.message);
    /* attn_cache_attend needs lengths. */
    const attn_problem p = {.struct_size = sizeof p, .shape.heads_q = HEADS};
    const attn_tensors a = {.struct_size = sizeof a, .q = attn_in(new_k), .o = attn_out(by_length.v)};
    assert_int_equal(attn_cache_attend(&c, &t, &p, &a, NULL, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "cache: tokens.slots is set; attending tells by lengths which keys a query sees: "
                                       "append, then compute");
    t.slots = t.positions = (attn_input){0};
    t.options = &bad, t.len = 1, c.lengths = attn_out(lengths);
    assert_int_equal(attn_cache_attend(&c, &t, &p, &a, NULL, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "cache: tokens.options is set; attending has options of its own");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_threads),
                                       cmocka_unit_test(test_rejected)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
