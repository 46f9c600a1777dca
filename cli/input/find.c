/* SPDX-License-Identifier: MIT
 *
 * find.c - which tensors of which files play which role. */
#include "find.h"

#include <stdio.h>
#include <string.h>

#include "cli/base/file.h"
#include "cli/base/numbers.h"
#include "cli/base/tensor_file.h"
#include "testing/text/failure.h"
#include "testing/text/nearest.h"

static int is_among(const char *const *list, const char *name)
{
    while (*list && strcmp(*list, name) != 0) list++;
    return *list != NULL;
}

const attn_archive_tensor *input_named(const attn_archive *file, const char *const *ignored, const char *name, const char *slot)
{
    const attn_archive_tensor *t = is_among(ignored, name) ? NULL : attn_archive_find(file, name);
    return t || is_among(ignored, slot) ? t : attn_archive_find(file, slot);
}

/* The role that a flag gives a tensor, -1: none.  It does not also play the role of its name: --bias=mask adds the mask. */
static int chosen_role(const input_settings *settings, const char *name)
{
    int r = 0;
    while (r < ROLES && !(settings->chosen[r] && strcmp(settings->chosen[r], name) == 0)) r++;
    return r < ROLES ? r : -1;
}

static int is_chosen(const input_settings *settings, const char *name) { return chosen_role(settings, name) >= 0; }

/* The file that the value of a flag names instead of a tensor: "@FILE", "-", or one that ends as a file of one tensor; NULL: none.
 */
static const char *other_file(const char *value)
{
    const size_t length = strlen(value);
    const int npy = length > 4 && strcmp(value + length - 4, ".npy") == 0;
    if (value[0] == '@') return value + 1;
    return npy || is_text_name(value) || strcmp(value, "-") == 0 ? value : NULL;
}

/* The flag by which a role was given, with its dashes. */
static const char *flag_of(const input_settings *settings, int r)
{
    static char flags[ROLES][40];
    snprintf(flags[r], sizeof flags[r], "--%s", settings->by_file[r] && r <= TENSOR(v) ? role_name(r) : role_flag(r));
    return flags[r];
}

void input_list(const attn_archive *file, char *text, size_t size)
{
    size_t used = 0;
    text[0] = 0;
    for (int64_t k = 0; k < attn_archive_count(file); k++) {
        int wrote = snprintf(text + used, size - used, "%s%s", k ? ", " : "", attn_archive_at(file, k)->name);
        if (wrote < 0 || (size_t)wrote >= size - used) {
            snprintf(text + (used < size - 6 ? used : size - 6), 6, ", ...");
            return;
        }
        used += (size_t)wrote;
    }
}

static attn_status no_such_tensor(const attention_input *input, const char *name, attn_error *error)
{
    char hint[120];
    nearest near;
    nearest_init(&near, name);
    for (int64_t k = 0; k < attn_archive_count(input->file); k++) nearest_offer(&near, attn_archive_at(input->file, k)->name);
    nearest_print(&near, "", hint, sizeof hint);
    return failure(error, ATTN_ERR_ARGUMENT, "%.100s: no tensor '%.40s'%.80s", input->path, name, hint);
}

static attn_status no_default_tensor(const attention_input *input, const input_settings *settings, int r, attn_error *error)
{
    const char *own[] = {role_name(r), r < TENSORS ? tensors_about(r)->name : role_name(r)};
    if (!input->file)
        return failure(error, ATTN_ERR_ARGUMENT, "no input file for '%s'; give one, or --%s=FILE.npy", role_name(r), role_flag(r));
    for (int n = 0; n < 2; n++) {
        if (!attn_archive_find(input->file, own[n])) continue;
        const int other = chosen_role(settings, own[n]);
        if (other < 0)
            return failure(error, ATTN_ERR_ARGUMENT, "%.80s: --ignore=%s leaves tensor '%s' out; --%s=NAME chooses another",
                           input->path, own[n], own[n], role_flag(r));
        return failure(error, ATTN_ERR_ARGUMENT, "%.80s: tensor '%s' is used as %s; --%s=%s uses it as %s too", input->path, own[n],
                       role_name(other), role_flag(r), own[n], role_name(r));
    }
    char names[100];
    input_list(input->file, names, sizeof names);
    return failure(error, ATTN_ERR_ARGUMENT, "%.80s: no tensor '%s'; --%s=NAME chooses another (available: %s)", input->path,
                   role_name(r), role_flag(r), names);
}

