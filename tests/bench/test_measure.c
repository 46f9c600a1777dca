/* SPDX-License-Identifier: MIT
 * test_measure.c - how attn bench divides its time, with a clock that only samples move: on a machine where a sample of a ceiling
 * takes long, ceilings take no more time than the problems. */
#include "test.h"

#include <math.h>

#include "cli/base/progress.h"
#include "cli/bench/clock.h"
#include "cli/bench/measure.h"

static double now, ceiling_takes;
static const double candidate_takes = 2e-3;
static int samples; /* of ceilings */

double clock_seconds(void) { return now; }

static double spend_on_ceiling(void)
{
    now += ceiling_takes;
    samples++;
    return 1e9;
}

void ceiling_sample(ceilings *all, ceiling *c)
{
    (void)all;
    const double rate = spend_on_ceiling();
    series_add(&c->rates, now, rate);
}

double ceiling_read_tensors(const ceilings *all, int count, void *const *memory, const size_t *bytes)
{
    (void)all, (void)count, (void)memory, (void)bytes;
    return spend_on_ceiling();
}

void ceilings_refresh(ceilings *all)
{
    for (int k = 0; k < all->count; k++) {
        const series *s = &all->list[k].rates;
        if (!s->count || s->when[s->count - 1] < now - 0.1) ceiling_sample(all, &all->list[k]);
    }
}

void candidate_sample(candidate *c)
{
    now += candidate_takes;
    c->spent += candidate_takes;
    series_add(&c->seconds, now, candidate_takes);
}

void progress_begin(progress *bar, const char *label, int quiet) { (void)bar, (void)label, (void)quiet; }
void progress_show(progress *bar, int64_t done, int64_t all) { (void)bar, (void)done, (void)all; }
void progress_end(progress *bar) { (void)bar; }

enum { PROBLEMS = 3, CEILINGS_HERE = 5 };

/* Returns the time of the ceilings as a multiple of that of the problems. */
static double run(double takes, double seconds)
{
    static const candidate none;
    candidate candidates[PROBLEMS] = {none, none, none};
    own_ceilings against[PROBLEMS];
    void *block = &now;
    ceilings all = {.count = CEILINGS_HERE};
    now = 0;
    samples = 0;
    ceiling_takes = takes;
    for (int k = 0; k < CEILINGS_HERE; k++) all.list[k].kind = k < 2 ? CEILING_FMA : CEILING_MEMORY;
    for (int k = 0; k < PROBLEMS; k++) {
        against[k] = (own_ceilings){.fma = &all.list[0], .stream = &all.list[4], .reads = 1};
        candidates[k].data.blocks = 1;
        candidates[k].data.block[0] = block;
    }
    measure_ceilings(&all, seconds * PROBLEMS);
    for (int k = 0; k < CEILINGS_HERE; k++) assert_true(all.list[k].rates.count >= 1);
    measure(candidates, against, PROBLEMS, &all, &(measure_limit){seconds, 1}, 1);
    double spent = 0;
    for (int k = 0; k < PROBLEMS; k++) {
        assert_true(candidates[k].spent >= seconds);
        assert_true(candidates[k].spent < seconds + 2 * candidate_takes);
        assert_true(candidates[k].stream.count >= 1); /* each has something to be compared with */
        spent += candidates[k].spent;
        series_free(&candidates[k].seconds);
        series_free(&candidates[k].stream);
    }
    for (int k = 0; k < CEILINGS_HERE; k++) series_free(&all.list[k].rates);
    assert_true(fabs(now - spent - samples * takes) < 1e-6 * now);
    return samples * takes / spent;
}

static void test_busy(void **state)
{
    (void)state;
    for (double takes = 1e-3; takes < 0.2; takes *= 3) {
        /* a first round, one after the first sample of each problem, and the last; then at most as much as the problems */
        const double rounds = (3 + PROBLEMS) * CEILINGS_HERE * takes / (PROBLEMS * 3.0), share = run(takes, 3);
        if (share > 1.01 + rounds) fail_msg("ceilings of %g s take %g times the time of the problems", takes, share);
    }
}

static void test_idle(void **state)
{
    (void)state;
    run(0.2e-3, 3);
    /* each sample of a problem has its own of both ceilings */
    assert_true(samples >= 2 * (int)(PROBLEMS * 3 / candidate_takes));
}

static void test_short(void **state)
{
    (void)state;
    run(1, 1e-3);
    assert_true(samples <= (3 + PROBLEMS) * CEILINGS_HERE + 2 * PROBLEMS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_busy), cmocka_unit_test(test_idle), cmocka_unit_test(test_short)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
