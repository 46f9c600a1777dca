/* SPDX-License-Identifier: MIT
 * split.c - see split.h; and what a rank owns, for callers. */
#include "split.h"

#include "../common/slots.h"
#include "grid.h"

enum { DEFAULT_PART = 1024 };

attn_status attn_split_read(attn_split *copy, const attn_split *caller, attn_error *error)
{
    *copy = (attn_split){.struct_size = sizeof *copy};
    if (caller) TRY(struct_read(copy, sizeof *copy, sizeof *copy, caller, "attn_split", error));
    CHECK(copy->part >= 0, ATTN_ERR_ARGUMENT, "split.part is %" PRId64 "; it must be at least 1, or 0 for %d", copy->part,
          DEFAULT_PART);
    if (!copy->part) copy->part = DEFAULT_PART;
    CHECK((unsigned)copy->layout <= ATTN_LAYOUT_OWNERS, ATTN_ERR_ARGUMENT,
          "split.layout is %d; known: 0 (contiguous), 1 (zigzag), 2 (striped), 3 (owners)", (int)copy->layout);
    CHECK((unsigned)copy->way <= ATTN_WAY_GATHER, ATTN_ERR_ARGUMENT,
          "split.way is %d; known: 0 (auto), 1 (ring), 2 (direct), 3 (split keys), 4 (heads), 5 (heads x ring), 6 (gather)",
          (int)copy->way);
    CHECK(copy->ranks_heads >= 0, ATTN_ERR_ARGUMENT, "split.ranks_heads is %" PRId64 "; it must be at least 1, or 0 to be chosen",
          copy->ranks_heads);
    CHECK(!copy->ranks_heads || attn_split_has_heads(copy), ATTN_ERR_ARGUMENT,
          "split.ranks_heads is %" PRId64 " and split.way is %d; it is for 4 (heads) and 5 (heads x ring)", copy->ranks_heads,
          (int)copy->way);
    CHECK(copy->any_order == 0 || copy->any_order == 1, ATTN_ERR_ARGUMENT, "split.any_order is %" PRId64 "; it must be 0 or 1",
          copy->any_order);
    CHECK(copy->layout == ATTN_LAYOUT_OWNERS || (!copy->owners_q && !copy->owners_kv), ATTN_ERR_ARGUMENT,
          "split.owners_%s is set; split.layout must be 3 (owners)", copy->owners_q ? "q" : "kv");
    for (size_t n = 0; n < sizeof copy->reserved / sizeof *copy->reserved; n++)
        CHECK(copy->reserved[n] == 0, ATTN_ERR_ARGUMENT, "split.reserved[%zu] is %" PRId64 "; it must be 0", n, copy->reserved[n]);
    return ATTN_OK;
}

attn_status attn_split_check(const attn_split *split, int64_t tokens, attn_axis axis, const char *name, attn_error *error)
{
    CHECK(tokens >= 0 && tokens <= INT64_C(1) << 48, ATTN_ERR_SHAPE, "%s is %" PRId64 "; it must be 0 to 2^48", name, tokens);
    CHECK(tokens / split->part < INT32_MAX, ATTN_ERR_SHAPE,
          "%s (%" PRId64 ") has more than 2^31 parts of split.part (%" PRId64 ") tokens", name, tokens, split->part);
    const int keys = axis == ATTN_AXIS_KEY;
    CHECK(split->layout != ATTN_LAYOUT_OWNERS || tokens == 0 || attn_split_is_everywhere(split, axis) ||
              (keys ? split->owners_kv : split->owners_q),
          ATTN_ERR_ARGUMENT, "split.owners_%s is NULL; split.layout 3 (owners) needs it", keys ? "kv" : "q");
    return ATTN_OK;
}

