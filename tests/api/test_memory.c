/* SPDX-License-Identifier: MIT
 *
 * test_memory.c - functions that plan and compute in one call take all memory from options.allocator: whichever allocation fails,
 * the outputs stay untouched and every block is freed. Without an allocator they use the library's own memory.
 */
#include "fails.h"

#include "attn/analysis.h"
#include "attn/bilinear.h"
#include "attn/cache.h"
#include "attn/hopfield.h"
#include "attn/linear.h"
#include "limited_allocator.h"

enum { HEADS = 2, LEN = 5, DIM = 4, CAPACITY = HEADS * LEN * LEN };

static double in[6][CAPACITY], out[8][CAPACITY];
static limited_allocator allocator_state;
static attn_options options;
static const attn_options *used = &options;

static attn_input from(int n) { return (attn_input){in[n], ATTN_F64, {0, 0, 0, 0}}; }
static attn_output to(int n) { return (attn_output){out[n], ATTN_F64, {0, 0, 0, 0}}; }

static const attn_problem problem = {.struct_size = sizeof problem, .shape = {1, HEADS, HEADS, LEN, LEN, DIM, DIM}};
static attn_tensors attention(void)
{
    return (attn_tensors){.struct_size = sizeof(attn_tensors), .q = from(0), .k = from(1), .v = from(2), .o = to(0)};
}

/* ---- one call each ---- */

static attn_status decompose(attn_error *error)
{
    const attn_tensors t = attention();
    const attn_steps steps = {sizeof steps, out[1], out[2], out[3], out[4], out[5]};
    return attn_decompose(&problem, &t, &steps, used, error);
}

static attn_status weights_only(attn_error *error)
{
    const attn_tensors t = attention();
    const attn_steps steps = {.struct_size = sizeof steps, .weights = out[3]};
    return attn_decompose(&problem, &t, &steps, used, error);
}

static attn_flow flow;
static attn_status gradient_flow(attn_error *error)
{
    const attn_tensors t = attention();
    flow = (attn_flow){.struct_size = sizeof flow, .grad_scores = out[1], .grad_q = out[2], .norm_grad_o = -7};
    const attn_status status = attn_gradient_flow(&problem, &t, &flow, used, error);
    assert_true(status == ATTN_OK || flow.norm_grad_o == -7);
    return status;
}

static attn_status verify_gradients(attn_error *error)
{
    const attn_tensors t = attention();
    attn_verification result = {.struct_size = sizeof result, .checked = -7};
    const attn_status status = attn_verify_gradients(&problem, 0, 2, &t, &result, used, error);
    assert_true(status == ATTN_OK ? result.correct : result.checked == -7);
    return status;
}

static attn_status bilinear(attn_error *error)
{
    const attn_tensors t = attention();
    return attn_bilinear_attention(&problem, &t, in[3], used, error);
}

static const attn_linformer_problem linformer = {
    .struct_size = sizeof linformer, .batch = 1, .heads = HEADS, .len = LEN, .rank = 3, .dim = DIM};
static attn_status linformer_project(attn_error *error)
{
    const attn_linformer_tensors t = {.struct_size = sizeof t, .x = from(0), .projection = from(1), .y = to(0)};
    return attn_linformer_project(&linformer, &t, used, error);
}

static attn_status linformer_backward(attn_error *error)
{
    const attn_linformer_tensors t = {
        .struct_size = sizeof t, .x = from(0), .projection = from(1), .grad_y = from(2), .grad_x = to(0), .grad_projection = to(1)};
    return attn_linformer_backward(&linformer, &t, used, error);
}

static attn_hopfield memory(void)
{
    return (attn_hopfield){
        .struct_size = sizeof(attn_hopfield), .dtype = ATTN_F64, .stored = 3, .dim = DIM, .options = used, .patterns = from(0)};
}

static attn_status hopfield_update(attn_error *error)
{
    const attn_hopfield m = memory();
    const attn_hopfield_tensors t = {.struct_size = sizeof t, .states = from(1), .updated = to(0), .energy = to(1)};
    return attn_hopfield_update(&m, LEN, &t, error);
}

