/* SPDX-License-Identifier: MIT
 * test_forms.c - relations between runs: the same bits for any number of threads and in any batch; a sequence split anywhere, with
 * its state passed on, equals the whole; causal outputs do not depend on later tokens; lengths equal shorter sequences. */
#include "linear_case.h"

#include "on_threads.h"
#include "testing/random/share.h"

#include <math.h>

/* Rules, decays and forms to try. */
static const struct kind {
    attn_linear_problem problem;
    int decays;
} kinds[] = {
    {{.causal = 1}, 0},
    {{.causal = 1, .features = ATTN_FEATURES_RELU}, 1},
    {{.causal = 1,
      .rule = ATTN_LINEAR_RULE_DELTA,
      .decay_kind = ATTN_DECAY_CHANNEL,
      .denominator = ATTN_DENOMINATOR_NONE,
      .features = ATTN_FEATURES_SOFTMAX},
     1},
    {{.causal = 1, .decay_kind = ATTN_DECAY_CHANNEL, .form = ATTN_LINEAR_FORM_CHUNKED}, 1},
    {{.causal = 1,
      .rule = ATTN_LINEAR_RULE_DELTA,
      .denominator = ATTN_DENOMINATOR_NONE,
      .features = ATTN_FEATURES_SOFTMAX,
      .form = ATTN_LINEAR_FORM_CHUNKED,
      .chunk = 29},
     1},
    {{.causal = 1,
      .rule = ATTN_LINEAR_RULE_DELTA,
      .decay_kind = ATTN_DECAY_CHANNEL,
      .denominator = ATTN_DENOMINATOR_NONE,
      .features = ATTN_FEATURES_SOFTMAX,
      .form = ATTN_LINEAR_FORM_QUADRATIC},
     1},
    {{.causal = 1, .rule = ATTN_LINEAR_RULE_LOW_RANK, .denominator = ATTN_DENOMINATOR_NONE, .features = ATTN_FEATURES_SOFTMAX}, 0},
    {{.features = ATTN_FEATURES_FAVOR, .random_features = 20}, 0}, /* the last one is not causal */
};
enum { KINDS = sizeof kinds / sizeof *kinds, CAUSAL = KINDS - 1 };

static linear_case open_case(int kind, int64_t batch, int64_t heads, int64_t len, attn_dtype dtype)
{
    linear_case c = {.problem = kinds[kind].problem, .decays = kinds[kind].decays};
    c.problem.shape = (attn_shape){batch, 2 * heads, heads, len, len, 16, 12};
    linear_case_draw(&c, dtype, 11);
    return c;
}

static size_t bytes_of(const linear_case *c, int t) { return (size_t)c->count[t] * attn_dtype_size(linear_case_type(c, t)); }

/* The same bits on many threads as on one. */
static void check_threads(linear_case c, int kind)
{
    void *kept[TENSORS];
    linear_case_run(&c, 1);
    for (int t = T_O; t < TENSORS; t++) {
        kept[t] = malloc(bytes_of(&c, t) + 1);
        memcpy(kept[t], c.data[t], bytes_of(&c, t));
        memset(c.data[t], 0xff, bytes_of(&c, t));
    }
    for (int op = 0; op < 2; op++) {
        attn_linear_problem problem = c.problem;
        attn_linear_tensors tensors;
        problem.op = op ? ATTN_BACKWARD : ATTN_FORWARD;
        linear_case_tensors(&c, problem.op, &tensors);
        const attn_options options = {.struct_size = sizeof options, .threads = ON_THREADS, .parallel_for = on_threads};
        attn_linear_plan *plan;
        assert_int_equal(attn_linear_plan_create(&plan, &problem, &tensors, &options, NULL), ATTN_OK);
        const size_t size = attn_linear_plan_workspace_size(plan);
        void *workspace = malloc(size);
        assert_int_equal(attn_linear_execute(plan, &tensors, workspace, size, NULL), ATTN_OK);
        free(workspace);
        attn_linear_plan_destroy(plan);
    }
    for (int t = T_O; t < TENSORS; t++) {
        if (memcmp(kept[t], c.data[t], bytes_of(&c, t)) != 0) fail_msg("kind %d: %s differs", kind, linear_tensor_names[t]);
        free(kept[t]);
    }
    linear_case_free(&c);
}

