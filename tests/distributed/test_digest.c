/* SPDX-License-Identifier: MIT
 *
 * test_digest.c - two ranks whose problems differ in one field find out when they plan, whichever bytes of it differ; but for
 * fields that have no effect. */
#include "test.h"

#include "asked.h"
#include "testing/ranks/ranks.h"

/* A field of attn_problem.  Its elements are numbers of `size` bytes. */
typedef struct field {
    const char *name;
    size_t offset, size;
    int count;
    int is_size;       /* of the shape: only changes that are small, or out of any bounds, which need no memory */
    int has_no_effect; /* without the outputs that it is for: 1: attn/distributed.h excludes them, 2: backward does not have them */
} field;

#define FIELD(x)                                                                                                                   \
    {                                                                                                                              \
#x, offsetof(attn_problem, x), sizeof((attn_problem *)0)->x, 1, 0, 0                                                       \
    }
#define SIZE(x)                                                                                                                    \
    {                                                                                                                              \
#x, offsetof(attn_problem, x), sizeof((attn_problem *)0)->x, 1, 1, 0                                                       \
    }
#define NO_EFFECT(x)                                                                                                               \
    {                                                                                                                              \
#x, offsetof(attn_problem, x), sizeof((attn_problem *)0)->x, 1, 0, 1                                                       \
    }
#define OF_FORWARD(x)                                                                                                              \
    {                                                                                                                              \
#x, offsetof(attn_problem, x), sizeof((attn_problem *)0)->x, 1, 0, 2                                                       \
    }
#define RESERVED(x, n)                                                                                                             \
    {                                                                                                                              \
#x, offsetof(attn_problem, x), 8, n, 0, 0                                                                                  \
    }

static const field fields[] = {
    FIELD(struct_size),
    FIELD(op),
    SIZE(shape.batch),
    SIZE(shape.heads_q),
    SIZE(shape.heads_kv),
    SIZE(shape.len_q),
    SIZE(shape.len_kv),
    SIZE(shape.dim_qk),
    SIZE(shape.dim_v),
    FIELD(score.kind),
    FIELD(score.scale_kind),
    FIELD(score.scale),
    FIELD(score.temperature),
    FIELD(score.softcap),
    FIELD(score.dim_k),
    FIELD(score.dim_metric),
    FIELD(score.additive_bias),
    FIELD(score.normaliser),
    FIELD(score.shift),
    RESERVED(score.reserved, 8),
    FIELD(mask.causal),
    FIELD(mask.align),
    FIELD(mask.window),
    FIELD(mask.empty),
    FIELD(mask.window_left),
    FIELD(mask.window_right),
    FIELD(mask.chunk),
    FIELD(mask.dilation),
    FIELD(mask.global_q),
    FIELD(mask.global_kv),
    FIELD(mask.block_q),
    FIELD(mask.block_kv),
    FIELD(mask.block_entries),
    FIELD(mask.least_distance),
    FIELD(mask.tree_keys),
    FIELD(mask.block_heads),
    RESERVED(mask.reserved, 5),
    FIELD(dropout.probability),
    RESERVED(dropout.reserved, 4),
    OF_FORWARD(outputs.after_dropout),
    OF_FORWARD(outputs.scores_stage),
    NO_EFFECT(outputs.rows_stage),
    OF_FORWARD(outputs.column_heads),
    OF_FORWARD(outputs.column_queries),
    FIELD(outputs.topk),
    RESERVED(outputs.reserved, 8),
    FIELD(paging.page_size),
    FIELD(paging.pages),
    FIELD(paging.page_entries),
    RESERVED(paging.reserved, 3),
    FIELD(bias_table.kind),
    FIELD(bias_table.buckets),
    FIELD(bias_table.max_distance),
    FIELD(bias_table.causal),
    RESERVED(bias_table.reserved, 4),
    FIELD(relative.first),
    FIELD(relative.rows),
    RESERVED(relative.reserved, 4),
};
enum { FIELDS = sizeof fields / sizeof *fields, RANKS = 2 };

/* The next field begins where the last one ends, but for its alignment: none is left out. */
static void test_fields(void **state)
{
    size_t end = 0;
    (void)state;
    for (int n = 0; n < FIELDS; n++) {
        const field *f = &fields[n];
        if (f->offset != (end + f->size - 1) / f->size * f->size) fail_msg("a field is missing before %s", f->name);
        end = f->offset + f->size * (size_t)f->count;
    }
    assert_int_equal((end + 7) / 8 * 8, sizeof(attn_problem));
}

/* ---- problems ---- */

static float table[64 * 64];

static void clipped(asked *a)
{
    attn_mask *const m = &a->problem.mask;
    m->window = 1, m->window_left = 9, m->window_right = 2, m->dilation = 3, m->global_q = 2, m->global_kv = 3;
    a->problem.relative = (attn_relative){.first = -3, .rows = 7};
    a->tensors.relative_keys = attn_in(table);
    if (a->problem.op == ATTN_FORWARD) a->problem.outputs.topk = 2, a->tensors.topk_index = attn_out(table);
}

