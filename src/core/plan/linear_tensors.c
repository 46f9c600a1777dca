/* SPDX-License-Identifier: MIT
 * linear_tensors.c - the table of attn_linear_tensors, like that of attn_tensors in attention_tensors.c.  A new tensor needs a line
 * in base/linear_slots.def, its slot in attn/linear.h and a row here. */
#include <stddef.h>

#include "linear.h"
#include "tensors.h"

/* Roles and needs in ATTN_FORWARD and ATTN_BACKWARD; the other operations have none. */
#define NOT   ATTN_ROLE_NONE
#define IN    ATTN_ROLE_INPUT
#define OUT   ATTN_ROLE_OUTPUT
#define NEVER ATTN_NEED_NEVER
#define MAY   ATTN_NEED_OPTIONAL
#define MUST  ATTN_NEED_ALWAYS
/* clang-format off */
#define READ_ALWAYS   {IN, IN, NOT, NOT}, {MUST, MUST, NEVER, NEVER}
#define READ          {IN, IN, NOT, NOT}, {MAY, MAY, NEVER, NEVER}
#define RESULT        {OUT, IN, NOT, NOT}, {MUST, MAY, NEVER, NEVER}
#define RESULT_MAYBE  {OUT, IN, NOT, NOT}, {MAY, MAY, NEVER, NEVER}
#define FINAL         {OUT, NOT, NOT, NOT}, {MAY, NEVER, NEVER, NEVER}
#define FORWARD_READS {IN, NOT, NOT, NOT}, {MAY, NEVER, NEVER, NEVER}
#define GRADIENT_READ {NOT, IN, NOT, NOT}, {NEVER, MUST, NEVER, NEVER}
#define GRADIENT_MAYBE_READ {NOT, IN, NOT, NOT}, {NEVER, MAY, NEVER, NEVER}
#define MUST_WRITE    {NOT, OUT, NOT, NOT}, {NEVER, MUST, NEVER, NEVER}
#define WRITES        {NOT, OUT, NOT, NOT}, {NEVER, MAY, NEVER, NEVER}
#define Q_AXES        {ATTN_AXIS_BATCH, ATTN_AXIS_HEAD_Q, ATTN_AXIS_QUERY, ATTN_AXIS_DIM_QK}
#define K_AXES        {ATTN_AXIS_BATCH, ATTN_AXIS_HEAD_KV, ATTN_AXIS_KEY, ATTN_AXIS_DIM_QK}
#define V_AXES        {ATTN_AXIS_BATCH, ATTN_AXIS_HEAD_KV, ATTN_AXIS_KEY, ATTN_AXIS_DIM_V}
#define O_AXES        {ATTN_AXIS_BATCH, ATTN_AXIS_HEAD_Q, ATTN_AXIS_QUERY, ATTN_AXIS_DIM_V}
#define ROW_AXES      {ATTN_AXIS_BATCH, ATTN_AXIS_HEAD_Q, ATTN_AXIS_QUERY, ATTN_AXIS_ONE}
#define TOKEN_AXES    {ATTN_AXIS_BATCH, ATTN_AXIS_HEAD_KV, ATTN_AXIS_KEY, ATTN_AXIS_ONE}
#define FEATURE_AXES  {ATTN_AXIS_BATCH, ATTN_AXIS_HEAD_KV, ATTN_AXIS_KEY, ATTN_AXIS_FEATURE}
#define STATE_AXES    {ATTN_AXIS_BATCH, ATTN_AXIS_HEAD_KV, ATTN_AXIS_FEATURE, ATTN_AXIS_DIM_V}
#define SUM_AXES      {ATTN_AXIS_BATCH, ATTN_AXIS_HEAD_KV, ATTN_AXIS_FEATURE, ATTN_AXIS_ONE}
#define S(name)       ATTN_LINEAR_SLOT_##name

