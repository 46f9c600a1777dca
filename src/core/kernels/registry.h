/* SPDX-License-Identifier: MIT
 * registry.h - the table of kernels as a whole, for searches that take less than a call for each row. */
#ifndef ATTN_KERNELS_REGISTRY_H
#define ATTN_KERNELS_REGISTRY_H

#include "kernel.h"

/* All rows, in order of preference. */
const attn_kernel_row *attn_kernel_rows(int *count);

#endif
