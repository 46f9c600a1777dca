/* SPDX-License-Identifier: MIT
 * family.c - what walks over tiles do before and after. */
#include "family.h"

#include "../base/checked.h"
#include "../tile/relative.h"
#include "../tile/tables.h"

static int init(attn_walk *walk, const attn_setting *setting, int in_rows)
{
    attn_tile_family *f = (attn_tile_family *)walk;
    const attn_resolved *problem = setting->problem;
    int64_t matrix[2];
    f->prepare.problem = *problem;
    walk->one_sum = setting->saves_memory;
    attn_problem_matrix_shape(problem, matrix);
    if (!(in_rows ? attn_rows_problem(problem, &walk->problem, &f->rows) : attn_prepare_problem(problem, &walk->problem)) ||
        !attn_relative_problem(problem, &walk->problem))
        return 0;
    if (!attn_walk_init(walk, setting->threads) || !attn_prepare_init(&f->prepare, walk, matrix)) return 0;
    if (walk->bytes > INT64_MAX - 64 - f->prepare.bytes - f->rows.bytes) return 0;
    walk->bytes = walk->tasks == 0 && f->prepare.bytes == 0 ? 0 : walk->bytes + f->prepare.bytes + f->rows.bytes;
    return 1;
}

int attn_family_init(attn_walk *walk, const attn_setting *setting) { return init(walk, setting, 0); }
int attn_family_init_rows(attn_walk *walk, const attn_setting *setting) { return init(walk, setting, 1); }

void attn_family_run(const attn_walk *walk, const attn_args *args, char *workspace)
{
    const attn_tile_family *f = (const attn_tile_family *)walk;
    const attn_resolved *problem = &f->prepare.problem;
    attn_args prepared;
    char *rows = workspace + f->prepare.bytes, *tables = rows + f->rows.bytes;
    char *relative = tables + walk->tables.bytes, *rest = relative + walk->relative.bytes;
    attn_prepare_begin(&f->prepare, walk, args, workspace, &prepared);
    attn_rows_begin(&f->rows, walk, problem, args, rows, &prepared);
    attn_tables_begin(&walk->tables, walk, args, tables, &prepared);
    attn_relative_begin(walk, problem, args, relative, &prepared);
    switch (walk->problem.op) {
    case ATTN_FORWARD:
        attn_sched_forward(walk, &prepared, rest);
        break;
    case ATTN_BACKWARD:
        attn_sched_backward(walk, &prepared, rest);
        break;
    case ATTN_JVP:
        attn_sched_jvp(walk, &prepared, rest);
        break;
    case ATTN_DOUBLE_BACKWARD:
        attn_sched_second(walk, &prepared, rest);
        break;
    case ATTN_LINEAR: /* no problem passes the rules with these */
    case ATTN_PRODUCT:
        break;
    }
    attn_relative_finish(walk, problem, args, &prepared);
    attn_rows_finish(&f->rows, walk, problem, args, &prepared);
    attn_prepare_finish(&f->prepare, walk, args, workspace);
}
