/* SPDX-License-Identifier: MIT
 *
 * layer_run.c - runs a case of a layer in f32 and f64, and compares it with the definition and with the suite's own numbers:
 *
 *  1. the definition in double agrees with the expected numbers within the case's tolerance;
 *  2. the library agrees with the definition within its bound;
 *  3. the library agrees with the expected numbers within rtol 1e-5, atol 1e-6 and the bound if they are that accurate, else within
 *     the case's tolerance; gradients, which have no definition here, agree with the suite's, computed in double, within a bound of
 *     their size.
 */
#include <math.h>
#include <string.h>

#include "layer.h"
#include "layer_case.h"
#include "testing/text/failure.h"

typedef struct layer_run {
    layer_case *c;
    const layer_expectation *e;
    attn_dtype dtype;
    double unit;
    attn_layer layer;
    attn_problem attention;
    attn_tensors core;
    attn_layer_weights weights, gradients;
    attn_layer_tensors args;
    attn_archive *renamed; /* weights of this type, for attn_layer_load */
    void *y, *P, *mean, *present[2];
    void *grad[GRADIENTS];
} layer_run;

static void reject(layer_case *c, const char *type, const attn_error *error)
{
    end_if_out_of_memory(error);
    conclude(c->result, CHECK_FAILED, "%s%s%s", type, *type ? ": " : "", error->message);
}

static const void *array(layer_run *r, const view *v)
{
    return view_present(v) ? view_convert(&r->c->pool, v, r->dtype).data : NULL;
}

static double *taken(layer_run *r, const void *from, int64_t count)
{
    double *x = pool_take(&r->c->pool, count, sizeof *x);
    (void)attn_convert(count, from, r->dtype, x, ATTN_F64, NULL);
    return x;
}

static attn_input pairs_slot(const view *v, attn_dtype dtype)
{
    attn_input slot = {v->data, dtype, {0, 0, 0, 0}};
    for (int axis = 0; axis < 4; axis++) slot.stride[axis] = v->stride[axis] ? v->stride[axis] : ATTN_BROADCAST;
    return slot;
}

/* ---- arguments of the library ---- */

static void set_layer(layer_run *r)
{
    const layer_case *c = r->c;
    r->layer = c->layer;
    r->layer.dtype = r->dtype;
    r->layer.attention = &r->attention;
    r->layer.rope = c->rotated ? &c->rope : NULL;
    r->attention = (attn_problem){.struct_size = sizeof r->attention};
    r->core = (attn_tensors){.struct_size = sizeof r->core};
    r->attention.mask.causal = c->causal;
    if (c->has_scale) r->attention.score.scale_kind = ATTN_SCALE_VALUE, r->attention.score.scale = c->scale;
    if (c->lengths_kv) r->core.lengths_kv = attn_in(c->lengths_kv);
    if (c->packed) r->core.cu_seqlens_q = r->core.cu_seqlens_kv = attn_in(c->begin);
    if (view_present(&c->keep)) r->core.mask = pairs_slot(&c->keep, ATTN_BOOL);
    if (view_present(&c->bias)) r->core.bias = pairs_slot(&c->bias, c->bias.dtype);
    if (c->zero_key)
        r->core.sink = attn_in(pool_take(&r->c->pool, c->layer.heads_q, 8)); /* a key and a value of 0 are a sink of 0 */
}

static int set_weights(layer_run *r)
{
    layer_case *c = r->c;
    attn_layer_weights *w = &r->weights;
    attn_output *const to[] = {&w->query, &w->key, &w->value, &w->output}, *const biases[] = {&w->query_bias, &w->key_bias,
                                                                                              &w->value_bias, &w->output_bias};
    attn_error error;
    r->weights.struct_size = sizeof r->weights;
    if (c->prefix) {
        attn_status status = attn_archive_create(&r->renamed, &error);
        for (int64_t i = 0; status == ATTN_OK && i < attn_archive_count(c->tensors); i++) {
            const attn_archive_tensor *t = attn_archive_at(c->tensors, i);
            const view v = view_of(t);
            if (t->dtype == ATTN_F32)
                status = attn_archive_add(r->renamed, t->name, r->dtype, t->rank, t->shape, array(r, &v), &error);
        }
        if (status == ATTN_OK) status = attn_layer_load(&r->layer, r->renamed, c->prefix, &r->weights, &error);
        if (status != ATTN_OK) reject(c, "", &error);
        return status == ATTN_OK;
    }
    for (int i = 0; i < PROJECTIONS - r->layer.no_output; i++) {
        const case_projection *p = &c->projection[i];
        const char *weight = array(r, &p->weight), *bias = array(r, &p->bias);
        const int64_t size = (int64_t)attn_dtype_size(r->dtype);
        const int64_t *by = p->stride; /* heads, channels, the model */
        *to[i] = attn_saved(weight + p->at * size);
        for (int x = 0; x < 3; x++) to[i]->stride[1 + (i == OUTPUT ? (x + 1) % 3 : x)] = by[x];
        if (bias) *biases[i] = attn_saved(bias + p->bias_at * size);
    }
    r->weights.extra_key.data = (void *)(uintptr_t)array(r, &c->extra[0]);
    r->weights.extra_value.data = (void *)(uintptr_t)array(r, &c->extra[1]);
    return 1;
}

