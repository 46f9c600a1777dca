/* SPDX-License-Identifier: MIT
 *
 * fuzz_sizes.c - fuzzes every function that takes sizes (target.h) with several vast ones at once, in tensors without elements
 * (ATTN_EMPTY) or without pointers (ATTN_LATER): products and sums of sizes must be checked, since no memory stands behind them.
 * Each call is accepted or rejected with a message; what it does is for the other targets to check. */
#include "sizes_case.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "attn/analysis.h"
#include "attn/bilinear.h"
#include "attn/cache.h"
#include "attn/cost.h"
#include "attn/dlpack.h"
#include "attn/hopfield.h"
#include "attn/latent.h"
#include "attn/layers.h"
#include "attn/linear.h"
#include "attn/mask.h"
#include "attn/merge.h"
#include "attn/position.h"
#include "attn/product.h"
#include "attn/seq2seq.h"

const char *const target_cases = "calls";

sizes_case sizes;

static const char *const kinds[] = {"plan",     "linear",   "product", "cost",          "counts",   "packed layer", "cache",
                                    "merge",    "position", "gate",    "distance bias", "features", "linformer",    "hopfield",
                                    "bilinear", "mask",     "modules", "decoding",      "analysis"};

void target_print(void)
{
    fprintf(stderr, "%s, sizes", kinds[sizes.kind]);
    for (int i = 0; i < MAX_SIZES; i++) fprintf(stderr, " %" PRId64, sizes.values[i]);
    fputc('\n', stderr);
    if (sizes.kind <= SIZES_LINEAR) sizes_print_plan();
}

void *sizes_allocate(void *context, size_t bytes)
{
    (void)context;
    return bytes <= (size_t)1 << 24 ? aligned_alloc(64, (bytes + 63) / 64 * 64 + 64) : NULL;
}

void sizes_release(void *context, void *memory)
{
    (void)context;
    free(memory);
}

attn_input sizes_shared(void)
{
    static const double zeros[64];
    return (attn_input){zeros, ATTN_DTYPE_DEFAULT, {ATTN_BROADCAST, ATTN_BROADCAST, ATTN_BROADCAST, 1}};
}

void sizes_judge(attn_status status, const attn_error *error)
{
    check_error(status, error);
    if (status == ATTN_OK) target_ran++;
    else target_rejected++;
}

/* ---- functions without tensors ---- */

static void cost(draws *d)
{
    const int64_t *s = sizes.values;
    const attn_cost_problem p = {.struct_size = sizeof p,
                                 .method = (attn_cost_method)draw_below(d, 3),
                                 .shape = {s[0], s[1], draw_one_in(d, 2) ? s[1] : 1, s[2], s[3], s[4], s[5]},
                                 .features = s[6],
                                 .rank = s[7],
                                 .fast_elements = s[8]};
    attn_cost out = {.struct_size = sizeof out};
    CALL(attn_cost_estimate(&p, &out, &error));
}

/* ---- a cache without channels, so that only sizes, lengths and pages count ---- */

