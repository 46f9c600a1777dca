/* SPDX-License-Identifier: MIT
 * linear_scan.c - see linear_scan.h. */
#include "linear_scan.h"

#include <string.h>

#include "affine.h"
#include "grid.h"
#include "memory.h"

/* Nodes of successive parts: what they do, a map and a state, is in `memory`, one after another. */
typedef struct nodes {
    char *memory;
    int count, level[128];
    int64_t number[128];
} nodes;

/* How the memory of a scan is divided. */
typedef struct scan {
    attn_linear_running *r;
    const attn_state_walk *w;
    const attn_stretch *s;
    attn_affine of;
    size_t map, node; /* bytes of a map, and of it with its state */
    int depth;        /* nodes that make up any range of parts, at most */
    char *leaves, *own, *seen, *heard, *prefix, *spare, *zeros, *identity;
} scan;

/* ---- memory ---- */

static int depth_of(const attn_linear_passes *p)
{
    const int64_t most = attn_max(p->q.parts_total, p->kv.parts_total);
    int bits = 1;
    while (bits < 62 && INT64_C(1) << bits <= most) bits++;
    return 2 * bits;
}

static void lay_out(scan *c, const attn_linear_passes *p)
{
    c->of = (attn_affine){.compute = p->compute,
                          .heads = p->entries * p->heads,
                          .features = p->dim_features,
                          .width = p->map_width,
                          .dim_v = p->problem.shape.dim_v,
                          .normalised = p->normalised};
    c->map = attn_round_64_up(attn_affine_map_bytes(&c->of));
    c->node = c->map + attn_round_64_up(p->group);
    c->depth = depth_of(p);
}

/* A row of zeros, or states of zeros. */
static size_t zero_bytes(const attn_linear_passes *p)
{
    return attn_round_64_up((size_t)attn_max((int64_t)p->group, p->map_width * 8));
}

static size_t identity_bytes(const attn_linear_passes *p) { return attn_round_64_up((size_t)(p->dim_features * p->map_width) * 8); }

size_t attn_linear_scan_bytes(const attn_linear_passes *p)
{
    scan c;
    if (!p->scans) return 0;
    lay_out(&c, p);
    const size_t all = (size_t)attn_max(p->q.parts, p->kv.parts) + 4 * (size_t)c.depth + 1;
    if ((double)all * (double)c.node > 0x1p62) return SIZE_MAX / 2;
    return all * c.node + zero_bytes(p) + identity_bytes(p);
}

static void divide(scan *c, const attn_linear_passes *p, char *memory)
{
    c->leaves = memory, memory += (size_t)attn_max(p->q.parts, p->kv.parts) * c->node;
    c->own = memory, memory += (size_t)c->depth * c->node;
    c->seen = memory, memory += (size_t)c->depth * c->node;
    c->heard = memory, memory += (size_t)c->depth * c->node;
    c->prefix = memory, memory += (size_t)c->depth * c->node;
    c->spare = memory, memory += c->node;
    c->zeros = memory, memory += zero_bytes(p);
    c->identity = memory;
    memset(c->zeros, 0, zero_bytes(p));
    attn_affine_identity(&c->of, c->identity);
}

/* ---- nodes ---- */

/* Adds what comes next, and joins nodes that are the halves of one. */
static void push(scan *c, nodes *n, int level, int64_t number, const char *what)
{
    const int counts = !n->memory;
    n->level[n->count] = level, n->number[n->count] = number;
    if (!counts) memcpy(n->memory + (size_t)n->count * c->node, what, c->node);
    n->count++;
    while (n->count > 1 && n->level[n->count - 1] == n->level[n->count - 2] && n->number[n->count - 2] % 2 == 0) {
        const int at = n->count - 2;
        n->level[at]++, n->number[at] /= 2, n->count--;
        if (counts) continue;
        char *earlier = n->memory + (size_t)at * c->node, *later = earlier + c->node;
        attn_affine_multiply(&c->of, later, earlier, c->spare);
        attn_affine_add(&c->of, later, earlier + c->map, later + c->map);
        memcpy(earlier, c->spare, attn_affine_map_bytes(&c->of));
        memcpy(earlier + c->map, later + c->map, c->node - c->map);
    }
}

