/* SPDX-License-Identifier: MIT
 *
 * mask.c - masks, biases, lengths and offsets of a file, and how they broadcast over the leading axes. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "parts.h"
#include "testing/memory/element.h"
#include "testing/text/failure.h"

/* ---- broadcasting over the leading axes ---- */

/* 1 if the axes of `shape` are, from the last one, each 1 or the size of the input's leading axis; *full: all are that size. */
static int fits_leading(const attention_input *input, int rank, const int64_t *shape, int *full)
{
    *full = 1;
    for (int back = 1; back <= rank || back <= input->leading; back++) {
        int64_t required = back <= input->leading ? input->lead[input->leading - back] : 1;
        int64_t have = back <= rank ? shape[rank - back] : 1;
        if (have != required && have != 1) return 0;
        *full &= have == required;
    }
    return 1;
}

int64_t input_entry_of(const attention_input *input, int rank, const int64_t *shape, int64_t b)
{
    int64_t entry = 0, step = 1;
    for (int back = 1; back <= input->leading && back <= rank; back++) {
        int64_t required = input->lead[input->leading - back], have = shape[rank - back];
        if (have != 1) entry += b % required * step;
        b /= required;
        step *= have;
    }
    return entry;
}

/* ---- mask and bias ---- */

/* Sets the axes of size 1 and the pointer; copies if some leading axes broadcast and others do not, which strides cannot express.
 */
static attn_status read_pairs(attention_input *input, int r, const int64_t required[4], const char *axes, int *one,
                              attn_error *error)
{
    const input_tensor *used = &input->used[r];
    const attn_archive_tensor *t = used->tensor;
    const attn_shape *s = &input->spec.shape;
    int64_t have[4] = {1, 1, 1, 1};
    char actual_text[SHAPE_TEXT], expected_text[SHAPE_TEXT];
    int fits = t->rank >= 2, full = 1, leading = t->rank > 3 ? t->rank - 3 : 0;
    for (int axis = 1; fits && axis < 4; axis++) {
        if (axis >= 4 - t->rank) have[axis] = t->shape[t->rank - 4 + axis];
        if (have[axis] != required[axis] && have[axis] != 1) fits = 0;
    }
    if (!fits || !fits_leading(input, leading, t->shape, &full))
        return failure(error, ATTN_ERR_SHAPE, "%.60s: tensor '%.30s' %.50s does not broadcast to %.50s %s", used->path, t->name,
                       shape_text(actual_text, t->rank, t->shape), shape_text(expected_text, 4, required), axes);

    int64_t entries = 1;
    for (int a = 0; a < leading; a++) entries *= t->shape[a];
    have[0] = full ? s->batch : entries == 1 ? 1 : s->batch;
    input_set(input, r, t->data, t->dtype);
    if (!full && entries != 1) {
        size_t slice = s->batch && entries ? t->bytes / (size_t)entries : 0;
        char *copy = input_alloc(input, s->batch, slice ? slice : 1);
        for (int64_t b = 0; b < s->batch && slice; b++)
            memcpy(copy + (size_t)b * slice, (const char *)t->data + (size_t)input_entry_of(input, leading, t->shape, b) * slice,
                   slice);
        input_set(input, r, copy, t->dtype);
    }
    *one = 0;
    for (int axis = 0; axis < 4; axis++)
        if (have[axis] == 1 && required[axis] != 1) *one |= 1 << axis;
    return ATTN_OK;
}

int64_t input_zeros(const attn_archive_tensor *t)
{
    const unsigned char *bytes = t->data;
    int64_t zeros = 0;
    for (size_t k = 0; k < t->bytes; k++) zeros += !bytes[k];
    return zeros;
}

double input_dropped(int64_t zeros, int64_t elements) { return elements ? round((double)zeros / (double)elements * 1e4) / 1e4 : 0; }

static double dropped_share(const attn_archive_tensor *t) { return input_dropped(input_zeros(t), (int64_t)t->bytes); }

static const char pair_axes[] = "(batch, head, query, key)";

/* A mask of blocks, or of dropout. */
static attn_status check_keep(const input_tensor *t, attn_error *error)
{
    return input_check_type(t, t->tensor->dtype == ATTN_BOOL || t->tensor->dtype == ATTN_U8, "bool or u8 (1 = keep)", error);
}

