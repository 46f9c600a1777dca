/* SPDX-License-Identifier: MIT
 *
 * schedule.c - cuts the sequences of a step into items, by the walks of a plan.
 *
 *      for each entry        the part whose walk takes its lengths, and how many pieces that walk makes of it
 *      for each part         pieces of an item, so that threads have enough items to balance
 *      for each item         its place, in descending order of cost (a counting sort: equal costs keep the order of entries),
 *                            among those of its node if memory has several
 */
#include "schedule.h"

#include "prefixes.h"

#include <inttypes.h>
#include <string.h>

#include "../base/checked.h"
#include "../base/error.h"

const char *attn_schedule_rejection(const attn_plan *plan)
{
    const attn_resolved *p = &plan->problem;
    if (p->op != ATTN_FORWARD) return "its operation is not ATTN_FORWARD";
    if (p->has.lengths_q) return "it has lengths_q; pack ragged queries, with cu_seqlens_q";
    return p->has.origin ? "its calls have an origin" : NULL;
}

static int64_t most_items(const attn_plan_part *part) { return part->type->cut->most(part->walk); }

int attn_schedule_bytes(const attn_plan *plan, size_t *bytes)
{
    const int64_t batch = plan->problem.shape.batch;
    int64_t most = 1, items, end = attn_round_64((int64_t)sizeof(attn_schedule)), at, unused;
    for (int n = 0; n < plan->parts; n++) most = attn_max(most, most_items(&plan->part[n]));
    if (!attn_mul(batch, most, &items)) return 0;
    const attn_part_of parts[] = {{&at, batch, 1, sizeof(attn_scheduled_entry)}, {&unused, items, 1, sizeof(attn_item)}};
    if (!attn_place(parts, sizeof parts / sizeof *parts, &end) || (uint64_t)end > SIZE_MAX - 64) return 0;
    *bytes = (size_t)end;
    return 1;
}

/* Zeros where there is nothing, padding too, since keys are compared by bytes. */
static void key_of(const attn_plan *plan, attn_schedule_key *key)
{
    attn_visibility mask;
    memset(key, 0, sizeof *key);
    key->shape = plan->problem.shape;
    attn_visibility_of(&plan->problem, NULL, 0, 0, &mask);
    key->mask.left = mask.left, key->mask.right = mask.right, key->mask.chunk = mask.chunk, key->mask.causal = mask.causal;
    key->dilation = mask.dilation;
    key->listed = attn_has_choices(&plan->problem) ? plan->problem.mask.block_kv : 0;
    key->mask.offset = mask.offset, key->mask.global_q = mask.global_q, key->mask.global_kv = mask.global_kv;
    for (int n = 0; n < plan->parts; n++) {
        const attn_plan_part *part = &plan->part[n];
        struct attn_schedule_key_part *of = &key->part[n];
        of->type = part->type;
        of->least = part->least, of->most = part->most;
        of->small = part->small, of->small_only = part->small_only;
        of->tile_q = part->walk->tile_q, of->block_kv = part->walk->block_kv;
        of->tiling = (int64_t)part->walk->tiling, of->lanes = part->walk->kernel.lanes, of->vectors = part->walk->kernel.vectors;
        of->workers = part->walk->workers;
        of->tasks = part->type->cut->tasks(part->walk);
        of->group = part->type->cut->group(part->walk);
        of->pieces = most_items(part);
    }
}

static int64_t listed_of(const attn_plan *plan, const attn_args *args, int64_t b)
{
    return attn_has_choices(&plan->problem) ? attn_most_listed(&plan->problem, args, b) : 0;
}

/* What the walk of a part sees of an entry's keys; neither ranges nor blocks of lists are read, they only hide more. */
static attn_visibility visibility_of(const attn_plan_part *part, const attn_args *args, int64_t b, int64_t listed)
{
    attn_visibility seen;
    attn_visibility_of(&part->walk->problem, args, b, 0, &seen);
    seen.ranges = NULL;
    if (attn_has_choices(&part->walk->problem)) {
        seen.list = NULL;
        seen.len_kv = seen.all_kv = listed;
        seen.causal = 0;
        seen.chunk = 0;
        seen.left = seen.right = INT64_MAX;
    }
    return seen;
}

