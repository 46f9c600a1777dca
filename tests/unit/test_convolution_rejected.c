/* SPDX-License-Identifier: MIT
 * test_convolution_rejected.c - every rule of convolutions: a violation of it, with its status and exact message, and that nothing
 * is written then. */
#include "fails.h"

#include "attn/convolution.h"

enum { UNTOUCHED = 0xa5 };

typedef struct fixture {
    attn_convolution_problem problem;
    attn_convolution_tensors tensors;
    attn_options options;
    float x[2][5][3], y[2][5][3], weight[4][3], bias[3], state[4][3][3], more[4][3][3], grad_weight[4][3];
    int64_t starts[3];
    int32_t slots[2], columns[2][2];
} fixture;

static void init(fixture *f)
{
    memset(f, 0, sizeof *f);
    memset(f->y, UNTOUCHED, sizeof f->y);
    f->problem = (attn_convolution_problem){.struct_size = sizeof f->problem, .width = 4, .batch = 2, .len = 5, .channels = 3};
    f->options.struct_size = sizeof f->options;
    f->tensors = (attn_convolution_tensors){
        .struct_size = sizeof f->tensors, .x = attn_in(f->x), .y = attn_out(f->y), .weight = attn_in(f->weight)};
    f->starts[1] = 5, f->starts[2] = 7;
    f->slots[1] = 1;
    f->columns[0][0] = 2, f->columns[0][1] = 3, f->columns[1][0] = 1, f->columns[1][1] = -1;
}

static void turn(fixture *f)
{
    memset(&f->tensors.y, 0, sizeof f->tensors.y);
    f->problem.op = ATTN_BACKWARD;
    f->tensors.grad_y = attn_in(f->state);
    f->tensors.grad_x = attn_out(f->y);
    f->tensors.grad_weight = attn_out(f->grad_weight);
}

static void give_slots(fixture *f, int64_t snapshots)
{
    f->problem.pool = 4;
    f->problem.snapshots = snapshots;
    f->tensors.initial_state = attn_in(f->state);
    f->tensors.final_state = attn_out(f->state);
    f->tensors.initial_slots = (attn_input){f->slots, ATTN_I32, {0, 0, 0, 0}};
    f->tensors.final_slots = (attn_input){snapshots > 1 ? (void *)f->columns : (void *)f->slots, ATTN_I32, {0, 0, 0, 0}};
}

static void expect(fixture *f, attn_status status, const char *message, int line)
{
    attn_error error;
    const attn_status got = attn_convolution(&f->problem, &f->tensors, &f->options, &error);
    if (got != status || strcmp(error.message, message) != 0)
        fail_msg("line %d:\n  expected status %d: %s\n  got status %d: %s", line, (int)status, message, (int)got, error.message);
    for (size_t i = 0; status != ATTN_OK && i < sizeof f->y; i++) assert_int_equal(((unsigned char *)f->y)[i], UNTOUCHED);
}

#define REJECTED(change, status, message)                                                                                          \
    do {                                                                                                                           \
        fixture f;                                                                                                                 \
        init(&f);                                                                                                                  \
        change;                                                                                                                    \
        expect(&f, status, message, __LINE__);                                                                                     \
    } while (0)
#define ARGUMENT(change, message)    REJECTED(change, ATTN_ERR_ARGUMENT, message)
#define UNSUPPORTED(change, message) REJECTED(change, ATTN_ERR_UNSUPPORTED, message)

static void test_problem(void **state)
{
    (void)state;
    REJECTED((void)0, ATTN_OK, "");
    REJECTED((f.problem.channels = 0), ATTN_OK, "");
    ARGUMENT(f.problem.op = ATTN_JVP, "op is 2; known: 0 (forward), 1 (backward)");
    ARGUMENT(f.problem.silu = 2, "silu is 2; it must be 0 or 1");
    ARGUMENT(f.problem.reserved[3] = 1, "reserved[3] is 1; it must be 0");
    ARGUMENT(f.problem.struct_size = 0, "attn_convolution_problem.struct_size is 0; set it to sizeof(attn_convolution_problem)");
    UNSUPPORTED(f.problem.width = 1, "width is 1; it must be between 2 and 4");
    UNSUPPORTED(f.problem.width = 5, "width is 5; it must be between 2 and 4");
    REJECTED(f.problem.len = -1, ATTN_ERR_SHAPE, "len is -1; it must be between 0 and 2^48");
    REJECTED(f.problem.channels = INT64_MAX, ATTN_ERR_SHAPE, "channels is 9223372036854775807; it must be between 0 and 2^48");
    ARGUMENT(f.problem.pool = 1, "pool is 1; only initial_slots and final_slots use it");
    ARGUMENT(f.problem.snapshots = 2, "final_slots is missing; snapshots (2) needs it");
    UNSUPPORTED(f.options.reproducible = 1, "options.reproducible is set; the bits of convolutions depend on the instruction set");
    ARGUMENT(f.options.threads = -1, "options.threads is -1; it must be between 1 and 1024, or 0 for the default");
}