/* How numbers of text are read: with all their digits if they are wanted. */
static tensor_text text_of(const input_settings *settings, const char *name)
{
    return (tensor_text){name, settings->has_dtype && settings->spec.dtype == SPEC_F64 ? ATTN_F64 : ATTN_F32, 0};
}

/* 1 for numbers; 0 for the name of a tensor, which begins like one if it is that of a layer: 0.weight. */
static int is_numbers(const attention_input *input, const char *value)
{
    const int may_be_name = input->file && !value[strcspn(value, " ,;[")];
    return numbers_begin(value) && !(may_be_name && strpbrk(value, "_abcdfghijklmopqrstuvwxyz"));
}

/* A file of which some rows are used is mapped: the others are never read. */
static attn_status open_file(attn_archive **file, const char *path, const char *name, const input_settings *settings, int *in_rows,
                             attn_error *error)
{
    tensor_text how = text_of(settings, name);
    const int text = strcmp(path, "-") == 0 || is_text_name(path);
    if (settings->choose && strcmp(path, "-") == 0)
        return failure(error, ATTN_ERR_ARGUMENT, "-: each process would read standard input; give a file");
    if (settings->choose && !text) return attn_archive_map(file, path, error);
    const attn_status status = tensor_file_open(file, path, &how, error);
    *in_rows = how.in_rows;
    return status;
}

/* The shape of a tensor that was rows of text, by what its role has: one row of a matrix is [1, n], a column of a vector [n]. */
static void fit_rows(const attn_archive_tensor *tensor, int r)
{
    attn_archive_tensor *t = (attn_archive_tensor *)(uintptr_t)tensor; /* of an archive of our own */
    const attn_axis *axes = r < TENSORS ? tensors_about(r)->axes : NULL;
    const int matrix = axes && axes[2] != ATTN_AXIS_ONE && axes[3] != ATTN_AXIS_ONE;
    if (matrix && t->rank == 1) {
        t->shape[1] = t->shape[0];
        t->shape[0] = 1;
        t->rank = 2;
    } else if (!matrix && t->rank == 2 && (t->shape[0] == 1 || t->shape[1] == 1)) {
        t->shape[0] *= t->shape[1];
        t->rank = 1;
    }
}

/* The tensor of a file beside the input: the only one, or that with the name of the role. */
static attn_status find_single(attention_input *input, int r, const char *path, int in_rows, attn_error *error)
{
    const attn_archive *file = input->single[r];
    const attn_archive_tensor *t = attn_archive_count(file) == 1 ? attn_archive_at(file, 0) : attn_archive_find(file, role_name(r));
    if (!t)
        return failure(error, ATTN_ERR_ARGUMENT, "%.150s: %lld tensors, none of which is '%s'; a file with one tensor was expected",
                       path, (long long)attn_archive_count(file), role_name(r));
    if (in_rows) fit_rows(t, r);
    input->used[r] = (input_tensor){.path = path, .tensor = t};
    return ATTN_OK;
}

static attn_status find_chosen(attention_input *input, const input_settings *settings, int r, const char *name, attn_error *error)
{
    const char *path = other_file(name);
    int in_rows = 0;
    input->used[r] = (input_tensor){.path = input->path, .tensor = input->file ? attn_archive_find(input->file, name) : NULL};
    if (input->used[r].tensor) return ATTN_OK;
    if (path) {
        const attn_status status = open_file(&input->single[r], path, role_name(r), settings, &in_rows, error);
        return status == ATTN_OK ? find_single(input, r, path, in_rows, error) : status;
    }
    if (is_numbers(input, name)) {
        tensor_text how = text_of(settings, role_name(r));
        const attn_status status = tensor_text_read(&input->single[r], flag_of(settings, r), name, &how, error);
        return status == ATTN_OK ? find_single(input, r, flag_of(settings, r), how.in_rows, error) : status;
    }
    if (!input->file)
        return failure(error, ATTN_ERR_ARGUMENT,
                       "no input file has '%.80s'; give the file, --%s=FILE.npy, or numbers: --%s='1 0; 0 1'", name, role_flag(r),
                       role_flag(r));
    return no_such_tensor(input, name, error);
}

/* `lengths`, the name in linear attention: how many keys are real, for a file without lengths_kv that is not packed. */
static const attn_archive_tensor *find_lengths(const attention_input *input, const input_settings *settings)
{
    const char *packed = role_name(TENSOR(cu_seqlens_kv));
    const int is_packed =
        settings->chosen[TENSOR(cu_seqlens_kv)] || input_named(input->file, settings->ignored, packed, packed) != NULL;
    return is_packed || is_chosen(settings, "lengths") ? NULL : input_named(input->file, settings->ignored, "lengths", "lengths");
}

