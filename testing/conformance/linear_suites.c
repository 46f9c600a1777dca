/* SPDX-License-Identifier: MIT
 *
 * linear_suites.c - the names that suites of linear attention use, and their meaning.  A case with an unknown tensor or attribute
 * is skipped, with the reason.
 */
#include <math.h>
#include <string.h>

#include "linear_case.h"

/* The suites' names of the tensors, by role. */
static const char *const names[ALL][4] = {
    [IN_Q] = {"in.query"},
    [IN_K] = {"in.key"},
    [IN_V] = {"in.value", "in.x"},
    [IN_OMEGA] = {"in.omega"},
    [IN_DECAY] = {"in.decay", "in.log_gate"},
    [IN_BETA] = {"in.beta"},
    [IN_ERASE] = {"in.alpha", "in.p"},
    [IN_STATE] = {"in.initial_state", "in.past_state"},
    [IN_DO] = {"in.grad_output"},
    [OUT_O] = {"out.output"},
    [OUT_STATE] = {"out.final_state", "out.present_state"},
    [OUT_DQ] = {"out.grad_query"},
    [OUT_DK] = {"out.grad_key"},
    [OUT_DV] = {"out.grad_value"},
};

typedef struct recurrence {
    const char *function;
    int normalised;
    attn_linear_rule rule;
    int decay;
} recurrence;

/* The recurrence of one of fla's functions; NULL for those of fla.c. */
static const recurrence *recurrence_of(const char *function)
{
    static const recurrence known[] = {
        {"naive_recurrent_linear_attn", 0, ATTN_LINEAR_RULE_ADD, 0},
        {"naive_retention", 0, ATTN_LINEAR_RULE_ADD, 1},
        {"naive_recurrent_simple_gla", 0, ATTN_LINEAR_RULE_ADD, 1},
        {"delta_rule_recurrence", 0, ATTN_LINEAR_RULE_DELTA, 0},
        {"naive_recurrent_gated_delta_rule", 0, ATTN_LINEAR_RULE_DELTA, 1},
        {"naive_parallel_based", 1, ATTN_LINEAR_RULE_ADD, 0},
        {"naive_parallel_rebased", 1, ATTN_LINEAR_RULE_ADD, 0},
        {"naive_recurrent_hgrn", 0, ATTN_LINEAR_RULE_ADD, 1},
        {"dplr_recurrence", 0, ATTN_LINEAR_RULE_LOW_RANK, 1},
        {"iplr_recurrence", 0, ATTN_LINEAR_RULE_LOW_RANK, 0},
        {"naive_recurrent_comba", 0, ATTN_LINEAR_RULE_LOW_RANK, 1},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(function, known[i].function) == 0) return &known[i];
    return NULL;
}

int linear_case_is(const char *suite, const cJSON *json)
{
    const char *op = text_in(json, "op"),
               *function = text_in(cJSON_GetObjectItemCaseSensitive(json, "params"), "upstream_function");
    if (strcmp(suite, "mechanism_grad") == 0) return strcmp(op, "linear_attention") == 0;
    if (strcmp(suite, "onnx_attention") == 0) return strcmp(op, "LinearAttention") == 0;
    return strcmp(suite, "fla_linear_attention") == 0 && recurrence_of(function) != NULL;
}

/* ---- what each suite means ---- */

static int of_mechanism(linear_case *c, const cJSON *json)
{
    static const char *const maps[] = {"elu1", "identity", "relu", "softmax", "favor+"};
    const cJSON *params = cJSON_GetObjectItemCaseSensitive(json, "params");
    const char *map = text_in(params, "feature_map");
    for (int i = 0; i < 5; i++)
        if (strcmp(map, maps[i]) == 0) c->problem.features = (attn_features)i;
    c->problem.causal = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(params, "causal"));
    if (c->problem.features == ATTN_FEATURES_FAVOR) c->problem.random_features = c->tensor[IN_OMEGA].size[0];
    return 1;
}

