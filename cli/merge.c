/* SPDX-License-Identifier: MIT
 *
 * merge.c - `attn merge`: results over disjoint sets of keys become the result over all of them. */
#include "attn/merge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/io.h"
#include "cli/base/commands.h"
#include "cli/base/file.h"
#include "cli/base/tensor_file.h"
#include "cli/input/input.h"
#include "cli/input/small_tensor.h"
#include "testing/text/failure.h"
#include "testing/text/json.h"

enum { MAX_PARTS = 64 };

static const command_usage usage = {
    .name = "merge",
    .synopsis = "IN... -o OUT [options]",
    .summary = "Merges o and lse of several files, which `attn run --lse` wrote for the same queries over\n"
               "disjoint sets of keys, into those over all keys.\n",
    .notes = "With --backward, one of the files has the gradient do of the whole (and dlse, else 0), and OUT\n"
             "receives those of the parts: do_0, dlse_0, do_1 and so on, in the order of the files.\n"
             "\n"
             "Examples:\n"
             "  attn merge left.safetensors right.safetensors -o whole.safetensors\n",
    .without = "seed",
    .operands = {"input file"},
    .example = "attn merge left.safetensors right.safetensors -o whole.safetensors",
};

typedef struct merge_settings {
    const char *output;
    int backward;
    common_settings common;
} merge_settings;

static const option_row merge_options[] = {
    {"output", 'o', "FILE", "output file: .safetensors or .npz (required)", OUTPUT(merge_settings, output, ".safetensors or .npz"),
     .needed = "output file"},
    {"backward", 0, NULL, "write the gradients of the parts instead; needs do", FLAG(merge_settings, backward)},
    {0},
};

typedef struct merge_work {
    char *const *paths;
    int parts;
    attn_archive *file[MAX_PARTS], *out;
    const attn_archive_tensor *o, *lse; /* of the first part, whose shapes all have */
    attn_input o_parts[MAX_PARTS], lse_parts[MAX_PARTS];
    attn_output grad_o_parts[MAX_PARTS], grad_lse_parts[MAX_PARTS];
    attn_merge_problem problem;
} merge_work;

static int same(const attn_archive_tensor *a, const attn_archive_tensor *b)
{
    return a->dtype == b->dtype && a->rank == b->rank && memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) == 0;
}

/* A tensor that must be like another one. */
static attn_status find_like(const attn_archive *file, const char *name, const attn_archive_tensor *like,
                             const attn_archive_tensor **t, attn_error *error)
{
    char found[SHAPE_TEXT], wanted[SHAPE_TEXT];
    const attn_status status = small_tensor_find(file, name, t, error);
    if (status != ATTN_OK || same(*t, like)) return status;
    return failure(error, ATTN_ERR_SHAPE, "tensor '%s' is %s of %s; the first file has %s of %s", name,
                   shape_text(found, (*t)->rank, (*t)->shape), attn_dtype_name((*t)->dtype),
                   shape_text(wanted, like->rank, like->shape), attn_dtype_name(like->dtype));
}

/* o of at least [token, channel], and lse of the same without channels; the shape as four sizes. */
static attn_status read_first(merge_work *w, attn_error *error)
{
    char text[SHAPE_TEXT];
    attn_status status = small_tensor_find(w->file[0], "o", &w->o, error);
    if (status == ATTN_OK) status = small_tensor_find(w->file[0], "lse", &w->lse, error);
    if (status != ATTN_OK) return status;
    const int rank = w->o->rank;
    if (rank < 2 || w->lse->rank != rank - 1 || memcmp(w->o->shape, w->lse->shape, (size_t)(rank - 1) * sizeof *w->o->shape) != 0)
        return failure(error, ATTN_ERR_SHAPE, "tensor 'lse' is %s; it must be that of o without its last axis",
                       shape_text(text, w->lse->rank, w->lse->shape));
    w->problem = (attn_merge_problem){.struct_size = sizeof w->problem,
                                      .parts = w->parts,
                                      .batch = 1,
                                      .heads = rank > 2 ? w->o->shape[rank - 3] : 1,
                                      .len_q = w->o->shape[rank - 2],
                                      .dim_v = w->o->shape[rank - 1]};
    for (int k = 0; k < rank - 3; k++) w->problem.batch *= w->o->shape[k];
    return ATTN_OK;
}

