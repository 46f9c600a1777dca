/* SPDX-License-Identifier: MIT
 *
 * case.h - a problem string with the words that only checks know: the data and its memory layout.
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
    FILL_RISING,   /* every key scores higher than the one before: the running maximum always moves */
    FILL_FALLING,  /* the first key wins: later weights vanish */
    FILL_SPREAD,   /* values spread over 40 powers of two */
    FILL_KINDS
} case_fill;

/* The contents of what no query may read: keys and values beyond the lengths, biases of masked pairs, fully masked queries. */
typedef enum case_poison { POISON_NONE, POISON_NAN, POISON_INF, POISON_ONES, POISON_SIGNAL, POISON_KINDS } case_poison;

/* The input that has a few NaN. */
typedef enum case_plant { PLANT_NONE, PLANT_Q, PLANT_K, PLANT_V, PLANT_BIAS, PLANT_KINDS } case_plant;

typedef enum case_memory {
    MEMORY_DENSE,
    MEMORY_PADDED,    /* odd gaps after rows, heads and batches; odd addresses */
    MEMORY_BACKWARD,  /* batches, heads and tokens run backwards */
    MEMORY_BROADCAST, /* one key and value head for the whole batch */
    MEMORY_MIXED,     /* every tensor has its own order of axes; masks and biases are transposed */
    MEMORY_KINDS
} case_memory;

typedef struct check_case {
    problem_spec spec;
    case_fill fill;
    case_poison poison;
    case_plant plant;
    case_memory memory;
    attn_dtype o_dtype;    /* 0: that of the problem */
    attn_dtype bias_dtype; /* 0: the compute type */
    int index32;           /* 1: lengths and offsets are i32 */
} check_case;

/* Like problem_parse and problem_print. */
attn_status case_parse(const char *text, check_case *c, attn_error *error);
size_t case_print(const check_case *c, char *text, size_t size);

enum { CASE_TEXT = 512 }; /* enough for every case */

#endif
