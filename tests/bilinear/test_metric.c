/* SPDX-License-Identifier: MIT
 * test_metric.c - metrics: construction, inverse and checks; the ruling of section 16.27 (a singular metric is an error, positive
 * definite excludes semidefinite); gradients against differences; rejected calls, with the exact message. */
#include "fails.h"

#include <float.h>
#include <math.h>

#include "attn/bilinear.h"
#include "draw.h"

enum { D = 9 };

static void assert_near(double x, double y, double off)
{
    if (!(fabs(x - y) <= off)) fail_msg("%.17g is not %.17g", x, y);
}

static void test_made(void **state)
{
    double g[D * D], w[4 * D], diagonal[D], grad[D * D], grad_w[4 * D];
    (void)state;
    assert_int_equal(attn_metric_scaled(D, 1, g, NULL), ATTN_OK);
    for (int i = 0; i < D * D; i++) assert_true(g[i] == (i / D == i % D));
    assert_int_equal(attn_metric_scaled(D, 0, g, NULL), ATTN_OK);
    for (int i = 0; i < D * D; i++) assert_true(g[i] == (i / D == i % D ? 1 / sqrt(D) : 0));
    draw(diagonal, D, 1);
    assert_int_equal(attn_metric_diagonal(D, diagonal, g, NULL), ATTN_OK);
    for (int i = 0; i < D * D; i++) assert_true(g[i] == (i / D == i % D ? diagonal[i / D] : 0));
    draw(w, 4 * D, 2);
    draw(grad, D * D, 3);
    assert_int_equal(attn_metric_learned(4, D, w, g, NULL), ATTN_OK);
    for (int i = 0; i < D * D; i++) {
        double sum = 0;
        for (int r = 0; r < 4; r++) sum += w[r * D + i / D] * w[r * D + i % D];
        assert_near(g[i], sum, 4 * DBL_EPSILON);
    }
    assert_int_equal(attn_metric_learned_backward(4, D, w, grad, grad_w, NULL), ATTN_OK);
    for (int i = 0; i < 4 * D; i++) { /* <grad, w^T w> is quadratic: a central difference has rounding errors only */
        double sides[2], more[4 * D];
        for (int side = 0; side < 2; side++) {
            memcpy(more, w, sizeof w);
            more[i] += side ? .5 : -.5;
            assert_int_equal(attn_metric_learned(4, D, more, g, NULL), ATTN_OK);
            sides[side] = 0;
            for (int c = 0; c < D * D; c++) sides[side] += grad[c] * g[c];
        }
        assert_near(sides[1] - sides[0], grad_w[i], D * D * 9 * DBL_EPSILON);
    }
}

static void test_inverse(void **state)
{
    (void)state;
    for (int dim = 1; dim <= 64; dim = dim * 3 + 1) {
        double *m = malloc((size_t)(4 * dim * dim) * sizeof *m), *inverse = m + dim * dim, *grad = inverse + dim * dim,
               *grad_m = grad + dim * dim;
        assert_non_null(m);
        draw(m, dim * dim, (uint64_t)dim);
        for (int i = 0; i < dim; i++) m[i * dim + (i + 1) % dim] += 2 * dim; /* a small first pivot: rows must be swapped */
        assert_int_equal(attn_metric_inverse(dim, m, inverse, NULL), ATTN_OK);
        for (int i = 0; i < dim * dim; i++) {
            double sum = 0, size = 1;
            for (int c = 0; c < dim; c++) {
                sum += m[i / dim * dim + c] * inverse[c * dim + i % dim];
                size += fabs(m[i / dim * dim + c] * inverse[c * dim + i % dim]);
            }
            assert_near(sum, i / dim == i % dim, 4 * dim * DBL_EPSILON * size);
        }
        draw(grad, dim * dim, 7);
        assert_int_equal(attn_metric_inverse_backward(dim, inverse, grad, grad_m, NULL), ATTN_OK);
        for (int i = 0; i < dim * dim; i += dim + 2) {
            const double kept = m[i], step = 1e-4;
            double *moved = malloc((size_t)(dim * dim) * sizeof *moved), slope = 0;
            assert_non_null(moved);
            for (int side = -1; side <= 1; side += 2) {
                m[i] = kept + side * step;
                assert_int_equal(attn_metric_inverse(dim, m, moved, NULL), ATTN_OK);
                for (int c = 0; c < dim * dim; c++) slope += side * grad[c] * moved[c];
            }
            m[i] = kept;
            free(moved);
            assert_near(slope / (2 * step), grad_m[i], 1e-7 * (1 + fabs(grad_m[i])));
        }
        free(m);
    }
}

