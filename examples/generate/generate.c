/* SPDX-License-Identifier: MIT
 *
 * generate.c - answers prompts with a Llama-shaped model from a .gguf file, several at once:
 *
 *      generate SmolLM2-135M-Instruct.Q4_1.gguf "What is the capital of France?"
 *
 * What it does with libattn: reads weights and vocabulary (attn/io.h), multiplies by weights (attn/product.h), and keeps keys and
 * values in pages of any type and attends to them (attn/cache.h).  Exits with 2 after a message. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "chat.h"
#include "options.h"
#include "tokenizer.h"
#include "writer.h"

typedef struct session {
    options o;
    model *m;
    tokenizer *t;
    sequence *all; /* [o.prompt_count] */
    int shown;     /* the progress bar */
    int64_t read, written;
    double read_seconds, read_cpu, write_seconds, write_cpu;
} session;

static int fail(const char *message)
{
    (void)fprintf(stderr, "generate: %s\n", message);
    return 0;
}

static double seconds(void)
{
    struct timespec now;
    (void)timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double cpu(void) { return (double)clock() / CLOCKS_PER_SEC; }

/* ---- what is seen meanwhile and at the end ---- */

static void show_bar(const session *s, const char *what, int64_t done, int64_t all)
{
    enum { WIDTH = 30 };
    if (!s->shown) return;
    const int filled = (int)(all ? WIDTH * done / all : WIDTH);
    (void)fprintf(stderr, "\r%-8s [%.*s%*s] %lld of %lld tokens ", what, filled, "##############################", WIDTH - filled,
                  "", (long long)done, (long long)all);
    (void)fflush(stderr);
}

static void clear_bar(const session *s)
{
    if (s->shown) (void)fprintf(stderr, "\r%70s\r", "");
}

static void print_token(const session *s, int token)
{
    size_t length;
    const char *bytes = tokenizer_bytes(s->t, token, &length);
    if (s->o.ids) (void)printf("%d ", token);
    else if (!tokenizer_is_special(s->t, token)) (void)fwrite(bytes, 1, length, stdout);
}

static void print_sequence(const session *s, int number, int64_t from)
{
    const sequence *q = &s->all[number];
    if (s->o.prompt_count > 1 && from == q->prompt) (void)printf("[%d] ", number + 1);
    for (int64_t i = 0; s->o.ids && from == q->prompt && i < from; i++)
        (void)printf("%d%s ", q->tokens[i], i + 1 == from ? " >" : "");
    for (int64_t i = from; i < s->all[number].count; i++) print_token(s, s->all[number].tokens[i]);
    (void)fflush(stdout);
}

static void print_speed(const session *s)
{
    int64_t drafted = 0, right = 0;
    for (int i = 0; i < s->o.prompt_count; i++) drafted += s->all[i].drafted, right += s->all[i].right;
    if (s->o.quiet) return;
    (void)fprintf(stderr, "read %lld tokens, %.1f a second, %.1f a second of CPU time; wrote %lld, %.1f and %.1f",
                  (long long)s->read, (double)s->read / fmax(s->read_seconds, 1e-9), (double)s->read / fmax(s->read_cpu, 1e-9),
                  (long long)s->written, (double)s->written / fmax(s->write_seconds, 1e-9),
                  (double)s->written / fmax(s->write_cpu, 1e-9));
    if (drafted) (void)fprintf(stderr, "; %lld of %lld drafts were right", (long long)right, (long long)drafted);
    (void)fputc('\n', stderr);
}

/* ---- work ---- */

static int encode(session *s, int number, attn_error *error)
{
    sequence *q = &s->all[number];
    const char *prompt = s->o.prompts[number];
    char *text = s->o.raw ? NULL : chat_text(model_file(s->m), s->o.system, prompt, error);
    if (!s->o.raw && !text) return fail(error->message);
    if (text) prompt = text;
    q->tokens = malloc((strlen(prompt) + (size_t)s->o.most + 1) * sizeof *q->tokens);
    if (q->tokens) q->prompt = q->count = tokenizer_encode(s->t, prompt, q->tokens);
    q->most = q->count + s->o.most;
    free(text);
    if (!q->tokens) return fail("cannot allocate memory");
    if (q->prompt == 0) return fail("a prompt has no tokens");
    if (q->most > model_context(s->m)) q->most = model_context(s->m);
    if (q->prompt >= q->most) return fail("a prompt is longer than the model's context");
    return 1;
}

static attn_status read_prompts(session *s, writer *w, sequence *all, int64_t count, attn_error *error)
{
    const double begin = seconds(), cpu_begin = cpu();
    attn_status status = ATTN_OK;
    int64_t tokens = 0, done = 0;
    for (int64_t b = 0; b < count; b++) tokens += all[b].prompt;
    for (int64_t b = 0; b < count && status == ATTN_OK; b++) {
        int64_t left = all[b].prompt;
        while (left > 0 && status == ATTN_OK) {
            const int64_t before = left;
            status = writer_read(w, all, b, &left, error);
            done += before - left;
            show_bar(s, "reading", done, tokens);
        }
    }
    clear_bar(s);
    s->read += tokens;
    s->read_seconds += seconds() - begin;
    s->read_cpu += cpu() - cpu_begin;
    return status;
}

static attn_status write_texts(session *s, writer *w, sequence *all, int64_t count, attn_error *error)
{
    const int alone = s->o.prompt_count == 1; /* then the text appears as it is written */
    const double begin = seconds(), cpu_begin = cpu();
    attn_status status = ATTN_OK;
    int64_t tokens = 0, done;
    for (int64_t b = 0; b < count; b++) tokens += all[b].most - all[b].prompt;
    if (alone) print_sequence(s, 0, all[0].prompt);
    do {
        const int64_t before = all[0].count;
        int working = 0;
        done = 0;
        for (int64_t b = 0; b < count; b++) {
            done += all[b].done ? all[b].most - all[b].prompt : all[b].count - all[b].prompt;
            working |= !all[b].done;
        }
        if (!working) break;
        if (!alone) show_bar(s, "writing", done, tokens);
        status = writer_step(w, all, count, error);
        if (alone && status == ATTN_OK) print_sequence(s, 0, before);
    } while (status == ATTN_OK);
    if (!alone) clear_bar(s);
    for (int64_t b = 0; b < count; b++) s->written += all[b].count - all[b].prompt - 1; /* the first came with the prompt */
    s->write_seconds += seconds() - begin;
    s->write_cpu += cpu() - cpu_begin;
    return status;
}

/* The sequences first .. first + count - 1, side by side. */
static int run_batch(session *s, int first, int64_t count, int end)
{
    attn_error error;
    pages p;
    sequence *all = s->all + first;
    int64_t longest = 0, total = 0;
    for (int64_t b = 0; b < count; b++) {
        if (all[b].most > longest) longest = all[b].most;
        total += (all[b].most + s->o.page - 1) / s->o.page;
    }
    writer w = {.m = s->m, .p = &p, .s = &s->o.sampling, .chunk = s->o.chunk, .drafts = s->o.drafts, .end = end};
    int good = model_make_pages(s->m, count, longest, total, s->o.page, s->o.cache, s->o.values, &p) ||
               fail("cannot allocate memory, or the heads have no whole blocks of 32 channels");
    p.hadamard = s->o.hadamard;
    if (good && (read_prompts(s, &w, all, count, &error) != ATTN_OK || write_texts(s, &w, all, count, &error) != ATTN_OK))
        good = fail(error.message);
    pages_free(&p);
    free(w.logits);
    for (int64_t b = 0; b < count && good; b++) {
        if (s->o.prompt_count > 1) print_sequence(s, first + (int)b, all[b].prompt);
        (void)putchar('\n');
    }
    return good;
}

static int run(session *s)
{
    attn_error error;
    s->m = model_open(s->o.path, (int)s->o.threads, &error);
    if (!s->m) return fail(error.message);
    s->t = tokenizer_read(model_file(s->m), &error);
    if (!s->t) return fail(error.message);
    if (tokenizer_words(s->t) != model_words(s->m)) return fail("the vocabulary and the embeddings have different sizes");
    const char *end = attn_archive_get_metadata(model_file(s->m), "tokenizer.ggml.eos_token_id");
    s->all = calloc((size_t)s->o.prompt_count, sizeof *s->all);
    if (!s->all) return fail("cannot allocate memory");
    for (int i = 0; i < s->o.prompt_count; i++)
        if (!encode(s, i, &error)) return 0;
    for (int i = 0; i < s->o.prompt_count; i += (int)s->o.batch) {
        const int64_t left = s->o.prompt_count - i;
        if (!run_batch(s, i, left < s->o.batch ? left : s->o.batch, end ? atoi(end) : -1)) return 0;
    }
    print_speed(s);
    return !ferror(stdout) || fail("cannot write to standard output");
}

int main(int argc, char **argv)
{
    session s = {.shown = 0};
    int status;
    if (!options_read(&s.o, argc, argv, &status)) return status;
    s.shown = !s.o.quiet && isatty(STDERR_FILENO);
    const int good = run(&s);
    for (int i = 0; s.all && i < s.o.prompt_count; i++) free(s.all[i].tokens);
    free(s.all);
    tokenizer_free(s.t);
    model_close(s.m);
    return good ? 0 : 2;
}
