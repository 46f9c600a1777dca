/* SPDX-License-Identifier: MIT
 *
 * plans.h - plans that a binding keeps between calls: planning a small problem takes longer than computing it.
 *
 *      kept_plan *kept = kept_find(key, size);
 *      if (!kept) {
 *          attn_plan *plan;
 *          if (attn_plan_create(&plan, &problem, &tensors, &options, &error)) fail;
 *          kept = kept_add(key, size, plan, sizeof(struct note));
 *      }
 *      status = kept_execute(kept, &tensors, &error);
 *      kept_release(kept);
 *
 * The key is all that the plan depends on: problem, options, and the presence, type and strides of each tensor, as bytes without
 * padding that varies; it begins with the problem, whose struct_size tells attention from linear attention.  Every thread has plans
 * of its own, so nothing is locked; they and one workspace are freed when the thread ends.  A child of fork() keeps those of the
 * thread that called it.  No function here needs an interpreter or a framework.
 */
#ifndef ATTN_PYTHON_COMMON_PLANS_H
#define ATTN_PYTHON_COMMON_PLANS_H

#include <attn/attn.h>
#include <attn/linear.h>
#include <attn/schedule.h>

enum {
    KEPT_PLANS = 32,                  /* per thread; beyond that, the one that was used least recently goes */
    KEPT_WORKSPACE = 16 * 1024 * 1024 /* bytes per thread; calls that need more take memory of their own */
};

typedef struct kept_plan {
    void *note; /* memory of the binding's that lives as long as the plan; zeros at first */
} kept_plan;

/* The plan that this thread keeps under a key, or NULL.  It stays until kept_release, whatever happens in between. */
kept_plan *kept_find(const void *key, size_t key_size);

/* Keeps a plan, which it takes over, under a key that kept_find did not find; held like the result of kept_find.  NULL, with the
 * plan destroyed, if there is no memory. */
kept_plan *kept_add(const void *key, size_t key_size, attn_plan *plan, size_t note_size);

/* attn_execute with this thread's workspace. */
attn_status kept_execute(kept_plan *kept, const attn_tensors *tensors, attn_error *error);

/* The same for linear attention. */
kept_plan *kept_add_linear(const void *key, size_t key_size, attn_linear_plan *plan, size_t note_size);
attn_status kept_execute_linear(kept_plan *kept, const attn_linear_tensors *tensors, attn_error *error);

/* The plan itself; NULL for one of linear attention. */
const attn_plan *kept_attention(const kept_plan *kept);

void kept_release(kept_plan *kept);

/* Forgets a plan that is held by its only user, who found that it does not fit after all. */
void kept_drop(kept_plan *kept);

/* Frees what this thread keeps, except plans that are held. */
void kept_clear(void);

#endif
