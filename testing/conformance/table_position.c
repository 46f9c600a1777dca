/* SPDX-License-Identifier: MIT
 * table_position.c - cases of positions: rotations, tables, buckets and slopes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attn/position.h"
#include "table_case.h"

/*
 * ONNX: X [batch, head, token, channel] or [batch, token, head * channel], rotated by rows of two caches.  position_ids has the row
 * of each token, or the row of the first token; without it, the caches have a row for each token.
 */
static void rotary_caches(table_case *c, const char *name_of_x, const char *name_of_y)
{
    view x = case_need(c, name_of_x), cosines = case_need(c, "in.cos_cache"), sines = case_need(c, "in.sin_cache");
    const view ids = case_find(c, "in.position_ids");
    if ((x.rank != 3 && x.rank != 4) || cosines.rank < 2 || view_count(&cosines) != view_count(&sines)) {
        conclude(c->result, CHECK_FAILED, "X has rank %d and the caches do not fit", x.rank);
        return;
    }
    const int64_t pairs = cosines.size[cosines.rank - 1], rotary_dim = (int64_t)case_param(c, "rotary_embedding_dim", 0);
    const int64_t width = x.size[x.rank - 1], heads = x.rank == 4                         ? x.size[1]
                                                      : case_param(c, "num_heads", 0) > 0 ? (int64_t)case_param(c, "num_heads", 0)
                                                                                          : width / (2 * pairs);
    const int64_t batch = x.size[0], tokens = x.rank == 4 ? x.size[2] : x.size[1], dim = x.rank == 4 ? width : width / heads;
    const int64_t shape[4] = {batch, heads, tokens, dim}, count = view_count(&x);
    const int64_t stride[4] = {heads * tokens * dim, x.rank == 4 ? tokens * dim : dim, x.rank == 4 ? dim : heads * dim, 1};
    int64_t *positions = pool_take(&c->pool, batch * tokens, sizeof *positions);
    for (int64_t n = 0; n < batch * tokens; n++)
        positions[n] = !view_present(&ids)                  ? n
                       : view_count(&ids) == batch * tokens ? (int64_t)view_get(&ids, n)
                                                            : (int64_t)view_get(&ids, 0) + n % tokens;
    const attn_rope rope = {.struct_size = sizeof rope,
                            .pairs = case_param(c, "interleaved", 0) > 0 ? ATTN_ROPE_PAIRS_INTERLEAVED : ATTN_ROPE_PAIRS_HALVES,
                            .dim_rotary = rotary_dim > 0 ? rotary_dim : 2 * pairs,
                            .cosines = case_doubles(c, &cosines),
                            .sines = case_doubles(c, &sines),
                            .table_rows = view_count(&cosines) / pairs};
    double *y = case_doubles(c, &x);
    case_turn(c, &rope, shape, stride, y, positions);
    case_compare(c, name_of_y, y, count);
}

static void rotary_onnx(table_case *c) { rotary_caches(c, "in.X", "out.Y"); }
static void rotary_ort(table_case *c) { rotary_caches(c, "in.input", "out.output"); }

/* x [..., token, channel], rotated at positions that increase by 1 from the first number in params. */
static void rotary(table_case *c, attn_rope_pairs pairs)
{
    view x = case_need(c, "in.x");
    if (x.rank < 2) return;
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(c->params, "positions");
    const int64_t first = cJSON_IsString(text) ? strtoll(text->valuestring, NULL, 10) : 0;
    x = view_to_rank(&c->pool, &x, 4);
    const int64_t shape[4] = {x.size[0], x.size[1], x.size[2], x.size[3]}, count = view_count(&x);
    int64_t *positions = pool_take(&c->pool, shape[0] * shape[2], sizeof *positions);
    for (int64_t n = 0; n < shape[0] * shape[2]; n++) positions[n] = first + n % shape[2];
    const attn_rope rope = {.struct_size = sizeof rope, .pairs = pairs, .base = case_param(c, "base", 0)};
    double *y = case_doubles(c, &x);
    case_turn(c, &rope, shape, NULL, y, positions);
    case_compare(c, "out.output", y, count);
    /* The caches of the half-split form, if the case has them: the same rotation of unit vectors. */
    const view cosines = case_find(c, "out.cos"), sines = case_find(c, "out.sin");
    if (!view_present(&cosines) && !view_present(&sines)) return;
    const int64_t all = shape[2] * shape[3];
    double *unit = pool_take(&c->pool, all, sizeof *unit), *table[2];
    for (int64_t n = 0; n < all; n++) unit[n] = n % shape[3] < shape[3] / 2;
    case_turn(c, &rope, (int64_t[4]){1, 1, shape[2], shape[3]}, NULL, unit, positions);
    for (int k = 0; k < 2; k++) {
        table[k] = pool_take(&c->pool, all, sizeof *table[k]);
        for (int64_t n = 0; n < all; n++) table[k][n] = unit[n / shape[3] * shape[3] + n % (shape[3] / 2) + k * (shape[3] / 2)];
    }
    case_compare(c, "out.cos", table[0], all);
    case_compare(c, "out.sin", table[1], all);
}

