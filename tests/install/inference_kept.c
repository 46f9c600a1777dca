/* SPDX-License-Identifier: MIT
 *
 * inference_kept.c - calls every operation that a library built with ATTN_INFERENCE_ONLY keeps, with every option, rule and format,
 * and prints a hash of what each has written: tests/install/inference_only.sh compares them with those of the full library.
 * (Attention is over more than 256 keys, since fewer take other walks there.)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/choose.h"
#include "attn/convolution.h"
#include "attn/linear.h"
#include "attn/merge.h"
#include "attn/product.h"
#include "attn/schedule.h"
#include "attn/team.h"

enum { B = 2, H = 4, G = 2, S = 17, N = 260, D = 32, PAGE = 20, PAGES = B * N / PAGE, BLOCKS = N / PAGE };

static attn_error error;

static void *memory(size_t bytes)
{
    void *p = calloc(1, bytes);
    if (!p) exit(2);
    return p;
}

/* Numbers from -1 to 1 that depend on `seed` alone; never freed, like all memory here. */
static float *numbers(int64_t count, uint64_t seed)
{
    float *x = memory((size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)(seed >> 40) / (float)(1 << 23) - 1;
    }
    return x;
}

static int failures;

static void say(const char *name, int64_t number, attn_status status, const void *data, size_t bytes)
{
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ ((const unsigned char *)data)[i]) * 1099511628211u;
    printf("%s %d: %d %016llx%s%s\n", name, (int)number, (int)status, (unsigned long long)hash, status ? " " : "", error.message);
    failures += status != ATTN_OK;
}

static attn_input typed_in(const void *data, attn_dtype type)
{
    attn_input slot = attn_in(data);
    slot.dtype = type;
    return slot;
}

static attn_output typed_out(void *data, attn_dtype type)
{
    attn_output slot = attn_out(data);
    slot.dtype = type;
    return slot;
}

/* The rows of x in a storage type, and with scales if the type needs them. */
static void *stored(const float *x, int64_t rows, attn_dtype type, float *scales)
{
    void *to = memory((size_t)(rows * D) * sizeof *x);
    if (type == ATTN_F16 || type == ATTN_BF16 || type == ATTN_F32) {
        say("attn_convert", type, attn_convert(rows * D, x, ATTN_F32, to, type, &error), to, (size_t)rows);
        return to;
    }
    const attn_input from = attn_in(x);
    const attn_output out = typed_out(to, type), of_scales = attn_out(scales);
    const int blocks = type >= ATTN_Q8_0;
    say("attn_quantise", type, attn_quantise(rows, D, &from, &out, blocks ? NULL : &of_scales, &error), to, (size_t)rows);
    return to;
}

/* ---- attention ---- */

static attn_problem p;
static attn_tensors t;
static attn_call call;
static attn_options options;
static float *o, *more;
static const float *q, *k, *v, *small;
static int64_t indexes[B * G * S * N];

static void start(void)
{
    p = (attn_problem){.struct_size = sizeof p, .shape = {B, H, G, S, N, D, D}};
    t = (attn_tensors){.struct_size = sizeof t, .q = attn_in(q), .k = attn_in(k), .v = attn_in(v), .o = attn_out(o)};
    call = (attn_call){.struct_size = sizeof call, .dropout_seed = 7};
    options = (attn_options){.struct_size = sizeof options};
    t.call = &call;
    memset(o, 0, B * H * S * D * sizeof *o);
    memset(more, 0, B * H * S * N * sizeof *more);
}

static void attend(const char *name, int64_t number)
{
    attn_plan *plan;
    attn_status status = attn_plan_create(&plan, &p, &t, &options, &error);
    if (!status) {
        const size_t bytes = attn_plan_workspace_size(plan);
        status = attn_execute(plan, &t, memory(bytes + 1), bytes, &error);
    }
    attn_plan_destroy(plan);
    say(name, number, status, o, B * H * S * D * sizeof *o);
    say(name, number, status, more, B * H * S * N * sizeof *more);
    start();
}

