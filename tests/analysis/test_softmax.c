/* SPDX-License-Identifier: MIT
 * test_softmax.c - the softmax family against known values, properties P4 to P6 of docs/coverage.md, and the rulings on its edge
 * cases (docs/rulings.md: 10, 11, 19). */
#include "fails.h"

#include "attn/analysis.h"

#include <math.h>

static attn_gibbs gibbs_of(const double *s, int64_t n, double T, double *weights)
{
    attn_gibbs g = {.struct_size = sizeof g};
    assert_int_equal(attn_softmax(n, T, s, NULL, weights, &g, NULL), ATTN_OK);
    return g;
}

static void assert_near(double x, double y, double off)
{
    if (!(fabs(x - y) <= off)) fail_msg("%.12g is not %.12g", x, y);
}

/* Section 15; the tables of one source are wrong at T = 1/4, 1/2 and 2 (16.10). */
static void test_golden(void **state)
{
    (void)state;
    const double s[3] = {2, 1, 0};
    const struct {
        double T, w[3], entropy, free_energy, states;
    } rows[] = {{.25, {.981690, .017980, .000329}, .093035, -2.004620, 1.0975},
                {.5, {.866813, .117310, .015876}, .441057, -2.071466, 0},
                {1, {.665241, .244728, .090031}, .832396, -2.407606, 2.298819},
                {2, {.506480, .307196, .186324}, 1.020191, -3.360539, 0},
                {1.5, {0}, 0, -2.862402, 0}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        double w[3];
        attn_gibbs g = gibbs_of(s, 3, rows[r].T, w);
        assert_near(g.free_energy, rows[r].free_energy, 6e-7);
        assert_near(g.free_energy, g.mean_energy - rows[r].T * g.entropy, 1e-14); /* 16.11: with <E> = -<S> */
        if (rows[r].entropy == 0) continue;
        for (int j = 0; j < 3; j++) assert_near(w[j], rows[r].w[j], 6e-7);
        assert_near(g.entropy, rows[r].entropy, 6e-7);
        assert_near(g.entropy, attn_entropy(3, w), 1e-14);
        assert_near(g.effective_states, attn_effective_states(3, w), 1e-14);
        if (rows[r].states > 0) assert_near(g.effective_states, rows[r].states, 6e-5);
    }
    assert_near(gibbs_of(s, 3, 1e9, NULL).entropy, 1.098612, 6e-7);
    const double two[2] = {1, 2};
    double p[2], J[4];
    gibbs_of(two, 2, 1, p);
    assert_int_equal(attn_softmax_jacobian(2, 1, p, J, NULL), ATTN_OK);
    assert_near(p[0], .2689, 6e-5);
    assert_near(J[0], .1966, 6e-5), assert_near(J[1], -.1966, 6e-5), assert_near(J[2], -.1966, 6e-5),
        assert_near(J[3], .1966, 6e-5);
}

/* P4, P5: T = 1 is the softmax; entropy rises with T, within its bounds; the limits, ties too; a shift changes nothing (P3). */
static void test_temperature(void **state)
{
    (void)state;
    const double s[5] = {1.5, -2, 3, 3, 0.25};
    double T[40], w[40 * 5], entropy[40], shifted[5], moved[5], logs[5];
    for (int t = 0; t < 40; t++) T[t] = 0.01 * pow(1.3, t);
    assert_int_equal(attn_temperature_sweep(5, 40, s, T, w, entropy, NULL), ATTN_OK);
    for (int t = 0; t < 40; t++) {
        double sum = 0;
        for (int j = 0; j < 5; j++) sum += w[t * 5 + j];
        assert_near(sum, 1, 1e-14);
        assert_true(entropy[t] >= 0 && entropy[t] <= attn_max_entropy(5));
        assert_true(t == 0 || entropy[t] > entropy[t - 1] || entropy[t] - log(2) < 1e-12);
        assert_near(attn_normalised_entropy(5, w + t * 5), entropy[t] / log(5), 1e-14);
    }
    assert_near(w[2], 0.5, 1e-12), assert_near(w[3], 0.5, 1e-12); /* the limit is uniform over the largest scores, not one-hot */
    for (int j = 0; j < 5; j++) shifted[j] = s[j] + 1000;
    attn_gibbs here = gibbs_of(s, 5, 2, logs), there = gibbs_of(shifted, 5, 2, moved);
    for (int j = 0; j < 5; j++) assert_near(moved[j], logs[j], 1e-13);
    assert_near(there.log_partition, here.log_partition + 500, 1e-11);
    assert_near(there.entropy, here.entropy, 1e-11);
    /* Scores far beyond the range of exp (P25). */
    const double huge[3] = {1000, -1000, 999};
    attn_gibbs g = gibbs_of(huge, 3, 1, w);
    assert_near(g.log_partition, 1000 + log1p(exp(-1)), 1e-12);
    assert_true(w[1] == 0);
    assert_int_equal(attn_log_softmax(3, 1, huge, NULL, logs, NULL), ATTN_OK);
    for (int j = 0; j < 3; j++) assert_near(logs[j], huge[j] - g.log_partition, 1e-12);
    /* Heat capacity is dE/dT: against a central difference. */
    const double step = 1e-5;
    double slope = (gibbs_of(s, 5, 2 + step, NULL).mean_energy - gibbs_of(s, 5, 2 - step, NULL).mean_energy) / (2 * step);
    assert_near(here.heat_capacity, slope, 1e-9);
}

