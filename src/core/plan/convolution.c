/* SPDX-License-Identifier: MIT
 * convolution.c - every rule that a convolution and its tensors must satisfy; each has a row in tests/convolution/test_rejected.c.
 */
#include "convolution.h"

#include <inttypes.h>
#include <string.h>

#include "../base/checked.h"
#include "../base/error.h"
#include "../base/inference.h"
#include "../base/names.h"
#include "plan.h"

#define NOT   ATTN_ROLE_NONE
#define IN    ATTN_ROLE_INPUT
#define OUT   ATTN_ROLE_OUTPUT
#define NEVER ATTN_NEED_NEVER
#define MAY   ATTN_NEED_OPTIONAL
#define MUST  ATTN_NEED_ALWAYS
/* clang-format off */
#define TOKENS  {ATTN_AXIS_BATCH, ATTN_AXIS_ONE, ATTN_AXIS_KEY, ATTN_AXIS_DIM_V}
#define STATE   {ATTN_AXIS_BATCH, ATTN_AXIS_ONE, ATTN_AXIS_LIST, ATTN_AXIS_DIM_V}
#define WEIGHT  {ATTN_AXIS_ONE, ATTN_AXIS_ONE, ATTN_AXIS_LIST, ATTN_AXIS_DIM_V}
#define BIAS    {ATTN_AXIS_ONE, ATTN_AXIS_ONE, ATTN_AXIS_ONE, ATTN_AXIS_DIM_V}
#define ENTRIES {ATTN_AXIS_BATCH, ATTN_AXIS_ONE, ATTN_AXIS_ONE, ATTN_AXIS_ONE}
#define READ_ALWAYS {IN, IN, NOT, NOT}, {MUST, MUST, NEVER, NEVER}
#define READ        {IN, IN, NOT, NOT}, {MAY, MAY, NEVER, NEVER}
#define MUST_WRITE  {OUT, NOT, NOT, NOT}, {MUST, NEVER, NEVER, NEVER}
#define WRITES      {OUT, NOT, NOT, NOT}, {MAY, NEVER, NEVER, NEVER}
#define FORWARD     {IN, NOT, NOT, NOT}, {MAY, NEVER, NEVER, NEVER}
#define GRAD_READ   {NOT, IN, NOT, NOT}, {NEVER, MUST, NEVER, NEVER}
#define GRAD_MAYBE  {NOT, IN, NOT, NOT}, {NEVER, MAY, NEVER, NEVER}
#define GRAD_MUST   {NOT, OUT, NOT, NOT}, {NEVER, MUST, NEVER, NEVER}
#define GRAD_WRITES {NOT, OUT, NOT, NOT}, {NEVER, MAY, NEVER, NEVER}
#define S(name)     ATTN_CONVOLUTION_SLOT_##name
#define LAST        ATTN_LAST_CONTIGUOUS
#define FREE        ATTN_GRADIENT_INDEPENDENT
#define WHOLE       ATTN_GRADIENT_UNREDUCED

