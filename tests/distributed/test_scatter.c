/* SPDX-License-Identifier: MIT
 *
 * test_scatter.c - rows go from rank 0 to their owners and back, with any strides, layouts and types; what is wrong on one rank is
 * the same error on all. */
#include "test.h"

#include "attn/distributed.h"
#include "testing/random/random.h"
#include "testing/random/share.h"
#include "testing/ranks/ranks.h"

enum { CASES_DRAWN = CASES(200), SPACE = 1 << 16, UNTOUCHED = 0x5a, MOST_PARTS = 64 };

/* What all ranks are asked; `spoil` is called on rank `who` before. */
typedef struct job {
    int64_t shape[4];
    attn_axis axis;
    attn_dtype dtype;
    attn_split split;
    const char *whole; /* dense */
    char *back;        /* what rank 0 gets back, with gaps between the channels where they are spaced */
    int64_t space;     /* between these, in elements: 1 or more */
    uint64_t seed;
    void (*spoil)(struct job *mine, attn_input *slot);
    int who;
    int64_t messages, bytes; /* that all ranks have sent */
    attn_status status[MAX_RANKS];
    attn_error error[MAX_RANKS];
    const char *wrong[MAX_RANKS];
} job;

static int64_t product(const int64_t *shape) { return shape[0] * shape[1] * shape[2] * shape[3]; }

/* Strides of a tensor whose axes lie in memory in a random order, spaced by `space` elements. */
static void draw_strides(random_state *r, const int64_t shape[4], int64_t space, int64_t stride[4])
{
    int order[4] = {0, 1, 2, 3};
    int64_t step = space;
    for (int n = 3; n > 0; n--) {
        const int other = (int)random_below(r, n + 1), x = order[n];
        order[n] = order[other], order[other] = x;
    }
    for (int n = 0; n < 4; n++) {
        stride[order[n]] = step;
        step *= shape[order[n]] > 1 ? shape[order[n]] : 1;
    }
}

/* The address of an element. */
static char *at(const attn_input *slot, int64_t b, int64_t h, int64_t t, int64_t c)
{
    return (char *)(uintptr_t)slot->data + (b * slot->stride[0] + h * slot->stride[1] + t * slot->stride[2] + c * slot->stride[3]) *
                                               (int64_t)attn_dtype_size(slot->dtype);
}

/* 1 if tokens `local` of own are tokens `first` of whole. */
static int same_tokens(const attn_input *whole, const attn_input *own, const int64_t shape[4], const attn_split_part *p)
{
    for (int64_t b = 0; b < shape[0]; b++)
        for (int64_t h = 0; h < shape[1]; h++)
            for (int64_t t = 0; t < p->tokens; t++)
                for (int64_t c = 0; c < shape[3]; c++)
                    if (memcmp(at(whole, b, h, p->first + t, c), at(own, b, h, p->local + t, c), attn_dtype_size(own->dtype)) != 0)
                        return 0;
    return 1;
}

static attn_output written(const attn_input *slot)
{
    attn_output out = {(void *)(uintptr_t)slot->data, slot->dtype, {0, 0, 0, 0}};
    memcpy(out.stride, slot->stride, sizeof out.stride);
    return out;
}

static attn_input dense(const job *j, const char *data)
{
    const int64_t *s = j->shape;
    return (attn_input){data, j->dtype, {s[1] * s[2] * s[3], s[2] * s[3], s[3], 1}};
}

