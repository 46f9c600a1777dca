/* SPDX-License-Identifier: MIT
 *
 * attention_tensors.c - the table of attn_tensors: what each operation does with each tensor, its axes, types and rules, and its
 * shape.  A new tensor needs a line in base/slots.def, its slot in attn.h, a row and, if its axes do not determine its shape, a
 * case in attn_attention_shape.
 */
#include <stdint.h>

#include "../base/checked.h"
#include "../task/walk.h"
#include "plan.h"
#include "tensors.h"

/* Roles and needs in ATTN_FORWARD, ATTN_BACKWARD, ATTN_JVP, ATTN_DOUBLE_BACKWARD. */
#define NOT   ATTN_ROLE_NONE
#define IN    ATTN_ROLE_INPUT
#define OUT   ATTN_ROLE_OUTPUT
#define NEVER ATTN_NEED_NEVER
#define MAY   ATTN_NEED_OPTIONAL
#define MUST  ATTN_NEED_ALWAYS
/* clang-format off */
#define READ_ALWAYS          {IN, IN, IN, IN}, {MUST, MUST, MUST, MUST}
#define READ                 {IN, IN, IN, IN}, {MAY, MAY, MAY, MAY}
#define RESULT               {OUT, IN, IN, IN}, {MUST, MUST, MUST, MUST}
#define RESULT_LSE           {OUT, IN, IN, IN}, {MAY, MUST, MUST, MUST}
#define FORWARD_WRITES       {OUT, NOT, NOT, NOT}, {MAY, NEVER, NEVER, NEVER}
#define FORWARD_READS        {IN, NOT, NOT, NOT}, {MAY, NEVER, NEVER, NEVER}
#define FIRST_ORDER_READS    {IN, IN, NOT, NOT}, {MAY, MAY, NEVER, NEVER}
#define GRADIENT_READ        {NOT, IN, NOT, IN}, {NEVER, MUST, NEVER, MUST}
#define GRADIENT_MAYBE_READ  {NOT, IN, NOT, IN}, {NEVER, MAY, NEVER, MAY}
#define BACKWARD_MUST_WRITE  {NOT, OUT, NOT, NOT}, {NEVER, MUST, NEVER, NEVER}
#define BACKWARD_WRITES      {NOT, OUT, NOT, NOT}, {NEVER, MAY, NEVER, NEVER}
#define TANGENT_READ         {NOT, NOT, IN, IN}, {NEVER, NEVER, MAY, MAY}
#define JVP_MUST_WRITE       {NOT, NOT, OUT, IN}, {NEVER, NEVER, MUST, MAY}
#define JVP_WRITES           {NOT, NOT, OUT, IN}, {NEVER, NEVER, MAY, MAY}
#define GRADGRAD_MUST_WRITE  {NOT, NOT, NOT, OUT}, {NEVER, NEVER, NEVER, MUST}
#define GRADGRAD_WRITES      {NOT, NOT, NOT, OUT}, {NEVER, NEVER, NEVER, MAY}
#define Q_AXES               {ATTN_AXIS_BATCH, ATTN_AXIS_HEAD_Q, ATTN_AXIS_QUERY, ATTN_AXIS_DIM_QK}
#define K_AXES               {ATTN_AXIS_BATCH, ATTN_AXIS_HEAD_KV, ATTN_AXIS_KEY, ATTN_AXIS_DIM_K}
#define V_AXES               {ATTN_AXIS_BATCH, ATTN_AXIS_HEAD_KV, ATTN_AXIS_KEY, ATTN_AXIS_DIM_V}
#define O_AXES               {ATTN_AXIS_BATCH, ATTN_AXIS_HEAD_Q, ATTN_AXIS_QUERY, ATTN_AXIS_DIM_V}
#define ROW_AXES             {ATTN_AXIS_BATCH, ATTN_AXIS_HEAD_Q, ATTN_AXIS_QUERY, ATTN_AXIS_ONE}
#define PAIR_AXES            {ATTN_AXIS_BATCH, ATTN_AXIS_HEAD_Q, ATTN_AXIS_QUERY, ATTN_AXIS_KEY}
#define HEAD_AXES            {ATTN_AXIS_ONE, ATTN_AXIS_HEAD_Q, ATTN_AXIS_ONE, ATTN_AXIS_ONE}
#define ENTRY_AXES           {ATTN_AXIS_BATCH, ATTN_AXIS_ONE, ATTN_AXIS_ONE, ATTN_AXIS_ONE}
#define LIST_AXES            {ATTN_AXIS_LIST, ATTN_AXIS_ONE, ATTN_AXIS_ONE, ATTN_AXIS_ONE}