static int of_onnx(linear_case *c, const cJSON *json)
{
    const cJSON *attributes = cJSON_GetObjectItemCaseSensitive(json, "attributes");
    const char *rule = text_in(attributes, "update_rule");
    const double scale = number_in(attributes, "scale", 0);
    c->heads_q = (int64_t)number_in(attributes, "q_num_heads", 1);
    c->heads_kv = (int64_t)number_in(attributes, "kv_num_heads", 1);
    c->problem.features = ATTN_FEATURES_IDENTITY;
    c->problem.denominator = ATTN_DENOMINATOR_NONE;
    c->problem.causal = 1;
    if (scale != 0) c->problem.scale_kind = ATTN_SCALE_VALUE, c->problem.scale = scale; /* 0: 1/sqrt(d) */
    if (!rule[0]) rule = "gated_delta";
    if (strstr(rule, "delta")) c->problem.rule = ATTN_LINEAR_RULE_DELTA;
    if (strstr(rule, "gated")) c->decays = 1; /* or per channel, depending on the tensor's shape */
    return 1;
}

/* A retention of gamma_h = 1 - 2^(-5-h) at every token. */
static void add_retention(linear_case *c)
{
    const view *k = &c->tensor[IN_K];
    const int64_t size[4] = {k->size[0], k->size[1], k->size[2], 1};
    double *logs = pool_take(&c->pool, size[0] * size[1] * size[2], sizeof *logs);
    for (int64_t i = 0; i < size[0] * size[1] * size[2]; i++) logs[i] = log1p(-exp2(-5 - (double)(i / size[2] % size[1])));
    c->tensor[IN_DECAY] = view_made(ATTN_F64, 4, size, logs);
}

/* Features given by the caller: 1, x and x x^T / sqrt(2) of x / d^(1/4) (Based), or only x x^T (ReBased). */
static void add_products(linear_case *c, int which, int all)
{
    const view x = view_convert(&c->pool, &c->tensor[which], ATTN_F64);
    const int64_t dim = x.size[3], rows = view_count(&x) / dim, many = dim * dim + (all ? 1 + dim : 0);
    const double scale = all ? 1 / sqrt(sqrt((double)dim)) : 1 / sqrt((double)dim);
    int64_t size[4] = {x.size[0], x.size[1], x.size[2], many};
    double *f = pool_take(&c->pool, rows * many, sizeof *f);
    for (int64_t r = 0; r < rows; r++) {
        const double *from = (const double *)x.data + r * dim;
        double *to = f + r * many;
        if (all) *to++ = 1;
        for (int64_t a = 0; all && a < dim; a++) *to++ = from[a] * scale;
        for (int64_t a = 0; a < dim * dim; a++) *to++ = from[a / dim] * from[a % dim] * scale * (all ? scale / sqrt(2) : 1);
    }
    c->tensor[which] = view_made(ATTN_F64, 4, size, f);
}

/* Channels with separate decays and no keys: heads of one channel, whose query and key are 1. */
static void add_ones(linear_case *c)
{
    for (int t = IN_Q; t <= IN_K; t++) {
        double *ones = pool_take(&c->pool, view_count(&c->tensor[IN_V]), sizeof *ones);
        for (int64_t i = 0; i < view_count(&c->tensor[IN_V]); i++) ones[i] = 1;
        c->tensor[t] = view_made(ATTN_F64, 4, c->tensor[IN_V].size, ones);
    }
}

/* Renames the low-rank rule's tensors: the suite calls `write` beta. */
static void take_low_rank(linear_case *c)
{
    c->tensor[IN_WRITE] = c->tensor[IN_BETA];
    c->tensor[IN_BETA] = (view){0};
}

