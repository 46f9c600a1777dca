/* SPDX-License-Identifier: MIT
 *
 * fla.c - how each case of fla.h is composed:
 *
 *      softmax and forgetting attention   attn_compute with a bias of -c_j, c the sums of log gates: c_i drops out of the softmax
 *      DeepSeek's sparse attention        attn_compute under the mask of the keys that the indexer chose
 *      gated slot attention               attn_linear twice: slots as keys and keys as values; a softmax; slots as keys
 *      MesaNet                            attn_linear twice: keys as values; a linear system is solved; values as values
 *
 * If the state itself is needed, one query head reads each of its rows.
 */
#include "fla.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "attn/linear.h"
#include "testing/text/failure.h"

typedef struct fla_case {
    evaluation *result;
    view_pool pool;
    const attn_archive *tensors;
    attn_options options;
    attn_dtype dtype;
    double rtol, atol;
    int64_t B, H, Hkv, T, D, Dv;
    double *q, *k, *v; /* [B][head][T][channel] */
    double scale;
} fla_case;

typedef struct fla_kind {
    const char *function;
    void (*run)(fla_case *c, const cJSON *params);
    const char *tensors; /* read or compared besides in.query, in.key, in.value and out.output, with spaces around each */
} fla_kind;

static double *doubles(fla_case *c, int64_t count) { return pool_take(&c->pool, count, sizeof(double)); }

/* A tensor as [batch, head, token, channel] or [batch, head, token], NULL if absent.  *last: the size of its last axis. */
static double *numbers(fla_case *c, const char *name, int64_t *last)
{
    view v = view_of(attn_archive_find(c->tensors, name));
    if (!view_present(&v)) return NULL;
    if (v.rank >= 3) v = view_swap(&v, 1, 2);
    if (last) *last = v.size[v.rank - 1];
    return (double *)view_convert(&c->pool, &v, ATTN_F64).data;
}

/* Converts to the type of this run. */
static void *typed(fla_case *c, const double *x, int64_t count)
{
    void *to = pool_take(&c->pool, count, sizeof(double));
    (void)attn_convert(count, x, ATTN_F64, to, c->dtype, NULL);
    return to;
}

static void reject(fla_case *c, attn_status status, const attn_error *error)
{
    end_if_out_of_memory(error);
    conclude(c->result, status == ATTN_ERR_UNSUPPORTED ? CHECK_SKIPPED : CHECK_FAILED, "%s", error->message);
}

/* Compares an output if the case has it. */
static void compare(fla_case *c, const char *name, const double *got, int64_t count)
{
    const view *found = NULL;
    view v = view_of(attn_archive_find(c->tensors, name));
    if (!view_present(&v)) return;
    if (v.rank < 3 || view_count(&v) != count) {
        conclude(c->result, CHECK_FAILED, "%s has %lld elements, not %lld", name, (long long)view_count(&v), (long long)count);
        return;
    }
    v = view_swap(&v, 1, 2);
    found = &v;
    for (int64_t i = 0; i < view_count(found); i++) {
        const double expected = view_get(found, i), error = fabs(got[i] - expected);
        if (!(error <= c->atol + c->rtol * fabs(expected)))
            conclude(c->result, CHECK_FAILED, "%s: %s[%lld] = %.9g, expected %.9g", attn_dtype_name(c->dtype), name, (long long)i,
                     got[i], expected);
        c->result->max_error = fmax(c->result->max_error, error);
    }
}

/* ---- softmax attention ---- */

