/* SPDX-License-Identifier: MIT
 *
 * loops.h - the limits of a core: loops of multiplications and additions on registers, and loops that only read.
 *
 * They are written in assembly, so that a compiler neither removes nor improves them, and so that this file needs no flags: call a
 * loop only if the CPU has its instruction set.
 */
#ifndef ATTN_CLI_BENCH_LOOPS_H
#define ATTN_CLI_BENCH_LOOPS_H

#include <stddef.h>
#include <stdint.h>

#include "attn/attn.h"

/* Twelve independent sums, none of which waits for another: enough to fill two pipes of up to six cycles (NEON: 24 and four). */
typedef struct fma_loop {
    attn_isa isa;
    attn_dtype compute; /* ATTN_F32 or ATTN_F64 */
    int flops;          /* of one round; a fused multiplication and addition counts as two */
    void (*run)(int64_t rounds);
} fma_loop;

/* The loop for an instruction set; NULL if there is none. */
const fma_loop *fma_loop_of(attn_isa isa, attn_dtype compute);

enum { READ_STEP = 256 }; /* bytes are a multiple of it */

/* Reads every byte once, from the first to the last, with the widest loads of the instruction set. */
void read_loop(attn_isa isa, const void *memory, size_t bytes);

#endif
