/* SPDX-License-Identifier: MIT
 * table_model.c - cases of small models: projections and norms, written out here, around the library's attention. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/mask.h"
#include "attn/position.h"
#include "table_case.h"

/* [batch][token][head][channel] to [batch][head][token][channel], or back. */
static double *swap_heads(table_case *c, const double *x, int64_t batch, int64_t first, int64_t second, int64_t dim)
{
    double *y = pool_take(&c->pool, batch * first * second * dim, sizeof *y);
    for (int64_t n = 0; n < batch * first * second * dim; n++) {
        const int64_t a = n / dim % first, b = n / dim / first % second; /* places in y: [batch][second][first][dim] */
        y[n] = x[((n / dim / first / second * first + a) * second + b) * dim + n % dim];
    }
    return y;
}

/* ---- axlearn: LayerNorm(x + MHA(x)) ---- */

/* A weight by the end of its name, in the module that projects inputs or in the block. */
static view weight(table_case *c, const char *end)
{
    static const char *const before[] = {"in.param.attention.i_proj.i_proj.", "in.param.attention.i_proj.", "in.param.attention."};
    char name[120];
    for (size_t k = 0; k < sizeof before / sizeof *before; k++) {
        snprintf(name, sizeof name, "%s%s", before[k], end);
        const view v = case_find(c, name);
        if (view_present(&v)) return v;
    }
    conclude(c->result, CHECK_FAILED, "no weight is named %s", end);
    return (view){0};
}

static void norm_rows(double *x, int64_t rows, int64_t dim, const double *scale, const double *bias, double epsilon)
{
    for (int64_t r = 0; r < rows; r++) {
        double mean = 0, variance = 0;
        for (int64_t a = 0; a < dim; a++) mean += x[r * dim + a] / (double)dim;
        for (int64_t a = 0; a < dim; a++) variance += (x[r * dim + a] - mean) * (x[r * dim + a] - mean) / (double)dim;
        for (int64_t a = 0; a < dim; a++) x[r * dim + a] = (x[r * dim + a] - mean) / sqrt(variance + epsilon) * scale[a] + bias[a];
    }
}

static void block_of(table_case *c, int turns_qk, int turns_v)
{
    static const char *const parts[][2] = {
        {"q_proj.weight", "q_proj.bias"}, {"k_proj.weight", "k_proj.bias"}, {"v_proj.weight", "v_proj.bias"}};
    const view x = case_need_rank(c, "in.target", 3), scale = case_need(c, "in.param.norm.scale"),
               shift = case_need(c, "in.param.norm.bias"), given_at = case_find(c, "in.positions");
    const view spare[] = {case_find(c, "in.param.attention.i_proj.o_proj.weight"),
                          case_find(c, "in.param.attention.i_proj.o_proj.bias")};
    const view of_o = case_need_rank(c, "in.param.attention.o_proj.weight", 3),
               bias_o = case_need(c, "in.param.attention.o_proj.bias");
    (void)spare; /* the module that projects inputs may have an unused output projection */
    if (!view_present(&x) || !view_present(&scale) || !view_present(&shift) || !view_present(&of_o) || !view_present(&bias_o))
        return;
    const int64_t batch = x.size[0], tokens = x.size[1], dim = x.size[2], rows = batch * tokens;
    const int64_t heads = of_o.size[1], width = of_o.size[2], shape[4] = {batch, heads, tokens, width};
    int64_t *at = pool_take(&c->pool, rows, sizeof *at);
    for (int64_t n = 0; n < rows; n++) at[n] = view_present(&given_at) ? (int64_t)view_get(&given_at, n) : n % tokens;
    const attn_rope rope = {.struct_size = sizeof rope};
    double *input = case_doubles(c, &x), *qkv[3];
    for (int t = 0; t < 3; t++) {
        const view w = weight(c, parts[t][0]), b = weight(c, parts[t][1]);
        if (!view_present(&w) || !view_present(&b)) return;
        if (view_count(&w) != dim * heads * width || view_count(&b) != heads * width) {
            conclude(c->result, CHECK_FAILED, "the weight %s does not fit", parts[t][0]);
            return;
        }
        double *y = case_project(c, input, rows, dim, case_doubles(c, &w), heads * width, case_doubles(c, &b), heads * width);
        qkv[t] = swap_heads(c, y, batch, tokens, heads, width);
        if (t < 2 ? turns_qk : turns_v) case_turn(c, &rope, shape, NULL, qkv[t], at);
    }
    case_attention a = {.p.shape = {batch, heads, heads, tokens, tokens, width, width}};
    case_attention_begin(c, &a, qkv[0], qkv[1], qkv[2]);
    if (!case_attend(c, &a)) return;
    const double *merged = swap_heads(c, a.o, batch, heads, tokens, width);
    double *w = case_doubles(c, &of_o), *transposed = pool_take(&c->pool, view_count(&of_o), sizeof *transposed);
    for (int64_t n = 0; n < view_count(&of_o); n++)
        transposed[n % (heads * width) * dim + n / (heads * width)] = w[n]; /* was [out][in] */
    double *y = case_project(c, merged, rows, heads * width, transposed, dim, case_doubles(c, &bias_o), dim);
    for (int64_t n = 0; n < rows * dim; n++) y[n] += input[n];
    norm_rows(y, rows, dim, case_doubles(c, &scale), case_doubles(c, &shift), case_param(c, "layer_norm_eps", 0));
    case_compare(c, "out.data", y, rows * dim);
}

