/* SPDX-License-Identifier: MIT
 * test_sizes.c - checked arithmetic, the grid of tiles, and the sizes and counts of a walk. */
#include "test.h"

#include "base/checked.h"
#include "task/tile.h"
#include "walk/tiles/tiles.h"

__extension__ typedef __int128 wide;

static const int64_t numbers[] = {0,
                                  1,
                                  2,
                                  3,
                                  63,
                                  64,
                                  65,
                                  INT32_MAX,
                                  (int64_t)INT32_MAX + 1,
                                  (int64_t)3037000499, /* the root of INT64_MAX */
                                  (int64_t)3037000500,
                                  INT64_MAX / 2,
                                  INT64_MAX / 2 + 1,
                                  INT64_MAX - 1,
                                  INT64_MAX};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

static void test_checked(void **state)
{
    (void)state;
    for (int x = 0; x < NUMBERS; x++)
        for (int y = 0; y < NUMBERS; y++) {
            int64_t a = numbers[x], b = numbers[y], out = -1;
            wide product = (wide)a * b, sum = (wide)a + b;
            assert_int_equal(attn_mul(a, b, &out), product <= INT64_MAX);
            assert_true(out == (product <= INT64_MAX ? (int64_t)product : -1));
            out = -1;
            assert_int_equal(attn_add(a, b, &out), sum <= INT64_MAX);
            assert_true(out == (sum <= INT64_MAX ? (int64_t)sum : -1));
            for (int signs = 0; signs < 4; signs++) {
                int64_t p = signs & 1 ? -a - 1 : a, q = signs & 2 ? -b - 1 : b; /* -INT64_MAX-1 too */
                wide s = (wide)p + q;
                int64_t expected = s > INT64_MAX ? INT64_MAX : s < INT64_MIN ? INT64_MIN : (int64_t)s;
                assert_true(attn_add_saturate(p, q) == expected);
            }
            if (b > 0) assert_true(attn_ceil_div(a, b) == (int64_t)(((wide)a + b - 1) / b));
        }
    for (int64_t i = 0; i < 200; i++)
        assert_true(attn_round_64(i) % 64 == 0 && attn_round_64(i) - i >= 0 && attn_round_64(i) - i < 64);
    assert_true(attn_clamp(5, 0, 3) == 3 && attn_clamp(-5, 0, 3) == 0 && attn_clamp(2, 0, 3) == 2);
}

static int64_t sixteen(int64_t dim_qk, int64_t dim_v)
{
    (void)dim_qk, (void)dim_v;
    return 16;
}

/* A problem of forward, and a kernel that is never run. */
typedef struct made {
    attn_product_part product;
    attn_resolved problem;
    attn_forward_walk plan;
} made;

static void make(made *m, int lanes, int vectors, int64_t heads, int64_t len_q, int64_t len_kv, int64_t dim)
{
    attn_layouts *at = &m->problem.at;
    memset(m, 0, sizeof *m);
    m->product.shape = (attn_tile_shape){lanes, vectors, 1};
    m->product.block_kv = sixteen;
    m->problem.shape = (attn_shape){1, heads, heads, len_q, len_kv, dim, dim};
    at->q.dtype = at->k.dtype = at->v.dtype = at->o.dtype = ATTN_F32;
    at->k.stride[2] = at->v.stride[2] = dim;
}

/* The plan of the walk over tiles; returns 0 if a size overflows. */
static int plan(made *m, int threads)
{
    const attn_kernel own_parts = {.product = &m->product};
    const attn_kernel_set set = {.own_parts = &own_parts};
    const attn_kernel_row row = {.compute = ATTN_F32, .set = &set};
    const attn_setting setting = {.problem = &m->problem, .row = &row, .threads = threads};
    memset(&m->plan, 0, sizeof m->plan);
    attn_walk_begin(&m->plan.tiles.walk, &setting);
    return attn_walk_tiles.init(&m->plan.tiles.walk, &setting);
}

/* Tiles are consecutive without gaps, none is empty, and their widths differ by at most one vector. */
static void test_tiles(void **state)
{
    static const int shapes[][2] = {{1, 1}, {4, 2}, {8, 3}, {16, 3}};
    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int64_t len_q = 0; len_q < 500; len_q++) {
            made m;
            const attn_walk *walk = &m.plan.tiles.walk;
            int lanes = shapes[s][0], vectors = shapes[s][1], least = vectors, most = 1;
            make(&m, lanes, vectors, 2, len_q, 8, 4);
            int64_t next = 0;
            assert_true(plan(&m, 1));
            for (int64_t t = 0; t < walk->tiles; t++) {
                attn_tile tile = attn_tile_at(walk, t);
                assert_true(tile.first == next && tile.rows >= 1);
                assert_true(tile.width >= 1 && tile.width <= vectors);
                assert_true(tile.rows <= tile.width * lanes && tile.rows > (tile.width - 1) * lanes);
                least = tile.width < least ? tile.width : least;
                most = tile.width > most ? tile.width : most;
                next += tile.rows;
            }
            assert_true(next == len_q);
            assert_true(walk->tiles <= 1 || most - least <= 1);
        }
}

