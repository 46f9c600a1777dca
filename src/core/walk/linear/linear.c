/* SPDX-License-Identifier: MIT
 * linear.c - how linear attention is cut into chunks, how much memory a worker needs, and which worker runs which head. */
#include "linear.h"

#include <math.h>

#include "../../base/checked.h"
#include "../../base/inference.h"
#include "../../base/names.h"
#include "../../threads/threads.h"

/* Tokens of a chunk: more of them compute more pairs, fewer make the state's products short.  48 was fastest (a prototype: S8192
 * D64 and D128). */
enum { CHUNK = 48 };

/* The same for gated.h: S2048 D64, D96 and D128.  Forward, a state that fits the level 1 cache is faster token by token (D64: 320
 * against 410 ns a token, with AVX2); beyond it, and backward, chunks are (D128: 1600 and 1340 ns; D64 backward: 3280 and 1680). */
enum { CHUNK_GATED = 24, STATE_IN_CACHE = 24576 };

static int is_gated(const attn_linear_resolved *p) { return p->rule == ATTN_LINEAR_RULE_DELTA || attn_decays_channels(p); }

static void choose_form(attn_linear_walk *w)
{
    attn_linear_resolved *p = &w->problem;
    const int64_t most = attn_max(1, attn_max(p->shape.len_q, p->shape.len_kv));
    const double state = (double)w->dim_f * (double)p->shape.dim_v * (double)attn_dtype_bytes(w->compute);
    const int unread = is_gated(p) && p->shape.heads_q == 0;
    /* In a ragged batch the choice must not depend on its longest sequence, so sequences of one token choose for themselves. */
    const int single = p->causal && p->shape.len_kv == 1 && !p->has.cu_seqlens;
    const int tokens = p->rule == ATTN_LINEAR_RULE_LOW_RANK || single || unread || p->snapshots > 1 ||
                       (is_gated(p) && p->op == ATTN_FORWARD && state <= STATE_IN_CACHE);
    if (p->form == ATTN_LINEAR_FORM_AUTO) {
        p->form = tokens ? ATTN_LINEAR_FORM_RECURRENT : ATTN_LINEAR_FORM_CHUNKED;
        w->singles = !tokens && p->has.cu_seqlens && p->causal && p->op == ATTN_FORWARD;
    }
    /* Forward, chunks of keys alone give the states that chunks with queries have. */
    if (unread && p->op == ATTN_BACKWARD) p->form = ATTN_LINEAR_FORM_RECURRENT;
    w->gated = is_gated(p) && p->form != ATTN_LINEAR_FORM_RECURRENT;
    w->chunk = p->chunk ? p->chunk : attn_ceil_div(w->gated ? CHUNK_GATED : CHUNK, w->tile_q) * w->tile_q;
    if (p->form == ATTN_LINEAR_FORM_QUADRATIC) w->chunk = most;
    w->chunk = attn_min(w->chunk, most);
}

/* Reserves `count` numbers of `size` bytes each; -1 in *bytes once something overflowed. */
static int64_t take(int64_t *bytes, int64_t count, int64_t size)
{
    int64_t at = *bytes, need;
    if (at < 0 || count < 0) return *bytes = -1;
    if (!attn_mul(count, size, &need) || need > INT64_MAX / 4 || !attn_add(at, attn_round_64(need), bytes)) *bytes = -1;
    return at;
}

/* a*b, or -1 if either is -1 or it overflows. */
static int64_t times(int64_t a, int64_t b)
{
    int64_t product;
    return a < 0 || b < 0 || !attn_mul(a, b, &product) ? -1 : product;
}

/* a+b, or -1 if either is -1 or it overflows. */
static int64_t plus(int64_t a, int64_t b)
{
    int64_t total;
    return a < 0 || b < 0 || !attn_add(a, b, &total) ? -1 : total;
}

/* About the square root of n >= 1, never 0. */
static int64_t integer_root(int64_t n)
{
    int64_t root = (int64_t)sqrt((double)n);
    return attn_max(1, root);
}

