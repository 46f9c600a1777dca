/* SPDX-License-Identifier: MIT
 * test_merge.c - parts of the keys merge to the whole (P19 of docs/coverage.md), for any split; in every type, on every instruction
 * set and any number of threads; in place; the gradient against differences. */
#include "test.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>

#include "attn/merge.h"
#include "fnv.h"
#include "on_threads.h"
#include "testing/random/random.h"
#include "testing/random/share.h"

enum { B = 2, H = 3, SQ = 7, SKV = 50, D = 6, DV = 5, PARTS = 4 };

static random_state source = {7};
static double draw(void) { return random_signed(&source); }

static double q[B][H][SQ][D], k[B][H][SKV][D], v[B][H][SKV][DV];

/* Attention over keys low .. high-1 only. */
static void part(int64_t low, int64_t high, double *o, double *lse)
{
    const attn_problem p = {.struct_size = sizeof p, .shape = {B, H, H, SQ, high - low, D, DV}};
    const attn_tensors t = {.struct_size = sizeof t,
                            .q = {q, ATTN_F64, {0, 0, 0, 0}},
                            .k = {k[0][0][0] + low * D, ATTN_F64, {H * SKV * D, SKV * D, D, 1}},
                            .v = {v[0][0][0] + low * DV, ATTN_F64, {H * SKV * DV, SKV * DV, DV, 1}},
                            .o = attn_out(o),
                            .lse = attn_out(lse)};
    assert_int_equal(attn_compute(&p, &t, NULL), ATTN_OK);
}

static const attn_merge_problem whole = {
    .struct_size = sizeof whole, .parts = PARTS, .batch = B, .heads = H, .len_q = SQ, .dim_v = DV};

static attn_input f64(const void *data) { return (attn_input){data, ATTN_F64, {0, 0, 0, 0}}; }

static void test_split(void **state)
{
    static double o[PARTS][B][H][SQ][DV], lse[PARTS][B][H][SQ], all_o[B][H][SQ][DV], all_lse[B][H][SQ], got[B][H][SQ][DV],
        got_lse[B][H][SQ];
    static const int64_t cuts[][PARTS + 1] = {{0, 10, 20, 30, 50}, {0, 0, 1, 49, 50}, {0, 50, 50, 50, 50}, {0, 7, 7, 8, 50}};
    (void)state;
    for (double *x = &q[0][0][0][0]; x < &q[0][0][0][0] + sizeof q / 8; x++) *x = 3 * draw();
    for (double *x = &k[0][0][0][0]; x < &k[0][0][0][0] + sizeof k / 8; x++) *x = 3 * draw();
    for (double *x = &v[0][0][0][0]; x < &v[0][0][0][0] + sizeof v / 8; x++) *x = draw();
    part(0, SKV, &all_o[0][0][0][0], &all_lse[0][0][0]);
    for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
        attn_input os[PARTS], lses[PARTS];
        for (int i = 0; i < PARTS; i++) {
            part(cuts[c][i], cuts[c][i + 1], &o[i][0][0][0][0], &lse[i][0][0][0]);
            os[i] = f64(o[i]), lses[i] = attn_in(lse[i]);
            if (cuts[c][i] == cuts[c][i + 1]) memset(o[i], 0xff, sizeof o[i]); /* NaN in a part without keys has no effect */
        }
        const attn_merge_tensors t = {
            .struct_size = sizeof t, .o_parts = os, .lse_parts = lses, .o = attn_out(got), .lse = attn_out(got_lse)};
        assert_int_equal(attn_merge(&whole, &t, NULL, NULL), ATTN_OK);
        for (size_t i = 0; i < sizeof got / 8; i++) assert_true(fabs((&got[0][0][0][0])[i] - (&all_o[0][0][0][0])[i]) < 1e-14);
        for (size_t i = 0; i < sizeof got_lse / 8; i++) assert_true(fabs((&got_lse[0][0][0])[i] - (&all_lse[0][0][0])[i]) < 1e-14);
    }
}

