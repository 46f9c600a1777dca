/* SPDX-License-Identifier: MIT
 * numbered.h - cases that a program draws itself, each from a seed and a number: --seed=N --first=I --cases=C --seconds=S. */
#ifndef ATTN_FUZZ_NUMBERED_H
#define ATTN_FUZZ_NUMBERED_H

#include <time.h>

#include "draws.h"

typedef struct numbered {
    uint64_t seed, number; /* of the case that runs */
    uint64_t first, cases, seconds, done;
    time_t begin;
} numbered;

/* seconds: where the command line has none. */
void numbered_begin(numbered *n, uint64_t seconds, int count, char **arguments);
/* 0 when all are done, or time is up; else *from is where the next case's choices come from. */
int numbered_next(numbered *n, draws *from);

#endif
