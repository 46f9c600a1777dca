/* SPDX-License-Identifier: MIT
 * linear_walk.c - how linear attention is cut into chunks, what memory a worker needs, and who runs which head. */
#include "linear.h"

#include <math.h>

#include "../base/checked.h"
#include "../base/names.h"
#include "threads.h"

/* Tokens of a chunk: more of them multiply more pairs out, fewer make the state's products short.  48 took the least time (a
 * prototype: S8192 D64 and D128). */
enum { CHUNK = 48 };

static int needs_tokens(const attn_linear_problem *p) { return p->rule == ATTN_RULE_DELTA || p->decay == ATTN_DECAY_CHANNEL; }

static void choose_form(attn_linear_walk *w)
{
    attn_linear_problem *p = &w->problem;
    const int64_t most = attn_max(1, attn_max(p->shape.len_q, p->shape.len_kv));
    if (p->form == ATTN_LINEAR_AUTO)
        p->form = needs_tokens(p) || (p->causal && p->shape.len_kv == 1) ? ATTN_LINEAR_RECURRENT : ATTN_LINEAR_CHUNKED;
    w->chunk = p->chunk ? p->chunk : attn_ceil_div(CHUNK, w->tile_q) * w->tile_q;
    if (p->form == ATTN_LINEAR_QUADRATIC) w->chunk = most;
    w->chunk = attn_min(w->chunk, most);
}

/* Takes `count` numbers of `size` bytes each; -1 in *bytes once something overflowed. */
static int64_t take(int64_t *bytes, int64_t count, int64_t size)
{
    int64_t at = *bytes, need;
    if (at < 0 || count < 0) return *bytes = -1;
    if (!attn_mul(count, size, &need) || need > INT64_MAX / 4 || !attn_add(at, attn_round_64(need), bytes)) *bytes = -1;
    return at;
}

/* a*b, or -1 where either is or it overflows. */
static int64_t times(int64_t a, int64_t b)
{
    int64_t product;
    return a < 0 || b < 0 || !attn_mul(a, b, &product) ? -1 : product;
}

/* About the square root of n >= 1, never 0. */
static int64_t integer_root(int64_t n)
{
    int64_t root = (int64_t)sqrt((double)n);
    return attn_max(1, root);
}

