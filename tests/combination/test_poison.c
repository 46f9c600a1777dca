/* SPDX-License-Identifier: MIT
 *
 * test_poison.c - masked NaN and infinity reach no output: for each kind of mask, in keys and values that some queries do not see,
 * and in fully masked queries, for forward, backward, forward mode and double backward.
 *
 * ref/ reads only visible elements, so an output that is NaN there depends on the poison, and every other must be right.  For a
 * query that sees poison all weights are NaN: gradients that sum over queries are then skipped for its batch entry.
 */
#include "test.h"

#include "outcome.h"

#include <math.h>

#define SIZES "b3:hq2:hkv1:sq20:skv41:d5:dv6:"

enum { KEYS = 41 };

typedef struct tally {
    int64_t right, reached; /* elements of outputs that are not NaN in ref/, and that are */
} tally;

/* Writes `poison` for the library, NaN for ref/. */
static void poison_row(tensor *t, int64_t b, int64_t h, int64_t token, double poison)
{
    if (!tensor_has(t, b, token)) return;
    for (int64_t c = 0; c < t->shape[3]; c++) {
        tensor_set(t, tensor_at(t, b, h, token, c), poison);
        t->value[((b * t->shape[1] + h) * t->shape[2] + token) * t->shape[3] + c] = (double)NAN;
    }
}

