/* SPDX-License-Identifier: MIT
 * sparse.c - see sparse.h. */
#include "sparse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensors.h"
#include "testing/text/failure.h"

/* ---- the word ---- */

/* Masks with words of their own, which say more than a name can. */
static attn_status check_kind(const char *name, attn_pattern_kind kind, attn_error *error)
{
    if (kind == ATTN_PATTERN_CAUSAL || kind == ATTN_PATTERN_CAUSAL_BOTTOM_RIGHT)
        return failure(error, ATTN_ERR_ARGUMENT, "%.20s has a word of its own: %s", name,
                       kind == ATTN_PATTERN_CAUSAL ? "causal" : "causal=bottom-right");
    if (kind == ATTN_PATTERN_BLOCK_MAP)
        return failure(error, ATTN_ERR_ARGUMENT,
                       "%.20s needs a tensor: block=Q,K draws one, and --block=Q,K takes the tensor 'blocks' of a file", name);
    return ATTN_OK;
}

/* Numbers out of any range, whatever the problem; those of documents depend on it. */
static attn_status check_numbers(const attn_pattern *pattern, attn_error *error)
{
    attn_pattern_set *set;
    if (pattern->kind == ATTN_PATTERN_DOCUMENTS) return ATTN_OK;
    const attn_status status = attn_pattern_set_create(&set, 0, 0, 1, pattern, error);
    attn_pattern_set_destroy(set);
    return status;
}

attn_status sparse_parse(const char *text, uint64_t seed, sparse_masks *masks, attn_error *error)
{
    char one[SPEC_SPARSE];
    masks->count = 0;
    for (const char *at = text;;) {
        const size_t length = strcspn(at, "+");
        if (length >= sizeof one)
            return failure(error, ATTN_ERR_ARGUMENT, "a mask of %zu characters is too long: '%.40s...'", length, at);
        if (masks->count == SPARSE_MOST) return failure(error, ATTN_ERR_ARGUMENT, "more than %d masks", SPARSE_MOST);
        snprintf(one, sizeof one, "%.*s", (int)length, at);
        named_pattern *named = &masks->named[masks->count++];
        attn_status status = pattern_parse(one, seed, named, error);
        if (status == ATTN_OK) status = check_kind(one, named->pattern.kind, error);
        if (status == ATTN_OK) status = check_numbers(&named->pattern, error);
        if (status != ATTN_OK) return status;
        if (!at[length]) return ATTN_OK;
        at += length + 1;
    }
}

/* ---- positions ---- */

/* 1 if what a mask keeps depends on the position of a query among the keys. */
static int by_position(attn_pattern_kind kind)
{
    return kind != ATTN_PATTERN_COLUMNS && kind != ATTN_PATTERN_BIGBIRD && kind != ATTN_PATTERN_LENGTHS &&
           kind != ATTN_PATTERN_DOCUMENTS;
}

/* Positions that a set of patterns knows: those of the first keys, or of the last ones under causal=bottom-right. */
static int positions_are_known(const problem_spec *spec)
{
    const int of_lengths =
        spec->causal == SPEC_CAUSAL_BOTTOM_RIGHT && (spec->lengths || spec->packed || spec->ragged || spec->page);
    return !spec->offset_kind && spec->align != SPEC_ALIGN_BOTTOM_RIGHT && !of_lengths;
}

/* ---- sizes ---- */

/* Masks with numbers for each token, and pairs of blocks that are gone through: what a computer of today has time for. */
enum { MOST_TOKENS = 1 << 24, MOST_BLOCKS = 1 << 16 };

static attn_status check_size(const attn_pattern *pattern, const attn_shape *s, const char *name, int length, attn_error *error)
{
    const int64_t tokens = s->len_q > s->len_kv ? s->len_q : s->len_kv;
    const attn_pattern_kind kind = pattern->kind;
    const int by_token = kind == ATTN_PATTERN_COLUMNS || kind == ATTN_PATTERN_FIXED || kind >= ATTN_PATTERN_BIGBIRD ||
                         kind == ATTN_PATTERN_BLOCK_DIAGONAL;
    if (by_token && tokens > MOST_TOKENS)
        return failure(error, ATTN_ERR_UNSUPPORTED, "%.*s is made for at most 2^24 queries and keys", length, name);
    if (kind == ATTN_PATTERN_BIGBIRD && tokens / pattern->size[0] > MOST_BLOCKS)
        return failure(error, ATTN_ERR_UNSUPPORTED, "%.*s has more than 2^16 blocks", length, name);
    return ATTN_OK;
}

/* ---- which patterns become fields ---- */

/* Patterns that are fields together, those of the spec's own words first, and those that need a matrix. */
typedef struct plan {
    attn_pattern fields[SPARSE_MOST + 3], matrix[SPARSE_MOST + 1];
    int of_fields, of_matrix;
    int unknown; /* 1: positions are not known */
} plan;

