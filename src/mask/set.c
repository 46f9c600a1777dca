/* SPDX-License-Identifier: MIT
 * set.c - sets of patterns: checking them, querying them pair by pair, and applying them to a problem. */
#include "set.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../common/slots.h"

/* The name of each kind, the names of its sizes, and the minimum of each. */
typedef struct kind_row {
    const char *name;
    const char *sizes[4];
    int64_t least[4];
} kind_row;

static const kind_row kinds[] = {
    [ATTN_PATTERN_CAUSAL] = {"causal", {0}, {0}},
    [ATTN_PATTERN_CAUSAL_BOTTOM_RIGHT] = {"causal bottom-right", {0}, {0}},
    [ATTN_PATTERN_WINDOW] = {"window", {"left", "right"}, {-1, -1}},
    [ATTN_PATTERN_SLIDING_WINDOW] = {"sliding window", {"keys"}, {1}},
    [ATTN_PATTERN_RADIUS] = {"radius", {"radius"}, {0}},
    [ATTN_PATTERN_LOCAL] = {"local", {"width"}, {1}},
    [ATTN_PATTERN_BLOCK_DIAGONAL] = {"block diagonal", {"size"}, {1}},
    [ATTN_PATTERN_STRIDED] = {"strided", {"stride"}, {1}},
    [ATTN_PATTERN_COLUMNS] = {"columns", {"stride"}, {1}},
    [ATTN_PATTERN_DILATED] = {"dilated", {"radius", "dilation"}, {0, 1}},
    [ATTN_PATTERN_FIXED] = {"fixed", {"stride", "columns"}, {1, 0}},
    [ATTN_PATTERN_GLOBAL_LOCAL] = {"global-local", {"width", "global"}, {1, 0}},
    [ATTN_PATTERN_BIGBIRD] = {"bigbird", {"block", "window", "global", "random"}, {1, 1, 0, 0}},
    [ATTN_PATTERN_PREFIX] = {"prefix", {"prefix"}, {0}},
    [ATTN_PATTERN_LENGTHS] = {"lengths", {"len_q", "len_kv"}, {0, 0}},
    [ATTN_PATTERN_DOCUMENTS] = {"documents", {0}, {0}},
    [ATTN_PATTERN_BLOCK_MAP] = {"block map", {"block_q", "block_kv"}, {1, 1}},
};

/* Beyond this, sums of sizes and positions might overflow. */
static const int64_t MAX_SIZE = INT64_MAX / 8;

static attn_status check_documents(const attn_pattern *p, const char *name, const int64_t *lengths, int64_t length,
                                   attn_error *error)
{
    int64_t left = length;
    CHECK(lengths || p->count == 0, ATTN_ERR_ARGUMENT, "documents: lengths_q is NULL");
    for (int64_t d = 0; d < p->count; d++) {
        CHECK(lengths[d] >= 0 && lengths[d] <= left, ATTN_ERR_ARGUMENT,
              "documents: %s[%" PRId64 "] is %" PRId64 "; it must be between 0 and %" PRId64 ", what the documents before it leave",
              name, d, lengths[d], left);
        left -= lengths[d];
    }
    return ATTN_OK;
}

