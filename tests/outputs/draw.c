/* SPDX-License-Identifier: MIT
 * draw.c - random attention problems, for the library and for the reference. */
#include "draw.h"

#include <math.h>

int64_t draw_below(drawn *d, int64_t n) { return random_below(&d->random, n); }

static double uniform(drawn *d) { return (double)draw_below(d, 1 << 24) / (1 << 23) - 1; }

/* 1 with a probability of 1 in n; the name is then added to the text. */
static int option(drawn *d, int64_t n, const char *name)
{
    if (draw_below(d, n)) return 0;
    strcat(strcat(d->text, " "), name);
    return 1;
}

void *draw_memory(drawn *d, int64_t count, size_t size)
{
    void *memory = calloc((size_t)count + 1, size);
    assert_non_null(memory);
    assert_in_range(d->owned_count, 0, sizeof d->owned / sizeof *d->owned - 1);
    return d->owned[d->owned_count++] = memory;
}

void drawn_free(drawn *d)
{
    for (int i = 0; i < d->owned_count; i++) free(d->owned[i]);
}

double element_at(attn_dtype dtype, const void *base, int64_t i)
{
    uint32_t half, bits;
    float x;
    switch (dtype) {
    case ATTN_F32:
        return (double)((const float *)base)[i];
    case ATTN_F64:
        return ((const double *)base)[i];
    case ATTN_I32:
        return ((const int32_t *)base)[i];
    case ATTN_I64:
        return (double)((const int64_t *)base)[i];
    case ATTN_BF16:
        bits = (uint32_t)((const uint16_t *)base)[i] << 16;
        memcpy(&x, &bits, sizeof x);
        return (double)x;
    case ATTN_F16:
        half = ((const uint16_t *)base)[i];
        if ((half >> 10 & 31) == 31) return half & 1023 ? (double)NAN : half >> 15 ? -(double)INFINITY : (double)INFINITY;
        x = (float)ldexp((half >> 10 & 31 ? 1024 : 0) + (double)(half & 1023), (half >> 10 & 31 ? (int)(half >> 10 & 31) : 1) - 25);
        return half >> 15 ? -(double)x : (double)x;
    default:
        return ((const unsigned char *)base)[i];
    }
}

/* Stores x as element i; 16-bit types must hold x exactly. */
static void put(attn_dtype dtype, void *base, int64_t i, double x)
{
    float single = (float)x;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    uint32_t half = x == 0 ? 0 : ((bits >> 23 & 255) - 112) << 10 | (bits & 0x7fffff) >> 13;
    if (isnan(x)) half = 0x7e00;
    switch (dtype) {
    case ATTN_F32:
        ((float *)base)[i] = single;
        break;
    case ATTN_F64:
        ((double *)base)[i] = x;
        break;
    case ATTN_BF16:
        ((uint16_t *)base)[i] = (uint16_t)(bits >> 16);
        break;
    default:
        ((uint16_t *)base)[i] = (uint16_t)(half | (bits >> 31) << 15);
        break;
    }
}

/* A dense tensor of n numbers in -size .. size for the library, and the same in double for the reference. */
static attn_input tensor(drawn *d, attn_dtype dtype, int64_t n, double size, double **exact)
{
    void *data = draw_memory(d, n, sizeof(double));
    *exact = draw_memory(d, n, sizeof(double));
    for (int64_t i = 0; i < n; i++) {
        double x = size * uniform(d);
        if (dtype == ATTN_BF16 || dtype == ATTN_F16) x = (double)(int)(x * 32) / 32; /* exact in 16-bit types, and ties occur */
        put(dtype, data, i, x);
        (*exact)[i] = element_at(dtype, data, i);
    }
    return attn_in(data);
}

/* Strides of a dense tensor that broadcasts along the axes with axes[axis] 0. */
static void strides_of(const int64_t shape[4], const int axes[4], int64_t stride[4])
{
    int64_t step = 1;
    for (int axis = 3; axis >= 0; axis--) {
        stride[axis] = axes[axis] ? step : ATTN_BROADCAST;
        if (axes[axis]) step *= shape[axis];
    }
}

