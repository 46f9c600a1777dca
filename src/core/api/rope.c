/* SPDX-License-Identifier: MIT
 * rope.c - rotary position embedding: pairs of channels rotated by an angle proportional to the position. */
#include <inttypes.h>
#include <math.h>

#include "../../common/rows.h"
#include "transfer.h"

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

/* A table of the caller's: [1, 1, table_rows, pairs] of any float type and strides. */
static attn_status resolve_table(attn_input *table, const char *name, const attn_rope *rope, int64_t pairs, attn_error *error)
{
    const int64_t shape[4] = {1, 1, rope->table_rows, pairs};
    TRY(slot_resolve(table, name, shape, ATTN_F32, error));
    CHECK(!table->data || attn_rows_is_float(table->dtype), ATTN_ERR_UNSUPPORTED, "%s is %s; it must be f32, f64, f16 or bf16",
          name, attn_dtype_name(table->dtype));
    return ATTN_OK;
}

attn_status attn_rope_read(attn_rope *copy, const attn_rope *rope, int64_t channels, attn_error *error)
{
    TRY(slots_read(copy, sizeof *copy, sizeof *copy, rope, "attn_rope", error));
    TRY(check_rope(copy, channels, error));
    const int64_t pairs = (copy->dim_rotary ? copy->dim_rotary : channels) / 2;
    attn_input *const tables[2] = {&copy->cos_table, &copy->sin_table};
    const int given = !slot_is_absent(tables[0]) + !slot_is_absent(tables[1]);
    if (!given) return ATTN_OK;
    CHECK(!copy->cosines, ATTN_ERR_ARGUMENT, "rope has cosines and a cos_table; set one of them");
    CHECK(given == 2, ATTN_ERR_ARGUMENT, "rope has a %s and no %s; set both or neither",
          slot_is_absent(tables[0]) ? "sin_table" : "cos_table", slot_is_absent(tables[0]) ? "cos_table" : "sin_table");
    CHECK(copy->table_rows >= 0, ATTN_ERR_SHAPE, "rope.table_rows (%" PRId64 ") is negative", copy->table_rows);
    TRY(resolve_table(tables[0], "rope.cos_table", copy, pairs, error));
    return resolve_table(tables[1], "rope.sin_table", copy, pairs, error);
}

/* Token n of a call of attn_rope_apply stays where it is. */
typedef struct tokens {
    const attn_input *positions;
    int64_t each; /* entry */
} tokens;

static int find_token(const void *context, int64_t n, attn_transfer_token *t)
{
    const tokens *all = context;
    const int64_t b = n / all->each, i = n % all->each;
    *t = (attn_transfer_token){b, i, b, i, attn_rows_position(all->positions, b, i), 0, 0, 0};
    return 1;
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
    TRY(attn_rope_read(&copy, rope, shape[3], error));
    rope = &copy;
    TRY(attn_rows_resolve(&from, "rope: x", shape, ATTN_F32, error));
    TRY(attn_rows_resolve(&to, "rope: y", shape, from.dtype, error));
    int empty = shape[0] == 0 || shape[1] == 0 || shape[2] == 0 || shape[3] == 0;
    CHECK(empty || (from.data && to.data), ATTN_ERR_ARGUMENT, "rope: %s is NULL", from.data ? "y" : "x");
    TRY(attn_rows_positions(&at, positions, "rope: positions", shape[0], shape[2], error));
    if (empty) return succeed(error);
    for (int64_t n = 0; attn_rope_has_table(rope) && n < shape[0] * shape[2]; n++) {
        const int64_t p = attn_rows_position(&at, n / shape[2], n % shape[2]);
        CHECK(p >= 0 && p < rope->table_rows, ATTN_ERR_ARGUMENT,
              "rope: token %" PRId64 " is at %" PRId64 "; the tables have %" PRId64 " rows", n, p, rope->table_rows);
    }
    const attn_rows_places all_places = {.y = &to, .x = &from, .shape = shape, .shape_x = shape, .positions = &at, .rope = rope};
    TRY(attn_rows_no_overlap(&all_places, "rope", "y", "x", error));

    const tokens all = {&at, shape[2]};
    attn_transfer_walk walk = {.tokens = shape[0] * shape[2], .find = find_token, .context = &all, .tensors = 1};
    walk.tensor[0] = (attn_transfer_tensor){.heads = shape[1],
                                            .dim = shape[3],
                                            .from = from,
                                            .to = {slot_written(&to), to.dtype, {to.stride[0], to.stride[1], to.stride[2], 1}},
                                            .rope = rope};
    TRY(attn_transfer_plan(&walk, NULL, 1, error));
    attn_run_transfer(&walk);
    return succeed(error);
}
