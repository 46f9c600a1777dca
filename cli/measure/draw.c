/* SPDX-License-Identifier: MIT
 * draw.c - see draw.h. */
#include "draw.h"

#include <string.h>

#include "attn/position.h"
#include "testing/memory/element.h"
#include "testing/memory/format.h"
#include "testing/random/normal.h"

enum { NORMALS = 65521, BLOCKS = 4093, LARGEST_ELEMENT = 8, LARGEST_BLOCK = 34 };
#define INT8_SCALE 0.03 /* of i8 keys and values */
#define F8_SCALE   0.0625

static double scale_of(attn_dtype dtype) { return dtype == ATTN_I8 ? INT8_SCALE : format_is_f8(dtype) ? F8_SCALE : 1; }

static void draw_normals(random_state *random, attn_dtype dtype, double scale, unsigned char *memory, size_t bytes)
{
    static unsigned char table[NORMALS * LARGEST_ELEMENT];
    _Static_assert(BLOCKS * LARGEST_BLOCK <= sizeof table, "as many blocks");
    const int blocks = format_is_blocks(dtype) || dtype == ATTN_Q4_1C;
    const size_t element = attn_dtype_size(dtype), whole = (blocks ? BLOCKS : NORMALS) * element;
    for (size_t k = 0; k < whole && k < bytes; k += element) {
        double x[ATTN_BLOCK];
        for (int c = 0; c < (blocks ? ATTN_BLOCK : 1); c++) x[c] = random_normal(random) / scale;
        if (blocks) format_put_block(table + k, dtype, x);
        else element_write(dtype, table + k, dtype == ATTN_I8 ? fmax(-127, fmin(127, nearbyint(x[0]))) : x[0]);
    }
    for (size_t at = 0; at < bytes; at += whole) memcpy(memory + at, table, bytes - at < whole ? bytes - at : whole);
}

void draw_numbers(random_state *random, attn_dtype dtype, void *memory, size_t bytes)
{
    draw_normals(random, dtype, 1, memory, bytes);
}

/* Scales the matrix so that scores are about as large as those of a dot product. */
static void shrink_matrix(const attn_problem *p, const attn_tensors *tensors, attn_dtype dtype, unsigned char *memory, size_t bytes)
{
    int64_t size[4];
    tensors_shape(p, tensors, TENSOR(score_matrix), size);
    const double fan = p->score.kind == ATTN_SCORE_ADDITIVE ? 1
                       : p->score.kind == ATTN_SCORE_METRIC ? pow((double)size[2], 0.25) * sqrt(sqrt((double)size[3]))
                                                            : sqrt((double)(size[2] * size[3]));
    for (size_t at = 0; at < bytes && fan > 1; at += attn_dtype_size(dtype))
        element_write(dtype, memory + at, element_read(dtype, memory + at) / fan);
}

void draw_tensor(random_state *random, const problem_spec *spec, const attn_problem *p, const attn_tensors *tensors, int t,
                 void *to, size_t bytes)
{
    unsigned char *memory = to;
    const attn_dtype dtype = tensors_dtype(tensors, t);
    const size_t heads = (size_t)p->shape.heads_q * attn_dtype_size(dtype);
    const double drop = t == TENSOR(mask) ? spec->mask_drop : spec->block_drop;
    if (dtype == ATTN_BOOL) {
        for (size_t k = 0; k < bytes; k++) memory[k] = random_unit(random) >= drop;
    } else if (t == TENSOR(k_scale) || t == TENSOR(v_scale)) {
        const double scale = scale_of(tensors_dtype(tensors, t == TENSOR(k_scale) ? TENSOR(k) : TENSOR(v)));
        for (size_t at = 0; at < bytes; at += sizeof(float)) element_write(ATTN_F32, memory + at, scale);
    } else if (t == TENSOR(alibi_slopes)) { /* of Press et al. 2022 */
        for (size_t at = 0; at < bytes; at += heads)
            (void)attn_alibi_slopes(p->shape.heads_q, &(attn_output){memory + at, dtype, {0, 0, 0, 0}}, NULL);
    } else {
        const int scaled = t == TENSOR(k) ? tensors->k_scale.data != NULL : t == TENSOR(v) && tensors->v_scale.data;
        draw_normals(random, dtype, scaled ? scale_of(dtype) : 1, memory, bytes);
        if (t == TENSOR(score_matrix)) shrink_matrix(p, tensors, dtype, memory, bytes);
    }
}