static attn_status read_blocks(attention_input *input, attn_error *error)
{
    const input_tensor *blocks = &input->used[TENSOR(block_mask)];
    const attn_shape *s = &input->spec.shape;
    if (!blocks->tensor && input->spec.block)
        return failure(error, ATTN_ERR_ARGUMENT,
                       "%.80s: --block needs a tensor 'blocks' (1 = keep); --block-mask=NAME chooses another", input->path);
    if (!blocks->tensor) return ATTN_OK;
    if (!input->spec.block)
        return failure(error, ATTN_ERR_ARGUMENT,
                       "%.80s: tensor '%.30s': --block=Q,K gives the queries and keys of each entry; --ignore=%.30s leaves "
                       "it out",
                       blocks->path, blocks->tensor->name, blocks->tensor->name);
    const int64_t required[4] = {s->batch, s->heads_q, problem_blocks(s->len_q, input->spec.block_q),
                                 problem_blocks(s->len_kv, input->spec.block_kv)};
    attn_status status = check_keep(blocks, error);
    if (status == ATTN_OK)
        status =
            read_pairs(input, TENSOR(block_mask), required, "(batch, head, query block, key block)", &input->spec.block_one, error);
    input->spec.block_drop = dropped_share(blocks->tensor);
    return status;
}

void input_block_rows(attention_input *input)
{
    attn_problem *p = &input->problem;
    const attn_output *blocks = tensors_at(&input->tensors, TENSOR(block_mask));
    int64_t shape[4], extent[4], stride[4];
    tensors_extent(p, &input->tensors, TENSOR(block_mask), extent);
    tensors_strides(p, &input->tensors, TENSOR(block_mask), stride);
    tensors_shape(p, &input->tensors, TENSOR(block_mask), shape);
    const int64_t block_q = p->mask.block_q, len_q = p->shape.len_q, count = extent[0] * extent[1] * len_q * shape[3];
    const unsigned char *from = blocks->data;
    unsigned char *rows = input_alloc(input, count > 0 ? count : 1, 1), *to = rows;
    for (int64_t b = 0; b < extent[0]; b++)
        for (int64_t h = 0; h < extent[1]; h++)
            for (int64_t i = 0; i < len_q; i++)
                for (int64_t j = 0; j < shape[3]; j++)
                    *to++ = from[b * stride[0] + h * stride[1] + i / block_q * stride[2] + j * stride[3]];
    p->mask.block_q = 1;
    shape[2] = len_q;
    input_set(input, TENSOR(block_mask), rows, blocks->dtype);
    (void)tensors_lay(tensors_slot(&input->tensors, TENSOR(block_mask)), shape, (const int[4]){0, 1, 2, 3},
                      (extent[0] == 1) | (extent[1] == 1) << 1);
}

/* The tensor `mask` as bytes with the axes that it means; numbers to be added become the bias. */
static attn_status read_keep(attention_input *input, int drop, attn_error *error)
{
    input_tensor *mask = &input->used[TENSOR(mask)], *bias = &input->used[TENSOR(bias)];
    const attn_shape *s = &input->spec.shape;
    attn_status status = input_check_type(mask, keep_type_fits(mask->tensor->dtype), "0 and 1, of any type of numbers", error);
    if (status != ATTN_OK) return status;
    const int64_t size[4] = {input->leading == 1 ? s->batch : 0, s->heads_q, s->len_q, s->len_kv};
    status = keep_mask_read(&input->keep, mask->tensor, bias->tensor, drop, size, error);
    if (status != ATTN_OK) return failure_about(error, mask->path);
    mask->tensor = &input->keep.tensor;
    if (!input->keep.is_added) return ATTN_OK;
    *bias = *mask;
    *mask = (input_tensor){0};
    return ATTN_OK;
}

attn_status input_read_masks(attention_input *input, int drop, attn_error *error)
{
    const input_tensor *mask = &input->used[TENSOR(mask)], *bias = &input->used[TENSOR(bias)];
    const attn_shape *s = &input->spec.shape;
    const int64_t required[4] = {s->batch, s->heads_q, s->len_q, s->len_kv};
    attn_status status = read_blocks(input, error);
    if (status == ATTN_OK && drop && !mask->tensor)
        return failure(error, ATTN_ERR_ARGUMENT,
                       "%.80s: --mask-drop says what a mask means, and there is none; --mask=NAME chooses one", input->path);
    if (!mask->tensor && !input->used[TENSOR(lengths_kv)].tensor) keep_name_doubt(input->file, bias->tensor);
    if (mask->tensor && status == ATTN_OK) status = read_keep(input, drop, error);
    if (mask->tensor && status == ATTN_OK) {
        status = read_pairs(input, TENSOR(mask), required, pair_axes, &input->spec.mask_one, error);
        input->spec.mask = 1;
        input->spec.mask_drop = dropped_share(mask->tensor);
        if (status == ATTN_OK && !input->is_shared)
            keep_mask_doubt(mask->tensor->name, tensors_at(&input->tensors, TENSOR(mask))->data, required, input->spec.mask_one,
                            drop);
    }
    if (bias->tensor && status == ATTN_OK) {
        status = input_check_float(bias, error);
        if (status == ATTN_OK) status = read_pairs(input, TENSOR(bias), required, pair_axes, &input->spec.bias_one, error);
        input->spec.bias = 1;
        if (status == ATTN_OK && !input->keep.is_added) keep_bias_doubt(bias->tensor);
    }
    const input_tensor *keep = &input->used[TENSOR(dropout_given)], *tangent = &input->used[TENSOR(tan_bias)];
    if (keep->tensor && status == ATTN_OK) {
        status = check_keep(keep, error);
        if (status == ATTN_OK) status = read_pairs(input, TENSOR(dropout_given), required, pair_axes, &input->keep_one, error);
        if (status == ATTN_OK) /* no option requests it */
            (void)tensors_lay(tensors_slot(&input->tensors, TENSOR(dropout_given)), required, (const int[4]){0, 1, 2, 3},
                              input->keep_one);
    }
    if (tangent->tensor && status == ATTN_OK) {
        int one;
        status = input_check_float(tangent, error);
        if (status == ATTN_OK && !bias->tensor)
            status = failure(error, ATTN_ERR_ARGUMENT, "%.80s: tensor '%.40s' is the tangent of a bias, and there is no bias",
                             tangent->path, tangent->tensor->name);
        if (status == ATTN_OK && (tangent->tensor->rank != bias->tensor->rank ||
                                  memcmp(tangent->tensor->shape, bias->tensor->shape, sizeof bias->tensor->shape) != 0))
            status = input_mismatch(tangent, bias, error, "axes of a tangent and of its bias: %" PRId64 " and %" PRId64,
                                    tangent->tensor->rank, bias->tensor->rank);
        if (status == ATTN_OK) status = read_pairs(input, TENSOR(tan_bias), required, pair_axes, &one, error);
    }
    return status;
}

