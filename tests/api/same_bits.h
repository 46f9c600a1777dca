/* SPDX-License-Identifier: MIT
 * same_bits.h - an attention, forward and backward, whose bits on any number of threads are compared with those on one thread. To
 * be included once per program. */
#ifndef ATTN_TESTS_API_SAME_BITS_H
#define ATTN_TESTS_API_SAME_BITS_H

#include "attn/attn.h"
#include "on_threads.h"
#include "testing/random/random.h"

enum { HEADS = 4, LEN = 150, DIM = 24, COUNT = HEADS * LEN * DIM };

typedef struct tensors {
    float q[COUNT], k[COUNT], v[COUNT], o[COUNT], lse[HEADS * LEN], grad_q[COUNT], grad_k[COUNT], grad_v[COUNT];
} tensors;

static inline tensors *tensors_create(void)
{
    tensors *t = calloc(1, sizeof *t);
    random_state r = random_from(1);
    MUST(t);
    for (int i = 0; i < COUNT; i++)
        t->q[i] = (float)random_signed(&r), t->k[i] = (float)random_signed(&r), t->v[i] = (float)random_signed(&r);
    return t;
}

static inline attn_problem problem_of(attn_op op)
{
    attn_problem p = {.struct_size = sizeof p, .op = op, .shape = {1, HEADS, HEADS, LEN, LEN, DIM, DIM}};
    p.mask.causal = 1;
    return p;
}

/* Forward writes o and lse of `out`; backward reads those of `in`, and uses v as grad_o. */
static inline attn_tensors slots_of(attn_op op, tensors *in, tensors *out)
{
    tensors *forward = op == ATTN_FORWARD ? out : in;
    attn_tensors t = {.struct_size = sizeof t, .q = attn_in(in->q), .k = attn_in(in->k), .v = attn_in(in->v)};
    t.o = attn_out(forward->o), t.lse = attn_out(forward->lse);
    if (op == ATTN_FORWARD) return t;
    t.grad_o = attn_in(in->v), t.grad_q = attn_out(out->grad_q), t.grad_k = attn_out(out->grad_k), t.grad_v = attn_out(out->grad_v);
    return t;
}

static inline void execute(attn_op op, const attn_plan *plan, tensors *in, tensors *out)
{
    attn_tensors slots = slots_of(op, in, out);
    size_t size = attn_plan_workspace_size(plan);
    void *workspace = malloc(size);
    MUST(workspace);
    MUST(attn_execute(plan, &slots, workspace, size, NULL) == ATTN_OK);
    free(workspace);
}

static inline void compute(attn_op op, const attn_options *options, tensors *in, tensors *out)
{
    attn_problem problem = problem_of(op);
    attn_tensors slots = slots_of(op, in, out);
    attn_plan *plan;
    MUST(attn_plan_create(&plan, &problem, &slots, options, NULL) == ATTN_OK);
    execute(op, plan, in, out);
    attn_plan_destroy(plan);
}

static const attn_options one_thread = {.struct_size = sizeof one_thread, .threads = 1};

/* The results on one thread; stores in `in` the o and lse that backward reads. */
static inline tensors *expected_create(tensors *in)
{
    tensors *out = tensors_create();
    compute(ATTN_FORWARD, &one_thread, in, out);
    memcpy(in->o, out->o, sizeof in->o);
    memcpy(in->lse, out->lse, sizeof in->lse);
    compute(ATTN_BACKWARD, &one_thread, in, out);
    return out;
}

static inline int same(attn_op op, const tensors *a, const tensors *b)
{
    if (op == ATTN_FORWARD) return memcmp(a->o, b->o, sizeof a->o) == 0 && memcmp(a->lse, b->lse, sizeof a->lse) == 0;
    return memcmp(a->grad_q, b->grad_q, sizeof a->grad_q) == 0 && memcmp(a->grad_k, b->grad_k, sizeof a->grad_k) == 0 &&
           memcmp(a->grad_v, b->grad_v, sizeof a->grad_v) == 0;
}

#endif
