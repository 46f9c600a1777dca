/* SPDX-License-Identifier: MIT
 *
 * normal.h - standard normal numbers by the method of Box and Muller (1958), one or many at a time: the same bits on every machine,
 * which log and cos of the C library do not promise, and in loops that compilers vectorise.
 */
#ifndef ATTN_TESTING_RANDOM_NORMAL_H
#define ATTN_TESTING_RANDOM_NORMAL_H

#include <math.h>
#include <string.h>

#include "random.h"

/* log(y) of a normal number y, to about a unit in the last place: y = 2^e m with m in [sqrt(1/2), sqrt(2)), and
 * log m = 2 atanh s, s = (m - 1) / (m + 1), by its series. */
static inline double normal_log(double y)
{
    uint64_t bits;
    memcpy(&bits, &y, sizeof bits);
    const uint64_t one = 0x3ff0000000000000, biased = (bits - 0x3fe6a09e667f3bcd + one) >> 52;  /* e + 1023 */
    const uint64_t mantissa = bits - (biased << 52) + one, large = biased | 0x4330000000000000; /* 2^52 + e + 1023 */
    double m, e;
    memcpy(&m, &mantissa, sizeof m);
    memcpy(&e, &large, sizeof e);
    const double s = (m - 1) / (m + 1), z = s * s;
    double sum = 1.0 / 21;
    for (int n = 19; n >= 3; n -= 2) sum = sum * z + 1.0 / n;
    return 2 * s + (2 * s * z * sum + (e - (0x1p52 + 1023)) * 0.6931471805599453);
}

/* cos(2 pi u), u in [0, 1): sin(pi/2 x), x = |4 u - 2| - 1, by its series. */
static inline double normal_cosine(double u)
{
    static const double term[] = {1.5707963267948966,    -0.6459640975062462,    0.07969262624616704,   -0.004681754135318688,
                                  1.6044118478735982e-4, -3.5988432352120853e-6, 5.692172921967927e-8,  -6.688035109811467e-10,
                                  6.066935731106195e-12, -4.377065467313742e-14, 2.5714228928604731e-16}; /* (pi/2)^n / n! */
    const double x = fabs(4 * u - 2) - 1, z = x * x;
    double sum = term[10];
    for (int n = 9; n >= 0; n--) sum = sum * z + term[n];
    return x * sum;
}

/* From two numbers of [0, 1). */
static inline double normal_of(double radius, double angle) { return sqrt(-2 * normal_log(1 - radius)) * normal_cosine(angle); }

/* Standard normal. */
static inline double random_normal(random_state *r)
{
    const double radius = random_unit(r);
    return normal_of(radius, random_unit(r));
}

/* A run of numbers, drawn in blocks: each a standard normal one and, if pairs, a uniform one of [0, 1) after it. */
enum { NORMAL_BLOCK = 64 };
typedef struct normal_run {
    random_state *random;
    int pairs, used;
    double normal[NORMAL_BLOCK], unit[NORMAL_BLOCK];
} normal_run;

void normal_begin(normal_run *run, random_state *random, int pairs);

/* The next block; for normal_next. */
void normal_refill(normal_run *run);

/* The index in run->normal and run->unit of the next numbers. */
static inline int normal_next(normal_run *run)
{
    if (run->used == NORMAL_BLOCK) normal_refill(run);
    return run->used++;
}

/* Gives back what was not used: the state is that after drawing the used numbers one by one. */
void normal_end(normal_run *run);

#endif
