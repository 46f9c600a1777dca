/* SPDX-License-Identifier: MIT
 *
 * test_formats.c - formats of keys and values: quantised as ref/ defines, and attention over them equals attention over the numbers
 * that they stand for: the same bits where keys are unpacked, else within the bound of fixed point.
 */
#include "fails.h"

#include <math.h>
#include <stdio.h>

#include "attn/cache.h"
#include "draw.h"
#include "testing/memory/format.h"
#include "testing/random/share.h"

enum { ROWS = 9, DIM = 128, PAGE = 16, HEADS = 8, GROUPS = 2, KEYS = 700, MAX_Q = 40 };

static const struct {
    attn_dtype dtype;
    ref_format format;
} formats[] = {
    {ATTN_F8_E4M3, REF_E4M3}, {ATTN_F8_E5M2, REF_E5M2}, {ATTN_Q8_0, REF_Q8_0}, {ATTN_Q4_0, REF_Q4_0}, {ATTN_Q4_1, REF_Q4_1}};
enum { FORMATS = sizeof formats / sizeof *formats };

static int64_t row_bytes(attn_dtype dtype, int64_t dim) { return format_elements(dtype, dim) * (int64_t)attn_dtype_size(dtype); }

/* The numbers that a row stands for, by ref/. */
static void values_of(int f, int64_t dim, const unsigned char *row, double scale, double *x)
{
    const attn_dtype dtype = formats[f].dtype;
    const int64_t width = format_is_blocks(dtype) ? ATTN_BLOCK : 1;
    for (int64_t c = 0; c < dim; c++)
        x[c] = scale * format_get(row + c / width * (int64_t)attn_dtype_size(dtype), dtype, c % width);
}

/* ---- quantising ---- */

/* Rows of different sizes, with ties, an infinity and a NaN. */
static void fill(float *x)
{
    static const float size[ROWS] = {1, 1e-30F, 3e4F, 0, 1e-42F, 1e6F, 2, 300, 5};
    for (int i = 0; i < ROWS; i++)
        for (int c = 0; c < DIM; c++) x[i * DIM + c] = size[i] * draw_real();
    for (int c = 0; c < DIM; c++) x[7 * DIM + c] = (float)(c % 33 - 16) * (c < 64 ? 0.5F : 17);
    x[6 * DIM + 40] = NAN;
    x[8 * DIM + 100] = -INFINITY;
}

static void expect_block(int f, const float *x, unsigned char *block)
{
    double wide[REF_BLOCK], d, m;
    int steps[REF_BLOCK];
    uint16_t half[2];
    const attn_dtype dtype = formats[f].dtype;
    for (int c = 0; c < REF_BLOCK; c++) wide[c] = (double)x[c];
    ref_block_steps(formats[f].format, wide, steps, &d, &m);
    (void)attn_convert(1, &d, ATTN_F64, half, ATTN_F16, NULL);
    (void)attn_convert(1, &m, ATTN_F64, half + 1, ATTN_F16, NULL);
    const size_t head = dtype == ATTN_Q4_1 ? 4 : 2;
    memcpy(block, half, head);
    for (int c = 0; c < REF_BLOCK / 2; c++) {
        if (dtype == ATTN_Q8_0) block[2 + c] = (unsigned char)steps[c], block[18 + c] = (unsigned char)steps[c + 16];
        else block[head + (size_t)c] = (unsigned char)(steps[c] | steps[c + 16] << 4);
    }
}