static void scores(void)
{
    for (int kind = ATTN_SCORE_DOT; kind <= ATTN_SCORE_ADDITIVE; kind++)
        for (int causal = 0; causal < 2; causal++) {
            p.score.kind = (attn_score_kind)kind, p.mask.causal = causal;
            const int matrix = kind == ATTN_SCORE_GENERAL || kind == ATTN_SCORE_METRIC || kind == ATTN_SCORE_ADDITIVE;
            if (matrix) t.score_matrix = attn_in(small);
            attend("score kind", kind);
        }
    for (int normaliser = 0; normaliser <= ATTN_NORMALISER_RELU; normaliser++) {
        p.score.normaliser = (attn_normaliser)normaliser;
        attend("normaliser", normaliser);
    }
    p.score.softcap = 2, p.score.temperature = 0.5, attend("softcap", 0);
    t.scale = attn_in(small), attend("scale", 0);
    t.alibi_slopes = attn_in(small), attend("alibi", 0);
    t.sink = attn_in(small), attend("sink", 0);
    t.bias = (attn_input){small, ATTN_F32, {0, 0, 0, 1}}, attend("bias", 0);
    t.bias_table = attn_in(small), attend("bias table", ATTN_DISTANCE_T5);
    p.bias_table = (attn_bias_table){.kind = ATTN_DISTANCE_CLIPPED, .max_distance = 3};
    t.bias_table = attn_in(small), attend("bias table", ATTN_DISTANCE_CLIPPED);
    for (int xl = 0; xl < 2; xl++) {
        p.relative = (attn_relative){.first = -4, .rows = 9};
        t.relative_keys = attn_in(k), t.relative_values = attn_in(v);
        if (xl) t.relative_u = t.relative_v = attn_in(small);
        attend("relative", xl);
    }
}

static void add_index(void *context, const attn_score_tile *tile)
{
    (void)context;
    for (int64_t j = 0; j < tile->keys; j++)
        for (int64_t i = 0; i < tile->queries; i++)
            ((float *)tile->scores)[j * tile->stride + i] += 0.125f * (float)((tile->first_kv + j) % 8);
}

static void visit(void *context, const attn_rows *rows)
{
    for (int64_t i = 0; i < rows->count; i++)
        memcpy((float *)context + ((rows->batch * H + rows->head) * S + rows->first + i) * N,
               (const float *)rows->values + i * rows->stride, (size_t)rows->len_kv * sizeof(float));
}

static void masks(void)
{
    static unsigned char keep[N];
    static uint64_t words[B * S];
    for (int j = 0; j < N; j++) keep[j] = small[j] > 0;
    for (int i = 0; i < B * S; i++) words[i] = 0x5555555555555555u;
    p.mask.causal = 1, p.mask.align = ATTN_ALIGN_BOTTOM_RIGHT, attend("causal", 1);
    p.mask.window = 1, p.mask.window_left = 40, p.mask.window_right = 3, attend("window", 0);
    p.mask.window = 1, p.mask.window_left = p.mask.window_right = 99, p.mask.dilation = 3, p.mask.global_kv = 2,
    attend("global", 0);
    p.mask.chunk = 64, attend("chunk", 0);
    p.mask.least_distance = 1, p.mask.empty = ATTN_EMPTY_UNIFORM, attend("distance", 0);
    for (int i = 0; i < B * H * S; i++) indexes[2 * i] = i % 9, indexes[2 * i + 1] = i % 9 + 200;
    t.ranges = attn_in(indexes), attend("ranges", 0);
    t.mask = (attn_input){keep, ATTN_BOOL, {0, 0, 0, 1}}, attend("mask", 0);
    t.block_mask = (attn_input){keep, ATTN_BOOL, {0, 0, 0, 1}}, p.mask.block_q = S, p.mask.block_kv = PAGE, attend("block mask", 0);
    p.mask.tree_keys = 64, p.mask.causal = 1, p.mask.align = ATTN_ALIGN_BOTTOM_RIGHT, t.tree = attn_in(words), attend("tree", 0);
    for (int heads = 0; heads < 2; heads++) {
        const int lists = heads ? B * G : 1;
        int64_t *starts = memory((size_t)(lists + 1) * sizeof *starts);
        for (int i = 0; i <= lists; i++) starts[i] = 3 * i;
        for (int i = 0; i < 3 * lists; i++) indexes[i] = i % 3 * 4;
        p.mask.block_q = S, p.mask.block_kv = PAGE, p.mask.block_entries = 3 * lists, p.mask.block_heads = heads;
        t.block_starts = attn_in(starts), t.block_index = attn_in(indexes), attend("lists", heads);
    }
    p.dropout.probability = 0.25, t.dropout_keep = typed_out(more, ATTN_BOOL), attend("dropout", 0);
    p.dropout.probability = 0.25, t.dropout_given = (attn_input){keep, ATTN_BOOL, {0, 0, 0, 1}}, attend("dropout", 1);
    call.modify_scores = add_index, attend("modifier", 0);
}