static void rotary_interleaved(table_case *c) { rotary(c, ATTN_ROPE_PAIRS_INTERLEAVED); }
static void rotary_halves(table_case *c) { rotary(c, ATTN_ROPE_PAIRS_HALVES); }

static double *frequencies(table_case *c, attn_rope_scaling_kind kind, const char *dim, const char *base, const char *length)
{
    attn_error error;
    const attn_rope_scaling s = {.struct_size = sizeof s,
                                 .kind = kind,
                                 .dim = (int64_t)case_param(c, dim, 0),
                                 .base = case_param(c, base, 0),
                                 .factor = case_param(c, "factor", 1),
                                 .original_length = (int64_t)case_param(c, length, 0),
                                 .length = (int64_t)case_param(c, "seq_len", 0),
                                 .fast = case_param(c, "beta_fast", case_param(c, "high_freq_factor", 0)),
                                 .slow = case_param(c, "beta_slow", case_param(c, "low_freq_factor", 0))};
    double *f = pool_take(&c->pool, s.dim / 2 + 1, sizeof *f);
    case_take(c, attn_rope_frequencies(&s, f, NULL, &error), &error);
    return f;
}

static void stretched(table_case *c, attn_rope_scaling_kind kind)
{
    case_need(c, "in.dim_index"); /* 0, 1, ...: a frequency for each pair */
    const double *f = frequencies(c, kind, "head_dim", "rope_theta", "max_position_embeddings");
    case_compare(c, "out.inv_freq", f, (int64_t)case_param(c, "head_dim", 0) / 2);
}

static void stretched_ntk(table_case *c) { stretched(c, ATTN_ROPE_SCALING_NTK_DYNAMIC); }
static void stretched_yarn(table_case *c) { stretched(c, ATTN_ROPE_SCALING_YARN); }

/* [position][pair][cos, sin] */
static void llama3_table(table_case *c)
{
    const view at = case_need(c, "in.positions");
    if (!view_present(&at)) return;
    const double *f = frequencies(c, ATTN_ROPE_SCALING_LLAMA3, "dim", "theta", "old_context_len");
    const int64_t pairs = (int64_t)case_param(c, "dim", 0) / 2, tokens = view_count(&at);
    double *got = pool_take(&c->pool, 2 * pairs * tokens, sizeof *got);
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t i = 0; i < pairs; i++) {
            got[(t * pairs + i) * 2] = cos(view_get(&at, t) * f[i]);
            got[(t * pairs + i) * 2 + 1] = sin(view_get(&at, t) * f[i]);
        }
    case_compare(c, "out.cos_sin", got, 2 * pairs * tokens);
}

/* Scores [batch, head, query, key] plus -slope (keys - 1 - key): the bias of a query at the last key. */
static void alibi_keys(table_case *c)
{
    const view scores = case_need(c, "in.scores");
    if (scores.rank != 4) return;
    const int64_t heads = scores.size[1], queries = scores.size[2], keys = scores.size[3], count = view_count(&scores);
    double *got = case_doubles(c, &scores), *slopes = pool_take(&c->pool, heads, sizeof *slopes);
    attn_error error;
    case_take(c, attn_alibi_slopes(heads, &(attn_output){slopes, ATTN_F64, {0}}, &error), &error);
    for (int64_t n = 0; n < count; n++) got[n] -= slopes[n / keys / queries % heads] * (double)(keys - 1 - n % keys);
    case_compare(c, "out.output", got, count);
}

