/* SPDX-License-Identifier: MIT
 *
 * gradients.inc.c - gradients against central differences of the loss; in f32 close to those in f64; and all results have the same
 * bits for any number of threads.  Included by the test of a model, after by_loops.h and its sample, held, make, run, loss,
 * allowed, variants, VARIANTS, TENSORS and their names, and the sizes of a third derivative and of a sum (see assert_gradients). */
static void test_differences(void **state)
{
    (void)state;
    for (int n = 0; n < VARIANTS; n++) {
        sample s;
        held h;
        make(&s, &variants[n]);
        run(&s, &h, ATTN_F64, 1);
        for (int t = 0; t < TENSORS; t++)
            assert_gradients(s.v->name, names[t], s.x[t], h.grad[t], s.count[t], loss, &s, THIRD, SUM);
        free(h.saved);
    }
}

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
                    fail_msg("%s: gradient of %s[%d] is %g, not %g", s.v->name, names[t], (int)i, get(ATTN_F32, narrow.grad[t], i),
                             wide.grad[t][i]);
        free(wide.saved), free(narrow.saved), free(threads.saved);
    }
}
