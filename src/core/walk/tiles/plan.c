/* SPDX-License-Identifier: MIT
 * plan.c - how forward attention over tiles is divided into tasks, and how much memory it needs. */
#include "../../base/checked.h"
#include "../../base/names.h"
#include "../../prepare/relative_prepare.h"
#include "../../tile/rotate.h"
#include "outputs.h"
#include "tiles.h"

/* A task's tiles share each block of keys and values.  That pays if blocks are copied, but costs balance and cache: 3 tiles of D
 * 512 over bf16 keys take 0.9 times the time of 1, though they have 600 KB.  Results do not depend on it. */
static int64_t tiles_of_task(const attn_forward_walk *plan, int64_t heads, int threads)
{
    const attn_walk *walk = &plan->tiles.walk;
    const attn_shape *shape = &walk->problem.shape;
    const int copied = plan->tiles.compact_k || plan->tiles.compact_v;
    int64_t most = copied ? ATTN_MAX_TILES : shape->len_kv > walk->block_kv ? 2 : 1;
    double tile_bytes = (double)(shape->dim_qk + shape->dim_v) * (double)walk->tile_q * (double)attn_dtype_bytes(walk->compute);
    while (most > (copied ? 4 : 1) && tile_bytes * (double)most > 256 << 10) most /= 2;
    while (most > 1 && threads > 1 && (double)heads * (double)walk->tiles / (double)most < 4.0 * threads) most /= 2;
    return most;
}

/* A task takes a whole head if heads are short, with a single block of keys, and many.  One core then fetches a head's rows, and
 * prefetches those of its next head while it works on them. */
static int takes_whole_heads(const attn_forward_walk *plan, int64_t heads, int threads)
{
    const attn_walk *walk = &plan->tiles.walk;
    return !plan->by_heads && walk->problem.shape.len_kv <= walk->block_kv && heads / threads >= 8;
}

/* Keys are summed in parts (attn_keys_of_part).  If there are few tasks, parts of a head become tasks of their own, at most 16 at
 * once, since each needs a state. */
static int cut_keys(attn_forward_walk *plan, int threads)
{
    attn_walk *walk = &plan->tiles.walk;
    const int64_t most = 16;
    plan->part_kv = attn_keys_of_part(walk->block_kv);
    plan->parts = attn_max(1, attn_ceil_div(walk->problem.shape.len_kv, plan->part_kv));
    if (walk->tiles == 1 && threads > 1 && !attn_is_serial(&walk->problem) && walk->tasks < 4 * (int64_t)threads)
        plan->at_once = attn_min(plan->parts, most);
    return attn_mul(walk->tasks, plan->at_once, &walk->tasks);
}

/* Chooses tiles of a group, tasks and workers. */
static int deal(attn_forward_walk *plan, int threads)
{
    attn_walk *walk = &plan->tiles.walk;
    const attn_resolved *p = &walk->problem;
    const int64_t of_group = p->shape.heads_kv ? p->shape.heads_q / p->shape.heads_kv : 1;
    int64_t heads, key_heads, columns = 0;
    if (!attn_mul(p->shape.batch, p->shape.heads_q, &heads) || !attn_mul(p->shape.batch, p->shape.heads_kv, &key_heads)) return 0;
    plan->at_once = 1;
    plan->by_heads = walk->tiles == 1 && of_group > 1;
    plan->tiles.group = plan->by_heads ? attn_min(of_group, ATTN_MAX_TILES) : tiles_of_task(plan, heads, threads);
    if (plan->by_heads && !attn_mul(key_heads, attn_ceil_div(of_group, plan->tiles.group), &walk->tasks)) return 0;
    if (!plan->by_heads && !attn_mul(heads, attn_ceil_div(walk->tiles, plan->tiles.group), &walk->tasks)) return 0;
    plan->whole_heads = !attn_is_serial(p) && walk->tasks > 0 && takes_whole_heads(plan, heads, threads);
    if (plan->whole_heads) walk->tasks = heads;
    plan->tasks_of_entry = plan->by_heads ? p->shape.heads_kv * attn_ceil_div(of_group, plan->tiles.group) : p->shape.heads_q;
    if (!cut_keys(plan, threads)) return 0;
    if (p->has.column_sum) { /* their walk has tasks of its own */
        const int64_t blocks = attn_ceil_div(p->shape.len_kv, walk->block_kv);
        if (!attn_mul(p->shape.batch, attn_column_heads(p), &columns) || !attn_mul(columns, blocks, &columns)) return 0;
    }
    walk->workers = attn_is_serial(p) ? 1 : (int)attn_clamp(attn_max(walk->tasks, columns), 1, threads);
    return 1;
}

