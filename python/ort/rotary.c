/* SPDX-License-Identifier: MIT
 * rotary.c - rotary positions from tables of cosines and sines, as GroupQueryAttention has them. */
#include "shim.h"

enum { MOST = 1024 }; /* channels */

static const char *at(const attn_input *slot, int64_t b, int64_t h, int64_t token)
{
    const int64_t element = b * slot->stride[0] + h * slot->stride[1] + token * slot->stride[2];
    return (const char *)slot->data + element * (int64_t)attn_dtype_size(slot->dtype);
}

static void floats(int64_t count, const void *from, attn_dtype type, float *to)
{
    attn_convert(count, from, type, to, ATTN_F32, NULL);
}

/* The heads of one token. */
static void rotate_token(void *context, size_t i)
{
    const rotation *t = context;
    const int64_t b = (int64_t)i / t->sizes[2], token = (int64_t)i % t->sizes[2], half = t->cosines->size[1], dim = t->sizes[3];
    const int64_t row = t->positions[i] * half * (int64_t)attn_dtype_size(type_of(t->cosines->type));
    float cosines[MOST / 2], sines[MOST / 2], x[MOST];
    floats(half, (const char *)t->cosines->data + row, type_of(t->cosines->type), cosines);
    floats(half, (const char *)t->sines->data + row, type_of(t->cosines->type), sines);
    for (int64_t h = 0; h < t->sizes[1]; h++) {
        floats(dim, at(&t->from, b, h, token), t->from.dtype, x);
        for (int64_t j = 0; j < half; j++) {
            float *one = &x[t->interleaved ? 2 * j : j], *other = t->interleaved ? one + 1 : one + half;
            const float first = *one;
            *one = first * cosines[j] - *other * sines[j];
            *other = *other * cosines[j] + first * sines[j];
        }
        attn_convert(dim, x, ATTN_F32, (void *)(uintptr_t)at(&t->to, b, h, token), t->to.dtype, NULL);
    }
}

ort_status *rotate(const call *c, const rotation *t)
{
    const int64_t tokens = t->sizes[0] * t->sizes[2];
    if (t->sizes[3] > MOST)
        return fail(ORT_NOT_IMPLEMENTED, "heads have %lld channels; rotary positions are for at most %d", (long long)t->sizes[3],
                    MOST);
    if (!tokens || !t->sizes[1] || !t->sizes[3]) return NULL;
    for (int64_t i = 0; i < tokens; i++)
        if (t->positions[i] < 0 || t->positions[i] >= t->cosines->size[0])
            return fail(ORT_INVALID_ARGUMENT, "position %lld is not one of the %lld of cos_cache", (long long)t->positions[i],
                        (long long)t->cosines->size[0]);
    return ort->parallel_for(c->context, rotate_token, (size_t)tokens, 0, (void *)(uintptr_t)t);
}
