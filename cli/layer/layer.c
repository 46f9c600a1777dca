/* SPDX-License-Identifier: MIT
 *
 * layer.c - `attn layer`: an attention layer with the weights of a file, forward, backward and token by token. */
#include "layer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/commands.h"
#include "cli/base/file.h"
#include "cli/base/options.h"
#include "cli/base/progress.h"
#include "cli/base/tensor_file.h"
#include "cli/input/difference.h"
#include "cli/input/roles.h"
#include "testing/problem/tensors.h"
#include "testing/text/failure.h"

static const command_usage usage = {
    .name = "layer",
    .synopsis = "IN -o OUT [--heads=N] [options]",
    .summary = "Runs an attention layer: the input x of IN ([token, channel] or [batch, token, channel])\n"
               "through query, key and value projections, attention, and an output projection; writes y\n"
               "to OUT. Keys and values come from a tensor context of IN if there is one. These inputs may\n"
               "be called query, key and value too; value may then differ from key.\n",
    .notes = "The names of the weights, in IN or in the file of --weights-file, tell the family of models,\n"
             "and so how matrices lie, and the rotation, causal mask and scale that these models have\n"
             "(--plain leaves these out). They may have any prefix: where several layers are found,\n"
             "--prefix or --layer chooses. Other names are in the file of --names, in lines such as\n"
             "'wq = my.query.weight': wq wk wv wo or wqkv, with b for biases; w, state and memory. The line\n"
             "'axes = in out' is for x W. Arrays [head, model, channel] do too. Weights of f16 and bf16\n"
             "become those of x. Heads are --heads, or those of the metadata, --config or the shapes.\n"
             "  multi-head  see the families below; bias_k and bias_v: a learned key and value for all\n"
             "  latent      q_proj.weight (or q_a_proj.weight, q_b_proj.weight), kv_a_proj_with_mqa.weight,\n"
             "              kv_b_proj.weight, o_proj.weight, q_a_layernorm.weight, kv_a_layernorm.weight\n"
             "              (DeepSeek); their shapes and --heads determine all sizes\n"
             "  additive    w, state.weight, memory.weight, bias, combine.weight; x holds the states of a\n"
             "              decoder, context what they attend to; general has w and combine.weight,\n"
             "              dot at most combine.weight\n"
             "Used if IN has them: lengths_q, lengths_kv (how many tokens of each entry are real;\n"
             "without a context lengths_kv may be called lengths), cu_seqlens_q, cu_seqlens_kv\n"
             "(sequences end to end in x [token, channel]), mask (1 = keep) and bias (to be added to\n"
             "the scores); slopes, sink and scale of each head; with a flag, w (--score=general,\n"
             "metric, additive), bias_table (--t5, --clipped), relative_keys, relative_values,\n"
             "relative_u and relative_v (--rel).\n"
             "--backward reads dy, and writes dx (and dcontext), dwq dwk dwv dwo, dbq dbk dbv dbo,\n"
             "dbias_k dbias_v, or for other kinds d and the name of the weight; for options likewise.\n"
             "--qkv writes q, k and v [head, token, channel] after projection and rotation, and with\n"
             "them wv, wo and the tensors of options, for `attn run`, `top`, `view` and `analyze`; the\n"
             "flags of a mechanism, also those that a family brings, are to be given to these again\n"
             "(the metadata's attn_flags names them, and a warning the missing ones), but not\n"
             "--mask-drop.\n"
             "--decode appends N tokens at a time to a cache; the result is the same up to rounding,\n"
             "and --compare compares it with that of all tokens at once.\n"
             "--tokens looks up whole words of the file's vocabulary, or numbers of tokens. x is then what\n"
             "the model's first layer gets, normalised as before any layer; a later layer of the model\n"
             "gets the output of the one before it, which needs the rest of the model.\n"
             "\n"
             "Examples:\n"
             "  attn layer layer.safetensors -o out.safetensors --heads=12 --weights --compare\n"
             "  attn layer layer.safetensors -o heads.safetensors --heads=12 --qkv\n"
             "  attn layer x.safetensors -o y.safetensors --weights-file=model.safetensors --layer=3 \\\n"
             "       --config=config.json --decode --compare\n"
             "  attn layer model.gguf -o y.safetensors --layer=3 --tokens='the cat sat' --weights\n",
    .more = family_print,
    .operands = {"input file"},
    .example = "attn layer IN.safetensors -o OUT.safetensors --heads=12",
};

