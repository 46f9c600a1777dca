/* SPDX-License-Identifier: MIT
 * api_memory.c - a case's tensors, filled with numbers and indices that fit the problem. */
#include "api_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- indices ---- */

static unsigned char *place(const block *b, int64_t i) { return b->memory + b->first + i * (int64_t)b->element; }

static void put_index(const block *b, int64_t i, int64_t x)
{
    const int32_t narrow = (int32_t)x;
    if (b->dtype == ATTN_I32) memcpy(place(b, i), &narrow, 4);
    else memcpy(place(b, i), &x, 8);
}

int64_t read_index(const void *at, attn_dtype dtype)
{
    int32_t narrow;
    int64_t x;
    if (dtype == ATTN_I32) {
        memcpy(&narrow, at, 4);
        return narrow;
    }
    memcpy(&x, at, 8);
    return x;
}

int64_t get_index(const block *b, int64_t i) { return read_index(place(b, i), b->dtype); }

/* ---- filling ---- */

static double number(api_case *c)
{
    static const double numbers[] = {NAN, INFINITY, -INFINITY, 1e38, -1e38, 1e-40, 0, -0.0, 65504, 70000, 1e300, 1e-310};
    const uint64_t word = draw_word(&c->from);
    if (c->special && word % 61 == 0) return numbers[word / 61 % 12];
    return (double)(int64_t)(word >> 11) / 4503599627370496.0 * 2 - 2;
}

/* Row r of lists has every second block from block r % 3 on, or all. */
static int64_t first_listed(const api_case *c, int64_t r) { return c->whole_lists ? 0 : r % 3; }
int64_t case_listed(const api_case *c, int64_t r, int64_t columns)
{
    const int64_t first = first_listed(c, r), step = 2 - c->whole_lists;
    return columns > first ? (columns - first + step - 1) / step : 0;
}

static void fill_indices(api_case *c, const char *name, block *b)
{
    const attn_problem *p = &c->problem;
    const attn_shape *s = &p->shape;
    const int64_t count = (int64_t)(b->bytes / b->element);
    const int64_t before = b->first / (int64_t)b->element; /* elements before (0,0,0,0), from negative strides */
    const int bad = draw_one_in(&c->from, 40);
    int64_t sum = 0;
    if (!strcmp(name, "block_index")) {
        const int64_t rows = case_lists(c), columns = (s->len_kv + p->mask.block_kv - 1) / p->mask.block_kv;
        int64_t at = 0;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t j = first_listed(c, r); j < columns && at < count; j += 2 - c->whole_lists) put_index(b, at++, j);
    } else {
        for (int64_t i = 0; i < count; i++) {
            int64_t x = 0;
            if (!strcmp(name, "lengths_q")) x = draw_below(&c->from, s->len_q + 1);
            else if (!strcmp(name, "lengths_kv")) x = draw_below(&c->from, s->len_kv + 1);
            else if (!strcmp(name, "offset_q"))
                x = draw_one_in(&c->from, 12) ? draw_hostile(&c->from) : draw_below(&c->from, 2 * s->len_kv + 3) - s->len_kv;
            else if (!strcmp(name, "ranges"))
                x = draw_word(&c->from) % 31 ? (int64_t)(draw_word(&c->from) % (uint64_t)(s->len_kv + 20)) - 10
                                             : draw_hostile(&c->from);
            else if (!strcmp(name, "page_table") || !strcmp(name, "page_index")) x = draw_below(&c->from, p->paging.pages);
            else if (!strcmp(name, "page_starts")) {
                const int64_t most = case_most_pages(c);
                x = sum;
                sum += case_has(c, "lengths_last_page") ? draw_below(&c->from, most + 1) : most;
            } else if (!strcmp(name, "lengths_last_page"))
                x = s->len_kv > 0 ? 1 + draw_below(&c->from, 2) * ((s->len_kv - 1) % p->paging.page_size) : 0;
            else if (!strcmp(name, "block_starts")) {
                const int64_t columns = (s->len_kv + p->mask.block_kv - 1) / p->mask.block_kv;
                x = sum;
                sum += case_listed(c, i, columns);
            }
            put_index(b, i - before, x);
        }
    }
    if (!bad || count == 0) return;
    const int64_t at = draw_below(&c->from, count) - before;
    put_index(b, at, draw_hostile(&c->from));
}

