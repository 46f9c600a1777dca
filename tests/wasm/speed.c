/* SPDX-License-Identifier: MIT
 * speed.c - GFLOP/s of attention over 512 queries and keys of 64 channels, and of decoding, with each instruction set of this
 * build. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "attn/attn.h"

enum { LEN = 512, DIM = 64, TENSORS = 9, ROUNDS = 20, DECODES = 100 };

static double seconds(void)
{
    struct timespec t;
    (void)timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Numbers within +-1/2 of the type. */
static void *numbers(attn_dtype dtype)
{
    void *memory = malloc(TENSORS * LEN * DIM * attn_dtype_size(dtype));
    for (int i = 0; memory && i < TENSORS * LEN * DIM; i++) {
        const double x = (double)rand() / RAND_MAX - 0.5;
        if (dtype == ATTN_F64) ((double *)memory)[i] = x;
        else ((float *)memory)[i] = (float)x;
    }
    return memory;
}

static int measure(attn_isa isa, attn_dtype dtype, attn_op op, int64_t len_q)
{
    const attn_options options = {.struct_size = sizeof options, .isa = isa, .threads = 1};
    const attn_problem p = {.struct_size = sizeof p, .op = op, .shape = {1, 1, 1, len_q, LEN, DIM, DIM}};
    char *memory = numbers(dtype), *at[TENSORS];
    for (int i = 0; i < TENSORS; i++) at[i] = memory + (size_t)i * LEN * DIM * attn_dtype_size(dtype);
    attn_tensors t = {.struct_size = sizeof t, .q = attn_in(at[0]), .k = attn_in(at[1]), .v = attn_in(at[2]), .o = attn_out(at[3])};
    t.q.dtype = dtype;
    if (op == ATTN_BACKWARD) {
        t.lse = attn_out(at[4]), t.grad_o = attn_in(at[5]);
        t.grad_q = attn_out(at[6]), t.grad_k = attn_out(at[7]), t.grad_v = attn_out(at[8]);
    }
    attn_error error = {.status = ATTN_OK};
    attn_plan *plan;
    if (attn_plan_create(&plan, &p, &t, &options, &error) != ATTN_OK) {
        free(memory);
        return error.status == ATTN_ERR_UNSUPPORTED ? 0 : (puts(error.message), 1);
    }
    const size_t size = attn_plan_workspace_size(plan);
    void *workspace = malloc(size + 1);
    const int times = len_q < LEN ? DECODES : 1;
    double best = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        const double start = seconds();
        for (int i = 0; i < times; i++)
            if (attn_execute(plan, &t, workspace, size, &error) != ATTN_OK) return puts(error.message), 1;
        const double each = (seconds() - start) / times;
        if (each < best) best = each;
    }
    const double flops = (op == ATTN_BACKWARD ? 10. : 4.) * (double)len_q * LEN * DIM;
    printf("%-8s %s %-8s sq%-3d %7.3f ms %6.1f GFLOP/s\n", attn_isa_name(isa), attn_dtype_name(dtype),
           op == ATTN_BACKWARD ? "backward" : "forward", (int)len_q, best * 1e3, flops / best * 1e-9);
    attn_plan_destroy(plan);
    free(workspace);
    free(memory);
    return 0;
}

int main(void)
{
    static const attn_dtype types[] = {ATTN_F32, ATTN_F64};
    int failed = 0;
    for (int isa = ATTN_ISA_SCALAR; isa <= ATTN_ISA_WASM128; isa++)
        for (size_t n = 0; n < sizeof types / sizeof *types; n++) {
            failed |= measure((attn_isa)isa, types[n], ATTN_FORWARD, LEN);
            failed |= measure((attn_isa)isa, types[n], ATTN_BACKWARD, LEN);
            failed |= measure((attn_isa)isa, types[n], ATTN_FORWARD, 1);
        }
    return failed;
}