static int64_t greatest_divisor(int64_t a, int64_t b)
{
    while (b) {
        const int64_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}

attn_status attn_split_members(const attn_split *split, int64_t heads_kv, int ranks, int *members, attn_error *error)
{
    const int64_t asked = split->ranks_heads;
    *members = 1;
    if (!attn_split_has_heads(split)) return ATTN_OK;
    if (split->way == ATTN_WAY_HEADS) {
        CHECK(!asked || asked == ranks, ATTN_ERR_ARGUMENT,
              "split.ranks_heads is %" PRId64 " and split.way is 4 (heads); it must be 0 or all of the %d ranks", asked, ranks);
        *members = ranks;
        return ATTN_OK;
    }
    CHECK(asked <= ranks && (!asked || ranks % asked == 0), ATTN_ERR_ARGUMENT,
          "split.ranks_heads is %" PRId64 "; it must divide the number of ranks, %d", asked, ranks);
    *members = asked ? (int)asked : heads_kv > 0 ? (int)greatest_divisor(ranks, heads_kv) : 1;
    return ATTN_OK;
}

attn_status attn_split_check_op(const attn_split *split, attn_op op, attn_error *error)
{
    CHECK(split->way != ATTN_WAY_SPLIT_KEYS || op == ATTN_FORWARD, ATTN_ERR_UNSUPPORTED,
          "distributed: split.way is 3 (split keys); it is for ATTN_FORWARD, and op is %d", (int)op);
    return ATTN_OK;
}

attn_status attn_split_check_owner(int32_t owner, attn_axis axis, int64_t n, int ranks, attn_error *error)
{
    CHECK(owner >= 0 && owner < ranks, ATTN_ERR_ARGUMENT, "split.owners_%s[%" PRId64 "] is %d; it must be a rank, 0 to %d",
          axis == ATTN_AXIS_KEY ? "kv" : "q", n, (int)owner, ranks - 1);
    return ATTN_OK;
}

int32_t attn_split_owner(const attn_split *split, attn_axis axis, int64_t n, int64_t count, int ranks)
{
    if (attn_split_is_everywhere(split, axis)) return 0;
    if (split->layout == ATTN_LAYOUT_OWNERS) return (axis == ATTN_AXIS_KEY ? split->owners_kv : split->owners_q)[n];
    if (split->layout == ATTN_LAYOUT_STRIPED) return (int32_t)(n % ranks);
    if (split->layout == ATTN_LAYOUT_CONTIGUOUS) return (int32_t)(n * ranks / count); /* (all below 2^31) */
    const int64_t c = n * (2 * (int64_t)ranks) / count;
    return (int32_t)(c < ranks ? c : 2 * (int64_t)ranks - 1 - c);
}

/* ---- public ---- */

/* Parts first, first + step, ..., `count` of them. */
typedef struct part_run {
    int64_t first, step, count;
} part_run;

/* Parts n with n pieces / count = piece. */
static part_run piece_of(int64_t piece, int64_t pieces, int64_t count)
{
    const int64_t first = attn_parts_of(piece * count, pieces);
    return (part_run){first, 1, attn_parts_of((piece + 1) * count, pieces) - first};
}

/* The parts that attn_split_owner gives a rank, in rising order, where nobody has to be asked: not with ATTN_LAYOUT_OWNERS. */
static void runs_of(const attn_split *s, attn_axis axis, int64_t rank, int64_t ranks, int64_t count, part_run run[2])
{
    run[1] = (part_run){0, 1, 0};
    if (attn_split_is_everywhere(s, axis)) run[0] = (part_run){0, 1, count};
    else if (s->layout == ATTN_LAYOUT_STRIPED) run[0] = (part_run){rank, ranks, rank < count ? (count - rank - 1) / ranks + 1 : 0};
    else if (s->layout == ATTN_LAYOUT_CONTIGUOUS) run[0] = piece_of(rank, ranks, count);
    else {
        run[0] = piece_of(rank, 2 * ranks, count);
        run[1] = piece_of(2 * ranks - 1 - rank, 2 * ranks, count);
    }
}

/* The parts of a rank, of which *last is the last, and number `index` *nth; -1: there is none. */
static attn_status list_parts(const attn_split *s, attn_axis axis, int rank, int ranks, int64_t count, int64_t index,
                              int64_t *parts, int64_t *last, int64_t *nth, attn_error *error)
{
    part_run runs[2];
    *parts = 0, *last = *nth = -1;
    if (s->layout != ATTN_LAYOUT_OWNERS || attn_split_is_everywhere(s, axis)) {
        runs_of(s, axis, rank, ranks, count, runs);
        for (const part_run *r = runs; r < runs + 2; r++) {
            if (index >= *parts && index - *parts < r->count) *nth = r->first + (index - *parts) * r->step;
            if (r->count > 0) *last = r->first + (r->count - 1) * r->step;
            *parts += r->count;
        }
        return ATTN_OK;
    }
    for (int64_t n = 0; n < count; n++) {
        const int32_t owner = attn_split_owner(s, axis, n, count, ranks);
        TRY(attn_split_check_owner(owner, axis, n, ranks, error));
        if (owner != rank) continue;
        if (*parts == index) *nth = n;
        *last = n;
        ++*parts;
    }
    return ATTN_OK;
}

/* Arguments of both functions below; *count: the parts of all ranks. */
static attn_status read_axis(attn_split *s, const attn_split *split, int64_t tokens, attn_axis axis, int rank, int ranks,
                             int64_t *count, attn_error *error)
{
    TRY(attn_split_read(s, split, error));
    CHECK(axis == ATTN_AXIS_QUERY || axis == ATTN_AXIS_KEY, ATTN_ERR_ARGUMENT, "axis is %d; it must be 4 (query) or 5 (key)",
          (int)axis);
    CHECK(ranks >= 1 && rank >= 0 && rank < ranks, ATTN_ERR_ARGUMENT, "rank is %d of %d; it must be at least 0 and below ranks",
          rank, ranks);
    TRY(attn_split_check(s, tokens, axis, "tokens", error));
    *count = attn_parts_of(tokens, s->part);
    return ATTN_OK;
}

attn_status attn_split_describe(const attn_split *split, int64_t tokens, attn_axis axis, int rank, int ranks,
                                attn_split_description *description, attn_error *error)
{
    attn_split s;
    attn_split_description d = {.struct_size = sizeof d};
    CHECK(description, ATTN_ERR_ARGUMENT, "description is NULL");
    TRY(read_axis(&s, split, tokens, axis, rank, ranks, &d.parts_total, error));
    int64_t last, none;
    TRY(list_parts(&s, axis, rank, ranks, d.parts_total, -1, &d.parts, &last, &none, error));
    if (d.parts > 0) d.tokens = (d.parts - 1) * s.part + attn_min(tokens - last * s.part, s.part); /* all but the last are full */
    TRY(struct_write(description, &d, sizeof d, "attn_split_description", error));
    return succeed(error);
}

attn_status attn_split_part_describe(const attn_split *split, int64_t tokens, attn_axis axis, int rank, int ranks, int64_t index,
                                     attn_split_part *part, attn_error *error)
{
    attn_split s;
    attn_split_part d = {.struct_size = sizeof d};
    int64_t count = 0, found, last;
    CHECK(part, ATTN_ERR_ARGUMENT, "part is NULL");
    TRY(read_axis(&s, split, tokens, axis, rank, ranks, &count, error));
    TRY(list_parts(&s, axis, rank, ranks, count, index, &found, &last, &d.number, error));
    CHECK(d.number >= 0, ATTN_ERR_ARGUMENT, "part %" PRId64 " does not exist; rank %d has %" PRId64, index, rank, found);
    d.first = d.number * s.part;
    d.tokens = attn_min(tokens - d.first, s.part);
    d.local = index * s.part; /* all before it are full */
    TRY(struct_write(part, &d, sizeof d, "attn_split_part", error));
    return succeed(error);
}
