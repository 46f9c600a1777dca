/* SPDX-License-Identifier: MIT
 *
 * parts.c - which walks run a problem.  Forward has four for softmax over dot products: decode while a key head has few rows, rows
 * of several heads in one tile while a head has fewer queries than a tile, small ones while all of a head stays in a cache, and
 * tiles of one head; backward has the last two.  Sequences of a ragged batch differ in their numbers of tokens, so each goes to the
 * walk that suits it, by its own numbers alone: a plan then has a part for each walk.
 */
#include <string.h>

#include "../base/checked.h"
#include "../base/error.h"
#include "../base/names.h"
#include "../base/text.h"
#include "../task/task.h"
#include "../tile/relative.h"
#include "../walk/small/short.h"
#include "../walk/walks.h"
#include "plan.h"

/* Tiles pay for a whole vector of rows, and bring keys of 16 or 8 bits into the compute type; decode pays for each row, so it is
 * ahead while a key head has few: of keys that are read as they are fewer, unless the tiles in question hold one head each
 * (lab/rows/README.md). */
enum { MOST_ROWS_OF_WIDE_KEYS = 8 };

typedef struct share {
    attn_walk_kind kind;
    int64_t least, most; /* queries of a sequence */
    attn_small small;    /* where some sequences of so many are small; this share has them, or all others */
} share;

/* The most queries of a sequence that decode takes: 0 where it takes none. */
static int64_t most_decoded(const attn_resolved *p)
{
    const attn_shape *s = &p->shape;
    if (p->op != ATTN_FORWARD || s->batch == 0 || s->heads_q == 0) return 0;
    const int wide = attn_dtype_bytes(p->at.k.dtype) >= 4,
              joined = s->heads_q == s->heads_kv || !attn_walk_refusal(ATTN_WALK_ROWS, p);
    return (wide && joined ? MOST_ROWS_OF_WIDE_KEYS : ATTN_MOST_DECODE_ROWS) / (s->heads_q / s->heads_kv);
}

/* The same of rows of several heads: fewer than a tile has. */
static int64_t most_in_rows(const attn_resolved *p, const attn_kernel_row *tiles)
{
    if (p->op != ATTN_FORWARD || p->shape.heads_q == p->shape.heads_kv || p->shape.heads_kv == 0) return 0;
    if (attn_walk_refusal(ATTN_WALK_ROWS, p)) return 0;
    return tiles->forward->lanes * tiles->forward->vectors - 1;
}

/* Whether sequences may have fewer queries than len_q, or fewer keys than len_kv. */
static int is_ragged(const attn_resolved *p) { return attn_is_packed(p) || p->has.lengths_q; }
static int has_ragged_keys(const attn_resolved *p) { return attn_is_packed(p) || p->has.lengths_kv; }

/* Whether some sequence can be small. */
static int may_be_small(const attn_resolved *p, const attn_kernel_row *tiles, attn_small *small)
{
    const attn_shape *s = &p->shape;
    if (!attn_short_limits(p, tiles, small)) return 0;
    if (!is_ragged(p) && !has_ragged_keys(p)) return attn_is_small(small, s->len_q, s->len_kv);
    if (!is_ragged(p) && (s->len_q < small->least_q || s->len_q > small->most_q)) return 0;
    return s->len_q >= small->least_q && s->len_kv > 0 && (has_ragged_keys(p) || s->len_kv <= small->most_kv);
}

/* The shares in rising order of queries, each with those that the ones before it leave. */
static int deal(const attn_resolved *p, const attn_kernel_row *tiles, const char **refusal, share *shares)
{
    const int64_t n = p->shape.len_q, decoded = most_decoded(p);
    const attn_walk_kind small_kind = p->op == ATTN_BACKWARD ? ATTN_WALK_SMALL_BACKWARD : ATTN_WALK_SMALL_FORWARD;
    const share few[] = {{ATTN_WALK_DECODE, 0, attn_walk_refusal(ATTN_WALK_DECODE, p) ? 0 : decoded, {0}},
                         {ATTN_WALK_ROWS, 0, most_in_rows(p, tiles), {0}}};
    int64_t least = 0;
    int count = 0;
    attn_small small = {0};
    *refusal = decoded > 0 && n > 0 && n <= decoded ? attn_walk_refusal(ATTN_WALK_DECODE, p) : NULL;
    for (size_t i = 0; i < sizeof few / sizeof *few; i++) {
        if (few[i].most <= 0 || few[i].most < least || n < least || n == 0 || (!is_ragged(p) && n > few[i].most)) continue;
        shares[count] = few[i];
        shares[count++].least = least;
        least = few[i].most + 1;
        if (n < least) return count;
    }
    const int is_there = may_be_small(p, tiles, &small);
    if (is_there) shares[count++] = (share){small_kind, least, INT64_MAX, small};
    if (!is_there || is_ragged(p) || has_ragged_keys(p))
        shares[count++] = (share){attn_walk_widest(p->op), least, INT64_MAX, is_there ? small : (attn_small){0}};
    return count;
}

