/* SPDX-License-Identifier: MIT
 * predict.c - attn_split_predict and its machine; model.c has the formula. */
#include <math.h>

#include "../common/options.h"
#include "../common/slots.h"
#include "choose.h"
#include "index.h"
#include "origin.h"
#include "slice.h"
#include "split.h"
#include "weights.h"

/* ---- machines ---- */

enum { CORES = 32 };

/* A core merges a number in half a nanosecond. */
static const attn_split_machine assumed = {.struct_size = sizeof assumed,
                                           .flops_per_second = 5e12,
                                           .bytes_per_second = 25e9,
                                           .seconds_per_message = 5e-6,
                                           .seconds_per_sum = 0.5e-9 / CORES};

attn_status attn_machine_read(attn_split_machine *m, const attn_split_machine *caller, attn_error *error)
{
    *m = assumed;
    if (!caller) return ATTN_OK;
    TRY(struct_read(m, sizeof *m, sizeof *m, caller, "attn_split_machine", error));
    CHECK(isfinite(m->flops_per_second) && m->flops_per_second > 0, ATTN_ERR_ARGUMENT,
          "machine.flops_per_second is %g; it must be above 0", m->flops_per_second);
    CHECK(isfinite(m->bytes_per_second) && m->bytes_per_second > 0, ATTN_ERR_ARGUMENT,
          "machine.bytes_per_second is %g; it must be above 0", m->bytes_per_second);
    CHECK(isfinite(m->seconds_per_message) && m->seconds_per_message >= 0, ATTN_ERR_ARGUMENT,
          "machine.seconds_per_message is %g; it must be at least 0", m->seconds_per_message);
    CHECK(isfinite(m->seconds_per_sum) && m->seconds_per_sum >= 0, ATTN_ERR_ARGUMENT,
          "machine.seconds_per_sum is %g; it must be at least 0", m->seconds_per_sum);
    for (size_t n = 0; n < sizeof m->reserved / sizeof *m->reserved; n++)
        CHECK(m->reserved[n] == 0, ATTN_ERR_ARGUMENT, "machine.reserved[%zu] is %" PRId64 "; it must be 0", n, m->reserved[n]);
    return ATTN_OK;
}

attn_status attn_split_machine_describe(attn_split_machine *machine, attn_error *error)
{
    CHECK(machine, ATTN_ERR_ARGUMENT, "machine is NULL");
    TRY(struct_write(machine, &assumed, sizeof assumed, "attn_split_machine", error));
    return succeed(error);
}

/* ---- predicting ---- */

/* Of all ranks, without any of their tensors. */
typedef struct whole {
    attn_cells cells;
    int ranks;
    void *memory[2]; /* released at the end */
} whole;

static attn_status reserve(whole *w, int n, size_t bytes, const char *what, attn_error *error)
{
    w->memory[n] = options_acquire(&w->cells.options, bytes);
    CHECK(w->memory[n], ATTN_ERR_MEMORY, "cannot allocate the %zu bytes of %s", bytes, what);
    return ATTN_OK;
}

static attn_status predict(whole *w, const attn_split *caller, const attn_split_machine *given, attn_split_prediction *d,
                           attn_error *error)
{
    attn_cells *c = &w->cells;
    attn_split split;
    attn_split_machine machine;
    attn_range tokens;
    attn_choice choice;
    int members, divided;
    TRY(attn_split_read(&split, caller, error));
    TRY(attn_machine_read(&machine, given ? given : split.machine, error));
    CHECK(w->ranks >= 1, ATTN_ERR_ARGUMENT, "ranks is %d; it must be at least 1", w->ranks);
    TRY(attn_bounds_read_call(&c->call, &c->planned, error));
    TRY(attn_bounds_check_call(&c->call, &c->call, c->problem.op, error));
    c->planned.call = &c->call;
    TRY(attn_index_check(&c->problem.shape, error));
    TRY(attn_origin_read(c, error));
    TRY(reserve(w, 0, attn_index_bytes(c->problem.shape.batch), "lengths", error));
    TRY(attn_index_begin(&c->index, &c->planned, &c->problem, w->memory[0], &split, &tokens, error));
    c->keys_stay = split.way == ATTN_WAY_SPLIT_KEYS;
    c->any_order = split.any_order != 0;
    TRY(attn_split_check_op(&split, c->problem.op, error));
    TRY(attn_split_members(&split, c->problem.shape.heads_kv, w->ranks, &members, error));
    TRY(reserve(w, 1, attn_grid_bytes(tokens, split.part, w->ranks), "the parts", error));
    TRY(attn_grid_fill(&c->grid, w->memory[1], tokens, &c->problem, &c->index, &split, w->ranks, error));
    TRY(attn_bounds_fill(&c->bounds, &c->problem, &c->planned, split.part, tokens.first, tokens.end, NULL, error));
    if (c->index.starts_q) {
        c->documents = c->problem.shape.batch;
        c->problem.shape.batch = 1;
    }
    TRY(attn_slices_divide(&c->bounds, &c->problem, tokens, &split, &divided, error));
    TRY(attn_weights_check(c, error));
    TRY(attn_slices_share(c, attn_slices_shared(c), error));
    TRY(attn_choose(&choice, c, split.way, members, w->ranks, divided, &machine, error));
    *d = choice.predicted;
    return ATTN_OK;
}

attn_status attn_split_predict(const attn_problem *problem, int ranks, const attn_tensors *tensors, const attn_split *split,
                               const attn_split_machine *machine, attn_split_prediction *prediction, attn_error *error)
{
    attn_split_prediction d;
    whole w = {.ranks = ranks, .cells.options.struct_size = sizeof w.cells.options};
    attn_cells *const c = &w.cells;
    CHECK(problem, ATTN_ERR_ARGUMENT, "problem is NULL");
    CHECK(tensors, ATTN_ERR_ARGUMENT, "tensors is NULL");
    CHECK(prediction, ATTN_ERR_ARGUMENT, "prediction is NULL");
    TRY(struct_read(&c->problem, sizeof c->problem, sizeof c->problem, problem, "attn_problem", error));
    TRY(slots_read(&c->planned, sizeof c->planned, sizeof c->planned, tensors, "attn_tensors", error));
    const attn_status status = predict(&w, split, machine, &d, error);
    for (int n = 0; n < 2; n++) options_release(&c->options, w.memory[n]);
    if (status != ATTN_OK) return status;
    TRY(struct_write(prediction, &d, sizeof d, "attn_split_prediction", error));
    return succeed(error);
}
