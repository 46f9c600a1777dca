/* SPDX-License-Identifier: MIT
 * lengths.c - see lengths.h. */
#include "lengths.h"

#include <stdlib.h>

#include "testing/text/failure.h"
#include "work.h"

/* Where the numbers come from and go to. */
typedef struct drawing {
    const problem_spec *spec;
    attn_tensors *tensors;
    random_state *random;
    lengths_memory *allocate;
    void *context;
} drawing;

static int64_t *take(const drawing *d, int t, int64_t count)
{
    return tensors_slot(d->tensors, t)->data = d->allocate(d->context, t, (size_t)count * sizeof(int64_t));
}

static int64_t draw_between(const drawing *d, int64_t low, int64_t high)
{
    if (high < low) return low;
    return d->spec->spread == SPEC_SPREAD_LOG && low > 0 ? random_spread(d->random, low, high)
                                                         : random_between(d->random, low, high);
}

static const int64_t *draw_index(const drawing *d, int t, int64_t count, int64_t low, int64_t high)
{
    int64_t *index = take(d, t, count);
    for (int64_t k = 0; k < count; k++) index[k] = draw_between(d, low, high);
    return index;
}

/* Draws where each of `batch` sequences begins, the first at 0, and the end of the last, which is returned; *length gets their
 * lengths. */
static int64_t draw_begins(const drawing *d, int t, int64_t batch, int64_t longest, int64_t **length)
{
    int64_t *begin = take(d, t, batch + 1);
    *length = need_memory(batch, sizeof **length);
    begin[0] = 0;
    for (int64_t b = 0; b < batch; b++) {
        (*length)[b] = d->spec->ragged == SPEC_RAGGED_MIXED ? (b ? longest > 0 : longest) : draw_between(d, longest > 0, longest);
        begin[b + 1] = begin[b] + (*length)[b];
    }
    return begin[batch];
}

void lengths_draw(batch_lengths *l, const problem_spec *spec, const attn_problem *p, attn_tensors *all, random_state *random,
                  lengths_memory *allocate, void *context)
{
    const attn_shape *s = &p->shape;
    const drawing d = {spec, all, random, allocate, context};
    const int named = spec->offset_kind == SPEC_OFFSET_VALUE;
    const int64_t first = named ? spec->offset : 0, last = named ? spec->offset : s->len_kv - s->len_q;
    const int64_t *offset = NULL;
    int64_t least = s->len_kv > 0; /* keys of a sequence */
    if (spec->prefix > least) least = spec->prefix;
    if (spec->tree > least) least = spec->tree;
    if (spec->op == SPEC_DECODE) { /* a cache is full but for lens=kv, and has the tokens that are appended */
        const int64_t appended = (spec->steps ? spec->steps : 1) * s->len_q;
        least = spec->lengths ? (appended > least ? appended : least) : s->len_kv;
    }
    *l = (batch_lengths){0};
    if (all->lengths_q.data) l->q = draw_index(&d, TENSOR(lengths_q), s->batch, s->len_q > 0, s->len_q);
    if (all->cu_seqlens_q.data) l->total[0] = draw_begins(&d, TENSOR(cu_seqlens_q), s->batch, s->len_q, &l->of_packed[0]);
    if (all->lengths_kv.data) l->kv = draw_index(&d, TENSOR(lengths_kv), s->batch, least, s->len_kv);
    if (all->cu_seqlens_kv.data) l->total[1] = draw_begins(&d, TENSOR(cu_seqlens_kv), s->batch, s->len_kv, &l->of_packed[1]);
    if (l->of_packed[0]) l->q = l->of_packed[0];
    if (l->of_packed[1]) l->kv = l->of_packed[1];
    if (all->offset_q.data) offset = draw_index(&d, TENSOR(offset_q), s->batch, first, last);
    l->tokens = l->q ? 0 : s->batch * s->len_q;
    for (int64_t b = 0; l->q && b < s->batch; b++) l->tokens += l->q[b];
    l->pairs = visible_pairs(p, all, l->q, l->kv, offset);
}

void lengths_free(batch_lengths *l)
{
    free(l->of_packed[0]);
    free(l->of_packed[1]);
    *l = (batch_lengths){0};
}
