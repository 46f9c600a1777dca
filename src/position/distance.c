/* SPDX-License-Identifier: MIT
 * distance.c - biases that depend on the distance of a query and a key: ALiBi's slopes, T5's buckets, clipped distances. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "../common/fail.h"
#include "attn/position.h"
#include "rows.h"

/* ---- ALiBi ---- */

attn_status attn_alibi_slopes(int64_t heads, attn_dtype dtype, void *slopes, attn_error *error)
{
    CHECK(heads >= 0, ATTN_ERR_SHAPE, "alibi: heads (%" PRId64 ") is negative", heads);
    CHECK(dtype == ATTN_F32 || dtype == ATTN_F64, ATTN_ERR_UNSUPPORTED, "alibi: slopes are %s; they must be f32 or f64",
          attn_dtype_name(dtype));
    CHECK(slopes || heads == 0, ATTN_ERR_ARGUMENT, "alibi: slopes is NULL");
    int64_t power = 1;
    while (power <= heads / 2) power *= 2;
    for (int64_t h = 0; h < heads; h++) {
        double exponent = h < power ? -8.0 * (double)(h + 1) / (double)power
                                    : -8.0 * (double)(2 * (h - power) + 1) / (2.0 * (double)power); /* numbers 0, 2, ... of twice */
        attn_rows_put(slopes, dtype, h, exp2(exponent));
    }
    return succeed(error);
}

/* ---- buckets ---- */

/* The rule with its defaults filled in. */
static attn_status check_rule(const attn_distance_bias *given, attn_distance_bias *r, attn_error *error)
{
    CHECK(given, ATTN_ERR_ARGUMENT, "distance bias: rule is NULL");
    CHECK(given->struct_size == sizeof *given, ATTN_ERR_ARGUMENT,
          "attn_distance_bias.struct_size is %zu; set it to sizeof(attn_distance_bias)", given->struct_size);
    *r = *given;
    CHECK(r->kind == ATTN_DISTANCE_T5 || r->kind == ATTN_DISTANCE_CLIPPED, ATTN_ERR_ARGUMENT,
          "distance bias: kind is %d; known: 0 (T5), 1 (clipped)", (int)r->kind);
    CHECK(r->heads >= 0 && r->len_q >= 0 && r->len_kv >= 0, ATTN_ERR_SHAPE,
          "distance bias: %" PRId64 " heads, %" PRId64 " queries, %" PRId64 " keys; none may be negative", r->heads, r->len_q,
          r->len_kv);
    CHECK(r->max_distance >= 0 && r->max_distance < INT64_MAX / 4, ATTN_ERR_ARGUMENT,
          "distance bias: max_distance is %" PRId64 "; it is within 0..2^61", r->max_distance);
    CHECK(r->causal == 0 || r->causal == 1, ATTN_ERR_ARGUMENT, "distance bias: causal is %d; it is 0 or 1", r->causal);
    if (r->kind == ATTN_DISTANCE_CLIPPED) {
        CHECK(r->buckets == 0 || r->buckets == 2 * r->max_distance + 1, ATTN_ERR_ARGUMENT,
              "distance bias: buckets is %" PRId64 "; clipped at %" PRId64 " there are %" PRId64, r->buckets, r->max_distance,
              2 * r->max_distance + 1);
        r->buckets = 2 * r->max_distance + 1;
        return ATTN_OK;
    }
    if (r->buckets == 0) r->buckets = 32;
    if (r->max_distance == 0) r->max_distance = 128;
    const int64_t each = r->causal ? r->buckets : r->buckets / 2;
    CHECK(each >= 2 && (r->causal || r->buckets % 2 == 0), ATTN_ERR_ARGUMENT, "distance bias: buckets is %" PRId64 "; it is %s",
          r->buckets, r->causal ? "at least 2" : "even and at least 4");
    CHECK(r->max_distance > each / 2, ATTN_ERR_ARGUMENT,
          "distance bias: max_distance is %" PRId64 "; it is above %" PRId64 ", the exact buckets", r->max_distance, each / 2);
    return ATTN_OK;
}

static int64_t clipped(int64_t d, int64_t most) { return (d < -most ? -most : d > most ? most : d) + most; }

