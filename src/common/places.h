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
    double low, high; /* addresses from its first byte to after the last: beyond 2^53 they need not be exact */
    int output;
    int group; /* above 0: those of the same number are held against each other elsewhere */
} place;

typedef struct places {
    place all[96];
    int count;
    int group;   /* of what is added */
    size_t size; /* of the elements of what is added */
} places;

/* NULL is not there.  Names live as long as `p`. */
static inline void places_add(places *p, const char *of, const char *name, const void *data, const int64_t shape[4],
                              const int64_t stride[4], int output)
{
    if (!data) return;
    place *at = &p->all[p->count++];
    *at = (place){.of = of, .name = name, .data = data, .size = p->size, .output = output, .group = p->group};
    at->low = (double)(uintptr_t)data;
    at->high = at->low + (double)p->size;
    for (int x = 0; x < 4; x++) {
        const double far = (double)(shape[x] - 1) * (double)stride[x] * (double)p->size;
        at->shape[x] = shape[x];
        at->stride[x] = stride[x];
        if (shape[x] == 0) p->count = (int)(at - p->all); /* it has no elements */
        *(far < 0 ? &at->low : &at->high) += far;
    }
}

static inline void places_add_bytes(places *p, const char *name, const void *data, int64_t bytes, int output)
{
    const int64_t shape[4] = {1, 1, 1, bytes / (int64_t)p->size}, stride[4] = {0, 0, 0, 1};
    places_add(p, "", name, data, shape, stride, output);
}

/* No output shares an element with another tensor. */
static inline attn_status places_check(const places *p, const char *module, attn_error *error)
{
    for (int i = 0; i < p->count; i++)
        for (int k = 0; k < p->count; k++) {
            const place *a = &p->all[i], *b = &p->all[k];
            char both[2][64];
            if (a->group && a->group == b->group) continue;
            if (!a->output || k == i || (b->output && k < i) || a->low >= b->high || b->low >= a->high) continue;
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
    return ATTN_OK;
}

#endif
