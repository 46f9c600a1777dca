/* SPDX-License-Identifier: MIT
 *
 * fuzz_mask.c - fuzzes pattern sets (target.h): queried pair by pair, filled into a matrix, counted, and applied to attention,
 * against their definitions and the matrix as a mask; and conversions of masks (calls.h). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/mask.h"
#include "attn_ref.h"
#include "calls.h"

const char *const target_cases = "masks";

enum { MAX_LENGTH = 40, MAX_PATTERNS = 4, DIM = 3 };
enum { LAST_KIND = ATTN_PATTERN_BLOCK_MAP }; /* the newest; each switch has them all */
enum { LENGTHS_Q, LENGTHS_KV, MAP, LISTS = 3, MATRIX = LISTS * MAX_PATTERNS, GIVEN, FORM, BLOCKS };

static struct {
    draws *from;
    int drop; /* 1: GIVEN is a drop mask and FORM a keep mask; 0: GIVEN is a keep mask and FORM a bias */
    int64_t len_q, len_kv, count, given_count;
    double fill;
    attn_pattern patterns[MAX_PATTERNS];
    block blocks[BLOCKS];
    const attn_pattern_set *set;
    attn_input given;
    attn_output matrix, form;
    const attn_input *given_at;
    const attn_output *matrix_at, *form_at;
} c;

void target_print(void)
{
    fprintf(stderr, "%" PRId64 " x %" PRId64 ", %" PRId64 " patterns\n", c.len_q, c.len_kv, c.count);
    for (int64_t k = 0; k < c.count; k++) {
        const attn_pattern *p = &c.patterns[k];
        fprintf(stderr, "  kind %d sizes %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " seed %" PRIu64 " count %" PRId64 "\n",
                (int)p->kind, p->size[0], p->size[1], p->size[2], p->size[3], p->seed, p->count);
    }
    blocks_print(c.blocks, BLOCKS);
}

/* ---- definitions, in integers that do not overflow ---- */

typedef __int128 wide;

static wide floor_div(wide a, wide b) { return a / b - (a % b < 0); }
static wide floor_mod(wide a, wide b) { return a - b * floor_div(a, b); }
static wide size_of(wide x) { return x < 0 ? -x : x; }

/* floor(word left / 2^32), where word is Philox of counter (0, n, t, 0), found through the reference's dropout threshold. */
static int64_t drawn_block(uint64_t seed, int64_t n, int64_t t, int64_t left)
{
    int64_t number = 0;
    for (int64_t m = 1; m < left; m++) number += ref_dropout_keeps(seed, 0, n, t, 0, (double)m / (double)left);
    return number;
}

static int bigbird_sees(const attn_pattern *p, wide row, wide column)
{
    const int64_t n = (int64_t)row, k = (int64_t)column, count = (c.len_kv + p->size[0] - 1) / p->size[0];
    unsigned char seen[MAX_LENGTH] = {0};
    int64_t left = 0;
    for (int64_t x = 0; x < count; x++) {
        seen[x] = llabs(n - x) <= p->size[1] / 2 || x < p->size[2] || n < p->size[2];
        left += !seen[x];
    }
    for (int64_t t = 0; t < p->size[3] && left > 0; t++, left--) {
        int64_t number = drawn_block(p->seed, n, t, left), x = 0;
        for (; seen[x] || number-- > 0; x++) continue;
        seen[x] = 1;
    }
    return seen[k];
}

/* The document of token i; -1: none. */
static int64_t document_of(const int64_t *lengths, int64_t count, int64_t i)
{
    int64_t end = 0;
    for (int64_t d = 0; d < count; d++)
        if (i < (end += lengths[d])) return d;
    return -1;
}