/* The bias is [B][H][1][T]; keep [B][1][T][T], of bytes; both may be NULL.  most: [B][H][T], the largest score. */
static void attend(fla_case *c, attn_mask mask, const double *bias, const unsigned char *keep, const double *sink, double *o,
                   double *most)
{
    const int64_t rows = c->B * c->H * c->T;
    attn_problem p = {.struct_size = sizeof p,
                      .shape = {c->B, c->H, c->Hkv, c->T, c->T, c->D, c->Dv},
                      .score = {.scale_kind = ATTN_SCALE_VALUE, .scale = c->scale},
                      .mask = mask};
    attn_tensors a = {.struct_size = sizeof a,
                      .q = {typed(c, c->q, rows * c->D), c->dtype, {0}},
                      .k = {typed(c, c->k, c->B * c->Hkv * c->T * c->D), c->dtype, {0}},
                      .v = {typed(c, c->v, c->B * c->Hkv * c->T * c->Dv), c->dtype, {0}},
                      .o = attn_out(pool_take(&c->pool, rows * c->Dv, sizeof(double))),
                      .row_max = attn_out(pool_take(&c->pool, rows, sizeof(double)))};
    attn_plan *plan;
    attn_error error;
    if (bias) a.bias = (attn_input){typed(c, bias, rows), c->dtype, {c->H * c->T, c->T, ATTN_BROADCAST, 1}};
    if (sink) a.sink = attn_in(typed(c, sink, c->H));
    if (keep) a.mask = (attn_input){keep, ATTN_BOOL, {c->T * c->T, ATTN_BROADCAST, c->T, 1}};
    attn_status status = attn_plan_create(&plan, &p, &a, &c->options, &error);
    if (status == ATTN_OK) {
        const size_t size = attn_plan_workspace_size(plan);
        status = attn_execute(plan, &a, pool_take(&c->pool, (int64_t)size, 1), size, &error);
        attn_plan_destroy(plan);
    }
    if (status != ATTN_OK) reject(c, status, &error);
    (void)attn_convert(rows * c->Dv, a.o.data, c->dtype, o, ATTN_F64, NULL);
    (void)attn_convert(rows, a.row_max.data, c->dtype, most, ATTN_F64, NULL);
}

static void run_softmax(fla_case *c, const cJSON *params)
{
    const cJSON *window = cJSON_GetObjectItemCaseSensitive(params, "window_size"),
                *causal = cJSON_GetObjectItemCaseSensitive(params, "causal");
    const int64_t rows = c->B * c->H * c->T;
    double *gates = numbers(c, "in.cumulative_log_gate_increments", NULL), *o = doubles(c, rows * c->Dv), *most = doubles(c, rows);
    double *sink = numbers(c, "in.sink_bias", NULL), *bias = NULL;
    attn_mask mask = {.causal = !causal || cJSON_IsTrue(causal)};
    if (!gates) gates = numbers(c, "in.log_gate", NULL);
    if (cJSON_IsNumber(window)) mask.window = 1, mask.window_left = (int64_t)window->valuedouble - 1, mask.window_right = -1;
    if (gates) {
        bias = doubles(c, rows);
        for (int64_t i = 0; i < rows; i++) {
            gates[i] += (i % c->T) ? gates[i - 1] : 0;
            bias[i] = -gates[i];
        }
    }
    attend(c, mask, bias, NULL, sink, o, most);
    for (int64_t i = 0; i < rows; i++) { /* the suite includes the gate of the query, and the sink */
        if (gates) most[i] += gates[i];
        if (sink) most[i] = fmax(most[i], sink[i / c->T % c->H]);
    }
    compare(c, "out.output", o, rows * c->Dv);
    compare(c, "out.max_logits", most, rows);
}

/* Selects the best keys of a query: marks them in keep, and lists them in `chosen`, best first; -1 past the last one. */
static void choose(const double *score, int64_t n, int64_t count, double *chosen, unsigned char *keep)
{
    for (int64_t place = 0; place < count; place++) {
        int64_t best = -1;
        for (int64_t j = 0; j < n; j++)
            if (!keep[j] && (best < 0 || score[j] > score[best])) best = j;
        chosen[place] = (double)best;
        if (best >= 0) keep[best] = 1;
    }
}

