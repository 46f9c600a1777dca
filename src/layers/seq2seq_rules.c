/* SPDX-License-Identifier: MIT
 * seq2seq_rules.c - the rules of a sequence-to-sequence module and its inner layer; counting, initialising, files. */
#include "seq2seq.h"

#include <inttypes.h>
#include <string.h>

#include "draw.h"
#include "named.h"

/* Rows and columns of tensor i; rows 0: the module lacks it; columns 0: a vector. */
static void shape_of(const module *m, int i, int64_t *rows, int64_t *columns)
{
    const int general = m->score == ATTN_SCORE_GENERAL;
    const int64_t all[MODULE_TENSORS][2] = {[SCORE_WEIGHT] = {general ? m->state : m->hidden, general ? m->memory : 0},
                                            [STATE_WEIGHT] = {m->hidden, m->state},
                                            [MEMORY_WEIGHT] = {m->hidden, m->memory},
                                            [HIDDEN_BIAS] = {m->hidden, 0},
                                            [COMBINE] = {m->output, m->memory + m->state}};
    *rows = all[i][0];
    *columns = all[i][1];
}

static attn_status check_options(const attn_problem *p, attn_error *error)
{
    const struct {
        const char *name;
        int set;
    } filled[] = {{"kind", p->score.kind != 0},
                  {"dim_k", p->score.dim_k != 0},
                  {"dim_metric", p->score.dim_metric != 0},
                  {"additive_bias", p->score.additive_bias}};
    for (size_t i = 0; i < sizeof filled / sizeof *filled; i++)
        CHECK(!filled[i].set, ATTN_ERR_ARGUMENT, "seq2seq: attention.score.%s is set; the module fills it in, leave it 0",
              filled[i].name);
    return ATTN_OK;
}

attn_status attn_module_resolve(const attn_seq2seq *caller, module *m, attn_error *error)
{
    attn_seq2seq copy;
    const attn_seq2seq *given = &copy;
    CHECK(caller, ATTN_ERR_ARGUMENT, "seq2seq: module is NULL");
    TRY(struct_read(&copy, sizeof copy, sizeof copy, caller, "attn_seq2seq", error));
    for (int i = 0; i < 4; i++) CHECK(given->reserved[i] == 0, ATTN_ERR_ARGUMENT, "seq2seq: reserved[%d] is not 0", i);
    memset(m, 0, sizeof *m);
    m->dtype = given->dtype ? given->dtype : ATTN_F32;
    m->state = given->dim_state;
    m->memory = given->dim_memory;
    m->hidden = given->dim_hidden;
    m->output = given->dim_output;
    m->score = given->score;
    const int additive = m->score == ATTN_SCORE_ADDITIVE;
    CHECK(additive || m->score == ATTN_SCORE_DOT || m->score == ATTN_SCORE_GENERAL, ATTN_ERR_ARGUMENT,
          "seq2seq: score (%d) is neither dot, general nor additive", (int)m->score);
    const struct {
        const char *name;
        int64_t value, least, most;
    } sizes[] = {{"dim_state", m->state, 1, 1 << 24},
                 {"dim_memory", m->memory, 1, 1 << 24},
                 {"dim_hidden", m->hidden, additive, additive ? 1 << 24 : 0},
                 {"dim_output", m->output, 0, 1 << 24}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        CHECK(sizes[i].value >= sizes[i].least && sizes[i].value <= sizes[i].most, ATTN_ERR_SHAPE,
              "seq2seq: %s (%" PRId64 ") is not between %" PRId64 " and %" PRId64, sizes[i].name, sizes[i].value, sizes[i].least,
              sizes[i].most);
    CHECK(m->score != ATTN_SCORE_DOT || m->state == m->memory, ATTN_ERR_SHAPE,
          "seq2seq: dim_state (%" PRId64 ") is not dim_memory (%" PRId64 "), which a dot product needs", m->state, m->memory);
    if (given->attention)
        TRY(struct_read(&m->attention, sizeof m->attention, sizeof m->attention, given->attention, "attn_problem", error));
    TRY(check_options(&m->attention, error));
    m->attention.struct_size = sizeof m->attention;
    m->attention.score.kind = m->score;
    if (m->attention.score.scale_kind == ATTN_SCALE_DEFAULT) /* 1, even for dot products */
        m->attention.score.scale_kind = ATTN_SCALE_VALUE, m->attention.score.scale = 1;
    if (m->score == ATTN_SCORE_GENERAL) m->attention.score.dim_k = m->memory;
    m->between = (attn_layer){.struct_size = sizeof m->between,
                              .dtype = m->dtype,
                              .dim_model = m->state,
                              .dim_key = m->memory,
                              .heads_q = 1,
                              .head_dim = additive ? m->hidden : m->state,
                              .head_dim_v = m->memory,
                              .no_query = !additive,
                              .no_key = !additive,
                              .no_value = 1,
                              .no_output = 1,
                              .attention = &m->attention};
    return ATTN_OK;
}

_Static_assert(sizeof(attn_seq2seq_weights) == offsetof(attn_seq2seq_weights, w) + MODULE_TENSORS * sizeof(attn_output),
               "struct_size, then slots");

attn_status attn_module_bind(module *m, const char *what, const attn_seq2seq_weights *given, weights_role role, attn_error *error)
{
    static const char *const names[MODULE_TENSORS] = {"w", "state", "memory", "bias", "combine"};
    for (int i = 0; i < MODULE_TENSORS; i++) {
        int64_t rows, columns;
        shape_of(m, i, &rows, &columns);
        m->weights[i] = (weight_slot){.name = names[i],
                                      .shape = {1, 1, columns ? rows : 1, columns ? columns : rows},
                                      .need = !rows              ? ATTN_NEED_NEVER
                                              : i == HIDDEN_BIAS ? ATTN_NEED_OPTIONAL
                                                                 : ATTN_NEED_ALWAYS,
                                      .because = "the module has none",
                                      .dense = 1};
    }
    TRY(attn_weights_read("seq2seq", what, role, "attn_seq2seq_weights", given, m->dtype, m->weights, MODULE_TENSORS, error));
    for (int i = 0; i < MODULE_TENSORS; i++) m->w[i] = m->weights[i].data;
    return ATTN_OK;
}

static attn_output dense_of(const module *m, int i)
{
    return (attn_output){m->w[i], m->w[i] ? m->dtype : ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}};
}