static void test_quantised(void **state)
{
    static float x[ROWS * DIM];
    static unsigned char values[ROWS * DIM * 2], expected[DIM * 2];
    float scales[ROWS + 1];
    (void)state;
    for (int f = 0; f < FORMATS; f++)
        for (int scaled = 0; scaled <= !format_is_blocks(formats[f].dtype); scaled++) {
            const attn_dtype dtype = formats[f].dtype;
            const size_t row = (size_t)row_bytes(dtype, DIM);
            fill(x);
            memset(values, 0x55, sizeof values);
            const attn_input src = attn_in(x);
            const attn_output to = {values, dtype, {0, 0, 0, 0}}, to_scales = attn_out(scales);
            assert_int_equal(attn_quantise(ROWS, DIM, &src, &to, scaled ? &to_scales : NULL, NULL), ATTN_OK);
            for (size_t i = 0; i < ROWS; i++) {
                double most = 0, scale = 1;
                for (int c = 0; c < DIM; c++) most = fmax(most, fabs((double)x[i * DIM + (size_t)c]));
                if (scaled) scale = (double)(float)(most / ref_f8_value(formats[f].format, dtype == ATTN_F8_E4M3 ? 0x7e : 0x7b));
                if (scaled && (i == 6 || i == 8)) scale = NAN;
                if (scaled) assert_true(isnan(scale) ? isnan(scales[i]) : (double)scales[i] == scale);
                for (int c = 0; c < DIM; c++) {
                    const double steps = scale == 0 ? (double)x[i * DIM + (size_t)c] : (double)x[i * DIM + (size_t)c] / scale;
                    if (!format_is_blocks(dtype)) expected[c] = (unsigned char)ref_f8_of(formats[f].format, steps);
                    else if (c % REF_BLOCK == 0)
                        expect_block(f, x + i * DIM + c, expected + (size_t)c / REF_BLOCK * attn_dtype_size(dtype));
                }
                for (size_t n = 0; n < row; n++) {
                    const int nan = !format_is_blocks(dtype) && isnan(ref_f8_value(formats[f].format, expected[n]));
                    if (nan ? !isnan(ref_f8_value(formats[f].format, values[i * row + n])) : values[i * row + n] != expected[n])
                        fail_msg("%s row %d byte %d: %d, not %d", attn_dtype_name(dtype), (int)i, (int)n, values[i * row + n],
                                 expected[n]);
                }
            }
            assert_int_equal(values[ROWS * row], 0x55);
        }
}

/* ---- attention ---- */

typedef struct rows {
    unsigned char *stored, *paged; /* [GROUPS][KEYS], and pages of them in reverse order */
    float *scales, *paged_scales, *plain;
    double *wide;
} rows;

static void *take(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    assert_non_null(memory);
    return memory;
}

enum { PAGES = (KEYS + PAGE - 1) / PAGE };

static rows make_rows(int f, int scaled)
{
    const attn_dtype dtype = formats[f].dtype;
    const size_t row = (size_t)row_bytes(dtype, DIM), n = GROUPS * KEYS, in_pages = (size_t)PAGES * GROUPS * PAGE;
    rows r = {take(n, row), take(in_pages, row), take(n, 4), take(in_pages, 4), take(n * DIM, 4), take(n * DIM, 8)};
    for (size_t i = 0; i < n * DIM; i++) r.plain[i] = 2 * draw_real();
    const attn_input src = attn_in(r.plain);
    const attn_output to = {r.stored, dtype, {0, 0, 0, 0}}, scale = attn_out(r.scales);
    assert_int_equal(attn_quantise((int64_t)n, DIM, &src, &to, scaled ? &scale : NULL, NULL), ATTN_OK);
    for (size_t i = 0; i < n; i++) {
        values_of(f, DIM, r.stored + i * row, scaled ? (double)r.scales[i] : 1, r.wide + i * DIM);
        for (size_t c = 0; c < DIM; c++) r.plain[i * DIM + c] = (float)r.wide[i * DIM + c];
        const size_t j = i % KEYS, at = ((PAGES - 1 - j / PAGE) * GROUPS + i / KEYS) * PAGE + j % PAGE;
        memcpy(r.paged + at * row, r.stored + i * row, row);
        r.paged_scales[at] = r.scales[i];
    }
    return r;
}

