/* SPDX-License-Identifier: MIT
 * test_convolution.c - the short causal convolution against its definition, forward and backward, over ragged batches with states
 * in slots and snapshots; and that bits depend neither on the batch nor on where a sequence is cut, nor on threads. */
#include "test.h"

#include <math.h>
#include <stdlib.h>

#include "attn/convolution.h"
#include "attn_ref.h"
#include "testing/random/random.h"

enum { CHANNELS = 300, SEQUENCES = 6, TOKENS = 81, MOST = 40, SNAPSHOTS = 3, POOL = 24, WIDEST = 4 };

static const int64_t starts[SEQUENCES + 1] = {0, 5, 5, 6, 46, 48, TOKENS};
static const int32_t initial_slots[SEQUENCES] = {20, 21, -1, 22, 23, -1};
static const int32_t final_slots[SEQUENCES][SNAPSHOTS] = {{20, 0, 1},  {2, -1, 4},   {5, 6, 7},
                                                          {-1, 9, 10}, {11, 23, 13}, {14, 15, -1}};

typedef struct numbers {
    double *exact;
    unsigned char *data;
    int64_t count;
} numbers;

typedef struct fixture {
    attn_convolution_problem problem;
    attn_dtype dtype;
    size_t size;
    numbers x, y, weight, bias, pool, after, dy, dafter, dx, dweight, dbias, dbefore;
} fixture;

static numbers draw(int64_t count, attn_dtype dtype, random_state *random)
{
    numbers n = {calloc((size_t)count, sizeof(double)), calloc((size_t)count, attn_dtype_size(dtype)), count};
    assert_true(n.exact && n.data);
    for (int64_t i = 0; i < count; i++) n.exact[i] = 2 * random_signed(random);
    (void)attn_convert(count, n.exact, ATTN_F64, n.data, dtype, NULL);
    (void)attn_convert(count, n.data, dtype, n.exact, ATTN_F64, NULL);
    return n;
}

static void release(numbers *n)
{
    free(n->exact);
    free(n->data);
}

static attn_dtype compute_of(const fixture *f) { return f->dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32; }

static void open_fixture(fixture *f, attn_dtype dtype, int width, int silu)
{
    random_state random = random_from(31 + (uint64_t)width);
    const int64_t rows = TOKENS * CHANNELS, state = (width - 1) * CHANNELS;
    *f = (fixture){.dtype = dtype, .size = attn_dtype_size(dtype)};
    f->problem = (attn_convolution_problem){
        .struct_size = sizeof f->problem, .width = width, .silu = silu, .batch = SEQUENCES, .len = MOST, .channels = CHANNELS};
    f->x = draw(rows, dtype, &random);
    f->y = draw(rows, dtype, &random);
    f->weight = draw(width * CHANNELS, compute_of(f), &random);
    f->bias = draw(CHANNELS, compute_of(f), &random);
    f->pool = draw(POOL * state, dtype, &random);
    f->after = draw(POOL * state, dtype, &random);
    f->dy = draw(rows, dtype, &random);
    f->dafter = draw(SEQUENCES * state, dtype, &random);
    f->dx = draw(rows, dtype, &random);
    f->dweight = draw(width * CHANNELS, compute_of(f), &random);
    f->dbias = draw(CHANNELS, compute_of(f), &random);
    f->dbefore = draw(SEQUENCES * state, dtype, &random);
}

static void close_fixture(fixture *f)
{
    numbers *const all[] = {&f->x,  &f->y,      &f->weight, &f->bias,    &f->pool,  &f->after,
                            &f->dy, &f->dafter, &f->dx,     &f->dweight, &f->dbias, &f->dbefore};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) release(all[i]);
}

static unsigned char *at(const fixture *f, const numbers *n, int64_t row) { return n->data + row * CHANNELS * (int64_t)f->size; }

static void run(const attn_convolution_problem *p, const attn_convolution_tensors *t, int threads)
{
    const attn_options options = {.struct_size = sizeof options, .threads = threads};
    attn_error error;
    if (attn_convolution(p, t, &options, &error)) fail_msg("%s", error.message);
}

