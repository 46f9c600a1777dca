/* SPDX-License-Identifier: MIT
 * conformance.c - finds suites, reads their manifests, runs their cases, prints the results. */
#define _XOPEN_SOURCE 700 /* realpath */
#include "conformance.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "evaluate.h"
#include "fla.h"
#include "hopfield.h"
#include "layer.h"
#include "linear.h"
#include "table.h"
#include "testing/text/failure.h"
#include "testing/text/shown.h"
#include "translate.h"

enum { PATH_CAPACITY = 4096, REASONS = 256, MAX_MANIFEST = 64 << 20 };

/* How often each reason occurred, for the paragraph of a suite. */
typedef struct tally {
    char reason[REASONS][320];
    int64_t count[REASONS];
    int64_t kinds;
} tally;

typedef struct suite {
    const char *name;
    const char *folder;
    const attn_options *options;
    report *report;
    int64_t passed, failed, skipped;
    tally skips;
} suite;

static void count_reason(tally *all, const char *reason)
{
    int64_t i = 0;
    while (i < all->kinds && strcmp(all->reason[i], reason) != 0) i++;
    if (i == REASONS) i--; /* the last kind also counts all further ones */
    if (i == all->kinds) {
        snprintf(all->reason[i], sizeof all->reason[i], "%s", reason);
        all->kinds++;
    }
    all->count[i]++;
}

static void count(suite *s, const char *name, const evaluation *e)
{
    if (e->status == CHECK_PASSED) s->passed++;
    if (e->status == CHECK_FAILED) s->failed++;
    if (e->status == CHECK_SKIPPED) s->skipped++, count_reason(&s->skips, e->reason);
    report_add(s->report, &(report_entry){.suite = s->name,
                                          .name = name,
                                          .problem = e->problem[0] ? e->problem : NULL,
                                          .reason = e->reason,
                                          .status = e->status,
                                          .max_error = e->max_error,
                                          .bound_fraction = e->bound_fraction});
}

static void run_translated(suite *s, evaluation *e, const adapter *rules, const cJSON *json, const attn_archive *tensors)
{
    const int given = cJSON_GetObjectItemCaseSensitive(json, "tolerance") != NULL;
    view_pool pool = {0};
    translation t = {.pool = &pool};
    translate(&t, rules, json, tensors);
    if (t.wrong[0]) conclude(e, CHECK_FAILED, "%s", t.wrong);
    else if (t.skip[0]) conclude(e, CHECK_SKIPPED, "%s", t.skip);
    else
        evaluate(e, &t, tolerance_in(json, "rtol", "rel", given ? 0 : 1e-5), tolerance_in(json, "atol", "abs", given ? 0 : 1e-6),
                 s->options);
    pool_empty(&pool);
}

static void run_case(suite *s, const cJSON *json)
{
    const char *name = text_in(json, "name"), *op = text_in(json, "op"), *file = text_in(json, "file");
    char path[PATH_CAPACITY];
    evaluation e = {.status = CHECK_PASSED};
    attn_archive *tensors = NULL;
    attn_error error;
    if (!name[0] || !op[0] || !file[0]) {
        conclude(&e, CHECK_FAILED, "the manifest has no name, op or file for this case");
        count(s, name[0] ? name : "?", &e);
        return;
    }
    const adapter *rules = adapter_find(s->name, op);
    const int linear = linear_case_is(s->name, json), table = table_case_is(s->name, op),
              hopfield = hopfield_case_is(s->name, json), layer = layer_case_is(s->name, op), fla = fla_case_is(s->name, json);
    if (!rules && !linear && !table && !hopfield && !layer && !fla) {
        const char *what = adapter_missing(s->name, op);
        conclude(&e, CHECK_SKIPPED, "operation %.60s: %s%s", op, what ? "not attention over dot products: " : "not covered",
                 what ? what : "");
    } else if (strchr(file, '/') || snprintf(path, sizeof path, "%s/%s", s->folder, file) >= (int)sizeof path) {
        conclude(&e, CHECK_FAILED, "the file's name is too long or leaves the directory");
    } else if (attn_archive_read(&tensors, path, &error) != ATTN_OK) {
        end_if_out_of_memory(&error);
        conclude(&e, CHECK_FAILED, "%s", error.message);
    } else if (fla) {
        fla_case_evaluate(&e, json, tensors, s->options);
    } else if (hopfield) {
        hopfield_case_evaluate(&e, json, tensors);
    } else if (linear) {
        linear_case_evaluate(&e, s->name, json, tensors, s->options);
    } else if (layer) {
        layer_case_evaluate(&e, s->name, json, tensors, s->options);
    } else if (table) {
        table_case_evaluate(&e, s->name, json, tensors);
    } else {
        run_translated(s, &e, rules, json, tensors);
    }
    attn_archive_destroy(tensors);
    count(s, name, &e);
}

