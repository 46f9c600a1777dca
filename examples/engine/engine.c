/* SPDX-License-Identifier: MIT
 *
 * engine.c - a serving engine in small: answers the prompts of its input, a line each, by continuous batching:
 *
 *      engine MODEL.gguf [OPTIONS] < PROMPTS
 *
 * --help lists the options.  Exits with 2 after a message. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "scheduler.h"
#include "tokenizer.h"

typedef struct options {
    const char *path;
    int64_t places, budget, pages, page, most, threads, ids, speed;
} options;

static const char usage[] = "usage: engine MODEL.gguf [OPTIONS] < PROMPTS\n\n"
                            "Answers the prompts of its input, a line each, by continuous batching.\n\n"
                            "  --places=8     sequences at once\n"
                            "  --budget=128   tokens in a step: one of each sequence that writes, the rest from prompts\n"
                            "  --pages=512    of the cache\n"
                            "  --page=16      tokens of a page\n"
                            "  --most=32      tokens to write for a prompt\n"
                            "  --threads=0    0: as many as CPUs\n"
                            "  --ids          writes numbers of tokens, those of the prompt too\n"
                            "  --speed        draws tokens written a second with 1, 2, 4, ... places, and no texts\n\n"
                            "The texts are the same whatever these numbers are.\n";

static int fail(const char *message)
{
    (void)fprintf(stderr, "engine: %s\n", message);
    return 0;
}

static int read_options(options *o, int argc, char **argv)
{
    const struct {
        const char *name;
        int64_t *to, least;
    } known[] = {{"places", &o->places, 1}, {"budget", &o->budget, 1}, {"pages", &o->pages, 1},
                 {"page", &o->page, 1},     {"most", &o->most, 1},     {"threads", &o->threads, 0}};
    *o = (options){.places = 8, .budget = 128, .pages = 512, .page = 16, .most = 32};
    for (int i = 1; i < argc; i++) {
        size_t n = 0, length = 0;
        if (strcmp(argv[i], "--ids") == 0) o->ids = 1;
        else if (strcmp(argv[i], "--speed") == 0) o->speed = 1;
        else if (argv[i][0] != '-') o->path = argv[i];
        else {
            for (; n < sizeof known / sizeof *known; n++) {
                length = strlen(known[n].name);
                if (strncmp(argv[i], "--", 2) == 0 && strncmp(argv[i] + 2, known[n].name, length) == 0 &&
                    argv[i][2 + length] == '=')
                    break;
            }
            if (n == sizeof known / sizeof *known)
                return fprintf(stderr, "engine: %s: no such option, or no =NUMBER; engine --help lists them\n", argv[i]) < 0;
            char *end;
            const long long value = strtoll(argv[i] + 3 + length, &end, 10);
            if (*end || value < known[n].least || value > 1 << 20)
                return fprintf(stderr, "engine: %s is not between %d and %d\n", argv[i], (int)known[n].least, 1 << 20) < 0;
            *known[n].to = value;
        }
    }
    return o->path ? 1 : fail("the model is missing; engine --help says more");
}

/* The prompts of the input, with room for what is written; *count of them. */
static request *read_requests(const options *o, const tokenizer *t, int64_t context, int64_t *count)
{
    static char line[1 << 16];
    request *all = NULL;
    *count = 0;
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        request *more = realloc(all, (size_t)(*count + 1) * sizeof *all);
        if (!more) break;
        all = more;
        request *r = &all[*count];
        *r = (request){.tokens = malloc((strlen(line) + (size_t)o->most + 1) * sizeof *r->tokens)};
        if (!r->tokens) break;
        r->prompt = tokenizer_encode(t, line, r->tokens);
        r->most = r->prompt + o->most < context ? r->prompt + o->most : context;
        if (r->prompt == 0 || r->prompt >= r->most)
            free(r->tokens), (void)fail("a prompt without tokens, or too long, is left out");
        else ++*count;
    }
    return all;
}

static void print_request(const options *o, const tokenizer *t, const request *r)
{
    for (int64_t i = o->ids ? 0 : r->prompt; i < r->count; i++) {
        size_t length;
        const char *bytes = tokenizer_bytes(t, r->tokens[i], &length);
        if (o->ids) (void)printf("%d%s", r->tokens[i], i + 1 == r->prompt ? " > " : i + 1 < r->count ? " " : "");
        else if (!tokenizer_is_special(t, r->tokens[i])) (void)fwrite(bytes, 1, length, stdout);
    }
    (void)putchar('\n');
}

/* Serves all requests; *rate: tokens written in a second. */
static int serve(const options *o, model *m, int end, request *all, int64_t count, int64_t places, double *rate)
{
    scheduler s;
    attn_error error;
    struct timespec from, to;
    int64_t left = count;
    for (int64_t n = 0; n < count; n++) all[n].count = all[n].prompt, all[n].done = 0;
    int good = scheduler_make(&s, m, all, count, places, o->budget, o->pages, o->page, ATTN_BF16) || fail("cannot allocate memory");
    s.end = end;
    (void)timespec_get(&from, TIME_UTC);
    while (good && left > 0)
        if (scheduler_step(&s, &left, &error) != ATTN_OK) good = fail(error.message);
    (void)timespec_get(&to, TIME_UTC);
    *rate = (double)s.written / ((double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec) + 1e-9);
    if (good && !o->speed)
        (void)fprintf(stderr, "%lld steps, %lld tokens run, %lld written, %lld times pages were given up, %.1f written a second\n",
                      (long long)s.steps, (long long)s.read, (long long)s.written, (long long)s.evicted, *rate);
    scheduler_free(&s);
    return good;
}

static int draw_speed(const options *o, model *m, int end, request *all, int64_t count)
{
    enum { WIDTH = 50 };
    double rate[16], most = 0;
    int n = 0;
    for (int64_t places = 1; places <= o->places && n < 16; places *= 2, n++) {
        if (!serve(o, m, end, all, count, places, &rate[n])) return 0;
        most = rate[n] > most ? rate[n] : most;
    }
    (void)puts("at once   tokens a second");
    for (int i = 0; i < n; i++)
        (void)printf("%7d   %8.1f  %.*s\n", 1 << i, rate[i], (int)(WIDTH * rate[i] / most),
                     "##################################################");
    return 1;
}

int main(int argc, char **argv)
{
    options o;
    attn_error error;
    double rate;
    int64_t count = 0;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0) return fputs(usage, stdout) < 0;
    if (!read_options(&o, argc, argv)) return 2;
    model *m = model_open(o.path, (int)o.threads, &error);
    tokenizer *t = m ? tokenizer_read(model_file(m), &error) : NULL;
    int good = t || fail(error.message);
    request *all = good ? read_requests(&o, t, model_context(m), &count) : NULL;
    const char *word = good ? attn_archive_get_metadata(model_file(m), "tokenizer.ggml.eos_token_id") : NULL;
    const int end = word ? atoi(word) : -1;
    if (good && o.speed) good = draw_speed(&o, m, end, all, count);
    else if (good && serve(&o, m, end, all, count, o.places, &rate))
        for (int64_t n = 0; n < count; n++) print_request(&o, t, &all[n]);
    else good = 0;
    for (int64_t n = 0; n < count; n++) free(all[n].tokens);
    free(all);
    tokenizer_free(t);
    model_close(m);
    return good ? 0 : 2;
}
