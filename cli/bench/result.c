/* SPDX-License-Identifier: MIT
 * result.c - compares each sample with the ceilings sampled around it. */
#include "result.h"

#include <math.h>
#include <stdlib.h>

#include "testing/text/failure.h"

own_ceilings own_ceilings_of(ceilings *all, const candidate *c)
{
    own_ceilings r = {.fma = ceiling_of_fma(all, c->plan_says.isa, c->plan_says.compute),
                      .stream = ceiling_of_read(all, ceiling_level(all, c->data.bytes))};
    const double compute = ceiling_median(r.fma), read = ceiling_median(r.stream);
    r.stream_bound = c->moved / read > c->flops / compute;
    r.reads = c->moved / read > c->flops / compute / 4;
    return r;
}

/* Quantiles of amount / seconds / ceiling, each with the ceiling of its own moment; *against: the median of these ceilings. */
static typical share(const candidate *c, double amount, const ceiling *against_what, double *against)
{
    const series *s = &c->seconds;
    if (!against_what || !s->count) {
        *against = NAN;
        return (typical){NAN, NAN};
    }
    double *part = need_memory(s->count, sizeof *part), *ceiling_then = need_memory(s->count, sizeof *ceiling_then);
    for (int64_t k = 0; k < s->count; k++) {
        ceiling_then[k] = series_highest_near(&against_what->rates, s->when[k]);
        part[k] = amount / s->value[k] / ceiling_then[k];
    }
    const typical found = {quantile(part, s->count, 0.5), quantile(part, s->count, 0.9)};
    *against = quantile(ceiling_then, s->count, 0.5) / 1e9;
    free(part);
    free(ceiling_then);
    return found;
}

/* Quantiles against the same quantiles: other load on the memory changes from one millisecond to the next. */
static typical share_of_reads(const candidate *c, double *against)
{
    const series *s = &c->seconds, *r = &c->stream;
    const double middle = quantile(r->value, r->count, 0.5);
    *against = middle / 1e9;
    return (typical){c->moved / quantile(s->value, s->count, 0.5) / middle,
                     c->moved / quantile(s->value, s->count, 0.1) / quantile(r->value, r->count, 0.9)};
}

result result_of(const candidate *c, const own_ceilings *r)
{
    const series *s = &c->seconds;
    const attn_shape *shape = &c->problem.shape;
    result x = {.candidate = c, .stream = r->stream->kind, .stream_bound = r->stream_bound};
    x.p10 = quantile(s->value, s->count, 0.1);
    x.median = quantile(s->value, s->count, 0.5);
    x.p90 = quantile(s->value, s->count, 0.9);
    x.p95 = quantile(s->value, s->count, 0.95);
    x.p99 = quantile(s->value, s->count, 0.99);
    x.p999 = quantile(s->value, s->count, 0.999);
    x.least = quantile(s->value, s->count, 0);
    x.most = quantile(s->value, s->count, 1);
    x.mean = series_mean(s, &x.deviation);
    x.gflops = (typical){c->flops / x.median / 1e9, c->flops / x.p10 / 1e9};
    x.gbs = (typical){c->moved / x.median / 1e9, c->moved / x.p10 / 1e9};
    x.share_of_ceiling = share(c, c->flops, r->fma, &x.ceiling_gflops);
    x.share_of_stream = c->stream.count ? share_of_reads(c, &x.stream_gbs) : share(c, c->moved, r->stream, &x.stream_gbs);
    x.tokens_per_second = (double)c->data.tokens / x.median;
    x.estimate_bytes = c->data.bytes + (double)(c->plan_says.workspace_bytes + c->call_bytes) + (double)c->plan_bytes;
    x.scores_bytes = (double)shape->batch * (double)shape->heads_q * (double)shape->len_q * (double)shape->len_kv *
                     (double)attn_dtype_size(c->plan_says.compute);
    return x;
}
