/* SPDX-License-Identifier: MIT
 *
 * weights.c - see weights.h. */
#include "weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(attn_error *error, attn_status status, const char *what, const char *name)
{
    error->status = status;
    (void)snprintf(error->message, sizeof error->message, "%s: %s", name, what);
    return 0;
}

/* A number of the metadata.  0 if there is none and `otherwise` is 0, or if it is not from `least` on. */
static int number(const weights *w, const char *key, double least, double otherwise, double *value, attn_error *error)
{
    const char *text = attn_archive_get_metadata(w->file, key);
    char *end = NULL;
    *value = text ? strtod(text, &end) : otherwise;
    if (!text && otherwise == 0) return fail(error, ATTN_ERR_FORMAT, "the file's metadata lacks this", key);
    if ((text && (end == text || *end)) || !(*value >= least && *value <= 1e9))
        return fail(error, ATTN_ERR_FORMAT, "a number that no model has", key);
    return 1;
}

static int size(const weights *w, const char *key, double otherwise, int64_t *value, attn_error *error)
{
    double real;
    if (!number(w, key, 1, otherwise, &real, error)) return 0;
    *value = (int64_t)real;
    return 1;
}

static int read_sizes(weights *w, attn_error *error)
{
    const char *kind = attn_archive_get_metadata(w->file, "general.architecture");
    if (!kind || strcmp(kind, "llama") != 0) return fail(error, ATTN_ERR_UNSUPPORTED, "is not llama", "general.architecture");
    if (attn_archive_get_metadata(w->file, "llama.rope.scaling.type"))
        return fail(error, ATTN_ERR_UNSUPPORTED, "rotations with a scaling are not read", "llama.rope.scaling.type");
    if (attn_archive_find(w->file, "rope_freqs.weight"))
        return fail(error, ATTN_ERR_UNSUPPORTED, "rotations with a scaling are not read", "rope_freqs.weight");
    if (!size(w, "llama.block_count", 0, &w->layers, error) || !size(w, "llama.embedding_length", 0, &w->width, error) ||
        !size(w, "llama.feed_forward_length", 0, &w->hidden, error) ||
        !size(w, "llama.attention.head_count", 0, &w->heads, error) ||
        !size(w, "llama.attention.head_count_kv", (double)w->heads, &w->heads_kv, error) ||
        !size(w, "llama.context_length", 0, &w->context, error) ||
        !number(w, "llama.attention.layer_norm_rms_epsilon", 0, 0, &w->epsilon, error) ||
        !number(w, "llama.rope.freq_base", 1, 10000, &w->base, error))
        return 0;
    if (w->width % w->heads || w->heads % w->heads_kv)
        return fail(error, ATTN_ERR_FORMAT, "does not divide the width, or is no multiple of that of keys",
                    "llama.attention.head_count");
    w->dim = w->width / w->heads;
    if (!size(w, "llama.rope.dimension_count", (double)w->dim, &w->rotated, error)) return 0;
    if (w->rotated > w->dim || w->rotated % 2)
        return fail(error, ATTN_ERR_FORMAT, "is odd or above the channels of a head", "llama.rope.dimension_count");
    return 1;
}

/* A weight as f32 [rows][columns], or [columns] with rows 0. */
static const float *weight(weights *w, const char *name, int64_t rows, int64_t columns, attn_error *error)
{
    char copy_name[96];
    void *copy;
    const attn_archive_tensor *t = attn_archive_find(w->file, name);
    if (!t) return fail(error, ATTN_ERR_FORMAT, "the file lacks this tensor", name), NULL;
    if (t->rank != 1 + (rows > 0) || t->shape[t->rank - 1] != columns || (rows && t->shape[0] != rows))
        return fail(error, ATTN_ERR_SHAPE, "has another shape than the file's metadata says", name), NULL;
    if (t->dtype == ATTN_F32) return t->data;
    (void)snprintf(copy_name, sizeof copy_name, "%s in f32", name);
    if (attn_archive_allocate(w->file, copy_name, ATTN_F32, t->rank, t->shape, &copy, error) != ATTN_OK ||
        attn_convert((rows ? rows : 1) * columns, t->data, t->dtype, copy, ATTN_F32, error) != ATTN_OK)
        return NULL;
    return copy;
}

