/* SPDX-License-Identifier: MIT
 *
 * product.c - C = A B.  A task is a block of C.  The division into tasks changes no bits, since sums are cut along `inner` only; so
 * tasks are chosen for the number of threads.
 */
#include "product.h"

#include <string.h>

#include "../../base/checked.h"
#include "../../threads/threads.h"

enum {
    PART = 256,            /* terms of a part of a sum; a packed panel of B is then 48 KB */
    PACKED_A = 512 * 1024, /* bytes of A that are packed at once: the more, the less often B is packed */
    TASKS_PER_THREAD = 8,  /* if there are that many: threads are not equally fast */
    SWEPT_ROWS = 8,        /* up to this many are swept */
    SWEPT = 2048,          /* bytes of a row of C that are swept at once: with ATTN_SWEEP_STEPS rows of B, half a level 1 cache */
    SMALL = 64 * 1024,     /* bytes of matrices that need no packing, */
    SMALL_ROW = 128 * 1024 /* and of a B that few rows read in place, by columns */
};

static int64_t round_up(int64_t x, int64_t unit) { return attn_ceil_div(x, unit) * unit; }

int attn_product_is_small(const attn_product_matrices *p) { return (double)p->rows * (double)p->columns * (double)p->inner < 3e5; }

static attn_product_way choose(const attn_product_walk *w)
{
    const attn_product_matrices *p = &w->problem;
    const double a = (double)p->rows * (double)p->inner * (double)w->size,
                 b = (double)p->columns * (double)p->inner * (double)w->size;
    const int dots =
        p->rows <= ATTN_PRODUCT_DOT_ROWS && !p->a_transposed && !p->in_chains; /* sums in lanes, of which there are 4 to 16 */
    if (p->b_transposed) return dots ? ATTN_PRODUCT_DOTS : ATTN_PRODUCT_PACKED;
    if (p->inner <= ATTN_SWEEP_STEPS) return ATTN_PRODUCT_SWEEP;
    if (p->rows <= SWEPT_ROWS) return b <= SMALL_ROW ? ATTN_PRODUCT_IN_PLACE : ATTN_PRODUCT_SWEEP;
    return a <= SMALL && b <= SMALL ? ATTN_PRODUCT_IN_PLACE : ATTN_PRODUCT_PACKED;
}

/* Cuts into even blocks, at most `count`, of a multiple of `unit` unless there is only one. */
static int64_t cut(int64_t size, int64_t unit, int64_t count, int64_t *block)
{
    *block = size;
    if (count <= 1 || size <= unit) return size > 0; /* divisions would take longer than the rest of a small product */
    const int64_t units = attn_ceil_div(size, unit);
    *block = attn_ceil_div(units, attn_min(count, units)) * unit;
    return attn_ceil_div(size, *block);
}

void attn_product_walk_init(attn_product_walk *w, int threads)
{
    const attn_product_matrices *p = &w->problem;
    const attn_matrix_part *k = w->kernel;
    const int64_t panel = k->lanes * k->vectors, steps = attn_min(PART, p->inner);
    w->size = p->dtype == ATTN_F64 ? 8 : 4;
    w->way = choose(w);
    w->packed_a = w->bytes = 0;
    if (w->way == ATTN_PRODUCT_PACKED) {
        w->row_blocks = cut(p->rows, k->group, attn_ceil_div(p->rows, PACKED_A / (PART * w->size)), &w->block_rows);
        /* Each block of columns packs A again: with few blocks of rows there are no more of them than threads. */
        const int64_t blocks = w->row_blocks < 4 ? threads : TASKS_PER_THREAD * (int64_t)threads / w->row_blocks;
        w->column_blocks = cut(p->columns, panel, threads == 1 ? 1 : blocks, &w->block_columns);
        w->packed_a = attn_round_64(round_up(w->block_rows, k->group) * steps * w->size);
        w->bytes = w->packed_a + attn_round_64(panel * steps * w->size);
    } else if (p->rows <= SWEPT_ROWS) {
        w->row_blocks = cut(p->rows, 1, 1, &w->block_rows);
        w->column_blocks = cut(p->columns, panel, threads, &w->block_columns);
        if (w->way == ATTN_PRODUCT_SWEEP && p->inner > ATTN_SWEEP_STEPS && (p->add || p->inner > PART))
            w->bytes = SWEPT_ROWS * SWEPT;
    } else {
        w->row_blocks = cut(p->rows, k->group, threads, &w->block_rows);
        w->column_blocks = cut(p->columns, panel, 1, &w->block_columns);
    }
    w->tasks = w->row_blocks * w->column_blocks;
    w->workers = (int)attn_clamp(w->tasks, 1, threads);
    if (w->tasks == 0 || p->inner == 0) w->bytes = 0;
}

int64_t attn_product_walk_max(const attn_product_walk *w, int threads)
{
    const attn_product_matrices *p = &w->problem;
    const attn_matrix_part *k = w->kernel;
    const int64_t steps = attn_min(PART, p->inner), max_rows = round_up(PACKED_A / (PART * w->size), k->group);
    const int64_t rows = attn_min(max_rows, round_up(attn_min(p->rows, max_rows), k->group));
    const int64_t packed = attn_round_64(rows * steps * w->size) + attn_round_64(k->lanes * k->vectors * steps * w->size);
    if (p->rows == 0 || p->columns == 0 || p->inner == 0) return 0;
    return threads * attn_max(packed, SWEPT_ROWS * SWEPT);
}

typedef struct job {
    const attn_product_walk *walk;
    char *workspace;
} job;

/* A task's block of C, and where its matrices begin. */
typedef struct block {
    const attn_product_walk *walk;
    int64_t rows, columns;
    const char *a, *b;
    char *c, *scratch;
    int64_t a_row, a_step; /* elements */
} block;