static const attn_tensor_row rows[] = {
    [S(q)] = {"q", READ_ALWAYS, Q_AXES, ATTN_TYPE_QUERY, ATTN_LAST_CONTIGUOUS | ATTN_PACKED, -1, -1},
    [S(k)] = {"k", READ_ALWAYS, K_AXES, ATTN_TYPE_SAME, ATTN_LAST_CONTIGUOUS | ATTN_PACKED, -1, -1},
    [S(v)] = {"v", READ_ALWAYS, V_AXES, ATTN_TYPE_SAME, ATTN_LAST_CONTIGUOUS | ATTN_PACKED, -1, -1},
    [S(o)] = {"o", RESULT, O_AXES, ATTN_TYPE_SAME, ATTN_LAST_CONTIGUOUS | ATTN_PACKED, -1, -1},
    [S(denominators)] = {"denominators", RESULT_MAYBE, ROW_AXES, ATTN_TYPE_COMPUTE, ATTN_PACKED, -1, -1},
    [S(feature_matrix)] = {"feature_matrix", READ, {ATTN_AXIS_ONE, ATTN_AXIS_ONE, ATTN_AXIS_LIST, ATTN_AXIS_DIM_QK}, ATTN_TYPE_COMPUTE, ATTN_DENSE, -1, -1},
    [S(decay)] = {"decay", READ, FEATURE_AXES, ATTN_TYPE_FLOAT, ATTN_PACKED, -1, -1},
    [S(beta)] = {"beta", READ, TOKEN_AXES, ATTN_TYPE_FLOAT, ATTN_PACKED, -1, -1},
    [S(erase)] = {"erase", READ, FEATURE_AXES, ATTN_TYPE_FLOAT, ATTN_LAST_CONTIGUOUS | ATTN_PACKED, -1, -1},
    [S(write)] = {"write", READ, FEATURE_AXES, ATTN_TYPE_FLOAT, ATTN_LAST_CONTIGUOUS | ATTN_PACKED, -1, -1},
    [S(lengths)] = {"lengths", READ, {ATTN_AXIS_BATCH, ATTN_AXIS_ONE, ATTN_AXIS_ONE, ATTN_AXIS_ONE}, ATTN_TYPE_INDEX, ATTN_DENSE, -1, -1},
    [S(initial_state)] = {"initial_state", READ, STATE_AXES, ATTN_TYPE_STORED, ATTN_LAST_CONTIGUOUS, -1, -1},
    [S(initial_sum)] = {"initial_sum", READ, SUM_AXES, ATTN_TYPE_COMPUTE, 0, -1, -1},
    [S(final_state)] = {"final_state", FINAL, STATE_AXES, ATTN_TYPE_STORED, ATTN_LAST_CONTIGUOUS, -1, S(initial_state)},
    [S(final_sum)] = {"final_sum", FINAL, SUM_AXES, ATTN_TYPE_COMPUTE, 0, -1, S(initial_sum)},
    [S(grad_o)] = {"grad_o", GRADIENT_READ, O_AXES, ATTN_TYPE_SAME, ATTN_LAST_CONTIGUOUS | ATTN_GRADIENT_INDEPENDENT | ATTN_PACKED, S(o), -1},
    [S(grad_final_state)] = {"grad_final_state", GRADIENT_MAYBE_READ, STATE_AXES, ATTN_TYPE_COMPUTE, ATTN_LAST_CONTIGUOUS | ATTN_GRADIENT_INDEPENDENT, S(final_state), -1},
    [S(grad_final_sum)] = {"grad_final_sum", GRADIENT_MAYBE_READ, SUM_AXES, ATTN_TYPE_COMPUTE, ATTN_GRADIENT_INDEPENDENT, S(final_sum), -1},
    [S(grad_q)] = {"grad_q", MUST_WRITE, Q_AXES, ATTN_TYPE_SAME, ATTN_LAST_CONTIGUOUS | ATTN_GRADIENT_UNREDUCED | ATTN_PACKED, S(q), -1},
    [S(grad_k)] = {"grad_k", MUST_WRITE, K_AXES, ATTN_TYPE_SAME, ATTN_LAST_CONTIGUOUS | ATTN_GRADIENT_UNREDUCED | ATTN_PACKED, S(k), -1},
    [S(grad_v)] = {"grad_v", MUST_WRITE, V_AXES, ATTN_TYPE_SAME, ATTN_LAST_CONTIGUOUS | ATTN_GRADIENT_UNREDUCED | ATTN_PACKED, S(v), -1},
    [S(grad_decay)] = {"grad_decay", WRITES, FEATURE_AXES, ATTN_TYPE_FLOAT, ATTN_GRADIENT_UNREDUCED | ATTN_PACKED, S(decay), -1},
    [S(grad_beta)] = {"grad_beta", WRITES, TOKEN_AXES, ATTN_TYPE_FLOAT, ATTN_GRADIENT_UNREDUCED | ATTN_PACKED, S(beta), -1},
    [S(grad_erase)] = {"grad_erase", WRITES, FEATURE_AXES, ATTN_TYPE_FLOAT, ATTN_LAST_CONTIGUOUS | ATTN_GRADIENT_UNREDUCED | ATTN_PACKED, S(erase), -1},
    [S(grad_write)] = {"grad_write", WRITES, FEATURE_AXES, ATTN_TYPE_FLOAT, ATTN_LAST_CONTIGUOUS | ATTN_GRADIENT_UNREDUCED | ATTN_PACKED, S(write), -1},
    [S(grad_initial_state)] = {"grad_initial_state", WRITES, STATE_AXES, ATTN_TYPE_COMPUTE, ATTN_LAST_CONTIGUOUS | ATTN_GRADIENT_UNREDUCED, S(initial_state), -1},
    [S(grad_initial_sum)] = {"grad_initial_sum", WRITES, SUM_AXES, ATTN_TYPE_COMPUTE, ATTN_GRADIENT_UNREDUCED, S(initial_sum), -1},
    [S(cu_seqlens)] = {"cu_seqlens", READ, {ATTN_AXIS_LIST, ATTN_AXIS_ONE, ATTN_AXIS_ONE, ATTN_AXIS_ONE}, ATTN_TYPE_INDEX, ATTN_DENSE, -1, -1},
    [S(initial_slots)] = {"initial_slots", FORWARD_READS, {ATTN_AXIS_BATCH, ATTN_AXIS_ONE, ATTN_AXIS_ONE, ATTN_AXIS_ONE}, ATTN_TYPE_INDEX, ATTN_DENSE, -1, -1},
    [S(final_slots)] = {"final_slots", FORWARD_READS, {ATTN_AXIS_BATCH, ATTN_AXIS_ONE, ATTN_AXIS_ONE, ATTN_AXIS_LIST}, ATTN_TYPE_INDEX, ATTN_DENSE, -1, -1},
};
/* clang-format on */
_Static_assert(sizeof rows / sizeof *rows == ATTN_LINEAR_SLOTS && (int)ATTN_LINEAR_SLOTS <= (int)ATTN_MAX_TENSORS,
               "a row for each slot");
