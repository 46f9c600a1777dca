/* SPDX-License-Identifier: MIT
 *
 * test_combinations.c - score kinds, relative terms, biases by distance, a modifier and normalisers, together and with all other
 * options, for every line of regressions.txt, of which the first 300 are random: forward with its statistics, and every gradient,
 * against ref/ within the bound on every instruction set; the same bits for any number of threads; and every third line in f64
 * against differences.  ATTN_FUZZ_SECONDS=S compares every line with differences and tries new combinations for S seconds; those
 * that fail are appended to the file.  ATTN_FUZZ_SEED is the seed of the first.
 */
#include "test.h"

#include "combination/differences.h"
#include "combination/outcome.h"

#include <math.h>
#include <time.h>

static const char regressions[] = "tests/scores/regressions.txt";
enum { RANDOM_LINES = 300, LINE = 500 };

/* What is wrong with a combination; "" if nothing is. */
typedef struct finding {
    char text[LINE + 200];
    int whole;       /* every n-th line also runs on plain C, and against differences */
    double worst[2]; /* fraction of the bound, forward and backward */
} finding;

static void compare(const char *line, attn_op op, attn_isa least, finding *found)
{
    combination c;
    combination_parse(&c, line, 0);
    c.statistics = op == ATTN_FORWARD;
    outcome out = outcome_make(&c, op);
    for (int isa = (int)least; isa <= ATTN_ISA_WASM128; isa++) {
        const char *name;
        if (!outcome_run(&c, &out, (attn_isa)isa, 1)) continue;
        double fraction = outcome_worst(&out, &name), *worst = &found->worst[op == ATTN_BACKWARD];
        if (!(fraction < 1))
            (void)snprintf(found->text, sizeof found->text, "%s on %s: %s is %g of the bound", c.text, attn_isa_name((attn_isa)isa),
                           name, fraction);
        *worst = fmax(*worst, fraction);
    }
    outcome_free(&c, &out);
    combination_free(&c);
}

/* The same combination in f64, whatever its type; keys that no query sees are not poisoned, since they are varied. */
static void differ(const char *line, finding *found)
{
    char text[LINE];
    combination c;
    const char *type = strchr(line, ':') + 1;
    (void)snprintf(text, sizeof text, "fwd:f64%s", strchr(type, ':'));
    combination_parse(&c, text, FINITE);
    double off = differences_off_by(&c, c.call.dropout_seed + 7, DIFFERENCES_ALL);
    if (off > 1) (void)snprintf(found->text, sizeof found->text, "%s: %g times the error that differences allow", c.text, off);
    combination_free(&c);
}

static void check(const char *line, int number, finding *found)
{
    found->text[0] = 0;
    const int whole = number % found->whole == 0;
    const attn_isa least = whole ? ATTN_ISA_SCALAR : ATTN_ISA_AVX2; /* plain C is the slowest */
    compare(line, ATTN_FORWARD, least, found);
    compare(line, ATTN_BACKWARD, least, found);
    if (whole) differ(line, found);
}

/* ---- lines ---- */

/* Calls use(line) for each line but comments; returns how many there are. */
static int each_line(void (*use)(const char *line, int number, void *context), void *context)
{
    char line[LINE];
    int lines = 0;
    FILE *file = fopen(regressions, "r");
    if (!file) fail_msg("%s: cannot read; run from the project's root", regressions);
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (line[0] && line[0] != '#') use(line, lines++, context);
    }
    fclose(file);
    return lines;
}

static void check_line(const char *line, int number, void *context)
{
    finding *found = context;
    if (number % EVERY(1)) return;
    check(line, number, found);
    if (found->text[0]) fail_msg("%s", found->text);
}

static void test_regressions(void **state)
{
    finding found = {.whole = getenv("ATTN_FUZZ_SECONDS") ? 1 : 3};
    (void)state;
    const int lines = each_line(check_line, &found);
    print_message("%d lines: at most %.3f of the bound forward, %.3f backward\n", lines, found.worst[0], found.worst[1]);
    assert_true(lines >= RANDOM_LINES);
    assert_true(found.worst[0] > 0.01 && found.worst[1] > 0.01); /* a bound that is never approached tells nothing */
}

static void same_bits(const char *line, int number, void *context)
{
    static const int thread_counts[] = {2, 3, 8};
    combination c;
    (void)context;
    if (number % 6) return;
    combination_parse(&c, line, 0);
    outcome_same_bits(&c, number % 12 ? ATTN_FORWARD : ATTN_BACKWARD, thread_counts, sizeof thread_counts / sizeof *thread_counts);
    combination_free(&c);
}

static void test_same_bits(void **state)
{
    (void)state;
    (void)each_line(same_bits, NULL);
}

/* ---- new combinations ---- */

/* Any problem with any of the terms, except that relative terms exist only for dot products. */
static void random_line(char *text, size_t size, uint64_t seed)
{
    static const attn_dtype types[] = {ATTN_F32, ATTN_F64, ATTN_F16, ATTN_BF16};
    problem_spec spec;
    random_state r = random_from(seed + 77);
    random_problem(&spec, seed, types[random_below(&r, 4)]);
    const int64_t score = random_below(&r, 8);
    if (random_below(&r, 3) == 0) {
        spec.normaliser = 1 + (int)random_below(&r, 3);
        spec.sink = 0, spec.empty = SPEC_EMPTY_ZERO; /* these join the denominator of softmax */
        if (spec.normaliser == ATTN_NORMALISER_SIGMOID) spec.shift = (double)(random_below(&r, 17) - 12) / 4;
    }
    size_t length = problem_print(&spec, text, size);
    (void)snprintf(text + length, size - length, " more%s%s%s",
                   score < 5    ? " kind"
                   : score == 5 ? ""
                                : " relative",
                   random_below(&r, 3) ? "" : " table", random_below(&r, 4) ? "" : " modify");
}

static void test_fuzz(void **state)
{
    const char *seconds = getenv("ATTN_FUZZ_SECONDS"), *first = getenv("ATTN_FUZZ_SEED");
    const time_t start = time(NULL);
    int tried = 0, failed = 0;
    char line[LINE];
    (void)state;
    if (!seconds) return; /* only on demand */
    const uint64_t from = first ? strtoull(first, NULL, 10) : (uint64_t)start << 20;
    for (uint64_t seed = from; difftime(time(NULL), start) < atof(seconds); seed++, tried++) {
        finding found = {.whole = 1};
        random_line(line, sizeof line, seed);
        check(line, 0, &found);
        if (!found.text[0]) continue;
        print_message("%s\n", found.text);
        FILE *file = fopen(regressions, "a");
        if (!file) fail_msg("%s: cannot write", regressions);
        (void)fprintf(file, "%s\n", line);
        fclose(file);
        failed++;
    }
    print_message("%d new combinations from seed %llu; %d failed and were added to %s\n", tried, (unsigned long long)from, failed,
                  regressions);
    assert_int_equal(failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_regressions), cmocka_unit_test(test_same_bits),
                                       cmocka_unit_test(test_fuzz)};
#if defined(__SANITIZE_THREAD__)
    cmocka_set_test_filter("test_same_bits"); /* the others have one thread */
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
