/* SPDX-License-Identifier: MIT
 *
 * test_walks.c - every walk of walks.def with every feature of features.def, alone, in pairs and in random triples, on problems of
 * a size for the walk: the walk is chosen if and only if it supports the features used; if no walk of the operation does, the error
 * names a missing feature; whichever walk runs, results are within the bound of ref/, with the same bits on 2, 3 or 8 threads.  The
 * loops include a new feature or walk automatically, and fail until it has a row in features.c or `sizes`.
 */
#include "features.h"

#include "test.h"

#include "outcome.h"
#include "plan/plan.h"
#include "testing/random/random.h"
#include "testing/random/share.h"

#include <math.h>
#include <stdlib.h>

/* Sizes at which each walk is chosen, if it supports the problem.  exact: the walk is for f32 and f64 only, and needs vectors. */
static const struct {
    const attn_walk_type *type;
    feature_sizes of;
    attn_feature_set always; /* features it requires */
    int exact;
    int least; /* number of features it must support: losing one only costs speed, which no other test notices */
} sizes[] = {
    {&attn_walk_decode, {"b2:hq2:sq2:skv45:d5:dv6", "b2:hq3:hkv1:sq2:skv45:d5:dv6"}, 0, 0, 21},
    {&attn_walk_decode_in_order, {"b2:hq2:sq2:skv45:d5:dv6", "b2:hq3:hkv1:sq2:skv45:d5:dv6"}, ATTN_USES(INVARIANT), 0, 23},
    {&attn_walk_small_tiles, {"b2:hq2:sq13:skv25:d16", "b2:hq2:hkv1:sq50:skv25:d16"}, 0, 1, 7},
    {&attn_walk_small_rows, {"b2:hq2:sq13:skv25:d16", "b2:hq2:hkv1:sq50:skv25:d16"}, ATTN_USES(CAUSAL), 1, 9},
    {&attn_walk_rows, {"b2:hq2:sq11:skv35:d5:dv6", "b2:hq3:hkv1:sq11:skv35:d5:dv6"}, ATTN_USES(GROUPS), 0, 15},
    {&attn_walk_tiles, {"b2:hq2:sq33:skv20:d5:dv6", "b2:hq2:hkv1:sq49:skv20:d5:dv6"}, 0, 0, 37},
    {&attn_walk_small_backward, {"b2:hq2:sq13:skv25:d16", "b2:hq4:hkv2:sq13:skv25:d16"}, 0, 1, 8},
    {&attn_walk_backward, {"b2:hq2:sq13:skv40:d5:dv6", "b2:hq2:hkv1:sq13:skv40:d5:dv6"}, 0, 0, 32},
    {&attn_walk_jvp, {"b2:hq2:sq13:skv40:d5:dv6", "b2:hq2:hkv1:sq13:skv40:d5:dv6"}, 0, 0, 23},
    {&attn_walk_double_backward, {"b2:hq2:sq13:skv40:d5:dv6", "b2:hq2:hkv1:sq13:skv40:d5:dv6"}, 0, 0, 24},
};

enum { WALKS = sizeof sizes / sizeof *sizes };

/* What goes with a list of blocks for each key head. */
#define WITH_CHOICES                                                                                                               \
    (ATTN_USES(INVARIANT) | ATTN_USES(REPRODUCIBLE) | ATTN_USES(CHOICES) | ATTN_USES(CAUSAL) | ATTN_USES(ALIGNED) |                \
     ATTN_USES(WINDOW) | ATTN_USES(CHUNK) | ATTN_USES(LENGTHS) | ATTN_USES(PACKED) | ATTN_USES(RAGGED) | ATTN_USES(PAGED) |        \
     ATTN_USES(RANGES) | ATTN_USES(LEAST_DISTANCE) | ATTN_USES(MASK) | ATTN_USES(TREE) | ATTN_USES(BIAS) | ATTN_USES(BIAS_TABLE) | \
     ATTN_USES(ALIBI) | ATTN_USES(SINK) | ATTN_USES(SOFTCAP) | ATTN_USES(SCALES) | ATTN_USES(QUANTISED) | ATTN_USES(GROUPS))

