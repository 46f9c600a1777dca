/* SPDX-License-Identifier: MIT
 *
 * test_kinds.c - what attn bench times computes what it says: the softmax of rows, attention over a matrix, a cache that is
 * appended to, layers over a cache.  Expected numbers are sums in double, bounds those of their operations. */
#include "test.h"

#include <math.h>

#include "attn/position.h"
#include "cli/bench/candidate.h"
#include "cli/bench/softmax.h"
#include "testing/random/random.h"
#if ATTN_CLI_LAYERS
#include "cli/bench/layer.h"
#endif

static const double u = 0x1p-24; /* of f32 */

static void make(candidate *c, const char *text)
{
    operand o;
    attn_error error;
    c->name = NULL;
    const common_settings settings = {.threads = 1};
    const sampling once = {.single = 1, .warmup = 0};
    if (operand_parse(text, &o, &error) != ATTN_OK || candidate_create(c, &o, &settings, &once, &error) != ATTN_OK)
        fail_msg("%s: %s", text, error.message);
}

/* ---- the softmax of a row ---- */

/* Each exponential: two roundings of its argument x, |x| times u each; five more of reduction, series and power.  The sum: those of
 * its terms, and one for each addition in a lane and over the lanes. */
static void check_row(attn_isa isa, int64_t seen, int64_t length, float scale, random_state *random)
{
    float row[200], given[200] = {0};
    double most = -INFINITY, sum = 0, sum_error = 0;
    for (int64_t j = 0; j < length; j++) given[j] = row[j] = (float)(80 * (random_unit(random) - 0.5));
    for (int64_t j = 0; j < seen; j++) most = fmax(most, (double)given[j]);
    softmax_row(isa, seen, length, scale, row);
    for (int64_t j = 0; j < seen; j++) {
        const double x = (double)scale * ((double)given[j] - most);
        sum += exp(x), sum_error += exp(x) * (2 * fabs(x) + 5) * u;
    }
    sum_error = sum_error / sum + ((double)seen / 16 + 16) * u;
    for (int64_t j = 0; j < seen; j++) {
        const double x = (double)scale * ((double)given[j] - most), w = exp(x) / sum;
        const double bound = w * ((2 * fabs(x) + 7) * u + sum_error) + exp(-87);
        if (!(fabs((double)row[j] - w) <= bound)) fail_msg("weight %d of %d: %g, not %g", (int)j, (int)seen, (double)row[j], w);
    }
    for (int64_t j = seen; j < length; j++) assert_true(row[j] == 0);
}

static void test_softmax(void **state)
{
    (void)state;
    attn_cpu_description cpu = {.struct_size = sizeof cpu};
    random_state random = {1};
    assert_int_equal(attn_cpu_describe(&cpu, NULL), ATTN_OK);
    for (int isa = ATTN_ISA_SCALAR; isa <= (int)cpu.isa; isa++)
        for (int64_t seen = 0; seen <= 150; seen += seen < 40 ? 1 : 11)
            for (int n = 0; n < 3; n++) check_row((attn_isa)isa, seen, seen + 7 * n, n == 2 ? 8 : 0.25f, &random);
}

/* ---- attention by its definition ---- */

typedef struct tensors_of {
    const float *q, *k, *v, *o; /* dense, [batch, head, token, channel] */
} tensors_of;