static void on_rank(void *context, const attn_transport *transport)
{
    job *all = context, mine = {.axis = all->axis, .dtype = all->dtype, .split = all->split, .whole = all->whole};
    memcpy(mine.shape, all->shape, sizeof mine.shape); /* (other ranks write into the rest) */
    const int r = transport->rank;
    random_state random = random_from(all->seed + (uint64_t)r);
    attn_split_description d = {.struct_size = sizeof d};
    assert_int_equal(attn_split_describe(&all->split, all->shape[2], all->axis, r, transport->ranks, &d, NULL), ATTN_OK);
    const int64_t shape[4] = {all->shape[0], all->shape[1], d.tokens, all->shape[3]}, space = 1 + random_below(&random, 2);
    const size_t bytes = (size_t)(product(shape) * space) * attn_dtype_size(all->dtype);
    char *memory = malloc(bytes + 1);
    attn_input own = {product(shape) ? memory : ATTN_EMPTY, all->dtype, {0, 0, 0, 0}}, whole = dense(all, all->whole), back = whole;
    draw_strides(&random, shape, space, own.stride);
    draw_strides(&random, all->shape, all->space, back.stride);
    back.data = all->back;
    memset(memory, UNTOUCHED, bytes + 1);
    if (all->spoil && r == all->who) all->spoil(&mine, &own);
    const attn_output out = written(&own), to = written(&back);
    all->status[r] =
        attn_distributed_scatter(mine.axis, mine.shape, r ? NULL : &whole, &mine.split, transport, &out, &all->error[r]);
    for (size_t n = 0; n <= bytes && all->status[r] == ATTN_ERR_ARGUMENT; n++)
        if (memory[n] != UNTOUCHED) all->wrong[r] = "own is written";
    for (int64_t n = 0; n < d.parts && all->status[r] == ATTN_OK; n++) {
        attn_split_part p = {.struct_size = sizeof p};
        (void)attn_split_part_describe(&all->split, all->shape[2], all->axis, r, transport->ranks, n, &p, NULL);
        if (!same_tokens(&whole, &own, all->shape, &p)) all->wrong[r] = "other rows than its own";
    }
    if (all->status[r] == ATTN_OK) {
        int64_t messages, sent;
        ranks_sent(transport, &messages, &sent);
        if (r == 0) all->messages = messages, all->bytes = sent;
        all->status[r] =
            attn_distributed_gather(mine.axis, mine.shape, &own, &mine.split, transport, r ? NULL : &to, &all->error[r]);
        const attn_split_part everything = {.tokens = all->shape[2]};
        if (r == 0 && all->status[0] == ATTN_OK && !same_tokens(&whole, &back, all->shape, &everything)) all->wrong[r] = "lost";
    }
    free(memory);
}

static void run(job *j, int ranks, uint64_t delays)
{
    memset(j->wrong, 0, sizeof j->wrong);
    ranks_run(ranks, delays, on_rank, j);
    if (ranks_wrong()) fail_msg("%s", ranks_wrong());
    for (int r = 0; r < ranks; r++) {
        if (j->wrong[r]) fail_msg("rank %d of %d: %s", r, ranks, j->wrong[r]);
        if (j->status[r] != j->status[0] || strcmp(j->error[r].message, j->error[0].message) != 0)
            fail_msg("rank %d: %s, rank 0: %s", r, j->error[r].message, j->error[0].message);
    }
}

static void test_rows(void **state)
{
    static const attn_dtype types[] = {ATTN_F32, ATTN_F64, ATTN_BF16, ATTN_BOOL};
    static int32_t owners[2][MOST_PARTS];
    static char whole[SPACE], back[2 * SPACE];
    random_state random = random_from(1);
    (void)state;
    for (int n = 0; n < SPACE; n++) whole[n] = (char)random_bits(&random);
    for (int n = 0; n < share_of_cases(CASES_DRAWN); n++) {
        const int ranks = 1 + (int)random_below(&random, 8);
        job j = {.shape = {random_below(&random, 3), 1 + random_below(&random, 3), random_below(&random, MOST_PARTS),
                           random_below(&random, 9)},
                 .axis = random_below(&random, 2) ? ATTN_AXIS_KEY : ATTN_AXIS_QUERY,
                 .dtype = types[random_below(&random, 4)],
                 .split = {.struct_size = sizeof j.split,
                           .part = 1 + random_below(&random, 9),
                           .layout = (attn_layout)random_below(&random, 4),
                           .way = (attn_way)random_below(&random, ATTN_WAY_GATHER + 1)},
                 .whole = whole,
                 .back = back,
                 .space = 1 + random_below(&random, 2),
                 .seed = random_bits(&random)};
        for (int k = 0; k < MOST_PARTS; k++)
            for (int axis = 0; axis < 2; axis++) owners[axis][k] = (int32_t)random_below(&random, ranks);
        if (j.split.layout == ATTN_LAYOUT_OWNERS) j.split.owners_q = owners[0], j.split.owners_kv = owners[1];
        run(&j, ranks, random_below(&random, 4) ? 0 : j.seed);
        if (j.status[0] != ATTN_OK) fail_msg("%s", j.error[0].message);
    }
}

/* More than 64 MiB for one rank: two messages. */
static void test_long_messages(void **state)
{
    enum { MIB = 1 << 20 };
    (void)state;
    job j = {.shape = {1, 1, 140, MIB / 8}, .axis = ATTN_AXIS_QUERY, .dtype = ATTN_F64, .space = 1};
    j.split = (attn_split){.struct_size = sizeof j.split, .part = 70};
    char *memory = malloc((size_t)280 * MIB);
    assert_non_null(memory);
    for (size_t n = 0; n < (size_t)140 * MIB; n++) memory[n] = (char)(n / 4099);
    j.whole = memory, j.back = memory + (size_t)140 * MIB;
    run(&j, 2, 0);
    if (j.status[0] != ATTN_OK) fail_msg("%s", j.error[0].message);
    assert_true(j.bytes > 70 * MIB && j.bytes < 71 * MIB); /* and what ranks agree with */
    assert_int_equal(j.messages, 2 + 1);
    free(memory);
}

