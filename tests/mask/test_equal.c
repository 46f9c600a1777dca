/* SPDX-License-Identifier: MIT
 *
 * test_equal.c - attention with the mask fields that a set of patterns fills in equals attention with the same mask as a matrix: o,
 * lse and every gradient, for each pattern and random sets of them.
 */
#include "draw.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 2, D = 3, DV = 2, INPUTS = 4, OUTPUTS = 5 };

typedef struct results {
    double *of[OUTPUTS]; /* o, lse, dq, dk, dv */
    int64_t count[OUTPUTS];
} results;

static double *buffer(int64_t n, int64_t factor)
{
    double *x = malloc(((size_t)n + 1) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) x[i] = sin((double)((i + 1) * factor));
    return x;
}

/* Forward and backward in f64, one key head for two query heads, with the matrix `keep`; NULL: with the set's fields.  Returns 0 if
 * fields cannot express the set. */
static int attend(const attn_pattern_set *set, const unsigned char *keep, int64_t len_q, int64_t len_kv, results *out)
{
    const int64_t sizes[INPUTS] = {HEADS * len_q * D, len_kv * D, len_kv * DV, HEADS * len_q * DV},
                  counts[OUTPUTS] = {sizes[3], HEADS * len_q, sizes[0], sizes[1], sizes[2]};
    double *in[INPUTS];
    attn_problem p = {.struct_size = sizeof p, .shape = {1, HEADS, 1, len_q, len_kv, D, DV}};
    attn_tensors a = {.struct_size = sizeof a};
    attn_error error;
    if (keep) {
        a.mask = (attn_input){keep, ATTN_BOOL, {ATTN_BROADCAST, ATTN_BROADCAST, len_kv, 1}};
    } else if (attn_pattern_set_apply(set, &p, &a, &error) != ATTN_OK) {
        return 0;
    }
    for (int k = 0; k < INPUTS; k++) in[k] = buffer(sizes[k], k + 1);
    for (int k = 0; k < OUTPUTS; k++) out->of[k] = buffer(out->count[k] = counts[k], 0);
    a.q = (attn_input){in[0], ATTN_F64, {0, 0, 0, 0}}, a.k = attn_in(in[1]), a.v = attn_in(in[2]);
    a.o = attn_out(out->of[0]), a.lse = attn_out(out->of[1]);
    if (attn_compute(&p, &a, &error) != ATTN_OK) fail_msg("%s", error.message);
    p.op = ATTN_BACKWARD;
    a.grad_o = attn_in(in[3]);
    a.grad_q = attn_out(out->of[2]), a.grad_k = attn_out(out->of[3]), a.grad_v = attn_out(out->of[4]);
    if (attn_compute(&p, &a, &error) != ATTN_OK) fail_msg("%s", error.message);
    for (int k = 0; k < INPUTS; k++) free(in[k]);
    return 1;
}

static void release(results *r)
{
    for (int k = 0; k < OUTPUTS; k++) free(r->of[k]);
}

static int same(const attn_pattern *patterns, int64_t count, int64_t len_q, int64_t len_kv)
{
    static const char *const names[] = {"o", "lse", "dq", "dk", "dv"};
    static unsigned char keep[MAX_Q * MAX_KV];
    attn_pattern_set *set;
    attn_error error;
    results fields, matrix;
    char text[200] = "";
    describe(patterns, count, text, sizeof text);
    if (attn_pattern_set_create(&set, len_q, len_kv, count, patterns, &error) != ATTN_OK) fail_msg("%s: %s", text, error.message);
    const int has_fields = attend(set, NULL, len_q, len_kv, &fields);
    if (has_fields) {
        const attn_output kept = attn_out(keep);
        assert_int_equal(attn_pattern_set_fill(set, &kept, NULL), ATTN_OK);
        assert_true(attend(set, keep, len_q, len_kv, &matrix));
        for (int k = 0; k < OUTPUTS; k++)
            for (int64_t n = 0; n < fields.count[k]; n++) {
                const double x = fields.of[k][n], y = matrix.of[k][n];
                if (!(x == y || fabs(x - y) <= 1e-13 * (1 + (double)len_q) * (1 + fabs(y))))
                    fail_msg("%s, %d x %d: %s[%d] is %.17g and not %.17g", text, (int)len_q, (int)len_kv, names[k], (int)n, x, y);
            }
        release(&fields), release(&matrix);
    }
    attn_pattern_set_destroy(set);
    return has_fields;
}

static void test_alone(void **state)
{
    (void)state;
    draw_blocks();
    for (int64_t kind = ATTN_PATTERN_CAUSAL; kind <= LAST_KIND; kind++)
        for (int n = 0; n < 6; n++) {
            const int64_t len_q = n < 3 ? MAX_Q : 1 + below(MAX_Q), len_kv = n % 3 == 0 ? MAX_KV : 1 + below(MAX_KV);
            const attn_pattern pattern = draw_pattern(kind, len_q, len_kv);
            expect_fields(kind, same(&pattern, 1, len_q, len_kv));
        }
}

static void test_together(void **state)
{
    int with_fields = 0;
    (void)state;
    draw_blocks();
    for (int n = 0; n < 300; n++) {
        const int64_t len_q = below(3) ? MAX_Q : 1 + below(MAX_Q), len_kv = below(3) ? MAX_KV : 1 + below(MAX_KV);
        attn_pattern patterns[3];
        const int64_t count = 2 + below(2);
        for (int64_t k = 0; k < count; k++) patterns[k] = draw_pattern(1 + below(LAST_KIND), len_q, len_kv);
        with_fields += same(patterns, count, len_q, len_kv);
    }
    print_message("fields express %d of 300 sets\n", with_fields);
    assert_true(with_fields > 180);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_alone), cmocka_unit_test(test_together)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
