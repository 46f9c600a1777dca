/* SPDX-License-Identifier: MIT
 *
 * test_latent.c - multi-head latent attention against loops in double, its gradients against differences of these loops, decoding
 * from the latent cache against the expanded form, and its weights in files.
 */
#include "by_loops.h"

#include "attn/latent.h"
#include "attn_ref.h"

enum { B = 2, SQ = 4, SKV = 5, E = 6, H = 2, OUT = 5, LARGEST = 200 };
enum { X, Z, QUERY_DOWN, QUERY, DOWN, UP, OUTPUT, QUERY_NORM, NORM, TENSORS };
static const char *const names[TENSORS] = {"x", "z", "query_down", "query", "down", "up", "output", "query_norm", "norm"};
enum { THIRD = 1000, SUM = 100 };

typedef struct variant {
    const char *name;
    int64_t dim, dim_v, rank, rank_query, rotary;
    int norms, cross, causal;
} variant;

static const variant variants[] = {
    {"plain", 3, 0, 4, 0, 0, 0, 0, 0},      {"rotated", 3, 4, 4, 0, 2, 0, 0, 1}, {"queries of low rank", 3, 2, 2, 3, 4, 0, 0, 1},
    {"with norms", 3, 2, 4, 3, 2, 1, 0, 0}, {"cross", 3, 0, 4, 3, 2, 1, 1, 0},   {"of its default rank", 0, 0, 0, 0, 2, 0, 0, 1},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

typedef struct sample {
    const variant *v;
    attn_latent latent;
    attn_problem attention;
    int64_t dim, dim_v, rank, len_kv, count[TENSORS];
    double x[TENSORS][LARGEST], grad_y[LARGEST];
} sample;

static void make(sample *s, const variant *v)
{
    random_state random = {5};
    memset(s, 0, sizeof *s);
    s->v = v;
    s->attention = (attn_problem){.struct_size = sizeof s->attention, .mask.causal = v->causal};
    s->latent = (attn_latent){.struct_size = sizeof s->latent,
                              .dim_model = E,
                              .dim_output = OUT,
                              .heads = H,
                              .head_dim = v->dim,
                              .head_dim_v = v->dim_v,
                              .rank = v->rank,
                              .rank_query = v->rank_query,
                              .dim_rotary = v->rotary,
                              .norm_epsilon = 0.01,
                              .attention = &s->attention};
    s->dim = v->dim ? v->dim : E / H;
    s->dim_v = v->dim_v ? v->dim_v : s->dim;
    s->rank = v->rank ? v->rank : s->dim;
    s->len_kv = v->cross ? SKV : SQ;
    const int64_t counts[TENSORS] = {B * SQ * E,
                                     v->cross ? B * SKV * E : 0,
                                     v->rank_query * E,
                                     H * (s->dim + v->rotary) * (v->rank_query ? v->rank_query : E),
                                     (s->rank + v->rotary) * E,
                                     H * (s->dim + s->dim_v) * s->rank,
                                     OUT * H * s->dim_v,
                                     v->norms ? v->rank_query : 0,
                                     v->norms ? s->rank : 0};
    for (int t = 0; t < TENSORS; t++) {
        assert_true(counts[t] <= LARGEST);
        s->count[t] = counts[t];
        for (int64_t i = 0; i < counts[t]; i++) s->x[t][i] = (float)(random_signed(&random) + (t >= QUERY_NORM)); /* exact in f32 */
    }
    for (int64_t i = 0; i < B * SQ * OUT; i++) s->grad_y[i] = (float)random_signed(&random);
}

/* ---- by definition ---- */

static void linear(const double *x, const double *w, int64_t rows, int64_t in, int64_t out, double *y)
{
    for (int64_t n = 0; n < rows * out; n++) {
        y[n] = 0;
        for (int64_t i = 0; i < in; i++) y[n] += x[n / out * in + i] * w[n % out * in + i];
    }
}

static void norm(double *x, const double *w, int64_t rows, int64_t stride, int64_t channels)
{
    for (int64_t r = 0; r < rows; r++) {
        double square = 0;
        for (int64_t i = 0; i < channels; i++) square += x[r * stride + i] * x[r * stride + i];
        for (int64_t i = 0; i < channels; i++) x[r * stride + i] *= w[i] / sqrt(square / (double)channels + 0.01);
    }
}

/* Rotates neighbouring channels 2i and 2i+1 by t * 10000^(-2i/n). */
static void rotate(double *x, int64_t n, int64_t t)
{
    for (int64_t i = 0; i < n; i += 2) {
        const double angle = (double)t * pow(10000, -(double)i / (double)n), u = x[i], v = x[i + 1];
        x[i] = u * cos(angle) - v * sin(angle);
        x[i + 1] = u * sin(angle) + v * cos(angle);
    }
}

/* Returns <grad_y, y>. */
static double reference(const sample *s, double *y)
{
    static double cq[LARGEST], q[LARGEST], ckr[LARGEST], c[LARGEST], up[LARGEST], Q[LARGEST], K[LARGEST], V[LARGEST], O[LARGEST],
        lse[LARGEST], S[LARGEST], P[LARGEST], a[LARGEST];
    const variant *v = s->v;
    const int64_t T = s->len_kv, width = s->dim + v->rotary, wide = s->rank + v->rotary, both = s->dim + s->dim_v;
    double sum = 0;
    if (v->rank_query) {
        linear(s->x[X], s->x[QUERY_DOWN], B * SQ, E, v->rank_query, cq);
        if (v->norms) norm(cq, s->x[QUERY_NORM], B * SQ, v->rank_query, v->rank_query);
        linear(cq, s->x[QUERY], B * SQ, v->rank_query, H * width, q);
    } else linear(s->x[X], s->x[QUERY], B * SQ, E, H * width, q);
    linear(v->cross ? s->x[Z] : s->x[X], s->x[DOWN], B * T, E, wide, ckr);
    if (v->norms) norm(ckr, s->x[NORM], B * T, wide, s->rank);
    for (int64_t r = 0; r < B * T; r++) {
        memcpy(c + r * s->rank, ckr + r * wide, (size_t)s->rank * sizeof *c);
        rotate(ckr + r * wide + s->rank, v->rotary, r % T);
    }
    linear(c, s->x[UP], B * T, s->rank, H * both, up);
    for (int64_t b = 0; b < B; b++)
        for (int64_t h = 0; h < H; h++) {
            for (int64_t t = 0; t < SQ; t++) {
                double *to = Q + ((b * H + h) * SQ + t) * width;
                memcpy(to, q + ((b * SQ + t) * H + h) * width, (size_t)width * sizeof *to);
                rotate(to + s->dim, v->rotary, t);
            }
            for (int64_t t = 0; t < T; t++) {
                const double *from = up + ((b * T + t) * H + h) * both;
                double *k = K + ((b * H + h) * T + t) * width;
                memcpy(k, from, (size_t)s->dim * sizeof *k);
                memcpy(k + s->dim, ckr + (b * T + t) * wide + s->rank, (size_t)v->rotary * sizeof *k);
                memcpy(V + ((b * H + h) * T + t) * s->dim_v, from + s->dim, (size_t)s->dim_v * sizeof *k);
            }
        }
    const ref_problem p = {.B = B,
                           .Hq = H,
                           .Hkv = H,
                           .Sq = SQ,
                           .Skv = T,
                           .D = width,
                           .Dv = s->dim_v,
                           .Q = Q,
                           .K = K,
                           .V = V,
                           .scale = 1 / sqrt((double)width),
                           .causal = v->causal};
    ref_forward(&p, O, lse, S, P);
    for (int64_t n = 0; n < B * SQ * H * s->dim_v; n++) {
        const int64_t i = n % s->dim_v, h = n / s->dim_v % H, t = n / s->dim_v / H % SQ, b = n / s->dim_v / H / SQ;
        a[n] = O[((b * H + h) * SQ + t) * s->dim_v + i];
    }
    linear(a, s->x[OUTPUT], B * SQ, H * s->dim_v, OUT, y);
    for (int64_t n = 0; n < B * SQ * OUT; n++) sum += y[n] * s->grad_y[n];
    return sum;
}

/* ---- the library ---- */

typedef struct held {
    double data[TENSORS][LARGEST], grad[TENSORS][LARGEST], y[LARGEST], grad_y[LARGEST]; /* of either type */
    void *saved;
} held;

static attn_latent_weights weights_of(const sample *s, double from[TENSORS][LARGEST])
{
    void *at[TENSORS];
    for (int t = 0; t < TENSORS; t++) at[t] = s->count[t] ? from[t] : NULL;
    return (attn_latent_weights){.struct_size = sizeof(attn_latent_weights),
                                 .query_down.data = at[QUERY_DOWN],
                                 .query.data = at[QUERY],
                                 .down.data = at[DOWN],
                                 .up.data = at[UP],
                                 .output.data = at[OUTPUT],
                                 .query_norm.data = at[QUERY_NORM],
                                 .norm.data = at[NORM]};
}

static void run(sample *s, held *h, attn_dtype dtype, int threads)
{
    attn_error error;
    attn_layer_counts counts = {.struct_size = sizeof counts};
    const attn_options options = {.struct_size = sizeof options, .threads = threads};
    memset(h, 0, sizeof *h);
    s->latent.dtype = dtype;
    for (int t = 0; t < TENSORS; t++) (void)attn_convert(s->count[t], s->x[t], ATTN_F64, h->data[t], dtype, NULL);
    (void)attn_convert(B * SQ * OUT, s->grad_y, ATTN_F64, h->grad_y, dtype, NULL);
    const attn_latent_weights w = weights_of(s, h->data), g = weights_of(s, h->grad);
    assert_int_equal(attn_latent_count(&s->latent, B, SQ, s->len_kv, &w, &counts, &error), ATTN_OK);
    int64_t parameters = 0;
    for (int t = QUERY_DOWN; t < TENSORS; t++) parameters += s->count[t];
    assert_int_equal(counts.parameters, parameters);
    assert_int_equal(counts.cache_per_token, (s->rank + s->v->rotary) * (int64_t)attn_dtype_size(dtype));
    h->saved = aligned_alloc(64, (size_t)counts.saved_bytes);
    attn_layer_tensors args = {.struct_size = sizeof args,
                               .batch = B,
                               .len_q = SQ,
                               .len_kv = s->len_kv,
                               .query.data = h->data[X],
                               .output.data = h->y,
                               .saved = h->saved,
                               .options = &options,
                               .grad_output.data = h->grad_y,
                               .grad_query.data = h->grad[X]};
    if (s->v->cross) args.key.data = h->data[Z], args.grad_key.data = h->grad[Z];
    if (attn_latent_forward(&s->latent, &w, &args, &error) != ATTN_OK ||
        attn_latent_backward(&s->latent, &w, &args, &g, &error) != ATTN_OK)
        fail_msg("%s: %s", s->v->name, error.message);
}

/* Sums of fewer than 10^3 products of numbers below 4. */
static double allowed(attn_dtype dtype) { return roundings(dtype, 4e3); }

static void test_forward(void **state)
{
    double y[LARGEST];
    (void)state;
    for (int n = 0; n < VARIANTS; n++)
        for (int d = 0; d < 2; d++) {
            const attn_dtype dtype = d ? ATTN_F32 : ATTN_F64;
            sample s;
            held h;
            make(&s, &variants[n]);
            run(&s, &h, dtype, 1);
            (void)reference(&s, y);
            assert_close(s.v->name, "y", dtype, h.y, y, B * SQ * OUT, allowed(dtype));
            free(h.saved);
        }
}

static double loss(void *s)
{
    double y[LARGEST];
    return reference(s, y);
}

#include "gradients.inc.c"

/* Decoding from the latent cache, token by token and in pieces, contiguous and in pages, equals the expanded form over the whole.
 */
static void test_decode(void **state)
{
    static const int64_t pieces[][SQ + 1] = {{1, 1, 1, 1, 0}, {3, 1, 0}, {SQ, 0}}, table[B * 3] = {5, 0, 3, 2, 4, 1};
    (void)state;
    for (int n = 0; n < VARIANTS; n++)
        for (int paged = 0; paged < 2; paged++)
            for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
                sample s;
                held h;
                attn_error error;
                double k[6 * 2 * 16], y[LARGEST], mean[B * SQ * SKV];
                int64_t lengths[B] = {0};
                make(&s, &variants[n]);
                if (!s.v->cross) s.attention.mask.causal = 1; /* forward over the whole must be causal as well */
                run(&s, &h, ATTN_F64, 1);
                const attn_latent_weights w = weights_of(&s, h.data);
                attn_cache cache = {.struct_size = sizeof cache,
                                    .batch = B,
                                    .heads_kv = 1,
                                    .capacity = 6,
                                    .dim_qk = s.rank + s.v->rotary,
                                    .dim_v = s.rank,
                                    .k = {k, ATTN_F64, {0, 0, 0, 0}},
                                    .lengths = attn_out(lengths)};
                if (paged) cache.page_size = 2, cache.pages = 6, cache.page_table = attn_in(table);
                const attn_input z = {h.data[Z], ATTN_F64, {SKV * E, 0, E, 1}};
                if (s.v->cross) { /* the memory once; then only queries */
                    const attn_layer_tensors once = {.struct_size = sizeof once, .batch = B, .len_kv = SKV, .key = z};
                    assert_int_equal(attn_latent_decode(&s.latent, &w, &cache, &once, NULL), ATTN_OK);
                }
                for (int64_t i = 0, first = 0; pieces[p][i]; first += pieces[p][i++]) {
                    const int64_t count = pieces[p][i];
                    int64_t positions[B * SQ];
                    for (int64_t m = 0; m < B * count; m++) positions[m] = first + m % count;
                    attn_layer_tensors args = {.struct_size = sizeof args,
                                               .batch = B,
                                               .len_q = count,
                                               .query = {(double *)h.data[X] + first * E, ATTN_F64, {SQ * E, 0, E, 1}},
                                               .output = {y + first * OUT, ATTN_F64, {SQ * OUT, 0, OUT, 1}},
                                               .weights_mean = attn_out(mean),
                                               .only_cached = s.v->cross};
                    if (s.v->cross) args.positions_q = attn_in(positions);
                    if (attn_latent_decode(&s.latent, &w, &cache, &args, &error) != ATTN_OK)
                        fail_msg("%s: %s", s.v->name, error.message);
                    double sum = 0;
                    for (int64_t m = 0; m < B * count * lengths[0]; m++) sum += mean[m];
                    assert_true(fabs(sum - (double)(B * count)) < 1e-12);
                }
                assert_int_equal(lengths[1], s.len_kv);
                assert_close(s.v->name, "y", ATTN_F64, y, h.y, B * SQ * OUT, allowed(ATTN_F64));
                free(h.saved);
            }
}