static void plan_scratch(attn_linear_walk *w)
{
    const attn_linear_problem *p = &w->problem;
    attn_linear_scratch *s = &w->scratch;
    const int backward = p->op == ATTN_BACKWARD, tokens = p->form == ATTN_LINEAR_RECURRENT;
    const int random = p->features >= ATTN_FEATURES_FAVOR;
    const int64_t size = (int64_t)attn_dtype_bytes(w->compute), tile = w->tile_q, dv = p->shape.dim_v,
                  most = attn_max(w->dim_f, dv);
    const int64_t state = times(w->dim_f, w->ld_v), panels = attn_ceil_div(dv, tile) * tile;
    int64_t bytes = 0;

    s->Xt = take(&bytes, random ? times(p->shape.dim_qk, tile) : 0, size);
    s->dXt = take(&bytes, random && backward ? times(p->shape.dim_qk, tile) : 0, size);
    s->X = take(&bytes, random ? times(w->ld_x, tile) : 0, size);
    s->Qf = take(&bytes, times(times(w->group, w->chunk), w->ld_f), size);
    s->Kf = take(&bytes, times(w->chunk, w->ld_f), size);
    s->V = take(&bytes, times(w->chunk, w->ld_v), size);
    s->A = take(&bytes, backward ? times(times(w->group, w->chunk), w->ld_v) : 0, size);
    s->Y = take(&bytes, backward ? times(w->chunk, w->ld_v) : 0, size);
    s->Qt = take(&bytes, times(most, tile), size);
    s->Vt = take(&bytes, backward ? times(most, tile) : 0, size);
    s->Ot = take(&bytes, times(dv, tile), size);
    s->Gt = take(&bytes, backward || random ? times(w->dim_f, tile) : 0, size);
    s->S = take(&bytes, tokens ? 0 : times(w->chunk, tile), size);
    s->dS = take(&bytes, backward && !tokens ? times(w->chunk, tile) : 0, size);
    s->G = take(&bytes, backward ? times(tile, w->ld_f) : 0, size);
    s->panels = take(&bytes, tokens ? 0 : times(panels, w->chunk), size);
    s->state = take(&bytes, state, size);
    s->sum = take(&bytes, w->dim_f, size);
    s->grad_state = take(&bytes, backward ? state : 0, size);
    s->grad_sum = take(&bytes, backward ? w->dim_f : 0, size);
    s->lanes = take(&bytes, ATTN_LINEAR_LANES * tile, size);
    s->logs = take(&bytes, w->chunk, size);
    s->weights = take(&bytes, w->chunk, size);
    s->factors = take(&bytes, backward ? times(w->group, p->shape.len_q) : 0, size);
    s->terms = take(&bytes, backward && w->normalised ? times(w->group, p->shape.len_q) : 0, size);
    s->decay = take(&bytes, backward && p->decay && !tokens ? p->shape.len_kv : 0, 8);
    s->gates = take(&bytes, tokens && p->decay ? times(w->chunk, p->decay == ATTN_DECAY_CHANNEL ? w->dim_f : 1) : 0, size);
    s->token = take(&bytes, tokens ? 2 * w->ld_v + 3 * w->ld_f : 0, size);
    s->states = take(&bytes, backward && tokens ? times(w->segment + 1, state) : 0, size);
    s->sums = take(&bytes, backward && tokens ? times(w->segment + 1, w->dim_f) : 0, size);
    s->checkpoints = take(&bytes, backward && tokens ? times(w->segments, state) : 0, size);
    s->checkpoint_sums = take(&bytes, backward && tokens ? times(w->segments, w->dim_f) : 0, size);
    s->bytes = bytes;
}

int attn_linear_walk_init(attn_linear_walk *w, int threads)
{
    const attn_linear_problem *p = &w->problem;
    const int64_t lanes = w->forward->lanes;
    int64_t bytes;
    w->tile_q = lanes * w->forward->vectors;
    w->group = p->shape.heads_kv ? p->shape.heads_q / p->shape.heads_kv : 1;
    w->normalised = p->denominator != ATTN_DENOMINATOR_NONE;
    if (p->shape.dim_v > INT64_MAX / 8 || w->dim_f > INT64_MAX / 8 || p->shape.dim_qk > INT64_MAX / 8) return 0;
    w->ld_f = attn_ceil_div(w->dim_f, lanes) * lanes;
    w->ld_v = attn_ceil_div(p->shape.dim_v, lanes) * lanes;
    w->ld_x = attn_ceil_div(p->shape.dim_qk, lanes) * lanes;
    choose_form(w);
    w->segment = integer_root(attn_max(1, p->shape.len_kv));
    if (p->form == ATTN_LINEAR_RECURRENT && p->op == ATTN_BACKWARD) w->chunk = w->segment;
    w->segments = attn_ceil_div(p->shape.len_kv, w->segment);
    if (!attn_mul(p->shape.batch, p->shape.heads_kv, &w->tasks)) return 0;
    w->workers = attn_linear_walk_flops(w) * (double)w->tasks < 1e6 ? 1 : (int)attn_clamp(w->tasks, 1, threads);
    plan_scratch(w);
    return w->scratch.bytes >= 0 && attn_mul(w->scratch.bytes, w->workers, &bytes) && bytes <= INT64_MAX - 64;
}

int64_t attn_linear_walk_bytes(const attn_linear_walk *w) { return w->scratch.bytes * w->workers; }

/* Pairs of a query and a key that one walk multiplies out in a chunk of n tokens: each tile of queries with the keys up to its end.
 */