static void test_threads(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind += (int)share_stride()) check_threads(open_case(kind, 3, 2, 150, ATTN_F32), kind);
}

/* One head, whose work is split among threads: forward by channels of the values, backward by gradients. */
static void test_one_head(void **state)
{
    static const int64_t lengths[1] = {640};
    (void)state;
    for (int kind = 0; kind < KINDS; kind += (int)share_stride()) {
        linear_case c = {.problem = kinds[kind].problem, .decays = kinds[kind].decays, .lengths = lengths};
        const attn_options options = {.struct_size = sizeof options, .threads = 4};
        attn_linear_plan_description d = {.struct_size = sizeof d};
        attn_linear_plan *plan;
        c.problem.shape = (attn_shape){1, 2, 1, 700, 700, 24, 134};
        linear_case_draw(&c, ATTN_F32, 2);
        attn_linear_tensors tensors;
        linear_case_tensors(&c, ATTN_FORWARD, &tensors);
        assert_int_equal(attn_linear_plan_create(&plan, &c.problem, &tensors, &options, NULL), ATTN_OK);
        assert_int_equal(attn_linear_plan_describe(plan, &d, NULL), ATTN_OK);
        assert_true(d.threads > 1);
        attn_linear_plan_destroy(plan);
        check_threads(c, kind);
    }
}

/* The state in place, whose sum all threads read. */
static void test_one_head_in_place(void **state)
{
    (void)state;
    linear_case one = {.problem = kinds[0].problem, .decays = kinds[0].decays},
                many = {.problem = kinds[0].problem, .decays = kinds[0].decays};
    one.problem.shape = many.problem.shape = (attn_shape){1, 1, 1, 500, 500, 40, 96};
    linear_case_draw(&one, ATTN_F32, 2);
    linear_case_draw(&many, ATTN_F32, 2);
    many.args.final_state.data = many.data[T_S0], many.args.final_sum.data = many.data[T_Z0];
    linear_case_forward(&one, 1);
    linear_case_forward(&many, 4);
    assert_memory_equal(one.data[T_O], many.data[T_O], bytes_of(&one, T_O));
    assert_memory_equal(one.data[T_S1], many.data[T_S0], bytes_of(&one, T_S1));
    assert_memory_equal(one.data[T_Z1], many.data[T_Z0], bytes_of(&one, T_Z1));
    linear_case_free(&one);
    linear_case_free(&many);
}

/* Entry 1 of a batch of 3 has the same bits in a batch of its own. */
static void test_batch(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        linear_case all = open_case(kind, 3, 1, 60, ATTN_F32), one = open_case(kind, 1, 1, 60, ATTN_F32);
        for (int t = 0; t <= T_DZ1; t++) {
            const size_t bytes = bytes_of(&one, t);
            memcpy(one.data[t], (char *)all.data[t] + (t == T_OMEGA ? 0 : bytes), bytes);
        }
        linear_case_run(&all, 1);
        linear_case_run(&one, 1);
        for (int t = T_O; t < TENSORS; t++)
            if (memcmp(one.data[t], (char *)all.data[t] + bytes_of(&one, t), bytes_of(&one, t)) != 0)
                fail_msg("kind %d: %s differs", kind, linear_tensor_names[t]);
        linear_case_free(&all);
        linear_case_free(&one);
    }
}

/* One head: the rows from `first` on of a tensor with `tokens` tokens. */
static void *row_of(const linear_case *c, int t, int64_t tokens, int64_t first)
{
    return (char *)c->data[t] + bytes_of(c, t) / (size_t)tokens * (size_t)first;
}

