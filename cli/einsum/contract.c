/* SPDX-License-Identifier: MIT
 * contract.c - see contract.h. */
#include "contract.h"

#include <stdlib.h>
#include <string.h>

#include "attn/product.h"
#include "testing/text/failure.h"

/* Dense in the order of distinct indices. */
typedef struct operand {
    char indices[LETTERS];
    double *data;
} operand;

static const double most_numbers = 0x1p31;

static int64_t size_of(const contraction *c, char letter) { return c->size[(unsigned char)letter]; }

/* The number of elements of such a tensor; 0 if there are too many. */
static int64_t count_of(const contraction *c, const char *indices)
{
    double count = 1;
    for (; *indices; indices++) count *= (double)size_of(c, *indices);
    return count > most_numbers ? 0 : (int64_t)count;
}

static void add_index(char *list, char letter)
{
    if (!strchr(list, letter)) list[strlen(list)] = letter;
}

/* What one step of each index moves in a dense tensor of these indices, which may repeat (a diagonal); 0 for others. */
static void strides_of(const contraction *c, const char *indices, int64_t stride[LETTERS])
{
    int64_t step = 1;
    memset(stride, 0, LETTERS * sizeof *stride);
    for (size_t k = strlen(indices); k-- > 0; step *= size_of(c, indices[k])) stride[(unsigned char)indices[k]] += step;
}

/* For each combination of the indices, in order, adds the element of `from` to that of `to`; an index that one of the two lacks is
 * summed over there, or repeated. */
static void add_elements(const contraction *c, const char *indices, const double *from, const int64_t *from_stride, double *to,
                         const int64_t *to_stride)
{
    const unsigned char letter = (unsigned char)indices[0];
    if (!letter) {
        *to += *from;
        return;
    }
    for (int64_t i = 0; i < c->size[letter]; i++)
        add_elements(c, indices + 1, from + i * from_stride[letter], from_stride, to + i * to_stride[letter], to_stride);
}

/* The elements of a dense tensor of indices `from` as one of indices `to`: in another order, diagonals taken, indices summed. */
static operand rearrange(const contraction *c, const double *data, const char *from, const char *to)
{
    int64_t from_stride[LETTERS], to_stride[LETTERS];
    char all[LETTERS] = "";
    operand result = {.data = need_memory(count_of(c, to), sizeof *result.data)};
    strcpy(result.indices, to);
    strcpy(all, to);
    for (const char *at = from; *at; at++) add_index(all, *at);
    strides_of(c, from, from_stride);
    strides_of(c, to, to_stride);
    add_elements(c, all, data, from_stride, result.data, to_stride);
    return result;
}

/* 1 if the output or a tensor from number `later` on has the index. */
static int is_needed(const contraction *c, int later, char letter)
{
    int needed = strchr(c->output, letter) != NULL;
    for (int k = later; k < c->count; k++) needed |= strchr(c->inputs[k], letter) != NULL;
    return needed;
}

/* One product for each combination of the indices that both have and that are needed later. */
static attn_status multiply(const contraction *c, int later, operand *left, const operand *right, const attn_options *options,
                            attn_error *error)
{
    char batch[LETTERS] = "", rows[LETTERS] = "", columns[LETTERS] = "", inner[LETTERS] = "", order[LETTERS];
    for (const char *at = left->indices; *at; at++)
        add_index(!strchr(right->indices, *at) ? rows : is_needed(c, later, *at) ? batch : inner, *at);
    for (const char *at = right->indices; *at; at++)
        if (!strchr(left->indices, *at)) add_index(columns, *at);
    const attn_product_problem p = {.struct_size = sizeof p,
                                    .dtype = ATTN_F64,
                                    .rows = count_of(c, rows),
                                    .columns = count_of(c, columns),
                                    .inner = count_of(c, inner)};
    operand result = {{0}, NULL};
    strcat(strcat(strcpy(result.indices, batch), rows), columns);
    const int64_t batches = count_of(c, batch), count = count_of(c, result.indices);
    if (!count)
        return failure(error, ATTN_ERR_UNSUPPORTED, "%s has a tensor [%s] of more than 2^31 numbers on its way", c->text,
                       result.indices);
    const operand a = rearrange(c, left->data, left->indices, strcat(strcat(strcpy(order, batch), rows), inner));
    const operand b = rearrange(c, right->data, right->indices, strcat(strcat(strcpy(order, batch), inner), columns));
    result.data = need_memory(count, sizeof *result.data);
    attn_status status = ATTN_OK;
    for (int64_t n = 0; n < batches && status == ATTN_OK; n++) {
        const attn_product_tensors t = {.struct_size = sizeof t,
                                        .a = {a.data + n * p.rows * p.inner, ATTN_F64, {0}},
                                        .b = {b.data + n * p.inner * p.columns, ATTN_F64, {0}},
                                        .c = {result.data + n * p.rows * p.columns, ATTN_F64, {0}}};
        status = attn_product(&p, &t, options, error);
    }
    free(a.data), free(b.data), free(left->data);
    *left = result;
    return status;
}

/* A tensor without what no one else has: its diagonals, summed over its own indices. */
static operand reduced(const contraction *c, int n, const double *data)
{
    char kept[LETTERS] = "";
    for (const char *at = c->inputs[n]; *at; at++) {
        int elsewhere = strchr(c->output, *at) != NULL;
        for (int k = 0; k < c->count; k++) elsewhere |= k != n && strchr(c->inputs[k], *at);
        if (elsewhere) add_index(kept, *at);
    }
    return rearrange(c, data, c->inputs[n], kept);
}

attn_status contract(const contraction *c, const double *const *tensors, const attn_options *options, double **result,
                     attn_error *error)
{
    operand left = reduced(c, 0, tensors[0]);
    attn_status status = ATTN_OK;
    for (int n = 1; n < c->count && status == ATTN_OK; n++) {
        const operand right = reduced(c, n, tensors[n]);
        status = multiply(c, n + 1, &left, &right, options, error);
        free(right.data);
    }
    *result = status == ATTN_OK ? rearrange(c, left.data, left.indices, c->output).data : NULL;
    free(left.data);
    return status;
}

attn_status contract_backward(const contraction *c, int n, const double *const *tensors, const double *grad_output,
                              const attn_options *options, double *gradient, attn_error *error)
{
    /* The gradient of one tensor is a contraction too: of the output's gradient, in its place, with the other tensors, to those of
     * its indices that any of these has. */
    contraction g = *c;
    const double *others[OPERANDS];
    int64_t from[LETTERS], to[LETTERS];
    double *found;
    for (int k = 0; k < c->count; k++) others[k] = tensors[k];
    others[n] = grad_output;
    memset(g.inputs[n], 0, sizeof g.inputs[n]);
    strcpy(g.inputs[n], c->output);
    memset(g.output, 0, sizeof g.output);
    for (const char *at = c->inputs[n]; *at; at++)
        if (contraction_occurrences(&g, *at)) add_index(g.output, *at);
    attn_status status = contract(&g, others, options, &found, error);
    if (status != ATTN_OK) return status;
    char indices[LETTERS] = "";
    for (const char *at = c->inputs[n]; *at; at++) add_index(indices, *at);
    strides_of(c, g.output, from);
    strides_of(c, c->inputs[n], to);
    add_elements(c, indices, found, from, gradient, to);
    free(found);
    return ATTN_OK;
}
