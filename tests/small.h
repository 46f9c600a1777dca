/* SPDX-License-Identifier: MIT
 * small.h - one small attention with every tensor, length and offset in use, for tests that spoil one thing at a time. */
#ifndef ATTN_TESTS_SMALL_H
#define ATTN_TESTS_SMALL_H

#include "test.h"

#include "attn/attn.h"

enum { SMALL_B = 2, SMALL_HQ = 4, SMALL_HKV = 2, SMALL_SQ = 3, SMALL_SKV = 5, SMALL_D = 4, SMALL_DV = 6 };

/* What outputs hold before a call; a refused call leaves it. */
enum { UNTOUCHED = 0xa5 };

typedef struct small {
    attn_problem problem;
    attn_args args;
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
    unsigned char guard[512]; /* behind the outputs: nothing writes it */
} small;

static inline void small_init(small *s)
{
    memset(s, 0, sizeof *s);
    s->problem.struct_size = sizeof s->problem;
    s->problem.shape = (attn_shape){SMALL_B, SMALL_HQ, SMALL_HKV, SMALL_SQ, SMALL_SKV, SMALL_D, SMALL_DV};
    s->problem.mask.align = ATTN_ALIGN_OFFSET;
    s->problem.mask.lengths_q = s->problem.mask.lengths_kv = 1;
    s->problem.mask.boolean = 1;
    s->problem.bias.additive = 1;
    s->problem.want.lse = s->problem.want.weights = 1;

    s->args.struct_size = sizeof s->args;
    s->args.q = s->q, s->args.k = s->k, s->args.v = s->v;
    s->args.mask = s->mask, s->args.bias = s->bias;
    s->args.lengths_q = s->lengths_q, s->args.lengths_kv = s->lengths_kv, s->args.offset = s->offset;
    s->args.o = s->o, s->args.lse = s->lse, s->args.weights = s->weights;
    s->options.struct_size = sizeof s->options;

    for (size_t i = 0; i < sizeof s->q / sizeof *s->q; i++) s->q[i] = (float)i / 8;
    for (size_t i = 0; i < sizeof s->k / sizeof *s->k; i++) s->k[i] = 1 - (float)i / 16;
    for (size_t i = 0; i < sizeof s->v / sizeof *s->v; i++) s->v[i] = (float)i;
    memset(s->mask, 1, sizeof s->mask);
    for (int b = 0; b < SMALL_B; b++) s->lengths_q[b] = SMALL_SQ, s->lengths_kv[b] = SMALL_SKV;
    memset(s->o, UNTOUCHED, sizeof s->o);
    memset(s->lse, UNTOUCHED, sizeof s->lse);
    memset(s->weights, UNTOUCHED, sizeof s->weights);
    memset(s->guard, UNTOUCHED, sizeof s->guard);
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
           small_holds_only(s->weights, sizeof s->weights, UNTOUCHED);
}

#endif
