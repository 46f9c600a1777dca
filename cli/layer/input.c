/* SPDX-License-Identifier: MIT
 *
 * input.c - what `attn layer` reads besides weights: rows of channels, lengths, and the tensors of options. */
#include <inttypes.h>
#include <string.h>

#include "cli/input/find.h"
#include "cli/input/input.h"
#include "layer.h"
#include "testing/text/failure.h"

attn_status layer_find_rows(const layer_work *w, const char *name, int rank, const attn_archive_tensor **t, attn_error *error)
{
    char shape[SHAPE_TEXT], names[100];
    *t = attn_archive_find(w->file, name);
    if (!*t && w->embedding && strcmp(name, "x") == 0) *t = attn_archive_find(w->own, name);
    input_list(w->file, names, sizeof names);
    if (!*t) return failure(error, ATTN_ERR_ARGUMENT, "no tensor '%s' (available: %s)", name, names);
    if ((*t)->dtype != ATTN_F32 && (*t)->dtype != ATTN_F64)
        return failure(error, ATTN_ERR_UNSUPPORTED, "tensor '%s' is %s; a layer computes in f32 or f64", name,
                       attn_dtype_name((*t)->dtype));
    if ((*t)->rank != 2 && (*t)->rank != 3)
        return failure(error, ATTN_ERR_SHAPE, "tensor '%s' has shape %.100s; expected [token, channel] or [batch, token, channel]",
                       name, shape_text(shape, (*t)->rank, (*t)->shape));
    if (rank && ((*t)->rank != rank || (rank == 3 && (*t)->shape[0] != w->x->shape[0]) || (*t)->dtype != w->x->dtype))
        return failure(error, ATTN_ERR_SHAPE, "tensor '%s' is %s %.80s; it does not fit x", name, attn_dtype_name((*t)->dtype),
                       shape_text(shape, (*t)->rank, (*t)->shape));
    return ATTN_OK;
}

static int64_t tokens_of(const attn_archive_tensor *t) { return t->shape[t->rank - 2]; }

/* ---- lengths ---- */

enum { LENGTHS_Q, LENGTHS_KV, BEGINS_Q, BEGINS_KV };
static const char *const index_names[] = {"lengths_q", "lengths_kv", "cu_seqlens_q", "cu_seqlens_kv"};

/* Reads integers as i64. */
static attn_status read_index(layer_work *w, int i, const attn_archive_tensor *t, int64_t least, attn_error *error)
{
    char shape[SHAPE_TEXT];
    if (t->rank != 1 || t->dtype < ATTN_I8 || t->dtype > ATTN_U64)
        return failure(error, ATTN_ERR_SHAPE, "tensor '%s' is %s %.80s; expected integers, %s", t->name, attn_dtype_name(t->dtype),
                       shape_text(shape, t->rank, t->shape), i < BEGINS_Q ? "one for each batch entry" : "[sequences + 1] of them");
    if (t->shape[0] < least) return failure(error, ATTN_ERR_SHAPE, "tensor '%s' is empty; it begins with 0", t->name);
    w->index_from[i] = t;
    w->index[i] = need_memory(t->shape[0], sizeof *w->index[i]);
    for (int64_t k = 0; k < t->shape[0]; k++)
        if (!input_integer(t, k, &w->index[i][k]))
            return failure(error, ATTN_ERR_ARGUMENT, "tensor '%s' has a number beyond 2^63", t->name);
    return ATTN_OK;
}

/* How many of an entry's tokens are real. */
static attn_status find_lengths(layer_work *w, int i, int64_t tokens, attn_error *error)
{
    const attn_archive_tensor *t = attn_archive_find(w->file, index_names[i]);
    if (!t && i == LENGTHS_KV && !w->context) t = attn_archive_find(w->file, "lengths");
    if (!t) return ATTN_OK;
    attn_status status = read_index(w, i, t, 0, error);
    if (status == ATTN_OK && t->shape[0] != w->batch)
        status = failure(error, ATTN_ERR_SHAPE, "tensor '%s' has %" PRId64 " numbers; x has a batch of %" PRId64, t->name,
                         t->shape[0], w->batch);
    for (int64_t b = 0; status == ATTN_OK && b < w->batch; b++)
        if (w->index[i][b] < 0 || w->index[i][b] > tokens)
            status =
                failure(error, ATTN_ERR_ARGUMENT, "tensor '%s': number %" PRId64 " (%" PRId64 ") is not between 0 and %" PRId64,
                        t->name, b, w->index[i][b], tokens);
    return status;
}

