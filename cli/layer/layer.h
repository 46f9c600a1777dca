/* SPDX-License-Identifier: MIT
 *
 * layer.h - shared by the files of `attn layer`: the tensors of a file as a layer of one of several kinds. */
#ifndef ATTN_CLI_LAYER_LAYER_H
#define ATTN_CLI_LAYER_LAYER_H

#include "attn/io.h"
#include "attn/latent.h"
#include "attn/layers.h"
#include "attn/seq2seq.h"
#include "testing/problem/problem.h"

enum { LAYER_IGNORED = 9, LAYER_INDICES = 4, LAYER_TELLS = 4 };

typedef struct layer_settings {
    const char *output, *weights_file, *prefix, *kind;
    int64_t heads, heads_kv, head_dim, head_dim_v;
    double rope_base; /* 0: 10000 */
    attn_rope_pairs rope_pairs;
    const char *rope_word;     /* the last of these flags that was given; NULL: none */
    int64_t decode, page_size; /* tokens of a step, 0: all at once; 0: contiguous */
    int weights, weights_mean, qkv, backward, compare;
    const char *ignored[LAYER_IGNORED]; /* tensors; NULL ends them */
    int ignored_count;
} layer_settings;

typedef struct layer_kind layer_kind;

typedef struct layer_work {
    const layer_settings *settings;
    attn_archive *file, *weights_file, *out;
    const attn_archive_tensor *x, *context;
    int64_t batch, len_q, len_kv;  /* of packed sequences: how many there are, and the longest */
    int64_t heads;                 /* of the weights */
    int64_t width;                 /* channels of y */
    int64_t extra;                 /* columns of weights_mean beyond the keys */
    int64_t *index[LAYER_INDICES]; /* lengths_q, lengths_kv, cu_seqlens_q, cu_seqlens_kv; NULL: the file has none */
    const attn_archive_tensor *index_from[LAYER_INDICES];
    attn_problem attention;
    attn_tensors tensors; /* of the attention */
    attn_call call;
    attn_options options;
    attn_rope rope;
    int rotates; /* tokens have positions */
    attn_layer_tensors args;
    attn_layer_counts counts;
    void *saved;

    const layer_kind *kind;
    attn_layer layer;
    attn_layer_weights weights, gradients;
    attn_latent latent;
    attn_latent_weights latent_weights, latent_gradients;
    attn_seq2seq module;
    attn_seq2seq_weights module_weights, module_gradients;
} layer_work;

/* The functions of libattn_layers for one kind of layer. */
struct layer_kind {
    const char *name;
    const char *tells[LAYER_TELLS]; /* a file with a weight of this name has such a layer; the first kind of the table wins */
    int has_heads, needs_context, takes_scores;                         /* scores: --score and --rel */
    attn_status (*load)(layer_work *w, int rotated, attn_error *error); /* sizes from flags and shapes; then the weights */
    attn_status (*count)(layer_work *w, int64_t batch, int64_t len_q, int64_t len_kv, attn_error *error);
    attn_status (*forward)(const layer_work *w, attn_error *error);
    attn_status (*add_gradients)(layer_work *w, attn_error *error);
    attn_status (*backward)(const layer_work *w, attn_error *error);
    void (*size_cache)(const layer_work *w, attn_cache *cache); /* heads_kv, dim_qk, dim_v */
    attn_status (*remember)(const layer_work *w, const attn_cache *cache, const attn_layer_tensors *args, attn_error *error);
    attn_status (*step)(const layer_work *w, const attn_cache *cache, const attn_layer_tensors *args, attn_error *error);
};

/* ---- kinds.c ---- */
extern const char layer_kind_names[]; /* "multi-head, latent, ..." */
const layer_kind *layer_kind_named(const char *name);
/* By the names of the weights. */
const layer_kind *layer_kind_of(const layer_work *w);

/* ---- input.c ---- */
attn_status layer_find_rows(const layer_work *w, const char *name, int rank, const attn_archive_tensor **t, attn_error *error);
/* x, context, and how long the sequences are. */
attn_status layer_find_sequences(layer_work *w, attn_error *error);
/* Builds the problem from the flags and the tensors of the options; the layer fills in its sizes. */
attn_status layer_find_options(layer_work *w, const problem_spec *given, attn_error *error);
/* The tensor of an option that the file has, by either of its names, and that is not ignored; NULL: there is none. */
const attn_archive_tensor *layer_find_option(const layer_work *w, int t);
static inline int64_t layer_width(const attn_archive_tensor *t) { return t->shape[t->rank - 1]; }

/* ---- output.c ---- */
attn_status layer_add(layer_work *w, const char *name, int rank, const int64_t *shape, void *to, attn_error *error);
/* Adds y and, if requested, the weights and the gradients. */
attn_status layer_add_outputs(layer_work *w, attn_error *error);

/* ---- qkv.c ---- */
attn_status layer_check_qkv(const layer_work *w, attn_error *error);
/* Adds q, k and v, as the attention of the layer reads them, and the tensors of its options. */
attn_status layer_add_qkv(layer_work *w, attn_error *error);

/* ---- decode.c ---- */
attn_status layer_check_decode(layer_work *w, attn_error *error);
attn_status layer_decode(layer_work *w, attn_error *error);

#endif
