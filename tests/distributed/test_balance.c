/* SPDX-License-Identifier: MIT
 *
 * test_balance.c - attn_split_balance: the work of the busiest rank is at most 1.05 times the average, where a rank has a dozen
 * parts or more. */
#include "test.h"

#include "attn/distributed.h"
#include "testing/random/random.h"

enum { DOCUMENTS = 600, LONGEST = 16384, MOST_PARTS = 1 << 13, MOST_RANKS = 32, DOZEN = 12 };

static int64_t starts[DOCUMENTS + 1], lengths[DOCUMENTS];
static int32_t owners_q[MOST_PARTS], owners_kv[MOST_PARTS];

/* Sequences whose lengths have even logarithms: many short ones, and few long ones. */
typedef struct drawn {
    int64_t count, part, window; /* window 0: none */
    int is_packed;               /* 0: a ragged batch */
} drawn;

static void draw(const drawn *d, uint64_t seed)
{
    random_state r = random_from(seed);
    for (int64_t n = 0; n < d->count; n++) {
        const int64_t length = INT64_C(1) << random_below(&r, 14);
        lengths[n] = length + random_below(&r, length + 1); /* 1 to LONGEST */
        starts[n + 1] = starts[n] + lengths[n];
    }
}

/* Pairs that a causal mask leaves to each rank, counted query by query; the busiest of them, as a multiple of the average. */
static double imbalance(const drawn *d, int ranks)
{
    double work[MOST_RANKS] = {0}, all = 0, most = 0;
    for (int64_t b = 0; b < d->count; b++)
        for (int64_t i = 0; i < lengths[b]; i++) {
            const int64_t row = d->is_packed ? starts[b] + i : i;
            work[owners_q[row / d->part]] += (double)(d->window && i + 1 > d->window ? d->window : i + 1);
        }
    for (int r = 0; r < ranks; r++) {
        all += work[r];
        if (work[r] > most) most = work[r];
    }
    return most * ranks / all;
}

static double check(const drawn *d, uint64_t seed, int ranks)
{
    draw(d, seed);
    attn_problem p = {.struct_size = sizeof p, .shape = {d->count, 1, 1, LONGEST, LONGEST, 8, 8}, .mask.causal = 1};
    if (d->window) p.mask.window = 1, p.mask.window_left = d->window - 1, p.mask.window_right = -1;
    attn_tensors t = {.struct_size = sizeof t};
    if (d->is_packed) t.cu_seqlens_q = t.cu_seqlens_kv = attn_in(starts);
    else t.lengths_q = t.lengths_kv = attn_in(lengths);
    const attn_split split = {.struct_size = sizeof split, .part = d->part};
    const attn_output q = {owners_q, ATTN_I32, {0, 0, 0, 0}}, kv = {owners_kv, ATTN_I32, {0, 0, 0, 0}};
    const int64_t parts = ((d->is_packed ? starts[d->count] : LONGEST) + d->part - 1) / d->part;
    attn_error error;
    assert_in_range(parts, DOZEN * ranks, MOST_PARTS);
    if (attn_split_balance(&p, ranks, &t, &split, &q, &kv, &error) != ATTN_OK) fail_msg("%s", error.message);
    const double found = imbalance(d, ranks);
    if (found > 1.05)
        fail_msg("%d %s sequences, seed %d, window %d, %d ranks: the busiest has %.3f of the average", (int)d->count,
                 d->is_packed ? "packed" : "ragged", (int)seed, (int)d->window, ranks, found);
    for (int64_t n = 0; n < parts; n++) assert_int_equal(owners_q[n], owners_kv[n]);
    return found;
}

static void test_sequences(void **state)
{
    static const struct {
        drawn sequences;
        int ranks; /* at most: then a rank still has a dozen parts */
    } all[] = {{{DOCUMENTS, 1024, 0, 1}, 32},
               {{DOCUMENTS, 1024, 500, 1}, 32},
               {{DOCUMENTS / 6, 256, 0, 1}, 16},
               {{64, 64, 0, 0}, 16},
               {{64, 64, 500, 0}, 16}};
    (void)state;
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
        double worst = 0;
        for (uint64_t seed = 0; seed < 8; seed++)
            for (int ranks = 1; ranks <= all[n].ranks; ranks *= 2) {
                const double found = check(&all[n].sequences, seed, ranks);
                if (found > worst) worst = found;
            }
        print_message("%d sequences, %s: at most %.4f\n", (int)all[n].sequences.count,
                      all[n].sequences.is_packed ? "packed" : "ragged", worst);
    }
}

static void test_rejected(void **state)
{
    (void)state;
    const attn_problem p = {.struct_size = sizeof p, .shape = {1, 1, 1, 100, 100, 8, 8}};
    const attn_tensors t = {.struct_size = sizeof t};
    const attn_output q = {owners_q, ATTN_I32, {0, 0, 0, 0}}, wide = {starts, ATTN_I64, {0, 0, 0, 0}}, none = {0};
    attn_error error;
    assert_int_equal(attn_split_balance(&p, 0, &t, NULL, &q, &q, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "ranks is 0; it must be at least 1");
    assert_int_equal(attn_split_balance(&p, 2, &t, NULL, &wide, &q, &error), ATTN_ERR_UNSUPPORTED);
    assert_string_equal(error.message, "owners_q is i64; it must be i32");
    assert_int_equal(attn_split_balance(&p, 2, &t, NULL, &q, &none, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "owners_kv is missing");
    assert_int_equal(attn_split_balance(&p, 2, &t, NULL, NULL, &q, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "owners_q is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sequences), cmocka_unit_test(test_rejected)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