static int64_t t5(const attn_distance_bias *r, int64_t d)
{
    int64_t each = r->causal ? r->buckets : r->buckets / 2, first = !r->causal && d < 0 ? each : 0, exact = each / 2;
    int64_t n = d >= 0 ? d : r->causal ? 0 : d == INT64_MIN ? INT64_MAX : -d;
    if (n < exact) return first + n;
    /* Where the logarithm is whole it must not fall short by a rounding; no other whole n comes as near. */
    double steps = log((double)n / (double)exact) / log((double)r->max_distance / (double)exact) * (double)(each - exact) + 1e-9;
    return first + (steps >= (double)(each - exact) ? each - 1 : exact + (int64_t)steps);
}

static int64_t bucket_of(const attn_distance_bias *r, int64_t d)
{
    return r->kind == ATTN_DISTANCE_T5 ? t5(r, d) : clipped(d, r->max_distance);
}

int64_t attn_distance_bucket(const attn_distance_bias *rule, int64_t d)
{
    attn_distance_bias r = {0};
    return check_rule(rule, &r, NULL) == ATTN_OK ? bucket_of(&r, d) : -1;
}

int64_t attn_distance_buckets(const attn_distance_bias *rule)
{
    attn_distance_bias r = {0};
    return check_rule(rule, &r, NULL) == ATTN_OK ? r.buckets : -1;
}

static attn_status check_arrays(attn_dtype dtype, const void *table, const void *bias, const attn_distance_bias *r,
                                attn_error *error)
{
    CHECK(dtype == ATTN_F32 || dtype == ATTN_F64, ATTN_ERR_UNSUPPORTED, "distance bias: numbers are %s; they must be f32 or f64",
          attn_dtype_name(dtype));
    CHECK(table || r->heads == 0, ATTN_ERR_ARGUMENT, "distance bias: the table is NULL");
    CHECK(bias || r->heads == 0 || r->len_q == 0 || r->len_kv == 0, ATTN_ERR_ARGUMENT, "distance bias: the bias is NULL");
    return ATTN_OK;
}

attn_status attn_distance_bias_fill(const attn_distance_bias *rule, attn_dtype dtype, const void *table, void *bias,
                                    attn_error *error)
{
    attn_distance_bias r = {0};
    TRY(check_rule(rule, &r, error));
    TRY(check_arrays(dtype, table, bias, &r, error));
    for (int64_t h = 0; h < r.heads; h++)
        for (int64_t i = 0; i < r.len_q; i++)
            for (int64_t j = 0; j < r.len_kv; j++)
                attn_rows_put(bias, dtype, (h * r.len_q + i) * r.len_kv + j,
                              attn_rows_get(table, dtype, h * r.buckets + bucket_of(&r, i + r.offset - j)));
    return succeed(error);
}

attn_status attn_distance_bias_backward(const attn_distance_bias *rule, attn_dtype dtype, const void *grad_bias, void *grad_table,
                                        attn_error *error)
{
    attn_distance_bias r = {0};
    TRY(check_rule(rule, &r, error));
    TRY(check_arrays(dtype, grad_table, grad_bias, &r, error));
    CHECK(r.buckets < INT64_MAX / 16, ATTN_ERR_SHAPE, "distance bias: %" PRId64 " buckets are too many", r.buckets);
    double *sums = malloc(((size_t)r.buckets + 1) * sizeof *sums);
    CHECK(sums, ATTN_ERR_MEMORY, "no memory for the gradient of %" PRId64 " buckets", r.buckets);
    for (int64_t h = 0; h < r.heads; h++) {
        for (int64_t n = 0; n < r.buckets; n++) sums[n] = 0;
        for (int64_t i = 0; i < r.len_q; i++)
            for (int64_t j = 0; j < r.len_kv; j++)
                sums[bucket_of(&r, i + r.offset - j)] += attn_rows_get(grad_bias, dtype, (h * r.len_q + i) * r.len_kv + j);
        for (int64_t n = 0; n < r.buckets; n++) attn_rows_put(grad_table, dtype, h * r.buckets + n, sums[n]);
    }
    free(sums);
    return succeed(error);
}
