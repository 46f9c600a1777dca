/* SPDX-License-Identifier: MIT
 *
 * test_cpuid.c - a call does not execute CPUID again: it traps in virtual machines, and once added 80 us to a call of 5 us. The
 * calls run twice, the second time in a child where CPUID faults.
 */
#define _GNU_SOURCE /* syscall */
#include "test.h"

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attn/attn.h"
#include "attn/product.h"
#include "on_threads.h"

enum { NO_FAULTS = 77, ARCH_SET_CPUID = 0x1012, LEN = 600, DIM = 32 };

/* Decoding, a few queries, a small sequence, full tiles, and their gradients; a matrix product. */
static void call_everything(void)
{
    static float x[LEN * DIM], o[LEN * DIM], lse[LEN], grad[3][LEN * DIM];
    static const int64_t lengths[][2] = {{1, LEN}, {5, LEN}, {20, 20}, {LEN, LEN}};
    const attn_product_problem product = {.struct_size = sizeof product, .rows = DIM, .columns = DIM, .inner = DIM};
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++) {
        attn_problem problem = {.struct_size = sizeof problem, .shape = {1, 1, 1, lengths[n][0], lengths[n][1], DIM, DIM}};
        attn_tensors t = {.struct_size = sizeof t, .q = attn_in(x), .k = attn_in(x), .v = attn_in(x)};
        t.o = attn_out(o), t.lse = attn_out(lse);
        MUST(attn_compute(&problem, &t, NULL) == ATTN_OK);
        problem.op = ATTN_BACKWARD;
        t.o = attn_saved(o), t.lse = attn_saved(lse), t.grad_o = attn_in(x);
        t.grad_q = attn_out(grad[0]), t.grad_k = attn_out(grad[1]), t.grad_v = attn_out(grad[2]);
        MUST(attn_compute(&problem, &t, NULL) == ATTN_OK);
    }
    const attn_product_tensors matrices = {.struct_size = sizeof matrices, .a = attn_in(x), .b = attn_in(x), .c = attn_out(o)};
    MUST(attn_product(&product, &matrices, NULL, NULL) == ATTN_OK);
}

static void test_cpuid(void **state)
{
    int status = -1;
    (void)state;
    call_everything();
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
#if defined(SYS_arch_prctl)
        if (syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0) != 0) _exit(NO_FAULTS);
        call_everything();
        _exit(0);
#else
        _exit(NO_FAULTS);
#endif
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_FAULTS) SKIP_BECAUSE("this CPU or its host has no CPUID faulting");
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cpuid)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
