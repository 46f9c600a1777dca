/* SPDX-License-Identifier: MIT
 * stored.c - combinations whose keys and values are stored as in caches: in i8 or f8 with a scale per row, in blocks, or paged. */
#include "test.h"

#include "combination.h"
#include "testing/memory/format.h"

#include <math.h>

/* Redraws the tensor as i8 or f8; a poisoned row gets the scale NaN. */
static void quantise(combination *c, random_state *r, int t, int of_scale)
{
    tensor *x = &c->of[t], *scale = &c->of[of_scale];
    const int64_t row[4] = {x->shape[0], x->shape[1], x->shape[2], 1};
    const attn_dtype type = random_below(r, 2) ? ATTN_I8 : ATTN_F8_E5M2;
    tensor whole = tensor_make(type, x->shape, random_below(r, 2) ? BY_TOKEN : BY_HEAD, 0, x->start);
    *scale = tensor_make(ATTN_F32, row, random_below(r, 2) ? BY_TOKEN : BY_HEAD, 0, x->start);
    tensor_draw(&whole, r, type == ATTN_I8 ? 127 : 2);
    tensor_draw(scale, r, type == ATTN_I8 ? 2.0 / 127 : 1);
    for (int64_t at = 0, n = 0; at < row[0] * row[1] * row[2]; at++) {
        const int64_t b = at / row[2] / row[1], h = at / row[2] % row[1], j = at % row[2];
        if (x->shape[3] > 0 && isnan(x->value[n]) && tensor_has(scale, b, j)) {
            tensor_set(scale, tensor_at(scale, b, h, j, 0), (double)NAN);
            scale->value[at] = (double)NAN;
        }
        for (int64_t k = 0; k < x->shape[3]; k++, n++) whole.value[n] *= scale->value[at];
    }
    tensor_free(x);
    *x = whole;
    combination_give(c, t), combination_give(c, of_scale);
}

/* Redraws the tensor as q8_0, q4_0 or q4_1; a poisoned row becomes NaN. */
static void pack(combination *c, random_state *r, int t)
{
    tensor *x = &c->of[t];
    const attn_dtype type = (attn_dtype)(ATTN_Q8_0 + random_below(r, 3));
    tensor blocks = tensor_make(type, x->shape, random_below(r, 2) ? BY_TOKEN : BY_HEAD, 0, x->start);
    const int64_t *n = x->shape;
    tensor_draw(&blocks, r, 2);
    for (int64_t at = 0; n[3] > 0 && at < n[0] * n[1] * n[2]; at++) {
        const int64_t b = at / n[2] / n[1], h = at / n[2] % n[1], j = at % n[2];
        for (int64_t k = 0; isnan(x->value[at * n[3]]) && tensor_has(&blocks, b, j) && k < n[3]; k += ATTN_BLOCK)
            tensor_set(&blocks, tensor_at(&blocks, b, h, j, k), (double)NAN);
    }
    tensor_read(&blocks);
    tensor_free(x);
    *x = blocks;
    combination_give(c, t);
}

void combination_integers(combination *c, int blocks, random_state *r)
{
    static const int of[2][2] = {{TENSOR(k), TENSOR(k_scale)}, {TENSOR(v), TENSOR(v_scale)}};
    const int64_t which = random_below(r, 3);
    for (int n = 0; n < 2; n++) {
        if (which == n + 1) continue;
        if (blocks && c->of[of[n][0]].shape[3] % ATTN_BLOCK == 0) pack(c, r, of[n][0]);
        else quantise(c, r, of[n][0], of[n][1]);
    }
    c->ref.K = c->of[TENSOR(k)].value, c->ref.V = c->of[TENSOR(v)].value;
}