static int pattern_sees(const attn_pattern *pattern, wide p, int64_t i, int64_t j)
{
    const int64_t *s = pattern->size;
    switch (pattern->kind) {
    case ATTN_PATTERN_CAUSAL:
    case ATTN_PATTERN_CAUSAL_BOTTOM_RIGHT:
        return j <= p;
    case ATTN_PATTERN_WINDOW:
        return (s[0] < 0 || j >= p - s[0]) && (s[1] < 0 || j <= p + s[1]);
    case ATTN_PATTERN_SLIDING_WINDOW:
        return p - s[0] < j && j <= p;
    case ATTN_PATTERN_RADIUS:
        return size_of(p - j) <= s[0];
    case ATTN_PATTERN_LOCAL:
        return size_of(p - j) <= s[0] / 2;
    case ATTN_PATTERN_BLOCK_DIAGONAL:
        return floor_div(j, s[0]) == floor_div(p, s[0]);
    case ATTN_PATTERN_STRIDED:
        return floor_mod(p, s[0]) == floor_mod(j, s[0]);
    case ATTN_PATTERN_COLUMNS:
        return floor_mod(j, s[0]) == 0;
    case ATTN_PATTERN_DILATED:
        return size_of(p - j) <= (wide)s[0] * s[1] && floor_mod(p, s[1]) == floor_mod(j, s[1]);
    case ATTN_PATTERN_FIXED:
        return floor_div(j, s[0]) == floor_div(p, s[0]) || floor_mod(j, s[0]) >= s[0] - s[1];
    case ATTN_PATTERN_GLOBAL_LOCAL:
        return size_of(p - j) <= s[0] / 2 || j < s[1] || (p >= 0 && p < s[1]);
    case ATTN_PATTERN_BIGBIRD:
        return bigbird_sees(pattern, i / s[0], j / s[0]);
    case ATTN_PATTERN_PREFIX:
        return j <= p || j < s[0];
    case ATTN_PATTERN_LENGTHS:
        return i < s[0] && j < s[1];
    case ATTN_PATTERN_DOCUMENTS: {
        const int64_t d = document_of(pattern->lengths_q, pattern->count, i);
        return d >= 0 && d == document_of(pattern->lengths_kv ? pattern->lengths_kv : pattern->lengths_q, pattern->count, j);
    }
    case ATTN_PATTERN_BLOCK_MAP:
        return pattern->blocks[i / s[0] * ((c.len_kv - 1) / s[1] + 1) + j / s[1]] != 0;
    }
    return 0;
}

static int sees(int64_t i, int64_t j)
{
    wide p = i;
    for (int64_t k = 0; k < c.count; k++)
        if (c.patterns[k].kind == ATTN_PATTERN_CAUSAL_BOTTOM_RIGHT) p = (wide)i + c.len_kv - c.len_q;
    for (int64_t k = 0; k < c.count; k++)
        if (!pattern_sees(&c.patterns[k], p, i, j)) return 0;
    return 1;
}

/* ---- drawing ---- */

/* Mostly about the lengths, sometimes as large as is valid. */
static int64_t draw_size(int64_t least)
{
    if (draw_one_in(c.from, 12)) return (int64_t)1 << draw_below(c.from, 60);
    return least + draw_below(c.from, draw_one_in(c.from, 3) ? 50 : 8);
}

static const int64_t *draw_lengths(int at, const char *name, int64_t count, int64_t length)
{
    block *b = &c.blocks[at];
    calls_make(b, c.from, block_of(name, ATTN_I64, 0, count, 1, 1, 1), CALLS_DENSE);
    for (int64_t d = 0; d < count; d++) {
        const int64_t own = draw_below(c.from, length / 2 + 2);
        block_put(b, d, 0, 0, 0, (double)(own < length ? own : length));
        length -= own < length ? own : length;
    }
    return (const int64_t *)(const void *)b->memory;
}

