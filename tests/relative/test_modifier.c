/* SPDX-License-Identifier: MIT
 *
 * test_modifier.c - the caller's modifier with random combinations of all other options, in every storage type, against ref/ within
 * the bound on every instruction set; used as a mask, and as a bias whose parameter has a gradient; the same bits for any number of
 * threads.
 */
#include "test.h"

#include "combination/outcome.h"
#include "testing/random/share.h"

#include <math.h>

enum { SEEDS = CASES(240), FIRST = 91000 };

static const attn_dtype types[] = {ATTN_F32, ATTN_F64, ATTN_F16, ATTN_BF16};

static double compare(uint64_t seed, attn_dtype dtype, attn_op op, int flags)
{
    return outcome_drawn_fraction(seed, dtype, MODIFY | flags, op, 1 + (int)(seed % 3));
}

static void test_types(void **state)
{
    double worst[3][4] = {{0}};
    (void)state;
    for (uint64_t n = 0; n < (uint64_t)share_at_least(SEEDS, 15); n++) {
        const int flags = n % 3 == 0 ? KIND : n % 3 == 1 ? TABLE : 0;
        const uint64_t t = n / 3 % 4;
        worst[0][t] = fmax(worst[0][t], compare(FIRST + n, types[t], ATTN_FORWARD, flags));
        worst[1][t] = fmax(worst[1][t], compare(FIRST + n, types[t], ATTN_BACKWARD, flags));
        if (n % 3 == 2) worst[2][t % 2] = fmax(worst[2][t % 2], compare(FIRST + n, types[t % 2], ATTN_JVP, 0));
    }
    for (int t = 0; t < 4; t++) {
        print_message("%s: at most %.4f of the bound forward, %.4f backward, %.4f forward mode\n", attn_dtype_name(types[t]),
                      worst[0][t], worst[1][t], worst[2][t]);
        assert_true(worst[0][t] > 1e-4 && worst[1][t] > 1e-4 && (t > 1 || worst[2][t] > 1e-4));
    }
}

/* ---- the test's own modifier: s + parameter * distance in a window, -infinity outside ---- */

enum { H = 3, N = 150, D = 16, TILES = 64 };

typedef struct windowed {
    double parameter;
    int64_t window;
    double sums[H][N]; /* by (head, first_q), so that the order of sums does not depend on threads */
} windowed;

static void window_scores(void *context, const attn_score_tile *t)
{
    const windowed *w = context;
    for (int64_t j = 0; j < t->keys; j++)
        for (int64_t i = 0; i < t->queries; i++) {
            const int64_t d = t->position + i - t->first_kv - j;
            float *s = (float *)t->scores + j * t->stride + i;
            *s = d > w->window || d < -w->window ? -INFINITY : *s + (float)(w->parameter * (double)d);
        }
}

static void window_slopes(void *context, const attn_score_tile *t)
{
    windowed *w = context;
    for (int64_t j = 0; j < t->keys; j++)
        for (int64_t i = 0; i < t->queries; i++) {
            const int64_t at = j * t->stride + i;
            ((float *)t->slopes)[at] = 1;
            if (!t->again && t->gradients)
                w->sums[t->head][t->first_q] +=
                    (double)((const float *)t->gradients)[at] * (double)(t->position + i - t->first_kv - j);
        }
}

static float q[H][N][D], k[H][N][D], v[H][N][D], dO[H][N][D], o[3][H][N][D], lse[H][N], dq[H][N][D], dk[H][N][D], dv[H][N][D];

static void draw(void)
{
    float *all[] = {(float *)q, (float *)k, (float *)v, (float *)dO};
    random_state r = random_from(5);
    for (size_t t = 0; t < 4; t++)
        for (size_t i = 0; i < sizeof q / sizeof(float); i++) all[t][i] = (float)random_signed(&r);
}