/*
 * A matrix [out][in] of the file as [in][out]: products of few rows then read it in the order in which it lies in memory, which
 * takes 0.6 of the time, and sum in the same order as products of many.  The original is dropped unless `kept`.
 */
static const float *matrix(weights *w, const char *name, int64_t out, int64_t in, int kept, attn_error *error)
{
    enum { BLOCK = 16 };
    char own_name[96];
    void *data;
    const float *from = weight(w, name, out, in, error);
    const int64_t shape[2] = {in, out};
    (void)snprintf(own_name, sizeof own_name, "%s transposed", name);
    if (!from || attn_archive_allocate(w->file, own_name, ATTN_F32, 2, shape, &data, error) != ATTN_OK) return NULL;
    float *to = data;
    for (int64_t i = 0; i < in; i += BLOCK)
        for (int64_t o = 0; o < out; o++)
            for (int64_t k = i; k < in && k < i + BLOCK; k++) to[k * out + o] = from[o * in + k];
    if (!kept && attn_archive_remove(w->file, name, error) != ATTN_OK) return NULL;
    return to;
}

static int read_layer(weights *w, int64_t number, attn_error *error)
{
    layer_weights *l = &w->layer[number];
    const int64_t keys = w->heads_kv * w->dim, E = w->width, F = w->hidden;
    const struct {
        const char *name;
        int64_t rows, columns;
        const float **to;
    } all[] = {{"attn_norm", 0, E, &l->norm},  {"attn_q", E, E, &l->query},       {"attn_k", keys, E, &l->key},
               {"attn_v", keys, E, &l->value}, {"attn_output", E, E, &l->output}, {"ffn_norm", 0, E, &l->norm_hidden},
               {"ffn_gate", F, E, &l->gate},   {"ffn_up", F, E, &l->up},          {"ffn_down", E, F, &l->down}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "blk.%lld.%s.weight", (long long)number, all[i].name);
        *all[i].to =
            all[i].rows ? matrix(w, name, all[i].rows, all[i].columns, 0, error) : weight(w, name, 0, all[i].columns, error);
        if (!*all[i].to) return 0;
    }
    return 1;
}

int weights_open(weights *w, const char *path, attn_error *error)
{
    *w = (weights){0};
    if (attn_archive_map(&w->file, path, error) != ATTN_OK || !read_sizes(w, error)) return 0;
    const attn_archive_tensor *words = attn_archive_find(w->file, "token_embd.weight");
    if (!words || words->rank != 2) return fail(error, ATTN_ERR_FORMAT, "the file lacks this tensor", "token_embd.weight");
    w->words = words->shape[0];
    w->embedding = weight(w, "token_embd.weight", w->words, w->width, error);
    w->norm = w->embedding ? weight(w, "output_norm.weight", 0, w->width, error) : NULL;
    const int own = attn_archive_find(w->file, "output.weight") != NULL; /* else the embeddings serve for both */
    w->logits = w->norm ? matrix(w, own ? "output.weight" : "token_embd.weight", w->words, w->width, !own, error) : NULL;
    w->layer = calloc((size_t)w->layers, sizeof *w->layer);
    if (!w->norm || !w->logits) return 0;
    if (!w->layer) return fail(error, ATTN_ERR_MEMORY, "cannot allocate memory", path);
    for (int64_t i = 0; i < w->layers; i++)
        if (!read_layer(w, i, error)) return 0;
    return 1;
}

void weights_close(weights *w)
{
    attn_archive_destroy(w->file);
    free(w->layer);
    *w = (weights){0};
}