static attn_pattern draw_pattern(int64_t k)
{
    draws *d = c.from;
    const int64_t a = draw_size(1), b = draw_size(1), small = draw_size(0);
    switch ((attn_pattern_kind)(1 + draw_below(d, LAST_KIND))) {
    case ATTN_PATTERN_CAUSAL:
        return attn_pattern_causal();
    case ATTN_PATTERN_CAUSAL_BOTTOM_RIGHT:
        return attn_pattern_causal_bottom_right();
    case ATTN_PATTERN_WINDOW:
        return attn_pattern_window(draw_one_in(d, 4) ? -1 : small, draw_one_in(d, 4) ? -1 : a);
    case ATTN_PATTERN_SLIDING_WINDOW:
        return attn_pattern_sliding_window(a);
    case ATTN_PATTERN_RADIUS:
        return attn_pattern_radius(small);
    case ATTN_PATTERN_LOCAL:
        return attn_pattern_local(a);
    case ATTN_PATTERN_BLOCK_DIAGONAL:
        return attn_pattern_block_diagonal(a);
    case ATTN_PATTERN_STRIDED:
        return attn_pattern_strided(a);
    case ATTN_PATTERN_COLUMNS:
        return attn_pattern_columns(a);
    case ATTN_PATTERN_DILATED:
        return attn_pattern_dilated(small % ((int64_t)1 << 30), b % ((int64_t)1 << 30) + (b % ((int64_t)1 << 30) == 0));
    case ATTN_PATTERN_FIXED:
        return attn_pattern_fixed(a, draw_below(d, a < 60 ? a + 1 : 60));
    case ATTN_PATTERN_GLOBAL_LOCAL:
        return attn_pattern_global_local(a, small);
    case ATTN_PATTERN_BIGBIRD:
        return attn_pattern_bigbird(a, b, draw_below(d, 4), draw_below(d, 4), draw_word(d));
    case ATTN_PATTERN_PREFIX:
        return attn_pattern_prefix(small);
    case ATTN_PATTERN_LENGTHS:
        return attn_pattern_lengths(small, draw_size(0));
    case ATTN_PATTERN_DOCUMENTS: {
        const int64_t count = draw_below(d, 6);
        const int own = draw_one_in(d, 2), base = (int)k * LISTS;
        const int64_t least = c.len_q < c.len_kv ? c.len_q : c.len_kv;
        const int64_t *q = draw_lengths(base + LENGTHS_Q, "lengths_q", count, own ? c.len_q : least);
        return attn_pattern_documents(count, q, own ? draw_lengths(base + LENGTHS_KV, "lengths_kv", count, c.len_kv) : NULL);
    }
    case ATTN_PATTERN_BLOCK_MAP:
        break;
    }
    const int at = (int)k * LISTS + MAP;
    const int64_t rows = c.len_q / a + (c.len_q % a != 0), columns = c.len_kv / b + (c.len_kv % b != 0);
    calls_make(&c.blocks[at], d, block_of("blocks", ATTN_BOOL, 0, 1, 1, rows, columns), CALLS_DENSE);
    for (size_t i = 0; i < c.blocks[at].bytes; i++) c.blocks[at].memory[i] = (unsigned char)(draw_word(d) % 3 ? 0 : draw_word(d));
    return attn_pattern_block_map(a, b, c.blocks[at].memory);
}

static void draw_case(void)
{
    draws *d = c.from;
    c.len_q = draw_below(d, MAX_LENGTH), c.len_kv = draw_below(d, MAX_LENGTH);
    c.count = draw_one_in(d, 2) ? 1 : draw_below(d, MAX_PATTERNS + 1);
    for (int64_t k = 0; k < c.count; k++) c.patterns[k] = draw_pattern(k);
}

/* ---- checks of a set ---- */

static attn_error last;

static attn_pattern_set *create(int64_t count, int64_t len_q, int64_t len_kv)
{
    attn_pattern_set *set = (attn_pattern_set *)(void *)&last; /* to be overwritten */
    memset(&last, 0x55, sizeof last);
    const attn_status status = attn_pattern_set_create(&set, len_q, len_kv, count, c.patterns, &last);
    check_error(status, &last);
    if ((status == ATTN_OK) != (set != NULL)) finding("status %d and a set %p", (int)status, (void *)set);
    return set;
}

static const attn_pattern_set *filling;

static attn_status fill(attn_error *error) { return attn_pattern_set_fill(c.set, c.matrix_at, error); }

static void place_matrix(void) { c.set = filling, c.matrix = block_out(&c.blocks[MATRIX]), c.matrix_at = &c.matrix; }

static const calls fills = {&c.blocks[MATRIX], 1, fill, place_matrix};

