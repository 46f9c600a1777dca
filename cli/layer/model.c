/* SPDX-License-Identifier: MIT
 *
 * model.c - what a model computes beside its weights: numbers from the metadata of a file or from a config.json, and the rotation,
 * mask and scale that come with a family of names. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layer.h"
#include "testing/problem/tensors.h"
#include "testing/text/failure.h"
#include "testing/text/json.h"
#include "text_file.h"

/* ---- numbers ---- */

/* Keys of a number, in order; '%' is the architecture of a .gguf file. */
enum {
    HEADS,
    HEADS_KV,
    HEAD_DIM,
    HEAD_DIM_V,
    ROPE_CHANNELS,
    ROPE_PART,
    ROPE_BASE,
    NORM_RMS,
    NORM_LAYER,
    SCALE,
    DISTANCE,
    FACTOR,
    ORIGINAL,
    LOW,
    HIGH,
    FAST,
    SLOW,
    KEYS
};
static const char *const keys[KEYS][7] = {
    [HEADS] = {"%.attention.head_count", "num_attention_heads", "n_head", "num_heads", "n_heads", "encoder_attention_heads",
               "heads"},
    [HEADS_KV] = {"%.attention.head_count_kv", "num_key_value_heads", "n_kv_heads", "num_kv_heads", "heads_kv"},
    [HEAD_DIM] = {"%.attention.key_length", "head_dim", "d_kv"},
    [HEAD_DIM_V] = {"%.attention.value_length"},
    [ROPE_CHANNELS] = {"%.rope.dimension_count", "rotary_dim"},
    [ROPE_PART] = {"partial_rotary_factor", "rotary_pct"},
    [ROPE_BASE] = {"%.rope.freq_base", "rope_theta", "rotary_emb_base", "rope_base"},
    [NORM_RMS] = {"%.attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    [NORM_LAYER] = {"%.attention.layer_norm_epsilon", "layer_norm_epsilon", "layer_norm_eps"},
    [SCALE] = {"%.attention.scale"},
    [DISTANCE] = {"relative_attention_max_distance"},
    [FACTOR] = {"%.rope.scaling.factor", "factor"},
    [ORIGINAL] = {"original_max_position_embeddings"},
    [LOW] = {"low_freq_factor"},
    [HIGH] = {"high_freq_factor"},
    [FAST] = {"beta_fast"},
    [SLOW] = {"beta_slow"},
};

static const char *text_of(const layer_work *w, const char *key)
{
    const char *architecture = attn_archive_get_metadata(layer_weights_file(w), "general.architecture"), *text;
    char name[120];
    if (*key == '%' && !architecture) return NULL;
    if (*key == '%') (void)snprintf(name, sizeof name, "%.60s%s", architecture, key + 1);
    else (void)snprintf(name, sizeof name, "%s", key);
    text = attn_archive_get_metadata(w->own, name); /* of --config */
    return text ? text : attn_archive_get_metadata(layer_weights_file(w), name);
}

/* The layer's item of a list, or the text itself.  Some models have other heads in each layer. */
static double real_of(const layer_work *w, const char *text)
{
    const char *at = text;
    const int64_t layer = w->settings->layer >= 0 ? w->settings->layer : 0;
    for (int64_t k = 0; *text == '[' && k < layer && at; k++) at = strchr(at + 1, ',');
    char *end;
    if (!at) return NAN;
    at += *text == '[';
    const double value = strtod(at, &end);
    return end == at ? NAN : value;
}

/* 0: the file does not say. */
static attn_status number(const layer_work *w, int which, double *value, attn_error *error)
{
    *value = 0;
    for (size_t n = 0; n < sizeof keys[0] / sizeof *keys[0] && keys[which][n]; n++) {
        const char *text = text_of(w, keys[which][n]);
        if (!text || strcmp(text, "null") == 0) continue;
        *value = real_of(w, text);
        if (*value > 0 && *value < 1e9) return ATTN_OK;
        return failure(error, ATTN_ERR_FORMAT, "metadata '%s' is '%.40s', which no layer has", keys[which][n], text);
    }
    return ATTN_OK;
}

static attn_status integer(const layer_work *w, int which, int64_t *value, attn_error *error)
{
    double real;
    const attn_status status = number(w, which, &real, error);
    *value = (int64_t)real;
    if (status == ATTN_OK && (double)*value != real)
        return failure(error, ATTN_ERR_FORMAT, "metadata '%s' is %g, not an integer", keys[which][0], real);
    return status;
}

/* ---- config.json ---- */

/* Members of these objects count as those of the whole. */
static int is_part(const char *name)
{
    return strcmp(name, "rope_parameters") == 0 || strcmp(name, "rope_scaling") == 0 || strcmp(name, "text_config") == 0;
}

static attn_status add_members(layer_work *w, const cJSON *object, attn_error *error)
{
    attn_status status = ATTN_OK;
    for (const cJSON *item = object->child; item && status == ATTN_OK; item = item->next) {
        /* older files name the kind of a scaling so */
        const char *name = object->string && strcmp(object->string, "rope_scaling") == 0 && strcmp(item->string, "type") == 0
                               ? "rope_type"
                               : item->string;
        if (cJSON_IsObject(item) && is_part(name)) status = add_members(w, item, error);
        else if (cJSON_IsString(item)) status = attn_archive_set_metadata(w->own, name, item->valuestring, error);
        else if (cJSON_IsNumber(item)) {
            char text[40];
            (void)snprintf(text, sizeof text, "%.17g", item->valuedouble);
            status = attn_archive_set_metadata(w->own, name, text, error);
        }
    }
    return status;
}

static attn_status read_config(layer_work *w, const char *path, attn_error *error)
{
    char *text = NULL;
    attn_status status = text_file_read(path, &text, error);
    if (status != ATTN_OK) return status;
    json_need_memory();
    cJSON *json = cJSON_Parse(text);
    free(text);
    status = cJSON_IsObject(json) ? add_members(w, json, error)
                                  : failure(error, ATTN_ERR_FORMAT, "%.150s: expected a JSON object, such as a config.json", path);
    cJSON_Delete(json);
    return status;
}

/* ---- .gguf ---- */

/* llama.cpp's conversion permutes the queries and keys of some architectures, so that neighbours are rotated together
 * (src/llama-model.cpp, llama_model_rope_type). */
static const struct {
    const char *name;
    family_model model;
} architectures[] = {
    {"llama", {.rope = FAMILY_INTERLEAVED, .causal = 1}},
    {"command-r", {.rope = FAMILY_INTERLEAVED, .causal = 1}},
    {"granite", {.rope = FAMILY_INTERLEAVED, .causal = 1}},
    {"internlm2", {.rope = FAMILY_INTERLEAVED, .causal = 1}},
    {"exaone", {.rope = FAMILY_HALVES, .causal = 1}},
    {"falcon", {.rope = FAMILY_HALVES, .causal = 1}},
    {"gemma", {.rope = FAMILY_HALVES, .causal = 1}},
    {"gptneox", {.rope = FAMILY_HALVES, .causal = 1}},
    {"nemotron", {.rope = FAMILY_HALVES, .causal = 1}},
    {"phi2", {.rope = FAMILY_HALVES, .causal = 1}},
    {"qwen2", {.rope = FAMILY_HALVES, .causal = 1}},
    {"qwen3", {.rope = FAMILY_HALVES, .causal = 1}},
    {"stablelm", {.rope = FAMILY_HALVES, .causal = 1}},
    {"starcoder2", {.rope = FAMILY_HALVES, .causal = 1}},
    {"gpt2", {.causal = 1}},
    {"starcoder", {.causal = 1}},
    {"bert", {0}},
};
enum { ARCHITECTURES = sizeof architectures / sizeof *architectures };

static attn_status read_architecture(layer_work *w, attn_error *error)
{
    const char *name = attn_archive_get_metadata(layer_weights_file(w), "general.architecture");
    char known[150] = "";
    if (!name || w->settings->plain) return ATTN_OK;
    for (int n = 0; n < ARCHITECTURES; n++) {
        if (strcmp(name, architectures[n].name) == 0) {
            w->model.family = architectures[n].model;
            w->model.scaled_embeddings = strcmp(name, "gemma") == 0;
            return ATTN_OK;
        }
        const size_t used = strlen(known);
        (void)snprintf(known + used, sizeof known - used, "%s%s", n ? " " : "", architectures[n].name);
    }
    return failure(error, ATTN_ERR_UNSUPPORTED,
                   "the attention of architecture '%.20s' is not known (%s); --plain takes its weights alone", name, known);
}

/* ---- together ---- */

attn_status layer_read_model(layer_work *w, attn_error *error)
{
    layer_model *m = &w->model;
    double part = 0;
    attn_status status = w->settings->config ? read_config(w, w->settings->config, error) : ATTN_OK;
    if (status == ATTN_OK && w->match.family && !w->settings->plain) m->family = w->match.family->model;
    if (status == ATTN_OK) status = read_architecture(w, error);
    int64_t *const integers[] = {&m->heads, &m->heads_kv, &m->head_dim, &m->head_dim_v, &m->rope_channels};
    for (int n = 0; n < (int)(sizeof integers / sizeof *integers) && status == ATTN_OK; n++)
        status = integer(w, n, integers[n], error);
    if (status == ATTN_OK) status = number(w, ROPE_PART, &part, error);
    if (status == ATTN_OK) status = number(w, ROPE_BASE, &m->rope_base, error);
    if (status == ATTN_OK) status = number(w, NORM_RMS, &m->rms_epsilon, error);
    if (status == ATTN_OK) status = number(w, NORM_LAYER, &m->layer_epsilon, error);
    if (status == ATTN_OK) status = number(w, SCALE, &m->scale, error);
    if (status == ATTN_OK) status = integer(w, DISTANCE, &m->max_distance, error);
    m->scaling = text_of(w, "%.rope.scaling.type");
    if (!m->scaling) m->scaling = text_of(w, "rope_type");
    double *const scalings[] = {&m->factor, &m->original, &m->low, &m->high, &m->fast, &m->slow};
    for (int n = 0; n < (int)(sizeof scalings / sizeof *scalings) && status == ATTN_OK; n++)
        status = number(w, FACTOR + n, scalings[n], error);
    m->rope_part = part;
    return status;
}

attn_status layer_apply_model(layer_work *w, problem_spec *spec, attn_error *error)
{
    layer_model *m = &w->model;
    const family_model *f = &m->family;
    const layer_settings *s = w->settings;
    const int has_scale = layer_find_option(w, TENSOR(scale)) != NULL;
    const attn_archive_tensor *beyond = family_find(layer_weights_file(w), w->match.root, family_beyond);
    char text[120];
    if (!w->kind->takes_scores) return ATTN_OK;
    if (beyond && !s->plain)
        return failure(error, ATTN_ERR_UNSUPPORTED,
                       "tensor '%.120s' is a part of the layer that is not computed; --plain leaves it out", beyond->name);
    if (f->causal && !w->context && !spec->causal) {
        spec->causal = SPEC_CAUSAL_TOP_LEFT;
        layer_tell(w, "causal");
    }
    if (!spec->has_scale && !has_scale && (f->unscaled || (m->scale > 0 && !s->plain))) {
        spec->has_scale = 1;
        spec->scale = f->unscaled ? 1 : m->scale;
        (void)snprintf(text, sizeof text, "scale %g", spec->scale);
        layer_tell(w, text);
    }
    if (f->t5 && w->table && !w->context && !spec->t5 && !spec->clipped) {
        const int decoder = strstr(w->match.root, "decoder") != NULL;
        spec->t5 = decoder ? SPEC_T5_CAUSAL : SPEC_T5_BOTH;
        spec->t5_buckets = w->table->shape[1];
        spec->t5_distance = m->max_distance ? m->max_distance : 128;
        if (decoder && !spec->causal) spec->causal = SPEC_CAUSAL_TOP_LEFT;
        (void)snprintf(text, sizeof text, "%sbuckets of T5 up to distance %" PRId64, decoder ? "causal, " : "", spec->t5_distance);
        layer_tell(w, text);
    }
    return layer_apply_rope(w, spec, error);
}
