/* SPDX-License-Identifier: MIT
 *
 * kernel.h - the interface that an instruction set implements for the walks.
 *
 * A kernel computes in one type T (float or double).  It has one part per subject (parts.def): a struct of functions whose contract
 * is its header in part/.  An instruction set supplies its own parts and inherits the others from the set below it.  Parts work on
 * each other's buffers, so all parts of a kernel have the same tile, inherited or not, and an inherited part needs no CPU feature
 * that the set itself does not need: tests/kernels/test_registry.c checks all of them.
 *
 * An instantiation file defines several parts, in one of the structs below; the symbol is named after the file.
 */
#ifndef ATTN_KERNELS_KERNEL_H
#define ATTN_KERNELS_KERNEL_H

#include "part/additive.h"
#include "part/channels.h"
#include "part/chunk.h"
#include "part/convolution.h"
#include "part/decode.h"
#include "part/double_backward.h"
#include "part/elementwise.h"
#include "part/features.h"
#include "part/fixed_point.h"
#include "part/gate.h"
#include "part/gradient.h"
#include "part/matrix.h"
#include "part/merge.h"
#include "part/modify.h"
#include "part/outer.h"
#include "part/outputs.h"
#include "part/pairs.h"
#include "part/product.h"
#include "part/relative.h"
#include "part/small.h"
#include "part/softmax.h"
#include "part/storage.h"
#include "part/tangent.h"
#include "part/tile.h"
#include "part/token.h"
#include "part/transfer.h"

typedef struct attn_forward_parts { /* fwd_<type>.c */
    attn_storage_part storage;
    attn_product_part product;
    attn_softmax_part softmax;
    attn_modify_part modify;
    attn_relative_part relative;
    attn_outputs_part outputs;
    attn_additive_part additive;
    attn_elementwise_part elementwise;
#ifndef ATTN_INFERENCE_ONLY
    attn_small_part small;
#endif
    attn_merge_part merge;
} attn_forward_parts;

typedef struct attn_backward_parts { /* bwd_<type>.c */
    attn_outer_part outer;
    attn_gradient_part gradient;
    attn_additive_gradient_part additive;
    attn_small_gradient_part small;
} attn_backward_parts;

typedef struct attn_linear_parts { /* linear_<type>.c */
    attn_features_part features;
    attn_chunk_part chunk;
    attn_token_part token;
    attn_gate_part gate;
    attn_convolution_part convolution;
} attn_linear_parts;

typedef struct attn_kernel {
    int lanes, vectors; /* of the tile shared by all parts */
#define PART(name, type) const type *name;
#include "parts.def"
} attn_kernel;

/* A set of CPU features. */
typedef struct attn_kernel_set {
    const struct attn_kernel_set *below; /* NULL: none */
    uint32_t needs;                      /* ATTN_CPU_ bits of base/cpu.h */
    const attn_kernel *own_parts;        /* its own parts, for float and for double */
} attn_kernel_set;

/* A kernel for one operation: what plans choose from. */
typedef struct attn_kernel_row {
    const char *name;
    attn_op op;
    attn_dtype compute;
    attn_isa isa;
    uint32_t needs; /* those of the set */
    int decode;     /* 1: forward for few queries */
    int pairs;      /* 1: only for bf16 queries and keys, which it multiplies as bf16 */
    const attn_kernel_set *set;
} attn_kernel_row;

/* Rows in order of preference; NULL past the last. */
const attn_kernel_row *attn_kernel_at(int index);

/* Collects every part, the set's own or inherited.  Walks keep the kernel by value, so that a call goes through no more pointers
 * than with a single table. */
void attn_kernel_assemble(const attn_kernel_row *row, attn_kernel *kernel);

/* One part by itself: attn_kernel_merge, attn_kernel_matrix, attn_kernel_transfer, attn_kernel_product. */
#define PART(name, type)
#define SEPARATE(name, type) const type *attn_kernel_##name(const attn_kernel_row *row);
#include "parts.def"
const attn_product_part *attn_kernel_product(const attn_kernel_row *row);

#endif
