/* SPDX-License-Identifier: MIT
 *
 * translate.h - from a case of a foreign suite to attention in the library's words.
 *
 * What a suite calls its tensors and attributes, and what it means by them, is said by an adapter: tables, and at most a function
 * for what a table cannot say (adapters.c).  A case is skipped, with the reason, where it has anything that no row names.
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
    ROLE_BIAS,   /* numbers, where there is a boolean mask beside them */
    ROLE_SLOPES, /* ALiBi: [head] or [batch, head] */
    ROLE_SINK,   /* [head] */
    ROLE_SCALES, /* [head] */
    ROLE_LENGTHS_Q,
    ROLE_LENGTHS_KV,
    ROLE_KEEP,    /* of dropout, drawn by someone else */
    ROLE_QV,      /* queries of the values: their products join the scores */
    ROLE_PADDING, /* which keys are real, in the shapes of onnxruntime; a finish function reads it */
    ROLE_ADDED,   /* [channel]: what is added to queries, keys and values; a finish function reads it */
    ROLE_SIZE,    /* a size that the tensors say too */
    ROLE_O,
    ROLE_LSE,
    ROLE_WEIGHTS,
    ROLE_PRESENT_K, /* past and K together */
    ROLE_PRESENT_V,
    ROLE_SCORES, /* what they are: `stage` */
    ROLE_FLOW,   /* ROLE_FLOW + TENSOR(grad_q) and so on: gradients, tangents and second gradients */
    CASE_ROLES = ROLE_FLOW + TENSORS
} case_role;

typedef enum case_layout { LAYOUT_BHSD, LAYOUT_BSHD, LAYOUT_CHANNELS /* [batch, token, head * channel] */ } case_layout;

/* A case on its way. */
typedef struct translation {
    const cJSON *json; /* of the manifest */
    view_pool *pool;
    view raw[CASE_ROLES]; /* as in the file */

    /* What the attributes say. */
    case_layout layout;
    int64_t heads_q, heads_kv; /* 0: not said */
    int has_scale;
    double scale, temperature, softcap; /* of the last two 0: none */
    int64_t chunk;
    int causal;
    attn_align align;
    int has_offset; /* 1: query 0 stands at `offset` */
    int64_t offset;
    int window;
    int64_t window_left, window_right;
    int alibi_from_last_key; /* lse counts ALiBi's distances from the last key */
    int scores_of_values;    /* ROLE_QV is meant to be there */
    attn_stage stage;        /* of ROLE_SCORES */
    double dropout;          /* the share that ROLE_KEEP was drawn with */
    int added_first;         /* keys and values had ROLE_ADDED: present ones were rounded once more */
    double filter;           /* what keys get that ROLE_PADDING drops */
    double value_factor;     /* weights are multiplied by it after the softmax; 0: they are not */
    int alibi_of_heads;      /* scores get slope (key - query), with the published slope of each head, */
    double bias_slope;       /* or with one for all */
    int64_t sink_tokens;     /* so many keys are seen from beyond the window's left end, too */
    attn_dtype rounded_to;   /* inputs are first rounded to this type */

    /* The result: rank 4 [batch, head, token, channel], [batch, head, query, key]; lse rank 3.  Without data: not there. */
    view q, k, v, mask, bias, keep, slopes, sink, scales, lengths_q, lengths_kv;
    view o, lse, weights, scores;
    view flow[TENSORS];
    char skip[200];  /* why the case cannot run */
    char wrong[200]; /* what is wrong with it */
} translation;

/* An attribute: says what it means, or why the case is skipped (skip_case). */
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
    void (*finish)(translation *t); /* after the tables, before the axes are put in order; NULL: nothing */
} adapter;

/* The adapter for a case, or NULL. */
const adapter *adapter_find(const char *suite, const char *op);
/* Why there is none: what the operation is, if it is no attention over dot products; else NULL. */
const char *adapter_missing(const char *suite, const char *op);
const adapter *adapter_find_ort(const char *suite, const char *op);
int adapter_matches(const adapter *rules, const char *suite, const char *op);

/* Fills the result, or skip, or wrong. */
void translate(translation *t, const adapter *rules, const cJSON *json, const attn_archive *tensors);

__attribute__((format(printf, 2, 3))) void skip_case(translation *t, const char *format, ...);
__attribute__((format(printf, 2, 3))) void fail_case(translation *t, const char *format, ...);

/* Skips the case: an attribute has a value that no rule knows. */
void unknown_value(translation *t, const param_rule *rule, const cJSON *value);

/* ---- meanings of attributes that suites share ---- */

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
/* Free text that may say that the inputs are rounded to f16 first. */
void param_note(translation *t, const param_rule *rule, const cJSON *value);

#endif
