/* SPDX-License-Identifier: MIT
 *
 * options.c - see options.h. */
#include "options.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] = "usage: generate MODEL.gguf [options] PROMPT...\n"
                           "\n"
                           "Answers prompts with a Llama-shaped model, all of them at once. A prompt - is read from\n"
                           "standard input.\n"
                           "\n"
                           "      --most=N          at most N new tokens each (default: 128)\n"
                           "      --system=TEXT     what the conversation begins with (default: what the model says)\n"
                           "      --raw             continue the prompt as it is, not as a conversation\n"
                           "      --temperature=T   draw tokens at this temperature (default: 0, the most likely)\n"
                           "      --top-k=N         draw from the N most likely (default: all)\n"
                           "      --top-p=P         draw from the most likely that together have probability P (default: 1)\n"
                           "      --seed=N          of the draws (default: 1)\n"
                           "      --drafts=N        guess up to N tokens from the text and check them at once (default: 0)\n"
                           "      --cache=TYPE      of keys and values: f32, f16, bf16, i8, f8_e4m3, f8_e5m2, q8_0, q4_0,\n"
                           "                        q4_1 or q4_1c, whose values are q4_1 (default: bf16)\n"
                           "      --values=TYPE     of values, if they differ\n"
                           "      --hadamard        rotate what is stored, so that few bits lose less\n"
                           "      --page=N          tokens of a page of the cache (default: 64)\n"
                           "      --batch=N         sequences at once (default: all)\n"
                           "      --chunk=N         tokens of a prompt at once (default: 128)\n"
                           "      --threads=N       (default: as many as the CPU has)\n"
                           "      --ids             print numbers of tokens: the prompt's, >, and those written\n"
                           "      --quiet           no progress bar, no speed\n"
                           "\n"
                           "The text is the same for any batch, chunk, page, drafts and threads; with q4_1c, whose last\n"
                           "keys are exact until they are 32, it depends on chunks and drafts.\n";

static int wrong(const char *argument, const char *expected)
{
    (void)fprintf(stderr, "generate: %s: expected %s\n", argument, expected);
    return 0;
}

/* The value of an argument --NAME=VALUE, or NULL. */
static const char *value_of(const char *argument, const char *name)
{
    const size_t length = strlen(name);
    return !strncmp(argument, name, length) && argument[length] == '=' ? argument + length + 1 : NULL;
}

static int read_type(const char *argument, const char *value, attn_dtype *type)
{
    static const attn_dtype types[] = {ATTN_F32,     ATTN_F16,  ATTN_BF16, ATTN_I8,   ATTN_F8_E4M3,
                                       ATTN_F8_E5M2, ATTN_Q8_0, ATTN_Q4_0, ATTN_Q4_1, ATTN_Q4_1C};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(value, attn_dtype_name(types[i]))) return *type = types[i], 1;
    return wrong(argument, "f32, f16, bf16, i8, f8_e4m3, f8_e5m2, q8_0, q4_0, q4_1 or q4_1c");
}

/* 1: read; 0: wrong; -1: no such option. */
static int read_number(options *o, const char *argument)
{
    double seed = -1;
    const struct {
        const char *name;
        int64_t *whole;
        double *real;
        double least, greatest;
        const char *expected;
    } all[] = {{"--most", &o->most, NULL, 1, 1e6, "a number of tokens from 1 on"},
               {"--top-k", &o->sampling.top_k, NULL, 1, 1e9, "a number of tokens from 1 on"},
               {"--drafts", &o->drafts, NULL, 0, 64, "a number of tokens from 0 to 64"},
               {"--page", &o->page, NULL, 1, 65536, "a number of tokens from 1 to 65536"},
               {"--batch", &o->batch, NULL, 1, 1e6, "a number of sequences from 1 on"},
               {"--chunk", &o->chunk, NULL, 1, 65536, "a number of tokens from 1 to 65536"},
               {"--threads", &o->threads, NULL, 1, 1024, "a number of threads from 1 to 1024"},
               {"--seed", NULL, &seed, 0, 1e15, "a number from 0 on"},
               {"--temperature", NULL, &o->sampling.temperature, 0, 1e6, "a number from 0 on"},
               {"--top-p", NULL, &o->sampling.top_p, 1e-9, 1, "a probability"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char *end;
        const char *text = value_of(argument, all[i].name);
        if (!text) continue;
        const double value = strtod(text, &end);
        const int whole = all[i].whole || all[i].real == &seed;
        if (end == text || *end || !(value >= all[i].least && value <= all[i].greatest) || (whole && value != floor(value)))
            return wrong(argument, all[i].expected);
        if (all[i].whole) *all[i].whole = (int64_t)value;
        else *all[i].real = value;
        if (seed >= 0) o->sampling.seed = (uint64_t)seed;
        return 1;
    }
    return -1;
}

static int read_option(options *o, const char *argument)
{
    const struct {
        const char *name;
        int *flag;
    } flags[] = {{"--raw", &o->raw}, {"--ids", &o->ids}, {"--quiet", &o->quiet}, {"--hadamard", &o->hadamard}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (!strcmp(argument, flags[i].name)) return *flags[i].flag = 1;
    const char *text = value_of(argument, "--cache");
    if (text) return read_type(argument, text, &o->cache);
    if ((text = value_of(argument, "--values"))) return read_type(argument, text, &o->values);
    if ((text = value_of(argument, "--system"))) return o->system = text, 1;
    const int read = read_number(o, argument);
    return read < 0 ? wrong(argument, "an option that --help lists") : read;
}

/* All of standard input, which stays allocated to the end of the program. */
static char *read_input(void)
{
    size_t size = 0, capacity = 1024;
    char *text = malloc(capacity);
    while (text) {
        size += fread(text + size, 1, capacity - size - 1, stdin);
        if (size + 1 < capacity) break;
        char *grown = realloc(text, capacity *= 2);
        if (!grown) free(text);
        text = grown;
    }
    if (text) text[size] = '\0';
    return text;
}

int options_read(options *o, int argc, char **argv, int *status)
{
    *o = (options){.most = 128, .chunk = 128, .page = 64, .cache = ATTN_BF16, .prompts = argv, .sampling = {.top_p = 1, .seed = 1}};
    *status = 2;
    int only_prompts = 0;
    for (int i = 1; i < argc; i++) {
        if (!only_prompts && !strcmp(argv[i], "--help")) return *status = 0, (void)fputs(help, stdout), 0;
        if (!only_prompts && !strcmp(argv[i], "--")) only_prompts = 1;
        else if (!only_prompts && !strncmp(argv[i], "--", 2)) {
            if (!read_option(o, argv[i])) return 0;
        } else if (!o->path) o->path = argv[i];
        else if (strcmp(argv[i], "-") != 0) o->prompts[o->prompt_count++] = argv[i];
        else if (!(o->prompts[o->prompt_count++] = read_input())) return wrong("-", "a text that fits in memory");
    }
    if (!o->path || !o->prompt_count) return wrong(o->path ? "no prompt" : "no model", "MODEL.gguf and a PROMPT; --help says more");
    if (!o->values) o->values = o->cache == ATTN_Q4_1C ? ATTN_Q4_1 : o->cache;
    if (o->cache == ATTN_Q4_1C && o->page % ATTN_BLOCK) return wrong("--page", "a multiple of 32 with --cache=q4_1c");
    if (o->cache == ATTN_Q4_1C && o->drafts > ATTN_BLOCK) return wrong("--drafts", "at most 32 with --cache=q4_1c");
    if (!o->batch || o->batch > o->prompt_count) o->batch = o->prompt_count;
    return 1;
}
