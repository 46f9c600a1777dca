/* SPDX-License-Identifier: MIT
 * cache_choose.c - attn_page_bounds, attn_page_scores and attn_choose_blocks on the cache as it is between two steps, each against
 * its definition; calls that are rejected write nothing. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attn/choose.h"
#include "cache_case.h"

static attn_error last;

static int64_t held(const cache_case *c, int64_t b) { return (int64_t)block_get(&c->blocks[C_LENGTHS], b, 0, 0, 0); }
static int64_t blocks_of(int64_t tokens, int64_t size) { return (tokens + size - 1) / size; }

static double key_at(const cache_case *c, int64_t b, int64_t h, int64_t j, int64_t x)
{
    int64_t at[2];
    cache_where(c, b, j, at);
    const double k = cache_number(c, C_K, at, h, x);
    return format_is_any(c->blocks[C_K].dtype) ? (double)(float)k : k;
}

/* The row of the bounds of block n of entry b. */
static int64_t row_of(const cache_case *c, int64_t b, int64_t n, int64_t size)
{
    int64_t at[2];
    if (!c->cache.page_size) return b * blocks_of(c->cache.capacity, size) + n;
    cache_where(c, b, n * size, at);
    return at[0];
}

/* The most that a product of a query of key head h and a key of the block can be, and the sum of its terms' sizes. */
static double most_of(const cache_case *c, const block *q, const block *rows, int64_t b, int64_t h, int64_t row, double *size)
{
    const int64_t group = q->shape[1] / c->cache.heads_kv;
    double most = -INFINITY;
    *size = 0;
    for (int64_t n = 0; n < group * q->shape[2]; n++) {
        double sum = 0, sizes = 0;
        for (int64_t x = 0; x < c->cache.dim_qk; x++) {
            const double of_q = block_get(q, b, h * group + n / q->shape[2], n % q->shape[2], x);
            const double term = fmax(of_q * block_get(rows, row, h, 0, x), of_q * block_get(rows, row, h, 1, x));
            sum += term, sizes += fabs(term);
        }
        most = fmax(most, sum), *size = fmax(*size, sizes);
    }
    return most;
}

static void check_bounds(const cache_case *c, const block *rows, int64_t size)
{
    for (int64_t b = 0; b < c->cache.batch; b++)
        for (int64_t h = 0; h < c->cache.heads_kv; h++)
            for (int64_t n = 0; n < blocks_of(held(c, b), size); n++)
                for (int64_t x = 0; x < c->cache.dim_qk; x++) {
                    double least = INFINITY, greatest = -INFINITY;
                    for (int64_t j = n * size; j < held(c, b) && j < (n + 1) * size; j++) {
                        const double k = key_at(c, b, h, j, x);
                        least = isnan(k) || isnan(least) ? NAN : fmin(least, k);
                        greatest = isnan(k) || isnan(greatest) ? NAN : fmax(greatest, k);
                    }
                    const int64_t row = row_of(c, b, n, size);
                    const double got[] = {block_get(rows, row, h, 0, x), block_get(rows, row, h, 1, x)};
                    if ((got[0] != least && !(isnan(got[0]) && isnan(least))) ||
                        (got[1] != greatest && !(isnan(got[1]) && isnan(greatest))))
                        finding("bounds of block %d are %g and %g, should be %g and %g", (int)n, got[0], got[1], least, greatest);
                }
}

static void check_scores(const cache_case *c, const block *q, const block *rows, const block *scores, int64_t size)
{
    const double unit = c->blocks[C_K].dtype == ATTN_F64 ? 0x1p-50 : 0x1p-21;
    for (int64_t b = 0; b < c->cache.batch; b++)
        for (int64_t h = 0; h < c->cache.heads_kv; h++)
            for (int64_t n = 0; n < scores->shape[3]; n++) {
                double sum = 0;
                const int some = n < blocks_of(held(c, b), size) && q->shape[2] > 0;
                const double most = some ? most_of(c, q, rows, b, h, row_of(c, b, n, size), &sum) : -INFINITY;
                if (!isnan(most) && !isinf(most)) block_check(scores, b, h, 0, n, most, (double)c->cache.dim_qk * unit * sum);
                else if (!some && block_get(scores, b, h, 0, n) != -INFINITY) finding("the score of no block is not -infinity");
            }
}

/* 1 if block n comes before block m in descending order of scores. */
static int is_before(double n_score, double m_score, int64_t n, int64_t m)
{
    if (isnan(n_score) || isnan(m_score)) return isnan(n_score) && (!isnan(m_score) || n < m);
    return n_score > m_score || (n_score == m_score && n < m);
}

static void check_lists(const cache_case *c, const attn_choice *choice, const block *scores, const block *starts,
                        const block *index)
{
    for (int64_t list = 0, at = 0; list < c->cache.batch * c->cache.heads_kv; list++) {
        const int64_t b = list / c->cache.heads_kv, h = list % c->cache.heads_kv, blocks = blocks_of(held(c, b), choice->block);
        if (block_get(starts, list, 0, 0, 0) != (double)at) finding("list %d begins elsewhere", (int)list);
        for (int64_t n = 0; n < blocks; n++) {
            int64_t rank = 0;
            const int kept = n < choice->keep_first || n >= blocks - choice->keep_last;
            for (int64_t m = 0; m < blocks; m++) {
                const int other = m < choice->keep_first || m >= blocks - choice->keep_last;
                rank +=
                    other != kept ? other : m != n && is_before(block_get(scores, b, h, 0, m), block_get(scores, b, h, 0, n), m, n);
            }
            if (!kept && rank >= choice->count) continue;
            if (kept && blocks > choice->count && rank >= choice->count) continue;
            if (block_get(index, at++, 0, 0, 0) != (double)n)
                finding("block %d is not where it should be in list %d", (int)n, (int)list);
        }
        if (block_get(starts, list + 1, 0, 0, 0) != (double)at) finding("list %d ends elsewhere", (int)list);
    }
}