static void cache(draws *d)
{
    const int64_t *s = sizes.values;
    int64_t lengths[2], more[2], table[2][4];
    static const attn_rope rope = {.struct_size = sizeof rope, .dim_rotary = 2};
    const int64_t capacity = draw_one_in(d, 2) ? INT64_MAX - draw_below(d, 2) : s[0];
    for (int i = 0; i < 2; i++) {
        lengths[i] = draw_one_in(d, 2) ? draw_vast(d) : capacity - draw_below(d, 3),
        more[i] = draw_one_in(d, 2) ? draw_below(d, 3) : draw_vast(d);
        for (int k = 0; k < 4; k++) table[i][k] = draw_one_in(d, 8) ? draw_hostile(d) : draw_below(d, 2);
    }
    attn_cache c = {.struct_size = sizeof c,
                    .batch = draw_below(d, 3),
                    .heads_kv = draw_one_in(d, 2) ? s[9] : draw_below(d, 3),
                    .capacity = capacity,
                    .dim_qk = s[1],
                    .dim_v = s[2],
                    .k = attn_out(ATTN_EMPTY),
                    .v = attn_out(ATTN_EMPTY),
                    .lengths = attn_out(lengths)};
    if (c.heads_kv > 0 && !draw_one_in(d, 4)) c.dim_qk = c.dim_v = 0;
    if (draw_one_in(d, 2) && s[3] > 0) {
        c.page_size = s[3], c.pages = s[4], c.page_table = attn_in(table);
        if (c.capacity / c.page_size >= 4) c.capacity = c.page_size < INT64_MAX / 4 ? 4 * c.page_size : INT64_MAX;
        if (c.capacity / c.page_size + (c.capacity % c.page_size != 0) > 4) return; /* more columns than the table has */
    }
    if (draw_one_in(d, 4)) c.rope = &rope;
    const attn_cache_tokens t = {.struct_size = sizeof t,
                                 .len = draw_one_in(d, 2) ? draw_below(d, 3) : s[5],
                                 .k = attn_in(ATTN_EMPTY),
                                 .v = attn_in(ATTN_EMPTY),
                                 .lengths = draw_one_in(d, 2) ? attn_in(more) : (attn_input){0}};
    CALL(attn_cache_append(&c, &t, &error));
    const attn_problem p = {.struct_size = sizeof p, .shape.heads_q = draw_one_in(d, 2) ? s[8] : c.heads_kv};
    const attn_tensors attention = {.struct_size = sizeof attention, .q = attn_in(ATTN_EMPTY), .o = attn_out(ATTN_EMPTY)};
    const attn_options o = {
        .struct_size = sizeof o, .threads = 1 + (int)draw_below(d, 40), .allocator = {sizes_allocate, sizes_release, NULL}};
    CALL(attn_cache_attend(&c, &t, &p, &attention, &o, &error));
    const attn_input in = attn_in(ATTN_EMPTY);
    const attn_output out = attn_out(ATTN_EMPTY);
    CALL(attn_quantise(draw_one_in(d, 2) ? 0 : s[6], draw_one_in(d, 2) ? 0 : s[7], &in, &out, &out, &error));
    CALL(attn_hadamard(draw_one_in(d, 2) ? 0 : s[6], draw_one_in(d, 2) ? 0 : s[7], &in, &out, &error));
}

/* ---- tensors of others ---- */

/* Any sizes and strides: nothing is read or written there. */
static void dlpack(draws *d)
{
    static const char *const axes[] = {"bhtc", "thc", "1bthc", "c", "", "tt", "900bc", "012345678"};
    int64_t shape[9], strides[9], wanted[4];
    uint32_t memory[2];
    struct {
        void *data;
        int32_t device[2], ndim;
        uint8_t code, bits;
        uint16_t lanes;
        int64_t *shape, *strides;
        uint64_t byte_offset;
    } x = {.data = draw_one_in(d, 9) ? NULL : memory, .device = {draw_one_in(d, 9) ? (int32_t)draw_below(d, 16) : 1, 0}};
    const char *const which = axes[draw_below(d, 8)];
    x.ndim = draw_one_in(d, 9) ? (int32_t)draw_below(d, 10) - 1 : (int32_t)strlen(which);
    x.code = (uint8_t)draw_below(d, 14), x.bits = (uint8_t)(8 << draw_below(d, 4)), x.lanes = draw_one_in(d, 9) ? 4 : 1;
    x.shape = draw_one_in(d, 9) ? NULL : shape, x.strides = draw_one_in(d, 2) ? NULL : strides;
    x.byte_offset = draw_one_in(d, 4) ? (uint64_t)draw_hostile(d) : 0;
    for (int i = 0; i < 9; i++) shape[i] = draw_one_in(d, 4) ? draw_hostile(d) : draw_below(d, 4), strides[i] = draw_hostile(d);
    for (int i = 0; i < 4; i++) wanted[i] = draw_one_in(d, 4) ? draw_hostile(d) : 1;
    attn_input in, before;
    attn_output out;
    memset(&in, 0x33, sizeof in), memset(&out, 0x33, sizeof out), before = in;
    const int64_t *const sizes_wanted = draw_one_in(d, 4) ? wanted : NULL;
    const attn_status status = attn_dlpack_input(&x, which, sizes_wanted, &in, NULL);
    if (status != ATTN_OK && memcmp(&in, &before, sizeof in) != 0) finding("a slot of a DLTensor that is rejected");
    if (status == ATTN_OK && !in.data) finding("a slot of a DLTensor without an address");
    CALL(attn_dlpack_output(&x, which, sizes_wanted, &out, &error));
    if (in.data != out.data || in.dtype != out.dtype || memcmp(in.stride, out.stride, sizeof in.stride) != 0)
        finding("another slot as an output than as an input");
}

