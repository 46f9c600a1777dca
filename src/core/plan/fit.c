/* SPDX-License-Identifier: MIT
 * fit.c - lays a plan out within options.workspace_limit. */
#include "../base/error.h"
#include "plan.h"

attn_status attn_plan_fit(attn_lay_out *lay_out, void *plan, int threads, size_t limit, size_t *bytes, attn_error *error)
{
    size_t least = SIZE_MAX; /* of all tries; no layout has as much */
    for (int saves = 0; threads > 0; threads = saves ? threads / 2 : threads, saves = 1) {
        size_t need;
        if (!lay_out(plan, threads, saves, &need)) need = SIZE_MAX;
        if (need < least) least = need;
        if (limit == 0 || need <= limit) break;
    }
    CHECK(least < SIZE_MAX, ATTN_ERR_SHAPE, "the sizes are too large: a workspace or task count overflows 64 bits");
    *bytes = least;
    return ATTN_OK;
}

attn_status attn_plan_check_limit(size_t limit, size_t bytes, attn_error *error)
{
    CHECK(limit == 0 || bytes <= limit, ATTN_ERR_MEMORY, "options.workspace_limit is %zu bytes; this problem needs %zu", limit,
          bytes);
    return ATTN_OK;
}