/* The tensor with one of the names of role r, unless a flag gives it another role. */
static const attn_archive_tensor *find_named(const attention_input *input, const input_settings *settings, int r)
{
    const char *name = role_name(r), *slot = r < TENSORS ? tensors_about(r)->name : name;
    if (is_chosen(settings, name)) name = slot;
    if (is_chosen(settings, slot)) slot = name;
    const attn_archive_tensor *found = is_chosen(settings, name) ? NULL : input_named(input->file, settings->ignored, name, slot);
    return found || r != TENSOR(lengths_kv) ? found : find_lengths(input, settings);
}

attn_status input_refuse(const attn_archive *file, const char *const *ignored, const char *name, attn_error *error)
{
    if (!file || is_among(ignored, name) || !attn_archive_find(file, name)) return ATTN_OK;
    return failure(error, ATTN_ERR_UNSUPPORTED, "tensor '%s': the command has no option for it; --ignore=%s leaves it out", name,
                   name);
}

/* Of what the library reads, all that no flag names: a page table, say, without which the result is another. */
static attn_status refuse_others(const attention_input *input, const input_settings *settings, attn_error *error)
{
    attn_status status = ATTN_OK;
    for (int t = 0; t < TENSORS && status == ATTN_OK; t++) {
        const char *name = tensors_about(t)->name;
        if (role_without_flag(t) && !is_chosen(settings, name)) status = input_refuse(input->file, settings->ignored, name, error);
    }
    return status == ATTN_OK ? status : failure_about(error, input->path);
}

attn_status input_find(attention_input *input, const char *path, const input_settings *settings, int value, attn_error *error)
{
    attn_status status = ATTN_OK;
    int in_rows = 0;
    const char *q = settings->chosen[TENSOR(q)];
    input->path = path ? path : !q ? "input" : other_file(q) ? other_file(q) : numbers_begin(q) ? flag_of(settings, TENSOR(q)) : q;
    if (path) status = open_file(&input->file, path, NULL, settings, &in_rows, error);
    if (status == ATTN_OK) status = refuse_others(input, settings, error);
    const int op = settings->spec.op, gradients = role_used_by(TENSOR(grad_o), op);
    const int has_w = problem_has_w(&settings->spec);
    for (int r = 0; r < ROLES && status == ATTN_OK; r++) {
        const char *name = settings->chosen[r];
        const int gradient = r == TENSOR(grad_o) || r == TENSOR(grad_lse);
        if (!role_flag(r)) continue;
        if ((r == TENSOR(v) || r == TENSOR(relative_values)) && !value) {
            if (name)
                status = find_chosen(input, settings, r, name, error); /* the third of three .npy files: it must exist, no more */
            input->used[r] = (input_tensor){.path = NULL};
            continue;
        }
        if (r == TENSOR(offset_q) && settings->spec.offset_kind == SPEC_OFFSET_VALUE && !name) continue; /* --offset=N is given */
        if (r == TENSOR(scale) && settings->spec.has_scale && !name) continue;                           /* --scale=X is given */
        if (r == TENSOR(score_matrix) && !has_w && !name) continue;
        if (r == TENSOR(score_matrix) && !has_w)
            return failure(error, ATTN_ERR_ARGUMENT, "--w is for --score=general, metric and additive: it names their weights");
        if (name && !role_used_by(r, op))
            return failure(error, ATTN_ERR_ARGUMENT, "--%s is a %s, which is for attn run --%s and --double-backward", role_flag(r),
                           gradient ? "gradient" : "tangent", gradient ? "backward" : "jvp");
        if (name) {
            status = find_chosen(input, settings, r, name, error);
        } else {
            if (input->file && role_used_by(r, op))
                input->used[r] = (input_tensor){.path = input->path, .tensor = find_named(input, settings, r)};
            if (in_rows && input->used[r].tensor) fit_rows(input->used[r].tensor, r);
            if ((r <= TENSOR(v) || r == TENSOR(score_matrix) || (r == TENSOR(grad_o) && gradients)) && !input->used[r].tensor)
                status = no_default_tensor(input, settings, r, error);
        }
    }
    return status;
}

attn_status input_check_output(const attention_input *input, const char *output, attn_error *error)
{
    attn_status status = file_check_distinct(output, input->tokens, error);
    if (status == ATTN_OK && input->file) status = file_check_distinct(output, input->path, error);
    for (int r = 0; r < ROLES && status == ATTN_OK; r++)
        if (input->used[r].tensor) status = file_check_distinct(output, input->used[r].path, error);
    return status;
}
