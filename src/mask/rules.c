/* SPDX-License-Identifier: MIT
 * rules.c - each pattern by its definition, pair by pair, and as fields of attn_mask. */
#include <stdlib.h>
#include <string.h>

#include "set.h"

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }
static int64_t floor_mod(int64_t a, int64_t b) { return a - b * floor_div(a, b); }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

int attn_rule_sees(const attn_pattern_set *set, const rule *r, int64_t i, int64_t j)
{
    const int64_t p = i + set->offset, *size = r->pattern.size;
    switch (r->pattern.kind) {
    case ATTN_PATTERN_CAUSAL:
    case ATTN_PATTERN_CAUSAL_BOTTOM_RIGHT:
        return j <= p;
    case ATTN_PATTERN_WINDOW:
        return (size[0] < 0 || p - size[0] <= j) && (size[1] < 0 || j <= p + size[1]);
    case ATTN_PATTERN_SLIDING_WINDOW:
        return p - size[0] < j && j <= p;
    case ATTN_PATTERN_RADIUS:
        return llabs(p - j) <= size[0];
    case ATTN_PATTERN_LOCAL:
        return llabs(p - j) <= size[0] / 2;
    case ATTN_PATTERN_BLOCK_DIAGONAL:
        return j / size[0] == floor_div(p, size[0]);
    case ATTN_PATTERN_STRIDED:
        return (p - j) % size[0] == 0;
    case ATTN_PATTERN_COLUMNS:
        return j % size[0] == 0;
    case ATTN_PATTERN_DILATED:
        return llabs(p - j) <= size[0] * size[1] && (p - j) % size[1] == 0;
    case ATTN_PATTERN_FIXED:
        return j / size[0] == floor_div(p, size[0]) || j % size[0] >= size[0] - size[1];
    case ATTN_PATTERN_GLOBAL_LOCAL:
        return llabs(p - j) <= size[0] / 2 || j < size[1] || (p >= 0 && p < size[1]);
    case ATTN_PATTERN_PREFIX:
        return j <= p || j < size[0];
    case ATTN_PATTERN_LENGTHS:
        return i < size[0] && j < size[1];
    case ATTN_PATTERN_DOCUMENTS:
        return r->document_q[i] >= 0 && r->document_q[i] == r->document_kv[j];
    case ATTN_PATTERN_BIGBIRD:
    case ATTN_PATTERN_BLOCK_MAP:
        return attn_block_lists_has(&r->blocks, i / r->blocks.block_q, j / r->blocks.block_kv);
    }
    return 0;
}

/* ---- as fields: each adds a rule to the fields so far; 0: the combination has no fields ---- */

/* The ranges of all queries, which keep all keys at first; NULL if memory is short. */
static int64_t *ranges_of(attn_pattern_set *set)
{
    if (set->ranges) return set->ranges;
    set->ranges = malloc((2 * (size_t)set->len_q + 1) * sizeof *set->ranges);
    for (int64_t i = 0; set->ranges && i < set->len_q; i++) set->ranges[2 * i] = 0, set->ranges[2 * i + 1] = set->len_kv;
    return set->ranges;
}

static void cut_range(attn_pattern_set *set, int64_t i, int64_t low, int64_t high)
{
    set->ranges[2 * i] = most(set->ranges[2 * i], low);
    set->ranges[2 * i + 1] = least(set->ranges[2 * i + 1], high);
}

/* A window beside global tokens, which are exempt from the window of their own pattern and not from this: as ranges. */
static int add_window_of_all(attn_pattern_set *set, int64_t left, int64_t right)
{
    if (!ranges_of(set)) return 0;
    for (int64_t i = 0; i < set->len_q; i++) {
        const int64_t p = i + set->offset;
        cut_range(set, i, left < 0 ? 0 : p - left, right < 0 ? set->len_kv : p + right + 1);
    }
    return 1;
}