static void free_rows(rows *r)
{
    void *all[] = {r->stored, r->paged, r->scales, r->paged_scales, r->plain, r->wide};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static float q[HEADS * MAX_Q * DIM];

/* o of `queries`; f -1: keys and values of f32.  Returns 0 if the instruction set is missing. */
static int attend(int f, int scaled, int paged, const rows *k, const rows *v, int64_t queries, const attn_options *options,
                  attn_score_kind score, float *o)
{
    static int64_t pages[PAGES];
    const attn_dtype dtype = f < 0 ? ATTN_F32 : formats[f].dtype;
    attn_error error;
    attn_plan *plan;
    attn_problem p = {.struct_size = sizeof p, .shape = {1, HEADS, GROUPS, queries, KEYS, DIM, DIM}, .score = {.kind = score}};
    attn_tensors t = {.struct_size = sizeof t, .q = attn_in(q), .o = attn_out(o)};
    p.mask.causal = 1;
    p.mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
    t.k = (attn_input){f < 0 ? (void *)k->plain : paged ? k->paged : k->stored, dtype, {0, 0, 0, 0}};
    t.v = (attn_input){f < 0 ? (void *)v->plain : paged ? v->paged : v->stored, dtype, {0, 0, 0, 0}};
    if (scaled && f >= 0)
        t.k_scale = attn_in(paged ? k->paged_scales : k->scales), t.v_scale = attn_in(paged ? v->paged_scales : v->scales);
    for (int i = 0; i < PAGES; i++) pages[i] = PAGES - 1 - i;
    if (paged) p.paging.page_size = PAGE, p.paging.pages = PAGES, t.page_table = attn_in(pages);
    const attn_status status = attn_plan_create(&plan, &p, &t, options, &error);
    if (status == ATTN_ERR_UNSUPPORTED) return 0;
    if (status != ATTN_OK) fail_msg("%s", error.message);
    const size_t size = attn_plan_workspace_size(plan);
    void *const workspace = take(size + 1, 1);
    assert_int_equal(attn_execute(plan, &t, workspace, size, NULL), ATTN_OK);
    free(workspace);
    attn_plan_destroy(plan);
    return 1;
}

static void test_attention(void **state)
{
    static float o[HEADS * MAX_Q * DIM], expected[HEADS * MAX_Q * DIM];
    static const attn_isa isas[] = {ATTN_ISA_SCALAR, ATTN_ISA_AVX2, ATTN_ISA_AVX512, ATTN_ISA_NEON, ATTN_ISA_WASM128};
    static const int64_t lengths[] = {1, 3, MAX_Q};
    int number = 0;
    (void)state;
    for (size_t i = 0; i < sizeof q / sizeof *q; i++) q[i] = 2 * draw_real();
    for (int f = 0; f < FORMATS; f++) {
        const int scaled = !format_is_blocks(formats[f].dtype) && draw(2);
        rows k = make_rows(f, scaled), v = make_rows(f, scaled);
        for (size_t s = 0; s < 4; s++)
            for (size_t n = 0; n < 3; n++)
                for (int more = 0; more < 4; more++) { /* in order, pages */
                    if (!share_has(number++)) continue;
                    const attn_options options = {
                        .struct_size = sizeof options, .isa = isas[s], .invariant = more & 1, .threads = 1};
                    /* With 12 rows of a key head, f32 keys go to tiles and others to decode; and blocks may be used as integers. */
                    const int exact = more & 1 || lengths[n] == MAX_Q || (lengths[n] == 1 && !format_is_blocks(formats[f].dtype));
                    if (!attend(-1, 0, 0, &k, &v, lengths[n], &options, ATTN_SCORE_DOT, expected)) continue;
                    assert_true(attend(f, scaled, more >> 1, &k, &v, lengths[n], &options, ATTN_SCORE_DOT, o));
                    for (int64_t i = 0; i < HEADS * lengths[n] * DIM; i++) {
                        const double off = fabs((double)o[i] - (double)expected[i]);
                        if (exact ? off != 0 : !(off < 2e-6))
                            fail_msg("%s, isa %d, %d queries, case %d: %g, not %g", attn_dtype_name(formats[f].dtype), (int)isas[s],
                                     (int)lengths[n], more, (double)o[i], (double)expected[i]);
                    }
                }
        const attn_options plain = {.struct_size = sizeof plain};
        assert_true(attend(-1, 0, 0, &k, &v, 5, &plain, ATTN_SCORE_COSINE, expected));
        assert_true(attend(f, scaled, 0, &k, &v, 5, &plain, ATTN_SCORE_COSINE, o));
        assert_memory_equal(o, expected, sizeof(float) * HEADS * 5 * DIM);
        free_rows(&k);
        free_rows(&v);
    }
}

/* ---- caches ---- */

/* Appending is attn_quantise; scales of all tokens are the caller's; tokens keep their rows when they move. */
static void test_appended(void **state)
{
    enum { TOKENS = 5, CAPACITY = 8 };
    static float x[2 * TOKENS * DIM];
    static unsigned char k[2 * CAPACITY * DIM * 2], v[2 * CAPACITY * DIM * 2], expected[DIM * 2];
    (void)state;
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) x[i] = 2 * draw_real();
    for (int f = 0; f < FORMATS; f++)
        for (int way = 0; way < (format_is_blocks(formats[f].dtype) ? 1 : 4);
             way++) { /* no scales, of rows, of heads, of the tensor */
            const attn_dtype dtype = formats[f].dtype;
            const size_t row = (size_t)row_bytes(dtype, DIM);
            float k_scale[2 * CAPACITY] = {0.25F, 0.5F}, v_scale[2 * CAPACITY] = {0.25F, 0.5F};
            int64_t lengths[1] = {1};
            attn_error error;
            memset(k, 0x55, sizeof k);
            attn_cache c = {.struct_size = sizeof c,
                            .batch = 1,
                            .heads_kv = 2,
                            .capacity = CAPACITY,
                            .dim_qk = DIM,
                            .dim_v = DIM,
                            .k = {k, dtype, {0, 0, 0, 0}},
                            .v = {v, dtype, {0, 0, 0, 0}},
                            .lengths = attn_out(lengths)};
            if (way == 1) c.k_scale = attn_out(k_scale), c.v_scale = attn_out(v_scale);
            if (way == 2) c.k_scale = (attn_output){k_scale, ATTN_F32, {0, 1, 0, 1}}, c.v_scale = c.k_scale;
            if (way == 3)
                c.k_scale = (attn_output){k_scale, ATTN_F32, {ATTN_BROADCAST, ATTN_BROADCAST, ATTN_BROADCAST, ATTN_BROADCAST}},
                c.v_scale = c.k_scale;
            const attn_cache_tokens tokens = {.struct_size = sizeof tokens, .len = TOKENS, .k = attn_in(x), .v = attn_in(x)};
            if (attn_cache_append(&c, &tokens, &error) != ATTN_OK) fail_msg("%s", error.message);
            const int64_t from[1] = {3}, to[1] = {7};
            const attn_input slots_from = attn_in(from), slots_to = attn_in(to);
            assert_int_equal(attn_cache_move(&c, 1, &slots_from, &slots_to, NULL), ATTN_OK);
            for (int h = 0; h < 2; h++)
                for (int t = 0; t < TOKENS + 1; t++) { /* the last is the moved one, token 2 */
                    const int token = t < TOKENS ? t : 2, at = h * CAPACITY + (t < TOKENS ? t + 1 : 7);
                    float scale = way == 2 ? k_scale[h] : way == 3 ? k_scale[0] : 1, scaled[DIM];
                    const attn_output to_row = {expected, dtype, {0, 0, 0, 0}}, to_scale = attn_out(&scale);
                    for (int n = 0; n < DIM; n++) scaled[n] = x[(h * TOKENS + token) * DIM + n] / scale;
                    const attn_input src = attn_in(scaled);
                    assert_int_equal(attn_quantise(1, DIM, &src, &to_row, way == 1 ? &to_scale : NULL, NULL), ATTN_OK);
                    assert_memory_equal(k + (size_t)at * row, expected, row);
                    assert_memory_equal(v + (size_t)at * row, expected, row);
                    if (way == 1) assert_true(k_scale[at] == scale && v_scale[at] == scale);
                }
            assert_int_equal(k[0], 0x55);
            if (way >= 2) assert_true(k_scale[0] == 0.25F && k_scale[1] == 0.5F && k_scale[2] == 0);
        }
}