static int64_t offset_in(const int64_t stride[4], int64_t b, int64_t h, int64_t i, int64_t j)
{
    const int64_t at[4] = {b, h, i, j};
    int64_t sum = 0;
    for (int axis = 0; axis < 4; axis++) sum += stride[axis] == ATTN_BROADCAST ? 0 : at[axis] * stride[axis];
    return sum;
}

#define EACH_PAIR(p)                                                                                                               \
    for (int64_t b = 0, at = 0; b < (p)->B; b++)                                                                                   \
        for (int64_t h = 0; h < (p)->Hq; h++)                                                                                      \
            for (int64_t i = 0; i < (p)->Sq; i++)                                                                                  \
                for (int64_t j = 0; j < (p)->Skv; j++, at++)

static void draw_positions(drawn *d)
{
    attn_mask *m = &d->problem.mask;
    attn_tensors *t = &d->tensors;
    ref_problem *r = &d->ref;
    int64_t *len_q = draw_memory(d, r->B, 8), *len_kv = draw_memory(d, r->B, 8), *offset = draw_memory(d, r->B, 8);
    for (int64_t b = 0; b < r->B; b++) len_q[b] = r->Sq, len_kv[b] = r->Skv;
    if (option(d, 2, "causal")) m->causal = r->causal = 1;
    if (option(d, 3, "lengths")) {
        for (int64_t b = 0; b < r->B; b++) len_q[b] = draw_below(d, r->Sq + 1), len_kv[b] = draw_below(d, r->Skv + 1);
        r->len_q = len_q, r->len_kv = len_kv;
        t->lengths_q = attn_in(len_q), t->lengths_kv = attn_in(len_kv);
    }
    const int64_t align = draw_below(d, 3);
    if (align == 1) m->align = ATTN_ALIGN_BOTTOM_RIGHT;
    if (align == 2) t->offset_q = attn_in(offset);
    for (int64_t b = 0; b < r->B; b++) {
        if (align == 1) offset[b] = len_kv[b] - len_q[b];
        if (align == 2) offset[b] = draw_below(d, r->Skv + r->Sq + 9) - r->Sq - 4;
    }
    r->offset = offset;
    if (option(d, 4, "window")) {
        m->window = r->window = 1;
        m->window_left = r->window_left = draw_below(d, r->Skv + 2) - 1;
        m->window_right = r->window_right = draw_below(d, r->Skv + 2) - 1;
    }
    if (option(d, 6, "chunk")) m->chunk = r->chunk = 1 + draw_below(d, r->Skv);
}

static void draw_masks(drawn *d)
{
    attn_mask *m = &d->problem.mask;
    ref_problem *r = &d->ref;
    int64_t pairs = r->B * r->Hq * r->Sq * r->Skv;
    unsigned char *keep = draw_memory(d, pairs, 1);
    memset(keep, 1, (size_t)pairs);
    r->keep = keep;
    if (option(d, 4, "mask")) {
        const int64_t shape[4] = {r->B, r->Hq, r->Sq, r->Skv};
        int axes[4];
        unsigned char *mask = draw_memory(d, pairs, 1);
        for (int axis = 0; axis < 4; axis++) axes[axis] = draw_below(d, 3) > 0;
        for (int64_t k = 0; k < pairs; k++) mask[k] = draw_below(d, 3) > 0;
        attn_input *slot = &d->tensors.mask;
        *slot = attn_in(mask);
        strides_of(shape, axes, slot->stride);
        EACH_PAIR(r) keep[at] &= mask[offset_in(slot->stride, b, h, i, j)];
    }
    if (option(d, 6, "block")) {
        m->block_q = 1 + draw_below(d, 40), m->block_kv = 1 + draw_below(d, 80);
        int64_t rows = (r->Sq + m->block_q - 1) / m->block_q, columns = (r->Skv + m->block_kv - 1) / m->block_kv;
        unsigned char *blocks = draw_memory(d, r->B * r->Hq * rows * columns, 1);
        for (int64_t k = 0; k < r->B * r->Hq * rows * columns; k++) blocks[k] = (unsigned char)draw_below(d, 2);
        d->tensors.block_mask = attn_in(blocks);
        EACH_PAIR(r) keep[at] &= blocks[((b * r->Hq + h) * rows + i / m->block_q) * columns + j / m->block_kv];
    }
}

