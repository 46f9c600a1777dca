/* SPDX-License-Identifier: MIT
 *
 * registry.h - names that benchmark suites give to implementations of attention.  Each stands for a string of attn bench that
 * computes the same function, with the sizes of the flags. */
#ifndef ATTN_CLI_BENCH_REGISTRY_H
#define ATTN_CLI_BENCH_REGISTRY_H

#include <stddef.h>
#include <stdint.h>

#include "attn/attn.h"

typedef struct registered {
    const char *name;
    const char *aliases; /* separated by spaces; '-' is as good as '_' in all of them */
    const char *type;    /* "softmax", "layer", "linear" */
    const char *begin;   /* of the string: the operation and the type */
    const char *end;     /* more words; "" */
    int grouped;         /* 1: with fewer key heads */
    int latent, rotary;  /* 1: with a rank, with rotated channels */
    int has_cache;       /* 1: the same layer or problem over a cache is decode: or layer:...:decode */
    int has_lengths;     /* 1: sequences of different lengths: lens, packed */
    const char *note;
} registered;

/* Entry `index`; NULL past the last. */
const registered *registry_at(int index);

/* The entry of this name or alias; ATTN_ERR_ARGUMENT lists the nearest names, and all. */
attn_status registry_find(const char *name, const registered **found, attn_error *error);

/* 1 if this build has it. */
int registry_has(const registered *entry);

typedef struct registry_sizes {
    int64_t batch, tokens, width, heads;
    int causal;
} registry_sizes;

/* width is a multiple of heads. */
void registry_string(const registered *entry, const registry_sizes *sizes, char *text, size_t size);

#endif
