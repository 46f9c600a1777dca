/* SPDX-License-Identifier: MIT
 * predicted.c - see predicted.h. */
#include "predicted.h"

#include "test.h"

static const int64_t offsets[] = {20, -40};

const problem_case predicted[] = {
    {"dense", 64, 48, {0}, 0, 0, ATTN_F32, 0},
    {"a short last part", 61, 43, {0}, 0, 0, ATTN_F32, 0},
    {"causal", 64, 64, {.causal = 1}, 0, 0, ATTN_F64, 0},
    {"causal, 16 bits, a sink", 61, 61, {.causal = 1}, 1, 0, ATTN_BF16, 0},
    {"bottom right", 30, 61, {.causal = 1, .align = ATTN_ALIGN_BOTTOM_RIGHT}, 0, 0, ATTN_F32, 0},
    {"window", 64, 64, {.causal = 1, .window = 1, .window_left = 9, .window_right = 0}, 0, 0, ATTN_F32, 0},
    {"window both ways", 61, 64, {.window = 1, .window_left = 6, .window_right = 3}, 0, 0, ATTN_F32, 0},
    {"window and global keys",
     64,
     62,
     {.causal = 1, .window = 1, .window_left = 5, .window_right = 0, .global_kv = 6},
     0,
     0,
     ATTN_F32,
     0},
    {"window and global queries",
     64,
     62,
     {.window = 1, .window_left = 5, .window_right = 2, .global_q = 5, .global_kv = 3},
     0,
     0,
     ATTN_F32,
     0},
    {"chunks", 64, 64, {.chunk = 24}, 0, 0, ATTN_F32, 0},
    {"packed", 64, 64, {.causal = 1}, 0, 5, ATTN_F32, 0},
    {"packed, window", 64, 64, {.causal = 1, .window = 1, .window_left = 7, .window_right = 0}, 0, 5, ATTN_F32, 0},
    {"the mean of all", 61, 64, {.causal = 1, .window = 1, .window_left = 4, .empty = ATTN_EMPTY_UNIFORM}, 0, 0, ATTN_F32, 0},
    {"few queries", 3, 64, {.causal = 1, .align = ATTN_ALIGN_BOTTOM_RIGHT}, 0, 0, ATTN_F32, 0},
    {"a bias of all queries", 61, 64, {.causal = 1}, 1, 0, ATTN_F32, 1},
    {"a bias of all keys", 64, 61, {.causal = 1}, 0, 0, ATTN_F64, 2},
    {"a bias of a head and all queries", 61, 43, {.causal = 1}, 0, 0, ATTN_F32, 3},
    {"a bias of a head and all keys", 61, 43, {0}, 0, 0, ATTN_F32, 4},
    {"a bias of each head", 61, 43, {.causal = 1}, 0, 0, ATTN_F32, 5},
    {"a bias of all heads", 61, 43, {0}, 0, 0, ATTN_F32, 6},
    {"no queries", 0, 64, {0}, 0, 0, ATTN_F32, 0},
    {"rows of a sink alone", 64, 20, {.causal = 1, .align = ATTN_ALIGN_BOTTOM_RIGHT}, 1, 0, ATTN_F32, 0},
    {"a later entry begins before", 64, 34, {.window = 1, .window_left = 3, .window_right = 0, .global_kv = 3}, 0, -1, ATTN_F32, 0},
    {"no keys, a sink", 16, 0, {0}, 1, 0, ATTN_F32, 0},
    {"no keys", 16, 0, {0}, 0, 0, ATTN_F32, 0},
    {"no heads, a sink", 61, 43, {.causal = 1}, -1, 0, ATTN_F32, 0},
};

const int predicted_count = sizeof predicted / sizeof *predicted;

const attn_split_machine predicted_machine = {
    .struct_size = sizeof predicted_machine, .flops_per_second = 5e12, .bytes_per_second = 25e9, .seconds_per_message = 5e-6};

static const int64_t starts[] = {0, 5, 6, 30, 31, 64};

attn_problem predicted_problem(const problem_case *c, attn_op op)
{
    attn_problem p = {.struct_size = sizeof p,
                      .op = op,
                      .shape = {c->documents < 0 ? 2
                                : c->documents   ? c->documents
                                                 : 1,
                                PREDICTED_HEADS, PREDICTED_HEADS_KV, c->queries, c->keys, PREDICTED_DIM, PREDICTED_DIM},
                      .mask = c->mask};
    if (c->has_sink < 0) p.shape.heads_q = p.shape.heads_kv = 0;
    return p;
}