/* ---- tensors without elements ---- */

static void product(draws *d)
{
    const attn_product_problem p = {.struct_size = sizeof p,
                                    .dtype = draw_one_in(d, 2) ? ATTN_F64 : ATTN_F32,
                                    .rows = sizes.values[0],
                                    .columns = sizes.values[1],
                                    .inner = sizes.values[2],
                                    .add = draw_one_in(d, 2)};
    attn_product_tensors t = {
        .struct_size = sizeof t, .a = attn_in(ATTN_EMPTY), .b = attn_in(ATTN_EMPTY), .c = attn_out(ATTN_EMPTY)};
    const attn_options o = {.struct_size = sizeof o, .threads = 1 + (int)draw_below(d, 40), .isa = (attn_isa)draw_below(d, 3)};
    size_t bytes;
    CALL(attn_product_workspace_size(&p, &bytes, &o, &error));
    if (draw_one_in(d, 4)) t.a.stride[2] = draw_hostile(d), t.a.stride[3] = 1;
    if (p.rows == 0 || p.columns == 0) {
        CALL(attn_product(&p, &t, &o, &error));
        CALL(attn_product_in(&p, &t, NULL, 0, &o, &error));
    }
}

static void merge(draws *d)
{
    static const attn_input in[3] = {{ATTN_EMPTY, 0, {0, 0, 0, 0}}, {ATTN_EMPTY, 0, {0, 0, 0, 0}}, {ATTN_EMPTY, 0, {0, 0, 0, 0}}};
    const attn_input shared = sizes_shared(), lse[3] = {shared, shared, shared};
    attn_output out[3] = {attn_out(ATTN_EMPTY), attn_out(ATTN_EMPTY), attn_out(ATTN_EMPTY)};
    const attn_merge_problem p = {.struct_size = sizeof p,
                                  .parts = 1 + draw_below(d, 3),
                                  .batch = sizes.values[0],
                                  .heads = sizes.values[1],
                                  .len_q = sizes.values[2],
                                  .dim_v = sizes.values[3]};
    attn_merge_tensors t = {
        .struct_size = sizeof t, .o_parts = in, .lse_parts = draw_one_in(d, 2) ? lse : in, .o = attn_out(ATTN_EMPTY)};
    const attn_options o = {
        .struct_size = sizeof o, .threads = 1 + (int)draw_below(d, 40), .allocator = {sizes_allocate, sizes_release, NULL}};
    CALL(attn_merge(&p, &t, &o, &error));
    t.grad_o = attn_in(ATTN_EMPTY), t.grad_o_parts = out, t.grad_lse_parts = out, t.o = (attn_output){0};
    CALL(attn_merge_backward(&p, &t, &o, &error));
}

