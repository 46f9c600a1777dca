/* SPDX-License-Identifier: MIT
 *
 * problem_rules.h - the language of problem strings as a table; private to this folder.
 *
 * A new word is one line in problem_rules.c: its name and help, how its value is read and printed, and its field.
 */
#ifndef ATTN_TESTING_PROBLEM_PROBLEM_RULES_H
#define ATTN_TESTING_PROBLEM_PROBLEM_RULES_H

#include "problem.h"

typedef struct problem_rule problem_rule;

/* Reads the text after '=' (NULL: no '='); for other forms, the number or the word itself. */
typedef attn_status value_read(const problem_rule *rule, problem_spec *spec, const char *value, attn_error *error);

/* Prints the value in the form that `read` accepts; "" if the word has no value.  Returns 0 if the field has its default, so that
 * the word is omitted. */
typedef int value_print(const problem_rule *rule, const problem_spec *spec, char *text, size_t size);

struct problem_rule {
    problem_word word;
    value_read *read;
    value_print *print;
    size_t field;               /* offset in problem_spec */
    double low, high;           /* of numbers: low <= x <= high */
    const char *const *choices; /* the words in the order of their enum, from `first`; or patterns such as "shaw/DISTANCE" */
    int first;                  /* the enum value of choices[0] */
    int omitted;                /* the enum value of the word without '=' */
};

extern const problem_rule problem_rules[];
extern const int problem_rules_count;

#endif
