/* SPDX-License-Identifier: MIT
 *
 * test_describe.c - attn_distributed_describe against counts from the definitions of attn/distributed.h, and the results that wait
 * at most against docs/distributed.md. */
#include "test.h"

#include "attn/distributed.h"
#include "testing/random/random.h"
#include "testing/ranks/ranks.h"

enum { MOST_BATCH = 3, MOST_PARTS = 64, SEEDS = CASES(400) };

/* A problem of which only the sizes and rules of positions matter. */
typedef struct drawn {
    attn_problem problem;
    attn_split split;
    int ranks, has_lengths, has_offset;
    int64_t lengths_q[MOST_BATCH], lengths_kv[MOST_BATCH], offset[MOST_BATCH];
    attn_distributed_description of[MAX_RANKS];
} drawn;

static void draw(drawn *d, uint64_t seed)
{
    random_state r = random_from(seed);
    *d = (drawn){.problem.struct_size = sizeof d->problem, .split.struct_size = sizeof d->split};
    attn_shape *s = &d->problem.shape;
    attn_mask *m = &d->problem.mask;
    static const attn_op ops[] = {ATTN_FORWARD, ATTN_BACKWARD, ATTN_DOUBLE_BACKWARD};
    d->problem.op = ops[random_below(&r, 3)];
    *s = (attn_shape){1 + random_below(&r, MOST_BATCH), 4, 2, 1 + random_below(&r, 90), 1 + random_below(&r, 90), 8, 16};
    if (random_below(&r, 2)) s->batch = 1;
    m->causal = random_below(&r, 2) == 0;
    if (random_below(&r, 2)) {
        m->window = 1, m->window_left = random_below(&r, 40) - 1, m->window_right = random_below(&r, 40) - 1;
        if (random_below(&r, 3) == 0) m->global_q = random_below(&r, 20), m->global_kv = random_below(&r, 20);
    }
    if (random_below(&r, 4) == 0) m->chunk = 1 + random_below(&r, 40);
    d->has_lengths = random_below(&r, 3) == 0, d->has_offset = random_below(&r, 3) == 0;
    for (int b = 0; b < MOST_BATCH; b++) {
        d->lengths_q[b] = random_below(&r, s->len_q + 1), d->lengths_kv[b] = random_below(&r, s->len_kv + 1);
        d->offset[b] = random_below(&r, 2 * s->len_kv) - s->len_kv;
    }
    d->split.part = 2 + random_below(&r, 20);
    d->split.layout = (attn_layout)random_below(&r, 3);
    static const attn_way ways[] = {ATTN_WAY_RING, ATTN_WAY_DIRECT, ATTN_WAY_GATHER}; /* in which ranks have all heads */
    d->split.way = ways[random_below(&r, 3)];
    d->ranks = 1 + (int)random_below(&r, 8);
}

