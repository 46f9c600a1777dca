/* SPDX-License-Identifier: MIT
 * distance.c - biases by distance as plain functions: the bucket of a distance, a bias from a table, the gradient of the table. */
#include "../base/distance.h"
#include "../../common/bound.h"

int64_t attn_distance_bucket(const attn_distance_bias *rule, int64_t d)
{
    attn_distance_bias r = {0};
    return attn_distance_resolve(rule, &r, NULL) == ATTN_OK ? attn_distance_bucket_of(&r, d) : -1;
}

int64_t attn_distance_buckets(const attn_distance_bias *rule)
{
    attn_distance_bias r = {0};
    return attn_distance_resolve(rule, &r, NULL) == ATTN_OK ? r.buckets : -1;
}

static bound_rule table_of(const attn_distance_bias *r, const char *name, attn_dtype natural)
{
    return (bound_rule){.name = name, .shape = {1, r->heads, r->buckets, 1}, .natural = natural, .types = BOUND_REAL};
}

static bound_rule bias_of(const attn_distance_bias *r, const char *name, attn_dtype natural)
{
    return (bound_rule){.name = name, .shape = {1, r->heads, r->len_q, r->len_kv}, .natural = natural, .types = BOUND_REAL};
}

static attn_status check_offset(const attn_distance_bias *r, attn_error *error)
{
    const int64_t most = (int64_t)1 << 60;
    CHECK(r->offset_q >= -most && r->offset_q <= most, ATTN_ERR_ARGUMENT,
          "distance bias: offset_q is %" PRId64 "; it must be between -2^60 and 2^60", r->offset_q);
    return ATTN_OK;
}

attn_status attn_distance_bias_fill(const attn_distance_bias *rule, const attn_input *table, const attn_output *bias,
                                    attn_error *error)
{
    attn_distance_bias r = {0};
    bound_call call = {.module = "distance bias"};
    bound_tensor from, to;
    TRY(attn_distance_resolve(rule, &r, error));
    TRY(bound_input(&call, table_of(&r, "table", ATTN_F32), table, &from, error));
    TRY(bound_output(&call, bias_of(&r, "bias", from.dtype), bias, &to, error));
    TRY(check_offset(&r, error));
    TRY(bound_no_overlap(&call, error));
    const int64_t heads = r.len_q > 0 && r.len_kv > 0 ? r.heads : 0; /* a table that heads share may have any number of them */
    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < r.len_q; i++)
            for (int64_t j = 0; j < r.len_kv; j++)
                bound_put(&to, bound_at(&to, 0, h, i, j),
                          bound_get(&from, bound_at(&from, 0, h, attn_distance_bucket_of(&r, i + r.offset_q - j), 0)));
    return succeed(error);
}

attn_status attn_distance_bias_backward(const attn_distance_bias *rule, const attn_input *grad_bias, const attn_output *grad_table,
                                        attn_error *error)
{
    enum { MAX_BUCKETS = 2048 }; /* buckets of one pass over the pairs */
    attn_distance_bias r = {0};
    bound_call call = {.module = "distance bias"};
    bound_tensor from, to;
    TRY(attn_distance_resolve(rule, &r, error));
    TRY(bound_input(&call, bias_of(&r, "grad_bias", ATTN_F32), grad_bias, &from, error));
    TRY(bound_output(&call, table_of(&r, "grad_table", from.dtype), grad_table, &to, error));
    TRY(check_offset(&r, error));
    TRY(bound_no_overlap(&call, error));
    for (int64_t h = 0; h < r.heads; h++)
        for (int64_t first = 0; first < r.buckets; first += MAX_BUCKETS) {
            const int64_t count = r.buckets - first < MAX_BUCKETS ? r.buckets - first : MAX_BUCKETS;
            double sums[MAX_BUCKETS] = {0};
            for (int64_t i = 0; i < r.len_q && r.len_kv > 0; i++)
                for (int64_t j = 0; j < r.len_kv; j++) {
                    const int64_t n = attn_distance_bucket_of(&r, i + r.offset_q - j) - first;
                    if (n >= 0 && n < count) sums[n] += bound_get(&from, bound_at(&from, 0, h, i, j));
                }
            for (int64_t n = 0; n < count; n++) bound_put(&to, bound_at(&to, 0, h, first + n, 0), sums[n]);
        }
    return succeed(error);
}
