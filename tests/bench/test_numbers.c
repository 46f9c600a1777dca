/* SPDX-License-Identifier: MIT
 * test_numbers.c - the arithmetic of attn bench: quantiles, ceilings from nearby samples, counts of work, peak loops, memory. */
#include "test.h"

#include <math.h>
#include <signal.h>

#include "attn/attn.h"
#include "cli/bench/loops.h"
#include "cli/bench/memory.h"
#include "cli/measure/statistics.h"
#include "cli/measure/work.h"
#include "testing/problem/problem.h"

static void quantiles_lie_between_neighbours(void **state)
{
    (void)state;
    const double values[] = {40, 10, 30, 20, 50};
    assert_true(quantile(values, 5, 0) == 10);
    assert_true(quantile(values, 5, 0.5) == 30);
    assert_true(quantile(values, 5, 1) == 50);
    assert_true(fabs(quantile(values, 5, 0.1) - 14) < 1e-12);
    assert_true(quantile(values, 1, 0.9) == 40);
    assert_true(isnan(quantile(values, 0, 0.5)));
    assert_true(values[0] == 40); /* the input is not sorted in place */
}

static void spread_is_counted(void **state)
{
    (void)state;
    const double values[] = {1, 2, 3, 6};
    double deviation;
    int64_t counts[5];
    series s = {0};
    assert_true(isnan(series_mean(&s, &deviation)) && isnan(deviation));
    for (int k = 0; k < 4; k++) series_add(&s, k, values[k]);
    assert_true(series_mean(&s, &deviation) == 3 && fabs(deviation - sqrt(14.0 / 4)) < 1e-15);
    series_histogram(&s, 5, counts); /* bins of width 1 from 1 on; the maximum is in the last */
    assert_true(counts[0] == 1 && counts[1] == 1 && counts[2] == 1 && counts[3] == 0 && counts[4] == 1);
    series_free(&s);
    series_add(&s, 0, 7);
    series_histogram(&s, 5, counts); /* one value: bins of width 0 */
    assert_true(counts[0] == 1 && counts[4] == 0);
    series_free(&s);
}

static void a_ceiling_is_the_highest_sample_around(void **state)
{
    (void)state;
    series s = {0};
    assert_true(isnan(series_highest_near(&s, 0)));
    for (int k = 0; k < 1000; k++) series_add(&s, k, k == 500 ? 9 : k == 501 ? 100 : 10 + 0.001 * k);
    assert_int_equal(s.count, 1000);
    assert_true(series_highest_near(&s, 499.5) == 100); /* 501 is the second after it */
    assert_true(series_highest_near(&s, 497.5) == 100); /* the fourth */
    assert_true(series_highest_near(&s, 496.5) < 11);   /* the fifth is too far */
    assert_true(series_highest_near(&s, 504.5) == 100);
    assert_true(series_highest_near(&s, 505.5) < 11);
    assert_true(series_highest_near(&s, -1) == s.value[3]);
    assert_true(series_highest_near(&s, 5000) == s.value[999]);
    series_free(&s);
}

/* The definition of attn_mask, applied pair by pair. */
static double pairs_one_by_one(const attn_problem *p, const int64_t *len_q, const int64_t *len_kv, const int64_t *offsets)
{
    const attn_mask *m = &p->mask;
    double pairs = 0;
    for (int64_t b = 0; b < p->shape.batch; b++) {
        const int64_t rows = len_q ? len_q[b] : p->shape.len_q, keys = len_kv ? len_kv[b] : p->shape.len_kv;
        const int64_t offset = m->align == ATTN_ALIGN_BOTTOM_RIGHT ? keys - rows : offsets[b];
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < keys; j++) {
                const int64_t at = i + offset;
                if (m->causal && j > at) continue;
                const int global = j < m->global_kv || (at >= 0 && at < m->global_q);
                if (m->window && m->window_left >= 0 && j < at && at - j > m->window_left && !global) continue;
                if (m->window && m->window_right >= 0 && j > at && j - at > m->window_right && !global) continue;
                if (m->chunk && (double)(j / m->chunk) != floor((double)at / (double)m->chunk)) continue;
                pairs += 1;
            }
    }
    return pairs * (double)p->shape.heads_q;
}

