/* SPDX-License-Identifier: MIT
 *
 * layer_suites.c - the names that suites of layers use, and their meaning.
 *
 * Each tensor and attribute is taken by its name; a case with any that is not taken is skipped, so nothing is silently ignored.
 */
#include <string.h>

#include "layer.h"
#include "layer_case.h"

/* ---- taking ---- */

static view given(layer_case *c, const char *name)
{
    for (int64_t i = 0; i < attn_archive_count(c->tensors) && i < MAX_NAMES; i++) {
        const attn_archive_tensor *t = attn_archive_at(c->tensors, i);
        if (strcmp(t->name, name) != 0) continue;
        c->tensor_used[i] = 1;
        return view_of(t);
    }
    return (view){0};
}

/* A required tensor of this rank. */
static view need(layer_case *c, const char *name, int rank)
{
    const view v = given(c, name);
    if (!view_present(&v)) conclude(c->result, CHECK_FAILED, "tensor %s is missing", name);
    else if (v.rank != rank) conclude(c->result, CHECK_FAILED, "tensor %s has rank %d, not %d", name, v.rank, rank);
    return v;
}

static int fine(const layer_case *c) { return c->result->status == CHECK_PASSED; }

static const cJSON *param(layer_case *c, const char *name)
{
    int i = 0;
    for (const cJSON *p = c->params ? c->params->child : NULL; p && i < MAX_NAMES; p = p->next, i++) {
        if (strcmp(p->string, name) != 0) continue;
        c->param_used[i] = 1;
        return p;
    }
    return NULL;
}

static double number(layer_case *c, const char *name, double otherwise)
{
    const cJSON *p = param(c, name);
    if (cJSON_IsBool(p)) return cJSON_IsTrue(p);
    return p && cJSON_IsNumber(p) ? p->valuedouble : otherwise;
}

static void check_all_taken(layer_case *c)
{
    int i = 0;
    for (const cJSON *p = c->params ? c->params->child : NULL; p; p = p->next, i++)
        if (i >= MAX_NAMES || !c->param_used[i]) conclude(c->result, CHECK_SKIPPED, "attribute %.100s is not known", p->string);
    for (int64_t n = 0; n < attn_archive_count(c->tensors); n++)
        if (n >= MAX_NAMES || !c->tensor_used[n])
            conclude(c->result, CHECK_SKIPPED, "tensor %.100s is not known", attn_archive_at(c->tensors, n)->name);
}

/* ---- shapes ---- */

/* Sets the inputs and the sizes that follow: query [batch, token, channel]; key and value if they are separate tensors. */
static void set_inputs(layer_case *c, view query, view key, view value)
{
    c->input[QUERY] = query, c->input[KEY] = key, c->input[VALUE] = value;
    c->batch = query.size[0];
    c->len_q = query.size[1];
    c->len_kv = view_present(&key) ? key.size[1] : c->len_q;
    c->layer.struct_size = sizeof c->layer;
    c->layer.dim_model = query.size[2];
    c->layer.dim_key = view_present(&key) ? key.size[2] : query.size[2];
    c->layer.dim_value = view_present(&value) ? value.size[2] : c->layer.dim_key;
}

static void set_heads(layer_case *c, int64_t heads_q, int64_t heads_kv, int64_t width_q, int64_t width_v)
{
    if (heads_q < 1 || heads_kv < 1 || width_q % heads_q || width_v % heads_kv) {
        conclude(c->result, CHECK_FAILED, "%lld and %lld channels do not split into %lld and %lld heads", (long long)width_q,
                 (long long)width_v, (long long)heads_q, (long long)heads_kv);
        return;
    }
    c->layer.heads_q = heads_q;
    c->layer.heads_kv = heads_kv;
    c->layer.head_dim = width_q / heads_q;
    c->layer.head_dim_v = width_v / heads_kv;
}

/* PyTorch's [out, in]: rows from `first` on. */
static void set_rows(layer_case *c, int i, view weight, int64_t first, view bias, int64_t bias_first)
{
    const int64_t dim = i >= VALUE ? c->layer.head_dim_v : c->layer.head_dim, in = weight.size[1];
    c->projection[i] = (case_projection){weight, bias, first * in, {dim * in, in, 1}, bias_first};
    if (i == OUTPUT) c->projection[i].stride[0] = dim, c->projection[i].stride[1] = 1, c->projection[i].stride[2] = in;
}