/* ---- lengths and offsets ---- */

int input_positions_matter(const problem_spec *spec)
{
    return spec->causal || spec->window || spec->sparse[0] || spec->chunk || spec->alibi || spec->t5 || spec->clipped ||
           spec->rel[0];
}

attn_status input_check_positions(const problem_spec *spec, const char *flag, int rotated, attn_error *error)
{
    if (!flag || rotated || input_positions_matter(spec)) return ATTN_OK;
    return failure(error, ATTN_ERR_ARGUMENT,
                   "--%s has no effect without --causal, --window, --sparse, --chunk, --alibi, --t5, --clipped, --rel or --rope: "
                   "nothing else depends on the positions of queries",
                   flag);
}

/* One number for each batch entry, as i64. */
static attn_status read_index(attention_input *input, int r, attn_error *error)
{
    const input_tensor *used = &input->used[r];
    const attn_archive_tensor *t = used->tensor;
    char actual_text[SHAPE_TEXT], expected_text[SHAPE_TEXT];
    int full;
    attn_status status = input_check_type(used, t->dtype >= ATTN_I8 && t->dtype <= ATTN_U64, "integers, such as i64", error);
    if (status != ATTN_OK) return status;
    if (!fits_leading(input, t->rank, t->shape, &full))
        return failure(error, ATTN_ERR_SHAPE, "%.60s: tensor '%.30s' %.60s: expected one number for each batch entry %.60s",
                       used->path, t->name, shape_text(actual_text, t->rank, t->shape),
                       shape_text(expected_text, input->leading, input->lead));
    int64_t *index = input_alloc(input, input->spec.shape.batch, sizeof *index);
    for (int64_t b = 0; b < input->spec.shape.batch; b++)
        if (!input_integer(t, input_entry_of(input, t->rank, t->shape, b), &index[b]))
            return failure(error, ATTN_ERR_ARGUMENT, "%.80s: tensor '%.40s' has a number beyond 2^63", used->path, t->name);
    input_set(input, r, index, ATTN_I64);
    return ATTN_OK;
}

attn_status input_read_indices(attention_input *input, attn_error *error)
{
    attn_status status = ATTN_OK;
    int q = input->used[TENSOR(lengths_q)].tensor != NULL, kv = input->used[TENSOR(lengths_kv)].tensor != NULL;
    if (q) status = read_index(input, TENSOR(lengths_q), error);
    if (kv && status == ATTN_OK) status = read_index(input, TENSOR(lengths_kv), error);
    input->spec.lengths = q && kv ? SPEC_LENGTHS_BOTH : q ? SPEC_LENGTHS_Q : kv ? SPEC_LENGTHS_KV : SPEC_LENGTHS_NONE;
    if (input->used[TENSOR(offset_q)].tensor && status == ATTN_OK) {
        input->spec.offset_kind = SPEC_OFFSET_EACH;
        status = read_index(input, TENSOR(offset_q), error);
    } else if (input->spec.offset_kind == SPEC_OFFSET_VALUE && status == ATTN_OK) {
        int64_t *offset = input_alloc(input, input->spec.shape.batch, sizeof *offset);
        for (int64_t b = 0; b < input->spec.shape.batch; b++) offset[b] = input->spec.offset;
        input_set(input, TENSOR(offset_q), offset, ATTN_I64);
    }
    return status;
}
