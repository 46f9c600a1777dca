/* SPDX-License-Identifier: MIT
 * rope.c - rotary position embedding: pairs of channels rotated by an angle proportional to the position. */
#include <inttypes.h>
#include <math.h>

#include "../common/slots.h"
#include "attn/position.h"
#include "rows.h"

static attn_status check_rope(const attn_rope *rope, int64_t channels, attn_error *error)
{
    CHECK(rope->pairs == ATTN_ROPE_PAIRS_INTERLEAVED || rope->pairs == ATTN_ROPE_PAIRS_HALVES, ATTN_ERR_ARGUMENT,
          "rope.pairs is %d; known: 0 (interleaved), 1 (halves)", (int)rope->pairs);
    CHECK(rope->dim_rotary >= 0 && rope->dim_rotary <= channels, ATTN_ERR_SHAPE,
          "rope.dim_rotary is %" PRId64 "; it must be between 0 and %" PRId64 ", the channels", rope->dim_rotary, channels);
    int64_t dim = rope->dim_rotary ? rope->dim_rotary : channels;
    CHECK(dim % 2 == 0, ATTN_ERR_SHAPE, "rope rotates %" PRId64 " channels; pairs need an even number", dim);
    CHECK(rope->base >= 0 && isfinite(rope->base), ATTN_ERR_ARGUMENT,
          "rope.base is %g; it must be above 0 and finite (0 for 10000)", rope->base);
    CHECK(rope->stretch >= 0 && isfinite(rope->stretch), ATTN_ERR_ARGUMENT,
          "rope.stretch is %g; it must be above 0 and finite (0 for 1)", rope->stretch);
    CHECK(rope->inverse == 0 || rope->inverse == 1, ATTN_ERR_ARGUMENT, "rope.inverse is %d; it must be 0 or 1", rope->inverse);
    CHECK(rope->magnitude >= 0 && isfinite(rope->magnitude), ATTN_ERR_ARGUMENT,
          "rope.magnitude is %g; it must be above 0 and finite (0 for 1)", rope->magnitude);
    CHECK(!rope->cosines == !rope->sines, ATTN_ERR_ARGUMENT, "rope has %s and no %s; set both or neither",
          rope->cosines ? "cosines" : "sines", rope->cosines ? "sines" : "cosines");
    for (int k = 0; k < 4; k++)
        CHECK(rope->reserved[k] == 0, ATTN_ERR_ARGUMENT, "rope.reserved[%d] is %" PRId64 "; it must be 0", k, rope->reserved[k]);
    return ATTN_OK;
}

static void rotate_row(const attn_rope *rope, int64_t channels, const char *x, attn_dtype x_dtype, char *y, attn_dtype y_dtype,
                       double position)
{
    int64_t dim = rope->dim_rotary ? rope->dim_rotary : channels;
    double base = rope->base > 0 ? rope->base : 10000, stretch = rope->stretch > 0 ? rope->stretch : 1;
    double magnitude = rope->magnitude > 0 ? rope->magnitude : 1;
    for (int64_t i = 0; i < dim / 2; i++) {
        int64_t first = rope->pairs == ATTN_ROPE_PAIRS_INTERLEAVED ? 2 * i : i;
        int64_t second = rope->pairs == ATTN_ROPE_PAIRS_INTERLEAVED ? 2 * i + 1 : i + dim / 2;
        double c, s;
        if (rope->cosines) {
            int64_t at = (int64_t)position * (dim / 2) + i;
            c = rope->cosines[at];
            s = rope->sines[at];
        } else {
            double frequency = rope->frequencies ? rope->frequencies[i] : pow(base, -2.0 * (double)i / (double)dim);
            double angle = position / stretch * frequency;
            c = magnitude * cos(angle);
            s = magnitude * sin(angle);
        }
        if (rope->inverse) s = -s;
        double a = attn_rows_get(x, x_dtype, first), b = attn_rows_get(x, x_dtype, second);
        attn_rows_put(y, y_dtype, first, a * c - b * s);
        attn_rows_put(y, y_dtype, second, a * s + b * c);
    }
    for (int64_t c = dim; c < channels; c++) attn_rows_put(y, y_dtype, c, attn_rows_get(x, x_dtype, c));
}

attn_status attn_rope_apply(const attn_rope *rope, const int64_t shape[4], const attn_input *x, const attn_input *positions,
                            const attn_output *y, attn_error *error)
{
    attn_rope copy;
    CHECK(shape && x && y, ATTN_ERR_ARGUMENT, "rope: %s is NULL", !shape ? "shape" : !x ? "x" : "y");
    for (int axis = 0; axis < 4; axis++)
        CHECK(shape[axis] >= 0, ATTN_ERR_SHAPE, "rope: shape[%d] (%" PRId64 ") is negative", axis, shape[axis]);
    attn_input from = *x, to = slot_of(y), at;
    CHECK(rope, ATTN_ERR_ARGUMENT, "rope is NULL");
    TRY(struct_read(&copy, sizeof copy, sizeof copy, rope, "attn_rope", error));
    rope = &copy;
    TRY(check_rope(rope, shape[3], error));
    TRY(attn_rows_resolve(&from, "rope: x", shape, ATTN_F32, error));
    TRY(attn_rows_resolve(&to, "rope: y", shape, from.dtype, error));
    int empty = shape[0] == 0 || shape[1] == 0 || shape[2] == 0 || shape[3] == 0;
    CHECK(empty || (from.data && to.data), ATTN_ERR_ARGUMENT, "rope: %s is NULL", from.data ? "y" : "x");
    TRY(attn_rows_positions(&at, positions, "rope: positions", shape[0], shape[2], error));
    if (empty) return succeed(error);
    for (int64_t n = 0; rope->cosines && n < shape[0] * shape[2]; n++) {
        const int64_t p = attn_rows_position(&at, n / shape[2], n % shape[2]);
        CHECK(p >= 0 && p < rope->table_rows, ATTN_ERR_ARGUMENT,
              "rope: token %" PRId64 " is at %" PRId64 "; the tables have %" PRId64 " rows", n, p, rope->table_rows);
    }
    const int64_t pairs = (rope->dim_rotary ? rope->dim_rotary : shape[3]) / 2;
    const attn_rows_places places = {.y = &to,
                                     .x = &from,
                                     .shape = shape,
                                     .shape_x = shape,
                                     .positions = &at,
                                     .read = {{"cosines", rope->cosines, rope->table_rows, pairs},
                                              {"sines", rope->sines, rope->table_rows, pairs},
                                              {"frequencies", rope->frequencies, 1, pairs}}};
    TRY(attn_rows_no_overlap(&places, "rope", "y", "x", error));

    for (int64_t b = 0; b < shape[0]; b++)
        for (int64_t h = 0; h < shape[1]; h++)
            for (int64_t t = 0; t < shape[2]; t++) {
                int64_t i = b * from.stride[0] + h * from.stride[1] + t * from.stride[2];
                int64_t o = b * to.stride[0] + h * to.stride[1] + t * to.stride[2];
                const double position = (double)attn_rows_position(&at, b, t);
                rotate_row(rope, shape[3], (const char *)from.data + i * (int64_t)attn_dtype_size(from.dtype), from.dtype,
                           (char *)slot_written(&to) + o * (int64_t)attn_dtype_size(to.dtype), to.dtype, position);
            }
    return succeed(error);
}