static void position(draws *d)
{
    const int64_t *s = sizes.values, shape[4] = {s[0], s[1], s[2], s[3]};
    const attn_input in = attn_in(ATTN_EMPTY), positions = draw_one_in(d, 2) ? in : (attn_input){0};
    const attn_output out = attn_out(ATTN_EMPTY);
    const attn_rope rope = {.struct_size = sizeof rope, .dim_rotary = draw_one_in(d, 2) ? 0 : s[4]};
    CALL(attn_rope_apply(&rope, shape, &in, &positions, &out, &error));
    CALL(attn_sinusoidal(ATTN_ROPE_PAIRS_INTERLEAVED, s[0], s[1], 0, &positions, &out, &error));
    CALL(attn_position_add(s[5], shape, &in, &in, &positions, &out, &error));
    CALL(attn_position_add_backward(s[5], shape, &in, &positions, &out, &error));
    CALL(attn_position_resize(s[0], s[1], s[2], &in, &out, &error));
    CALL(attn_position_resize_backward(s[0], s[1], s[2], &in, &out, &error));
    CALL(attn_alibi_slopes(s[0], &out, &error));
}

static void gate(draws *d)
{
    const int64_t *s = sizes.values;
    const attn_bias_gate n = {.struct_size = sizeof n, .batch = s[0], .heads = s[1], .len_q = s[2], .dim = s[3], .width = s[4]};
    const attn_input in = attn_in(ATTN_EMPTY);
    const attn_output out = attn_out(ATTN_EMPTY);
    attn_bias_gate_tensors t = {.struct_size = sizeof t, .q = in, .w = in, .b = in, .a = in, .gates = out};
    CALL(attn_bias_gate_forward(&n, &t, &error));
    if (draw_one_in(d, 2)) t.a = t.b = sizes_shared(), t.b.stride[3] = ATTN_BROADCAST, t.a.stride[3] = ATTN_BROADCAST;
    if ((s[1] | s[3]) >> 20 && (s[1] | s[3]) <= (int64_t)1 << 56) return; /* sums for these are asked from malloc */
    t.gates = (attn_output){0}, t.grad_gates = in, t.grad_q = out;
    if (t.a.data != in.data && draw_one_in(d, 2)) t.grad_gates = t.a;
    if (draw_one_in(d, 2)) t.grad_w = t.grad_b = t.grad_a = out;
    CALL(attn_bias_gate_backward(&n, &t, &error));
}

static void distance(draws *d)
{
    const int64_t *s = sizes.values;
    const attn_distance_bias r = {.struct_size = sizeof r,
                                  .kind = draw_one_in(d, 2) ? ATTN_DISTANCE_T5 : ATTN_DISTANCE_CLIPPED,
                                  .heads = s[0],
                                  .buckets = draw_one_in(d, 2) ? 0 : s[1],
                                  .max_distance = s[2],
                                  .causal = draw_one_in(d, 2),
                                  .len_q = s[3],
                                  .len_kv = s[4],
                                  .offset_q = draw_hostile(d)};
    attn_input in = attn_in(ATTN_EMPTY);
    const attn_output out = attn_out(ATTN_EMPTY);
    if (draw_one_in(d, 2)) in = sizes_shared(), in.stride[2] = in.stride[3] = ATTN_BROADCAST;
    CALL(attn_distance_bias_fill(&r, &in, &out, &error));
    CALL(attn_distance_bias_backward(&r, &in, &out, &error));
    (void)attn_distance_buckets(&r), (void)attn_distance_bucket(&r, s[5]), (void)attn_distance_bucket(&r, -s[6]);
}

static void features(draws *d)
{
    const attn_output out = attn_out(ATTN_EMPTY);
    for (int kind = 0; kind < 8; kind++)
        if (attn_features_count((attn_features)kind, sizes.values[0], sizes.values[1]) < 0)
            finding("a negative number of features");
    CALL(attn_random_features((attn_random_rows)draw_below(d, 3), sizes.values[0], sizes.values[1], 1, 0, &out, &error));
}