/* Checks every o.  A query sees keys 0 .. seen-1, where seen is `first` and grows by one with each query; 0: all. */
static void check_attention(const attn_shape *s, const tensors_of *t, int64_t first)
{
    const double scale = 1 / sqrt((double)s->dim_qk);
    double weight[600];
    for (int64_t r = 0; r < s->batch * s->heads_q * s->len_q; r++) {
        const int64_t head = r / s->len_q, i = r % s->len_q, group = head / (s->heads_q / s->heads_kv), D = s->dim_qk,
                      seen = first && first + i < s->len_kv ? first + i : s->len_kv;
        const float *q = t->q + r * D, *k = t->k + group * s->len_kv * D, *v = t->v + group * s->len_kv * s->dim_v;
        double most = -INFINITY, least = INFINITY, sum = 0, error = 0;
        for (int64_t j = 0; j < seen; j++) {
            double dot = 0, size = 0;
            for (int64_t c = 0; c < D; c++) {
                const double term = (double)q[c] * (double)k[j * D + c];
                dot += term, size += fabs(term);
            }
            weight[j] = scale * dot;
            most = fmax(most, weight[j]), least = fmin(least, weight[j]);
            error = fmax(error, scale * size * (double)(D + 3) * u); /* of a score */
        }
        for (int64_t j = 0; j < seen; j++) sum += weight[j] = exp(weight[j] - most);
        /* Of a weight, relatively: its score's and the highest one's, its exponential, the sum; then the sum of values. */
        const double of_weight = 4 * error + (2 * (most - least) + 7) * 2 * u + (double)(2 * seen + 8) * u;
        for (int64_t c = 0; c < s->dim_v; c++) {
            double o = 0, size = 0;
            for (int64_t j = 0; j < seen; j++) {
                const double term = weight[j] / sum * (double)v[j * s->dim_v + c];
                o += term, size += fabs(term);
            }
            const double got = (double)t->o[r * s->dim_v + c];
            if (!(fabs(got - o) <= of_weight * size)) fail_msg("o[%d][%d] is %.9g, not %.9g", (int)r, (int)c, got, o);
        }
    }
}

static void test_matrix(void **state)
{
    (void)state;
    static const char *const strings[] = {"matrix:f32:b2:hq4:hkv2:sq37:skv45:d16:dv8", "matrix:f32:hq2:sq33:d64:causal",
                                          "matrix:sq5:skv3:d4:causal", "matrix:sq1:skv500:d8:seed=3"};
    for (size_t k = 0; k < sizeof strings / sizeof *strings; k++) {
        candidate c;
        make(&c, strings[k]);
        void *const *block = c.data.block;
        const tensors_of t = {block[0], block[1], block[2], block[3]};
        check_attention(&c.problem.shape, &t, c.problem.mask.causal);
        candidate_destroy(&c);
    }
}

/* ---- a cache ---- */

/* The tensors of a decode problem are dense: the keys that were appended are in their places, and all are attended to. */
static void check_decode(const char *text, int64_t steps)
{
    candidate c;
    make(&c, text);
    const attn_shape *s = &c.problem.shape;
    const attn_tensors *all = &c.data.tensors;
    const tensors_of t = {all->q.data, all->k.data, all->v.data, all->o.data};
    const int64_t *lengths = all->lengths_kv.data;
    const float *added = c.data.block[c.data.blocks - 2]; /* new keys, then values */
    assert_int_equal(c.kind->execute(&c, NULL), ATTN_OK); /* a second time: the cache goes back first */
    for (int64_t b = 0; b < s->batch; b++) assert_int_equal(lengths[b], s->len_kv);
    for (int64_t row = 0; row < s->batch * s->heads_kv; row++)
        for (int64_t n = 0; n < steps; n++) {
            const float *at = t.k + (row * s->len_kv + s->len_kv - (steps - n) * s->len_q) * s->dim_qk;
            assert_memory_equal(at, added + row * s->len_q * s->dim_qk, (size_t)(s->len_q * s->dim_qk) * sizeof *at);
        }
    check_attention(s, &t, s->len_kv - s->len_q + 1);
    assert_true(c.data.tokens == steps * s->batch * s->len_q);
    candidate_destroy(&c);
}

static void test_decode(void **state)
{
    (void)state;
    check_decode("decode:f32:b2:hq4:hkv2:sq1:skv90:d16:dv8", 1);
    check_decode("decode:f32:b2:hq4:hkv2:sq3:skv70:d16", 1);
    check_decode("decode:f32:hq2:sq2:skv70:d16:steps=5", 5);
    check_decode("decode:f32:sq4:skv4:d8", 1);
}

