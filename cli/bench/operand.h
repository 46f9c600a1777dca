/* SPDX-License-Identifier: MIT
 *
 * operand.h - what one word of the command line asks to be timed: a problem string, or one of the strings that only `attn bench`
 * knows.
 *
 *      matrix:f32:hq8:sq1024:d64:causal              attention over a matrix of all scores, by two matrix products
 *      layer:gqa:bwd:hq32:hkv8:sq512:d128:m4096      a layer with its projections
 */
#ifndef ATTN_CLI_BENCH_OPERAND_H
#define ATTN_CLI_BENCH_OPERAND_H

#include "testing/problem/problem.h"

typedef enum operand_kind { OPERAND_PROBLEM, OPERAND_MATRIX, OPERAND_LAYER } operand_kind;
typedef enum layer_form { LAYER_MHA, LAYER_GQA, LAYER_MLA, LAYER_FORMS } layer_form;

typedef struct operand {
    operand_kind kind;
    problem_spec spec; /* its op is that of the layer too; SPEC_DECODE: over a cache */
    layer_form form;   /* of a layer; the rest too */
    int prefill;       /* 1: the cache is empty before the call */
    int64_t model, rank, rank_query, rotary;
} operand;

/* ATTN_ERR_ARGUMENT names the word that is wrong; *o must then not be used. */
attn_status operand_parse(const char *text, operand *o, attn_error *error);

/* Like snprintf, writes the shortest string that parses to the operand. */
void operand_print(const operand *o, char *text, size_t size);

#endif