static void linformer(draws *d)
{
    const attn_input in = attn_in(ATTN_EMPTY);
    const attn_output out = attn_out(ATTN_EMPTY);
    attn_linformer_problem p = {.struct_size = sizeof p};
    attn_linformer_tensors t = {.struct_size = sizeof t, .x = in, .projection = in, .y = out};
    const attn_options o = {.struct_size = sizeof o, .threads = 2, .allocator = {sizes_allocate, sizes_release, NULL}};
    p.batch = sizes.values[0], p.heads = sizes.values[1], p.rank = sizes.values[2], p.len = sizes.values[3],
    p.dim = sizes.values[4];
    if (p.rank == 0 && draw_one_in(d, 2)) t.x = sizes_shared();
    if (p.dim == 0 && draw_one_in(d, 2)) t.projection = sizes_shared();
    CALL(attn_linformer_project(&p, &t, &o, &error));
    t.y = (attn_output){0}, t.grad_y = in, t.grad_x = t.grad_projection = out;
    CALL(attn_linformer_backward(&p, &t, &o, &error));
}

static void hopfield(draws *d)
{
    static const float patterns[1];
    const attn_hopfield m = {
        .struct_size = sizeof m, .stored = sizes.values[0], .dim = sizes.values[1], .patterns = attn_in(ATTN_EMPTY)};
    const attn_hopfield one = {.struct_size = sizeof one, .stored = 1, .dim = 1, .patterns = attn_in(patterns)};
    attn_hopfield_tensors t = {.struct_size = sizeof t, .states = attn_in(ATTN_EMPTY), .updated = attn_out(ATTN_EMPTY)};
    const attn_hopfield *const with = draw_one_in(d, 2) ? &m : &one;
    const int64_t count = with == &one ? sizes.values[2] : 0;
    double share, separation;
    CALL(attn_hopfield_update(with, count, &t, &error));
    t.energies = t.iterations = attn_out(ATTN_EMPTY);
    CALL(attn_hopfield_retrieve(with, count, sizes.values[3], 0, &t, &error));
    t.energies = t.iterations = (attn_output){0};
    CALL(attn_hopfield_classical(with, (attn_hopfield_order)draw_below(d, 2), count, &t, &error));
    CALL(attn_hopfield_basin(&m, sizes.values[4], sizes.values[5], 1, 1, sizes.values[3], 0, &share, &error));
    CALL(attn_hopfield_landscape(&m, sizes.values[4], sizes.values[5], 0, 1, &share, &separation, &error));
    CALL(attn_hopfield_separation(&m, &separation, &error));
    t.updated = (attn_output){0}, t.grad_updated = attn_in(ATTN_EMPTY), t.grad_states = attn_out(ATTN_EMPTY);
    CALL(attn_hopfield_update_backward(with, count, &t, &error));
    (void)attn_hopfield_classical_capacity(sizes.values[0]), (void)attn_hopfield_modern_capacity(sizes.values[0]);
}

/* Vectors at one address, of which none is touched: a count is 0, or the sizes are vast. */
static void bilinear(draws *d)
{
    static double at[3], out[3], metric[4];
    const int64_t *s = sizes.values, dim = s[0] < 2 ? s[0] : s[0] | (int64_t)1 << 33;
    const int64_t count = draw_one_in(d, 2) ? 0 : s[1] | (int64_t)1 << 62;
    CALL(attn_metric_scaled(s[0] | (int64_t)1 << 33, 1, out, &error));
    CALL(attn_metric_learned(0, s[0] | (int64_t)1 << 33, at, out, &error));
    CALL(attn_metric_learned_backward(s[1] | (int64_t)1 << 40, s[0] | (int64_t)1 << 33, at, at + 1, out, &error));
    CALL(attn_metric_inverse(s[0] | (int64_t)1 << 33, at, out, &error));
    CALL(attn_index_lower(count, dim, at, at + 1, out, &error));
    CALL(attn_bilinear_form(count, dim, at, at + 1, at + 2, out, &error));
    CALL(attn_bilinear_form_batch(count, draw_one_in(d, 2) ? 0 : s[2] | (int64_t)1 << 62, dim, at, at + 1, at + 2, out, &error));
    CALL(attn_inner_product(count, dim, at, at + 1, NULL, out, &error));
    const int64_t other = draw_one_in(d, 2) ? 0 : s[2] | (int64_t)1 << 62, wide = s[0] | (int64_t)1 << 33;
    CALL(attn_metric_diagonal(wide, at, out, &error));
    CALL(attn_metric_inverse_backward(wide, at, at + 1, out, &error));
    attn_metric_properties properties = {.struct_size = sizeof properties};
    CALL(attn_metric_check(wide, 0, at, &properties, &error));
    CALL(attn_index_raise(count, dim, at, at + 1, out, &error));
    CALL(attn_index_backward(count, dim, at, at + 1, at + 2, out, NULL, &error));
    CALL(attn_bilinear_form_backward(count, dim, at, at, at + 1, at + 2, out, out + 1, NULL, &error));
    CALL(attn_bilinear_form_batch_backward(count, other, dim, at, at, at + 1, at + 2, out, out + 1, NULL, &error));
    CALL(attn_quadratic_form(count, dim, at, at + 1, out, &error));
    const attn_tensors t = {.struct_size = sizeof t,
                            .q = attn_in(ATTN_EMPTY),
                            .k = attn_in(ATTN_EMPTY),
                            .v = attn_in(ATTN_EMPTY),
                            .o = attn_out(ATTN_EMPTY)};
    const attn_problem p = {.struct_size = sizeof p, .shape = {s[3], s[4], s[4], s[5], s[6], 2, s[7]}};
    const attn_options o = {.struct_size = sizeof o, .threads = 2, .allocator = {sizes_allocate, sizes_release, NULL}};
    CALL(attn_bilinear_attention(&p, &t, metric, &o, &error));
}

