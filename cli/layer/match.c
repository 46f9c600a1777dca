/* SPDX-License-Identifier: MIT
 *
 * match.c - looks for the names of the families in a file. */
#include "match.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testing/text/failure.h"
#include "text_file.h"

/* ---- the layers of a file ---- */

typedef struct candidate {
    const layer_family *family;
    const attn_archive_tensor *anchor; /* the weight by which it was found */
    char root[MATCH_ROOT];
} candidate;

typedef struct candidates {
    candidate *all;
    int64_t count;
} candidates;

/* The role whose names are looked for. */
static weight_role anchor_of(const layer_family *f)
{
    static const weight_role order[] = {WEIGHT_QKV, WEIGHT_QUERY, WEIGHT_STATE, WEIGHT_BOTH, WEIGHT_SCORE};
    for (size_t n = 0; n < sizeof order / sizeof *order; n++)
        if (f->names[order[n]]) return order[n];
    return WEIGHT_COMBINE;
}

/* The bytes before the name, if `whole` ends in one of the names after a dot or at its beginning; -1: it does not. */
static int64_t root_length(const char *whole, const char *names)
{
    const size_t length = strlen(whole);
    while (names && *names) {
        const size_t size = strcspn(names, "|");
        if (length >= size && memcmp(whole + length - size, names, size) == 0 &&
            (length == size || family_separates(whole[length - size - 1])))
            return (int64_t)(length - size);
        names += size;
        names += *names == '|';
    }
    return -1;
}

static int64_t numbers_of(const attn_archive_tensor *t)
{
    int64_t count = 1;
    for (int axis = 0; axis < t->rank; axis++) count *= t->shape[axis];
    return count;
}

/* 1 if all weights are there without which a layer is none of this family. */
static int is_complete(const layer_family *f, const attn_archive *file, const char *root, int no_output)
{
    const attn_archive_tensor *t[WEIGHT_ROLES];
    for (int r = 0; r < WEIGHT_ROLES; r++) t[r] = family_find(file, root, f->names[r]);
    if (f->native) return 1;
    if (f->sign && !family_find(file, root, f->sign)) return 0;
    if (f->names[WEIGHT_STATE]) /* the weights of an additive score are one row: others name the values' matrix like that */
        return t[WEIGHT_STATE] && t[WEIGHT_MEMORY] && t[WEIGHT_SCORE] && t[WEIGHT_STATE]->rank == 2 &&
               numbers_of(t[WEIGHT_SCORE]) == t[WEIGHT_STATE]->shape[0];
    if (f->names[WEIGHT_BOTH])
        return t[WEIGHT_BOTH] && t[WEIGHT_SCORE] && t[WEIGHT_BOTH]->rank == 2 &&
               numbers_of(t[WEIGHT_SCORE]) == t[WEIGHT_BOTH]->shape[0];
    if (f->names[WEIGHT_SCORE]) return t[WEIGHT_SCORE] && t[WEIGHT_SCORE]->rank == 2;
    if (f->end == FAMILY_NEEDS_OUTPUT && !no_output && !t[WEIGHT_OUTPUT]) return 0;
    return f->end == FAMILY_ASKS || t[WEIGHT_QKV] || (t[WEIGHT_QUERY] && t[WEIGHT_KEY] && t[WEIGHT_VALUE]);
}

static int is_known(const candidates *list, const attn_archive_tensor *anchor, const char *root)
{
    for (int64_t k = 0; k < list->count; k++)
        if (list->all[k].anchor == anchor || strcmp(list->all[k].root, root) == 0) return 1;
    return 0;
}

static void find_all(candidates *list, const attn_archive *file, const match_request *request)
{
    const char *here = request->prefix ? request->prefix : "";
    for (const layer_family *f = layer_families; f->name; f++) {
        const weight_role role = anchor_of(f);
        if (request->kind && strcmp(request->kind, f->kind) != 0) continue;
        for (int64_t k = 0; k < attn_archive_count(file); k++) {
            const attn_archive_tensor *t = attn_archive_at(file, k);
            int64_t length = root_length(t->name, f->names[role]);
            if (length < 0 && role == WEIGHT_QKV) length = root_length(t->name, f->names[WEIGHT_QUERY]);
            if (length < 0 || length >= MATCH_ROOT) continue;
            candidate one = {.family = f, .anchor = t};
            memcpy(one.root, t->name, (size_t)length);
            if (f->only_here && strcmp(one.root, here) != 0) continue;
            if (is_known(list, t, one.root) || !is_complete(f, file, one.root, request->no_output)) continue;
            list->all[list->count++] = one;
        }
    }
}

