/* SPDX-License-Identifier: MIT
 * slot.h - a query tile of forward, and its state while it goes over the keys. */
#ifndef ATTN_WALK_TILES_SLOT_H
#define ATTN_WALK_TILES_SLOT_H

#include "../../task/task.h"
#include "tiles.h"

/* A query tile with its place in memory. */
typedef struct attn_slot {
    const attn_task *task; /* of its head */
    attn_tile tile;
    void *Qt, *Ot, *m, *l;
    attn_interval keys;   /* that it visits */
    int dropped;          /* a key was dropped inside a visited block */
    const int32_t *empty; /* NULL, or flags of the fully masked lanes, whose weights are uniform */
    int begun;            /* a part of the keys is in its state */
} attn_slot;

/* Tile t of a head, at place `number` of its group. */
attn_slot attn_slot_at(const attn_task *task, int64_t t, int64_t number);
/* Opens a slot: its state and, if it sees any key, its queries.  Returns 0 if it has no rows. */
int attn_slot_open(const attn_task *task, attn_slot *slot);
/* Initialises a state without keys: with the task's sink, or with the one given. */
void attn_slot_start(const attn_task *task, const attn_slot *slot);
void attn_slot_start_with(const attn_task *task, const attn_slot *slot, double sink);

/* Runs all slots, which share a key head, against the keys that one of them sees; the same part by part. */
void attn_slots_fold(attn_slot *slots, int64_t count);
void attn_slots_fold_parts(attn_slot *slots, int64_t count);

/* The first key from j on that a slot may see. */
int64_t attn_slot_beyond_gap(const attn_slot *slot, int64_t j);

/* The slot restricted to the keys of one part, with a state of its own if that must be merged: the first part uses the slot's
 * state, which includes the sink.  Returns 0 if it sees none of these keys. */
int attn_slot_open_part(const attn_slot *slot, int64_t part, attn_slot *own);
/* Merges a part into the slot, unless it is there already. */
void attn_slot_close_part(attn_slot *slot, const attn_slot *own);

/* Stores O, lse, and everything else that is requested.  shared: the memory after that of the workers. */
void attn_slot_finish(attn_slot *slot, char *shared);

#endif