static attn_metric_properties check(int64_t dim, const double *g)
{
    attn_metric_properties p = {.struct_size = sizeof p};
    assert_int_equal(attn_metric_check(dim, 0, g, &p, NULL), ATTN_OK);
    return p;
}

static void test_properties(void **state)
{
    const double asymmetric[4] = {1, .5, .3, 1}, lorentz[4] = {1, 0, 0, -1}, half[4] = {1, 1, 1, 1}, zero[4] = {0},
                 thin[4] = {1, 0, 0, 1e-9};
    const double huge[4] = {4e300, 1e300, 1e300, 4e300}, tiny[4] = {4e-300, 1e-300, 1e-300, 4e-300};
    double g[D * D], w[4 * D];
    (void)state;
    attn_metric_properties p = check(2, asymmetric);
    assert_true(!p.symmetric && p.positive_definite && !p.valid);
    assert_near(p.min_eigenvalue, .6, 4 * DBL_EPSILON);
    p = check(2, lorentz);
    assert_true(p.symmetric && !p.positive_definite && !p.valid);
    assert_near(p.min_eigenvalue, -1, 4 * DBL_EPSILON);
    assert_near(p.max_eigenvalue, 1, 4 * DBL_EPSILON);
    /* 16.27: semidefinite is not definite, although its smallest eigenvalue is above minus any tolerance. */
    p = check(2, half);
    assert_true(p.symmetric && !p.positive_definite && !p.valid);
    assert_near(p.min_eigenvalue, 0, 4 * DBL_EPSILON);
    p = check(2, zero);
    assert_true(p.symmetric && !p.positive_definite && p.min_eigenvalue == 0 && p.max_eigenvalue == 0);
    p = check(2, thin); /* a definite metric is definite even if its eigenvalue is below such a tolerance */
    assert_true(p.valid);
    assert_near(p.min_eigenvalue, 1e-9, 4 * DBL_EPSILON);
    p = check(2, huge);
    assert_true(p.valid && fabs(p.min_eigenvalue / 3e300 - 1) < 1e-15 && fabs(p.max_eigenvalue / 5e300 - 1) < 1e-15);
    p = check(2, tiny);
    assert_true(p.valid && fabs(p.min_eigenvalue / 3e-300 - 1) < 1e-15);
    draw(w, 4 * D, 5); /* rank 4 of 9 */
    assert_int_equal(attn_metric_learned(4, D, w, g, NULL), ATTN_OK);
    p = check(D, g);
    assert_true(p.symmetric && !p.positive_definite && p.max_eigenvalue > 1);
    for (int a = 0; a < D; a++) g[a * D + a] += .25; /* every eigenvalue grows by .25 */
    p = check(D, g);
    assert_true(p.valid);
    assert_near(p.min_eigenvalue, .25, 4 * D * DBL_EPSILON * p.max_eigenvalue);
    assert_int_equal(attn_metric_check(2, .21, asymmetric, &p, NULL), ATTN_OK);
    assert_true(p.symmetric && p.valid);
}

/* The second difference matrix has eigenvalues 2 - 2 cos(pi k / (n + 1)); after a Householder reflection it is no longer
 * tridiagonal. */