static void add_words(plan *p, const problem_spec *spec)
{
    const int bottom_right = spec->causal == SPEC_CAUSAL_BOTTOM_RIGHT && !p->unknown;
    if (spec->causal) p->fields[p->of_fields++] = bottom_right ? attn_pattern_causal_bottom_right() : attn_pattern_causal();
    if (spec->window) p->fields[p->of_fields++] = attn_pattern_window(spec->window_left, spec->window_right);
    if (spec->chunk) p->fields[p->of_fields++] = attn_pattern_block_diagonal(spec->chunk);
    if (bottom_right) p->matrix[p->of_matrix++] = attn_pattern_causal_bottom_right(); /* so that it has these positions, too */
}

/* The set of all that are fields so far, applied to a problem of its own; *fits: it needs no matrix, and no tensor that another
 * word of the spec has. */
static attn_status apply(const plan *p, const problem_spec *spec, sparse_mask *mask, int *fits, attn_error *error)
{
    attn_problem own = {.struct_size = sizeof own, .shape = spec->shape};
    attn_tensors slots = {.struct_size = sizeof slots};
    attn_pattern_set_destroy(mask->set);
    attn_status status = attn_pattern_set_create(&mask->set, spec->shape.len_q, spec->shape.len_kv, p->of_fields, p->fields, error);
    if (status != ATTN_OK) return status;
    *fits = attn_pattern_set_apply(mask->set, &own, &slots, NULL) == ATTN_OK && !(spec->block && slots.block_starts.data);
    mask->fields = own.mask;
    mask->slots = slots;
    return ATTN_OK;
}

static int is_window(attn_pattern_kind kind)
{
    return kind == ATTN_PATTERN_WINDOW || kind == ATTN_PATTERN_SLIDING_WINDOW || kind == ATTN_PATTERN_RADIUS ||
           kind == ATTN_PATTERN_LOCAL || kind == ATTN_PATTERN_DILATED || kind == ATTN_PATTERN_GLOBAL_LOCAL;
}

/* 1 if the last of the patterns that are fields was not expressed by those alone that are relative to positions, whatever they are:
 * of several windows beside global tokens, all but one become ranges. */
static int needs_positions(const plan *p, const sparse_mask *mask, int fits)
{
    const attn_pattern_kind kind = p->fields[p->of_fields - 1].kind;
    int windows = 0;
    for (int n = 0; n < p->of_fields; n++) windows += is_window(p->fields[n].kind);
    const int by_rows = kind == ATTN_PATTERN_PREFIX || kind == ATTN_PATTERN_FIXED ||
                        (kind == ATTN_PATTERN_BLOCK_DIAGONAL && mask->slots.ranges.data) ||
                        (windows > 1 && (mask->fields.global_q || mask->fields.global_kv));
    return by_position(kind) && (!fits || by_rows);
}

/* The name of mask n, of a word that sparse_parse has accepted, and its length. */
static const char *name_of(const char *text, int n, int *length)
{
    for (; n > 0; n--) text = strchr(text, '+') + 1;
    *length = (int)strcspn(text, "+");
    return text;
}

static attn_status choose(plan *p, const problem_spec *spec, const sparse_masks *masks, sparse_mask *mask, attn_error *error)
{
    int fits, length, count = 0;
    char *names = mask->names;
    p->unknown = !positions_are_known(spec);
    add_words(p, spec);
    attn_status status = apply(p, spec, mask, &fits, error);
    for (int n = 0; n < masks->count && status == ATTN_OK; n++) {
        const attn_pattern *pattern = &masks->named[n].pattern;
        const char *name = name_of(spec->sparse, n, &length);
        if ((status = check_size(pattern, &spec->shape, name, length, error)) != ATTN_OK) break;
        p->fields[p->of_fields++] = *pattern;
        status = apply(p, spec, mask, &fits, error);
        if (status != ATTN_OK) break;
        if (p->unknown && needs_positions(p, mask, fits))
            return failure(error, ATTN_ERR_UNSUPPORTED,
                           "%.*s needs queries at positions that all batch entries share: neither offset nor "
                           "align=bottom-right, nor causal=bottom-right with lens, packed, ragged or page",
                           length, name);
        if (fits) continue;
        p->of_fields--;
        p->matrix[p->of_matrix++] = *pattern;
        mask->matrix[count++] = names; /* `names` is as long as the word */
        names += snprintf(names, sizeof mask->names - (size_t)(names - mask->names), "%.*s", length, name) + 1;
        status = apply(p, spec, mask, &fits, error);
    }
    return status;
}

/* ---- the matrix ---- */

