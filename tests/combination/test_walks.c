/* SPDX-License-Identifier: MIT
 *
 * test_walks.c - every walk of walks.def with every feature of features.def, alone, in pairs and in threes that are drawn, in
 * problems of a size that the walk would take: it is taken where it supports what the problem uses, and never where not; where no
 * walk of the operation does, the error names what is missing; and whatever walk ran, the results are those of ref/ within the
 * bound, with the same bits on 3 threads.  A bit or a walk that is new is in these loops by itself, and fails until it has a row in
 * features.c or `sizes`.
 */
#include "features.h"

#include "test.h"

#include "outcome.h"
#include "plan/plan.h"
#include "testing/random/random.h"

#include <math.h>
#include <stdlib.h>

/* What each walk takes where the problem has all that it supports.  exact: of problems in f32 and f64 alone, with vectors. */
static const struct {
    const attn_walk_type *type;
    feature_sizes of;
    attn_feature_set always; /* without which it has nothing to do */
    int exact;
    int least; /* so many bits it had when this was written: a walk that loses one is slower, and nothing else tells */
} sizes[] = {
    {&attn_walk_decode, {"b2:hq2:sq2:skv45:d5:dv6", "b2:hq3:hkv1:sq2:skv45:d5:dv6"}, 0, 0, 18},
    {&attn_walk_decode_in_order, {"b2:hq2:sq2:skv45:d5:dv6", "b2:hq3:hkv1:sq2:skv45:d5:dv6"}, ATTN_USES(INVARIANT), 0, 20},
    {&attn_walk_small_tiles, {"b2:hq2:sq13:skv25:d16", "b2:hq2:hkv1:sq50:skv25:d16"}, 0, 1, 6},
    {&attn_walk_small_rows, {"b2:hq2:sq13:skv25:d16", "b2:hq2:hkv1:sq50:skv25:d16"}, ATTN_USES(CAUSAL), 1, 8},
    {&attn_walk_rows, {"b2:hq2:sq11:skv35:d5:dv6", "b2:hq3:hkv1:sq11:skv35:d5:dv6"}, ATTN_USES(GROUPS), 0, 12},
    {&attn_walk_tiles, {"b2:hq2:sq33:skv20:d5:dv6", "b2:hq2:hkv1:sq49:skv20:d5:dv6"}, 0, 0, 33},
    {&attn_walk_small_backward, {"b2:hq2:sq13:skv25:d16", "b2:hq4:hkv2:sq13:skv25:d16"}, 0, 1, 8},
    {&attn_walk_backward, {"b2:hq2:sq13:skv40:d5:dv6", "b2:hq2:hkv1:sq13:skv40:d5:dv6"}, 0, 0, 32},
    {&attn_walk_jvp, {"b2:hq2:sq13:skv40:d5:dv6", "b2:hq2:hkv1:sq13:skv40:d5:dv6"}, 0, 0, 23},
    {&attn_walk_double_backward, {"b2:hq2:sq13:skv40:d5:dv6", "b2:hq2:hkv1:sq13:skv40:d5:dv6"}, 0, 0, 24},
};

enum { WALKS = sizeof sizes / sizeof *sizes };