static void draw_bias(drawn *d)
{
    attn_tensors *t = &d->tensors;
    ref_problem *r = &d->ref;
    int64_t pairs = r->B * r->Hq * r->Sq * r->Skv;
    double *exact;
    if (option(d, 3, "bias")) {
        const int64_t shape[4] = {r->B, r->Hq, r->Sq, r->Skv};
        int axes[4];
        double *full = draw_memory(d, pairs, sizeof *full);
        t->bias = tensor(d, d->compute, pairs, 2, &exact);
        for (int64_t k = 0; k < pairs; k++) {
            if (draw_below(d, 12)) continue;
            exact[k] = -(double)INFINITY;
            put(d->compute, (void *)(uintptr_t)t->bias.data, k, exact[k]);
        }
        for (int axis = 0; axis < 4; axis++) axes[axis] = draw_below(d, 3) > 0;
        strides_of(shape, axes, t->bias.stride);
        EACH_PAIR(r) full[at] = exact[offset_in(t->bias.stride, b, h, i, j)];
        r->bias = full;
    }
    if (option(d, 4, "alibi")) {
        double *slopes = draw_memory(d, r->B * r->Hq, sizeof *slopes);
        const int each_entry = draw_below(d, 2) != 0;
        t->alibi_slopes = tensor(d, d->compute, r->B * r->Hq, 0.2, &exact);
        if (each_entry) t->alibi_slopes.stride[0] = r->Hq, t->alibi_slopes.stride[1] = 1;
        for (int64_t k = 0; k < r->B * r->Hq; k++) slopes[k] = exact[each_entry ? k : k % r->Hq];
        r->slopes = slopes;
    }
    if (option(d, 4, "sink")) {
        t->sink = tensor(d, d->compute, r->Hq, 3, &exact);
        r->sink = exact;
    } else if (option(d, 4, "uniform")) {
        d->problem.mask.empty = ATTN_EMPTY_UNIFORM;
        r->uniform = 1;
    }
}

static void draw_scores(drawn *d)
{
    attn_score *s = &d->problem.score;
    ref_problem *r = &d->ref;
    double *exact;
    r->scale = 1 / sqrt((double)r->D);
    if (option(d, 4, "scale")) s->scale_kind = ATTN_SCALE_VALUE, s->scale = r->scale = (double)draw_below(d, 5) / 4 - 0.25;
    else if (option(d, 4, "scales")) {
        d->tensors.scale = tensor(d, d->compute, r->Hq, 0.5, &exact);
        r->scale_of_head = exact;
    }
    if (option(d, 4, "temperature")) s->temperature = r->temperature = 0.5 + (double)draw_below(d, 20) / 10;
    if (option(d, 3, "softcap")) s->softcap = r->softcap = 0.5 + (double)draw_below(d, 40) / 10;
}