static attn_convolution_tensors forward_tensors(const fixture *f)
{
    return (attn_convolution_tensors){.struct_size = sizeof(attn_convolution_tensors),
                                      .x = {f->x.data, f->dtype, {0, 0, 0, 0}},
                                      .y = attn_out(f->y.data),
                                      .weight = attn_in(f->weight.data),
                                      .bias = attn_in(f->bias.data),
                                      .cu_seqlens = attn_in(starts)};
}

/* Every number within `terms` roundings of the sum of absolute values, and one of the storage type. */
static void compare(const fixture *f, const unsigned char *data, attn_dtype dtype, const double *exact, const double *sums,
                    int64_t count, double terms, const char *what)
{
    const double unit = compute_of(f) == ATTN_F64 ? 0x1p-53 : 0x1p-24;
    const double rounding = dtype == ATTN_F16 ? 0x1p-11 : dtype == ATTN_BF16 ? 0x1p-8 : 0;
    for (int64_t i = 0; i < count; i++) {
        double x;
        (void)attn_convert(1, data + i * (int64_t)attn_dtype_size(dtype), dtype, &x, ATTN_F64, NULL);
        const double bound = unit * terms * sums[i] + rounding * fabs(exact[i]) * 1.01 + (dtype == ATTN_F16 ? 0x1p-25 : 0);
        if (!(fabs(x - exact[i]) <= bound))
            fail_msg("%s[%d] is %.9g, should be %.9g, bound %.3g (%s, width %d, silu %d)", what, (int)i, x, exact[i], bound,
                     attn_dtype_name(f->dtype), f->problem.width, f->problem.silu);
    }
}

static double *absolute(const double *x, int64_t count)
{
    double *to = calloc((size_t)count + 1, sizeof *to);
    assert_non_null(to);
    for (int64_t i = 0; x && i < count; i++) to[i] = fabs(x[i]);
    return to;
}

static ref_convolution ref_of(const fixture *f, int64_t b, const double *before, int bias)
{
    return (ref_convolution){.L = starts[b + 1] - starts[b],
                             .C = CHANNELS,
                             .W = f->problem.width,
                             .silu = f->problem.silu,
                             .x = f->x.exact + starts[b] * CHANNELS,
                             .weight = f->weight.exact,
                             .bias = bias ? f->bias.exact : NULL,
                             .before = before};
}

/* The same with absolute values; the arrays are to be freed by release_absolute. */
static ref_convolution absolute_of(const ref_convolution *r)
{
    ref_convolution a = *r;
    a.absolute = 1;
    a.x = absolute(r->x, r->L * r->C);
    a.weight = absolute(r->weight, r->W * r->C);
    a.bias = absolute(r->bias, r->C);
    a.before = absolute(r->before, (r->W - 1) * r->C);
    return a;
}

static void release_absolute(const ref_convolution *a)
{
    const double *const all[] = {a->x, a->weight, a->bias, a->before};
    for (int i = 0; i < 4; i++) free((void *)(uintptr_t)all[i]);
}

/* The last inputs of sequence b without its last j tokens, as they are stored. */
static void expect_state(const fixture *f, int64_t b, int64_t j)
{
    const int64_t before = f->problem.width - 1, len = starts[b + 1] - starts[b], row = final_slots[b][j];
    const size_t bytes = CHANNELS * f->size;
    for (int64_t i = 0; i < before; i++) {
        const int64_t t = len - j - before + i;
        const unsigned char *from = t >= 0 ? at(f, &f->x, starts[b] + t) : NULL;
        if (t < 0 && initial_slots[b] >= 0) from = at(f, &f->pool, initial_slots[b] * before + t + before);
        const unsigned char *got = at(f, &f->after, row * before + i);
        for (size_t k = 0; k < bytes; k++) assert_int_equal(got[k], from ? from[k] : 0);
    }
}

