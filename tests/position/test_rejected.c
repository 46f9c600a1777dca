/* SPDX-License-Identifier: MIT
 * test_rejected.c - what positional encodings reject, with the exact message and outputs untouched. */
#include "fails.h"

#include "attn/position.h"

#include <math.h>

static void test_scaling(void **state)
{
    (void)state;
    double f[4] = {-1, -1, -1, -1};
    attn_rope_scaling s = {.struct_size = sizeof s, .dim = 8, .factor = 2, .original_length = 16};
#define SCALING(change, text)                                                                                                      \
    do {                                                                                                                           \
        attn_rope_scaling was = s;                                                                                                 \
        change;                                                                                                                    \
        FAILS(attn_rope_frequencies(&s, f, NULL, &error), ATTN_ERR_ARGUMENT, text);                                                \
        s = was;                                                                                                                   \
    } while (0)
    SCALING(s.struct_size = 3, "attn_rope_scaling.struct_size is 3; set it to sizeof(attn_rope_scaling)");
    SCALING(s.kind = (attn_rope_scaling_kind)9,
            "scaling.kind is 9; known: 0 (linear), 1 (NTK), 2 (dynamic NTK), 3 (YaRN), 4 (Llama 3)");
    SCALING(s.dim = 7, "scaling.dim is 7; it must be even");
    SCALING((s.dim = 2, s.kind = ATTN_ROPE_SCALING_NTK), "scaling.dim is 2; it must be even and above 2 for NTK");
    SCALING(s.base = 1, "scaling.base is 1; it must be above 1 and finite (0 for 10000)");
    SCALING(s.factor = 0.5, "scaling.factor is 0.5; it must be at least 1");
    SCALING(s.factor = NAN, "scaling.factor is nan; it must be at least 1");
    SCALING((s.original_length = 0, s.kind = ATTN_ROPE_SCALING_YARN), "scaling.original_length is 0; it must be at least 1");
    SCALING(s.length = -1, "scaling.length is -1; it must be at least 0");
    SCALING((s.fast = 1, s.slow = 2), "scaling.fast is 1 and slow 2; fast must be above slow (0 for the defaults)");
    SCALING((s.kind = ATTN_ROPE_SCALING_LLAMA3, s.slow = 4), "scaling.fast is 4 and slow 4; fast must be above slow");
    SCALING((s.kind = ATTN_ROPE_SCALING_YARN, s.slow = 40), "scaling.fast is 32 and slow 40; fast must be above slow");
    SCALING((s.kind = ATTN_ROPE_SCALING_YARN, s.fast = 0.5), "scaling.fast is 0.5 and slow 1; fast must be above slow");
    FAILS(attn_rope_frequencies(NULL, f, NULL, &error), ATTN_ERR_ARGUMENT, "scaling is NULL");
    FAILS(attn_rope_frequencies(&s, NULL, NULL, &error), ATTN_ERR_ARGUMENT, "frequencies is NULL");
    for (int k = 0; k < 4; k++) assert_true(f[k] == -1);

    const int64_t shape[4] = {1, 1, 1, 4};
    const attn_input from = {f, ATTN_F64, {0, 0, 0, 0}};
    const attn_output to = {f, ATTN_F64, {0, 0, 0, 0}};
    attn_rope rope = {.struct_size = sizeof rope, .magnitude = -1};
    FAILS(attn_rope_apply(&rope, shape, &from, NULL, &to, &error), ATTN_ERR_ARGUMENT,
          "rope.magnitude is -1; it must be above 0 and finite (0 for 1)");
    rope = (attn_rope){.struct_size = sizeof rope, .sines = f};
    FAILS(attn_rope_apply(&rope, shape, &from, NULL, &to, &error), ATTN_ERR_ARGUMENT,
          "rope has sines and no cosines; set both or neither");
    rope = (attn_rope){.struct_size = sizeof rope, .cos_table = attn_in(f), .sin_table = attn_in(f), .cosines = f, .sines = f};
    FAILS(attn_rope_apply(&rope, shape, &from, NULL, &to, &error), ATTN_ERR_ARGUMENT,
          "rope has cosines and a cos_table; set one of them");
    rope = (attn_rope){.struct_size = sizeof rope, .sin_table = attn_in(f)};
    FAILS(attn_rope_apply(&rope, shape, &from, NULL, &to, &error), ATTN_ERR_ARGUMENT,
          "rope has a sin_table and no cos_table; set both or neither");
    rope =
        (attn_rope){.struct_size = sizeof rope, .cos_table = attn_in(f), .sin_table = {f, ATTN_I8, {0, 0, 0, 0}}, .table_rows = 2};
    FAILS(attn_rope_apply(&rope, shape, &from, NULL, &to, &error), ATTN_ERR_UNSUPPORTED,
          "rope.sin_table is i8; it must be f32, f64, f16 or bf16");
    rope = (attn_rope){.struct_size = sizeof rope, .cos_table = attn_in(f), .sin_table = attn_in(f), .table_rows = -2};
    FAILS(attn_rope_apply(&rope, shape, &from, NULL, &to, &error), ATTN_ERR_SHAPE, "rope.table_rows (-2) is negative");
    const int64_t second = 2;
    const attn_input beyond = attn_in(&second);
    rope = (attn_rope){.struct_size = sizeof rope, .cosines = f, .sines = f, .table_rows = 2};
    FAILS(attn_rope_apply(&rope, shape, &from, &beyond, &to, &error), ATTN_ERR_ARGUMENT,
          "rope: token 0 is at 2; the tables have 2 rows");
    for (int k = 0; k < 4; k++) assert_true(f[k] == -1);
}