static int64_t columns(const layer_case *c) { return c->past_len + c->len_kv; }

static void set_args(layer_run *r)
{
    layer_case *c = r->c;
    const int64_t rows = c->batch * c->len_q;
    const void *const in[3] = {array(r, &c->input[0]), array(r, &c->input[1]), array(r, &c->input[2])};
    r->y = pool_take(&c->pool, rows * c->layer.dim_output, 8);
    r->P = pool_take(&c->pool, rows * c->layer.heads_q * columns(c), 8);
    r->mean = pool_take(&c->pool, rows * (columns(c) + 1), 8);
    if (view_present(&c->weights)) r->core.weights = attn_out(r->P);
    r->args = (attn_layer_tensors){.struct_size = sizeof r->args,
                                   .batch = c->batch,
                                   .len_q = c->len_q,
                                   .len_kv = c->only_cached ? 0 : c->len_kv,
                                   .query.data = in[0],
                                   .key.data = c->only_cached ? NULL : in[1],
                                   .value.data = c->only_cached ? NULL : in[2],
                                   .output.data = r->y,
                                   .weights_mean.data = view_present(&c->weights_mean) ? r->mean : NULL,
                                   .positions_q.data = c->rotated ? c->positions : NULL,
                                   .positions_kv.data = c->rotated ? c->positions : NULL,
                                   .only_cached = c->only_cached,
                                   .attention = &r->core,
                                   .options = &c->options};
}

/* ---- running ---- */

static attn_status decode(layer_run *r, attn_error *error)
{
    layer_case *c = r->c;
    const int64_t dims[2] = {c->layer.head_dim, c->layer.head_dim_v}, rows = c->batch * c->layer.heads_kv;
    const size_t size = attn_dtype_size(r->dtype);
    int64_t *lengths = pool_take(&c->pool, c->batch, sizeof *lengths);
    for (int64_t b = 0; b < c->batch; b++) lengths[b] = c->past_len;
    for (int i = 0; i < 2; i++) {
        r->present[i] = pool_take(&c->pool, rows * c->space * dims[i], 8);
        if (!view_present(&c->past[i])) continue;
        const char *past = array(r, &c->past[i]);
        const int64_t given = c->past[i].size[2]; /* the whole buffer, including what follows the past */
        for (int64_t n = 0; n < rows; n++)
            memcpy((char *)r->present[i] + (size_t)(n * c->space * dims[i]) * size, past + (size_t)(n * given * dims[i]) * size,
                   (size_t)((given < c->space ? given : c->space) * dims[i]) * size);
    }
    const attn_cache cache = {.struct_size = sizeof cache,
                              .batch = c->batch,
                              .heads_kv = c->layer.heads_kv,
                              .capacity = c->space,
                              .dim_qk = dims[0],
                              .dim_v = dims[1],
                              .k = {r->present[0], r->dtype, {0, 0, 0, 0}},
                              .v = {r->present[1], r->dtype, {0, 0, 0, 0}},
                              .lengths = attn_out(lengths)};
    r->core.lengths_kv = (attn_input){0};
    return attn_layer_decode(&r->layer, &r->weights, &cache, &r->args, error);
}

static attn_status backward(layer_run *r, attn_error *error)
{
    layer_case *c = r->c;
    attn_layer_weights *w = &r->gradients;
    attn_output *const to[] = {&w->query, &w->key, &w->value, &w->output}, *const biases[] = {&w->query_bias, &w->key_bias,
                                                                                              &w->value_bias, &w->output_bias};
    r->gradients.struct_size = sizeof r->gradients;
    r->args.grad_output.data = array(r, &c->grad_output);
    for (int g = 0; g < c->gradients; g++) {
        const case_gradient *x = &c->gradient[g];
        r->grad[g] = pool_take(&c->pool, view_count(&x->expected), 8);
        if (x->role == OF_QUERY) r->args.grad_query.data = r->grad[g];
        if (x->role == OF_KEY) r->args.grad_key.data = r->grad[g];
        if (x->role == OF_WEIGHT) to[x->projection]->data = r->grad[g];
        if (x->role == OF_BIAS) biases[x->projection]->data = r->grad[g];
    }
    return attn_layer_backward(&r->layer, &r->weights, &r->args, &r->gradients, error);
}