static void run_sparse(fla_case *c, const cJSON *params)
{
    const cJSON *topk = cJSON_GetObjectItemCaseSensitive(params, "topk");
    const int64_t count = cJSON_IsNumber(topk) ? (int64_t)topk->valuedouble : 0, T = c->T;
    const view iq = view_of(attn_archive_find(c->tensors, "in.index_query")),
               ik = view_of(attn_archive_find(c->tensors, "in.index_key")),
               iw = view_of(attn_archive_find(c->tensors, "in.index_weight")),
               expected = view_of(attn_archive_find(c->tensors, "out.indices"));
    if (count < 1 || !view_present(&iq) || !view_present(&ik) || !view_present(&iw) || view_count(&expected) != c->B * T * count) {
        conclude(c->result, CHECK_FAILED, "topk or a tensor of the indexer is missing");
        return;
    }
    const int64_t heads = iq.size[2], width = iq.size[3];
    unsigned char *keep = pool_take(&c->pool, c->B * T * T, 1);
    double *score = doubles(c, T), *chosen = doubles(c, count), *o = doubles(c, c->B * c->H * T * c->Dv),
           *most = doubles(c, c->B * c->H * T);
    memset(keep, 0, (size_t)(c->B * T * T));
    for (int64_t row = 0; row < c->B * T; row++) {
        for (int64_t j = 0; j <= row % T; j++) {
            score[j] = 0;
            for (int64_t h = 0; h < heads; h++) {
                double x = 0;
                for (int64_t d = 0; d < width; d++)
                    x += view_get(&iq, (row * heads + h) * width + d) * view_get(&ik, (row / T * T + j) * width + d);
                score[j] += fmax(x, 0) * view_get(&iw, row * heads + h);
            }
        }
        choose(score, row % T + 1, count, chosen, keep + row * T);
        for (int64_t i = 0; i < count; i++) { /* equal scores have no order */
            int more = 0;                     /* how much more often the suite has this key than we do */
            for (int64_t j = 0; j < count; j++)
                more += (view_get(&expected, row * count + j) == chosen[i]) - (chosen[j] == chosen[i]);
            if (more) conclude(c->result, CHECK_FAILED, "the indexer chose other keys");
        }
    }
    attend(c, (attn_mask){.causal = 1}, NULL, keep, NULL, o, most);
    compare(c, "out.output", o, c->B * c->H * c->T * c->Dv);
}

/* ---- linear attention ---- */

/* q [B][heads_q][T][features]; k, v and the decay (NULL: none; `channels` numbers for each token) have c->H heads. */
static void linear(fla_case *c, int64_t heads_q, int64_t features, int64_t dim_v, const double *q, const double *k, const double *v,
                   const double *decay, int64_t channels, double *o)
{
    const int64_t rows = c->B * c->H * c->T, rows_q = c->B * heads_q * c->T;
    attn_linear_problem p = {.struct_size = sizeof p,
                             .shape = {c->B, heads_q, c->H, c->T, c->T, features, dim_v},
                             .features = ATTN_FEATURES_IDENTITY,
                             .scale_kind = ATTN_SCALE_VALUE,
                             .scale = 1,
                             .denominator = ATTN_DENOMINATOR_NONE,
                             .causal = 1,
                             .decay_kind = channels > 1 ? ATTN_DECAY_CHANNEL : ATTN_DECAY_HEAD};
    attn_linear_tensors a = {.struct_size = sizeof a,
                             .q = {typed(c, q, rows_q * features), c->dtype, {0}},
                             .k = attn_in(typed(c, k, rows * features)),
                             .v = attn_in(typed(c, v, rows * dim_v)),
                             .o = attn_out(pool_take(&c->pool, rows_q * dim_v, sizeof(double)))};
    if (decay) a.decay = attn_in(typed(c, decay, rows * channels));
    attn_linear_plan *plan;
    attn_error error;
    attn_status status = attn_linear_plan_create(&plan, &p, &a, &c->options, &error);
    if (status == ATTN_OK) {
        const size_t size = attn_linear_plan_workspace_size(plan);
        status = attn_linear_execute(plan, &a, pool_take(&c->pool, (int64_t)size, 1), size, &error);
        attn_linear_plan_destroy(plan);
    }
    if (status != ATTN_OK) reject(c, status, &error);
    (void)attn_convert(rows_q * dim_v, a.o.data, c->dtype, o, ATTN_F64, NULL);
}