/* The nodes of a range of parts, without what they do. */
static nodes nodes_of(int64_t first, int64_t end)
{
    nodes n = {.memory = NULL};
    for (int64_t at = first; at < end;) {
        int level = 0;
        while (at % (INT64_C(2) << level) == 0 && at + (INT64_C(2) << level) <= end) level++;
        n.level[n.count] = level, n.number[n.count++] = at >> level;
        at += INT64_C(1) << level;
    }
    return n;
}

/* What a walk has after all nodes so far, at prefix `count`, of which `done` are up to date. */
static char *prefix_at(scan *c, int n) { return c->prefix + (size_t)n * attn_round_64_up(c->r->plan->passes.group); }

static const char *follow(scan *c, const nodes *n, int *done)
{
    const size_t group = c->r->plan->passes.group;
    for (; *done < n->count; ++*done) {
        const char *node = n->memory + (size_t)*done * c->node;
        memcpy(prefix_at(c, *done + 1), node + c->map, group);
        attn_affine_add(&c->of, node, prefix_at(c, *done), prefix_at(c, *done + 1));
    }
    return prefix_at(c, n->count);
}

/* ---- parts ---- */

static int is_gradient(const attn_state_walk *w) { return w->kind == ATTN_PASS_BACKWARD || w->kind == ATTN_PASS_BACKWARD_QUERIES; }

static char *leaf_at(const scan *c, int64_t n) { return c->leaves + (size_t)n * c->node; }

/* What part n does to any state, or to any gradient. */
static void make_leaf(scan *c, int64_t n)
{
    char *map = leaf_at(c, n), *state = map + c->map;
    memset(map, 0, c->node);
    if (c->of.width > 0) {
        char *const made = is_gradient(c->w) ? c->spare : map;
        const attn_pass_states maps = {.before = c->identity, .after = made, .values = c->zeros};
        attn_linear_call(c->r, ATTN_PASS_MAPS, 0, n, &maps);
        if (is_gradient(c->w)) attn_affine_transpose(&c->of, c->spare, map);
    }
    const int causal = c->r->plan->passes.problem.causal;
    const attn_state_walk kept = {.kind = ATTN_PASS_STATES};
    const attn_pass_states gradient = {.before = attn_linear_moving_at(c->r, &kept, causal ? n : 0, 0),
                                       .gradient_after = c->zeros,
                                       .gradient_before = state},
                           plain = {.before = state, .after = state};
    attn_linear_call(c->r, is_gradient(c->w) ? c->w->kind : ATTN_PASS_STATES, 0, n, is_gradient(c->w) ? &gradient : &plain);
}

/* Computes part n from what is before it. */
static void use(scan *c, int64_t n, const char *before)
{
    const size_t group = c->r->plan->passes.group;
    const attn_state_walk kept = {.kind = ATTN_PASS_STATES};
    char *const own =
        attn_linear_moving_at(c->r, c->w->kind == ATTN_PASS_BACKWARD ? c->w : &kept, c->w->kind == ATTN_PASS_STATES ? n : 0, 0);
    if (!c->r->plan->passes.problem.causal) return; /* only the end matters */
    memcpy(own, before, group);
    const attn_pass_states tokens = {.before = own, .after = own},
                           backward = {.before = attn_linear_moving_at(c->r, &kept, n, 0),
                                       .gradient_after = own,
                                       .gradient_before = attn_linear_moving_at(c->r, c->w, 1, 0)};
    if (c->w->kind == ATTN_PASS_TOKENS) attn_linear_call(c->r, c->w->kind, 0, n, &tokens);
    if (c->w->kind == ATTN_PASS_BACKWARD) attn_linear_call(c->r, c->w->kind, 0, n, &backward);
}

