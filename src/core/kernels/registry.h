/* SPDX-License-Identifier: MIT
 * registry.h - the whole table of kernels, for searches where a call per row would be too slow. */
#ifndef ATTN_KERNELS_REGISTRY_H
#define ATTN_KERNELS_REGISTRY_H

#include "kernel.h"

/* All rows, in order of preference. */
const attn_kernel_row *attn_kernel_rows(int *count);

#endif
