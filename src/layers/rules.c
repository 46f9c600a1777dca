/* SPDX-License-Identifier: MIT
 * rules.c - the rules of a layer, with the message for each violation. */
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "layer.h"

/* The limit of sizes and strides, so that no product of two overflows. */
static const int64_t largest = INT_MAX;

static attn_status check_size(const char *name, int64_t value, int64_t least, attn_error *error)
{
    CHECK(value >= least && value <= largest, ATTN_ERR_SHAPE, "layer: %s (%" PRId64 ") is not between %" PRId64 " and %" PRId64,
          name, value, least, largest);
    return ATTN_OK;
}

/* The parts of attn_layer.attention that the layer fills in must be empty. */
static attn_status check_attention(const attn_problem *p, attn_error *error)
{
    static const attn_shape no_shape;
    static const attn_paging no_paging;
    CHECK(p->op == ATTN_FORWARD && memcmp(&p->shape, &no_shape, sizeof no_shape) == 0, ATTN_ERR_ARGUMENT,
          "layer: attention.%s is set; the layer fills it in, leave it 0", p->op ? "op" : "shape");
    CHECK(memcmp(&p->paging, &no_paging, sizeof no_paging) == 0, ATTN_ERR_UNSUPPORTED,
          "layer: attention.paging is set; attn_layer_decode fills it in from its cache");
    return ATTN_OK;
}

static void describe_projections(layer *l, const attn_layer *given)
{
    const projection all[PROJECTIONS] = {
        {"query", {0}, l->heads_q, l->head_dim, l->inputs[QUERY], 0, given->no_query},
        {"key", {0}, l->heads_kv, l->head_dim_k, l->inputs[KEY], 0, given->no_key},
        {"value", {0}, l->heads_kv, l->head_dim_v, l->inputs[VALUE], 0, given->no_value},
        {"output", {0}, l->heads_q, l->head_dim_v, l->dim_output, 1, given->no_output},
    };
    memcpy(l->projections, all, sizeof all);
}

/* An input without a projection must have as many channels as its heads together. */
static attn_status check_widths(const layer *l, attn_error *error)
{
    for (int i = QUERY; i <= VALUE; i++) {
        const projection *p = &l->projections[i];
        CHECK(!p->none || p->model == p->heads * p->dim, ATTN_ERR_SHAPE,
              "layer: the %s input has %" PRId64 " channels; without a projection it must be %" PRId64 " heads of %" PRId64,
              p->name, p->model, p->heads, p->dim);
    }
    return ATTN_OK;
}