/* Combinations that validation rejects, in all operations or in one: pairs, or three bits. */
enum { EVERY_OPERATION = -1 };
static const struct {
    attn_feature_set one, other;
    int op;
    attn_feature_set third; /* 0: none */
} exclusive[] = {
    {ATTN_USES(INVARIANT), ATTN_USES(RELATIVE) | ATTN_USES(BLOCKS) | ATTN_USES(HEAD_LISTS) | ATTN_USES(GLOBAL), ATTN_FORWARD,
     0}, /* sums depend on which queries share a tile */
    {ATTN_USES(REPRODUCIBLE), ATTN_USES(RELATIVE) | ATTN_USES(BLOCKS) | ATTN_USES(HEAD_LISTS) | ATTN_USES(GLOBAL), EVERY_OPERATION,
     0}, /* likewise */
    {ATTN_USES(REPRODUCIBLE), ATTN_USES(ADDITIVE), ATTN_BACKWARD, 0},
    {ATTN_USES(REPRODUCIBLE), ATTN_USES(BIAS_GRADIENT) | ATTN_USES(HEAD_GRADIENTS) | ATTN_USES(RELATIVE_GRADIENT), EVERY_OPERATION,
     0},
    {ATTN_USES(ADDITIVE), ATTN_USES(PREPARED), EVERY_OPERATION, 0},                       /* one score kind only */
    {ATTN_USES(ADDITIVE) | ATTN_USES(PREPARED), ATTN_USES(RELATIVE), EVERY_OPERATION, 0}, /* relative terms need dot products */
    {ATTN_USES(ELEMENTWISE), ATTN_USES(UNIFORM) | ATTN_USES(SINK) | ATTN_USES(LSE_GRADIENT), EVERY_OPERATION,
     0},                                                       /* these are for softmax only */
    {ATTN_USES(UNIFORM), ATTN_USES(SINK), EVERY_OPERATION, 0}, /* both claim all weight of an empty row */
    {ATTN_USES(PACKED), ATTN_USES(LENGTHS) | ATTN_USES(PAGED) | ATTN_USES(RAGGED), EVERY_OPERATION, 0}, /* one layout only */
    {ATTN_USES(TREE) | ATTN_USES(HEAD_LISTS), ATTN_USES(ORIGIN), EVERY_OPERATION,
     0}, /* of a part, the last keys and lists are not known */
    {ATTN_USES(HEAD_LISTS), ATTN_USES(BLOCKS), EVERY_OPERATION, 0},
    {ATTN_USES(CHOICES), ~WITH_CHOICES, EVERY_OPERATION, 0},                     /* a list hides where its keys are */
    {ATTN_USES(UNIFORM), ATTN_USES(LENGTHS), EVERY_OPERATION, ATTN_USES(PAGED)}, /* keys beyond a length have no page to average */
};

typedef struct tally {
    int singles[ATTN_FEATURES]; /* problems with this feature that the walk ran */
    int ran, rejected;
    double worst;
} tally;

typedef struct task {
    int walk; /* index in sizes */
    attn_dtype dtype;
    int available; /* the walk is chosen for a problem without further features */
    int threes;    /* triples: validation may reject two of the bits before the third, unsupported one is checked */
    tally *all;
} task;

/* 1 if some walk of the operation supports all of them. */
static int is_supported(attn_op op, attn_feature_set used)
{
    const attn_walk_type *type;
    for (int n = 0; (type = attn_walk_at(n)); n++)
        if (type->op == op && !(used & ~type->supported)) return 1;
    return 0;
}

static int is_exclusive(attn_op op, attn_feature_set used)
{
    for (size_t n = 0; n < sizeof exclusive / sizeof *exclusive; n++)
        if ((exclusive[n].op == EVERY_OPERATION || exclusive[n].op == (int)op) && used & exclusive[n].one &&
            used & exclusive[n].other && (!exclusive[n].third || used & exclusive[n].third))
            return 1;
    return 0;
}

/* Plans with all tensors that the ways add, including those the operation does not use. */
static attn_status plan_all(combination *c, attn_op op, attn_plan **plan, attn_error *error)
{
    unsigned char others[TENSORS] = {0};
    for (int t = 0; t < TENSORS; t++) {
        const int drawn = t == TENSOR(grad_o) || t == TENSOR(lse) || (t >= TENSOR(tan_q) && t <= TENSOR(tan_bias));
        if (c->requested[t] && !tensors_has(&c->tensors, t)) tensors_request(&c->tensors, t);
        others[t] = !drawn && tensors_has(&c->tensors, t) && tensors_about(t)->role[op] == ATTN_ROLE_NONE;
    }
    return combination_plan(c, op, ATTN_ISA_DEFAULT, 1, others, plan, error);
}

