/* SPDX-License-Identifier: MIT
 *
 * test_rollout.c - attention rollout against numbers by hand, and attention flow against the smallest of all cuts. */
#include "test.h"

#include <math.h>

#include "cli/compute/rollout.h"
#include "testing/random/random.h"

static void mixes_and_multiplies(void **state)
{
    (void)state;
    const float weights[2][2][2] = {{{1, 0}, {0.5f, 0.5f}}, {{0.5f, 0.5f}, {0, 1}}}; /* mean 3/4 1/4, 1/4 3/4 */
    const double expected[2][2] = {{0.875, 0.125}, {0.125, 0.875}}, square[2][2] = {{0.78125, 0.21875}, {0.21875, 0.78125}};
    double mixed[2][2], product[2][2];
    rollout_mix(2, 2, weights[0][0], mixed[0]);
    assert_memory_equal(mixed, expected, sizeof mixed);
    rollout_multiply(2, mixed[0], mixed[0], product[0]);
    assert_memory_equal(product, square, sizeof product);

    const float masked[2][2] = {{0, 0}, {0, 1}}; /* a query that sees nothing stays what it is */
    rollout_mix(1, 2, masked[0], mixed[0]);
    assert_true(mixed[0][0] == 1 && mixed[0][1] == 0 && mixed[1][1] == 1);

    const double left[2][2] = {{1, 2}, {3, 4}}, right[2][2] = {{5, 6}, {7, 8}}, both[2][2] = {{19, 22}, {43, 50}};
    rollout_multiply(2, left[0], right[0], product[0]);
    assert_memory_equal(product, both, sizeof product);
}

enum { TOKENS = 3, LAYERS = 3, PLACES = (LAYERS + 1) * TOKENS };

/* The capacity of the edges that leave a set of places. */
static double cut_of(const double *mixed, int set)
{
    double sum = 0;
    for (int l = 0; l < LAYERS; l++)
        for (int i = 0; i < TOKENS; i++)
            for (int j = 0; j < TOKENS; j++)
                if ((set >> ((l + 1) * TOKENS + i) & 1) && !(set >> (l * TOKENS + j) & 1))
                    sum += mixed[(l * TOKENS + i) * TOKENS + j];
    return sum;
}

static void flow_is_the_smallest_cut(void **state)
{
    (void)state;
    random_state draw = random_from(3);
    for (int n = 0; n < 60; n++) {
        double mixed[LAYERS * TOKENS * TOKENS];
        /* eighths, many of them 0: sums are exact */
        for (int k = 0; k < LAYERS * TOKENS * TOKENS; k++) {
            const int eighths = (int)random_below(&draw, 16) - 7;
            mixed[k] = eighths > 0 ? eighths / 8.0 : 0;
        }
        flow_network *f = flow_network_make(LAYERS, TOKENS, mixed);
        for (int top = 0; top < TOKENS; top++)
            for (int bottom = 0; bottom < TOKENS; bottom++) {
                const int source = 1 << (LAYERS * TOKENS + top), target = 1 << bottom;
                double smallest = INFINITY;
                for (int set = 0; set < 1 << PLACES; set++)
                    if ((set & source) && !(set & target)) smallest = fmin(smallest, cut_of(mixed, set));
                assert_true(flow_between(f, top, bottom) == smallest);
            }
        flow_network_free(f);
    }
}

static void flow_by_hand(void **state)
{
    (void)state;
    const double mixed[2][2][2] = {{{1, 0}, {0.5, 0.5}}, {{0.5, 0.5}, {0, 1}}};
    flow_network *f = flow_network_make(2, 2, mixed[0][0]);
    assert_true(flow_between(f, 0, 0) == 1);
    assert_true(flow_between(f, 0, 1) == 0.5);
    assert_true(flow_between(f, 1, 0) == 0.5);
    assert_true(flow_between(f, 1, 1) == 0.5);
    flow_network_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mixes_and_multiplies),
        cmocka_unit_test(flow_is_the_smallest_cut),
        cmocka_unit_test(flow_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