static attn_status set_kind(void *target, const char *name, const char *value, attn_error *error)
{
    if (!layer_kind_named(value)) return failure(error, ATTN_ERR_ARGUMENT, "%s: '%.40s' is not %s", name, value, layer_kind_names);
    ((layer_settings *)target)->kind = value;
    return ATTN_OK;
}

static attn_status set_rope(void *target, const char *name, const char *value, attn_error *error)
{
    layer_settings *s = target;
    s->rope_word = name;
    if (strcmp(name, "rope-channels") == 0) return option_int(name, value, 2, INT32_MAX, &s->rope_channels, error);
    if (strcmp(name, "rope-pairs") == 0) {
        s->rope_pairs_given = 1;
        return role_set_pairs(&s->rope_pairs, name, value, error);
    }
    return option_real(name, value, 1, 0, &s->rope_base, error);
}

/* Tensors of a file that a layer's attention may read; its queries, keys and values are the layer's own. */
static int is_option(int t)
{
    return t == TENSOR(mask) || t == TENSOR(bias) || t == TENSOR(alibi_slopes) || t == TENSOR(sink) || t == TENSOR(scale) ||
           t == TENSOR(score_matrix) || t == TENSOR(bias_table) || (t >= TENSOR(relative_keys) && t <= TENSOR(relative_v));
}

static attn_status set_ignored(void *target, const char *name, const char *value, attn_error *error)
{
    layer_settings *s = target;
    int known = 0;
    for (int t = 0; t < TENSORS; t++)
        known |= is_option(t) && (strcmp(value, tensors_file_name(t)) == 0 || strcmp(value, tensors_about(t)->name) == 0);
    if (!known) return role_reject_ignored(value, is_option, error);
    if (s->ignored_count + 1 == LAYER_IGNORED)
        return failure(error, ATTN_ERR_ARGUMENT, "%s: at most %d tensors", name, LAYER_IGNORED - 1);
    s->ignored[s->ignored_count++] = value;
    return ATTN_OK;
}

static const option_row layer_options[] = {
    {"output", 'o', "FILE", "output file: .safetensors, .npz; - prints it (required)",
     OUTPUT(layer_settings, output, ".safetensors or .npz"), .needed = "output file (-o - prints the numbers)"},
    {"kind", 0, "KIND", "multi-head, latent, additive, general or dot (default: by weight names)", CALL(set_kind)},
    {"heads", 0, "N", "query heads (required unless the file tells)", WHOLE(layer_settings, heads, 1, INT32_MAX)},
    {"heads-kv", 0, "N", "key and value heads (default: by the weights)", WHOLE(layer_settings, heads_kv, 1, INT32_MAX)},
    {"head-dim", 0, "N", "channels of a head (default: by the weights)", WHOLE(layer_settings, head_dim, 1, INT32_MAX)},
    {"head-dim-v", 0, "N", "channels of a head's values (default: by the weights)",
     WHOLE(layer_settings, head_dim_v, 1, INT32_MAX)},
    {"rope-pairs", 0, "KIND", "which channels are rotated together: interleaved or halves", CALL(set_rope)},
    {"rope-base", 0, "B", "base of the rotation frequencies (default: 10000)", CALL(set_rope)},
    {"rope-channels", 0, "N", "rotate only the first N channels of a head", CALL(set_rope)},
    {"weights-file", 0, "FILE", "the file that has the weights (default: IN)", TEXT(layer_settings, weights_file)},
    {"prefix", 0, "TEXT", "how the names of the weights begin (default: as found)", TEXT(layer_settings, prefix)},
    {"layer", 0, "N", "the layer of this number among those of the file", WHOLE(layer_settings, layer, 0, INT32_MAX)},
    {"names", 0, "FILE", "names of the weights: lines such as wq = my.query.weight", TEXT(layer_settings, names_file)},
    {"config", 0, "FILE", "heads, rope and epsilons from a model's config.json", TEXT(layer_settings, config)},
    {"plain", 0, NULL, "the weights alone: no mask, rope or scale that comes with their names", FLAG(layer_settings, plain)},
    {"no-output", 0, NULL, "no output projection: y is the heads side by side", FLAG(layer_settings, no_output)},
    {"tokens", 0, "LIST", "x is the embeddings of these tokens: numbers, or words", TEXT(layer_settings, tokens)},
    {"norm", 0, NULL, "normalise x first, by the norm beside the weights", FLAG(layer_settings, norm)},
    {"norm-epsilon", 0, "E", "epsilon of all norms", ABOVE_0(layer_settings, norm_epsilon, 1)},
    {"ignore", 0, "NAME", "leave out mask, bias, slopes, sink, scale, ... (may be repeated)", CALL(set_ignored)},
    {"mask", 0, "NAME", "a mask of 0 and 1, 1 = keep (default mask)", TEXT(layer_settings, mask)},
    {"mask-drop", 0, NULL, "in the mask, 1 = hide (as in nn.MultiheadAttention)", FLAG(layer_settings, mask_drop)},
    {"weights", 0, NULL, "write the attention weights of every head", FLAG(layer_settings, weights)},
    {"after-dropout", 0, NULL, "write them after dropout", FLAG(layer_settings, after_dropout)},
    {"weights-mean", 0, NULL, "write them averaged over the heads", FLAG(layer_settings, weights_mean)},
    {"qkv", 0, NULL, "write q, k and v of every head, as the attention reads them", FLAG(layer_settings, qkv)},
    {"backward", 0, NULL, "write gradients too; needs dy", FLAG(layer_settings, backward)},
    {"decode", 0, "[=N]", "N tokens at a time (default 1), with a cache of the earlier ones",
     WHOLE(layer_settings, decode, 1, INT32_MAX)},
    {"page-size", 0, "N", "keep the cache of --decode in pages of N tokens", WHOLE(layer_settings, page_size, 1, INT32_MAX)},
    {"compare", 0, NULL, "print how far the results are from those in IN", FLAG(layer_settings, compare)},
    {0},
};

