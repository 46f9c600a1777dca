/* SPDX-License-Identifier: MIT
 * linear_run.c - see linear_run.h. */
#include "linear_run.h"

#include "../common/slots.h"
#include "linear_scan.h"
#include "memory.h"

/* ---- memory ---- */

size_t attn_linear_divide(const attn_distributed_linear_plan *plan, char *workspace, attn_linear_memory *m)
{
    const attn_linear_passes *p = &plan->passes;
    char *const base = attn_align_64_up(workspace);
    const int has_lengths = attn_linear_bound_at(p, offsetof(attn_linear_tensors, lengths))->plan.role != ATTN_ROLE_NONE;
    size_t used = 0;
    m->lengths = attn_take(base, &used, has_lengths ? (size_t)(p->kv.parts + 1) * (size_t)p->problem.shape.batch * 8 : 0);
    m->requests = attn_take(base, &used, (size_t)plan->needs.requests * sizeof *m->requests);
    m->states = attn_take(base, &used, (size_t)attn_linear_state_copies(p) * attn_linear_copy_bytes(p));
    m->gradients = attn_take(base, &used, p->problem.op == ATTN_BACKWARD ? 2 * attn_linear_copy_bytes(p) : 0);
    m->scan = attn_take(base, &used, attn_linear_scan_bytes(p));
    m->call = attn_take(base, &used, p->workspace);
    return used + ATTN_ALIGNING;
}

int attn_linear_fits(const attn_distributed_linear_plan *plan)
{
    const attn_linear_passes *p = &plan->passes;
    const double states = (double)(attn_linear_state_copies(p) + 2) * (double)p->groups * (double)p->group,
                 lengths = (double)(p->kv.parts + 1) * (double)p->problem.shape.batch * 8;
    return states + lengths + (double)p->workspace < 0x1p62 && (double)attn_linear_scan_bytes(p) < 0x1p62;
}

/* ---- along the ranks ---- */

/* The states of call number `step` of a walk over part n. */
static attn_pass_states states_of(const attn_linear_running *r, const attn_state_walk *w, int64_t step, int64_t n, int64_t g)
{
    switch (w->kind) {
    case ATTN_PASS_BACKWARD:
        return (attn_pass_states){.before = attn_linear_state_at(r, n, g),
                                  .gradient_after = attn_linear_gradient_at(r, step, g),
                                  .gradient_before = attn_linear_gradient_at(r, step + 1, g)};
    case ATTN_PASS_BACKWARD_QUERIES:
        return (attn_pass_states){.before = attn_linear_state_at(r, 0, g),
                                  .gradient_after = attn_linear_gradient_at(r, step, g),
                                  .gradient_before = attn_linear_gradient_at(r, step + 1, g)};
    default:
        return (attn_pass_states){.before = attn_linear_state_at(r, step, g), .after = attn_linear_state_at(r, step + 1, g)};
    }
}

static void pass_along(attn_linear_running *r, const attn_state_walk *w, const attn_stretch *s)
{
    const attn_linear_passes *p = &r->plan->passes;
    const int from = w->reverse ? s->after : s->before, to = w->reverse ? s->before : s->after;
    const int64_t calls = w->open && to < 0 ? s->parts - 1 : s->parts;
    for (int64_t g = 0; from >= 0 && g < p->groups; g++)
        (void)attn_link_receive(&r->link, from, w->tag, attn_linear_moving_at(r, w, 0, g), p->group);
    for (int64_t g = 0; g < p->groups; g++) {
        if (from >= 0) attn_link_wait(&r->link, r->mine ? g : -1); /* the receives are the first that were begun */
        else attn_linear_load(r, w->begin, g, attn_linear_moving_at(r, w, 0, g));
        if (!r->mine) r->calls += calls;
        for (int64_t step = 0; r->mine && step < calls; step++) {
            const int64_t n = w->reverse ? s->parts - 1 - step : step;
            const attn_pass_states states = states_of(r, w, step, n, g);
            attn_linear_call(r, w->kind, g, n, &states);
        }
        if (to >= 0) (void)attn_link_send(&r->link, to, w->tag, attn_linear_moving_at(r, w, s->parts, g), p->group);
    }
    attn_link_wait_all(&r->link);
}

static void walk_along(attn_linear_running *r, const attn_state_walk *w, const attn_stretch *s)
{
    if (r->plan->passes.scans) attn_linear_scan(r, w, s);
    else pass_along(r, w, s);
}

/* What a walk has moved to its end goes to all ranks, in copy 0.  root -1: the walk had no parts, and all begin with the same. */
static void spread(attn_linear_running *r, const attn_state_walk *w, const attn_stretch *s, int root)
{
    const attn_linear_passes *p = &r->plan->passes;
    if (root < 0) return;
    if (root == r->plan->me && r->mine && attn_linear_moving_at(r, w, s->parts, 0) != attn_linear_moving_at(r, w, 0, 0))
        memmove(attn_linear_moving_at(r, w, 0, 0), attn_linear_moving_at(r, w, s->parts, 0), attn_linear_copy_bytes(p));
    attn_link_spread(&r->link, root, w->tag, attn_linear_moving_at(r, w, 0, 0), attn_linear_copy_bytes(p));
}