/* Sizes beyond any memory, addresses that overflow, and outputs that overlap inputs. */
static void test_beyond(void **state)
{
    (void)state;
    double f[8] = {-1, -1, -1, -1, -1, -1, -1, -1};
    int64_t places[2] = {0, 1};
    const int64_t most = INT64_MAX, shape[4] = {1, 1, 2, 2}, wide[4] = {most / 2, 1, 4, 0};
    const attn_input from = {f, ATTN_F64, {0, 0, 0, 0}}, far = {f, ATTN_F64, {0, 0, most / 4, 1}}, at = attn_in(places);
    const attn_output to = {f + 4, ATTN_F64, {0, 0, 0, 0}}, over = {f + 1, ATTN_F64, {0, 0, 0, 0}},
                      on_places = {places, ATTN_F64, {0, 0, 0, 0}}, one = {f + 4, ATTN_F64, {0, 0, ATTN_BROADCAST, 1}};
    const attn_rope rope = {.struct_size = sizeof rope};
    const attn_rope_scaling scaling = {.struct_size = sizeof scaling, .dim = most - 1, .factor = 1};
    attn_distance_bias d = {.struct_size = sizeof d, .kind = ATTN_DISTANCE_CLIPPED, .heads = 2, .max_distance = 1, .len_q = 1};
    d.len_kv = most;
    FAILS(attn_distance_bias_fill(&d, &from, &to, &error), ATTN_ERR_SHAPE,
          "distance bias: bias is too large: its bytes overflow 64 bits");
    d.len_kv = 1, d.offset_q = most;
    FAILS(attn_distance_bias_backward(&d, &from, &to, &error), ATTN_ERR_ARGUMENT,
          "distance bias: offset_q is 9223372036854775807; it must be between -2^60 and 2^60");
    d.offset_q = 0, d.max_distance = most / 8;
    FAILS(attn_distance_bias_fill(&d, &from, &to, &error), ATTN_ERR_SHAPE,
          "distance bias: table is too large: its bytes overflow 64 bits");
    FAILS(attn_position_resize(most, 3, 5, &from, &to, &error), ATTN_ERR_SHAPE,
          "position resize: x is too large: its bytes overflow 64 bits");
    FAILS(attn_alibi_slopes(most, &to, &error), ATTN_ERR_SHAPE, "alibi: slopes is too large: its bytes overflow 64 bits");
    FAILS(attn_rope_frequencies(&scaling, f, NULL, &error), ATTN_ERR_SHAPE,
          "rope: dim (9223372036854775806) is too large: the bytes of its frequencies overflow 64 bits");
    FAILS(attn_position_add(2, wide, &from, &from, &at, &to, &error), ATTN_ERR_SHAPE,
          "position table: positions is too large: its bytes overflow 64 bits");
    FAILS(attn_rope_apply(&rope, shape, &far, NULL, &to, &error), ATTN_ERR_SHAPE,
          "rope: x.stride[2] (2305843009213693951) times its size (2) overflows 64-bit addresses");
    OVERLAPS(attn_rope_apply(&rope, shape, &from, NULL, &over, &error), "rope: y and x");
    FAILS(attn_rope_apply(&rope, shape, &from, NULL, &one, &error), ATTN_ERR_STRIDE,
          "rope: y overlaps itself: stride[2] is 0 and the axes with smaller strides span 1 elements");
    OVERLAPS(attn_position_add(2, shape, &from, &from, NULL, &over, &error), "position table: y and x");
    OVERLAPS(attn_position_add_backward(2, shape, &from, &at, &over, &error), "position table: grad_table and grad_y");
    OVERLAPS(attn_sinusoidal(ATTN_ROPE_PAIRS_HALVES, 2, 1, 0, &at, &on_places, &error), "sinusoidal: table and positions");
    attn_rope tables = {.struct_size = sizeof tables, .cosines = f + 4, .sines = f + 7, .table_rows = 1};
    const int64_t zeros[2] = {0, 0};
    const attn_input at_0 = attn_in(zeros);
    OVERLAPS(attn_rope_apply(&tables, shape, &from, &at_0, &to, &error), "rope: y and rope.cosines");
    tables.cosines = f + 3;
    OVERLAPS(attn_rope_apply(&tables, shape, &from, &at_0, &to, &error), "rope: y and rope.sines");
    tables = (attn_rope){.struct_size = sizeof tables, .frequencies = f + 5};
    OVERLAPS(attn_rope_apply(&tables, shape, &from, NULL, &to, &error), "rope: y and rope.frequencies");
    tables = (attn_rope){
        .struct_size = sizeof tables, .cos_table = attn_in(f + 4), .sin_table = {f, ATTN_F64, {0, 0, 1, 1}}, .table_rows = 1};
    OVERLAPS(attn_rope_apply(&tables, shape, &from, &at_0, &to, &error), "rope: y and rope.cos_table");
    for (int k = 0; k < 8; k++) assert_true(f[k] == -1);
}