attn_status attn_layer_resolve(const attn_layer *caller, layer *l, attn_error *error)
{
    attn_layer copy;
    const attn_layer *given = &copy;
    CHECK(caller, ATTN_ERR_ARGUMENT, "layer is NULL");
    TRY(struct_read(&copy, sizeof copy, sizeof copy, caller, "attn_layer", error));
    for (int i = 0; i < 4; i++) CHECK(given->reserved[i] == 0, ATTN_ERR_ARGUMENT, "layer: reserved[%d] is not 0", i);
    memset(l, 0, offsetof(layer, weights));
    l->dtype = given->dtype ? given->dtype : ATTN_F32;
    CHECK(l->dtype == ATTN_F32 || l->dtype == ATTN_F64, ATTN_ERR_ARGUMENT, "layer: dtype is %s; it must be f32 or f64",
          attn_dtype_name(l->dtype));
    l->size = (int64_t)attn_dtype_size(l->dtype);
    l->heads_q = given->heads_q;
    l->heads_kv = given->heads_kv ? given->heads_kv : given->heads_q;
    TRY(check_size("dim_model", given->dim_model, 1, error));
    TRY(check_size("heads_q", l->heads_q, 1, error));
    TRY(check_size("heads_kv", l->heads_kv, 1, error));
    CHECK(l->heads_q % l->heads_kv == 0, ATTN_ERR_SHAPE, "layer: heads_q (%" PRId64 ") is not a multiple of heads_kv (%" PRId64 ")",
          l->heads_q, l->heads_kv);
    CHECK(given->head_dim || given->dim_model % l->heads_q == 0, ATTN_ERR_SHAPE,
          "layer: dim_model (%" PRId64 ") is not a multiple of heads_q (%" PRId64 "); set head_dim", given->dim_model, l->heads_q);
    l->head_dim = given->head_dim ? given->head_dim : given->dim_model / l->heads_q;
    l->head_dim_v = given->head_dim_v ? given->head_dim_v : l->head_dim;
    l->inputs[QUERY] = given->dim_model;
    l->inputs[KEY] = given->dim_key ? given->dim_key : given->dim_model;
    l->inputs[VALUE] = given->dim_value ? given->dim_value : l->inputs[KEY];
    l->no_output = given->no_output;
    l->dim_output = given->dim_output ? given->dim_output : given->dim_model;
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"dim_key", l->inputs[KEY]},
                 {"dim_value", l->inputs[VALUE]},
                 {"dim_output", l->dim_output},
                 {"head_dim", l->head_dim},
                 {"head_dim_v", l->head_dim_v}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) TRY(check_size(sizes[i].name, sizes[i].value, 1, error));
    const int64_t widest = l->head_dim > l->head_dim_v ? l->head_dim : l->head_dim_v;
    CHECK(widest <= largest / l->heads_q, ATTN_ERR_SHAPE, "layer: %" PRId64 " heads of %" PRId64 " channels are more than %" PRId64,
          l->heads_q, widest, largest);
    if (l->no_output) {
        CHECK(given->dim_output == 0 || given->dim_output == l->heads_q * l->head_dim_v, ATTN_ERR_SHAPE,
              "layer: dim_output is %" PRId64 "; without an output projection it must be heads_q * head_dim_v (%" PRId64 ")",
              given->dim_output, l->heads_q * l->head_dim_v);
        l->dim_output = l->heads_q * l->head_dim_v;
    }
    l->rope = given->rope;
    if (given->attention) {
        TRY(struct_read(&l->options, sizeof l->options, sizeof l->options, given->attention, "attn_problem", error));
        l->attention = &l->options;
        TRY(check_attention(l->attention, error));
    }
    l->head_dim_k = l->attention && l->attention->score.dim_k ? l->attention->score.dim_k : l->head_dim;
    CHECK(l->head_dim_k == l->head_dim || (!l->rope && l->attention->score.kind == ATTN_SCORE_GENERAL), ATTN_ERR_SHAPE,
          "layer: attention.score.dim_k is %" PRId64 " and head_dim %" PRId64
          "; they may differ only for the general score without a rope",
          l->head_dim_k, l->head_dim);
    TRY(check_size("attention.score.dim_k", l->head_dim_k, 1, error));
    CHECK(l->head_dim_k <= largest / l->heads_kv, ATTN_ERR_SHAPE,
          "layer: %" PRId64 " key heads of %" PRId64 " channels are more than %" PRId64, l->heads_kv, l->head_dim_k, largest);
    describe_projections(l, given);
    return check_widths(l, error);
}

/* Fills in the rules of all weights and biases. */
static void describe_weights(layer *l)
{
    static const char *const names[PROJECTIONS][3] = {{"query", "query_bias", "no_query is set"},
                                                      {"key", "key_bias", "no_key is set"},
                                                      {"value", "value_bias", "no_value is set"},
                                                      {"output", "output_bias", "no_output is set"}};
    for (int i = 0; i < PROJECTIONS; i++) {
        const projection *p = &l->projections[i];
        const weight_slot matrix = {.name = names[i][0],
                                    .because = names[i][2],
                                    .need = p->none ? ATTN_NEED_NEVER : ATTN_NEED_ALWAYS},
                          bias = {.name = names[i][1],
                                  .because = names[i][2],
                                  .need = p->none && p->to_model ? ATTN_NEED_NEVER : ATTN_NEED_OPTIONAL,
                                  .dense = 1};
        const int64_t in[4] = {1, p->heads, p->dim, p->model}, out[4] = {1, p->model, p->heads, p->dim},
                      of_heads[4] = {1, p->heads, p->dim, 1}, of_model[4] = {1, 1, 1, p->model};
        l->weights[i] = matrix;
        l->weights[PROJECTIONS + i] = bias;
        memcpy(l->weights[i].shape, p->to_model ? out : in, sizeof in);
        memcpy(l->weights[PROJECTIONS + i].shape, p->to_model ? of_model : of_heads, sizeof in);
    }
    const int64_t heads = l->projections[KEY].heads;
    l->weights[EXTRA_KEY] =
        (weight_slot){.name = "extra_key", .shape = {1, heads, l->head_dim, 1}, .need = ATTN_NEED_OPTIONAL, .dense = 1};
    l->weights[EXTRA_VALUE] =
        (weight_slot){.name = "extra_value", .shape = {1, heads, l->head_dim_v, 1}, .need = ATTN_NEED_OPTIONAL, .dense = 1};
}