/* With a rope the keys appended are rotated by their places, and so are the queries. */
static void test_rope(void **state)
{
    (void)state;
    candidate c;
    make(&c, "decode:f32:b2:hq2:sq2:skv33:d8:rope");
    const attn_shape *s = &c.problem.shape;
    const attn_tensors *all = &c.data.tensors;
    const tensors_of t = {all->q.data, all->k.data, all->v.data, all->o.data};
    void *const *block = c.data.block + c.data.blocks - 4; /* new keys, new values, queries before, positions */
    const attn_rope rope = {.struct_size = sizeof rope};
    const int64_t places[4] = {31, 32, 31, 32}, shape[4] = {2, 2, 2, 8};
    const attn_input positions = attn_in(places);
    float expected[2][2 * 2 * 2 * 8];
    for (int k = 0; k < 2; k++) {
        const attn_input from = attn_in(block[k ? 2 : 0]);
        const attn_output to = attn_out(expected[k]);
        assert_int_equal(attn_rope_apply(&rope, shape, &from, &positions, &to, NULL), ATTN_OK);
    }
    assert_memory_equal(t.q, expected[1], sizeof expected[1]);
    for (int64_t head = 0; head < 4; head++)
        assert_memory_equal(t.k + (head * 33 + 31) * 8, expected[0] + head * 16, 16 * sizeof(float));
    check_attention(s, &t, 32);
    candidate_destroy(&c);
}

/* What else a cache can be: pages, 8 and 4 bits, lengths that differ, f64, the other order of axes, a schedule. */
static void test_other_caches(void **state)
{
    (void)state;
    static const char *const strings[] = {
        "decode:int8:b2:hq4:hkv2:sq1:skv90:d32:rope:page=16", "decode:f16:b3:hq2:sq2:skv90:d32:ktype=q4_1c:vtype=q4_1:page=32",
        "decode:f64:b3:hq2:sq2:skv40:d8:lens=kv:layout=bshd:rope", "decode:bf16:b3:hq2:sq1:skv40:d8:lens=kv:page=16:schedule",
        "decode:f32:b3:hq2:sq1:skv64:d8:page=16:prefix=32:steps=4"};
    for (size_t k = 0; k < sizeof strings / sizeof *strings; k++) {
        candidate c;
        make(&c, strings[k]);
        const attn_shape *s = &c.problem.shape;
        const int64_t *lengths = c.data.tensors.lengths_kv.data;
        int64_t before[3];
        memcpy(before, lengths, (size_t)s->batch * sizeof *lengths);
        assert_int_equal(c.kind->execute(&c, NULL), ATTN_OK);
        assert_memory_equal(before, lengths, (size_t)s->batch * sizeof *lengths);
        for (int64_t b = 0; b < s->batch; b++) assert_true(lengths[b] >= s->len_q && lengths[b] <= s->len_kv);
        candidate_destroy(&c);
    }
}

/* Work and bytes of steps, by hand: 2 queries of 2 heads see 66, 68 and 70 keys, less the one after the first of each. */
static void test_steps_are_counted(void **state)
{
    (void)state;
    candidate c;
    make(&c, "decode:f32:hq2:sq2:skv70:d16:steps=3");
    const double all = c.data.bytes, row = 2 * 2 * 16 * sizeof(float);
    assert_true(c.flops == 2.0 * (16 + 16) * 2 * (65 + 66 + 67 + 68 + 69 + 70));
    assert_true(c.moved == 3 * all - (4 + 2) * row);
    candidate_destroy(&c);
}

/* ---- layers ---- */

#if ATTN_CLI_LAYERS
static const double *output_of(const candidate *c) { return ((const layer_work *)c->state)->args.output.data; }

/* The same layer and input: at once, and through an empty cache, in f64.  A mistake is as large as y. */
static void check_layer(const char *causal, const char *prefill)
{
    candidate whole, cached;
    make(&whole, causal), make(&cached, prefill);
    const layer_work *w = whole.state;
    const int64_t count = w->o.spec.shape.batch * w->o.spec.shape.len_q * w->o.model;
    double largest = 0, difference = 0;
    for (int64_t n = 0; n < count; n++) {
        largest = fmax(largest, fabs(output_of(&whole)[n]));
        difference = fmax(difference, fabs(output_of(&whole)[n] - output_of(&cached)[n]));
    }
    assert_true(largest > 0 && isfinite(largest));
    if (!(difference <= 0x1p-30 * largest)) fail_msg("%s: %g of %g", prefill, difference, largest);
    assert_true(cached.call_bytes > 0 && ((const layer_work *)cached.state)->taken == 0);
    candidate_destroy(&whole);
    candidate_destroy(&cached);
}