/* Lays the walk out.  Returns 0 if a size overflows. */
static int lay_out(attn_plan_part *part, const attn_setting *setting)
{
    int64_t matrix[2];
    const attn_resolved *problem = setting->problem;
    attn_walk *walk = &part->walk;
    part->prepare = (attn_prepare){.problem = *problem};
    part->rows = (attn_rows_plan){0};
    memset(&part->decode, 0, sizeof part->decode);
    attn_walk_begin(walk, setting);
    if (part->kind == ATTN_WALK_DECODE) return attn_decode_init(walk, setting);
    walk->short_heads = part->kind == ATTN_WALK_SMALL_FORWARD || part->kind == ATTN_WALK_SMALL_BACKWARD;
    walk->one_sum = setting->saves_memory;
    attn_problem_matrix_shape(problem, matrix);
    if (!(part->kind == ATTN_WALK_ROWS ? attn_rows_problem(problem, &walk->problem, &part->rows)
                                       : attn_prepare_problem(problem, &walk->problem)) ||
        !attn_relative_problem(problem, &walk->problem))
        return 0;
    if (!attn_walk_init(walk, setting->threads) || !attn_prepare_init(&part->prepare, walk, matrix)) return 0;
    if (walk->bytes > INT64_MAX - 64 - part->prepare.bytes - part->rows.bytes) return 0;
    walk->bytes = walk->tasks == 0 && part->prepare.bytes == 0 ? 0 : walk->bytes + part->prepare.bytes + part->rows.bytes;
    return 1;
}

size_t attn_plan_part_bytes(const attn_plan_part *part)
{
    return part->walk.bytes ? (size_t)part->walk.bytes + 63 : 0; /* for alignment */
}

/* The same within a limit, if there is one: as many threads as there is memory for. */
static attn_status make_part(attn_plan_part *part, const attn_resolved *problem, const attn_options *o, attn_error *error)
{
    const size_t limit = o->workspace_limit;
    attn_setting s = {
        .problem = problem, .row = part->row, .parallel_for = o->parallel_for, .parallel_context = o->parallel_context};
    TRY(attn_threads_choose(o->threads, &s.threads, error));
    int laid_out = lay_out(part, &s);
    if (limit > 0 && laid_out && attn_plan_part_bytes(part) > limit) {
        s.saves_memory = 1;
        laid_out = lay_out(part, &s);
    }
    while (limit > 0 && laid_out && attn_plan_part_bytes(part) > limit && s.threads > 1) {
        s.threads /= 2;
        laid_out = lay_out(part, &s);
    }
    CHECK(laid_out, ATTN_ERR_SHAPE, "the sizes are too large: a workspace or task count overflows 64 bits");
    CHECK(limit == 0 || attn_plan_part_bytes(part) <= limit, ATTN_ERR_MEMORY,
          "options.workspace_limit is %zu bytes; this problem needs %zu", limit, attn_plan_part_bytes(part));
    return ATTN_OK;
}

static void tell(char *why, size_t size, const char *text, const char *more)
{
    attn_text_add(why, size, text);
    attn_text_add(why, size, more);
}

attn_status attn_plan_parts_make(const attn_resolved *problem, const attn_options *o, attn_plan_part *parts, int *count, char *why,
                                 size_t why_size, attn_error *error)
{
    const attn_kernel_row *tiles;
    static const char *const numbers[] = {[2] = "2 walks", [3] = "3 walks", [4] = "4 walks"};
    const char *refusal;
    share shares[ATTN_MOST_PLAN_PARTS];
    char other[ATTN_WHY_SIZE];
    TRY(attn_kernel_choose(problem, o, 0, &tiles, why, why_size, error));
    *count = deal(problem, tiles, &refusal, shares);
    for (int n = 0; n < *count; n++) {
        attn_plan_part *part = &parts[n];
        attn_resolved own = *problem;
        part->kind = shares[n].kind;
        part->row = tiles;
        if (part->kind == ATTN_WALK_DECODE)
            TRY(attn_kernel_choose(problem, o, 1, &part->row, n == 0 ? why : other, n == 0 ? why_size : sizeof other, error));
        own.shape.len_q = attn_min(own.shape.len_q, shares[n].most);
        if (*count > 1) {
            own.least_q = shares[n].least;
            own.most_q = shares[n].most;
            own.leaves_others = n + 1 < *count;
        }
        own.small = shares[n].small;
        own.small_alone = part->kind != attn_walk_widest(problem->op);
        TRY(make_part(part, &own, o, error));
    }
    if (*count > 1) tell(why, why_size, "; each sequence by its length, in ", numbers[*count]);
    else if (parts[0].kind == ATTN_WALK_DECODE) tell(why, why_size, "; decode, since a key head has few queries", "");
    else if (parts[0].kind == ATTN_WALK_ROWS) tell(why, why_size, "; query heads in one tile, since each has few queries", "");
    else if (refusal && !problem->invariant) tell(why, why_size, "; tiles, since ", refusal);
    if (problem->invariant && problem->op == ATTN_FORWARD)
        tell(why, why_size, "; options.invariant keeps few queries in tiles", "");
    if (parts[0].walk.short_heads) tell(why, why_size, "; all of a head at once, since it is short", "");
    return ATTN_OK;
}