static void test_split(void **state)
{
    enum { LEN = 101 };
    (void)state;
    for (int kind = 0; kind < CAUSAL; kind++)
        for (int64_t cut = 0; cut <= LEN; cut += 13) {
            linear_case c = {.problem = kinds[kind].problem, .decays = kinds[kind].decays};
            c.problem.shape = (attn_shape){1, 1, 1, LEN, LEN, 16, 12};
            linear_case_draw(&c, ATTN_F64, 5);
            linear_case_define(&c);
            attn_linear_problem part = c.problem;
            attn_linear_tensors a;
            linear_case_tensors(&c, ATTN_FORWARD, &a);
            part.shape.len_q = part.shape.len_kv = cut;
            assert_int_equal(attn_linear_compute(&part, &a, NULL), ATTN_OK);
            part.shape.len_q = part.shape.len_kv = LEN - cut;
            a.q.data = row_of(&c, T_Q, LEN, cut), a.k.data = row_of(&c, T_K, LEN, cut), a.v.data = row_of(&c, T_V, LEN, cut);
            a.o.data = row_of(&c, T_O, LEN, cut);
            if (a.denominators.data) a.denominators.data = row_of(&c, T_N, LEN, cut);
            if (a.decay.data) a.decay.data = row_of(&c, T_DECAY, LEN, cut);
            if (a.beta.data) a.beta.data = row_of(&c, T_BETA, LEN, cut);
            if (a.erase.data) a.erase.data = row_of(&c, T_ERASE, LEN, cut), a.write.data = row_of(&c, T_WRITE, LEN, cut);
            a.initial_state.data = a.final_state.data, a.initial_sum.data = a.final_sum.data; /* in place */
            assert_int_equal(attn_linear_compute(&part, &a, NULL), ATTN_OK);
            for (int t = T_O; t <= T_Z1; t++)
                if (!(linear_case_error(&c, t) <= 1)) fail_msg("kind %d cut %d: %s", kind, (int)cut, linear_tensor_names[t]);
            linear_case_free(&c);
        }
}

/* Later keys and values, NaN included, change no bit of the outputs before them. */
static void test_causal(void **state)
{
    enum { LEN = 77, FROM = 40 };
    (void)state;
    for (int kind = 0; kind < CAUSAL; kind++) {
        linear_case c = {.problem = kinds[kind].problem, .decays = kinds[kind].decays};
        c.problem.shape = (attn_shape){1, 1, 1, LEN, LEN, 16, 12};
        linear_case_draw(&c, ATTN_F32, 9);
        linear_case_forward(&c, 1);
        float *o = c.data[T_O], *k = c.data[T_K], *v = c.data[T_V], kept[FROM * 12];
        memcpy(kept, o, sizeof kept);
        for (int i = FROM * 16; i < LEN * 16; i++) k[i] = i % 3 ? 5 : -7;
        for (int i = FROM * 12; i < LEN * 12; i++) v[i] = i % 5 ? 9 : -3;
        linear_case_forward(&c, 1);
        assert_memory_equal(kept, o, sizeof kept);
        v[FROM * 12 + 5] = (float)NAN, v[(FROM + 3) * 12] = (float)INFINITY, k[(FROM + 1) * 16] = (float)NAN;
        linear_case_forward(&c, 1);
        for (int i = 0; i < FROM * 12; i++)
            if (memcmp(&kept[i], &o[i], sizeof o[i]) != 0)
                fail_msg("kind %d: o[%d] is %.9g, not %.9g", kind, i, (double)o[i], (double)kept[i]);
        assert_true(isnan(o[FROM * 12 + 5]));
        linear_case_free(&c);
    }
}

