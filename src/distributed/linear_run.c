/* SPDX-License-Identifier: MIT
 * linear_run.c - see linear_run.h. */
#include "linear_run.h"

#include "../common/slots.h"
#include "link.h"

typedef struct running {
    const attn_distributed_linear_plan *plan;
    const attn_linear_tensors *mine; /* NULL: counts */
    attn_linear_memory memory;
    attn_link link;
    int64_t calls;
    attn_status failed; /* of the first call that failed; messages go on, so that no rank waits for ever */
    attn_error *error;
} running;

/* ---- memory ---- */

/* States are kept before each part, for backward; else one copy moves along. */
static int64_t copies_of_states(const attn_linear_passes *p)
{
    return p->problem.causal && p->problem.op == ATTN_BACKWARD ? p->kv.parts + 1 : 1;
}

static size_t copy_bytes(const attn_linear_passes *p) { return (size_t)p->groups * p->group; }

static char *state_at(const running *r, int64_t copy, int64_t g)
{
    const attn_linear_passes *p = &r->plan->passes;
    if (!r->mine) return NULL;
    return r->memory.states + (size_t)(copies_of_states(p) > 1 ? copy : 0) * copy_bytes(p) + (size_t)g * p->group;
}

/* A gradient is read and written by each call: two copies take turns. */
static char *gradient_at(const running *r, int64_t copy, int64_t g)
{
    const attn_linear_passes *p = &r->plan->passes;
    if (!r->mine) return NULL;
    return r->memory.gradients + (size_t)(copy & 1) * copy_bytes(p) + (size_t)g * p->group;
}

static void *piece(char *base, size_t *used, size_t bytes)
{
    const size_t start = *used;
    *used = start + (bytes + 63) / 64 * 64;
    return base ? base + start : NULL;
}

size_t attn_linear_divide(const attn_distributed_linear_plan *plan, char *workspace, attn_linear_memory *m)
{
    const attn_linear_passes *p = &plan->passes;
    char *const base = workspace ? workspace + (64 - (uintptr_t)workspace % 64) % 64 : NULL;
    const int has_lengths = attn_linear_bound_at(p, offsetof(attn_linear_tensors, lengths))->plan.role != ATTN_ROLE_NONE;
    size_t used = 0;
    m->lengths = piece(base, &used, has_lengths ? (size_t)(p->kv.parts + 1) * (size_t)p->problem.shape.batch * 8 : 0);
    m->requests = piece(base, &used, (size_t)plan->needs.requests * sizeof *m->requests);
    m->states = piece(base, &used, (size_t)copies_of_states(p) * copy_bytes(p));
    m->gradients = piece(base, &used, p->problem.op == ATTN_BACKWARD ? 2 * copy_bytes(p) : 0);
    m->call = piece(base, &used, p->workspace);
    return used + 63;
}

int attn_linear_fits(const attn_distributed_linear_plan *plan)
{
    const attn_linear_passes *p = &plan->passes;
    const double states = (double)(copies_of_states(p) + 2) * (double)p->groups * (double)p->group,
                 lengths = (double)(p->kv.parts + 1) * (double)p->problem.shape.batch * 8;
    return states + lengths + (double)p->workspace < 0x1p62;
}

/* ---- calls ---- */

static void call(running *r, attn_pass_kind kind, int64_t g, int64_t n, const attn_pass_states *states)
{
    const attn_linear_passes *p = &r->plan->passes;
    const attn_linear_bound *lengths = attn_linear_bound_at(p, offsetof(attn_linear_tensors, lengths));
    if (r->link.status != ATTN_OK) return;
    if (r->failed == ATTN_OK)
        r->failed = attn_linear_pass_run(
            p, kind, g, n, r->mine, r->memory.lengths + (size_t)(n * p->problem.shape.batch) * attn_dtype_size(lengths->plan.dtype),
            states, r->memory.call, r->error);
    if (r->failed != ATTN_OK && states->after) memset(states->after, 0, p->group);
    if (r->failed != ATTN_OK && states->gradient_before) memset(states->gradient_before, 0, p->group);
    attn_link_progress(&r->link);
}

