/* SPDX-License-Identifier: MIT
 *
 * input_find.c - which tensors of which files play which role. */
#include "input_find.h"

#include <stdio.h>
#include <string.h>

#include "failure.h"
#include "nearest.h"

static int is_ignored(const input_settings *settings, const char *name)
{
    for (int k = 0; k < settings->ignored_count; k++)
        if (strcmp(settings->ignored[k], name) == 0) return 1;
    return 0;
}

/* A tensor that a flag gives another role is not taken for the role of its name: --bias=mask adds the mask. */
static int is_chosen(const input_settings *settings, const char *name)
{
    for (int r = 0; r < ROLES; r++)
        if (settings->chosen[r] && strcmp(settings->chosen[r], name) == 0) return 1;
    return 0;
}

static int ends_in_npy(const char *name)
{
    size_t length = strlen(name);
    return length > 4 && strcmp(name + length - 4, ".npy") == 0;
}

/* "a, b, c" */
static void list_tensors(const attn_tensors *file, char *text, size_t size)
{
    size_t used = 0;
    text[0] = 0;
    for (int64_t k = 0; k < attn_tensors_count(file); k++) {
        int wrote = snprintf(text + used, size - used, "%s%s", k ? ", " : "", attn_tensors_at(file, k)->name);
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
    for (int64_t k = 0; k < attn_tensors_count(input->file); k++) nearest_offer(&near, attn_tensors_at(input->file, k)->name);
    nearest_print(&near, "", hint, sizeof hint);
    return failure(error, ATTN_ERR_ARGUMENT, "%.100s: no tensor '%.40s'%.80s", input->path, name, hint);
}

static attn_status no_default_tensor(const attention_input *input, tensor_role r, attn_error *error)
{
    if (!input->file)
        return failure(error, ATTN_ERR_ARGUMENT, "no input file for '%s'; give one, or --%s=FILE.npy", roles[r].name,
                       roles[r].flag);
    char names[100];
    list_tensors(input->file, names, sizeof names);
    return failure(error, ATTN_ERR_ARGUMENT, "%.80s: no tensor '%s'; --%s=NAME chooses another (there are: %s)", input->path,
                   roles[r].name, roles[r].flag, names);
}

static attn_status find_chosen(attention_input *input, tensor_role r, const char *name, attn_error *error)
{
    if (ends_in_npy(name) && !(input->file && attn_tensors_find(input->file, name))) {
        attn_status status = attn_tensors_read(&input->single[r], name, error);
        if (status != ATTN_OK) return status;
        if (attn_tensors_count(input->single[r]) != 1)
            return failure(error, ATTN_ERR_FORMAT, "%.150s: a .npy file with one tensor was expected", name);
        input->used[r] = (input_tensor){name, attn_tensors_at(input->single[r], 0)};
        return ATTN_OK;
    }
    if (!input->file)
        return failure(error, ATTN_ERR_ARGUMENT, "no input file has '%.80s'; give the file, or --%s=FILE.npy", name, roles[r].flag);
    input->used[r] = (input_tensor){input->path, attn_tensors_find(input->file, name)};
    return input->used[r].tensor ? ATTN_OK : no_such_tensor(input, name, error);
}

attn_status input_find(attention_input *input, const char *path, const input_settings *settings, int value, attn_error *error)
{
    attn_status status = ATTN_OK;
    input->path = path ? path : settings->chosen[ROLE_Q] ? settings->chosen[ROLE_Q] : "input";
    if (path) status = attn_tensors_read(&input->file, path, error);
    const int op = settings->spec.op, gradients = role_used_by(ROLE_DO, op);
    const int has_w = problem_has_w(&settings->spec);
    for (int r = 0; r < ROLES && status == ATTN_OK; r++) {
        const char *name = settings->chosen[r];
        if ((r == ROLE_V || r == ROLE_RELATIVE_VALUES) && !value) continue;
        if (r == ROLE_OFFSET && settings->spec.offset_kind == SPEC_OFFSET_VALUE && !name) continue; /* --offset=N is said */
        if (r == ROLE_SCALE && settings->spec.has_scale && !name) continue;                         /* --scale=X is said */
        if (r == ROLE_W && !has_w && !name) continue;
        if (r == ROLE_W && !has_w)
            return failure(error, ATTN_ERR_ARGUMENT, "--w is for --score=general, metric and additive: it names their weights");
        if (name && !role_used_by((tensor_role)r, op))
            return failure(error, ATTN_ERR_ARGUMENT, "--%s is a %s, which is for attn run --%s and --double-backward",
                           roles[r].flag, roles[r].ops == ROLE_OP_GRADIENT ? "gradient" : "tangent",
                           roles[r].ops == ROLE_OP_GRADIENT ? "backward" : "jvp");
        if (name) {
            status = find_chosen(input, (tensor_role)r, name, error);
        } else {
            int taken = is_ignored(settings, roles[r].name) || is_chosen(settings, roles[r].name);
            if (input->file && !taken && role_used_by((tensor_role)r, op))
                input->used[r] = (input_tensor){input->path, attn_tensors_find(input->file, roles[r].name)};
            if ((r <= ROLE_V || r == ROLE_W || (r == ROLE_DO && gradients)) && !input->used[r].tensor)
                status = no_default_tensor(input, (tensor_role)r, error);
        }
    }
    return status;
}
