/* SPDX-License-Identifier: MIT
 *
 * train.c - `attn train`: small models learn to copy, to reverse, or to predict a text. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/commands.h"
#include "cli/base/file.h"
#include "cli/base/progress.h"
#include "testing/text/failure.h"
#include "testing/text/json.h"
#include "testing/text/nearest.h"
#include "testing/text/shown.h"
#include "train.h"

static const train_task *const tasks[] = {&train_copy, &train_reverse, &train_seq2seq, &train_text};
enum { TASKS = sizeof tasks / sizeof *tasks, MAX_STEPS = 10000000 };

static const char *task_name(int n) { return n < TASKS ? tasks[n]->name : NULL; }

static void print_tasks(void)
{
    printf("\nTasks:\n");
    for (int k = 0; k < TASKS; k++) printf("  %-8s %s (%" PRId64 " steps)\n", tasks[k]->name, tasks[k]->help, tasks[k]->steps);
}

static const command_usage usage = {
    .name = "train",
    .synopsis = "TASK [FILE] [-o OUT] [options]",
    .summary = "Trains a small model with the library's attention and its gradients, and tests it on what\n"
               "it has not seen. The same seed gives the same bits, for any number of threads.\n",
    .notes = "OUT receives the parameters by name, the optimizer's moment1 and moment2, the loss of each\n"
             "step, and the weights of attention over a held-out sequence. `attn plot loss OUT` draws the\n"
             "curve, `attn plot heads OUT` the heads, and `attn view OUT` a page; `attn layer` runs a\n"
             "trained layer with --weights-file=OUT --prefix=blocks.0. .\n"
             "\n"
             "Examples:\n"
             "  attn train copy -o copy.safetensors\n"
             "  attn train text book.txt --steps=500 -o half.safetensors\n"
             "  attn train text book.txt --resume=half.safetensors -o whole.safetensors\n",
    .more = print_tasks,
    .word = task_name,
    .operands = {"task"},
    .example = "attn train copy -o copy.safetensors",
};

typedef struct train_settings {
    const char *output, *resume;
    int64_t steps, save_every;
    common_settings common;
} train_settings;

static const option_row train_options[] = {
    {"output", 'o', "FILE", "output file: .safetensors or .npz", OUTPUT(train_settings, output, ".safetensors or .npz")},
    {"steps", 0, "N", "steps in all, with those of --resume (default: the task's)", WHOLE(train_settings, steps, 1, MAX_STEPS)},
    {"resume", 0, "FILE", "go on from an OUT, as if never interrupted", TEXT(train_settings, resume)},
    {"save-every", 0, "N", "write OUT after every N steps too", WHOLE(train_settings, save_every, 1, MAX_STEPS)},
    {0},
};

/* ---- before the first step ---- */

static attn_status find_task(const char *name, const train_task **found, attn_error *error)
{
    char hint[120];
    nearest near;
    nearest_init(&near, name);
    for (int k = 0; k < TASKS; k++) {
        *found = tasks[k];
        if (strcmp(name, tasks[k]->name) == 0) return ATTN_OK;
        nearest_offer(&near, tasks[k]->name);
    }
    nearest_print(&near, "", hint, sizeof hint);
    return failure(error, ATTN_ERR_ARGUMENT, "unknown task '%.40s'%s; `attn train --help` lists them", name, hint);
}

static attn_status check_arguments(const train_task *task, const char *path, const train_settings *s, attn_error *error)
{
    if (task->reads && !path)
        return failure(error, ATTN_ERR_ARGUMENT, "no text; for example: attn train text book.txt -o book.safetensors");
    if (!task->reads && path)
        return failure(error, ATTN_ERR_ARGUMENT, "unexpected argument '%.80s'; %s draws its own sequences", path, task->name);
    const int to_file = s->output && !s->common.prints_numbers;
    if (s->save_every && !to_file) return failure(error, ATTN_ERR_ARGUMENT, "--save-every has no effect without -o FILE");
    attn_status status = to_file ? file_check(s->output, error) : ATTN_OK;
    return status == ATTN_OK ? file_check_distinct(s->output, path, error) : status;
}

/* Makes the model: a new one, or that of --resume. */
static attn_status prepare(trainee *t, const train_settings *s, attn_error *error)
{
    attn_archive *file = NULL;
    int64_t done = 0;
    t->steps = s->steps ? s->steps : t->task->steps;
    t->seed = t->random = t->common->seed;
    t->options = options_for_library(t->common);
    attn_status status = s->resume ? attn_archive_read(&file, s->resume, error) : ATTN_OK;
    if (status != ATTN_OK) return status; /* the message names the file */
    if (s->resume) status = train_peek(t, file, &done, error);
    if (status == ATTN_OK && s->resume && done >= t->steps)
        status = failure(error, ATTN_ERR_ARGUMENT, "has %" PRId64 " steps already; --steps must be more", done);
    const int peeked = status == ATTN_OK;
    if (status == ATTN_OK) status = t->task->begin(t, error);
    const int begun = status == ATTN_OK;
    t->losses = need_memory(t->steps, sizeof *t->losses);
    if (status == ATTN_OK && s->resume) status = train_resume(t, file, done, error);
    if (status != ATTN_OK && s->resume && (!peeked || begun)) failure_about(error, s->resume);
    attn_archive_destroy(file);
    return status;
}