/* The words of problem strings; a layer has its own rotation. */
static const option_row *attention_options(void)
{
    static option_row rows[64];
    const option_row *from = problem_options(FLAG_INPUT);
    for (int n = 0; n + 1 < (int)(sizeof rows / sizeof *rows) && from[n].name; n++) {
        rows[n] = from[n];
        if (strcmp(from[n].name, "rope") == 0) rows[n].help = "rotate queries and keys of a multi-head layer by their positions";
    }
    return rows;
}

/* ---- the command ---- */

/* Which layer of the file is meant, and what the file tells of its model. */
static attn_status find_layer(layer_work *w, attn_error *error)
{
    const layer_settings *s = w->settings;
    const match_request request = {s->prefix, s->names_file, s->kind, s->layer, s->no_output};
    attn_status status = attn_archive_create(&w->own, error);
    if (status == ATTN_OK) status = match_find(&w->match, layer_weights_file(w), &request, error);
    if (status == ATTN_OK) status = layer_read_model(w, error);
    return status == ATTN_OK ? layer_embed_tokens(w, error) : status;
}

static attn_status choose_kind(layer_work *w, const problem_spec *spec, attn_error *error)
{
    const layer_settings *s = w->settings;
    w->kind = layer_kind_named(w->match.family ? w->match.family->kind : s->kind ? s->kind : "multi-head");
    attn_status status = layer_find_sizes(w, spec, error);
    if (status != ATTN_OK) return status;
    w->heads = w->kind->has_heads ? w->sizes.heads : 1;
    if (w->kind->has_heads && !w->heads)
        return failure(error, ATTN_ERR_ARGUMENT, "a %s layer needs --heads=N, or --config=FILE of the model", w->kind->name);
    if (w->kind->needs_context && !w->context)
        return failure(error, ATTN_ERR_ARGUMENT, "no tensor 'context', which a layer of kind %s attends to", w->kind->name);
    if (w->value && !w->kind->takes_scores)
        return failure(error, ATTN_ERR_ARGUMENT,
                       "tensor 'value' is for multi-head layers; a layer of kind %s has no values beside its keys", w->kind->name);
    if (s->page_size && !s->decode) return failure(error, ATTN_ERR_ARGUMENT, "--page-size is for the cache of --decode");
    if (s->after_dropout && !s->weights) return failure(error, ATTN_ERR_ARGUMENT, "--after-dropout needs --weights");
    return ATTN_OK;
}