static void on_rank(void *context, const attn_transport *transport)
{
    drawn *d = context;
    attn_tensors t = {.struct_size = sizeof t};
    attn_error error;
    attn_distributed_plan *plan;
    attn_distributed_description *about = &d->of[transport->rank];
    const attn_input later = {ATTN_LATER, ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}};
    const attn_output out = {ATTN_LATER, ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}};
    t.q = t.k = t.v = later, t.o = out;
    if (d->problem.op != ATTN_FORWARD) t.grad_o = later, t.lse = out;
    if (d->problem.op == ATTN_BACKWARD) t.grad_q = t.grad_k = t.grad_v = out;
    if (d->problem.op == ATTN_DOUBLE_BACKWARD) t.second_grad_o = t.second_q = t.second_k = t.second_v = out;
    if (d->has_lengths) t.lengths_q = attn_in(d->lengths_q), t.lengths_kv = attn_in(d->lengths_kv);
    if (d->has_offset) t.offset_q = attn_in(d->offset);
    if (attn_distributed_plan_create(&plan, &d->problem, &t, &d->split, transport, NULL, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    about->struct_size = sizeof *about;
    assert_int_equal(attn_distributed_describe(plan, about, &error), ATTN_OK);
    assert_int_equal(about->workspace_bytes, attn_distributed_workspace_size(plan));
    attn_distributed_plan_destroy(plan);
}

/* Whether query i of entry b may see key j: the rules of positions of attn_mask. */
static int sees(const drawn *d, int64_t b, int64_t i, int64_t j)
{
    const attn_mask *m = &d->problem.mask;
    const int64_t p = i + (d->has_offset ? d->offset[b] : 0), far = 1 << 20;
    if (d->has_lengths && (i >= d->lengths_q[b] || j >= d->lengths_kv[b])) return 0;
    if (m->causal && j > p) return 0;
    if (m->chunk && (j + far * m->chunk) / m->chunk != (p + far * m->chunk) / m->chunk) return 0;
    if (!m->window || j < m->global_kv || (p >= 0 && p < m->global_q)) return 1;
    return (m->window_left < 0 || j >= p - m->window_left) && (m->window_right < 0 || j <= p + m->window_right);
}

static int cell_exists(const drawn *d, int64_t x, int64_t y)
{
    const attn_shape *s = &d->problem.shape;
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t i = x * d->split.part; i < (x + 1) * d->split.part && i < s->len_q; i++)
            for (int64_t j = y * d->split.part; j < (y + 1) * d->split.part && j < s->len_kv; j++)
                if (sees(d, b, i, j)) return 1;
    return 0;
}

static int64_t owner(const drawn *d, int64_t n, int64_t parts)
{
    const int64_t c = 2 * n * d->ranks / parts;
    return d->split.layout == ATTN_LAYOUT_STRIPED      ? n % d->ranks
           : d->split.layout == ATTN_LAYOUT_CONTIGUOUS ? n * d->ranks / parts
           : c < d->ranks                              ? c
                                                       : 2 * d->ranks - 1 - c;
}

static int64_t tokens_of(const drawn *d, int rank, int64_t tokens)
{
    const int64_t parts = (tokens + d->split.part - 1) / d->split.part;
    int64_t all = 0;
    for (int64_t n = 0; n < tokens; n++) all += owner(d, n / d->split.part, parts) == rank;
    return all;
}

static void check(uint64_t seed)
{
    drawn d;
    draw(&d, seed);
    const attn_shape *s = &d.problem.shape;
    const int64_t rounds = d.split.way == ATTN_WAY_GATHER ? s->heads_kv : 1; /* each with a cell of its own, of fewer heads */
    const int64_t longest = s->len_q > s->len_kv ? s->len_q : s->len_kv;
    ranks_run(d.ranks, 0, on_rank, &d);
    if (d.split.part > longest) d.split.part = longest;
    const int64_t part = d.split.part, parts_q = (s->len_q + part - 1) / part, parts_kv = (s->len_kv + part - 1) / part;
    int64_t cells[MAX_RANKS] = {0}, most = 0, total = 0, described = 0;
    for (int64_t x = 0; x < parts_q; x++)
        for (int64_t y = 0; y < parts_kv; y++) cells[owner(&d, x, parts_q)] += rounds * cell_exists(&d, x, y);
    for (int r = 0; r < d.ranks; r++) most = cells[r] > most ? cells[r] : most, total += cells[r];
    for (int r = 0; r < d.ranks; r++) {
        const attn_distributed_description *a = &d.of[r];
        assert_int_equal(a->ranks, d.ranks);
        assert_int_equal(a->way, d.split.way);
        assert_int_equal(a->parts_q, parts_q);
        assert_int_equal(a->parts_kv, parts_kv);
        assert_int_equal(a->queries, tokens_of(&d, r, s->len_q));
        assert_int_equal(a->keys, tokens_of(&d, r, s->len_kv));
        assert_int_equal(a->cells_most, d.of[0].cells_most);
        assert_int_equal(a->cells_total, d.of[0].cells_total);
        described += a->cells;
        /* Several entries may see parts on both sides of one that none sees. */
        if (a->cells < cells[r] || (s->batch == 1 && a->cells != cells[r]))
            fail_msg("seed %d: %d cells on rank %d of %d, not %d", (int)seed, (int)a->cells, r, d.ranks, (int)cells[r]);
        const int64_t rows = part < s->len_q ? part : s->len_q, keys = part < s->len_kv ? part : s->len_kv,
                      row = d.problem.op == ATTN_FORWARD ? s->dim_v + 1 : s->dim_qk, column = s->dim_qk + s->dim_v;
        const int64_t nodes =
            a->row_nodes * s->batch * s->heads_q * rows * row + a->column_nodes * s->batch * s->heads_kv * keys * column;
        assert_in_range(a->workspace_bytes, nodes * 4 / rounds, SIZE_MAX);
        assert_int_equal(a->shared_nodes, 0);
        if (d.problem.op == ATTN_FORWARD) assert_int_equal(a->column_nodes, 0);
        else if (a->cells > 0) assert_in_range(a->column_nodes, 1, INT32_MAX); /* and not only of the first of two runs */
        if (a->cells > 0) assert_in_range(a->row_nodes, 1, a->cells);
    }
    assert_int_equal(described, d.of[0].cells_total);
    if (s->batch > 1) return;
    assert_int_equal(d.of[0].cells_total, total);
    assert_int_equal(d.of[0].cells_most, most);
}

