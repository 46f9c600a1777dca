/* SPDX-License-Identifier: MIT
 *
 * test_differences.c - backward against central differences of the library's own forward in f64, along a random direction in all
 * inputs and parameters at once or in one of them: for every option alone, for 500 random combinations, and for every line of
 * regressions.txt.  With ATTN_FUZZ_SECONDS set, for new combinations as long as that; those that fail become lines of the file.
 */
#include "test.h"

#include "combination/outcome.h"

#include <math.h>
#include <time.h>

enum { SEEDS = 500, ALL = -1 };

static const char regressions[] = "tests/gradient/regressions.txt";

/* <dO, O> + <dlse, lse> of the rows that exist. */
static double loss_of(combination *c)
{
    double loss = 0;
    assert_true(combination_forward(c, ATTN_ISA_DEFAULT));
    tensor_read(&c->o);
    tensor_read(&c->lse);
    for (int64_t i = 0; i < c->ref.B * c->ref.Hq * c->ref.Sq * c->ref.Dv; i++) loss += c->grad_o.value[i] * c->o.value[i];
    for (int64_t i = 0; i < c->ref.B * c->ref.Hq * c->ref.Sq; i++)
        if (isfinite(c->lse.value[i])) loss += c->grad_lse.value[i] * c->lse.value[i];
    return loss;
}

/* The inputs that have a gradient, by its name in an outcome. */
static const char *const gradients[] = {"grad_q", "grad_k", "grad_v", "grad_bias", "grad_slopes", "grad_sink", "grad_scale"};
enum { INPUTS = 7 };

typedef struct input {
    tensor *x;        /* NULL: it stays */
    double *old, *to; /* where it was, and the direction */
} input;

static void move(const input *in, double step)
{
    for (int64_t at = 0; at < in->x->count; at++) tensor_set(in->x, at, in->old[at] + step * in->to[at]);
}

static double loss_at(combination *c, const input *in, double step)
{
    for (int i = 0; i < INPUTS; i++)
        if (in[i].x) move(&in[i], step);
    return loss_of(c);
}

/* Fourth order: the error is far below that of rounding. */
static double difference(combination *c, const input *in, double step)
{
    double near = (loss_at(c, in, step) - loss_at(c, in, -step)) / (2 * step);
    double far = (loss_at(c, in, 2 * step) - loss_at(c, in, -2 * step)) / (4 * step);
    return (4 * near - far) / 3;
}

/* Adds gradient . direction to *sum, and absolute values to *size.  Both lie alike: where the input broadcasts, the gradient has
 * size 1 and is dense. */
static void expect(const tensor *gradient, const input *in, double *sum, double *size)
{
    for (int64_t at = 0; at < in->x->count; at++) {
        double term = tensor_get(gradient, at) * in->to[at];
        *sum += term;
        *size += fabs(term);
    }
}

/* What is off, as a fraction of what rounding explains; negative where the input that is to move does not exist. */
static double off_by(const char *text, int only)
{
    combination c;
    combination_parse(&c, text, FINITE);
    outcome out = outcome_make(&c, ATTN_BACKWARD);
    random_source random = random_from(strlen(text));
    const int per_head = c.problem.score.scale_kind == ATTN_SCALE_PER_HEAD;
    tensor *inputs[INPUTS] = {&c.q, &c.k, &c.v, &c.bias, &c.slope, &c.sink, per_head ? &c.scale : NULL};
    input in[INPUTS] = {{NULL, NULL, NULL}};
    double expected = 0, size = 0;
    int any = 0;
    assert_true(outcome_run(&c, &out, ATTN_ISA_DEFAULT, 2));
    for (int i = 0; i < INPUTS; i++) {
        const output *gradient = outcome_find(&out, gradients[i]);
        if (!gradient || !inputs[i] || (only != ALL && only != i)) continue;
        const int64_t n = inputs[i]->count;
        any = 1;
        in[i] = (input){inputs[i], calloc((size_t)n + 1, sizeof(double)), calloc((size_t)n + 1, sizeof(double))};
        assert_true(in[i].old && in[i].to);
        for (int64_t at = 0; at < n; at++) {
            in[i].old[at] = tensor_get(inputs[i], at);
            in[i].to[at] = isfinite(in[i].old[at]) ? random_signed(&random) : 0;
        }
        expect(&gradient->got, &in[i], &expected, &size);
    }
    double off = any ? fabs(difference(&c, in, 1e-4) - expected) / (1e-7 * (1 + size)) : -1;
    for (int i = 0; i < INPUTS; i++) free(in[i].old), free(in[i].to);
    outcome_free(&c, &out);
    combination_free(&c);
    return isnan(off) ? INFINITY : off;
}

static void check(const char *text)
{
    double off = off_by(text, ALL);
    if (off > 1) fail_msg("%s: %g times off what differences allow", text, off);
}

/* The problem string of a random combination of all options. */
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
    for (int seed = 9000; seed < 9000 + SEEDS; seed++) {
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
            double off = off_by(text, i);
            if (off > 1) fail_msg("%s: %s is %g times off what differences allow", text, gradients[i], off);
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
    if (!seconds) return;
    for (uint64_t seed = (uint64_t)start << 20; difftime(time(NULL), start) < atof(seconds); seed++, tried++) {
        random_text(text, sizeof text, seed);
        if (off_by(text, ALL) <= 1) continue;
        FILE *file = fopen(regressions, "a");
        if (!file) fail_msg("%s: cannot write", regressions);
        (void)fprintf(file, "%s\n", text);
        fclose(file);
        failed++;
    }
    print_message("%d new combinations, %d of them failed and are in %s now\n", tried, failed, regressions);
    assert_int_equal(failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_regressions), cmocka_unit_test(test_every_option),
                                       cmocka_unit_test(test_combinations), cmocka_unit_test(test_one_by_one),
                                       cmocka_unit_test(test_fuzz)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
