/* SPDX-License-Identifier: MIT
 *
 * registry.c - the table of kernels, expanded from kernels.def.
 */
#include "../base/cpu.h"
#include "kernel.h"

#define FORWARD(symbol, type, set, features)                             extern const attn_fwd_kernel symbol;
#define DECODE(symbol, tiles, type, set, features)                       extern const attn_dec_kernel symbol;
#define BACKWARD(symbol, scores, type, set, features)                    extern const attn_bwd_kernel symbol;
#define JVP(symbol, scores, gradients, type, set, features)              extern const attn_jvp_kernel symbol;
#define SECOND(symbol, scores, gradients, tangents, type, set, features) extern const attn_second_kernel symbol;
#define LINEAR(symbol, scores, gradients, type, set, features)           extern const attn_linear_kernel symbol;
#include "kernels.def"
#undef FORWARD
#undef DECODE
#undef BACKWARD
#undef JVP
#undef SECOND
#undef LINEAR

#define FORWARD(symbol, type, set, features)                                                                                       \
    {.name = #symbol, .op = ATTN_FORWARD, .compute = (type), .isa = (set), .needs = (features), .forward = &(symbol)},
#define DECODE(symbol, tiles, type, set, features)                                                                                 \
    {.name = #symbol,                                                                                                              \
     .op = ATTN_FORWARD,                                                                                                           \
     .compute = (type),                                                                                                            \
     .isa = (set),                                                                                                                 \
     .needs = (features),                                                                                                          \
     .forward = &(tiles),                                                                                                          \
     .decode = &(symbol)},
#define BACKWARD(symbol, scores, type, set, features)                                                                              \
    {.name = #symbol,                                                                                                              \
     .op = ATTN_BACKWARD,                                                                                                          \
     .compute = (type),                                                                                                            \
     .isa = (set),                                                                                                                 \
     .needs = (features),                                                                                                          \
     .forward = &(scores),                                                                                                         \
     .backward = &(symbol)},
#define JVP(symbol, scores, gradients, type, set, features)                                                                        \
    {.name = #symbol,                                                                                                              \
     .op = ATTN_JVP,                                                                                                               \
     .compute = (type),                                                                                                            \
     .isa = (set),                                                                                                                 \
     .needs = (features),                                                                                                          \
     .forward = &(scores),                                                                                                         \
     .backward = &(gradients),                                                                                                     \
     .jvp = &(symbol)},
#define SECOND(symbol, scores, gradients, tangents, type, set, features)                                                           \
    {.name = #symbol,                                                                                                              \
     .op = ATTN_DOUBLE_BACKWARD,                                                                                                   \
     .compute = (type),                                                                                                            \
     .isa = (set),                                                                                                                 \
     .needs = (features),                                                                                                          \
     .forward = &(scores),                                                                                                         \
     .backward = &(gradients),                                                                                                     \
     .jvp = &(tangents),                                                                                                           \
     .second = &(symbol)},
#define LINEAR(symbol, scores, gradients, type, set, features)                                                                     \
    {.name = #symbol,                                                                                                              \
     .op = ATTN_LINEAR,                                                                                                            \
     .compute = (type),                                                                                                            \
     .isa = (set),                                                                                                                 \
     .needs = (features),                                                                                                          \
     .forward = &(scores),                                                                                                         \
     .backward = &(gradients),                                                                                                     \
     .linear = &(symbol)},
static const attn_kernel_row rows[] = {
#include "kernels.def"
};
#undef FORWARD
#undef DECODE
#undef BACKWARD
#undef JVP
#undef SECOND
#undef LINEAR

const attn_kernel_row *attn_kernel_at(int index)
{
    return index >= 0 && index < (int)(sizeof rows / sizeof rows[0]) ? &rows[index] : NULL;
}