/* A matrix [in, columns] for x W: columns from `first` on. */
static void set_columns(layer_case *c, int i, view weight, int64_t first, view bias, int64_t bias_first)
{
    const int64_t dim = i >= VALUE ? c->layer.head_dim_v : c->layer.head_dim;
    c->projection[i] = (case_projection){weight, bias, first, {dim, 1, weight.size[1]}, bias_first};
}

/* ---- masks ---- */

static void pairs_size(const layer_case *c, int64_t size[4])
{
    const int64_t all[4] = {c->batch, c->layer.heads_q, c->len_q, c->past_len + c->len_kv};
    memcpy(size, all, sizeof all);
}

/* Adds a mask that broadcasts to [batch, head, query, key]: numbers are added, booleans keep or drop. */
static void add_mask(layer_case *c, view mask, int drops)
{
    int64_t size[4];
    view all;
    pairs_size(c, size);
    const int64_t count = size[0] * size[1] * size[2] * size[3];
    const int boolean = mask.dtype == ATTN_BOOL || mask.dtype == ATTN_U8;
    if (mask.rank != 4 || !view_expand(&mask, size, &all)) {
        conclude(c->result, CHECK_FAILED, "a mask does not broadcast to the scores");
        return;
    }
    if (boolean) {
        unsigned char *keep = pool_take(&c->pool, count, 1);
        for (int64_t n = 0; n < count; n++)
            keep[n] = (view_get(&all, n) != 0) != drops && (!view_present(&c->keep) || view_get(&c->keep, n) != 0);
        c->keep = view_made(ATTN_BOOL, 4, size, keep);
    } else {
        double *bias = pool_take(&c->pool, count, sizeof *bias);
        for (int64_t n = 0; n < count; n++) bias[n] = view_get(&all, n) + (view_present(&c->bias) ? view_get(&c->bias, n) : 0);
        c->bias = view_made(ATTN_F64, 4, size, bias);
    }
}

/* A dense tensor of the file, viewed as [batch, head, query, key]. */
static view as_pairs(const view *v, const int64_t size[4])
{
    const int fits = view_count(v) == size[0] * size[1] * size[2] * size[3];
    return fits ? view_made(v->dtype, 4, size, v->data) : (view){0};
}

/* ---- torch.nn.MultiheadAttention ---- */

static void of_torch(layer_case *c)
{
    const int64_t heads = (int64_t)number(c, "num_heads", 1), width = (int64_t)number(c, "embed_dim", 0);
    const int batch_first = number(c, "batch_first", 0) != 0, average = number(c, "average_attn_weights", 1) != 0;
    static const char *const described[] = {"bias", "add_bias_kv",    "kdim",
                                            "vdim", "mask_semantics", "weight_layout"}; /* by tensors */
    for (size_t i = 0; i < sizeof described / sizeof *described; i++) (void)param(c, described[i]);
    view in[3] = {need(c, "in.query", 3), need(c, "in.key", 3), need(c, "in.value", 3)}, output = need(c, "out.output", 3);
    const view fused = given(c, "in.param.in_proj_weight"), bias = given(c, "in.param.in_proj_bias"),
               weights = given(c, "out.attention_probs"), padding = given(c, "in.key_padding_mask"),
               mask = given(c, "in.attn_mask");
    if (!fine(c)) return;
    for (int i = 0; i < 3 && !batch_first; i++) in[i] = view_swap(&in[i], 0, 1);
    c->output = batch_first ? output : view_swap(&output, 0, 1);
    set_inputs(c, in[0], in[1], in[2]);
    set_heads(c, heads, heads, width, width);
    c->layer.dim_output = width;
    c->zero_key = number(c, "add_zero_attn", 0) != 0;
    c->prefix = "in.param.";
    static const char *const separate[] = {"in.param.q_proj_weight", "in.param.k_proj_weight", "in.param.v_proj_weight"};
    for (int i = 0; i < 3 && fine(c); i++)
        set_rows(c, i, view_present(&fused) ? fused : need(c, separate[i], 2), view_present(&fused) ? i * width : 0, bias,
                 i * width);
    set_rows(c, OUTPUT, need(c, "in.param.out_proj.weight", 2), 0, given(c, "in.param.out_proj.bias"), 0);
    c->extra[0] = given(c, "in.param.bias_k"), c->extra[1] = given(c, "in.param.bias_v");
    if (average) c->weights_mean = weights;
    else c->weights = weights;
    if (view_present(&padding)) {
        const int64_t size[4] = {c->batch, 1, 1, c->len_kv};
        add_mask(c, as_pairs(&padding, size), 1);
    }
    if (view_present(&mask)) {
        const int64_t size[4] = {mask.rank == 3 ? c->batch : 1, mask.rank == 3 ? heads : 1, c->len_q, c->len_kv};
        add_mask(c, as_pairs(&mask, size), 1);
    }
}