static void plan_scratch(attn_linear_walk *w)
{
    const attn_linear_resolved *p = &w->problem;
    attn_linear_scratch *s = &w->scratch;
    const int backward = p->op == ATTN_BACKWARD, tokens = p->form == ATTN_LINEAR_FORM_RECURRENT;
    const int by_token = tokens || w->singles;
    const int gated = w->gated, delta = p->rule == ATTN_LINEAR_RULE_DELTA, kept = backward && (tokens || gated);
    const int random = p->features >= ATTN_FEATURES_FAVOR;
    const int64_t size = (int64_t)attn_dtype_bytes(w->compute), tile = w->tile_q, dv = w->dim_u, most = attn_max(w->dim_f, dv);
    const int64_t state = times(w->dim_f, w->ld_v), panels = attn_ceil_div(dv, tile) * tile;
    const int channels = attn_decays_channels(p);
    int64_t bytes = 0;

    s->Xt = take(&bytes, random ? times(p->shape.dim_qk, tile) : 0, size);
    s->dXt = take(&bytes, random && backward ? times(p->shape.dim_qk, tile) : 0, size);
    s->X = take(&bytes, random ? times(w->ld_x, tile) : 0, size);
    s->Qf = take(&bytes, times(times(w->group, w->chunk), w->ld_f), size);
    s->Kf = take(&bytes, times(w->chunk, w->ld_f), size);
    s->A = take(&bytes, backward ? times(times(w->group, w->chunk), w->ld_v) : 0, size);
    s->Y = take(&bytes, backward || gated ? times(w->chunk, w->ld_v) : 0, size);
    s->Qt = take(&bytes, times(plus(w->dim_f, tokens ? 0 : w->chunk), tile), size);
    s->S = s->Qt + times(times(w->dim_f, tile), size); /* the scores of a chunk's keys after those of the state's rows */
    s->Vt = take(&bytes, backward ? times(most, tile) : 0, size);
    s->Ot = take(&bytes, times(dv, tile), size);
    s->Gt = take(&bytes, backward || random ? times(w->dim_f, tile) : 0, size);
    s->dS = take(&bytes, backward && !tokens ? times(w->chunk, tile) : 0, size);
    s->G = take(&bytes, backward ? times(tile, w->ld_f) : 0, size);
    s->panels = take(&bytes, tokens ? 0 : times(panels, w->chunk), size);
    s->state = take(&bytes, times(plus(w->dim_f, w->chunk), w->ld_v), size);
    s->V = s->state + times(state, size); /* a chunk's values after the state's rows */
    s->sum = take(&bytes, w->dim_f, size);
    s->grad_state = take(&bytes, backward ? state : 0, size);
    s->grad_sum = take(&bytes, backward ? w->dim_f : 0, size);
    s->lanes = take(&bytes, ATTN_LINEAR_LANES * tile, size);
    s->logs = take(&bytes, w->chunk, size);
    s->weights = take(&bytes, w->chunk, size);
    s->factors = take(&bytes, backward ? times(w->group, w->chunk) : 0, size);
    s->terms = take(&bytes, backward && w->normalised ? times(w->group, w->chunk) : 0, size);
    s->gates = take(&bytes, (by_token || gated) && p->has.decay ? times(w->chunk, channels ? w->ld_f : 1) : 0, size);
    s->W = take(&bytes, gated && delta ? times(w->chunk, w->ld_v) : 0, size);
    s->U = take(&bytes, gated && delta ? times(w->chunk, w->ld_v) : 0, size);
    s->N = take(&bytes, gated && delta && backward ? times(w->chunk, w->ld_v) : 0, size);
    s->dU = take(&bytes, gated && backward ? times(w->chunk, w->ld_v) : 0, size);
    s->beta = take(&bytes, gated ? w->chunk : 0, size);
    s->decayed = take(&bytes, gated && channels ? times(w->chunk, w->ld_f) : 0, size);
    s->dlogs = take(&bytes, gated && backward && p->has.decay ? times(w->chunk, w->ld_f) : 0, size);
    s->dK = take(&bytes, gated && backward ? times(tile, w->ld_f) : 0, size);
    s->total = take(&bytes, gated ? w->ld_f : 0, size);
    s->token = take(&bytes, by_token ? 4 * w->ld_v + 5 * w->ld_f : 0, size);
    s->states = take(&bytes, kept ? times(w->segment + 1, state) : 0, size);
    s->sums = take(&bytes, backward && tokens ? times(w->segment + 1, w->dim_f) : 0, size);
    s->checkpoints = take(&bytes, kept ? times(w->segments, state) : 0, size);
    s->checkpoint_sums = take(&bytes, backward && tokens ? times(w->segments, w->dim_f) : 0, size);
    s->bytes = bytes;
}

/*
 * Heads are split if there are fewer of them than threads.  Forward, channels of a value are independent, so each part takes a
 * range of them, and computes features and scores again.  Backward in chunks, the gradients of the queries need the states and
 * those of the keys the gradients of the states.  No sum changes its order, so bits do not depend on it.
 */
