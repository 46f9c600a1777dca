/* SPDX-License-Identifier: MIT
 *
 * gather.h - one key head after another, with the query heads that read it (ATTN_WAY_GATHER): while a rank computes a head, the
 * keys of the next one come, from all ranks whose keys its queries see.  A run is then one pass for each head instead of one with
 * all heads, and has no steps.  The result of a cell for a head does not depend on other heads, so that no bit does. */
#ifndef ATTN_DISTRIBUTED_GATHER_H
#define ATTN_DISTRIBUTED_GATHER_H

#include "steps.h"

/* Lets cells of all heads be those of one, the first, in the same tensors. */
void attn_gather_take(attn_cells *cells);

/* Computes a head, of which r->mine, head, here and from are: while it does, the keys of the next one come. */
typedef void attn_gather_pass(attn_running *r);

/* All heads, of a plan that gathers; a count is that of one. */
void attn_gather_rounds(attn_running *r, attn_gather_pass *pass);

#endif
