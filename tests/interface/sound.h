/* SPDX-License-Identifier: MIT
 *
 * sound.h - for any operation and any tensor of the table a small sound problem that has it, for tests that spoil one slot at a
 * time.  It loops over attn_tensor_describe, so that a new tensor is in these tests by itself. */
#ifndef ATTN_TESTS_INTERFACE_SOUND_H
#define ATTN_TESTS_INTERFACE_SOUND_H

#include "test.h"

#include "attn/attn.h"

enum { SOUND_TENSORS = 128, SOUND_ROOM = 1024, SOUND_PATTERN = 0xa5 };
enum { SOUND_B = 2, SOUND_HQ = 2, SOUND_HKV = 1, SOUND_SQ = 3, SOUND_SKV = 5, SOUND_D = 4, SOUND_DV = 6 };

/* The table, which sound_table reads once. */
extern attn_tensor_description table[SOUND_TENSORS];
extern int tensors_of_table;
void sound_table(void);
int tensor_number(const char *name);

typedef struct sound {
    attn_problem problem;
    attn_tensors tensors;
    attn_call call; /* tensors.call where a test needs one */
    attn_options options;
    _Alignas(64) unsigned char memory[SOUND_TENSORS][SOUND_ROOM]; /* of each tensor; outputs hold SOUND_PATTERN */
    unsigned char before[SOUND_TENSORS][SOUND_ROOM];              /* what memory held when it was made */
} sound;

/* A problem of this operation with the tensors that it needs; and what tensor n needs to be of use, and tensor n, as well. */
void sound_make(sound *s, attn_op op);
void sound_use(sound *s, int n);
void sound_make_with(sound *s, attn_op op, int n); /* both */

/* Slots by number. */
attn_input slot_get(const attn_tensors *t, int n);
void slot_set(attn_tensors *t, int n, attn_input slot);
/* Tensor n is there, dense; or not. */
void slot_fill(sound *s, int n);
void slot_clear(sound *s, int n);

/* The two halves of a call, with the status and tensor of the error checked against each other. */
attn_status sound_plan(const sound *s, attn_plan **plan, attn_error *error);
attn_status sound_execute(const attn_plan *plan, const attn_tensors *tensors, attn_error *error);
attn_status sound_compute(const sound *s, attn_error *error);

/* 1 if no tensor's memory has changed. */
int sound_untouched(const sound *s);

/* Fails unless planning is rejected, naming tensor n, and nothing was written; or unless planning succeeds and executing is
 * rejected. `what` is for the message. */
void expect_no_plan(const sound *s, attn_status status, int n, const char *what);
void expect_no_execute(const sound *s, attn_status status, int n, const char *what);

#endif
