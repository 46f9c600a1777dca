/* SPDX-License-Identifier: MIT
 *
 * case.h - a problem string with the words that only checks know: what the numbers are and how they lie in memory.
 *
 *      fwd:f32:sq33:skv65:d64:causal:seed=7:fill=huge:poison=nan:memory=padded
 */
#ifndef ATTN_TESTING_CASE_H
#define ATTN_TESTING_CASE_H

#include <stddef.h>

#include "testing/problem/problem.h"

/* The order is that of the words in case.c. */
typedef enum case_fill {
    FILL_NORMAL,   /* standard normal */
    FILL_UNIFORM,  /* [-1, 1) */
    FILL_HUGE,     /* scores up to 1000 and beyond */
    FILL_EQUAL,    /* all keys are the same: uniform weights */
    FILL_ONEHOT,   /* each query finds one key */
    FILL_ZERO,     /* 0 and -0 */
    FILL_DENORMAL, /* below the smallest normal number of the storage type */
    FILL_RISING,   /* every key scores more than the one before: the maximum always moves */
    FILL_FALLING,  /* the first key wins: later weights fade into nothing */
    FILL_SPREAD,   /* values over 40 powers of two */
    FILL_KINDS
} case_fill;

/* What lies wherever no query looks: keys and values beyond the lengths, biases of masked pairs, queries that see nothing. */
typedef enum case_poison { POISON_NONE, POISON_NAN, POISON_INF, POISON_ONES, POISON_SIGNAL, POISON_KINDS } case_poison;

/* Where a few NaN lie in kept places. */
typedef enum case_plant { PLANT_NONE, PLANT_Q, PLANT_K, PLANT_V, PLANT_BIAS, PLANT_KINDS } case_plant;

typedef enum case_memory {
    MEMORY_DENSE,
    MEMORY_PADDED,    /* odd gaps behind rows, heads and batches; odd addresses */
    MEMORY_BACKWARD,  /* batches, heads and tokens run backwards */
    MEMORY_BROADCAST, /* one key and value head for the whole batch */
    MEMORY_MIXED,     /* every tensor its own order of axes; masks and biases transposed */
    MEMORY_KINDS
} case_memory;

typedef struct check_case {
    problem_spec spec;
    case_fill fill;
    case_poison poison;
    case_plant plant;
    case_memory memory;
    attn_dtype k_dtype, v_dtype, o_dtype; /* 0: as the problem's */
    attn_dtype bias_dtype;                /* 0: the compute type */
    int index32;                          /* 1: lengths and offsets are i32 */
} check_case;

/* As problem_parse and problem_print. */
attn_status case_parse(const char *text, check_case *c, attn_error *error);
size_t case_print(const check_case *c, char *text, size_t size);

enum { CASE_TEXT = 512 }; /* enough for every case */

#endif
