/* SPDX-License-Identifier: MIT
 * distance.c - biases by distance as plain functions: the bucket of a distance, a bias from a table, the gradient of the table. */
#include <inttypes.h>

#include "../base/checked.h"
#include "../base/distance.h"
#include "../base/element.h"
#include "../base/error.h"
#include "../base/names.h"

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

static attn_status check_arrays(attn_dtype dtype, const void *table, const void *bias, const attn_distance_bias *r,
                                attn_error *error)
{
    CHECK(dtype == ATTN_F32 || dtype == ATTN_F64, ATTN_ERR_UNSUPPORTED, "distance bias: numbers are %s; they must be f32 or f64",
          attn_dtype_text(dtype));
    CHECK(table || r->heads == 0, ATTN_ERR_ARGUMENT, "distance bias: the table is NULL");
    CHECK(bias || r->heads == 0 || r->len_q == 0 || r->len_kv == 0, ATTN_ERR_ARGUMENT, "distance bias: the bias is NULL");
    const int64_t size = (int64_t)attn_dtype_bytes(dtype), most = (int64_t)1 << 60;
    int64_t rows = 0, numbers = 0, bytes = 0;
    CHECK(attn_mul(r->heads, r->buckets, &numbers) && attn_mul(numbers, size, &bytes), ATTN_ERR_SHAPE,
          "distance bias: the table has %" PRId64 " heads of %" PRId64 " buckets: more bytes than 64 bits count", r->heads,
          r->buckets);
    CHECK(attn_mul(r->heads, r->len_q, &rows) && attn_mul(rows, r->len_kv, &numbers) && attn_mul(numbers, size, &bytes),
          ATTN_ERR_SHAPE,
          "distance bias: the bias has %" PRId64 " heads, %" PRId64 " queries and %" PRId64 " keys: more bytes than 64 bits count",
          r->heads, r->len_q, r->len_kv);
    CHECK(r->offset_q >= -most && r->offset_q <= most, ATTN_ERR_ARGUMENT,
          "distance bias: offset_q is %" PRId64 "; it is within -2^60..2^60", r->offset_q);
    return ATTN_OK;
}

attn_status attn_distance_bias_fill(const attn_distance_bias *rule, attn_dtype dtype, const void *table, void *bias,
                                    attn_error *error)
{
    attn_distance_bias r = {0};
    TRY(attn_distance_resolve(rule, &r, error));
    TRY(check_arrays(dtype, table, bias, &r, error));
    for (int64_t h = 0; h < r.heads; h++)
        for (int64_t i = 0; i < r.len_q; i++)
            for (int64_t j = 0; j < r.len_kv; j++)
                attn_element_put(bias, dtype, (h * r.len_q + i) * r.len_kv + j,
                                 attn_element_get(table, dtype, h * r.buckets + attn_distance_bucket_of(&r, i + r.offset_q - j)));
    return attn_succeed(error);
}

attn_status attn_distance_bias_backward(const attn_distance_bias *rule, attn_dtype dtype, const void *grad_bias, void *grad_table,
                                        attn_error *error)
{
    enum { MOST = 2048 }; /* buckets of one pass over the pairs */
    attn_distance_bias r = {0};
    TRY(attn_distance_resolve(rule, &r, error));
    TRY(check_arrays(dtype, grad_table, grad_bias, &r, error));
    for (int64_t h = 0; h < r.heads; h++)
        for (int64_t first = 0; first < r.buckets; first += MOST) {
            const int64_t count = r.buckets - first < MOST ? r.buckets - first : MOST;
            double sums[MOST] = {0};
            for (int64_t i = 0; i < r.len_q; i++)
                for (int64_t j = 0; j < r.len_kv; j++) {
                    const int64_t n = attn_distance_bucket_of(&r, i + r.offset_q - j) - first;
                    if (n >= 0 && n < count) sums[n] += attn_element_get(grad_bias, dtype, (h * r.len_q + i) * r.len_kv + j);
                }
            for (int64_t n = 0; n < count; n++) attn_element_put(grad_table, dtype, h * r.buckets + first + n, sums[n]);
        }
    return attn_succeed(error);
}
