/* SPDX-License-Identifier: MIT
 *
 * registry.c - the sets of CPU features and the kernels on them, expanded from kernels.def.
 */
#include "registry.h"
#include "../base/cpu.h"
#include "../base/inference.h"

/* ---- parts defined by the instantiation files ---- */

#define WHOLE(set, isa, features)
#define SET(set, below, isa, features)
#define KERNELS(type, set, operations, parts) parts
#define PART(name, symbol)                    extern const attn_##name##_part symbol;
#define FORWARD(symbol)                       extern const attn_forward_parts symbol;
#define BACKWARD(symbol)                      extern const attn_backward_parts symbol;
#define LINEAR(symbol)                        extern const attn_linear_parts symbol;
#include "kernels.def"
#undef PART
#undef FORWARD
#undef BACKWARD
#undef LINEAR

/* ---- sets ---- */

enum {
#define WHOLE(set, isa, features)      SET_##set,
#define SET(set, below, isa, features) SET_##set,
#define KERNELS(type, set, operations, parts)
#include "kernels.def"
    SETS
};

/* A set needs the features of all sets below it, so the CPU can run whatever it inherits. */
enum {
#define WHOLE(set, isa, features)      NEEDS_##set = (features),
#define SET(set, below, isa, features) NEEDS_##set = NEEDS_##below | (features),
#define KERNELS(type, set, operations, parts)
#include "kernels.def"
};

enum { TYPE_f32, TYPE_f64, TYPES };

static const attn_kernel own_parts[SETS][TYPES] = {
#define WHOLE(set, isa, features)
#define SET(set, below, isa, features)
#define KERNELS(type, set, operations, parts) [SET_##set][TYPE_##type] = {parts},
#define PART(name, symbol)                    .name = &(symbol),
#define FORWARD(symbol)                                                                                                            \
    .storage = &(symbol).storage, .product = &(symbol).product, .softmax = &(symbol).softmax, .modify = &(symbol).modify,          \
    .relative = &(symbol).relative, .outputs = &(symbol).outputs, .additive = &(symbol).additive,                                  \
    .elementwise = &(symbol).elementwise, ATTN_IF_TRAINS(.small = &(symbol).small, ).merge = &(symbol).merge,
#define BACKWARD(symbol)                                                                                                           \
    .outer = &(symbol).outer, .gradient = &(symbol).gradient, .additive_gradient = &(symbol).additive,                             \
    .small_gradient = &(symbol).small,
#define LINEAR(symbol)                                                                                                             \
    .features = &(symbol).features, .chunk = &(symbol).chunk, .token = &(symbol).token, .gate = &(symbol).gate,                    \
    .convolution = &(symbol).convolution,
#include "kernels.def"
#undef PART
#undef FORWARD
#undef BACKWARD
#undef LINEAR
};

static const attn_kernel_set sets[SETS] = {
#define WHOLE(set, isa, features)      [SET_##set] = {NULL, NEEDS_##set, own_parts[SET_##set]},
#define SET(set, below, isa, features) [SET_##set] = {&sets[SET_##below], NEEDS_##set, own_parts[SET_##set]},
#define KERNELS(type, set, operations, parts)
#include "kernels.def"
};

/* ---- rows ---- */

enum {
#define WHOLE(set, isa, features)      ISA_##set = (isa),
#define SET(set, below, isa, features) ISA_##set = (isa),
#define KERNELS(type, set, operations, parts)
#include "kernels.def"
};

enum { COMPUTE_f32 = ATTN_F32, COMPUTE_f64 = ATTN_F64 };

#define ROW(operation, short_name, type, feature_set, ...)                                                                         \
    {.name = "attn_" #short_name "_" #type "_" #feature_set,                                                                       \
     .op = (operation),                                                                                                            \
     .compute = (attn_dtype)COMPUTE_##type,                                                                                        \
     .isa = (attn_isa)ISA_##feature_set,                                                                                           \
     .needs = NEEDS_##feature_set,                                                                                                 \
     .set = &sets[SET_##feature_set],                                                                                              \
     __VA_ARGS__},
#define DECODING(type, set) ROW(ATTN_FORWARD, dec, type, set, .decode = 1)
#define TILES_OF_PAIRS(type, set)                                                                                                  \
    ROW(ATTN_FORWARD, fwd, type, set, .pairs = 1)                                                                                  \
    ATTN_IF_TRAINS(ROW(ATTN_BACKWARD, bwd, type, set, .pairs = 1))
#define PAIRS(type, set)                                                                                                           \
    TILES_OF_PAIRS(type, set)                                                                                                      \
    ROW(ATTN_FORWARD, dec, type, set, .decode = 1, .pairs = 1)
#define ALL(type, set)                                                                                                             \
    ROW(ATTN_FORWARD, fwd, type, set, .pairs = 0)                                                                                  \
    DECODING(type, set)                                                                                                            \
    ATTN_IF_TRAINS(ROW(ATTN_BACKWARD, bwd, type, set, .pairs = 0) ROW(ATTN_JVP, jvp, type, set, .pairs = 0)                        \
                       ROW(ATTN_DOUBLE_BACKWARD, double_backward, type, set, .pairs = 0))                                          \
    ROW(ATTN_LINEAR, linear, type, set, .pairs = 0)                                                                                \
    ROW(ATTN_PRODUCT, product, type, set, .pairs = 0)
#ifdef ATTN_INFERENCE_ONLY
#define ALL_IN_DOUBLE(type, set) ROW(ATTN_PRODUCT, product, type, set, .pairs = 0) /* for its part `transfer` */
#else
#define ALL_IN_DOUBLE ALL
#endif

static const attn_kernel_row rows[] = {
#define WHOLE(set, isa, features)
#define SET(set, below, isa, features)
#define KERNELS(type, set, operations, parts) operations(type, set)
#include "kernels.def"
};

enum { ROWS = sizeof rows / sizeof rows[0] };

const attn_kernel_row *attn_kernel_rows(int *count)
{
    *count = ROWS;
    return rows;
}

const attn_kernel_row *attn_kernel_at(int index) { return index >= 0 && index < ROWS ? &rows[index] : NULL; }

/* ---- parts ---- */

static int type_of(const attn_kernel_row *row) { return row->compute == ATTN_F64 ? TYPE_f64 : TYPE_f32; }

static void take(const attn_kernel_set *set, int type, attn_kernel *kernel)
{
    const attn_kernel *own = &set->own_parts[type];
    if (!set->below) {
        *kernel = *own;
        return;
    }
    take(set->below, type, kernel);
#define PART(name, struct_of_it)                                                                                                   \
    if (own->name) kernel->name = own->name;
#include "parts.def"
}

void attn_kernel_assemble(const attn_kernel_row *row, attn_kernel *kernel)
{
    take(row->set, type_of(row), kernel);
    kernel->lanes = kernel->product->shape.lanes;
    kernel->vectors = kernel->product->shape.vectors;
}

#define PART_LOOKUP(name, struct_of_it)                                                                                            \
    const struct_of_it *attn_kernel_##name(const attn_kernel_row *row)                                                             \
    {                                                                                                                              \
        const int type = type_of(row);                                                                                             \
        const attn_kernel_set *set = row->set;                                                                                     \
        while (set->below && !set->own_parts[type].name) set = set->below;                                                         \
        return set->own_parts[type].name;                                                                                          \
    }
#define PART(name, struct_of_it)
#define SEPARATE PART_LOOKUP
#include "parts.def"
PART_LOOKUP(product, attn_product_part)