static void check_states(const fixture *f, const unsigned char *untouched)
{
    const int64_t before = f->problem.width - 1;
    int written[POOL] = {0};
    for (int64_t b = 0; b < SEQUENCES; b++)
        for (int64_t j = 0; j < SNAPSHOTS && j <= starts[b + 1] - starts[b]; j++) {
            if (final_slots[b][j] < 0) continue;
            written[final_slots[b][j]] = 1;
            expect_state(f, b, j);
        }
    for (int64_t row = 0; row < POOL; row++) {
        const size_t bytes = (size_t)before * CHANNELS * f->size;
        if (!written[row]) assert_memory_equal(at(f, &f->after, row * before), untouched + (size_t)row * bytes, bytes);
    }
}

static void check_forward(fixture *f)
{
    const int64_t before = f->problem.width - 1, state = before * CHANNELS;
    double *y = calloc(TOKENS * CHANNELS, sizeof *y), *after = calloc(WIDEST * CHANNELS, sizeof *after),
           *sums = calloc(TOKENS * CHANNELS, sizeof *sums);
    assert_true(y && after && sums);
    for (int64_t b = 0; b < SEQUENCES; b++) {
        const ref_convolution r = ref_of(f, b, initial_slots[b] < 0 ? NULL : f->pool.exact + initial_slots[b] * state, 1),
                              a = absolute_of(&r);
        ref_convolution_forward(&r, y, after);
        ref_convolution_forward(&a, sums, after);
        compare(f, at(f, &f->y, starts[b]), f->dtype, y, sums, r.L * CHANNELS, 30, "y");
        release_absolute(&a);
    }
    free(y);
    free(after);
    free(sums);
}

/* Token by token, each sequence by itself, with its state in place: the bits of the batch. */
static void check_updates(const fixture *f, const unsigned char *y)
{
    const int64_t before = f->problem.width - 1;
    const size_t bytes = CHANNELS * f->size;
    for (int64_t b = 0; b < SEQUENCES; b++) {
        attn_convolution_problem p = f->problem;
        attn_convolution_tensors t = forward_tensors(f);
        unsigned char *state = calloc((size_t)before, bytes), *out = malloc(bytes);
        assert_true(state && out);
        if (initial_slots[b] >= 0) memcpy(state, at(f, &f->pool, initial_slots[b] * before), (size_t)before * bytes);
        p.batch = p.len = 1;
        p.pool = p.snapshots = 0;
        memset(&t.cu_seqlens, 0, sizeof t.cu_seqlens);
        t.initial_state = attn_in(state);
        t.final_state = attn_out(state);
        t.y = attn_out(out);
        for (int64_t token = starts[b]; token < starts[b + 1]; token++) {
            t.x.data = at(f, &f->x, token);
            run(&p, &t, 1);
            assert_memory_equal(out, y + (size_t)token * bytes, bytes);
        }
        free(state);
        free(out);
    }
}

static const attn_dtype types[] = {ATTN_F32, ATTN_BF16, ATTN_F16, ATTN_F64};

#define EACH_CASE(f, body)                                                                                                         \
    for (size_t d = 0; d < sizeof types / sizeof *types; d++)                                                                      \
        for (int width = 2; width <= WIDEST; width++)                                                                              \
            for (int silu = 0; silu < 2; silu++) {                                                                                 \
                open_fixture(f, types[d], width, silu);                                                                            \
                body;                                                                                                              \
                close_fixture(f);                                                                                                  \
            }

static void forward(fixture *f)
{
    attn_convolution_tensors t = forward_tensors(f);
    const size_t bytes = (size_t)f->after.count * f->size, out = (size_t)f->y.count * f->size;
    unsigned char *untouched = malloc(bytes), *y = malloc(out);
    assert_true(untouched && y);
    f->problem.pool = POOL;
    f->problem.snapshots = SNAPSHOTS;
    t.initial_state = attn_in(f->pool.data);
    t.final_state = attn_out(f->after.data);
    t.initial_slots = (attn_input){initial_slots, ATTN_I32, {0, 0, 0, 0}};
    t.final_slots = (attn_input){final_slots, ATTN_I32, {0, 0, 0, 0}};
    memcpy(untouched, f->after.data, bytes);
    run(&f->problem, &t, 1);
    check_forward(f);
    check_states(f, untouched);
    memcpy(y, f->y.data, out);
    run(&f->problem, &t, 2);
    assert_memory_equal(y, f->y.data, out);
    check_updates(f, y);
    /* In one pool, as engines do it. */
    memcpy(untouched, f->after.data, bytes);
    memcpy(f->after.data, f->pool.data, bytes);
    t.initial_state = attn_in(f->after.data);
    run(&f->problem, &t, 1);
    assert_memory_equal(y, f->y.data, out);
    for (int64_t b = 0; b < SEQUENCES; b++)
        for (int64_t j = 0; j < SNAPSHOTS && j <= starts[b + 1] - starts[b]; j++)
            if (final_slots[b][j] >= 0) expect_state(f, b, j);
    free(untouched);
    free(y);
}