/* A caller's tensor of states and that of their sums. */
typedef struct state_slots {
    size_t state, sum;
} state_slots;
#define STATE_SLOTS(name) ((state_slots){offsetof(attn_linear_tensors, name##_state), offsetof(attn_linear_tensors, name##_sum)})

static void load(running *r, state_slots slots, int64_t g, char *memory)
{
    if (r->mine) attn_linear_move_states(&r->plan->passes, r->mine, slots.state, slots.sum, g, memory, 0);
}

/* ---- along the ranks ---- */

/* A walk in which the state of each group, or its gradient, moves over the parts of one rank after another. */
typedef struct walk {
    attn_pass_kind kind;
    int reverse; /* 1: from the last part to the first */
    int open;    /* 1: where the walk ends nobody needs what has moved */
    int tag;
    state_slots begin; /* what it begins with */
} walk;

/* The states of call number `step` of a walk over part n. */
static attn_pass_states states_of(const running *r, const walk *w, int64_t step, int64_t n, int64_t g)
{
    switch (w->kind) {
    case ATTN_PASS_BACKWARD:
        return (attn_pass_states){state_at(r, n, g), NULL, gradient_at(r, step, g), gradient_at(r, step + 1, g)};
    case ATTN_PASS_BACKWARD_QUERIES:
        return (attn_pass_states){state_at(r, 0, g), NULL, gradient_at(r, step, g), gradient_at(r, step + 1, g)};
    default:
        return (attn_pass_states){state_at(r, step, g), state_at(r, step + 1, g), NULL, NULL};
    }
}

static char *moving_at(const running *r, const walk *w, int64_t step, int64_t g)
{
    const int gradient = w->kind == ATTN_PASS_BACKWARD || w->kind == ATTN_PASS_BACKWARD_QUERIES;
    return gradient ? gradient_at(r, step, g) : state_at(r, step, g);
}

static void walk_along(running *r, const walk *w, const attn_stretch *s)
{
    const attn_linear_passes *p = &r->plan->passes;
    const int from = w->reverse ? s->after : s->before, to = w->reverse ? s->before : s->after;
    const int64_t calls = w->open && to < 0 ? s->parts - 1 : s->parts;
    for (int64_t g = 0; from >= 0 && g < p->groups; g++)
        (void)attn_link_receive(&r->link, from, w->tag, moving_at(r, w, 0, g), p->group);
    for (int64_t g = 0; g < p->groups; g++) {
        if (from >= 0) attn_link_wait(&r->link, r->mine ? g : -1); /* the receives are the first that were begun */
        else load(r, w->begin, g, moving_at(r, w, 0, g));
        if (!r->mine) r->calls += calls;
        for (int64_t step = 0; r->mine && step < calls; step++) {
            const int64_t n = w->reverse ? s->parts - 1 - step : step;
            const attn_pass_states states = states_of(r, w, step, n, g);
            call(r, w->kind, g, n, &states);
        }
        if (to >= 0) (void)attn_link_send(&r->link, to, w->tag, moving_at(r, w, s->parts, g), p->group);
    }
    attn_link_wait_all(&r->link);
}

/* What a walk has moved to its end goes to all ranks, in copy 0.  root -1: the walk had no parts, and all begin with the same. */
static void spread(running *r, const walk *w, const attn_stretch *s, int root)
{
    const attn_linear_passes *p = &r->plan->passes;
    if (root < 0) return;
    if (root == r->plan->me && r->mine && moving_at(r, w, s->parts, 0) != moving_at(r, w, 0, 0))
        memmove(moving_at(r, w, 0, 0), moving_at(r, w, s->parts, 0), copy_bytes(p));
    attn_link_spread(&r->link, root, w->tag, moving_at(r, w, 0, 0), copy_bytes(p));
}