static void read_entry(const attn_plan *plan, const attn_args *args, int64_t b, int64_t node, attn_scheduled_entry *entry,
                       int64_t *units)
{
    attn_visibility whole;
    memset(entry, 0, sizeof *entry);
    entry->node = node;
    entry->tokens = attn_tokens_of(&plan->problem, args, b);
    entry->listed = listed_of(plan, args, b);
    attn_visibility_of(&plan->problem, args, b, 0, &whole);
    entry->offset = whole.offset;
    entry->part = -1;
    for (int n = 0; n < plan->parts && entry->part < 0 && entry->tokens.len_q > 0; n++) {
        const attn_plan_part *part = &plan->part[n];
        if (!attn_is_of_walk(&part->walk->problem, entry->tokens.len_q, entry->tokens.len_kv)) continue;
        const attn_visibility seen = visibility_of(part, args, b, entry->listed);
        entry->part = n;
        entry->before = units[n];
        units[n] += part->type->cut->pieces(part->walk, &seen, entry);
    }
}

/* ---- items in descending order of cost ---- */

enum { STEPS_OF_OCTAVE = 8, BUCKETS = 64 * STEPS_OF_OCTAVE };

/* Ascending buckets of descending costs, eight for each power of two. */
static int bucket_of(int64_t cost)
{
    int octave = 0;
    while (octave < 62 && cost >> (octave + 1)) octave++;
    const int64_t step = octave >= 3 ? cost >> (octave - 3) & 7 : cost << (3 - octave) & 7;
    return BUCKETS - 1 - (octave * STEPS_OF_OCTAVE + (int)step);
}

typedef void visit_item(void *context, const attn_item *item);

/* The input of a schedule. */
typedef struct step {
    const attn_plan *plan;
    const attn_args *args;
    const attn_prefixes *prefixes;
} step;

static int64_t cost_of(const step *of, const attn_schedule *s, int n, const attn_item *item)
{
    const attn_plan_part *part = &of->plan->part[n];
    const attn_scheduled_entry *entry = &s->entry[item->entry];
    const attn_visibility seen = visibility_of(part, of->args, item->entry, entry->listed);
    return attn_max(1, part->type->cut->cost(part->walk, &seen, entry, item));
}

/* In place of a node. */
enum { ANY_NODE = -2 };

/* Visits the items of part n whose pieces several entries share. */
static void for_each_shared_item(const attn_schedule *s, const step *of, int n, int64_t node, visit_item *visit, void *context)
{
    attn_shared_pieces pieces;
    for (int64_t i = 0; i < of->prefixes->count; i++) {
        if (!attn_prefix_pieces(of->prefixes, i, s, of->plan, n, &pieces)) continue;
        if (node != ANY_NODE && s->entry[pieces.entry].node != node) continue;
        for (int64_t k = pieces.first; k < pieces.end; k++) {
            attn_item item = {pieces.entry, k, 1, 0, pieces.sharers};
            int64_t members = 0;
            for (int64_t b = pieces.entry; b < pieces.entry + pieces.sharers; b++) {
                const attn_item one = {b, k, 1, 0, 1};
                if (!attn_entry_shares(&s->entry[b], n) || k >= s->entry[b].shared) continue;
                item.cost += cost_of(of, s, n, &one);
                members++;
            }
            if (members > 0) visit(context, &item); /* masks may end before the prefix */
        }
    }
}

/* Visits the items of a part whose keys are on a node, entry by entry. */
static void for_each_item(const attn_schedule *s, const step *of, int n, int64_t node, int64_t group, visit_item *visit,
                          void *context)
{
    const attn_plan_part *part = &of->plan->part[n];
    const attn_plan *plan = of->plan;
    const attn_args *args = of->args;
    for_each_shared_item(s, of, n, node, visit, context);
    for (int64_t b = 0; b < plan->problem.shape.batch; b++) {
        const attn_scheduled_entry *entry = &s->entry[b];
        if (entry->part != n || entry->node != node) continue;
        const attn_visibility seen = visibility_of(part, args, b, entry->listed);
        for (int64_t first = entry->shared; first < entry->pieces; first += group) {
            attn_item item = {b, first, attn_min(group, entry->pieces - first), 0, 1};
            item.cost = attn_max(1, part->type->cut->cost(part->walk, &seen, entry, &item));
            visit(context, &item);
        }
    }
}

typedef struct sorting {
    int64_t place[BUCKETS]; /* of the next item of a bucket */
    attn_item *items;
} sorting;