static void judge_matrix(const attn_pattern_set *set, unsigned char *keep)
{
    draws *d = c.from;
    block *b = &c.blocks[MATRIX];
    calls_make(b, d, block_of("keep", draw_one_in(d, 2) ? ATTN_BOOL : ATTN_U8, 1, 1, 1, c.len_q, c.len_kv), CALLS_ANY);
    filling = set;
    place_matrix();
    calls_first(&fills);
    for (int64_t i = 0; i < c.len_q; i++)
        for (int64_t j = 0; j < c.len_kv; j++) {
            const int exact = sees(i, j), got = *block_at(b, 0, 0, i, j);
            if (got != exact) finding("fill: (%lld, %lld) is %d, not %d", (long long)i, (long long)j, got, exact);
            if (attn_pattern_set_sees(set, i, j) != exact)
                finding("query %lld sees key %lld: not %d", (long long)i, (long long)j, exact);
            keep[i * c.len_kv + j] = (unsigned char)exact;
        }
    if (draw_one_in(d, 3)) calls_elsewhere(&fills, d);
    const char *must = calls_corrupt(&c.matrix, b, d, 1, NULL);
    if (!must && draw_one_in(d, 2)) {
        if (draw_one_in(d, 2)) c.set = NULL;
        else c.matrix_at = NULL;
        must = "NULL";
    }
    calls_rejected(&fills, must);
    const int64_t hostile = draw_hostile(c.from);
    if ((hostile < 0 || hostile >= c.len_q) && attn_pattern_set_sees(set, hostile, 0))
        finding("query %lld sees key 0", (long long)hostile);
    if ((hostile < 0 || hostile >= c.len_kv) && attn_pattern_set_sees(set, 0, hostile))
        finding("query 0 sees key %lld", (long long)hostile);
}

static void judge_count(const attn_pattern_set *set, const unsigned char *keep)
{
    const int64_t sizes[2] = {1 + draw_below(c.from, 9), draw_one_in(c.from, 4) ? INT64_MAX : 1 + draw_below(c.from, 9)};
    attn_pattern_set_counts count = {.struct_size = sizeof count};
    int64_t pairs = 0, tiles = 0, empty = 0, queries = 0;
    if (attn_pattern_set_count(set, sizes[0], sizes[1], &count, &last)) finding("count is rejected: %s", last.message);
    for (int64_t i = 0; i < c.len_q; i++) {
        int64_t row = 0;
        for (int64_t j = 0; j < c.len_kv; j++) row += keep[i * c.len_kv + j];
        pairs += row, queries += row == 0;
    }
    for (int64_t i = 0; i < c.len_q; i += sizes[0])
        for (int64_t j = 0; j < c.len_kv; j += sizes[1] < MAX_LENGTH ? sizes[1] : MAX_LENGTH) {
            int64_t own = 0;
            for (int64_t x = i; x < c.len_q && x < i + sizes[0]; x++)
                for (int64_t y = j; y < c.len_kv && y - j < sizes[1]; y++) own += keep[x * c.len_kv + y];
            tiles++, empty += own == 0;
        }
    if (count.pairs != pairs || count.tiles != tiles || count.tiles_empty != empty || count.queries_empty != queries)
        finding("counted %lld pairs, %lld tiles, %lld and %lld empty; there are %lld, %lld, %lld and %lld", (long long)count.pairs,
                (long long)count.tiles, (long long)count.tiles_empty, (long long)count.queries_empty, (long long)pairs,
                (long long)tiles, (long long)empty, (long long)queries);
    const double all = (double)(c.len_q * c.len_kv), sparsity = all > 0 ? 1 - (double)pairs / all : 0;
    if (fabs(count.sparsity - sparsity) > 1e-15) finding("sparsity %.17g, not %.17g", count.sparsity, sparsity);
    if (attn_pattern_set_count(set, draw_below(c.from, 2), 0, &count, &last) != ATTN_ERR_ARGUMENT)
        finding("tiles of 0 keys are accepted");
}