attn_layer_weights attn_module_weights(const module *m)
{
    return (attn_layer_weights){.struct_size = sizeof(attn_layer_weights),
                                .query = dense_of(m, STATE_WEIGHT),
                                .query_bias = dense_of(m, HIDDEN_BIAS),
                                .key = dense_of(m, MEMORY_WEIGHT)};
}

attn_status attn_module_bytes(const module *m, int64_t batch, int64_t len_q, int64_t *joined, int64_t *y, attn_error *error)
{
    const int64_t size = (int64_t)attn_dtype_size(m->dtype);
    TRY(attn_layer_bytes(size, batch, len_q, m->output ? m->memory + m->state : 0, joined, error));
    return attn_layer_bytes(size, batch, len_q, m->output, y, error);
}

/* ---- counting, initialising, files ---- */

attn_status attn_seq2seq_count(const attn_seq2seq *given, int64_t batch, int64_t len_q, int64_t len_kv,
                               const attn_seq2seq_weights *weights, attn_layer_counts *counts, attn_error *error)
{
    module m;
    attn_layer_counts result = {.struct_size = sizeof result};
    TRY(attn_module_resolve(given, &m, error));
    CHECK(counts, ATTN_ERR_ARGUMENT, "seq2seq: counts is NULL");
    if (weights) TRY(attn_module_bind(&m, "weights", weights, WEIGHTS_COUNTED, error));
    TRY(attn_layer_count(&m.between, batch, len_q, len_kv, NULL, &result, error));
    result.parameters = 0;
    for (int i = 0; i < MODULE_TENSORS; i++) {
        int64_t rows, columns;
        shape_of(&m, i, &rows, &columns);
        if (i != HIDDEN_BIAS || m.w[i]) result.parameters += rows * (columns ? columns : 1);
    }
    int64_t joined, output;
    TRY(attn_module_bytes(&m, batch, len_q, &joined, &output, error));
    result.saved_bytes += joined + output;
    result.flops += 2.0 * (double)batch * (double)len_q * (double)m.output * (double)(m.memory + m.state);
    TRY(struct_write(counts, &result, sizeof result, "attn_layer_counts", error));
    return succeed(error);
}