static void count_item(void *context, const attn_item *item) { ((sorting *)context)->place[bucket_of(item->cost)]++; }

static void place_item(void *context, const attn_item *item)
{
    sorting *s = context;
    s->items[s->place[bucket_of(item->cost)]++] = *item;
}

/* Pieces of an item: as many as the walk likes, while every worker gets several tasks. */
static int64_t group_of(const attn_plan_part *part, int64_t pieces)
{
    const attn_walk_cut *cut = part->type->cut;
    int64_t group = cut->group(part->walk);
    const double tasks = (double)pieces * (double)cut->tasks(part->walk);
    while (group > 1 && tasks < (double)group * cut->tasks_of_worker * part->walk->workers) group /= 2;
    return group;
}

static void count_shared(void *context, const attn_item *item)
{
    (void)item;
    ++*(int64_t *)context;
}

/* Puts the items of a node in order, from items[before] on; returns their end. */
static int64_t place_items(const attn_schedule *s, const step *of, int n, int64_t node, int64_t group, int64_t before,
                           attn_item *items)
{
    sorting sort = {.items = items};
    for_each_item(s, of, n, node, group, count_item, &sort);
    for (int k = 0; k < BUCKETS; k++) {
        const int64_t here = sort.place[k];
        sort.place[k] = before;
        before += here;
    }
    for_each_item(s, of, n, node, group, place_item, &sort);
    return before;
}

static attn_item *fill_part(attn_schedule *s, const step *of, int n, attn_item *items)
{
    const attn_plan *plan = of->plan;
    const int64_t batch = plan->problem.shape.batch;
    int64_t pieces = 0, count = 0, end = 0;
    for (int64_t b = 0; b < batch; b++) pieces += s->entry[b].part == n ? s->entry[b].pieces : 0;
    const int64_t group = group_of(&plan->part[n], pieces);
    for (int64_t b = 0; b < batch; b++) {
        attn_scheduled_entry *entry = &s->entry[b];
        if (entry->part != n) continue;
        const int64_t own = attn_ceil_div(entry->pieces - entry->shared, group);
        entry->items = own + entry->shared;
        count += own;
    }
    for_each_shared_item(s, of, n, ANY_NODE, count_shared, &count);
    s->part[n].items = items;
    s->part[n].count = count;
    s->part[n].entries = s->entry;
    s->part[n].part = n;
    if (count == 0) return items;
    attn_node_items *nodes = &s->part[n].of_nodes;
    for (int k = 0; k <= nodes->nodes; k++) {
        nodes->first[k] = end;
        end = place_items(s, of, n, k < nodes->nodes ? k : -1, group, end, items);
    }
    nodes->first[nodes->nodes + 1] = end;
    return items + count;
}

/* How many of its first pieces each entry shares. */
static void share_pieces(attn_schedule *s, const step *of)
{
    attn_shared_pieces pieces;
    for (int64_t i = 0; i < of->prefixes->count; i++)
        for (int n = 0; n < of->plan->parts; n++) {
            if (!attn_prefix_pieces(of->prefixes, i, s, of->plan, n, &pieces)) continue;
            for (int64_t b = pieces.entry; b < pieces.entry + pieces.sharers; b++)
                if (attn_entry_shares(&s->entry[b], n)) s->entry[b].shared = attn_min(pieces.end, s->entry[b].pieces);
        }
}

attn_schedule *attn_schedule_fill(const attn_plan *plan, const attn_args *args, const attn_schedule_options *options, void *memory)
{
    const attn_prefixes prefixes = {options->prefixes, options->prefix_count};
    const step of = {plan, args, &prefixes};
    const int64_t batch = plan->problem.shape.batch;
    attn_schedule *s = memory;
    int64_t units[ATTN_MAX_PLAN_PARTS] = {0};
    memset(s, 0, sizeof *s);
    key_of(plan, &s->key);
    s->parts = plan->parts;
    s->entry = (attn_scheduled_entry *)(void *)((char *)memory + attn_round_64((int64_t)sizeof *s));
    for (int64_t b = 0; b < batch; b++)
        read_entry(plan, args, b, options->nodes ? options->entry_nodes[b] : -1, &s->entry[b], units);
    for (int k = 0; k < options->workers; k++) s->worker_nodes[k] = (int8_t)options->worker_nodes[k];
    share_pieces(s, &of);
    char *after = (char *)(s->entry + batch);
    attn_item *items = (attn_item *)(void *)(after + (attn_round_64(after - (char *)memory) - (after - (char *)memory)));
    for (int n = 0; n < plan->parts; n++) {
        s->tasks[n] = plan->part[n].type->cut->tasks(plan->part[n].walk);
        s->part[n].units = units[n];
        /* Zeros: a part without items has none on any node. */
        s->part[n].of_nodes =
            (attn_node_items){.nodes = options->nodes, .workers = options->workers, .worker_nodes = s->worker_nodes};
        items = fill_part(s, &of, n, items);
    }
    (void)attn_schedule_bytes(plan, &s->bytes); /* the caller has checked that they do not overflow */
    s->mark = ATTN_SCHEDULE_MARK;
    return s;
}