static void other_shape(job *j, attn_input *own) { (void)own, j->shape[3]--; }
static void negative(job *j, attn_input *own) { (void)own, j->shape[1] = -1; }
static void huge(job *j, attn_input *own) { (void)own, j->shape[0] = INT64_C(1) << 61; }
static void other_axis(job *j, attn_input *own) { (void)own, j->axis = ATTN_AXIS_KEY; }
static void no_axis(job *j, attn_input *own) { (void)own, j->axis = ATTN_AXIS_BATCH; }
static void other_type(job *j, attn_input *own) { (void)j, own->dtype = ATTN_I32; }
static void no_type(job *j, attn_input *own) { (void)j, own->dtype = (attn_dtype)99; }
static void other_split(job *j, attn_input *own) { (void)own, j->split.layout = ATTN_LAYOUT_ZIGZAG; }
static void no_part(job *j, attn_input *own) { (void)own, j->split.part = -1; }
static void no_data(job *j, attn_input *own) { (void)j, memset(own, 0, sizeof *own); }
static void shares(job *j, attn_input *own) { (void)j, own->stride[2] = 0; }
static void over_whole(job *j, attn_input *own) { own->data = j->whole; }

static void test_faults(void **state)
{
    static const struct {
        void (*spoil)(job *j, attn_input *own);
        int who;
        attn_status status;
        const char *message;
    } rows[] = {
        {other_shape, 1, ATTN_ERR_ARGUMENT, "distributed: ranks disagree about the shape, the axis, the type or the split"},
        {other_axis, 1, ATTN_ERR_ARGUMENT, "distributed: ranks disagree about the shape, the axis, the type or the split"},
        {other_type, 1, ATTN_ERR_ARGUMENT, "distributed: ranks disagree about the shape, the axis, the type or the split"},
        {other_split, 2, ATTN_ERR_ARGUMENT, "distributed: ranks disagree about the shape, the axis, the type or the split"},
        {other_type, 0, ATTN_ERR_ARGUMENT, "distributed: whole is f32 and own is i32; they must have one type"},
        {no_axis, 2, ATTN_ERR_ARGUMENT, "axis is 1; it must be 4 (query) or 5 (key)"},
        {negative, 1, ATTN_ERR_SHAPE, "distributed: shape[1] (head) is -1; it must not be negative"},
        {huge, 1, ATTN_ERR_SHAPE, "distributed: whole is too large: its bytes overflow 64 bits"},
        {no_type, 2, ATTN_ERR_UNSUPPORTED, "distributed: own has type 99, which is unknown"},
        {no_part, 1, ATTN_ERR_ARGUMENT, "split.part is -1; it must be at least 1, or 0 for 1024"},
        {no_data, 2, ATTN_ERR_ARGUMENT, "distributed: own is missing"},
        {shares, 1, ATTN_ERR_STRIDE, "distributed: own overlaps itself: stride["},
        {over_whole, 0, ATTN_ERR_STRIDE, "distributed: own and whole share elements; an output must not overlap another tensor"},
    };
    static float whole[2 * 24 * 3], back[2 * 24 * 3];
    (void)state;
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
        job j = {.shape = {1, 2, 24, 3}, .axis = ATTN_AXIS_QUERY, .dtype = ATTN_F32, .whole = (char *)whole, .back = (char *)back};
        j.space = 1, j.spoil = rows[n].spoil, j.who = rows[n].who;
        j.split = (attn_split){.struct_size = sizeof j.split, .part = 4};
        run(&j, 3, 0);
        assert_int_equal(j.status[0], rows[n].status);
        if (strncmp(j.error[0].message, rows[n].message, strlen(rows[n].message)) != 0)
            fail_msg("'%s', not '%s'", j.error[0].message, rows[n].message);
    }
    /* A message fails, whichever it is: no rank waits for ever. */
    for (int64_t n = 0; n < 24; n += 3) {
        job j = {.shape = {1, 2, 24, 3}, .axis = ATTN_AXIS_QUERY, .dtype = ATTN_F32, .whole = (char *)whole, .back = (char *)back};
        j.space = 1, j.split = (attn_split){.struct_size = sizeof j.split, .part = 4};
        ranks_fail_at(n);
        ranks_run(3, 0, on_rank, &j);
        ranks_fail_at(-1);
        if (ranks_wrong()) fail_msg("%s", ranks_wrong());
        assert_true(j.status[0] == ATTN_ERR_IO || j.status[1] == ATTN_ERR_IO || j.status[2] == ATTN_ERR_IO);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_long_messages),
                                       cmocka_unit_test(test_faults)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