/* P6: symmetric, rows and columns sum to 0, positive semidefinite; its product with a vector; central differences. */
static void test_jacobian(void **state)
{
    (void)state;
    enum { N = 6 };
    const double T = 0.7;
    double s[N], x[N], p[N], J[N * N], product[N], up[N], down[N], step = 1e-6;
    for (int j = 0; j < N; j++) s[j] = sin(2.0 * j), x[j] = cos(5.0 * j);
    gibbs_of(s, N, T, p);
    assert_int_equal(attn_softmax_jacobian(N, T, p, J, NULL), ATTN_OK);
    assert_int_equal(attn_softmax_jvp(N, T, p, x, product, NULL), ATTN_OK);
    double form = 0;
    for (int j = 0; j < N; j++) {
        double row = 0, along = 0;
        for (int k = 0; k < N; k++) {
            assert_true(J[j * N + k] == J[k * N + j] || fabs(J[j * N + k] - J[k * N + j]) < 1e-16);
            row += J[j * N + k];
            along += J[j * N + k] * x[k];
        }
        assert_near(row, 0, 1e-15);
        assert_near(product[j], along, 1e-15);
        assert_near(J[j * N + j], p[j] * (1 - p[j]) / T, 1e-16);
        form += x[j] * along;
    }
    assert_true(form >= 0);
    for (int k = 0; k < N; k++) {
        const double was = s[k];
        s[k] = was + step, gibbs_of(s, N, T, up);
        s[k] = was - step, gibbs_of(s, N, T, down);
        s[k] = was;
        for (int j = 0; j < N; j++) assert_near((up[j] - down[j]) / (2 * step), J[j * N + k], 1e-9);
    }
}

/* Cases that other libraries get wrong: one key, one head, a fully masked row. */
static void test_edges(void **state)
{
    (void)state;
    const double s[3] = {1, NAN, 3};
    const unsigned char some[3] = {1, 0, 1}, none[3] = {0, 0, 0};
    double w[3] = {9, 9, 9}, one[1] = {1};
    attn_gibbs g = {.struct_size = sizeof g};
    assert_int_equal(attn_softmax(3, 1, s, some, w, &g, NULL), ATTN_OK);
    assert_near(w[0], 1 / (1 + exp(2)), 1e-15);
    assert_true(w[1] == 0);
    assert_int_equal(attn_softmax(3, 1, s, none, w, &g, NULL), ATTN_OK);
    assert_true(w[0] == 0 && w[1] == 0 && w[2] == 0 && g.log_partition == -INFINITY && g.free_energy == INFINITY);
    assert_true(g.entropy == 0 && g.mean_energy == 0 && g.effective_states == 0 && g.heat_capacity == 0);
    assert_true(attn_normalised_entropy(1, one) == 0 && attn_max_entropy(1) == 0 && attn_max_entropy(0) == 0);
    assert_true(attn_entropy(1, one) == 0 && attn_effective_states(1, one) == 1);
    assert_true(attn_head_diversity(1, 3, w) == 0 && attn_head_diversity(0, 3, w) == 0);
    assert_true(attn_mutual_information(0, 3, w) == 0);

    const double a[4] = {.5, .5, 0, 0}, uniform[4] = {.25, .25, .25, .25};
    assert_near(attn_kl_divergence(4, a, uniform), log(4) - log(2), 1e-15);
    assert_true(attn_kl_divergence(4, uniform, a) == INFINITY && attn_kl_divergence(4, a, a) == 0);
    const double distinct[8] = {1, 0, 0, 0, 0, 1, 0, 0}, alike[8] = {1, 0, 0, 0, 1, 0, 0, 0};
    assert_near(attn_mutual_information(2, 4, distinct), log(2), 1e-15);
    assert_near(attn_mutual_information(2, 4, alike), 0, 1e-15);
    assert_true(attn_head_diversity(2, 4, distinct) == 1 && attn_head_diversity(2, 4, alike) == 0);
    double entropy[2];
    const double heads[8] = {1, 0, .5, .5, .5, .5, .5, .5};
    assert_int_equal(attn_head_entropy(2, 2, 2, heads, entropy, NULL), ATTN_OK);
    assert_near(entropy[0], log(2) / 2, 1e-15), assert_near(entropy[1], log(2), 1e-15);
}

