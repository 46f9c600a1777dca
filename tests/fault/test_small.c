/* SPDX-License-Identifier: MIT
 * test_small.c - the functions of bilinear.h and position.h that take memory from malloc, when any one allocation fails: they
 * return ATTN_ERR_MEMORY, write nothing and leak nothing. */
#include "attn/bilinear.h"
#include "attn/position.h"
#include "fault.h"
#include "test.h"

enum { N = 3 };
static const double metric[N * N] = {2, 1, 0, 1, 3, 0, 0, 0, 1}, rows[N * N] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
static const float numbers[2 * N * N] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
static struct {
    double of[3][N * N];
    float narrow[4][2 * N * N];
    attn_metric_properties properties;
} out;

static attn_status form(attn_error *error) { return attn_bilinear_form_batch(N, N, N, rows, rows, metric, out.of[0], error); }

static attn_status form_backward(attn_error *error)
{
    return attn_bilinear_form_batch_backward(N, N, N, rows, rows, metric, rows, out.of[0], out.of[1], out.of[2], error);
}

static attn_status inverse(attn_error *error) { return attn_metric_inverse(N, metric, out.of[0], error); }

static attn_status inverse_backward(attn_error *error) { return attn_metric_inverse_backward(N, metric, rows, out.of[0], error); }

static attn_status check(attn_error *error) { return attn_metric_check(N, 0, metric, &out.properties, error); }

static attn_status table_backward(attn_error *error)
{
    static const int64_t shape[4] = {1, 1, N, N};
    const attn_input grad_y = attn_in(numbers);
    const attn_output grad_table = attn_out(out.narrow[0]);
    return attn_position_add_backward(N, shape, &grad_y, NULL, &grad_table, error);
}

static attn_status gate_backward(attn_error *error)
{
    const attn_bias_gate rule = {.struct_size = sizeof rule, .batch = 1, .heads = 1, .len_q = 1, .dim = N, .width = 1};
    const attn_bias_gate_tensors tensors = {.struct_size = sizeof tensors,
                                            .q = attn_in(numbers),
                                            .w = attn_in(numbers),
                                            .b = attn_in(numbers),
                                            .a = attn_in(numbers),
                                            .grad_gates = attn_in(numbers),
                                            .grad_q = attn_out(out.narrow[0]),
                                            .grad_w = attn_out(out.narrow[1]),
                                            .grad_b = attn_out(out.narrow[2]),
                                            .grad_a = attn_out(out.narrow[3])};
    return attn_bias_gate_backward(&rule, &tensors, error);
}

static void test_each_allocation(void **state)
{
    static const struct {
        attn_status (*run)(attn_error *error);
        int allocations;
        const char *message;
    } calls[] = {
        {form, 1, "cannot allocate 3 queries of dim 3"},
        {form_backward, 1, "cannot allocate 3 vectors of dim 3"},
        {inverse, 2, "cannot allocate a matrix of dim 3"},
        {inverse_backward, 1, "cannot allocate a matrix of dim 3"},
        {check, 1, "cannot allocate a matrix of dim 3"},
        {table_backward, 1, "cannot allocate the gradient of a position table"},
        {gate_backward, 1, "bias gate: cannot allocate 9 sums"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        for (int n = 1; n <= calls[i].allocations + 1; n++) {
            unsigned char before[sizeof out], after[sizeof out];
            attn_error error;
            memset(&out, 0x5a, sizeof out);
            out.properties.struct_size = sizeof out.properties;
            memcpy(before, &out, sizeof out);
            const long live = fault_live();
            fault_arm(n);
            const attn_status status = calls[i].run(&error);
            const int failed = fault_disarm();
            assert_int_equal(fault_live(), live);
            assert_int_equal(failed, n <= calls[i].allocations);
            assert_int_equal(status, failed ? ATTN_ERR_MEMORY : ATTN_OK);
            memcpy(after, &out, sizeof out);
            assert_int_equal(memcmp(after, before, sizeof out) == 0, failed);
            if (failed) assert_string_equal(error.message, calls[i].message);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_allocation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
