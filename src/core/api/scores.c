/* SPDX-License-Identifier: MIT
 *
 * scores.c - attn_page_scores: upper bounds of scores from the bounds of keys.  sum_c max(q_c least_c, q_c greatest_c) is the inner
 * product of [min(q, 0), max(q, 0)] with [least, greatest], which lie one after the other: the dots of decode.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "../../common/bound.h"
#include "../base/checked.h"
#include "../base/element.h"
#include "../base/names.h"
#include "../plan/plan.h"
#include "bounds.h"

enum { ROWS = 4, MOST = 2 * ATTN_BOUNDED_CHANNELS + ATTN_MAX_LANES, PIECE = 64, AHEAD = 4 }; /* queries, their numbers; blocks */

typedef struct scoring {
    const attn_bounded *bounded;
    const attn_decode_part *kernel;
    attn_dtype compute;
    int64_t group, len_q; /* query heads of a key head; queries */
    bound_tensor q, scores;
} scoring;

/* Queries first .. first+count-1 of the group's: row n is query n % len_q of head n / len_q. */
static void pack(const scoring *s, int64_t entry, int64_t g, int64_t first, int64_t count, void *Q, int64_t ld)
{
    const int64_t dim = s->bounded->append.cache.dim_qk, *stride = s->q.stride;
    const size_t size = attn_dtype_bytes(s->compute);
    _Alignas(64) double row[MOST];
    memset(Q, 0, (size_t)(ROWS * ld) * size);
    for (int64_t n = 0; n < count; n++) {
        const int64_t head = g * s->group + (first + n) / s->len_q, i = (first + n) % s->len_q;
        const int64_t at = entry * stride[0] + head * stride[1] + i * stride[2];
        for (int64_t c = 0; c < dim; c++) {
            const double x = attn_element_get(s->q.data, s->q.dtype, at + c);
            attn_real_put(row, s->compute, c, x > 0 ? 0 : x);
            attn_real_put(row, s->compute, dim + c, x < 0 ? 0 : x);
        }
        s->kernel->pack_rows(1, 2 * dim, row, s->compute, 2 * dim, 1, s->bounded->rows.dtype, (char *)Q + n * ld * (int64_t)size,
                             ld);
    }
}

/* The number of blocks from n on, up to `most`, whose bounds are a constant stride apart. */
static int64_t run_of(const attn_bounded *b, int64_t entry, int64_t g, int64_t n, int64_t most)
{
    const int64_t step = b->rows.stride[0] * (int64_t)attn_dtype_bytes(b->rows.dtype);
    const uintptr_t first = (uintptr_t)attn_bounded_row(b, entry, g, n);
    int64_t count = 1;
    while (count < most && (uintptr_t)attn_bounded_row(b, entry, g, n + count) == first + (uintptr_t)(count * step)) count++;
    return count;
}

static void score_head(void *context, int64_t worker, int64_t task)
{
    const scoring *s = context;
    const attn_bounded *b = s->bounded;
    const attn_cache *c = &b->append.cache;
    const int64_t entry = task / c->heads_kv, g = task % c->heads_kv, rows = s->group * s->len_q, dim = 2 * c->dim_qk;
    const int64_t lanes = s->kernel->shape.lanes, ld = attn_ceil_div(dim, lanes) * lanes;
    const int64_t blocks = attn_ceil_div(attn_bounded_length(b, entry), b->block);
    const int64_t at = entry * s->scores.stride[0] + g * s->scores.stride[1];
    float *to = (float *)s->scores.data + at;
    _Alignas(64) double Q[ROWS * MOST], S[ROWS * (PIECE + ATTN_MAX_LANES)];
    const int64_t lds = PIECE + ATTN_MAX_LANES;
    (void)worker;
    for (int64_t n = 0; n < b->blocks; n++) to[n] = -INFINITY;
    for (int64_t first = 0; first < rows; first += ROWS) {
        const int64_t count = attn_min(ROWS, rows - first);
        pack(s, entry, g, first, count, Q, ld);
        for (int64_t n = 0, run; n < blocks; n += run) {
            run = run_of(b, entry, g, n, attn_min(PIECE, blocks - n));
            const char *at_hand = attn_bounded_row(b, entry, g, n),
                       *ahead = attn_bounded_row(b, entry, g, attn_min(n + run + AHEAD, blocks - 1));
            s->kernel->dots(count, run, dim, Q, ld, at_hand, b->rows.dtype, b->rows.stride[0], S, lds,
                            (int64_t)((uintptr_t)ahead - (uintptr_t)at_hand), 0);
            for (int64_t row = 0; row < count; row++)
                for (int64_t k = 0; k < run; k++) {
                    const float x = (float)attn_real_at(S, s->compute, row * lds + k);
                    if (!(x <= to[n + k]) && to[n + k] == to[n + k]) to[n + k] = x; /* NaN stays */
                }
        }
    }
}

