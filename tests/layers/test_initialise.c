/* SPDX-License-Identifier: MIT
 *
 * test_initialise.c - weights from a seed: every named initialisation of every kind of layer has the right standard deviation, the
 * same numbers for the same seed, and different ones for another seed. */
#include "test.h"

#include <math.h>
#include <string.h>

#include "attn/latent.h"
#include "attn/seq2seq.h"

enum { LARGEST = 256 * 256, CAPACITY = 7 };
static const char *const names[] = {"xavier", "head", "small", "torch"};

/* A matrix: its size, and the standard deviation of each initialisation. */
typedef struct matrix {
    int rows, columns;
    double deviation[4];
} matrix;

/* `draw` fills w[0 .. count-1]. */
static void check(const char *kind, const matrix *all, int count,
                  attn_status (*draw)(float (*w)[LARGEST], attn_init init, uint64_t seed))
{
    static float w[CAPACITY][LARGEST], again[CAPACITY][LARGEST];
    for (int init = 0; init < 4; init++) {
        memset(w, 0, sizeof w);
        assert_int_equal(draw(w, (attn_init)init, 5), ATTN_OK);
        memcpy(again, w, sizeof w);
        memset(w, 0, sizeof w);
        assert_int_equal(draw(w, (attn_init)init, 5), ATTN_OK);
        assert_memory_equal(w, again, sizeof w);
        for (int p = 0; p < count; p++) {
            const int n = all[p].rows * all[p].columns;
            const double deviation = all[p].deviation[init];
            double mean = 0, square = 0;
            for (int j = 0; j < n; j++) mean += w[p][j], square += (double)w[p][j] * w[p][j];
            mean /= n;
            /* 5 sigma of a mean, and of a deviation */
            if (!(fabs(mean) < 5 * deviation / sqrt(n)) || !(fabs(sqrt(square / n) / deviation - 1) < 5 * sqrt(0.5 / n)))
                fail_msg("%s, %s, matrix %d: mean %g, deviation %g instead of %g", kind, names[init], p, mean, sqrt(square / n),
                         deviation);
        }
        assert_int_equal(draw(w, (attn_init)init, 6), ATTN_OK);
        assert_memory_not_equal(w, again, sizeof w);
    }
}

static attn_status draw_layer(float (*w)[LARGEST], attn_init init, uint64_t seed)
{
    const attn_layer layer = {.struct_size = sizeof layer, .dim_model = 256, .heads_q = 8};
    const attn_layer_weights weights = {
        .struct_size = sizeof weights, .query.data = w[0], .key.data = w[1], .value.data = w[2], .output.data = w[3]};
    return attn_layer_initialise(&layer, init, seed, &weights, NULL);
}

/* At D 256 and 8 heads of 32; the fused matrix of torch has 768 rows. */
static void test_multi_head(void **state)
{
    const double even = sqrt(2.0 / 512), head = sqrt(2.0 / 288), fused = sqrt(2.0 / 1024);
    const matrix all[] = {{256, 256, {even, head, 0.02, fused}},
                          {256, 256, {even, head, 0.02, fused}},
                          {256, 256, {even, head, 0.02, fused}},
                          {256, 256, {even, even, 0.02, sqrt(1.0 / 768)}}};
    (void)state;
    check("multi-head", all, 4, draw_layer);
}

/* The standard deviation of uniform numbers within 1/sqrt(in). */
static double linear(double in) { return 1 / sqrt(3 * in); }

static attn_status draw_latent(float (*w)[LARGEST], attn_init init, uint64_t seed)
{
    const attn_latent latent = {.struct_size = sizeof latent,
                                .dim_model = 128,
                                .heads = 4,
                                .head_dim = 32,
                                .head_dim_v = 48,
                                .rank = 64,
                                .rank_query = 96,
                                .dim_rotary = 16};
    const attn_latent_weights weights = {.struct_size = sizeof weights,
                                         .query_down = attn_out(w[0]),
                                         .query = attn_out(w[1]),
                                         .down = attn_out(w[2]),
                                         .up = attn_out(w[3]),
                                         .output = attn_out(w[4]),
                                         .query_norm = attn_out(w[5]),
                                         .norm = attn_out(w[6])};
    const attn_status status = attn_latent_initialise(&latent, init, seed, &weights, NULL);
    for (int i = 0; i < 96; i++) assert_true(w[5][i] == 1 && (i >= 64 || w[6][i] == 1));
    return status;
}

static void test_latent(void **state)
{
    /* of `up`, 32 rows of a head are its key and 48 its value: the mean of both variances */
    const double up = sqrt((32 * 2.0 / (64 + 32) + 48 * 2.0 / (64 + 48)) / 80);
    const matrix all[] = {{96, 128, {sqrt(2.0 / 224), sqrt(2.0 / 224), 0.02, linear(128)}},
                          {192, 96, {sqrt(2.0 / 288), sqrt(2.0 / (96 + 48)), 0.02, linear(96)}},
                          {80, 128, {sqrt(2.0 / 208), sqrt(2.0 / 208), 0.02, linear(128)}},
                          {320, 64, {sqrt(2.0 / 384), up, 0.02, linear(64)}},
                          {128, 192, {sqrt(2.0 / 320), sqrt(2.0 / 320), 0.02, linear(192)}}};
    (void)state;
    check("latent", all, 5, draw_latent);
}

static attn_status draw_seq2seq(float (*w)[LARGEST], attn_init init, uint64_t seed)
{
    const attn_seq2seq module = {.struct_size = sizeof module,
                                 .score = ATTN_SCORE_ADDITIVE,
                                 .dim_state = 96,
                                 .dim_memory = 128,
                                 .dim_hidden = 160,
                                 .dim_output = 64};
    const attn_seq2seq_weights weights = {.struct_size = sizeof weights,
                                          .w = attn_out(w[4]),
                                          .state = attn_out(w[0]),
                                          .memory = attn_out(w[1]),
                                          .bias = attn_out(w[3]),
                                          .combine = attn_out(w[2])};
    memset(w[3], 0x55, 160 * sizeof(float));
    const attn_status status = attn_seq2seq_initialise(&module, init, seed, &weights, NULL);
    for (int i = 0; i < 160; i++) assert_true(w[3][i] == 0); /* the bias */
    return status;
}

static void test_seq2seq(void **state)
{
    const matrix all[] = {{160, 96, {sqrt(2.0 / 256), sqrt(2.0 / 256), 0.02, linear(96)}},
                          {160, 128, {sqrt(2.0 / 288), sqrt(2.0 / 288), 0.02, linear(128)}},
                          {64, 224, {sqrt(2.0 / 288), sqrt(2.0 / 288), 0.02, linear(224)}}};
    (void)state;
    check("seq2seq", all, 3, draw_seq2seq);
}

static attn_status draw_general(float (*w)[LARGEST], attn_init init, uint64_t seed)
{
    const attn_seq2seq module = {.struct_size = sizeof module, .score = ATTN_SCORE_GENERAL, .dim_state = 96, .dim_memory = 160};
    const attn_seq2seq_weights weights = {.struct_size = sizeof weights, .w = attn_out(w[0])};
    return attn_seq2seq_initialise(&module, init, seed, &weights, NULL);
}

static void test_general(void **state)
{
    const matrix all[] = {{96, 160, {sqrt(2.0 / 256), sqrt(2.0 / 256), 0.02, linear(160)}}};
    (void)state;
    check("general", all, 1, draw_general);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_multi_head), cmocka_unit_test(test_latent),
                                       cmocka_unit_test(test_seq2seq), cmocka_unit_test(test_general)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
