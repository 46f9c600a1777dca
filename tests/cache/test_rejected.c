/* SPDX-License-Identifier: MIT
 * test_rejected.c - calls that the cache rejects, with the exact message: the cache and the outputs stay untouched. */
#include "test.h"

#include "attn/cache.h"

typedef struct fixture {
    float k[2][2][6][4], v[2][2][6][3], new_k[2][2][3][4], new_v[2][2][3][3], q[2][4][3][4], o[2][4][3][3];
    int64_t lengths[2], new_tokens[2], table[2][2];
    attn_rope rope;
    attn_cache cache;
    attn_cache_tokens tokens;
    attn_problem problem;
    attn_tensors tensors;
} fixture;

static void init(fixture *f)
{
    memset(f, 0, sizeof *f);
    memset(f->k, 0x55, sizeof f->k);
    memset(f->o, 0x55, sizeof f->o);
    f->lengths[0] = 4, f->lengths[1] = 1;
    f->new_tokens[0] = 2, f->new_tokens[1] = 3;
    f->table[0][1] = f->table[1][0] = 1;
    f->rope.struct_size = sizeof f->rope;
    f->cache = (attn_cache){.struct_size = sizeof f->cache,
                            .batch = 2,
                            .heads_kv = 2,
                            .capacity = 6,
                            .dim_qk = 4,
                            .dim_v = 3,
                            .k = attn_out(f->k),
                            .v = attn_out(f->v),
                            .lengths = attn_out(f->lengths),
                            .rope = &f->rope};
    f->tokens = (attn_cache_tokens){.struct_size = sizeof f->tokens,
                                    .len = 3,
                                    .lengths = attn_in(f->new_tokens),
                                    .k = attn_in(f->new_k),
                                    .v = attn_in(f->new_v)};
    f->problem = (attn_problem){.struct_size = sizeof f->problem, .shape = {.heads_q = 4}};
    f->tensors = (attn_tensors){.struct_size = sizeof f->tensors, .q = attn_in(f->q), .o = attn_out(f->o)};
}

static void reject(fixture *f, attn_status status, const char *message, int line)
{
    fixture before = *f;
    attn_error error;
    for (int attend = 0; attend < 2; attend++) {
        attn_status got = attend ? attn_cache_attend(&f->cache, &f->tokens, &f->problem, &f->tensors, NULL, &error)
                                 : attn_cache_append(&f->cache, &f->tokens, &error);
        if (got != status || strcmp(error.message, message) != 0) fail_msg("line %d: got %d: %s", line, (int)got, error.message);
        assert_memory_equal(f->k, before.k, sizeof f->k);
        assert_memory_equal(f->lengths, before.lengths, sizeof f->lengths);
        assert_memory_equal(f->o, before.o, sizeof f->o);
    }
}

#define REJECTED(change, status, message)                                                                                          \
    do {                                                                                                                           \
        fixture f;                                                                                                                 \
        init(&f);                                                                                                                  \
        change;                                                                                                                    \
        reject(&f, status, message, __LINE__);                                                                                     \
    } while (0)

