/* SPDX-License-Identifier: MIT
 *
 * test_roles.c - the roles of heads: planted heads score 1, uniform ones their baseline exactly, and rows that are not eligible do
 * not count. */
#include "test.h"

#include <math.h>

#include "cli/compute/roles.h"

enum { HALF = 10, TOKENS = 2 * HALF };

/* Ten words, said twice; the last of each ten is a separator. */
static const char *const words[TOKENS] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "[SEP]",
                                          "a", "b", "c", "d", "e", "f", "g", "h", "i", "[SEP]"};

static head_text text_of_words(void)
{
    head_text text = {.queries = TOKENS, .keys = TOKENS, .aligned = 1};
    head_text_words(&text, words);
    return text;
}

/* The key that a planted head looks at from query i; -1: it has no such key. */
static int64_t planted(head_role role, int64_t i)
{
    const int64_t separators[] = {9, 19};
    switch (role) {
    case HEAD_PREVIOUS:
        return i - 1;
    case HEAD_NEXT:
        return i + 1 < TOKENS ? i + 1 : -1;
    case HEAD_SELF:
        return i;
    case HEAD_SEPARATOR:
        return separators[i % 2];
    case HEAD_DUPLICATE:
        return i - HALF;
    case HEAD_INDUCTION:
        return i - HALF >= 0 ? i - HALF + 1 : -1;
    default:
        return 0; /* the first token */
    }
}

static void plant(head_role role, float weights[TOKENS][TOKENS])
{
    memset(weights, 0, sizeof(float) * TOKENS * TOKENS);
    for (int64_t i = 0; i < TOKENS; i++) {
        const int64_t j = planted(role, i);
        if (j >= 0) weights[i][j] = 1;
        for (int64_t k = 0; j < 0 && k < TOKENS; k++) weights[i][k] = 1.0f / TOKENS;
    }
}

static void planted_heads_score_one(void **state)
{
    (void)state;
    static const int64_t rows[] = {[HEAD_PREVIOUS] = 19,  [HEAD_NEXT] = 19,      [HEAD_SELF] = 20,      [HEAD_FIRST] = 19,
                                   [HEAD_SEPARATOR] = 20, [HEAD_DUPLICATE] = 10, [HEAD_INDUCTION] = 10, [HEAD_SINK] = 20};
    float weights[TOKENS][TOKENS];
    head_text text = text_of_words();
    for (head_role role = HEAD_PREVIOUS; role <= HEAD_SINK; role++) {
        head_roles of;
        plant(role, weights);
        head_roles_of(&text, weights[0], NULL, &of);
        assert_true(of.number[role].score == 1);
        assert_int_equal(of.number[role].rows, rows[role]);
        assert_true(head_role_badge(&of, role));
        assert_true(of.number[role].baseline < 0.2);
        /* and no other role, but what is one by definition: the first token is a sink, and looking at it is a habit of place */
        for (head_role other = HEAD_PREVIOUS; other < HEAD_SINK; other++)
            if (other != role && !(role == HEAD_SINK && other == HEAD_FIRST)) assert_false(head_role_badge(&of, other));
    }
    plant(HEAD_PREVIOUS, weights);
    for (int j = 0; j < TOKENS; j++) weights[0][j] = j == TOKENS - 1; /* at a distance that too few pairs have */
    head_roles of;
    head_roles_of(&text, weights[0], NULL, &of);
    assert_true(of.number[HEAD_POSITIONAL].score == 1);
    assert_true(of.number[HEAD_ENTROPY].score == 0);
    head_text_end(&text);
}

/* Whatever the mask: the baseline is computed by the same sums. */
static void uniform_heads_equal_the_baseline(void **state)
{
    (void)state;
    enum { ALL, CAUSAL, PADDED, MASKS };
    float weights[TOKENS][TOKENS];
    uint8_t visible[TOKENS][TOKENS];
    head_text text = text_of_words();
    for (int content = 0; content < 2; content++)
        for (int mask = ALL; mask < MASKS; mask++) {
            head_roles of;
            text.content = content;
            for (int i = 0; i < TOKENS; i++) {
                const int sees = mask == CAUSAL ? i + 1 : mask == PADDED ? 17 : TOKENS;
                for (int j = 0; j < TOKENS; j++) weights[i][j] = j < sees ? 1 / (float)sees : 0, visible[i][j] = j < sees;
            }
            head_roles_of(&text, weights[0], visible[0], &of);
            for (head_role role = 0; role < HEAD_ROLES; role++) {
                const head_number *n = &of.number[role];
                assert_true(n->score == n->baseline || (isnan(n->score) && n->rows == 0));
                assert_false(head_role_badge(&of, role));
            }
            assert_true(fabs(of.number[HEAD_ENTROPY].score - 1) < TOKENS * 0x1p-24);
            if (mask != CAUSAL) assert_true(of.number[HEAD_POSITIONAL].score == 0);
            if (mask == CAUSAL) assert_int_equal(of.number[HEAD_NEXT].rows, 0);
        }
    head_text_end(&text);
}