static void choose_parts(attn_linear_walk *w, int threads)
{
    const attn_linear_resolved *p = &w->problem;
    const int64_t least = 2 * w->kernel.lanes, threads_per_head = w->tasks > 0 ? threads / w->tasks : 1;
    w->parts = 1;
    w->slice = p->shape.dim_v;
    if (p->op == ATTN_BACKWARD) {
        if (threads_per_head > 1 && !w->gated && p->form != ATTN_LINEAR_FORM_RECURRENT) w->parts = 2;
        return;
    }
    const int64_t most = attn_min(threads_per_head, p->shape.dim_v / least);
    if (most <= 1) return;
    w->slice = attn_ceil_div(attn_ceil_div(p->shape.dim_v, most), w->kernel.lanes) * w->kernel.lanes;
    w->parts = attn_ceil_div(p->shape.dim_v, w->slice);
}

static int has_decay_sums(const attn_linear_walk *w)
{
    const attn_linear_resolved *p = &w->problem;
    return p->op == ATTN_BACKWARD && p->has.decay && !w->gated && p->form != ATTN_LINEAR_FORM_RECURRENT;
}

int attn_linear_walk_init(attn_linear_walk *w, int threads)
{
    const attn_linear_resolved *p = &w->problem;
    const int64_t lanes = w->kernel.lanes;
    int64_t bytes;
    w->tile_q = lanes * w->kernel.vectors;
    w->group = p->shape.heads_kv ? p->shape.heads_q / p->shape.heads_kv : 1;
    w->normalised = p->denominator != ATTN_DENOMINATOR_NONE;
    w->ld_f = attn_ceil_div(w->dim_f, lanes) * lanes;
    w->ld_x = attn_ceil_div(p->shape.dim_qk, lanes) * lanes;
    choose_form(w);
    w->dim_u = p->shape.dim_v + (w->gated && w->normalised);
    w->ld_v = attn_ceil_div(w->dim_u, lanes) * lanes;
    const int64_t steps = w->gated ? attn_ceil_div(p->shape.len_kv, w->chunk) : p->shape.len_kv;
    w->segment = integer_root(attn_max(1, steps));
    if (p->form == ATTN_LINEAR_FORM_RECURRENT && p->op == ATTN_BACKWARD) w->chunk = w->segment;
    w->segments = attn_ceil_div(steps, w->segment);
    if (!attn_mul(p->shape.batch, p->shape.heads_kv, &w->tasks)) return 0;
    const double work = attn_linear_walk_flops(w) * (double)w->tasks;
    choose_parts(w, work < 1e7 ? 1 : threads);
    if (!attn_mul(w->tasks, w->parts, &w->tasks)) return 0;
    w->workers = work < 1e6 ? 1 : (int)attn_clamp(w->tasks, 1, threads);
    plan_scratch(w);
    if (w->scratch.bytes < 0 || !attn_mul(w->scratch.bytes, w->workers, &bytes)) return 0;
    w->decay = bytes;
    if (has_decay_sums(w)) (void)take(&bytes, times(w->parts > 1 ? w->tasks : w->workers, p->shape.len_kv), sizeof(double));
    if (w->table < 0 || bytes < 0) return 0;
    w->bytes = bytes = attn_max(bytes, w->table);
    return bytes <= INT64_MAX - 64;
}

/* Pairs of a query and a key that one walk computes in a chunk of n tokens: each tile of queries with the keys up to its end. */
static double pairs_of_chunk(const attn_linear_walk *w, int64_t n)
{
    const double tile = (double)w->tile_q, full = (double)(n / w->tile_q);
    const int64_t rest = attn_ceil_div(n % w->tile_q, w->kernel.lanes) * w->kernel.lanes;
    return tile * tile * full * (full + 1) / 2 + (double)rest * (double)n;
}

static double pairs_of(const attn_linear_walk *w)
{
    const int64_t n = w->problem.shape.len_kv;
    return (double)(n / w->chunk) * pairs_of_chunk(w, w->chunk) + pairs_of_chunk(w, n % w->chunk);
}

