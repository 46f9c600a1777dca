/* SPDX-License-Identifier: MIT
 * runs.c - see runs.h. */
#include "runs.h"

#include "../common/options.h"
#include "../common/slots.h"
#include "weights.h"

/* ---- the tensors of a run ---- */

int attn_runs_are_two(const attn_cells *c)
{
    return attn_bound_find(&c->bounds, offsetof(attn_tensors, second_grad_o)) != NULL || attn_weights_wanted(c);
}

/* Slots of what the first run leaves to the second in the workspace; returns how many. */
static int kept(const attn_cells *c, size_t slot[ATTN_RUNS_KEEP])
{
    const int is_forward = c->problem.op == ATTN_FORWARD;
    slot[0] = is_forward ? offsetof(attn_tensors, lse) : offsetof(attn_tensors, tan_o);
    slot[1] = offsetof(attn_tensors, tan_lse);
    return !is_forward ? 2
                       : attn_bound_get(&c->bounds, offsetof(attn_tensors, lse))->index < 0; /* (the caller may want lse, too) */
}

/* A tensor that both runs have, like another one: dense, and of the compute type. */
static attn_bound kept_like(const attn_bounds *bounds, attn_bound like, size_t offset, const char *name, attn_role role)
{
    like.index = -1, like.offset = offset, like.name = name;
    like.role = role, like.dtype = bounds->compute;
    like.stride[3] = 1;
    for (int axis = 3; axis > 0 && sizes_fit(16, like.shape, 4); axis--) /* if not, it is rejected later */
        like.stride[axis - 1] = like.stride[axis] * attn_max(like.shape[axis], 1);
    like.has_elements = like.shape[0] > 0 && like.shape[1] > 0 && like.shape[2] > 0 && like.shape[3] > 0;
    return like;
}

static int is_tangent(const attn_bound *b)
{
    return b->offset == offsetof(attn_tensors, second_grad_o) || b->offset == offsetof(attn_tensors, second_grad_lse);
}

static void take_double_backward(attn_cells *c, attn_runs_of run)
{
    const int tangents = run == ATTN_RUN_FIRST, count = c->bounds.count;
    const attn_role role = tangents ? ATTN_ROLE_OUTPUT : ATTN_ROLE_INPUT;
    attn_bounds *const all = &c->bounds;
    c->problem.op = tangents ? ATTN_JVP : ATTN_DOUBLE_BACKWARD;
    all->count = 0;
    for (int n = 0; n < count; n++) {
        attn_tensor_description d = {.struct_size = sizeof d};
        (void)attn_tensor_describe(ATTN_FAMILY_ATTENTION, all->all[n].index, &d, NULL);
        if (!is_tangent(&all->all[n]) && d.role[c->problem.op] != ATTN_ROLE_NONE) all->all[all->count++] = all->all[n];
    }
    const attn_bound *o = attn_bound_get(all, offsetof(attn_tensors, o)), *lse = attn_bound_get(all, offsetof(attn_tensors, lse));
    all->all[all->count] = kept_like(all, *o, offsetof(attn_tensors, tan_o), "tan_o", role);
    all->all[all->count + 1] = kept_like(all, *lse, offsetof(attn_tensors, tan_lse), "tan_lse", role);
    all->count += 2;
}

void attn_runs_take(attn_cells *c, attn_runs_of run)
{
    if (c->problem.op != ATTN_FORWARD) {
        take_double_backward(c, run);
        return;
    }
    for (attn_bound *b = c->bounds.all; b < c->bounds.all + c->bounds.count; b++)
        if (b->offset == offsetof(attn_tensors, lse) && b->index < 0)
            *b = kept_like(&c->bounds, *b, b->offset, b->name, ATTN_ROLE_OUTPUT);
    attn_weights_take(c, run == ATTN_RUN_SECOND);
}

/* ---- planning ---- */