static void make(block *to, draws *d, block like, int rows)
{
    *to = like;
    if (rows) {
        block_draw_strides(to, d, 1);
        if (rows > 1) to->stride[2] = to->shape[3], to->stride[1] = 2 * to->shape[3], to->stride[0] = to->shape[1] * to->stride[1];
    }
    if (!block_allocate(to)) abort();
}

static void run(cache_case *c, block *of)
{
    draws *d = c->from;
    const attn_cache *k = &c->cache;
    const int64_t size = k->page_size ? k->page_size : 1 + draw_below(d, 9), blocks = blocks_of(k->capacity, size);
    const int wide = c->blocks[C_K].dtype == ATTN_F64;
    const attn_dtype type = format_is_any(c->blocks[C_K].dtype) ? ATTN_F32 : c->blocks[C_K].dtype;
    const attn_options options = {.struct_size = sizeof options, .threads = 1 + (int)draw_below(d, 3)};
    const int64_t len = draw_below(d, 4), heads = k->heads_kv * (1 + draw_below(d, 4));
    int64_t first[MAX_BATCH];
    make(&of[0], d, block_of("rows", type, 0, k->page_size ? k->pages : k->batch * blocks, k->heads_kv, 2, k->dim_qk), 2);
    make(&of[1], d,
         block_of("q",
                  wide                ? ATTN_F64
                  : draw_one_in(d, 2) ? ATTN_BF16
                                      : ATTN_F32,
                  0, k->batch, heads, len, k->dim_qk),
         1);
    make(&of[2], d, block_of("scores", ATTN_F32, 1, k->batch, k->heads_kv, 1, blocks), 1);
    block_fill(&of[1], d, -2, 2, 0);
    attn_bounds bounds = {.struct_size = sizeof bounds, .options = draw_one_in(d, 2) ? &options : NULL, .rows = block_out(&of[0])};
    if (!k->page_size || draw_one_in(d, 2)) bounds.block = size;
    const attn_input q = block_in(&of[1]), new = attn_in(first);
    const attn_output scores = block_out(&of[2]);
    if (attn_page_bounds(k, &bounds, NULL, &last) != ATTN_OK) finding("valid bounds are rejected: %s", last.message);
    for (int64_t b = 0; b < k->batch; b++) first[b] = draw_below(d, held(c, b) + 1);
    if (attn_page_bounds(k, &bounds, &new, &last) != ATTN_OK) finding("valid bounds are rejected: %s", last.message);
    check_bounds(c, &of[0], size);
    if (attn_page_scores(k, heads, len, &bounds, &q, &scores, &last) != ATTN_OK)
        finding("valid scores are rejected: %s", last.message);
    check_scores(c, &of[1], &of[0], &of[2], size);
    if (draw_one_in(d, 3)) {
        block_fill(&of[2], d, -2, 2, 1);
        for (int64_t n = 0; n < k->batch * k->heads_kv * blocks; n += 1 + draw_below(d, 3)) /* equal ones */
            block_put(&of[2], n / blocks / k->heads_kv, n / blocks % k->heads_kv, 0, n % blocks, (double)draw_below(d, 2));
    }
    attn_choice choice = {.struct_size = sizeof choice,
                          .batch = k->batch,
                          .heads_kv = k->heads_kv,
                          .blocks = blocks,
                          .block = size,
                          .count = draw_below(d, blocks + 3),
                          .options = bounds.options,
                          .scores = block_in(&of[2])};
    choice.keep_first = draw_below(d, choice.count + 1), choice.keep_last = draw_below(d, choice.count - choice.keep_first + 1);
    make(&of[3], d, block_of("starts", draw_one_in(d, 2) ? ATTN_I32 : ATTN_I64, 1, k->batch * k->heads_kv + 1, 1, 1, 1), 0);
    make(&of[4], d, block_of("index", draw_one_in(d, 2) ? ATTN_I32 : ATTN_I64, 1, k->batch * k->heads_kv * choice.count, 1, 1, 1),
         0);
    choice.lengths = block_in(&c->blocks[C_LENGTHS]);
    choice.block_starts = block_out(&of[3]), choice.block_index = block_out(&of[4]);
    if (attn_choose_blocks(&choice, &last) != ATTN_OK) finding("a valid choice is rejected: %s", last.message);
    check_lists(c, &choice, &of[2], &of[3], &of[4]);
    const unsigned char canary = 0x5a;
    blocks_canary(of + 2, 3, canary);
    attn_choice bad = choice;
    bad.keep_last = choice.count + 1;
    if (attn_choose_blocks(&bad, &last) == ATTN_OK) finding("more blocks than count are kept");
    bad = choice;
    (&bad.batch)[draw_below(d, 7)] = draw_one_in(d, 2) ? -1 : INT64_MAX;
    if (attn_choose_blocks(&bad, &last) == ATTN_OK) finding("a bad size is accepted");
    bounds.block = -1;
    if (attn_page_scores(k, heads, len, &bounds, &q, &scores, &last) == ATTN_OK) finding("blocks of -1 tokens are accepted");
    blocks_untouched(of + 2, 3, canary, last.message);
}

void cache_choose(cache_case *c)
{
    block of[5] = {{0}};
    run(c, of);
    blocks_free(of, 5);
}
