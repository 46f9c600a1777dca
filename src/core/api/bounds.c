/* SPDX-License-Identifier: MIT
 * bounds.c - attn_page_bounds: the least and the greatest keys of blocks. */
#include "bounds.h"

#include <inttypes.h>
#include <string.h>

#include "../base/checked.h"
#include "../base/element.h"
#include "../plan/plan.h"

attn_status attn_bounded_read(attn_bounded *b, const attn_cache *cache, const attn_bounds *given, const attn_input *first,
                              attn_error *error)
{
    const attn_cache_tokens none = {.struct_size = sizeof none};
    attn_bounds bounds;
    const attn_kernel_row *row;
    attn_kernel kernel;
    CHECK(given, ATTN_ERR_ARGUMENT, "bounds is NULL");
    TRY(slots_read(&bounds, sizeof bounds, sizeof bounds, given, "attn_bounds", error));
    memset(&b->options, 0, sizeof b->options);
    if (bounds.options) {
        TRY(attn_struct_read(&b->options, sizeof b->options, sizeof b->options, bounds.options, "attn_options", error));
        TRY(attn_options_validate(&b->options, error));
    }
    TRY(attn_threads_choose(b->options.threads, &b->threads, error));
    TRY(attn_append_read(&b->append, cache, &none, error));
    CHECK(!attn_is_by_channel(b->append.cache.k.dtype), ATTN_ERR_UNSUPPORTED,
          "bounds: k is %s; bounds of keys by channel are not there yet", attn_dtype_name(b->append.cache.k.dtype));
    TRY(attn_kernel_best(ATTN_FORWARD, ATTN_F32, &b->options, &row, error));
    attn_kernel_assemble(row, &kernel);
    b->storage = kernel.storage;
    const attn_cache *c = &b->append.cache;
    const int paged = attn_cache_has_pages(c);
    CHECK(paged ? bounds.block == 0 || bounds.block == c->page_size : bounds.block > 0, ATTN_ERR_ARGUMENT,
          "bounds: block is %" PRId64 "; it must be %s", bounds.block,
          paged ? "0 or page_size" : "at least 1, since keys have no pages");
    b->block = paged ? c->page_size : bounds.block;
    b->blocks = attn_ceil_div(c->capacity, b->block);
    int64_t count = c->pages;
    CHECK(paged || attn_mul(c->batch, b->blocks, &count), ATTN_ERR_SHAPE, "bounds: the number of blocks overflows 64 bits");
    const int64_t shape[4] = {count, c->heads_kv, 2, c->dim_qk};
    const int some = count > 0 && c->heads_kv > 0 && c->dim_qk > 0;
    const attn_dtype type = attn_is_quantised(c->k.dtype) ? ATTN_F32 : c->k.dtype;
    attn_input rows = slot_of(&bounds.rows);
    int64_t span;
    CHECK(rows.data || !some, ATTN_ERR_ARGUMENT, "bounds: rows is NULL");
    TRY(slot_resolve(&rows, "bounds: rows", shape, type, error));
    CHECK(rows.dtype == type, ATTN_ERR_UNSUPPORTED, "bounds: rows is %s; it must be %s, as the keys are %s",
          attn_dtype_name(rows.dtype), attn_dtype_name(type), attn_dtype_name(c->k.dtype));
    CHECK(!some || ((c->dim_qk == 1 || rows.stride[3] == 1) && rows.stride[2] == c->dim_qk), ATTN_ERR_STRIDE,
          "bounds: rows.stride is %" PRId64 " and %" PRId64 " on the last two axes, which must be contiguous (%" PRId64 " and 1)",
          rows.stride[2], rows.stride[3], c->dim_qk);
    CHECK(!some || elements_self_overlap(shape, rows.stride, &span) < 0, ATTN_ERR_STRIDE, "bounds: rows overlaps itself");
    b->rows = bounds.rows;
    b->rows.dtype = type;
    memcpy(b->rows.stride, rows.stride, sizeof rows.stride);
    places p;
    attn_append_places(&p, &b->append);
    places_add_slot(&p, "bounds", "rows", &rows, shape, type, 1);
    const int64_t each[4] = {first ? c->batch : 0, 1, 1, 1};
    const attn_input starts = {first ? first->data : NULL, first ? first->dtype : ATTN_DTYPE_DEFAULT, {1, 1, 1, 1}};
    places_add_slot(&p, "bounds", "first", &starts, each, ATTN_I64, 0);
    return places_check(&p, "bounds", error);
}