static void test_lengths(void **state)
{
    enum { LEN = 60 };
    static const int64_t lengths[3] = {0, 23, LEN};
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (int entry = 0; entry < 3; entry++) {
            linear_case all = open_case(kind, 3, 1, LEN, ATTN_F64),
                        one = {.problem = kinds[kind].problem, .decays = kinds[kind].decays};
            const int64_t n = lengths[entry];
            all.args.lengths = attn_in(lengths);
            for (int t = T_O; t < TENSORS; t++) memset(all.data[t], 0xff, bytes_of(&all, t));
            linear_case_run(&all, 0);
            one.problem.shape = all.problem.shape;
            one.problem.shape.batch = 1, one.problem.shape.len_kv = n;
            if (one.problem.causal) one.problem.shape.len_q = n;
            linear_case_draw(&one, ATTN_F64, 11);
            /* Copies the entry's rows, head by head. */
            for (int t = 0; t < TENSORS; t++) {
                const int64_t heads = t == T_OMEGA ? 1 : all.count[t] == 0 ? 1 : t == T_Q || t == T_DO ? 2 : 1;
                const int64_t from = all.count[t] / (t == T_OMEGA ? 1 : 3) / heads, to = one.count[t] / heads;
                for (int64_t h = 0; t <= T_DZ1 && h < heads; h++)
                    memcpy((double *)one.data[t] + h * to,
                           (double *)all.data[t] + (t == T_OMEGA ? 0 : entry * heads * from) + h * from,
                           (size_t)to * sizeof(double));
            }
            linear_case_run(&one, 0);
            for (int t = T_O; t < TENSORS; t++) {
                const int64_t heads = t == T_O || t == T_N || t == T_DQ ? 2 : 1;
                const int64_t from = all.count[t] / 3 / heads, to = one.count[t] / heads;
                for (int64_t h = 0; h < heads; h++)
                    for (int64_t i = 0; i < from; i++) {
                        const double got = ((double *)all.data[t])[(entry * heads + h) * from + i];
                        const double expected = i < to ? ((double *)one.data[t])[h * to + i] : 0;
                        if (memcmp(&got, &expected, sizeof got) != 0 && got != expected)
                            fail_msg("kind %d entry %d: %s[%d] is %g, not %g", kind, entry, linear_tensor_names[t], (int)i, got,
                                     expected);
                    }
            }
            linear_case_free(&all);
            linear_case_free(&one);
        }
}

/* The last causal query sees the same keys as without causality. */
static void test_last_row(void **state)
{
    (void)state;
    linear_case c = open_case(CAUSAL, 2, 1, 55, ATTN_F64);
    double last[4][12];
    linear_case_forward(&c, 1);
    for (int h = 0; h < 4; h++) memcpy(last[h], (double *)c.data[T_O] + (h * 55 + 54) * 12, sizeof last[h]);
    c.problem.causal = 1;
    linear_case_forward(&c, 1);
    for (int h = 0; h < 4; h++)
        for (int d = 0; d < 12; d++)
            assert_true(fabs(last[h][d] - ((double *)c.data[T_O])[(h * 55 + 54) * 12 + d]) <= 0x1p-53 * (16 + 20 + 55));
    linear_case_free(&c);
}

/* decay: 0 none, 1 per head, 2 per channel. */
static size_t backward_bytes(attn_linear_problem p, attn_linear_form form, int decay, attn_linear_rule rule)
{
    const attn_options options = {.struct_size = sizeof options, .threads = 1};
    attn_linear_plan *plan;
    p.op = ATTN_BACKWARD, p.form = form, p.decay_kind = decay > 1 ? ATTN_DECAY_CHANNEL : ATTN_DECAY_HEAD, p.rule = rule;
    if (rule) p.denominator = ATTN_DENOMINATOR_NONE;
    const attn_input in = attn_in(ATTN_LATER), none = {NULL, ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}};
    const attn_output out = attn_out(ATTN_LATER), nothing = {NULL, ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}};
    const attn_linear_tensors t = {.struct_size = sizeof t,
                                   .q = in,
                                   .k = in,
                                   .v = in,
                                   .o = rule ? nothing : out,
                                   .denominators = rule ? nothing : out,
                                   .decay = decay ? in : none,
                                   .beta = rule ? in : none,
                                   .grad_o = in,
                                   .grad_q = out,
                                   .grad_k = out,
                                   .grad_v = out,
                                   .grad_decay = decay ? out : nothing,
                                   .grad_beta = rule ? out : nothing};
    assert_int_equal(attn_linear_plan_create(&plan, &p, &t, &options, NULL), ATTN_OK);
    const size_t bytes = attn_linear_plan_workspace_size(plan);
    attn_linear_plan_destroy(plan);
    return bytes;
}