static void test_counts(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) check(seed);
}

/* 64 parts and a causal mask, as in docs/distributed.md: results that wait at most, on the rank where that is most. */
/* The parts of a rank, one by one, are those whose owner it is by the table of attn_layout. */
static void test_parts_of_ranks(void **state)
{
    (void)state;
    for (int layout = 0; layout < ATTN_LAYOUT_OWNERS; layout++)
        for (int64_t count = 0; count < 24; count++)
            for (int ranks = 1; ranks < 12; ranks++) {
                const attn_split split = {.struct_size = sizeof split, .part = 3, .layout = (attn_layout)layout};
                int64_t next[12] = {0}, tokens[12] = {0};
                for (int64_t n = 0; n < count; n++) {
                    const int64_t c = 2 * n * ranks / count, size = n < count - 1 ? 3 : 2,
                                  rank = layout == ATTN_LAYOUT_CONTIGUOUS ? n * ranks / count
                                         : layout == ATTN_LAYOUT_STRIPED  ? n % ranks
                                         : c < ranks                      ? c
                                                                          : 2 * ranks - 1 - c;
                    attn_split_part p = {.struct_size = sizeof p};
                    assert_int_equal(
                        attn_split_part_describe(&split, 3 * count - 1, ATTN_AXIS_KEY, (int)rank, ranks, next[rank], &p, NULL),
                        ATTN_OK);
                    assert_true(p.number == n && p.first == 3 * n && p.tokens == size && p.local == 3 * next[rank]);
                    next[rank]++, tokens[rank] += size;
                }
                for (int r = 0; r < ranks; r++) {
                    attn_split_description d = {.struct_size = sizeof d};
                    attn_split_part p = {.struct_size = sizeof p};
                    const int64_t all = count ? 3 * count - 1 : 0;
                    assert_int_equal(attn_split_describe(&split, all, ATTN_AXIS_KEY, r, ranks, &d, NULL), ATTN_OK);
                    assert_true(d.parts == next[r] && d.tokens == tokens[r] && d.parts_total == count);
                    assert_int_equal(attn_split_part_describe(&split, all, ATTN_AXIS_KEY, r, ranks, next[r], &p, NULL),
                                     ATTN_ERR_ARGUMENT);
                }
            }
}

/* Asked part by part, two thousand million of them are not looked at for each. */
static void test_many_parts(void **state)
{
    const int64_t tokens = INT32_MAX - 1;
    (void)state;
    for (int layout = 0; layout < ATTN_LAYOUT_OWNERS; layout++)
        for (int64_t back = 1; back <= 1000; back++) {
            const attn_split split = {.struct_size = sizeof split, .part = 1, .layout = (attn_layout)layout};
            attn_split_description d = {.struct_size = sizeof d};
            attn_split_part p = {.struct_size = sizeof p};
            assert_int_equal(attn_split_describe(&split, tokens, ATTN_AXIS_QUERY, 0, 2, &d, NULL), ATTN_OK);
            assert_int_equal(attn_split_part_describe(&split, tokens, ATTN_AXIS_QUERY, 0, 2, d.parts - back, &p, NULL), ATTN_OK);
            assert_true(p.local == tokens / 2 - back);
        }
}

