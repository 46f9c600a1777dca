/* SPDX-License-Identifier: MIT
 *
 * problem_values.h - readers and printers of the values of words in problem strings; private to problem_rules.c.
 *
 * Generic ones use the rule's field, bounds and choices: size, count, number, flag, choice, pattern.  The others have a fixed
 * field.
 */
#ifndef ATTN_TESTING_PROBLEM_PROBLEM_VALUES_H
#define ATTN_TESTING_PROBLEM_PROBLEM_VALUES_H

#include "problem_rules.h"

value_read value_read_size, value_read_number, value_read_scale, value_read_seed, value_read_offset, value_read_window,
    value_read_count, value_read_clipped, value_read_flag, value_read_choice, value_read_t5, value_read_pattern, value_read_mask,
    value_read_block, value_read_bias, value_read_sparse;

value_print value_print_not_zero, value_print_not_one, value_print_scale, value_print_seed, value_print_offset, value_print_count,
    value_print_clipped, value_print_window, value_print_flag, value_print_choice, value_print_t5, value_print_pattern,
    value_print_block, value_print_mask, value_print_bias, value_print_word, value_print_size;

#endif