/* Row r of the state after each token, o[((b*H + h)*features + r)*T + t]: read by a query head for each row. */
static double *states(fla_case *c, int64_t features, int64_t dim_v, const double *k, const double *v, const double *decay,
                      int64_t channels)
{
    const int64_t heads = c->H * features;
    double *q = doubles(c, c->B * heads * c->T * features), *o = doubles(c, c->B * heads * c->T * dim_v);
    for (int64_t i = 0; i < c->B * heads * c->T * features; i++) q[i] = i / features / c->T % features == i % features;
    linear(c, heads, features, dim_v, q, k, v, decay, channels, o);
    return o;
}

static void run_slots(fla_case *c, const cJSON *params)
{
    int64_t slots;
    double *s = numbers(c, "in.slots", &slots), *gates = numbers(c, "in.log_gate", NULL);
    const int64_t rows = c->B * c->H * c->T;
    (void)params;
    if (!s || !gates) {
        conclude(c->result, CHECK_FAILED, "slots or log_gate is missing");
        return;
    }
    const double *state = states(c, slots, c->D, s, c->k, gates, slots);
    double *weights = doubles(c, rows * slots), *o = doubles(c, rows * c->Dv);
    for (int64_t row = 0; row < rows; row++) {
        double most = -INFINITY, sum = 0;
        for (int64_t m = 0; m < slots; m++) {
            double *x = &weights[row * slots + m];
            *x = 0;
            for (int64_t d = 0; d < c->D; d++)
                *x += c->scale * c->q[row * c->D + d] * state[((row / c->T * slots + m) * c->T + row % c->T) * c->D + d];
            most = fmax(most, *x);
        }
        for (int64_t m = 0; m < slots; m++) sum += weights[row * slots + m] = exp(weights[row * slots + m] - most);
        for (int64_t m = 0; m < slots; m++) weights[row * slots + m] /= sum;
    }
    linear(c, c->H, slots, c->Dv, weights, s, c->v, gates, slots, o);
    compare(c, "out.output", o, c->B * c->H * c->T * c->Dv);
}

/* b = A^-1 b in place by Gaussian elimination; A is symmetric positive definite. */
static void solve(int64_t n, double *A, double *b)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t r = i + 1; r < n; r++) {
            const double factor = A[r * n + i] / A[i * n + i];
            for (int64_t j = i; j < n; j++) A[r * n + j] -= factor * A[i * n + j];
            b[r] -= factor * b[i];
        }
    for (int64_t i = n; i-- > 0;) {
        for (int64_t j = i + 1; j < n; j++) b[i] -= A[i * n + j] * b[j];
        b[i] /= A[i * n + i];
    }
}

static void run_mesa(fla_case *c, const cJSON *params)
{
    const int64_t rows = c->B * c->H * c->T, D = c->D;
    double *gates = numbers(c, "in.log_gate", NULL), *beta = numbers(c, "in.beta", NULL);
    const view lambda = view_of(attn_archive_find(c->tensors, "in.lambda_"));
    (void)params;
    if (!gates || !beta || !view_present(&lambda)) {
        conclude(c->result, CHECK_FAILED, "log_gate, beta or lambda_ is missing");
        return;
    }
    double *keys = doubles(c, rows * D), *values = doubles(c, rows * c->Dv), *A = doubles(c, D * D), *x = doubles(c, rows * D);
    double *o = doubles(c, rows * c->Dv);
    for (int64_t i = 0; i < rows * D; i++) keys[i] = beta[i / D] * c->k[i], x[i] = c->q[i];
    for (int64_t i = 0; i < rows * c->Dv; i++) values[i] = beta[i / c->Dv] * c->v[i];
    const double *state = states(c, D, D, c->k, keys, gates, 1);
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t i = 0; i < D * D; i++) A[i] = state[((row / c->T * D + i / D) * c->T + row % c->T) * D + i % D];
        for (int64_t i = 0; i < D; i++) A[i * D + i] += view_get(&lambda, row / c->T % c->H * D + i);
        solve(D, A, x + row * D);
    }
    linear(c, c->H, D, c->Dv, x, c->k, values, gates, 1, o);
    compare(c, "out.output", o, c->B * c->H * c->T * c->Dv);
}

