/* SPDX-License-Identifier: MIT
 * latent_rules.c - the rules of multi-head latent attention, with the message for each violation. */
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "latent.h"

void attn_latent_shape(const latent *m, int i, int64_t *rows, int64_t *columns)
{
    const int64_t queries = m->heads * (m->dim + m->rotary);
    const int64_t all[TENSORS][2] = {[QUERY_DOWN] = {m->rank_query, m->model},
                                     [QUERY_UP] = {queries, m->rank_query ? m->rank_query : m->model},
                                     [DOWN] = {m->rank + m->rotary, m->model},
                                     [UP] = {m->heads * (m->dim + m->dim_v), m->rank},
                                     [OUT] = {m->out, m->heads * m->dim_v},
                                     [QUERY_NORM] = {m->rank_query, 0},
                                     [NORM] = {m->rank, 0}};
    *rows = all[i][0];
    *columns = all[i][1];
}

static attn_status check_sizes(const latent *m, attn_error *error)
{
    const struct {
        const char *name;
        int64_t value, least;
    } sizes[] = {{"dim_model", m->model, 1},       {"dim_output", m->out, 1},   {"heads", m->heads, 1},
                 {"head_dim", m->dim, 1},          {"head_dim_v", m->dim_v, 1}, {"rank", m->rank, 1},
                 {"rank_query", m->rank_query, 0}, {"dim_rotary", m->rotary, 0}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        CHECK(sizes[i].value >= sizes[i].least && sizes[i].value <= 1 << 24, ATTN_ERR_SHAPE,
              "latent: %s (%" PRId64 ") is not between %" PRId64 " and %d", sizes[i].name, sizes[i].value, sizes[i].least, 1 << 24);
    CHECK(m->rotary % 2 == 0, ATTN_ERR_SHAPE, "latent: dim_rotary (%" PRId64 ") is odd", m->rotary);
    const int64_t widest = m->dim + (m->rotary > m->dim_v ? m->rotary : m->dim_v);
    CHECK(widest <= INT_MAX / m->heads && m->rank + m->rotary <= INT_MAX / m->heads, ATTN_ERR_SHAPE,
          "latent: %" PRId64 " heads of %" PRId64 " channels are more than %d", m->heads,
          widest > m->rank + m->rotary ? widest : m->rank + m->rotary, INT_MAX);
    return ATTN_OK;
}

attn_status attn_latent_resolve(const attn_latent *caller, latent *m, attn_error *error)
{
    attn_latent copy;
    const attn_latent *given = &copy;
    CHECK(caller, ATTN_ERR_ARGUMENT, "latent is NULL");
    TRY(struct_read(&copy, sizeof copy, sizeof copy, caller, "attn_latent", error));
    for (int i = 0; i < 4; i++) CHECK(given->reserved[i] == 0, ATTN_ERR_ARGUMENT, "latent: reserved[%d] is not 0", i);
    CHECK(given->norm_epsilon >= 0 && given->norm_epsilon < 1, ATTN_ERR_ARGUMENT,
          "latent: norm_epsilon is %g; it must be at least 0 and below 1", given->norm_epsilon);
    memset(m, 0, sizeof *m);
    m->model = given->dim_model;
    m->out = given->dim_output ? given->dim_output : given->dim_model;
    m->heads = given->heads;
    CHECK(given->head_dim || (given->heads > 0 && given->dim_model % given->heads == 0), ATTN_ERR_SHAPE,
          "latent: dim_model (%" PRId64 ") is not a multiple of heads (%" PRId64 "); set head_dim", given->dim_model, given->heads);
    m->dim = given->head_dim ? given->head_dim : given->dim_model / given->heads;
    m->dim_v = given->head_dim_v ? given->head_dim_v : m->dim;
    m->rank = given->rank ? given->rank : m->dim;
    m->rank_query = given->rank_query;
    m->rotary = given->dim_rotary;
    m->epsilon = given->norm_epsilon > 0 ? given->norm_epsilon : 1e-6;
    TRY(check_sizes(m, error));
    CHECK(m->rotary || !given->rope, ATTN_ERR_ARGUMENT, "latent: rope is set, but dim_rotary is 0");
    m->rope = (attn_rope){.struct_size = sizeof m->rope};
    if (given->rope) TRY(struct_read(&m->rope, sizeof m->rope, sizeof m->rope, given->rope, "attn_rope", error));
    CHECK(!m->rope.dim_rotary || m->rope.dim_rotary == m->rotary, ATTN_ERR_SHAPE,
          "latent: rope.dim_rotary is %" PRId64 "; leave it 0, which means all %" PRId64 " rotated channels", m->rope.dim_rotary,
          m->rotary);
    const attn_layer between = {.struct_size = sizeof between,
                                .dtype = given->dtype,
                                .dim_model = given->dim_model,
                                .heads_q = m->heads,
                                .head_dim = m->dim + m->rotary,
                                .head_dim_v = m->dim_v,
                                .attention = given->attention};
    TRY(attn_layer_resolve(&between, &m->l, error));
    CHECK(!m->l.attention || !m->l.attention->score.dim_k, ATTN_ERR_ARGUMENT,
          "latent: attention.score.dim_k is set; keys are as wide as queries");
    return ATTN_OK;
}

_Static_assert(sizeof(attn_latent_weights) == offsetof(attn_latent_weights, query_down) + TENSORS * sizeof(attn_output),
               "struct_size, then slots");

attn_status attn_latent_bind(latent *m, const char *what, const attn_latent_weights *given, weights_role role, attn_error *error)
{
    const int64_t in = m->rank_query ? m->rank_query : m->model, width = m->dim + m->rotary, both = m->dim + m->dim_v;
    const attn_need low = m->rank_query ? ATTN_NEED_ALWAYS : ATTN_NEED_NEVER;
    const weight_slot all[TENSORS] = {
        [QUERY_DOWN] = {.name = "query_down", .shape = {1, 1, m->rank_query, m->model}, .need = low},
        [QUERY_UP] = {.name = "query", .shape = {1, m->heads, width, in}, .need = ATTN_NEED_ALWAYS},
        [DOWN] = {.name = "down", .shape = {1, 1, m->rank + m->rotary, m->model}, .need = ATTN_NEED_ALWAYS},
        [UP] = {.name = "up", .shape = {1, m->heads, both, m->rank}, .need = ATTN_NEED_ALWAYS},
        [OUT] = {.name = "output", .shape = {1, m->out, m->heads, m->dim_v}, .need = ATTN_NEED_ALWAYS},
        [QUERY_NORM] = {.name = "query_norm",
                        .shape = {1, 1, 1, m->rank_query},
                        .need = m->rank_query ? ATTN_NEED_OPTIONAL : ATTN_NEED_NEVER},
        [NORM] = {.name = "norm", .shape = {1, 1, 1, m->rank}, .need = ATTN_NEED_OPTIONAL}};
    memcpy(m->weights, all, sizeof all);
    for (int i = 0; i < TENSORS; i++) m->weights[i].dense = 1, m->weights[i].because = "rank_query is 0";
    TRY(attn_weights_read("latent", what, role, "attn_latent_weights", given, m->l.dtype, m->weights, TENSORS, error));
    for (int i = 0; i < TENSORS; i++) m->w[i] = m->weights[i].data;
    return ATTN_OK;
}
