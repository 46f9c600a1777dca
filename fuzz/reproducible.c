/* SPDX-License-Identifier: MIT
 *
 * reproducible.c - options.reproducible on 500 problems of api_draw.c: every instruction set of this CPU must give the recorded
 * checksums of all outputs.
 *
 *      test_fuzz_reproducible FILE             compares
 *      test_fuzz_reproducible --write FILE     records the checksums; fails if instruction sets differ
 *
 * A line has an operation, a case number and a checksum.  The drawn numbers are finite and exact, so only log() of the C library,
 * which lse uses, could differ between machines.  Exits with 77 on a CPU with none of the instruction sets. */
#include "api_case.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../tests/fnv.h"

enum { PROBLEMS = 500, OPERATIONS = 4, MIN_OF_EACH = 40 };

_Noreturn void finding(const char *what, ...)
{
    va_list arguments;
    va_start(arguments, what);
    vfprintf(stderr, what, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    abort();
}

void check_error(attn_status status, const attn_error *error)
{
    if (status != error->status) finding("status %d, in the error %d", (int)status, (int)error->status);
}

/* Runs the case on one instruction set.  Returns 0 if the library rejects it. */
static int run(api_case *c, attn_isa isa, uint64_t *sum)
{
    attn_options options = c->options;
    attn_error error;
    options.isa = isa;
    (void)case_save_forward(c, &options); /* where o and lse overlap, gradients of what was drawn */
    attn_plan *plan = case_plan(c, &options);
    if (!plan) return 0;
    const size_t bytes = attn_plan_workspace_size(plan);
    void *workspace = malloc(bytes + 1);
    blocks_canary(c->blocks, c->count, 0x11);
    const int ran = workspace && attn_execute(plan, &c->tensors, workspace, bytes, &error) == ATTN_OK;
    free(workspace);
    attn_plan_destroy(plan);
    if (ran) *sum = blocks_checksum(c->blocks, c->count);
    return ran;
}

/* Draws case `number` and runs it on every instruction set.  Returns 0 if it is skipped (with NaN and infinities, for one, which
 * spoil their neighbours in a tile, and tiles differ), -1 if instruction sets differ. */
static int try_case(uint64_t number, attn_isa best, attn_op *op, uint64_t *sum)
{
    static api_case c;
    int result = 0;
    memset(&c, 0, sizeof c);
    c.from = draws_from((const uint8_t *)&number, sizeof number);
    c.from.left = 0; /* `number` goes out of scope; the generator seeded from it remains */
    c.everywhere = 1;
    attn_plan *plan = case_draw(&c);
    if (!plan) return 0;
    if (!c.hostile && !c.special && case_allocate(&c, plan) && run(&c, best, sum) && *sum != FNV_START) {
        result = 1;
        *op = c.problem.op;
        for (attn_isa isa = ATTN_ISA_AVX2; isa < best && best != ATTN_ISA_NEON; isa = (attn_isa)(isa + 1)) {
            uint64_t other = 0;
            if (run(&c, isa, &other) && other == *sum) continue;
            fprintf(stderr, "case %" PRIu64 " of operation %d: %s gives %016" PRIx64 ", %s %016" PRIx64 "\n", number, (int)*op,
                    attn_isa_name(isa), other, attn_isa_name(best), *sum);
            result = -1;
        }
    }
    attn_plan_destroy(plan);
    blocks_free(c.blocks, c.count);
    return result;
}

int main(int count, char **arguments)
{
    const int writes = count == 3 && strcmp(arguments[1], "--write") == 0;
    attn_cpu_description cpu = {.struct_size = sizeof cpu};
    int done = 0, counts[OPERATIONS] = {0}, wrong = 0;
    if (count != 2 + writes) {
        fprintf(stderr, "usage: %s [--write] FILE\n", arguments[0]);
        return 2;
    }
    if (attn_cpu_describe(&cpu, NULL) != ATTN_OK || cpu.isa < ATTN_ISA_AVX2) {
        puts("skipped: no instruction set of this CPU can reproduce another's bits (avx2, avx512, neon)");
        return 77;
    }
    FILE *file = fopen(arguments[count - 1], writes ? "w" : "r");
    if (!file) {
        perror(arguments[count - 1]);
        return 2;
    }
    for (uint64_t number = 0; done < PROBLEMS; number++) {
        attn_op op = ATTN_FORWARD;
        uint64_t sum = 0, expected = 0, case_number = 0;
        int operation = 0;
        const int result = try_case(number, cpu.isa, &op, &sum);
        if (result == 0) continue;
        wrong += result < 0;
        done++;
        counts[op]++;
        if (writes) fprintf(file, "%d %" PRIu64 " %016" PRIx64 "\n", (int)op, number, sum);
        else if (fscanf(file, "%d %" SCNu64 " %" SCNx64, &operation, &case_number, &expected) != 3 || operation != (int)op ||
                 case_number != number) {
            fprintf(stderr, "line %d of %s is not of case %" PRIu64 ", operation %d\n", done, arguments[1], number, (int)op);
            return 1;
        } else if (expected != sum) {
            fprintf(stderr, "case %" PRIu64 " of operation %d gives %016" PRIx64 ", recorded %016" PRIx64 "\n", number, (int)op,
                    sum, expected);
            wrong++;
        }
    }
    if (fclose(file)) wrong++;
    for (int op = 0; op < OPERATIONS; op++)
        if (counts[op] < MIN_OF_EACH) {
            fprintf(stderr, "only %d of %d problems are of operation %d\n", counts[op], done, op);
            wrong++;
        }
    printf("%d problems (%d forward, %d backward, %d in forward mode, %d double backward), %d wrong\n", done, counts[ATTN_FORWARD],
           counts[ATTN_BACKWARD], counts[ATTN_JVP], counts[ATTN_DOUBLE_BACKWARD], wrong);
    return wrong != 0;
}