static void test_rejected(void **state)
{
    (void)state;
    REJECTED(f.cache.struct_size = 8, ATTN_ERR_ARGUMENT, "attn_cache.struct_size is 8; set it to sizeof(attn_cache)");
    REJECTED(f.tokens.struct_size = 8, ATTN_ERR_ARGUMENT,
             "attn_cache_tokens.struct_size is 8; set it to sizeof(attn_cache_tokens)");
    REJECTED(f.cache.batch = -1, ATTN_ERR_SHAPE, "cache: batch (-1) is negative");
    REJECTED(f.cache.dim_v = -2, ATTN_ERR_SHAPE, "cache: dim_v (-2) is negative");
    REJECTED(f.tokens.len = -1, ATTN_ERR_SHAPE, "cache: len (-1) is negative");
    REJECTED(f.cache.v.data = NULL, ATTN_ERR_ARGUMENT, "cache: v is NULL");
    REJECTED(f.cache.lengths.data = NULL, ATTN_ERR_ARGUMENT, "cache: lengths is NULL");
    REJECTED(f.tokens.k.data = NULL, ATTN_ERR_ARGUMENT, "cache: tokens.k is NULL");
    REJECTED(f.tokens.v.data = NULL, ATTN_ERR_ARGUMENT, "cache: tokens.v is NULL");
    REJECTED(f.cache.k.dtype = ATTN_I32, ATTN_ERR_UNSUPPORTED, "cache: k is i32; it must be f32, f64, f16, bf16, i8, f8 or blocks");
    REJECTED(f.tokens.k.dtype = ATTN_I8, ATTN_ERR_UNSUPPORTED, "cache: tokens.k is i8; it must be f32, f64, f16 or bf16");
    REJECTED(f.tokens.v.dtype = ATTN_F64, ATTN_ERR_UNSUPPORTED, "cache: k is f32 and tokens.v is f64; either all are f64 or none");
    REJECTED(f.cache.v.dtype = ATTN_F64, ATTN_ERR_UNSUPPORTED, "cache: k is f32 and v is f64; either all are f64 or none");
    REJECTED((f.cache.dim_qk = f.cache.dim_v = f.rope.dim_rotary = 0, f.cache.heads_kv = 1,
              f.cache.k.dtype = f.cache.v.dtype = ATTN_F64, f.tokens.k.dtype = ATTN_F32),
             ATTN_ERR_UNSUPPORTED, "cache: k is f64 and tokens.k is f32; either all are f64 or none");
    REJECTED(f.cache.k.dtype = ATTN_I8, ATTN_ERR_ARGUMENT, "cache: k is i8 and k_scale is NULL");
    REJECTED(f.cache.v.dtype = ATTN_I8, ATTN_ERR_ARGUMENT, "cache: v is i8 and v_scale is NULL");
    REJECTED((f.cache.v.dtype = ATTN_I8, f.cache.v_scale = (attn_output){f.v, ATTN_F16, {0, 0, 0, 0}}), ATTN_ERR_UNSUPPORTED,
             "cache: v_scale is f16; it must be f32");
    REJECTED(
        (f.cache.k.dtype = ATTN_I8, f.cache.v.dtype = ATTN_F32, f.cache.k_scale = attn_out(f.k[0][0][0]), f.cache.dim_qk = 4098),
        ATTN_ERR_UNSUPPORTED, "cache: k is i8 and rotated, and dim_qk is 4098; it must be at most 4096");
    REJECTED(f.tokens.v.stride[3] = 2, ATTN_ERR_STRIDE, "cache: tokens.v.stride[3] is 2; the last axis must be contiguous (1)");
    REJECTED(f.cache.capacity = INT64_MAX, ATTN_ERR_SHAPE, "cache: k is too large: its bytes overflow 64 bits");
    REJECTED(f.new_tokens[1] = 4, ATTN_ERR_ARGUMENT, "cache: tokens.lengths[1] (4) is not between 0 and 3");
    REJECTED(f.lengths[1] = 7, ATTN_ERR_ARGUMENT, "cache: lengths[1] (7) is not between 0 and 6");
    REJECTED(f.tokens.lengths.data = NULL, ATTN_ERR_SHAPE, "cache: entry 0 holds 4 of 6 tokens; 3 more do not fit");
    REJECTED((f.cache.page_size = 3, f.cache.pages = 2), ATTN_ERR_ARGUMENT, "cache: page_table is NULL and page_size is 3");
    REJECTED((f.cache.page_size = 3, f.cache.pages = 1, f.cache.page_table = attn_in(f.table)), ATTN_ERR_ARGUMENT,
             "cache: page 1 of entry 0 is 1; pages is 1");
    REJECTED(f.cache.page_table = attn_in(f.table), ATTN_ERR_ARGUMENT, "cache: page_table is set and page_size is 0");
    REJECTED(f.cache.reserved[1] = 4, ATTN_ERR_ARGUMENT, "cache: reserved[1] is 4; it must be 0");
    REJECTED(f.cache.lengths.dtype = ATTN_I32, ATTN_ERR_UNSUPPORTED, "cache: lengths is i32; it must be i64");
    REJECTED(f.cache.k_scale = attn_out(f.v), ATTN_ERR_ARGUMENT, "cache: k_scale is set and k is f32; only i8 and f8 have scales");
    REJECTED((f.cache.k.stride[2] = 4, f.cache.k.stride[3] = 1), ATTN_ERR_STRIDE,
             "cache: k.stride[0] is 0; a cache is written and cannot broadcast");
    REJECTED(f.cache.v = attn_out(NULL), ATTN_ERR_ARGUMENT, "cache: v is NULL");
    REJECTED(f.tokens.v = attn_in(ATTN_LATER), ATTN_ERR_ARGUMENT, "cache: tokens.v is ATTN_LATER; this call needs its pointer");
    REJECTED((f.tokens.lengths.data = NULL, f.tokens.lengths.dtype = ATTN_I64), ATTN_ERR_ARGUMENT,
             "cache: tokens.lengths is NULL and has a type or strides; a slot that is not set must be all 0");
    REJECTED(f.cache.v.data = f.k, ATTN_ERR_STRIDE, "cache: k and v share elements; an output must not overlap another tensor");
    REJECTED(f.cache.k.data = f.lengths, ATTN_ERR_STRIDE,
             "cache: k and lengths share elements; an output must not overlap another tensor");
    REJECTED(f.tokens.k.data = f.k, ATTN_ERR_STRIDE,
             "cache: k and tokens.k share elements; an output must not overlap another tensor");
    REJECTED((f.cache.page_size = 3, f.cache.pages = 4, f.cache.page_table = attn_in(f.table), f.cache.v.data = f.table),
             ATTN_ERR_STRIDE, "cache: v and page_table share elements; an output must not overlap another tensor");
    REJECTED(f.tokens.v.data = (char *)f.new_v + 2, ATTN_ERR_ARGUMENT, "cache: tokens.v is not aligned to its elements of 4 bytes");
    static const double table[5 * 2];
    REJECTED((f.rope.cosines = f.rope.sines = table, f.rope.table_rows = 5), ATTN_ERR_ARGUMENT,
             "cache: the last token of entry 0 is at 5; the tables of the rope have 5 rows");
    REJECTED((f.lengths[0] = 1, f.tokens.lengths = attn_in(f.lengths)), ATTN_ERR_STRIDE,
             "cache: lengths and tokens.lengths share elements; an output must not overlap another tensor");
    REJECTED((f.cache.k.stride[0] = 48, f.cache.k.stride[1] = 24, f.cache.k.stride[2] = f.cache.k.stride[3] = 1), ATTN_ERR_STRIDE,
             "cache: k.stride[3] is 1; its elements overlap");
    REJECTED(f.rope.dim_rotary = 3, ATTN_ERR_SHAPE, "rope rotates 3 channels; pairs need an even number");
}

