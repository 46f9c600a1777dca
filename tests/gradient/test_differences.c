/* SPDX-License-Identifier: MIT
 *
 * test_differences.c - backward against central differences of the library's own forward in f64, along a random direction in all
 * inputs and parameters or in one of them: for every option alone, 500 random combinations, and every line of regressions.txt. With
 * ATTN_FUZZ_SECONDS set, also for new combinations during that time; those that fail are appended to the file.
 */
#include "test.h"

#include "combination/differences.h"
#include "testing/random/share.h"

#include <time.h>

enum { SEEDS = CASES(500) };

/* The tensors with a gradient, for dot-product scores. */
static const int inputs[] = {TENSOR(q), TENSOR(k), TENSOR(v), TENSOR(bias), TENSOR(alibi_slopes), TENSOR(sink), TENSOR(scale)};
enum { INPUTS = sizeof inputs / sizeof *inputs };

static const char regressions[] = "tests/gradient/regressions.txt";

static double off_by(const char *text, int only)
{
    combination c;
    combination_parse(&c, text, FINITE);
    double off = differences_off_by(&c, strlen(text), only);
    combination_free(&c);
    return off;
}

static void check(const char *text)
{
    double off = off_by(text, DIFFERENCES_ALL);
    if (off > 1) fail_msg("%s: error is %g times what differences allow", text, off);
}

/* Writes the problem string of a random combination of all options. */
static void random_text(char *text, size_t size, uint64_t seed)
{
    problem_spec spec;
    random_problem(&spec, seed, ATTN_F64);
    size_t length = problem_print(&spec, text, size);
    assert_true(length + 8 < size);
    strcat(strcat(text, " "), combination_with_more);
}

static void test_regressions(void **state)
{
    char line[500];
    int lines = 0;
    FILE *file = fopen(regressions, "r");
    (void)state;
    if (!file) fail_msg("%s: cannot read; run from the project's root", regressions);
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (!line[0] || line[0] == '#') continue;
        check(line);
        lines++;
    }
    fclose(file);
    assert_true(lines > 0);
}

static void test_every_option(void **state)
{
    static const char *const options[] = {
        "lse",
        "causal",
        "causal=bottom-right",
        "causal:offset=-3",
        "offset",
        "window=3,1",
        "lens",
        "packed",
        "chunk=4",
        "mask=0.4",
        "mask=0.4/b1h1",
        "block=2,3/0.5",
        "bias",
        "bias=b1",
        "bias=h1",
        "bias=q1",
        "bias=k1",
        "bias=b1h1q1k1",
        "alibi",
        "alibi=batch-head",
        "sink",
        "scale=-0.5",
        "scale=heads",
        "temperature=1.75",
        "softcap=0.875",
        "dropout=0.25",
        "dropout=1",
        "empty=uniform",
        "causal:offset=-4:empty=uniform",
    };
    (void)state;
    for (size_t n = 0; n < sizeof options / sizeof *options; n++) {
        char text[200];
        (void)snprintf(text, sizeof text, "f64:b2:hq4:hkv2:sq9:skv14:d5:dv6:%s:seed=%d", options[n], (int)n);
        check(text);
    }
}

static void test_combinations(void **state)
{
    char text[400];
    (void)state;
    for (int seed = 9000; seed < 9000 + (int)share_of_cases(SEEDS); seed++) {
        random_text(text, sizeof text, (uint64_t)seed);
        check(text);
    }
}

static void test_one_by_one(void **state)
{
    int tried[INPUTS] = {0};
    char text[400];
    (void)state;
    for (int seed = 20000; seed < 20050; seed++)
        for (int i = 0; i < INPUTS; i++) {
            random_text(text, sizeof text, (uint64_t)seed);
            double off = off_by(text, inputs[i]);
            if (off > 1) fail_msg("%s: error of %s is %g times what differences allow", text, tensors_about(inputs[i])->name, off);
            tried[i] += off >= 0;
        }
    for (int i = 0; i < INPUTS; i++) assert_true(tried[i] >= 5);
}

static void test_fuzz(void **state)
{
    const char *seconds = getenv("ATTN_FUZZ_SECONDS");
    const time_t start = time(NULL);
    int tried = 0, failed = 0;
    char text[400];
    (void)state;
    if (!seconds) return; /* only on demand */
    for (uint64_t seed = (uint64_t)start << 20; difftime(time(NULL), start) < atof(seconds); seed++, tried++) {
        random_text(text, sizeof text, seed);
        if (off_by(text, DIFFERENCES_ALL) <= 1) continue;
        FILE *file = fopen(regressions, "a");
        if (!file) fail_msg("%s: cannot write", regressions);
        (void)fprintf(file, "%s\n", text);
        fclose(file);
        failed++;
    }
    print_message("%d new combinations, %d of them failed and were appended to %s\n", tried, failed, regressions);
    assert_int_equal(failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_regressions), cmocka_unit_test(test_every_option),
                                       cmocka_unit_test(test_combinations), cmocka_unit_test(test_one_by_one),
                                       cmocka_unit_test(test_fuzz)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
