/* SPDX-License-Identifier: MIT
 *
 * test_relative.c - relative keys and values and Transformer-XL with random combinations of all other options, in every storage
 * type, against ref/ within the bound on every instruction set; against differences in f64; the same bits for any number of
 * threads, also with many key heads; consecutive and separate key blocks; a clipped table and an equal full one.
 */
#include "test.h"

#include "combination/differences.h"
#include "combination/outcome.h"
#include "testing/random/share.h"

#include <math.h>

enum { SEEDS = CASES(200), FIRST = 120000 };

static const attn_dtype types[] = {ATTN_F32, ATTN_F64, ATTN_F16, ATTN_BF16};

static double compare(uint64_t seed, attn_dtype dtype, attn_op op, int flags)
{
    return outcome_drawn_fraction(seed, dtype, RELATIVE | flags, op, 1 + (int)(seed % 2));
}

static void test_types(void **state)
{
    double worst[2][4] = {{0}};
    (void)state;
    for (uint64_t n = 0; n < (uint64_t)share_of_cases(SEEDS); n++) {
        const int flags = n % 5 == 0 ? TABLE : n % 5 == 1 ? MODIFY : 0;
        worst[0][n % 4] = fmax(worst[0][n % 4], compare(FIRST + n, types[n % 4], ATTN_FORWARD, flags));
        worst[1][n % 4] = fmax(worst[1][n % 4], compare(FIRST + n, types[n % 4], ATTN_BACKWARD, flags));
    }
    for (int t = 0; t < 4; t++) {
        print_message("%s: at most %.4f of the bound forward, %.4f backward\n", attn_dtype_name(types[t]), worst[0][t],
                      worst[1][t]);
        assert_true(worst[0][t] > 1e-4 && worst[1][t] > 1e-4); /* a bound that is never approached tells nothing */
    }
}

/* ---- differences in f64 ---- */

static void test_differences(void **state)
{
    (void)state;
    for (uint64_t seed = FIRST + 20000; seed < FIRST + 20000 + 40; seed++) {
        combination c;
        combination_draw(&c, seed, ATTN_F64, FINITE | RELATIVE);
        double off = differences_off_by(&c, seed, DIFFERENCES_ALL);
        if (off > 1) fail_msg("%s: %g times the error that differences allow", c.text, off);
        combination_free(&c);
    }
}

static void relative_of(combination *c, const char *text, int seed)
{
    problem_spec spec;
    attn_error error;
    assert_int_equal(problem_parse(text, &spec, &error), ATTN_OK);
    spec.seed = (uint64_t)seed;
    combination_of(c, &spec, RELATIVE);
}

static void test_same_bits(void **state)
{
    static const int thread_counts[] = {2, 3, 8};
    enum { THREAD_COUNTS = sizeof thread_counts / sizeof *thread_counts };
    (void)state;
    for (uint64_t n = 0; n < SEEDS; n += 12)
        outcome_drawn_bits(FIRST + 10000 + n, types[n % 4], RELATIVE, ATTN_BACKWARD, thread_counts, THREAD_COUNTS);
    for (int n = 0; n < 4; n++) { /* more key heads than tasks that splits would give, and than workers */
        combination c;
        relative_of(&c, "fwd:f32:b5:hq8:hkv4:sq70:skv90:d20:dv12:causal:bias", n);
        outcome_same_bits(&c, ATTN_BACKWARD, thread_counts, THREAD_COUNTS);
        outcome out = outcome_make(&c, ATTN_BACKWARD);
        const char *name;
        assert_true(outcome_run(&c, &out, ATTN_ISA_DEFAULT, 3));
        assert_true(outcome_worst(&out, &name) < 1);
        outcome_free(&c, &out);
        combination_free(&c);
    }
}

/* Many query tiles of one key head: one thread takes their groups in sequence, several threads take turns. */
static void test_same_bits_of_many_tiles(void **state)
{
    static const int thread_counts[] = {2, 3, 8};
    static const char *const texts[] = {"fwd:f32:hq2:hkv1:sq700:skv60:d9:dv5", "fwd:f32:sq700:skv60:d9:dv5",
                                        "fwd:f32:hq2:hkv1:sq700:skv300:d9:dv5:causal=bottom-right", "fwd:f32:sq700:skv300:d9:dv5"};
    enum { DRAWS = CASES(3) > 0 ? CASES(3) : 1 };
    (void)state;
    for (int n = 0; n < DRAWS * (int)(sizeof texts / sizeof *texts); n++) {
        combination c;
        relative_of(&c, texts[n / DRAWS], FIRST + n);
        outcome_same_bits(&c, ATTN_BACKWARD, thread_counts, sizeof thread_counts / sizeof *thread_counts);
        combination_free(&c);
    }
}