/* The workspace grows with sqrt(n) if states are kept, by one number per token for a decay per head, and otherwise not at all. */
static void test_memory(void **state)
{
    size_t forward[2], recurrent[2], chunked[2], decayed[2], delta[2];
    attn_linear_plan_description d[2] = {{.struct_size = sizeof *d}, {.struct_size = sizeof *d}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        attn_linear_problem p = {
            .struct_size = sizeof p, .causal = 1, .shape = {1, 1, 1, i ? 65536 : 4096, i ? 65536 : 4096, 64, 64}};
        attn_linear_plan *plan;
        const attn_options options = {.struct_size = sizeof options, .threads = 1};
        const attn_input in = attn_in(ATTN_LATER);
        const attn_linear_tensors t = {.struct_size = sizeof t, .q = in, .k = in, .v = in, .o = attn_out(ATTN_LATER)};
        assert_int_equal(attn_linear_plan_create(&plan, &p, &t, &options, NULL), ATTN_OK);
        forward[i] = attn_linear_plan_workspace_size(plan);
        assert_int_equal(attn_linear_plan_describe(plan, &d[i], NULL), ATTN_OK);
        attn_linear_plan_destroy(plan);
        recurrent[i] = backward_bytes(p, ATTN_LINEAR_FORM_RECURRENT, 0, ATTN_LINEAR_RULE_ADD);
        chunked[i] = backward_bytes(p, ATTN_LINEAR_FORM_CHUNKED, 0, ATTN_LINEAR_RULE_ADD);
        decayed[i] = backward_bytes(p, ATTN_LINEAR_FORM_CHUNKED, 1, ATTN_LINEAR_RULE_ADD);
        delta[i] = backward_bytes(p, ATTN_LINEAR_FORM_CHUNKED, 2, ATTN_LINEAR_RULE_DELTA);
    }
    assert_int_equal(forward[0], forward[1]);
    assert_true(recurrent[1] < 5 * recurrent[0]);
    assert_true(delta[1] < 5 * delta[0]);
    assert_int_equal(chunked[0], chunked[1]);
    assert_int_equal(decayed[1] - decayed[0], (65536 - 4096) * sizeof(double));
    assert_true(fabs(d[1].flops / d[0].flops - 16) < 0.1); /* work grows with n */
}

/* Multiply-adds of each form, counted by hand for 12 tokens of 5 features and 3 values, two queries per key: a state has 15
 * numbers. */
static void test_flops(void **state)
{
    static const struct {
        attn_linear_form form;
        attn_op op;
        int causal;
        double multiply_adds;
    } rows[] = {
        {ATTN_LINEAR_FORM_RECURRENT, ATTN_FORWARD, 1, 12 * 15 * (1 + 2)},          /* written, read twice */
        {ATTN_LINEAR_FORM_RECURRENT, ATTN_BACKWARD, 1, 12 * 15 * (4 + 2 * 2 + 2)}, /* states computed twice, and their gradients */
        {ATTN_LINEAR_FORM_CHUNKED, ATTN_FORWARD, 0, 12 * 15 + 2 * 12 * 15},        /* the sum over all keys, read */
        {ATTN_LINEAR_FORM_CHUNKED, ATTN_BACKWARD, 0, 12 * 15 * (1 + 2 + 2 + 2)},   /* the sum, dQ, its gradient, dK and dV */
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        linear_case c = {.problem = {.shape = {1, 2, 1, 12, 12, 5, 3}, .causal = rows[i].causal, .form = rows[i].form}};
        attn_linear_plan_description d = {.struct_size = sizeof d};
        attn_linear_tensors tensors;
        attn_linear_plan *plan;
        attn_error error;
        linear_case_draw(&c, ATTN_F32, 1);
        c.problem.op = rows[i].op;
        linear_case_tensors(&c, rows[i].op, &tensors);
        if (attn_linear_plan_create(&plan, &c.problem, &tensors, NULL, &error)) fail_msg("%s", error.message);
        assert_int_equal(attn_linear_plan_describe(plan, &d, NULL), ATTN_OK);
        if (d.flops != 2 * rows[i].multiply_adds) fail_msg("row %d: %g flops, not %g", (int)i, d.flops, 2 * rows[i].multiply_adds);
        attn_linear_plan_destroy(plan);
        linear_case_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads), cmocka_unit_test(test_one_head), cmocka_unit_test(test_one_head_in_place),
        cmocka_unit_test(test_batch),   cmocka_unit_test(test_split),    cmocka_unit_test(test_causal),
        cmocka_unit_test(test_lengths), cmocka_unit_test(test_memory),   cmocka_unit_test(test_flops),
        cmocka_unit_test(test_last_row)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