static void test_forward(void **state)
{
    fixture f;
    (void)state;
    EACH_CASE(&f, forward(&f));
}

static void backward(fixture *f, int bias, int states)
{
    attn_convolution_tensors t = forward_tensors(f);
    const int64_t state = (f->problem.width - 1) * CHANNELS, width = f->problem.width;
    double *dweight = calloc(WIDEST * CHANNELS, sizeof(double)), *dbias = calloc(CHANNELS, sizeof(double)),
           *most = calloc(WIDEST * CHANNELS, sizeof(double)), *most_bias = calloc(CHANNELS, sizeof(double)),
           *dx = calloc(MOST * CHANNELS, sizeof(double)), *before = calloc(WIDEST * CHANNELS, sizeof(double)),
           *sums = calloc(MOST * CHANNELS, sizeof(double)), *sums_before = calloc(WIDEST * CHANNELS, sizeof(double));
    assert_true(dweight && dbias && most && most_bias && dx && before && sums && sums_before);
    f->problem.op = ATTN_BACKWARD;
    memset(&t.y, 0, sizeof t.y);
    if (!bias) memset(&t.bias, 0, sizeof t.bias);
    t.grad_y = attn_in(f->dy.data);
    t.grad_x = attn_out(f->dx.data);
    t.grad_weight = attn_out(f->dweight.data);
    if (bias) t.grad_bias = attn_out(f->dbias.data);
    if (states) {
        t.initial_state = attn_in(f->pool.data);
        t.grad_final_state = attn_in(f->dafter.data);
        t.grad_initial_state = attn_out(f->dbefore.data);
    }
    run(&f->problem, &t, 2);
    for (int64_t b = 0; b < SEQUENCES; b++) {
        const ref_convolution r = ref_of(f, b, states ? f->pool.exact + b * state : NULL, bias), a = absolute_of(&r);
        double *dy = absolute(f->dy.exact + starts[b] * CHANNELS, r.L * CHANNELS),
               *dafter = absolute(f->dafter.exact + b * state, state);
        ref_convolution_backward(&r, f->dy.exact + starts[b] * CHANNELS, states ? f->dafter.exact + b * state : NULL, dx, before,
                                 dweight, dbias);
        ref_convolution_backward(&a, dy, states ? dafter : NULL, sums, sums_before, most, most_bias);
        compare(f, at(f, &f->dx, starts[b]), f->dtype, dx, sums, r.L * CHANNELS, 60, "dx");
        if (states) compare(f, at(f, &f->dbefore, b * (width - 1)), f->dtype, before, sums_before, state, 60, "dbefore");
        release_absolute(&a);
        free(dy);
        free(dafter);
    }
    compare(f, f->dweight.data, compute_of(f), dweight, most, width * CHANNELS, 60 + TOKENS, "dweight");
    if (bias) compare(f, f->dbias.data, compute_of(f), dbias, most_bias, CHANNELS, 60 + TOKENS, "dbias");
    const size_t bytes = (size_t)f->dweight.count * attn_dtype_size(compute_of(f));
    unsigned char *kept = malloc(bytes);
    assert_non_null(kept);
    memcpy(kept, f->dweight.data, bytes);
    run(&f->problem, &t, 1);
    assert_memory_equal(kept, f->dweight.data, bytes);
    double *const all[] = {dweight, dbias, most, most_bias, dx, before, sums, sums_before};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    free(kept);
}

static void test_backward(void **state)
{
    fixture f;
    (void)state;
    EACH_CASE(&f, backward(&f, silu, width != 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forward), cmocka_unit_test(test_backward)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