/* ---- which of them ---- */

int64_t match_layer(const char *name)
{
    while (*name) {
        const size_t size = strcspn(name, "./");
        size_t digits = 0;
        while (digits < size && name[size - 1 - digits] >= '0' && name[size - 1 - digits] <= '9') digits++;
        if (digits && digits < 10 && (digits == size || name[size - 1 - digits] == '_'))
            return strtoll(name + size - digits, NULL, 10);
        name += size;
        name += *name != 0;
    }
    return -1;
}

static int order(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    const int64_t left = match_layer(x->root), right = match_layer(y->root);
    return left != right ? (left > right) - (left < right) : strcmp(x->root, y->root);
}

/* "layers.0., layers.1., ... (32 in all)" */
static const char *prefixes(candidates *list, char *text, size_t size)
{
    size_t used = 0;
    text[0] = 0;
    if (list->count) qsort(list->all, (size_t)list->count, sizeof *list->all, order);
    for (int64_t k = 0; k < list->count; k++) {
        const size_t more = strlen(list->all[k].root) + 4;
        if (used + more + 24 > size) {
            (void)snprintf(text + used, size - used, "%s... (%" PRId64 " in all)", used ? ", " : "", list->count);
            break;
        }
        used += (size_t)snprintf(text + used, size - used, "%s'%s'", k ? ", " : "", list->all[k].root);
    }
    return text;
}

/* The one that is meant; NULL, with *error filled, if there is not just one. */
static const candidate *choose(candidates *list, const match_request *request, attn_error *error)
{
    char text[130];
    const char *prefix = request->prefix ? request->prefix : "";
    candidates left = {need_memory(list->count, sizeof *left.all), 0};
    const candidate *exact = NULL, *chosen = NULL;
    for (int64_t k = 0; k < list->count; k++) {
        candidate *c = &list->all[k];
        if (strncmp(c->anchor->name, prefix, strlen(prefix)) != 0) continue;
        if (request->layer >= 0 && match_layer(c->root) != request->layer) continue;
        left.all[left.count++] = *c;
        if (strcmp(c->root, prefix) == 0) exact = c;
    }
    for (int64_t k = 0; k < list->count && left.count == 1; k++)
        if (list->all[k].anchor == left.all[0].anchor) chosen = &list->all[k];
    if (exact && request->layer < 0) chosen = exact;
    if (!chosen && left.count) {
        (void)failure(error, ATTN_ERR_ARGUMENT, "weights of %" PRId64 " layers; --prefix=TEXT or --layer=N chooses one: %s",
                      left.count, prefixes(&left, text, sizeof text));
    } else if (!chosen && request->layer >= 0) {
        (void)failure(error, ATTN_ERR_ARGUMENT, "no weights of a layer %" PRId64 "%s%.40s; there are those of %s", request->layer,
                      *prefix ? " after " : "", prefix, prefixes(list, text, sizeof text));
    } else if (!chosen) {
        (void)failure(error, ATTN_ERR_ARGUMENT, "no weights of a layer after the prefix '%.60s'; there are those of %s", prefix,
                      prefixes(list, text, sizeof text));
    }
    free(left.all);
    return chosen;
}

/* ---- names of the user ---- */

static char *trimmed(char *text)
{
    while (isspace((unsigned char)*text)) text++;
    char *end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1])) *--end = 0;
    return text;
}