static void t5(asked *a)
{
    a->problem.mask.chunk = 20, a->problem.mask.least_distance = 1;
    a->problem.bias_table = (attn_bias_table){.kind = ATTN_DISTANCE_T5, .buckets = 8, .max_distance = 16};
    a->problem.score.scale_kind = ATTN_SCALE_VALUE, a->problem.score.scale = 0.5;
    a->problem.score.softcap = 30, a->problem.score.temperature = 2;
}

static void general(asked *a) { a->problem.score.kind = ATTN_SCORE_GENERAL, a->tensors.score_matrix = attn_in(table); }

static void metric(asked *a)
{
    a->problem.score.kind = ATTN_SCORE_METRIC, a->problem.score.dim_metric = 3, a->tensors.score_matrix = attn_in(table);
    a->problem.mask.block_q = 2, a->problem.mask.block_kv = 4,
    a->tensors.block_mask = (attn_input){.data = table, .dtype = ATTN_U8};
}

static void additive(asked *a)
{
    a->problem.score.kind = ATTN_SCORE_ADDITIVE, a->tensors.score_matrix = attn_in(table);
    a->problem.score.normaliser = ATTN_NORMALISER_SIGMOID, a->problem.score.shift = 1;
}

static void (*const problems[])(asked *) = {clipped, t5, general, metric, additive};
enum { PROBLEMS = sizeof problems / sizeof *problems };

/* ---- one difference ---- */

typedef struct job {
    void (*problem)(asked *);
    attn_op op;
    size_t offset; /* of a byte of attn_problem, */
    int flip;      /* and of its bits, those that differ on the last rank */
    attn_status status[RANKS];
    attn_error error[RANKS];
} job;

static void on_rank(void *context, const attn_transport *transport)
{
    job *j = context;
    const int r = transport->rank;
    asked *a = malloc(sizeof *a);
    assert_non_null(a);
    asked_fill(a, j->op, transport);
    j->problem(a);
    if (j->op == ATTN_FORWARD) a->tensors.weights = a->tensors.scores = attn_out(table);
    if (r == RANKS - 1) ((unsigned char *)&a->problem)[j->offset] ^= (unsigned char)j->flip;
    a->memory.left = INT32_MAX;
    a->options.allocator = (attn_allocator){limited_acquire, limited_release, &a->memory}; /* which refuses what is huge */
    j->status[r] =
        attn_distributed_plan_create(&a->plan, &a->problem, &a->tensors, &a->split, transport, &a->options, &j->error[r]);
    attn_distributed_plan_destroy(a->plan);
    free(a);
}

/* Returns the status; 0 is agreement. */
static attn_status differ(job *j, const char *name)
{
    ranks_run(RANKS, 0, on_rank, j);
    if (ranks_wrong()) fail_msg("%s: %s", name, ranks_wrong());
    assert_int_equal(j->status[0], j->status[1]);
    assert_string_equal(j->error[0].message, j->error[1].message);
    return j->status[0];
}

static int64_t disagreed;

static void check_byte(void (*problem)(asked *), attn_op op, const field *f, size_t offset, int flip, int *ignored)
{
    job j = {.problem = problem, .op = op, .offset = offset, .flip = flip};
    const attn_status status = differ(&j, f->name);
    disagreed += strstr(j.error[0].message, "ranks disagree") != NULL;
    if (status == ATTN_OK && !(f->has_no_effect == 1 || (f->has_no_effect == 2 && op != ATTN_FORWARD)))
        fail_msg("op %d: byte %d of %s differs on one rank, and nobody finds out", (int)op, (int)(offset - f->offset), f->name);
    *ignored += status == ATTN_OK;
}

static void test_bytes(void **state)
{
    int seen[FIELDS] = {0}, ignored[FIELDS] = {0};
    (void)state;
    for (int op = ATTN_FORWARD; op <= ATTN_BACKWARD; op++)
        for (int p = 0; p < PROBLEMS; p++) {
            job same = {.problem = problems[p], .op = (attn_op)op};
            if (differ(&same, "nothing") != ATTN_OK) fail_msg("problem %d: %s", p, same.error[0].message);
            for (int n = 0; n < FIELDS; n++) {
                const field *f = &fields[n];
                const int64_t before = disagreed;
                for (size_t byte = 0; byte < f->size * (size_t)f->count; byte++)
                    for (int flip = 1; flip < 256; flip *= 16) {
                        if (f->is_size && byte < 7 && (byte > 0 || flip > 1)) continue;
                        check_byte(problems[p], (attn_op)op, f, f->offset + byte, flip, &ignored[n]);
                    }
                seen[n] |= disagreed > before;
            }
        }
    for (int n = 0; n < FIELDS; n++)
        if (fields[n].has_no_effect && !ignored[n]) fail_msg("%s has an effect", fields[n].name);
    int found = 0; /* (the others have no second value that one rank alone would accept) */
    for (int n = 0; n < FIELDS; n++) found += seen[n];
    assert_in_range(found, 30, FIELDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fields), cmocka_unit_test(test_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
