/* SPDX-License-Identifier: MIT
 * normal.c - see normal.h. */
#include "normal.h"

void normal_begin(normal_run *run, random_state *random, int pairs)
{
    run->random = random;
    run->pairs = pairs;
    run->used = NORMAL_BLOCK;
}

void normal_refill(normal_run *run)
{
    double radius[NORMAL_BLOCK], angle[NORMAL_BLOCK];
    for (int n = 0; n < NORMAL_BLOCK; n++) {
        radius[n] = random_unit(run->random);
        angle[n] = random_unit(run->random);
        run->unit[n] = run->pairs ? random_unit(run->random) : 0;
    }
    for (int n = 0; n < NORMAL_BLOCK; n++) run->normal[n] = normal_of(radius[n], angle[n]);
    run->used = 0;
}

void normal_end(normal_run *run) { random_skip(run->random, (run->used - NORMAL_BLOCK) * (run->pairs ? 3 : 2)); }