/* Comba: u = beta (v - (decay S)^T p) is the low-rank rule with erase = -decay p, write = beta k and the value beta v. */
static void make_low_rank(linear_case *c)
{
    const view k = c->tensor[IN_K], p = c->tensor[IN_ERASE], v = c->tensor[IN_V], beta = c->tensor[IN_BETA];
    const int64_t dim = k.size[3], dim_v = v.size[3], rows = view_count(&k) / dim;
    double *erase = pool_take(&c->pool, rows * dim, sizeof *erase), *write = pool_take(&c->pool, rows * dim, sizeof *write);
    double *value = pool_take(&c->pool, rows * dim_v, sizeof *value);
    for (int64_t i = 0; i < rows * dim; i++) {
        erase[i] = -exp(view_get(&c->tensor[IN_DECAY], i / dim)) * view_get(&p, i);
        write[i] = view_get(&beta, i / dim) * view_get(&k, i);
    }
    for (int64_t i = 0; i < rows * dim_v; i++) value[i] = view_get(&beta, i / dim_v) * view_get(&v, i);
    c->tensor[IN_ERASE] = view_made(ATTN_F64, 4, k.size, erase);
    c->tensor[IN_WRITE] = view_made(ATTN_F64, 4, k.size, write);
    c->tensor[IN_V] = view_made(ATTN_F64, 4, v.size, value);
    c->tensor[IN_BETA] = (view){0};
}

/* Returns 0 if the function is not a recurrence (fla.c has those). */
static int of_fla(linear_case *c, const cJSON *json)
{
    const cJSON *params = cJSON_GetObjectItemCaseSensitive(json, "params"),
                *scale = cJSON_GetObjectItemCaseSensitive(params, "scale");
    const char *function = text_in(params, "upstream_function");
    const recurrence *known = recurrence_of(function);
    if (!known) return 0;
    const int normalised = known->normalised || cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(params, "normalize"));
    c->tokens_first = strcmp(text_in(params, "layout"), "(B,T,H,D)") == 0;
    c->problem.features = ATTN_FEATURES_IDENTITY;
    c->problem.causal = 1;
    c->problem.denominator = normalised ? ATTN_DENOMINATOR_ADD : ATTN_DENOMINATOR_NONE;
    c->problem.epsilon = known->normalised ? 1e-6 : 1e-10; /* as published there */
    c->problem.rule = known->rule;
    c->decays = known->decay;
    if (cJSON_IsNumber(scale)) c->problem.scale_kind = ATTN_SCALE_VALUE, c->problem.scale = scale->valuedouble;
    if (normalised && !known->normalised)
        c->problem.scale_kind = ATTN_SCALE_VALUE, c->problem.scale = 1 / sqrt((double)c->tensor[IN_K].size[3]);
    if (known->rule == ATTN_LINEAR_RULE_LOW_RANK && view_present(&c->tensor[IN_BETA]) && c->tensor[IN_BETA].rank == 4)
        take_low_rank(c);
    return 1;
}

/* ---- axes ---- */

/* From [batch, token, head * channel], [batch, token, head(, channel)] or our order. */
static int put_in_order(linear_case *c, int t, int64_t heads)
{
    view *v = &c->tensor[t];
    if (!view_present(v) || t == IN_OMEGA || t == IN_STATE || t == OUT_STATE) return 1;
    if (heads) {
        view split;
        if (v->rank != 3 || !view_split(v, heads, &split)) return 0;
        *v = view_swap(&split, 1, 2);
        return 1;
    }
    if (v->rank == 3) { /* a number for each token */
        int64_t size[4] = {v->size[0], v->size[1], v->size[2], 1};
        view dense = view_convert(&c->pool, v, ATTN_F64);
        *v = view_made(ATTN_F64, 4, size, dense.data);
    }
    if (c->tokens_first) *v = view_swap(v, 1, 2);
    return v->rank == 4;
}

static int arrange(linear_case *c)
{
    for (int t = 0; t < ALL; t++) {
        const int of_q = t == IN_Q || t == IN_DO || t == OUT_O || t == OUT_DQ;
        if (!put_in_order(c, t, of_q ? c->heads_q : c->heads_kv)) return 0;
    }
    return 1;
}

/* ---- a case ---- */

/* Every tensor of the case must be one that is read or compared. */
static int all_known(evaluation *e, const attn_archive *tensors)
{
    for (int64_t i = 0; i < attn_archive_count(tensors); i++) {
        const char *name = attn_archive_at(tensors, i)->name;
        int known = 0;
        for (int t = 0; t < ALL; t++)
            for (int k = 0; k < 4 && names[t][k]; k++) known |= strcmp(name, names[t][k]) == 0;
        if (known) continue;
        conclude(e, CHECK_SKIPPED, "tensor %.100s is not known", name);
        return 0;
    }
    return 1;
}