static const char *a_at(const block *b, int64_t row, int64_t k) { return b->a + (row * b->a_row + k * b->a_step) * b->walk->size; }

static const char *b_at(const block *b, int64_t k, int64_t column)
{
    const attn_product_matrices *p = &b->walk->problem;
    return b->b + (p->b_transposed ? column * p->stride_b + k : k * p->stride_b + column) * b->walk->size;
}

static void clear(const block *b)
{
    const attn_product_walk *w = b->walk;
    for (int64_t i = 0; i < b->rows; i++) memset(b->c + i * w->problem.stride_c * w->size, 0, (size_t)(b->columns * w->size));
}

/* For each part of the sums, packs rows of A, and then panel by panel the columns of B, each multiplied with all these rows. */
static void run_packed(const block *b)
{
    const attn_product_walk *w = b->walk;
    const attn_product_matrices *p = &w->problem;
    const int64_t panel = w->kernel->lanes * w->kernel->vectors, group = w->kernel->group;
    char *const packed_b = b->scratch + w->packed_a;
    for (int64_t k = 0; k < p->inner; k += PART) {
        const int64_t steps = attn_min(PART, p->inner - k);
        for (int64_t i = 0; i < b->rows; i += group)
            w->kernel->pack(0, attn_min(group, b->rows - i), steps, a_at(b, i, k), p->stride_a, !p->a_transposed,
                            b->scratch + i * steps * w->size);
        for (int64_t j = 0; j < b->columns; j += panel) {
            const int64_t columns = attn_min(panel, b->columns - j);
            w->kernel->pack(1, columns, steps, b_at(b, k, j), p->stride_b, p->b_transposed, packed_b);
            w->kernel->multiply(b->rows, columns, steps, b->scratch, packed_b, p->add || k > 0, b->c + j * w->size, p->stride_c);
        }
    }
}

static void run_in_place(const block *b)
{
    const attn_product_walk *w = b->walk;
    const attn_product_matrices *p = &w->problem;
    for (int64_t k = 0; k < p->inner; k += PART)
        w->kernel->in_place(b->rows, b->columns, attn_min(PART, p->inner - k), a_at(b, 0, k), b->a_row, b->a_step, b_at(b, k, 0),
                            p->stride_b, p->add || k > 0, b->c, p->stride_c);
}

/* Parts of sums are computed in C if nothing is there yet, else in scratch, and then added. */
static void run_sweep(const block *b)
{
    const attn_product_walk *w = b->walk;
    const attn_product_matrices *p = &w->problem;
    const int64_t most = SWEPT / w->size;
    if (p->inner <= ATTN_SWEEP_STEPS) {
        for (int64_t j = 0; j < b->columns; j += most * 4)
            w->kernel->sweep(b->rows, attn_min(most * 4, b->columns - j), p->inner, b->a, b->a_row, b->a_step, b_at(b, 0, j),
                             p->stride_b, 0, p->add, b->c + j * w->size, p->stride_c);
        return;
    }
    for (int64_t j = 0; j < b->columns; j += most) {
        const int64_t columns = attn_min(most, b->columns - j);
        for (int64_t k = 0; k < p->inner; k += PART) {
            const int beside = p->add || k > 0;
            char *const c = b->c + j * w->size;
            w->kernel->sweep(b->rows, columns, attn_min(PART, p->inner - k), a_at(b, 0, k), b->a_row, b->a_step, b_at(b, k, j),
                             p->stride_b, 0, 0, beside ? b->scratch : c, beside ? most : p->stride_c);
            for (int64_t i = 0; beside && i < b->rows; i++)
                w->kernel->join(columns, b->scratch + i * SWEPT, 1, c + i * p->stride_c * w->size);
        }
    }
}

static void run_dots(const block *b)
{
    const attn_product_walk *w = b->walk;
    const attn_product_matrices *p = &w->problem;
    const int64_t part = PART * w->kernel->lanes;
    for (int64_t k = 0; k < p->inner; k += part)
        w->kernel->dots(b->rows, b->columns, attn_min(part, p->inner - k), a_at(b, 0, k), p->stride_a, b_at(b, k, 0), p->stride_b,
                        p->add || k > 0, b->c, p->stride_c);
}

static void run(void *context, int64_t worker, int64_t task)
{
    static void (*const ways[])(const block *) = {run_packed, run_in_place, run_sweep, run_dots};
    const job *j = context;
    const attn_product_walk *w = j->walk;
    const attn_product_matrices *p = &w->problem;
    const int64_t by_row = w->column_blocks > 1 ? task / w->column_blocks : task;
    const int64_t row = by_row * w->block_rows, column = (task - by_row * w->column_blocks) * w->block_columns;
    block b = {.walk = w,
               .rows = attn_min(w->block_rows, p->rows - row),
               .columns = attn_min(w->block_columns, p->columns - column),
               .a = p->a,
               .b = p->b,
               .scratch = j->workspace + worker * w->bytes,
               .a_row = p->a_transposed ? 1 : p->stride_a,
               .a_step = p->a_transposed ? p->stride_a : 1};
    b.c = (char *)p->c + (row * p->stride_c + column) * w->size;
    b.a = a_at(&b, row, 0);
    b.b = b_at(&b, 0, column);
    if (p->inner > 0) ways[w->way](&b);
    else if (!p->add) clear(&b);
}

void attn_run_product(const attn_product_walk *walk, void *workspace)
{
    job j = {walk, workspace};
    attn_threads_run(walk->parallel_for, walk->parallel_context, walk->workers, walk->tasks, run, &j);
}
