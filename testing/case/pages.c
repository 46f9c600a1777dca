/* SPDX-License-Identifier: MIT
 * pages.c - keys and values of a check case in pages. */
#include "pages.h"

#include <stdlib.h>
#include <string.h>

#include "testing/memory/element.h"
#include "testing/problem/serving.h"
#include "testing/text/failure.h"

/* The length of a sequence in keys. */
static int64_t length_of(const check_call *call, int64_t b)
{
    const tensor *lengths = &call->in[TENSOR(lengths_kv)];
    return lengths->base ? (int64_t)element_read(lengths->layout.dtype, tensor_at(lengths, b, 0, 0, 0))
                         : call->problem.shape.len_kv;
}

static void *entry_at(const tensor *table, int64_t b, int64_t page) { return tensor_at(table, b, 0, 0, page); }

/* A table of pages in no order, with -7 where a sequence has none. */
static int draw_table(check_call *call, const check_case *c, random_state *random)
{
    const attn_paging *g = &call->problem.paging;
    const int64_t B = call->problem.shape.batch, of_entry = problem_blocks(call->problem.shape.len_kv, g->page_size);
    tensor *table = &call->in[TENSOR(page_table)];
    if (!place_tensor(table, call, TENSOR(page_table), c, -1)) return 0;
    int64_t *order = need_memory(g->pages, sizeof *order), *pages = need_memory(B * of_entry, sizeof *pages),
            *lengths = need_memory(B, sizeof *lengths);
    for (int64_t n = 0; n < g->pages; n++) {
        const int64_t other = random_below(random, n + 1);
        order[n] = order[other], order[other] = n;
    }
    for (int64_t b = 0; b < B; b++) lengths[b] = length_of(call, b);
    (void)serving_pages(&c->spec, lengths, order, pages);
    for (int64_t n = 0; n < B * of_entry; n++)
        element_write_index(table->layout.dtype, entry_at(table, n / of_entry, n % of_entry), pages[n] < 0 ? -7 : pages[n]);
    free(order), free(pages), free(lengths);
    return 1;
}

/* The page of a token, or -1 past the end of its sequence. */
static int64_t page_of(const check_call *call, int64_t b, int64_t j)
{
    const tensor *table = &call->in[TENSOR(page_table)];
    return (int64_t)element_read(table->layout.dtype, entry_at(table, b, j / call->problem.paging.page_size));
}

static int lay(check_call *call, const check_case *c, int t)
{
    static const int hnd[4] = {0, 1, 2, 3}, nhd[4] = {0, 2, 1, 3};
    const int64_t B = call->problem.shape.batch;
    const attn_paging *g = &call->problem.paging;
    tensor dense = call->in[t], *paged = &call->in[t];
    attn_output *slot = tensors_slot(&call->tensors, t);
    const int64_t size[4] = {g->pages, dense.size[1], g->page_size, dense.size[3]};
    const size_t bytes = attn_dtype_size(dense.layout.dtype);
    tensor_plan plan = {.inner = 1, .side = c->memory == MEMORY_BACKWARD ? GUARD_BEFORE : GUARD_AFTER};
    memcpy(plan.order, c->spec.order == SPEC_BSHD ? nhd : hnd, sizeof plan.order);
    if (c->memory == MEMORY_PADDED) plan.gap[0] = 5, plan.gap[1] = 2, plan.gap[2] = 3;
    const int laid = tensor_create(paged, dense.layout.dtype, size, &plan);
    for (int64_t b = 0; laid && b < B; b++)
        for (int64_t h = 0; h < size[1]; h++)
            for (int64_t j = b ? c->spec.prefix : 0; j < length_of(call, b); j++)
                for (int64_t d = 0; d < size[3]; d++)
                    memcpy(tensor_at(paged, page_of(call, b, j), h, j % g->page_size, d), tensor_at(&dense, b, h, j, d), bytes);
    slot->data = paged->base;
    memcpy(slot->stride, paged->layout.stride, sizeof slot->stride);
    tensor_destroy(&dense);
    return laid;
}

int pages_lay(check_call *call, const check_case *c, const attn_paging *paging, random_state *random)
{
    static const int stored[] = {TENSOR(k), TENSOR(v), TENSOR(k_scale), TENSOR(v_scale)};
    call->problem.paging = *paging;
    call->tensors.page_table = (attn_input){.data = ATTN_LATER, .dtype = c->index32 ? ATTN_I32 : ATTN_I64};
    int ok = draw_table(call, c, random);
    for (size_t n = 0; ok && n < sizeof stored / sizeof *stored; n++)
        if (call->in[stored[n]].base) ok = lay(call, c, stored[n]);
    return ok;
}
