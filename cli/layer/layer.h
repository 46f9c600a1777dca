/* SPDX-License-Identifier: MIT
 *
 * layer.h - shared by the files of `attn layer`: the tensors of a file as a layer of one of several kinds. */
#ifndef ATTN_CLI_LAYER_LAYER_H
#define ATTN_CLI_LAYER_LAYER_H

#include "attn/io.h"
#include "attn/latent.h"
#include "attn/layers.h"
#include "attn/seq2seq.h"
#include "cli/base/options.h"
#include "cli/input/difference.h"
#include "cli/input/keep.h"
#include "cli/input/named_masks.h"
#include "match.h"

enum { LAYER_IGNORED = 9, LAYER_INDICES = 4 };

typedef struct layer_settings {
    const char *output, *weights_file, *prefix, *names_file, *config, *kind, *tokens, *mask;
    int64_t layer; /* -1: none given */
    int64_t heads, heads_kv, head_dim, head_dim_v;
    double rope_base; /* 0: 10000 */
    attn_rope_pairs rope_pairs;
    int rope_pairs_given;
    int64_t rope_channels;     /* 0: not given */
    double norm_epsilon;       /* 0: not given */
    const char *rope_word;     /* the last of these flags that was given; NULL: none */
    int64_t decode, page_size; /* tokens of a step, 0: all at once; 0: contiguous */
    int weights, weights_mean, after_dropout, qkv, backward, compare, plain, norm, no_output, mask_drop;
    const char *ignored[LAYER_IGNORED]; /* tensors; NULL ends them */
    int ignored_count;
} layer_settings;

typedef struct layer_kind layer_kind;

/* What the file tells of the model that the layer belongs to; 0: nothing. */
typedef struct layer_model {
    family_model family; /* what is computed beside the weights; zeros with --plain */
    int64_t heads, heads_kv, head_dim, head_dim_v, rope_channels, max_distance;
    double rope_part, rope_base, rms_epsilon, layer_epsilon, scale;
    const char *scaling; /* of rotations: "linear"; NULL: none */
    double factor, original, low, high, fast, slow;
    int scaled_embeddings;
    char applied[200]; /* of all this, what was used: "causal, rope halves, base 10000" */
} layer_model;

/* Of a multi-head layer; from flags, metadata and shapes. */
typedef struct layer_sizes {
    int64_t heads, heads_kv, head_dim, head_dim_v;
} layer_sizes;

typedef struct layer_work {
    const layer_settings *settings;
    attn_archive *file, *weights_file, *out;
    attn_archive *own;       /* tensors that are made from those of the files, and the metadata of --config */
    attn_archive *converted; /* weights that the kind reads itself, in the type of x; NULL: none */
    layer_match match;
    layer_model model;
    layer_sizes sizes;
    const attn_archive_tensor *x, *context, *value; /* value: its own input, beside that of the keys, context */
    const attn_archive_tensor *table;               /* bias_table [heads, buckets] of the weights; NULL: none */
    double *frequencies;                            /* of the rope; NULL: by its base */
    void *normed[3];                                /* normalised x, and projected queries and keys */
    int64_t *ids, id_count;                         /* of --tokens */
    const attn_archive_tensor *embedding;           /* their table; NULL: no --tokens */
    int64_t batch, len_q, len_kv;                   /* of packed sequences: how many there are, and the longest */
    int64_t heads;                                  /* of the weights */
    int64_t width;                                  /* channels of y */
    int64_t extra;                                  /* columns of weights_mean beyond the keys */
    int64_t *index[LAYER_INDICES]; /* lengths_q, lengths_kv, cu_seqlens_q, cu_seqlens_kv; NULL: the file has none */
    const attn_archive_tensor *index_from[LAYER_INDICES];
    problem_spec spec; /* the options, with those that the model's family brings */
    attn_problem attention;
    attn_tensors tensors; /* of the attention */
    keep_mask keep;       /* the mask of the file */
    named_masks masks;    /* of --sparse */
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

/* ---- sizes.c ---- */
/* The file that has the weights. */
static inline const attn_archive *layer_weights_file(const layer_work *w) { return w->weights_file ? w->weights_file : w->file; }
/* Fills w->sizes; heads are 0 if nothing tells how many there are. */
attn_status layer_find_sizes(layer_work *w, const problem_spec *spec, attn_error *error);
/* The channels of y after the output projection. */
int64_t layer_output_width(const layer_work *w);
/* 1 if matrices are [in, out]. */
int layer_is_transposed(const layer_work *w);
/* The axis of the heads of a matrix with three axes; the other of the first two is that of the model, of an output the channels. */
int layer_head_axis(const layer_work *w, int to_model);
/* The table [buckets, heads] of biases by distance; T5 keeps that of a stack in its first block. */
const attn_archive_tensor *layer_table(const layer_work *w);

/* ---- weights.c ---- */
/* ATTN_ERR_SHAPE if the tensor has another shape. */
attn_status layer_check_weight(const attn_archive_tensor *t, int rank, const int64_t *shape, attn_error *error);
/* The numbers of a tensor in the type of x; only 16-bit ones are converted.  No NaN. */
attn_status layer_weight_numbers(const layer_work *w, const attn_archive_tensor *t, const char **data, attn_error *error);
/* Fills w->converted. */
attn_status layer_convert_weights(layer_work *w, attn_error *error);
/* Fills w->weights for w->layer. */
attn_status layer_bind_weights(layer_work *w, attn_error *error);
/* Fills w->table. */
attn_status layer_place_table(layer_work *w, attn_error *error);

/* ---- module.c ---- */
/* Fills the sizes of w->module and w->module_weights from weights that are not under the module's own names. */
attn_status layer_bind_module(layer_work *w, attn_error *error);

/* ---- model.c ---- */
/* Fills w->model. */
attn_status layer_read_model(layer_work *w, attn_error *error);
/* Adds to the flags what the model computes beside its weights. */
attn_status layer_apply_model(layer_work *w, problem_spec *spec, attn_error *error);

/* ---- rotation.c ---- */
/* The part of it that fills w->rope. */
attn_status layer_apply_rope(layer_work *w, problem_spec *spec, attn_error *error);

/* ---- norm.c ---- */
/* With --norm, x becomes the normalised x. */
attn_status layer_norm_input(layer_work *w, attn_error *error);
/* Norms of projected queries and keys, if the layer has them: projects them here, and the layer no more. */
attn_status layer_norm_heads(layer_work *w, attn_error *error);

/* ---- tokens.c ---- */
extern const char layer_x_of_tokens[]; /* what x is with --tokens */
/* Makes x from --tokens. */
attn_status layer_embed_tokens(layer_work *w, attn_error *error);
/* Adds their words, and what x is, to the output's metadata. */
attn_status layer_name_tokens(const layer_work *w, attn_error *error);

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
/* ---- report.c ---- */
/* Adds to the list of what is computed beside the weights. */
void layer_tell(layer_work *w, const char *what);
/* The JSON of --json, and the lines on a terminal; differences are those of --compare. */
char *layer_compose(const layer_work *w, const char *path, double seconds, const difference *list, int count);
void layer_print(const layer_work *w, const char *path, double seconds, const difference *list, int count,
                 const common_settings *common);

/* ---- decode.c ---- */
attn_status layer_check_decode(layer_work *w, attn_error *error);
attn_status layer_decode(layer_work *w, attn_error *error);

#endif