attn_status attn_bounded_check_pages(const attn_bounded *b, int64_t entry, int64_t from, attn_error *error)
{
    const attn_cache *c = &b->append.cache;
    const int64_t end = attn_ceil_div(attn_bounded_length(b, entry), b->block);
    for (int64_t n = from / b->block; attn_cache_has_pages(c) && n < end; n++) {
        const int64_t page = attn_cache_index(&c->page_table, entry * c->page_table.stride[0] + n);
        CHECK(page >= 0 && page < c->pages, ATTN_ERR_ARGUMENT,
              "bounds: page %" PRId64 " of entry %" PRId64 " is %" PRId64 "; pages is %" PRId64, n, entry, page, c->pages);
    }
    return ATTN_OK;
}

char *attn_bounded_row(const attn_bounded *b, int64_t entry, int64_t g, int64_t n)
{
    const attn_cache *c = &b->append.cache;
    const int64_t row = attn_cache_has_pages(c) ? attn_cache_entry(c, entry, n * b->block) : entry * b->blocks + n;
    return (char *)b->rows.data + (row * b->rows.stride[0] + g * b->rows.stride[1]) * (int64_t)attn_dtype_size(b->rows.dtype);
}

/* One key widens the bounds of its block, or begins them: elements are compared as numbers, and copied.  NaN stays. */
#define WIDEN(name, type, number)                                                                                                  \
    static void widen_##name(int64_t dim, int begins, const type *restrict k, type *restrict least, type *restrict greatest)       \
    {                                                                                                                              \
        for (int64_t c = 0; begins && c < dim; c++) least[c] = greatest[c] = k[c];                                                 \
        for (int64_t c = 0; !begins && c < dim; c++) {                                                                             \
            const int below = (number(k[c]) >= number(least[c])) + (number(least[c]) != number(least[c])),                         \
                      above = (number(k[c]) <= number(greatest[c])) + (number(greatest[c]) != number(greatest[c]));                \
            least[c] = below ? least[c] : k[c];                                                                                    \
            greatest[c] = above ? greatest[c] : k[c];                                                                              \
        }                                                                                                                          \
    }
#define ITSELF(x) (x)
WIDEN(f32, float, ITSELF)
WIDEN(f64, double, ITSELF)
WIDEN(f16, uint16_t, attn_f32_of_f16)
WIDEN(bf16, uint16_t, attn_f32_of_bf16)

/* The numbers that quantised keys stand for, some channels at a time. */
static void widen_quantised(const attn_bounded *b, int begins, const char *k, const float *scale, float *least, float *greatest)
{
    enum { CHANNELS = 512 }; /* whole blocks */
    const attn_dtype dtype = b->append.cache.k.dtype;
    const int64_t dim = b->append.cache.dim_qk;
    float x[CHANNELS];
    for (int64_t c = 0, n; c < dim; c += n) {
        n = attn_min(CHANNELS, dim - c);
        b->storage->load_rows(1, n, k + attn_row_bytes(dtype, c), dtype, 0, x, CHANNELS);
        if (scale) b->storage->scale_rows(1, n, scale, 1, x, CHANNELS);
        widen_f32(n, begins, x, least + c, greatest + c);
    }
}

typedef struct widening {
    const attn_bounded *bounded;
    attn_input first;
} widening;

