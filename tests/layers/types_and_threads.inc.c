/* SPDX-License-Identifier: MIT
 *
 * types_and_threads.inc.c - gradients in f32 are close to those in f64, and all results have the same bits for any number of
 * threads. Included by the test of a model, after its sample, held, make, run, allowed, variants, VARIANTS and TENSORS, and
 * by_loops.h. */
static void test_f32_and_threads(void **state)
{
    (void)state;
    for (int n = 0; n < VARIANTS; n++) {
        sample s;
        held wide, narrow, threads;
        make(&s, &variants[n]);
        run(&s, &wide, ATTN_F64, 1);
        run(&s, &narrow, ATTN_F32, 1);
        run(&s, &threads, ATTN_F32, 5);
        assert_memory_equal(narrow.y, threads.y, sizeof narrow.y);
        assert_memory_equal(narrow.grad, threads.grad, sizeof narrow.grad);
        for (int t = 0; t < TENSORS; t++)
            for (int64_t i = 0; i < s.count[t]; i++)
                if (!(fabs(get(ATTN_F32, narrow.grad[t], i) - wide.grad[t][i]) <= 8 * allowed(ATTN_F32)))
                    fail_msg("%s: gradient of tensor %d at %d is %g, not %g", s.v->name, t, (int)i,
                             get(ATTN_F32, narrow.grad[t], i), wide.grad[t][i]);
        free(wide.saved), free(narrow.saved), free(threads.saved);
    }
}
