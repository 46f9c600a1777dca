/* SPDX-License-Identifier: MIT
 * params.c - the meaning of the attributes of foreign cases. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "translate.h"

void skip_case(translation *t, const char *format, ...)
{
    va_list list;
    if (t->skip[0]) return; /* the first reason stays */
    va_start(list, format);
    vsnprintf(t->skip, sizeof t->skip, format, list);
    va_end(list);
}

void fail_case(translation *t, const char *format, ...)
{
    va_list list;
    if (t->wrong[0]) return;
    va_start(list, format);
    vsnprintf(t->wrong, sizeof t->wrong, format, list);
    va_end(list);
}

void unknown_value(translation *t, const param_rule *rule, const cJSON *value)
{
    char *text = cJSON_PrintUnformatted(value);
    skip_case(t, "%s %.100s is not known", rule->name, text ? text : "");
    cJSON_free(text);
}

static const char *text_of(const cJSON *value) { return cJSON_IsString(value) ? value->valuestring : NULL; }
static int starts(const char *text, const char *with) { return text && strncmp(text, with, strlen(with)) == 0; }

void param_ignore(translation *t, const param_rule *rule, const cJSON *value) { (void)t, (void)rule, (void)value; }

void param_scale(translation *t, const param_rule *rule, const cJSON *value)
{
    const char *text = text_of(value);
    double width;
    char end;
    if (cJSON_IsNull(value) || (text && strcmp(text, "1/sqrt(D)") == 0)) return;
    if (cJSON_IsNumber(value)) t->has_scale = 1, t->scale = value->valuedouble;
    else if (text && sscanf(text, "1/sqrt(%lf%c", &width, &end) == 2 && end == ')' && width > 0)
        t->has_scale = 1, t->scale = 1 / sqrt(width);
    else if (starts(text, "in.")) return; /* a tensor, which has a row of its own */
    else unknown_value(t, rule, value);
}

void param_temperature(translation *t, const param_rule *rule, const cJSON *value)
{
    if (cJSON_IsNull(value)) return;
    if (cJSON_IsNumber(value) && value->valuedouble > 0) t->temperature = value->valuedouble;
    else unknown_value(t, rule, value);
}

void param_softcap(translation *t, const param_rule *rule, const cJSON *value)
{
    if (cJSON_IsNull(value)) return;
    if (cJSON_IsNumber(value) && value->valuedouble >= 0) t->softcap = value->valuedouble;
    else unknown_value(t, rule, value);
}

void param_dropout(translation *t, const param_rule *rule, const cJSON *value)
{
    if (cJSON_IsNull(value)) return;
    if (cJSON_IsNumber(value) && value->valuedouble >= 0 && value->valuedouble < 1) t->dropout = value->valuedouble;
    else unknown_value(t, rule, value);
}

void param_chunk(translation *t, const param_rule *rule, const cJSON *value)
{
    if (cJSON_IsNull(value)) return;
    if (cJSON_IsNumber(value) && value->valuedouble >= 0) t->chunk = (int64_t)value->valuedouble;
    else unknown_value(t, rule, value);
}

void param_causal(translation *t, const param_rule *rule, const cJSON *value)
{
    const char *text = text_of(value);
    if (cJSON_IsBool(value) || cJSON_IsNumber(value)) {
        t->causal = cJSON_IsTrue(value) || (cJSON_IsNumber(value) && value->valuedouble != 0);
    } else if (text && strcmp(text, "top_left") == 0) {
        t->causal = 1;
    } else if (text && strcmp(text, "bottom_right") == 0) {
        t->causal = 1;
        t->align = ATTN_ALIGN_BOTTOM_RIGHT;
    } else if (!cJSON_IsNull(value) && !(text && strcmp(text, "none") == 0)) {
        unknown_value(t, rule, value);
    }
}

void param_alignment(translation *t, const param_rule *rule, const cJSON *value)
{
    if (starts(text_of(value), "bottom-right")) t->align = ATTN_ALIGN_BOTTOM_RIGHT;
    else if (starts(text_of(value), "top-left")) t->align = ATTN_ALIGN_TOP_LEFT;
    else unknown_value(t, rule, value);
}

void param_offset(translation *t, const param_rule *rule, const cJSON *value)
{
    if (!cJSON_IsNumber(value)) {
        unknown_value(t, rule, value);
        return;
    }
    t->has_offset = 1;
    t->offset = (int64_t)value->valuedouble;
}

void param_window(translation *t, const param_rule *rule, const cJSON *value)
{
    int64_t bound[2];
    if (cJSON_IsNull(value)) return;
    if (!cJSON_IsArray(value) || cJSON_GetArraySize(value) != 2) {
        unknown_value(t, rule, value);
        return;
    }
    for (int side = 0; side < 2; side++) {
        const cJSON *item = cJSON_GetArrayItem(value, side);
        bound[side] = cJSON_IsNumber(item) && item->valuedouble >= 0 ? (int64_t)item->valuedouble : -1;
    }
    t->window = bound[0] >= 0 || bound[1] >= 0;
    t->window_left = bound[0];
    t->window_right = bound[1];
}

void param_layout(translation *t, const param_rule *rule, const cJSON *value)
{
    static const struct {
        const char *begins;
        case_layout layout;
    } known[] = {{"(B,H,S,D)", LAYOUT_BHSD},
                 {"(B,H,T,D)", LAYOUT_BHSD},
                 {"BHSD", LAYOUT_BHSD},
                 {"(...,heads,seq,dim)", LAYOUT_BHSD},
                 {"(B,S,H,D)", LAYOUT_BSHD},
                 {"(B,T,H,D)", LAYOUT_BSHD},
                 {"(batch,seq,heads,dim)", LAYOUT_BSHD},
                 {"BSHD", LAYOUT_BSHD},
                 {"(seq, heads*dim)", LAYOUT_CHANNELS},
                 {"(batch, seq, heads*dim)", LAYOUT_CHANNELS}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (starts(text_of(value), known[i].begins)) {
            t->layout = known[i].layout;
            return;
        }
    unknown_value(t, rule, value);
}

void param_heads_q(translation *t, const param_rule *rule, const cJSON *value)
{
    if (cJSON_IsNumber(value) && value->valuedouble >= 1) t->heads_q = (int64_t)value->valuedouble;
    else unknown_value(t, rule, value);
}

void param_heads_kv(translation *t, const param_rule *rule, const cJSON *value)
{
    if (cJSON_IsNumber(value) && value->valuedouble >= 1) t->heads_kv = (int64_t)value->valuedouble;
    else unknown_value(t, rule, value);
}

void param_heads(translation *t, const param_rule *rule, const cJSON *value)
{
    param_heads_q(t, rule, value);
    param_heads_kv(t, rule, value);
}

void param_note(translation *t, const param_rule *rule, const cJSON *value)
{
    (void)rule;
    const char *text = text_of(value);
    if (text && strstr(text, "cast to float16")) t->rounded_to = ATTN_F16;
    if (text && strstr(text, "cast to bfloat16")) t->rounded_to = ATTN_BF16;
}