/* The scale of a value that a query does not see changes no bit, even if it is NaN. */
static void test_hidden_scale(void **state)
{
    enum { SOME = 40 };
    static int8_t v[SOME * ATTN_BLOCK];
    static float queries[HEADS * ATTN_BLOCK], k[SOME * ATTN_BLOCK], scale[SOME], o[2][HEADS * ATTN_BLOCK];
    uint8_t mask[SOME];
    (void)state;
    for (int i = 0; i < SOME * ATTN_BLOCK; i++) k[i] = draw_real(), v[i] = (int8_t)(i * 37 % 200 - 100);
    for (int i = 0; i < HEADS * ATTN_BLOCK; i++) queries[i] = draw_real();
    for (int j = 0; j < SOME; j++) mask[j] = j % 7 != 3, scale[j] = 0.01F + (float)j / 1000;
    for (int n = 0; n < 2; n++) {
        for (int j = 0; n && j < SOME; j++)
            if (!mask[j]) scale[j] = j % 2 ? NAN : INFINITY;
        const attn_problem p = {.struct_size = sizeof p, .shape = {1, HEADS, 1, 1, SOME, ATTN_BLOCK, ATTN_BLOCK}};
        attn_tensors t = {.struct_size = sizeof t, .q = attn_in(queries), .k = attn_in(k), .v = {v, ATTN_I8, {0, 0, 0, 0}}};
        attn_error error;
        t.v_scale = attn_in(scale), t.o = attn_out(o[n]);
        t.mask = (attn_input){mask, ATTN_BOOL, {ATTN_BROADCAST, ATTN_BROADCAST, ATTN_BROADCAST, 1}};
        if (attn_compute(&p, &t, &error) != ATTN_OK) fail_msg("%s", error.message);
    }
    assert_memory_equal(o[0], o[1], sizeof o[0]);
}

