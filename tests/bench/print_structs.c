/* SPDX-License-Identifier: MIT
 * print_structs.c - sizes and offsets of the structs that bench/libattn.py reads from attn.h, as the compiler lays them out. */
#include <stddef.h>
#include <stdio.h>

#include "attn/attn.h"

#define SIZE(type)      printf(#type " - %zu\n", sizeof(type))
#define AT(type, field) printf(#type " " #field " %zu\n", offsetof(type, field))

int main(void)
{
    SIZE(attn_error);
    SIZE(attn_layout);
    SIZE(attn_shape);
    SIZE(attn_score);
    SIZE(attn_mask);
    SIZE(attn_bias);
    SIZE(attn_dropout);
    SIZE(attn_paging);
    SIZE(attn_gradients);
    SIZE(attn_tangents);
    SIZE(attn_second);
    SIZE(attn_want);
    SIZE(attn_bias_table);
    SIZE(attn_modifier);
    SIZE(attn_relative);
    SIZE(attn_score_tile);
    SIZE(attn_problem);
    SIZE(attn_args);
    SIZE(attn_options);
    SIZE(attn_merge_problem);
    AT(attn_problem, mask);
    AT(attn_problem, want);
    AT(attn_problem, gradients);
    AT(attn_problem, paging);
    AT(attn_args, dropout_offset);
    AT(attn_args, grad_v);
    AT(attn_args, visit_context);
    AT(attn_options, parallel_context);
    return 0;
}