static int lay_out(attn_forward_walk *plan)
{
    attn_walk *walk = &plan->tiles.walk;
    const attn_resolved *p = &walk->problem;
    attn_forward_scratch *s = &plan->scratch;
    const int64_t q = walk->tile_q, group = plan->tiles.group;
    const size_t size = attn_dtype_bytes(walk->compute);
    s->O_bytes = attn_step_bytes(p->shape.dim_v, q, size);
    if (!attn_tiles_measure(&plan->tiles) || s->O_bytes < 0) return 0;
    const int64_t lane_bytes = plan->tiles.scratch.lane_bytes;
    const attn_part_of beside[] = {
        {&s->O, s->O_bytes, group, 1},      {&s->m, lane_bytes, group, 1},
        {&s->l, lane_bytes, group, 1},      {&s->part, plan->parts > 1 ? s->O_bytes + 2 * lane_bytes : 0, group, 1},
        {&s->empty, 1, q, sizeof(int32_t)},
    };
    const attn_part_of after[] = {
        {&s->rows, p->has.rows ? p->shape.len_kv : 0, q, size},
        {&s->row_max, plan->outputs, q, size},
        {&s->row_sums, 2 * plan->outputs, q, sizeof(double)},
        {&s->top, attn_topk_kept(p), q, size},
        {&s->top_index, attn_topk_kept(p), q, sizeof(int64_t)},
        {&s->columns, p->has.column_sum ? walk->block_kv : 0, 1, sizeof(double)},
    };
    return attn_tiles_lay_out(&plan->tiles, beside, sizeof beside / sizeof *beside, after, sizeof after / sizeof *after);
}

static int lay_out_shared(attn_forward_walk *plan)
{
    attn_walk *walk = &plan->tiles.walk;
    const attn_resolved *p = &walk->problem;
    attn_forward_shared *s = &plan->shared;
    const int64_t lanes = walk->kernel.lanes, vectors = attn_ceil_div(p->shape.len_q, lanes);
    const size_t size = attn_dtype_bytes(walk->compute);
    int64_t heads, states = 0, rows = 0;
    if (!attn_mul(p->shape.batch, p->shape.heads_q, &heads)) return 0;
    if (p->has.column_sum && (!attn_mul(vectors, lanes, &rows) || !attn_mul(heads, rows, &rows))) return 0;
    if (plan->at_once > 1 && !attn_mul(heads, plan->at_once + 1, &states)) return 0;
    s->state_bytes = plan->scratch.O_bytes + 2 * plan->tiles.scratch.lane_bytes + 64;
    const attn_part_of parts[] = {
        {&s->states, states, s->state_bytes, 1},
        {&s->row_m, rows, 1, size},
        {&s->row_l, rows, 1, size},
        {&s->row_empty, p->mask.empty == ATTN_EMPTY_UNIFORM ? rows : 0, 1, sizeof(int32_t)},
    };
    return attn_place(parts, sizeof parts / sizeof *parts, &walk->shared_bytes);
}

int attn_forward_init(attn_forward_walk *plan, const attn_setting *setting, int64_t before)
{
    attn_tile_walk *tiles = &plan->tiles;
    attn_walk *walk = &tiles->walk;
    const attn_resolved *p = &walk->problem;
    attn_tiles_begin(tiles);
    plan->outputs = p->has.weights || p->has.scores || p->has.rows || p->has.row_max || p->has.entropy || p->has.effective_keys ||
                    p->has.column_sum || p->outputs.topk > 0;
    return deal(plan, setting->threads) && attn_tables_init(&tiles->tables, walk, walk->tile_q + walk->block_kv) &&
           attn_relative_init(tiles) && lay_out(plan) && lay_out_shared(plan) && attn_prepare_init(&plan->prepare, walk) &&
           attn_add(before, tiles->tables.bytes, &before) && attn_add(before, tiles->relative.bytes, &before) &&
           attn_add(before, plan->prepare.bytes, &before) && attn_walk_add_bytes(walk, before, plan->prepare.bytes > 0);
}