/* NaN in a part with keys is in the result, also if the part's weight is rounded to 0; not in one without. */
static void test_nan(void **state)
{
    enum { MOST = 40, WIDTH = 19 };
    static float o[MOST][WIDTH], lse[MOST], got[WIDTH];
    attn_cpu_description cpu = {.struct_size = sizeof cpu};
    (void)state;
    assert_int_equal(attn_cpu_describe(&cpu, NULL), ATTN_OK);
    for (int isa = ATTN_ISA_SCALAR; isa <= (int)cpu.isa; isa++)
        for (int n = 0; n < 8 && !isa_is_foreign(isa); n++) { /* up to 32 parts get their weights together */
            const int parts = n / 4 ? MOST : 2, at = n % 2 ? parts - 1 : 0, has_keys = n / 2 % 2;
            const attn_options options = {.struct_size = sizeof options, .isa = (attn_isa)isa, .threads = 1};
            const attn_merge_problem p = {
                .struct_size = sizeof p, .parts = parts, .batch = 1, .heads = 1, .len_q = 1, .dim_v = WIDTH};
            attn_input os[MOST], lses[MOST];
            for (int i = 0; i < parts; i++) os[i] = attn_in(o[i]), lses[i] = attn_in(&lse[i]), lse[i] = 0;
            lse[at] = has_keys ? -1e4f : -INFINITY;
            for (int d = 0; d < WIDTH; d++) o[at][d] = d % 2 ? NAN : 1;
            const attn_merge_tensors t = {.struct_size = sizeof t, .o_parts = os, .lse_parts = lses, .o = attn_out(got)};
            assert_int_equal(attn_merge(&p, &t, &options, NULL), ATTN_OK);
            for (int d = 0; d < WIDTH; d++) {
                assert_int_equal(isnan(got[d]) != 0, has_keys && d % 2);
                o[at][d] = 0;
            }
        }
}

/* Rows [heads][len] of `parts` parts in any type, and their merged result by definition. */
typedef struct case_of {
    int64_t parts, heads, len, dim;
    attn_dtype dtype, compute;
    double *o, *lse, *exact, *size, *exact_lse; /* size: sum of w |o|, the scale of the error */
    void *stored, *stored_lse, *got, *got_lse;
} case_of;

static case_of open_case(int64_t parts, int64_t heads, int64_t len, int64_t dim, attn_dtype dtype)
{
    case_of c = {.parts = parts, .heads = heads, .len = len, .dim = dim, .dtype = dtype};
    const int64_t rows = heads * len, n = parts * rows * dim;
    c.compute = dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    c.o = calloc((size_t)n + 1, 8), c.lse = calloc((size_t)(parts * rows) + 1, 8);
    c.exact = calloc((size_t)(rows * dim) + 1, 8), c.size = calloc((size_t)(rows * dim) + 1, 8);
    c.exact_lse = calloc((size_t)rows + 1, 8);
    c.stored = calloc((size_t)n + 1, 8), c.stored_lse = calloc((size_t)(parts * rows) + 1, 8);
    c.got = calloc((size_t)(rows * dim) + 1, 8), c.got_lse = calloc((size_t)rows + 1, 8);
    for (int64_t i = 0; i < n; i++) c.o[i] = 2 * draw();
    for (int64_t i = 0; i < parts * rows; i++) c.lse[i] = i % 7 == 3 ? -INFINITY : 6 * draw();
    for (int64_t p = 0; p < parts; p++)
        for (int64_t r = 0; r < rows; r++)
            if (r % 11 == 5) c.lse[p * rows + r] = -INFINITY; /* whole rows without keys */
    (void)attn_convert(n, c.o, ATTN_F64, c.stored, dtype, NULL);
    (void)attn_convert(n, c.stored, dtype, c.o, ATTN_F64, NULL);
    (void)attn_convert(parts * rows, c.lse, ATTN_F64, c.stored_lse, c.compute, NULL);
    (void)attn_convert(parts * rows, c.stored_lse, c.compute, c.lse, ATTN_F64, NULL);
    for (int64_t r = 0; r < rows; r++) {
        double most = -INFINITY, sum = 0;
        for (int64_t p = 0; p < parts; p++) most = fmax(most, c.lse[p * rows + r]);
        for (int64_t p = 0; p < parts && most > -INFINITY; p++) sum += exp(c.lse[p * rows + r] - most);
        c.exact_lse[r] = sum > 0 ? most + log(sum) : -INFINITY;
        for (int64_t p = 0; p < parts; p++) {
            const double w = sum > 0 ? exp(c.lse[p * rows + r] - most) / sum : 0;
            for (int64_t d = 0; d < dim; d++) {
                c.exact[r * dim + d] += w * c.o[(p * rows + r) * dim + d];
                c.size[r * dim + d] += w * fabs(c.o[(p * rows + r) * dim + d]);
            }
        }
    }
    const size_t size = attn_dtype_size(dtype); /* NaN in parts of weight 0 */
    for (int64_t i = 0; i < parts * rows; i++)
        if (c.lse[i] == -INFINITY) memset((char *)c.stored + (size_t)(i * dim) * size, 0xff, (size_t)dim * size);
    return c;
}

