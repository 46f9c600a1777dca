/* SPDX-License-Identifier: MIT
 *
 * test_no_elements.c - linear attention of every map, rule, decay, denominator and form, where one axis of the shape has size 0:
 * what has no elements is neither read nor written, wherever it lies and its strides lead, and everything else is as defined. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "linear_case.h"

#include <sys/mman.h>
#include <unistd.h>

static unsigned char *guard; /* nothing may access it */

enum { FAR = 1 << 30 };
static const int64_t astray[][4] = {{0, 0, 0, 1},     {0, 0, FAR, 1},     {0, FAR, 0, 1},        {FAR, 0, 0, 1},
                                    {0, FAR, FAR, 1}, {FAR, FAR, FAR, 1}, {-FAR, -FAR, -FAR, 1}, {FAR, FAR, FAR, FAR}};
enum { ASTRAY = sizeof astray / sizeof *astray };

/* The axes, and the random features. */
static const char *const axes[] = {"batch", "heads_q", "heads", "len", "dim_qk", "dim_v", "features", "len_q", "len_kv"};
enum { AXES = sizeof axes / sizeof *axes };

static void make_empty(attn_linear_problem *p, int axis)
{
    if (axis == 0) p->shape.batch = 0;
    if (axis == 1 || axis == 2) p->shape.heads_q = 0;
    if (axis == 2) p->shape.heads_kv = 0;
    if (axis == 3) p->shape.len_q = p->shape.len_kv = 0;
    if (axis == 4) p->shape.dim_qk = 0;
    if (axis == 5) p->shape.dim_v = 0;
    if (axis == 6) p->random_features = 0;
    if (axis == 7) p->shape.len_q = 0; /* (rejected if causal) */
    if (axis == 8) p->shape.len_kv = 0;
}

/* Moves tensors without elements to the guard page, with these strides as far as planning takes them; returns how many took them.
 * Each plan is asked anew, since planning decides what has elements. */
static int move_away(const attn_linear_problem *p, attn_linear_tensors *tensors, const int64_t *stride)
{
    attn_tensor_description row = {.struct_size = sizeof row};
    attn_linear_plan *plan = NULL;
    int moved = 0;
    assert_int_equal(attn_linear_plan_create(&plan, p, tensors, NULL, NULL), ATTN_OK);
    for (int n = 0; attn_tensor_describe(ATTN_FAMILY_LINEAR, n, &row, NULL) == ATTN_OK; n++) {
        attn_tensor_plan info = {.struct_size = sizeof info};
        attn_linear_plan *with;
        attn_input old, slot;
        memcpy(&old, (char *)tensors + row.offset, sizeof old);
        if (!old.data) continue;
        assert_int_equal(attn_linear_plan_tensor(plan, n, &info, NULL), ATTN_OK);
        if (info.shape[0] && info.shape[1] && info.shape[2] && info.shape[3]) continue;
        slot = old;
        slot.data = guard;
        memcpy(slot.stride, stride, sizeof slot.stride);
        memcpy((char *)tensors + row.offset, &slot, sizeof slot);
        if (attn_linear_plan_create(&with, p, tensors, NULL, NULL) == ATTN_OK) {
            moved++;
            attn_linear_plan_destroy(plan);
            plan = with;
        } else {
            old.data = guard;
            memcpy((char *)tensors + row.offset, &old, sizeof old);
        }
    }
    attn_linear_plan_destroy(plan);
    return moved;
}