static attn_status read_parts(merge_work *w, const char *output, attn_error *error)
{
    attn_status status = ATTN_OK;
    for (int p = 0; p < w->parts && status == ATTN_OK; p++) {
        const attn_archive_tensor *o = NULL, *lse = NULL;
        status = file_check_distinct(output, w->paths[p], error);
        if (status == ATTN_OK) status = tensor_file_open(&w->file[p], w->paths[p], NULL, error);
        if (status != ATTN_OK) return status;
        if (p == 0) status = read_first(w, error);
        if (status == ATTN_OK) status = find_like(w->file[p], "o", w->o, &o, error);
        if (status == ATTN_OK) status = find_like(w->file[p], "lse", w->lse, &lse, error);
        if (status != ATTN_OK) return failure_about(error, w->paths[p]);
        w->o_parts[p] = (attn_input){.data = o->data, .dtype = o->dtype};
        w->lse_parts[p] = (attn_input){.data = lse->data, .dtype = lse->dtype};
    }
    return status;
}

static attn_status add(const merge_work *w, const char *name, const attn_archive_tensor *like, attn_output *slot, attn_error *error)
{
    slot->dtype = like->dtype;
    return attn_archive_allocate(w->out, name, like->dtype, like->rank, like->shape, &slot->data, error);
}

static attn_status forward(merge_work *w, const attn_options *options, attn_error *error)
{
    attn_merge_tensors t = {.struct_size = sizeof t, .o_parts = w->o_parts, .lse_parts = w->lse_parts};
    attn_status status = add(w, "o", w->o, &t.o, error);
    if (status == ATTN_OK) status = add(w, "lse", w->lse, &t.lse, error);
    return status == ATTN_OK ? attn_merge(&w->problem, &t, options, error) : status;
}

/* The gradient of this name, of the first file that has it. */
static attn_status find_gradient(const merge_work *w, const char *name, const attn_archive_tensor *like, attn_input *slot,
                                 attn_error *error)
{
    const attn_archive_tensor *t;
    int p = 0;
    while (p < w->parts && !attn_archive_find(w->file[p], name)) p++;
    if (p == w->parts) return ATTN_OK;
    const attn_status status = find_like(w->file[p], name, like, &t, error);
    if (status != ATTN_OK) return failure_about(error, w->paths[p]);
    *slot = (attn_input){.data = t->data, .dtype = t->dtype};
    return ATTN_OK;
}

static attn_status backward(merge_work *w, const attn_options *options, attn_error *error)
{
    attn_merge_tensors t = {.struct_size = sizeof t,
                            .o_parts = w->o_parts,
                            .lse_parts = w->lse_parts,
                            .grad_o_parts = w->grad_o_parts,
                            .grad_lse_parts = w->grad_lse_parts};
    attn_status status = find_gradient(w, "do", w->o, &t.grad_o, error);
    if (status == ATTN_OK && !t.grad_o.data)
        status = failure(error, ATTN_ERR_ARGUMENT, "--backward needs a tensor 'do' in one of the files");
    if (status == ATTN_OK) status = find_gradient(w, "dlse", w->lse, &t.grad_lse, error);
    for (int p = 0; p < w->parts && status == ATTN_OK; p++) {
        char name[24];
        (void)snprintf(name, sizeof name, "do_%d", p);
        status = add(w, name, w->o, &w->grad_o_parts[p], error);
        (void)snprintf(name, sizeof name, "dlse_%d", p);
        if (status == ATTN_OK) status = add(w, name, w->lse, &w->grad_lse_parts[p], error);
    }
    return status == ATTN_OK ? attn_merge_backward(&w->problem, &t, options, error) : status;
}

static char *compose_json(const merge_work *w, const char *output)
{
    cJSON *object = json_begin();
    json_int(object, "parts", w->parts);
    small_tensor_json(w->out, json_list(object, "results"));
    json_text(object, "output", output);
    return json_compose(object);
}

int attn_cmd_merge(int argc, char **argv)
{
    merge_settings settings = {0};
    const option_group groups[] = {{"Output", merge_options, &settings}, {0}};
    merge_work w = {0};
    attn_error error;
    char *json = NULL;
    int operand;
    const int early = options_begin(&usage, groups, &settings.common, argc, argv, MAX_PARTS, &operand);
    if (early >= 0) return early;
    const attn_options options = options_for_library(&settings.common);
    w.paths = argv + operand, w.parts = argc - operand;
    attn_status status = read_parts(&w, settings.output, &error);
    if (status == ATTN_OK) status = attn_archive_create(&w.out, &error);
    if (status == ATTN_OK) status = (settings.backward ? backward : forward)(&w, &options, &error);
    if (status == ATTN_OK && settings.common.json) json = compose_json(&w, settings.output);
    status = file_finish(status, w.out, settings.output, json, &error);
    if (status == ATTN_OK) small_tensor_tell(&settings.common, settings.output);
    for (int p = 0; p < w.parts; p++) attn_archive_destroy(w.file[p]);
    attn_archive_destroy(w.out);
    return command_end(status, usage.name, NULL, &error);
}