/* Copies the tensor into pages; the rest of the memory is NaN, or -1 for integers. */
static void lay_in_pages(combination *c, int t, void **memory)
{
    const tensor *x = &c->of[t];
    const int64_t size = c->problem.paging.page_size, heads = x->shape[1], len = x->shape[2];
    const int64_t dim = format_elements(x->layout.dtype, x->shape[3]);
    const size_t bytes = attn_dtype_size(x->layout.dtype);
    const attn_output slot = {NULL, x->layout.dtype, {heads * size * dim, size * dim, dim, 1}};
    char *pages = malloc((size_t)(c->problem.paging.pages * heads * size * dim) * bytes + 1);
    assert_non_null(pages);
    memset(pages, 0xff, (size_t)(c->problem.paging.pages * heads * size * dim) * bytes);
    for (int64_t b = 0; b < x->shape[0]; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t j = 0; j < c->length_kv[b]; j++) {
                const int64_t page = c->page_table[b * problem_blocks(len, size) + j / size];
                const int64_t to = page * slot.stride[0] + h * slot.stride[1] + j % size * dim;
                memcpy(pages + (size_t)to * bytes, (char *)x->memory + (size_t)tensor_at(x, b, h, j, 0) * bytes,
                       (size_t)dim * bytes);
            }
    *memory = pages;
    *tensors_slot(&c->tensors, t) = slot;
    tensors_slot(&c->tensors, t)->data = pages;
}

/* The rows of page_table as lists, each of the pages that its entry's keys need; lengths follow from the last page, at random. */
static void list_pages(combination *c, random_state *r)
{
    attn_paging *g = &c->problem.paging;
    const int64_t B = c->ref.B, of_entry = problem_blocks(c->ref.Skv, g->page_size);
    c->page_starts = calloc((size_t)B + 1, sizeof *c->page_starts);
    c->page_index = calloc((size_t)(B * of_entry + 2), sizeof *c->page_index);
    c->last_page = calloc((size_t)B + 1, sizeof *c->last_page);
    assert_true(c->page_starts && c->page_index && c->last_page);
    int64_t n = 0;
    for (int64_t b = 0; b < B; b++) {
        const int64_t pages = problem_blocks(c->length_kv[b], g->page_size);
        for (int64_t i = 0; i < pages; i++) c->page_index[n++] = c->page_table[b * of_entry + i];
        c->page_starts[b + 1] = n;
        c->last_page[b] = pages ? c->length_kv[b] - (pages - 1) * g->page_size : random_below(r, g->page_size + 1);
    }
    c->page_index[n++] = -7; /* in no list */
    g->page_entries = n;
    c->tensors.page_table = (attn_input){0};
    c->tensors.page_starts = attn_in(c->page_starts);
    c->tensors.page_index = attn_in(c->page_index);
    if (!c->tensors.lengths_kv.data || random_below(r, 2) || c->problem.mask.empty == ATTN_EMPTY_UNIFORM) return;
    c->tensors.lengths_kv = (attn_input){0};
    c->tensors.lengths_last_page = attn_in(c->last_page);
}

void combination_pages(combination *c, int lists, random_state *r)
{
    static const int stored[] = {TENSOR(k), TENSOR(v), TENSOR(k_scale), TENSOR(v_scale)};
    attn_paging *g = &c->problem.paging;
    g->page_size = 1 + random_below(r, 20);
    const int64_t of_entry = problem_blocks(c->ref.Skv, g->page_size), count = c->ref.B * of_entry;
    g->pages = count + 3;
    c->page_table = malloc((size_t)(count + 1) * sizeof *c->page_table);
    assert_non_null(c->page_table);
    for (int64_t n = 0; n < count; n++) { /* in random order */
        const int64_t place = random_below(r, n + 1);
        c->page_table[n] = c->page_table[place];
        c->page_table[place] = n + 2;
    }
    for (int64_t n = 0; n < count; n++) /* entries past a sequence's end are not read */
        if (n % of_entry * g->page_size >= c->length_kv[n / of_entry]) c->page_table[n] = -7;
    for (size_t n = 0; n < sizeof stored / sizeof *stored; n++)
        if (tensors_has(&c->tensors, stored[n])) lay_in_pages(c, stored[n], &c->paged[n]);
    c->tensors.page_table = attn_in(c->page_table);
    if (lists) list_pages(c, r);
}