/* Checks that a matrix product can read the matrix: either its channels or its model axis must be contiguous. */
static attn_status bind_projection(projection *p, const weight_slot *w, const weight_slot *bias, const char *what,
                                   attn_error *error)
{
    const int64_t *s = w->stride;
    p->at =
        (projection_memory){w->data, bias->data, p->to_model ? s[2] : s[1], p->to_model ? s[3] : s[2], p->to_model ? s[1] : s[3]};
    CHECK(!w->data || p->dim == 1 || p->model == 1 || p->at.stride_model == 1 || p->at.stride_channel == 1, ATTN_ERR_STRIDE,
          "layer: %s.%s has a stride of %" PRId64 " for channels and of %" PRId64 " for the model; one of them must be 1", what,
          w->name, p->at.stride_channel, p->at.stride_model);
    /* An axis of size 1 may have any stride, so it gets the one that makes the matrix readable; heads of one channel are treated as
     * channels of one head. */
    if (p->model == 1 && p->at.stride_channel != 1) p->at.stride_model = 1;
    if (p->dim == 1) p->at.stride_channel = p->at.stride_model == 1 ? p->at.stride_head : 1;
    return ATTN_OK;
}

_Static_assert(sizeof(attn_layer_weights) == offsetof(attn_layer_weights, query) + LAYER_WEIGHTS * sizeof(attn_output),
               "struct_size, then slots");

attn_status attn_layer_bind(layer *l, const char *what, const attn_layer_weights *given, weights_role role, attn_error *error)
{
    weight_slot *const w = l->weights;
    describe_weights(l);
    TRY(attn_weights_read("layer", what, role, "attn_layer_weights", given, l->dtype, w, LAYER_WEIGHTS, error));
    for (int i = 0; i < PROJECTIONS; i++)
        if (role == WEIGHTS_COUNTED) l->projections[i].at.bias = w[PROJECTIONS + i].data;
        else TRY(bind_projection(&l->projections[i], &w[i], &w[PROJECTIONS + i], what, error));
    CHECK(role == WEIGHTS_OPTIONAL || !w[EXTRA_KEY].data == !w[EXTRA_VALUE].data, ATTN_ERR_ARGUMENT,
          "layer: %s.%s is set and %s is not", what, w[EXTRA_KEY].data ? "extra_key" : "extra_value",
          w[EXTRA_KEY].data ? "extra_value" : "extra_key");
    l->extra_key = w[EXTRA_KEY].data;
    l->extra_value = w[EXTRA_VALUE].data;
    return ATTN_OK;
}

void attn_places_add_rows(places *p, const char *name, const sequence *r, int output)
{
    const int64_t shape[4] = {r->batch, 1, r->tokens, r->channels}, stride[4] = {r->stride_batch, 0, r->stride_token, 1};
    places_add(p, "", name, r->data, shape, stride, output);
}

/* Checks a slot.  Its label is composed only when an error needs it. */
static attn_status check_slot(const attn_input *slot, const char *name, int elements, attn_error *error)
{
    char label[64];
    if (slot_is_address(slot) || slot_is_absent(slot)) return ATTN_OK;
    text_join(label, sizeof label, "layer: ", name, "");
    return slot_check(slot, label, elements, error);
}

static attn_status check_alignment(const attn_input *slot, const char *name, size_t size, attn_error *error)
{
    char label[64];
    if (((uintptr_t)slot->data & (size - 1)) == 0) return ATTN_OK; /* sizes are powers of 2 */
    text_join(label, sizeof label, "layer: ", name, "");
    return slot_aligned(slot, label, size, error);
}

attn_status attn_layer_dense(attn_dtype dtype, const attn_input *slot, const char *name, int elements, const void **data,
                             attn_error *error)
{
    TRY(check_slot(slot, name, elements, error));
    CHECK(!slot->dtype || slot->dtype == dtype, ATTN_ERR_UNSUPPORTED, "layer: %s is %s; it must be %s", name,
          attn_dtype_name(slot->dtype), attn_dtype_name(dtype));
    TRY(check_alignment(slot, name, attn_dtype_size(dtype), error));
    CHECK(slot_is_dense(slot), ATTN_ERR_STRIDE, "layer: %s has strides; it must be dense (all 0)", name);
    *data = slot->data;
    return ATTN_OK;
}