/* ---- onnxruntime ---- */

/* [in, q + k + v] as x W, with a bias of the same columns. */
static void set_fused_columns(layer_case *c, view weight, view bias)
{
    const int64_t heads = (int64_t)number(c, "num_heads", 1);
    const cJSON *widths = param(c, "qkv_hidden_sizes");
    const int separate = cJSON_GetArraySize(widths) == 3;
    int64_t width[3] = {weight.size[1] / 3, weight.size[1] / 3, weight.size[1] / 3}, first = 0;
    for (int i = 0; i < 3 && separate; i++) width[i] = (int64_t)cJSON_GetArrayItem(widths, i)->valuedouble;
    if (width[0] != width[1] || width[0] + width[1] + width[2] != weight.size[1]) {
        conclude(c->result, CHECK_FAILED, "the weight has %lld columns, which do not split into queries, keys and values",
                 (long long)weight.size[1]);
        return;
    }
    set_heads(c, heads, heads, width[0], width[2]);
    for (int i = 0; i < 3; first += width[i++]) set_columns(c, i, weight, first, bias, first);
    c->layer.no_output = 1;
    c->layer.dim_output = width[2];
    const double scale = number(c, "scale", 0);
    if (scale != 0) c->has_scale = 1, c->scale = scale;
}

/* Whether mask_index keeps a key, in each of its shapes; the others get mask_filter_value, which is an ordinary number. */
static int ort_keeps(const view *m, const layer_case *c, int64_t b, int64_t i, int64_t j)
{
    const int64_t keys = c->past_len + c->len_kv;
    if (m->rank == 1) {
        const int64_t first = m->size[0] == 2 * c->batch ? (int64_t)view_get(m, c->batch + b) : 0;
        return j >= first && j < (int64_t)view_get(m, b);
    }
    if (m->rank == 2) return m->size[1] == 1 ? view_get(m, b) != 0 : view_get(m, b * m->size[1] + j) != 0;
    if (m->rank == 3) return view_get(m, (b * m->size[1] + i) * keys + j) != 0;
    return view_get(m, (b * m->size[2] + c->past_len + i) * m->size[3] + j) != 0; /* [batch, 1, most, most] */
}

static void ort_mask(layer_case *c, view m, double filter)
{
    const int64_t keys = c->past_len + c->len_kv, size[4] = {c->batch, 1, c->len_q, keys};
    double *bias = pool_take(&c->pool, c->batch * c->len_q * keys, sizeof *bias);
    const int fits = m.rank == 1   ? m.size[0] == c->batch || m.size[0] == 2 * c->batch
                     : m.rank == 2 ? m.size[0] == c->batch && (m.size[1] == 1 || m.size[1] == keys)
                     : m.rank == 3 ? m.size[0] == c->batch && m.size[1] == c->len_q && m.size[2] == keys
                                   : m.rank == 4 && m.size[0] == c->batch && m.size[1] == 1 &&
                                         m.size[2] >= c->past_len + c->len_q && m.size[3] >= keys;
    if (!fits) {
        conclude(c->result, CHECK_SKIPPED, "a mask_index of this shape is not known");
        return;
    }
    const int dummy = m.rank == 2 && m.size[1] == 1 && keys != 1; /* stands for a mask of all ones */
    for (int64_t n = 0; n < c->batch * c->len_q * keys; n++)
        bias[n] = dummy || ort_keeps(&m, c, n / keys / c->len_q, n / keys % c->len_q, n % keys) ? 0 : filter;
    add_mask(c, view_made(ATTN_F64, 4, size, bias), 0);
}

/* past or present, [2, batch, head, token, channel]: keys, then values. */
static void split_state(const view *state, view to[2])
{
    for (int i = 0; view_present(state) && i < 2; i++) {
        to[i] = view_made(state->dtype, 4, state->size + 1, state->data);
        to[i].data = (const char *)state->data + (size_t)(i * view_count(&to[i])) * attn_dtype_size(state->dtype);
    }
}