/* Returns 0 if memory is short. */
static int add_window(attn_pattern_set *set, int64_t left, int64_t right)
{
    attn_mask *m = &set->mask;
    if (m->global_q || m->global_kv) return add_window_of_all(set, left, right);
    if (!m->window) m->window_left = m->window_right = -1;
    m->window = 1;
    if (left >= 0) m->window_left = m->window_left < 0 ? left : least(m->window_left, left);
    if (right >= 0) m->window_right = m->window_right < 0 ? right : least(m->window_right, right);
    return 1;
}

static int64_t common_divisor(int64_t a, int64_t b) { return b ? common_divisor(b, a % b) : a; }

static int add_dilation(attn_pattern_set *set, int64_t dilation)
{
    attn_mask *m = &set->mask;
    if (dilation == 1) return 1;
    if (m->global_q || m->global_kv) return 0;
    if (m->dilation < 2) {
        m->dilation = dilation;
        return 1;
    }
    int64_t step = dilation / common_divisor(m->dilation, dilation);
    if (m->dilation > INT64_MAX / 8 / step) return 0;
    m->dilation *= step;
    return 1;
}

/* Returns 0 if memory is short. */
static int add_global_local(attn_pattern_set *set, int64_t width, int64_t global, int *fits)
{
    attn_mask *m = &set->mask;
    if (global == 0) return add_window(set, width / 2, width / 2);
    *fits = m->dilation < 2 && !m->global_q; /* from a dilation and from two windows, no tokens are exempt */
    if (!*fits) return 1;
    if (m->window && !add_window_of_all(set, m->window_left, m->window_right)) return 0;
    m->window = 1;
    m->window_left = m->window_right = width / 2;
    m->global_q = m->global_kv = global;
    return 1;
}

static int add_chunk(attn_pattern_set *set, int64_t size)
{
    attn_mask *m = &set->mask;
    if (m->chunk && m->chunk % size != 0 && size % m->chunk != 0) return 0;
    m->chunk = m->chunk ? least(m->chunk, size) : size;
    return 1;
}

/* Returns 0 if memory is short. */
static int add_lists(attn_pattern_set *set, const block_lists *lists, int *fits)
{
    block_lists both;
    if (!set->lists) {
        set->lists = lists;
        return 1;
    }
    const int made = attn_block_lists_intersect(&both, set->lists, lists, set->len_q, set->len_kv, fits);
    if (!made || !*fits) {
        attn_block_lists_free(&both);
        return made;
    }
    attn_block_lists_free(&set->made);
    set->made = both;
    set->lists = &set->made;
    return 1;
}

/* The interval [low, high) of keys that a rule leaves visible to query i. */
static void range_of(const attn_pattern_set *set, const rule *r, int64_t i, int64_t *low, int64_t *high)
{
    const int64_t p = i + set->offset, *size = r->pattern.size;
    *low = 0;
    *high = set->len_kv;
    if (r->pattern.kind == ATTN_PATTERN_PREFIX) *high = most(p + 1, size[0]);
    if (r->pattern.kind == ATTN_PATTERN_LENGTHS) *high = i < size[0] ? size[1] : 0;
    if (r->pattern.kind == ATTN_PATTERN_BLOCK_DIAGONAL) {
        *low = floor_div(p, size[0]) * size[0];
        *high = *low + size[0];
    }
}

/* The keys of a document are contiguous: cuts each query's range to those of its document. */
static void cut_to_documents(attn_pattern_set *set, const rule *r)
{
    int64_t low = 0, high = 0;
    for (int64_t i = 0; i < set->len_q; i++) {
        int64_t document = r->document_q[i];
        if (i == 0 || document != r->document_q[i - 1]) {
            while (low < set->len_kv && document >= 0 && r->document_kv[low] >= 0 && r->document_kv[low] < document) low++;
            for (high = low; high < set->len_kv && document >= 0 && r->document_kv[high] == document;) high++;
        }
        cut_range(set, i, low, document < 0 ? 0 : high);
    }
}

/* Returns 0 if memory is short. */
static int add_range(attn_pattern_set *set, const rule *r)
{
    if (!ranges_of(set)) return 0;
    if (r->pattern.kind == ATTN_PATTERN_DOCUMENTS) {
        cut_to_documents(set, r);
        return 1;
    }
    for (int64_t i = 0; i < set->len_q; i++) {
        int64_t low, high;
        range_of(set, r, i, &low, &high);
        cut_range(set, i, low, high);
    }
    return 1;
}

