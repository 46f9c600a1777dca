/* SPDX-License-Identifier: MIT
 * embedded_run.c - running an operation on sequences, and comparing the outputs of one of them. */
#include "embedded.h"

static attn_output slot_of(const embedded *e, int t)
{
    const memory_layout layout = layout_of(e, t);
    attn_output slot = {e->data[t], layout.dtype, {0}};
    memcpy(slot.stride, layout.stride, sizeof slot.stride);
    return slot;
}

static attn_input input_of(const embedded *e, int t)
{
    const attn_output slot = slot_of(e, t);
    attn_input input = {slot.data, slot.dtype, {0}};
    memcpy(input.stride, slot.stride, sizeof input.stride);
    return input;
}

static void point_at_sequences(const embedded *e, attn_tensors *t)
{
    if (e->where == PACKED) {
        t->cu_seqlens_q = attn_in(e->cu_q);
        t->cu_seqlens_kv = attn_in(e->cu_kv);
    } else if (e->where == PAGED) {
        t->lengths_q = (attn_input){e->narrow_q, ATTN_I32, {0}};
        t->lengths_kv = (attn_input){e->narrow_kv, ATTN_I32, {0}};
        t->page_table = (attn_input){e->pages, ATTN_I32, {pages_of(e), 0, 0, 1}};
    } else if (e->where != PLAIN) {
        t->lengths_q = attn_in(e->len_q);
        t->lengths_kv = attn_in(e->len_kv);
    }
}

static void point_at_options(embedded *e, attn_tensors *t)
{
    const int first = e->problem.op == ATTN_BACKWARD, n = e->uses;
    if (n & SLOPES) t->alibi_slopes = attn_in(e->slopes);
    if (n & SINK) t->sink = attn_in(e->sink);
    if (n & MATRIX) t->score_matrix = attn_in(e->w);
    if (n & TABLE) t->bias_table = attn_in(e->table);
    if (n & RELATIVE) {
        const int64_t own = n & SHARED ? 0 : ROWS;
        t->relative_keys = (attn_input){e->relative_keys, ATTN_F32, {0, own * D, D, 1}};
        t->relative_values = (attn_input){e->relative_values, ATTN_F32, {0, own * e->of.dim_v, e->of.dim_v, 1}};
    }
    if (n & RELATIVE_QUERIES) t->relative_u = attn_in(e->u), t->relative_v = attn_in(e->v);
    if (first && e->problem.score.kind == ATTN_SCORE_DOT) t->grad_scale = attn_out(e->grad.scale);
    if (first && n & SLOPES) t->grad_alibi_slopes = attn_out(e->grad.slopes);
    if (first && n & SINK) t->grad_sink = attn_out(e->grad.sink);
    if (first && n & MATRIX) t->grad_score_matrix = attn_out(e->grad.w);
    if (first && n & TABLE) t->grad_bias_table = attn_out(e->grad.table);
    if (first && n & RELATIVE)
        t->grad_relative_keys = attn_out(e->grad.relative_keys), t->grad_relative_values = attn_out(e->grad.relative_values);
    if (first && n & RELATIVE_QUERIES) t->grad_relative_u = attn_out(e->grad.u), t->grad_relative_v = attn_out(e->grad.v);
}

static void point_at_bias(const embedded *e, attn_tensors *t)
{
    const attn_op op = e->problem.op;
    const attn_input bias = {e->bias, ATTN_F32, {e->long_q * e->long_kv, 0, e->long_kv, 1}};
    const attn_output out = {e->grad_bias, ATTN_F32, {e->long_q * e->long_kv, 0, e->long_kv, 1}};
    if (!(e->uses & BIAS)) return;
    t->bias = bias;
    if (op == ATTN_BACKWARD) t->grad_bias = out;
    if (op >= ATTN_JVP) t->tan_bias = bias, t->tan_bias.data = e->tan_bias;
    if (op == ATTN_DOUBLE_BACKWARD) t->second_bias = out, t->second_bias.data = e->second_bias;
}

static void point(embedded *e, attn_op op)
{
    attn_tensors *t = &e->tensors;
    const int alone = e->problem.score.normaliser >= ATTN_NORMALISER_SIGMOID;
    e->problem.op = op;
    *t = (attn_tensors){.struct_size = sizeof *t, .q = input_of(e, Q), .k = input_of(e, K), .v = input_of(e, V)};
    t->o = slot_of(e, O), t->lse = slot_of(e, LSE);
    if (op == ATTN_BACKWARD || op == ATTN_DOUBLE_BACKWARD) t->grad_o = input_of(e, GRAD_O);
    if (t->grad_o.data && !alone) t->grad_lse = input_of(e, GRAD_LSE);
    if (op == ATTN_BACKWARD) t->grad_q = slot_of(e, GRAD_Q), t->grad_k = slot_of(e, GRAD_K), t->grad_v = slot_of(e, GRAD_V);
    if (op >= ATTN_JVP) t->tan_q = input_of(e, TAN_Q), t->tan_k = input_of(e, TAN_K), t->tan_v = input_of(e, TAN_V);
    if (op == ATTN_JVP) t->tan_o = slot_of(e, TAN_O), t->tan_lse = slot_of(e, TAN_LSE);
    if (op == ATTN_DOUBLE_BACKWARD) {
        t->second_grad_o = slot_of(e, SECOND_GRAD_O), t->second_grad_lse = slot_of(e, SECOND_GRAD_LSE);
        t->second_q = slot_of(e, SECOND_Q), t->second_k = slot_of(e, SECOND_K), t->second_v = slot_of(e, SECOND_V);
    }
    point_at_sequences(e, t);
    point_at_options(e, t);
    point_at_bias(e, t);
}