/* Strides of axes with at most one element are ignored: UBSan would report the overflow if they were used. */
static void test_unused_strides(void **state)
{
    (void)state;
    const int64_t far = (int64_t)1 << 62;
    double x[4] = {1, 1, 1, 1}, gates[8], w[1] = {0};
    attn_bias_gate r = {.struct_size = sizeof r, .batch = 2, .heads = 2, .len_q = 2, .width = 1};
    attn_bias_gate_tensors g = {.struct_size = sizeof g,
                                .q = {x, ATTN_F64, {far, far, far, far}},
                                .w = {w, ATTN_F64, {far, far, far, far}},
                                .b = attn_in(x),
                                .a = attn_in(x),
                                .gates = attn_out(gates)};
    assert_int_equal(attn_bias_gate_forward(&r, &g, NULL), ATTN_OK);
    for (int i = 1; i < 8; i++) assert_true(gates[i] == gates[0]);
    g.grad_gates = attn_in(gates), g.gates = (attn_output){0};
    assert_int_equal(attn_bias_gate_backward(&r, &g, NULL), ATTN_OK);
    const attn_output nothing = {x, ATTN_F64, {0, 0, INT64_MAX / 2, 1}};
    assert_int_equal(attn_sinusoidal(ATTN_ROPE_PAIRS_HALVES, 9, 0, 0, NULL, &nothing, NULL), ATTN_OK);
    /* One row of x and one of y: whether they overlap does not depend on the strides. */
    const int64_t shape[4] = {1, 1, 1, 2};
    const attn_input from = {x, ATTN_F64, {far, far, far, 1}};
    const attn_output over = {x + 1, ATTN_F64, {far, far, far, 1}};
    const attn_rope rope = {.struct_size = sizeof rope};
    OVERLAPS(attn_rope_apply(&rope, shape, &from, NULL, &over, &error), "rope: y and x");
}