/* Rows of one block have one element, whose stride is ignored as that of any axis of size 1. */
static void test_one_block(void **state)
{
    static const int64_t strides[] = {1, 0, 7, -1, ATTN_BROADCAST};
    static float x[ATTN_BLOCK];
    unsigned char k[2 * 34], v[2 * 34], first[34] = {0};
    (void)state;
    for (int i = 0; i < ATTN_BLOCK; i++) x[i] = draw_real();
    for (size_t n = 0; n < sizeof strides / sizeof *strides; n++) {
        int64_t lengths[1] = {1};
        attn_error error;
        const attn_cache c = {.struct_size = sizeof c,
                              .batch = 1,
                              .heads_kv = 1,
                              .capacity = 2,
                              .dim_qk = ATTN_BLOCK,
                              .dim_v = ATTN_BLOCK,
                              .k = {k, ATTN_Q8_0, {2, 2, 1, strides[n]}},
                              .v = {v, ATTN_Q8_0, {2, 2, 1, strides[n]}},
                              .lengths = attn_out(lengths)};
        const attn_cache_tokens tokens = {.struct_size = sizeof tokens, .len = 1, .k = attn_in(x), .v = attn_in(x)};
        if (attn_cache_append(&c, &tokens, &error) != ATTN_OK) fail_msg("stride %d: %s", (int)n, error.message);
        if (n == 0) memcpy(first, k + 34, sizeof first);
        assert_memory_equal(k + 34, first, sizeof first);
        assert_memory_equal(v + 34, first, sizeof first);
    }
}