/* The suite's relative position is that of the key minus that of the query. */
static void t5_buckets(table_case *c)
{
    const view at = case_need(c, "in.relative_position");
    if (!view_present(&at)) return;
    const attn_distance_bias rule = {.struct_size = sizeof rule,
                                     .buckets = (int64_t)case_param(c, "num_buckets", 0),
                                     .max_distance = (int64_t)case_param(c, "max_distance", 0),
                                     .causal = cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(c->params, "bidirectional"))};
    double *got = case_doubles(c, &at);
    for (int64_t n = 0; n < view_count(&at); n++) got[n] = (double)attn_distance_bucket(&rule, -(int64_t)got[n]);
    case_compare(c, "out.bucket", got, view_count(&at));
}

/* ---- tables [sine | cosine] of axlearn, one row for each position ---- */

/* query, key and value [batch][token][head][channel]; key and value are rotated only if the flags request it. */
static void rotary_by_table(table_case *c)
{
    static const char *const names[][3] = {
        {"in.query", "out.q_proj", ""}, {"in.key", "out.k_proj", "rotary_key"}, {"in.value", "out.v_proj", "rotary_value"}};
    const view table = case_need_rank(c, "in.sinusoidal_pos", 4);
    if (!view_present(&table)) return;
    const int64_t tokens = table.size[1], pairs = table.size[3] / 2;
    double *sines = pool_take(&c->pool, tokens * pairs, sizeof *sines),
           *cosines = pool_take(&c->pool, tokens * pairs, sizeof *cosines);
    for (int64_t n = 0; n < tokens * pairs; n++) {
        sines[n] = view_get(&table, n / pairs * 2 * pairs + n % pairs);
        cosines[n] = view_get(&table, n / pairs * 2 * pairs + pairs + n % pairs);
    }
    const attn_rope rope = {.struct_size = sizeof rope, .cosines = cosines, .sines = sines, .table_rows = tokens};
    for (int t = 0; t < 3; t++) {
        const view x = case_need_rank(c, names[t][0], 4);
        if (!view_present(&x)) return;
        const int64_t shape[4] = {x.size[0], x.size[2], x.size[1], x.size[3]};
        const int64_t stride[4] = {x.size[1] * x.size[2] * x.size[3], x.size[3], x.size[2] * x.size[3], 1};
        double *y = case_doubles(c, &x);
        if (!names[t][2][0] || case_flag(c, names[t][2])) case_turn(c, &rope, shape, stride, y, NULL);
        case_compare(c, names[t][1], y, view_count(&x));
    }
}

/* "..., theta 10000" in the name of the operation. */
static double theta_of(const table_case *c)
{
    const char *theta = strstr(c->op, "theta ");
    return theta ? strtod(theta + 6, NULL) : 0;
}

static void sine_table(table_case *c)
{
    const int64_t tokens = (int64_t)case_param(c, "max_len", 0), dim = (int64_t)case_param(c, "dim", 0);
    double *got = pool_take(&c->pool, tokens * dim, sizeof *got);
    attn_error error;
    case_need(c, "in.token_ids"); /* the ids do not matter */
    case_take(c,
              attn_sinusoidal(ATTN_ROPE_PAIRS_HALVES, tokens, dim, theta_of(c), NULL, &(attn_output){got, ATTN_F64, {0}}, &error),
              &error);
    case_compare(c, "out.ref", got, tokens * dim);
}

static void yarn_frequencies(table_case *c)
{
    const double before = case_param(c, "original_max_len", 1), after = case_param(c, "new_max_len", 1);
    const attn_rope_scaling s = {.struct_size = sizeof s,
                                 .kind = ATTN_ROPE_SCALING_YARN,
                                 .dim = (int64_t)case_param(c, "dim", 0),
                                 .base = case_param(c, "theta", 0),
                                 .factor = after / before,
                                 .original_length = (int64_t)before,
                                 .fast = case_param(c, "beta_fast", 0),
                                 .slow = case_param(c, "beta_slow", 0)};
    double *got = pool_take(&c->pool, s.dim / 2 + 1, sizeof *got), magnitude = 0;
    const double expected_value = case_param(c, "expected_attention_factor", 1);
    attn_error error;
    case_need(c, "in.token_ids");
    case_take(c, attn_rope_frequencies(&s, got, &magnitude, &error), &error);
    case_compare(c, "out.inv_freq", got, s.dim / 2);
    if (!(fabs(magnitude - expected_value) <= c->atol + c->rtol * expected_value))
        conclude(c->result, CHECK_FAILED, "the magnitude is %.9g, expected %.9g", magnitude, expected_value);
}