static attn_status check_pattern(const attn_pattern *p, int64_t len_q, int64_t len_kv, attn_error *error)
{
    CHECK(p->kind >= ATTN_PATTERN_CAUSAL && p->kind <= ATTN_PATTERN_BLOCK_MAP, ATTN_ERR_ARGUMENT,
          "pattern kind is %d; known: 1 (causal) .. 17 (block map)", (int)p->kind);
    const kind_row *row = &kinds[p->kind];
    for (int k = 0; k < 2; k++)
        CHECK(p->reserved[k] == 0, ATTN_ERR_ARGUMENT, "%s: reserved[%d] is %" PRId64 "; it must be 0", row->name, k,
              p->reserved[k]);
    for (int k = 0; k < 4 && row->sizes[k]; k++)
        CHECK(p->size[k] >= row->least[k] && p->size[k] <= MAX_SIZE, ATTN_ERR_ARGUMENT,
              "%s: %s is %" PRId64 "; it must be between %" PRId64 " and 2^60", row->name, row->sizes[k], p->size[k],
              row->least[k]);
    if (p->kind == ATTN_PATTERN_FIXED)
        CHECK(p->size[1] <= p->size[0], ATTN_ERR_ARGUMENT, "fixed: columns is %" PRId64 "; it must be at most the stride, %" PRId64,
              p->size[1], p->size[0]);
    if (p->kind == ATTN_PATTERN_DILATED)
        CHECK(p->size[0] <= MAX_SIZE / p->size[1], ATTN_ERR_ARGUMENT,
              "dilated: radius is %" PRId64 "; multiplied by %" PRId64 " it exceeds 2^60", p->size[0], p->size[1]);
    if (p->kind == ATTN_PATTERN_BLOCK_MAP)
        CHECK(p->blocks || len_q == 0 || len_kv == 0, ATTN_ERR_ARGUMENT, "block map: blocks is NULL");
    if (p->kind != ATTN_PATTERN_DOCUMENTS) return ATTN_OK;
    CHECK(p->count >= 0, ATTN_ERR_ARGUMENT, "documents: count is %" PRId64 "; it must be at least 0", p->count);
    TRY(check_documents(p, "lengths_q", p->lengths_q, len_q, error));
    return check_documents(p, "lengths_kv", p->lengths_kv ? p->lengths_kv : p->lengths_q, len_kv, error);
}

/* The number of the document of each token. */
static int64_t *number_documents(const int64_t *lengths, int64_t count, int64_t length)
{
    int64_t *numbers = malloc(((size_t)length + 1) * sizeof *numbers), at = 0;
    if (!numbers) return NULL;
    for (int64_t d = 0; d < count; d++)
        for (int64_t k = 0; k < lengths[d]; k++) numbers[at++] = d;
    while (at < length) numbers[at++] = -1;
    return numbers;
}

static int prepare(rule *r, int64_t offset, int64_t len_q, int64_t len_kv)
{
    const attn_pattern *p = &r->pattern;
    if (p->kind == ATTN_PATTERN_FIXED) return attn_block_lists_make_fixed(&r->blocks, p, offset, len_q, len_kv);
    if (p->kind == ATTN_PATTERN_BIGBIRD || p->kind == ATTN_PATTERN_BLOCK_MAP)
        return attn_block_lists_make(&r->blocks, p, len_q, len_kv);
    if (p->kind != ATTN_PATTERN_DOCUMENTS) return 1;
    r->document_q = number_documents(p->lengths_q, p->count, len_q);
    r->document_kv = number_documents(p->lengths_kv ? p->lengths_kv : p->lengths_q, p->count, len_kv);
    return r->document_q && r->document_kv;
}

attn_status attn_pattern_set_create(attn_pattern_set **out, int64_t len_q, int64_t len_kv, int64_t count,
                                    const attn_pattern *patterns, attn_error *error)
{
    CHECK(out, ATTN_ERR_ARGUMENT, "set is NULL");
    *out = NULL;
    CHECK(count >= 0 && count <= 1000, ATTN_ERR_ARGUMENT, "count is %" PRId64 "; it must be between 0 and 1000", count);
    CHECK(patterns || count == 0, ATTN_ERR_ARGUMENT, "patterns is NULL");
    CHECK(len_q >= 0 && len_q <= MAX_SIZE / 16, ATTN_ERR_SHAPE, "len_q (%" PRId64 ") is not between 0 and 2^56", len_q);
    CHECK(len_kv >= 0 && len_kv <= MAX_SIZE / 16, ATTN_ERR_SHAPE, "len_kv (%" PRId64 ") is not between 0 and 2^56", len_kv);
    for (int64_t k = 0; k < count; k++) TRY(check_pattern(&patterns[k], len_q, len_kv, error));

    attn_pattern_set *set = calloc(1, sizeof *set);
    rule *rules = calloc((size_t)count + 1, sizeof *rules);
    int complete = set && rules;
    if (set) {
        set->len_q = len_q;
        set->len_kv = len_kv;
        set->rules = rules;
        set->count = rules ? count : 0;
    } else {
        free(rules);
    }
    for (int64_t k = 0; k < count && complete; k++) set->bottom_right |= patterns[k].kind == ATTN_PATTERN_CAUSAL_BOTTOM_RIGHT;
    if (complete) set->offset = set->bottom_right ? len_kv - len_q : 0;
    for (int64_t k = 0; k < count && complete; k++) {
        rules[k].pattern = patterns[k];
        complete = prepare(&rules[k], set->offset, len_q, len_kv);
    }
    if (complete) complete = attn_pattern_set_fuse(set);
    if (!complete) attn_pattern_set_destroy(set);
    CHECK(complete, ATTN_ERR_MEMORY, "cannot allocate a set of %" PRId64 " patterns", count);
    *out = set;
    return succeed(error);
}