static void test_blocks(void **state)
{
    made m;
    const attn_walk *walk = &m.plan.tiles.walk;
    (void)state;
    make(&m, 8, 3, 1, 100, 100, 4);
    assert_true(plan(&m, 1));
    for (int64_t j = 0; j < 100; j++)
        for (int64_t high = j + 1; high <= 100; high++) {
            int64_t end = attn_block_end(walk, j, high), grid = (j / 16 + 1) * 16;
            assert_true(end == (high < grid ? high : grid));
        }
}

/* The parts of a worker's memory are in order, aligned, large enough, and do not overlap. */
static void test_scratch(void **state)
{
    static const int64_t dims[] = {0, 1, 31, 64, 576};
    (void)state;
    for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
        for (int half = 0; half < 2; half++) {
            made m;
            const attn_walk *walk = &m.plan.tiles.walk;
            const attn_forward_scratch *own = &m.plan.scratch;
            const attn_tile_scratch *s = &m.plan.tiles.scratch;
            make(&m, 8, 3, 16, 1000, 1000, dims[d]);
            m.problem.at.k.dtype = m.problem.at.v.dtype = half ? ATTN_BF16 : ATTN_F32;
            assert_true(plan(&m, 2));
            const int64_t at[] = {s->Qt,  own->O,  own->m,       own->l, s->S, s->block_max,
                                  s->low, s->high, s->modifiers, s->K,   s->V, walk->worker_bytes};
            const int64_t lanes = 24, row = dims[d] * 4, group = m.plan.tiles.group;
            const int64_t least[] = {group * row * lanes, group * row * lanes, group * lanes * 4, group * lanes * 4,
                                     16 * lanes * 4,      lanes * 4,           lanes * 4,         lanes * 4,
                                     16 * lanes * 4,      half * 16 * row,     half * 16 * row};
            assert_true(s->Qt == 0);
            for (size_t i = 0; i + 1 < sizeof at / sizeof *at; i++) {
                assert_true(at[i] % 64 == 0);
                assert_true(at[i + 1] - at[i] >= least[i]);
            }
            assert_int_equal(m.plan.tiles.compact_k, half);
            assert_int_equal(m.plan.tiles.compact_v, half);
        }
}

/* Counts of tiles and pairs, compared with counting one by one. */
static void test_count(void **state)
{
    (void)state;
    for (int causal = 0; causal < 2; causal++)
        for (int64_t left = -1; left < 60; left += 20) {
            made m;
            const attn_walk *walk = &m.plan.tiles.walk;
            attn_tile_count count;
            int64_t visited = 0, whole = 0, pairs = 0;
            make(&m, 8, 2, 3, 70, 50, 4);
            m.problem.mask.causal = causal;
            m.problem.mask.window = left >= 0, m.problem.mask.window_left = left, m.problem.mask.window_right = -1;
            assert_true(plan(&m, 1));
            attn_walk_count(walk, &count);
            for (int64_t t = 0; t < walk->tiles; t++) {
                attn_tile tile = attn_tile_at(walk, t);
                for (int64_t j = 0; j < 50; j += 16) {
                    int64_t seen = 0, keys = 0; /* a block is whole if all its queries see the same keys */
                    for (int64_t k = j; k < j + 16 && k < 50; k++) {
                        int64_t queries = 0;
                        for (int64_t i = tile.first; i < tile.first + tile.rows; i++)
                            queries += (!causal || k <= i) && (left < 0 || k >= i - left);
                        seen += queries;
                        keys += queries > 0;
                    }
                    visited += seen > 0;
                    whole += seen > 0 && seen == tile.rows * keys;
                    pairs += seen;
                }
            }
            assert_int_equal(count.total, 3 * walk->tiles * 4);
            assert_int_equal(count.visited, 3 * visited);
            assert_int_equal(count.modified, 3 * (visited - whole));
            assert_true(count.pairs == 3.0 * (double)pairs);
        }
}

/* Sizes beyond any memory are detected while planning. */
static void test_overflow(void **state)
{
    made m;
    (void)state;
    make(&m, 8, 3, 1, 1, 1, INT64_C(1) << 57);
    assert_false(plan(&m, 1));
    make(&m, 8, 3, INT64_C(1) << 40, INT64_C(1) << 40, 1, 1);
    assert_false(plan(&m, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checked), cmocka_unit_test(test_tiles), cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_scratch), cmocka_unit_test(test_count), cmocka_unit_test(test_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