static void run_path(fla_case *c, const cJSON *params)
{
    (void)params;
    conclude(c->result, CHECK_SKIPPED,
             "PaTH multiplies each query and key by the Householder matrices between them: not a score of this library");
}

static const fla_kind kinds[] = {
    {"naive_parallel_attn", run_softmax, " in.cumulative_log_gate_increments in.sink_bias out.max_logits "},
    {"naive_forgetting_attn", run_softmax, " in.log_gate out.max_logits "},
    {"naive_dsa", run_sparse, " in.index_query in.index_key in.index_weight out.indices "},
    {"naive_recurrent_gsa", run_slots, " in.slots in.log_gate "},
    {"naive_mesa_net_exact", run_mesa, " in.log_gate in.beta in.lambda_ "},
    {"naive_path_attn", run_path, " in.w in.beta in.log_gate "},
};

static const fla_kind *kind_of(const char *suite, const cJSON *json)
{
    const char *function = text_in(cJSON_GetObjectItemCaseSensitive(json, "params"), "upstream_function");
    if (strcmp(suite, "fla_linear_attention") != 0) return NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(function, kinds[i].function) == 0) return &kinds[i];
    return NULL;
}

int fla_case_is(const char *suite, const cJSON *json) { return kind_of(suite, json) != NULL; }

static void check_tensors(fla_case *c, const fla_kind *kind)
{
    for (int64_t t = 0; t < attn_archive_count(c->tensors); t++) {
        const char *name = attn_archive_at(c->tensors, t)->name;
        char word[80];
        snprintf(word, sizeof word, " %.70s ", name);
        if (!strstr(" in.query in.key in.value out.output ", word) && !strstr(kind->tensors, word))
            conclude(c->result, CHECK_SKIPPED, "tensor %.70s is not known", name);
    }
}

void fla_case_evaluate(evaluation *e, const cJSON *json, const attn_archive *tensors, const attn_options *options)
{
    fla_case c = {.result = e, .tensors = tensors, .options = *options};
    const view q = view_of(attn_archive_find(tensors, "in.query")), k = view_of(attn_archive_find(tensors, "in.key")),
               v = view_of(attn_archive_find(tensors, "in.value"));
    c.rtol = tolerance_in(json, "rtol", "rel", 1e-5), c.atol = tolerance_in(json, "atol", "abs", 1e-5);
    const fla_kind *kind = kind_of("fla_linear_attention", json);
    if (!kind) {
        conclude(c.result, CHECK_SKIPPED, "the function is not known");
        return;
    }
    if (q.rank != 4 || k.rank != 4 || v.rank != 4) {
        conclude(c.result, CHECK_FAILED, "query, key or value is not of rank 4");
        return;
    }
    /* [batch, token, head, channel], whatever the manifest claims for gated slot attention. */
    c.B = q.size[0], c.T = q.size[1], c.H = q.size[2], c.D = q.size[3], c.Hkv = k.size[2], c.Dv = v.size[3];
    c.scale = 1 / sqrt((double)c.D);
    check_tensors(&c, kind);
    for (int type = 0; type < 2; type++) {
        c.dtype = type ? ATTN_F64 : ATTN_F32;
        c.q = numbers(&c, "in.query", NULL), c.k = numbers(&c, "in.key", NULL), c.v = numbers(&c, "in.value", NULL);
        kind->run(&c, cJSON_GetObjectItemCaseSensitive(json, "params"));
    }
    pool_empty(&c.pool);
}