/* Where each of the packed sequences begins; *longest is the length of the longest. */
static attn_status find_begins(layer_work *w, int i, const char *name, const attn_archive_tensor *rows, int64_t *longest,
                               attn_error *error)
{
    const attn_archive_tensor *t = attn_archive_find(w->file, name);
    if (!t) return failure(error, ATTN_ERR_ARGUMENT, "no tensor '%s', and x is packed", name);
    if (rows->rank != 2)
        return failure(error, ATTN_ERR_SHAPE, "tensor '%s': packed sequences are [token, channel], and %s has %d axes", t->name,
                       rows->name, rows->rank);
    attn_status status = read_index(w, i, t, 1, error);
    const int64_t total = tokens_of(rows);
    int64_t last = 0;
    *longest = 0;
    for (int64_t b = 0; status == ATTN_OK && b < t->shape[0]; b++) {
        const int64_t at = w->index[i][b], low = b + 1 == t->shape[0] ? total : last, high = b ? total : 0;
        if (at < (b ? low : 0) || at > high)
            status = failure(error, ATTN_ERR_ARGUMENT,
                             "tensor '%s': number %" PRId64 " (%" PRId64 ") is not between %" PRId64 " and %" PRId64, t->name, b,
                             at, b ? low : 0, high);
        if (at - last > *longest) *longest = at - last;
        last = at;
    }
    if (status == ATTN_OK && total && t->shape[0] == 1)
        status = failure(error, ATTN_ERR_ARGUMENT, "tensor '%s' holds no sequence; %s has %" PRId64 " tokens", t->name, rows->name,
                         total);
    if (status == ATTN_OK && i == BEGINS_KV && t->shape[0] - 1 != w->batch)
        status = failure(error, ATTN_ERR_SHAPE, "tensor '%s' has %" PRId64 " sequences, and cu_seqlens_q %" PRId64, t->name,
                         t->shape[0] - 1, w->batch);
    if (status == ATTN_OK && i == BEGINS_Q) w->batch = t->shape[0] - 1;
    return status;
}

/* x, context and value, which may have the names of PyTorch's forward(query, key, value). */
static attn_status find_inputs(layer_work *w, attn_error *error)
{
    static const char *const names[2][2] = {{"x", "query"}, {"context", "key"}};
    const char *used[2];
    for (int n = 0; n < 2; n++) {
        const int second = attn_archive_find(w->file, names[n][1]) != NULL;
        used[n] = names[n][second];
        if (second && attn_archive_find(w->file, names[n][0]))
            return failure(error, ATTN_ERR_ARGUMENT, "tensors '%s' and '%s' are the same input; the file may have one of them",
                           names[n][0], names[n][1]);
    }
    attn_status status = layer_find_rows(w, used[0], 0, &w->x, error);
    if (status == ATTN_OK && attn_archive_find(w->file, used[1]))
        status = layer_find_rows(w, used[1], w->x->rank, &w->context, error);
    if (status != ATTN_OK || !attn_archive_find(w->file, "value")) return status;
    if (!w->context) return failure(error, ATTN_ERR_ARGUMENT, "tensor 'value' needs a tensor 'key'");
    status = layer_find_rows(w, "value", w->x->rank, &w->value, error);
    if (status == ATTN_OK && tokens_of(w->value) != tokens_of(w->context))
        status = failure(error, ATTN_ERR_SHAPE, "tensor 'value' has %" PRId64 " tokens, and '%s' %" PRId64, tokens_of(w->value),
                         w->context->name, tokens_of(w->context));
    return status;
}

