/* SPDX-License-Identifier: MIT
 * plan.h - the struct of a plan, and the steps that make one. */
#ifndef ATTN_PLAN_PLAN_H
#define ATTN_PLAN_PLAN_H

#include "../base/problem.h"
#include "../base/struct.h"
#include "../kernels/kernel.h"
#include "../walk/walks.h"
#include "tensors.h"

/* The sequences of a batch that one walk runs: all, or those of certain lengths (parts.c). */
typedef struct attn_plan_part {
    const attn_walk_type *type;
    const attn_kernel_row *row;
    int64_t least, most; /* queries of a sequence */
    attn_small small;    /* if some sequences of such lengths are small: this part has them, or all others */
    int small_only;
    attn_walk *walk; /* type->size bytes */
} attn_plan_part;

enum { ATTN_MAX_PLAN_PARTS = 4, ATTN_WHY_SIZE = 320 };

/* One block of memory: parts, tensors and walks follow it. */
struct attn_plan {
    attn_resolved problem;
    char why[ATTN_WHY_SIZE];
    attn_allocator allocator; /* of the plan itself */
    int tensors, parts;
    attn_planned_tensor *tensor; /* those present, in order of number */
    attn_plan_part *part;
};

/* Reads the caller's problem, and which tensors and parts of the call are present. */
attn_status attn_problem_read(attn_resolved *resolved, const attn_problem *problem, const attn_tensors *tensors, attn_error *error);
/* Every rule of a problem and its tensors, in one list; on success *problem is resolved, and list has its tensors. */
attn_status attn_problem_resolve(attn_resolved *problem, const attn_tensors *tensors, attn_planned_tensor *list, int *count,
                                 attn_error *error);
attn_status attn_shape_validate(const attn_shape *shape, attn_error *error);
/* Keys and values of these types: those of i8 come with their scales, those of f8 may, and no others do. */
attn_status attn_formats_validate(const attn_resolved *problem, const attn_dtype types[2], attn_error *error);
/* Values that are k's memory, as latents are, do not silently lose its scales: of i8 the scales of v are required anyway. */
attn_status attn_latents_validate(const attn_resolved *problem, const void *k, const void *v, attn_error *error);
/* The rules of mask.block_heads and of trees. */
attn_status attn_choices_validate(const attn_resolved *problem, attn_error *error);
attn_status attn_options_validate(const attn_options *options, attn_error *error);
/* The arguments of an execution: the planned tensors again, their addresses, and what is read from them before it begins. */
attn_status attn_args_read(const struct attn_plan *plan, const attn_tensors *tensors, attn_args *args, attn_error *error);
/* Checks that no output shares an element with another tensor, and no tensor a byte with the workspace. */
attn_status attn_args_check_overlap(const struct attn_plan *plan, const attn_args *args, attn_bytes workspace, attn_error *error);
/* 1 if an execution, with so many packed tokens, has nothing to do: no output has elements, and no function of the caller waits for
 * rows or scores.  It is done once its arguments are checked, however large the sizes that are not 0. */
int attn_plan_is_idle(const struct attn_plan *plan, int64_t tokens_q, int64_t tokens_kv);
attn_status attn_args_validate(const attn_resolved *problem, const attn_args *args, attn_error *error);
/* Reads the lengths and positions of a step, from those tensors that have them: only these are set in *args. */
attn_status attn_lengths_read(const struct attn_plan *plan, const attn_tensors *tensors, attn_args *args, attn_error *error);
/* Their rules. */
attn_status attn_lengths_validate(const attn_resolved *problem, const attn_args *args, attn_error *error);

/* The shape of a tensor, for attn_tensor_facts. */
void attn_attention_shape(const void *problem, int number, int64_t shape[4]);

/* Resolves options.threads: that many, or if it is 0, ATTN_THREADS, OMP_NUM_THREADS, or the CPUs that this thread may run on. */
attn_status attn_threads_choose(int given, int *threads, attn_error *error);

/* The caller's allocator, or malloc's if it has no functions. */
attn_allocator attn_allocator_or_default(const attn_allocator *given);

/* A workspace for one call; NULL if it needs none. */
attn_status attn_workspace_acquire(const attn_allocator *allocator, size_t need, void **workspace, attn_error *error);
void attn_workspace_release(const attn_allocator *allocator, void *workspace);
/* Its first multiple of 64.  For NULL (none needed), a dummy address to which offsets of 0 may be added. */
void *attn_workspace_align(void *workspace);

/* f64 if the storage is f64, else f32. */
attn_dtype attn_resolved_compute(const attn_resolved *problem);

/* Picks the row of kernels.def for decode or for tiles; `why` gets the reason. */
attn_status attn_kernel_choose(const attn_resolved *problem, const attn_options *options, int decode, const attn_kernel_row **row,
                               char *why, size_t why_size, attn_error *error);

/* Chooses which walks run the problem, and for which sequence lengths: fills parts[0 .. *count-1] except their walks, and `why`. */
attn_status attn_plan_parts_choose(const attn_resolved *problem, const attn_options *o, attn_plan_part *parts, int *count,
                                   char *why, size_t why_size, attn_error *error);
/* Plans a part, in part->walk.  skips_others: other parts follow and take the rest; is_one: it is the only part.  *bytes: as
 * attn_plan_fit says. */
attn_status attn_plan_part_make(const attn_resolved *problem, const attn_options *o, attn_plan_part *part, int skips_others,
                                int is_one, size_t *bytes, attn_error *error);

/* Bytes of workspace of a part, including alignment. */
size_t attn_plan_part_bytes(const attn_plan_part *part);

/* Lays a plan out for so many threads, with `saves` in less memory where it can, and sets the bytes of its workspace.  Returns 0 if
 * a size overflows. */
typedef int attn_lay_out(void *plan, int threads, int saves, size_t *bytes);

/* Lays a plan out within the limit (0: none), if it can: first as it is fastest, then saving memory, then for half as many threads,
 * and so on.  *bytes: its workspace, or, where that exceeds the limit, the least limit that it keeps to. */
attn_status attn_plan_fit(attn_lay_out *lay_out, void *plan, int threads, size_t limit, size_t *bytes, attn_error *error);
/* ATTN_ERR_MEMORY if a plan needs more than the limit. */
attn_status attn_plan_check_limit(size_t limit, size_t bytes, attn_error *error);

/* The first row of kernels.def for an operation outside attn_problem. */
attn_status attn_kernel_best(attn_op op, attn_dtype compute, const attn_options *options, const attn_kernel_row **row,
                             attn_error *error);

#endif
