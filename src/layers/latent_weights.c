/* SPDX-License-Identifier: MIT
 * latent_weights.c - counts, initialises, loads and stores the weights of multi-head latent attention. */
#include <inttypes.h>
#include <string.h>

#include "draw.h"
#include "latent.h"
#include "named.h"

static const char *const names[TENSORS] = {"q_a_proj.weight",      "q_b_proj.weight", "kv_a_proj_with_mqa.weight",
                                           "kv_b_proj.weight",     "o_proj.weight",   "q_a_layernorm.weight",
                                           "kv_a_layernorm.weight"};

static const char *name_of(const latent *m, int i) { return i == QUERY_UP && !m->rank_query ? "q_proj.weight" : names[i]; }

attn_status attn_latent_count(const attn_latent *given, int64_t batch, int64_t len_q, int64_t len_kv,
                              const attn_latent_weights *weights, attn_layer_counts *counts, attn_error *error)
{
    latent m;
    saved s;
    latents at;
    const extent e = {batch, len_q, len_kv, batch, len_q, len_kv, 0, NULL, NULL};
    attn_layer_counts result = {.struct_size = sizeof result};
    TRY(attn_latent_resolve(given, &m, error));
    CHECK(counts, ATTN_ERR_ARGUMENT, "latent: counts is NULL");
    CHECK(batch >= 0 && len_q >= 0 && len_kv >= 0, ATTN_ERR_SHAPE,
          "latent: batch (%" PRId64 "), len_q (%" PRId64 ") or len_kv (%" PRId64 ") is negative", batch, len_q, len_kv);
    if (weights) TRY(attn_latent_bind(&m, "weights", weights, WEIGHTS_COUNTED, error));
    TRY(attn_latents_layout(&m, &e, NULL, &s, &at, error));
    result.flops = 2.0 * (double)batch * (double)m.heads * (double)len_q * (double)len_kv * (double)(m.dim + m.rotary + m.dim_v);
    for (int i = 0; i < TENSORS; i++) {
        int64_t rows, columns;
        attn_latent_shape(&m, i, &rows, &columns);
        if (i < MATRICES || m.w[i]) result.parameters += rows * (columns ? columns : 1);
        result.flops += 2.0 * (double)batch * (double)(i == DOWN || i == UP ? len_kv : len_q) * (double)rows * (double)columns;
    }
    result.cache_per_token = (m.rank + m.rotary) * m.l.size;
    result.saved_bytes = at.bytes;
    TRY(struct_write(counts, &result, sizeof result, "attn_layer_counts", error));
    return succeed(error);
}

/* The number of rows of the head that row n of matrix i belongs to; of the whole matrix if it has no heads. */
static double rows_of_head(const latent *m, int i, int64_t n, int64_t rows)
{
    if (i == QUERY_UP) return (double)(m->dim + m->rotary);
    if (i != UP) return (double)rows;
    return (double)(n % (m->dim + m->dim_v) < m->dim ? m->dim : m->dim_v);
}

attn_status attn_latent_initialise(const attn_latent *given, attn_init init, uint64_t seed, const attn_latent_weights *weights,
                                   attn_error *error)
{
    latent m;
    TRY(attn_latent_resolve(given, &m, error));
    TRY(attn_latent_bind(&m, "weights", weights, WEIGHTS_STARTED, error));
    CHECK(init >= ATTN_INIT_XAVIER && init <= ATTN_INIT_TORCH, ATTN_ERR_ARGUMENT, "latent: init (%d) is not an attn_init",
          (int)init);
    places written = {.size = (size_t)m.l.size};
    attn_places_add_weights(&written, "weights", m.weights, TENSORS, 1);
    TRY(places_check(&written, "latent", error));
    for (int i = 0; i < TENSORS; i++) {
        int64_t rows, columns;
        attn_latent_shape(&m, i, &rows, &columns);
        for (int64_t n = 0; m.w[i] && n < rows * (columns ? columns : 1); n++) {
            const uint64_t counter = ((uint64_t)i << 60) + (uint64_t)n;
            const double scale =
                i < MATRICES ? draw_scale(init, (double)columns, (double)rows, rows_of_head(&m, i, n / columns, rows)) : 0;
            number_put(&m.l, m.w[i], n, i < MATRICES ? draw_number(init, scale, seed, counter) : 1);
        }
    }
    return succeed(error);
}

attn_status attn_latent_load(const attn_latent *given, const attn_archive *tensors, const char *prefix,
                             attn_latent_weights *weights, attn_error *error)
{
    latent m;
    TRY(attn_latent_resolve(given, &m, error));
    CHECK(tensors && weights, ATTN_ERR_ARGUMENT, "latent: %s is NULL", tensors ? "weights" : "tensors");
    for (int i = 0; i < TENSORS; i++) {
        int64_t rows, columns;
        attn_latent_shape(&m, i, &rows, &columns);
        if (rows) TRY(attn_named_find(&m.l, tensors, prefix, name_of(&m, i), rows, columns, i < MATRICES, &m.w[i], error));
    }
    TRY(attn_weights_write(weights, "attn_latent_weights", m.w, m.l.dtype, TENSORS, error));
    return succeed(error);
}

attn_status attn_latent_store(const attn_latent *given, const attn_latent_weights *weights, const char *prefix,
                              attn_archive *tensors, attn_error *error)
{
    latent m;
    TRY(attn_latent_resolve(given, &m, error));
    TRY(attn_latent_bind(&m, "weights", weights, WEIGHTS_READ, error));
    CHECK(tensors, ATTN_ERR_ARGUMENT, "latent: tensors is NULL");
    _Static_assert(TENSORS <= (int)MAX_NAMED, "named_new holds what is stored");
    named_new file = {.tensors = tensors, .prefix = prefix};
    attn_status status = ATTN_OK;
    for (int i = 0; status == ATTN_OK && i < TENSORS; i++) {
        int64_t rows, columns;
        char *to;
        attn_latent_shape(&m, i, &rows, &columns);
        if (!m.w[i]) continue;
        status = attn_named_add(&m.l, &file, name_of(&m, i), rows, columns, &to, error);
        if (status == ATTN_OK) memcpy(to, m.w[i], (size_t)(rows * (columns ? columns : 1) * m.l.size));
    }
    return attn_named_end(&file, status, error);
}
