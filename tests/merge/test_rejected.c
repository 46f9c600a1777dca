/* SPDX-License-Identifier: MIT
 * test_rejected.c - what merging and its gradient reject, with the exact message; and strides that are ignored. */
#include "fails.h"

#include "attn/merge.h"

static const attn_merge_problem one = {.struct_size = sizeof one, .parts = 1, .batch = 1, .heads = 1, .len_q = 1, .dim_v = 1};

static attn_input f64(const void *data) { return (attn_input){data, ATTN_F64, {0, 0, 0, 0}}; }
static attn_output f64_out(void *data) { return (attn_output){data, ATTN_F64, {0, 0, 0, 0}}; }

static void test_rejected(void **state)
{
    static double o[2], lse[2], out[2];
    static const attn_input nothing;
    attn_output grads[2] = {f64_out(out), f64_out(out)};
    const attn_call call = {.struct_size = sizeof call};
    (void)state;
#define REJECTED(change, text)                                                                                                     \
    do {                                                                                                                           \
        attn_merge_problem p = one;                                                                                                \
        attn_input os[2] = {f64(o), f64(o)}, lses[2] = {f64(lse), f64(lse)};                                                       \
        attn_merge_tensors t = {.struct_size = sizeof t, .o_parts = os, .lse_parts = lses, .o = f64_out(out)};                     \
        attn_error error;                                                                                                          \
        change;                                                                                                                    \
        assert_int_not_equal(attn_merge(&p, &t, NULL, &error), ATTN_OK);                                                           \
        assert_string_equal(error.message, text);                                                                                  \
    } while (0)
    REJECTED(p.struct_size = 0, "attn_merge_problem.struct_size is 0; set it to sizeof(attn_merge_problem)");
    REJECTED(t.struct_size = 0, "attn_merge_tensors.struct_size is 0; set it to sizeof(attn_merge_tensors)");
    REJECTED(p.parts = 0, "merge: parts is 0; it must be at least 1");
    REJECTED(p.parts = INT64_MAX, "merge: parts (9223372036854775807) is too large: its bytes overflow 64 bits");
    REJECTED(p.heads = -1, "merge: heads (-1) is negative");
    REJECTED(p.reserved[2] = 1, "merge: reserved[2] is 1; it must be 0");
    REJECTED(t.call = &call, "merge: call is set; it must be NULL");
    REJECTED(os[0].dtype = ATTN_I8, "merge: o_parts[0].dtype is i8; it must be f32, f64, f16 or bf16");
    REJECTED((p.parts = 2, os[1].dtype = ATTN_F32), "merge: o_parts[1].dtype is f32; it must be f64");
    REJECTED(t.o.dtype = ATTN_F32, "merge: o.dtype is f32; it must be f64");
    REJECTED(lses[0].dtype = ATTN_F32, "merge: lse_parts[0].dtype is f32; it must be f64");
    REJECTED((p.dim_v = 2, os[0].stride[3] = 2), "merge: o_parts[0].stride[3] is 2; the last axis must be contiguous (1)");
    REJECTED((p.len_q = 2, t.o.stride[3] = 1),
             "merge: o overlaps itself: stride[2] is 0 and the axes with smaller strides span 1 elements");
    REJECTED(t.o_parts = NULL, "merge: o_parts is NULL");
    REJECTED(t.lse_parts = NULL, "merge: lse_parts is NULL");
    REJECTED(lses[0] = nothing, "merge: lse_parts[0] is missing");
    REJECTED(lses[0] = attn_in(NULL), "merge: lse_parts[0] is NULL");
    REJECTED(lses[0].data = NULL, "merge: lse_parts[0] is NULL and has a type or strides; a slot that is not set must be all 0");
    REJECTED(os[0].data = ATTN_LATER, "merge: o_parts[0] is ATTN_LATER; this call needs its pointer");
    REJECTED(os[0].data = ATTN_EMPTY, "merge: o_parts[0] is ATTN_EMPTY and has elements");
    REJECTED(t.o = attn_out(NULL), "merge: o is NULL");
    REJECTED(os[0].data = (const char *)o + 1, "merge: o_parts[0] is not aligned to its elements of 8 bytes");
    REJECTED(t.lse = f64_out(out), "merge: lse and o share elements; an output must not overlap another tensor");
    REJECTED(t.grad_o = f64(o), "merge: grad_o is set; attn_merge does not use it");
    REJECTED(t.grad_lse.stride[2] = 1, "merge: grad_lse is set; attn_merge does not use it");
    REJECTED(t.grad_o_parts = grads, "merge: grad_o_parts is set; attn_merge does not use it");
    REJECTED(t.grad_lse_parts = grads, "merge: grad_lse_parts is set; attn_merge does not use it");
    const attn_merge_tensors none = {.struct_size = sizeof none};
    FAILS(attn_merge(NULL, &none, NULL, &error), ATTN_ERR_ARGUMENT, "problem is NULL");
    FAILS(attn_merge(&one, NULL, NULL, &error), ATTN_ERR_ARGUMENT, "tensors is NULL");
}