static void test_rejected(void **state)
{
    static float x[2 * DIM];
    static unsigned char k[2 * DIM * 2];
    static uint16_t tail[ATTN_TAIL * 64];
    int64_t lengths[1] = {0};
    float scale[2] = {0};
    (void)state;
#define CACHE(changes, status, text)                                                                                               \
    do {                                                                                                                           \
        attn_cache c = {.struct_size = sizeof c,                                                                                   \
                        .batch = 1,                                                                                                \
                        .heads_kv = 1,                                                                                             \
                        .capacity = 2,                                                                                             \
                        .dim_qk = 64,                                                                                              \
                        .dim_v = 64,                                                                                               \
                        .k = {k, ATTN_Q8_0, {0, 0, 0, 0}},                                                                         \
                        .v = {k + 2 * DIM, ATTN_F32, {0, 0, 0, 0}},                                                                \
                        .lengths = attn_out(lengths)};                                                                             \
        const attn_cache_tokens tokens = {.struct_size = sizeof tokens, .len = 1, .k = attn_in(x), .v = attn_in(x)};               \
        changes;                                                                                                                   \
        FAILS(attn_cache_append(&c, &tokens, &error), status, text);                                                               \
        assert_true(lengths[0] == 0 && k[0] == 0);                                                                                 \
    } while (0)
    CACHE(c.dim_qk = 48, ATTN_ERR_SHAPE, "cache: k is q8_0 and its rows have 48 channels; blocks need a multiple of 32");
    CACHE(c.k_scale = attn_out(scale), ATTN_ERR_ARGUMENT, "cache: k_scale is set and k is q8_0; only i8 and f8 have scales");
    CACHE(c.k.stride[0] = c.k.stride[1] = c.k.stride[2] = 2;
          c.k.stride[3] = 2, ATTN_ERR_STRIDE, "cache: k.stride[3] is 2; the last axis must be contiguous (1)");
    CACHE((c.k.stride[1] = c.k.stride[0] = 4, c.k.stride[2] = 1, c.k.stride[3] = 1), ATTN_ERR_STRIDE,
          "cache: k.stride[3] is 1; its elements overlap");
    const attn_input src = attn_in(x);
    const attn_output to = {k, ATTN_Q4_0, {0, 0, 0, 0}}, scales = attn_out(scale);
    FAILS(attn_quantise(1, 40, &src, &to, NULL, &error), ATTN_ERR_SHAPE,
          "quantise: values is q4_0 and dim is 40; blocks need a multiple of 32");
    FAILS(attn_quantise(1, 64, &src, &to, &scales, &error), ATTN_ERR_ARGUMENT,
          "quantise: scales is set and values is q4_0, which has its own");
#define PROBLEM(changes, status, text)                                                                                             \
    do {                                                                                                                           \
        attn_problem p = {.struct_size = sizeof p, .shape = {1, 1, 1, 1, 2, 64, 64}};                                              \
        attn_tensors t = {                                                                                                         \
            .struct_size = sizeof t, .q = attn_in(x), .k = {k, ATTN_Q8_0, {0, 0, 0, 0}}, .v = attn_in(x), .o = attn_out(x)};       \
        changes;                                                                                                                   \
        FAILS(attn_compute(&p, &t, &error), status, text);                                                                         \
    } while (0)
    PROBLEM(p.shape.dim_qk = 80, ATTN_ERR_SHAPE, "k.dtype is q8_0 and its rows have 80 channels; blocks need a multiple of 32");
    PROBLEM(t.k_scale = attn_in(scale), ATTN_ERR_ARGUMENT, "k_scale is set and k.dtype is neither i8 nor f8");
    PROBLEM(t.q.dtype = ATTN_Q8_0, ATTN_ERR_UNSUPPORTED, "q.dtype is q8_0; it must be f32, f64, f16 or bf16");
    PROBLEM(t.o.dtype = ATTN_F8_E5M2, ATTN_ERR_UNSUPPORTED, "o.dtype is f8_e5m2; it must be f32, f16 or bf16, as q is not f64");
    PROBLEM((t.q.dtype = ATTN_F64, t.k.dtype = ATTN_F8_E4M3), ATTN_ERR_UNSUPPORTED,
            "k.dtype is f8_e4m3; it must be f64, as q is f64");
#define BY_CHANNEL(changes, status, text)                                                                                          \
    PROBLEM((t.k.dtype = ATTN_Q4_1C, t.k_tail = (attn_input){tail, ATTN_F16, {0, 0, 0, 0}}, changes), status, text)
    BY_CHANNEL(t.v = t.k, ATTN_ERR_UNSUPPORTED, "v.dtype is q4_1c; only keys are quantised by channel");
    BY_CHANNEL(t.k.dtype = ATTN_Q4_1, ATTN_ERR_ARGUMENT, "k_tail is set and k.dtype is q4_1; only keys of q4_1c have a tail");
    BY_CHANNEL(memset(&t.k_tail, 0, sizeof t.k_tail), ATTN_ERR_ARGUMENT,
               "k_tail is missing; k.dtype is q4_1c, and keys of a group that is not full are there");
    BY_CHANNEL(t.k_tail.dtype = ATTN_BF16, ATTN_ERR_UNSUPPORTED, "k_tail.dtype is bf16; it must be f16");
    BY_CHANNEL(t.cu_seqlens_q = t.cu_seqlens_kv = attn_in(lengths), ATTN_ERR_UNSUPPORTED,
               "k.dtype is q4_1c and cu_seqlens_kv is set; a sequence begins with a group of 32 keys");
    BY_CHANNEL(p.score.kind = ATTN_SCORE_COSINE, ATTN_ERR_UNSUPPORTED,
               "k.dtype is q4_1c; keys by channel have neither cosines nor distances");
    BY_CHANNEL((p.paging.page_size = 16, p.paging.pages = 2, t.page_table = attn_in(lengths)), ATTN_ERR_SHAPE,
               "k.dtype is q4_1c and paging.page_size is 16; it must be a multiple of 32");
    BY_CHANNEL(p.op = ATTN_JVP, ATTN_ERR_UNSUPPORTED,
               "k.dtype is q4_1c and op is not ATTN_FORWARD; quantised keys and values have no gradients");
}