/* Distributions without elements, and attentions step by step. */
static void analysis(draws *d)
{
    static double x[4], out[4];
    const int64_t *s = sizes.values, n = draw_one_in(d, 2) ? 0 : s[0] | (int64_t)1 << 62, many = n ? 0 : s[1];
    CALL(attn_softmax(0, 1, x, NULL, out, NULL, &error));
    CALL(attn_temperature_sweep(n, 0, x, x, out, out, &error));
    CALL(attn_softmax_jacobian(0, 1, x, out, &error));
    CALL(attn_head_entropy(n == 0 ? 1 : 0, s[1], n, x, out, &error));
    (void)attn_mutual_information(many, n, x), (void)attn_head_diversity(many, 0, x), (void)attn_max_entropy(s[0]);
    const attn_input in = attn_in(ATTN_EMPTY);
    attn_tensors t = {.struct_size = sizeof t, .q = in, .k = in, .v = in, .o = attn_out(ATTN_EMPTY)};
    t.q.dtype = t.k.dtype = t.v.dtype = t.o.dtype = ATTN_F64;
    attn_problem p = {.struct_size = sizeof p, .shape = {s[2], s[3], s[3], s[4], s[5], s[6], s[7]}};
    if (draw_one_in(d, 2)) p.shape.dim_qk = p.shape.dim_v = 0;
    const attn_options o = {.struct_size = sizeof o, .threads = 2, .allocator = {sizes_allocate, sizes_release, NULL}};
    attn_steps steps = {.struct_size = sizeof steps};
    attn_flow flow = {.struct_size = sizeof flow};
    attn_verification verified = {.struct_size = sizeof verified};
    CALL(attn_decompose(&p, &t, &steps, &o, &error));
    CALL(attn_gradient_flow(&p, &t, &flow, &o, &error));
    CALL(attn_verify_gradients(&p, 0, 2, &t, &verified, &o, &error));
    attn_rope_scaling scaling = {.struct_size = sizeof scaling, .factor = 2, .dim = s[8] < 2 ? 0 : s[8] | (int64_t)1 << 61};
    double magnitude;
    CALL(attn_rope_frequencies(&scaling, NULL, &magnitude, &error));
    CALL(attn_convert(0, NULL, ATTN_F32, NULL, ATTN_F64, &error));
    CALL(attn_mask_keep_from_drop(s[9], &in, &t.o, &error));
    CALL(attn_mask_bias_from_keep(s[9], 0, &in, &t.o, &error));
}