/* Two pages of 2^62 tokens, of which the second has some: the end of a third would overflow, and it has no entry in the table. */
static void test_vast_pages(void **state)
{
    attn_error error;
    fixture f;
    (void)state;
    init(&f);
    f.cache = (attn_cache){.struct_size = sizeof f.cache, .batch = 1, .heads_kv = 1, .capacity = INT64_MAX};
    f.cache.page_size = INT64_C(1) << 62, f.cache.pages = 1;
    f.cache.k = attn_out(f.k), f.cache.v = attn_out(f.v), f.cache.lengths = attn_out(f.lengths);
    f.cache.page_table = attn_in(f.table);
    f.tokens.len = 1, f.tokens.lengths.data = NULL;
    f.lengths[0] = f.cache.page_size + 1;
    f.table[0][0] = f.table[0][1] = 0, f.table[1][0] = 7;
    assert_int_equal(attn_cache_append(&f.cache, &f.tokens, &error), ATTN_OK);
    assert_true(f.lengths[0] == f.cache.page_size + 2);
    f.table[0][1] = 7;
    assert_int_equal(attn_cache_append(&f.cache, &f.tokens, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "cache: page 1 of entry 0 is 7; pages is 1");
}

/* An entry that gets no tokens may have lost its pages: neither a step nor a shift of the others looks at them. */
static void test_idle_pages(void **state)
{
    float o[2][2][4][3][3];
    (void)state;
    for (int gone = 0; gone < 2; gone++) {
        const int64_t drop[2] = {2, 0};
        const attn_input less = attn_in(drop);
        attn_error error;
        fixture f;
        init(&f);
        memset(f.k, 0, sizeof f.k);
        for (size_t i = 0; i < sizeof f.new_v / sizeof(float); i++) (&f.new_v[0][0][0][0])[i] = (float)i;
        f.cache.page_size = 3, f.cache.pages = 4, f.cache.page_table = attn_in(f.table);
        f.table[1][0] = gone ? -1 : 2, f.table[1][1] = gone ? 1000 : 3;
        f.lengths[0] = 1, f.lengths[1] = 4;
        f.new_tokens[0] = 2, f.new_tokens[1] = 0;
        assert_int_equal(attn_cache_append(&f.cache, &f.tokens, &error), ATTN_OK);
        assert_int_equal(attn_cache_attend(&f.cache, &f.tokens, &f.problem, &f.tensors, NULL, &error), ATTN_OK);
        assert_true(f.lengths[0] == 5 && f.lengths[1] == 4);
        assert_true(f.o[0][0][1][2] != 0 && f.o[1][0][0][0] == 0);
        memcpy(o[gone], f.o, sizeof f.o);
        assert_int_equal(attn_cache_shift(&f.cache, 1, &less, &error), ATTN_OK);
        assert_true(f.lengths[0] == 3 && f.lengths[1] == 4);
    }
    assert_memory_equal(o[0], o[1], sizeof o[0]);
}

/* Errors that only attention can detect are detected before anything is appended: no byte of the cache is written. */
static void test_attend_writes_nothing(void **state)
{
    attn_error error;
    (void)state;
#define UNTOUCHED(change, text)                                                                                                    \
    do {                                                                                                                           \
        fixture f;                                                                                                                 \
        init(&f);                                                                                                                  \
        change;                                                                                                                    \
        const fixture before = f;                                                                                                  \
        assert_int_not_equal(attn_cache_attend(&f.cache, &f.tokens, &f.problem, &f.tensors, NULL, &error), ATTN_OK);               \
        assert_string_equal(error.message, text);                                                                                  \
        assert_memory_equal(&f, &before, sizeof f);                                                                                \
    } while (0)
    UNTOUCHED(f.tensors.o = attn_out(ATTN_LATER), "o is ATTN_LATER; an execution needs its pointer");
    UNTOUCHED(f.tensors.bias = attn_in(ATTN_LATER), "bias is ATTN_LATER; an execution needs its pointer");
    UNTOUCHED(f.tensors.o = attn_out(ATTN_EMPTY), "o is ATTN_EMPTY and has elements");
    UNTOUCHED(f.tensors.o.data = (char *)f.o + 2, "o is not aligned to its elements of 4 bytes");
    UNTOUCHED(f.tensors.o = attn_out(f.v), "o and v share elements; an output must not overlap another tensor");
    UNTOUCHED((f.cache.rope = NULL, f.tensors.q = attn_in(f.k)),
              "cache: k and q share elements; an output must not overlap another tensor");
    UNTOUCHED(f.tensors.q = attn_in(f.k), "cache: k and q share elements; an output must not overlap another tensor");
    for (int rotated = 0; rotated < 2; rotated++) /* also of queries that are rotated into a copy */
        UNTOUCHED((f.cache.rope = rotated ? f.cache.rope : NULL, f.tensors.q.stride[1] = f.tensors.q.stride[3] = 2),
                  "q.stride[3] is 2; the last axis must be contiguous (1)");
    UNTOUCHED((f.tensors.bias = (attn_input){f.v, 0, {0, 0, 0, 1}}),
              "cache: v and bias share elements; an output must not overlap another tensor");
    UNTOUCHED(f.tensors.o = attn_out(f.new_k), "cache: o and tokens.k share elements; an output must not overlap another tensor");
    UNTOUCHED(f.tensors.lse = attn_out(f.lengths),
              "cache: lengths and lse share elements; an output must not overlap another tensor");
    UNTOUCHED(f.tensors.o = attn_out(f.new_tokens),
              "cache: o and tokens.lengths share elements; an output must not overlap another tensor");
    UNTOUCHED((f.rope.frequencies = (double *)(void *)f.o, f.tensors.o = attn_out(f.o)),
              "cache: o and rope.frequencies share elements; an output must not overlap another tensor");
    UNTOUCHED((f.rope.frequencies = (double *)(void *)f.k),
              "cache: k and rope.frequencies share elements; an output must not overlap another tensor");
}

/* RoPE tables shorter than the sequence: no token is dropped silently, and padding needs no row. */
static void test_rope_rows(void **state)
{
    static double cosines[6][2], sines[6][2];
    attn_error error;
    fixture f;
    (void)state;
    init(&f);
    f.rope.cosines = cosines[0], f.rope.sines = sines[0], f.rope.table_rows = 5;
    fixture before = f;
    for (int attend = 0; attend < 2; attend++) {
        const attn_status status = attend ? attn_cache_attend(&f.cache, &f.tokens, &f.problem, &f.tensors, NULL, &error)
                                          : attn_cache_append(&f.cache, &f.tokens, &error);
        assert_int_equal(status, ATTN_ERR_ARGUMENT);
        assert_string_equal(error.message, "cache: the last token of entry 0 is at 5; the tables of the rope have 5 rows");
        assert_memory_equal(&f, &before, sizeof f);
    }
    f.rope.table_rows = 6; /* enough for entry 0, with 4 tokens and 2 new ones: the third is padding */
    assert_int_equal(attn_cache_attend(&f.cache, &f.tokens, &f.problem, &f.tensors, NULL, &error), ATTN_OK);
    assert_int_equal(f.lengths[0], 6);
}

static void test_attend_only(void **state)
{
    fixture f;
    attn_error error;
    (void)state;
#define ATTEND_REJECTED(change, text)                                                                                              \
    do {                                                                                                                           \
        init(&f);                                                                                                                  \
        change;                                                                                                                    \
        assert_int_not_equal(attn_cache_attend(&f.cache, &f.tokens, &f.problem, &f.tensors, NULL, &error), ATTN_OK);               \
        assert_string_equal(error.message, text);                                                                                  \
        assert_int_equal(f.lengths[0], 4);                                                                                         \
    } while (0)
    ATTEND_REJECTED(f.problem.shape.heads_q = 3, "heads_q (3) is not a multiple of heads_kv (2)");
    ATTEND_REJECTED(f.problem.op = ATTN_BACKWARD, "cache: op is 1; it must be 0 (forward)");
    ATTEND_REJECTED(f.tensors.cu_seqlens_q = attn_in(f.lengths), "cu_seqlens_q is set; attn_cache_attend does not use it");
    ATTEND_REJECTED(f.tensors.k = attn_in(f.k), "k is set; attn_cache_attend does not use it");
    attn_tensor_description about = {.struct_size = sizeof about};
    assert_int_equal(attn_tensor_describe(ATTN_FAMILY_ATTENTION, error.tensor, &about, NULL), ATTN_OK);
    assert_string_equal(about.name, "k");
    ATTEND_REJECTED(f.problem.shape.dim_qk = 4, "cache: shape.dim_qk is 4; it follows from the cache and the tokens, leave it 0");
    ATTEND_REJECTED(f.problem.mask.align = ATTN_ALIGN_BOTTOM_RIGHT,
                    "cache: mask.align is 1; it follows from the cache and the tokens, leave it 0");
    ATTEND_REJECTED(f.problem.paging.pages = 2, "cache: paging.pages is 2; it follows from the cache and the tokens, leave it 0");
    ATTEND_REJECTED(f.problem.shape.heads_q = INT64_MAX, "cache: the bytes of the queries exceed the address space");
    ATTEND_REJECTED(f.problem.shape.heads_q = 0, "cache: shape.heads_q is 0; the caller must set it");
    ATTEND_REJECTED(f.tensors.o = attn_out(f.k[1]), "o and k share elements; an output must not overlap another tensor");
    for (int i = 0; i < (int)(sizeof f.k / sizeof(float)); i++) assert_int_equal(((const int *)f.k)[i], 0x55555555);
    ATTEND_REJECTED(f.tensors.o.data = NULL, "o is missing; ATTN_FORWARD needs it");
    ATTEND_REJECTED(f.problem.struct_size = 0, "attn_problem.struct_size is 0; set it to sizeof(attn_problem)");
    ATTEND_REJECTED(f.tensors.struct_size = 0, "attn_tensors.struct_size is 0; set it to sizeof(attn_tensors)");
    init(&f);
    assert_int_equal(attn_cache_attend(&f.cache, &f.tokens, NULL, &f.tensors, NULL, &error), ATTN_ERR_ARGUMENT);
    assert_int_equal(attn_cache_attend(&f.cache, &f.tokens, &f.problem, NULL, NULL, &error), ATTN_ERR_ARGUMENT);
    assert_int_equal(attn_cache_append(NULL, &f.tokens, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "cache is NULL");
    assert_int_equal(attn_cache_append(&f.cache, NULL, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "tokens is NULL");
    assert_int_equal(attn_cache_attend(&f.cache, &f.tokens, &f.problem, &f.tensors, NULL, &error), ATTN_OK);
    assert_int_equal(f.lengths[0], 6);
}

/* Tokens whose slot gives no dtype are f64 if the cache is f64, f32 for every other cache. */
static void test_default_types(void **state)
{
    static const attn_dtype types[] = {ATTN_F32, ATTN_BF16, ATTN_F16, ATTN_I8, ATTN_F64};
    (void)state;
    for (int n = 0; n < 5; n++) {
        const float single[2] = {1.5f, -2};
        const double whole[2] = {1.5, -2};
        const int is_double = types[n] == ATTN_F64;
        char k[16] = {0}, v[16] = {0}, expected[16] = {0};
        float k_scale = 0, v_scale = 0;
        int64_t length = 0;
        attn_error error;
        const attn_cache c = {.struct_size = sizeof c,
                              .batch = 1,
                              .heads_kv = 1,
                              .capacity = 1,
                              .dim_qk = 2,
                              .dim_v = 2,
                              .k = {k, types[n], {0, 0, 0, 0}},
                              .v = attn_out(v), /* of the type of k */
                              .lengths = attn_out(&length),
                              .k_scale = types[n] == ATTN_I8 ? attn_out(&k_scale) : (attn_output){0},
                              .v_scale = types[n] == ATTN_I8 ? attn_out(&v_scale) : (attn_output){0}};
        const attn_input given = is_double ? attn_in(whole) : attn_in(single);
        const attn_cache_tokens t = {.struct_size = sizeof t, .len = 1, .k = given, .v = given};
        if (attn_cache_append(&c, &t, &error) != ATTN_OK) fail_msg("%s: %s", attn_dtype_name(types[n]), error.message);
        if (types[n] == ATTN_I8) {
            assert_float_equal(k_scale, 2.0f / 127, 1e-7f);
            expected[0] = 95, expected[1] = -127;
        } else {
            assert_int_equal(attn_convert(2, single, ATTN_F32, expected, types[n], NULL), ATTN_OK);
        }
        assert_memory_equal(k, expected, sizeof k);
        assert_memory_equal(v, expected, sizeof v);
    }
}

/* Padding tokens have no position, so tables need no row for them. */
static void test_padding(void **state)
{
    static const double ones[4] = {1, 1, 1, 1}, zeros[4];
    fixture f;
    attn_error error;
    (void)state;
    init(&f);
    f.lengths[0] = f.lengths[1] = 0, f.new_tokens[0] = f.new_tokens[1] = 2;
    f.rope.cosines = ones, f.rope.sines = zeros, f.rope.table_rows = 2;
    assert_int_equal(attn_cache_attend(&f.cache, &f.tokens, &f.problem, &f.tensors, NULL, &error), ATTN_OK);
    assert_int_equal(f.lengths[1], 2);
}

/* Keys with no channels get scale 0; the old contents do not stay. */
static void test_no_channels(void **state)
{
    fixture f;
    attn_error error;
    float scale[2][2][6];
    (void)state;
    init(&f);
    memset(scale, 0xff, sizeof scale);
    f.lengths[0] = f.lengths[1] = 0;
    f.cache.rope = NULL, f.cache.dim_qk = 0;
    f.cache.k = (attn_output){ATTN_EMPTY, ATTN_I8, {0, 0, 0, 0}}, f.cache.k_scale = attn_out(scale);
    f.cache.v.dtype = ATTN_F32;
    f.tokens.k = f.tensors.q = attn_in(ATTN_EMPTY);
    for (int i = 0; i < 2 * 2 * 3 * 3; i++) (&f.new_v[0][0][0][0])[i] = 1;
    if (attn_cache_attend(&f.cache, &f.tokens, &f.problem, &f.tensors, NULL, &error)) fail_msg("%s", error.message);
    assert_true(scale[1][1][0] == 0);
    assert_true(f.o[0][0][0][0] == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rejected),     cmocka_unit_test(test_vast_pages),
                                       cmocka_unit_test(test_idle_pages),   cmocka_unit_test(test_attend_only),
                                       cmocka_unit_test(test_padding),      cmocka_unit_test(test_no_channels),
                                       cmocka_unit_test(test_rope_rows),    cmocka_unit_test(test_attend_writes_nothing),
                                       cmocka_unit_test(test_default_types)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