/* 1 for outputs with a row per query; all others sum over queries. */
static int is_of_queries(const char *name)
{
    static const char *const names[] = {"o", "lse", "grad_q", "tan_o", "tan_lse", "second_grad_o", "second_grad_lse", "second_q"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        if (strcmp(name, names[n]) == 0) return 1;
    return 0;
}

/* Extends one NaN to the whole output, or to its batch entry if the output has one per entry. */
static void poison_rest(output *o, int64_t batch)
{
    const int64_t *n = o->got.shape, entries = n[0] == batch ? batch : 1, each = n[0] / entries * n[1] * n[2] * n[3];
    for (int64_t b = 0; b < entries; b++) {
        int any = 0;
        for (int64_t at = 0; at < each; at++) any |= isnan(o->exact[b * each + at]);
        for (int64_t at = 0; any && at < each; at++) o->exact[b * each + at] = (double)NAN;
    }
}

/* Runs every operation on every instruction set. */
static void run(combination *c, const char *what, tally *all)
{
    static const attn_op ops[] = {ATTN_FORWARD, ATTN_BACKWARD, ATTN_JVP, ATTN_DOUBLE_BACKWARD};
    combination_say(c, what);
    for (size_t n = 0; n < sizeof ops / sizeof *ops; n++) {
        outcome out = outcome_make(c, ops[n]);
        for (int i = 0; i < out.count; i++)
            if (!is_of_queries(out.of[i].name)) poison_rest(&out.of[i], c->ref.B);
        (void)outcome_worst_run(c, &out, 1);
        for (int i = 0; i < out.count; i++)
            for (int64_t at = 0; at < out.of[i].got.count; at++) isnan(out.of[i].exact[at]) ? all->reached++ : all->right++;
        outcome_free(c, &out);
    }
}

enum { K = 1, V = 2, TAN_K = 4, TAN_V = 8 };

/* Poisons a key of the first head of each entry, in each tensor alone and in all. */
static void poison_keys(const char *text, int tensors, tally *all)
{
    static const int64_t places[] = {0, 17, KEYS - 1};
    static const int which[] = {K, V, TAN_K, TAN_V, K | V | TAN_K | TAN_V};
    for (int n = 0; n < 15; n++) {
        combination c;
        combination_parse(&c, text, FINITE);
        const double poison = n % 2 ? (double)NAN : (double)INFINITY;
        const int set = which[n % 5] & tensors;
        tensor *of[] = {&c.of[TENSOR(k)], &c.of[TENSOR(v)], &c.of[TENSOR(tan_k)], &c.of[TENSOR(tan_v)]};
        combination_give(&c, TENSOR(tan_k)), combination_give(&c, TENSOR(tan_v));
        for (int64_t b = 0; b < c.ref.B; b++)
            for (int x = 0; x < 4; x++)
                if (set >> x & 1) poison_row(of[x], b, 0, places[n / 5], poison);
        run(&c, "poisoned keys", all);
        combination_free(&c);
    }
}

/* Poisons every fully masked query. */
static int64_t poison_queries(const char *text, double poison)
{
    combination c;
    tally all = {0, 0};
    int64_t poisoned = 0;
    combination_parse(&c, text, FINITE);
    combination_give(&c, TENSOR(tan_q));
    for (int64_t b = 0; b < c.ref.B; b++)
        for (int64_t h = 0; h < c.ref.Hq; h++)
            for (int64_t i = 0; i < c.ref.Sq; i++) {
                int sees = 0;
                for (int64_t j = 0; j < c.ref.Skv; j++) sees |= ref_visible(&c.ref, b, h, i, j);
                if (sees) continue;
                tensor *of[] = {&c.of[TENSOR(q)], &c.of[TENSOR(tan_q)], &c.of[TENSOR(grad_o)],
                                &c.of[TENSOR(grad_lse)]}; /* grad_lse reaches the gradient of a sink */
                for (int x = 0; x < (c.ref.sink ? 3 : 4); x++) poison_row(of[x], b, h, i, poison);
                poisoned += tensor_has(&c.of[TENSOR(q)], b, i);
            }
    run(&c, "poisoned queries", &all);
    assert_int_equal(all.reached, 0);
    combination_free(&c);
    return poisoned;
}

/* words: a problem in which every poisoned key is masked for some queries; some_see_nothing: and some queries are fully masked. */
static void check(const char *words, int tensors, int some_see_nothing)
{
    static const char *const types[] = {"f32:" SIZES, "f64:" SIZES};
    for (int n = 0; n < 2; n++) {
        char text[200];
        tally all = {0, 0};
        (void)snprintf(text, sizeof text, "%s%s", types[n], words);
        poison_keys(text, tensors, &all);
        assert_true(all.right > 10000);
        assert_true(all.reached > 0);
        int64_t poisoned = poison_queries(text, (double)NAN) + poison_queries(text, -(double)INFINITY);
        assert_int_equal(poisoned > 0, some_see_nothing);
    }
}

enum { ALL = K | V | TAN_K | TAN_V };

#define CASE(name, words, tensors, some_see_nothing)                                                                               \
    static void name(void **state)                                                                                                 \
    {                                                                                                                              \
        (void)state;                                                                                                               \
        check(words, tensors, some_see_nothing);                                                                                   \
    }
CASE(causal, "causal:offset=-4", ALL, 1)
CASE(causal_bottom_right, "causal=bottom-right:lens", ALL, 1)
CASE(window, "window=3,2:offset=-6", ALL, 1)
CASE(lengths, "lens:seed=3", ALL, 1)
CASE(boolean, "mask=0.95", ALL, 1)
CASE(boolean_broadcast, "mask=0.8/h1q1:lens=q:seed=5", ALL, 1)
CASE(block, "block=3,8/0.8", ALL, 1)
CASE(chunk, "chunk=7:offset=-3", ALL, 1)
CASE(packed, "packed:causal:offset=-2:seed=1", ALL, 1)
CASE(dropout, "dropout=0.5", V | TAN_V, 0)
CASE(dropout_and_mask, "dropout=0.75:mask=0.9:softcap=1.5:alibi:sink", V | TAN_V, 1)
CASE(every_mask, "causal:offset=9:window=12,-1:lens:mask=0.3:block=4,4/0.2:bias:chunk=30:seed=2", ALL, 1)

/* A bias of -infinity, scattered and in whole rows: random biases have few, so whole rows are set here. */
static void bias(void **state)
{
    (void)state;
    for (int n = 0; n < 2; n++) {
        combination c;
        tally all = {0, 0};
        combination_parse(&c, n ? "f64:" SIZES "bias:softcap=2" : "f32:" SIZES "bias", FINITE);
        for (int t = TENSOR(tan_q); t <= TENSOR(tan_v); t++) combination_give(&c, t);
        for (int64_t b = 0; b < c.ref.B; b++)
            for (int64_t h = 0; h < c.ref.Hq; h++)
                for (int64_t i = 0; i < c.ref.Sq; i++)
                    for (int64_t j = 0; j < c.ref.Skv; j++)
                        if (i % 5 == 2 || (j == 17 && i % 2))
                            tensor_set(&c.of[TENSOR(bias)], tensor_at(&c.of[TENSOR(bias)], b, h, i, j), -INFINITY);
        tensor_read(&c.of[TENSOR(bias)]);
        tensor *of_key[] = {&c.of[TENSOR(k)], &c.of[TENSOR(v)], &c.of[TENSOR(tan_k)], &c.of[TENSOR(tan_v)]},
               *of_query[] = {&c.of[TENSOR(q)], &c.of[TENSOR(grad_o)], &c.of[TENSOR(grad_lse)], &c.of[TENSOR(tan_q)]};
        for (int64_t b = 0; b < c.ref.B; b++)
            for (int x = 0; x < 4; x++) {
                poison_row(of_key[x], b, 0, 17, (double)INFINITY);
                for (int64_t h = 0; h < c.ref.Hq; h++)
                    for (int64_t i = 2; i < c.ref.Sq; i += 5) poison_row(of_query[x], b, h, i, (double)NAN);
            }
        run(&c, "poisoned keys and queries", &all);
        assert_true(all.right > 1000 && all.reached > 0);
        combination_free(&c);
    }
}

/* Dropout drops all weights: values reach no output, although keys are visible. */
static void dropped_entirely(void **state)
{
    tally all = {0, 0};
    (void)state;
    poison_keys("f32:" SIZES "dropout=1", V | TAN_V, &all);
    assert_int_equal(all.reached, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(causal),     cmocka_unit_test(causal_bottom_right),
        cmocka_unit_test(window),     cmocka_unit_test(lengths),
        cmocka_unit_test(boolean),    cmocka_unit_test(boolean_broadcast),
        cmocka_unit_test(block),      cmocka_unit_test(bias),
        cmocka_unit_test(chunk),      cmocka_unit_test(packed),
        cmocka_unit_test(dropout),    cmocka_unit_test(dropout_and_mask),
        cmocka_unit_test(every_mask), cmocka_unit_test(dropped_entirely),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