/* By hand: keys a b a b, causal. */
static void divides_by_eligible_rows(void **state)
{
    (void)state;
    static const char *const twice[] = {"a", "b", "a", "b"};
    const float weights[4][4] = {{1, 0, 0, 0}, {0.25f, 0.75f, 0, 0}, {0.5f, 0.25f, 0.25f, 0}, {0, 0.5f, 0.25f, 0.25f}};
    head_text text = {.queries = 4, .keys = 4, .aligned = 1};
    head_roles of;
    head_text_words(&text, twice);
    head_roles_of(&text, weights[0], NULL, &of);
    assert_true(of.number[HEAD_PREVIOUS].score == (0.25 + 0.25 + 0.25) / 3);
    assert_true(of.number[HEAD_SELF].score == (1 + 0.75 + 0.25 + 0.25) / 4);
    assert_true(of.number[HEAD_FIRST].score == (0.25 + 0.5 + 0) / 3);
    assert_int_equal(of.number[HEAD_DUPLICATE].rows, 2);
    assert_true(of.number[HEAD_DUPLICATE].score == (0.5 + 0.5) / 2);
    assert_true(of.number[HEAD_INDUCTION].score == (0.25 + 0.25) / 2);
    assert_int_equal(of.number[HEAD_SEPARATOR].rows, 0);
    assert_true(isnan(of.number[HEAD_SEPARATOR].score));
    assert_false(head_role_badge(&of, HEAD_SELF)); /* four rows are too few */
    head_text_end(&text);
}

/* A row without weight, and queries of another text. */
static void leaves_out_what_is_not_eligible(void **state)
{
    (void)state;
    float weights[TOKENS][TOKENS];
    head_text text = text_of_words();
    head_roles of;
    plant(HEAD_PREVIOUS, weights);
    memset(weights[3], 0, sizeof weights[3]);
    weights[5][4] = NAN;
    head_roles_of(&text, weights[0], NULL, &of);
    assert_int_equal(of.number[HEAD_PREVIOUS].rows, 17);
    assert_true(of.number[HEAD_PREVIOUS].score == 1);

    text.aligned = 0;
    head_roles_of(&text, weights[0], NULL, &of);
    for (head_role role = HEAD_PREVIOUS; role <= HEAD_INDUCTION; role++)
        if (role != HEAD_SEPARATOR) assert_int_equal(of.number[role].rows, 0);
    assert_int_equal(of.number[HEAD_SEPARATOR].rows, 18);
    assert_int_equal(of.number[HEAD_SINK].rows, 18);
    head_text_end(&text);
}

/* Of 8 queries and keys, one distance alone has 8 pairs; of 9 there are three. */
static void compares_distances(void **state)
{
    (void)state;
    for (int n = 8; n <= 9; n++) {
        float weights[9 * 9];
        const head_text text = {.queries = n, .keys = n, .aligned = 1};
        head_roles of;
        for (int k = 0; k < n * n; k++) weights[k] = k / n == k % n ? 1 : 0;
        head_roles_of(&text, weights, NULL, &of);
        assert_int_equal(of.number[HEAD_POSITIONAL].rows, n == 8 ? 0 : 9);
        assert_true(n == 8 ? isnan(of.number[HEAD_POSITIONAL].score) : of.number[HEAD_POSITIONAL].score == 1);
        assert_int_equal(head_role_badge(&of, HEAD_POSITIONAL), n == 9);
    }
}

/* Half of each row goes to a separator: without these, the rest is all that there is. */
static void omits_separators(void **state)
{
    (void)state;
    float weights[TOKENS][TOKENS];
    head_text text = text_of_words();
    head_roles of;
    memset(weights, 0, sizeof weights);
    for (int i = 0; i < TOKENS; i++) weights[i][9] += 0.5f, weights[i][i ? i - 1 : 0] += 0.5f;
    head_roles_of(&text, weights[0], NULL, &of);
    assert_true(of.number[HEAD_PREVIOUS].score == (18 * 0.5 + 1) / 19);
    assert_true(of.number[HEAD_SEPARATOR].score > 0.5);
    text.content = 1;
    head_roles_of(&text, weights[0], NULL, &of);
    assert_true(of.number[HEAD_PREVIOUS].score == 1);
    assert_int_equal(of.number[HEAD_PREVIOUS].rows, 16); /* neither the separators, nor the first token, nor the one after one */
    assert_int_equal(of.number[HEAD_SEPARATOR].rows, 0);
    head_text_end(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planted_heads_score_one),  cmocka_unit_test(uniform_heads_equal_the_baseline),
        cmocka_unit_test(divides_by_eligible_rows), cmocka_unit_test(leaves_out_what_is_not_eligible),
        cmocka_unit_test(omits_separators),         cmocka_unit_test(compares_distances),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