/* Applied to the fields of a problem, against the matrix as a mask. */
static void judge_fields(const attn_pattern_set *set, const unsigned char *keep)
{
    static double numbers[4 * MAX_LENGTH * DIM], o[2][MAX_LENGTH * DIM];
    attn_problem p = {.struct_size = sizeof p, .shape = {1, 1, 1, c.len_q, c.len_kv, DIM, DIM}}, was;
    if (c.len_q == 0 || c.len_kv == 0) return; /* no pairs */
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) numbers[i] = draw_real(c.from, -2, 2);
    attn_tensors t = {.struct_size = sizeof t,
                      .q = {numbers, ATTN_F64, {0, 0, 0, 0}},
                      .k = attn_in(numbers + MAX_LENGTH * DIM),
                      .v = attn_in(numbers + 2 * MAX_LENGTH * DIM),
                      .o = attn_out(o[0])};
    attn_tensors masked = t, before;
    const attn_problem plain = p;
    const int64_t used = draw_below(c.from, 8);
    if (used == 0) p.mask.chunk = 5;
    if (used == 1) t.ranges = attn_in(numbers);
    if (used == 2) p.shape.len_kv++;
    memcpy(&was, &p, sizeof p), memcpy(&before, &t, sizeof t);
    attn_status status = attn_pattern_set_apply(set, &p, &t, &last);
    check_error(status, &last);
    if (used <= 2 && status == ATTN_OK) finding("a field in use is overwritten");
    if (status != ATTN_OK && (memcmp(&was, &p, sizeof p) || memcmp(&before, &t, sizeof t))) finding("rejected, but changed");
    if (used <= 2) return;
    if (status == ATTN_ERR_UNSUPPORTED) return;
    if (status != ATTN_OK) finding("apply: %s", last.message);
    status = attn_compute(&p, &t, &last);
    if (status != ATTN_OK) finding("with the fields of the set: %s", last.message);
    masked.mask = attn_in(keep), masked.o = attn_out(o[1]);
    if (attn_compute(&plain, &masked, &last)) finding("with a mask: %s", last.message);
    for (int64_t i = 0; i < c.len_q * DIM; i++)
        if (!(fabs(o[0][i] - o[1][i]) <= 1e-13)) finding("o[%lld] is %.17g, with a mask %.17g", (long long)i, o[0][i], o[1][i]);
}

/* How many of its sizes a kind uses and checks. */
static int sizes_of(attn_pattern_kind kind)
{
    switch (kind) {
    case ATTN_PATTERN_CAUSAL:
    case ATTN_PATTERN_CAUSAL_BOTTOM_RIGHT:
    case ATTN_PATTERN_DOCUMENTS:
        return 0;
    case ATTN_PATTERN_SLIDING_WINDOW:
    case ATTN_PATTERN_RADIUS:
    case ATTN_PATTERN_LOCAL:
    case ATTN_PATTERN_BLOCK_DIAGONAL:
    case ATTN_PATTERN_STRIDED:
    case ATTN_PATTERN_COLUMNS:
    case ATTN_PATTERN_PREFIX:
        return 1;
    case ATTN_PATTERN_WINDOW:
    case ATTN_PATTERN_DILATED:
    case ATTN_PATTERN_FIXED:
    case ATTN_PATTERN_GLOBAL_LOCAL:
    case ATTN_PATTERN_LENGTHS:
    case ATTN_PATTERN_BLOCK_MAP:
        return 2;
    case ATTN_PATTERN_BIGBIRD:
        return 4;
    }
    return 0;
}

static void judge_rejected(void)
{
    draws *d = c.from;
    attn_pattern *p = &c.patterns[0];
    int64_t count = c.count, len_q = c.len_q, len_kv = c.len_kv;
    const char *must = NULL;
    switch (draw_below(d, 5)) {
    case 0:
        if (draw_one_in(d, 2)) len_q = calls_bad_size(d);
        else len_kv = calls_bad_size(d);
        must = "invalid lengths";
        break;
    case 1:
        count = draw_one_in(d, 2) ? -1 : INT64_MAX;
        must = "an invalid number of patterns";
        break;
    case 2:
        if (count == 0) return;
        p->reserved[draw_below(d, 2)] = draw_hostile(d) | 1;
        must = "a reserved word";
        break;
    case 3:
        if (count == 0 || sizes_of(p->kind) == 0) return;
        p->size[draw_below(d, sizes_of(p->kind))] = draw_one_in(d, 2) ? INT64_MAX : -2;
        must = "an invalid size";
        break;
    default:
        if (count == 0) return;
        p->kind = (attn_pattern_kind)(draw_one_in(d, 2) ? 0 : LAST_KIND + 1 + draw_below(d, 99));
        must = "an unknown kind";
    }
    attn_pattern_set *set = create(count, len_q, len_kv);
    if (set) finding("%s, but a set is created", must);
    target_rejected++;
}

static void judge_set(void)
{
    static unsigned char keep[MAX_LENGTH * MAX_LENGTH];
    attn_pattern_set *set = create(c.count, c.len_q, c.len_kv);
    if (!set) finding("a valid set is rejected: %s", last.message);
    target_ran++;
    judge_matrix(set, keep);
    judge_count(set, keep);
    judge_fields(set, keep);
    attn_pattern_set_destroy(set);
    attn_pattern_set_destroy(NULL);
    if (draw_one_in(c.from, 2)) judge_rejected();
}