static attn_status hopfield_energy(attn_error *error)
{
    const attn_hopfield m = memory();
    const attn_hopfield_tensors t = {.struct_size = sizeof t, .states = from(1), .energy = to(1)};
    return attn_hopfield_update(&m, LEN, &t, error);
}

static attn_status hopfield_backward(attn_error *error)
{
    const attn_hopfield m = memory();
    const attn_hopfield_tensors t = {.struct_size = sizeof t,
                                     .states = from(1),
                                     .grad_updated = from(2),
                                     .grad_energy = from(3),
                                     .grad_states = to(0),
                                     .grad_patterns = to(1)};
    return attn_hopfield_update_backward(&m, LEN, &t, error);
}

static attn_status hopfield_retrieve(attn_error *error)
{
    const attn_hopfield m = memory();
    const attn_hopfield_tensors t = {.struct_size = sizeof t,
                                     .states = from(1),
                                     .updated = to(0),
                                     .iterations = {out[1], ATTN_I64, {0, 0, 0, 0}},
                                     .energies = to(2)};
    return attn_hopfield_retrieve(&m, LEN, 6, 1e-12, &t, error);
}

static attn_status hopfield_classical(attn_error *error)
{
    const attn_hopfield m = memory();
    const attn_hopfield_tensors t = {.struct_size = sizeof t, .states = from(1), .updated = to(0), .energy = to(1)};
    return attn_hopfield_classical(&m, ATTN_HOPFIELD_ORDER_ASYNCHRONOUS, LEN, &t, error);
}

static attn_status hopfield_separation(attn_error *error)
{
    const attn_hopfield m = memory();
    return attn_hopfield_separation(&m, out[0], error);
}

static attn_status hopfield_landscape(attn_error *error)
{
    const attn_hopfield m = memory();
    return attn_hopfield_landscape(&m, 1, LEN, -1, 1, out[0], out[1], error);
}

static attn_status hopfield_basin(attn_error *error)
{
    const attn_hopfield m = memory();
    return attn_hopfield_basin(&m, 1, LEN, 0.1, 1, 3, 1e-6, out[0], error);
}

/* The cache is updated in place: the length is reset to 0 before each call. */
static attn_status cache_attend(attn_error *error)
{
    static int64_t length;
    const attn_rope rope = {.struct_size = sizeof rope};
    attn_cache cache = {.struct_size = sizeof cache,
                        .batch = 1,
                        .heads_kv = HEADS,
                        .capacity = LEN,
                        .dim_qk = DIM,
                        .dim_v = DIM,
                        .rope = &rope,
                        .k = to(1),
                        .v = to(2),
                        .lengths = attn_out(&length)};
    const attn_cache_tokens tokens = {.struct_size = sizeof tokens, .len = LEN, .k = from(1), .v = from(2)};
    const attn_problem heads = {.struct_size = sizeof heads, .shape.heads_q = HEADS};
    const attn_tensors t = {.struct_size = sizeof t, .q = from(0), .o = to(0)};
    length = 0;
    const attn_status status = attn_cache_attend(&cache, &tokens, &heads, &t, used, error);
    assert_int_equal(length, status == ATTN_OK ? LEN : 0);
    return status;
}

static const struct row {
    const char *name;
    attn_status (*call)(attn_error *error);
    int blocks; /* exact number of allocations */
} rows[] = {
    {"attn_decompose", decompose, 5}, /* plans for the checks, products and weights; two workspaces */
    {"attn_decompose of weights", weights_only, 3},
    {"attn_gradient_flow", gradient_flow, 10},       /* plan of the checks; 5 arrays that the caller did not give; two plans */
    {"attn_verify_gradients", verify_gradients, 10}, /* the same, 5 arrays */
    {"attn_bilinear_attention", bilinear, 2},
    {"attn_linformer_project", linformer_project, 2},
    {"attn_linformer_backward", linformer_backward, 3},
    {"attn_hopfield_update", hopfield_update, 3},
    {"attn_hopfield_update of energies", hopfield_energy, 4},
    {"attn_hopfield_update_backward", hopfield_backward, 10},
    {"attn_hopfield_retrieve", hopfield_retrieve, 7},
    {"attn_hopfield_classical", hopfield_classical, 1},
    {"attn_hopfield_separation", hopfield_separation, 0},
    {"attn_hopfield_landscape", hopfield_landscape, 6},
    {"attn_hopfield_basin", hopfield_basin, 9},
    {"attn_cache_attend", cache_attend, 5},
};
enum { ROWS = sizeof rows / sizeof *rows };