static void outputs(void)
{
    attn_output *const slots[] = {&t.lse, &t.weights, &t.row_max, &t.entropy, &t.effective_keys, &t.topk_weight};
    for (int i = 0; i < (int)(sizeof slots / sizeof *slots); i++) {
        *slots[i] = attn_out(more), p.outputs.topk = slots[i] == &t.topk_weight ? 3 : 0;
        attend("output", i);
    }
    p.outputs.topk = 5, t.topk_index = typed_out(more, ATTN_I32), attend("topk", 0);
    for (int stage = 0; stage <= ATTN_STAGE_WEIGHTS; stage++) {
        p.outputs.scores_stage = (attn_stage)stage, p.mask.causal = 1, t.scores = attn_out(more), attend("scores", stage);
        p.outputs.rows_stage = (attn_stage)stage, call.visit_rows = visit, call.visit_context = more, attend("rows", stage);
    }
    for (int heads = 0; heads <= ATTN_COLUMNS_ALL; heads++)
        p.outputs.column_heads = (attn_columns)heads, t.column_sum = attn_out(more), attend("columns", heads);
}

static void in_order(void *context, int64_t n, void (*body)(void *body_context, int64_t i), void *body_context)
{
    (void)context;
    for (int64_t i = 0; i < n; i++) body(body_context, i);
}

/* Every storage type of keys and values, in rows and in pages, as tiles, as decode, as both at once with a schedule. */
static void formats(void)
{
    static const int32_t starts[] = {0, 1, 1 + S}, lengths[] = {N, N - 3};
    static int32_t table[B * BLOCKS];
    for (int i = 0; i < B * BLOCKS; i++) table[i] = (i * 7) % (B * BLOCKS);
    for (int type = ATTN_F32; type <= ATTN_Q4_1; type++) {
        if (type == ATTN_F64 || (type > ATTN_BF16 && type < ATTN_F8_E4M3 && type != ATTN_I8)) continue;
        float *scales = memory(2 * B * G * N * sizeof *scales);
        const void *keys = stored(k, B * G * N, (attn_dtype)type, scales);
        const void *values = stored(v, B * G * N, (attn_dtype)type, scales + B * G * N);
        const int scaled = type == ATTN_I8 || type == ATTN_F8_E4M3 || type == ATTN_F8_E5M2;
        for (int way = 0; way < 16; way++) { /* bits: one query, pages, invariant, ragged with a schedule */
            const int few = way & 1, pages = way & 2, ragged = way & 8;
            if (ragged && (few || !pages)) continue;
            t.k = typed_in(keys, (attn_dtype)type), t.v = typed_in(values, (attn_dtype)type);
            if (scaled) t.k_scale = attn_in(scales), t.v_scale = attn_in(scales + B * G * N);
            if (few) p.shape.len_q = 1;
            if (pages) p.paging.page_size = PAGE, p.paging.pages = PAGES, t.page_table = typed_in(table, ATTN_I32);
            options.invariant = (way & 4) != 0, options.parallel_for = few ? in_order : NULL;
            p.mask.causal = 1, p.mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
            t.lengths_kv = typed_in(lengths, ATTN_I32);
            if (!ragged) {
                attend(attn_dtype_name((attn_dtype)type), way);
                continue;
            }
            attn_plan *plan;
            t.cu_seqlens_q = typed_in(starts, ATTN_I32);
            attn_status status = attn_plan_create(&plan, &p, &t, &options, &error);
            const size_t size = attn_schedule_size(plan);
            const attn_prefix prefix = {0, B, 2 * PAGE};
            const attn_schedule_options known = {.struct_size = sizeof known, .prefix_count = 1, .prefixes = &prefix};
            if (!status) status = attn_schedule_make(&call.schedule, plan, &t, memory(size), size, &known, &error);
            const size_t bytes = attn_schedule_workspace_size(call.schedule);
            attn_team team = {.struct_size = sizeof team, .workers = 1};
            if (!status) status = attn_execute_worker(plan, 0, &t, memory(bytes + 1), bytes, &team, &error);
            attn_plan_destroy(plan);
            say("schedule", type, status, o, (1 + S) * H * D * sizeof *o);
            start();
        }
    }
    t.cu_seqlens_q = t.cu_seqlens_kv = typed_in(starts, ATTN_I32), attend("packed", 0);
    const attn_origin origin = {.kv = 5, .q = 200};
    call.origin = &origin, p.mask.causal = 1, attend("origin", 0);
    attn_options resolved = {.struct_size = sizeof resolved};
    say("attn_options_resolve", 0, attn_options_resolve(NULL, &resolved, &error), NULL, 0);
    options.reproducible = resolved.isa != ATTN_ISA_SCALAR, attend("reproducible", 0);
    say("attn_compute", 0, attn_compute(&p, &t, &error), o, B * H * S * D * sizeof *o);
}