/* Pairs that rules of their own keep apart, in all operations or in one; and threes. */
enum { EVERY_OPERATION = -1 };
static const struct {
    attn_feature_set one, other;
    int op;
    attn_feature_set third; /* 0: none */
} apart[] = {
    {ATTN_USES(INVARIANT), ATTN_USES(RELATIVE) | ATTN_USES(BLOCKS) | ATTN_USES(GLOBAL), ATTN_FORWARD,
     0}, /* of tiles' own queries */
    {ATTN_USES(REPRODUCIBLE), ATTN_USES(RELATIVE) | ATTN_USES(BLOCKS) | ATTN_USES(GLOBAL), EVERY_OPERATION, 0}, /* likewise */
    {ATTN_USES(REPRODUCIBLE), ATTN_USES(ADDITIVE), ATTN_BACKWARD, 0},
    {ATTN_USES(REPRODUCIBLE), ATTN_USES(BIAS_GRADIENT) | ATTN_USES(HEAD_GRADIENTS) | ATTN_USES(RELATIVE_GRADIENT), EVERY_OPERATION,
     0},
    {ATTN_USES(ADDITIVE), ATTN_USES(PREPARED), EVERY_OPERATION, 0},                       /* one kind of score */
    {ATTN_USES(ADDITIVE) | ATTN_USES(PREPARED), ATTN_USES(RELATIVE), EVERY_OPERATION, 0}, /* for dot products */
    {ATTN_USES(ELEMENTWISE), ATTN_USES(UNIFORM) | ATTN_USES(SINK) | ATTN_USES(LSE_GRADIENT), EVERY_OPERATION, 0}, /* of softmax */
    {ATTN_USES(UNIFORM), ATTN_USES(SINK), EVERY_OPERATION, 0},                      /* who has all the weight */
    {ATTN_USES(PACKED), ATTN_USES(LENGTHS) | ATTN_USES(PAGED), EVERY_OPERATION, 0}, /* one way to lie */
    {ATTN_USES(UNIFORM), ATTN_USES(LENGTHS), EVERY_OPERATION, ATTN_USES(PAGED)},    /* keys beyond a length have no page to weigh */
};

typedef struct tally {
    int singles[ATTN_FEATURES]; /* problems with this bit that the walk has run */
    int ran, rejected;
    double worst;
} tally;

typedef struct task {
    int walk; /* of sizes */
    attn_dtype dtype;
    int available; /* the walk takes a problem without features */
    int threes;    /* of three bits two may be rejected by a rule of theirs before the third, which no walk has, is looked at */
    tally *all;
} task;

/* 1 if some walk of the operation lists all of them. */
static int is_supported(attn_op op, attn_feature_set used)
{
    const attn_walk_type *type;
    for (int n = 0; (type = attn_walk_at(n)); n++)
        if (type->op == op && !(used & ~type->supported)) return 1;
    return 0;
}

static int is_apart(attn_op op, attn_feature_set used)
{
    for (size_t n = 0; n < sizeof apart / sizeof *apart; n++)
        if ((apart[n].op == EVERY_OPERATION || apart[n].op == (int)op) && used & apart[n].one && used & apart[n].other &&
            (!apart[n].third || used & apart[n].third))
            return 1;
    return 0;
}

/* Plans it with all tensors that the ways have brought, those too that the operation has no use for. */
static attn_status plan_all(combination *c, attn_op op, attn_plan **plan, attn_error *error)
{
    unsigned char others[TENSORS] = {0};
    for (int t = 0; t < TENSORS; t++) {
        const int drawn = t == TENSOR(grad_o) || t == TENSOR(lse) || (t >= TENSOR(tan_q) && t <= TENSOR(tan_bias));
        if (c->wanted[t] && !tensors_has(&c->tensors, t)) tensors_ask(&c->tensors, t);
        others[t] = !drawn && tensors_has(&c->tensors, t) && tensors_about(t)->role[op] == ATTN_ROLE_NONE;
    }
    return combination_plan(c, op, ATTN_ISA_DEFAULT, 1, others, plan, error);
}

/* The sentence of a bit, or what its way is called by. */
static int names(const attn_error *error, const feature_way *way, attn_feature_set missing)
{
    const attn_feature_set bits = ((attn_feature_set)1 << way->bit | way->brings) & missing;
    for (int bit = 0; bit < ATTN_FEATURES; bit++) {
        const attn_feature_set one = (attn_feature_set)1 << bit;
        if (bits & one && strstr(error->message, attn_feature_missing(one, 0))) return 1;
        for (int n = 0; bits & one && n < feature_ways(bit); n++)
            if (strstr(error->message, feature_at(bit, n)->names)) return 1;
    }
    return 0;
}

/* 1 where the error names a tensor that was wanted and is another operation's. */
static int is_of_others(const combination *c, attn_op op, const attn_error *error)
{
    return error->tensor >= 0 && c->wanted[error->tensor] && tensors_about(error->tensor)->role[op] == ATTN_ROLE_NONE;
}

