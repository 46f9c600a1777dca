/* SPDX-License-Identifier: MIT
 *
 * drawn.h - checks shared by the tests of score kinds and of normalisers, on combinations of some kinds drawn from seeds, in every
 * type: against ref/ within the bound on every instruction set, against differences, and the same bits for any number of threads.
 */
#ifndef ATTN_TESTS_SCORES_DRAWN_H
#define ATTN_TESTS_SCORES_DRAWN_H

#include "test.h"

#include "combination/differences.h"
#include "combination/outcome.h"

#include <math.h>

enum { MAX_KINDS = 8 };

static const attn_dtype drawn_types[] = {ATTN_F32, ATTN_F64, ATTN_F16, ATTN_BF16};

/* A seed has the kind number seed % kinds. */
typedef struct drawn_kinds {
    const char *const *names;
    int kinds;
    uint64_t first;
    int seeds, seeds_of_type; /* of each kind, before the type changes */
    void (*draw)(combination *c, uint64_t seed, attn_dtype dtype, int flags);
} drawn_kinds;

static inline double drawn_fraction(const drawn_kinds *d, uint64_t seed, attn_dtype dtype, attn_op op)
{
    combination c;
    d->draw(&c, seed, dtype, MORE);
    const double worst = outcome_fraction(&c, op, 1);
    combination_free(&c);
    return worst;
}

static inline void drawn_check_types(const drawn_kinds *d)
{
    double forward[MAX_KINDS][4] = {{0}}, backward[MAX_KINDS][4] = {{0}};
    for (int n = 0; n < d->seeds; n++) {
        const uint64_t seed = d->first + (uint64_t)n;
        const int kind = (int)(seed % (uint64_t)d->kinds), type = n / d->kinds / d->seeds_of_type % 4;
        double *f = &forward[kind][type], *b = &backward[kind][type];
        *f = fmax(*f, drawn_fraction(d, seed, drawn_types[type], ATTN_FORWARD));
        *b = fmax(*b, drawn_fraction(d, seed, drawn_types[type], ATTN_BACKWARD));
    }
    /* A bound that is never approached tells nothing.  (Where a sanitizer leaves few problems, one may be exact in a type.) */
    const int problems_each = d->seeds / d->kinds / 4;
    for (int k = 0; k < d->kinds; k++) {
        double max_forward = 0, max_backward = 0;
        for (int t = 0; t < 4; t++) {
            print_message("%s in %s: at most %.4f of the bound forward, %.4f backward\n", d->names[k],
                          attn_dtype_name(drawn_types[t]), forward[k][t], backward[k][t]);
            max_forward = fmax(max_forward, forward[k][t]), max_backward = fmax(max_backward, backward[k][t]);
            if (problems_each >= 4) assert_true(forward[k][t] > 1e-4 && backward[k][t] > 1e-4);
        }
        assert_true(max_forward > 1e-4 && max_backward > 1e-4);
    }
}

static inline void drawn_check_differences(const drawn_kinds *d, int count)
{
    for (uint64_t seed = d->first + 20000; seed < d->first + 20000 + (uint64_t)count; seed++) {
        combination c;
        d->draw(&c, seed, ATTN_F64, FINITE);
        const double off = differences_off_by(&c, seed, DIFFERENCES_ALL);
        if (off > 1)
            fail_msg("%s, %s: %g times the error that differences allow", c.text, d->names[seed % (uint64_t)d->kinds], off);
        combination_free(&c);
    }
}

static inline void drawn_check_bits(const drawn_kinds *d, int step, const int *thread_counts, int count)
{
    for (int n = 0; n < d->seeds; n += step) {
        combination c;
        d->draw(&c, d->first + 10000 + (uint64_t)n, drawn_types[n % 4], MORE);
        outcome_same_bits(&c, ATTN_BACKWARD, thread_counts, count);
        combination_free(&c);
    }
}

#endif