static int64_t first_of(const widening *w, int64_t entry) { return w->first.data ? attn_cache_index(&w->first, entry) : 0; }

/* Whether an entry before this one has begun the same row, of the page that they share. */
static int is_begun(const widening *w, int64_t entry, int64_t n)
{
    const attn_bounded *b = w->bounded;
    const char *row = attn_bounded_row(b, entry, 0, n);
    for (int64_t e = 0; attn_cache_has_pages(&b->append.cache) && e < entry; e++)
        if (first_of(w, e) <= n * b->block && n * b->block < attn_bounded_length(b, e) && attn_bounded_row(b, e, 0, n) == row)
            return 1;
    return 0;
}

static void widen_entry(const widening *w, int64_t entry, int64_t g)
{
    const attn_bounded *b = w->bounded;
    const attn_cache *c = &b->append.cache;
    const int64_t dim = c->dim_qk, len = attn_bounded_length(b, entry), *stride = c->k.stride;
    for (int64_t t = first_of(w, entry); t < len; t++) {
        const int64_t into = attn_cache_token(c, t), of = attn_cache_entry(c, entry, t);
        const char *k =
            (const char *)c->k.data + (of * stride[0] + g * stride[1] + into * stride[2]) * (int64_t)attn_dtype_size(c->k.dtype);
        void *least = attn_bounded_row(b, entry, g, t / b->block),
             *greatest = (char *)least + dim * (int64_t)attn_dtype_size(b->rows.dtype);
        const int begins = t % b->block == 0 && !is_begun(w, entry, t / b->block);
        switch (c->k.dtype) {
        case ATTN_F32:
            widen_f32(dim, begins, (const void *)k, least, greatest);
            break;
        case ATTN_F64:
            widen_f64(dim, begins, (const void *)k, least, greatest);
            break;
        case ATTN_F16:
            widen_f16(dim, begins, (const void *)k, least, greatest);
            break;
        case ATTN_BF16:
            widen_bf16(dim, begins, (const void *)k, least, greatest);
            break;
        default: {
            const int64_t *at = c->k_scale.stride;
            const float *scales = c->k_scale.data;
            widen_quantised(b, begins, k, scales ? scales + of * at[0] + g * at[1] + into * at[2] : NULL, least, greatest);
        }
        }
    }
}

/* All entries of a key head, one after the other: they may share pages. */
static void widen_head(void *context, int64_t worker, int64_t g)
{
    const widening *w = context;
    (void)worker;
    for (int64_t entry = 0; entry < w->bounded->append.cache.batch; entry++) widen_entry(w, entry, g);
}

attn_status attn_page_bounds(const attn_cache *cache, const attn_bounds *bounds, const attn_input *first, attn_error *error)
{
    attn_bounded b;
    TRY(attn_bounded_read(&b, cache, bounds, first, error));
    const attn_cache *c = &b.append.cache;
    widening w = {&b, {0}};
    if (first) {
        w.first = *first;
        CHECK(first->data || c->batch == 0, ATTN_ERR_ARGUMENT, "bounds: first.data is NULL");
        TRY(attn_cache_resolve_index(&w.first, "bounds: first", c->batch, 0, error));
    }
    for (int64_t n = 0; first && n < c->batch; n++) {
        const int64_t from = attn_cache_index(&w.first, n);
        CHECK(from >= 0 && from <= attn_bounded_length(&b, n), ATTN_ERR_ARGUMENT,
              "bounds: first[%" PRId64 "] (%" PRId64 ") is not between 0 and %" PRId64 ", the entry's length", n, from,
              attn_bounded_length(&b, n));
    }
    for (int64_t n = 0; n < c->batch; n++) TRY(attn_bounded_check_pages(&b, n, first_of(&w, n), error));
    if (c->dim_qk > 0) attn_threads_run(b.options.parallel_for, b.options.parallel_context, b.threads, c->heads_kv, widen_head, &w);
    return succeed(error);
}