static attn_input slot(int64_t rows, attn_dtype dtype)
{
    return (attn_input){.data = rows ? ATTN_LATER : ATTN_EMPTY, .dtype = dtype};
}
static attn_output output(int64_t rows, attn_dtype dtype)
{
    return (attn_output){.data = rows ? ATTN_LATER : ATTN_EMPTY, .dtype = dtype};
}

/* Results of forward that take two runs, or all cells, in those of the problems that have a bias, a sink or packed sequences. */
static void add_outputs(const problem_case *c, int64_t queries, int64_t keys, attn_tensors *t)
{
    if (c->bias == 1 || c->bias == 3 || c->bias == 6) t->weights = output(queries, c->dtype);
    if (c->bias == 2 || c->bias == 3 || c->has_sink || c->documents > 0) t->column_sum = output(keys, ATTN_DTYPE_DEFAULT);
    if (c->bias == 4) t->scores = output(queries, c->dtype);
    if (c->bias == 5) t->dropout_keep = output(queries, ATTN_DTYPE_DEFAULT);
}

attn_tensors predicted_tensors(const problem_case *c, attn_op op, int64_t queries, int64_t keys)
{
    const attn_dtype statistics = c->dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    attn_tensors t = {.struct_size = sizeof t, .q = slot(queries, c->dtype), .k = slot(keys, c->dtype), .v = slot(keys, c->dtype)};
    if (c->has_sink) t.sink = slot(1, ATTN_F32);
    if (c->documents < 0) t.offset_q = (attn_input){.data = offsets, .dtype = ATTN_I64};
    if (c->bias && op != ATTN_JVP) {
        const int of_queries = c->bias == 1 || c->bias == 3, of_keys = c->bias == 2 || c->bias == 4;
        const int64_t wide = of_queries ? ATTN_BROADCAST : of_keys ? 1 : c->keys, next = of_keys ? ATTN_BROADCAST : 1;
        const int64_t head =
            c->bias < 3 || c->bias == 6 ? ATTN_BROADCAST : (of_queries ? 1 : (queries > 0 ? queries : 1)) * c->keys;
        t.bias = (attn_input){queries ? ATTN_LATER : ATTN_EMPTY, statistics, {ATTN_BROADCAST, head, wide, next}};
        if (op == ATTN_BACKWARD && c->bias < 6) t.grad_bias = output(of_queries ? 1 : queries, statistics);
        if (op == ATTN_DOUBLE_BACKWARD && c->bias < 6) t.second_bias = output(of_queries ? 1 : queries, statistics);
    }
    if (c->documents > 0) {
        t.cu_seqlens_q = t.cu_seqlens_kv = (attn_input){.data = starts, .dtype = ATTN_I64};
    }
    if (op == ATTN_FORWARD) t.o = output(queries, c->dtype);
    if (op == ATTN_FORWARD) add_outputs(c, queries, keys, &t);
    if (op == ATTN_BACKWARD) {
        t.o = output(queries, c->dtype), t.lse = output(queries, statistics);
        t.grad_o = slot(queries, c->dtype);
        t.grad_q = output(queries, c->dtype), t.grad_k = output(keys, c->dtype), t.grad_v = output(keys, c->dtype);
        if (c->bias == 1) t.grad_bias = output(queries, ATTN_F32);
        if (c->has_sink) t.grad_sink = output(1, ATTN_F32);
    }
    if (op == ATTN_JVP) {
        t.o = output(queries, c->dtype), t.lse = output(queries, statistics);
        t.tan_q = slot(queries, c->dtype), t.tan_k = slot(keys, c->dtype), t.tan_v = slot(keys, c->dtype);
        t.tan_o = output(queries, c->dtype);
    }
    if (op == ATTN_DOUBLE_BACKWARD) {
        t.o = output(queries, c->dtype), t.lse = output(queries, statistics);
        t.grad_o = slot(queries, c->dtype), t.tan_q = slot(queries, c->dtype), t.tan_k = slot(keys, c->dtype);
        t.second_grad_o = output(queries, c->dtype), t.second_q = output(queries, c->dtype);
        t.second_k = output(keys, c->dtype), t.second_v = output(keys, c->dtype);
    }
    return t;
}

attn_split_prediction predicted_by(const problem_case *c, attn_op op, const attn_split *split, int ranks, attn_split_machine m)
{
    attn_split_prediction got = {.struct_size = sizeof got};
    const attn_problem p = predicted_problem(c, op);
    const attn_tensors t = predicted_tensors(c, op, c->queries, c->keys);
    attn_error error;
    if (attn_split_predict(&p, ranks, &t, split, &m, &got, &error) != ATTN_OK) fail_msg("%s: %s", c->name, error.message);
    return got;
}
