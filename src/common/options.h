/* SPDX-License-Identifier: MIT
 * options.h - attn_options in a module outside the core: reading them, acquiring and releasing memory, and computing with both.
 * (src/core has plan/read.c and plan/allocator.c.) */
#ifndef ATTN_COMMON_OPTIONS_H
#define ATTN_COMMON_OPTIONS_H

#include <stdlib.h>

#include "slots.h"

/* A copy; NULL is all defaults.  A plan made with them checks the rest. */
static inline attn_status options_read(attn_options *copy, const attn_options *caller, attn_error *error)
{
    *copy = (attn_options){.struct_size = sizeof *copy};
    if (caller) TRY(struct_read(copy, sizeof *copy, sizeof *copy, caller, "attn_options", error));
    CHECK(!copy->allocator.allocate == !copy->allocator.release, ATTN_ERR_ARGUMENT,
          "options.allocator has %s and no %s; set both or neither", copy->allocator.allocate ? "allocate" : "release",
          copy->allocator.allocate ? "release" : "allocate");
    return ATTN_OK;
}

/* Memory aligned to 64, at least a byte; NULL: out of memory.  options must come from options_read. */
static inline void *options_acquire(const attn_options *options, size_t bytes)
{
    if (bytes > SIZE_MAX - 64) return NULL;
    const size_t size = bytes / 64 * 64 + 64;
    return options->allocator.allocate ? options->allocator.allocate(options->allocator.context, size) : aligned_alloc(64, size);
}

static inline void options_release(const attn_options *options, void *memory)
{
    if (!options->allocator.allocate) free(memory);
    else if (memory) options->allocator.release(options->allocator.context, memory);
}

/* ---- computing ---- */

/* A plan with its workspace, for calls that do everything that can fail before they write anything. */
typedef struct execution {
    attn_plan *plan;
    void *workspace;
    size_t size;
} execution;

/* Call execution_end afterwards, even if this fails. */
static inline attn_status execution_begin(execution *p, const attn_problem *problem, const attn_tensors *tensors,
                                          const attn_options *options, attn_error *error)
{
    *p = (execution){.plan = NULL};
    TRY(attn_plan_create(&p->plan, problem, tensors, options, error));
    p->size = attn_plan_workspace_size(p->plan);
    p->workspace = options_acquire(options, p->size);
    CHECK(p->workspace, ATTN_ERR_MEMORY, "cannot allocate a workspace of %zu bytes", p->size);
    return ATTN_OK;
}

static inline void execution_end(execution *p, const attn_options *options)
{
    options_release(options, p->workspace);
    attn_plan_destroy(p->plan);
}

/* Checks everything that an execution can reject, before anything is written.  An execution checks its workspace last, so a size of
 * 0 fails with ATTN_ERR_MEMORY only if all else is valid; a plan that needs no workspace writes nothing. */
static inline attn_status execution_try(const execution *p, const attn_tensors *tensors, attn_error *error)
{
    attn_error rejected;
    const attn_status status = p->size ? attn_execute(p->plan, tensors, p->workspace, 0, &rejected) : ATTN_OK;
    if (status == ATTN_OK || status == ATTN_ERR_MEMORY) return ATTN_OK;
    if (error) *error = rejected;
    return status;
}

static inline attn_status execution_run(const execution *p, const attn_tensors *tensors, attn_error *error)
{
    return attn_execute(p->plan, tensors, p->workspace, p->size, error);
}

/* attn_compute with options. */
static inline attn_status options_compute(const attn_problem *problem, const attn_tensors *tensors, const attn_options *options,
                                          attn_error *error)
{
    execution p;
    attn_status status = execution_begin(&p, problem, tensors, options, error);
    if (status == ATTN_OK) status = execution_run(&p, tensors, error);
    execution_end(&p, options);
    return status;
}

#endif
