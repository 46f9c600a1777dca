/* SPDX-License-Identifier: MIT
 * family.h - the plan that walks over tiles share. */
#ifndef ATTN_WALK_FAMILY_H
#define ATTN_WALK_FAMILY_H

#include "../prepare/prepare.h"
#include "rows/rows.h"
#include "walks.h"

typedef struct attn_tile_family {
    attn_walk walk;
    attn_prepare prepare; /* with the problem of these sequences in it */
    attn_rows_plan rows;
} attn_tile_family;

int attn_family_init(attn_walk *walk, const attn_setting *setting);
int attn_family_init_rows(attn_walk *walk, const attn_setting *setting);
void attn_family_run(const attn_walk *walk, const attn_args *args, char *workspace);

#endif
