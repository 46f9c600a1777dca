/* SPDX-License-Identifier: MIT
 * summary.c - see summary.h. */
#include "summary.h"

#include <inttypes.h>
#include <stdio.h>

#include "cli/base/commands.h"
#include "cli/base/file.h"
#include "cli/input/difference.h"
#include "cli/input/labels.h"
#include "cli/input/listed.h"
#include "testing/problem/linear_tensors.h"
#include "testing/text/failure.h"

/* The results of --compare. */
typedef struct differences {
    difference list[TENSORS];
    int count;
} differences;

static attn_status add_tokens(const run_summary *done, attn_error *error)
{
    labels l;
    attn_status status = labels_read(&l, done->input, done->tokens, error);
    if (status == ATTN_OK) status = labels_write(done->out, l.list, l.lists, error);
    labels_free(&l);
    return status;
}

static attn_status add_metadata(const run_summary *done, const char *problem, attn_error *error)
{
    const attention_input *input = done->input;
    attn_archive *out = done->out;
    attn_status status = ATTN_OK;
    for (int64_t k = 0; input->file && k < attn_archive_metadata_count(input->file) && status == ATTN_OK; k++) {
        const attn_metadata *entry = attn_archive_metadata_at(input->file, k);
        status = attn_archive_set_metadata(out, entry->key, entry->value, error);
    }
    if (status == ATTN_OK && done->tokens) status = add_tokens(done, error);
    if (status == ATTN_OK) status = attn_archive_set_metadata(out, "attn_version", attn_version(), error);
    if (status == ATTN_OK) status = attn_archive_set_metadata(out, "attn_problem", problem, error);
    if (status == ATTN_OK) status = attn_archive_set_metadata(out, "attn_kernel", done->kernel, error);
    return status;
}

static attn_status compare_results(const run_summary *done, differences *found, attn_error *error)
{
    const attention_input *input = done->input;
    if (!input->file)
        return failure(error, ATTN_ERR_ARGUMENT, "--compare needs an input file that has the tensors to compare with");
    attn_status status = differences_find(done->out, input->file, found->list, &found->count, error);
    if (status != ATTN_OK) failure_about(error, input->path);
    return status;
}

static int is_used(const void *summary, const attn_archive_tensor *tensor)
{
    const run_summary *r = summary;
    for (int role = 0; role < ROLES; role++)
        if (r->input->used[role].in_file == tensor) return 1;
    for (int t = 0; r->linear && t < LINEARS; t++)
        if (r->linear[t] == tensor) return 1;
    return 0;
}

static char *compose_json(const run_summary *done, const char *problem, const differences *found)
{
    const attention_input *input = done->input;
    cJSON *object = json_begin();
    json_text(object, "input", input->path);
    json_text(object, "output", done->output);
    command_json_warnings(object);
    cJSON *used = json_list(object, "used");
    for (int r = 0; r < ROLES; r++)
        if (input->used[r].in_file) listed_json(used, role_name(r), input->used[r].in_file);
    for (int t = 0; done->linear && t < LINEARS; t++)
        if (done->linear[t]) listed_json(used, linear_file_name(t), done->linear[t]);
    listed_unused_json(json_list(object, "unused"), input->file, is_used, done);
    cJSON *written = json_list(object, "written");
    for (int64_t k = 0; k < attn_archive_count(done->out); k++) listed_json(written, NULL, attn_archive_at(done->out, k));
    json_text(object, "version", attn_version());
    json_text(object, "problem", problem);
    json_text(object, "kernel", done->kernel);
    json_number(object, "seconds", done->seconds);
    for (const summary_fact *f = done->facts; f && f->name; f++)
        if (f->text) json_text(object, f->name, f->text);
        else json_int(object, f->name, f->number);
    cJSON *list = found->count ? json_list(object, "differences") : NULL;
    for (int d = 0; d < found->count; d++) {
        cJSON *item = json_item(list);
        json_text(item, "name", found->list[d].name);
        json_number(item, "largest", found->list[d].largest);
    }
    return json_compose(object);
}

static void print_text(const run_summary *done, const char *problem)
{
    const attention_input *input = done->input;
    for (int r = 0; r < ROLES; r++)
        if (input->used[r].in_file) listed_print("used", role_name(r), input->used[r].in_file, input->used[r].path);
    for (int t = 0; done->linear && t < LINEARS; t++)
        if (done->linear[t]) listed_print("used", linear_file_name(t), done->linear[t], input->path);
    listed_unused_print(input->file, is_used, done);
    printf("problem %s\nkernel  %s, %.3g ms\n", problem, done->kernel, 1e3 * done->seconds);
    for (const summary_fact *f = done->facts; f && f->name; f++)
        if (f->text) printf("%-8s%s\n", f->name, f->text);
        else printf("%-8s%" PRId64 "\n", f->name, f->number);
    for (int64_t k = 0; k < attn_archive_count(done->out); k++)
        listed_print("wrote", NULL, attn_archive_at(done->out, k), done->output);
}

static void print_differences(const run_summary *done, const differences *found)
{
    for (int d = 0; d < found->count; d++) {
        const difference *one = &found->list[d];
        char index[SHAPE_TEXT];
        int rank = attn_archive_find(done->out, one->name)->rank;
        printf("compare %-11s largest difference %.2g at %s\n", one->name, one->largest, shape_text(index, rank, one->index));
    }
}

/* The problem as a string; its spec has the type of q alone, which k and v may not share. */
static void print_problem(const attention_input *input, char *text, size_t size)
{
    static const int stored[] = {
        [ATTN_F32] = SPEC_STORED_F32, [ATTN_F16] = SPEC_STORED_F16, [ATTN_BF16] = SPEC_STORED_BF16, [ATTN_I8] = SPEC_STORED_I8};
    problem_spec spec = input->spec;
    const attn_dtype q = tensors_dtype(&input->tensors, TENSOR(q));
    for (int t = TENSOR(k); t <= TENSOR(v) && !spec.linear && spec.dtype != SPEC_INT8; t++) {
        const attn_dtype own = tensors_dtype(&input->tensors, t);
        if (own == q || !tensors_has(&input->tensors, t) || (size_t)own >= sizeof stored / sizeof *stored) continue;
        *(t == TENSOR(k) ? &spec.k_type : &spec.v_type) = stored[own];
    }
    problem_print(&spec, text, size);
}

attn_status summary_finish(const run_summary *done, int compare, const common_settings *common, int tells, attn_error *error)
{
    differences found = {.count = 0};
    char problem[512];
    print_problem(done->input, problem, sizeof problem);
    attn_status status = compare ? compare_results(done, &found, error) : ATTN_OK;
    if (status == ATTN_OK) status = add_metadata(done, problem, error);
    char *json = status == ATTN_OK && common->json ? compose_json(done, problem, &found) : NULL;
    status = file_finish(status, done->out, done->output, json, error);
    if (status != ATTN_OK) return status;
    if (tells) print_text(done, problem);
    if (!common->json) print_differences(done, &found);
    return ATTN_OK;
}