static void test_eigenvalues(void **state)
{
    (void)state;
    for (int n = 1; n <= 40; n += 13) {
        double *g = calloc((size_t)(n * n + n), sizeof *g), *v = g + n * n, square = 0;
        assert_non_null(g);
        for (int i = 0; i < n; i++) {
            g[i * n + i] = 2;
            if (i) g[i * n + i - 1] = g[(i - 1) * n + i] = -1;
        }
        draw(v, n, 11);
        for (int i = 0; i < n; i++) square += v[i] * v[i];
        for (int turn = 0; turn < 2; turn++) /* H g H with H = I - 2 v v^T / |v|^2: columns, then rows */
            for (int i = 0; i < n; i++) {
                double dot = 0;
                for (int j = 0; j < n; j++) dot += v[j] * (turn ? g[j * n + i] : g[i * n + j]);
                for (int j = 0; j < n; j++) *(turn ? &g[j * n + i] : &g[i * n + j]) -= 2 * dot / square * v[j];
            }
        const attn_metric_properties p = check(n, g);
        const double pi = acos(-1);
        assert_near(p.min_eigenvalue, 2 - 2 * cos(pi / (n + 1)), 16 * n * DBL_EPSILON);
        assert_near(p.max_eigenvalue, 2 + 2 * cos(pi / (n + 1)), 16 * n * DBL_EPSILON);
        assert_true(p.valid);
        free(g);
    }
}

static void test_rejected(void **state)
{
    const double half[4] = {1, 1, 1, 1}, near[4] = {1, 1, 1, 1 + 1e-15}, nan[4] = {1, 0, NAN, 1}, fine[4] = {1, 0, 0, 1};
    double out[4] = {7, 7, 7, 7};
    attn_metric_properties p = {.struct_size = sizeof p};
    (void)state;
    FAILS(attn_metric_inverse(2, half, out, &error), ATTN_ERR_ARGUMENT, "metric is singular: no pivot for column 1");
    FAILS(attn_metric_inverse(2, near, out, &error), ATTN_ERR_ARGUMENT,
          "metric is singular within rounding: its condition number is 3.6e+15");
    FAILS(attn_metric_inverse(2, nan, out, &error), ATTN_ERR_ARGUMENT, "metric[1][0] is nan; it must be finite");
    FAILS(attn_metric_check(2, 0, nan, &p, &error), ATTN_ERR_ARGUMENT, "metric[1][0] is nan; it must be finite");
    FAILS(attn_metric_check(2, -1, fine, &p, &error), ATTN_ERR_ARGUMENT, "tolerance is -1; it must be at least 0");
    FAILS(attn_metric_check(2, 0, fine, NULL, &error), ATTN_ERR_ARGUMENT, "properties is NULL");
    FAILS(attn_metric_inverse(0, fine, out, &error), ATTN_ERR_SHAPE, "dim is 0; it must be at least 1");
    FAILS(attn_metric_inverse(2, NULL, out, &error), ATTN_ERR_ARGUMENT, "g is NULL");
    FAILS(attn_metric_scaled(2, INFINITY, out, &error), ATTN_ERR_ARGUMENT, "scale is inf; it must be finite");
    FAILS(attn_metric_learned(-1, 2, fine, out, &error), ATTN_ERR_SHAPE, "count (-1) is negative");
    FAILS(attn_metric_diagonal(INT64_C(1) << 40, fine, out, &error), ATTN_ERR_SHAPE,
          "count 0 and dim 1099511627776 exceed the address space");
    for (int i = 0; i < 4; i++) assert_true(out[i] == 7);
}

/* Each output overlapping each array that it is computed from. */
static void test_overlap(void **state)
{
    double x[64], fresh[64], y[64];
    (void)state;
    draw(x, 64, 6);
    draw(y, 64, 7);
    memcpy(fresh, x, sizeof x);
    OVERLAPS(attn_metric_diagonal(2, x, x, &error), "bilinear: g and diagonal");
    OVERLAPS(attn_metric_learned(3, 2, x, x + 5, &error), "bilinear: g and w");
    OVERLAPS(attn_metric_learned_backward(3, 2, x, y, x, &error), "bilinear: grad_w and w");
    OVERLAPS(attn_metric_learned_backward(3, 2, y, x, x, &error), "bilinear: grad_w and grad_g");
    OVERLAPS(attn_metric_inverse(2, x, x, &error), "bilinear: inverse and g");
    OVERLAPS(attn_metric_inverse_backward(2, x, y, x, &error), "bilinear: grad_g and inverse");
    OVERLAPS(attn_metric_inverse_backward(2, y, x, x, &error), "bilinear: grad_g and grad_inverse");
    assert_memory_equal(x, fresh, sizeof x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_made),        cmocka_unit_test(test_inverse),  cmocka_unit_test(test_properties),
        cmocka_unit_test(test_eigenvalues), cmocka_unit_test(test_rejected), cmocka_unit_test(test_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