size_t attn_schedule_need(const attn_schedule *s, const attn_plan *plan)
{
    size_t most = 0;
    for (int n = 0; n < plan->parts; n++) {
        const attn_plan_part *part = &plan->part[n];
        if (s->part[n].count == 0 && plan->parts > 1) continue;
        const int64_t bytes = part->type->cut->bytes(part->walk, s->part[n].units);
        most = bytes > 0 && (size_t)bytes + 63 > most ? (size_t)bytes + 63 : most; /* for alignment */
    }
    return most;
}

/* What it is that two plans do not have in common. */
static const char *difference(const attn_schedule_key *made, const attn_schedule_key *now)
{
    if (memcmp(&made->shape, &now->shape, sizeof made->shape) != 0) return "sizes";
    if (made->dilation != now->dilation || made->listed != now->listed) return "masks";
    if (memcmp(&made->mask, &now->mask, sizeof made->mask) != 0) return "masks";
    int threads = 0;
    for (int n = 0; n < ATTN_MAX_PLAN_PARTS; n++) {
        struct attn_schedule_key_part part;
        memcpy(&part, &made->part[n], sizeof part);
        threads |= part.workers != now->part[n].workers;
        part.workers = now->part[n].workers, part.group = now->part[n].group; /* what follows from the threads */
        if (memcmp(&part, &now->part[n], sizeof part) != 0) return "kernels or outputs";
    }
    return threads ? "threads" : "strides, pages or threads"; /* heads whose keys lie side by side are one group */
}

attn_status attn_schedule_check(const attn_schedule *s, const attn_plan *plan, const attn_args *args, attn_error *error)
{
    attn_schedule_key key;
    const char *rejection = attn_schedule_rejection(plan);
    CHECK(s->mark == ATTN_SCHEDULE_MARK, ATTN_ERR_ARGUMENT, "call.schedule is not a schedule of this version of libattn");
    CHECK(!rejection, ATTN_ERR_UNSUPPORTED, "call.schedule is set and the plan cannot be scheduled: %s", rejection);
    key_of(plan, &key);
    CHECK(s->parts == plan->parts && memcmp(&key, &s->key, sizeof key) == 0, ATTN_ERR_ARGUMENT,
          "call.schedule was made with a plan of other %s; make one with this plan", difference(&s->key, &key));
    for (int64_t b = 0; b < plan->problem.shape.batch; b++) {
        const attn_scheduled_entry *entry = &s->entry[b];
        const attn_tokens t = attn_tokens_of(&plan->problem, args, b);
        attn_visibility seen;
        attn_visibility_of(&plan->problem, args, b, 0, &seen);
        CHECK(t.len_q == entry->tokens.len_q && t.len_kv == entry->tokens.len_kv, ATTN_ERR_ARGUMENT,
              "call.schedule was made for %" PRId64 " queries and %" PRId64 " keys of batch entry %" PRId64 "; now it has %" PRId64
              " and %" PRId64,
              entry->tokens.len_q, entry->tokens.len_kv, b, t.len_q, t.len_kv);
        CHECK(listed_of(plan, args, b) == entry->listed, ATTN_ERR_ARGUMENT,
              "call.schedule was made for lists of up to %" PRId64 " keys in batch entry %" PRId64 "; now they have %" PRId64,
              entry->listed, b, listed_of(plan, args, b));
        CHECK(seen.offset == entry->offset, ATTN_ERR_ARGUMENT,
              "call.schedule was made for offset_q[%" PRId64 "] of %" PRId64 "; now it is %" PRId64, b, entry->offset, seen.offset);
    }
    return ATTN_OK;
}