void attn_pattern_set_destroy(attn_pattern_set *set)
{
    if (!set) return;
    for (int64_t k = 0; k < set->count; k++) {
        free(set->rules[k].document_q);
        free(set->rules[k].document_kv);
        attn_block_lists_free(&set->rules[k].blocks);
    }
    free(set->rules);
    free(set->ranges);
    free(set->columns);
    attn_block_lists_free(&set->made);
    free(set);
}

int attn_pattern_set_sees(const attn_pattern_set *set, int64_t i, int64_t j)
{
    if (!set || i < 0 || i >= set->len_q || j < 0 || j >= set->len_kv) return 0;
    for (int64_t k = 0; k < set->count; k++)
        if (!attn_rule_sees(set, &set->rules[k], i, j)) return 0;
    return 1;
}

static int64_t count_pairs(const attn_pattern_set *set, int64_t i, int64_t i_end, int64_t j, int64_t j_end)
{
    int64_t pairs = 0;
    for (; i < i_end && i < set->len_q; i++)
        for (int64_t key = j; key < j_end && key < set->len_kv; key++) pairs += attn_pattern_set_sees(set, i, key);
    return pairs;
}

attn_status attn_pattern_set_count(const attn_pattern_set *set, int64_t tile_q, int64_t tile_kv, attn_pattern_set_counts *caller,
                                   attn_error *error)
{
    attn_pattern_set_counts result = {0}, *const count = &result;
    CHECK(set && caller, ATTN_ERR_ARGUMENT, "%s is NULL", set ? "counts" : "set");
    CHECK(tile_q >= 1 && tile_kv >= 1, ATTN_ERR_ARGUMENT, "%s is %" PRId64 "; it must be at least 1",
          tile_q >= 1 ? "tile_kv" : "tile_q", tile_q >= 1 ? tile_kv : tile_q);
    TRY(struct_writable(caller, sizeof result, "attn_pattern_set_counts", error));
    const int64_t rows = set->len_kv > 0 ? set->len_q : 0; /* 0 without keys: there may be 2^56 queries to walk */
    count->queries_empty = set->len_q - rows;
    for (int64_t i = 0; i < rows; i += tile_q)
        for (int64_t j = 0; j < set->len_kv; j += tile_kv) {
            int64_t pairs = count_pairs(set, i, i + tile_q, j, j + tile_kv);
            count->pairs += pairs;
            count->tiles++;
            count->tiles_empty += pairs == 0;
        }
    for (int64_t i = 0; i < rows; i++) {
        int64_t j = 0;
        while (j < set->len_kv && !attn_pattern_set_sees(set, i, j)) j++;
        count->queries_empty += j == set->len_kv;
    }
    double all = (double)set->len_q * (double)set->len_kv;
    count->sparsity = all > 0 ? 1 - (double)count->pairs / all : 0;
    struct_fill(caller, count, sizeof *count);
    return succeed(error);
}

/* A set counts queries and keys from 0 of the problem it is applied to; with an origin, attention counts those of the whole. */
static attn_status check_origin(const attn_call *given, attn_error *error)
{
    attn_call call;
    if (!given) return ATTN_OK;
    TRY(struct_read(&call, sizeof call, sizeof call, given, "attn_call", error));
    const attn_origin *at = call.origin;
    CHECK(!at || (!at->q && !at->kv), ATTN_ERR_ARGUMENT,
          "call.origin is at query %" PRId64 " and key %" PRId64 "; a set of patterns begins at 0", at->q, at->kv);
    return ATTN_OK;
}

