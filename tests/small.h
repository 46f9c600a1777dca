/* SPDX-License-Identifier: MIT
 * small.h - a small valid attention with every tensor, length and offset in use, for tests that break one thing at a time. */
#ifndef ATTN_TESTS_SMALL_H
#define ATTN_TESTS_SMALL_H

#include "test.h"

#include "attn/attn.h"

enum { SMALL_B = 2, SMALL_HQ = 4, SMALL_HKV = 2, SMALL_SQ = 3, SMALL_SKV = 5, SMALL_D = 4, SMALL_DV = 6 };

/* Byte that fills outputs before a call; a rejected call leaves it in place. */
enum { UNTOUCHED = 0xa5 };

typedef struct small {
    attn_problem problem;
    attn_tensors tensors;
    attn_call call; /* not set in tensors.call; a test that needs it does so */
    attn_options options;

    float q[SMALL_B * SMALL_HQ * SMALL_SQ * SMALL_D];
    float k[SMALL_B * SMALL_HKV * SMALL_SKV * SMALL_D];
    float v[SMALL_B * SMALL_HKV * SMALL_SKV * SMALL_DV];
    float bias[SMALL_B * SMALL_HQ * SMALL_SQ * SMALL_SKV];
    unsigned char mask[SMALL_B * SMALL_HQ * SMALL_SQ * SMALL_SKV];
    int64_t lengths_q[SMALL_B], lengths_kv[SMALL_B], offset[SMALL_B];

    float o[SMALL_B * SMALL_HQ * SMALL_SQ * SMALL_DV];
    float lse[SMALL_B * SMALL_HQ * SMALL_SQ];
    float weights[SMALL_B * SMALL_HQ * SMALL_SQ * SMALL_SKV];
    float grad_q[SMALL_B * SMALL_HQ * SMALL_SQ * SMALL_D];
    float grad_k[SMALL_B * SMALL_HKV * SMALL_SKV * SMALL_D];
    float grad_v[SMALL_B * SMALL_HKV * SMALL_SKV * SMALL_DV];
    unsigned char guard[512]; /* after the outputs: nothing writes it */

    float grad_o[SMALL_B * SMALL_HQ * SMALL_SQ * SMALL_DV];
} small;

static inline void small_init(small *s)
{
    memset(s, 0, sizeof *s);
    s->problem.struct_size = sizeof s->problem;
    s->problem.shape = (attn_shape){SMALL_B, SMALL_HQ, SMALL_HKV, SMALL_SQ, SMALL_SKV, SMALL_D, SMALL_DV};
    s->tensors = (attn_tensors){.struct_size = sizeof s->tensors,
                                .q = attn_in(s->q),
                                .k = attn_in(s->k),
                                .v = attn_in(s->v),
                                .o = attn_out(s->o),
                                .lse = attn_out(s->lse),
                                .weights = attn_out(s->weights),
                                .mask = attn_in(s->mask),
                                .bias = attn_in(s->bias),
                                .lengths_q = attn_in(s->lengths_q),
                                .lengths_kv = attn_in(s->lengths_kv),
                                .offset_q = attn_in(s->offset)};
    s->call.struct_size = sizeof s->call;
    s->options.struct_size = sizeof s->options;

    for (size_t i = 0; i < sizeof s->q / sizeof *s->q; i++) s->q[i] = (float)i / 8;
    for (size_t i = 0; i < sizeof s->k / sizeof *s->k; i++) s->k[i] = 1 - (float)i / 16;
    for (size_t i = 0; i < sizeof s->v / sizeof *s->v; i++) s->v[i] = (float)i;
    memset(s->mask, 1, sizeof s->mask);
    for (int b = 0; b < SMALL_B; b++) s->lengths_q[b] = SMALL_SQ, s->lengths_kv[b] = SMALL_SKV;
    memset(s->o, UNTOUCHED, sizeof s->o);
    memset(s->lse, UNTOUCHED, sizeof s->lse);
    memset(s->weights, UNTOUCHED, sizeof s->weights);
    memset(s->grad_q, UNTOUCHED, sizeof s->grad_q);
    memset(s->grad_k, UNTOUCHED, sizeof s->grad_k);
    memset(s->grad_v, UNTOUCHED, sizeof s->grad_v);
    memset(s->guard, UNTOUCHED, sizeof s->guard);
}

/* Turns it into backward: the outputs of forward become inputs, and there are no weights. */
static inline void small_backward(small *s)
{
    s->problem.op = ATTN_BACKWARD;
    s->tensors.weights = (attn_output){0};
    s->tensors.grad_o = attn_in(s->grad_o);
    s->tensors.grad_q = attn_out(s->grad_q), s->tensors.grad_k = attn_out(s->grad_k), s->tensors.grad_v = attn_out(s->grad_v);
}

static inline int small_holds_only(const void *bytes, size_t size, int value)
{
    for (size_t i = 0; i < size; i++)
        if (((const unsigned char *)bytes)[i] != value) return 0;
    return 1;
}

static inline int small_outputs_untouched(const small *s)
{
    return small_holds_only(s->o, sizeof s->o, UNTOUCHED) && small_holds_only(s->lse, sizeof s->lse, UNTOUCHED) &&
           small_holds_only(s->weights, sizeof s->weights, UNTOUCHED) && small_holds_only(s->grad_q, sizeof s->grad_q, UNTOUCHED) &&
           small_holds_only(s->grad_k, sizeof s->grad_k, UNTOUCHED) && small_holds_only(s->grad_v, sizeof s->grad_v, UNTOUCHED);
}

#endif