/* Values in the memory of the keys, with scales of their own, also where keys have none, over few queries and over tiles. */
static void test_latents(void **state)
{
    enum { LATENT_HEADS = 16, MOST = 12, LATENTS = 40, WIDTH = 32 };
    static const int64_t counts[] = {1, 4, MOST};
    static float x[LATENT_HEADS * MOST * WIDTH], o[LATENT_HEADS * MOST * WIDTH], ones[LATENTS], twos[LATENTS];
    static uint8_t latents[LATENTS * WIDTH];
    (void)state;
    memset(latents, 0x38, sizeof latents); /* 1 in e4m3 */
    for (int j = 0; j < LATENTS; j++) ones[j] = 1, twos[j] = 2;
    for (size_t n = 0; n < sizeof counts / sizeof *counts; n++)
        for (int scaled = 0; scaled < 3; scaled++) {
            const attn_problem p = {.struct_size = sizeof p, .shape = {1, LATENT_HEADS, 1, counts[n], LATENTS, WIDTH, WIDTH}};
            attn_tensors t = {.struct_size = sizeof t, .q = attn_in(x), .o = attn_out(o)};
            t.k = t.v = (attn_input){latents, ATTN_F8_E4M3, {0, 0, 0, 0}};
            if (scaled < 2) t.k_scale = attn_in(scaled ? ones : twos);
            t.v_scale = attn_in(scaled ? twos : ones);
            attn_error error;
            if (attn_compute(&p, &t, &error) != ATTN_OK) fail_msg("%s", error.message);
            for (int64_t i = 0; i < LATENT_HEADS * counts[n] * WIDTH; i++)
                if (fabsf(o[i] - (scaled ? 2.0f : 1.0f)) > 1e-5f)
                    fail_msg("%d queries, scaled %d: o[%d] is %g", (int)counts[n], scaled, (int)i, (double)o[i]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_quantised),    cmocka_unit_test(test_attention),
                                       cmocka_unit_test(test_appended),     cmocka_unit_test(test_latents),
                                       cmocka_unit_test(test_hidden_scale), cmocka_unit_test(test_one_block),
                                       cmocka_unit_test(test_rejected)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