/* A band reuses what it shares with the previous band, if that has the same queries and the preceding keys: consecutive blocks,
 * blocks with gaps, and blocks of one head after those of another; vectors of a tile that see different keys. */
static void test_neighbours(void **state)
{
    static const char *const texts[] = {
        "fwd:f32:b2:hq2:sq60:skv300:d9:dv5",
        "fwd:f64:hq2:sq70:skv300:d9:dv5:causal=bottom-right",
        "fwd:f32:hq2:sq200:skv300:d5:dv3:window=150,20",
        "fwd:f32:b2:hq4:hkv2:sq100:skv300:d9:dv5:packed",
        "fwd:f32:b4:hq8:sq20:skv256:d9:dv5:block=20,128/0.5",
        "fwd:f64:b4:hq8:sq20:skv256:d9:dv5:block=20,128/0.5",
    };
    enum { DRAWS = 2 };
    (void)state;
    for (int n = 0; n < DRAWS * (int)(sizeof texts / sizeof *texts); n++) {
        combination c;
        relative_of(&c, texts[n / DRAWS], FIRST + n);
        (void)outcome_fraction(&c, n % 2 ? ATTN_FORWARD : ATTN_BACKWARD, 1);
        combination_free(&c);
    }
}

/* A clipped table equals the full one with the same row at each distance. */
static void test_clipped(void **state)
{
    enum { H = 2, N = 600, D = 24, REACH = 40, DISTANCES = 2 * N - 1 };
    static float q[H][N][D], k[H][N][D], v[H][N][D], o[2][H][N][D], few[H][2 * REACH + 1][D], full[H][DISTANCES][D];
    (void)state;
    random_state r = random_from(11);
    float *all[] = {(float *)q, (float *)k, (float *)v};
    for (int t = 0; t < 3; t++)
        for (size_t i = 0; i < sizeof q / sizeof(float); i++) all[t][i] = (float)random_signed(&r);
    for (size_t i = 0; i < sizeof few / sizeof(float); i++) ((float *)few)[i] = (float)random_signed(&r);
    for (int h = 0; h < H; h++)
        for (int t = 0; t < DISTANCES; t++) {
            int d = t - (N - 1);
            memcpy(full[h][t], few[h][(d < -REACH ? -REACH : d > REACH ? REACH : d) + REACH], sizeof full[h][t]);
        }
    attn_problem p = {.struct_size = sizeof p, .shape = {1, H, H, N, N, D, D}};
    attn_tensors a = {.struct_size = sizeof a,
                      .q = attn_in(q),
                      .k = attn_in(k),
                      .v = attn_in(v),
                      .relative_keys = attn_in(few),
                      .relative_values = attn_in(few),
                      .o = attn_out(o[0])};
    p.relative = (attn_relative){.first = -REACH, .rows = 2 * REACH + 1};
    assert_int_equal(attn_compute(&p, &a, NULL), ATTN_OK);
    p.relative.first = 1 - N, p.relative.rows = DISTANCES;
    a.relative_keys = a.relative_values = attn_in(full), a.o = attn_out(o[1]);
    assert_int_equal(attn_compute(&p, &a, NULL), ATTN_OK);
    for (size_t i = 0; i < sizeof q / sizeof(float); i++) assert_true(fabsf(((float *)o[0])[i] - ((float *)o[1])[i]) < 4e-6F);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_types),      cmocka_unit_test(test_differences),
                                       cmocka_unit_test(test_same_bits),  cmocka_unit_test(test_same_bits_of_many_tiles),
                                       cmocka_unit_test(test_neighbours), cmocka_unit_test(test_clipped)};
#if defined(__SANITIZE_THREAD__)
    cmocka_set_test_filter("test_same_bits*"); /* the others have few threads */
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
