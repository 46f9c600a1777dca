/* SPDX-License-Identifier: MIT
 *
 * measure.h - takes samples of all problems and all ceilings, interleaved.
 */
#ifndef ATTN_CLI_BENCH_MEASURE_H
#define ATTN_CLI_BENCH_MEASURE_H

#include "result.h"

/* Until every candidate has `seconds` of samples.  The next sample is always of the one that had the least time so far, and right
 * before it are those of the ceilings that it is held against; so problems of any length share all of the machine's moods. */
void measure(candidate *candidates, const rivals *against, int count, ceilings *all, double seconds, int quiet);

#endif