static void test_waiting(void **state)
{
    static const struct {
        attn_layout layout;
        int ranks;
        int64_t rows, columns, rows_ring, any_order;
    } documented[] = {{ATTN_LAYOUT_CONTIGUOUS, 1, 48, 95, 48, 0}, {ATTN_LAYOUT_CONTIGUOUS, 8, 32, 32, 32, 0},
                      {ATTN_LAYOUT_ZIGZAG, 8, 39, 48, 36, 0},     {ATTN_LAYOUT_STRIPED, 8, 137, 200, 137, 0},
                      {ATTN_LAYOUT_CONTIGUOUS, 1, 2, 64, 2, 1},   {ATTN_LAYOUT_CONTIGUOUS, 8, 9, 24, 9, 1},
                      {ATTN_LAYOUT_ZIGZAG, 8, 9, 24, 9, 1},       {ATTN_LAYOUT_STRIPED, 8, 9, 24, 9, 1}};
    (void)state;
    for (size_t n = 0; n < sizeof documented / sizeof *documented; n++)
        for (int way = ATTN_WAY_RING; way <= ATTN_WAY_DIRECT; way++) {
            drawn d = {.problem = {.struct_size = sizeof d.problem, .op = ATTN_BACKWARD, .shape = {1, 1, 1, 256, 256, 4, 4}}};
            int64_t rows = 0, columns = 0;
            d.problem.mask.causal = 1;
            d.ranks = documented[n].ranks;
            d.split = (attn_split){.struct_size = sizeof d.split,
                                   .part = 256 / MOST_PARTS,
                                   .layout = documented[n].layout,
                                   .way = (attn_way)way,
                                   .any_order = documented[n].any_order};
            ranks_run(d.ranks, 0, on_rank, &d);
            for (int r = 0; r < d.ranks; r++) {
                if (d.of[r].row_nodes > rows) rows = d.of[r].row_nodes;
                if (d.of[r].column_nodes > columns) columns = d.of[r].column_nodes;
            }
            if (rows != (way == ATTN_WAY_RING ? documented[n].rows_ring : documented[n].rows) || columns != documented[n].columns)
                fail_msg("layout %d, %d ranks, way %d: %d and %d wait", (int)documented[n].layout, d.ranks, way, (int)rows,
                         (int)columns);
        }
}

/* Sizes of nothing whose product overflows; more bytes than are counted (UBSan looks on); and messages of more than 2^31 elements.
 */
static void test_huge(void **state)
{
    const int64_t heads = INT64_C(1) << 47, part = INT64_C(1) << 28, tokens = 256 * part;
    const struct {
        attn_op op;
        attn_shape shape;
        attn_split split;
        int64_t sent;
    } cases[] = {{ATTN_FORWARD, {1, heads, heads, 0, 0, INT64_C(1) << 33, 1}, {.way = ATTN_WAY_DIRECT}, 0},
                 {ATTN_FORWARD, {1, heads, heads, 0, 0, INT64_C(1) << 33, 1}, {.way = ATTN_WAY_HEADS}, 0},
                 {ATTN_FORWARD, {1, heads, heads, 0, 0, INT64_C(1) << 33, 1}, {.way = ATTN_WAY_GATHER}, 0},
                 {ATTN_FORWARD, {0, heads, heads, 64, 64, 1, 1}, {.part = 4, .way = ATTN_WAY_GATHER}, 0},
                 {ATTN_FORWARD, {1, 64, 64, tokens, tokens, 1 << 19, 1}, {.part = part, .way = ATTN_WAY_GATHER}, INT64_C(1) << 62},
                 {ATTN_FORWARD, {1, 1, 1, tokens, tokens, 1 << 25, 1}, {.part = part, .way = ATTN_WAY_DIRECT}, INT64_C(1) << 62},
                 {ATTN_DOUBLE_BACKWARD, {1, 1, 1, 1, tokens, 1 << 25, 1}, {.part = part, .way = ATTN_WAY_RING}, INT64_C(1) << 62},
                 /* 16 parts, of 2^28 rows of 64 numbers in k and v, to 15 ranks; and, with heads, of 16 q, k, v and o */
                 {ATTN_FORWARD, {1, 1, 1, tokens, tokens, 64, 64}, {.part = part, .way = ATTN_WAY_DIRECT}, INT64_C(240) << 37},
                 {ATTN_FORWARD, {1, 1, 1, tokens, tokens, 64, 64}, {.part = part, .way = ATTN_WAY_RING}, INT64_C(240) << 37},
                 {ATTN_FORWARD, {1, 16, 16, tokens, tokens, 64, 64}, {.part = part, .way = ATTN_WAY_HEADS}, INT64_C(15) << 42}};
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        drawn d = {.problem = {.struct_size = sizeof d.problem, .op = cases[n].op, .shape = cases[n].shape},
                   .split = cases[n].split};
        d.split.struct_size = sizeof d.split, d.ranks = 16;
        ranks_run(d.ranks, 0, on_rank, &d);
        assert_in_range(d.of[0].bytes, cases[n].sent, cases[n].sent + (1 << 16)); /* and what ranks agree with */
    }
}

