/* SPDX-License-Identifier: MIT
 * plan.c - how decode is divided into tasks, and how much memory it needs. */
#include <stdlib.h>

#include "../../base/checked.h"
#include "../../base/cpu.h"
#include "../../base/names.h"
#include "../../task/tile.h"
#include "../walks.h"
#include "decode.h"
#include "group.h"

/* Rows of a key head, rounded up to a multiple of 4, as decode computes them. */
static int64_t rows_of_group(const attn_walk *walk)
{
    const attn_shape *shape = &walk->problem.shape;
    return attn_ceil_div(shape->heads_q / shape->heads_kv * shape->len_q, 4) * 4;
}

/* Whether keys and values come from memory: they exceed half of the last-level cache, which others use too.  No result depends on
 * it. */
static int come_from_memory(const attn_resolved *p)
{
    size_t l1d, l2, l3;
    attn_cpu_caches(&l1d, &l2, &l3);
    const double row =
        (double)attn_row_bytes(p->at.k.dtype, p->shape.dim_qk) + (double)attn_row_bytes(p->at.v.dtype, p->shape.dim_v);
    return (double)p->shape.batch * (double)p->shape.heads_kv * (double)p->shape.len_kv * row > (double)(l3 ? l3 : l2) / 2;
}

/* Bytes of a piece of keys or values (group.c). */
static int64_t bytes_of_piece(const attn_layout *layout, int64_t dim)
{
    return attn_decode_rows_of_piece(layout->dtype, dim) * attn_max(1, attn_row_bytes(layout->dtype, dim));
}

/* Rows of keys or values that are unpacked at a time. */
static int64_t unpacked_rows(const attn_decode_walk *plan, const attn_layout *layout, int64_t dim)
{
    const int64_t piece = attn_decode_rows_of_piece(layout->dtype, dim);
    if (plan->tile_kv) return attn_is_quantised(layout->dtype) ? attn_min(piece, plan->tile_kv) : 0;
    if (attn_is_by_channel(layout->dtype)) return 0;
    return attn_decode_unpacks(layout->dtype) ? attn_min(piece, plan->walk.block_kv) : 0;
}

static int lay_out(attn_decode_walk *plan)
{
    attn_walk *walk = &plan->walk;
    const attn_resolved *p = &walk->problem;
    const attn_shape *shape = &p->shape;
    const size_t size = attn_dtype_bytes(walk->compute);
    const int64_t rows = rows_of_group(walk), lds = attn_decode_lds(plan);
    attn_decode_scratch *s = &plan->scratch;
    attn_decode_shared *all = &plan->shared;
    const int64_t integer_rows_k = plan->integer_keys ? rows : 0, integer_rows_v = plan->integer_values ? rows : 0;
    int64_t key_heads, states;
    s->Q_bytes = attn_step_bytes(rows, plan->ldq, size);
    if (s->Q_bytes < 0) return 0;
    if (!attn_mul(shape->batch, shape->heads_kv, &key_heads) || !attn_mul(key_heads, plan->blocks, &states)) return 0;
    const attn_part_of own[] = {
        {&s->Q, s->Q_bytes, 1, 1},
        {&s->S, rows, lds, size},
        {&s->kept_scores, rows, lds, size},
        {&s->O, 2, plan->ldo, size},
        {&s->factors, p->at.k.dtype == ATTN_I8 || p->at.v.dtype == ATTN_I8 ? walk->block_kv : 0, 1, sizeof(float)},
        {&s->integer_queries, integer_rows_k, plan->integer_keys ? ATTN_FIXED_POINT_BYTES(shape->dim_qk) : 0, 1},
        {&s->integer_weights, integer_rows_v, ATTN_FIXED_POINT_BYTES(walk->block_kv), 1},
        {&s->fixed_point_sums, integer_rows_v, plan->integer_values ? ATTN_FIXED_POINT_SUMS(shape->dim_v) : 0, sizeof(int32_t)},
        {&s->block_O, plan->tile_kv ? rows : 0, plan->ldo, size},
        {&s->row_factors, plan->tile_kv ? rows : 0, 1, size},
        {&s->K, unpacked_rows(plan, &p->at.k, shape->dim_qk), shape->dim_qk, size},
        {&s->V, unpacked_rows(plan, &p->at.v, shape->dim_v), shape->dim_v, size},
        {&s->rows,
         attn_is_paged(p) || attn_has_choices(p)
             ? attn_max(bytes_of_piece(&p->at.k, shape->dim_qk), bytes_of_piece(&p->at.v, shape->dim_v))
             : 0,
         1, 1},
    };
    return attn_place(own, sizeof own / sizeof *own, &walk->worker_bytes) &&
           attn_decode_share(plan, states, rows, all, &walk->shared_bytes);
}

