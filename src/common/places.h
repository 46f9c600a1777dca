/* SPDX-License-Identifier: MIT
 * places.h - all tensors of a call, and the check that what it writes shares elements with none of them. */
#ifndef ATTN_COMMON_PLACES_H
#define ATTN_COMMON_PLACES_H

#include "fail.h"
#include "overlap.h"
#include "text.h"

typedef struct place {
    const char *owner, *name; /* of: the struct it is a field of, or "" */
    const void *data;
    size_t size; /* bytes of an element */
    int64_t shape[4], stride[4];
    int output;
    int group; /* above 0: places of the same group are checked against each other elsewhere */
} place;

enum { MAX_PLACES = 96 };

typedef struct places {
    place all[MAX_PLACES];
    double low[MAX_PLACES], high[MAX_PLACES]; /* addresses from its first byte to one past the last; inexact beyond 2^53 */
    int count;
    int group;   /* for the next additions */
    size_t size; /* bytes of an element, for the next additions */
} places;

/* NULL is skipped.  Names must live as long as `p`. */
static inline void places_add(places *p, const char *owner, const char *name, const void *data, const int64_t shape[4],
                              const int64_t stride[4], int output)
{
    if (!data) return;
    const int n = p->count;
    place *at = &p->all[n];
    double low = (double)(uintptr_t)data, high = low + (double)p->size;
    for (int x = 0; x < 4; x++) {
        at->shape[x] = shape[x];
        at->stride[x] = stride[x];
        if (shape[x] == 0) return; /* no elements */
        if (shape[x] == 1) continue;
        const double extent = (double)(shape[x] - 1) * (double)stride[x] * (double)p->size;
        *(extent < 0 ? &low : &high) += extent;
    }
    at->owner = owner;
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

/* A dense array of a * b * c numbers of p->size; the product may exceed 64 bits. */
static inline void places_add_numbers(places *p, const char *name, const void *data, int64_t a, int64_t b, int64_t c, int output)
{
    const int64_t shape[4] = {1, a, b, c}, stride[4] = {0, c > 0 && b > INT64_MAX / c ? INT64_MAX : b * c, c, 1};
    places_add(p, "", name, data, shape, stride, output);
}

/* 1 if another place may share an address with place n: this cheap test comes first, and is seldom true. */
static inline int places_is_near(const places *p, int n)
{
    const double low = p->low[n], high = p->high[n];
    int near = 0;
    for (int k = 0; k < p->count; k++) near += (low < p->high[k]) & (p->low[k] < high);
    return near > 1; /* it always meets itself */
}

/* Checks that no output shares an element with another tensor. */
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
            text_join(both[0], sizeof both[0], a->owner, *a->owner ? "." : "", a->name);
            text_join(both[1], sizeof both[1], b->owner, *b->owner ? "." : "", b->name);
            CHECK(meet < 0, ATTN_ERR_STRIDE, "%s: %s and %s share elements; an output must not overlap another tensor", module,
                  both[0], both[1]);
            return fail(error, ATTN_ERR_STRIDE,
                        "%s: whether %s and %s share elements cannot be decided from their strides; give them separate memory",
                        module, both[0], both[1]);
        }
    }
    return ATTN_OK;
}

#endif
