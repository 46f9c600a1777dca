/* SPDX-License-Identifier: MIT
 *
 * test_inherited.c - a kernel set that has only the two products of a tile, and inherits the rest from each set that this CPU can
 * run, in turn.  Its products sum in the same order, so every operation must have the same bits as with the set below.  Linked with
 * --wrap, so that its rows come before all others.
 */
#include "test.h"

#include "base/cpu.h"
#include "combination/outcome.h"
#include "kernels/registry.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The tile of the current set, and how often its products ran. */
static struct {
    attn_tile_shape shape;
    long scores, in_order, values;
} on;

#define REAL       float
#define NAME(word) word##_f32
#define FMA        fmaf
#include "plain_product.inc.c"
#undef REAL
#undef NAME
#undef FMA
#define REAL       double
#define NAME(word) word##_f64
#define FMA        fma
#include "plain_product.inc.c"

/* --wrap requires these names. */
const attn_kernel_row *__wrap_attn_kernel_rows(int *count);
const attn_kernel_row *__real_attn_kernel_rows(int *count);

enum { OPERATIONS = 4, SEEDS = 25, IN_ORDER_SEEDS = 150, MAX_ROWS = 256 };
static attn_product_part products[2];
static attn_kernel own_parts[2];
static attn_kernel_set set;
static attn_kernel_row rows[OPERATIONS + MAX_ROWS]; /* those of the test, and all others */
static int first;                                   /* how many of the test's rows are visible */

const attn_kernel_row *__wrap_attn_kernel_rows(int *count)
{
    int others;
    const attn_kernel_row *all = __real_attn_kernel_rows(&others);
    assert_true(others <= MAX_ROWS);
    memcpy(rows + OPERATIONS, all, (size_t)others * sizeof *all);
    *count = first + others;
    return rows + OPERATIONS - first;
}

/* Makes rows with the test's products over the set of `below`. */
static void give_products(const attn_kernel_row *below)
{
    static const attn_op operations[OPERATIONS] = {ATTN_FORWARD, ATTN_BACKWARD, ATTN_JVP, ATTN_DOUBLE_BACKWARD};
    attn_kernel kernel;
    attn_kernel_assemble(below, &kernel);
    memset(own_parts, 0, sizeof own_parts);
    memset(&on, 0, sizeof on);
    on.shape = kernel.product->shape;
    products[0] = part_f32(kernel.product), products[1] = part_f64(kernel.product);
    own_parts[below->compute == ATTN_F64].product = &products[below->compute == ATTN_F64];
    set = (attn_kernel_set){below->set, below->needs, own_parts};
    for (int i = 0; i < OPERATIONS; i++)
        rows[i] = (attn_kernel_row){"products", operations[i], below->compute, below->isa, below->needs, 0, 0, &set};
}

static int64_t at_most(int64_t size, int64_t most) { return size < most ? size : most; }

/* All options at random; small, since plain loops are slow. */
static void draw(combination *c, uint64_t seed, attn_dtype dtype)
{
    problem_spec spec;
    random_problem(&spec, seed, dtype);
    spec.shape.batch = at_most(spec.shape.batch, 2);
    spec.shape.heads_q = spec.shape.heads_kv = at_most(spec.shape.heads_q, 2);
    spec.shape.len_q = at_most(spec.shape.len_q, 70);
    spec.shape.len_kv = at_most(spec.shape.len_kv, 300);
    combination_of(c, &spec, MORE);
}

static void check_bits(combination *c, attn_op op, const attn_kernel_row *below)
{
    outcome out = outcome_make(c, op);
    void *own[OUTCOME_CAPACITY];
    size_t bytes[OUTCOME_CAPACITY];
    first = OPERATIONS;
    assert_true(outcome_run(c, &out, below->isa, 1));
    for (int i = 0; i < out.count; i++) {
        const tensor *got = &out.of[i].got;
        bytes[i] = (size_t)got->count * attn_dtype_size(got->layout.dtype);
        assert_non_null(own[i] = malloc(bytes[i] + 1));
        memcpy(own[i], got->memory, bytes[i]);
    }
    first = 0;
    assert_true(outcome_run(c, &out, below->isa, 1));
    for (int i = 0; i < out.count; i++) {
        if (memcmp(own[i], out.of[i].got.memory, bytes[i]) != 0)
            fail_msg("%s, operation %d over %s: bits of %s differ", c->text, (int)op, below->name, out.of[i].name);
        free(own[i]);
    }
    outcome_free(c, &out);
}

/* Sets options.invariant, unless that rejects the combination. */
static void make_invariant(combination *c, attn_isa isa)
{
    attn_plan *plan;
    attn_error error;
    c->invariant = 1;
    c->invariant = combination_plan(c, ATTN_FORWARD, isa, 1, NULL, &plan, &error) == ATTN_OK;
    if (c->invariant) attn_plan_destroy(plan);
}

/* Over each set, by its forward row that is neither for decode nor for pairs of bf16. */
static void test_products(void **state)
{
    static const attn_op operations[OPERATIONS] = {ATTN_FORWARD, ATTN_BACKWARD, ATTN_JVP, ATTN_DOUBLE_BACKWARD};
    const attn_kernel_row *below;
    int tried = 0;
    (void)state;
    for (int r = 0; (below = attn_kernel_at(r)); r++) {
        if (below->op != ATTN_FORWARD || below->decode || below->pairs || below->needs & ~attn_cpu_features()) continue;
        give_products(below);
        for (int o = 0; o < OPERATIONS; o++)
            for (uint64_t seed = 70000; seed < 70000 + SEEDS; seed++) {
                combination c;
                draw(&c, seed + SEEDS * (uint64_t)o, below->compute);
                check_bits(&c, operations[o], below);
                combination_free(&c);
            }
        for (uint64_t seed = 80000; seed < 80000 + IN_ORDER_SEEDS; seed++) {
            combination c;
            draw(&c, seed, below->compute);
            make_invariant(&c, below->isa);
            if (c.invariant) check_bits(&c, ATTN_FORWARD, below);
            combination_free(&c);
        }
        print_message("%s: %ld blocks of scores, %ld in order, %ld of values\n", below->name, on.scores, on.in_order, on.values);
        assert_true(on.scores > 500 && on.in_order > 100 && on.values > 500);
        tried++;
    }
    assert_true(tried >= 2); /* plain C, f32 and f64 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_products)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