static void check_rejection(const task *t, const combination *c, attn_op op, attn_feature_set used, const feature_way *const *ways,
                            int count, const attn_error *error)
{
    attn_feature_set least = ~(attn_feature_set)0; /* some of these no walk has */
    const attn_walk_type *type;
    for (int n = 0; (type = attn_walk_at(n)); n++)
        if (type->op == op) least &= ~type->supported;
    for (int n = 0; n < count; n++)
        if (names(error, ways[n], t->threes ? used : used & least) || is_apart(op, used) || is_of_others(c, op, error)) {
            t->all->rejected++;
            return;
        }
    fail_msg("%s, operation %d: rejected by '%s'", c->text, (int)op, error->message);
}

/* Which walks the plan has, held against what they support. */
static int check_walks(const task *t, const combination *c, const attn_plan *plan, attn_feature_set used)
{
    const attn_feature_set features = attn_features_of(&plan->problem);
    int taken = 0;
    if (features != used) fail_msg("%s: uses bits %llx, not %llx", c->text, (unsigned long long)features, (unsigned long long)used);
    for (int n = 0; n < plan->parts; n++) {
        const attn_walk_type *row = plan->part[n].type;
        if (used & ~row->supported)
            fail_msg("%s: taken by %s, which has not: %s", c->text, row->name, attn_feature_missing(used, row->supported));
        taken |= plan->part[n].type == sizes[t->walk].type;
    }
    const attn_feature_set wanted = sizes[t->walk].type->supported;
    if (t->available && !(used & ~wanted) && !(sizes[t->walk].always & ~used) && !taken)
        fail_msg("%s: not taken by %s", c->text, sizes[t->walk].type->name);
    return taken;
}

static void compare(const task *t, combination *c, attn_op op)
{
    static const int thread_counts[] = {3};
    outcome out = outcome_make(c, op);
    const char *name;
    if (!outcome_run(c, &out, ATTN_ISA_DEFAULT, 1)) fail_msg("%s: this CPU cannot", c->text);
    const double fraction = outcome_worst(&out, &name);
    if (!(fraction < 1)) fail_msg("%s, operation %d: %s is %g of the bound", c->text, (int)op, name, fraction);
    t->all->ran++;
    t->all->worst = fmax(t->all->worst, fraction);
    outcome_compare_bits(c, &out, thread_counts, 1);
    outcome_free(c, &out);
}

/* Whether the walk takes a problem of its size that uses nothing else. */
static int is_available(const task *t, const feature_way *base, attn_error *error)
{
    combination c;
    attn_plan *plan;
    const attn_op op = sizes[t->walk].type->op;
    if (!feature_combination(&c, &sizes[t->walk].of, t->dtype, &base, base != NULL, 0, error)) fail_msg("%s", error->message);
    outcome out = outcome_make_bare(&c, op);
    if (plan_all(&c, op, &plan, error) != ATTN_OK) fail_msg("%s: %s", c.text, error->message);
    const attn_kernel_row *row = plan->part[0].row;
    const int taken = plan->part[0].type == sizes[t->walk].type, scalar = row->isa == ATTN_ISA_SCALAR;
    const int narrow = attn_kernel_product(row)->shape.lanes < 4; /* short heads are for four at a time */
    if (!taken && !scalar && !(sizes[t->walk].exact && (narrow || (t->dtype != ATTN_F32 && t->dtype != ATTN_F64))))
        fail_msg("%s: not taken by %s", c.text, sizes[t->walk].type->name);
    attn_plan_destroy(plan);
    outcome_free(&c, &out);
    combination_free(&c);
    return taken;
}

/* RAN: or rejected as it should be.  APART: a rule says so.  FAILED: the error says why not. */
typedef enum fate { RAN, APART, FAILED } fate;