static void start(void)
{
    for (int i = 0; i < 6 * CAPACITY; i++) (&in[0][0])[i] = (i * 7 % 11) * 0.25 - 1.25;
    memset(out, 0x55, sizeof out);
}

static int is_touched(void)
{
    for (size_t i = 0; i < sizeof out; i++)
        if (((const unsigned char *)out)[i] != 0x55) return 1;
    return 0;
}

static void test_each_block_fails(void **state)
{
    (void)state;
    for (int r = 0; r < ROWS; r++)
        for (int left = 0; left <= rows[r].blocks; left++) {
            attn_error error;
            start();
            allocator_state = (limited_allocator){left, 0};
            options =
                (attn_options){.struct_size = sizeof options, .allocator = {limited_acquire, limited_release, &allocator_state}};
            const attn_status status = rows[r].call(&error);
            if (allocator_state.held) fail_msg("%s: %d blocks leak after %d allocations", rows[r].name, allocator_state.held, left);
            if (left == rows[r].blocks && (status != ATTN_OK || allocator_state.left))
                fail_msg("%s: %d of %d allocations unused: %s", rows[r].name, allocator_state.left, left, error.message);
            if (left == rows[r].blocks) continue;
            if (status != ATTN_ERR_MEMORY || error.status != status)
                fail_msg("%s after %d allocations: status %d: %s", rows[r].name, left, (int)status, error.message);
            if (is_touched()) fail_msg("%s after %d allocations wrote an output", rows[r].name, left);
        }
}

/* The same bits with default options, on one thread, on two, on three with the caller's allocator, and without options. */
static void test_same_bits(void **state)
{
    static double kept[8][CAPACITY];
    (void)state;
    for (int r = 0; r < ROWS; r++)
        for (int kind = 0; kind < 5; kind++) {
            attn_error error;
            start();
            allocator_state = (limited_allocator){1000, 0};
            options = (attn_options){.struct_size = sizeof options, .threads = kind};
            if (kind == 3) options.allocator = (attn_allocator){limited_acquire, limited_release, &allocator_state};
            used = kind < 4 ? &options : NULL;
            const attn_status status = rows[r].call(&error);
            used = &options;
            if (status != ATTN_OK) fail_msg("%s: %s", rows[r].name, error.message);
            if (kind == 0) memcpy(kept, out, sizeof out);
            if (memcmp(kept, out, sizeof out) != 0) fail_msg("%s differs with options %d", rows[r].name, kind);
        }
}

/* Options are validated before anything is allocated: half an allocator, a wrong struct_size, an unknown instruction set. */
static void test_rejected(void **state)
{
    (void)state;
    for (int r = 0; r < ROWS; r++) {
        start();
        allocator_state = (limited_allocator){1000, 0};
        options = (attn_options){.struct_size = sizeof options, .allocator = {limited_acquire, NULL, &allocator_state}};
        FAILS(rows[r].call(&error), ATTN_ERR_ARGUMENT, "options.allocator has allocate and no release; set both or neither");
        options.allocator = (attn_allocator){NULL, limited_release, &allocator_state};
        FAILS(rows[r].call(&error), ATTN_ERR_ARGUMENT, "options.allocator has release and no allocate; set both or neither");
        options = (attn_options){.struct_size = 1};
        FAILS(rows[r].call(&error), ATTN_ERR_ARGUMENT, "attn_options.struct_size is 1; set it to sizeof(attn_options)");
        options = (attn_options){.struct_size = sizeof options, .isa = (attn_isa)9};
        if (rows[r].call != hopfield_separation && rows[r].call != hopfield_classical) { /* these two create no plan */
            FAILS(rows[r].call(&error), ATTN_ERR_ARGUMENT,
                  "options.isa is 9; known: 0 (default), 1 (scalar), 2 (avx2), 3 (avx512), 4 (neon), 5 (wasm128)");
        }
        assert_int_equal(allocator_state.left, 1000);
        assert_true(!is_touched());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_block_fails), cmocka_unit_test(test_same_bits),
                                       cmocka_unit_test(test_rejected)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