/* ---- linear attention and the short convolution ---- */

static void linear_call(const attn_linear_problem *problem, const attn_linear_tensors *tensors, const char *name, int64_t number,
                        const float *state)
{
    attn_linear_plan *plan;
    attn_status status = attn_linear_plan_create(&plan, problem, tensors, NULL, &error);
    if (!status) {
        const size_t bytes = attn_linear_plan_workspace_size(plan);
        status = attn_linear_execute(plan, tensors, memory(bytes + 1), bytes, &error);
    }
    attn_linear_plan_destroy(plan);
    say(name, number, status, o, B * H * S * D * sizeof *o);
    say(name, number, status, state, B * G * D * D * sizeof *state);
}

static void linear(void)
{
    static const int32_t cu[] = {0, 1, S}, slots[] = {1, 0};
    float *state = memory(B * G * D * D * sizeof *state), *sum = memory(B * G * 2 * D * sizeof *sum),
          *decay = numbers(B * G * S * D, 9);
    for (int i = 0; i < B * G * S * D; i++) decay[i] = -0.25f * decay[i] * decay[i];
    const void *half = stored(q, B * H * S, ATTN_BF16, NULL);
    for (int form = 0; form <= ATTN_LINEAR_FORM_QUADRATIC; form++)
        for (int rule = 0; rule <= ATTN_LINEAR_RULE_LOW_RANK; rule++)
            for (int decayed = 0; decayed < 3; decayed++)
                for (int way = 0; way < 6; way++) { /* f32; bf16; ragged over slots; one token; a sum; a state of bf16 */
                    if (rule == ATTN_LINEAR_RULE_LOW_RANK && form % 2 == 1) continue;
                    attn_linear_problem lp = {
                        .struct_size = sizeof lp, .form = (attn_linear_form)form, .shape = {B, H, G, S, S, D, D}};
                    attn_linear_tensors lt = {.struct_size = sizeof lt, .q = attn_in(q), .k = attn_in(k), .v = attn_in(v)};
                    lt.o = attn_out(o), lp.causal = 1, lp.rule = (attn_linear_rule)rule, lp.features = ATTN_FEATURES_IDENTITY;
                    lp.denominator = ATTN_DENOMINATOR_NONE;
                    if (way == 1) lt.q = lt.k = lt.v = typed_in(half, ATTN_BF16), lt.o.dtype = ATTN_F16;
                    if (rule == ATTN_LINEAR_RULE_DELTA) lt.beta = attn_in(small);
                    if (rule == ATTN_LINEAR_RULE_LOW_RANK) lt.erase = attn_in(decay), lt.write = attn_in(decay);
                    if (decayed) lt.decay = attn_in(decay), lp.decay_kind = (attn_decay_kind)(decayed - 1);
                    memcpy(state, k, B * G * D * D * sizeof *state), memcpy(sum, k, B * G * 2 * D * sizeof *sum);
                    memset(o, 0, B * H * S * D * sizeof *o);
                    lt.final_state = attn_out(state),
                    lt.initial_state = attn_in(way == 5 ? stored(v, B * G * D, ATTN_BF16, NULL) : state);
                    if (way == 5) lt.final_state.dtype = lt.initial_state.dtype = ATTN_BF16;
                    if (way == 2)
                        lt.cu_seqlens = typed_in(cu, ATTN_I32), lp.pool = 2,
                        lt.initial_slots = lt.final_slots = typed_in(slots, ATTN_I32);
                    if (way == 3) lp.shape.len_q = lp.shape.len_kv = 1;
                    if (way == 4 && rule) continue;
                    if (way == 4) lp.denominator = 0, lp.features = 0, lt.initial_sum = attn_in(sum), lt.final_sum = attn_out(sum);
                    linear_call(&lp, &lt, "linear", 1000 * form + 100 * rule + 10 * decayed + way, state);
                }
    for (int features = 0; features <= ATTN_FEATURES_TRIGONOMETRIC; features++)
        for (int causal = 0; causal < 2; causal++) {
            attn_linear_problem lp = {
                .struct_size = sizeof lp, .shape = {B, H, G, S, S, D, D}, .features = (attn_features)features, .causal = causal};
            attn_linear_tensors lt = {
                .struct_size = sizeof lt, .q = attn_in(q), .k = attn_in(k), .v = attn_in(v), .o = attn_out(o)};
            float *matrix = memory(16 * D * sizeof *matrix);
            const attn_output rows = attn_out(matrix);
            if (features >= ATTN_FEATURES_FAVOR) {
                say("rows", features, attn_random_features(ATTN_RANDOM_ROWS_ORTHOGONAL, 16, D, 3, 0, &rows, &error), matrix,
                    16 * D * sizeof *matrix);
                lt.feature_matrix = attn_in(matrix), lp.random_features = 16;
            }
            linear_call(&lp, &lt, "features", features, state);
            say("attn_linear_compute", features, attn_linear_compute(&lp, &lt, &error), o, B * H * S * D * sizeof *o);
        }
    static const int32_t columns[] = {0, 1, 2, 3, 4, 5};
    attn_linear_problem lp = {
        .struct_size = sizeof lp, .shape = {B, H, G, 3, 3, D, D}, .causal = 1, .features = ATTN_FEATURES_IDENTITY};
    attn_linear_tensors lt = {.struct_size = sizeof lt, .q = attn_in(q), .k = attn_in(k), .v = attn_in(v), .o = attn_out(o)};
    lp.denominator = ATTN_DENOMINATOR_NONE, lp.pool = 6, lp.snapshots = 3;
    lt.final_slots = typed_in(columns, ATTN_I32), lt.final_state = typed_out(memory(6 * G * D * D * 4), ATTN_F16);
    linear_call(&lp, &lt, "snapshots", 0, lt.final_state.data);
}

