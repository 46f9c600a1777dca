/* SPDX-License-Identifier: MIT
 *
 * valid_call.h - for any operation and any tensor of the table, a small valid problem that has it, for tests that invalidate one
 * slot at a time.  It loops over attn_tensor_describe, so that new tensors are tested automatically. */
#ifndef ATTN_TESTS_INTERFACE_VALID_CALL_H
#define ATTN_TESTS_INTERFACE_VALID_CALL_H

#include "test.h"

#include "attn/attn.h"

enum { VALID_TENSORS = 128, VALID_BYTES = 1024, VALID_PATTERN = 0xa5 };
enum { VALID_B = 2, VALID_HQ = 2, VALID_HKV = 1, VALID_SQ = 3, VALID_SKV = 5, VALID_D = 4, VALID_DV = 6 };

/* The table of tensors; valid_call_table reads it once. */
extern attn_tensor_description table[VALID_TENSORS];
extern int tensors_of_table;
void valid_call_table(void);
int tensor_number(const char *name);

typedef struct valid_call {
    attn_problem problem;
    attn_tensors tensors;
    attn_call call; /* tensors.call where a test needs one */
    attn_options options;
    _Alignas(64) unsigned char memory[VALID_TENSORS][VALID_BYTES]; /* of each tensor; outputs hold VALID_PATTERN */
    unsigned char before[VALID_TENSORS][VALID_BYTES];              /* what memory held when it was made */
} valid_call;

/* valid_call_make: a problem of this operation with the tensors it requires; valid_call_use adds tensor n and all that makes n
 * usable. */
void valid_call_make(valid_call *s, attn_op op);
void valid_call_use(valid_call *s, int n);
void valid_call_with(valid_call *s, attn_op op, int n); /* both */

/* Slots by number. */
attn_input slot_get(const attn_tensors *t, int n);
void slot_set(attn_tensors *t, int n, attn_input slot);
/* Makes tensor n present and dense; or absent. */
void slot_fill(valid_call *s, int n);
void slot_clear(valid_call *s, int n);

/* Planning and executing, separately and together; all check that the error agrees with the status. */
attn_status valid_call_plan(const valid_call *s, attn_plan **plan, attn_error *error);
attn_status valid_call_execute(const attn_plan *plan, const attn_tensors *tensors, attn_error *error);
attn_status valid_call_compute(const valid_call *s, attn_error *error);

/* 1 if no tensor's memory has changed. */
int valid_call_untouched(const valid_call *s);

/* expect_no_plan fails unless planning is rejected, expect_no_execute unless planning succeeds and execution is rejected; the error
 * must name tensor n, and nothing may be written.  `what` is for the message. */
void expect_no_plan(const valid_call *s, attn_status status, int n, const char *what);
void expect_no_execute(const valid_call *s, attn_status status, int n, const char *what);

#endif
