/* SPDX-License-Identifier: MIT
 * slice.c - parts of tensors, in NumPy's notation. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "show.h"
#include "testing/text/failure.h"

selection selection_of(const char *word, const attn_archive *file)
{
    selection s = {word, NULL, ""};
    const size_t name = word ? strcspn(word, "[") : 0;
    if (!word) return s;
    const int whole = !word[name] || attn_archive_find(file, word);
    s.name = need_text(word, whole ? strlen(word) : name);
    if (!whole) s.slice = word + name;
    return s;
}

static const char *skip_blanks(const char *at) { return at + strspn(at, " "); }

/* Reads an integer, if one is there; returns 0 if it is beyond 64 bits. */
static int read_integer(const char **at, int64_t *value, int *is_there)
{
    char *end;
    *at = skip_blanks(*at);
    errno = 0;
    *value = strspn(*at, "-0123456789") ? strtoll(*at, &end, 10) : 0;
    *is_there = strspn(*at, "-0123456789") && end != *at;
    if (*is_there) *at = skip_blanks(end);
    return errno == 0;
}

static int64_t clamp(int64_t i, int64_t size)
{
    if (i < 0) i += size;
    return i < 0 ? 0 : i < size ? i : size;
}

/* One part of a slice cuts an axis, or with an index removes it: *kept is the number of axes that remain. */
static attn_status cut_axis(tensor_view *v, const tensor_view *from, int axis, int *kept, const char **at, const char *slice,
                            attn_error *error)
{
    int64_t part[3] = {0, from->shape[axis], 1};
    int is_there[3] = {0, 0, 0}, parts = 0, fits = 1;
    for (; parts < 3; parts++) {
        int64_t value;
        fits &= read_integer(at, &value, &is_there[parts]);
        if (is_there[parts]) part[parts] = value;
        if (**at != ':') break;
        (*at)++;
    }
    if (parts == 3 || (**at != ',' && **at != ']') || (parts == 0 && !is_there[0]) || !fits)
        return failure(error, ATTN_ERR_ARGUMENT, "'%.40s' is not an index, or a range such as 0:4 or ::2", slice);
    if (parts == 0) {
        const int64_t i = part[0] < 0 ? part[0] + from->shape[axis] : part[0];
        if (i < 0 || i >= from->shape[axis])
            return failure(error, ATTN_ERR_ARGUMENT, "'%.40s': index %lld of axis %d, which has %lld elements", slice,
                           (long long)part[0], axis, (long long)from->shape[axis]);
        v->first += i * from->step[axis];
        return ATTN_OK;
    }
    if (part[2] < 1) return failure(error, ATTN_ERR_ARGUMENT, "'%.40s': a step is at least 1, not %lld", slice, (long long)part[2]);
    const int64_t first = clamp(part[0], from->shape[axis]), end = clamp(part[1], from->shape[axis]);
    v->shape[*kept] = end > first ? (end - first - 1) / part[2] + 1 : 0;
    v->step[*kept] = v->shape[*kept] > 1 ? from->step[axis] * part[2] : from->step[axis]; /* a step may be any number */
    v->first += first * from->step[axis];
    (*kept)++;
    return ATTN_OK;
}

static void keep_axis(tensor_view *v, const tensor_view *from, int axis, int *kept)
{
    v->shape[*kept] = from->shape[axis];
    v->step[(*kept)++] = from->step[axis];
}

/* The axes that the parts after "..." are for. */
static int parts_after(const char *at)
{
    int parts = 0;
    for (; *at && *at != ']'; at++) parts += *at == ',';
    return parts;
}

attn_status slice_view(tensor_view *v, const char *slice, attn_error *error)
{
    const tensor_view from = *v;
    const char *at = slice + 1;
    int axis = 0, kept = 0, dots = 0;
    attn_status status = ATTN_OK;
    if (!*slice) return ATTN_OK;
    v->dense = 0;
    if (strchr(slice, ']') != slice + strlen(slice) - 1)
        return failure(error, ATTN_ERR_ARGUMENT, "'%.40s' does not end in its ']'", slice);
    while (status == ATTN_OK) {
        at = skip_blanks(at);
        if (strncmp(at, "...", 3) == 0) {
            at = skip_blanks(at + 3);
            if (dots++) return failure(error, ATTN_ERR_ARGUMENT, "'%.40s' has '...' more than once", slice);
            for (const int end = from.rank - parts_after(at); axis < end; axis++) keep_axis(v, &from, axis, &kept);
            if (*at != ',' && *at != ']') return failure(error, ATTN_ERR_ARGUMENT, "'%.40s': a comma follows '...'", slice);
        } else {
            if (axis >= from.rank)
                return failure(error, ATTN_ERR_ARGUMENT, "'%.40s' has more parts than the tensor has axes, %d", slice, from.rank);
            status = cut_axis(v, &from, axis++, &kept, &at, slice, error);
        }
        if (status == ATTN_OK && *at++ == ']') break;
    }
    for (; axis < from.rank && status == ATTN_OK; axis++) keep_axis(v, &from, axis, &kept);
    v->rank = kept;
    return status;
}