/* The bands of a part, in which weights are computed, are of two sizes: 2^38 of them are planned at once. */
static void test_bands(void **state)
{
    const int64_t tokens = (INT64_C(1) << 44) + 5;
    const attn_problem p = {.struct_size = sizeof p, .shape = {1, 1, 1, tokens, 64, 1, 1}};
    const attn_input in = attn_in(ATTN_LATER);
    const attn_output out = attn_out(ATTN_LATER);
    const attn_tensors t = {.struct_size = sizeof t, .q = in, .k = in, .v = in, .o = out, .column_sum = out};
    const attn_split split = {.struct_size = sizeof split, .part = tokens};
    attn_distributed_plan *plan;
    (void)state;
    assert_int_equal(attn_distributed_plan_create(&plan, &p, &t, &split, NULL, NULL, NULL), ATTN_OK);
    attn_distributed_plan_destroy(plan);
}

/* Memory for column sums grows with the tokens of a part, and not with pairs of them; and lse is kept for them where nobody wants
 * it. */
static void test_columns(void **state)
{
    size_t bytes[2][2];
    (void)state;
    for (int n = 0; n < 2; n++)
        for (int wanted = 0; wanted < 2; wanted++) {
            const int64_t tokens = INT64_C(4096) << 2 * n;
            const attn_problem p = {.struct_size = sizeof p, .shape = {1, 2, 1, tokens, tokens, 16, 16}};
            const attn_input in = attn_in(ATTN_LATER);
            const attn_output out = attn_out(ATTN_LATER);
            attn_tensors t = {.struct_size = sizeof t, .q = in, .k = in, .v = in, .o = out, .column_sum = out};
            const attn_split split = {.struct_size = sizeof split, .part = tokens};
            attn_distributed_description d = {.struct_size = sizeof d};
            attn_distributed_plan *plan;
            if (wanted) t.lse = out;
            assert_int_equal(attn_distributed_plan_create(&plan, &p, &t, &split, NULL, NULL, NULL), ATTN_OK);
            assert_int_equal(attn_distributed_describe(plan, &d, NULL), ATTN_OK);
            assert_in_range(d.column_nodes, 1, d.cells), assert_in_range(d.row_nodes, 1, d.cells);
            bytes[n][wanted] = d.workspace_bytes;
            attn_distributed_plan_destroy(plan);
            if (wanted) assert_int_equal(bytes[n][0] - bytes[n][1], 2 * (size_t)tokens * sizeof(float));
        }
    assert_in_range(bytes[1][0], bytes[0][0], 4 * bytes[0][0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_counts),     cmocka_unit_test(test_parts_of_ranks),
                                       cmocka_unit_test(test_many_parts), cmocka_unit_test(test_waiting),
                                       cmocka_unit_test(test_huge),       cmocka_unit_test(test_bands),
                                       cmocka_unit_test(test_columns)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