static void print_skips(const tally *all)
{
    for (int64_t i = 0; i < all->kinds; i++) {
        printf("    %lld skipped: ", (long long)all->count[i]);
        put_shown(stdout, all->reason[i]);
        putchar('\n');
    }
}

static char *read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    char *text = NULL;
    long size = -1;
    if (fseek(file, 0, SEEK_END) == 0) size = ftell(file);
    if (size >= 0 && size <= MAX_MANIFEST && fseek(file, 0, SEEK_SET) == 0) {
        text = need_memory(size + 1, 1);
        if (fread(text, 1, (size_t)size, file) != (size_t)size) free(text), text = NULL;
    }
    fclose(file);
    return text;
}

/* Runs a suite.  Returns 0 if the folder is not one: it has no manifest.json.  A broken manifest is a failed case. */
static int run_suite(const char *folder, const char *name, const attn_options *options, report *results)
{
    char path[PATH_CAPACITY];
    if (snprintf(path, sizeof path, "%s/manifest.json", folder) >= (int)sizeof path) return 0;
    char *text = read_text(path);
    if (!text) return 0;
    cJSON *json = cJSON_Parse(text);
    const cJSON *cases = cJSON_GetObjectItemCaseSensitive(json, "cases"), *item;
    suite *s = need_memory(1, sizeof *s);
    *s = (suite){.name = text_in(json, "suite"), .folder = folder, .options = options, .report = results};
    if (!s->name[0]) s->name = name;
    if (!cJSON_IsArray(cases)) {
        evaluation e = {0};
        conclude(&e, CHECK_FAILED, "manifest.json is not JSON with a list of cases");
        count(s, "manifest.json", &e);
    }
    cJSON_ArrayForEach(item, cases) run_case(s, item);
    if (!results->object) { /* for people */
        put_shown(stdout, s->name);
        printf(": %lld passed, %lld failed, %lld skipped\n", (long long)s->passed, (long long)s->failed, (long long)s->skipped);
        print_skips(&s->skips);
        fflush(stdout);
    }
    free(s);
    cJSON_Delete(json);
    free(text);
    return 1;
}

static int is_folder_entry(const struct dirent *entry) { return entry->d_name[0] != '.'; }

attn_status conformance_run(const char *folder, const attn_options *options, report *results, attn_error *error)
{
    char path[PATH_CAPACITY], resolved[PATH_CAPACITY];
    struct dirent **entries;
    struct stat about;
    if (stat(folder, &about) != 0 || !S_ISDIR(about.st_mode))
        return failure(error, ATTN_ERR_ARGUMENT, "%.180s is not a directory of suites", folder);
    /* The suite has the folder's own name, even if the folder is given as "." */
    if (snprintf(path, sizeof path, "%s", folder) >= (int)sizeof path) path[0] = 0;
    char *real = realpath(folder, NULL);
    snprintf(resolved, sizeof resolved, "%s", real ? real : folder);
    free(real);
    const char *base = strrchr(resolved, '/');
    if (run_suite(folder, base && base[1] ? base + 1 : resolved, options, results)) return ATTN_OK;

    int suites = 0;
    const int count = scandir(folder, &entries, is_folder_entry, alphasort);
    for (int i = 0; i < count; i++) {
        if (snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name) < (int)sizeof path)
            suites += run_suite(path, entries[i]->d_name, options, results);
        free(entries[i]);
    }
    if (count >= 0) free(entries);
    if (suites) return ATTN_OK;
    return failure(error, ATTN_ERR_ARGUMENT, "%.120s holds no suite: no manifest.json in it or its subdirectories", folder);
}