enum { MOST_BLOCKS_OF_TASK = 8 };

/* Distributes the blocks of a key head's keys over tasks, several blocks each while there are enough tasks for all workers. */
static int deal(attn_walk *walk, const attn_setting *setting, int in_order)
{
    attn_decode_walk *plan = (attn_decode_walk *)walk;
    const attn_resolved *p = &walk->problem;
    const attn_shape *shape = &p->shape;
    const attn_decode_part *kernel = walk->kernel.decode;
    const int64_t lanes = kernel->shape.lanes, most = MOST_BLOCKS_OF_TASK;
    int64_t key_heads;
    walk->tile_q = shape->len_q; /* one tile has all queries */
    walk->tiles = 1;
    plan->tile_kv = in_order ? attn_block_of_tiles(p, walk->kernel.product) : 0;
    walk->block_kv = in_order ? attn_keys_of_part(plan->tile_kv) : kernel->block_kv(shape->dim_qk, shape->dim_v);
    plan->ldq = attn_ceil_div(attn_max(shape->dim_qk, 1), lanes) * lanes;
    plan->ldo = attn_ceil_div(attn_max(shape->dim_v, 1), lanes) * lanes;
    const int as_integers = p->at.k.dtype == ATTN_I8 || (attn_is_blocks(p->at.k.dtype) && !attn_is_by_channel(p->at.k.dtype));
    plan->integer_keys = !in_order && walk->kernel.fixed_point && as_integers && shape->dim_qk <= ATTN_MAX_FIXED_POINT_CHANNELS;
    plan->integer_values =
        !in_order && walk->kernel.fixed_point && p->at.v.dtype == ATTN_I8 && shape->dim_v <= ATTN_MAX_FIXED_POINT_CHANNELS;
    plan->streams = come_from_memory(p);
    plan->blocks = attn_max(1, attn_ceil_div(shape->len_kv, walk->block_kv));
    if (!attn_mul(shape->batch, shape->heads_kv, &key_heads)) return 0;
    plan->blocks_of_task = 1;
    plan->by_block = llabs(p->at.k.stride[2]) > llabs(p->at.k.stride[1]) && shape->heads_kv > 1;
    while (!plan->by_block && plan->blocks_of_task < most &&
           (double)key_heads * (double)plan->blocks > 16.0 * setting->threads * (double)plan->blocks_of_task)
        plan->blocks_of_task *= 2;
    if (!attn_mul(key_heads, attn_ceil_div(plan->blocks, plan->blocks_of_task), &walk->tasks)) return 0;
    walk->workers = attn_is_serial(p) ? 1 : (int)attn_clamp(walk->tasks, 1, setting->threads);
    if (!attn_tables_init(&plan->tables, walk, walk->kernel.lanes * walk->kernel.vectors + walk->block_kv) || !lay_out(plan))
        return 0;
    return attn_walk_add_bytes(walk, plan->tables.bytes, 0);
}

/* ---- schedules: a piece is a block of keys, a unit a row of one ---- */

static int64_t most_blocks(const attn_walk *walk) { return ((const attn_decode_walk *)walk)->blocks; }
static int64_t blocks_of_item(const attn_walk *walk)
{
    return ((const attn_decode_walk *)walk)->by_block ? 1 : MOST_BLOCKS_OF_TASK;
}
static int64_t tasks_of_item(const attn_walk *walk) { return walk->problem.shape.heads_kv; }

static int64_t blocks_of_entry(const attn_walk *walk, const attn_visibility *seen, attn_scheduled_entry *entry)
{
    const attn_tile_visibility visible = attn_visibility_of_tile(seen, 0, seen->len_q);
    const attn_interval keys = attn_keys_of_tile(&visible);
    const attn_shape *s = &walk->problem.shape;
    entry->pieces = 1; /* block 0 is kept, for results without keys */
    if (keys.low < keys.high) {
        entry->skipped = attn_max(keys.low / walk->block_kv - 1, 0);
        entry->pieces = attn_ceil_div(keys.high, walk->block_kv) - entry->skipped;
    }
    return entry->pieces * (attn_ceil_div(s->heads_q / s->heads_kv * seen->len_q, 4) * 4);
}