/* Adding a constant to all scores changes nothing, however large it is; the lowest temperature keeps only the largest scores. */
static void test_distances(void **state)
{
    (void)state;
    const double near[3] = {0, 1, 2}, large[3] = {1e15, 1e15 + 1, 1e15 + 2};
    double w[3], shifted_w[3], logs[3];
    attn_gibbs g = {.struct_size = sizeof g}, shifted_g = {.struct_size = sizeof shifted_g};
    assert_int_equal(attn_softmax(3, 1, near, NULL, w, &g, NULL), ATTN_OK);
    assert_int_equal(attn_softmax(3, 1, large, NULL, shifted_w, &shifted_g, NULL), ATTN_OK);
    assert_int_equal(attn_log_softmax(3, 1, large, NULL, logs, NULL), ATTN_OK);
    for (int j = 0; j < 3; j++) assert_true(shifted_w[j] == w[j]);
    for (int j = 0; j < 3; j++) assert_true(exp(logs[j]) == w[j]);
    assert_true(shifted_g.entropy == g.entropy && shifted_g.heat_capacity == g.heat_capacity);
    const double two[3] = {5, 5, 4};
    assert_int_equal(attn_softmax(3, 1e-308, two, NULL, w, &g, NULL), ATTN_OK);
    assert_true(w[0] == 0.5 && w[1] == 0.5 && w[2] == 0);
    assert_true(fabs(g.entropy - log(2)) < 1e-15 && g.mean_energy == -5 && g.free_energy == -5 && g.heat_capacity == 0);
}

static void test_rejected(void **state)
{
    (void)state;
    double s[2] = {1, 2}, w[2] = {-1, -1};
    FAILS(attn_softmax(2, 0, s, NULL, w, NULL, &error), ATTN_ERR_ARGUMENT, "temperature is 0; it must be above 0 and finite");
    FAILS(attn_softmax(2, 1, NULL, NULL, w, NULL, &error), ATTN_ERR_ARGUMENT, "scores is NULL");
    FAILS(attn_log_softmax(-1, 1, s, NULL, w, &error), ATTN_ERR_SHAPE, "n (-1) is negative");
    FAILS(attn_log_softmax(2, 1, s, NULL, NULL, &error), ATTN_ERR_ARGUMENT, "logs is NULL");
    const double T[1] = {NAN};
    FAILS(attn_temperature_sweep(2, 1, s, T, w, NULL, &error), ATTN_ERR_ARGUMENT,
          "temperature is nan; it must be above 0 and finite");
    assert_int_equal(attn_temperature_sweep(2, -1, s, T, w, NULL, NULL), ATTN_ERR_SHAPE);
    FAILS(attn_temperature_sweep(2, 1, s, NULL, w, NULL, &error), ATTN_ERR_ARGUMENT, "temperatures is NULL");
    assert_true(w[0] == -1 && w[1] == -1);
}

/* Functions that take given weights. */
static void test_given_rejected(void **state)
{
    (void)state;
    const double p[2] = {.5, .5};
    double out[4] = {-1, -1, -1, -1};
    attn_error none;
    FAILS(attn_softmax_jacobian(-1, 1, p, out, &error), ATTN_ERR_SHAPE, "n (-1) is negative");
    FAILS(attn_softmax_jacobian(2, 0, p, out, &error), ATTN_ERR_ARGUMENT, "temperature is 0; it must be above 0 and finite");
    FAILS(attn_softmax_jacobian(2, 1, NULL, out, &error), ATTN_ERR_ARGUMENT, "p is NULL");
    FAILS(attn_softmax_jacobian(2, 1, p, NULL, &error), ATTN_ERR_ARGUMENT, "jacobian is NULL");
    FAILS(attn_softmax_jvp(-1, 1, p, p, out, &error), ATTN_ERR_SHAPE, "n (-1) is negative");
    FAILS(attn_softmax_jvp(2, NAN, p, p, out, &error), ATTN_ERR_ARGUMENT, "temperature is nan; it must be above 0 and finite");
    FAILS(attn_softmax_jvp(2, 1, NULL, p, out, &error), ATTN_ERR_ARGUMENT, "p is NULL");
    FAILS(attn_softmax_jvp(2, 1, p, NULL, out, &error), ATTN_ERR_ARGUMENT, "x is NULL");
    FAILS(attn_softmax_jvp(2, 1, p, p, NULL, &error), ATTN_ERR_ARGUMENT, "out is NULL");
    FAILS(attn_head_entropy(-1, 1, 2, p, out, &error), ATTN_ERR_SHAPE, "heads (-1) is negative");
    FAILS(attn_head_entropy(1, -2, 2, p, out, &error), ATTN_ERR_SHAPE, "rows (-2) is negative");
    FAILS(attn_head_entropy(1, 1, -3, p, out, &error), ATTN_ERR_SHAPE, "n (-3) is negative");
    FAILS(attn_head_entropy(1, 1, 2, NULL, out, &error), ATTN_ERR_ARGUMENT, "weights is NULL");
    FAILS(attn_head_entropy(1, 1, 2, p, NULL, &error), ATTN_ERR_ARGUMENT, "entropy is NULL");
    for (int k = 0; k < 4; k++) assert_true(out[k] == -1);
    /* no keys: no work, however many rows */
    assert_true(attn_head_diversity(INT64_MAX, 0, p) == 1);
    assert_true(attn_mutual_information(INT64_MAX, 0, p) == 0);
    assert_int_equal(attn_head_entropy(1, INT64_MAX, 0, p, (double[1]){0}, NULL), ATTN_OK);
    assert_int_equal(attn_softmax_jacobian(0, 1, NULL, NULL, NULL), ATTN_OK);
    assert_int_equal(attn_softmax_jvp(0, 1, NULL, NULL, NULL, NULL), ATTN_OK);
    assert_int_equal(attn_head_entropy(0, 1, 2, NULL, NULL, NULL), ATTN_OK);
    assert_int_equal(attn_head_entropy(1, 3, 0, NULL, out, &none), ATTN_OK); /* no keys: no entropy */
    assert_true(out[0] == 0 && out[1] == -1 && none.status == ATTN_OK);
}