/* cos a and sin a of every position and pair: the rotation of (1, 0). */
static void complex_table(table_case *c)
{
    const int64_t tokens = (int64_t)case_param(c, "max_len", 0), dim = (int64_t)case_param(c, "dim", 0), count = tokens * dim / 2;
    const attn_rope rope = {.struct_size = sizeof rope, .base = case_param(c, "theta", 0)};
    double *unit = pool_take(&c->pool, 2 * count, sizeof *unit), *parts[2];
    for (int64_t n = 0; n < 2 * count; n++) unit[n] = n % 2 == 0;
    case_turn(c, &rope, (int64_t[4]){1, 1, tokens, dim}, NULL, unit, NULL);
    for (int k = 0; k < 2; k++) {
        parts[k] = pool_take(&c->pool, count, sizeof *parts[k]);
        for (int64_t n = 0; n < count; n++) parts[k][n] = unit[2 * n + k];
    }
    case_compare(c, "out.real", parts[0], count);
    case_compare(c, "out.imag", parts[1], count);
}

/* query and key [sequence][token][channel] at positions 0, 1, ... */
static void rotary_pair(table_case *c)
{
    static const char *const names[][2] = {{"in.query", "out.q"}, {"in.key", "out.k"}};
    const attn_rope rope = {.struct_size = sizeof rope, .base = theta_of(c)};
    for (int t = 0; t < 2; t++) {
        const view x = case_need_rank(c, names[t][0], 3);
        if (!view_present(&x)) return;
        double *y = case_doubles(c, &x);
        case_turn(c, &rope, (int64_t[4]){x.size[0], 1, x.size[1], x.size[2]}, NULL, y, NULL);
        case_compare(c, names[t][1], y, view_count(&x));
    }
}

/*
 * Gemma: x cos a + y sin a for each element, with the partner y as a separate input: the first of the pair (x, -y) rotated by a.
 * emb [batch][token][channel] are the angles; x [batch][head][token][channel].
 */
static void rotary_given(table_case *c)
{
    static const char *const names[][3] = {{"in.q_data", "in.q_rot_data", "out.output1"},
                                           {"in.k_data", "in.k_rot_data", "out.output2"}};
    const view emb = case_need_rank(c, "in.emb", 3);
    if (!view_present(&emb)) return;
    const int64_t angles = view_count(&emb), inner = angles / emb.size[0];
    double *cosines = case_doubles(c, &emb), *sines = case_doubles(c, &emb);
    for (int64_t n = 0; n < angles; n++) cosines[n] = cos(cosines[n]), sines[n] = sin(sines[n]);
    const attn_rope rope = {.struct_size = sizeof rope, .cosines = cosines, .sines = sines, .table_rows = angles};
    for (int t = 0; t < 2; t++) {
        const view x = case_need_rank(c, names[t][0], 4), y = case_need_rank(c, names[t][1], 4);
        if (!view_present(&x) || !view_present(&y) || view_count(&x) != view_count(&y) || x.size[0] != emb.size[0]) {
            conclude(c->result, CHECK_FAILED, "%s and %s do not fit", names[t][0], names[t][1]);
            return;
        }
        const int64_t count = view_count(&x), of_entry = count / x.size[0];
        double *pair = pool_take(&c->pool, 2 * count, sizeof *pair), *got = pool_take(&c->pool, count, sizeof *got);
        int64_t *row = pool_take(&c->pool, count, sizeof *row);
        for (int64_t n = 0; n < count; n++) {
            pair[2 * n] = view_get(&x, n);
            pair[2 * n + 1] = -view_get(&y, n);
            row[n] = n / of_entry * inner + n % inner;
        }
        case_turn(c, &rope, (int64_t[4]){1, 1, count, 2}, NULL, pair, row);
        for (int64_t n = 0; n < count; n++) got[n] = pair[2 * n];
        case_compare(c, names[t][2], got, count);
    }
}