attn_status layer_find_sequences(layer_work *w, attn_error *error)
{
    attn_status status = find_inputs(w, error);
    if (status != ATTN_OK) return status;
    const attn_archive_tensor *z = w->context ? w->context : w->x;
    if (attn_archive_find(w->file, "cu_seqlens_q") || attn_archive_find(w->file, "cu_seqlens_kv")) {
        /* without a context, one tensor serves both */
        const char *kv = w->context || attn_archive_find(w->file, "cu_seqlens_kv") ? "cu_seqlens_kv" : "cu_seqlens_q";
        status = find_begins(w, BEGINS_Q, "cu_seqlens_q", w->x, &w->len_q, error);
        if (status == ATTN_OK) status = find_begins(w, BEGINS_KV, kv, z, &w->len_kv, error);
        for (int i = LENGTHS_Q; i <= LENGTHS_KV && status == ATTN_OK; i++)
            if (attn_archive_find(w->file, index_names[i]))
                status = failure(error, ATTN_ERR_ARGUMENT, "tensor '%s': packed sequences take their lengths from cu_seqlens_q",
                                 index_names[i]);
        return status;
    }
    w->batch = w->x->rank == 3 ? w->x->shape[0] : 1;
    w->len_q = tokens_of(w->x);
    w->len_kv = tokens_of(z);
    status = find_lengths(w, LENGTHS_Q, w->len_q, error);
    return status == ATTN_OK ? find_lengths(w, LENGTHS_KV, w->len_kv, error) : status;
}

/* ---- the tensors of options ---- */

/* The mask as bytes with the axes that it means; numbers to be added become the bias. */
static attn_status find_keep(layer_work *w, const attn_archive_tensor **mask, const attn_archive_tensor **bias, attn_error *error)
{
    const int entries = w->x->rank == 3 || w->index[BEGINS_Q];
    const int64_t size[4] = {entries ? w->batch : 0, w->heads, w->len_q, w->len_kv};
    if (!*mask && w->settings->mask_drop)
        return failure(error, ATTN_ERR_ARGUMENT, "--mask-drop says what a mask means, and there is none; --mask=NAME chooses one");
    if (!*mask) return ATTN_OK;
    if (!keep_type_fits((*mask)->dtype))
        return failure(error, ATTN_ERR_UNSUPPORTED, "tensor '%s' is %s; expected 0 and 1, of any type of numbers", (*mask)->name,
                       attn_dtype_name((*mask)->dtype));
    const attn_status status = keep_mask_read(&w->keep, *mask, *bias, w->settings->mask_drop, size, error);
    if (status != ATTN_OK) return status;
    if (w->keep.is_added) *bias = &w->keep.tensor;
    *mask = w->keep.is_added ? NULL : &w->keep.tensor;
    return ATTN_OK;
}

/* One that broadcasts to [batch, head, query, key]; *one has the axes on which it does. */
static attn_status find_pairs(const layer_work *w, const attn_archive_tensor *t, int keep, int *one, attn_error *error)
{
    const char *name = t->name;
    const int64_t required[4] = {w->batch, w->heads, w->len_q, w->len_kv};
    char actual_text[SHAPE_TEXT], expected_text[SHAPE_TEXT];
    if (!keep && t->dtype != w->x->dtype)
        return failure(error, ATTN_ERR_UNSUPPORTED, "tensor '%s' is %s; expected %s", name, attn_dtype_name(t->dtype),
                       attn_dtype_name(w->x->dtype));
    int fits = t->rank >= 2 && t->rank <= 4;
    *one = 0;
    for (int axis = 0; fits && axis < 4; axis++) {
        const int64_t have = axis < 4 - t->rank ? 1 : t->shape[axis - 4 + t->rank];
        if (have != required[axis]) *one |= 1 << axis;
        fits = have == required[axis] || have == 1;
    }
    if (!fits)
        return failure(error, ATTN_ERR_SHAPE,
                       "tensor '%s' %.60s does not broadcast to %.60s (batch, head, query, key); --ignore=%s leaves it out", name,
                       shape_text(actual_text, t->rank, t->shape), shape_text(expected_text, 4, required), name);
    return ATTN_OK;
}

const attn_archive_tensor *layer_find_option(const layer_work *w, int t)
{
    if (t == TENSOR(mask) && w->settings->mask) return attn_archive_find(w->file, w->settings->mask);
    const attn_archive_tensor *found = input_named(w->file, w->settings->ignored, tensors_file_name(t), tensors_about(t)->name);
    if (!found && t == TENSOR(bias_table)) return w->table;
    /* the bias of an additive score's hidden channels is in the same file */
    return found && t == TENSOR(bias) && !w->kind->has_heads && found->rank == 1 ? NULL : found;
}

