/* SPDX-License-Identifier: MIT
 *
 * test_copying.c - eigenvalues, by their sums of powers, and the scores of circuits that copy, invert and turn. */
#include "test.h"

#include <math.h>

#include "cli/compute/copying.h"
#include "testing/random/random.h"

/* The sums of powers of the eigenvalues are the traces of the powers of the matrix; together they determine all of them. */
static void powers_add_up(void **state)
{
    (void)state;
    enum { MOST = 24 };
    random_state draw = random_from(4);
    for (int64_t n = 1; n <= MOST; n++) {
        double matrix[MOST * MOST], power[MOST * MOST], next[MOST * MOST], copy[MOST * MOST], squares = 0;
        double complex values[MOST];
        for (int64_t k = 0; k < n * n; k++) {
            matrix[k] = copy[k] = power[k] = random_signed(&draw);
            squares += matrix[k] * matrix[k];
        }
        assert_true(matrix_eigenvalues(n, copy, values));
        const double size = sqrt(squares);
        for (int64_t exponent = 1; exponent <= n; exponent++) {
            double complex sum = 0;
            double trace = 0;
            for (int64_t k = 0; k < n; k++) {
                double complex x = 1;
                for (int64_t e = 0; e < exponent; e++) x *= values[k];
                sum += x;
                trace += power[k * n + k];
            }
            /* The values are those of a matrix within n^2 u |A| of A, in the Frobenius norm; that changes the sum of the p-th
             * powers by at most sqrt(n) p |A|^(p-1) times that. */
            assert_true(cabs(sum - trace) <=
                        (double)exponent * sqrt((double)n) * (double)(n * n) * 0x1p-52 * pow(size, (double)exponent));
            for (int64_t i = 0; i < n; i++)
                for (int64_t j = 0; j < n; j++) {
                    next[i * n + j] = 0;
                    for (int64_t k = 0; k < n; k++) next[i * n + j] += power[i * n + k] * matrix[k * n + j];
                }
            memcpy(power, next, sizeof power);
        }
    }
}

static void known_matrices(void **state)
{
    (void)state;
    double turn[] = {0, -1, 1, 0}, jordan[] = {2, 1, 0, 0, 2, 1, 0, 0, 2}, cycle[] = {0, 0, 1, 1, 0, 0, 0, 1, 0}, zero[4] = {0};
    double broken[] = {NAN, 1, 1, 1};
    double complex values[3];
    assert_true(matrix_eigenvalues(2, turn, values));
    assert_true(cabs(values[0] + values[1]) < 1e-15 && cabs(values[0] * values[1] - 1) < 1e-15);
    assert_true(matrix_eigenvalues(3, jordan, values));
    for (int k = 0; k < 3; k++) assert_true(values[k] == 2);
    assert_true(matrix_eigenvalues(3, cycle, values)); /* the cube roots of 1, which need another shift */
    for (int k = 0; k < 3; k++) assert_true(cabs(values[k] * values[k] * values[k] - 1) < 1e-14);
    assert_true(matrix_eigenvalues(2, zero, values));
    assert_true(values[0] == 0 && values[1] == 0);
    assert_false(matrix_eigenvalues(2, broken, values));
}

static void circuits(void **state)
{
    (void)state;
    enum { DIM = 4, MODEL = 9 };
    double value[DIM * MODEL], output[MODEL * DIM];
    random_state draw = random_from(8);
    for (int k = 0; k < DIM * MODEL; k++) value[k] = random_signed(&draw);
    const struct {
        double sign, expected;
        int turns;
    } kinds[] = {{1, 1, 0}, {-1, -1, 0}, {1, 0, 1}, {0, NAN, 0}};
    for (size_t n = 0; n < sizeof kinds / sizeof *kinds; n++) {
        for (int e = 0; e < MODEL; e++)
            for (int d = 0; d < DIM; d++) {
                output[e * DIM + d] = kinds[n].sign * value[d * MODEL + e];
                if (!kinds[n].turns) continue;
                /* by 90 degrees, of pairs of orthonormal channels */
                value[d * MODEL + e] = d == e;
                output[e * DIM + d] = (d ^ 1) == e ? (d % 2 ? -1 : 1) : 0;
            }
        const double found = copying_of(DIM, MODEL, value, output);
        if (isnan(kinds[n].expected)) assert_true(isnan(found));
        else assert_true(fabs(found - kinds[n].expected) < 1e-12);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(powers_add_up),
        cmocka_unit_test(known_matrices),
        cmocka_unit_test(circuits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
