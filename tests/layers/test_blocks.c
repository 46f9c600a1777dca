/* SPDX-License-Identifier: MIT
 *
 * test_blocks.c - the encoder and decoder blocks of examples/transformer, in double: every gradient against central differences,
 * causality, and a padded memory.
 */
#include "by_loops.h"

#include "block.h"

enum { B = 2, LEN = 3, MEMORY = 4, E = 4, F = 6, CAPACITY = 400 };

static const block blocks[] = {{.width = E, .heads = 2, .hidden = F},
                               {.width = E, .heads = 2, .hidden = F, .post_norm = 1},
                               {.width = E, .heads = 2, .hidden = F, .decoder = 1},
                               {.width = E, .heads = 2, .hidden = F, .decoder = 1, .post_norm = 1}};
static const int64_t lengths[B] = {2, MEMORY};

typedef struct sample {
    const block *b;
    double parameters[CAPACITY], x[B * LEN * E], memory[B * MEMORY * E], y[B * LEN * E], dy[B * LEN * E];
    double dparameters[CAPACITY], dx[B * LEN * E], dmemory[B * MEMORY * E];
    block_data data;
} sample;

static void make(sample *s, const block *b)
{
    memset(s, 0, sizeof *s);
    s->b = b;
    assert_true(block_parameters(b) <= CAPACITY);
    assert_int_equal(block_initialise(b, s->parameters, 3, NULL), ATTN_OK);
    for (int64_t i = 0; i < block_parameters(b); i++) s->parameters[i] += 0.2 * sin(3.1 * (double)i); /* biases and gains too */
    for (int i = 0; i < B * LEN * E; i++) s->x[i] = sin(1.3 * i), s->dy[i] = cos(2.1 * i);
    for (int i = 0; i < B * MEMORY * E; i++) s->memory[i] = cos(0.9 * i);
    s->data = (block_data){.batch = B,
                           .len = LEN,
                           .len_memory = b->decoder ? MEMORY : 0,
                           .lengths_memory = lengths,
                           .x = s->x,
                           .memory = s->memory,
                           .y = s->y,
                           .dy = s->dy,
                           .dx = s->dx,
                           .dmemory = s->dmemory};
    s->data.trace = aligned_alloc(64, (size_t)block_trace_bytes(b, &s->data));
}

static double loss(void *given)
{
    sample *s = given;
    double sum = 0;
    assert_int_equal(block_forward(s->b, s->parameters, &s->data, NULL), ATTN_OK);
    for (int i = 0; i < B * LEN * E; i++) sum += s->y[i] * s->dy[i];
    return sum;
}

/* Norms divide: third derivatives are of order 1000. */
static void compare(sample *s, double *x, const double *gradient, int64_t count, const char *what)
{
    char name[20];
    (void)snprintf(name, sizeof name, "block %d", (int)(s->b - blocks));
    assert_gradients(name, what, x, gradient, count, loss, s, 1000, 100);
}

static void test_differences(void **state)
{
    (void)state;
    for (int n = 0; n < 4; n++) {
        sample s;
        const block *b = &blocks[n];
        make(&s, b);
        (void)loss(&s);
        assert_int_equal(block_backward(b, s.parameters, &s.data, s.dparameters, NULL), ATTN_OK);
        compare(&s, s.x, s.dx, B * LEN * E, "x");
        if (b->decoder) compare(&s, s.memory, s.dmemory, B * MEMORY * E, "memory");
        compare(&s, s.parameters, s.dparameters, block_parameters(b), "parameters");
        free(s.data.trace);
    }
}

/* A decoder does not look ahead, an encoder does; nothing depends on a memory past its length. */
static void test_masks(void **state)
{
    (void)state;
    for (int n = 0; n < 4; n++) {
        sample s;
        const block *b = &blocks[n];
        double before[B * LEN * E];
        make(&s, b);
        (void)loss(&s);
        memcpy(before, s.y, sizeof before);
        s.x[(LEN - 1) * E] += 1; /* the last token of the first entry */
        for (int i = 2 * E; i < MEMORY * E; i++) s.memory[i] = NAN;
        (void)loss(&s);
        int moved = 0;
        for (int i = 0; i < (LEN - 1) * E; i++) moved += s.y[i] != before[i];
        if (b->decoder) assert_int_equal(moved, 0);
        else assert_true(moved > 0);
        assert_memory_equal(s.y + LEN * E, before + LEN * E, LEN * E * sizeof *before);
        free(s.data.trace);
    }
}

/* The output of a post-norm block has mean 0 and deviation 1; parameters are counted by their formula. */
static void test_counts_and_norm(void **state)
{
    sample s;
    (void)state;
    assert_int_equal(block_parameters(&blocks[0]), 2 * E + 4 * (E * E + E) + 2 * E + 2 * E * F + F + E);
    assert_int_equal(block_parameters(&blocks[2]), 2 * (2 * E + 4 * (E * E + E)) + 2 * E + 2 * E * F + F + E);
    make(&s, &blocks[1]);
    assert_int_equal(block_initialise(&blocks[1], s.parameters, 3, NULL), ATTN_OK);
    (void)loss(&s);
    for (int r = 0; r < B * LEN; r++) {
        double sum = 0, square = 0;
        for (int i = 0; i < E; i++) sum += s.y[r * E + i], square += s.y[r * E + i] * s.y[r * E + i];
        assert_true(fabs(sum) < 1e-12 && fabs(square / E - 1) < 1e-3); /* but for the norm's epsilon */
    }
    free(s.data.trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_differences), cmocka_unit_test(test_masks),
                                       cmocka_unit_test(test_counts_and_norm)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