/* The decode kernel of the compute type. */
static attn_status choose_kernel(scoring *s, const attn_options *options, attn_error *error)
{
    attn_resolved any = {.op = ATTN_FORWARD, .at.q.dtype = s->compute, .at.k.dtype = s->compute};
    const attn_kernel_row *row;
    attn_kernel kernel;
    char why[ATTN_WHY_SIZE];
    TRY(attn_kernel_choose(&any, options, 1, &row, why, sizeof why, error));
    attn_kernel_assemble(row, &kernel);
    s->kernel = kernel.decode;
    return ATTN_OK;
}

attn_status attn_page_scores(const attn_cache *cache, int64_t heads_q, int64_t len_q, const attn_bounds *bounds,
                             const attn_input *q, const attn_output *scores, attn_error *error)
{
    attn_bounded b;
    scoring s = {.bounded = &b, .len_q = len_q};
    TRY(attn_bounded_read(&b, cache, bounds, NULL, error));
    for (int64_t n = 0; n < b.append.cache.batch; n++) TRY(attn_bounded_check_pages(&b, n, 0, error));
    const attn_cache *c = &b.append.cache;
    const int wide = c->k.dtype == ATTN_F64;
    CHECK(heads_q >= 0 && len_q >= 0, ATTN_ERR_SHAPE, "page scores: %s (%" PRId64 ") is negative",
          heads_q < 0 ? "heads_q" : "len_q", heads_q < 0 ? heads_q : len_q);
    CHECK(c->heads_kv > 0 ? heads_q % c->heads_kv == 0 : heads_q == 0, ATTN_ERR_SHAPE,
          "page scores: heads_q (%" PRId64 ") is not a multiple of heads_kv (%" PRId64 ")", heads_q, c->heads_kv);
    CHECK(c->dim_qk <= ATTN_BOUNDED_CHANNELS, ATTN_ERR_UNSUPPORTED, "page scores: dim_qk is %" PRId64 "; it must be at most %d",
          c->dim_qk, ATTN_BOUNDED_CHANNELS);
    bound_call call = {.module = "page scores"};
    s.compute = wide ? ATTN_F64 : ATTN_F32;
    const int types = wide ? BOUND_F64 : BOUND_NARROW;
    TRY(bound_input(&call, (bound_rule){"q", {c->batch, heads_q, len_q, c->dim_qk}, s.compute, types, 0, 1}, q, &s.q, error));
    TRY(bound_output(&call, (bound_rule){"scores", {c->batch, c->heads_kv, 1, b.blocks}, ATTN_F32, BOUND_F32, 0, 1}, scores,
                     &s.scores, error));
    const int64_t of_rows[4] = {attn_cache_has_pages(c) ? c->pages : c->batch * b.blocks, c->heads_kv, 2, c->dim_qk};
    const attn_input rows = slot_of(&b.rows);
    places_add_slot(&call.places, "bounds", "rows", &rows, of_rows, b.rows.dtype, 0);
    places_add_cache(&call.places, "cache", c, 0);
    TRY(bound_no_overlap(&call, error));
    TRY(choose_kernel(&s, &b.options, error));
    s.group = c->heads_kv > 0 ? heads_q / c->heads_kv : 0;
    if (b.blocks > 0)
        attn_threads_run(b.options.parallel_for, b.options.parallel_context, b.threads, c->batch * c->heads_kv, score_head, &s);
    return succeed(error);
}