/* Every attribute must be one that is read, or that follows from the tensors. */
static int attributes_known(evaluation *e, const cJSON *json)
{
    static const char *const known[] = {"layout",      "feature_map",  "causal",           "denominator", "formula",
                                        "q_num_heads", "kv_num_heads", "update_rule",      "scale",       "chunk_size",
                                        "normalize",   "use_norm",     "upstream_function"};
    const cJSON *params = cJSON_GetObjectItemCaseSensitive(json, "params"), *value;
    if (!params) params = cJSON_GetObjectItemCaseSensitive(json, "attributes");
    cJSON_ArrayForEach(value, params)
    {
        size_t k = 0;
        while (k < sizeof known / sizeof *known && strcmp(known[k], value->string) != 0) k++;
        if (k < sizeof known / sizeof *known) continue;
        conclude(e, CHECK_SKIPPED, "attribute %.60s is not known", value->string);
        return 0;
    }
    return 1;
}

static int prepare(evaluation *e, linear_case *c, const char *suite, const cJSON *json)
{
    const char *function = text_in(cJSON_GetObjectItemCaseSensitive(json, "params"), "upstream_function");
    const int fla = strcmp(suite, "fla_linear_attention") == 0;
    if (fla ? !of_fla(c, json) : strcmp(suite, "onnx_attention") == 0 ? !of_onnx(c, json) : !of_mechanism(c, json)) {
        conclude(e, CHECK_SKIPPED, "the recurrence of %.100s: not in this library", function);
        return 0;
    }
    if (fla && strcmp(function, "naive_recurrent_hgrn") == 0) {
        c->tokens_first = 1; /* [batch, token, channel]: a head of one channel each */
        if (view_present(&c->tensor[OUT_STATE])) {
            const view *v = &c->tensor[OUT_STATE];
            const int64_t size[4] = {v->size[0], v->size[1], 1, 1};
            c->tensor[OUT_STATE] = view_made(v->dtype, 4, size, v->data);
        }
    }
    if (!arrange(c)) {
        conclude(e, CHECK_FAILED, "a tensor's rank or its heads do not fit");
        return 0;
    }
    if (fla && strcmp(function, "naive_recurrent_hgrn") == 0) add_ones(c);
    if (fla && strcmp(function, "naive_recurrent_comba") == 0) make_low_rank(c);
    if (fla && strcmp(function, "naive_retention") == 0) add_retention(c);
    if (fla && strcmp(function, "naive_parallel_based") == 0) add_products(c, IN_Q, 1), add_products(c, IN_K, 1);
    if (fla && strcmp(function, "naive_parallel_rebased") == 0) add_products(c, IN_Q, 0), add_products(c, IN_K, 0);
    const view *q = &c->tensor[IN_Q], *k = &c->tensor[IN_K], *v = &c->tensor[IN_V];
    c->problem.shape = (attn_shape){q->size[0], q->size[1], k->size[1], q->size[2], k->size[2], q->size[3], v->size[3]};
    if (c->decays && c->tensor[IN_DECAY].size[3] > 1) c->problem.decay_kind = ATTN_DECAY_CHANNEL;
    return 1;
}

int linear_translate(evaluation *e, linear_case *c, const char *suite, const cJSON *json, const attn_archive *tensors)
{
    c->problem.struct_size = sizeof c->problem;
    c->rtol = tolerance_in(json, "rtol", "rel", 1e-5);
    c->atol = fmax(tolerance_in(json, "atol", "abs", 1e-6), 1e-6);
    for (int t = 0; t < ALL; t++)
        for (int i = 0; i < 4 && names[t][i]; i++)
            if (!view_present(&c->tensor[t])) c->tensor[t] = view_of(attn_archive_find(tensors, names[t][i]));
    return prepare(e, c, suite, json) && all_known(e, tensors) && attributes_known(e, json);
}
