/* SPDX-License-Identifier: MIT
 *
 * overlap.h - whether two strided tensors share bytes, by elements rather than address ranges: dQ, dK and dV in one [batch, token,
 * 3, head, channel] buffer do not.
 *
 * Element i of a lies at a + sum_x i_x s_x, element j of b at b + sum_x j_x t_x.  They share bytes iff the difference b + sum_x j_x
 * t_x - a - sum_x i_x s_x is above -(bytes of an element of b) and below (bytes of one of a).  Axes of the same stride are merged
 * into one number k within some bounds.  In descending order of stride, k is limited to what the smaller strides can still reach,
 * which leaves one or two values if strides are nested, as in slices; so the search is short, and is given up after OVERLAP_STEPS.
 */
#ifndef ATTN_COMMON_OVERLAP_H
#define ATTN_COMMON_OVERLAP_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct attn_elements {
    const void *base;
    const int64_t *shape;
    const int64_t *stride; /* in elements of */
    size_t size;           /* bytes */
} attn_elements;

/* Memory without a shape. */
typedef struct attn_bytes {
    const void *base;
    size_t count;
} attn_bytes;

enum { OVERLAP_AXES = 8, OVERLAP_STEPS = 1 << 14 };

typedef struct overlap_axis {
    int64_t step;      /* bytes, above 0 */
    int64_t low, high; /* bounds of its index */
} overlap_axis;

typedef struct overlap_search {
    overlap_axis axes[OVERLAP_AXES]; /* by descending step */
    int count, steps;
    int64_t below[OVERLAP_AXES + 1], above[OVERLAP_AXES + 1]; /* the least and the most that the axes from this one on can add */
    int64_t least, most;                                      /* looking for a sum within least .. most */
} overlap_search;

/* Adds the axes of one tensor; sign is 1 for b and -1 for a.  The origin of a negative stride moves to its other end. */
static inline void overlap_add_axes(overlap_search *s, const attn_elements *e, int sign, int64_t *distance)
{
    for (int x = 0; x < 4; x++) {
        const int64_t last = e->shape[x] - 1;
        if (last <= 0 || e->stride[x] == 0) continue; /* the stride of an axis of size 1 is ignored */
        const int64_t step = e->stride[x] * (int64_t)e->size;
        if (step < 0) *distance += sign * step * last;
        int at = 0;
        while (at < s->count && s->axes[at].step != llabs(step)) at++;
        if (at == s->count) s->axes[s->count++] = (overlap_axis){llabs(step), 0, 0};
        if (sign > 0) s->axes[at].high += last;
        else s->axes[at].low -= last;
    }
}

static inline void overlap_sort_axes(overlap_search *s)
{
    for (int i = 1; i < s->count; i++)
        for (int k = i; k > 0 && s->axes[k].step > s->axes[k - 1].step; k--) {
            const overlap_axis swap = s->axes[k];
            s->axes[k] = s->axes[k - 1];
            s->axes[k - 1] = swap;
        }
    s->below[s->count] = s->above[s->count] = 0;
    for (int x = s->count - 1; x >= 0; x--) {
        s->below[x] = s->below[x + 1] + s->axes[x].low * s->axes[x].step;
        s->above[x] = s->above[x + 1] + s->axes[x].high * s->axes[x].step;
    }
}

static inline int64_t overlap_floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

/* 1 if axes from x on can bring the sum within least .. most; -1 if given up. */
static inline int overlap_reaches(overlap_search *s, int x, int64_t sum)
{
    if (++s->steps > OVERLAP_STEPS) return -1;
    if (sum + s->below[x] > s->most || sum + s->above[x] < s->least) return 0;
    if (x == s->count) return 1;
    const overlap_axis *a = &s->axes[x];
    int64_t first = -overlap_floor_div(-(s->least - sum - s->above[x + 1]), a->step),
            last = overlap_floor_div(s->most - sum - s->below[x + 1], a->step);
    if (first < a->low) first = a->low;
    if (last > a->high) last = a->high;
    for (int64_t k = first; k <= last; k++) {
        const int found = overlap_reaches(s, x + 1, sum + k * a->step);
        if (found != 0) return found;
    }
    return 0;
}

/* 1 if sums over its axes stay far from the ends of int64_t, as for any real memory. */
static inline int overlap_is_small(const attn_elements *e)
{
    double bytes = 0;
    for (int x = 0; x < 4; x++) bytes += e->shape[x] > 1 ? fabs((double)e->stride[x]) * (double)e->shape[x] * (double)e->size : 0;
    return bytes < 1e18;
}

/* The axis with which a tensor overlaps itself, which an output must not, or -1; *span: how many elements the axes of smaller
 * strides span.  In ascending order of stride, each axis must step beyond all that those before it reach. */
static inline int elements_self_overlap(const int64_t shape[4], const int64_t stride[4], int64_t *span)
{
    int order[4] = {0, 1, 2, 3};
    *span = 1;
    for (int x = 0; x < 4; x++)
        if (shape[x] == 0) return -1;
    for (int i = 1; i < 4; i++)
        for (int k = i; k > 0 && llabs(stride[order[k]]) < llabs(stride[order[k - 1]]); k--) {
            const int swap = order[k];
            order[k] = order[k - 1];
            order[k - 1] = swap;
        }
    for (int i = 0; i < 4; i++) {
        const int axis = order[i];
        if (shape[axis] <= 1) continue;
        if (llabs(stride[axis]) < *span) return axis;
        *span += (shape[axis] - 1) * llabs(stride[axis]);
    }
    return -1;
}

/* 1 if each element of one tensor has the address of the same element of the other; 0 for different shapes. */
static inline int elements_coincide(const attn_elements *a, const attn_elements *b)
{
    if (a->base != b->base || a->size != b->size) return 0;
    for (int x = 0; x < 4; x++)
        if (a->shape[x] != b->shape[x] || (a->shape[x] > 1 && a->stride[x] != b->stride[x])) return 0;
    return 1;
}

/* 0 no, 1 yes, -1 undecided. */
static inline int elements_meet(const attn_elements *a, const attn_elements *b)
{
    overlap_search s = {.count = 0, .steps = 0};
    int64_t distance = (int64_t)((uintptr_t)b->base - (uintptr_t)a->base);
    for (int x = 0; x < 4; x++)
        if (a->shape[x] == 0 || b->shape[x] == 0) return 0;
    if (!overlap_is_small(a) || !overlap_is_small(b)) return -1;
    overlap_add_axes(&s, a, -1, &distance);
    overlap_add_axes(&s, b, 1, &distance);
    overlap_sort_axes(&s);
    s.least = 1 - (int64_t)b->size;
    s.most = (int64_t)a->size - 1;
    return overlap_reaches(&s, 0, distance);
}

#endif
