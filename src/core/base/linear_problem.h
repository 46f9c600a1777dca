/* SPDX-License-Identifier: MIT
 * linear_problem.h - the internal form of a problem of linear attention, as problem.h has for attention. */
#ifndef ATTN_BASE_LINEAR_PROBLEM_H
#define ATTN_BASE_LINEAR_PROBLEM_H

#include "attn/linear.h"
#include "layout.h"
#include "problem.h"

/* Numbers of the tensors, as attn_tensor_describe counts them. */
enum {
#define INPUT(name)  ATTN_LINEAR_SLOT_##name,
#define OUTPUT(name) ATTN_LINEAR_SLOT_##name,
#include "linear_slots.def"
#undef INPUT
#undef OUTPUT
    ATTN_LINEAR_SLOTS
};

/* Types and strides, in the order of the slots. */
typedef struct attn_linear_layouts {
#define INPUT(name)  attn_layout name;
#define OUTPUT(name) attn_layout name;
#include "linear_slots.def"
#undef INPUT
#undef OUTPUT
} attn_linear_layouts;

/* 1: the tensor is present. */
typedef struct attn_linear_presence {
#define INPUT(name)  unsigned char name;
#define OUTPUT(name) unsigned char name;
#include "linear_slots.def"
#undef INPUT
#undef OUTPUT
} attn_linear_presence;

/* Pointers to first elements. */
typedef struct attn_linear_args {
#define INPUT(name)  const void *name;
#define OUTPUT(name) void *name;
#include "linear_slots.def"
#undef INPUT
#undef OUTPUT
} attn_linear_args;

/* With all defaults resolved. */
typedef struct attn_linear_resolved {
    attn_op op;
    attn_shape shape;
    attn_features features;
    int64_t random_features;
    double feature_scale;
    attn_scale_kind scale_kind;
    double scale;
    attn_denominator denominator;
    double epsilon;
    int causal;
    attn_linear_rule rule;
    attn_decay_kind decay_kind; /* if there is a decay */
    attn_linear_form form;
    int64_t chunk;
    int64_t pool;
    int64_t snapshots; /* columns of final_slots, at least 1 */
    attn_linear_presence has;
    attn_linear_layouts at;
} attn_linear_resolved;

static inline attn_layout *attn_linear_layout_at(attn_linear_layouts *layouts, int slot)
{
    return (attn_layout *)(void *)layouts + slot;
}

static inline int attn_decays_heads(const attn_linear_resolved *p) { return p->has.decay && p->decay_kind == ATTN_DECAY_HEAD; }
static inline int attn_decays_channels(const attn_linear_resolved *p)
{
    return p->has.decay && p->decay_kind == ATTN_DECAY_CHANNEL;
}

#endif
