/* SPDX-License-Identifier: MIT
 *
 * test_model.c - attn_split_predict counts what plans of all ranks have: cells, messages and bytes.  (test_times.c has its times.)
 */
#include "predicted.h"
#include "test.h"
#include "testing/ranks/ranks.h"

enum { MOST_PARTS = 64 };

typedef struct planned {
    const problem_case *of;
    attn_problem problem;
    attn_split split;
    attn_distributed_description d[MAX_RANKS];
    attn_error error[MAX_RANKS];
} planned;

static int64_t tokens_of(const planned *p, attn_axis axis, const attn_transport *t)
{
    attn_split_description d = {.struct_size = sizeof d};
    const int64_t tokens = axis == ATTN_AXIS_KEY ? p->of->keys : p->of->queries;
    if (attn_split_describe(&p->split, tokens, axis, t->rank, t->ranks, &d, NULL) != ATTN_OK) return -1;
    return d.tokens;
}

static void plan_on_rank(void *context, const attn_transport *t)
{
    planned *p = context;
    attn_distributed_plan *plan;
    const attn_tensors mine =
        predicted_tensors(p->of, p->problem.op, tokens_of(p, ATTN_AXIS_QUERY, t), tokens_of(p, ATTN_AXIS_KEY, t));
    attn_distributed_description *d = &p->d[t->rank];
    *d = (attn_distributed_description){.struct_size = sizeof *d};
    if (attn_distributed_plan_create(&plan, &p->problem, &mine, &p->split, t, NULL, &p->error[t->rank]) != ATTN_OK) return;
    (void)attn_distributed_describe(plan, d, NULL);
    attn_distributed_plan_destroy(plan);
}

#define SAME(field, expected)                                                                                                      \
    if (got.field != (expected))                                                                                                   \
    fail_msg("%s, op %d, layout %d, way %d, %d ranks, part %d: " #field " is %lld, and of plans %lld", c->name, (int)op,           \
             (int)split->layout, (int)split->way, ranks, (int)split->part, (long long)got.field, (long long)(expected))

/* Returns how many messages there are; -1: it is rejected, by both. */
static int64_t compare(const problem_case *c, attn_op op, const attn_split *split, int ranks)
{
    planned p = {.of = c, .problem = predicted_problem(c, op), .split = *split};
    attn_split_prediction got = {.struct_size = sizeof got};
    attn_error error;
    int64_t messages = 0, bytes = 0, messages_total = 0, bytes_total = 0, cells = 0;
    ranks_run(ranks, 0, plan_on_rank, &p);
    const attn_tensors whole = predicted_tensors(c, op, c->queries, c->keys);
    const attn_status status = attn_split_predict(&p.problem, ranks, &whole, split, NULL, &got, &error);
    if (status != p.error[0].status)
        fail_msg("%s: status %d, and of plans %d: %s; %s", c->name, (int)status, (int)p.error[0].status, error.message,
                 p.error[0].message);
    if (status != ATTN_OK) return -1;
    for (int r = 0; r < ranks; r++) {
        const attn_distributed_description *d = &p.d[r];
        if (d->messages > messages) messages = d->messages;
        if (d->bytes > bytes) bytes = d->bytes;
        messages_total += d->messages, bytes_total += d->bytes, cells += d->cells;
        if (d->cells && got.ranks_heads > 1 && r % got.ranks_heads >= p.problem.shape.heads_kv)
            fail_msg("%s: rank %d of %d has no head, and %d cells", c->name, r, ranks, (int)d->cells);
        if (d->seconds != got.seconds || strcmp(d->why, got.why) != 0)
            fail_msg("%s: %g s are predicted (%s), and by rank %d %g (%s)", c->name, got.seconds, got.why, r, d->seconds, d->why);
    }
    SAME(cells_total, p.d[0].cells_total);
    SAME(cells_total, cells);
    SAME(cells_most, p.d[0].cells_most);
    SAME(parts_q, p.d[0].parts_q);
    SAME(parts_kv, p.d[0].parts_kv);
    SAME(way, p.d[0].way);
    SAME(ranks_heads, p.d[0].ranks_heads);
    SAME(messages_total, messages_total);
    SAME(bytes_total, bytes_total);
    SAME(messages, messages);
    SAME(bytes, bytes);
    assert_true(got.sampled == 1);
    return messages_total;
}

static void test_plans(void **state)
{
    static const int ranks[] = {1, 2, 3, 5, 8, 16};
    static const attn_op ops[] = {ATTN_FORWARD, ATTN_BACKWARD, ATTN_JVP, ATTN_DOUBLE_BACKWARD};
    static const int64_t parts[] = {4, 7};
    static int32_t owners[2][MOST_PARTS];
    int64_t cases = 0, rejected = 0, messages = 0, number = 0;
    (void)state;
    for (size_t n = 0; n < (size_t)predicted_count; n++)
        for (int k = 0; k < 6; k++)
            for (int layout = 0; layout <= ATTN_LAYOUT_OWNERS; layout++)
                for (int way = 0; way <= ATTN_WAY_GATHER; way++)
                    for (int op = 0; op < 4; op++) {
                        if (way == ATTN_WAY_SPLIT_KEYS && ops[op] != ATTN_FORWARD) continue;
                        if ((n + (size_t)(k + layout + way + op)) % 2 || number++ % EVERY(1)) continue; /* half of them */
                        attn_split split = {.struct_size = sizeof split,
                                            .part = parts[(n + (size_t)k) % 2],
                                            .layout = (attn_layout)layout,
                                            .way = (attn_way)way,
                                            .any_order = (op + k + (int)n / 2) % 3 == 0,
                                            .machine = n % 3 ? &predicted_machine : NULL};
                        for (int x = 0; x < MOST_PARTS; x++)
                            owners[0][x] = (x * x + 3) % ranks[k], owners[1][x] = (x * 5 + x / 3) % ranks[k];
                        if (way == ATTN_WAY_HEADS_RING && n % 3) split.ranks_heads = ranks[k] % 2 || n % 3 == 1 ? ranks[k] : 2;
                        if (layout == ATTN_LAYOUT_OWNERS) split.owners_q = owners[0], split.owners_kv = owners[1];
                        const int64_t sent = compare(&predicted[n], ops[op], &split, ranks[k]);
                        rejected += sent < 0;
                        messages += sent < 0 ? 0 : sent;
                        cases++;
                    }
    print_message("%d cases, %d rejected, %d messages\n", (int)cases, (int)rejected, (int)messages);
    assert_true(rejected < cases / 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plans)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