double attn_linear_walk_flops(const attn_linear_walk *w)
{
    const attn_linear_resolved *p = &w->problem;
    const double df = (double)w->dim_f, dv = (double)p->shape.dim_v, group = (double)w->group;
    const double nq = (double)p->shape.len_q, nk = (double)p->shape.len_kv, state = df * dv;
    const double delta = p->rule == ATTN_LINEAR_RULE_DELTA ? 1 : p->rule == ATTN_LINEAR_RULE_LOW_RANK ? 2 : 0;
    double sum;
    if (p->form == ATTN_LINEAR_FORM_RECURRENT) {
        sum = nk * state * (1 + delta + group);
        if (p->op == ATTN_BACKWARD) sum = 2 * nk * state * (2 + delta) + nk * state * (2 * group + 2 + 4 * delta);
    } else if (w->gated) {
        const double solve = p->rule == ATTN_LINEAR_RULE_DELTA ? 1 : 0, pairs = pairs_of(w) * (df + dv);
        const double once = (1 + solve) * nk * state + solve * pairs; /* what moves the state */
        if (p->op == ATTN_FORWARD) sum = once + group * (nk * state + pairs);
        else sum = (2 + solve) * once + 2 * nk * state + (group + solve) * (2 * nk * state + 3 * pairs);
    } else {
        const double pairs = p->causal ? pairs_of(w) * (df + dv) : 0;
        if (p->op == ATTN_FORWARD) sum = nk * state + group * (nq * state + pairs);
        else sum = nk * state + group * (nq * state + pairs) + group * nq * state + 2 * nk * state + 2 * group * pairs;
    }
    return 2 * sum;
}

typedef struct job {
    const attn_linear_walk *walk;
    const attn_linear_args *args;
    char *workspace;
} job;

static void clear_rest(const attn_linear_head *head)
{
    const attn_linear_walk *w = head->walk;
    const attn_linear_resolved *p = &w->problem;
    const attn_linear_args *a = head->args;
    const attn_shape *s = &p->shape;
    const int backward = p->op == ATTN_BACKWARD;
    for (int64_t h = head->g * w->group; head->part != LINEAR_KEYS && h < (head->g + 1) * w->group; h++) {
        if (backward) attn_linear_clear(head, a->grad_q, &p->at.grad_q, h, head->len_q, s->len_q, s->dim_qk);
        else attn_linear_clear(head, a->o, &p->at.o, h, head->len_q, s->len_q, s->dim_v);
        if (!backward && p->has.denominators)
            attn_linear_clear(head, a->denominators, &p->at.denominators, h, head->len_q, s->len_q, 1);
    }
    if (!backward || head->part == LINEAR_QUERIES) return;
    attn_linear_clear(head, a->grad_k, &p->at.grad_k, head->g, head->len_kv, s->len_kv, s->dim_qk);
    attn_linear_clear(head, a->grad_v, &p->at.grad_v, head->g, head->len_kv, s->len_kv, s->dim_v);
    if (p->has.decay)
        attn_linear_clear(head, a->grad_decay, &p->at.grad_decay, head->g, head->len_kv, s->len_kv,
                          attn_decays_channels(p) ? w->dim_f : 1);
    if (p->rule == ATTN_LINEAR_RULE_DELTA)
        attn_linear_clear(head, a->grad_beta, &p->at.grad_beta, head->g, head->len_kv, s->len_kv, 1);
    if (p->rule != ATTN_LINEAR_RULE_LOW_RANK) return;
    attn_linear_clear(head, a->grad_erase, &p->at.grad_erase, head->g, head->len_kv, s->len_kv, w->dim_f);
    attn_linear_clear(head, a->grad_write, &p->at.grad_write, head->g, head->len_kv, s->len_kv, w->dim_f);
}

static attn_linear_head head_at(const attn_linear_walk *w, const attn_linear_args *args, char *memory, int64_t number, int part)
{
    const attn_linear_resolved *p = &w->problem;
    attn_linear_head head = {.walk = w, .args = args, .memory = memory, .part = part};
    head.b = number / p->shape.heads_kv;
    head.g = number % p->shape.heads_kv;
    head.next = number + w->workers;
    head.len_q = p->shape.len_q;
    head.len_kv = p->shape.len_kv;
    if (p->has.cu_seqlens) {
        head.first = attn_index_at(args->cu_seqlens, p->at.cu_seqlens.dtype, head.b);
        head.len_q = head.len_kv = attn_index_at(args->cu_seqlens, p->at.cu_seqlens.dtype, head.b + 1) - head.first;
    }
    if (p->has.lengths) head.len_kv = attn_index_at(args->lengths, p->at.lengths.dtype, head.b);
    if (p->has.lengths && p->causal) head.len_q = head.len_kv;
    return head;
}

