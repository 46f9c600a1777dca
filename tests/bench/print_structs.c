/* SPDX-License-Identifier: MIT
 * print_structs.c - prints sizes and offsets, as compiled, of the structs that bench/structs.py reads from attn.h. */
#include <stddef.h>
#include <stdio.h>

#include "attn/attn.h"

#define SIZE(type)      printf(#type " - %zu\n", sizeof(type))
#define AT(type, field) printf(#type " " #field " %zu\n", offsetof(type, field))

int main(void)
{
    SIZE(attn_error);
    SIZE(attn_shape);
    SIZE(attn_score);
    SIZE(attn_mask);
    SIZE(attn_dropout);
    SIZE(attn_paging);
    SIZE(attn_outputs);
    SIZE(attn_bias_table);
    SIZE(attn_relative);
    SIZE(attn_score_tile);
    SIZE(attn_problem);
    SIZE(attn_tensors);
    SIZE(attn_call);
    SIZE(attn_origin);
    SIZE(attn_input);
    SIZE(attn_output);
    SIZE(attn_tensor_description);
    SIZE(attn_tensor_plan);
    SIZE(attn_options);
    AT(attn_problem, mask);
    AT(attn_problem, outputs);
    AT(attn_problem, paging);
    AT(attn_call, dropout_offset);
    AT(attn_call, visit_context);
    AT(attn_tensors, grad_v);
    AT(attn_tensors, second_grad_lse);
    AT(attn_options, parallel_context);
    return 0;
}