/* Completes the problem from the tensors that are there. */
static void tell_terms(const layer_work *w, problem_spec *spec)
{
    const attn_archive_tensor *weights = layer_find_option(w, TENSOR(score_matrix)),
                              *table = layer_find_option(w, TENSOR(bias_table)),
                              *keys = layer_find_option(w, TENSOR(relative_keys));
    if (layer_find_option(w, TENSOR(alibi_slopes))) spec->alibi = SPEC_ALIBI_HEAD;
    spec->sink = layer_find_option(w, TENSOR(sink)) != NULL;
    spec->scale_heads = layer_find_option(w, TENSOR(scale)) != NULL;
    if (weights && problem_has_w(spec)) {
        const int biases =
            problem_score_kind(spec) == ATTN_SCORE_ADDITIVE && weights->rank > 1 && weights->shape[weights->rank - 2] == 2;
        spec->w = (weights->rank > 2 ? SPEC_W_HEADS : 0) | (biases ? SPEC_W_BIAS : 0);
    }
    if (table && table->rank == 1 && (spec->t5 || spec->clipped)) spec->shared |= SPEC_SHARED_TABLE;
    if (keys && keys->rank == 2 && spec->rel[0]) spec->shared |= SPEC_SHARED_REL;
}

/* The shape of a tensor in a file: the axes that it has, without leading ones of size 1.  Returns the rank. */
static int shape_of(const layer_work *w, int t, int64_t shape[4])
{
    int64_t extent[4];
    int rank = 0;
    tensors_extent(&w->attention, &w->tensors, t, extent);
    for (int axis = 0; axis < 4; axis++)
        if (tensors_about(t)->axes[axis] != ATTN_AXIS_ONE && (rank || extent[axis] != 1)) shape[rank++] = extent[axis];
    if (!rank) shape[rank++] = 1;
    return rank;
}

static const char *flag_of(int t, const problem_spec *spec)
{
    if (t == TENSOR(score_matrix)) return "score";
    if (t == TENSOR(bias_table)) return spec->t5 ? "t5" : "clipped";
    return t >= TENSOR(relative_keys) && t <= TENSOR(relative_v) ? "rel" : "";
}

/* Tensors with a shape of their own: numbers of each head, and what a flag needs. */
static attn_status find_terms(layer_work *w, const problem_spec *spec, attn_error *error)
{
    char actual_text[SHAPE_TEXT], expected_text[SHAPE_TEXT];
    for (int n = 0; n < TENSORS; n++) {
        attn_output *slot = tensors_slot(&w->tensors, n);
        const char *name = tensors_file_name(n);
        if (slot->data != ATTN_LATER) continue;
        const attn_archive_tensor *t = layer_find_option(w, n);
        int64_t required[4];
        const int rank = shape_of(w, n, required);
        shape_text(expected_text, rank, required);
        if (!t) return failure(error, ATTN_ERR_ARGUMENT, "--%s needs a tensor '%s' %.80s", flag_of(n, spec), name, expected_text);
        int ones = 0; /* leading axes of size 1 do not matter */
        while (t->rank - ones > rank && t->shape[ones] == 1) ones++;
        if (t->rank - ones != rank || memcmp(t->shape + ones, required, (size_t)rank * sizeof *required) != 0 ||
            t->dtype != w->x->dtype)
            return failure(error, ATTN_ERR_SHAPE, "tensor '%s' is %s %.80s; expected %s %.80s", t->name, attn_dtype_name(t->dtype),
                           shape_text(actual_text, t->rank, t->shape), attn_dtype_name(w->x->dtype), expected_text);
        slot->data = t->data ? (void *)(uintptr_t)t->data : ATTN_EMPTY;
        slot->dtype = t->dtype;
    }
    return ATTN_OK;
}

static void give(layer_work *w, int t, const attn_archive_tensor *from)
{
    attn_output *slot = tensors_slot(&w->tensors, t);
    slot->data = from->data ? (void *)(uintptr_t)from->data : ATTN_EMPTY;
    slot->dtype = from->dtype;
}

static void give_index(layer_work *w, int t, int64_t *index) { tensors_slot(&w->tensors, t)->data = index; }

