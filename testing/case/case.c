/* SPDX-License-Identifier: MIT
 * case.c - problem strings of checks: the words of problem.h, and a few more. */
#include "case.h"

#include <stdio.h>
#include <string.h>

#include "testing/text/failure.h"

static const char *const fills[] = {"normal",   "uniform", "huge",    "equal",  "onehot", "zero",
                                    "denormal", "rising",  "falling", "spread", NULL};
static const char *const poisons[] = {"none", "nan", "inf", "ones", "signal", NULL};
static const char *const plants[] = {"none", "q", "k", "v", "bias", NULL};
static const char *const memories[] = {"dense", "padded", "backward", "broadcast", "mixed", NULL};
static const char *const indexes[] = {"i64", "i32", NULL};

/* Explained by `attn check --help`. */
static const char *const words[] = {"fill", "poison", "plant", "memory", "otype", "biastype", "index"};
enum { WORDS = sizeof words / sizeof *words };

static attn_status choose(const char *name, const char *value, const char *const *choices, int *chosen, attn_error *error)
{
    for (int i = 0; choices[i]; i++)
        if (strcmp(value, choices[i]) == 0) {
            *chosen = i;
            return ATTN_OK;
        }
    return failure(error, ATTN_ERR_ARGUMENT, "%s=%s is not one of its kinds (see attn check --help)", name, value);
}

static attn_status choose_dtype(const char *name, const char *value, attn_dtype *dtype, attn_error *error)
{
    static const attn_dtype types[] = {ATTN_F32, ATTN_F64, ATTN_F16, ATTN_BF16};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(value, attn_dtype_name(types[i])) == 0) {
            *dtype = types[i];
            return ATTN_OK;
        }
    return failure(error, ATTN_ERR_ARGUMENT, "%s=%s is not f32, f64, f16 or bf16", name, value);
}

static attn_status set(check_case *c, int word, const char *value, attn_error *error)
{
    int kind = 0;
    attn_status status = ATTN_OK;
    switch (word) {
    case 0:
        status = choose("fill", value, fills, &kind, error);
        c->fill = (case_fill)kind;
        break;
    case 1:
        status = choose("poison", value, poisons, &kind, error);
        c->poison = (case_poison)kind;
        break;
    case 2:
        status = choose("plant", value, plants, &kind, error);
        c->plant = (case_plant)kind;
        break;
    case 3:
        status = choose("memory", value, memories, &kind, error);
        c->memory = (case_memory)kind;
        break;
    case 4:
        return choose_dtype("otype", value, &c->o_dtype, error);
    case 5:
        return choose_dtype("biastype", value, &c->bias_dtype, error);
    case 6:
        status = choose("index", value, indexes, &c->index32, error);
        break;
    default:
        break;
    }
    return status;
}

/* The number of a check's word, or -1. */
static int find(const char *word, size_t length)
{
    for (int i = 0; i < WORDS; i++)
        if (strlen(words[i]) == length && memcmp(words[i], word, length) == 0) return i;
    return -1;
}

attn_status case_parse(const char *text, check_case *c, attn_error *error)
{
    char rest[CASE_TEXT] = "";
    int given[WORDS] = {0};
    *c = (check_case){0};
    if (strlen(text) >= sizeof rest)
        return failure(error, ATTN_ERR_ARGUMENT, "a problem string of %zu characters is too long", strlen(text));
    for (const char *at = text;;) {
        const size_t length = strcspn(at, ":"), name = strcspn(at, ":=");
        const int word = at[name] == '=' ? find(at, name) : -1;
        if (word < 0) {
            if (at != text && *rest) strcat(rest, ":");
            strncat(rest, at, length);
        } else {
            char value[32];
            if (given[word]++) return failure(error, ATTN_ERR_ARGUMENT, "%s is given twice", words[word]);
            snprintf(value, sizeof value, "%.*s", (int)(length - name - 1), at + name + 1);
            const attn_status status = set(c, word, value, error);
            if (status != ATTN_OK) return status;
        }
        if (!at[length]) break;
        at += length + 1;
    }
    return problem_parse(rest, &c->spec, error);
}

static void append(char *text, size_t size, size_t *whole, const char *name, const char *value)
{
    const size_t at = *whole < size ? *whole : size;
    *whole += (size_t)snprintf(text + at, size - at, ":%s=%s", name, value);
}

size_t case_print(const check_case *c, char *text, size_t size)
{
    size_t whole = problem_print(&c->spec, text, size);
    if (c->fill) append(text, size, &whole, "fill", fills[c->fill]);
    if (c->poison) append(text, size, &whole, "poison", poisons[c->poison]);
    if (c->plant) append(text, size, &whole, "plant", plants[c->plant]);
    if (c->memory) append(text, size, &whole, "memory", memories[c->memory]);
    if (c->o_dtype) append(text, size, &whole, "otype", attn_dtype_name(c->o_dtype));
    if (c->bias_dtype) append(text, size, &whole, "biastype", attn_dtype_name(c->bias_dtype));
    if (c->index32) append(text, size, &whole, "index", "i32");
    return whole;
}