static void of_ort_attention(layer_case *c)
{
    const view x = need(c, "in.input", 3), weight = need(c, "in.weight", 2), bias = given(c, "in.bias"), past = given(c, "in.past"),
               length = given(c, "in.past_sequence_length"), present = given(c, "out.present"), mask = given(c, "in.mask_index"),
               added = given(c, "in.attention_bias");
    const double filter = number(c, "mask_filter_value", -10000), shared = number(c, "past_present_share_buffer", 0);
    c->output = need(c, "out.output", 3);
    if (!fine(c)) return;
    set_inputs(c, x, (view){0}, (view){0});
    set_fused_columns(c, weight, bias);
    c->causal = number(c, "unidirectional", 0) != 0;
    if (number(c, "do_rotary", 0) != 0) {
        c->rotated = 1;
        c->rope = (attn_rope){.struct_size = sizeof c->rope, .pairs = ATTN_ROPE_PAIRS_HALVES};
    }
    split_state(&past, c->past), split_state(&present, c->present);
    if ((view_present(&past) && past.rank != 5) || (view_present(&present) && present.rank != 5)) {
        conclude(c->result, CHECK_FAILED, "past or present does not have five axes");
        return;
    }
    if (view_present(&past)) c->past_len = shared != 0 ? (view_present(&length) ? (int64_t)view_get(&length, 0) : 0) : past.size[3];
    c->decode = view_present(&past) || view_present(&present);
    c->space = shared != 0 ? past.size[3] : c->past_len + c->len_kv;
    if (fine(c) && view_present(&mask)) ort_mask(c, mask, filter);
    if (fine(c) && view_present(&added)) add_mask(c, added, 0);
}

/* Tokens of all sequences without padding; token_offset has their positions with padding. */
static void of_ort_packed(layer_case *c)
{
    view x = need(c, "in.input", 2);
    const view weight = need(c, "in.weight", 2), bias = given(c, "in.bias"), offset = need(c, "in.token_offset", 2),
               begin = need(c, "in.cumulative_sequence_length", 1), added = given(c, "in.attention_bias");
    view output = need(c, "out.output", 2);
    if (!fine(c)) return;
    x = view_to_rank(&c->pool, &x, 3);
    c->output = view_to_rank(&c->pool, &output, 3);
    set_inputs(c, x, (view){0}, (view){0});
    set_fused_columns(c, weight, bias);
    c->packed = 1;
    c->batch = begin.size[0] - 1;
    c->len_q = c->len_kv = offset.size[1];
    c->begin = pool_take(&c->pool, begin.size[0], sizeof *c->begin);
    for (int64_t b = 0; b <= c->batch; b++) c->begin[b] = (int64_t)view_get(&begin, b);
    if (fine(c) && view_present(&added)) add_mask(c, added, 0);
}

static int flag(layer_case *c, const char *name)
{
    const view v = given(c, name);
    return view_present(&v) && view_get(&v, 0) != 0;
}

/* The token axis precedes the batch.  static_kv: keys and values come from `key` or the cache; else from the query. */
static void of_ort_decoder(layer_case *c)
{
    view query = need(c, "in.query", 3), key = need(c, "in.key", 3), output = need(c, "out.output", 3);
    const view q = need(c, "in.q_weight", 2), kv = need(c, "in.kv_weight", 2), bias = need(c, "in.bias", 1),
               padding = given(c, "in.key_padding_mask");
    const int cross = flag(c, "in.static_kv"), with_past = flag(c, "in.use_past"), masked = flag(c, "in.has_key_padding_mask");
    const int64_t heads = (int64_t)number(c, "num_heads", 1);
    (void)flag(c, "in.has_layer_state"); /* whether caches are returned: follows from the tensors */
    (void)number(c, "mask_filter_value", 0);
    c->past[0] = given(c, "in.key_cache"), c->past[1] = given(c, "in.value_cache");
    c->present[0] = given(c, "out.new_key_cache"), c->present[1] = given(c, "out.new_value_cache");
    if (!fine(c)) return;
    query = view_swap(&query, 0, 1), key = view_swap(&key, 0, 1);
    c->output = view_swap(&output, 0, 1);
    c->only_cached = cross && with_past;
    set_inputs(c, query, cross && !with_past ? key : (view){0}, (view){0});
    if (!with_past) c->past[0] = c->past[1] = (view){0};
    if (c->only_cached) c->len_kv = 0;
    const int64_t width = q.size[1];
    set_heads(c, heads, heads, width, width);
    set_columns(c, QUERY, q, 0, bias, 0);
    set_columns(c, KEY, kv, 0, bias, width);
    set_columns(c, VALUE, kv, width, bias, 2 * width);
    c->layer.no_output = 1;
    c->layer.dim_output = width;
    c->past_len = view_present(&c->past[0]) ? c->past[0].size[2] : 0;
    c->space = c->past_len + c->len_kv;
    c->decode = 1;
    if (masked && view_present(&padding)) {
        const int64_t size[4] = {c->batch, 1, 1, c->space};
        add_mask(c, as_pairs(&padding, size), 1);
    }
}