/* If a size is 0 there is nothing to do, whatever the other sizes are: their bytes may not overflow, and no loop may run. */
static void test_nothing_to_do(void **state)
{
    (void)state;
    const int64_t far = (int64_t)1 << 61, shape[4] = {far, 1, far, 0};
    const attn_input from = {ATTN_EMPTY, ATTN_F64, {0, 0, 0, 0}};
    const attn_output to = {ATTN_EMPTY, ATTN_F64, {0, 0, 0, 0}};
    double x = 7, gate[2] = {1, 1};
    const attn_output one = {&x, ATTN_F64, {0, 0, 0, 0}};
    assert_int_equal(attn_position_resize(0, far, far, &from, &to, NULL), ATTN_OK);
    assert_int_equal(attn_position_resize_backward(0, far, far, &from, &to, NULL), ATTN_OK);
    assert_int_equal(attn_position_add(far, shape, &from, &from, NULL, &to, NULL), ATTN_OK);
    assert_int_equal(attn_position_add_backward(far, shape, &from, NULL, &to, NULL), ATTN_OK);
    const int64_t no_tokens[4] = {far, 1, 0, 1};
    const attn_input at = {ATTN_EMPTY, ATTN_I64, {0, 0, 0, 0}}, row = {&x, ATTN_F64, {0, 0, 0, 0}};
    assert_int_equal(attn_position_add(1, no_tokens, &from, &row, &at, &to, NULL), ATTN_OK);
    attn_distance_bias d = {.struct_size = sizeof d, .kind = ATTN_DISTANCE_CLIPPED, .heads = 1, .len_q = far};
    const attn_input table = {&x, ATTN_F64, {0, 0, 0, 0}};
    assert_int_equal(attn_distance_bias_fill(&d, &table, &to, NULL), ATTN_OK);
    assert_int_equal(attn_distance_bias_backward(&d, &from, &one, NULL), ATTN_OK);
    assert_true(x == 0);
    attn_bias_gate r = {.struct_size = sizeof r, .batch = INT64_MAX, .heads = 2, .width = 0};
    attn_bias_gate_tensors g = {.struct_size = sizeof g, .q = from, .w = from, .b = from, .a = attn_in(gate), .gates = to};
    assert_int_equal(attn_bias_gate_forward(&r, &g, NULL), ATTN_OK);
    g.grad_gates = from, g.gates = (attn_output){0};
    assert_int_equal(attn_bias_gate_backward(&r, &g, NULL), ATTN_OK);
}

static void test_absolute(void **state)
{
    (void)state;
    double x[8] = {-1, -1, -1, -1, -1, -1, -1, -1};
    const int64_t shape[4] = {1, 1, 2, 4}, beyond[2] = {1, 2}, under[2] = {-1, 0}, wrong[4] = {1, 1, -2, 4};
    const attn_input in = {x, ATTN_F64, {0, 0, 0, 0}}, integers = {x, ATTN_I32, {0, 0, 0, 0}}, narrow = {x, ATTN_F64, {0, 0, 3, 1}},
                     odd = {x, ATTN_BOOL, {0, 0, 0, 0}}, later = {ATTN_LATER, ATTN_F64, {0, 0, 0, 0}}, missing = attn_in(NULL),
                     far = attn_in(beyond), before = attn_in(under), halves = {beyond, ATTN_F16, {0, 0, 0, 0}},
                     askew = {(const char *)beyond + 4, ATTN_I64, {0, 0, 0, 0}};
    const attn_output out = {x, ATTN_F64, {0, 0, 0, 0}}, bytes = {x, ATTN_U8, {0, 0, 0, 0}},
                      narrow_out = {x, ATTN_F64, {0, 0, 3, 1}}, none = {NULL, ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}};
    FAILS(attn_sinusoidal((attn_rope_pairs)5, 1, 4, 0, NULL, &out, &error), ATTN_ERR_ARGUMENT,
          "sinusoidal: order is 5; known: 0 (interleaved), 1 (halves)");
    FAILS(attn_sinusoidal(ATTN_ROPE_PAIRS_HALVES, -1, 4, 0, NULL, &out, &error), ATTN_ERR_SHAPE,
          "sinusoidal: -1 tokens of 4 channels; neither may be negative");
    FAILS(attn_sinusoidal(ATTN_ROPE_PAIRS_HALVES, 1, 4, -3, NULL, &out, &error), ATTN_ERR_ARGUMENT,
          "sinusoidal: base is -3; it must be above 0 and finite (0 for 10000)");
    FAILS(attn_sinusoidal(ATTN_ROPE_PAIRS_HALVES, 1, 4, 0, NULL, &bytes, &error), ATTN_ERR_UNSUPPORTED,
          "sinusoidal: table is u8; it must be f32, f64, f16 or bf16");
    FAILS(attn_sinusoidal(ATTN_ROPE_PAIRS_HALVES, 2, 4, 0, NULL, &narrow_out, &error), ATTN_ERR_STRIDE,
          "sinusoidal: table.stride[2] (3) is below the channels (4)");
    FAILS(attn_sinusoidal(ATTN_ROPE_PAIRS_HALVES, 1, 4, 0, NULL, &none, &error), ATTN_ERR_ARGUMENT, "sinusoidal: table is NULL");