/* 1 if the message has the sentence of a missing bit of this way, or another name for it. */
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

/* 1 if the error names a requested tensor that belongs to another operation. */
static int is_of_other_operation(const combination *c, attn_op op, const attn_error *error)
{
    return error->tensor >= 0 && c->requested[error->tensor] && tensors_about(error->tensor)->role[op] == ATTN_ROLE_NONE;
}

static void check_rejection(const task *t, const combination *c, attn_op op, attn_feature_set used, const feature_way *const *ways,
                            int count, const attn_error *error)
{
    attn_feature_set least = ~(attn_feature_set)0; /* bits that no walk supports */
    const attn_walk_type *type;
    for (int n = 0; (type = attn_walk_at(n)); n++)
        if (type->op == op) least &= ~type->supported;
    for (int n = 0; n < count; n++)
        if (names(error, ways[n], t->threes ? used : used & least) || is_exclusive(op, used) ||
            is_of_other_operation(c, op, error)) {
            t->all->rejected++;
            return;
        }
    fail_msg("%s, operation %d: rejected by '%s'", c->text, (int)op, error->message);
}

/* Checks the walks of the plan against the features they support; 1 if the walk of the task is among them. */
static int check_walks(const task *t, const combination *c, const attn_plan *plan, attn_feature_set used)
{
    const attn_feature_set features = attn_features_of(&plan->problem);
    int taken = 0;
    if (features != used) fail_msg("%s: uses bits %llx, not %llx", c->text, (unsigned long long)features, (unsigned long long)used);
    for (int n = 0; n < plan->parts; n++) {
        const attn_walk_type *row = plan->part[n].type;
        if (used & ~row->supported)
            fail_msg("%s: taken by %s, which does not support: %s", c->text, row->name, attn_feature_missing(used, row->supported));
        taken |= plan->part[n].type == sizes[t->walk].type;
    }
    const attn_feature_set supported = sizes[t->walk].type->supported;
    if (t->available && !(used & ~supported) && !(sizes[t->walk].always & ~used) && !taken)
        fail_msg("%s: not taken by %s", c->text, sizes[t->walk].type->name);
    return taken;
}

static void compare(const task *t, combination *c, attn_op op)
{
    static const int thread_counts[] = {3, 2, 8}; /* in turn: one more run for each problem, every second one with a schedule */
    outcome out = outcome_make(c, op);
    const char *name;
    if (!outcome_run(c, &out, ATTN_ISA_DEFAULT, 1)) fail_msg("%s: this CPU lacks the instruction set", c->text);
    const double fraction = outcome_worst(&out, &name);
    if (!(fraction < 1)) fail_msg("%s, operation %d: %s is %g of the bound", c->text, (int)op, name, fraction);
    t->all->ran++;
    t->all->worst = fmax(t->all->worst, fraction);
    const int *threads = thread_counts + t->all->ran % 3;
    if (t->all->ran % 2 || !outcome_compare_scheduled(c, &out, *threads)) outcome_compare_bits(c, &out, threads, 1);
    outcome_free(c, &out);
}

/* 1 if the walk is chosen for a problem of its size with required features only. */
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
    const int narrow = attn_kernel_product(row)->shape.lanes < 4; /* small-sequence walks need at least four lanes */
    if (!taken && !scalar && !(sizes[t->walk].exact && (narrow || (t->dtype != ATTN_F32 && t->dtype != ATTN_F64))))
        fail_msg("%s: not taken by %s", c.text, sizes[t->walk].type->name);
    attn_plan_destroy(plan);
    outcome_free(&c, &out);
    combination_free(&c);
    return taken;
}

/* RAN: ran, or was rightly rejected.  EXCLUSIVE: validation rejects the combination.  FAILED: see the error. */
typedef enum fate { RAN, EXCLUSIVE, FAILED } fate;

