/* SPDX-License-Identifier: MIT
 *
 * translate.h - translates a case of a foreign suite to a libattn problem.
 *
 * An adapter (adapters.c) defines the names of a suite's tensors and attributes and their meaning: tables, plus at most one
 * function for what tables cannot express.  A case with anything that no row names is skipped, with the reason.
 */
#ifndef ATTN_TESTING_CONFORMANCE_TRANSLATE_H
#define ATTN_TESTING_CONFORMANCE_TRANSLATE_H

#include <cjson/cJSON.h>

#include "testing/bound/flow.h"
#include "view.h"

typedef enum case_role {
    ROLE_Q,
    ROLE_K,
    ROLE_V,
    ROLE_PAST_K, /* keys and values that come before K and V */
    ROLE_PAST_V,
    ROLE_MASK,   /* boolean: 1 = keep; numbers: added */
    ROLE_BIAS,   /* numbers, in addition to a boolean mask */
    ROLE_SLOPES, /* ALiBi: [head] or [batch, head] */
    ROLE_SINK,   /* [head] */
    ROLE_SCALES, /* [head] */
    ROLE_LENGTHS_Q,
    ROLE_LENGTHS_KV,
    ROLE_KEEP,    /* the dropout mask, drawn by the suite */
    ROLE_QV,      /* queries for the values: their products are added to the scores */
    ROLE_PADDING, /* which keys are real, in the shapes of onnxruntime; read by a finish function */
    ROLE_ADDED,   /* [channel]: added to queries, keys and values; read by a finish function */
    ROLE_SIZE,    /* a size that follows from the tensors */
    ROLE_O,
    ROLE_LSE,
    ROLE_WEIGHTS,
    ROLE_PRESENT_K, /* past and K joined */
    ROLE_PRESENT_V,
    ROLE_SCORES, /* of the stage `stage` */
    ROLE_FLOW,   /* ROLE_FLOW + TENSOR(grad_q) and so on: gradients, tangents and double backward */
    CASE_ROLES = ROLE_FLOW + TENSORS
} case_role;

typedef enum case_layout { LAYOUT_BHSD, LAYOUT_BSHD, LAYOUT_CHANNELS /* [batch, token, head * channel] */ } case_layout;

/* A case during translation. */
typedef struct translation {
    const cJSON *json; /* of the manifest */
    view_pool *pool;
    view raw[CASE_ROLES]; /* as in the file */

    /* From the attributes. */
    case_layout layout;
    int64_t heads_q, heads_kv; /* 0: not specified */
    int has_scale;
    double scale, temperature, softcap; /* temperature, softcap 0: none */
    int64_t chunk;
    int causal;
    attn_align align;
    int has_offset; /* 1: query 0 is at position `offset` */
    int64_t offset;
    int window;
    int64_t window_left, window_right;
    int alibi_from_last_key; /* 1: lse has ALiBi distances counted from the last key */
    int scores_of_values;    /* 1: ROLE_QV is expected */
    attn_stage stage;        /* of ROLE_SCORES */
    double dropout;          /* the dropout probability of ROLE_KEEP */
    int added_first;         /* 1: ROLE_ADDED was added to keys and values, so present ones were rounded once more */
    double filter;           /* the score of keys that ROLE_PADDING drops */
    double value_factor;     /* a factor of the weights after the softmax; 0: none */
    int alibi_of_heads;      /* 1: slope (key - query) is added to scores, with the published slope of each head; */
    double bias_slope;       /* or, if not 0, with this slope for all */
    int64_t sink_tokens;     /* the first keys that stay visible beyond the window's left bound */
    attn_dtype rounded_to;   /* inputs are first rounded to this type */

    /* The result: rank 4 [batch, head, token, channel], [batch, head, query, key]; lse rank 3.  Without data: absent. */
    view q, k, v, mask, bias, keep, slopes, sink, scales, lengths_q, lengths_kv;
    view o, lse, weights, scores;
    view flow[TENSORS];
    char skip[200];  /* why the case cannot run */
    char wrong[200]; /* what is wrong with it */
} translation;

/* An attribute: `apply` stores its meaning, or skips the case (skip_case). */
typedef struct param_rule {
    const char *name;
    void (*apply)(translation *t, const struct param_rule *rule, const cJSON *value);
} param_rule;

typedef struct tensor_rule {
    const char *name; /* "in.query" */
    case_role role;
} tensor_rule;

typedef struct adapter {
    const char *suite;
    const char *op; /* a trailing * matches any end */
    const param_rule *params;
    const tensor_rule *tensors;
    void (*finish)(translation *t); /* called after the tables, before axes are reordered; may be NULL */
} adapter;

/* The adapter for a case, or NULL. */
const adapter *adapter_find(const char *suite, const char *op);
/* Why there is none: what the operation is, if not attention over dot products; else NULL. */
const char *adapter_missing(const char *suite, const char *op);
const adapter *adapter_find_ort(const char *suite, const char *op);
int adapter_matches(const adapter *rules, const char *suite, const char *op);

/* Fills in the result, or skip, or wrong. */
void translate(translation *t, const adapter *rules, const cJSON *json, const attn_archive *tensors);

__attribute__((format(printf, 2, 3))) void skip_case(translation *t, const char *format, ...);
__attribute__((format(printf, 2, 3))) void fail_case(translation *t, const char *format, ...);

/* Skips the case because of an unknown value of an attribute. */
void unknown_value(translation *t, const param_rule *rule, const cJSON *value);

/* ---- attributes that several suites have ---- */

void param_ignore(translation *t, const param_rule *rule, const cJSON *value);
void param_scale(translation *t, const param_rule *rule, const cJSON *value); /* null, 0.5, "1/sqrt(D)", "1/sqrt(2)" */
void param_temperature(translation *t, const param_rule *rule, const cJSON *value);
void param_softcap(translation *t, const param_rule *rule, const cJSON *value);
void param_dropout(translation *t, const param_rule *rule, const cJSON *value);
void param_chunk(translation *t, const param_rule *rule, const cJSON *value);
void param_causal(translation *t, const param_rule *rule, const cJSON *value);    /* true, 1, "top_left", "bottom_right", "none" */
void param_alignment(translation *t, const param_rule *rule, const cJSON *value); /* "bottom-right: ...", "top-left (torch)" */
void param_offset(translation *t, const param_rule *rule, const cJSON *value);
void param_window(translation *t, const param_rule *rule, const cJSON *value); /* [left, right], null = no bound */
void param_layout(translation *t, const param_rule *rule, const cJSON *value);
void param_heads(translation *t, const param_rule *rule, const cJSON *value);
void param_heads_q(translation *t, const param_rule *rule, const cJSON *value);
void param_heads_kv(translation *t, const param_rule *rule, const cJSON *value);
/* Free text that may state that inputs are first rounded to f16 or bf16. */
void param_note(translation *t, const param_rule *rule, const cJSON *value);

#endif