#define ADD(rows, table, shape, from, positions) attn_position_add(rows, shape, from, table, positions, &out, &error)
    FAILS(ADD(2, NULL, shape, &in, NULL), ATTN_ERR_ARGUMENT, "position table: table is NULL");
    FAILS(ADD(2, &in, wrong, &in, NULL), ATTN_ERR_SHAPE, "position table: shape[2] (-2) is negative");
    FAILS(ADD(-2, &in, shape, &in, NULL), ATTN_ERR_SHAPE, "position table: rows (-2) is negative");
    FAILS(ADD(2, &odd, shape, &in, NULL), ATTN_ERR_UNSUPPORTED, "position table is bool; it must be f32, f64, f16 or bf16");
    FAILS(ADD(2, &narrow, shape, &in, NULL), ATTN_ERR_STRIDE, "position table.stride[2] (3) is below the channels (4)");
    FAILS(ADD(1, &in, shape, &in, NULL), ATTN_ERR_ARGUMENT,
          "there are 2 tokens and the position table has only 1 rows"); /* T > T_max */
    FAILS(ADD(2, &in, shape, &in, &far), ATTN_ERR_ARGUMENT, "positions[1] is 2; the table has 2 rows");
    FAILS(ADD(2, &in, shape, &in, &before), ATTN_ERR_ARGUMENT, "positions[0] is -1; the table has 2 rows");
    FAILS(ADD(2, &in, shape, &in, &missing), ATTN_ERR_ARGUMENT, "position table: positions is NULL");
    FAILS(ADD(2, &in, shape, &in, &later), ATTN_ERR_ARGUMENT,
          "position table: positions is ATTN_LATER; this call needs its pointer");
    FAILS(ADD(2, &in, shape, &in, &halves), ATTN_ERR_UNSUPPORTED, "position table: positions is f16; it must be i64 or i32");
    FAILS(ADD(2, &in, shape, &in, &askew), ATTN_ERR_ARGUMENT,
          "position table: positions is not aligned to its elements of 8 bytes");
    FAILS(attn_sinusoidal(ATTN_ROPE_PAIRS_HALVES, 2, 4, 0, &halves, &out, &error), ATTN_ERR_UNSUPPORTED,
          "sinusoidal: positions is f16; it must be i64 or i32");
    const attn_rope plain = {.struct_size = sizeof plain};
    FAILS(attn_rope_apply(&plain, shape, &in, &missing, &out, &error), ATTN_ERR_ARGUMENT, "rope: positions is NULL");
    const int64_t below[4] = {1, -1, 1, 4};
    FAILS(attn_rope_apply(&plain, below, &in, &in, &out, &error), ATTN_ERR_SHAPE, "rope: shape[1] (-1) is negative");
    FAILS(ADD(2, &in, shape, &integers, NULL), ATTN_ERR_UNSUPPORTED, "position table: x is i32; it must be f32, f64, f16 or bf16");
    FAILS(ADD(2, &missing, shape, &in, NULL), ATTN_ERR_ARGUMENT, "position table is NULL");
    FAILS(ADD(2, &in, shape, &later, NULL), ATTN_ERR_ARGUMENT, "position table: x is ATTN_LATER; this call needs its pointer");
    FAILS(attn_position_add(2, shape, &in, &in, NULL, &none, &error), ATTN_ERR_ARGUMENT, "position table: y is NULL");
    FAILS(attn_position_add_backward(2, shape, &missing, NULL, &out, &error), ATTN_ERR_ARGUMENT, "position table: grad_y is NULL");
    FAILS(attn_position_add_backward(2, NULL, &in, NULL, &out, &error), ATTN_ERR_ARGUMENT, "position table: shape is NULL");
    for (int k = 0; k < 8; k++) assert_true(x[k] == -1);
}