attn_status attn_seq2seq_initialise(const attn_seq2seq *given, attn_init init, uint64_t seed, const attn_seq2seq_weights *weights,
                                    attn_error *error)
{
    module m;
    TRY(attn_module_resolve(given, &m, error));
    TRY(attn_module_bind(&m, "weights", weights, WEIGHTS_STARTED, error));
    CHECK(init >= ATTN_INIT_XAVIER && init <= ATTN_INIT_TORCH, ATTN_ERR_ARGUMENT, "seq2seq: init (%d) is not an attn_init",
          (int)init);
    places written = {.size = attn_dtype_size(m.dtype)};
    attn_places_add_weights(&written, "weights", m.weights, MODULE_TENSORS, 1);
    TRY(places_check(&written, "seq2seq", error));
    const layer of_type = {.dtype = m.dtype};
    for (int i = 0; i < MODULE_TENSORS; i++) {
        int64_t rows, columns;
        shape_of(&m, i, &rows, &columns);
        const int vector = columns == 0; /* a matrix of one row */
        const double in = (double)(vector ? rows : columns), out = (double)(vector ? 1 : rows);
        for (int64_t n = 0; m.w[i] && n < rows * (columns ? columns : 1); n++)
            number_put(
                &of_type, m.w[i], n,
                i == HIDDEN_BIAS ? 0 : draw_number(init, draw_scale(init, in, out, out), seed, ((uint64_t)i << 60) + (uint64_t)n));
    }
    return succeed(error);
}

static const char *const file_names[MODULE_TENSORS] = {"w", "state.weight", "memory.weight", "bias", "combine.weight"};

attn_status attn_seq2seq_load(const attn_seq2seq *given, const attn_archive *tensors, const char *prefix,
                              attn_seq2seq_weights *weights, attn_error *error)
{
    module m;
    TRY(attn_module_resolve(given, &m, error));
    CHECK(tensors && weights, ATTN_ERR_ARGUMENT, "seq2seq: %s is NULL", tensors ? "weights" : "tensors");
    const layer of_type = {.dtype = m.dtype};
    for (int i = 0; i < MODULE_TENSORS; i++) {
        int64_t rows, columns;
        shape_of(&m, i, &rows, &columns);
        if (rows) TRY(attn_named_find(&of_type, tensors, prefix, file_names[i], rows, columns, i != HIDDEN_BIAS, &m.w[i], error));
    }
    TRY(attn_weights_write(weights, "attn_seq2seq_weights", m.w, m.dtype, MODULE_TENSORS, error));
    return succeed(error);
}

attn_status attn_seq2seq_store(const attn_seq2seq *given, const attn_seq2seq_weights *weights, const char *prefix,
                               attn_archive *tensors, attn_error *error)
{
    module m;
    TRY(attn_module_resolve(given, &m, error));
    TRY(attn_module_bind(&m, "weights", weights, WEIGHTS_READ, error));
    CHECK(tensors, ATTN_ERR_ARGUMENT, "seq2seq: tensors is NULL");
    const layer of_type = {.dtype = m.dtype};
    _Static_assert(MODULE_TENSORS <= (int)MAX_NAMED, "named_new holds what is stored");
    named_new file = {.tensors = tensors, .prefix = prefix};
    attn_status status = ATTN_OK;
    for (int i = 0; status == ATTN_OK && i < MODULE_TENSORS; i++) {
        int64_t rows, columns;
        char *to;
        shape_of(&m, i, &rows, &columns);
        if (!m.w[i]) continue;
        status = attn_named_add(&of_type, &file, file_names[i], rows, columns, &to, error);
        if (status == ATTN_OK) memcpy(to, m.w[i], (size_t)(rows * (columns ? columns : 1)) * attn_dtype_size(m.dtype));
    }
    return attn_named_end(&file, status, error);
}