static int64_t cost_of_item(const attn_walk *walk, const attn_visibility *seen, const attn_scheduled_entry *entry,
                            const attn_item *item)
{
    const attn_shape *s = &walk->problem.shape;
    const int64_t end = item->first + item->count, keys = seen->len_kv - (end - 1 + entry->skipped) * walk->block_kv;
    const int64_t rows = seen->len_q * (s->heads_q / s->heads_kv);
    return rows * ((item->count - 1) * walk->block_kv + attn_clamp(keys, 0, walk->block_kv));
}

static int64_t bytes_of_schedule(const attn_walk *walk, int64_t units)
{
    const attn_decode_walk *plan = (const attn_decode_walk *)walk;
    attn_decode_shared shared = plan->shared;
    int64_t bytes = 0;
    (void)attn_decode_share(plan, units * walk->problem.shape.heads_kv, 1, &shared, &bytes);
    return walk->bytes == 0 ? 0 : walk->bytes - walk->shared_bytes + bytes;
}

static int64_t keys_of_block(const attn_walk *walk) { return walk->block_kv; }

static const attn_walk_cut cut = {most_blocks,     blocks_of_item, tasks_of_item, 16,
                                  blocks_of_entry, cost_of_item,   keys_of_block, bytes_of_schedule};

static int init(attn_walk *walk, const attn_setting *setting) { return deal(walk, setting, 0); }
static int init_in_order(attn_walk *walk, const attn_setting *setting) { return deal(walk, setting, 1); }

/* Tiles cost a whole vector of rows, and convert keys of 16 or 8 bits to the compute type; decode costs each row, so it is faster
 * while a key head has few rows: fewer of them if keys need no conversion, unless a tile would hold a single head
 * (lab/rows/README.md). */
enum { MAX_ROWS_OF_WIDE_KEYS = 8 };

static int limits(const attn_resolved *p, const attn_kernel_row *tiles, attn_walk_limits *to)
{
    const attn_shape *s = &p->shape;
    (void)tiles;
    if (s->batch == 0 || s->heads_q == 0) return 0;
    const int wide = attn_dtype_bytes(p->at.k.dtype) >= 4 && !attn_is_quantised(p->at.k.dtype),
              joined = s->heads_q == s->heads_kv || !attn_walk_rejection(&attn_walk_rows, p);
    to->max_q = (wide && joined ? MAX_ROWS_OF_WIDE_KEYS : ATTN_MAX_DECODE_ROWS) / (s->heads_q / s->heads_kv);
    return to->max_q > 0;
}

const attn_walk_type attn_walk_decode = {
    .name = "decode",
    .op = ATTN_FORWARD,
    .supported = ATTN_USES_MASKS | ATTN_USES_BIASES | ATTN_USES(TREE) | ATTN_USES(CHOICES) | ATTN_USES(RAGGED) | ATTN_USES(PAGED) |
                 ATTN_USES(SCALES) | ATTN_USES(QUANTISED) | ATTN_USES(GROUPS),
    .decodes = 1,
    .why = "decode, since a key head has few queries",
    .limits = limits,
    .size = sizeof(attn_decode_walk),
    .init = init,
    .run = attn_decode_run,
    .cut = &cut,
};

static int limits_in_order(const attn_resolved *p, const attn_kernel_row *tiles, attn_walk_limits *to)
{
    return attn_in_order(p) && limits(p, tiles, to);
}

/* Its cost: lab/rows/README.md. */
const attn_walk_type attn_walk_decode_in_order = {
    .name = "decode in order",
    .op = ATTN_FORWARD,
    .supported = ATTN_USES_MASKS | ATTN_USES_BIASES | ATTN_USES(TREE) | ATTN_USES(CHOICES) | ATTN_USES(RAGGED) | ATTN_USES(PAGED) |
                 ATTN_USES(SCALES) | ATTN_USES(QUANTISED) | ATTN_USES(GROUPS) | ATTN_USES(INVARIANT) | ATTN_USES(REPRODUCIBLE),
    .decodes = 1,
    .why = "decode in the order of tiles",
    .limits = limits_in_order,
    .size = sizeof(attn_decode_walk),
    .init = init_in_order,
    .run = attn_decode_run,
    .cut = &cut,
};
