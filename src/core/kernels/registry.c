/* SPDX-License-Identifier: MIT
 *
 * registry.c - the table of kernels, expanded from kernels.def.
 */
#include "registry.h"
#include "../base/cpu.h"

#define FORWARD(symbol, type, set, features)                             extern const attn_fwd_kernel symbol;
#define DECODE(symbol, tiles, type, set, features)                       extern const attn_dec_kernel symbol;
#define BACKWARD(symbol, scores, type, set, features)                    extern const attn_bwd_kernel symbol;
#define JVP(symbol, scores, gradients, type, set, features)              extern const attn_jvp_kernel symbol;
#define SECOND(symbol, scores, gradients, tangents, type, set, features) extern const attn_second_kernel symbol;
#define LINEAR(symbol, scores, gradients, type, set, features)           extern const attn_linear_kernel symbol;
#define PRODUCT(symbol, type, set, features)                             extern const attn_product_kernel symbol;
#include "kernels.def"

#define ROW(symbol, operation, type, set, features, ...)                                                                           \
    {.name = #symbol, .op = (operation), .compute = (type), .isa = (set), .needs = (features), __VA_ARGS__},
#define FORWARD(symbol, type, set, features) ROW(symbol, ATTN_FORWARD, type, set, features, .forward = &(symbol))
#define DECODE(symbol, tiles, type, set, features)                                                                                 \
    ROW(symbol, ATTN_FORWARD, type, set, features, .forward = &(tiles), .decode = &(symbol))
#define BACKWARD(symbol, scores, type, set, features)                                                                              \
    ROW(symbol, ATTN_BACKWARD, type, set, features, .forward = &(scores), .backward = &(symbol))
#define JVP(symbol, scores, gradients, type, set, features)                                                                        \
    ROW(symbol, ATTN_JVP, type, set, features, .forward = &(scores), .backward = &(gradients), .jvp = &(symbol))
#define SECOND(symbol, scores, gradients, tangents, type, set, features)                                                           \
    ROW(symbol, ATTN_DOUBLE_BACKWARD, type, set, features, .forward = &(scores), .backward = &(gradients), .jvp = &(tangents),     \
        .second = &(symbol))
#define LINEAR(symbol, scores, gradients, type, set, features)                                                                     \
    ROW(symbol, ATTN_LINEAR, type, set, features, .forward = &(scores), .backward = &(gradients), .linear = &(symbol))
#define PRODUCT(symbol, type, set, features) ROW(symbol, ATTN_PRODUCT, type, set, features, .product = &(symbol))
static const attn_kernel_row rows[] = {
#include "kernels.def"
};

enum { ROWS = sizeof rows / sizeof rows[0] };

const attn_kernel_row *attn_kernel_rows(int *count)
{
    *count = ROWS;
    return rows;
}

const attn_kernel_row *attn_kernel_at(int index) { return index >= 0 && index < ROWS ? &rows[index] : NULL; }