/* ---- keras ---- */

static void of_keras(layer_case *c)
{
    static const char *const kernels[] = {"in.q_kernel", "in.k_kernel", "in.v_kernel", "in.out_kernel"}, *const biases[] = {
                                                                                                             "in.q_bias",
                                                                                                             "in.k_bias",
                                                                                                             "in.v_bias",
                                                                                                             "in.out_bias"};
    view w[4] = {{0}};
    (void)param(c, "num_heads"), (void)param(c, "key_dim"), (void)param(c, "scale"),
        (void)param(c, "kernel_layout"); /* the defaults */
    for (int i = 0; i < 4; i++) w[i] = need(c, kernels[i], 3);
    const view query = need(c, "in.query", 3), key = need(c, "in.key", 3), value = need(c, "in.value", 3);
    c->output = need(c, "out.output", 3);
    c->weights = given(c, "out.attention_probs");
    if (!fine(c)) return;
    set_inputs(c, query, key, value);
    set_heads(c, w[0].size[1], w[1].size[1], w[0].size[1] * w[0].size[2], w[2].size[1] * w[2].size[2]);
    c->layer.dim_output = w[3].size[2];
    for (int i = 0; i < 4; i++) {
        const int64_t dim = w[i].size[i == OUTPUT ? 1 : 2], heads = w[i].size[i == OUTPUT ? 0 : 1];
        c->projection[i] = (case_projection){w[i], given(c, biases[i]), 0, {dim, 1, heads * dim}, 0}; /* [model, head, channel] */
        if (i == OUTPUT) {                                                                            /* [head, channel, model] */
            c->projection[i].stride[0] = dim * w[i].size[2];
            c->projection[i].stride[1] = w[i].size[2];
            c->projection[i].stride[2] = 1;
        }
    }
}

/* ---- our own, with gradients ---- */

static void of_mechanism(layer_case *c)
{
    static const char *const weights[] = {"in.wq", "in.wk", "in.wv", "in.wo"}, *const biases[] = {"in.bq", "in.bk", "in.bv",
                                                                                                  "in.bo"};
    static const case_gradient names[GRADIENTS] = {
        {"out.grad_x", {0}, OF_QUERY, 0},      {"out.grad_context", {0}, OF_KEY, 0},   {"out.grad_wq", {0}, OF_WEIGHT, QUERY},
        {"out.grad_wk", {0}, OF_WEIGHT, KEY},  {"out.grad_wv", {0}, OF_WEIGHT, VALUE}, {"out.grad_wo", {0}, OF_WEIGHT, OUTPUT},
        {"out.grad_bq", {0}, OF_BIAS, QUERY},  {"out.grad_bk", {0}, OF_BIAS, KEY},     {"out.grad_bv", {0}, OF_BIAS, VALUE},
        {"out.grad_bo", {0}, OF_BIAS, OUTPUT},
    };
    const cJSON *causal = param(c, "causal"), *scale = param(c, "scale");
    const int64_t heads = (int64_t)number(c, "heads", 1), heads_kv = (int64_t)number(c, "heads_kv", (double)heads);
    (void)param(c, "weights"); /* their layout: PyTorch's */
    view w[4] = {{0}};
    for (int i = 0; i < 4; i++) w[i] = need(c, weights[i], 2);
    const view x = need(c, "in.x", 3), context = given(c, "in.context"), lengths = given(c, "in.lengths_kv");
    c->output = need(c, "out.y", 3);
    c->weights = given(c, "out.weights");
    c->grad_output = need(c, "in.grad_y", 3);
    if (!fine(c)) return;
    set_inputs(c, x, context, (view){0});
    set_heads(c, heads, heads_kv, w[0].size[0], w[2].size[0]);
    c->layer.dim_output = w[3].size[0];
    for (int i = 0; i < 4; i++) set_rows(c, i, w[i], 0, given(c, biases[i]), 0);
    c->prefix = "in.";
    if (cJSON_IsString(causal) && strcmp(causal->valuestring, "top_left") == 0) c->causal = 1;
    else if (causal && !cJSON_IsNull(causal)) conclude(c->result, CHECK_SKIPPED, "this value of causal is not known");
    if (cJSON_IsNumber(scale)) c->has_scale = 1, c->scale = scale->valuedouble;
    if (view_present(&lengths)) {
        c->lengths_kv = pool_take(&c->pool, c->batch, sizeof *c->lengths_kv);
        for (int64_t b = 0; b < c->batch; b++) c->lengths_kv[b] = (int64_t)view_get(&lengths, b);
    }
    for (int g = 0; g < GRADIENTS; g++) {
        case_gradient one = names[g];
        one.expected = given(c, one.name);
        if (view_present(&one.expected)) c->gradient[c->gradients++] = one;
    }
}