static const attn_tensor_row rows[] = {
    [ATTN_SLOT_q] = {"q", READ_ALWAYS, Q_AXES, ATTN_TYPE_QUERY, ATTN_LAST_CONTIGUOUS | ATTN_PACKED, -1, -1},
    [ATTN_SLOT_k] = {"k", READ_ALWAYS, K_AXES, ATTN_TYPE_KEY, ATTN_LAST_CONTIGUOUS | ATTN_PACKED, -1, -1},
    [ATTN_SLOT_v] = {"v", READ_ALWAYS, V_AXES, ATTN_TYPE_KEY, ATTN_LAST_CONTIGUOUS | ATTN_PACKED, -1, -1},
    [ATTN_SLOT_o] = {"o", RESULT, O_AXES, ATTN_TYPE_SAME, ATTN_LAST_CONTIGUOUS | ATTN_PACKED, -1, -1},
    [ATTN_SLOT_lse] = {"lse", RESULT_LSE, ROW_AXES, ATTN_TYPE_COMPUTE, ATTN_PACKED, -1, -1},
    [ATTN_SLOT_weights] = {"weights", FORWARD_WRITES, PAIR_AXES, ATTN_TYPE_STORED, ATTN_LAST_CONTIGUOUS, -1, -1},
    [ATTN_SLOT_mask] = {"mask", READ, PAIR_AXES, ATTN_TYPE_BYTE, 0, -1, -1},
    [ATTN_SLOT_bias] = {"bias", READ, PAIR_AXES, ATTN_TYPE_FLOAT, 0, -1, -1},
    [ATTN_SLOT_lengths_q] = {"lengths_q", READ, ENTRY_AXES, ATTN_TYPE_INDEX, ATTN_DENSE, -1, -1},
    [ATTN_SLOT_lengths_kv] = {"lengths_kv", READ, ENTRY_AXES, ATTN_TYPE_INDEX, ATTN_DENSE, -1, -1},
    [ATTN_SLOT_cu_seqlens_q] = {"cu_seqlens_q", READ, LIST_AXES, ATTN_TYPE_INDEX, ATTN_DENSE, -1, -1},
    [ATTN_SLOT_cu_seqlens_kv] = {"cu_seqlens_kv", READ, LIST_AXES, ATTN_TYPE_INDEX, ATTN_DENSE, -1, -1},
    [ATTN_SLOT_offset_q] = {"offset_q", READ, ENTRY_AXES, ATTN_TYPE_INDEX, ATTN_DENSE, -1, -1},
    [ATTN_SLOT_ranges] = {"ranges", READ, {ATTN_AXIS_BATCH, ATTN_AXIS_HEAD_Q, ATTN_AXIS_QUERY, ATTN_AXIS_LIST}, ATTN_TYPE_INDEX, 0, -1, -1},
    [ATTN_SLOT_block_mask] = {"block_mask", READ, {ATTN_AXIS_BATCH, ATTN_AXIS_HEAD_Q, ATTN_AXIS_BLOCK_Q, ATTN_AXIS_BLOCK_KV}, ATTN_TYPE_BYTE, 0, -1, -1},
    [ATTN_SLOT_block_starts] = {"block_starts", READ, LIST_AXES, ATTN_TYPE_INDEX, ATTN_DENSE, -1, -1},
    [ATTN_SLOT_block_index] = {"block_index", READ, LIST_AXES, ATTN_TYPE_INDEX, ATTN_DENSE, -1, -1},
    [ATTN_SLOT_page_table] = {"page_table", FORWARD_READS, {ATTN_AXIS_BATCH, ATTN_AXIS_ONE, ATTN_AXIS_ONE, ATTN_AXIS_PAGE}, ATTN_TYPE_INDEX, ATTN_LAST_CONTIGUOUS, -1, -1},
    [ATTN_SLOT_k_scale] = {"k_scale", FORWARD_READS, {ATTN_AXIS_BATCH, ATTN_AXIS_HEAD_KV, ATTN_AXIS_KEY, ATTN_AXIS_ONE}, ATTN_TYPE_F32, ATTN_PACKED, -1, -1},
    [ATTN_SLOT_v_scale] = {"v_scale", FORWARD_READS, {ATTN_AXIS_BATCH, ATTN_AXIS_HEAD_KV, ATTN_AXIS_KEY, ATTN_AXIS_ONE}, ATTN_TYPE_F32, ATTN_PACKED, -1, -1},
    [ATTN_SLOT_scale] = {"scale", READ, HEAD_AXES, ATTN_TYPE_COMPUTE, ATTN_DENSE, -1, -1},
    [ATTN_SLOT_score_matrix] = {"score_matrix", FIRST_ORDER_READS, {ATTN_AXIS_ONE, ATTN_AXIS_HEAD_Q, ATTN_AXIS_LIST, ATTN_AXIS_DIM_K}, ATTN_TYPE_FLOAT, ATTN_BROADCAST_HEAD, -1, -1},
    [ATTN_SLOT_alibi_slopes] = {"alibi_slopes", READ, {ATTN_AXIS_BATCH, ATTN_AXIS_HEAD_Q, ATTN_AXIS_ONE, ATTN_AXIS_ONE}, ATTN_TYPE_COMPUTE, ATTN_BROADCAST_BATCH, -1, -1},
    [ATTN_SLOT_sink] = {"sink", READ, HEAD_AXES, ATTN_TYPE_COMPUTE, ATTN_DENSE, -1, -1},
    [ATTN_SLOT_bias_table] = {"bias_table", READ, {ATTN_AXIS_ONE, ATTN_AXIS_HEAD_Q, ATTN_AXIS_BUCKET, ATTN_AXIS_ONE}, ATTN_TYPE_FLOAT, 0, -1, -1},
    [ATTN_SLOT_relative_keys] = {"relative_keys", FIRST_ORDER_READS, {ATTN_AXIS_ONE, ATTN_AXIS_HEAD_Q, ATTN_AXIS_DISTANCE, ATTN_AXIS_DIM_QK}, ATTN_TYPE_FLOAT, ATTN_LAST_CONTIGUOUS, -1, -1},
    [ATTN_SLOT_relative_values] = {"relative_values", FIRST_ORDER_READS, {ATTN_AXIS_ONE, ATTN_AXIS_HEAD_Q, ATTN_AXIS_DISTANCE, ATTN_AXIS_DIM_V}, ATTN_TYPE_FLOAT, ATTN_LAST_CONTIGUOUS, -1, -1},
    [ATTN_SLOT_relative_u] = {"relative_u", FIRST_ORDER_READS, {ATTN_AXIS_ONE, ATTN_AXIS_HEAD_Q, ATTN_AXIS_ONE, ATTN_AXIS_DIM_QK}, ATTN_TYPE_COMPUTE, ATTN_DENSE, -1, -1},
    [ATTN_SLOT_relative_v] = {"relative_v", FIRST_ORDER_READS, {ATTN_AXIS_ONE, ATTN_AXIS_HEAD_Q, ATTN_AXIS_ONE, ATTN_AXIS_DIM_QK}, ATTN_TYPE_COMPUTE, ATTN_DENSE, -1, -1},
    [ATTN_SLOT_dropout_given] = {"dropout_given", READ, PAIR_AXES, ATTN_TYPE_BYTE, 0, -1, -1},
    [ATTN_SLOT_scores] = {"scores", FORWARD_WRITES, PAIR_AXES, ATTN_TYPE_STORED, ATTN_LAST_CONTIGUOUS, -1, -1},
    [ATTN_SLOT_dropout_keep] = {"dropout_keep", FORWARD_WRITES, PAIR_AXES, ATTN_TYPE_BYTE, ATTN_LAST_CONTIGUOUS, -1, -1},
    [ATTN_SLOT_row_max] = {"row_max", FORWARD_WRITES, ROW_AXES, ATTN_TYPE_COMPUTE, ATTN_PACKED, -1, -1},
    [ATTN_SLOT_entropy] = {"entropy", FORWARD_WRITES, ROW_AXES, ATTN_TYPE_COMPUTE, ATTN_PACKED, -1, -1},
    [ATTN_SLOT_effective_keys] = {"effective_keys", FORWARD_WRITES, ROW_AXES, ATTN_TYPE_COMPUTE, ATTN_PACKED, -1, -1},
    [ATTN_SLOT_column_sum] = {"column_sum", FORWARD_WRITES, {ATTN_AXIS_BATCH, ATTN_AXIS_HEAD_Q, ATTN_AXIS_KEY, ATTN_AXIS_ONE}, ATTN_TYPE_COMPUTE, ATTN_PACKED, -1, -1},
    [ATTN_SLOT_topk_index] = {"topk_index", FORWARD_WRITES, {ATTN_AXIS_BATCH, ATTN_AXIS_HEAD_Q, ATTN_AXIS_QUERY, ATTN_AXIS_TOPK}, ATTN_TYPE_INDEX, ATTN_LAST_CONTIGUOUS | ATTN_PACKED, -1, -1},
    [ATTN_SLOT_topk_weight] = {"topk_weight", FORWARD_WRITES, {ATTN_AXIS_BATCH, ATTN_AXIS_HEAD_Q, ATTN_AXIS_QUERY, ATTN_AXIS_TOPK}, ATTN_TYPE_COMPUTE, ATTN_LAST_CONTIGUOUS | ATTN_PACKED, -1, -1},
    [ATTN_SLOT_grad_o] = {"grad_o", GRADIENT_READ, O_AXES, ATTN_TYPE_SAME, ATTN_LAST_CONTIGUOUS | ATTN_PACKED, ATTN_SLOT_o, -1},
    [ATTN_SLOT_grad_lse] = {"grad_lse", GRADIENT_MAYBE_READ, ROW_AXES, ATTN_TYPE_COMPUTE, ATTN_PACKED, ATTN_SLOT_lse, -1},
    [ATTN_SLOT_grad_q] = {"grad_q", BACKWARD_MUST_WRITE, Q_AXES, ATTN_TYPE_SAME, ATTN_LAST_CONTIGUOUS | ATTN_PACKED, ATTN_SLOT_q, -1},
    [ATTN_SLOT_grad_k] = {"grad_k", BACKWARD_MUST_WRITE, K_AXES, ATTN_TYPE_SAME, ATTN_LAST_CONTIGUOUS | ATTN_PACKED, ATTN_SLOT_k, -1},
    [ATTN_SLOT_grad_v] = {"grad_v", BACKWARD_MUST_WRITE, V_AXES, ATTN_TYPE_SAME, ATTN_LAST_CONTIGUOUS | ATTN_PACKED, ATTN_SLOT_v, -1},
    [ATTN_SLOT_grad_bias] = {"grad_bias", BACKWARD_WRITES, PAIR_AXES, ATTN_TYPE_FLOAT, ATTN_LAST_CONTIGUOUS, ATTN_SLOT_bias, -1},
    [ATTN_SLOT_grad_scale] = {"grad_scale", BACKWARD_WRITES, HEAD_AXES, ATTN_TYPE_COMPUTE, ATTN_DENSE | ATTN_GRADIENT_INDEPENDENT, ATTN_SLOT_scale, -1},
    [ATTN_SLOT_grad_score_matrix] = {"grad_score_matrix", BACKWARD_WRITES, {ATTN_AXIS_ONE, ATTN_AXIS_HEAD_Q, ATTN_AXIS_LIST, ATTN_AXIS_DIM_K}, ATTN_TYPE_FLOAT, ATTN_LAST_CONTIGUOUS, ATTN_SLOT_score_matrix, -1},
    [ATTN_SLOT_grad_alibi_slopes] = {"grad_alibi_slopes", BACKWARD_WRITES, {ATTN_AXIS_BATCH, ATTN_AXIS_HEAD_Q, ATTN_AXIS_ONE, ATTN_AXIS_ONE}, ATTN_TYPE_COMPUTE, ATTN_DENSE, ATTN_SLOT_alibi_slopes, -1},
    [ATTN_SLOT_grad_sink] = {"grad_sink", BACKWARD_WRITES, HEAD_AXES, ATTN_TYPE_COMPUTE, ATTN_DENSE, ATTN_SLOT_sink, -1},
    [ATTN_SLOT_grad_bias_table] = {"grad_bias_table", BACKWARD_WRITES, {ATTN_AXIS_ONE, ATTN_AXIS_HEAD_Q, ATTN_AXIS_BUCKET, ATTN_AXIS_ONE}, ATTN_TYPE_FLOAT, 0, ATTN_SLOT_bias_table, -1},
    [ATTN_SLOT_grad_relative_keys] = {"grad_relative_keys", BACKWARD_WRITES, {ATTN_AXIS_ONE, ATTN_AXIS_HEAD_Q, ATTN_AXIS_DISTANCE, ATTN_AXIS_DIM_QK}, ATTN_TYPE_FLOAT, ATTN_LAST_CONTIGUOUS, ATTN_SLOT_relative_keys, -1},
    [ATTN_SLOT_grad_relative_values] = {"grad_relative_values", BACKWARD_WRITES, {ATTN_AXIS_ONE, ATTN_AXIS_HEAD_Q, ATTN_AXIS_DISTANCE, ATTN_AXIS_DIM_V}, ATTN_TYPE_FLOAT, ATTN_LAST_CONTIGUOUS, ATTN_SLOT_relative_values, -1},
    [ATTN_SLOT_grad_relative_u] = {"grad_relative_u", BACKWARD_WRITES, {ATTN_AXIS_ONE, ATTN_AXIS_HEAD_Q, ATTN_AXIS_ONE, ATTN_AXIS_DIM_QK}, ATTN_TYPE_COMPUTE, ATTN_DENSE, ATTN_SLOT_relative_u, -1},
    [ATTN_SLOT_grad_relative_v] = {"grad_relative_v", BACKWARD_WRITES, {ATTN_AXIS_ONE, ATTN_AXIS_HEAD_Q, ATTN_AXIS_ONE, ATTN_AXIS_DIM_QK}, ATTN_TYPE_COMPUTE, ATTN_DENSE, ATTN_SLOT_relative_v, -1},
    [ATTN_SLOT_tan_q] = {"tan_q", TANGENT_READ, Q_AXES, ATTN_TYPE_SAME, ATTN_LAST_CONTIGUOUS | ATTN_PACKED, ATTN_SLOT_q, -1},
    [ATTN_SLOT_tan_k] = {"tan_k", TANGENT_READ, K_AXES, ATTN_TYPE_SAME, ATTN_LAST_CONTIGUOUS | ATTN_PACKED, ATTN_SLOT_k, -1},
    [ATTN_SLOT_tan_v] = {"tan_v", TANGENT_READ, V_AXES, ATTN_TYPE_SAME, ATTN_LAST_CONTIGUOUS | ATTN_PACKED, ATTN_SLOT_v, -1},
    [ATTN_SLOT_tan_bias] = {"tan_bias", TANGENT_READ, PAIR_AXES, ATTN_TYPE_FLOAT, 0, ATTN_SLOT_bias, -1},
    [ATTN_SLOT_tan_o] = {"tan_o", JVP_MUST_WRITE, O_AXES, ATTN_TYPE_SAME, ATTN_LAST_CONTIGUOUS | ATTN_PACKED, ATTN_SLOT_o, -1},
    [ATTN_SLOT_tan_lse] = {"tan_lse", JVP_WRITES, ROW_AXES, ATTN_TYPE_COMPUTE, ATTN_PACKED, ATTN_SLOT_lse, -1},
    [ATTN_SLOT_second_grad_o] = {"second_grad_o", GRADGRAD_WRITES, O_AXES, ATTN_TYPE_SAME, ATTN_LAST_CONTIGUOUS | ATTN_PACKED, ATTN_SLOT_grad_o, -1},
    [ATTN_SLOT_second_q] = {"second_q", GRADGRAD_MUST_WRITE, Q_AXES, ATTN_TYPE_SAME, ATTN_LAST_CONTIGUOUS | ATTN_PACKED, ATTN_SLOT_q, -1},
    [ATTN_SLOT_second_k] = {"second_k", GRADGRAD_MUST_WRITE, K_AXES, ATTN_TYPE_SAME, ATTN_LAST_CONTIGUOUS | ATTN_PACKED, ATTN_SLOT_k, -1},
    [ATTN_SLOT_second_v] = {"second_v", GRADGRAD_MUST_WRITE, V_AXES, ATTN_TYPE_SAME, ATTN_LAST_CONTIGUOUS | ATTN_PACKED, ATTN_SLOT_v, -1},
    [ATTN_SLOT_second_bias] = {"second_bias", GRADGRAD_WRITES, PAIR_AXES, ATTN_TYPE_FLOAT, ATTN_LAST_CONTIGUOUS, ATTN_SLOT_bias, -1},
    [ATTN_SLOT_second_grad_lse] = {"second_grad_lse", GRADGRAD_WRITES, ROW_AXES, ATTN_TYPE_COMPUTE, ATTN_PACKED | ATTN_GRADIENT_INDEPENDENT, ATTN_SLOT_grad_lse, -1},
    [ATTN_SLOT_page_starts] = {"page_starts", FORWARD_READS, LIST_AXES, ATTN_TYPE_INDEX, ATTN_DENSE, -1, -1},
    [ATTN_SLOT_page_index] = {"page_index", FORWARD_READS, LIST_AXES, ATTN_TYPE_INDEX, ATTN_DENSE, -1, -1},
    [ATTN_SLOT_lengths_last_page] = {"lengths_last_page", FORWARD_READS, ENTRY_AXES, ATTN_TYPE_INDEX, ATTN_DENSE, -1, -1},
    [ATTN_SLOT_tree] = {"tree", FORWARD_READS, {ATTN_AXIS_BATCH, ATTN_AXIS_ONE, ATTN_AXIS_QUERY, ATTN_AXIS_WORD}, ATTN_TYPE_WORD, ATTN_LAST_CONTIGUOUS | ATTN_PACKED, -1, -1},
    [ATTN_SLOT_k_tail] = {"k_tail", FORWARD_READS, {ATTN_AXIS_BATCH, ATTN_AXIS_HEAD_KV, ATTN_AXIS_LIST, ATTN_AXIS_DIM_K}, ATTN_TYPE_F16, ATTN_LAST_CONTIGUOUS, -1, -1},
};
/* clang-format on */
_Static_assert(sizeof rows / sizeof *rows == ATTN_SLOTS && (int)ATTN_SLOTS <= (int)ATTN_MAX_TENSORS, "a row for each slot");
#define INPUT(name)                                                                                                                \
    _Static_assert(offsetof(attn_tensors, name) == sizeof(attn_tensors_head) + ATTN_SLOT_##name * sizeof(attn_input), #name);
#define OUTPUT(name) INPUT(name)
#include "../base/slots.def"
#undef INPUT
#undef OUTPUT

static const char *const operations[] = {"ATTN_FORWARD", "ATTN_BACKWARD", "ATTN_JVP", "ATTN_DOUBLE_BACKWARD"};

_Static_assert(ATTN_SLOT_q == 0, "resolve.c names it as the tensor on whose type others depend");

const attn_tensor_family attn_attention_family = {rows, ATTN_SLOTS, "attn_tensors", operations};

static int64_t axis_size(const attn_resolved *p, attn_axis axis)
{
    const int64_t *plain = attn_axis_of_shape(&p->shape, axis);
    if (plain) return *plain;
    switch (axis) {
    case ATTN_AXIS_DIM_K:
        return attn_problem_dim_k(p);
    case ATTN_AXIS_BLOCK_Q:
        return attn_ceil_div(p->shape.len_q, attn_max(p->mask.block_q, 1));
    case ATTN_AXIS_BLOCK_KV:
        return attn_ceil_div(p->shape.len_kv, attn_max(p->mask.block_kv, 1));
    case ATTN_AXIS_PAGE:
        return attn_ceil_div(p->shape.len_kv, attn_max(p->paging.page_size, 1));
    case ATTN_AXIS_BUCKET:
        return p->bias_table.buckets;
    case ATTN_AXIS_DISTANCE:
        return p->relative.rows;
    case ATTN_AXIS_TOPK:
        return p->outputs.topk;
    case ATTN_AXIS_WORD:
        return attn_ceil_div(p->mask.tree_keys, 64);
    default:
        return 1;
    }
}

void attn_attention_shape(const void *problem, int number, int64_t shape[4])
{
    const attn_resolved *p = problem;
    const attn_tensor_row *row = &rows[number];
    int64_t matrix[2];
    for (int axis = 0; axis < 4; axis++) shape[axis] = axis_size(p, row->axes[axis]);
    if (row->flags & ATTN_PACKED && (row->axes[2] == ATTN_AXIS_KEY ? attn_keys_are_packed(p) : attn_is_packed(p))) shape[0] = 1;
    switch (number) {
    case ATTN_SLOT_k:
    case ATTN_SLOT_v:
    case ATTN_SLOT_k_scale:
    case ATTN_SLOT_v_scale:
        if (attn_is_paged(p)) shape[0] = p->paging.pages, shape[2] = p->paging.page_size;
        break;
    case ATTN_SLOT_cu_seqlens_q:
    case ATTN_SLOT_cu_seqlens_kv:
    case ATTN_SLOT_page_starts:
        shape[0] = p->shape.batch + 1;
        break;
    case ATTN_SLOT_block_starts:
        shape[0] = attn_block_lists(p) + 1;
        break;
    case ATTN_SLOT_block_index:
        shape[0] = p->mask.block_entries;
        break;
    case ATTN_SLOT_page_index:
        shape[0] = p->paging.page_entries;
        break;
    case ATTN_SLOT_ranges:
        shape[3] = 2;
        break;
    case ATTN_SLOT_k_tail:
        shape[2] = ATTN_TAIL;
        break;
    case ATTN_SLOT_score_matrix:
    case ATTN_SLOT_grad_score_matrix:
        attn_problem_matrix_shape(p, matrix);
        shape[2] = matrix[0], shape[3] = matrix[1];
        break;
    case ATTN_SLOT_column_sum:
        shape[1] = attn_column_heads(p);
        break;
    default:
        break;
    }
}