static const attn_tensor_row rows[] = {
    [S(x)] = {"x", READ_ALWAYS, TOKENS, ATTN_TYPE_QUERY, LAST | ATTN_PACKED, -1, -1},
    [S(y)] = {"y", MUST_WRITE, TOKENS, ATTN_TYPE_SAME, LAST | ATTN_PACKED, -1, -1},
    [S(weight)] = {"weight", READ_ALWAYS, WEIGHT, ATTN_TYPE_FLOAT, LAST, -1, -1},
    [S(bias)] = {"bias", READ, BIAS, ATTN_TYPE_FLOAT, LAST, -1, -1},
    [S(initial_state)] = {"initial_state", READ, STATE, ATTN_TYPE_SAME, LAST, -1, -1},
    [S(final_state)] = {"final_state", WRITES, STATE, ATTN_TYPE_SAME, LAST, -1, S(initial_state)},
    [S(cu_seqlens)] = {"cu_seqlens", READ, ENTRIES, ATTN_TYPE_INDEX, ATTN_DENSE, -1, -1},
    [S(initial_slots)] = {"initial_slots", FORWARD, ENTRIES, ATTN_TYPE_INDEX, ATTN_DENSE, -1, -1},
    [S(final_slots)] = {"final_slots", FORWARD, {ATTN_AXIS_BATCH, ATTN_AXIS_ONE, ATTN_AXIS_ONE, ATTN_AXIS_LIST}, ATTN_TYPE_INDEX, ATTN_DENSE, -1, -1},
    [S(grad_y)] = {"grad_y", GRAD_READ, TOKENS, ATTN_TYPE_SAME, LAST | FREE | ATTN_PACKED, S(y), -1},
    [S(grad_final_state)] = {"grad_final_state", GRAD_MAYBE, STATE, ATTN_TYPE_SAME, LAST | FREE, S(final_state), -1},
    [S(grad_x)] = {"grad_x", GRAD_MUST, TOKENS, ATTN_TYPE_SAME, LAST | WHOLE | ATTN_PACKED, S(x), -1},
    [S(grad_weight)] = {"grad_weight", GRAD_MUST, WEIGHT, ATTN_TYPE_FLOAT, LAST | WHOLE, S(weight), -1},
    [S(grad_bias)] = {"grad_bias", GRAD_WRITES, BIAS, ATTN_TYPE_FLOAT, LAST | WHOLE, S(bias), -1},
    [S(grad_initial_state)] = {"grad_initial_state", GRAD_WRITES, STATE, ATTN_TYPE_SAME, LAST | WHOLE, S(initial_state), -1},
};
/* clang-format on */
_Static_assert(sizeof rows / sizeof *rows == ATTN_CONVOLUTION_SLOTS, "a row for each slot");
#define INPUT(name)                                                                                                                \
    _Static_assert(offsetof(attn_convolution_tensors, name) == sizeof(attn_tensors_head) + S(name) * sizeof(attn_input), #name);
#define OUTPUT(name) INPUT(name)
#include "../base/convolution_slots.def"
#undef INPUT
#undef OUTPUT

static const char *const operations[ATTN_OPERATIONS] = {"ATTN_FORWARD", "ATTN_BACKWARD"};

const attn_tensor_family attn_convolution_family = {rows, ATTN_CONVOLUTION_SLOTS, "attn_convolution_tensors", operations};

static void shape_of(const void *problem, int number, int64_t shape[4])
{
    const attn_convolution_resolved *p = problem;
    for (int axis = 0; axis < 4; axis++) {
        const attn_axis a = rows[number].axes[axis];
        shape[axis] = a == ATTN_AXIS_BATCH ? p->batch : a == ATTN_AXIS_KEY ? p->len : a == ATTN_AXIS_DIM_V ? p->channels : 1;
    }
    if (p->has.cu_seqlens && rows[number].flags & ATTN_PACKED) shape[0] = 1;
    switch (number) {
    case S(weight):
    case S(grad_weight):
        shape[2] = p->width;
        break;
    case S(initial_state):
    case S(final_state):
    case S(grad_initial_state):
    case S(grad_final_state):
        shape[2] = p->width - 1;
        if (number == S(initial_state) ? p->has.initial_slots : number == S(final_state) && p->has.final_slots) shape[0] = p->pool;
        break;
    case S(cu_seqlens):
        shape[0] = p->batch + 1;
        break;
    case S(final_slots):
        shape[3] = p->snapshots;
        break;
    default:
        break;
    }
}

static attn_status check_problem(const attn_convolution_problem *p, attn_error *error)
{
    const struct {
        const char *name;
        int64_t size;
    } sizes[] = {{"batch", p->batch}, {"len", p->len}, {"channels", p->channels}, {"pool", p->pool}, {"snapshots", p->snapshots}};
    CHECK(p->op == ATTN_FORWARD || p->op == ATTN_BACKWARD, ATTN_ERR_ARGUMENT, "op is %d; known: 0 (forward), 1 (backward)",
          (int)p->op);
    CHECK(ATTN_TRAINS || p->op == ATTN_FORWARD, ATTN_ERR_UNSUPPORTED, "op is %d (backward)" ATTN_LEFT_OUT, (int)p->op);
    CHECK(p->width >= 2 && p->width <= CONVOLUTION_BEFORE + 1, ATTN_ERR_UNSUPPORTED, "width is %d; it must be between 2 and %d",
          p->width, CONVOLUTION_BEFORE + 1);
    CHECK(p->silu == 0 || p->silu == 1, ATTN_ERR_ARGUMENT, "silu is %d; it must be 0 or 1", p->silu);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        CHECK(sizes[i].size >= 0 && sizes[i].size <= ATTN_MAX_SIZE, ATTN_ERR_SHAPE,
              "%s is %" PRId64 "; it must be between 0 and 2^48", sizes[i].name, sizes[i].size);
    for (size_t i = 0; i < sizeof p->reserved / sizeof *p->reserved; i++)
        CHECK(p->reserved[i] == 0, ATTN_ERR_ARGUMENT, "reserved[%zu] is %" PRId64 "; it must be 0", i, p->reserved[i]);
    return ATTN_OK;
}

/* x and what has its type.  (The rule for types of the engine is for tensors of attention.) */
static attn_status check_types(const attn_convolution_resolved *p, const attn_convolution_tensors *tensors, attn_error *error)
{
    const attn_dtype given = attn_slot_of(tensors, S(x)).dtype, type = given ? given : ATTN_F32;
    for (int n = 0; n < ATTN_CONVOLUTION_SLOTS; n++) {
        const attn_dtype own = attn_slot_of(tensors, n).dtype;
        if (rows[n].type != ATTN_TYPE_SAME || !((const unsigned char *)&p->has)[n]) continue;
        CHECK_TENSORS(own == ATTN_DTYPE_DEFAULT || own == type, n, S(x), ATTN_ERR_UNSUPPORTED,
                      "%s.dtype is %s; it must be %s, as that of x is", rows[n].name, attn_dtype_text(own), attn_dtype_text(type));
    }
    return ATTN_OK;
}

static attn_status check_presence(const attn_convolution_resolved *p, attn_error *error)
{
    const attn_convolution_presence *has = &p->has;
    const int slots = has->initial_slots || has->final_slots;
    CHECK_TENSOR(!has->initial_slots || has->initial_state, S(initial_slots), ATTN_ERR_ARGUMENT,
                 "initial_slots is set and initial_state is not");
    CHECK_TENSOR(!has->final_slots || has->final_state, S(final_slots), ATTN_ERR_ARGUMENT,
                 "final_slots is set and final_state is not");
    CHECK_TENSORS(p->pool == 0 || slots, S(initial_slots), S(final_slots), ATTN_ERR_ARGUMENT,
                  "pool is %" PRId64 "; only initial_slots and final_slots use it", p->pool);
    CHECK_TENSOR(p->snapshots <= 1 || has->final_slots, S(final_slots), ATTN_ERR_ARGUMENT,
                 "final_slots is missing; snapshots (%" PRId64 ") needs it", p->snapshots);
    CHECK_TENSOR(p->op != ATTN_BACKWARD || has->bias == has->grad_bias, S(grad_bias), ATTN_ERR_ARGUMENT,
                 "grad_bias is missing; it is needed with bias");
    return ATTN_OK;
}

attn_status attn_convolution_resolve(const attn_convolution_problem *problem, const attn_convolution_tensors *tensors,
                                     attn_convolution_resolved *r, attn_planned_tensor *list, int *count, attn_error *error)
{
    attn_convolution_problem p;
    TRY(attn_struct_read(&p, sizeof p, sizeof p, problem, "attn_convolution_problem", error));
    TRY(check_problem(&p, error));
    *r = (attn_convolution_resolved){.op = p.op,
                                     .width = p.width,
                                     .silu = p.silu,
                                     .batch = p.batch,
                                     .len = p.len,
                                     .channels = p.channels,
                                     .pool = p.pool,
                                     .snapshots = p.snapshots ? p.snapshots : 1};
    _Static_assert(sizeof(attn_convolution_presence) == ATTN_CONVOLUTION_SLOTS, "one byte a tensor");
    TRY(attn_slots_presence(&attn_convolution_family, tensors, (unsigned char *)&r->has, error));
    CHECK(!tensors->call, ATTN_ERR_ARGUMENT, "call is set; it must be NULL");
    TRY(check_types(r, tensors, error));
    const attn_tensor_facts facts = {p.op, r->has.cu_seqlens, r->has.cu_seqlens, attn_slot_of(tensors, S(x)).dtype, shape_of, r};
    TRY(attn_tensors_resolve(&attn_convolution_family, &facts, tensors, (const unsigned char *)&r->has, list, count, error));
    TRY(check_presence(r, error));
    for (int i = 0; i < *count; i++) ((attn_layout *)(void *)&r->at)[list[i].number] = list[i].at;
    return ATTN_OK;
}

attn_state_lists attn_convolution_lists(const attn_convolution_resolved *p, const attn_convolution_args *args)
{
    return (attn_state_lists){.batch = p->batch,
                              .columns = p->snapshots,
                              .pool = p->pool,
                              .initial = args->initial_slots,
                              .final = args->final_slots,
                              .initial_type = p->at.initial_slots.dtype,
                              .final_type = p->at.final_slots.dtype,
                              .initial_number = S(initial_slots),
                              .final_number = S(final_slots),
                              .stores = args->final_state != NULL,
                              .in_place = args->final_state && args->final_state == args->initial_state};
}

attn_status attn_convolution_bind(const attn_convolution_resolved *p, const attn_planned_tensor *list, int count,
                                  const attn_convolution_tensors *tensors, attn_convolution_args *args, attn_error *error)
{
    void *pointers[ATTN_CONVOLUTION_SLOTS] = {NULL};
    TRY(attn_tensors_bind(&attn_convolution_family, list, count, tensors, pointers, error));
    _Static_assert(sizeof pointers == sizeof *args, "one pointer a tensor");
    memcpy(args, pointers, sizeof pointers);
    if (args->cu_seqlens)
        TRY(attn_starts_check(args->cu_seqlens, p->at.cu_seqlens.dtype, p->batch, p->len, "len", S(cu_seqlens), error));
    const int64_t tokens = args->cu_seqlens ? attn_index_at(args->cu_seqlens, p->at.cu_seqlens.dtype, p->batch) : 0;
    TRY(attn_tensors_check_overlap(&attn_convolution_family, list, count, pointers, tokens, tokens, (attn_bytes){NULL, 0}, error));
    const attn_state_lists lists = attn_convolution_lists(p, args);
    return attn_state_lists_check(&lists, error);
}
