/* SPDX-License-Identifier: MIT
 * walk.c - the common head of the plans of all walks. */
#include "walk.h"

#include "../base/checked.h"

void attn_walk_begin(attn_walk *walk, const attn_setting *setting)
{
    const attn_kernel_row *row = setting->row;
    walk->problem = *setting->problem;
    walk->compute = row->compute;
    attn_kernel_assemble(row, &walk->kernel);
    walk->parallel_for = setting->parallel_for;
    walk->parallel_context = setting->parallel_context;
}

/* Waking threads costs some microseconds: work below about ten microseconds stays on the calling thread. */
int attn_is_serial(const attn_resolved *problem)
{
    const attn_shape *s = &problem->shape;
    double pairs = (double)s->batch * (double)s->heads_q * (double)s->len_q * (double)s->len_kv;
    return 2.0 * pairs * (double)(s->dim_qk + s->dim_v) < 1e6;
}

int attn_walk_add_bytes(attn_walk *walk, int64_t before, int works_without)
{
    int64_t *bytes = &walk->bytes;
    if (!attn_mul(walk->worker_bytes, walk->workers, bytes) || !attn_add(*bytes, walk->shared_bytes, bytes)) return 0;
    if (!attn_add(*bytes, before, bytes) || *bytes > INT64_MAX - 64) return 0;
    if (walk->tasks == 0 && !works_without) *bytes = 0;
    return 1;
}