/* The layer, its problem and its weights. */
static attn_status build(layer_work *w, const problem_spec *given, attn_error *error)
{
    const layer_settings *s = w->settings;
    problem_spec spec = *given;
    attn_status status = layer_find_sequences(w, error);
    if (status == ATTN_OK) status = choose_kind(w, &spec, error);
    if (status == ATTN_OK) status = layer_place_table(w, error);
    if (status != ATTN_OK) return status;
    w->rope = (attn_rope){.struct_size = sizeof w->rope, .pairs = s->rope_pairs, .base = s->rope_base};
    status = layer_apply_model(w, &spec, error);
    if (status == ATTN_OK) status = layer_find_options(w, &spec, error);
    if (status == ATTN_OK && s->decode) status = layer_check_decode(w, error);
    if (status == ATTN_OK) status = w->kind->load(w, spec.rope, error);
    if (status == ATTN_OK && s->rope_word && !w->rotates)
        status = failure(error, ATTN_ERR_ARGUMENT,
                         w->kind->takes_scores ? "--%s needs --rope" : "--%s has no effect: this layer rotates no channels",
                         s->rope_word);
    if (status == ATTN_OK && s->qkv) status = layer_check_qkv(w, error);
    return status;
}

/* What is read of a model: one layer, and what no layer has. */
typedef struct one_layer {
    int64_t layer, last; /* last: of the file */
    int tokens, found;
} one_layer;

static int is_wanted(void *context, const attn_archive_tensor *tensor)
{
    one_layer *one = context;
    const int64_t layer = match_layer(tensor->name);
    if (layer > one->last) one->last = layer;
    one->found |= layer == one->layer;
    if (strcmp(tensor->name, "output.weight") == 0) return 0; /* logits */
    return layer < 0 ? one->tokens || strcmp(tensor->name, "token_embd.weight") != 0 : layer == one->layer;
}

/* A model in a .gguf file may take several times its size when it is decoded, so only the chosen layer is. */
static attn_status read_file(const layer_settings *s, const char *path, attn_archive **file, attn_error *error)
{
    one_layer one = {.layer = s->layer, .last = -1, .tokens = s->tokens != NULL};
    const size_t length = strlen(path);
    if (s->layer < 0 || length < 5 || strcmp(path + length - 5, ".gguf") != 0) return tensor_file_open(file, path, NULL, error);
    const attn_status status = attn_archive_read_some(file, path, is_wanted, &one, error);
    if (status != ATTN_OK || one.found || one.last < 0) return status;
    return failure(error, ATTN_ERR_ARGUMENT, "%.120s: no layer %" PRId64 "; there are 0 to %" PRId64, path, s->layer, one.last);
}

static attn_input rows_of(const attn_archive_tensor *t)
{
    return (attn_input){t->data ? t->data : ATTN_EMPTY, ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}};
}

static attn_status prepare(layer_work *w, const char *path, const problem_spec *spec, attn_error *error)
{
    const layer_settings *s = w->settings;
    attn_status status = read_file(s, path, &w->file, error);
    if (status == ATTN_OK && s->weights_file) status = read_file(s, s->weights_file, &w->weights_file, error);
    const char *const inputs[] = {path, s->weights_file, s->names_file, s->config};
    for (size_t k = 0; k < sizeof inputs / sizeof *inputs && status == ATTN_OK; k++)
        status = file_check_distinct(s->output, inputs[k], error);
    if (status != ATTN_OK) return status;
    status = find_layer(w, error);
    if (status == ATTN_OK) status = build(w, spec, error);
    const int packed = w->tensors.cu_seqlens_q.data != NULL; /* all of their tokens */
    w->counts = (attn_layer_counts){.struct_size = sizeof w->counts};
    if (status == ATTN_OK)
        status = w->kind->count(w, packed ? 1 : w->batch, packed ? w->x->shape[0] : w->len_q,
                                packed ? (w->context ? w->context : w->x)->shape[0] : w->len_kv, error);
    if (status == ATTN_OK) {
        w->args = (attn_layer_tensors){.struct_size = sizeof w->args,
                                       .call = &w->call,
                                       .batch = w->batch,
                                       .len_q = w->len_q,
                                       .len_kv = w->len_kv,
                                       .query = rows_of(w->x),
                                       .attention = &w->tensors,
                                       .options = &w->options};
        if (w->context) w->args.key = rows_of(w->context);
        if (w->value) w->args.value = rows_of(w->value);
        status = layer_add_outputs(w, error);
    }
    if (status == ATTN_OK) status = layer_norm_input(w, error);
    if (status == ATTN_OK) status = layer_norm_heads(w, error);
    if (status == ATTN_OK && s->backward) w->args.saved = w->saved = need_memory(w->counts.saved_bytes, 1);
    return status == ATTN_OK ? ATTN_OK : failure_about(error, path);
}