/* ---- sdpa_misc: matrices [out, in] of one head, and the output of each projection ---- */

static void of_misc(layer_case *c)
{
    static const char *const weights[] = {"in.q_weight", "in.k_weight", "in.v_weight", "in.out_weight"},
                             *const biases[] = {"in.q_bias", "in.k_bias", "in.v_bias", "in.out_bias"},
                             *const projected[] = {"out.q_proj", "out.k_proj", "out.v_proj"};
    const int64_t heads = (int64_t)number(c, "num_heads", 1);
    (void)param(c, "scale"), (void)param(c, "weight_layout"); /* the defaults */
    view w[4] = {{0}};
    for (int i = 0; i < 4; i++) w[i] = need(c, weights[i], 2);
    const view query = need(c, "in.query", 3), key = need(c, "in.key", 3), value = need(c, "in.value", 3);
    c->output = need(c, "out.output", 3);
    if (!fine(c)) return;
    set_inputs(c, query, key, value);
    set_heads(c, heads, heads, w[0].size[0], w[2].size[0]);
    c->layer.dim_output = w[3].size[0];
    for (int i = 0; i < 4; i++) set_rows(c, i, w[i], 0, given(c, biases[i]), 0);
    for (int i = 0; i < 3; i++) c->projected[i] = given(c, projected[i]);
}

/* ---- the table ---- */

static const struct {
    const char *suite, *op;
    void (*take)(layer_case *);
} rows[] = {
    {"torch_multihead_attention", "torch.nn.MultiheadAttention", of_torch},
    {"ort_attention", "com.microsoft.Attention", of_ort_attention},
    {"ort_web", "com.microsoft.Attention", of_ort_attention},
    {"ort_packed_attention", "com.microsoft.PackedAttention", of_ort_packed},
    {"ort_decoder_attention", "com.microsoft.DecoderAttention", of_ort_decoder},
    {"keras_attention", "MultiHeadAttention(with projections)", of_keras},
    {"mechanism_grad", "multi_head_attention", of_mechanism},
    {"sdpa_misc", "MHA with projections, 1 head", of_misc},
};
enum { ROWS = sizeof rows / sizeof *rows };

static int find(const char *suite, const char *op)
{
    for (int r = 0; r < ROWS; r++)
        if (strcmp(rows[r].suite, suite) == 0 && strcmp(rows[r].op, op) == 0) return r;
    return -1;
}

int layer_case_is(const char *suite, const char *op) { return find(suite, op) >= 0; }

void layer_translate(layer_case *c, const char *suite, const char *op)
{
    rows[find(suite, op)].take(c);
    check_all_taken(c);
    const int64_t rows_of_output = c->packed && c->begin ? c->begin[c->batch] : c->batch * c->len_q;
    if (fine(c) && view_count(&c->output) != rows_of_output * c->layer.dim_output)
        conclude(c->result, CHECK_FAILED, "the expected output has %lld numbers, not %lld", (long long)view_count(&c->output),
                 (long long)(rows_of_output * c->layer.dim_output));
}