static fate check_ways(const task *t, const feature_way *const *ways, int count, uint64_t seed, attn_error *error)
{
    const attn_op op = sizes[t->walk].type->op;
    attn_feature_set used = 0;
    combination c;
    attn_plan *plan;
    for (int n = 0; n < count; n++) used |= (attn_feature_set)1 << ways[n]->bit | ways[n]->brings;
    if (!feature_combination(&c, &sizes[t->walk].of, t->dtype, ways, count, seed, error))
        return is_apart(op, used) ? APART : FAILED;
    outcome out = outcome_make_bare(&c, op);
    const attn_status status = plan_all(&c, op, &plan, error);
    outcome_free(&c, &out);
    fate is = RAN;
    if (status == ATTN_OK) {
        const int taken = check_walks(t, &c, plan, used);
        attn_plan_destroy(plan);
        /* What the widest walk takes from the others is computed at a size of its own too. */
        if (taken || !sizes[t->walk].type->limits || seed % 4 == 0) compare(t, &c, op);
        for (int bit = 0; bit < ATTN_FEATURES && taken; bit++) t->all->singles[bit] += (int)(used >> bit & 1);
    } else if (is_supported(op, used)) {
        is = is_of_others(&c, op, error) || is_apart(op, used) ? APART : FAILED;
    } else check_rejection(t, &c, op, used, ways, count, error);
    combination_free(&c);
    return is;
}

/* 1 if the base has to be added to a way: it is not there with it. */
static int is_without(const feature_way *base, const feature_way *way)
{
    return base->bit != way->bit && !(way->brings >> base->bit & 1);
}

/* All ways of one bit. */
static void check_bit(const task *t, const feature_way *base, int bit)
{
    for (int n = 0; n < feature_ways(bit); n++) {
        const feature_way *ways[] = {feature_at(bit, n), base};
        attn_error error;
        if (check_ways(t, ways, base && is_without(base, ways[0]) ? 2 : 1, (uint64_t)(bit + n), &error) == FAILED)
            fail_msg("%s, %s by '%s': %s", sizes[t->walk].type->name, feature_name(bit), ways[0]->words, error.message);
    }
}

enum { TOGETHER = 3 };

/* Some way of all of these bits that goes together. */
static fate check_together(const task *t, const feature_way *base, const int *bits, int n, int first, attn_error *error)
{
    int all = 1, any = 0;
    attn_error failed;
    for (int i = 0; i < n; i++) all *= feature_ways(bits[i]);
    for (int tried = 0; tried < all; tried++) {
        const feature_way *ways[TOGETHER + 1];
        int way = (first + tried) % all, lacks = base != NULL;
        for (int i = 0; i < n; i++) {
            ways[i] = feature_at(bits[i], way % feature_ways(bits[i]));
            way /= feature_ways(bits[i]);
            if (base && !is_without(base, ways[i])) lacks = 0;
        }
        ways[n] = base;
        const fate is = check_ways(t, ways, n + lacks, (uint64_t)(first + 100 * tried), error);
        if (is == RAN) return RAN;
        if (is == FAILED) any = 1, failed = *error;
    }
    if (any) *error = failed;
    return any ? FAILED : APART;
}

static void check_pair(const task *t, const feature_way *base, int x, int y)
{
    const int bits[] = {x, y};
    attn_error error;
    if (check_together(t, base, bits, 2, 7 * x + 3 * y + t->walk + (int)t->dtype, &error) == FAILED)
        fail_msg("%s, %s and %s: %s", sizes[t->walk].type->name, feature_name(x), feature_name(y), error.message);
}

static int scalar_alone; /* kernels that cannot reproduce another's bits */

/* What f64 has not, nor scalar kernels. */
static int goes_with(attn_dtype dtype, int bit)
{
    if (scalar_alone && bit == ATTN_FEATURE_NUMBER_REPRODUCIBLE) return 0;
    return feature_at(bit, 0) && (bit != ATTN_FEATURE_NUMBER_INTEGERS || dtype != ATTN_F64);
}

static const feature_way *base_of(int walk)
{
    const feature_way *base = NULL;
    for (int bit = 0; bit < ATTN_FEATURES; bit++)
        if (sizes[walk].always >> bit & 1) base = feature_at(bit, 0);
    return base;
}