/* All groups of what has moved, to a tensor of the caller. */
static void store(running *r, const walk *w, state_slots slots)
{
    const attn_linear_passes *p = &r->plan->passes;
    for (int64_t g = 0; r->mine && r->link.status == ATTN_OK && r->failed == ATTN_OK && g < p->groups; g++)
        attn_linear_move_states(p, r->mine, slots.state, slots.sum, g, moving_at(r, w, 0, g), 1);
}

static int is_passed(const running *r, state_slots slots)
{
    return attn_linear_bound_at(&r->plan->passes, slots.state)->plan.role != ATTN_ROLE_NONE;
}

/* ---- the run ---- */

static void run_causal(running *r)
{
    const attn_linear_passes *p = &r->plan->passes;
    const int backward = p->problem.op == ATTN_BACKWARD;
    const walk states = {.kind = backward ? ATTN_PASS_STATES : ATTN_PASS_TOKENS,
                         .open = backward,
                         .tag = ATTN_TAG_STATES,
                         .begin = STATE_SLOTS(initial)},
               gradients = {
                   .kind = ATTN_PASS_BACKWARD, .reverse = 1, .tag = ATTN_TAG_STATE_GRADIENTS, .begin = STATE_SLOTS(grad_final)};
    const walk *last = backward ? &gradients : &states;
    const state_slots result = backward ? STATE_SLOTS(grad_initial) : STATE_SLOTS(final);
    walk_along(r, &states, &p->kv);
    if (backward) walk_along(r, &gradients, &p->kv);
    if (!is_passed(r, result)) return;
    spread(r, last, &p->kv, p->kv.last < 0 || !backward ? p->kv.last : 0); /* the first part is on rank 0 */
    store(r, last, result);
}

/* All parts of the rank read the same state, or its gradient. */
static void read_all(running *r, attn_pass_kind kind, const attn_stretch *s)
{
    const int64_t groups = r->plan->passes.groups;
    if (!r->mine) r->calls += groups * s->parts;
    for (int64_t g = 0; r->mine && g < groups; g++)
        for (int64_t n = 0; n < s->parts; n++) {
            const attn_pass_states states = {.before = kind == ATTN_PASS_QUERIES ? state_at(r, 0, g) : NULL,
                                             .gradient_after = kind == ATTN_PASS_QUERIES ? NULL : gradient_at(r, 0, g)};
            call(r, kind, g, n, &states);
        }
}

static void run_over_all(running *r)
{
    const attn_linear_passes *p = &r->plan->passes;
    const int backward = p->problem.op == ATTN_BACKWARD;
    const walk states = {.kind = ATTN_PASS_STATES, .tag = ATTN_TAG_STATES, .begin = STATE_SLOTS(initial)},
               gradients = {.kind = ATTN_PASS_BACKWARD_QUERIES, .tag = ATTN_TAG_STATE_GRADIENTS, .begin = STATE_SLOTS(grad_final)};
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

static void run(running *r)
{
    if (r->plan->passes.problem.causal) run_causal(r);
    else run_over_all(r);
}

attn_linear_needs attn_linear_count(const attn_distributed_linear_plan *plan)
{
    running r = {.plan = plan, .link.transport = &plan->transport};
    run(&r);
    return (attn_linear_needs){r.link.requests_most, r.link.messages, r.link.bytes, r.calls};
}

attn_status attn_linear_run(const attn_distributed_linear_plan *plan, const attn_linear_tensors *mine,
                            const attn_linear_memory *memory, attn_error *error)
{
    running r = {.plan = plan,
                 .mine = mine,
                 .memory = *memory,
                 .link = {.transport = &plan->transport, .requests = memory->requests, .error = error},
                 .error = error};
    run(&r);
    return r.link.status != ATTN_OK ? r.link.status : r.failed;
}