/* ---- biases by distance ---- */

/* The memory of the table is [head][bucket], although its shape is [bucket][head]. */
static void relative_bias(table_case *c)
{
    const view table = case_need_rank(c, "in.bias_table", 2), of_q = case_need(c, "in.query_length"),
               of_k = case_need(c, "in.key_length");
    if (!view_present(&table) || !view_present(&of_q) || !view_present(&of_k)) return;
    const attn_distance_bias rule = {.struct_size = sizeof rule,
                                     .heads = table.size[1],
                                     .buckets = table.size[0],
                                     .max_distance = (int64_t)case_param(c, "max_distance", 0),
                                     .causal = case_param(c, "is_bidirectional", 0) == 0,
                                     .len_q = (int64_t)view_get(&of_q, 0),
                                     .len_kv = (int64_t)view_get(&of_k, 0)};
    const int64_t count = rule.heads * rule.len_q * rule.len_kv;
    double *got = pool_take(&c->pool, count, sizeof *got);
    attn_error error;
    const attn_input from = {case_doubles(c, &table), ATTN_F64, {0}};
    case_take(c, attn_distance_bias_fill(&rule, &from, &(attn_output){got, ATTN_F64, {0}}, &error), &error);
    case_compare(c, "out.output", got, count);
}

/* WavLM's: a bias of each pair of positions, times a gate of each query. */
static void gated_bias(table_case *c)
{
    const view x = case_need_rank(c, "in.query_layer", 3), of_x = case_need_rank(c, "in.query_bias", 1),
               bias = case_need_rank(c, "in.rel_pos", 4), w = case_need_rank(c, "in.weight", 2),
               b = case_need_rank(c, "in.bias", 1), a = case_need_rank(c, "in.eco_a", 4);
    const int64_t heads = (int64_t)case_param(c, "num_heads", 1);
    if (!view_present(&x) || !view_present(&of_x) || !view_present(&bias) || !view_present(&w) || !view_present(&b) ||
        !view_present(&a))
        return;
    if (bias.size[1] != heads || view_count(&a) != heads || view_count(&of_x) != x.size[2] || w.size[0] * heads != x.size[2] ||
        view_count(&b) != w.size[1] || w.size[1] % 2 != 0 || bias.size[2] != x.size[1]) {
        conclude(c->result, CHECK_FAILED, "the shapes do not fit each other");
        return;
    }
    const attn_bias_gate rule = {.struct_size = sizeof rule,
                                 .batch = x.size[0],
                                 .heads = heads,
                                 .len_q = x.size[1],
                                 .dim = w.size[0],
                                 .width = w.size[1] / 2};
    const int64_t keys = bias.size[3], count = x.size[0] * heads * rule.len_q * keys;
    double *q = case_doubles(c, &x), *gates = pool_take(&c->pool, x.size[0] * heads * rule.len_q, sizeof *gates);
    double *got = pool_take(&c->pool, count, sizeof *got);
    const attn_bias_gate_tensors tensors = {.struct_size = sizeof tensors,
                                            .q = {q, ATTN_F64, {x.size[1] * x.size[2], w.size[0], x.size[2], 1}},
                                            .w = attn_in(case_doubles(c, &w)),
                                            .b = attn_in(case_doubles(c, &b)),
                                            .a = attn_in(case_doubles(c, &a)),
                                            .gates = attn_out(gates)};
    attn_error error;
    for (int64_t n = 0; n < view_count(&x); n++) q[n] += view_get(&of_x, n % x.size[2]);
    case_take(c, attn_bias_gate_forward(&rule, &tensors, &error), &error);
    for (int64_t n = 0; n < count; n++) got[n] = gates[n / keys] * view_get(&bias, n % (heads * rule.len_q * keys));
    case_compare(c, "out.output", got, count);
}

/* ViTDet's: row i' - j' + (keys - 1) of a table first resized to 2 size - 1 rows; both sides are stretched to the longer, `size`.
 */