static void test_distance(void **state)
{
    (void)state;
    double x[64] = {0};
    attn_distance_bias r = {.struct_size = sizeof r, .heads = 1, .len_q = 2, .len_kv = 2};
    const attn_input table = {x, ATTN_F64, {0, 0, 0, 0}}, half = {x, ATTN_F16, {0, 0, 0, 0}}, none = {0};
    const attn_output bias = {x + 32, ATTN_F64, {0, 0, 0, 0}}, half_bias = {x + 32, ATTN_BF16, {0, 0, 0, 0}},
                      over = {x + 31, ATTN_F64, {0, 0, 0, 0}}, later = attn_out(ATTN_LATER), missing = attn_out(NULL),
                      row = {x + 32, ATTN_F64, {0, 0, 0, 1}}, odd = {(char *)x + 257, ATTN_F64, {0, 0, 0, 0}};
#define RULE(change, status, text)                                                                                                 \
    do {                                                                                                                           \
        attn_distance_bias was = r;                                                                                                \
        change;                                                                                                                    \
        FAILS(attn_distance_bias_fill(&r, &table, &bias, &error), status, text);                                                   \
        assert_int_equal(attn_distance_bucket(&r, 3), -1);                                                                         \
        assert_int_equal(attn_distance_buckets(&r), -1);                                                                           \
        r = was;                                                                                                                   \
    } while (0)
    RULE(r.struct_size = 1, ATTN_ERR_ARGUMENT, "attn_distance_bias.struct_size is 1; set it to sizeof(attn_distance_bias)");
    RULE(r.kind = (attn_distance_kind)2, ATTN_ERR_ARGUMENT, "distance bias: kind is 2; known: 0 (T5), 1 (clipped)");
    RULE(r.heads = -1, ATTN_ERR_SHAPE, "distance bias: -1 heads, 2 queries, 2 keys; none may be negative");
    RULE(r.max_distance = -1, ATTN_ERR_ARGUMENT, "distance bias: max_distance is -1; it must be between 0 and 2^61");
    RULE(r.causal = 2, ATTN_ERR_ARGUMENT, "distance bias: causal is 2; it must be 0 or 1");
    RULE(r.buckets = 5, ATTN_ERR_ARGUMENT, "distance bias: buckets is 5; it must be even and at least 4");
    RULE((r.buckets = 1, r.causal = 1), ATTN_ERR_ARGUMENT, "distance bias: buckets is 1; it must be at least 2");
    RULE(r.max_distance = 8, ATTN_ERR_ARGUMENT, "distance bias: max_distance is 8; it must be above 8, the exact buckets");
    RULE((r.kind = ATTN_DISTANCE_CLIPPED, r.max_distance = 3, r.buckets = 8), ATTN_ERR_ARGUMENT,
         "distance bias: buckets is 8; a bias clipped at 3 has 7");
    FAILS(attn_distance_bias_fill(NULL, &table, &bias, &error), ATTN_ERR_ARGUMENT, "distance bias: rule is NULL");
    FAILS(attn_distance_bias_fill(&r, NULL, &bias, &error), ATTN_ERR_ARGUMENT, "distance bias: table is NULL");
    FAILS(attn_distance_bias_fill(&r, &none, &bias, &error), ATTN_ERR_ARGUMENT, "distance bias: table is missing");
    FAILS(attn_distance_bias_fill(&r, &half, &bias, &error), ATTN_ERR_UNSUPPORTED,
          "distance bias: table is f16; it must be f32 or f64");
    FAILS(attn_distance_bias_fill(&r, &table, &half_bias, &error), ATTN_ERR_UNSUPPORTED,
          "distance bias: bias is bf16; it must be f32 or f64");
    FAILS(attn_distance_bias_fill(&r, &table, &later, &error), ATTN_ERR_ARGUMENT,
          "distance bias: bias is ATTN_LATER; this call needs its pointer");
    FAILS(attn_distance_bias_fill(&r, &table, &odd, &error), ATTN_ERR_ARGUMENT,
          "distance bias: bias is not aligned to its elements of 8 bytes");
    FAILS(attn_distance_bias_fill(&r, &table, &row, &error), ATTN_ERR_STRIDE,
          "distance bias: bias overlaps itself: stride[2] is 0 and the axes with smaller strides span 1 elements");
    OVERLAPS(attn_distance_bias_fill(&r, &table, &over, &error), "distance bias: bias and table");
    FAILS(attn_distance_bias_backward(&r, &table, &missing, &error), ATTN_ERR_ARGUMENT, "distance bias: grad_table is NULL");
    FAILS(attn_distance_bias_backward(&r, NULL, &bias, &error), ATTN_ERR_ARGUMENT, "distance bias: grad_bias is NULL");
    OVERLAPS(attn_distance_bias_backward(&r, &table, &(attn_output){x + 3, 0, {0}}, &error),
             "distance bias: grad_table and grad_bias");
    FAILS(attn_alibi_slopes(-1, &bias, &error), ATTN_ERR_SHAPE, "alibi: heads (-1) is negative");
    FAILS(attn_alibi_slopes(1, &half_bias, &error), ATTN_ERR_UNSUPPORTED, "alibi: slopes is bf16; it must be f32 or f64");
    FAILS(attn_alibi_slopes(1, NULL, &error), ATTN_ERR_ARGUMENT, "alibi: slopes is NULL");
    FAILS(attn_alibi_slopes(2, &(attn_output){x, ATTN_F64, {0, 0, 0, 1}}, &error), ATTN_ERR_STRIDE,
          "alibi: slopes overlaps itself: stride[1] is 0 and the axes with smaller strides span 1 elements");
    for (int k = 0; k < 64; k++) assert_true(x[k] == 0);
}

