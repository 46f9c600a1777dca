/* SPDX-License-Identifier: MIT
 * linear_walk.c - see linear_walk.h. */
#include "linear_walk.h"

#include <string.h>

int64_t attn_linear_state_copies(const attn_linear_passes *p)
{
    return p->problem.causal && p->problem.op == ATTN_BACKWARD ? p->kv.parts + 1 : 1;
}

size_t attn_linear_copy_bytes(const attn_linear_passes *p) { return (size_t)p->groups * p->group; }

char *attn_linear_state_at(const attn_linear_running *r, int64_t copy, int64_t g)
{
    const attn_linear_passes *p = &r->plan->passes;
    if (!r->mine) return NULL;
    return r->memory.states + (size_t)(attn_linear_state_copies(p) > 1 ? copy : 0) * attn_linear_copy_bytes(p) +
           (size_t)g * p->group;
}

char *attn_linear_gradient_at(const attn_linear_running *r, int64_t copy, int64_t g)
{
    const attn_linear_passes *p = &r->plan->passes;
    if (!r->mine) return NULL;
    return r->memory.gradients + (size_t)(copy & 1) * attn_linear_copy_bytes(p) + (size_t)g * p->group;
}

void attn_linear_call(attn_linear_running *r, attn_pass_kind kind, int64_t g, int64_t n, const attn_pass_states *states)
{
    const attn_linear_passes *p = &r->plan->passes;
    const attn_linear_bound *lengths = attn_linear_bound_at(p, offsetof(attn_linear_tensors, lengths));
    if (r->link.status != ATTN_OK) return;
    if (r->failed == ATTN_OK)
        r->failed = attn_linear_pass_run(
            p, kind, g, n, r->mine, r->memory.lengths + (size_t)(n * p->problem.shape.batch) * attn_dtype_size(lengths->plan.dtype),
            states, r->memory.call, r->error);
    if (r->failed != ATTN_OK && states->after && kind != ATTN_PASS_MAPS) memset(states->after, 0, p->group);
    if (r->failed != ATTN_OK && states->gradient_before) memset(states->gradient_before, 0, p->group);
    attn_link_progress(&r->link);
}

void attn_linear_load(attn_linear_running *r, attn_state_slots slots, int64_t g, char *memory)
{
    if (r->mine) attn_linear_move_states(&r->plan->passes, r->mine, slots.state, slots.sum, g, memory, 0);
}

char *attn_linear_moving_at(const attn_linear_running *r, const attn_state_walk *w, int64_t step, int64_t g)
{
    const int gradient = w->kind == ATTN_PASS_BACKWARD || w->kind == ATTN_PASS_BACKWARD_QUERIES;
    return gradient ? attn_linear_gradient_at(r, step, g) : attn_linear_state_at(r, step, g);
}