#define INPUT(name)                                                                                                                \
    _Static_assert(offsetof(attn_linear_tensors, name) == sizeof(attn_tensors_head) + S(name) * sizeof(attn_input), #name);
#define OUTPUT(name) INPUT(name)
#include "../base/linear_slots.def"
#undef INPUT
#undef OUTPUT

static const char *const operations[ATTN_OPERATIONS] = {"ATTN_FORWARD", "ATTN_BACKWARD"};

_Static_assert(ATTN_LINEAR_SLOT_q == 0, "resolve.c names it as the tensor on whose type others depend");

const attn_tensor_family attn_linear_family = {rows, ATTN_LINEAR_SLOTS, "attn_linear_tensors", operations};

static int64_t axis_size(const attn_linear_resolved *p, attn_axis axis)
{
    const int64_t *plain = attn_axis_of_shape(&p->shape, axis);
    if (plain) return *plain;
    switch (axis) {
    case ATTN_AXIS_FEATURE:
        return attn_linear_dim_features(p->features, p->shape.dim_qk, p->random_features);
    case ATTN_AXIS_LIST:
        return p->random_features;
    default:
        return 1;
    }
}

void attn_linear_shape(const void *problem, int number, int64_t shape[4])
{
    const attn_linear_resolved *p = problem;
    for (int axis = 0; axis < 4; axis++) shape[axis] = axis_size(p, rows[number].axes[axis]);
    if (p->has.cu_seqlens && rows[number].flags & ATTN_PACKED) shape[0] = 1;
    switch (number) {
    case S(cu_seqlens):
        shape[0] = p->shape.batch + 1;
        break;
    case S(initial_state):
    case S(initial_sum):
        if (p->has.initial_slots) shape[0] = p->pool;
        break;
    case S(final_state):
    case S(final_sum):
        if (p->has.final_slots) shape[0] = p->pool;
        break;
    case S(final_slots):
        shape[3] = p->snapshots;
        break;
    default:
        break;
    }
    if ((number == S(decay) || number == S(grad_decay)) && p->decay_kind == ATTN_DECAY_HEAD) shape[3] = 1;
}