static double pairs_of_chunk(const attn_linear_walk *w, int64_t n)
{
    const double tile = (double)w->tile_q, full = (double)(n / w->tile_q);
    const int64_t rest = attn_ceil_div(n % w->tile_q, w->forward->lanes) * w->forward->lanes;
    return tile * tile * full * (full + 1) / 2 + (double)rest * (double)n;
}

static double pairs_of(const attn_linear_walk *w)
{
    const int64_t n = w->problem.shape.len_kv;
    return (double)(n / w->chunk) * pairs_of_chunk(w, w->chunk) + pairs_of_chunk(w, n % w->chunk);
}

double attn_linear_walk_flops(const attn_linear_walk *w)
{
    const attn_linear_problem *p = &w->problem;
    const double df = (double)w->dim_f, dv = (double)p->shape.dim_v, group = (double)w->group;
    const double nq = (double)p->shape.len_q, nk = (double)p->shape.len_kv, state = df * dv;
    const double delta = p->rule == ATTN_RULE_DELTA ? 1 : 0;
    double sum;
    if (p->form == ATTN_LINEAR_RECURRENT) {
        sum = nk * state * (1 + delta + group);
        if (p->op == ATTN_BACKWARD) sum = 2 * nk * state * (2 + delta) + nk * state * (2 * group + 2 + 4 * delta);
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
    const attn_linear_problem *p = &w->problem;
    const attn_linear_args *a = head->args;
    const attn_shape *s = &p->shape;
    const int backward = p->op == ATTN_BACKWARD;
    for (int64_t h = head->g * w->group; h < (head->g + 1) * w->group; h++) {
        if (backward) attn_linear_clear(head, a->grad_q, &p->grad_q, h, head->len_q, s->len_q, s->dim_qk);
        else attn_linear_clear(head, a->o, &p->o, h, head->len_q, s->len_q, s->dim_v);
        if (!backward && p->want_denominator)
            attn_linear_clear(head, a->denominators, &p->denominators, h, head->len_q, s->len_q, 1);
    }
    if (!backward) return;
    attn_linear_clear(head, a->grad_k, &p->grad_k, head->g, head->len_kv, s->len_kv, s->dim_qk);
    attn_linear_clear(head, a->grad_v, &p->grad_v, head->g, head->len_kv, s->len_kv, s->dim_v);
    if (p->decay)
        attn_linear_clear(head, a->grad_decay, &p->grad_decay, head->g, head->len_kv, s->len_kv,
                          p->decay == ATTN_DECAY_CHANNEL ? w->dim_f : 1);
    if (p->rule == ATTN_RULE_DELTA) attn_linear_clear(head, a->grad_beta, &p->grad_beta, head->g, head->len_kv, s->len_kv, 1);
}

static void run(void *context, int64_t worker, int64_t task)
{
    const job *j = context;
    const attn_linear_walk *w = j->walk;
    const attn_linear_problem *p = &w->problem;
    attn_linear_head head = {.walk = w, .args = j->args, .memory = j->workspace + worker * w->scratch.bytes};
    head.b = task / p->shape.heads_kv;
    head.g = task % p->shape.heads_kv;
    head.len_q = p->shape.len_q;
    head.len_kv = p->shape.len_kv;
    if (p->lengths) {
        head.len_kv = attn_index_at(j->args->lengths, p->index_dtype, head.b);
        if (p->causal) head.len_q = head.len_kv;
        clear_rest(&head);
    }
    const int tokens = p->form == ATTN_LINEAR_RECURRENT;
    if (p->op == ATTN_FORWARD) (tokens ? attn_linear_forward_tokens : attn_linear_forward_chunks)(&head);
    else (tokens ? attn_linear_backward_tokens : attn_linear_backward_chunks)(&head);
}

void attn_sched_linear(const attn_linear_walk *walk, const attn_linear_args *args, void *workspace)
{
    job j = {walk, args, workspace};
    attn_threads_run(walk->parallel_for, walk->parallel_context, walk->workers, walk->tasks, run, &j);
}
