/* SPDX-License-Identifier: MIT
 *
 * sizes.c - heads and channels of a multi-head layer: from flags, from what the file tells of its model, and from shapes. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "layer.h"
#include "testing/text/failure.h"

static const attn_archive_tensor *found(const layer_work *w, weight_role role) { return w->match.found[role]; }

int layer_is_transposed(const layer_work *w)
{
    const attn_archive_tensor *t = found(w, WEIGHT_QKV);
    if (!w->match.family || w->match.family->axes == FAMILY_OUT_IN) return 0;
    if (w->match.family->axes == FAMILY_IN_OUT) return 1;
    return t && t->rank == 2 && t->shape[0] == layer_width(w->x) && t->shape[1] != t->shape[0];
}

int layer_head_axis(const layer_work *w, int to_model)
{
    return !to_model && w->match.family && w->match.family->axes == FAMILY_MODEL_FIRST;
}

/* The channels of all heads on one side of a projection; 0 if the tensor is not there, or no matrix. */
static int64_t width_of(const layer_work *w, weight_role role)
{
    const attn_archive_tensor *t = found(w, role);
    const int to_model = role == WEIGHT_OUTPUT;
    if (!t || t->rank < 2 || t->rank > 3) return 0;
    if (t->rank == 3) return t->shape[layer_head_axis(w, to_model)] * t->shape[to_model ? 1 : 2];
    return t->shape[to_model != layer_is_transposed(w)];
}

const attn_archive_tensor *layer_table(const layer_work *w)
{
    const attn_archive_tensor *t = found(w, WEIGHT_TABLE);
    char root[MATCH_ROOT + 2];
    const char *block = strstr(w->match.root, "block."), *rest = block ? strchr(block + 6, '.') : NULL;
    if (t || !w->match.family || !w->match.family->names[WEIGHT_TABLE] || !rest) return t;
    (void)snprintf(root, sizeof root, "%.*sblock.0%s", (int)(block - w->match.root), w->match.root, rest);
    return family_find(layer_weights_file(w), root, w->match.family->names[WEIGHT_TABLE]);
}

static int64_t heads_of(const layer_work *w)
{
    const attn_archive_tensor *query = found(w, WEIGHT_QUERY), *table = layer_table(w);
    if (w->settings->heads) return w->settings->heads;
    if (query && query->rank == 3) return query->shape[layer_head_axis(w, 0)];
    if (w->model.heads) return w->model.heads;
    return table && table->rank == 2 ? table->shape[1] : 0;
}

static int64_t first_of(int64_t a, int64_t b, int64_t c) { return a ? a : b ? b : c; }

/* Heads and channels of one matrix with all queries, keys and values. */
static void split_fused(const layer_work *w, int64_t rows, layer_sizes *to)
{
    const int64_t known = first_of(w->settings->heads_kv, w->model.heads_kv, 0), out = width_of(w, WEIGHT_OUTPUT);
    to->head_dim = first_of(w->settings->head_dim, w->model.head_dim,
                            known ? rows / (to->heads + 2 * known)
                            : out ? out / to->heads
                                  : rows / (3 * to->heads));
    const int64_t heads = to->head_dim ? rows / to->head_dim : 0;
    to->heads_kv = first_of(known, heads > to->heads && (heads - to->heads) % 2 == 0 ? (heads - to->heads) / 2 : 0, to->heads);
}

attn_status layer_find_sizes(layer_work *w, const problem_spec *spec, attn_error *error)
{
    const layer_settings *s = w->settings;
    layer_sizes *to = &w->sizes;
    const int64_t fused = width_of(w, WEIGHT_QKV), keys = spec->score[0] ? 0 : width_of(w, WEIGHT_KEY),
                  values = width_of(w, WEIGHT_VALUE);
    const int64_t queries = width_of(w, WEIGHT_QUERY), all = queries ? queries : layer_width(w->x);
    *to = (layer_sizes){.heads = heads_of(w)};
    if (!to->heads || !w->kind->takes_scores) return ATTN_OK;
    if (fused) split_fused(w, fused, to);
    else to->head_dim = first_of(s->head_dim, w->model.head_dim, (all % to->heads) != 0 ? 0 : all / to->heads);
    if (!to->head_dim)
        return failure(error, ATTN_ERR_SHAPE,
                       "the queries%s have %" PRId64 " channels, which is not a multiple of the heads (%" PRId64 ")",
                       fused ? ", keys and values" : "", fused ? fused : all, to->heads);
    if (!fused) to->heads_kv = first_of(s->heads_kv, w->model.heads_kv, keys && keys % to->head_dim == 0 ? keys / to->head_dim : 0);
    if (!to->heads_kv) to->heads_kv = to->heads;
    if (to->heads % to->heads_kv)
        return failure(error, ATTN_ERR_SHAPE, "layer: heads_q (%" PRId64 ") is not a multiple of heads_kv (%" PRId64 ")", to->heads,
                       to->heads_kv);
    to->head_dim_v = first_of(s->head_dim_v, w->model.head_dim_v,
                              values && values % to->heads_kv == 0 && !spec->score[0] ? values / to->heads_kv : 0);
    if (!to->head_dim_v) to->head_dim_v = to->head_dim;
    return ATTN_OK;
}

int64_t layer_output_width(const layer_work *w)
{
    const attn_archive_tensor *t = found(w, WEIGHT_OUTPUT);
    if (!t || t->rank < 2 || t->rank > 3) return layer_width(w->x);
    return t->rank == 3 ? t->shape[2] : t->shape[layer_is_transposed(w)];
}
