/* SPDX-License-Identifier: MIT
 * linear_ragged.c - a case of linear attention once more as a ragged batch, forward with its states in a pool: the same bits. */
#include <stdlib.h>
#include <string.h>

#include "linear_case.h"

enum { UNTOUCHED = 0x7b, EXTRA_ROWS = 2 };

typedef struct packed {
    const linear_case *c;
    int64_t starts[8], rows; /* rows of the pool */
    int32_t slots[8];
    unsigned char *memory[L_TENSORS];
} packed;

static int has_tokens(const linear_case *c, int t)
{
    return c->about[t].axes[2] == ATTN_AXIS_QUERY || c->about[t].axes[2] == ATTN_AXIS_KEY;
}

static int is_state(int t) { return t == L_S0 || t == L_Z0 || t == L_S1 || t == L_Z1; }

/* Entry e, head h, row i of tensor t: its elements lie one after the other. */
static unsigned char *row_of(const packed *x, int t, int64_t e, int64_t h, int64_t i)
{
    const block *b = &x->c->blocks[t];
    int64_t row = (e * b->shape[1] + h) * b->shape[2] + i;
    if (has_tokens(x->c, t)) row = (x->starts[e] + i) * b->shape[1] + h;
    else if (is_state(t)) row = (x->slots[e] * b->shape[1] + h) * b->shape[2] + i;
    return x->memory[t] + (size_t)(row * b->shape[3]) * b->element;
}

/* Copies elements of the case's tensor, or compares them (from: 0). */
static void each_element(const packed *x, int t, int from)
{
    const block *b = &x->c->blocks[t];
    for (int64_t e = 0; e < b->shape[0]; e++) {
        const int64_t rows = has_tokens(x->c, t) ? x->starts[e + 1] - x->starts[e] : b->shape[2];
        for (int64_t h = 0; h < b->shape[1]; h++)
            for (int64_t i = 0; i < rows; i++)
                for (int64_t k = 0; k < b->shape[3]; k++) {
                    unsigned char *at = row_of(x, t, e, h, i) + (size_t)k * b->element;
                    if (from) memcpy(at, block_at(b, e, h, i, k), b->element);
                    else if (memcmp(at, block_at(b, e, h, i, k), b->element) != 0)
                        finding("ragged: %s[%lld,%lld,%lld,%lld] differs", b->name, (long long)e, (long long)h, (long long)i,
                                (long long)k);
                }
    }
}

static void place(packed *x, attn_linear_tensors *tensors, int t)
{
    const block *b = &x->c->blocks[t];
    const int64_t entries = has_tokens(x->c, t) ? 1 : is_state(t) ? x->rows : b->shape[0];
    const int64_t rows = has_tokens(x->c, t) ? x->starts[x->c->problem.shape.batch] : b->shape[2];
    const size_t bytes = (size_t)(entries * rows * b->shape[1] * b->shape[3]) * b->element;
    x->memory[t] = malloc(bytes + 1);
    if (!x->memory[t]) abort();
    memset(x->memory[t], UNTOUCHED, bytes + 1);
    *linear_slot(tensors, x->c, t) = (attn_output){x->memory[t], b->dtype, {0, 0, 0, 0}};
    if (!b->output) each_element(x, t, 1);
}

void linear_ragged(const linear_case *c, const attn_linear_plan *plan)
{
    packed x = {.c = c};
    attn_linear_problem p = c->problem;
    attn_linear_tensors tensors = c->tensors;
    attn_linear_plan_description about = {.struct_size = sizeof about};
    attn_error error;
    if (p.shape.batch > 6 || p.shape.len_q != p.shape.len_kv) return;
    if (!p.causal && linear_has(c, L_LENGTHS)) return; /* whose queries are not cut */
    if (attn_linear_plan_describe(plan, &about, &error)) finding("a plan has no description: %s", error.message);
    p.form = about.form; /* a ragged batch chooses it otherwise */
    x.rows = p.shape.batch + (p.op == ATTN_FORWARD ? EXTRA_ROWS : 0);
    for (int64_t e = 0; e < p.shape.batch; e++) {
        x.starts[e + 1] = x.starts[e] + linear_length(c, e);
        x.slots[e] = (int32_t)(p.op == ATTN_FORWARD ? x.rows - 1 - e : e);
    }
    for (int t = 0; t < L_TENSORS; t++)
        if (linear_has(c, t) && t != L_OMEGA && t != L_LENGTHS) place(&x, &tensors, t);
    memset(&tensors.lengths, 0, sizeof tensors.lengths);
    tensors.cu_seqlens = attn_in(x.starts);
    if (p.op == ATTN_FORWARD && linear_has(c, L_S0)) tensors.initial_slots = (attn_input){x.slots, ATTN_I32, {0, 0, 0, 0}};
    if (p.op == ATTN_FORWARD && linear_has(c, L_S1)) tensors.final_slots = (attn_input){x.slots, ATTN_I32, {0, 0, 0, 0}};
    if (tensors.initial_slots.data || tensors.final_slots.data) p.pool = x.rows;
    attn_linear_plan *ragged = linear_plan(c, &p, &tensors, &c->options, &error);
    if (!ragged) finding("ragged: rejected: %s", error.message);
    const size_t size = attn_linear_plan_workspace_size(ragged);
    unsigned char *workspace = malloc(size + 1);
    if (!workspace) abort();
    memset(workspace, 0xFF, size + 1);
    if (attn_linear_execute(ragged, &tensors, workspace, size, &error)) finding("ragged: rejected: %s", error.message);
    for (int t = 0; t < L_TENSORS; t++)
        if (x.memory[t] && c->blocks[t].output) each_element(&x, t, 0);
    for (int64_t row = 0; row < EXTRA_ROWS && x.memory[L_S1]; row++) { /* which are no sequence's */
        const block *b = &c->blocks[L_S1];
        const size_t bytes = (size_t)(b->shape[1] * b->shape[2] * b->shape[3]) * b->element;
        for (size_t i = 0; i < bytes; i++)
            if (x.memory[L_S1][(size_t)row * bytes + i] != UNTOUCHED) finding("ragged: row %d of the pool is written", (int)row);
    }
    attn_linear_plan_destroy(ragged);
    free(workspace);
    for (int t = 0; t < L_TENSORS; t++) free(x.memory[t]);
}