/* DeepSeek-V2: 128 heads of 128, a latent of 512 and 64 rotated channels: 576 cached numbers per token instead of 32768. */
static void test_counts(void **state)
{
    attn_latent latent = {.struct_size = sizeof latent,
                          .dim_model = 5120,
                          .heads = 128,
                          .head_dim = 128,
                          .rank = 512,
                          .rank_query = 1536,
                          .dim_rotary = 64};
    attn_layer_counts counts = {.struct_size = sizeof counts}, plain = counts;
    const attn_layer heads = {.struct_size = sizeof heads, .dim_model = 5120, .heads_q = 128, .head_dim = 128};
    (void)state;
    assert_int_equal(attn_latent_count(&latent, 1, 0, 0, NULL, &counts, NULL), ATTN_OK);
    assert_int_equal(attn_layer_count(&heads, 1, 0, 0, NULL, &plain, NULL), ATTN_OK);
    assert_int_equal(counts.cache_per_token, 576 * 4);
    assert_int_equal(plain.cache_per_token, 32768 * 4);
    assert_int_equal(counts.parameters, 1536 * 5120 + 128 * 192 * 1536 + 576 * 5120 + 128 * 256 * 512 + 5120 * 128 * 128);
    /* without rotated channels the cache shrinks by 1 - r/(2 H d) */
    latent.dim_rotary = 0;
    assert_int_equal(attn_latent_count(&latent, 1, 0, 0, NULL, &counts, NULL), ATTN_OK);
    assert_true(fabs((1 - (double)counts.cache_per_token / (double)plain.cache_per_token) - (1 - 512.0 / (2 * 128 * 128))) < 1e-15);
}