/* ---- the scan ---- */

/* Numbers of parts in the order of the walk. */
static attn_range range_of(const scan *c, const attn_stretch *s)
{
    const int64_t end = s->part + s->parts;
    return c->w->reverse ? (attn_range){s->parts_total - end, s->parts_total - s->part} : (attn_range){s->part, end};
}

static attn_stretch stretch_of_rank(const scan *c, int rank)
{
    const attn_linear_passes *p = &c->r->plan->passes;
    return attn_stretch_of(c->s->tokens_total, p->part, rank, c->r->plan->ranks);
}

static int comes_before(const scan *c, int rank, int other) { return c->w->reverse ? rank > other : rank < other; }

static void send(scan *c, nodes *own)
{
    const attn_distributed_linear_plan *plan = c->r->plan;
    for (int to = 0; to < plan->ranks; to++)
        if (comes_before(c, plan->me, to) && stretch_of_rank(c, to).parts > 0)
            (void)attn_link_send(&c->r->link, to, c->w->tag, own->memory, (size_t)own->count * c->node);
}

/* What the ranks before this one send, in the order of the walk. */
static void receive(scan *c, nodes *seen)
{
    const attn_distributed_linear_plan *plan = c->r->plan;
    for (int n = 0; n < plan->ranks; n++) {
        const int from = c->w->reverse ? plan->ranks - 1 - n : n;
        const attn_stretch s = stretch_of_rank(c, from);
        const attn_range range = range_of(c, &s);
        if (!comes_before(c, from, plan->me) || s.parts == 0) continue;
        const nodes found = nodes_of(range.first, range.end);
        attn_link_wait(&c->r->link, attn_link_receive(&c->r->link, from, c->w->tag, c->heard, (size_t)found.count * c->node));
        for (int k = 0; k < found.count && c->r->mine && c->r->link.status == ATTN_OK; k++)
            push(c, seen, found.level[k], found.number[k], c->heard + (size_t)k * c->node);
    }
}

static void count(scan *c)
{
    const attn_linear_passes *p = &c->r->plan->passes;
    const attn_range range = range_of(c, c->s);
    nodes own = nodes_of(range.first, range.end), seen = {.memory = NULL};
    c->r->calls += c->s->parts * (1 + (p->map_width > 0) + (p->problem.causal && c->w->kind != ATTN_PASS_STATES));
    send(c, &own);
    receive(c, &seen);
    attn_link_wait_all(&c->r->link);
}

void attn_linear_scan(attn_linear_running *r, const attn_state_walk *w, const attn_stretch *s)
{
    scan c = {.r = r, .w = w, .s = s};
    lay_out(&c, &r->plan->passes);
    if (s->parts == 0) {
        attn_linear_load(r, w->begin, 0, attn_linear_moving_at(r, w, 0, 0));
        return;
    }
    if (!r->mine) {
        count(&c);
        return;
    }
    divide(&c, &r->plan->passes, r->memory.scan);
    nodes own = {.memory = c.own}, seen = {.memory = c.seen};
    const attn_range range = range_of(&c, s);
    for (int64_t step = 0; step < s->parts; step++) {
        const int64_t n = w->reverse ? s->parts - 1 - step : step;
        make_leaf(&c, n);
        push(&c, &own, 0, range.first + step, leaf_at(&c, n));
    }
    send(&c, &own);
    receive(&c, &seen);
    attn_linear_load(r, w->begin, 0, prefix_at(&c, 0));
    int done = 0;
    for (int64_t step = 0; step < s->parts; step++) {
        const int64_t n = w->reverse ? s->parts - 1 - step : step;
        use(&c, n, follow(&c, &seen, &done));
        push(&c, &seen, 0, range.first + step, leaf_at(&c, n));
        if (done >= seen.count) done = seen.count - 1;
    }
    memcpy(attn_linear_moving_at(r, w, s->parts, 0), follow(&c, &seen, &done), r->plan->passes.group);
    attn_link_wait_all(&r->link);
}
