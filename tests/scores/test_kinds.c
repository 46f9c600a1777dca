/* SPDX-License-Identifier: MIT
 *
 * test_kinds.c - every score kind on random combinations of all options, in every storage type: forward and backward against ref/
 * within the bound on every instruction set, backward against differences, and the same bits for any number of threads.  What no
 * query may see is poisoned.
 */
#include "test.h"

#include "combination/outcome.h"

#include <math.h>

enum { SEEDS = 320, FIRST = 40000, KINDS = ATTN_SCORE_ADDITIVE };

static const attn_dtype types[] = {ATTN_F32, ATTN_F64, ATTN_F16, ATTN_BF16};

static const char *const names[KINDS] = {"general", "metric", "cosine", "distance", "additive"};

/* The kind is that of the seed: KINDS of them in turn. */
static void draw(combination *c, uint64_t seed, attn_dtype dtype, int flags)
{
    problem_spec spec;
    random_problem(&spec, seed, dtype);
    combination_of(c, &spec, KIND | flags);
}

static void compare(uint64_t seed, attn_dtype dtype, attn_op op, double *worst)
{
    combination c;
    draw(&c, seed, dtype, MORE);
    outcome out = outcome_make(&c, op);
    for (int isa = ATTN_ISA_SCALAR; isa <= ATTN_ISA_AVX512; isa++) {
        const char *name;
        if (!outcome_run(&c, &out, (attn_isa)isa, 1)) continue;
        double fraction = outcome_worst(&out, &name);
        if (!(fraction < 1))
            fail_msg("%s, %s on %s: %s is %g of the bound", c.text, names[seed % KINDS], attn_isa_name((attn_isa)isa), name,
                     fraction);
        *worst = fmax(*worst, fraction);
    }
    outcome_free(&c, &out);
    combination_free(&c);
}

static void test_types(void **state)
{
    double forward[KINDS][4] = {{0}}, backward[KINDS][4] = {{0}};
    (void)state;
    for (uint64_t n = 0; n < SEEDS; n++) {
        const uint64_t kind = (FIRST + n) % KINDS, type = n / KINDS % 4;
        compare(FIRST + n, types[type], ATTN_FORWARD, &forward[kind][type]);
        compare(FIRST + n, types[type], ATTN_BACKWARD, &backward[kind][type]);
    }
    for (int k = 0; k < KINDS; k++)
        for (int t = 0; t < 4; t++) {
            print_message("%s in %s: at most %.4f of the bound forward, %.4f backward\n", names[k], attn_dtype_name(types[t]),
                          forward[k][t], backward[k][t]);
            assert_true(forward[k][t] > 1e-4 && backward[k][t] > 1e-4); /* a bound that is never approached tells nothing */
        }
}

/* ---- differences in f64 ---- */

/* <dO, O> + <dlse, lse> of the rows that exist. */
static double loss_of(combination *c)
{
    double loss = 0;
    assert_true(combination_forward(c, ATTN_ISA_DEFAULT));
    tensor_read(&c->o), tensor_read(&c->lse);
    for (int64_t i = 0; i < c->ref.B * c->ref.Hq * c->ref.Sq * c->ref.Dv; i++) loss += c->grad_o.value[i] * c->o.value[i];
    for (int64_t i = 0; i < c->ref.B * c->ref.Hq * c->ref.Sq; i++)
        if (isfinite(c->lse.value[i])) loss += c->grad_lse.value[i] * c->lse.value[i];
    return loss;
}

/* Moves q, k, v and w by a step along a direction that the seed draws. */
static double moved(combination *c, uint64_t seed, double step)
{
    tensor *const all[] = {&c->q, &c->k, &c->v, &c->w};
    double *old[4], loss;
    random_source random = random_from(seed);
    for (int t = 0; t < 4; t++) {
        assert_non_null(old[t] = malloc((size_t)all[t]->count * sizeof(double) + 1));
        for (int64_t i = 0; i < all[t]->count; i++) {
            old[t][i] = tensor_get(all[t], i);
            tensor_set(all[t], i, old[t][i] + step * random_signed(&random));
        }
    }
    loss = loss_of(c);
    for (int t = 0; t < 4; t++) {
        for (int64_t i = 0; i < all[t]->count; i++) tensor_set(all[t], i, old[t][i]);
        free(old[t]);
    }
    return loss;
}

static void test_differences(void **state)
{
    static const double h = 1e-4;
    (void)state;
    for (uint64_t seed = FIRST + 20000; seed < FIRST + 20000 + 100; seed++) {
        combination c;
        draw(&c, seed, ATTN_F64, FINITE);
        if (c.w.count > 0 && c.w.layout.dtype != ATTN_F64) { /* a step would be rounded away */
            combination_free(&c);
            continue;
        }
        outcome out = outcome_make(&c, ATTN_BACKWARD);
        assert_true(outcome_run(&c, &out, ATTN_ISA_DEFAULT, 2));
        const tensor *const inputs[] = {&c.q, &c.k, &c.v, &c.w};
        random_source random = random_from(seed);
        double expected = 0, size = 0;
        for (int t = 0; t < 4; t++) {
            const output *o = &out.of[t < 3 ? t : out.count - 1]; /* grad_w is the last one */
            for (int64_t i = 0; i < inputs[t]->count; i++) {
                double term = tensor_get(&o->got, i) * random_signed(&random);
                expected += term;
                size += fabs(term);
            }
        }
        double near = (moved(&c, seed, h) - moved(&c, seed, -h)) / (2 * h);
        double far = (moved(&c, seed, 2 * h) - moved(&c, seed, -2 * h)) / (4 * h);
        double found = (4 * near - far) / 3;
        if (!(fabs(found - expected) <= 1e-6 * (1 + size)))
            fail_msg("%s, %s: backward says %.12g, differences %.12g (terms sum to %g)", c.text, names[seed % KINDS], expected,
                     found, size);
        outcome_free(&c, &out);
        combination_free(&c);
    }
}

static void test_same_bits(void **state)
{
    static const int crews[] = {2, 3, 8};
    (void)state;
    for (int n = 0; n < SEEDS; n += 7) {
        const uint64_t seed = (uint64_t)(FIRST + 10000 + n);
        combination c;
        draw(&c, seed, types[n % 4], MORE);
        outcome_same_bits(&c, ATTN_BACKWARD, crews, sizeof crews / sizeof *crews);
        combination_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_types), cmocka_unit_test(test_differences),
                                       cmocka_unit_test(test_same_bits)};
#if defined(__SANITIZE_THREAD__)
    cmocka_set_test_filter("test_same_bits"); /* the others have one thread */
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