static void convolution(void)
{
    static const int32_t cu[] = {0, 5, S};
    for (int way = 0; way < 3 * 16; way++) {
        const int width = 2 + way / 16;
        attn_convolution_problem c = {
            .struct_size = sizeof c, .batch = B, .len = S, .channels = D, .width = width, .silu = way & 1};
        attn_convolution_tensors of = {.struct_size = sizeof of, .x = attn_in(q), .weight = attn_in(k), .y = attn_out(o)};
        float *state = numbers(B * 4 * D, 5);
        if (way & 2) of.bias = attn_in(small);
        if (way & 4) of.x = typed_in(stored(q, B * S, ATTN_F16, NULL), ATTN_F16);
        if (way & 8) of.cu_seqlens = typed_in(cu, ATTN_I32);
        of.initial_state = attn_in(state), of.final_state = attn_out(state);
        say("convolution", way, attn_convolution(&c, &of, NULL, &error), o, B * S * D * sizeof *o);
        say("convolution", way, ATTN_OK, state, B * 4 * D * sizeof *state);
    }
}

/* ---- products, merging, caches, choices, positions ---- */

static void products(void)
{
    for (int way = 0; way < 16; way++) { /* bits: few rows, b transposed, added, of few columns */
        attn_product_problem m = {
            .struct_size = sizeof m, .rows = way & 1 ? 3 : 37, .columns = way & 8 ? 2 : 45, .inner = 53, .add = (way & 4) != 0};
        attn_product_tensors of = {.struct_size = sizeof of, .a = attn_in(q), .b = attn_in(k), .c = attn_out(o)};
        if (way & 2) of.b = attn_transposed(k, 53);
        size_t bytes;
        say("attn_product", way, attn_product(&m, &of, NULL, &error), o, 37 * 45 * sizeof *o);
        say("attn_product_workspace_size", way, attn_product_workspace_size(&m, &bytes, NULL, &error), NULL, 0);
        say("attn_product_in", way, attn_product_in(&m, &of, memory(bytes + 1), bytes, NULL, &error), o, 37 * 45 * sizeof *o);
    }
    for (int type = ATTN_F32; type <= ATTN_BF16; type++) {
        if (type == ATTN_F64) continue;
        const attn_input parts[] = {typed_in(stored(q, B * H * S, (attn_dtype)type, NULL), (attn_dtype)type),
                                    typed_in(stored(k, B * H * S, (attn_dtype)type, NULL), (attn_dtype)type)};
        const attn_input logs[] = {attn_in(small), attn_in(small + 7)};
        const attn_merge_problem m = {.struct_size = sizeof m, .parts = 2, .batch = B, .heads = H, .len_q = S, .dim_v = D};
        const attn_merge_tensors of = {.struct_size = sizeof of,
                                       .o_parts = parts,
                                       .lse_parts = logs,
                                       .o = typed_out(o, (attn_dtype)type),
                                       .lse = attn_out(more)};
        say("attn_merge", type, attn_merge(&m, &of, NULL, &error), o, B * H * S * D * attn_dtype_size((attn_dtype)type));
        attn_merge_tensors back = of;
        attn_output grads[] = {typed_out(o, (attn_dtype)type), typed_out(o + B * H * S * D, (attn_dtype)type)};
        attn_output grad_logs[] = {attn_out(more), attn_out(more + B * H * S)};
        back.grad_o = back.o_parts[1], back.grad_o_parts = grads, back.grad_lse_parts = grad_logs;
        back.o = back.lse = (attn_output){0};
        say("attn_merge_backward", type, attn_merge_backward(&m, &back, NULL, &error), o, B * H * S * D * sizeof *o);
        say("attn_merge_backward", type, ATTN_OK, more, 2 * B * H * S * sizeof *more);
    }
}