/* All groups of what has moved, to a tensor of the caller. */
static void store(attn_linear_running *r, const attn_state_walk *w, attn_state_slots slots)
{
    const attn_linear_passes *p = &r->plan->passes;
    for (int64_t g = 0; r->mine && r->link.status == ATTN_OK && r->failed == ATTN_OK && g < p->groups; g++)
        attn_linear_move_states(p, r->mine, slots.state, slots.sum, g, attn_linear_moving_at(r, w, 0, g), 1);
}

static int is_passed(const attn_linear_running *r, attn_state_slots slots)
{
    return attn_linear_bound_at(&r->plan->passes, slots.state)->plan.role != ATTN_ROLE_NONE;
}

/* ---- the run ---- */

#define STATE_SLOTS(name)                                                                                                          \
    ((attn_state_slots){offsetof(attn_linear_tensors, name##_state), offsetof(attn_linear_tensors, name##_sum)})

static void run_causal(attn_linear_running *r)
{
    const attn_linear_passes *p = &r->plan->passes;
    const int backward = p->problem.op == ATTN_BACKWARD;
    const attn_state_walk states = {.kind = backward ? ATTN_PASS_STATES : ATTN_PASS_TOKENS,
                                    .open = backward,
                                    .tag = ATTN_TAG_STATES,
                                    .begin = STATE_SLOTS(initial)},
                          gradients = {.kind = ATTN_PASS_BACKWARD,
                                       .reverse = 1,
                                       .tag = ATTN_TAG_STATE_GRADIENTS,
                                       .begin = STATE_SLOTS(grad_final)};
    const attn_state_walk *last = backward ? &gradients : &states;
    const attn_state_slots result = backward ? STATE_SLOTS(grad_initial) : STATE_SLOTS(final);
    walk_along(r, &states, &p->kv);
    if (backward) walk_along(r, &gradients, &p->kv);
    if (!is_passed(r, result)) return;
    spread(r, last, &p->kv, p->kv.last < 0 || !backward ? p->kv.last : 0); /* the first part is on rank 0 */
    store(r, last, result);
}

/* All parts of the rank read the same state, or its gradient. */
static void read_all(attn_linear_running *r, attn_pass_kind kind, const attn_stretch *s)
{
    const int64_t groups = r->plan->passes.groups;
    if (!r->mine) r->calls += groups * s->parts;
    for (int64_t g = 0; r->mine && g < groups; g++)
        for (int64_t n = 0; n < s->parts; n++) {
            const attn_pass_states states = {.before = kind == ATTN_PASS_QUERIES ? attn_linear_state_at(r, 0, g) : NULL,
                                             .gradient_after = kind == ATTN_PASS_QUERIES ? NULL : attn_linear_gradient_at(r, 0, g)};
            attn_linear_call(r, kind, g, n, &states);
        }
}

static void run_over_all(attn_linear_running *r)
{
    const attn_linear_passes *p = &r->plan->passes;
    const int backward = p->problem.op == ATTN_BACKWARD;
    const attn_state_walk states = {.kind = ATTN_PASS_STATES, .tag = ATTN_TAG_STATES, .begin = STATE_SLOTS(initial)},
                          gradients = {.kind = ATTN_PASS_BACKWARD_QUERIES,
                                       .tag = ATTN_TAG_STATE_GRADIENTS,
                                       .begin = STATE_SLOTS(grad_final)};
    walk_along(r, &states, &p->kv);
    spread(r, &states, &p->kv, p->kv.last);
    if (!backward) {
        read_all(r, ATTN_PASS_QUERIES, &p->q);
        store(r, &states, STATE_SLOTS(final));
        return;
    }
    walk_along(r, &gradients, &p->q);
    spread(r, &gradients, &p->q, p->q.last);
    read_all(r, ATTN_PASS_BACKWARD_KEYS, &p->kv);
    store(r, &gradients, STATE_SLOTS(grad_initial));
}

static void run(attn_linear_running *r)
{
    if (r->plan->passes.problem.causal) run_causal(r);
    else run_over_all(r);
}

attn_linear_needs attn_linear_count(const attn_distributed_linear_plan *plan)
{
    attn_linear_running r = {.plan = plan, .link.transport = &plan->transport};
    run(&r);
    return (attn_linear_needs){r.link.requests_most, r.link.messages, r.link.bytes, r.calls};
}

attn_status attn_linear_run(const attn_distributed_linear_plan *plan, const attn_linear_tensors *mine,
                            const attn_linear_memory *memory, attn_error *error)
{
    attn_linear_running r = {.plan = plan,
                             .mine = mine,
                             .memory = *memory,
                             .link = {.transport = &plan->transport, .requests = memory->requests, .error = error},
                             .error = error};
    run(&r);
    return r.link.status != ATTN_OK ? r.link.status : r.failed;
}