/* ---- training ---- */

static attn_status train(trainee *t, const train_settings *s, attn_error *error)
{
    char label[40] = "loss";
    progress bar;
    attn_status status = ATTN_OK;
    progress_begin(&bar, label, t->common->quiet || t->common->json);
    for (int64_t n = t->learner->steps; n < t->steps && status == ATTN_OK; n++) {
        double *loss = &t->losses[n];
        status = t->task->step(t, learn_rate(n + 1, t->task->steps, t->task->rate), loss, error);
        if (status == ATTN_OK && !isfinite(*loss))
            status = failure(error, ATTN_ERR_UNSUPPORTED, "the loss is not a number after step %" PRId64, n + 1);
        if (status == ATTN_OK && s->save_every && (n + 1) % s->save_every == 0 && n + 1 < t->steps)
            status = train_save(t, s->output, error);
        (void)snprintf(label, sizeof label, "loss %-8.4f", *loss);
        progress_show(&bar, n + 1, t->steps);
    }
    progress_end(&bar);
    return status == ATTN_OK ? t->task->test(t, error) : status;
}

/* ---- what comes out ---- */

static double accuracy(const trainee *t) { return (double)t->held_out.right / (double)t->held_out.tested; }

static char *compose_json(const trainee *t, const train_settings *s, int64_t first, double seconds)
{
    cJSON *object = json_begin(), *loss;
    json_text(object, "task", t->task->name);
    if (s->resume) json_text(object, "resumed", s->resume);
    json_int(object, "parameters", t->learner->count);
    json_int(object, "steps", t->learner->steps);
    json_int(object, "steps_before", first);
    loss = json_object(object, "loss");
    json_number(loss, "first", t->losses[0]);
    json_number(loss, "last", t->losses[t->steps - 1]);
    json_int(object, "tested", t->held_out.tested);
    json_int(object, "right", t->held_out.right);
    json_number(object, "accuracy", accuracy(t));
    if (t->task->reads) {
        json_number(object, "held_out_loss", t->held_out.loss);
        json_number(object, "bits_per_character", t->held_out.loss / log(2));
        json_text(object, "sample", t->held_out.sample);
    }
    json_number(object, "seconds", seconds);
    if (s->output) json_text(object, "output", s->output);
    return json_compose(object);
}

static void print_text(const trainee *t, const train_settings *s, double seconds)
{
    printf("%s: %" PRId64 " parameters, %" PRId64 " steps, %.1f s\n", t->task->name, t->learner->count, t->learner->steps, seconds);
    printf("loss      %.4g at first, %.4g at last\n", t->losses[0], t->losses[t->steps - 1]);
    printf("held out  %" PRId64 " of %" PRId64 " %s right: accuracy %.4g\n", t->held_out.right, t->held_out.tested,
           t->task->reads ? "characters" : "sequences", accuracy(t));
    if (t->task->reads) {
        printf("          loss %.4g, %.4g bits a character\nwrites    ", t->held_out.loss, t->held_out.loss / log(2));
        put_shown(stdout, t->held_out.sample);
        putchar('\n');
    }
    if (!s->output || !options_tell(t->common)) return;
    printf("wrote ");
    put_shown(stdout, s->output);
    printf("; `attn plot loss` draws its curve, `attn plot heads` its heads\n");
}

static void release(trainee *t)
{
    model_destroy(t->model);
    decoder_destroy(t->decoder);
    cJSON_Delete(t->labels);
    free(t->text), free(t->characters), free(t->losses), free(t->weights), free(t->held_out.sample);
}

int attn_cmd_train(int argc, char **argv)
{
    train_settings settings = {0};
    const option_group groups[] = {{"Training", train_options, &settings}, {0}};
    trainee t = {.common = &settings.common};
    attn_archive *out = NULL;
    attn_error error;
    char *json = NULL;
    int operand;
    const int early = options_begin(&usage, groups, &settings.common, argc, argv, 2, &operand);
    if (early >= 0) return early;
    t.path = argc - operand > 1 ? argv[operand + 1] : NULL;
    attn_status status = find_task(argv[operand], &t.task, &error);
    if (status == ATTN_OK) status = check_arguments(t.task, t.path, &settings, &error);
    if (status == ATTN_OK) status = prepare(&t, &settings, &error);
    const double begin = seconds_now();
    const int64_t first = status == ATTN_OK ? t.learner->steps : 0;
    if (status == ATTN_OK) status = train(&t, &settings, &error);
    const double seconds = seconds_now() - begin;
    if (status == ATTN_OK && settings.output) status = train_compose(&t, &out, &error);
    if (status == ATTN_OK && settings.common.json) json = compose_json(&t, &settings, first, seconds);
    status = file_finish(status, out, settings.output, json, &error);
    if (status == ATTN_OK && !settings.common.json && !settings.common.quiet && !settings.common.prints_numbers)
        print_text(&t, &settings, seconds);
    attn_archive_destroy(out);
    release(&t);
    return command_end(status, usage.name, NULL, &error);
}