/* Patterns over sizes for which there is memory, or certainly none. */
static void mask(draws *d)
{
    attn_pattern p[3];
    attn_pattern_set *set = NULL;
    const int64_t *s = sizes.values;
    int64_t len[2];
    for (int i = 0; i < 2; i++) len[i] = s[i] < 65 || s[i] > (int64_t)1 << 60 ? s[i] : 64;
    for (int i = 0; i < 3; i++) {
        const attn_pattern all[] = {attn_pattern_causal(),
                                    attn_pattern_causal_bottom_right(),
                                    attn_pattern_block_diagonal(s[2]),
                                    attn_pattern_columns(s[3]),
                                    attn_pattern_bigbird(s[2], s[3], s[4], s[5], 1),
                                    attn_pattern_window(s[2], s[3]),
                                    attn_pattern_sliding_window(s[2]),
                                    attn_pattern_local(s[3]),
                                    attn_pattern_radius(s[4]),
                                    attn_pattern_strided(s[2]),
                                    attn_pattern_dilated(s[2], s[3]),
                                    attn_pattern_fixed(s[3], s[4]),
                                    attn_pattern_global_local(s[4], s[2]),
                                    attn_pattern_prefix(s[2]),
                                    attn_pattern_lengths(s[3], s[4])};
        p[i] = all[draw_below(d, (int64_t)(sizeof all / sizeof *all))];
    }
    CALL(attn_pattern_set_create(&set, len[0], len[1], 1 + draw_below(d, 3), p, &error));
    if (!set) return;
    attn_problem problem = {.struct_size = sizeof problem};
    attn_tensors tensors = {.struct_size = sizeof tensors};
    for (int i = 0; i < 4; i++) (void)attn_pattern_set_sees(set, i < 2 ? len[0] - 1 : s[5], i % 2 ? len[1] - 1 : s[6]);
    CALL(attn_pattern_set_apply(set, &problem, &tensors, &error));
    attn_pattern_set_counts n = {.struct_size = sizeof n};
    if ((len[0] < 65 && len[1] < 65) || len[0] == 0 || len[1] == 0) CALL(attn_pattern_set_count(set, s[5], s[6], &n, &error));
    const attn_output keep = attn_out(ATTN_EMPTY);
    CALL(attn_pattern_set_fill(set, &keep, &error));
    attn_pattern_set_destroy(set);
}

/* Nothing is computed in a tensor without elements, so no call takes long: the calls of a case take microseconds of CPU.  (Not of
 * the clock, which runs while others compute.  The engine has a timeout of its own; FUZZ_TRACE=1 tells which case it was.) */
enum { SECONDS_OF_CPU = 5, SECONDS = 120 };

#ifndef FUZZ_ENGINE
static void too_long(int number)
{
    finding(number == SIGVTALRM ? "%d seconds of CPU, with nothing to compute" : "%d seconds, waiting",
            number == SIGVTALRM ? SECONDS_OF_CPU : SECONDS);
}
#endif

static void limit_time(int on)
{
#ifdef FUZZ_ENGINE
    (void)on;
#else
    const struct itimerval cpu = {.it_value.tv_sec = on ? SECONDS_OF_CPU : 0};
    if (on) (void)signal(SIGVTALRM, too_long), (void)signal(SIGALRM, too_long);
    (void)setitimer(ITIMER_VIRTUAL, &cpu, NULL);
    (void)alarm(on ? SECONDS : 0);
#endif
}

void target_run(draws *from)
{
    static void (*const runs[])(draws *) = {sizes_plan, sizes_linear, product,  cost, sizes_counts,  sizes_packed_layer,
                                            cache,      merge,        position, gate, distance,      features,
                                            linformer,  hopfield,     bilinear, mask, sizes_modules, sizes_decoding,
                                            analysis,   dlpack};
    memset(&sizes, 0, sizeof sizes);
    sizes.kind = draw_one_in(from, 2) ? (int)draw_below(from, 2) : (int)draw_below(from, SIZES_KINDS);
    draw_vast_fields(from, sizes.values, MAX_SIZES);
    target_drawn();
    limit_time(1);
    runs[sizes.kind](from);
    limit_time(0);
}