static void close_case(case_of *c)
{
    void *all[] = {c->o, c->lse, c->exact, c->size, c->exact_lse, c->stored, c->stored_lse, c->got, c->got_lse};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static attn_merge_problem problem_of(const case_of *c)
{
    return (attn_merge_problem){.struct_size = sizeof(attn_merge_problem),
                                .parts = c->parts,
                                .batch = 1,
                                .heads = c->heads,
                                .len_q = c->len,
                                .dim_v = c->dim};
}

static void parts_of(const case_of *c, attn_input *os, attn_input *lses)
{
    const size_t size = attn_dtype_size(c->dtype), wide = attn_dtype_size(c->compute), rows = (size_t)(c->heads * c->len);
    for (int64_t p = 0; p < c->parts; p++) {
        os[p] = (attn_input){(char *)c->stored + (size_t)p * rows * (size_t)c->dim * size, c->dtype, {0, 0, 0, 0}};
        lses[p] = attn_in((char *)c->stored_lse + (size_t)p * rows * wide);
    }
}

static void run(case_of *c, const attn_options *options)
{
    attn_input *os = calloc((size_t)c->parts, sizeof *os), *lses = calloc((size_t)c->parts, sizeof *lses);
    const attn_merge_problem p = problem_of(c);
    const attn_merge_tensors t = {
        .struct_size = sizeof t, .o_parts = os, .lse_parts = lses, .o = attn_out(c->got), .lse = attn_out(c->got_lse)};
    attn_error error;
    parts_of(c, os, lses);
    if (attn_merge(&p, &t, options, &error)) fail_msg("%s", error.message);
    free(os);
    free(lses);
}

/* The largest error as a fraction of its bound: u (parts + 8) sum w |o|, and the rounding to the storage type. */
static double worst_error(const case_of *c)
{
    const double unit = c->compute == ATTN_F64 ? 0x1p-53 : 0x1p-24, rounding = c->dtype == ATTN_F16    ? 0x1p-11
                                                                               : c->dtype == ATTN_BF16 ? 0x1p-8
                                                                                                       : 0;
    double worst = 0;
    for (int64_t i = 0; i < c->heads * c->len * c->dim; i++) {
        double x;
        (void)attn_convert(1, (char *)c->got + (size_t)i * attn_dtype_size(c->dtype), c->dtype, &x, ATTN_F64, NULL);
        const double bound =
            unit * (double)(c->parts + 8) * c->size[i] + rounding * fabs(c->exact[i]) + (c->dtype == ATTN_F16 ? 0x1p-25 : 0);
        const double error = fabs(x - c->exact[i]);
        if (error != 0 && !(error <= worst * bound)) worst = error / bound;
    }
    for (int64_t r = 0; r < c->heads * c->len; r++) {
        double x;
        (void)attn_convert(1, (char *)c->got_lse + (size_t)r * attn_dtype_size(c->compute), c->compute, &x, ATTN_F64, NULL);
        const double bound = unit * ((double)c->parts + 8 + fabs(c->exact_lse[r])),
                     error = x == c->exact_lse[r] ? 0 : fabs(x - c->exact_lse[r]);
        if (error != 0 && !(error <= worst * bound)) worst = error / bound;
    }
    return worst;
}

static void test_types(void **state)
{
    static const int64_t parts[] = {1, 2, 5, 32, 33, 70}, dims[] = {0, 1, 7, 33, 64, 130, 300};
    static const attn_dtype types[] = {ATTN_F64, ATTN_F32, ATTN_F16, ATTN_BF16};
    double worst = 0;
    int runs = 0, number = 0;
    (void)state;
    for (int isa = ATTN_ISA_DEFAULT; isa <= ATTN_ISA_WASM128; isa++)
        for (int p = 0; p < 6; p++)
            for (int d = 0; d < 7; d++)
                for (int t = 0; t < 4; t++) {
                    const attn_options options = {.struct_size = sizeof options, .isa = (attn_isa)isa, .threads = 1};
                    attn_cpu_description cpu = {.struct_size = sizeof cpu};
                    assert_int_equal(attn_cpu_describe(&cpu, NULL), ATTN_OK);
                    if (isa > (int)cpu.isa || isa_is_foreign(isa) || !share_has(number++)) continue;
                    case_of c = open_case(parts[p], 2, 37, dims[d], types[t]);
                    run(&c, &options);
                    const double error = worst_error(&c);
                    if (!(error <= 1))
                        fail_msg("%s, isa %d, %d parts, dim %d: %g of the bound", attn_dtype_name(types[t]), isa, (int)parts[p],
                                 (int)dims[d], error);
                    worst = fmax(worst, error);
                    runs++;
                    close_case(&c);
                }
    print_message("worst error of %d cases: %.3f of the bound\n", runs, worst);
}

/* The same bits on any number of threads. */
static void test_threads(void **state)
{
    static const int64_t parts[] = {3, 40};
    (void)state;
    for (int p = 0; p < 2; p++) {
        case_of c = open_case(parts[p], 4, 333, 128, ATTN_F32);
        const attn_options one = {.struct_size = sizeof one, .threads = 1},
                           many = {.struct_size = sizeof many, .threads = ON_THREADS, .parallel_for = on_threads};
        const size_t bytes = (size_t)(c.heads * c.len * c.dim) * 4;
        void *kept = malloc(bytes);
        run(&c, &one);
        memcpy(kept, c.got, bytes);
        memset(c.got, 0xff, bytes);
        run(&c, &many);
        assert_memory_equal(kept, c.got, bytes);
        free(kept);
        close_case(&c);
    }
}

/* options.reproducible: every instruction set of this CPU gives the recorded bits of o, which are those of AVX2, and the same lse,
 * which uses log() of the C library. */
static void test_everywhere(void **state)
{
    static const attn_isa sets[] = {ATTN_ISA_AVX2, ATTN_ISA_AVX512, ATTN_ISA_NEON};
    static const attn_dtype types[] = {ATTN_F64, ATTN_F32, ATTN_F16, ATTN_BF16};
    static const int64_t parts[] = {2, 5, 40};
    const uint64_t recorded = 0xC2CA17F08F403593u;
    attn_cpu_description cpu = {.struct_size = sizeof cpu};
    uint64_t first_lse = 0;
    int sets_tried = 0;
    (void)state;
    assert_int_equal(attn_cpu_describe(&cpu, NULL), ATTN_OK);
    for (int n = 0; n < 3; n++) {
        const attn_options options = {.struct_size = sizeof options, .isa = sets[n], .reproducible = 1};
        uint64_t o = FNV_START, lse = o;
        if (sets[n] > cpu.isa || isa_is_foreign((int)sets[n])) continue;
        source = (random_state){7};
        for (int i = 0; i < 4 * 3; i++) {
            case_of c = open_case(parts[i / 4], 2, 37, 33, types[i % 4]);
            const size_t rows = (size_t)(c.heads * c.len);
            run(&c, &options);
            o = fnv_add(o, c.got, rows * (size_t)c.dim * attn_dtype_size(c.dtype));
            lse = fnv_add(lse, c.got_lse, rows * attn_dtype_size(c.compute));
            close_case(&c);
        }
        if (o != recorded) fail_msg("o on %s: %016" PRIx64, attn_isa_name(sets[n]), o);
        if (sets_tried++ == 0) first_lse = lse;
        if (lse != first_lse) fail_msg("lse on %s: %016" PRIx64 ", not %016" PRIx64, attn_isa_name(sets[n]), lse, first_lse);
    }
    if (sets_tried > 0) return;
    SKIP_BECAUSE("this CPU has only plain C, which is not reproducible");
}

/* o may be the o of any part, and lse its lse; any other overlap with a part is rejected. */
static void test_in_place(void **state)
{
    (void)state;
    for (int which = 0; which < 3; which++) {
        case_of c = open_case(3, 2, 40, 70, ATTN_BF16);
        attn_input os[3], lses[3];
        attn_error error;
        const attn_merge_problem p = problem_of(&c);
        run(&c, NULL);
        parts_of(&c, os, lses);
        attn_merge_tensors t = {.struct_size = sizeof t, .o_parts = os, .lse_parts = lses};
        t.o = attn_out((char *)(uintptr_t)os[which].data + 2);
        assert_int_equal(attn_merge(&p, &t, NULL, &error), ATTN_ERR_STRIDE);
        t.o = (attn_output){(void *)(uintptr_t)os[which].data, ATTN_BF16, {2 * 40 * 70, 70, 140, 1}};
        assert_int_equal(attn_merge(&p, &t, NULL, &error), ATTN_ERR_STRIDE);
        char text[96];
        (void)snprintf(text, sizeof text, "merge: o and o_parts[%d] share elements; an output must not overlap another tensor",
                       which);
        assert_string_equal(error.message, text);
        t.o = (attn_output){(void *)(uintptr_t)os[which].data, ATTN_BF16, {-7, 40 * 70, 70, 1}}; /* one batch entry */
        t.lse = attn_out((void *)(uintptr_t)lses[which].data);
        assert_int_equal(attn_merge(&p, &t, NULL, &error), ATTN_OK);
        assert_memory_equal(os[which].data, c.got, (size_t)(2 * 40 * 70) * 2);
        assert_memory_equal(lses[which].data, c.got_lse, (size_t)(2 * 40) * 4);
        close_case(&c);
    }
}

/* Parts that are interleaved in one buffer, token by token, and an output that runs backwards. */
static void test_strides(void **state)
{
    enum { N = 40, C = 12 };
    case_of c = open_case(2, 1, N, C, ATTN_F32);
    static float mixed[N][2][C], out[N][C];
    const attn_merge_problem p = problem_of(&c);
    attn_input os[2], lses[2];
    (void)state;
    run(&c, NULL);
    parts_of(&c, os, lses);
    for (int i = 0; i < N; i++)
        for (int part_number = 0; part_number < 2; part_number++)
            memcpy(mixed[i][part_number], (const float *)os[part_number].data + i * C, sizeof mixed[i][0]);
    for (int part_number = 0; part_number < 2; part_number++)
        os[part_number] = (attn_input){mixed[0][part_number], ATTN_F32, {0, 0, 2 * C, 1}};
    const attn_merge_tensors t = {
        .struct_size = sizeof t, .o_parts = os, .lse_parts = lses, .o = {out[N - 1], ATTN_F32, {0, 0, -C, 1}}};
    assert_int_equal(attn_merge(&p, &t, NULL, NULL), ATTN_OK);
    for (int i = 0; i < N; i++) assert_memory_equal(out[N - 1 - i], (float *)c.got + i * C, sizeof out[0]);
    close_case(&c);
}

static void test_gradient(void **state)
{
    static const int counts[] = {3, 40}; /* 40: more parts than are merged at once */
    enum { N = 40, C = 70 };
    static double o[N][C], lse[N], dO[C], dlse = 0.7, go[N][C], glse[N], out[C], out_lse;
    (void)state;
    for (int i = 0; i < 2; i++) {
        const int n = counts[i];
        const attn_merge_problem p = {.struct_size = sizeof p, .parts = n, .batch = 1, .heads = 1, .len_q = 1, .dim_v = C};
        attn_input os[N], lses[N];
        attn_output gos[N], glses[N];
        for (int r = 0; r < n; r++) {
            os[r] = f64(o[r]), lses[r] = attn_in(&lse[r]), gos[r] = attn_out(go[r]), glses[r] = attn_out(&glse[r]);
            lse[r] = draw();
            for (int c = 0; c < C; c++) o[r][c] = draw();
        }
        for (int c = 0; c < C; c++) dO[c] = draw();
        const attn_merge_tensors forward = {
            .struct_size = sizeof forward, .o_parts = os, .lse_parts = lses, .o = attn_out(out), .lse = attn_out(&out_lse)};
        const attn_merge_tensors back = {.struct_size = sizeof back,
                                         .o_parts = os,
                                         .lse_parts = lses,
                                         .grad_o = attn_in(dO),
                                         .grad_lse = attn_in(&dlse),
                                         .grad_o_parts = gos,
                                         .grad_lse_parts = glses};
        assert_int_equal(attn_merge_backward(&p, &back, NULL, NULL), ATTN_OK);
        for (int r = 0; r < n; r++)
            for (int c = -1; c < C; c += 1 + (n > 3) * 13) {
                double *x = c < 0 ? &lse[r] : &o[r][c], old = *x, loss[2];
                for (int side = 0; side < 2; side++) {
                    *x = old + (side ? 1e-6 : -1e-6);
                    assert_int_equal(attn_merge(&p, &forward, NULL, NULL), ATTN_OK);
                    loss[side] = dlse * out_lse;
                    for (int k2 = 0; k2 < C; k2++) loss[side] += dO[k2] * out[k2];
                }
                *x = old;
                assert_true(fabs((loss[1] - loss[0]) / 2e-6 - (c < 0 ? glse[r] : go[r][c])) < 1e-8);
            }
    }
}

/* The largest error of the gradients of a case, which are computed here by definition, as a fraction of its bound. */
static double worst_gradient_error(const case_of *c, const double *grad_o, const double *grad_lse, const void *got_o,
                                   const void *got_lse)
{
    const double unit = c->compute == ATTN_F64 ? 0x1p-53 : 0x1p-24;
    const double rounding = c->dtype == ATTN_F16    ? 0x1p-11
                            : c->dtype == ATTN_BF16 ? 0x1p-8
                                                    : 0,
                 least = c->dtype == ATTN_F16 ? 0x1p-25 : 0;
    const int64_t rows = c->heads * c->len;
    const double terms =
        (double)(c->parts + 8 + 2 * 12); /* lse - maximum, up to 12, is rounded before exp, in the library and here */
    double worst = 0, x;
    for (int64_t r = 0; r < rows; r++) {
        double all = 0, size = 0;
        for (int64_t d = 0; d < c->dim; d++) {
            all += grad_o[r * c->dim + d] * c->exact[r * c->dim + d];
            size += fabs(grad_o[r * c->dim + d]) * c->size[r * c->dim + d];
        }
        for (int64_t p = 0; p < c->parts; p++) {
            const int64_t row = p * rows + r;
            const double w = c->lse[row] > -INFINITY ? exp(c->lse[row] - c->exact_lse[r]) : 0;
            double inner = 0, inner_size = 0, error, bound;
            for (int64_t d = 0; d < c->dim; d++) {
                const double g = grad_o[r * c->dim + d], exact = w * g;
                inner += g * c->o[row * c->dim + d], inner_size += fabs(g * c->o[row * c->dim + d]);
                attn_convert(1, (const char *)got_o + (size_t)(row * c->dim + d) * attn_dtype_size(c->dtype), c->dtype, &x,
                             ATTN_F64, NULL);
                error = fabs(x - exact), bound = (unit * terms + rounding) * fabs(exact) + least;
                if (error != 0 && !(error <= worst * bound)) worst = error / bound;
            }
            attn_convert(1, (const char *)got_lse + (size_t)row * attn_dtype_size(c->compute), c->compute, &x, ATTN_F64, NULL);
            error = fabs(x - (w > 0 ? w * (inner - all + grad_lse[r]) : 0));
            bound = unit * (terms + (double)c->dim) * w * (inner_size + size + fabs(grad_lse[r]));
            if (error != 0 && !(error <= worst * bound)) worst = error / bound;
        }
    }
    return worst;
}

/* The gradients in every type, on every instruction set; those of parts of weight 0 are 0, whatever the parts hold. */
static void test_gradient_types(void **state)
{
    static const int64_t parts[] = {1, 5, 33}, dims[] = {0, 1, 33, 130};
    static const attn_dtype types[] = {ATTN_F64, ATTN_F32, ATTN_F16, ATTN_BF16};
    attn_cpu_description cpu = {.struct_size = sizeof cpu};
    (void)state;
    assert_int_equal(attn_cpu_describe(&cpu, NULL), ATTN_OK);
    for (int isa = ATTN_ISA_SCALAR; isa <= (int)cpu.isa; isa++)
        for (int i = 0; i < 3 * 4 * 4 && !isa_is_foreign(isa); i++) {
            if (!share_has(i + 48 * isa)) continue;
            case_of c = open_case(parts[i / 16], 2, 37, dims[i / 4 % 4], types[i % 4]);
            const attn_options options = {.struct_size = sizeof options, .isa = (attn_isa)isa, .threads = 1};
            const attn_merge_problem p = problem_of(&c);
            const int64_t rows = c.heads * c.len, n = rows * c.dim;
            double *grad_o = calloc((size_t)n + 1, 8), *grad_lse = calloc((size_t)rows, 8);
            void *stored = calloc((size_t)n + 1, 8), *stored_lse = calloc((size_t)rows, 8);
            char *got_o = malloc((size_t)(c.parts * n) * 8 + 8), *got_lse = malloc((size_t)(c.parts * rows) * 8);
            attn_input os[33], lses[33];
            attn_output gos[33], glses[33];
            attn_error error;
            for (int64_t e = 0; e < n; e++) grad_o[e] = 2 * draw();
            for (int64_t r = 0; r < rows; r++) grad_lse[r] = draw();
            attn_convert(n, grad_o, ATTN_F64, stored, c.dtype, NULL), attn_convert(n, stored, c.dtype, grad_o, ATTN_F64, NULL);
            attn_convert(rows, grad_lse, ATTN_F64, stored_lse, c.compute, NULL),
                attn_convert(rows, stored_lse, c.compute, grad_lse, ATTN_F64, NULL);
            parts_of(&c, os, lses);
            for (int64_t part_number = 0; part_number < c.parts; part_number++) {
                gos[part_number] =
                    (attn_output){got_o + (size_t)(part_number * n) * attn_dtype_size(c.dtype), c.dtype, {0, 0, 0, 0}};
                glses[part_number] = attn_out(got_lse + (size_t)(part_number * rows) * attn_dtype_size(c.compute));
            }
            attn_merge_tensors t = {.struct_size = sizeof t,
                                    .o_parts = os,
                                    .lse_parts = lses,
                                    .grad_o = {stored, c.dtype, {0, 0, 0, 0}},
                                    .grad_o_parts = gos,
                                    .grad_lse_parts = glses};
            for (int with_lse = 1; with_lse >= 0; with_lse--) {
                t.grad_lse = with_lse ? attn_in(stored_lse) : (attn_input){0};
                for (int64_t r = 0; !with_lse && r < rows; r++) grad_lse[r] = 0;
                if (attn_merge_backward(&p, &t, &options, &error)) fail_msg("%s", error.message);
                const double worst = worst_gradient_error(&c, grad_o, grad_lse, got_o, got_lse);
                if (!(worst <= 1))
                    fail_msg("%s, isa %d, %d parts, dim %d: %g of the bound", attn_dtype_name(c.dtype), isa, (int)c.parts,
                             (int)c.dim, worst);
            }
            void *all[] = {grad_o, grad_lse, stored, stored_lse, got_o, got_lse};
            for (size_t a = 0; a < sizeof all / sizeof *all; a++) free(all[a]);
            close_case(&c);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split),   cmocka_unit_test(test_nan),        cmocka_unit_test(test_types),
        cmocka_unit_test(test_threads), cmocka_unit_test(test_everywhere), cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_strides), cmocka_unit_test(test_gradient),   cmocka_unit_test(test_gradient_types)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