static void counts_the_visible_pairs(void **state)
{
    (void)state;
    static const char *const masks[] = {"",
                                        ":causal",
                                        ":causal=bottom-right",
                                        ":window=3,2",
                                        ":window=-1,0",
                                        ":causal:window=5,-1",
                                        ":align=bottom-right:window=0,0",
                                        ":offset=-4:causal",
                                        ":offset=20:window=2,9",
                                        ":offset=-3:window=-1,6",
                                        ":offset=-3:window=9223372036854775807,9223372036854775807",
                                        ":offset=5:window=9223372036854775807,2",
                                        ":sparse=longformer/4/3",
                                        ":causal:sparse=longformer/2/5",
                                        ":offset=-4:sparse=longformer/6/1",
                                        ":offset=9:sparse=longformer/2/2"};
    const int64_t len_q[] = {13, 0, 7}, len_kv[] = {0, 19, 11};
    for (size_t k = 0; k < sizeof masks / sizeof *masks; k++) {
        for (int lengths = 0; lengths < 2; lengths++) {
            for (int64_t chunk = 0; chunk < 5; chunk += 4) {
                char text[120];
                problem_spec spec;
                attn_problem p;
                attn_tensors tensors;
                attn_error error;
                snprintf(text, sizeof text, "b3:hq2:sq13:skv19:d8:dv4%s%s", masks[k], lengths ? ":lens" : "");
                assert_int_equal(problem_parse(text, &spec, &error), ATTN_OK);
                assert_int_equal(problem_build(&spec, &p, &tensors, &error), ATTN_OK);
                p.mask.chunk = chunk;
                const int64_t offsets[] = {spec.offset, spec.offset, spec.offset};
                const int64_t *q = lengths ? len_q : NULL, *kv = lengths ? len_kv : NULL;
                const double pairs = visible_pairs(&p, NULL, q, kv, offsets);
                if (pairs != pairs_one_by_one(&p, q, kv, offsets)) fail_msg("%s chunk %d: %g", text, (int)chunk, pairs);
                if (lengths || spec.offset_kind) continue;

                /* the library's count is the same */
                attn_plan *plan;
                attn_plan_description says = {.struct_size = sizeof says};
                assert_int_equal(attn_plan_create(&plan, &p, &tensors, NULL, &error), ATTN_OK);
                assert_int_equal(attn_plan_describe(plan, &says, &error), ATTN_OK);
                attn_plan_destroy(plan);
                assert_true(says.flops == problem_flops(&p, pairs));
                p.op = ATTN_BACKWARD;
                assert_true(problem_flops(&p, pairs) == 2.5 * says.flops);
            }
        }
    }
}

#if defined(__x86_64__)
enum { TRAP = 0x100 }; /* the flag that stops the CPU after each instruction */
static volatile sig_atomic_t stops;
static void on_stop(int number) { (void)number, stops++; }
static void set_trap(int on)
{
    const unsigned long long flags = __builtin_ia32_readeflags_u64();
    __builtin_ia32_writeeflags_u64(on ? flags | TRAP : flags & ~(unsigned long long)TRAP);
}

/* How many instructions a loop takes, and all that surrounds it. */
static long instructions_of(const fma_loop *loop, attn_isa isa, const void *memory, int64_t count)
{
    struct sigaction before, counting = {.sa_handler = on_stop};
    sigset_t trap, blocked;
    sigaction(SIGTRAP, &counting, &before);
    sigemptyset(&trap), sigaddset(&trap, SIGTRAP);
    sigprocmask(SIG_UNBLOCK, &trap, &blocked);
    stops = 0;
    set_trap(1);
    if (loop) loop->run(count);
    else read_loop(isa, memory, (size_t)count * READ_STEP);
    set_trap(0);
    sigprocmask(SIG_SETMASK, &blocked, NULL);
    sigaction(SIGTRAP, &before, NULL);
    return stops;
}