static double attend(windowed *w, attn_op op, int threads, float *out)
{
    attn_problem p = {.struct_size = sizeof p, .op = op, .shape = {1, H, H, N, N, D, D}};
    attn_call call = {.struct_size = sizeof call, .modify_scores = window_scores, .modify_context = w};
    attn_tensors a = {.struct_size = sizeof a,
                      .call = &call,
                      .q = attn_in(q),
                      .k = attn_in(k),
                      .v = attn_in(v),
                      .o = attn_out(out),
                      .lse = attn_out(lse)};
    attn_options options = {.struct_size = sizeof options, .threads = threads};
    attn_plan *plan;
    if (op == ATTN_BACKWARD) {
        call.modify_slopes = window_slopes;
        a.grad_o = attn_in(dO), a.grad_q = attn_out(dq), a.grad_k = attn_out(dk), a.grad_v = attn_out(dv);
    }
    assert_int_equal(attn_plan_create(&plan, &p, &a, &options, NULL), ATTN_OK);
    size_t size = attn_plan_workspace_size(plan);
    void *workspace = malloc(size + 1);
    assert_non_null(workspace);
    memset(w->sums, 0, sizeof w->sums);
    assert_int_equal(attn_execute(plan, &a, workspace, size, NULL), ATTN_OK);
    free(workspace);
    attn_plan_destroy(plan);
    double loss = 0;
    for (size_t i = 0; i < sizeof q / sizeof(float); i++) loss += (double)out[i] * (double)((float *)dO)[i];
    return loss;
}

static void test_as_a_mask(void **state)
{
    (void)state;
    windowed w = {.window = 20};
    draw();
    attend(&w, ATTN_FORWARD, 2, (float *)o[0]);
    attn_problem p = {
        .struct_size = sizeof p, .shape = {1, H, H, N, N, D, D}, .mask = {.window = 1, .window_left = 20, .window_right = 20}};
    attn_tensors a = {.struct_size = sizeof a, .q = attn_in(q), .k = attn_in(k), .v = attn_in(v), .o = attn_out(o[1])};
    assert_int_equal(attn_compute(&p, &a, NULL), ATTN_OK);
    for (size_t i = 0; i < sizeof q / sizeof(float); i++) assert_true(fabsf(((float *)o[0])[i] - ((float *)o[1])[i]) < 2e-6F);
    for (int d = 0; d < D; d++) k[0][0][d] = v[0][0][d] = NAN; /* a dropped key has no effect */
    attend(&w, ATTN_FORWARD, 1, (float *)o[2]);
    assert_memory_equal(o[0][0][21], o[2][0][21], sizeof o[0][0][0] * (N - 21));
}

static void test_parameter(void **state)
{
    (void)state;
    windowed w = {.window = 60, .parameter = 0.03};
    draw();
    attend(&w, ATTN_FORWARD, 1, (float *)o[0]);
    attend(&w, ATTN_BACKWARD, 3, (float *)o[0]);
    double sum = 0, size = 0;
    for (int64_t h = 0; h < H; h++)
        for (int64_t i = 0; i < N; i++) sum += w.sums[h][i], size += fabs(w.sums[h][i]);
    w.parameter = 0.031;
    double more = attend(&w, ATTN_FORWARD, 1, (float *)o[1]);
    w.parameter = 0.029;
    double less = attend(&w, ATTN_FORWARD, 1, (float *)o[1]);
    if (!(fabs(sum - (more - less) / 0.002) < 2e-3 * size)) fail_msg("%g by slopes, %g by differences", sum, (more - less) / 0.002);
    assert_true(fabs(sum) > 1e-2);
}

static void test_same_bits(void **state)
{
    static float first[3][H][N][D];
    (void)state;
    windowed w = {.window = 60, .parameter = 0.03};
    draw();
    for (int threads = 1; threads < 9; threads += 2) {
        attend(&w, ATTN_FORWARD, threads, (float *)o[0]);
        attend(&w, ATTN_BACKWARD, threads, (float *)o[0]);
        if (threads == 1) memcpy(first[0], dq, sizeof dq), memcpy(first[1], dk, sizeof dk), memcpy(first[2], dv, sizeof dv);
        assert_memory_equal(first[0], dq, sizeof dq);
        assert_memory_equal(first[1], dk, sizeof dk);
        assert_memory_equal(first[2], dv, sizeof dv);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_types), cmocka_unit_test(test_as_a_mask),
                                       cmocka_unit_test(test_parameter), cmocka_unit_test(test_same_bits)};
#if defined(__SANITIZE_THREAD__)
    cmocka_set_test_filter("test_same_bits"); /* the others have few threads */
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
