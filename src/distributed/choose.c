/* SPDX-License-Identifier: MIT
 * choose.c - see choose.h. */
#include "choose.h"

#include <stdio.h>

#include "../common/slots.h"

/* ---- candidates ---- */

/* After groups of `last` ranks (0: none yet), the next larger number that divides the heads; 0: there is none. */
typedef int next_members(int64_t heads_kv, int ranks, int last);

static int undivided(int64_t heads_kv, int ranks, int last)
{
    (void)heads_kv, (void)ranks;
    return last ? 0 : 1;
}

/* Beyond the key heads, ranks would have nothing to do. */
static int all_ranks(int64_t heads_kv, int ranks, int last) { return !last && ranks > 1 && ranks <= heads_kv ? ranks : 0; }

static int groups(int64_t heads_kv, int ranks, int last)
{
    for (int n = last ? last + 1 : 2; n < ranks && n <= heads_kv; n++)
        if (ranks % n == 0) return n;
    return 0;
}

static int apart(int64_t heads_kv, int ranks, int last)
{
    (void)heads_kv;
    return !last && ranks > 1 ? 1 : 0;
}

/* In the order in which equal ones are taken; the first is possible for every problem. */
static const struct {
    attn_way way;
    int apart; /* 1: heads are computed apart */
    next_members *next;
} candidates[] = {
    {ATTN_WAY_DIRECT, 0, undivided}, {ATTN_WAY_HEADS, 1, all_ranks}, {ATTN_WAY_HEADS_RING, 1, groups}, {ATTN_WAY_GATHER, 1, apart}};
enum { CANDIDATES = sizeof candidates / sizeof *candidates };

/* ---- sentences ---- */

typedef struct label {
    char text[32];
} label;

static label label_of(attn_way way, int members)
{
    static const char *const names[] = {"auto", "ring", "direct", "split-keys", "heads", "heads-ring", "gather"};
    _Static_assert(sizeof names / sizeof *names == ATTN_WAY_GATHER + 1, "each way has a name");
    label x;
    if (way == ATTN_WAY_HEADS_RING) (void)snprintf(x.text, sizeof x.text, "%s by %d", names[way], members);
    else (void)snprintf(x.text, sizeof x.text, "%s", names[way]);
    return x;
}

static label time_of(double seconds)
{
    static const struct {
        double least;
        const char *unit;
    } units[] = {{86400, "days"}, {3600, "h"}, {1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}};
    size_t n = 0;
    label x;
    while (n + 1 < sizeof units / sizeof *units && seconds < 0.9995 * units[n].least) n++; /* or it would be rounded to 1e+03 */
    (void)snprintf(x.text, sizeof x.text, "%.3g %s", seconds / units[n].least, units[n].unit);
    return x;
}

#define LABEL(way, members) label_of(way, members).text
#define TIME(seconds)       time_of(seconds).text

/* What was asked for, or all there is. */
static void explain_only(attn_choice *c, int asked)
{
    char *const why = c->predicted.why;
    const size_t size = sizeof c->predicted.why;
    const char *const reason = asked                     ? "asked for"
                               : c->predicted.ranks == 1 ? "there is one rank"
                                                         : "all heads share what is summed";
    (void)snprintf(why, size, "%s: %s; %s predicted", LABEL(c->way, c->members), reason, TIME(c->predicted.seconds));
}

/* direct: what is compared with; other: the best of the others. */
static void explain_best(attn_choice *c, const attn_choice *direct, const attn_choice *other)
{
    char *const why = c->predicted.why;
    const size_t size = sizeof c->predicted.why;
    const attn_split_prediction *const d = &direct->predicted;
    if (c->way == ATTN_WAY_DIRECT)
        (void)snprintf(why, size, "direct: %s predicted, %s %s", TIME(d->seconds), LABEL(other->way, other->members),
                       TIME(other->predicted.seconds));
    else if (d->imbalance > 1.005)
        (void)snprintf(why, size, "%s: %s predicted, direct %s (waiting %s; work is %.3g times even)", LABEL(c->way, c->members),
                       TIME(c->predicted.seconds), TIME(d->seconds), TIME(d->waiting), d->imbalance);
    else
        (void)snprintf(why, size, "%s: %s predicted, direct %s (waiting %s)", LABEL(c->way, c->members), TIME(c->predicted.seconds),
                       TIME(d->seconds), TIME(d->waiting));
}

/* ---- choosing ---- */

static attn_status predict(attn_choice *c, const attn_cells *cells, int ranks, const attn_split_machine *machine, attn_error *error)
{
    return attn_predict_way(&c->predicted, cells, c->way, ranks, c->members, machine, error);
}

attn_status attn_choose(attn_choice *choice, const attn_cells *cells, attn_way way, int members, int ranks, int divided,
                        const attn_split_machine *machine, attn_error *error)
{
    const int64_t heads_kv = cells->problem.shape.heads_kv;
    attn_choice best = {.way = way, .members = members}, direct = best, other = {.members = 0};
    if (way != ATTN_WAY_AUTO) {
        TRY(predict(&best, cells, ranks, machine, error));
        explain_only(&best, 1);
        *choice = best;
        return ATTN_OK;
    }
    best.members = 0;
    for (int n = 0; n < CANDIDATES; n++)
        for (int last = 0; (last = candidates[n].next(heads_kv, ranks, last)) > 0;) {
            attn_choice next = {.way = candidates[n].way, .members = last};
            if (candidates[n].apart && !divided) break;
            TRY(predict(&next, cells, ranks, machine, error));
            if (n == 0) direct = next;
            else if (!other.members || next.predicted.seconds < other.predicted.seconds) other = next;
            if (!best.members || next.predicted.seconds < best.predicted.seconds) best = next;
        }
    if (other.members) explain_best(&best, &direct, &other);
    else explain_only(&best, 0);
    *choice = best;
    return ATTN_OK;
}

attn_status attn_choose_instead(attn_choice *choice, const attn_cells *cells, int ranks, const attn_split_machine *machine,
                                const attn_error *failed, attn_error *error)
{
    attn_choice direct = {.way = ATTN_WAY_DIRECT, .members = 1};
    TRY(predict(&direct, cells, ranks, machine, error));
    (void)snprintf(direct.predicted.why, sizeof direct.predicted.why, "direct: %s predicted; %s, of which %s is predicted: %.100s",
                   TIME(direct.predicted.seconds), LABEL(choice->way, choice->members), TIME(choice->predicted.seconds),
                   failed->message);
    *choice = direct;
    return ATTN_OK;
}
