/* SPDX-License-Identifier: MIT
 *
 * flow.c - attention flow: maximum flows by Dinic's algorithm (1970), in integers, so that it ends and the result is exact for the
 * rounded capacities.  The libraries for this in C are under the GPL, or have no package. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rollout.h"
#include "testing/text/failure.h"

static const double unit = 0x1p40; /* of a capacity of 1: sums of 2^23 of them fit */

/* Place l * n + i is token i after l layers; the edge (l, i, j) leads from i after l + 1 layers to j after l. */
struct flow_network {
    int64_t layers, n;
    int64_t *capacity; /* [layers][n][n] */
    int64_t *left;     /* what can still flow down; up again, what has come down */
    int64_t *level;    /* [places] steps from the top; -1: not reached */
    int64_t *next;     /* [places] the first of 2 n edges that may still lead on: n down, then n up */
    int64_t *queue, *path;
};

flow_network *flow_network_make(int64_t layers, int64_t n, const double *mixed)
{
    const int64_t places = (layers + 1) * n, edges = layers * n * n;
    flow_network *f = need_memory(1, sizeof *f);
    *f = (flow_network){layers,
                        n,
                        need_memory(edges, sizeof(int64_t)),
                        need_memory(edges, sizeof(int64_t)),
                        need_memory(places, sizeof(int64_t)),
                        need_memory(places, sizeof(int64_t)),
                        need_memory(places, sizeof(int64_t)),
                        need_memory(places, sizeof(int64_t))};
    for (int64_t k = 0; k < edges; k++) f->capacity[k] = llround(mixed[k] * unit);
    return f;
}

void flow_network_free(flow_network *f)
{
    if (!f) return;
    free(f->capacity), free(f->left), free(f->level), free(f->next), free(f->queue), free(f->path);
    free(f);
}

/* Edge e of a place: where it leads, and what can flow along it (0 if there is none). */
static int64_t edge_of(const flow_network *f, int64_t place, int64_t e, int64_t *to)
{
    const int64_t n = f->n, layer = place / n, token = place % n, other = e % n;
    if (e < n) { /* down */
        *to = place - token - n + other;
        return layer > 0 ? f->left[((layer - 1) * n + token) * n + other] : 0;
    }
    *to = place - token + n + other;
    const int64_t edge = (layer * n + other) * n + token;
    return layer < f->layers ? f->capacity[edge] - f->left[edge] : 0;
}

static void push(flow_network *f, int64_t from, int64_t to, int64_t amount)
{
    const int64_t n = f->n;
    if (to < from - from % n) f->left[((from / n - 1) * n + from % n) * n + to % n] -= amount;
    else f->left[((to / n - 1) * n + to % n) * n + from % n] += amount;
}

/* Returns 1 if the bottom can be reached. */
static int set_levels(flow_network *f, int64_t top, int64_t bottom)
{
    int64_t head = 0, tail = 0;
    for (int64_t p = 0; p < (f->layers + 1) * f->n; p++) f->level[p] = -1, f->next[p] = 0;
    f->level[top] = 0;
    f->queue[tail++] = top;
    while (head < tail && f->level[bottom] < 0) {
        const int64_t from = f->queue[head++];
        for (int64_t e = 0; e < 2 * f->n; e++) {
            int64_t to;
            if (edge_of(f, from, e, &to) <= 0 || f->level[to] >= 0) continue;
            f->level[to] = f->level[from] + 1;
            f->queue[tail++] = to;
        }
    }
    return f->level[bottom] >= 0;
}

/* Sends what one shortest path takes; 0 if there is none left. */
static int64_t send(flow_network *f, int64_t top, int64_t bottom)
{
    int64_t length = 0, place = top, amount = INT64_MAX, to;
    f->path[length++] = top;
    while (place != bottom) {
        int64_t *e = &f->next[place];
        while (*e < 2 * f->n && !(edge_of(f, place, *e, &to) > 0 && f->level[to] == f->level[place] + 1)) ++*e;
        if (*e < 2 * f->n) {
            f->path[length++] = place = to;
        } else {
            if (--length == 0) return 0;
            place = f->path[length - 1];
            ++f->next[place]; /* nothing leads on from where it led */
        }
    }
    for (int64_t k = 0; k + 1 < length; k++) {
        const int64_t fits = edge_of(f, f->path[k], f->next[f->path[k]], &to);
        if (fits < amount) amount = fits;
    }
    for (int64_t k = 0; k + 1 < length; k++) push(f, f->path[k], f->path[k + 1], amount);
    return amount;
}

double flow_between(flow_network *f, int64_t top, int64_t bottom)
{
    const int64_t from = f->layers * f->n + top;
    int64_t total = 0, sent;
    memcpy(f->left, f->capacity, (size_t)(f->layers * f->n * f->n) * sizeof *f->left);
    while (set_levels(f, from, bottom))
        while ((sent = send(f, from, bottom)) > 0) total += sent;
    return (double)total / unit;
}