static void fill(api_case *c, int t)
{
    block *b = &c->blocks[t];
    if (!strncmp(c->about[t].name, "cu_", 3)) return;
    if (!strcmp(c->about[t].name, "tree")) { /* bits, of which three in four are 1 */
        for (size_t at = 0; at < b->bytes; at += sizeof(uint64_t)) {
            const uint64_t word = draw_word(&c->from) | draw_word(&c->from);
            memcpy(b->memory + at, &word, sizeof word);
        }
        return;
    }
    if (b->dtype == ATTN_I64 || b->dtype == ATTN_I32) {
        fill_indices(c, c->about[t].name, b);
        return;
    }
    const int holes = !strcmp(c->about[t].name, "bias") && draw_one_in(&c->from, 3);
    for (size_t at = 0; at < b->bytes; at += b->element)
        number_put(b->memory + at, b->dtype, holes && draw_word(&c->from) % 4 == 0 ? -INFINITY : number(c));
}

/* ---- blocks ---- */

static void cumulate(api_case *c, int side)
{
    block *b = &c->blocks[case_find(c, side ? "cu_seqlens_kv" : "cu_seqlens_q")];
    const int64_t most = side ? c->problem.shape.len_kv : c->problem.shape.len_q;
    int64_t sum = 0;
    put_index(b, 0, 0);
    for (int64_t i = 1; i < b->shape[0] * b->shape[1] * b->shape[2] * b->shape[3]; i++)
        put_index(b, i, sum += draw_below(&c->from, most + 1));
    c->tokens[side] = sum;
}

static int one(api_case *c, const attn_plan *plan, int t)
{
    block *b = &c->blocks[t];
    attn_output *slot = case_slot(&c->tensors, c, t);
    attn_tensor_plan about = {.struct_size = sizeof about};
    if (attn_plan_tensor(plan, t, &about, NULL)) finding("attn_plan_tensor(%d) rejects", t);
    if (about.role == ATTN_ROLE_NONE) return 1;
    *b = (block){.name = c->about[t].name, .dtype = about.dtype, .output = about.role == ATTN_ROLE_OUTPUT};
    b->element = attn_dtype_size(about.dtype);
    memcpy(b->shape, about.shape, sizeof b->shape);
    memcpy(b->stride, about.stride, sizeof b->stride);
    for (int axis = 0; axis < 4; axis++) {
        if (about.shape[axis] < 0) finding("%s has a negative size", b->name);
        if (b->stride[axis] == ATTN_BROADCAST) b->stride[axis] = 0;
        if (b->shape[axis] < 2) b->stride[axis] = 0;
    }
    if (case_is_packed(c, t)) {
        b->shape[0] = 1;
        b->stride[0] = 0;
        b->shape[2] = c->tokens[c->about[t].axes[2] == ATTN_AXIS_KEY];
        b->stride[2] = about.stride[2] == ATTN_BROADCAST ? 0 : about.stride[2];
    }
    for (int axis = 1; axis < 4; axis++) /* strides inside an empty axis reach nothing, however large */
        if (b->shape[axis - 1] == 0) memset(b->stride + axis, 0, (size_t)(4 - axis) * sizeof *b->stride);
    if (!block_allocate(b)) return 0;
    slot->data = b->bytes ? b->memory + b->first : ATTN_EMPTY;
    if (!b->output) fill(c, t);
    return 1;
}

int case_allocate(api_case *c, const attn_plan *plan)
{
    const int first[2] = {case_find(c, "cu_seqlens_q"), case_find(c, "cu_seqlens_kv")};
    for (int side = 0; side < 2; side++) {
        if (!one(c, plan, first[side])) return 0;
        if (c->blocks[first[side]].name) cumulate(c, side);
    }
    for (int t = 0; t < c->count; t++)
        if (t != first[0] && t != first[1] && !one(c, plan, t)) return 0;
    return 1;
}

void case_move(api_case *c, size_t elements)
{
    for (int t = 0; t < c->count; t++) {
        block *b = &c->blocks[t];
        block_move(b, elements);
        if (b->bytes) case_slot(&c->tensors, c, t)->data = b->memory + b->first;
    }
}

/* ---- results of forward ---- */

int case_save_forward(api_case *c, const attn_options *options)
{
    attn_problem p = c->problem;
    attn_tensors tensors = c->tensors;
    attn_call call = c->call;
    attn_plan *plan = NULL;
    attn_error error;
    if (p.op == ATTN_FORWARD) return 1;
    p.op = ATTN_FORWARD;
    call.modify_slopes = NULL;
    tensors.call = &call;
    for (int t = 0; t < c->count; t++) {
        attn_output *slot = case_slot(&tensors, c, t);
        if (c->about[t].role[ATTN_FORWARD] == ATTN_ROLE_NONE) memset(slot, 0, sizeof *slot);
    }
    attn_status status = attn_plan_create(&plan, &p, &tensors, options, &error);
    if (status == ATTN_OK) {
        const size_t need = attn_plan_workspace_size(plan);
        void *workspace = malloc(need + 1);
        if (!workspace) abort();
        status = attn_execute(plan, &tensors, workspace, need, &error);
        free(workspace);
    }
    attn_plan_destroy(plan);
    check_error(status, &error);
    return status == ATTN_OK;
}
