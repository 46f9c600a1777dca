/* SPDX-License-Identifier: MIT
 * bits.c - checksums of outputs and gradients of 60 problems in plain C: bits.sh compares those of WebAssembly with native ones. */
#include <stdio.h>
#include <stdlib.h>

#include "attn/attn.h"
#include "tests/fnv.h"

enum { PROBLEMS = 60, TENSORS = 9, HEADS = 4 }; /* two batch entries of two heads */

/* Numbers within +-2. */
static float draw(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / (float)(1 << 24) * 4 - 2;
}

static int run(const attn_problem *problem, const attn_tensors *tensors)
{
    const attn_options options = {.struct_size = sizeof options, .isa = ATTN_ISA_SCALAR, .threads = 1};
    attn_error error;
    attn_plan *plan;
    if (attn_plan_create(&plan, problem, tensors, &options, &error) != ATTN_OK) return puts(error.message), 1;
    const size_t size = attn_plan_workspace_size(plan);
    void *workspace = malloc(size + 1);
    const attn_status status = workspace ? attn_execute(plan, tensors, workspace, size, &error) : ATTN_ERR_MEMORY;
    free(workspace);
    attn_plan_destroy(plan);
    return status == ATTN_OK ? 0 : (puts(error.message), 1);
}

int main(void)
{
    uint32_t state = 1;
    for (int c = 0; c < PROBLEMS; c++) {
        const int64_t len_q = 1 + c * 37 % 200, len_kv = 1 + c * 53 % 700, dim = 4 + c * 13 % 90;
        const size_t each = (size_t)(HEADS * (len_q > len_kv ? len_q : len_kv) * dim);
        float *memory = malloc(TENSORS * each * sizeof *memory), *at[TENSORS];
        if (!memory) return 1;
        for (size_t i = 0; i < TENSORS * each; i++) memory[i] = draw(&state);
        for (int t = 0; t < TENSORS; t++) at[t] = memory + (size_t)t * each;
        attn_problem p = {.struct_size = sizeof p, .shape = {2, 2, 2, len_q, len_kv, dim, dim}};
        p.mask.causal = c % 2;
        p.mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
        p.score.softcap = c % 5 ? 0 : 3;
        attn_tensors t = {.struct_size = sizeof t, .q = attn_in(at[0]), .k = attn_in(at[1]), .v = attn_in(at[2])};
        t.o = attn_out(at[3]);
        t.lse = attn_out(at[4]);
        int failed = run(&p, &t);
        if (c % 3 == 0) {
            p.op = ATTN_BACKWARD;
            t.grad_o = attn_in(at[5]);
            t.grad_q = attn_out(at[6]);
            t.grad_k = attn_out(at[7]);
            t.grad_v = attn_out(at[8]);
            failed |= run(&p, &t);
        }
        if (failed) return 1;
        printf("%2d sq%-3d skv%-3d d%-2d %016llx\n", c, (int)len_q, (int)len_kv, (int)dim,
               (unsigned long long)fnv_add(FNV_START, memory, TENSORS * each * sizeof *memory));
        free(memory);
    }
    return 0;
}
