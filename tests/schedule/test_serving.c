/* SPDX-License-Identifier: MIT
 *
 * test_serving.c - the same bits for any batch: 200 requests are served one by one, batched at random and chunked at random, over
 * pages of any size and layout, with schedules and without, and with prefixes that are said to be shared.
 */
#include "test.h"

#include "requests.h"
#include "testing/random/share.h"

/* Heads, channels, window, sink, type, softcap, page size, token-major, lists, joined, capacity, -, channels of values of
 * latents, ALiBi, cross attention.  Pages behind a window are freed. */
static const serving tables[] = {
    {4, 4, 16, 0, 0, ATTN_F32, 0, 16, 0, 0, 0, 300, 0, 0, 0, 0},    {8, 2, 32, 0, 1, ATTN_BF16, 0, 1, 1, 1, 1, 200, 0, 0, 0, 0},
    {8, 1, 64, 0, 0, ATTN_F32, 0, 64, 1, 0, 1, 700, 0, 0, 0, 0},    {6, 2, 20, 50, 0, ATTN_F16, 3.5, 7, 0, 1, 0, 900, 0, 0, 0, 0},
    {32, 8, 16, 0, 0, ATTN_I8, 0, 32, 0, 1, 0, 260, 0, 0, 0, 0},    {4, 2, 8, 700, 1, ATTN_F64, 0, 5, 1, 0, 0, 2400, 0, 0, 0, 0},
    {4, 1, 24, 0, 0, ATTN_BF16, 0, 128, 0, 0, 1, 600, 0, 0, 0, 0},  {2, 2, 40, 30, 0, ATTN_I8, 0, 2, 1, 1, 1, 150, 0, 0, 0, 0},
    {16, 1, 40, 0, 0, ATTN_BF16, 0, 16, 1, 1, 0, 300, 0, 32, 0, 0}, {60, 1, 24, 0, 0, ATTN_F32, 2, 8, 0, 0, 0, 200, 0, 16, 0, 0},
    {8, 2, 24, 60, 1, ATTN_F16, 5, 8, 0, 0, 1, 300, 0, 0, 1, 0},    {48, 1, 20, 90, 0, ATTN_I8, 0, 3, 1, 1, 0, 150, 0, 12, 0, 0},
    {4, 2, 16, 0, 1, ATTN_BF16, 2, 4, 0, 1, 0, 250, 0, 0, 0, 1},    {6, 1, 40, 0, 0, ATTN_I8, 0, 16, 1, 0, 0, 250, 0, 24, 0, 1},
    {2, 1, 16, 20, 1, ATTN_F32, 3, 1, 0, 0, 0, 120, 0, 0, 1, 0},    {8, 2, 64, 0, 1, ATTN_Q4_1, 0, 16, 0, 1, 0, 180, 0, 0, 0, 0},
    {6, 2, 32, 40, 0, ATTN_Q8_0, 0, 3, 1, 0, 1, 200, 0, 0, 0, 0},   {4, 1, 20, 0, 0, ATTN_F8_E4M3, 0, 8, 0, 0, 0, 150, 0, 0, 0, 0},
};
enum { TABLES = sizeof tables / sizeof *tables, OF_TABLE = 12 };

/* Tokens that a request brings at once: its prompt and then one by one, or any number. */
static int64_t draw_count(random_state *r, int64_t done, int64_t left, int chunks)
{
    int64_t most = chunks      ? 1 + random_below(r, 1 + random_below(r, 90))
                   : done == 0 ? left - random_below(r, left < 4 ? left : 4)
                               : 1;
    if (random_below(r, 4) == 0) most = 0; /* it waits */
    return most < left ? most : left;
}

/* Serves all tokens of all requests; alone: every piece again by itself, to the same bits. */
static void serve(requests *r, random_state *random, int chunks, int alone)
{
    static const int thread_counts[] = {1, 2, 3, 8};
    int64_t done[MOST_REQUESTS] = {0};
    for (int left = 1; left;) {
        step s = {{0}, {0}};
        left = 0;
        for (int n = 0; n < r->count; n++) {
            s.first[n] = done[n];
            s.count[n] = draw_count(random, done[n], r->tokens[n] - done[n], chunks);
            done[n] += s.count[n];
            left |= done[n] < r->tokens[n];
        }
        requests_run_step(r, &s, random_below(random, 4) > 0, thread_counts[random_below(random, 4)], random);
        for (int n = 0; alone && n < r->count; n++) {
            const size_t row = requests_bytes(r, n) / (size_t)r->tokens[n], bytes = (size_t)s.count[n] * row;
            char *at = r->o[n] + (size_t)s.first[n] * row, *together = malloc(bytes + 1);
            assert_non_null(together);
            memcpy(together, at, bytes);
            if (s.count[n]) requests_run_alone(r, n, s.first[n], s.count[n], 1);
            if (memcmp(together, at, bytes) != 0)
                fail_msg("request %d, tokens %d to %d of %d: other bits alone", n, (int)s.first[n], (int)(s.first[n] + s.count[n]),
                         (int)r->tokens[n]);
            free(together);
        }
    }
}

static void test_invariant(void **state)
{
    (void)state;
    for (int t = 0; t < TABLES; t++) {
        random_state random = random_from((uint64_t)t + 1);
        serving how = tables[t];
        requests r;
        how.invariant = 1;
        requests_draw(&r, &how, (int)share_of_cases(CASES(OF_TABLE)) + 1, &random);
        char *expected[MOST_REQUESTS];
        for (int n = 0; n < r.count; n++) {
            requests_run_alone(&r, n, 0, r.tokens[n], 1);
            assert_non_null(expected[n] = malloc(requests_bytes(&r, n)));
            memcpy(expected[n], r.o[n], requests_bytes(&r, n));
        }
        for (int chunks = 0; chunks < 2; chunks++) {
            for (int n = 0; n < r.count; n++) memset(r.o[n], 0xff, requests_bytes(&r, n));
            serve(&r, &random, chunks, 0);
            for (int n = 0; n < r.count; n++)
                if (memcmp(expected[n], r.o[n], requests_bytes(&r, n)) != 0)
                    fail_msg("table %d, request %d of %d tokens: other bits when %s", t, n, (int)r.tokens[n],
                             chunks ? "chunked" : "batched");
        }
        for (int n = 0; n < r.count; n++) free(expected[n]);
        requests_free(&r);
    }
}

/* Without options.invariant, bits depend on a sequence's own lengths, but not on the batch. */
static void test_batched(void **state)
{
    (void)state;
    for (int t = 0; t < TABLES; t++) {
        random_state random = random_from((uint64_t)t + 1001);
        serving how = tables[t];
        requests r;
        how.capacity = how.capacity > 400 ? 400 : how.capacity;
        requests_draw(&r, &how, (int)share_of_cases(CASES(8)) + 2, &random);
        serve(&r, &random, 1, 1);
        requests_free(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_invariant), cmocka_unit_test(test_batched)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