/* One line, "wq = my.query.weight" or "axes = in out". */
static attn_status read_line(layer_family *f, char *line, const char *path, int number, attn_error *error)
{
    char *equals = strchr(line, '='), known[200] = "";
    if (!equals)
        return failure(error, ATTN_ERR_FORMAT, "%.80s: line %d: expected ROLE = NAME, such as wq = query.weight", path, number);
    *equals = 0;
    const char *role = trimmed(line), *name = trimmed(equals + 1);
    if (strcmp(role, "axes") == 0 && (strcmp(name, "in out") == 0 || strcmp(name, "out in") == 0)) {
        f->axes = *name == 'i' ? FAMILY_IN_OUT : FAMILY_OUT_IN;
        return ATTN_OK;
    }
    for (int r = 0; r < WEIGHT_ROLES; r++) {
        if (strcmp(role, weight_words[r]) == 0) {
            f->names[r] = name;
            return ATTN_OK;
        }
        (void)snprintf(known + strlen(known), sizeof known - strlen(known), "%s ", weight_words[r]);
    }
    return failure(error, ATTN_ERR_FORMAT, "%.30s: line %d: no role '%.12s'; known: %.170s", path, number, role,
                   strcmp(role, "axes") == 0 ? "axes = in out, axes = out in" : trimmed(known));
}

static attn_status read_names(layer_match *match, const char *path, attn_error *error)
{
    layer_family *f = &match->own;
    attn_status status = text_file_read(path, &match->own_text, error);
    *f = (layer_family){.name = "--names", .kind = "multi-head", .end = FAMILY_MAY_END};
    char *next = match->own_text;
    for (int number = 1; status == ATTN_OK && next && *next; number++) {
        char *line = next;
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        line[strcspn(line, "#")] = 0;
        line = trimmed(line);
        if (*line) status = read_line(f, line, path, number, error);
    }
    if (f->names[WEIGHT_STATE] || f->names[WEIGHT_BOTH]) f->kind = "additive";
    else if (f->names[WEIGHT_SCORE]) f->kind = "general";
    const int many = strcmp(f->kind, "multi-head") == 0;
    if (status == ATTN_OK && many && !f->names[WEIGHT_QKV] &&
        !(f->names[WEIGHT_QUERY] && f->names[WEIGHT_KEY] && f->names[WEIGHT_VALUE]))
        status = failure(error, ATTN_ERR_FORMAT, "%.100s: it names neither wqkv nor all of wq, wk and wv", path);
    return status;
}

/* Every name that the user gave must be there. */
static attn_status check_names(const layer_match *match, const attn_archive *file, attn_error *error)
{
    for (int r = 0; r < WEIGHT_ROLES; r++)
        if (match->own.names[r] && !family_find(file, match->root, match->own.names[r]))
            return failure(error, ATTN_ERR_ARGUMENT, "no tensor '%.60s%.100s', which --names gives for %s", match->root,
                           match->own.names[r], weight_words[r]);
    return ATTN_OK;
}

/* ---- the result ---- */

/* Where nothing is found, messages name PyTorch's weights; other kinds read theirs by themselves. */
static const layer_family *fallback(const match_request *request)
{
    const layer_family *f = layer_families;
    while (f->name && f->end != FAMILY_ASKS) f++;
    return request->kind && strcmp(request->kind, f->kind) != 0 ? NULL : f;
}

attn_status match_find(layer_match *match, const attn_archive *file, const match_request *request, attn_error *error)
{
    attn_status status = ATTN_OK;
    *match = (layer_match){0};
    if (request->prefix && strlen(request->prefix) >= MATCH_ROOT)
        return failure(error, ATTN_ERR_ARGUMENT, "--prefix has %zu bytes; at most %d fit", strlen(request->prefix), MATCH_ROOT - 1);
    (void)snprintf(match->root, sizeof match->root, "%s", request->prefix ? request->prefix : "");
    if (request->names_file) {
        status = read_names(match, request->names_file, error);
        if (status == ATTN_OK) status = check_names(match, file, error);
        match->family = &match->own;
    } else {
        candidates list = {need_memory(attn_archive_count(file), sizeof *list.all), 0};
        find_all(&list, file, request);
        const candidate *chosen = list.count ? choose(&list, request, error) : NULL;
        if (list.count && !chosen) status = error->status;
        match->family = chosen ? chosen->family : fallback(request);
        if (chosen) memcpy(match->root, chosen->root, sizeof match->root);
        free(list.all);
    }
    for (int r = 0; status == ATTN_OK && match->family && r < WEIGHT_ROLES; r++)
        match->found[r] = family_find(file, match->root, match->family->names[r]);
    return status;
}

void match_free(layer_match *match) { free(match->own_text); }