static int execute(layer_run *r)
{
    layer_case *c = r->c;
    attn_error error;
    attn_layer_counts counts = {.struct_size = sizeof counts};
    attn_status status = attn_layer_count(&r->layer, c->batch, c->len_q, c->len_kv, &r->weights, &counts, &error);
    if (status == ATTN_OK && c->gradients) r->args.saved = pool_take(&c->pool, counts.saved_bytes, 1);
    if (status == ATTN_OK) status = c->decode ? decode(r, &error) : attn_layer_forward(&r->layer, &r->weights, &r->args, &error);
    if (status == ATTN_OK && c->gradients) status = backward(r, &error);
    if (status != ATTN_OK) reject(c, attn_dtype_name(r->dtype), &error);
    return status == ATTN_OK;
}

/* ---- judging ---- */

static int close_to(double a, double b, double rtol, double atol) { return fabs(a - b) <= atol + rtol * fabs(b); }

/* Judges one output, row-major: the suite's numbers, the definition's, their bound divided by the unit, and the library's. */
static void judge(layer_run *r, const char *name, const view *expected, const double *exact, const double *bound, const double *got)
{
    layer_case *c = r->c;
    const char *type = attn_dtype_name(r->dtype);
    const int64_t count = view_count(expected);
    const double lost =
        r->dtype == ATTN_F64 ? 0x1p-1022 : 0x1p-126; /* a weight below the smallest normal number may be flushed to 0 */
    int right = 1;                                   /* the suite's numbers are accurate to rtol 1e-5, atol 1e-6 */
    for (int64_t n = 0; n < count; n++) {
        const double expected_value = view_get(expected, n);
        if (isnan(expected_value)) continue; /* a query that sees no key: our semantics require 0 */
        if (!close_to(exact[n], expected_value, c->rtol, c->atol))
            conclude(c->result, CHECK_FAILED, "the reference does not agree with the suite: %s[%lld] = %.9g, expected %.9g", name,
                     (long long)n, exact[n], expected_value);
        right &= close_to(exact[n], expected_value, 1e-5, 1e-6);
    }
    for (int64_t n = 0; n < count; n++) {
        const double expected_value = view_get(expected, n), most = r->unit * bound[n] + lost, error = fabs(got[n] - exact[n]);
        if (!(error <= most))
            conclude(c->result, CHECK_FAILED, "%s: %s[%lld] = %.9g, expected %.9g +- %.3g", type, name, (long long)n, got[n],
                     exact[n], most);
        if (most > 0) c->result->bound_fraction = fmax(c->result->bound_fraction, error / most);
        if (isnan(expected_value)) continue;
        c->result->max_error = fmax(c->result->max_error, fabs(got[n] - expected_value));
        const double rtol = right ? 1e-5 : c->rtol, atol = right ? 1e-6 : c->atol;
        if (!close_to(got[n], expected_value, rtol, atol + most))
            conclude(c->result, CHECK_FAILED, "%s: %s[%lld] = %.9g, expected %.9g (rtol %g, atol %g)", type, name, (long long)n,
                     got[n], expected_value, rtol, atol);
    }
}

/* Rows of the padded definition, packed if the case is. */
static const double *unpadded(layer_case *c, const double *x, int64_t width)
{
    if (!c->packed) return x;
    double *rows = pool_take(&c->pool, (c->begin[c->batch] + 1) * width, sizeof *rows);
    for (int64_t b = 0; b < c->batch; b++)
        memcpy(rows + c->begin[b] * width, x + b * c->len_q * width,
               (size_t)((c->begin[b + 1] - c->begin[b]) * width) * sizeof *rows);
    return rows;
}

/* Weights in the suite's order: [batch][head][query][key], then the extra key, then the zero.  mean: one head, the average of all.
 */