static void test_tensors(void **state)
{
    static const attn_input none;
    const attn_call call = {.struct_size = sizeof call};
    (void)state;
    ARGUMENT(f.tensors.call = &call, "call is set; it must be NULL");
    ARGUMENT(f.tensors.weight = none, "weight is missing; ATTN_FORWARD needs it");
    ARGUMENT(f.tensors.x = attn_in(NULL), "x is NULL");
    UNSUPPORTED(f.tensors.x.dtype = ATTN_I32, "x.dtype is i32; it must be f32, f64, f16 or bf16");
    UNSUPPORTED(f.tensors.y.dtype = ATTN_BF16, "y.dtype is bf16; it must be f32, as that of x is");
    UNSUPPORTED(f.tensors.weight.dtype = ATTN_I8, "weight.dtype is i8; it must be f32, f64, f16 or bf16");
    REJECTED((f.tensors.x.stride[2] = 6, f.tensors.x.stride[3] = 2), ATTN_ERR_STRIDE,
             "x.stride[3] is 2; the last axis must be contiguous (1)");
    REJECTED(f.tensors.y.data = f.x, ATTN_ERR_STRIDE, "y and x share elements; an output must not overlap another tensor");
    ARGUMENT(f.tensors.grad_y = attn_in(f.state), "grad_y is set; ATTN_FORWARD does not use it");
    REJECTED(turn(&f), ATTN_OK, "");
    ARGUMENT((turn(&f), f.tensors.bias = attn_in(f.bias)), "grad_bias is missing; it is needed with bias");
    ARGUMENT((turn(&f), f.tensors.grad_initial_state = attn_out(f.more)), "grad_initial_state is set and initial_state is not");
    REJECTED((f.tensors.cu_seqlens = attn_in(f.starts)), ATTN_OK, "");
    ARGUMENT((f.tensors.cu_seqlens = attn_in(f.starts), f.starts[2] = 11),
             "cu_seqlens[2] (11) minus cu_seqlens[1] (5) is not between 0 and len (5)");
}

static void test_slots(void **state)
{
    (void)state;
    REJECTED(give_slots(&f, 0), ATTN_OK, "");
    REJECTED(give_slots(&f, 2), ATTN_OK, "");
    ARGUMENT((give_slots(&f, 0), f.slots[0] = 4), "initial_slots[0] is 4; it must be -1 or below pool (4)");
    ARGUMENT((give_slots(&f, 2), f.columns[0][1] = 2), "final_slots[0][1] is 2, as is final_slots[0][0]");
    ARGUMENT((give_slots(&f, 2), f.columns[1][1] = 0), "initial_slots[0] is 0, as is final_slots[1][1] of another sequence");
    ARGUMENT((give_slots(&f, 0), memset(&f.tensors.final_state, 0, sizeof f.tensors.final_state)),
             "final_slots is set and final_state is not");
    ARGUMENT((give_slots(&f, 0), memset(&f.tensors.initial_state, 0, sizeof f.tensors.initial_state)),
             "initial_slots is set and initial_state is not");
    ARGUMENT((turn(&f), f.tensors.final_slots = (attn_input){f.slots, ATTN_I32, {0, 0, 0, 0}}),
             "final_slots is set; ATTN_BACKWARD does not use it");
    REJECTED(f.options.workspace_limit = 64, ATTN_ERR_MEMORY,
             "the workspace would have 120895 bytes; options.workspace_limit is 64");
    REJECTED((give_slots(&f, INT64_C(1) << 48), f.problem.batch = 8), ATTN_ERR_SHAPE,
             "snapshots and batch are too large: the bytes of their lists overflow 64 bits");
    fixture f;
    init(&f);
    FAILS(attn_convolution(NULL, &f.tensors, NULL, &error), ATTN_ERR_ARGUMENT, "problem is NULL");
    FAILS(attn_convolution(&f.problem, NULL, NULL, &error), ATTN_ERR_ARGUMENT, "tensors is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_problem), cmocka_unit_test(test_tensors),
                                       cmocka_unit_test(test_slots)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