static void draw_dropout(drawn *d)
{
    ref_problem *r = &d->ref;
    if (!option(d, 3, "dropout")) return;
    double p = draw_below(d, 10) ? (double)draw_below(d, 9) / 10 + 0.05 : 1;
    double *Z = draw_memory(d, r->B * r->Hq * r->Sq * r->Skv, sizeof *Z);
    d->problem.dropout.probability = p;
    r->Z = Z;
    if (p < 1 && option(d, 3, "given")) { /* a mask of the caller, [len_q, len_kv], shared by all heads */
        unsigned char *given = draw_memory(d, r->Sq * r->Skv, 1);
        for (int64_t n = 0; n < r->Sq * r->Skv; n++) given[n] = (unsigned char)draw_below(d, 3);
        d->tensors.dropout_given = (attn_input){given, ATTN_U8, {0, ATTN_BROADCAST, r->Skv, 1}};
        EACH_PAIR(r) { Z[at] = given[i * r->Skv + j] ? 1 / (1 - p) : 0; }
        return;
    }
    d->call.dropout_seed = (uint64_t)draw_below(d, INT32_MAX) << 32 | (uint64_t)draw_below(d, INT32_MAX);
    d->call.dropout_offset = (uint32_t)draw_below(d, 100);
    EACH_PAIR(r)
    {
        int keep = ref_dropout_keeps(d->call.dropout_seed, d->call.dropout_offset, b * r->Hq + h, i, j, p);
        Z[at] = keep ? 1 / (1 - p) : 0;
    }
}

/* NaN in keys past the end of a sequence, which may affect only scores before masking. */
static void poison(drawn *d, attn_dtype storage, void *k, double *K)
{
    const ref_problem *r = &d->ref;
    if (!r->len_kv || !option(d, 2, "poison")) return;
    for (int64_t b = 0; b < r->B; b++)
        for (int64_t g = 0; g < r->Hkv; g++)
            for (int64_t c = r->len_kv[b] * r->D; c < r->Skv * r->D; c++) {
                int64_t at = (b * r->Hkv + g) * r->Skv * r->D + c;
                put(storage, k, at, (double)NAN);
                K[at] = (double)NAN;
            }
}

void drawn_clear(drawn *d)
{
    memset(d, 0, sizeof *d);
    d->problem.struct_size = sizeof d->problem;
    d->tensors.struct_size = sizeof d->tensors;
    d->call.struct_size = sizeof d->call;
    d->tensors.call = &d->call;
}

void draw(drawn *d, uint64_t seed, attn_dtype storage)
{
    ref_problem *r = &d->ref;
    double *Q, *K, *V;
    drawn_clear(d);
    d->random.state = seed * 7919 + 13;
    for (int i = 0; i < 5; i++) draw_below(d, 2);
    d->compute = storage == ATTN_F64 ? ATTN_F64 : ATTN_F32;

    int decode = draw_below(d, 12) == 0; /* few queries and heads and many keys, which are split among tasks */
    r->B = 1 + draw_below(d, decode ? 1 : 3);
    r->Hkv = 1 + draw_below(d, decode ? 2 : 3);
    r->Hq = r->Hkv * (1 + draw_below(d, 3));
    r->Sq = 1 + draw_below(d, decode || draw_below(d, 2) ? 12 : 130);
    r->Skv = decode ? 2000 + draw_below(d, 500) : 1 + draw_below(d, draw_below(d, 2) ? 12 : 300);
    r->D = 1 + draw_below(d, draw_below(d, 2) ? 8 : 70);
    r->Dv = 1 + draw_below(d, 8);
    d->problem.shape = (attn_shape){r->B, r->Hq, r->Hkv, r->Sq, r->Skv, r->D, r->Dv};
    (void)snprintf(d->text, sizeof d->text, "seed %d b%d hq%d hkv%d sq%d skv%d d%d:", (int)seed, (int)r->B, (int)r->Hq, (int)r->Hkv,
                   (int)r->Sq, (int)r->Skv, (int)r->D);

    d->tensors.q = tensor(d, storage, r->B * r->Hq * r->Sq * r->D, 2, &Q);
    d->tensors.k = tensor(d, storage, r->B * r->Hkv * r->Skv * r->D, 2, &K);
    d->tensors.v = tensor(d, storage, r->B * r->Hkv * r->Skv * r->Dv, 1, &V);
    d->tensors.q.dtype = storage;
    r->Q = Q, r->K = K, r->V = V;
    draw_positions(d);
    draw_masks(d);
    draw_bias(d);
    draw_scores(d);
    draw_dropout(d);
    poison(d, storage, (void *)(uintptr_t)d->tensors.k.data, K);
}
