/* SPDX-License-Identifier: MIT
 *
 * api_case.h - one case of the interface's fuzzer: a drawn problem, its tensors in memory of exactly their size, and its checks.
 * fuzz_api.c is the program, api_draw.c draws, api_memory.c allocates and fills, api_oracle.c and api_reference.c check.
 *
 * Tensors are known only from attn_tensor_describe, their shapes only from attn_plan_tensor. */
#ifndef ATTN_FUZZ_API_CASE_H
#define ATTN_FUZZ_API_CASE_H

#include "attn/attn.h"
#include "draws.h"

enum { TENSORS_MOST = 80, BYTES_MOST = 1 << 23 };

/* One tensor's memory: `bytes` at `block`; element (0,0,0,0) is at block + first. */
typedef struct buffer {
    unsigned char *block;
    size_t bytes, element;
    ptrdiff_t first;
    int64_t shape[4], stride[4];
    attn_dtype dtype;
    attn_role role;
} buffer;

typedef struct api_case {
    draws from;
    int count; /* of tensors in the table */
    attn_tensor_description about[TENSORS_MOST];
    buffer of[TENSORS_MOST];
    attn_problem problem;
    attn_tensors tensors;
    attn_call call;
    attn_origin origin;
    attn_options options;
    int everywhere;    /* set before drawing: options.reproducible, and no particular instruction set */
    int special;       /* NaN, infinities and huge numbers are among the inputs */
    int hostile;       /* a field was replaced by an extreme number: not repaired, nor checked against ref/ or subproblems */
    int plan_only;     /* several sizes were: there is no memory for its tensors, and no time if they have no elements */
    int64_t tokens[2]; /* packed: of queries, of keys */
} api_case;

/* ---- api_draw.c ---- */
/* Draws a problem, its slots (ATTN_LATER), strides and options.  Returns the plan, or NULL if it was rejected. */
attn_plan *case_draw(api_case *c);
attn_output *case_slot(attn_tensors *tensors, const api_case *c, int t);
int case_find(const api_case *c, const char *name);
int case_has(const api_case *c, const char *name);
int case_packs(const api_case *c, int t);
attn_plan *case_plan(const api_case *c, const attn_options *options);

/* ---- api_memory.c ---- */
/* Allocates every tensor of the plan.  Returns 0 if that is too much. */
int case_allocate(api_case *c, const attn_plan *plan);
void case_free(api_case *c);
void case_fill_outputs(api_case *c, unsigned char canary);
/* Moves each tensor to new memory, with `elements_before` extra elements before it. */
void case_move(api_case *c, size_t elements_before);
void put_number(void *at, attn_dtype dtype, double x);
double get_number(const void *at, attn_dtype dtype);
int64_t get_index(const buffer *b, int64_t i);
unsigned char *case_at(const buffer *b, int64_t i0, int64_t i1, int64_t i2, int64_t i3);

/* ---- api_oracle.c ---- */
/* Runs the drawn problem and checks it.  Returns 1 if it ran. */
int case_judge(api_case *c, attn_plan *plan);

/* ---- api_reference.c ---- */
/* Checks a forward or backward that has just run against ref/.  Returns 0 if the operation has no such check. */
int case_reference(api_case *c);
/* [heads_kv][keys of entry e]: 1 if some query of the key head may attend to the key; free() it.  NULL if undecided. */
unsigned char *case_seen(const api_case *c, int64_t e);

/* ---- fuzz_api.c ---- */
void case_print(const api_case *c);
/* Prints the failure and the case, and aborts. */
_Noreturn void case_fail(const api_case *c, const char *what, ...);
void case_error(const api_case *c, attn_status status, const attn_error *error);

#endif