/* Forward and backward, and the comparison; returns how many tensors were moved. */
static int run(const attn_linear_problem *p, int decays, int axis, const int64_t *stride)
{
    static const int64_t lengths[] = {2, 3};
    linear_case c = {.problem = *p, .decays = decays, .lengths = (axis + decays) % 2 ? lengths : NULL};
    int moved = 0;
    make_empty(&c.problem, axis);
    if (axis == 3 || axis == 8) c.lengths = NULL;
    linear_case_draw(&c, ATTN_F32, (uint64_t)axis);
    for (int op = ATTN_FORWARD; op <= ATTN_BACKWARD; op++) {
        attn_linear_tensors tensors;
        attn_error error = {.message = ""};
        attn_linear_plan *plan = NULL;
        c.problem.op = (attn_op)op;
        linear_case_tensors(&c, c.problem.op, &tensors);
        const attn_status status = attn_linear_plan_create(&plan, &c.problem, &tensors, NULL, &error);
        attn_linear_plan_destroy(plan);
        if (status != ATTN_OK) { /* (such as maps that need features) */
            linear_case_free(&c);
            return moved;
        }
        moved += move_away(&c.problem, &tensors, stride);
        if (attn_linear_compute(&c.problem, &tensors, &error) != ATTN_OK)
            fail_msg("%s 0, map %d, rule %d: %s", axes[axis], (int)p->features, (int)p->rule, error.message);
    }
    linear_case_define(&c); /* (without lengths) */
    /* A denominator of features of either sign may be next to 0. */
    const int positive = p->features != ATTN_FEATURES_IDENTITY && p->features < ATTN_FEATURES_FOURIER;
    const int comparable = !c.lengths && (positive || p->denominator == ATTN_DENOMINATOR_NONE);
    for (int t = T_O; t < TENSORS && comparable; t++)
        if (!(linear_case_error(&c, t) <= 1))
            fail_msg("%s 0, map %d, rule %d, decay %d, denominator %d, form %d: %s has an error of %g of its bound", axes[axis],
                     (int)p->features, (int)p->rule, decays + (int)p->decay_kind, (int)p->denominator, (int)p->form,
                     linear_tensor_names[t], linear_case_error(&c, t));
    linear_case_free(&c);
    return moved;
}

static void test_no_elements(void **state)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    long moved = 0;
    (void)state;
    guard = mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(guard != MAP_FAILED);
    for (int map = ATTN_FEATURES_ELU1; map <= ATTN_FEATURES_TRIGONOMETRIC; map++)
        for (int rule = ATTN_LINEAR_RULE_ADD; rule <= ATTN_LINEAR_RULE_LOW_RANK; rule++)
            for (int denominator = ATTN_DENOMINATOR_CLAMP; denominator <= ATTN_DENOMINATOR_NONE; denominator++)
                for (int decay = 0; decay <= 2; decay++) /* none, of the head, of each channel */
                    for (int form = ATTN_LINEAR_FORM_AUTO; form <= ATTN_LINEAR_FORM_QUADRATIC; form++)
                        for (int causal = 0; causal <= 1; causal++)
                            for (int n = (map + rule + denominator + decay + form + causal) % EVERY(1); n < AXES * ASTRAY;
                                 n += EVERY(1)) {
                                const attn_linear_problem p = {.features = (attn_features)map,
                                                               .rule = (attn_linear_rule)rule,
                                                               .denominator = (attn_denominator)denominator,
                                                               .decay_kind = decay > 1 ? ATTN_DECAY_CHANNEL : ATTN_DECAY_HEAD,
                                                               .form = (attn_linear_form)form,
                                                               .causal = causal,
                                                               .scale_kind =
                                                                   ATTN_SCALE_VALUE, /* (the defaults are infinite for dim_qk 0) */
                                                               .scale = 0.7,
                                                               .feature_scale = map >= ATTN_FEATURES_FAVOR ? 0.8 : 0,
                                                               .random_features = map >= ATTN_FEATURES_FAVOR ? 11 : 0,
                                                               .shape = {2, 2, 1, 4, 4, 12, 3}};
                                moved += run(&p, decay > 0, n / ASTRAY, astray[n % ASTRAY]);
                            }
    print_message("%ld tensors without elements\n", moved);
    assert_true(moved > 100000 / EVERY(1));
    assert_int_equal(munmap(guard, page), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_elements)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