/* ---- schedules: a piece is a tile of queries, or all of them ---- */

static int has_pieces(const attn_walk *walk)
{
    const attn_forward_walk *plan = attn_forward_of(walk);
    return !plan->by_heads && !plan->whole_heads;
}

static int64_t most_tiles(const attn_walk *walk) { return has_pieces(walk) ? walk->tiles : 1; }
static int64_t tiles_of_item(const attn_walk *walk) { return has_pieces(walk) ? attn_tiles_of(walk)->group : 1; }
static int64_t tasks_of_item(const attn_walk *walk) { return attn_forward_of(walk)->tasks_of_entry; }

static int64_t tiles_of_entry(const attn_walk *walk, const attn_visibility *seen, attn_scheduled_entry *entry)
{
    int64_t low = 0, high = most_tiles(walk); /* tiles begin in order: the first one past the last query is found by halving */
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (attn_tile_at(walk, middle).first < seen->len_q) low = middle + 1;
        else high = middle;
    }
    entry->pieces = low;
    return 0;
}

static int64_t cost_of_item(const attn_walk *walk, const attn_visibility *seen, const attn_scheduled_entry *entry,
                            const attn_item *item)
{
    const int64_t end = item->first + item->count, first = has_pieces(walk) ? attn_tile_at(walk, item->first).first : 0;
    const int64_t last = has_pieces(walk) && end < entry->pieces ? attn_tile_at(walk, end).first : seen->len_q;
    const attn_tile_visibility visible = attn_visibility_of_tile(seen, first, last - first);
    const attn_interval keys = attn_keys_of_tile(&visible);
    return (last - first) * (keys.high - keys.low);
}

static int64_t bytes_of_schedule(const attn_walk *walk, int64_t units)
{
    (void)units;
    return walk->bytes;
}

const attn_walk_cut attn_forward_cut = {most_tiles,     tiles_of_item, tasks_of_item, 4,
                                        tiles_of_entry, cost_of_item,  NULL,          bytes_of_schedule};

static int init(attn_walk *walk, const attn_setting *setting)
{
    attn_forward_walk *plan = (attn_forward_walk *)walk;
    plan->prepare.problem = *setting->problem;
    return attn_prepare_problem(setting->problem, &walk->problem) && attn_relative_problem(setting->problem, &walk->problem) &&
           attn_forward_init(plan, setting, 0);
}

static void run(const attn_walk *walk, const attn_args *args, char *workspace)
{
    const attn_forward_walk *plan = attn_forward_of(walk);
    attn_args prepared;
    attn_prepare_begin(&plan->prepare, walk, args, workspace, &prepared);
    attn_forward_run(plan, args, &prepared, workspace + plan->prepare.bytes);
}

static int can_rotate(const attn_walk *walk)
{
    return attn_forward_of(walk)->prepare.problem.score.kind == ATTN_SCORE_DOT && attn_tile_can_rotate(walk);
}

const attn_walk_type attn_walk_tiles = {
    .name = "tiles",
    .op = ATTN_FORWARD,
    .supported = ATTN_USES_TILE_MASKS | ATTN_USES_BIASES | ATTN_USES_SCORES | ATTN_USES(RAGGED) | ATTN_USES(PAGED) |
                 ATTN_USES(QUANTISED) | ATTN_USES(PAIRS) | ATTN_USES(ROWS) | ATTN_USES(COLUMNS) | ATTN_USES(KEEP) |
                 ATTN_USES(FOLDED) | ATTN_USES(TREE) | ATTN_USES(HEAD_LISTS) | ATTN_USES(CHOICES),
    .size = sizeof(attn_forward_walk),
    .init = init,
    .run = run,
    .cut = &attn_forward_cut,
    .can_rotate = can_rotate,
};