static void judge_weights(layer_run *r, int mean)
{
    layer_case *c = r->c;
    const layer_expectation *e = r->e;
    const int64_t heads = c->layer.heads_q, S = columns(c), T = e->keys, groups = mean ? 1 : heads,
                  rows = c->batch * groups * c->len_q, own = mean ? S + view_present(&c->extra[0]) : S;
    double *exact = pool_take(&c->pool, rows * T, sizeof *exact), *bound = pool_take(&c->pool, rows * T, sizeof *bound),
           *got = pool_take(&c->pool, rows * T, sizeof *got);
    const double *from = taken(r, mean ? r->mean : r->P, rows * own);
    for (int64_t n = 0; n < rows * T; n++) {
        const int64_t j = n % T, row = n / T, b = row / c->len_q / groups, i = row % c->len_q;
        for (int64_t h = 0; h < heads; h++) {
            if (!mean && h != row / c->len_q % heads) continue;
            const int64_t at = ((b * heads + h) * c->len_q + i) * T + j;
            exact[n] += e->P[at] / (double)(mean ? heads : 1);
            bound[n] += (e->P_bound[at] + (double)heads * e->P[at]) / (double)(mean ? heads : 1);
        }
        if (j < own) got[n] = from[row * own + j];
    }
    for (int64_t row = 0; row < rows && own < T; row++) { /* weights that the library does not return share the remainder */
        double left = 1, sum = 0;
        for (int64_t j = 0; j < own; j++) left -= got[row * T + j];
        for (int64_t j = 0; j < T; j++) sum += bound[row * T + j];
        for (int64_t j = own; j < T; j++) {
            double others = 0;
            for (int64_t k = own; k < T; k++) others += k == j ? 0 : exact[row * T + k];
            got[row * T + j] = left - others;
            bound[row * T + j] = sum + (double)T;
        }
    }
    judge(r, "weights", mean ? &c->weights_mean : &c->weights, exact, bound, got);
}

/* The tokens of a cache; the rest of a larger buffer must be unchanged. */
static void judge_present(layer_run *r, int i)
{
    layer_case *c = r->c;
    const layer_expectation *e = r->e;
    const int64_t dim = i ? c->layer.head_dim_v : c->layer.head_dim, rows = c->batch * c->layer.heads_kv, held = columns(c);
    double *exact = pool_take(&c->pool, rows * c->space * dim, sizeof *exact),
           *bound = pool_take(&c->pool, rows * c->space * dim, sizeof *bound);
    const double *got = taken(r, r->present[i], rows * c->space * dim);
    for (int64_t n = 0; n < rows * c->space * dim; n++) {
        const int64_t t = n / dim % c->space, at = (n / dim / c->space * e->keys + t) * dim + n % dim;
        exact[n] = t < held ? (i ? e->V : e->K)[at] : view_get(&c->past[i], n);
        bound[n] = t < held ? (i ? e->V_bound : e->K_bound)[at] + fabs(exact[n]) : 0;
    }
    judge(r, i ? "present values" : "present keys", &c->present[i], exact, bound, got);
}

/* The output of a projection, read from the cache of another layer that has it as key projection. */
static void judge_projected(layer_run *r, int i)
{
    layer_case *c = r->c;
    const layer_expectation *e = r->e;
    const int64_t heads = i == QUERY ? c->layer.heads_q : c->layer.heads_kv,
                  dim = i == VALUE ? c->layer.head_dim_v : c->layer.head_dim, tokens = i == QUERY ? c->len_q : c->len_kv,
                  space = i == QUERY ? c->len_q : e->keys, count = c->batch * heads * tokens * dim;
    const attn_output *const all[] = {&r->weights.query, &r->weights.key, &r->weights.value};
    const attn_output *const biases[] = {&r->weights.query_bias, &r->weights.key_bias, &r->weights.value_bias};
    const double *from = i == QUERY ? e->Q
                         : i == KEY ? e->K
                                    : e->V,
                 *off = i == QUERY ? e->Q_bound
                        : i == KEY ? e->K_bound
                                   : e->V_bound;
    const attn_layer layer = {.struct_size = sizeof layer,
                              .dtype = r->dtype,
                              .dim_model = c->input[i].size[2],
                              .heads_q = heads,
                              .head_dim = dim,
                              .no_output = 1};
    const attn_layer_weights weights = {.struct_size = sizeof weights,
                                        .query = *all[i],
                                        .key = *all[i],
                                        .value = *all[i],
                                        .query_bias = *biases[i],
                                        .key_bias = *biases[i],
                                        .value_bias = *biases[i]};
    int64_t *lengths = pool_take(&c->pool, c->batch, sizeof *lengths);
    void *k = pool_take(&c->pool, count, 8), *v = pool_take(&c->pool, count, 8);
    const attn_cache cache = {.struct_size = sizeof cache,
                              .batch = c->batch,
                              .heads_kv = heads,
                              .capacity = tokens,
                              .dim_qk = dim,
                              .dim_v = dim,
                              .k = {k, r->dtype, {tokens * heads * dim, dim, heads * dim, 1}},
                              .v = {v, r->dtype, {0, 0, 0, 0}},
                              .lengths = attn_out(lengths)};
    const attn_layer_tensors args = {.struct_size = sizeof args,
                                     .batch = c->batch,
                                     .len_kv = tokens,
                                     .key.data = array(r, &c->input[i]),
                                     .options = &c->options};
    attn_error error;
    if (attn_layer_decode(&layer, &weights, &cache, &args, &error) != ATTN_OK) {
        reject(c, attn_dtype_name(r->dtype), &error);
        return;
    }
    double *exact = pool_take(&c->pool, count, sizeof *exact), *bound = pool_take(&c->pool, count, sizeof *bound);
    for (int64_t n = 0; n < count; n++) {
        const int64_t h = n / dim % heads, t = n / dim / heads % tokens, b = n / dim / heads / tokens,
                      at = ((b * heads + h) * space + t) * dim + n % dim;
        exact[n] = from[at], bound[n] = off[at] + fabs(from[at]);
    }
    judge(r, "projected", &c->projected[i], exact, bound, taken(r, k, count));
}