int embedded_run(embedded *e, attn_op op, int threads)
{
    attn_options how = {.struct_size = sizeof how, .threads = threads};
    attn_plan *plan;
    attn_error error;
    point(e, op);
    const attn_status status = attn_plan_create(&plan, &e->problem, &e->tensors, &how, &error);
    if (status == ATTN_ERR_UNSUPPORTED && (op >= ATTN_JVP || e->where == PAGED)) return 0;
    if (status != ATTN_OK) fail_msg("%s: %s", place_names[e->where], error.message);
    const size_t size = attn_plan_workspace_size(plan);
    char *workspace = malloc(size + 1);
    assert_non_null(workspace);
    memset(workspace, 0xff, size);
    if (attn_execute(plan, &e->tensors, workspace, size, &error) != ATTN_OK)
        fail_msg("%s: %s", place_names[e->where], error.message);
    free(workspace);
    attn_plan_destroy(plan);
    return 1;
}

/* ---- comparing ---- */

/* The outputs of each operation. */
static const tensor written[4][6] = {{O, LSE, TENSORS},
                                     {GRAD_Q, GRAD_K, GRAD_V, TENSORS},
                                     {TAN_O, TAN_LSE, TENSORS},
                                     {SECOND_GRAD_O, SECOND_GRAD_LSE, SECOND_Q, SECOND_K, SECOND_V, TENSORS}};

static int differs(const embedded *x, const embedded *y, int t)
{
    const size_t bytes = (size_t)dim_of(x, t) * attn_dtype_size(type_of(x, t));
    int count = 0;
    for (int64_t h = 0; h < heads_of(x, t); h++)
        for (int64_t i = 0; i < lengths_of(x, t)[x->own]; i++)
            count += memcmp(row_at(x, t, x->own, h, i), row_at(y, t, y->own, h, i), bytes) != 0;
    return count;
}

static int pairs_differ(const embedded *x, const float *a, const embedded *y, const float *b)
{
    int count = 0;
    for (int64_t i = 0; i < x->len_q[x->own]; i++)
        count += memcmp(a + (x->own * x->long_q + i) * x->long_kv, b + (y->own * y->long_q + i) * y->long_kv,
                        (size_t)x->len_kv[x->own] * sizeof *a) != 0;
    return count;
}

void embedded_compare(const embedded *x, const embedded *y, attn_op op, const char *name, int threads)
{
    int count = 0;
    for (int n = 0; written[op][n] != TENSORS; n++) {
        count += differs(x, y, (int)written[op][n]);
        if (count)
            fail_msg("%s, %s, operation %d, tensor %d, %d threads, %lld queries and %lld keys: %d rows differ", name,
                     place_names[y->where], (int)op, (int)written[op][n], threads, (long long)x->len_q[x->own],
                     (long long)x->len_kv[x->own], count);
    }
    if (op == ATTN_BACKWARD && x->uses & BIAS) count += pairs_differ(x, x->grad_bias, y, y->grad_bias);
    if (op == ATTN_DOUBLE_BACKWARD && x->uses & BIAS) count += pairs_differ(x, x->second_bias, y, y->second_bias);
    if (op == ATTN_BACKWARD && y->batch == 1) count += memcmp(&x->grad, &y->grad, sizeof x->grad) != 0;
    if (count)
        fail_msg("%s, %s, operation %d, %d threads, %lld queries and %lld keys: sums differ", name, place_names[y->where], (int)op,
                 threads, (long long)x->len_q[x->own], (long long)x->len_kv[x->own]);
}

void each_place(int option, attn_dtype dtype, const sizes *of)
{
    static const int thread_counts[] = {1, 2, 3, 8};
    embedded *x = embed(EXACT, dtype, of);
    options[option].set(x);
    int supported[4];
    for (int op = 0; op < 4; op++) supported[op] = embedded_run(x, (attn_op)op, 1);
    for (int where = EXACT; where < PLACES; where++) {
        embedded *y = embed((place)where, dtype, of);
        options[option].set(y);
        for (int op = 0; op < (where == PAGED ? 1 : 4); op++)
            for (int n = 0; n < 4 && supported[op]; n++) {
                if (of->mixed % 4 && op >= ATTN_JVP) continue;
                if ((where != PLAIN || of->mixed) && n != (where + option + op) % 4) continue;
                const int runs = embedded_run(y, (attn_op)op, thread_counts[n]);
                assert_true(runs || where == PAGED);
                if (runs) embedded_compare(x, y, (attn_op)op, options[option].name, thread_counts[n]);
            }
        destroy(y);
    }
    destroy(x);
}
