/* SPDX-License-Identifier: MIT
 * numbered.h - numbered cases, each drawn from a seed and its number: --seed=N --first=I --cases=C --seconds=S. */
#ifndef ATTN_FUZZ_NUMBERED_H
#define ATTN_FUZZ_NUMBERED_H

#include <time.h>

#include "draws.h"

typedef struct numbered {
    uint64_t seed, number; /* of the running case */
    uint64_t first, cases, seconds, done;
    time_t begin;
} numbered;

/* seconds: the default of --seconds.  The cases are those of --cases, or their share (testing/random/share.h). */
void numbered_begin(numbered *n, uint64_t seconds, int count, char **arguments);
/* Returns 0 when all cases are done or time is up; otherwise *from is the source of the next case's choices. */
int numbered_next(numbered *n, draws *from);

#endif