attn_status attn_pattern_set_apply(const attn_pattern_set *set, attn_problem *problem, attn_tensors *tensors, attn_error *error)
{
    CHECK(set && problem && tensors, ATTN_ERR_ARGUMENT, "%s is NULL", !set ? "set" : !problem ? "problem" : "tensors");
    TRY(struct_check(STRUCT_OF_FIELDS, problem, sizeof *problem, sizeof *problem, "attn_problem", error));
    TRY(struct_check(STRUCT_OF_SLOTS, tensors, sizeof *tensors, sizeof *tensors, "attn_tensors", error));
    attn_mask *m = &problem->mask;
    CHECK(problem->shape.len_q == set->len_q && problem->shape.len_kv == set->len_kv, ATTN_ERR_ARGUMENT,
          "the patterns are for %" PRId64 " x %" PRId64 " and the problem has %" PRId64 " queries and %" PRId64 " keys", set->len_q,
          set->len_kv, problem->shape.len_q, problem->shape.len_kv);
    const struct {
        const char *name;
        int used;
    } fields[] = {
        {"mask.causal", m->causal},
        {"mask.align", m->align != ATTN_ALIGN_TOP_LEFT},
        {"mask.window", m->window},
        {"mask.window_left or mask.window_right", m->window_left || m->window_right},
        {"mask.chunk", m->chunk != 0},
        {"mask.dilation", m->dilation && m->dilation != 1},
        {"mask.global_q or mask.global_kv", m->global_q || m->global_kv},
        {"mask.block_q, mask.block_kv or mask.block_entries", m->block_q || m->block_kv || m->block_entries},
        {"offset_q", !slot_is_absent(&tensors->offset_q)},
        {"ranges", !slot_is_absent(&tensors->ranges)},
        {"block_mask", !slot_is_absent(&tensors->block_mask)},
        {"block_starts", !slot_is_absent(&tensors->block_starts)},
        {"block_index", !slot_is_absent(&tensors->block_index)},
        {"cu_seqlens_q", !slot_is_absent(&tensors->cu_seqlens_q)},
        {"cu_seqlens_kv", !slot_is_absent(&tensors->cu_seqlens_kv)},
        {"mask", set->columns && !slot_is_absent(&tensors->mask)},
    };
    for (size_t k = 0; k < sizeof fields / sizeof *fields; k++)
        CHECK(!fields[k].used, ATTN_ERR_ARGUMENT, "%s is already in use; express it as a pattern of the set", fields[k].name);
    TRY(check_origin(tensors->call, error));
    CHECK(!set->bottom_right || (!tensors->lengths_q.data && !tensors->lengths_kv.data), ATTN_ERR_ARGUMENT,
          "causal bottom-right depends on the lengths of each batch entry; set mask.align instead");
    CHECK(!set->dense, ATTN_ERR_UNSUPPORTED,
          "pattern %d (%s) needs a mask of len_q x len_kv in this set; attn_pattern_set_fill makes one for the tensor mask",
          set->dense, kinds[set->rules[set->dense - 1].pattern.kind].name);

    const attn_mask *own = &set->mask;
    m->causal = own->causal;
    m->align = own->align;
    m->window = own->window, m->window_left = own->window_left, m->window_right = own->window_right;
    m->chunk = own->chunk;
    m->dilation = own->dilation;
    m->global_q = own->global_q, m->global_kv = own->global_kv;
    if (set->ranges) tensors->ranges = (attn_input){set->ranges, ATTN_I64, {ATTN_BROADCAST, ATTN_BROADCAST, 2, 1}};
    if (set->columns) tensors->mask = (attn_input){set->columns, ATTN_BOOL, {ATTN_BROADCAST, ATTN_BROADCAST, ATTN_BROADCAST, 1}};
    if (set->lists) {
        const block_lists *l = set->lists;
        m->block_q = l->block_q, m->block_kv = l->block_kv;
        m->block_entries = l->rows[l->count_q];
        tensors->block_starts = attn_in(l->rows);
        tensors->block_index = m->block_entries ? attn_in(l->columns) : attn_in(ATTN_EMPTY);
    }
    return succeed(error);
}
