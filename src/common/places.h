/* SPDX-License-Identifier: MIT
 * places.h - all tensors of a call, and that what it writes shares elements with none of them. */
#ifndef ATTN_COMMON_PLACES_H
#define ATTN_COMMON_PLACES_H

#include "fail.h"
#include "overlap.h"

#include <string.h>

typedef struct place {
    char name[48];
    const void *data;
    size_t size; /* bytes of an element */
    int64_t shape[4], stride[4];
    int output;
} place;

typedef struct places {
    place all[40];
    int count;
    size_t size; /* of the elements of what is added */
} places;

/* NULL is not there. */
static inline void places_add(places *p, const char *name, const void *data, const int64_t shape[4], const int64_t stride[4],
                              int output)
{
    if (!data) return;
    place *at = &p->all[p->count++];
    (void)snprintf(at->name, sizeof at->name, "%s", name);
    at->data = data;
    memcpy(at->shape, shape, sizeof at->shape);
    memcpy(at->stride, stride, sizeof at->stride);
    at->output = output;
    at->size = p->size;
}

static inline void places_add_bytes(places *p, const char *name, const void *data, int64_t bytes, int output)
{
    const int64_t shape[4] = {1, 1, 1, bytes / (int64_t)p->size}, stride[4] = {0, 0, 0, 1};
    places_add(p, name, data, shape, stride, output);
}

/* No output shares an element with another tensor. */
static inline attn_status places_check(const places *p, const char *module, attn_error *error)
{
    for (int i = 0; i < p->count; i++)
        for (int k = 0; k < p->count; k++) {
            const place *a = &p->all[i], *b = &p->all[k];
            if (!a->output || k == i || (b->output && k < i)) continue;
            const attn_elements x = {a->data, a->shape, a->stride, a->size}, y = {b->data, b->shape, b->stride, b->size};
            const int meet = elements_meet(&x, &y);
            CHECK(meet <= 0, ATTN_ERR_STRIDE, "%s: %s and %s share elements; an output overlaps nothing", module, a->name, b->name);
            CHECK(meet == 0, ATTN_ERR_STRIDE,
                  "%s: whether %s and %s share elements cannot be decided from their strides; give them memory apart", module,
                  a->name, b->name);
        }
    return ATTN_OK;
}

#endif