/* The bound: sums of at most `terms` products of the size of the largest gradient, each off by a few roundings. */
static void judge_gradients(layer_run *r)
{
    layer_case *c = r->c;
    const double terms =
        (double)(c->batch * (c->len_q + c->len_kv) + 2 * c->layer.dim_output + c->layer.heads_q * c->layer.head_dim + 64);
    double largest = 1;
    for (int g = 0; g < c->gradients; g++)
        for (int64_t n = 0; n < view_count(&c->gradient[g].expected); n++)
            largest = fmax(largest, fabs(view_get(&c->gradient[g].expected, n)));
    for (int g = 0; g < c->gradients; g++) {
        const case_gradient *x = &c->gradient[g];
        const double *got = taken(r, r->grad[g], view_count(&x->expected)), most = r->unit * terms * largest;
        for (int64_t n = 0; n < view_count(&x->expected); n++) {
            const double expected_value = view_get(&x->expected, n), error = fabs(got[n] - expected_value);
            c->result->bound_fraction = fmax(c->result->bound_fraction, error / most);
            if (!(error <= most) || !close_to(got[n], expected_value, c->rtol, c->atol + most))
                conclude(c->result, CHECK_FAILED, "%s: %s[%lld] = %.9g, expected %.9g +- %.3g", attn_dtype_name(r->dtype),
                         x->name + 4, (long long)n, got[n], expected_value, most);
        }
    }
}

static void run_in(layer_case *c, const layer_expectation *e, attn_dtype dtype)
{
    layer_run r = {.c = c, .e = e, .dtype = dtype, .unit = dtype == ATTN_F64 ? 0x1p-53 : 0x1p-24};
    set_layer(&r);
    if (set_weights(&r)) {
        set_args(&r);
        if (execute(&r)) {
            const int64_t rows = c->packed ? c->begin[c->batch] : c->batch * c->len_q, width = c->layer.dim_output;
            judge(&r, "output", &c->output, unpadded(c, e->y, width), unpadded(c, e->y_bound, width), taken(&r, r.y, rows * width));
            if (view_present(&c->weights)) judge_weights(&r, 0);
            if (view_present(&c->weights_mean)) judge_weights(&r, 1);
            for (int i = 0; i < 2; i++)
                if (view_present(&c->present[i])) judge_present(&r, i);
            for (int i = 0; i < 3; i++)
                if (view_present(&c->projected[i])) judge_projected(&r, i);
            judge_gradients(&r);
        }
    }
    attn_archive_destroy(r.renamed);
}

void layer_case_evaluate(evaluation *result, const char *suite, const cJSON *json, const attn_archive *tensors,
                         const attn_options *options)
{
    layer_case c = {.options = *options, .result = result, .json = json, .tensors = tensors};
    layer_expectation e;
    c.params = cJSON_GetObjectItemCaseSensitive(json, "params");
    c.rtol = tolerance_in(json, "rtol", "rel", 0);
    c.atol = tolerance_in(json, "atol", "abs", 0);
    layer_translate(&c, suite, cJSON_GetObjectItemCaseSensitive(json, "op")->valuestring);
    if (result->status == CHECK_PASSED) {
        layer_expect(&c, &e);
        run_in(&c, &e, ATTN_F32);
        run_in(&c, &e, ATTN_F64);
    }
    pool_empty(&c.pool);
}