static int add_columns(attn_pattern_set *set, int64_t stride)
{
    if (!set->columns) {
        set->columns = malloc((size_t)set->len_kv + 1);
        if (!set->columns) return 0;
        memset(set->columns, 1, (size_t)set->len_kv + 1);
    }
    for (int64_t j = 0; j < set->len_kv; j++) set->columns[j] &= floor_mod(j, stride) == 0;
    return 1;
}

/* *fits: whether the rules so far can be expressed in fields.  Returns 0 if memory is short. */
static int add_rule(attn_pattern_set *set, const rule *r, int *fits)
{
    const int64_t *size = r->pattern.size;
    switch (r->pattern.kind) {
    case ATTN_PATTERN_CAUSAL:
    case ATTN_PATTERN_CAUSAL_BOTTOM_RIGHT:
        set->mask.causal = 1;
        break;
    case ATTN_PATTERN_WINDOW:
        return add_window(set, size[0], size[1]);
    case ATTN_PATTERN_SLIDING_WINDOW:
        set->mask.causal = 1;
        return add_window(set, size[0] - 1, 0);
    case ATTN_PATTERN_RADIUS:
        return add_window(set, size[0], size[0]);
    case ATTN_PATTERN_LOCAL:
        return add_window(set, size[0] / 2, size[0] / 2);
    case ATTN_PATTERN_STRIDED:
        *fits = add_dilation(set, size[0]);
        break;
    case ATTN_PATTERN_DILATED:
        *fits = add_dilation(set, size[1]);
        return add_window(set, size[0] * size[1], size[0] * size[1]);
    case ATTN_PATTERN_FIXED:
        *fits = r->blocks.rows != NULL;
        return !*fits || add_lists(set, &r->blocks, fits);
    case ATTN_PATTERN_GLOBAL_LOCAL:
        return add_global_local(set, size[0], size[1], fits);
    case ATTN_PATTERN_BIGBIRD:
    case ATTN_PATTERN_BLOCK_MAP:
        return add_lists(set, &r->blocks, fits);
    case ATTN_PATTERN_COLUMNS:
        return add_columns(set, size[0]);
    case ATTN_PATTERN_BLOCK_DIAGONAL:
        return add_chunk(set, size[0]) || add_range(set, r);
    case ATTN_PATTERN_PREFIX:
    case ATTN_PATTERN_LENGTHS:
    case ATTN_PATTERN_DOCUMENTS:
        return add_range(set, r);
    }
    return 1;
}

/* A mask of keys is one pass over every tile; if it keeps fewer than one key in 18, a list of them skips the others (shorter gaps
 * are visited: SHORT_GAP of src/core/tile/runs.c).  Few queries have a walk of their own, which has no lists.  Returns 0 if memory
 * is short. */
static int list_columns(attn_pattern_set *set)
{
    enum { FEWEST_QUERIES = 64, KEYS_FOR_ONE = 18 };
    int64_t kept = 0;
    if (!set->columns || set->lists || set->dense || set->len_q < FEWEST_QUERIES) return 1;
    for (int64_t j = 0; j < set->len_kv; j++) kept += set->columns[j];
    if (kept > (set->len_kv + KEYS_FOR_ONE - 1) / KEYS_FOR_ONE) return 1;
    if (!attn_block_lists_make_columns(&set->made, set->columns, set->len_q, set->len_kv)) return 0;
    set->lists = &set->made;
    free(set->columns);
    set->columns = NULL;
    return 1;
}

int attn_pattern_set_fuse(attn_pattern_set *set)
{
    set->mask.align = set->bottom_right ? ATTN_ALIGN_BOTTOM_RIGHT : ATTN_ALIGN_TOP_LEFT;
    for (int64_t k = 0; k < set->count; k++) {
        int fits = 1;
        if (!add_rule(set, &set->rules[k], &fits)) return 0;
        if (!fits && !set->dense) set->dense = (int)k + 1;
    }
    return list_columns(set);
}