static void walk_head(const attn_linear_head *head)
{
    const attn_linear_resolved *p = &head->walk->problem;
    if (p->has.lengths) clear_rest(head);
    static void (*const walks[2][3])(const attn_linear_head *) = {
        {attn_linear_forward_chunks, attn_linear_forward_gated, attn_linear_forward_tokens},
        {ATTN_OR_NULL(attn_linear_backward_chunks), ATTN_OR_NULL(attn_linear_backward_gated),
         ATTN_OR_NULL(attn_linear_backward_tokens)}};
    const int by_token = p->form == ATTN_LINEAR_FORM_RECURRENT || (head->walk->singles && head->len_kv == 1);
    walks[p->op == ATTN_BACKWARD][by_token ? 2 : head->walk->gated](head);
}

/* The address of channel `first` of a tensor; NULL stays NULL. */
static void *channel(const void *base, const attn_layout *layout, int64_t first)
{
    return base ? (char *)(uintptr_t)base + first * (int64_t)attn_dtype_bytes(layout->dtype) : NULL;
}

/* Channels first .. first+count-1 of the values of a head, forward: a problem of its own.  The first part writes the outputs that
 * have no value channels. */
static void walk_slice(const job *j, char *memory, int64_t number, int64_t first, int64_t count)
{
    attn_linear_walk slice = *j->walk;
    attn_linear_resolved *p = &slice.problem;
    attn_linear_args args = *j->args;
    p->shape.dim_v = count;
    slice.dim_u = count + (slice.gated && slice.normalised);
    args.v = channel(args.v, &p->at.v, first);
    args.o = channel(args.o, &p->at.o, first);
    args.initial_state = channel(args.initial_state, &p->at.initial_state, first);
    args.final_state = channel(args.final_state, &p->at.final_state, first);
    if (first > 0) p->has.denominators = 0, args.final_sum = NULL;
    const attn_linear_head head = head_at(&slice, &args, memory, number, LINEAR_ALL);
    walk_head(&head);
}

static double *decay_sums(const job *j, int64_t number)
{
    return (double *)(void *)(j->workspace + j->walk->decay) + number * j->walk->problem.shape.len_kv;
}

/* When both parts of a head are done: the gradient that needs both. */
static void join(void *context, int64_t worker, int64_t number)
{
    const job *j = context;
    const attn_linear_head head = head_at(j->walk, j->args, NULL, number, LINEAR_ALL);
    (void)worker;
    if (ATTN_TRAINS)
        attn_linear_backward_decay(&head, decay_sums(j, 2 * number + LINEAR_QUERIES), decay_sums(j, 2 * number + LINEAR_KEYS));
}

static void run(void *context, int64_t worker, int64_t task)
{
    const job *j = context;
    const attn_linear_walk *w = j->walk;
    const int64_t number = task / w->parts, part = task % w->parts;
    char *memory = j->workspace + worker * w->scratch.bytes;
    if (w->parts > 1 && w->problem.op == ATTN_FORWARD) {
        const int64_t first = part * w->slice;
        walk_slice(j, memory, number, first, attn_min(w->slice, w->problem.shape.dim_v - first));
        return;
    }
    attn_linear_head head = head_at(w, j->args, memory, number, w->parts > 1 ? (int)part : LINEAR_ALL);
    if (has_decay_sums(w)) head.decay = decay_sums(j, w->parts > 1 ? task : worker);
    walk_head(&head);
    if (ATTN_TRAINS && has_decay_sums(w) && w->parts == 1) attn_linear_backward_decay(&head, head.decay, NULL);
}

void attn_run_linear(const attn_linear_walk *walk, const attn_linear_args *args, void *workspace)
{
    job j = {walk, args, workspace};
    attn_linear_walk whole;
    int64_t tasks = walk->tasks;
    const attn_linear_resolved *p = &walk->problem;
    const int in_place = p->has.initial_state && p->has.final_state && args->initial_sum && args->initial_sum == args->final_sum;
    if (walk->parts > 1 && in_place) { /* all parts read the sum, and one writes it */
        whole = *walk;
        whole.parts = 1;
        tasks /= walk->parts;
        j.walk = &whole;
    }
    const int workers = (int)attn_min(walk->workers, attn_max(1, tasks));
    attn_threads_run(walk->parallel_for, walk->parallel_context, workers, tasks, run, &j);
    if (has_decay_sums(walk) && walk->parts > 1)
        attn_threads_run(walk->parallel_for, walk->parallel_context, workers, tasks / walk->parts, join, &j);
}
