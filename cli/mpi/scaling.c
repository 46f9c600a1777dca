/* SPDX-License-Identifier: MIT
 * scaling.c - see scaling.h. */
#include "scaling.h"

#include <time.h>

#include "cli/base/progress.h"
#include "cli/measure/statistics.h"

enum { LEAST_SAMPLES = 3 };

problem_spec scaling_spec(scaling_point *p, const problem_spec *given)
{
    problem_spec spec = *given;
    if (p->kind == SCALING_WEAK) spec.shape.len_q *= p->ranks, spec.shape.len_kv *= p->ranks;
    problem_print(&spec, p->measured, sizeof p->measured);
    return spec;
}

/* Until rank 0 has had enough.  The first run, which touches all memory, is not counted. */
static attn_status sample(trial *t, double seconds, series *times, series *shares, attn_error *error)
{
    const double begin = seconds_now();
    int more = 1;
    double time, share;
    attn_status status = trial_run(t, &time, &share, error);
    while (status == ATTN_OK && more) {
        status = trial_run(t, &time, &share, error);
        series_add(times, seconds_now(), time);
        series_add(shares, seconds_now(), share);
        more = times->count < LEAST_SAMPLES || seconds_now() - begin < seconds;
        (void)MPI_Bcast(&more, 1, MPI_INT, 0, t->ranks->all);
    }
    return status;
}

/* What the plans of all ranks say. */
static void add_up(scaling_point *p, const trial *t)
{
    int64_t mine[2] = {t->about.messages, t->about.bytes}, all[2] = {0, 0};
    int64_t workspace = (int64_t)t->about.workspace_bytes;
    (void)MPI_Allreduce(mine, all, 2, MPI_INT64_T, MPI_SUM, t->ranks->all);
    (void)MPI_Allreduce(&workspace, &p->workspace_bytes, 1, MPI_INT64_T, MPI_MAX, t->ranks->all);
    p->messages = all[0];
    p->bytes = all[1];
    p->cells = t->about.cells_total;
    p->cells_most = t->about.cells_most;
    p->flops = t->flops;
    p->split = t->mine.split;
    p->split.machine = NULL; /* (of the trial) */
    p->about = t->about;
}

static attn_status measure(scaling_point *p, const problem_spec *spec, const ranks *r, const split_settings *split,
                           const common_settings *common, double seconds, attn_error *error)
{
    series times = {0}, shares = {0};
    trial t;
    attn_status status = trial_begin(&t, spec, r, split, common, error);
    if (status == ATTN_OK) status = sample(&t, seconds, &times, &shares, error);
    if (status == ATTN_OK) add_up(p, &t);
    p->samples = times.count;
    p->p10 = quantile(times.value, times.count, 0.1);
    p->median = quantile(times.value, times.count, 0.5);
    p->p90 = quantile(times.value, times.count, 0.9);
    p->share = quantile(shares.value, shares.count, 0.5);
    trial_end(&t);
    series_free(&times);
    series_free(&shares);
    return status;
}

/* Until all ranks are here.  A rank that waits in MPI may keep a core busy, and so disturb those that are measured. */
static void sleep_until_all(const ranks *r)
{
    const struct timespec pause = {0, 2000000};
    MPI_Request request;
    int here = 0;
    (void)MPI_Ibarrier(r->all, &request);
    for (;;) {
        (void)MPI_Test(&request, &here, MPI_STATUS_IGNORE);
        if (here) return;
        (void)nanosleep(&pause, NULL);
    }
}

/* Of fewer ranks as many divide the heads as --ranks-heads allows. */
static split_settings split_for(const split_settings *split, int count)
{
    split_settings own = *split;
    for (int64_t rest = count; own.ranks_heads > 0 && rest > 0;) {
        const int64_t next = own.ranks_heads % rest;
        own.ranks_heads = rest, rest = next;
    }
    return own;
}

attn_status scaling_measure(scaling_point *p, const problem_spec *given, const ranks *r, const split_settings *split,
                            const common_settings *common, double seconds, attn_error *error)
{
    const problem_spec spec = scaling_spec(p, given);
    const split_settings own = split_for(split, p->ranks);
    const int takes_part = r->rank < p->ranks;
    attn_status status = ATTN_OK;
    MPI_Comm some;
    (void)MPI_Comm_split(r->all, takes_part ? 0 : MPI_UNDEFINED, r->rank, &some);
    if (takes_part) {
        ranks those;
        status = ranks_open(&those, some, error);
        if (status == ATTN_OK) status = measure(p, &spec, &those, &own, common, seconds, error);
        ranks_close(&those);
        (void)MPI_Comm_free(&some);
    }
    sleep_until_all(r);
    return ranks_agree(r, status, error);
}

void scaling_compare(scaling_point *p, const scaling_point *one)
{
    const double work = one->flops > 0 ? p->flops / one->flops : 1; /* 1 if scaling is strong, or there is none */
    p->speedup = work * one->median / p->median;
    p->efficiency = p->speedup / p->ranks;
    p->efficiency_best = work * one->p10 / p->p10 / p->ranks;
}
