/* SPDX-License-Identifier: MIT
 * cut_parts.c - cutting a random attention problem, and recombining its parts. */
#include "cut.h"

#include "attn/merge.h"

#include <math.h>

static cut_axis cut(random_state *random, int64_t size, int most, int64_t multiple)
{
    cut_axis c = {.n = 0};
    const int parts = 1 + (int)random_below(random, most);
    for (int i = 1; i < parts; i++) {
        const int64_t x = c.at[c.n] + multiple * (1 + random_below(random, size / multiple + 1));
        if (x < size) c.at[++c.n] = x;
    }
    c.at[++c.n] = size;
    return c;
}

cuts cuts_draw(whole *w, int max_batch, int max_heads, int max_q, int max_kv)
{
    const attn_shape *s = &w->problem.shape;
    cuts c;
    c.batch = cut(&w->random, s->batch, max_batch, 1);
    c.heads = cut(&w->random, s->heads_kv, max_heads, 1);
    c.q = cut(&w->random, s->len_q, max_q, whole_step_q(w));
    c.kv = cut(&w->random, s->len_kv, max_kv, whole_step_kv(w));
    return c;
}

part cuts_part(const cuts *c, int b, int h, int i, int j)
{
    return (part){c->batch.at[b], c->batch.at[b + 1] - c->batch.at[b], c->heads.at[h], c->heads.at[h + 1] - c->heads.at[h],
                  c->q.at[i],     c->q.at[i + 1] - c->q.at[i],         c->kv.at[j],    c->kv.at[j + 1] - c->kv.at[j]};
}

/* ---- sums ---- */

static int64_t at(const array *a, int64_t b, int64_t h, int64_t i, int64_t c)
{
    return b * a->stride[0] + h * a->stride[1] + i * a->stride[2] + c;
}

sums sums_make(const whole *w)
{
    sums s;
    for (int n = 0; n < CUT_RESULTS; n++) {
        const int64_t *shape = w->is.of[n].shape;
        s.of[n] = calloc((size_t)(shape[0] * shape[1] * shape[2] * shape[3]) + 1, sizeof **s.of);
        assert_non_null(s.of[n]);
    }
    return s;
}

void sums_free(sums *s)
{
    for (int n = 0; n < CUT_RESULTS; n++) free(s->of[n]);
}

void sums_add(sums *s, const whole *w, int result, const part *p, const array *x)
{
    const cut_result *is = &cut_results[result];
    const array *to = &w->is.of[result];
    const int64_t group = w->problem.shape.heads_q / w->problem.shape.heads_kv, h0 = p->head * (is->of_keys ? 1 : group),
                  i0 = is->of_keys ? p->kv : p->q, c0 = is->dim == CUT_KEYS ? p->kv : 0;
    for (int64_t b = 0; b < x->shape[0]; b++)
        for (int64_t h = 0; h < x->shape[1]; h++)
            for (int64_t i = 0; i < x->shape[2]; i++)
                for (int64_t c = 0; c < x->shape[3]; c++)
                    s->of[result][at(to, p->batch + b, h0 + h, i0 + i, c0 + c)] += array_at(x, b, h, i, c);
}

double sums_compare(const sums *s, const whole *w, int result, double tolerance)
{
    const array *exact = &w->is.of[result];
    double worst = 0;
    for (int64_t b = 0; b < exact->shape[0]; b++)
        for (int64_t h = 0; h < exact->shape[1]; h++)
            for (int64_t i = 0; i < exact->shape[2]; i++)
                for (int64_t c = 0; c < exact->shape[3]; c++) {
                    const double x = s->of[result][at(exact, b, h, i, c)], y = array_at(exact, b, h, i, c);
                    if (x == y) continue; /* infinities too */
                    const double off = fabs(x - y) / (tolerance * (1 + fabs(y)));
                    if (!(off <= 1))
                        fail_msg("%s: %s[%d, %d, %d, %d] of parts is %.9g, and %.9g in the whole", w->text,
                                 cut_results[result].name, (int)b, (int)h, (int)i, (int)c, x, y);
                    worst = fmax(worst, off);
                }
    return worst;
}

/* ---- merging ---- */

static attn_input slot_of(const array *a)
{
    attn_input slot = attn_in(a->data);
    slot.dtype = a->dtype;
    return slot;
}

void parts_merge(const whole *w, const part *p, const results *r, int count, results *into)
{
    const int64_t *shape = into->of[CUT_O].shape;
    attn_merge_problem problem = {
        .struct_size = sizeof problem, .parts = count, .batch = shape[0], .heads = shape[1], .len_q = shape[2], .dim_v = shape[3]};
    attn_input o_parts[CUT_PARTS], lse_parts[CUT_PARTS];
    attn_merge_tensors t = {.struct_size = sizeof t, .o_parts = o_parts, .lse_parts = lse_parts};
    attn_error error;
    for (int n = 0; n < count; n++) o_parts[n] = slot_of(&r[n].of[CUT_O]), lse_parts[n] = slot_of(&r[n].of[CUT_LSE]);
    t.o = attn_out(into->of[CUT_O].data), t.lse = attn_out(into->of[CUT_LSE].data);
    t.o.dtype = into->of[CUT_O].dtype, t.lse.dtype = into->of[CUT_LSE].dtype;
    if (attn_merge(&problem, &t, NULL, &error) != ATTN_OK) fail_msg("%s: queries from %d: %s", w->text, (int)p->q, error.message);
}