static fate check_ways(const task *t, const feature_way *const *ways, int count, uint64_t seed, attn_error *error)
{
    const attn_op op = sizes[t->walk].type->op;
    attn_feature_set used = 0;
    combination c;
    attn_plan *plan;
    for (int n = 0; n < count; n++) used |= (attn_feature_set)1 << ways[n]->bit | ways[n]->brings;
    if (!feature_combination(&c, &sizes[t->walk].of, t->dtype, ways, count, seed, error))
        return is_exclusive(op, used) ? EXCLUSIVE : FAILED;
    outcome out = outcome_make_bare(&c, op);
    const attn_status status = plan_all(&c, op, &plan, error);
    outcome_free(&c, &out);
    fate is = RAN;
    if (status == ATTN_OK) {
        const int taken = check_walks(t, &c, plan, used);
        attn_plan_destroy(plan);
        /* Problems that fall back to the general walk are tested at its own sizes too: here only some. */
        if (taken || !sizes[t->walk].type->limits || seed % 4 == 0) compare(t, &c, op);
        for (int bit = 0; bit < ATTN_FEATURES && taken; bit++) t->all->singles[bit] += (int)(used >> bit & 1);
    } else if (is_supported(op, used)) {
        is = is_of_other_operation(&c, op, error) || is_exclusive(op, used) ? EXCLUSIVE : FAILED;
    } else check_rejection(t, &c, op, used, ways, count, error);
    combination_free(&c);
    return is;
}

/* 1 if the way does not include the base, which must then be added. */
static int is_without(const feature_way *base, const feature_way *way)
{
    return base->bit != way->bit && !(way->brings >> base->bit & 1);
}

/* Checks all ways of one bit. */
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

/* Tries the ways of these bits until some combination of them is valid. */
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
    return any ? FAILED : EXCLUSIVE;
}

static void check_pair(const task *t, const feature_way *base, int x, int y)
{
    const int bits[] = {x, y};
    attn_error error;
    if (check_together(t, base, bits, 2, 7 * x + 3 * y + t->walk + (int)t->dtype, &error) == FAILED)
        fail_msg("%s, %s and %s: %s", sizes[t->walk].type->name, feature_name(x), feature_name(y), error.message);
}

static int scalar_only; /* 1: scalar kernels only, which cannot reproduce the bits of others */

/* 1 if the bit can be tested in this type, on these kernels. */
static int goes_with(attn_dtype dtype, int bit)
{
    if (scalar_only && bit == ATTN_FEATURE_NUMBER_REPRODUCIBLE) return 0;
    return feature_at(bit, 0) && (bit != ATTN_FEATURE_NUMBER_QUANTISED || dtype != ATTN_F64);
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

/* Random triples of bits; there are 170,000. */
static void test_triples(void **state)
{
    random_state r = random_from(3);
    tally all = {{0}, 0, 0, 0};
    int exclusive_count = 0;
    (void)state;
    for (int drawn = 0; drawn < share_of_cases(CASES(4000));) {
        const int walk = (int)random_below(&r, WALKS);
        const feature_way *const base = base_of(walk);
        task t = {walk, dtypes[random_below(&r, DTYPES)], 0, 1, &all};
        int bits[TOGETHER], fits = 1;
        attn_error error;
        for (int i = 0; i < TOGETHER; i++) { /* ascending: a later way may refine what an earlier one has set */
            bits[i] = (int)random_below(&r, ATTN_FEATURES);
            fits = fits && goes_with(t.dtype, bits[i]) && (i == 0 || bits[i - 1] < bits[i]);
        }
        if (!fits) continue;
        t.available = is_available(&t, base, &error);
        const fate is = check_together(&t, base, bits, TOGETHER, drawn++, &error);
        exclusive_count += is == EXCLUSIVE;
        if (is == FAILED)
            fail_msg("%s in %s, %s, %s and %s: %s", sizes[walk].type->name, attn_dtype_name(t.dtype), feature_name(bits[0]),
                     feature_name(bits[1]), feature_name(bits[2]), error.message);
    }
    print_message("%d triples ran, at most %.3f of the bound, %d were rejected, %d are invalid combinations\n", all.ran, all.worst,
                  all.rejected, exclusive_count);
    assert_true(all.ran >= share_of_cases(CASES(700)));
}

int main(void)
{
    attn_cpu_description cpu = {.struct_size = sizeof cpu};
    const char *cap = getenv("ATTN_ISA");
    if (attn_cpu_describe(&cpu, NULL) != ATTN_OK) return 1;
    scalar_only = cpu.isa == ATTN_ISA_SCALAR || (cap && strcmp(cap, "scalar") == 0);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_pairs), cmocka_unit_test(test_triples)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