static void test_weights(void **state)
{
    static float w[TENSORS][LARGEST], again[TENSORS][LARGEST];
    sample s;
    attn_archive *file = NULL;
    attn_error error;
    attn_latent_weights back = {.struct_size = sizeof back};
    (void)state;
    make(&s, &variants[3]);
    const attn_latent_weights weights = {.struct_size = sizeof weights,
                                         .query_down = attn_out(w[QUERY_DOWN]),
                                         .query = attn_out(w[QUERY]),
                                         .down = attn_out(w[DOWN]),
                                         .up = attn_out(w[UP]),
                                         .output = attn_out(w[OUTPUT]),
                                         .query_norm = attn_out(w[QUERY_NORM]),
                                         .norm = attn_out(w[NORM])};
    assert_int_equal(attn_latent_initialise(&s.latent, ATTN_INIT_XAVIER, 7, &weights, NULL), ATTN_OK);
    memcpy(again, w, sizeof w);
    assert_int_equal(attn_latent_initialise(&s.latent, ATTN_INIT_XAVIER, 7, &weights, NULL), ATTN_OK);
    assert_memory_equal(w, again, sizeof w);
    for (int t = QUERY_DOWN; t < TENSORS; t++) {
        const double rows = t == OUTPUT  ? OUT
                            : t == DOWN  ? 6
                            : t == UP    ? 10
                            : t == QUERY ? 10
                                         : 3,
                     columns = t == OUTPUT  ? 4
                               : t == UP    ? 4
                               : t == QUERY ? 3
                                            : E;
        for (int64_t i = 0; i < s.count[t]; i++) {
            if (t >= QUERY_NORM) assert_true(w[t][i] == 1);
            else assert_true(w[t][i] != 0 && fabs((double)w[t][i]) <= sqrt(6 / (rows + columns)));
        }
    }
    assert_int_equal(attn_archive_create(&file, NULL), ATTN_OK);
    assert_int_equal(attn_latent_store(&s.latent, &weights, "a.", file, &error), ATTN_OK);
    assert_non_null(attn_archive_find(file, "a.kv_a_proj_with_mqa.weight"));
    assert_int_equal(attn_latent_load(&s.latent, file, "a.", &back, &error), ATTN_OK);
    void *const at[] = {back.query_down.data, back.query.data,      back.down.data, back.up.data,
                        back.output.data,     back.query_norm.data, back.norm.data};
    for (int t = QUERY_DOWN; t < TENSORS; t++) assert_memory_equal(at[t - QUERY_DOWN], w[t], (size_t)s.count[t] * sizeof(float));
    /* all names but the first are taken: the first is not left behind */
    assert_int_equal(attn_archive_remove(file, "a.q_a_proj.weight", NULL), ATTN_OK);
    assert_int_equal(attn_latent_store(&s.latent, &weights, "a.", file, &error), ATTN_ERR_ARGUMENT);
    assert_null(attn_archive_find(file, "a.q_a_proj.weight"));
    attn_archive_destroy(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward), cmocka_unit_test(test_differences), cmocka_unit_test(test_f32_and_threads),
        cmocka_unit_test(test_decode),  cmocka_unit_test(test_counts),      cmocka_unit_test(test_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