static void test_resize(void **state)
{
    (void)state;
    double x[4] = {7, 7, 7, 7}, y[4] = {1, 1, 1, 1};
    const attn_input from = {x, ATTN_F64, {0, 0, 0, 0}}, half = {x, ATTN_F16, {0, 0, 0, 0}};
    const attn_output to = {y, ATTN_F64, {0, 0, 0, 0}}, over = {x + 1, ATTN_F64, {0, 0, 0, 0}}, none = {0};
    FAILS(attn_position_resize(1, 2, 2, &half, &to, &error), ATTN_ERR_UNSUPPORTED,
          "position resize: x is f16; it must be f32 or f64");
    FAILS(attn_position_resize(1, -1, 2, &from, &to, &error), ATTN_ERR_SHAPE,
          "position resize: 1 channels, -1 rows to 2; none may be negative");
    FAILS(attn_position_resize(1, 0, 2, &from, &to, &error), ATTN_ERR_SHAPE, "position resize: there are no rows to resize to 2");
    OVERLAPS(attn_position_resize(1, 2, 2, &from, &over, &error), "position resize: y and x");
    FAILS(attn_position_resize(1, 2, 2, &from, &none, &error), ATTN_ERR_ARGUMENT, "position resize: y is missing");
    FAILS(attn_position_resize_backward(1, 2, 2, NULL, &to, &error), ATTN_ERR_ARGUMENT, "position resize: grad_y is NULL");
    OVERLAPS(attn_position_resize_backward(1, 2, 2, &from, &over, &error), "position resize: grad_x and grad_y");
    for (int i = 0; i < 4; i++) assert_true(y[i] == 1 && x[i] == 7);
}