static void test_layers(void **state)
{
    (void)state;
    check_layer("layer:mha:f64:b2:hq2:sq9:d8:m24:causal", "layer:mha:prefill:f64:b2:hq2:sq9:d8:m24");
    check_layer("layer:gqa:f64:hq4:hkv2:sq9:d8:dv6:m24:causal:rope", "layer:gqa:prefill:f64:hq4:hkv2:sq9:d8:dv6:m24:rope:page=4");
    check_layer("layer:mla:f64:hq4:sq9:d8:m24:rank=12:rotary=4:causal", "layer:mla:prefill:f64:hq4:sq9:d8:m24:rank=12:rotary=4");
    check_layer("layer:mla:f64:hq4:sq9:d8:m24:rank=12:rank-query=6:causal:window=3,0",
                "layer:mla:prefill:f64:hq4:sq9:d8:m24:rank=12:rank-query=6:window=3,0");
}

static void test_layers_with_a_cache(void **state)
{
    (void)state;
    static const char *const strings[] = {
        "layer:mha:decode:b2:hq2:sq1:skv20:d8", "layer:gqa:decode:b2:hq4:hkv2:sq3:skv20:d32:rope:page=8:ktype=q8_0:vtype=i8",
        "layer:mla:decode:b2:hq2:sq2:skv20:d8:rank=12:rotary=4:page=8:ktype=f16", "layer:mla:decode:hq2:sq1:skv20:d8:ktype=i8"};
    for (size_t k = 0; k < sizeof strings / sizeof *strings; k++) {
        candidate c;
        make(&c, strings[k]);
        const layer_work *w = c.state;
        const attn_shape *s = &w->o.spec.shape;
        for (int64_t b = 0; b < s->batch; b++) assert_int_equal(w->lengths[b], s->len_kv);
        for (int64_t n = 0; n < s->batch * s->len_q * w->o.model; n++)
            assert_true(isfinite(((const float *)w->args.output.data)[n]));
        candidate_destroy(&c);
    }
}

static void test_layers_backward(void **state)
{
    (void)state;
    static const char *const strings[] = {"layer:gqa:bwd:b2:hq4:hkv2:sq9:d8:m24:causal:rope",
                                          "layer:mla:bwd:hq2:sq9:d8:m24:rank=6:rank-query=10:rotary=2"};
    for (size_t k = 0; k < sizeof strings / sizeof *strings; k++) {
        candidate c;
        make(&c, strings[k]);
        const layer_work *w = c.state;
        const int64_t count = w->o.spec.shape.batch * w->o.spec.shape.len_q * w->o.model;
        float *grad = w->args.grad_query.data;
        for (int64_t n = 0; n < count; n++) grad[n] = NAN;
        assert_int_equal(c.kind->execute(&c, NULL), ATTN_OK);
        for (int64_t n = 0; n < count; n++) assert_true(isfinite(grad[n]) && grad[n] != 0);
        candidate_destroy(&c);
    }
}

/* Operations by hand: 9 tokens of 24 channels; 4 query heads and 2 key heads of 8; 45 pairs of each query head. */
static void test_layers_are_counted(void **state)
{
    (void)state;
    const double project = 2.0 * 9 * 24 * (4 + 2 + 2 + 4) * 8, attend = 2.0 * 4 * 45 * 16;
    candidate c;
    make(&c, "layer:gqa:hq4:hkv2:sq9:d8:m24:causal");
    assert_true(c.flops == project + attend);
    candidate_destroy(&c);
    make(&c, "layer:gqa:bwd:hq4:hkv2:sq9:d8:m24:causal");
    assert_true(c.flops == 2 * project + 2.5 * attend);
    candidate_destroy(&c);
    /* One token of 2 heads over 20 latents of 6 + 2 channels: query, latent, a half of `up` for query and for sum, output. */
    make(&c, "layer:mla:decode:hq2:sq1:skv20:d8:m24:rank=6:rotary=2");
    assert_true(c.flops == 2.0 * (2 * 10 * 24 + 8 * 24 + 2 * 8 * 6 + 2 * 8 * 6 + 24 * 2 * 8) + 2.0 * 2 * 20 * (8 + 6));
    candidate_destroy(&c);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_matrix),
        cmocka_unit_test(test_decode),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_other_caches),
        cmocka_unit_test(test_steps_are_counted),
#if ATTN_CLI_LAYERS
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_layers_with_a_cache),
        cmocka_unit_test(test_layers_backward),
        cmocka_unit_test(test_layers_are_counted),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