static void check_walk(int walk, attn_dtype dtype)
{
    tally all = {{0}, 0, 0, 0};
    const attn_walk_type *row = sizes[walk].type;
    const feature_way *base = base_of(walk);
    task t = {walk, dtype, 0, 0, &all};
    attn_error error;
    t.available = is_available(&t, base, &error);
    for (int x = 0; x < ATTN_FEATURES; x++) {
        if (!goes_with(dtype, x)) continue;
        check_bit(&t, base, x);
        for (int y = x + 1; y < ATTN_FEATURES; y += EVERY(1))
            if (goes_with(dtype, y)) check_pair(&t, base, x, y);
    }
    int count = 0;
    for (int bit = 0; bit < ATTN_FEATURES; bit++) {
        if (!(row->supported >> bit & 1) || !feature_at(bit, 0)) continue;
        count++;
        if (t.available && goes_with(dtype, bit) && all.singles[bit] == 0)
            fail_msg("%s has never run %s", row->name, feature_name(bit));
    }
    if (count < sizes[walk].least) fail_msg("%s supports %d features; it had %d", row->name, count, sizes[walk].least);
    print_message("%s in %s: %d features, %d problems ran, at most %.3f of the bound, %d were rejected\n", row->name,
                  attn_dtype_name(dtype), count, all.ran, all.worst, all.rejected);
}

static void test_rows(void **state)
{
    (void)state;
    for (int bit = 0; bit < ATTN_FEATURES; bit++)
        if (!feature_at(bit, 0) && bit != ATTN_FEATURE_NUMBER_FOLDED)
            fail_msg("features.c has no way to use %s", feature_name(bit));
    const attn_walk_type *type;
    for (int n = 0; (type = attn_walk_at(n)); n++) {
        int walk = 0;
        while (walk < WALKS && sizes[walk].type != type) walk++;
        if (walk == WALKS) fail_msg("no sizes for %s", type->name);
    }
}

static const attn_dtype dtypes[] = {ATTN_F32, ATTN_F64, ATTN_BF16};

enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static void test_pairs(void **state)
{
    (void)state;
    for (int walk = 0; walk < WALKS; walk++)
        for (int d = 0; d < DTYPES; d++) check_walk(walk, dtypes[d]);
}

/* Three bits at a time, drawn: there are 170,000 such. */
static void test_triples(void **state)
{
    random_state r = random_from(3);
    tally all = {{0}, 0, 0, 0};
    int apart_ones = 0;
    (void)state;
    for (int drawn = 0; drawn < CASES(4000);) {
        const int walk = (int)random_below(&r, WALKS);
        const feature_way *const base = base_of(walk);
        task t = {walk, dtypes[random_below(&r, DTYPES)], 0, 1, &all};
        int bits[TOGETHER], fits = 1;
        attn_error error;
        for (int i = 0; i < TOGETHER; i++) { /* ascending, since a later way may say more of what an earlier one has set */
            bits[i] = (int)random_below(&r, ATTN_FEATURES);
            fits = fits && goes_with(t.dtype, bits[i]) && (i == 0 || bits[i - 1] < bits[i]);
        }
        if (!fits) continue;
        t.available = is_available(&t, base, &error);
        const fate is = check_together(&t, base, bits, TOGETHER, drawn++, &error);
        apart_ones += is == APART;
        if (is == FAILED)
            fail_msg("%s in %s, %s, %s and %s: %s", sizes[walk].type->name, attn_dtype_name(t.dtype), feature_name(bits[0]),
                     feature_name(bits[1]), feature_name(bits[2]), error.message);
    }
    print_message("%d problems of three ran, at most %.3f of the bound, %d were rejected, %d kept apart\n", all.ran, all.worst,
                  all.rejected, apart_ones);
    assert_true(all.ran >= CASES(700));
}

int main(void)
{
    attn_cpu_description cpu = {.struct_size = sizeof cpu};
    const char *cap = getenv("ATTN_ISA");
    if (attn_cpu_describe(&cpu, NULL) != ATTN_OK) return 1;
    scalar_alone = cpu.isa == ATTN_ISA_SCALAR || (cap && strcmp(cap, "scalar") == 0);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_pairs), cmocka_unit_test(test_triples)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