static void test_gate(void **state)
{
    (void)state;
    double x[4] = {7, 7, 7, 7}, y[4] = {1, 1, 1, 1};
    attn_bias_gate r = {.struct_size = sizeof r, .batch = 1, .heads = 1, .len_q = 1, .dim = 1, .width = 1};
    const attn_bias_gate_tensors valid = {.struct_size = sizeof valid,
                                          .q = {x, ATTN_F64, {0, 0, 0, 0}},
                                          .w = attn_in(x),
                                          .b = attn_in(x),
                                          .a = attn_in(x),
                                          .gates = attn_out(y)};
    attn_bias_gate_tensors t = valid;
    const attn_call call = {.struct_size = sizeof call};
#define GATE(change, direction, status, text)                                                                                      \
    do {                                                                                                                           \
        const attn_bias_gate was = r;                                                                                              \
        change;                                                                                                                    \
        FAILS(attn_bias_gate_##direction(&r, &t, &error), status, text);                                                           \
        r = was, t = valid;                                                                                                        \
    } while (0)
    FAILS(attn_bias_gate_forward(NULL, &t, &error), ATTN_ERR_ARGUMENT, "bias gate: rule is NULL");
    FAILS(attn_bias_gate_forward(&r, NULL, &error), ATTN_ERR_ARGUMENT, "bias gate: tensors is NULL");
    GATE(t.w = (attn_input){0}, forward, ATTN_ERR_ARGUMENT, "bias gate: w is missing");
    GATE(t.a = attn_in(NULL), forward, ATTN_ERR_ARGUMENT, "bias gate: a is NULL");
    GATE(t.gates = (attn_output){0}, forward, ATTN_ERR_ARGUMENT, "bias gate: gates is missing");
    GATE(t.grad_q = attn_out(y), forward, ATTN_ERR_ARGUMENT, "bias gate: grad_q is set; attn_bias_gate_forward does not use it");
    GATE(t.grad_gates = attn_in(x), backward, ATTN_ERR_ARGUMENT,
         "bias gate: gates is set; attn_bias_gate_backward does not use it");
    GATE(t.gates = (attn_output){0}, backward, ATTN_ERR_ARGUMENT, "bias gate: grad_gates is missing");
    GATE((t.gates = (attn_output){0}, t.grad_gates = attn_in(x), t.grad_a = attn_out(y), t.grad_w = attn_out(y)), backward,
         ATTN_ERR_STRIDE, "bias gate: grad_w and grad_a share elements; an output must not overlap another tensor");
    GATE(t.gates = attn_out(x), forward, ATTN_ERR_STRIDE,
         "bias gate: gates and q share elements; an output must not overlap another tensor");
    GATE(t.call = &call, forward, ATTN_ERR_ARGUMENT, "bias gate: call is set; it must be NULL");
    GATE(t.struct_size = 8, forward, ATTN_ERR_ARGUMENT,
         "attn_bias_gate_tensors.struct_size is 8; set it to sizeof(attn_bias_gate_tensors)");
    GATE(t.b.dtype = ATTN_BF16, forward, ATTN_ERR_UNSUPPORTED, "bias gate: b is bf16; it must be f32 or f64");
    GATE(r.heads = -1, forward, ATTN_ERR_SHAPE, "bias gate: heads (-1) is negative");
    GATE(r.width = INT64_MAX / 8, forward, ATTN_ERR_SHAPE, "bias gate: the arrays are too large: their bytes overflow 64 bits");
    GATE(r.struct_size = 1, forward, ATTN_ERR_ARGUMENT, "attn_bias_gate.struct_size is 1; set it to sizeof(attn_bias_gate)");
    for (int i = 0; i < 4; i++) assert_true(y[i] == 1 && x[i] == 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scaling),        cmocka_unit_test(test_beyond),
                                       cmocka_unit_test(test_unused_strides), cmocka_unit_test(test_nothing_to_do),
                                       cmocka_unit_test(test_absolute),       cmocka_unit_test(test_distance),
                                       cmocka_unit_test(test_resize),         cmocka_unit_test(test_gate)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
