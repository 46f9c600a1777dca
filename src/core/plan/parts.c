/* SPDX-License-Identifier: MIT
 *
 * parts.c - which walks run a problem.  Among the walks of its operation that support its features, in the order of walks.def, each
 * takes the sequences within its limits and leaves the others to the next.  Sequences of a ragged batch differ in length, so each
 * goes to the walk that suits it, by its own lengths alone; the plan then has a part for each walk.
 */
#include <string.h>

#include "../../common/text.h"
#include "../base/checked.h"
#include "../base/error.h"
#include "../base/names.h"
#include "../visible/visible.h"
#include "plan.h"

/* Whether sequences may have fewer queries than len_q, or fewer keys than len_kv. */
static int is_ragged(const attn_resolved *p) { return attn_is_packed(p) || p->has.lengths_q; }
static int has_ragged_keys(const attn_resolved *p) { return attn_keys_are_packed(p) || attn_has_lengths_kv(p); }

/* Whether some sequence can be small. */
static int may_be_small(const attn_resolved *p, const attn_small *small)
{
    const attn_shape *s = &p->shape;
    if (!is_ragged(p) && !has_ragged_keys(p)) return attn_is_small(small, s->len_q, s->len_kv);
    if (!is_ragged(p) && (s->len_q < small->min_q || s->len_q > small->max_q)) return 0;
    return s->len_q >= small->min_q && s->len_kv > 0 && (has_ragged_keys(p) || s->len_kv <= small->max_kv);
}

/* Whether some sequence of at least `least` queries can be within the limits. */
static int may_take(const attn_resolved *p, const attn_walk_limits *limits, int64_t least)
{
    const int64_t n = p->shape.len_q;
    if (n == 0 || limits->max_q < least || (!is_ragged(p) && n > limits->max_q)) return 0;
    return limits->small.max_q == 0 || may_be_small(p, &limits->small);
}

/* The parts in ascending order of queries, each with the sequences that the ones before it leave.  *rejection: NULL, or the feature
 * for which the first walk rejects a problem that is within its limits. */
static int deal(const attn_resolved *p, const attn_kernel_row *tiles, attn_plan_part *parts, const char **rejection)
{
    const int64_t n = p->shape.len_q;
    const attn_feature_set used = attn_features_of(p);
    const attn_walk_type *type;
    attn_plan_part rest = {0};
    int count = 0, seen = 0;
    *rejection = NULL;
    for (int index = 0; (type = attn_walk_at(index)); index++) {
        attn_walk_limits limits = {INT64_MAX, {0}};
        if (type->op != p->op) continue;
        const int is_first = seen++ == 0, is_last = !type->limits;
        if (!is_last && !type->limits(p, tiles, &limits)) continue;
        const char *missing = attn_feature_missing(used, type->supported);
        if (missing && is_first && limits.max_q < INT64_MAX && n > 0 && n <= limits.max_q) *rejection = missing;
        if (missing || (!is_last && !may_take(p, &limits, rest.least))) continue;
        attn_plan_part *part = &parts[count++];
        *part = rest;
        part->type = type;
        part->most = limits.max_q;
        if (limits.small.max_q) {
            part->small = rest.small = limits.small;
            part->small_only = 1;
            if (!is_ragged(p) && !has_ragged_keys(p)) break;
        } else {
            if (limits.max_q >= n) break;
            rest.least = limits.max_q + 1;
        }
    }
    return count;
}

_Static_assert(offsetof(attn_walk, problem) == 0, "a walk begins with its problem");

size_t attn_plan_part_bytes(const attn_plan_part *part)
{
    return part->walk->bytes ? (size_t)part->walk->bytes + 63 : 0; /* for alignment */
}

/* A part, and what its walk is made from. */
typedef struct part_setting {
    const attn_plan_part *part;
    attn_setting setting;
} part_setting;

static int lay_out(void *plan, int threads, int saves, size_t *bytes)
{
    part_setting *of = plan;
    const attn_plan_part *part = of->part;
    const size_t problem = sizeof part->walk->problem; /* several KB, copied instead */
    of->setting.threads = threads;
    of->setting.saves_memory = saves;
    memset((char *)part->walk + problem, 0, part->type->size - problem);
    attn_walk_begin(part->walk, &of->setting);
    if (!part->type->init(part->walk, &of->setting)) return 0;
    *bytes = attn_plan_part_bytes(part);
    return 1;
}

attn_status attn_plan_part_make(const attn_resolved *problem, const attn_options *o, attn_plan_part *part, int skips_others,
                                int is_one, size_t *bytes, attn_error *error)
{
    attn_resolved restricted;
    part_setting of = {
        part, {.problem = problem, .row = part->row, .parallel_for = o->parallel_for, .parallel_context = o->parallel_context}};
    int threads;
    if (!is_one || part->small.max_q || part->most < problem->shape.len_q) {
        restricted = *problem;
        restricted.shape.len_q = attn_min(restricted.shape.len_q, part->most);
        if (!is_one) {
            restricted.min_q = part->least;
            restricted.max_q = part->most;
            restricted.skips_others = (unsigned char)skips_others;
        }
        restricted.small = part->small;
        restricted.small_only = (unsigned char)part->small_only;
        of.setting.problem = &restricted;
    }
    TRY(attn_threads_choose(o->threads, &threads, error));
    return attn_plan_fit(lay_out, &of, threads, o->workspace_limit, bytes, error);
}

static void tell(char *why, size_t size, const char *text, const char *more)
{
    text_add(why, size, text);
    text_add(why, size, more);
}

attn_status attn_plan_parts_choose(const attn_resolved *problem, const attn_options *o, attn_plan_part *parts, int *count,
                                   char *why, size_t why_size, attn_error *error)
{
    const attn_kernel_row *tiles;
    static const char *const numbers[] = {[2] = "2 walks", [3] = "3 walks", [4] = "4 walks"};
    const char *rejection;
    char other[ATTN_WHY_SIZE];
    TRY(attn_kernel_choose(problem, o, 0, &tiles, why, why_size, error));
    *count = deal(problem, tiles, parts, &rejection);
    for (int n = 0; n < *count; n++) {
        parts[n].row = tiles;
        if (parts[n].type->decodes)
            TRY(attn_kernel_choose(problem, o, 1, &parts[n].row, n == 0 ? why : other, n == 0 ? why_size : sizeof other, error));
    }
    if (*count > 1) tell(why, why_size, "; each sequence by its length, in ", numbers[*count]);
    else if (parts->type->why) tell(why, why_size, "; ", parts->type->why);
    else if (rejection && !attn_in_order(problem)) tell(why, why_size, "; tiles, since ", rejection);
    if (problem->reproducible) tell(why, why_size, "; options.reproducible: the blocks and chains of every instruction set", "");
    if (problem->invariant && problem->op == ATTN_FORWARD)
        tell(why, why_size, "; options.invariant: walks in the order of tiles, at most 1.15 times their time (decode 1.3)", "");
    return ATTN_OK;
}
