/* SPDX-License-Identifier: MIT
 * results.c - the outputs of a check case. */
#include <math.h>
#include <stdlib.h>

#include "call.h"

static double *doubles(const int64_t size[4]) { return calloc((size_t)tensor_count(size) + 1, sizeof(double)); }

int check_outputs_create(check_outputs *out, check_call *call, const check_case *c)
{
    attn_problem *p = &call->problem;
    const tensor_sizes sizes = tensor_sizes_of(p);
    const expectation *e = &call->expected;
    const int64_t B = p->shape.batch, q = e->begin_q ? e->begin_q[B] : -1, kv = e->begin_kv ? e->begin_kv[B] : -1;
    const int forward = p->op == ATTN_FORWARD;
    *out = (check_outputs){0};
    int ok = place_tensor(&out->o, &p->o, p->o.dtype, sizes.o, c, T_O, q);
    if (ok && (p->want.lse || !forward)) ok = place_tensor(&out->lse, &p->want.lse_layout, e->compute, sizes.lse, c, T_LSE, q);
    if (ok && p->want.weights)
        ok = place_tensor(&out->weights, &p->want.weights_layout, e->compute, sizes.weights, c, T_WEIGHTS, -1);
    if (forward) ok = ok && (out->O = doubles(sizes.o)) != NULL;
    if (forward && p->want.lse) ok = ok && (out->L = doubles(sizes.lse)) != NULL;
    if (p->want.weights) ok = ok && (out->P = doubles(sizes.weights)) != NULL;
    for (int f = FLOW_OUTPUTS; ok && f < FLOWS; f++) {
        int64_t size[4];
        attn_layout unused, *layout = flow_layout((flow)f, p);
        if (!flow_used((flow)f, p)) continue;
        flow_size((flow)f, p, size);
        check_case dense = *c; /* an array of numbers has no layout */
        if (!layout) dense.memory = MEMORY_DENSE, dense.spec.order = SPEC_BHSD;
        const int rows = layout == &p->want.lse_layout;
        const int64_t tokens = !flow_has_tokens((flow)f) ? -1 : flow_of_keys((flow)f) ? kv : q;
        ok = place_tensor(&out->flow[f], layout ? layout : &unused, flow_dtype((flow)f, p), size, &dense,
                          rows                       ? T_LSE
                          : flow_has_tokens((flow)f) ? T_O
                                                     : T_WEIGHTS,
                          tokens) &&
             (out->flow_numbers[f] = doubles(size)) != NULL;
        flow_point((flow)f, &call->args, out->flow[f].base);
    }
    if (!ok) {
        check_outputs_destroy(out);
        return 0;
    }
    call->args.o = out->o.base;
    call->args.lse = out->lse.base;
    call->args.weights = out->weights.base;
    return 1;
}

/* As tensor_take, into [batch][head][token][channel] with `absent` where a packed sequence has no token. */
static int take(tensor *t, const int64_t *begin, const int64_t size[4], double absent, double *dst)
{
    if (!begin) return tensor_take(t, dst);
    double *packed = doubles(t->size);
    if (!packed) return 0;
    const int clean = tensor_take(t, packed);
    for (int64_t b = 0; b < size[0]; b++)
        for (int64_t h = 0; h < size[1]; h++)
            for (int64_t i = 0; i < size[2]; i++)
                for (int64_t c = 0; c < size[3]; c++) {
                    const int64_t token = begin[b] + i;
                    *dst++ = token < begin[b + 1] ? packed[(h * t->size[2] + token) * size[3] + c] : absent;
                }
    free(packed);
    return clean;
}

const char *check_outputs_take(check_outputs *out, const check_call *call)
{
    const expectation *e = &call->expected;
    const tensor_sizes sizes = tensor_sizes_of(&call->problem);
    const char *spilled = NULL;
    if (out->O && !take(&out->o, e->begin_q, sizes.o, 0, out->O)) spilled = "o";
    if (out->L && !take(&out->lse, e->begin_q, sizes.lse, -INFINITY, out->L)) spilled = "lse";
    if (out->P && !tensor_take(&out->weights, out->P)) spilled = "weights";
    for (int f = FLOW_OUTPUTS; f < FLOWS; f++) {
        int64_t size[4];
        if (!out->flow_numbers[f]) continue;
        flow_size((flow)f, &call->problem, size);
        const int64_t *begin = !flow_has_tokens((flow)f) ? NULL : flow_of_keys((flow)f) ? e->begin_kv : e->begin_q;
        if (!take(&out->flow[f], begin, size, 0, out->flow_numbers[f])) spilled = flow_name((flow)f);
    }
    return spilled;
}

void check_outputs_destroy(check_outputs *out)
{
    tensor_destroy(&out->o);
    tensor_destroy(&out->lse);
    tensor_destroy(&out->weights);
    for (int f = 0; f < FLOWS; f++) tensor_destroy(&out->flow[f]), free(out->flow_numbers[f]);
    free(out->O);
    free(out->L);
    free(out->P);
    *out = (check_outputs){0};
}