/* As many rounds as requested: 64 more take the same number of instructions each time, and a few each (compilers may unroll).
 * Emulators and debuggers may ignore the flag: then nothing is counted, of no loop. */
static void assert_rounds(const fma_loop *loop, attn_isa isa, const void *memory)
{
    enum { SOME = 64 };
    long last = instructions_of(loop, isa, memory, SOME), step = 0;
    if (last == 0) {
        print_message("instructions are not counted: nothing stops this CPU after each\n");
        return;
    }
    for (int n = 2; n <= 5; n++) {
        const long now = instructions_of(loop, isa, memory, n * SOME);
        if (n > 2) assert_int_equal(now - last, step);
        step = now - last;
        assert_true(step >= SOME);
        last = now;
    }
    assert_true(instructions_of(loop, isa, memory, 0) < instructions_of(loop, isa, memory, 1));
}
#else
static void assert_rounds(const fma_loop *loop, attn_isa isa, const void *memory) { (void)loop, (void)isa, (void)memory; }
#endif

/* The loops run for any count, 0 too, and as many rounds as requested (on x86-64, where instructions are counted); read_loop stays
 * within its memory. */
static void loops_do_what_they_are_asked(void **state)
{
    enum { ROUNDS = 5 * 64 };
    (void)state;
    attn_cpu_description cpu = {.struct_size = sizeof cpu};
    assert_int_equal(attn_cpu_describe(&cpu, NULL), ATTN_OK);
    unsigned char *memory = fresh_memory(ROUNDS * READ_STEP);
    int found = 0;
    for (int isa = ATTN_ISA_SCALAR; isa <= (int)cpu.isa; isa++) {
        for (int type = 0; type < 2; type++) {
            const fma_loop *loop = fma_loop_of((attn_isa)isa, type ? ATTN_F64 : ATTN_F32);
            if (!loop) continue;
            found++;
            assert_true(loop->flops > 0);
            loop->run(0);
            loop->run(1);
            loop->run(1000);
            assert_rounds(loop, (attn_isa)isa, NULL);
        }
        read_loop((attn_isa)isa, memory, 0);
        read_loop((attn_isa)isa, memory, ROUNDS * READ_STEP); /* the whole mapping, to its end */
        assert_rounds(NULL, (attn_isa)isa, memory);
    }
    assert_true(found >= 2);
    assert_null(fma_loop_of(ATTN_ISA_AVX2, ATTN_F16));
    fresh_release(memory, ROUNDS * READ_STEP);
}

static void memory_that_is_touched_is_counted(void **state)
{
    (void)state;
    const size_t bytes = (size_t)48 << 20;
    const int64_t before = memory_now();
    if (before < 0 || !memory_forget_peak()) SKIP_BECAUSE("the peak of memory cannot be read or forgotten here");
    unsigned char *memory = fresh_memory(bytes);
    const int64_t untouched = memory_peak() - before;
    for (size_t k = 0; k < bytes; k += 1024) memory[k] = 1;
    fresh_release(memory, bytes);
    const int64_t touched = memory_peak() - before;
    assert_in_range(untouched + (4 << 20), 0, 12 << 20);
    assert_in_range(touched, bytes - (4 << 20), bytes + (8 << 20));
    assert_true(memory_now() < before + (8 << 20));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_lie_between_neighbours),       cmocka_unit_test(spread_is_counted),
        cmocka_unit_test(a_ceiling_is_the_highest_sample_around), cmocka_unit_test(counts_the_visible_pairs),
        cmocka_unit_test(loops_do_what_they_are_asked),           cmocka_unit_test(memory_that_is_touched_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