/* Outputs that overlap an input: rejected where the result would be wrong, correct where in-place is allowed. */
static void test_overlap(void **state)
{
    (void)state;
    static const double fresh[8] = {.5, .25, .125, .125, 1, 2, 3, 4};
    double x[8], y[8];
    memcpy(x, fresh, sizeof x);
    OVERLAPS(attn_softmax(3, 1, x, NULL, x + 1, NULL, &error), "analysis: weights and scores");
    OVERLAPS(attn_softmax(3, 1, y, (const unsigned char *)x + 23, x, NULL, &error), "analysis: weights and keep");
    OVERLAPS(attn_log_softmax(3, 1, x + 2, NULL, x, &error), "analysis: logs and scores");
    OVERLAPS(attn_temperature_sweep(2, 2, x, x + 4, x, y, &error), "analysis: weights and scores");
    OVERLAPS(attn_temperature_sweep(2, 2, y, x + 4, x + 1, NULL, &error), "analysis: weights and temperatures");
    OVERLAPS(attn_temperature_sweep(2, 2, y, x + 4, x, x + 3, &error), "analysis: weights and entropy");
    OVERLAPS(attn_temperature_sweep(2, 2, x, x + 4, y, x + 1, &error), "analysis: entropy and scores");
    OVERLAPS(attn_softmax_jacobian(2, 1, x, x, &error), "analysis: jacobian and p");
    OVERLAPS(attn_softmax_jacobian(2, 1, x + 3, x, &error), "analysis: jacobian and p");
    OVERLAPS(attn_softmax_jvp(3, 1, y, x, x + 1, &error), "analysis: out and x");
    OVERLAPS(attn_softmax_jvp(3, 1, x, y, x, &error), "analysis: out and p");
    OVERLAPS(attn_head_entropy(2, 2, 2, x, x + 7, &error), "analysis: entropy and weights");
    assert_memory_equal(x, fresh, sizeof x);
    assert_int_equal(attn_softmax_jacobian(2, 1, x + 4, x, NULL), ATTN_OK); /* adjacent, no overlap */
    for (int logs = 0; logs < 2; logs++) {
        memcpy(x, fresh, sizeof x);
        for (int to = 0; to < 2; to++)
            assert_int_equal(logs ? attn_log_softmax(8, 1, x, NULL, to ? x : y, NULL)
                                  : attn_softmax(8, 1, x, NULL, to ? x : y, NULL, NULL),
                             ATTN_OK);
        assert_memory_equal(x, y, sizeof x);
    }
    memcpy(x, fresh, sizeof x);
    for (int to = 0; to < 2; to++) assert_int_equal(attn_softmax_jvp(4, 1, x, x + 4, to ? x + 4 : y, NULL), ATTN_OK);
    assert_memory_equal(x + 4, y, 4 * sizeof *x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden),         cmocka_unit_test(test_temperature),
                                       cmocka_unit_test(test_jacobian),       cmocka_unit_test(test_edges),
                                       cmocka_unit_test(test_distances),      cmocka_unit_test(test_rejected),
                                       cmocka_unit_test(test_given_rejected), cmocka_unit_test(test_overlap)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