static void block_plain(table_case *c) { block_of(c, 0, 0); }
static void block_rope(table_case *c) { block_of(c, 1, 0); }
static void block_rope_values(table_case *c) { block_of(c, 1, 1); }

/* ---- ONNX Runtime's Longformer ---- */

/* q, k and v as columns of one weight [dim][3 dim]. */
static void project_three(table_case *c, const double *x, int64_t batch, int64_t tokens, int64_t dim, int64_t heads, const view *w,
                          const view *b, double *out[3])
{
    const double *weights = case_doubles(c, w), *bias = case_doubles(c, b);
    for (int t = 0; t < 3; t++) {
        double *y = case_project(c, x, batch * tokens, dim, weights + t * dim, 3 * dim, bias + t * dim, dim);
        out[t] = swap_heads(c, y, batch, tokens, heads, dim / heads);
    }
}

/*
 * Tokens see those within `window`, and global ones; global tokens see all, through separate projections.  Masked tokens neither
 * see nor are visible.  If the global tokens come first, the library's pattern is used; else a mask of all pairs.
 */
static void longformer(table_case *c)
{
    const view x = case_need_rank(c, "in.input", 3), w = case_need_rank(c, "in.weight", 2), b = case_need_rank(c, "in.bias", 1),
               wg = case_need_rank(c, "in.global_weight", 2), bg = case_need_rank(c, "in.global_bias", 1),
               mask = case_need_rank(c, "in.mask", 2), global = case_need_rank(c, "in.global", 2);
    const int64_t heads = (int64_t)case_param(c, "num_heads", 0), window = (int64_t)case_param(c, "window", 0);
    if (c->result->status != CHECK_PASSED) return;
    const int64_t batch = x.size[0], tokens = x.size[1], dim = x.size[2];
    if (heads < 1 || dim % heads != 0 || w.size[1] != 3 * dim || wg.size[1] != 3 * dim || view_count(&mask) != batch * tokens ||
        view_count(&global) != batch * tokens) {
        conclude(c->result, CHECK_FAILED, "the shapes do not fit each other");
        return;
    }
    double *input = case_doubles(c, &x), *local[3], *whole[3], *found[2];
    project_three(c, input, batch, tokens, dim, heads, &w, &b, local);
    project_three(c, input, batch, tokens, dim, heads, &wg, &bg, whole);
    int64_t first = 0; /* the number of global tokens at the start of entry 0 */
    while (first < tokens && view_get(&global, first) > 0) first++;
    int all_first = 1;
    for (int64_t n = 0; n < batch * tokens; n++) all_first &= (view_get(&global, n) > 0) == (n % tokens < first);
    unsigned char *keep[2];
    for (int k = 0; k < 2; k++) {
        keep[k] = pool_take(&c->pool, batch * tokens * tokens, 1);
        for (int64_t n = 0; n < batch * tokens * tokens; n++) {
            const int64_t at = n / tokens / tokens * tokens, i = n / tokens % tokens, j = n % tokens;
            const int real = view_get(&mask, at + i) > -1e4 && view_get(&mask, at + j) > -1e4;
            keep[k][n] = real && (k || all_first || llabs(i - j) <= window || view_get(&global, at + j) > 0);
        }
        case_attention a = {.p.shape = {batch, heads, heads, tokens, tokens, dim / heads, dim / heads}};
        double **matrices = k ? whole : local;
        attn_pattern_set *set = NULL;
        attn_error error;
        case_attention_begin(c, &a, matrices[0], matrices[1], matrices[2]);
        if (!k && all_first) {
            const attn_pattern pattern = attn_pattern_global_local(2 * window, first);
            attn_status status = attn_pattern_set_create(&set, tokens, tokens, 1, &pattern, &error);
            if (status == ATTN_OK) status = attn_pattern_set_apply(set, &a.p, &a.a, &error);
            case_take(c, status, &error);
        }
        a.a.mask = (attn_input){keep[k], ATTN_BOOL, {tokens * tokens, 0, tokens, 1}};
        const int done = case_attend(c, &a);
        attn_pattern_set_destroy(set);
        if (!done) return;
        found[k] = swap_heads(c, a.o, batch, heads, tokens, dim / heads);
    }
    for (int64_t n = 0; n < batch * tokens * dim; n++)
        if (view_get(&global, n / dim) > 0) found[0][n] = found[1][n];
    case_compare(c, "out.output", found[0], batch * tokens * dim);
}

const table_row table_model_rows[] = {
    {"axlearn_golden", "post-norm self-attention block: LayerNorm(x + MHA(x)) with interleaved RoPE on v too", block_rope_values,
     " layer_norm_eps weight_layout ", 1},
    {"axlearn_golden", "post-norm self-attention block: LayerNorm(x + MHA(x)) with interleaved RoPE", block_rope,
     " layer_norm_eps weight_layout ", 1},
    {"axlearn_golden", "post-norm self-attention block: LayerNorm(x + MHA(x))", block_plain, " layer_norm_eps weight_layout ", 1},
    {"ort_longformer_attention", "com.microsoft.LongformerAttention", longformer, " num_heads window ", 1},
    {0},
};
