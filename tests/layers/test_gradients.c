/* SPDX-License-Identifier: MIT
 *
 * test_gradients.c - layers against loops in double (projections by definition around ref_forward), and their gradients against
 * central differences of those loops, for every shape of layer and layout of weights.
 */
#include "by_loops.h"

#include "attn/layers.h"
#include "attn_ref.h"

enum { B = 2, SQ = 5, SKV = 7, E = 12, TENSORS = 14, LARGEST = 400 };
/* Everything that a layer reads. */
enum { XQ, XK, XV, WQ, WK, WV, WO, BQ, BK, BV, BO, EK, EV, SC }; /* EK, EV: the extra key; SC: scales of heads */

typedef struct variant {
    const char *name;
    int64_t heads_q, heads_kv, head_dim, head_dim_v, dim_key, dim_value, dim_output;
    enum { CROSS, SHARED_VALUE, SELF } inputs;
    enum { TORCH, INPUT_FIRST, BY_HEAD } layout;
    int bias, no_output, causal, rope, token_first, extra;
    double softcap;
    int plain; /* 1: queries, keys and values are the inputs */
} variant;

static const variant variants[] = {
    {"self", 3, 0, 0, 0, 0, 0, 0, SELF, TORCH, 1, 0, 0, 0, 0, 0, 0, 0},
    {"self, causal, without biases", 2, 0, 0, 0, 0, 0, 0, SELF, TORCH, 0, 0, 1, 0, 0, 0, 0, 0},
    {"one head", 1, 0, 0, 0, 0, 0, 0, SELF, TORCH, 1, 0, 0, 0, 0, 0, 0, 0},
    {"cross, all widths differ", 4, 0, 5, 2, 9, 7, 8, CROSS, TORCH, 1, 0, 0, 0, 0, 0, 0, 0},
    {"cross, values are keys", 3, 0, 4, 6, 9, 0, 0, SHARED_VALUE, TORCH, 1, 0, 0, 0, 0, 0, 0, 0},
    {"grouped", 4, 2, 3, 0, 0, 0, 0, SELF, TORCH, 1, 0, 0, 0, 0, 0, 0, 0},
    {"weights of [in, out]", 3, 0, 0, 0, 0, 0, 0, SELF, INPUT_FIRST, 1, 0, 0, 0, 0, 0, 0, 0},
    {"weights by head", 3, 0, 5, 2, 0, 0, 0, SELF, BY_HEAD, 0, 0, 1, 0, 0, 0, 0, 0},
    {"without output projection", 2, 0, 4, 3, 9, 9, 0, CROSS, TORCH, 1, 1, 0, 0, 0, 0, 0, 0},
    {"rotated", 3, 0, 4, 0, 0, 0, 0, SELF, TORCH, 1, 0, 1, 1, 0, 0, 0, 0},
    {"tokens before batch", 3, 0, 0, 0, 0, 0, 0, SELF, TORCH, 1, 0, 0, 0, 1, 0, 0, 0},
    {"extra key", 3, 0, 0, 0, 0, 0, 0, SELF, TORCH, 1, 0, 0, 0, 0, 1, 0, 0},
    {"extra key, causal, grouped, rotated, capped", 4, 2, 4, 3, 0, 0, 0, SELF, TORCH, 1, 0, 1, 1, 0, 1, 0.7, 0},
    {"extra key, cross, capped", 2, 0, 3, 5, 9, 7, 8, CROSS, BY_HEAD, 0, 0, 0, 0, 0, 1, 0.5, 0},
    {"without projections of inputs", 3, 0, 0, 0, 0, 0, 0, SELF, TORCH, 1, 0, 1, 1, 0, 0, 0, 1},
    {"cross, without projections of inputs", 3, 0, 4, 2, 12, 6, 0, CROSS, TORCH, 0, 0, 0, 0, 1, 1, 0, 1},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

/* A layer with its tensors in double, as the loops see them: x [b][t][c], weights [h][c][m] (of the output too), biases dense. */
typedef struct sample {
    const variant *v;
    attn_layer layer;
    attn_rope rope;
    attn_problem attention;
    int64_t heads_kv, dim, dim_v, len_kv, width[3], out; /* resolved */
    int64_t count[TENSORS];
    double x[TENSORS][LARGEST];
    double grad_y[LARGEST];
} sample;

static void make(sample *s, const variant *v)
{
    random_state random = {77};
    memset(s, 0, sizeof *s);
    s->v = v;
    s->attention = (attn_problem){.struct_size = sizeof s->attention};
    s->attention.mask.causal = v->causal;
    s->attention.score.softcap = v->softcap;
    s->rope = (attn_rope){.struct_size = sizeof s->rope, .base = 100};
    s->layer = (attn_layer){.struct_size = sizeof s->layer,
                            .dim_model = E,
                            .dim_key = v->dim_key,
                            .dim_value = v->dim_value,
                            .dim_output = v->dim_output,
                            .heads_q = v->heads_q,
                            .heads_kv = v->heads_kv,
                            .head_dim = v->head_dim,
                            .head_dim_v = v->head_dim_v,
                            .no_query = v->plain,
                            .no_key = v->plain,
                            .no_value = v->plain,
                            .no_output = v->no_output,
                            .rope = v->rope ? &s->rope : NULL,
                            .attention = &s->attention};
    s->heads_kv = v->heads_kv ? v->heads_kv : v->heads_q;
    s->dim = v->head_dim ? v->head_dim : E / v->heads_q;
    s->dim_v = v->head_dim_v ? v->head_dim_v : s->dim;
    s->len_kv = v->inputs == SELF ? SQ : SKV;
    s->width[0] = E;
    s->width[1] = v->dim_key ? v->dim_key : E;
    s->width[2] = v->dim_value ? v->dim_value : s->width[1];
    s->out = v->no_output ? v->heads_q * s->dim_v : v->dim_output ? v->dim_output : E;
    const int64_t q = v->heads_q * s->dim, k = s->heads_kv * s->dim, val = s->heads_kv * s->dim_v, a = v->heads_q * s->dim_v,
                  counts[TENSORS] = {B * SQ * E,
                                     v->inputs == SELF ? 0 : B * SKV * s->width[1],
                                     v->inputs == CROSS ? B * SKV * s->width[2] : 0,
                                     v->plain ? 0 : q * E,
                                     v->plain ? 0 : k * s->width[1],
                                     v->plain ? 0 : val * s->width[2],
                                     v->no_output ? 0 : a * s->out,
                                     v->bias ? q : 0,
                                     v->bias ? k : 0,
                                     v->bias ? val : 0,
                                     v->bias && !v->no_output ? s->out : 0,
                                     v->extra ? s->heads_kv * s->dim : 0,
                                     v->extra ? s->heads_kv * s->dim_v : 0,
                                     v->extra ? v->heads_q : 0};
    for (int t = 0; t < TENSORS; t++) {
        s->count[t] = counts[t];
        assert_true(counts[t] <= LARGEST);
        for (int64_t i = 0; i < counts[t]; i++) s->x[t][i] = (float)(random_signed(&random) / 2); /* exact in f32 */
    }
    for (int64_t i = 0; i < B * SQ * s->out; i++) s->grad_y[i] = (float)random_signed(&random);
}

/* y = x W + b by definition, into [b][h][t][c] with storage for `capacity` tokens per entry; w NULL: the identity. */
static void to_heads(const double *x, const double *w, const double *bias, int64_t tokens, int64_t capacity, int64_t width,
                     int64_t heads, int64_t dim, double *y)
{
    for (int64_t b = 0; b < B; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t t = 0; t < tokens; t++)
                for (int64_t c = 0; c < dim; c++) {
                    double sum = bias ? bias[h * dim + c] : 0;
                    for (int64_t m = 0; m < width; m++)
                        sum += x[(b * tokens + t) * width + m] * (w ? w[(h * dim + c) * width + m] : h * dim + c == m);
                    y[((b * heads + h) * capacity + t) * dim + c] = sum;
                }
}

/* Rotates channels 2i and 2i+1 of the first `tokens` tokens of each entry by t * 100^(-2i/dim). */
static void rotate(double *x, int64_t entries, int64_t tokens, int64_t capacity, int64_t dim)
{
    for (int64_t r = 0; r < entries * capacity; r++)
        for (int64_t c = 0; c < dim && r % capacity < tokens; c += 2) {
            const double angle = (double)(r % capacity) * pow(100, -(double)c / (double)dim), u = x[r * dim + c],
                         v = x[r * dim + c + 1];
            x[r * dim + c] = u * cos(angle) - v * sin(angle);
            x[r * dim + c + 1] = u * sin(angle) + v * cos(angle);
        }
}

/* The extra key or value follows the others. */
static void put_extra(const sample *s, const double *extra, int64_t dim, double *y)
{
    for (int64_t n = 0; n < B * s->heads_kv; n++)
        for (int64_t c = 0; c < dim; c++) y[(n * (s->len_kv + 1) + s->len_kv) * dim + c] = extra[n % s->heads_kv * dim + c];
}

/* The layer by definition; P [b][h][i][j] are the weights.  Returns <grad_y, y>. */
static double reference(const sample *s, double *y, double *P)
{
    static double Q[LARGEST], K[LARGEST], V[LARGEST], O[LARGEST], lse[LARGEST], S[4 * LARGEST];
    static unsigned char keep[4 * LARGEST];
    const variant *v = s->v;
    const double *xk = v->inputs == SELF ? s->x[XQ] : s->x[XK], *xv = v->inputs == CROSS ? s->x[XV] : xk;
    const int64_t H = v->heads_q, keys = s->len_kv + v->extra;
    double sum = 0;
    to_heads(s->x[XQ], v->plain ? NULL : s->x[WQ], v->bias ? s->x[BQ] : NULL, SQ, SQ, E, H, s->dim, Q);
    to_heads(xk, v->plain ? NULL : s->x[WK], v->bias ? s->x[BK] : NULL, s->len_kv, keys, s->width[1], s->heads_kv, s->dim, K);
    to_heads(xv, v->plain ? NULL : s->x[WV], v->bias ? s->x[BV] : NULL, s->len_kv, keys, s->width[2], s->heads_kv, s->dim_v, V);
    if (v->rope) rotate(Q, B * H, SQ, SQ, s->dim), rotate(K, B * s->heads_kv, s->len_kv, keys, s->dim);
    if (v->extra) put_extra(s, s->x[EK], s->dim, K), put_extra(s, s->x[EV], s->dim_v, V);
    for (int64_t n = 0; n < B * H * SQ * keys; n++) /* the causal mask applies to all but the extra key */
        keep[n] = !v->causal || n % keys == s->len_kv || n % keys <= n / keys % SQ;
    ref_problem p = {.B = B,
                     .Hq = H,
                     .Hkv = s->heads_kv,
                     .Sq = SQ,
                     .Skv = keys,
                     .D = s->dim,
                     .Dv = s->dim_v,
                     .Q = Q,
                     .K = K,
                     .V = V,
                     .scale = 1 / sqrt((double)s->dim),
                     .scale_of_head = v->extra ? s->x[SC] : NULL,
                     .softcap = v->softcap,
                     .keep = keep};
    ref_forward(&p, O, lse, S, P);
    for (int64_t b = 0; b < B; b++)
        for (int64_t t = 0; t < SQ; t++)
            for (int64_t m = 0; m < s->out; m++) {
                double one = v->bias && !v->no_output ? s->x[BO][m] : 0;
                for (int64_t h = 0; h < H; h++)
                    for (int64_t c = 0; c < s->dim_v; c++) {
                        const double a = O[((b * H + h) * SQ + t) * s->dim_v + c];
                        if (v->no_output) one += h * s->dim_v + c == m ? a : 0;
                        else one += a * s->x[WO][(h * s->dim_v + c) * s->out + m];
                    }
                y[(b * SQ + t) * s->out + m] = one;
                sum += one * s->grad_y[(b * SQ + t) * s->out + m];
            }
    return sum;
}

/* The same tensors as the library gets them, in the variant's layouts. */
typedef struct held {
    attn_dtype dtype;
    int64_t stride[TENSORS][3]; /* of heads, channels, model; of inputs: entries, tokens */
    void *data[TENSORS], *grad[TENSORS];
    void *y, *grad_y, *saved, *mean;
} held;

static void put(attn_dtype dtype, void *to, int64_t at, double x)
{
    if (dtype == ATTN_F64) ((double *)to)[at] = x;
    else ((float *)to)[at] = (float)x;
}

/* Where element i of tensor t, in the order of the loops, lies. */
static int64_t place(const sample *s, const held *h, int t, int64_t i)
{
    if (t >= BQ) return i;
    if (t <= XV) {
        const int64_t width = s->width[t], tokens = t == XQ ? SQ : SKV, row = i / width;
        return row / tokens * h->stride[t][0] + row % tokens * h->stride[t][1] + i % width;
    }
    const int64_t model = t == WO ? s->out : s->width[t - WQ], dim = t == WV || t == WO ? s->dim_v : s->dim, row = i / model;
    return row / dim * h->stride[t][0] + row % dim * h->stride[t][1] + i % model * h->stride[t][2];
}

static void hold(const sample *s, held *h, attn_dtype dtype)
{
    const variant *v = s->v;
    memset(h, 0, sizeof *h);
    h->dtype = dtype;
    for (int t = 0; t < TENSORS; t++) {
        const int64_t model = t == WO              ? s->out
                              : t >= WQ && t <= WV ? s->width[t - WQ]
                                                   : 0,
                      dim = t == WV || t == WO ? s->dim_v : s->dim, heads = t == WK || t == WV ? s->heads_kv : v->heads_q;
        const int64_t torch[3] = {t == WO ? dim : dim * model, t == WO ? 1 : model, t == WO ? heads * dim : 1},
                      first[3] = {t == WO ? dim * model : dim, t == WO ? model : 1, t == WO ? 1 : heads * dim},
                      by_head[3] = {dim * model, t == WO ? model : 1, t == WO ? 1 : dim};
        memcpy(h->stride[t], v->layout == TORCH ? torch : v->layout == INPUT_FIRST ? first : by_head, sizeof torch);
        if (t <= XV) {
            const int64_t tokens = t == XQ ? SQ : SKV;
            h->stride[t][0] = v->token_first ? s->width[t] : tokens * s->width[t];
            h->stride[t][1] = v->token_first ? B * s->width[t] : s->width[t];
        }
        h->data[t] = calloc(LARGEST, sizeof(double));
        h->grad[t] = calloc(LARGEST, sizeof(double));
        for (int64_t i = 0; i < s->count[t]; i++) put(dtype, h->data[t], place(s, h, t, i), s->x[t][i]);
    }
    h->y = calloc(LARGEST, sizeof(double));
    h->grad_y = calloc(LARGEST, sizeof(double));
    h->mean = calloc(LARGEST, sizeof(double));
    for (int64_t i = 0; i < B * SQ * s->out; i++) put(dtype, h->grad_y, i, s->grad_y[i]);
}

static void drop(held *h)
{
    for (int t = 0; t < TENSORS; t++) free(h->data[t]), free(h->grad[t]);
    free(h->y), free(h->grad_y), free(h->saved), free(h->mean);
}

static attn_layer_weights weights_of(const sample *s, const held *h, int gradients)
{
    attn_layer_weights w = {.struct_size = sizeof w};
    attn_output *all[] = {&w.query, &w.key, &w.value, &w.output};
    attn_output *biases[] = {&w.query_bias, &w.key_bias, &w.value_bias, &w.output_bias};
    for (int i = 0; i < 4; i++) {
        if (i == 3 && s->v->no_output) break;
        const int64_t *stride = h->stride[WQ + i]; /* of heads, channels and the model */
        all[i]->data = s->count[WQ + i] ? (gradients ? h->grad : h->data)[WQ + i] : NULL;
        for (int x = 0; all[i]->data && x < 3; x++) all[i]->stride[1 + (i == 3 ? (x + 1) % 3 : x)] = stride[x];
        if (s->v->bias) biases[i]->data = (gradients ? h->grad : h->data)[BQ + i];
    }
    if (s->v->extra)
        w.extra_key.data = (gradients ? h->grad : h->data)[EK], w.extra_value.data = (gradients ? h->grad : h->data)[EV];
    return w;
}

static attn_layer_tensors args_of(const sample *s, const held *h)
{
    attn_layer_tensors a = {.struct_size = sizeof a,
                            .batch = B,
                            .len_q = SQ,
                            .len_kv = s->len_kv,
                            .output = {.data = h->y},
                            .weights_mean = {.data = h->mean},
                            .grad_output = {.data = h->grad_y}};
    attn_input *in[] = {&a.query, &a.key, &a.value};
    attn_output *grad[] = {&a.grad_query, &a.grad_key, &a.grad_value};
    for (int t = XQ; t <= XV; t++) {
        if (s->count[t] == 0) continue;
        *in[t] = (attn_input){h->data[t], s->layer.dtype, {h->stride[t][0], 0, h->stride[t][1], 1}};
        *grad[t] = (attn_output){h->grad[t], s->layer.dtype, {h->stride[t][0], 0, h->stride[t][1], 1}};
    }
    return a;
}

static void run(sample *s, held *h, attn_dtype dtype, int threads)
{
    attn_error error;
    attn_layer_counts counts = {.struct_size = sizeof counts};
    const attn_options options = {.struct_size = sizeof options, .threads = threads};
    hold(s, h, dtype);
    s->layer.dtype = dtype;
    const attn_layer_weights weights = weights_of(s, h, 0), gradients = weights_of(s, h, 1);
    attn_layer_tensors args = args_of(s, h);
    assert_int_equal(attn_layer_count(&s->layer, B, SQ, s->len_kv, &weights, &counts, &error), ATTN_OK);
    int64_t parameters = 0;
    for (int t = WQ; t < SC; t++) parameters += s->count[t];
    assert_int_equal(counts.parameters, parameters);
    args.saved = h->saved = aligned_alloc(64, (size_t)counts.saved_bytes);
    args.options = &options;
    attn_tensors scales = {.struct_size = sizeof scales};
    if (s->v->extra) scales.scale = attn_in(h->data[SC]), scales.grad_scale = attn_out(h->grad[SC]);
    args.attention = &scales;
    if (attn_layer_forward(&s->layer, &weights, &args, &error) != ATTN_OK ||
        attn_layer_backward(&s->layer, &weights, &args, &gradients, &error) != ATTN_OK)
        fail_msg("%s: %s", s->v->name, error.message);
}

/* Sums of fewer than 10^3 products of numbers below 1: their rounding error stays below 10^3 units. */
static double allowed(attn_dtype dtype) { return roundings(dtype, 1e3); }

static void test_forward(void **state)
{
    static const attn_dtype dtypes[] = {ATTN_F64, ATTN_F32};
    double y[LARGEST], P[4 * LARGEST];
    (void)state;
    for (int n = 0; n < VARIANTS; n++)
        for (int d = 0; d < 2; d++) {
            sample s;
            held h;
            make(&s, &variants[n]);
            run(&s, &h, dtypes[d], 1);
            (void)reference(&s, y, P);
            assert_close(s.v->name, "y", dtypes[d], h.y, y, B * SQ * s.out, allowed(dtypes[d]));
            const int64_t keys = s.len_kv + s.v->extra;
            for (int64_t b = 0; b < B; b++)
                for (int64_t at = 0; at < SQ * keys; at++) {
                    double mean = 0;
                    for (int64_t head = 0; head < s.v->heads_q; head++) mean += P[(b * s.v->heads_q + head) * SQ * keys + at];
                    mean /= (double)s.v->heads_q;
                    if (!(fabs(get(dtypes[d], h.mean, b * SQ * keys + at) - mean) <= allowed(dtypes[d])))
                        fail_msg("%s: mean weight %d of entry %d", s.v->name, (int)at, (int)b);
                }
            drop(&h);
        }
}

/* <grad_y, y>, a function of every number that a layer reads. */
static double loss(void *s)
{
    double y[LARGEST], P[4 * LARGEST];
    return reference(s, y, P);
}

static void test_differences(void **state)
{
    static const char *const names[TENSORS] = {"query", "key", "value", "wq", "wk",        "wv",          "wo",
                                               "bq",    "bk",  "bv",    "bo", "extra_key", "extra_value", "scale"};
    (void)state;
    for (int n = 0; n < VARIANTS; n++) {
        sample s;
        held h;
        make(&s, &variants[n]);
        run(&s, &h, ATTN_F64, 1);
        for (int t = 0; t < TENSORS; t++) {
            double got[LARGEST];
            for (int64_t i = 0; i < s.count[t]; i++) got[i] = get(ATTN_F64, h.grad[t], place(&s, &h, t, i));
            assert_gradients(s.v->name, names[t], s.x[t], got, s.count[t], loss, &s, 100, 100);
        }
        drop(&h);
    }
}

static void test_f32_gradients(void **state)
{
    (void)state;
    for (int n = 0; n < VARIANTS; n++) {
        sample s;
        held narrow, wide;
        make(&s, &variants[n]);
        run(&s, &narrow, ATTN_F32, 1);
        run(&s, &wide, ATTN_F64, 1);
        for (int t = 0; t < TENSORS; t++)
            for (int64_t i = 0; i < s.count[t]; i++) {
                const int64_t at = place(&s, &wide, t, i);
                if (!(fabs(get(ATTN_F32, narrow.grad[t], at) - get(ATTN_F64, wide.grad[t], at)) <= allowed(ATTN_F32)))
                    fail_msg("%s: gradient of tensor %d at %d", s.v->name, t, (int)i);
            }
        drop(&narrow);
        drop(&wide);
    }
}

static void test_threads(void **state)
{
    (void)state;
    for (int n = 0; n < VARIANTS; n++) {
        sample s;
        held one, more;
        make(&s, &variants[n]);
        run(&s, &one, ATTN_F32, 1);
        run(&s, &more, ATTN_F32, 5);
        assert_memory_equal(one.y, more.y, LARGEST * sizeof(float));
        for (int t = 0; t < TENSORS; t++) assert_memory_equal(one.grad[t], more.grad[t], LARGEST * sizeof(float));
        drop(&one);
        drop(&more);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forward), cmocka_unit_test(test_differences),
                                       cmocka_unit_test(test_f32_gradients), cmocka_unit_test(test_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
