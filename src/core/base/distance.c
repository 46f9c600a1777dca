/* SPDX-License-Identifier: MIT
 * distance.c - the rules of biases by distance. */
#include "distance.h"

#include <inttypes.h>
#include <math.h>

#include "error.h"
#include "struct.h"

attn_status attn_distance_resolve(const attn_distance_bias *given, attn_distance_bias *r, attn_error *error)
{
    CHECK(given, ATTN_ERR_ARGUMENT, "distance bias: rule is NULL");
    TRY(attn_struct_read(r, sizeof *r, sizeof *r, given, "attn_distance_bias", error));
    CHECK(r->kind == ATTN_DISTANCE_T5 || r->kind == ATTN_DISTANCE_CLIPPED, ATTN_ERR_ARGUMENT,
          "distance bias: kind is %d; known: 0 (T5), 1 (clipped)", (int)r->kind);
    CHECK(r->heads >= 0 && r->len_q >= 0 && r->len_kv >= 0, ATTN_ERR_SHAPE,
          "distance bias: %" PRId64 " heads, %" PRId64 " queries, %" PRId64 " keys; none may be negative", r->heads, r->len_q,
          r->len_kv);
    CHECK(r->max_distance >= 0 && r->max_distance < INT64_MAX / 4, ATTN_ERR_ARGUMENT,
          "distance bias: max_distance is %" PRId64 "; it must be between 0 and 2^61", r->max_distance);
    CHECK(r->causal == 0 || r->causal == 1, ATTN_ERR_ARGUMENT, "distance bias: causal is %d; it must be 0 or 1", r->causal);
    if (r->kind == ATTN_DISTANCE_CLIPPED) {
        CHECK(r->buckets == 0 || r->buckets == 2 * r->max_distance + 1, ATTN_ERR_ARGUMENT,
              "distance bias: buckets is %" PRId64 "; a bias clipped at %" PRId64 " has %" PRId64, r->buckets, r->max_distance,
              2 * r->max_distance + 1);
        r->buckets = 2 * r->max_distance + 1;
        return ATTN_OK;
    }
    if (r->buckets == 0) r->buckets = 32;
    if (r->max_distance == 0) r->max_distance = 128;
    const int64_t each = r->causal ? r->buckets : r->buckets / 2;
    CHECK(each >= 2 && (r->causal || r->buckets % 2 == 0), ATTN_ERR_ARGUMENT,
          "distance bias: buckets is %" PRId64 "; it must be %s", r->buckets, r->causal ? "at least 2" : "even and at least 4");
    CHECK(r->max_distance > each / 2, ATTN_ERR_ARGUMENT,
          "distance bias: max_distance is %" PRId64 "; it must be above %" PRId64 ", the exact buckets", r->max_distance, each / 2);
    return ATTN_OK;
}

static int64_t clipped(int64_t d, int64_t most) { return (d < -most ? -most : d > most ? most : d) + most; }

static int64_t t5(const attn_distance_bias *r, int64_t d)
{
    int64_t each = r->causal ? r->buckets : r->buckets / 2, first = !r->causal && d < 0 ? each : 0, exact = each / 2;
    int64_t n = d >= 0 ? d : r->causal ? 0 : d == INT64_MIN ? INT64_MAX : -d;
    if (n < exact) return first + n;
    /* Where the exact logarithm is an integer, rounding must not bring it below; no other n comes this close. */
    double steps = log((double)n / (double)exact) / log((double)r->max_distance / (double)exact) * (double)(each - exact) + 1e-9;
    return first + (steps >= (double)(each - exact) ? each - 1 : exact + (int64_t)steps);
}

int64_t attn_distance_bucket_of(const attn_distance_bias *r, int64_t d)
{
    return r->kind == ATTN_DISTANCE_T5 ? t5(r, d) : clipped(d, r->max_distance);
}