static void caches(void)
{
    static const int32_t slots[] = {3, 0, 41, -1, 19}, positions[] = {9, 8, 7, 6, 5};
    static const int64_t from[] = {3, 41}, to[] = {60, 61};
    for (int type = ATTN_F32; type <= ATTN_Q4_1; type++) {
        if (type == ATTN_F64 || (type > ATTN_BF16 && type < ATTN_F8_E4M3 && type != ATTN_I8)) continue;
        for (int rotated = 0; rotated < 3; rotated++) { /* by a definition; by tables */
            const size_t bytes = B * G * N * D * sizeof(float);
            attn_rope rope = {.struct_size = sizeof rope, .pairs = ATTN_ROPE_PAIRS_HALVES};
            if (rotated == 2) rope.cos_table = attn_in(q), rope.sin_table = attn_in(k), rope.table_rows = 140;
            int64_t lengths[B] = {83, 127}, few[B] = {1, 2};
            static int32_t table[B * BLOCKS];
            for (int i = 0; i < B * BLOCKS; i++) table[i] = i;
            attn_cache c = {.struct_size = sizeof c,
                            .batch = B,
                            .heads_kv = G,
                            .capacity = N,
                            .dim_qk = D,
                            .dim_v = D,
                            .page_size = PAGE,
                            .pages = PAGES,
                            .rope = rotated ? &rope : NULL};
            c.k = typed_out(memory(bytes), (attn_dtype)type), c.v = typed_out(memory(bytes), (attn_dtype)type);
            c.lengths = attn_out(lengths), c.page_table = typed_in(table, ATTN_I32);
            if (type == ATTN_I8 || type == ATTN_F8_E4M3) c.k_scale = attn_out(memory(bytes)), c.v_scale = attn_out(memory(bytes));
            attn_cache_tokens tokens = {.struct_size = sizeof tokens, .len = 5, .k = attn_in(k), .v = attn_in(v)};
            say("attn_cache_append", type, attn_cache_append(&c, &tokens, &error), c.k.data, bytes);
            const attn_input drop = attn_in(few), of_from = attn_in(from), of_to = attn_in(to);
            const attn_problem problem = {.struct_size = sizeof problem, .shape.heads_q = H};
            const attn_tensors of = {.struct_size = sizeof of, .q = attn_in(q), .o = attn_out(o)};
            say("attn_cache_attend", type, attn_cache_attend(&c, &tokens, &problem, &of, NULL, &error), o,
                B * H * 5 * D * sizeof *o);
            if (!rotated || type <= ATTN_BF16)
                say("attn_cache_shift", type, attn_cache_shift(&c, 2, &drop, &error), c.k.data, bytes);
            tokens.slots = typed_in(slots, ATTN_I32);
            if (rotated) tokens.positions = typed_in(positions, ATTN_I32);
            say("slots", type, attn_cache_append(&c, &tokens, &error), c.k.data, bytes);
            say("attn_cache_move", type, attn_cache_move(&c, 2, &of_from, &of_to, &error), c.k.data, bytes);
            const int quantised = type > ATTN_BF16;
            attn_bounds bounds = {.struct_size = sizeof bounds};
            bounds.rows = typed_out(memory(PAGES * G * 2 * D * sizeof *o), quantised ? ATTN_F32 : (attn_dtype)type);
            say("attn_page_bounds", type, attn_page_bounds(&c, &bounds, NULL, &error), bounds.rows.data, PAGES * G * 2 * D * 2);
            const attn_input queries = attn_in(q);
            const attn_output found = attn_out(more);
            say("attn_page_scores", type, attn_page_scores(&c, H, 1, &bounds, &queries, &found, &error), more,
                B * G * BLOCKS * sizeof *more);
            attn_choice choice = {.struct_size = sizeof choice,
                                  .batch = B,
                                  .heads_kv = G,
                                  .blocks = BLOCKS,
                                  .block = PAGE,
                                  .count = 3,
                                  .keep_last = 1};
            choice.lengths = attn_in(lengths), choice.scores = attn_in(more), choice.block_starts = attn_out(memory(99)),
            choice.block_index = attn_out(indexes);
            say("attn_choose_blocks", type, attn_choose_blocks(&choice, &error), indexes, 3 * B * G * sizeof *indexes);
        }
    }
    const attn_input x = attn_in(q), table = attn_in(k), at = typed_in(positions, ATTN_I32);
    const attn_output y = attn_out(o);
    const attn_rope rope = {.struct_size = sizeof rope};
    const int64_t shape[4] = {1, H, 5, D};
    say("attn_hadamard", 0, attn_hadamard(5, D, &x, &y, &error), o, 5 * D * sizeof *o);
    say("attn_rope_apply", 0, attn_rope_apply(&rope, shape, &x, &at, &y, &error), o, 5 * H * D * sizeof *o);
    say("attn_position_add", 0, attn_position_add(10, shape, &x, &table, &at, &y, &error), o, 5 * H * D * sizeof *o);
    say("attn_sinusoidal", 0, attn_sinusoidal(ATTN_ROPE_PAIRS_HALVES, 5, D, 0, &at, &y, &error), o, 5 * D * sizeof *o);
    say("attn_alibi_slopes", 0, attn_alibi_slopes(H, &y, &error), o, H * sizeof *o);
}

int main(void)
{
    (void)setvbuf(stdout, NULL, _IOLBF, 1 << 12); /* to tell where it has stopped */
    o = memory(B * H * N * D * sizeof *o), more = memory(B * H * S * N * sizeof *more);
    q = numbers(B * H * N * D, 1), k = numbers(B * G * N * D, 2), v = numbers(B * G * N * D, 3), small = numbers(4096, 4);
    start();
    scores();
    masks();
    outputs();
    formats();
    linear();
    convolution();
    products();
    caches();
    return failures != 0;
}