static void resized_table(table_case *c)
{
    const view table = case_need_rank(c, "in.rel_pos", 2);
    const int64_t queries = (int64_t)case_param(c, "q_size", 0), keys = (int64_t)case_param(c, "k_size", 0);
    if (!view_present(&table)) return;
    if (queries < 1 || keys < 1) {
        conclude(c->result, CHECK_FAILED, "q_size is %lld and k_size %lld", (long long)queries, (long long)keys);
        return;
    }
    const int64_t dim = table.size[1], size = queries > keys ? queries : keys, rows = 2 * size - 1, pairs = queries * keys;
    const double step_q = (double)size / (double)queries, step_k = (double)size / (double)keys;
    double *given = case_doubles(c, &table), *made = pool_take(&c->pool, rows * dim, sizeof *made),
           *got = pool_take(&c->pool, pairs * dim, sizeof *got);
    int64_t *at = pool_take(&c->pool, pairs, sizeof *at);
    attn_error error;
    const attn_input before = {given, ATTN_F64, {0}};
    case_take(c, attn_position_resize(dim, table.size[0], rows, &before, &(attn_output){made, ATTN_F64, {0}}, &error), &error);
    for (int64_t n = 0; n < pairs * dim; n++) got[n] = 0;
    for (int64_t n = 0; n < pairs; n++)
        at[n] = (int64_t)((double)(n / keys) * step_q - (double)(n % keys) * step_k + (double)(keys - 1) * step_k);
    const attn_input rule = {made, ATTN_F64, {0}}, x = {got, ATTN_F64, {0}}, places = attn_in(at);
    const attn_output y = {got, ATTN_F64, {0}};
    case_take(c, attn_position_add(rows, (int64_t[4]){1, 1, pairs, dim}, &x, &rule, &places, &y, &error), &error);
    case_compare(c, "out.ref", got, pairs * dim);
}

const table_row table_position_rows[] = {
    {"positions", "RoPE half-split", rotary_halves, " base dim positions layout ", 0},
    {"positions", "RoPE interleaved", rotary_interleaved, " base positions layout ", 0},
    {"positions", "RoPE inv_freq (dynamic_ntk)", stretched_ntk, " head_dim rope_theta max_position_embeddings factor seq_len ", 0},
    {"positions", "RoPE inv_freq (yarn)", stretched_yarn,
     " head_dim rope_theta max_position_embeddings factor beta_fast beta_slow attention_factor ", 0},
    {"positions", "cos/sin table with Llama-3", llama3_table,
     " dim max_len theta factor low_freq_factor high_freq_factor old_context_len ", 0},
    {"positions", "ALiBi bias added to zero scores (key-position form)", alibi_keys, " num_heads rule ", 0},
    {"positions", "T5 relative position bucket", t5_buckets, " num_buckets max_distance bidirectional ", 0},
    {"onnx_attention", "RotaryEmbedding", rotary_onnx, " interleaved rotary_embedding_dim num_heads ", 0},
    {"ort_rotary_embedding", "com.microsoft.RotaryEmbedding", rotary_ort,
     " interleaved rotary_embedding_dim num_heads is_packed_batching scale ", 0},
    {"ort_web", "com.microsoft.RotaryEmbedding", rotary_ort,
     " interleaved rotary_embedding_dim num_heads is_packed_batching scale ", 0},
    {"ort_gemma_rotary_emb", "com.microsoft.GemmaRotaryEmbedding", rotary_given, "", 0},
    {"ort_relative_attention_bias", "com.microsoft.RelativePositionBias", relative_bias, " max_distance is_bidirectional ", 0},
    {"ort_relative_attention_bias", "com.microsoft.GatedRelativePositionBias", gated_bias, " num_heads ", 0},
    {"axlearn_golden", "RoPE interleaved from [sin|cos] table", rotary_by_table, " rotary_key rotary_value ", 0},
    {"axlearn_golden", "[sin|cos] position table, theta ", sine_table, " max_len dim ", 0},
    {"axlearn_golden", "YaRN inv_freq", yarn_frequencies,
     " original_max_len dim new_max_len beta_slow beta_fast theta expected_attention_factor ", 0},
    {"axlearn_golden", "cos/sin table", complex_table, " dim max_len theta ", 0},
    {"axlearn_golden", "RoPE interleaved, positions 0..", rotary_pair, "", 0},
    {"axlearn_golden", "T5 relative position bucket", t5_buckets, " num_buckets max_distance bidirectional relative_position ", 0},
    {"axlearn_golden", "ViTDet decomposed relative position lookup", resized_table, " q_size k_size ", 0},
    {0},
};