static attn_status place_kept(const attn_bounds *bounds, size_t offset, size_t *at, size_t *bytes, attn_error *error)
{
    const attn_bound *b = attn_bound_get(bounds, offset);
    const int64_t size = (int64_t)attn_dtype_size(b->dtype);
    CHECK(sizes_fit(16 * size, b->shape, 4), ATTN_ERR_SHAPE, "distributed: %s of a rank is too large: its bytes overflow 64 bits",
          b->name);
    *at = *bytes;
    *bytes += attn_round_64_up((size_t)(sizes_product(b->shape, 4) * size));
    return ATTN_OK;
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* What both runs do, one after the other. */
static void add_needs(attn_distributed_plan *p)
{
    const attn_run_needs *first = &p->runs->of[ATTN_RUN_FIRST].needs, *then = &p->runs->of[ATTN_RUN_SECOND].needs;
    p->needs = *then;
    for (int kind = 0; kind < ATTN_NODE_KINDS; kind++) p->needs.slots[kind] = larger(first->slots[kind], then->slots[kind]);
    p->needs.messages += first->messages;
    p->needs.bytes = attn_bytes_sent(p->needs.bytes, (size_t)first->bytes);
}

static attn_status plan_two(attn_distributed_plan *p, attn_error *error)
{
    const attn_options *o = &p->cells.options;
    attn_runs *two = p->runs = options_acquire(o, sizeof *two);
    CHECK(two, ATTN_ERR_MEMORY, "cannot allocate the %zu bytes of a plan of two runs", sizeof *two);
    *two = (attn_runs){.bytes = 0};
    size_t most = 0;
    for (int n = 0; n < ATTN_RUNS; n++) two->of[n].cells.options = *o;
    for (int n = 0; n < ATTN_RUNS; n++) {
        attn_distributed_plan *run = &two->of[n];
        *run = *p;
        run->runs = NULL, run->heads = NULL, run->head = NULL;
        run->memory = run->numbers = run->lists = NULL;
        attn_runs_take(&run->cells, (attn_runs_of)n);
        TRY(attn_run_plan(run, error));
        if (run->workspace > most) most = run->workspace;
    }
    const attn_distributed_plan *then = &two->of[ATTN_RUN_SECOND];
    two->count = kept(&p->cells, two->slot);
    for (int n = 0; n < two->count; n++) TRY(place_kept(&then->cells.bounds, two->slot[n], &two->at[n], &two->bytes, error));
    CHECK((double)two->bytes + (double)most < 0x1p62, ATTN_ERR_SHAPE,
          "distributed: the workspace of a plan is too large: its bytes overflow 64 bits");
    add_needs(p);
    p->cells_most = then->cells_most, p->cells_total = then->cells_total;
    p->workspace = two->bytes + most + ATTN_ALIGNING;
    return attn_cells_lay_out(&p->cells, error); /* what ranks agree about */
}

attn_status attn_runs_plan(attn_distributed_plan *p, attn_error *error)
{
    return attn_runs_are_two(&p->cells) ? plan_two(p, error) : attn_run_plan(p, error);
}

static void free_one(attn_distributed_plan *p)
{
    const attn_options o = p->cells.options;
    if (p->head) free_one(p->head);
    options_release(&o, p->head);
    attn_cells_free(&p->cells);
    options_release(&p->cells.options, p->lists);
}

void attn_runs_free(attn_distributed_plan *p)
{
    for (int n = 0; n < ATTN_RUNS && p->runs; n++) free_one(&p->runs->of[n]);
    options_release(&p->cells.options, p->runs);
    free_one(p);
}

/* ---- running ---- */

/* Rounds a tangent into the caller's tensor, if that is wanted. */
static void store(const attn_distributed_plan *p, size_t of, size_t into, const attn_tensors *with)
{
    const attn_bound *from = attn_bound_get(&p->runs->of[ATTN_RUN_SECOND].cells.bounds, of),
                     *to = attn_bound_find(&p->cells.bounds, into);
    if (!to || !to->has_elements) return;
    const int64_t size = (int64_t)attn_dtype_size(from->dtype), own = (int64_t)attn_dtype_size(to->dtype);
    const char *data = attn_bound_slot(from, with).data;
    const attn_input slot = attn_bound_slot(to, with);
    char *const written = slot_written(&slot);
    for (int64_t x = 0; x < to->shape[0]; x++)
        for (int64_t h = 0; h < to->shape[1]; h++)
            for (int64_t t = 0; t < to->shape[2]; t++, data += to->width * size)
                (void)attn_convert(to->width, data, from->dtype,
                                   written + (x * to->stride[0] + h * to->stride[1] + t * to->stride[2]) * own, to->dtype, NULL);
}

static attn_status execute_two(const attn_distributed_plan *p, const attn_tensors *mine, void *workspace, attn_error *error)
{
    const attn_runs *two = p->runs;
    char *const base = attn_align_64_up(workspace);
    attn_tensors with = *mine;
    attn_error later;
    for (int n = 0; n < two->count; n++)
        attn_slot_in(&with, attn_bound_get(&two->of[ATTN_RUN_SECOND].cells.bounds, two->slot[n]))->data = base + two->at[n];
    const attn_status status = attn_run(&two->of[ATTN_RUN_FIRST], &with, base + two->bytes, error);
    if (status == ATTN_ERR_IO) return status;
    /* After a cell that failed, too: others wait for it. */
    const attn_status then = attn_run(&two->of[ATTN_RUN_SECOND], &with, base + two->bytes, status == ATTN_OK ? error : &later);
    if (then == ATTN_ERR_IO && status != ATTN_OK && error) *error = later;
    if (status != ATTN_OK || then != ATTN_OK) return status == ATTN_OK || then == ATTN_ERR_IO ? then : status;
    if (p->cells.problem.op == ATTN_FORWARD) return ATTN_OK;
    store(p, offsetof(attn_tensors, tan_o), offsetof(attn_tensors, second_grad_o), &with);
    store(p, offsetof(attn_tensors, tan_lse), offsetof(attn_tensors, second_grad_lse), &with);
    return ATTN_OK;
}

attn_status attn_runs_execute(const attn_distributed_plan *p, const attn_tensors *mine, void *workspace, attn_error *error)
{
    return p->runs ? execute_two(p, mine, workspace, error) : attn_run(p, mine, workspace, error);
}