attn_status attn_layer_rows_out(attn_dtype dtype, const attn_output *given, const char *name, int64_t batch, int64_t tokens,
                                int64_t channels, int needed, sequence *r, attn_error *error)
{
    const attn_input slot = slot_of(given);
    return attn_layer_rows(dtype, &slot, name, batch, tokens, channels, needed, r, error);
}

attn_status attn_layer_rows(attn_dtype dtype, const attn_input *given, const char *name, int64_t batch, int64_t tokens,
                            int64_t channels, int needed, sequence *r, attn_error *error)
{
    const int some = batch > 0 && tokens > 0;
    TRY(check_slot(given, name, some, error));
    *r = (sequence){slot_written(given), batch, tokens, channels, given->stride[0], given->stride[2]};
    CHECK(!needed || r->data || !some, ATTN_ERR_ARGUMENT, "layer: %s.data is NULL", name);
    CHECK(!given->dtype || given->dtype == dtype, ATTN_ERR_UNSUPPORTED, "layer: %s is %s; the layer is %s", name,
          attn_dtype_name(given->dtype), attn_dtype_name(dtype));
    TRY(check_alignment(given, name, attn_dtype_size(dtype), error));
    const int64_t shape[4] = {batch, 1, tokens, channels};
    CHECK(sizes_fit(8, shape, 4), ATTN_ERR_SHAPE, "layer: %s is too large: its bytes overflow 64 bits", name);
    if (slot_is_dense(given)) {
        r->stride_token = channels;
        r->stride_batch = some ? tokens * channels : 0;
    } else
        CHECK(given->stride[3] == 1 || channels == 1, ATTN_ERR_STRIDE,
              "layer: %s.stride[3] is %" PRId64 "; the last axis must be contiguous (1)", name, given->stride[3]);
    CHECK(r->stride_token >= 0 && r->stride_batch >= 0 && r->stride_token <= largest, ATTN_ERR_STRIDE,
          "layer: %s has strides %" PRId64 " and %" PRId64 "; that of tokens must be between 0 and %" PRId64
          ", the other not negative",
          name, r->stride_batch, r->stride_token, largest);
    const int64_t strides[4] = {r->stride_batch, 0, r->stride_token, 1};
    const int beyond = strides_beyond(8, shape, strides);
    CHECK(beyond < 0, ATTN_ERR_SHAPE, "layer: %s.stride[%d] (%" PRId64 ") times its size (%" PRId64 ") overflows 64-bit addresses",
          name, beyond, strides[beyond < 0 ? 0 : beyond], shape[beyond < 0 ? 0 : beyond]);
    if (!some) { /* walks go over the entries, of which there may be any number */
        r->batch = 0;
        return ATTN_OK;
    }
    /* either the tokens of an entry are contiguous, or the entries of a token */
    const int by_entry = (tokens <= 1 || r->stride_token >= channels) &&
                         (batch <= 1 || r->stride_batch >= (tokens - 1) * r->stride_token + channels),
              by_token = (batch <= 1 || r->stride_batch >= channels) &&
                         (tokens <= 1 || r->stride_token >= (batch - 1) * r->stride_batch + channels);
    CHECK(by_entry || by_token, ATTN_ERR_STRIDE,
          "layer: %s: rows of %" PRId64 " channels overlap with strides %" PRId64 " and %" PRId64, name, channels, r->stride_batch,
          r->stride_token);
    return ATTN_OK;
}

attn_status attn_layer_bytes(int64_t size, int64_t a, int64_t b, int64_t c, int64_t *bytes, attn_error *error)
{
    const int64_t factors[] = {a, b, c};
    *bytes = size;
    for (int i = 0; i < 3; i++) {
        const int small = (uint64_t)(*bytes | factors[i]) >> 28 == 0; /* avoids a division, which takes longer than the rest */
        CHECK(small || factors[i] == 0 || *bytes <= INT64_MAX / 64 / factors[i], ATTN_ERR_SHAPE,
              "layer: the bytes of %" PRId64 " x %" PRId64 " x %" PRId64 " numbers overflow 64 bits", a, b, c);
        *bytes *= factors[i];
    }
    *bytes = (*bytes + 63) / 64 * 64;
    return ATTN_OK;
}