/* Even addresses, each reached in many ways, and odd ones: a search through all of them would take too long. */
static void test_undecided(void **state)
{
    enum { N = 40 };
    const attn_merge_problem p = {.struct_size = sizeof p, .parts = 1, .batch = N, .heads = N, .len_q = N, .dim_v = 1};
    double *memory = calloc(2 * N * N * N + 1, sizeof *memory), *lse = calloc(N * N * N, sizeof *lse);
    assert_true(memory && lse);
    const attn_input part = {memory, ATTN_F64, {6, 10, 14, 1}}, lse_part = {lse, ATTN_F64, {0, 0, 0, 0}};
    const attn_merge_tensors t = {
        .struct_size = sizeof t, .o_parts = &part, .lse_parts = &lse_part, .o = {memory + 1, ATTN_F64, {2 * N * N, 2 * N, 2, 1}}};
    (void)state;
    FAILS(attn_merge(&p, &t, NULL, &error), ATTN_ERR_STRIDE,
          "merge: whether o and o_parts[0] share elements cannot be decided from their strides; give them separate memory");
    free(memory), free(lse);
}

static void test_gradient_rejected(void **state)
{
    static double o[1], lse[1], go[1], glse[1], out[1];
    const attn_output unset = {0};
    const attn_input os[] = {f64(o)}, lses[] = {f64(lse)};
    attn_output gos[] = {f64_out(go)}, glses[] = {f64_out(glse)};
    const attn_merge_problem p = {.struct_size = sizeof p, .parts = 1, .batch = 1, .heads = 1, .len_q = 1, .dim_v = 1};
    attn_merge_tensors t = {
        .struct_size = sizeof t, .o_parts = os, .lse_parts = lses, .grad_o_parts = gos, .grad_lse_parts = glses};
    (void)state;
    const attn_options everywhere = {.struct_size = sizeof everywhere, .reproducible = 1};
    FAILS(attn_merge_backward(&p, &t, &everywhere, &error), ATTN_ERR_UNSUPPORTED,
          "merge: options.reproducible is set; gradients of lse_parts are sums whose order depends on "
          "the instruction set");
    FAILS(attn_merge_backward(&p, &t, NULL, &error), ATTN_ERR_ARGUMENT, "merge: grad_o is missing");
    t.grad_o = f64(o), t.grad_o_parts = NULL;
    FAILS(attn_merge_backward(&p, &t, NULL, &error), ATTN_ERR_ARGUMENT, "merge: grad_o_parts is NULL");
    t.grad_o_parts = gos, t.grad_lse_parts = NULL;
    FAILS(attn_merge_backward(&p, &t, NULL, &error), ATTN_ERR_ARGUMENT, "merge: grad_lse_parts is NULL");
    t.grad_lse_parts = glses, t.o = f64_out(out);
    FAILS(attn_merge_backward(&p, &t, NULL, &error), ATTN_ERR_ARGUMENT, "merge: o is set; attn_merge_backward does not use it");
    t.o = unset, t.lse.dtype = ATTN_F64;
    FAILS(attn_merge_backward(&p, &t, NULL, &error), ATTN_ERR_ARGUMENT, "merge: lse is set; attn_merge_backward does not use it");
    t.lse = unset, gos[0].data = o;
    OVERLAPS(attn_merge_backward(&p, &t, NULL, &error), "merge: grad_o_parts[0] and o_parts[0]");
}

/* Strides of axes of size 1, and of rows without channels, are ignored: UBSan would report the overflow if they were used. */
static void test_unused_strides(void **state)
{
    float o[2] = {1, 3}, lse[2] = {0, 0}, out = 0, log = 0;
    const int64_t far = (int64_t)3 << 61;
    attn_input os[2] = {{o, 0, {far, far, far, 1}}, {o + 1, 0, {far, far, far, 1}}},
               lses[2] = {{lse, 0, {far, far, far, far}}, {lse + 1, 0, {far, far, far, far}}};
    attn_merge_problem p = {.struct_size = sizeof p, .parts = 2, .batch = 1, .heads = 1, .len_q = 1, .dim_v = 1};
    attn_merge_tensors t = {.struct_size = sizeof t, .o_parts = os, .lse_parts = lses};
    (void)state;
    t.o = (attn_output){&out, 0, {far, far, far, 1}}, t.lse = (attn_output){&log, 0, {far, far, far, far}};
    assert_int_equal(attn_merge(&p, &t, NULL, NULL), ATTN_OK);
    assert_true(out == 2 && log > 0.693F && log < 0.694F);
    p.dim_v = 0, p.len_q = 2, os[0].stride[3] = os[1].stride[3] = t.o.stride[3] = far;
    lses[0] = lses[1] = attn_in(lse), t.lse = attn_out(o);
    assert_int_equal(attn_merge(&p, &t, NULL, NULL), ATTN_OK);
    assert_true(o[0] > 0.693F && o[1] == o[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rejected), cmocka_unit_test(test_undecided),
                                       cmocka_unit_test(test_gradient_rejected), cmocka_unit_test(test_unused_strides)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
