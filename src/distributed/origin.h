/* SPDX-License-Identifier: MIT
 * origin.h - where the whole problem lies in a larger one, if its call says so. */
#ifndef ATTN_DISTRIBUTED_ORIGIN_H
#define ATTN_DISTRIBUTED_ORIGIN_H

#include "cell.h"

/* Copies the origin of cells->call, which points to the copy from now on.  problem and planned are filled in, and mask.align is
 * still the caller's. */
attn_status attn_origin_read(attn_cells *cells, attn_error *error);

/* Checks that the call of an execution has the same one. */
attn_status attn_origin_check(const attn_cells *cells, const attn_call *call, attn_error *error);

#endif
