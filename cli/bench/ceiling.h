/* SPDX-License-Identifier: MIT
 *
 * ceiling.h - the limits of this machine, sampled along with the problems.
 */
#ifndef ATTN_CLI_BENCH_CEILING_H
#define ATTN_CLI_BENCH_CEILING_H

#include "attn/attn.h"
#include "cli/measure/statistics.h"
#include "loops.h"

typedef enum ceiling_kind { CEILING_FMA, CEILING_L2, CEILING_L3, CEILING_MEMORY, CEILING_KINDS } ceiling_kind;

/* One loop on all threads at the same time.  Rates are in flops or bytes per second, summed over all threads. */
typedef struct ceiling {
    ceiling_kind kind;
    attn_isa isa;
    const fma_loop *loop; /* of CEILING_FMA */
    int64_t rounds;
    size_t bytes; /* of reads: what one thread reads in one pass */
    int passes;
    series rates;
} ceiling;

enum { CEILINGS = 9 };

typedef struct ceilings {
    ceiling list[CEILINGS];
    int count;
    int threads;
    attn_isa isa; /* the one that the library uses by default here */
    size_t l2, l3;
    /* private: each thread reads its own `part` bytes of `memory`, beginning at offset `next` within them */
    unsigned char *memory;
    size_t part;
    size_t next;
} ceilings;

/* For the workers that there are.  Finds the loops of `isa`, of the best instruction set that the CPU has and of the `count` others
 * that problems run on; allocates the memory to read; takes no sample yet.  Cache levels of unknown size are left out, and so are
 * those beyond the one that holds `most_read` bytes, the most that a problem reads: INFINITY for all. */
void ceilings_create(ceilings *all, attn_isa isa, const attn_isa *others, int count, double most_read);
void ceilings_destroy(ceilings *all);

/* NULL if this machine or build has no such loop. */
ceiling *ceiling_of_fma(ceilings *all, attn_isa isa, attn_dtype compute);
/* The ceiling for reads from this cache level, or from the next outer one that exists. */
ceiling *ceiling_of_read(ceilings *all, ceiling_kind level);
/* The innermost level that holds `bytes` bytes, which all threads read repeatedly. */
ceiling_kind ceiling_level(const ceilings *all, double bytes);
/* "FMA", "L2", "L3", "memory" */
const char *ceiling_kind_name(ceiling_kind kind);

void ceiling_sample(ceilings *all, ceiling *c);
/* Bytes per second of a plain read of these tensors from first to last, each split evenly among the threads. */
double ceiling_read_tensors(const ceilings *all, int count, void *const *memory, const size_t *bytes);
/* Samples the ceilings that have no sample within the last tenth of a second. */
void ceilings_refresh(ceilings *all);

/* The median of all samples; NaN for NULL. */
double ceiling_median(const ceiling *c);

#endif
