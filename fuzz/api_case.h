/* SPDX-License-Identifier: MIT
 *
 * api_case.h - one case of the interface's fuzzer: a drawn problem, its tensors in memory of exactly their size (block.h), and its
 * checks.  fuzz_api.c is the program, api_draw.c draws, api_memory.c fills, api_oracle.c and api_reference.c check.
 *
 * Tensors are known only from attn_tensor_describe, their shapes only from attn_plan_tensor. */
#ifndef ATTN_FUZZ_API_CASE_H
#define ATTN_FUZZ_API_CASE_H

#include "attn/attn.h"
#include "attn/schedule.h"
#include "attn/team.h"
#include "block.h"
#include "draws.h"
#include "target.h"

enum { MAX_TENSORS = 80 };

typedef struct api_case {
    draws from;
    int count; /* of tensors in the table */
    attn_tensor_description about[MAX_TENSORS];
    block blocks[MAX_TENSORS];
    attn_problem problem;
    attn_tensors tensors;
    attn_call call;
    attn_origin origin;
    attn_options options;
    int everywhere;    /* set before drawing: options.reproducible, and no particular instruction set */
    int whole_lists;   /* of blocks: all of them, for some key heads' lists */
    int no_blocks;     /* set before drawing: keys and values have no block types */
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
/* Lists of blocks: as many for each key head of each entry, or for all together. */
int64_t case_lists(const api_case *c);
/* The most pages of an entry. */
/* The blocks of row r of lists, of so many. */
int64_t case_listed(const api_case *c, int64_t r, int64_t columns);
int64_t case_most_pages(const api_case *c);
/* Whether the tensor's sequences are concatenated in this case. */
int case_is_packed(const api_case *c, int t);
attn_plan *case_plan(const api_case *c, const attn_options *options);

/* ---- api_memory.c ---- */
/* Allocates every tensor of the plan.  Returns 0 if that is too much. */
int case_allocate(api_case *c, const attn_plan *plan);
/* Moves each tensor to new memory, `elements` elements after its start. */
void case_move(api_case *c, size_t elements);
/* Computes o and lse by a forward, for the operations that read them: a drawn lse gives weights above 1, which become 1.  options
 * may be NULL.  Returns 0 if these slots cannot be written. */
int case_save_forward(api_case *c, const attn_options *options);
/* Element i of a dense tensor of i32 or i64, and the one at an address. */
int64_t get_index(const block *b, int64_t i);
int64_t read_index(const void *at, attn_dtype dtype);

/* ---- api_oracle.c ---- */
/* Runs the drawn problem and checks it.  Returns 1 if it ran. */
int case_judge(api_case *c, attn_plan *plan);

/* ---- api_reference.c ---- */
/* Checks a forward or backward that has just run against ref/.  Returns 0 if the operation has no such check. */
int case_reference(api_case *c);
/* [heads_kv][keys of entry e]: 1 if some query of the key head may attend to the key; free() it.  NULL if undecided. */
unsigned char *case_seen(const api_case *c, int64_t e);

#endif