/* A mask of keys alone becomes one row; what needs a matrix, all of them. */
static attn_status fill(const plan *p, const problem_spec *spec, sparse_mask *mask, attn_error *error)
{
    const int64_t queries = spec->shape.len_q, keys = spec->shape.len_kv;
    const unsigned char *columns = mask->slots.mask.data;
    attn_pattern_set *set = NULL;
    mask->keep = need_memory(mask->rows * keys, 1);
    memset(mask->keep, 1, (size_t)(mask->rows * keys));
    attn_status status = ATTN_OK;
    if (mask->matrix[0]) {
        status = attn_pattern_set_create(&set, queries, keys, p->of_matrix, p->matrix, error);
        if (status == ATTN_OK && queries && keys)
            status = attn_pattern_set_fill(set, &(attn_output){mask->keep, ATTN_BOOL, {0}}, error);
        attn_pattern_set_destroy(set);
    }
    for (int64_t i = 0; columns && i < mask->rows; i++)
        for (int64_t j = 0; j < keys; j++) mask->keep[i * keys + j] &= columns[j];
    return status;
}

static attn_status make(sparse_mask *mask, const problem_spec *spec, int with_data, attn_error *error)
{
    *mask = (sparse_mask){0};
    if (!spec->sparse[0]) return ATTN_OK;
    sparse_masks *masks = need_memory(1, sizeof *masks);
    plan p = {0};
    attn_status status = sparse_parse(spec->sparse, spec->seed, masks, error);
    if (status == ATTN_OK) status = choose(&p, spec, masks, mask, error);
    if (status == ATTN_OK) mask->rows = mask->matrix[0] ? spec->shape.len_q : mask->slots.mask.data ? 1 : 0;
    if (status == ATTN_OK && with_data && mask->rows) status = fill(&p, spec, mask, error);
    mask->slots.mask = (attn_input){0};
    free(masks);
    if (status != ATTN_OK) failure_about(error, "sparse");
    return status;
}

attn_status sparse_plan(sparse_mask *mask, const problem_spec *spec, attn_error *error) { return make(mask, spec, 0, error); }
attn_status sparse_make(sparse_mask *mask, const problem_spec *spec, attn_error *error) { return make(mask, spec, 1, error); }

attn_status sparse_check_fields(const problem_spec *spec, attn_error *error)
{
    sparse_mask mask;
    attn_status status = sparse_plan(&mask, spec, error);
    if (status == ATTN_OK && (mask.rows || mask.slots.ranges.data || mask.slots.block_starts.data))
        status = failure(error, ATTN_ERR_UNSUPPORTED,
                         "sparse=%.60s is made for all queries together; in parts there are masks that are windows: longformer, "
                         "strided, dilated, diagonal, local, radius, sliding, window",
                         spec->sparse);
    sparse_free(&mask);
    return status;
}

void sparse_free(sparse_mask *mask)
{
    attn_pattern_set_destroy(mask->set);
    free(mask->keep);
    *mask = (sparse_mask){0};
}

/* ---- in a problem ---- */

attn_status sparse_put(const sparse_mask *mask, const problem_spec *spec, int later, attn_problem *p, attn_tensors *all,
                       attn_error *error)
{
    static const int slots[] = {TENSOR(ranges), TENSOR(block_starts), TENSOR(block_index)}, dense[4] = {0, 1, 2, 3};
    const attn_mask *from = &mask->fields;
    attn_mask *to = &p->mask;
    if (!mask->set) return ATTN_OK;
    to->causal = from->causal;
    to->window = from->window, to->window_left = from->window_left, to->window_right = from->window_right;
    to->chunk = from->chunk;
    to->dilation = from->dilation;
    to->global_q = from->global_q, to->global_kv = from->global_kv;
    if (mask->slots.block_starts.data)
        to->block_q = from->block_q, to->block_kv = from->block_kv, to->block_entries = from->block_entries;
    for (size_t n = 0; n < sizeof slots / sizeof *slots; n++) {
        const attn_output *slot = tensors_at(&mask->slots, slots[n]);
        if (!slot->data) continue;
        *tensors_slot(all, slots[n]) = *slot;
        if (later && slot->data != ATTN_EMPTY) tensors_slot(all, slots[n])->data = ATTN_LATER;
    }
    if (!mask->rows) return ATTN_OK;
    const int of_rows = mask->rows == 1 && spec->shape.len_q != 1 && !mask->matrix[0] ? SPEC_ONE_Q : 0;
    const int one = spec->mask ? spec->mask_one & ~(SPEC_ONE_K | (of_rows ? 0 : SPEC_ONE_Q)) : SPEC_ONE_B | SPEC_ONE_H | of_rows;
    const int64_t size[4] = {spec->shape.batch, spec->shape.heads_q, spec->shape.len_q, spec->shape.len_kv};
    if (!spec->mask || later) all->mask.data = later ? ATTN_LATER : mask->keep;
    all->mask.dtype = ATTN_BOOL;
    if (!tensors_lay(tensors_slot(all, TENSOR(mask)), size, dense, one))
        return failure(error, ATTN_ERR_SHAPE, "sparse: a mask of %lld x %lld pairs is too large", (long long)size[2],
                       (long long)size[3]);
    return ATTN_OK;
}

void sparse_hide(const sparse_mask *mask, int64_t keys, int64_t count, unsigned char *bytes)
{
    for (int64_t at = 0; at < count; at++)
        if (!mask->keep[at % (mask->rows * keys)]) bytes[at] = 0;
}