/* ---- conversions of masks ---- */

static attn_status call(attn_error *error)
{
    if (c.drop) return attn_mask_keep_from_drop(c.given_count, c.given_at, c.form_at, error);
    return attn_mask_bias_from_keep(c.given_count, c.fill, c.given_at, c.form_at, error);
}

static void place(void)
{
    c.given_count = c.blocks[GIVEN].shape[3], c.given = block_in(&c.blocks[GIVEN]), c.form = block_out(&c.blocks[FORM]);
    c.given_at = &c.given, c.form_at = &c.form;
}

static const calls forms = {&c.blocks[GIVEN], 2, call, place};

/* The keep mask written over the drop mask. */
static void judge_in_place(void)
{
    unsigned char same[70];
    const attn_output slot = {c.given_count ? same : ATTN_EMPTY, c.blocks[FORM].dtype, {0, 0, 0, 0}};
    attn_input drop;
    memcpy(&drop, &slot, sizeof drop);
    for (int64_t i = 0; i < c.given_count; i++) same[i] = *block_at(&c.blocks[GIVEN], 0, 0, 0, i);
    if (attn_mask_keep_from_drop(c.given_count, &drop, &slot, &calls_last)) finding("in place: %s", calls_last.message);
    for (int64_t i = 0; i < c.given_count; i++)
        if (same[i] != *block_at(&c.blocks[FORM], 0, 0, 0, i)) finding("in place: element %lld is %d", (long long)i, same[i]);
}

static void judge_forms(void)
{
    static const attn_dtype types[] = {ATTN_F32, ATTN_F64, ATTN_F16, ATTN_BF16}, masks[] = {ATTN_BOOL, ATTN_U8};
    static const double numbers[] = {-INFINITY, -1e9, -1e4, 0, NAN, 3};
    draws *d = c.from;
    const int64_t count = draw_below(d, 70);
    block *from = &c.blocks[GIVEN], *to = &c.blocks[FORM];
    c.drop = draw_one_in(d, 2), c.fill = numbers[draw_below(d, 6)];
    const attn_dtype form = c.drop ? masks[draw_below(d, 2)] : types[draw_below(d, 4)];
    calls_make(from, d, block_of(c.drop ? "drop" : "keep", masks[draw_below(d, 2)], 0, 1, 1, 1, count), CALLS_ANY);
    calls_make(to, d, block_of(c.drop ? "keep" : "bias", form, 1, 1, 1, 1, count), CALLS_ANY);
    for (size_t i = 0; i < from->bytes; i++) from->memory[i] = (unsigned char)(draw_word(d) % 2 ? 0 : draw_word(d));
    place();
    calls_first(&forms);
    for (int64_t i = 0; i < count; i++) {
        const int given = *block_at(from, 0, 0, 0, i) != 0;
        block_check(to, 0, 0, 0, i, c.drop ? !given : given ? 0 : c.fill, 0);
    }
    if (c.drop) judge_in_place();
    if (draw_one_in(d, 3)) calls_elsewhere(&forms, d);
    const char *must = NULL;
    switch (draw_below(d, 4)) {
    case 0:
        c.given_count = calls_bad_size(d);
        if (c.given_count < 0 || count > 1) must = "an invalid count";
        break;
    case 1:
        if (draw_one_in(d, 2)) c.given_at = NULL;
        else c.form_at = NULL;
        must = "NULL";
        break;
    case 2:
        must = calls_corrupt_input(&c.given, from, d, 1);
        break;
    default: {
        /* keep_from_drop accepts the same address with the same stride */
        const int same = c.drop && (count < 2 || from->stride[3] == to->stride[3]);
        must = calls_corrupt(&c.form, to, d, 1, same ? NULL : from);
    }
    }
    calls_rejected(&forms, must);
}

void target_run(draws *from)
{
    memset(&c, 0, sizeof c);
    c.from = from;
    draw_case();
    target_drawn();
    judge_set();
    if (draw_one_in(from, 3)) judge_forms();
    blocks_free(c.blocks, BLOCKS);
}