/* With --decode, runs again with all tokens at once, into separate tensors. */
static attn_status compare(layer_work *w, difference *list, int *count, attn_error *error)
{
    if (!w->settings->decode) return differences_find(w->out, w->file, list, count, error);
    attn_archive *const decoded = w->out;
    attn_status status = layer_add_outputs(w, error);
    if (status == ATTN_OK) status = w->kind->forward(w, error);
    if (status == ATTN_OK) status = differences_find(decoded, w->out, list, count, error);
    attn_archive_destroy(w->out);
    w->out = decoded;
    return status;
}

/* What the axes of heads are for the commands that show them, which take the first of four axes for layers. */
static attn_status name_axes(const layer_work *w, attn_error *error)
{
    static const char batch[] = "q k v: [batch, head, token, channel]; weights: [batch, head, query, key]";
    char number[24];
    attn_status status = ATTN_OK;
    if (w->x->rank == 3 && !attn_archive_get_metadata(w->out, "layout"))
        status = attn_archive_set_metadata(w->out, "layout", batch, error);
    (void)snprintf(number, sizeof number, "%" PRId64, w->settings->layer);
    return status == ATTN_OK && w->settings->layer >= 0 ? attn_archive_set_metadata(w->out, "layer", number, error) : status;
}

static attn_status run(layer_work *w, const char *path, const problem_spec *spec, const common_settings *common, attn_error *error)
{
    difference list[40];
    int count = 0;
    attn_status status = prepare(w, path, spec, error);
    const double begin = seconds_now();
    double seconds = 0;
    if (status == ATTN_OK) {
        status = w->settings->decode ? layer_decode(w, error) : w->kind->forward(w, error);
        if (status == ATTN_OK && w->settings->backward) status = w->kind->backward(w, error);
        seconds = seconds_now() - begin;
        if (status == ATTN_OK && w->settings->qkv) status = layer_add_qkv(w, error);
        if (status == ATTN_OK && w->settings->compare) status = compare(w, list, &count, error);
        if (status != ATTN_OK) failure_about(error, path);
    }
    for (int64_t k = 0; status == ATTN_OK && k < attn_archive_metadata_count(w->file); k++) {
        const attn_metadata *from = attn_archive_metadata_at(w->file, k);
        if (strncmp(from->key, "tokenizer.", 10) == 0) continue; /* a vocabulary is larger than the results */
        status = attn_archive_set_metadata(w->out, from->key, from->value, error);
    }
    if (status == ATTN_OK) status = name_axes(w, error);
    if (status == ATTN_OK) status = layer_name_tokens(w, error);
    if (status == ATTN_OK) status = attn_archive_set_metadata(w->out, "attn_version", attn_version(), error);
    char *json = status == ATTN_OK && common->json ? layer_compose(w, path, seconds, list, count) : NULL;
    status = file_finish(status, w->out, w->settings->output, json, error);
    if (status == ATTN_OK && !common->json) layer_print(w, path, seconds, list, count, common);
    return status;
}

int attn_cmd_layer(int argc, char **argv)
{
    common_settings common = {0};
    layer_settings settings = {.layer = -1};
    problem_spec spec;
    problem_init(&spec);
    const option_group groups[] = {
        {"Layer", layer_options, &settings}, {"Attention, in the words of problem strings", attention_options(), &spec}, {0}};
    attn_error error;
    int operands, exit = options_begin(&usage, groups, &common, argc, argv, 1, &operands);
    if (exit >= 0) return exit;
    spec.seed = common.seed;

    layer_work w = {.settings = &settings, .options = options_for_library(&common)};
    attn_status status = run(&w, argv[operands], &spec, &common, &error);
    attn_archive_destroy(w.out);
    attn_archive_destroy(w.weights_file);
    attn_archive_destroy(w.file);
    attn_archive_destroy(w.converted);
    attn_archive_destroy(w.own);
    match_free(&w.match);
    free(w.frequencies);
    free(w.ids);
    for (int i = 0; i < 3; i++) free(w.normed[i]);
    for (int i = 0; i < LAYER_INDICES; i++) free(w.index[i]);
    free(w.saved);
    named_masks_free(&w.masks);
    free(w.keep.bytes);
    return command_end(status, usage.name, NULL, &error);
}
