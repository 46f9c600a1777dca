/* SPDX-License-Identifier: MIT
 * choose.h - ATTN_WAY_AUTO: the way that is predicted to take the least time, and the sentence that says why it was taken. */
#ifndef ATTN_DISTRIBUTED_CHOOSE_H
#define ATTN_DISTRIBUTED_CHOOSE_H

#include "predict.h"

typedef struct attn_choice {
    attn_way way; /* not ATTN_WAY_AUTO */
    int members;  /* ranks that divide the heads; 1: none do */
    attn_split_prediction predicted;
} attn_choice;

/* Chooses where way is ATTN_WAY_AUTO; another is taken as it is, with its members.  All ranks that ask the same get the same.
 *
 *  cells     of all heads, as attn_predict_way takes them
 *  divided   1: heads can be divided */
attn_status attn_choose(attn_choice *choice, const attn_cells *cells, attn_way way, int members, int ranks, int divided,
                        const attn_split_machine *machine, attn_error *error);

/* The choice could not be planned, for the reason in *failed: ATTN_WAY_DIRECT instead. */
attn_status attn_choose_instead(attn_choice *choice, const attn_cells *cells, int ranks, const attn_split_machine *machine,
                                const attn_error *failed, attn_error *error);

#endif
