/* SPDX-License-Identifier: MIT
 *
 * test_chain.c - backward of additive scores with so many keys that its tasks add to one sum in order (gradient/chain.h): against
 * ref/ within the bound, the same bits for any number of threads, and the size of the workspace.
 */
#include "test.h"

#include "combination/outcome.h"

#include <math.h>

/* Seeds that are 4 modulo 5 have additive scores.  Narrow keys are cheap to compute, and wide values make sums of dV long. */
static const char *const texts[] = {
    "bwd:f32:b1:hq1:hkv1:sq70:skv2000:d5:dv256:seed=4",
    "bwd:f32:b1:hq4:hkv2:sq18:skv1900:d8:dv256:causal=bottom-right:seed=9",
    "bwd:bf16:b2:hq2:hkv1:sq10:skv2100:d3:dv230:window=300,20:align=bottom-right:alibi:seed=14",
    "bwd:f64:b1:hq1:hkv1:sq37:skv1300:d4:dv200:dropout=0.2:sink:seed=19",
    "bwd:f16:b1:hq2:hkv2:sq9:skv1950:d7:dv251:softcap=2:lens=kv:seed=24",
    "bwd:f32:b4:hq2:hkv2:sq3:skv1900:d8:dv256:seed=29",
    "bwd:f32:b1:hq1:hkv1:sq0:skv2000:d5:dv256:seed=34",
};
enum { TEXTS = sizeof texts / sizeof *texts };

static void draw(combination *c, const char *text)
{
    combination_parse(c, text, KIND | TABLE);
    assert_int_equal(c->problem.score.kind, ATTN_SCORE_ADDITIVE);
}

static void test_reference(void **state)
{
    double most = 0;
    (void)state;
    for (int n = 0; n < TEXTS; n++) {
        const char *name;
        combination c;
        draw(&c, texts[n]);
        outcome out = outcome_make(&c, ATTN_BACKWARD);
        assert_true(outcome_run(&c, &out, ATTN_ISA_DEFAULT, 3));
        const double worst = outcome_worst(&out, &name);
        if (!(worst < 1)) fail_msg("%s: %s is %g of the bound", texts[n], name, worst);
        most = fmax(most, worst);
        outcome_free(&c, &out);
        combination_free(&c);
    }
    print_message("at most %.4f of the bound\n", most);
    assert_true(most > 1e-4);
}

/* How many threads work at once. */
static int workers_of(const combination *c, int threads)
{
    const attn_options options = {.struct_size = sizeof options, .threads = threads};
    const attn_tensors tensors = tensors_of_op(&c->tensors, ATTN_BACKWARD);
    attn_problem p = c->problem;
    attn_plan *plan;
    attn_plan_description d = {.struct_size = sizeof d};
    attn_error error;
    p.op = ATTN_BACKWARD;
    if (attn_plan_create(&plan, &p, &tensors, &options, &error) != ATTN_OK) fail_msg("%s: %s", c->text, error.message);
    assert_int_equal(attn_plan_describe(plan, &d, NULL), ATTN_OK);
    attn_plan_destroy(plan);
    return d.threads;
}

/* One thread has the key head for itself; several, with one key head, add to its sums one after another. */
static void test_same_bits(void **state)
{
    static const int thread_counts[] = {2, 3, 7};
    (void)state;
    for (int n = 0; n < 3; n += EVERY(1)) {
        combination c;
        draw(&c, texts[n]);
        if (n == 0) assert_int_equal(workers_of(&c, 2), 2);
        outcome one = outcome_make(&c, ATTN_BACKWARD);
        assert_true(outcome_run(&c, &one, ATTN_ISA_DEFAULT, 1));
        outcome more = outcome_make(&c, ATTN_BACKWARD);
        for (size_t k = 0; k < sizeof thread_counts / sizeof *thread_counts; k++) {
            (void)outcome_run(&c, &more, ATTN_ISA_DEFAULT, thread_counts[k]);
            for (int i = 0; i < one.count; i++)
                if (memcmp(one.of[i].got.memory, more.of[i].got.memory,
                           (size_t)one.of[i].got.count * attn_dtype_size(one.of[i].got.layout.dtype)) != 0)
                    fail_msg("%s: bits of %s differ with %d threads", texts[n], one.of[i].name, thread_counts[k]);
        }
        outcome_free(&c, &one);
        outcome_free(&c, &more);
        combination_free(&c);
    }
}

static size_t planned(attn_op op, attn_dtype dtype, int64_t n, int threads)
{
    const attn_options options = {.struct_size = sizeof options, .threads = threads};
    attn_problem p = {.struct_size = sizeof p, .op = op, .shape = {1, 1, 1, n, n, 128, 64}};
    attn_plan *plan;
    attn_error error;
    attn_tensors t = {.struct_size = sizeof t, .q = {.data = ATTN_LATER, .dtype = dtype}};
    t.k.data = t.v.data = t.score_matrix.data = t.o.data = ATTN_LATER;
    if (op == ATTN_BACKWARD) {
        t.lse.data = t.grad_q.data = t.grad_k.data = t.grad_v.data = t.grad_score_matrix.data = ATTN_LATER;
        t.grad_o.data = ATTN_LATER;
    }
    p.score.kind = ATTN_SCORE_ADDITIVE;
    if (attn_plan_create(&plan, &p, &t, &options, &error) != ATTN_OK) fail_msg("%s", error.message);
    const size_t bytes = attn_plan_workspace_size(plan);
    attn_plan_destroy(plan);
    return bytes;
}

/* The workspace for a head of up to 16384 queries and keys is below 32 MiB, for any number of threads and any type. */
static void test_memory(void **state)
{
    (void)state;
    for (int64_t n = 1024; n <= 16384; n *= 2)
        for (int threads = 1; threads <= 16; threads++)
            for (int type = 0; type < 3; type++)
                for (int op = ATTN_FORWARD; op <= ATTN_BACKWARD; op++) {
                    static const attn_dtype types[] = {ATTN_F32, ATTN_BF16, ATTN_F16};
                    const size_t bytes = planned((attn_op)op, types[type], n, threads);
                    if (bytes >= (size_t)32 << 20)
                        fail_msg("%s of %lld in %s on %d threads takes %zu bytes", op == ATTN_FORWARD ? "forward" : "backward",
                                 (long long)n, attn_dtype_name(types[type]), threads, bytes);
                }
    for (int threads = 1; threads <= 8; threads *= 2)
        print_message("16384 queries and keys, backward, %d threads: %zu bytes\n", threads,
                      planned(ATTN_BACKWARD, ATTN_F32, 16384, threads));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reference), cmocka_unit_test(test_same_bits),
                                       cmocka_unit_test(test_memory)};
#if defined(__SANITIZE_THREAD__)
    cmocka_set_test_filter("test_same_bits"); /* the others use one set of threads, or compute nothing */
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
