/* SPDX-License-Identifier: MIT
 * places.h - all tensors of a call, and that what it writes shares elements with none of them. */
#ifndef ATTN_COMMON_PLACES_H
#define ATTN_COMMON_PLACES_H

#include "fail.h"
#include "overlap.h"
#include "text.h"

typedef struct place {
    const char *of, *name; /* what it is a part of, or "" */
    const void *data;
    size_t size; /* bytes of an element */
    int64_t shape[4], stride[4];
    int output;
    int group; /* above 0: those of the same number are held against each other elsewhere */
} place;

enum { PLACES_MOST = 96 };

typedef struct places {
    place all[PLACES_MOST];
    double low[PLACES_MOST], high[PLACES_MOST]; /* addresses from its first byte to after the last: beyond 2^53 not exact */
    int count;
    int group;   /* of what is added */
    size_t size; /* of the elements of what is added */
} places;

/* NULL is not there.  Names live as long as `p`. */
static inline void places_add(places *p, const char *of, const char *name, const void *data, const int64_t shape[4],
                              const int64_t stride[4], int output)
{
    if (!data) return;
    const int n = p->count;
    place *at = &p->all[n];
    double low = (double)(uintptr_t)data, high = low + (double)p->size;
    for (int x = 0; x < 4; x++) {
        at->shape[x] = shape[x];
        at->stride[x] = stride[x];
        if (shape[x] == 0) return; /* it has no elements */
        if (shape[x] == 1) continue;
        const double far = (double)(shape[x] - 1) * (double)stride[x] * (double)p->size;
        *(far < 0 ? &low : &high) += far;
    }
    at->of = of;
    at->name = name;
    at->data = data;
    at->size = p->size;
    at->output = output;
    at->group = p->group;
    p->low[n] = low;
    p->high[n] = high;
    p->count = n + 1;
}

static inline void places_add_bytes(places *p, const char *name, const void *data, int64_t bytes, int output)
{
    const int64_t shape[4] = {1, 1, 1, bytes / (int64_t)p->size}, stride[4] = {0, 0, 0, 1};
    places_add(p, "", name, data, shape, stride, output);
}

/* A dense array of so many numbers of p->size, whose product may be more than 64 bits hold. */
static inline void places_add_numbers(places *p, const char *name, const void *data, int64_t a, int64_t b, int64_t c, int output)
{
    const int64_t shape[4] = {1, a, b, c}, stride[4] = {0, c > 0 && b > INT64_MAX / c ? INT64_MAX : b * c, c, 1};
    places_add(p, "", name, data, shape, stride, output);
}

/* 1 if another one may share an address with place n: that is seldom so, and looked at first. */
static inline int places_is_near(const places *p, int n)
{
    const double low = p->low[n], high = p->high[n];
    int near = 0;
    for (int k = 0; k < p->count; k++) near += (low < p->high[k]) & (p->low[k] < high);
    return near > 1; /* it is near itself */
}

/* No output shares an element with another tensor. */
static inline attn_status places_check(const places *p, const char *module, attn_error *error)
{
    for (int i = 0; i < p->count; i++) {
        const place *a = &p->all[i];
        if (!a->output || !places_is_near(p, i)) continue;
        for (int k = 0; k < p->count; k++) {
            const place *b = &p->all[k];
            char both[2][64];
            if (a->group && a->group == b->group) continue;
            if (k == i || (b->output && k < i) || p->low[i] >= p->high[k] || p->low[k] >= p->high[i]) continue;
            const attn_elements x = {a->data, a->shape, a->stride, a->size}, y = {b->data, b->shape, b->stride, b->size};
            const int meet = elements_meet(&x, &y);
            if (meet == 0) continue;
            text_join(both[0], sizeof both[0], a->of, *a->of ? "." : "", a->name);
            text_join(both[1], sizeof both[1], b->of, *b->of ? "." : "", b->name);
            CHECK(meet < 0, ATTN_ERR_STRIDE, "%s: %s and %s share elements; an output overlaps nothing", module, both[0], both[1]);
            return fail(error, ATTN_ERR_STRIDE,
                        "%s: whether %s and %s share elements cannot be decided from their strides; give them memory apart", module,
                        both[0], both[1]);
        }
    }
    return ATTN_OK;
}

#endif