attn_status layer_find_options(layer_work *w, const problem_spec *given, attn_error *error)
{
    problem_spec spec = *given;
    attn_tensors *all = &w->tensors;
    const layer_settings *s = w->settings;
    const attn_archive_tensor *mask = layer_find_option(w, TENSOR(mask)), *bias = layer_find_option(w, TENSOR(bias));
    attn_status status = ATTN_OK;
    w->call = (attn_call){.struct_size = sizeof w->call, .dropout_seed = spec.seed};
    if (spec.offset_kind || spec.order)
        return failure(error, ATTN_ERR_UNSUPPORTED, "a layer takes no %s; x is [batch, token, channel]",
                       spec.order ? "layout" : "offset");
    spec.rope = 0; /* the layer's own */
    spec.dtype = w->x->dtype == ATTN_F64 ? SPEC_F64 : SPEC_F32;
    if (!w->kind->takes_scores && (spec.rel[0] || spec.score[0]))
        return failure(error, ATTN_ERR_ARGUMENT, "--%s is for multi-head layers", spec.rel[0] ? "rel" : "score");
    if (s->mask && !mask) {
        char names[100];
        input_list(w->file, names, sizeof names);
        return failure(error, ATTN_ERR_ARGUMENT, "--mask: no tensor '%.60s' (available: %s)", s->mask, names);
    }
    if (!mask && !w->index[LENGTHS_KV]) keep_name_doubt(w->file, bias);
    const int64_t dim = w->sizes.head_dim ? w->sizes.head_dim : w->heads ? layer_width(w->x) / w->heads : 0;
    spec.shape =
        (attn_shape){w->batch, w->heads, w->heads, w->len_q, w->len_kv, dim, w->sizes.head_dim_v ? w->sizes.head_dim_v : dim};
    status = find_keep(w, &mask, &bias, error);
    if (status == ATTN_OK && (spec.mask = mask != NULL)) status = find_pairs(w, mask, 1, &spec.mask_one, error);
    if (status == ATTN_OK && (spec.bias = bias != NULL)) status = find_pairs(w, bias, 0, &spec.bias_one, error);
    if (status == ATTN_OK && bias && !w->keep.is_added) keep_bias_doubt(bias);
    if (status == ATTN_OK && mask)
        keep_mask_doubt(mask->name, mask->data, (const int64_t[4]){w->batch, w->heads, w->len_q, w->len_kv}, spec.mask_one,
                        w->settings->mask_drop);
    tell_terms(w, &spec);
    spec.sparse[0] = 0;
    if (status == ATTN_OK) status = problem_build(&spec, &w->attention, all, error);
    memcpy(spec.sparse, given->sparse, sizeof spec.sparse);
    const int rotated = given->rope || !(w->kind->takes_scores || w->kind->needs_context) /* latent */;
    if (status == ATTN_OK) status = input_check_positions(&spec, given->align ? "align" : NULL, rotated, error);
    if (status != ATTN_OK) return status;
    all->q = all->k = all->v = (attn_input){0}; /* the layer's own */
    all->o = (attn_output){0};
    if (mask) give(w, TENSOR(mask), mask);
    if (bias) give(w, TENSOR(bias), bias);
    status = find_terms(w, &spec, error);
    if (w->index[LENGTHS_KV] || w->index[LENGTHS_Q]) spec.lengths = SPEC_LENGTHS_BOTH; /* which positions may follow */
    spec.packed = w->index[BEGINS_Q] != NULL;
    if (status == ATTN_OK) status = named_masks_put(&w->masks, &spec, &w->attention, all, error);
    if (status != ATTN_OK) return status;

    w->attention.shape = (attn_shape){0};
    w->spec = spec;
    if (s->weights) tensors_request(all, TENSOR(weights));
    w->attention.outputs.after_dropout = s->after_dropout;
    give_index(w, TENSOR(lengths_q), w->index[LENGTHS_Q]);
    /* Decoding skips padding, so the run with all tokens at once skips it too. */
    if (s->decode && !w->context && w->index[LENGTHS_KV]) give_index(w, TENSOR(lengths_q), w->index[LENGTHS_KV]);
    give_index(w, TENSOR(lengths_kv), w->index[LENGTHS_KV]);
    give_index(w, TENSOR(cu_seqlens_q), w->index[BEGINS_Q]);
    give_index(w, TENSOR(cu_seqlens_kv), w->index[BEGINS_KV]);
    return ATTN_OK;
}
