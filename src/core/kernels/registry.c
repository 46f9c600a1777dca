/* SPDX-License-Identifier: MIT
 *
 * registry.c - the table of kernels, expanded from kernels.def.
 */
#include "../base/cpu.h"
#include "kernel.h"

#define KERNEL(symbol, operation, type, set, features) extern const attn_fwd_kernel symbol;
#include "kernels.def"
#undef KERNEL

#define KERNEL(symbol, operation, type, set, features)                                                                             \
    {.name = #symbol, .op = (operation), .compute = (type), .isa = (set), .needs = (features), .forward = &(symbol)},
static const attn_kernel_row rows[] = {
#include "kernels.def"
};
#undef KERNEL

const attn_kernel_row *attn_kernel_at(int index)
{
    return index >= 0 && index < (int)(sizeof rows / sizeof rows[0]) ? &rows[index] : NULL;
}
