/* SPDX-License-Identifier: MIT
 * named.h - the tensors that a message names are those of its error: programs find them there. */
#ifndef ATTN_TESTS_UNIT_NAMED_H
#define ATTN_TESTS_UNIT_NAMED_H

#include "test.h"

#include "attn/attn.h"

/* 1 if a message names a tensor as a word of its own: not a field (score.scale, mask.causal) or a value (3 (weights)), nor prose
 * (a sink, with decay). */
static inline int names_tensor(const char *message, const char *name)
{
    static const char *const prose[] = {"a ", "the ", "on ", "with ", "modifies "};
    const size_t length = strlen(name);
    for (const char *at = strstr(message, name); at; at = strstr(at + 1, name)) {
        const char after = at[length];
        int is_name = (at == message || at[-1] == ' ') && strchr(" .;,[", after); /* also at the end */
        if (after == '.') is_name = is_name && (!strncmp(at + length, ".dtype", 6) || !strncmp(at + length, ".stride", 7));
        for (size_t n = 0; n < sizeof prose / sizeof *prose; n++) {
            const size_t before = strlen(prose[n]);
            if ((size_t)(at - message) >= before && strncmp(at - before, prose[n], before) == 0) is_name = 0;
        }
        if (is_name) return 1;
    }
    return 0;
}

/* A message that names tensors has error.tensor, and error.other if it names two: those that it names, and no
 * others. */
static inline void expect_named(const attn_error *error, attn_family family, int line)
{
    attn_tensor_description d = {.struct_size = sizeof d};
    int named = 0, of_error = 0;
    for (int i = 0; attn_tensor_describe(family, i, &d, NULL) == ATTN_OK; i++) {
        const int is = names_tensor(error->message, d.name);
        named += is;
        of_error += is && (i == error->tensor || i == error->other);
    }
    if (of_error < (named > 2 ? 2 : named))
        fail_msg("line %d: error.tensor %d and error.other %d are not those named in: %s", line, error->tensor, error->other,
                 error->message);
    if (named < 2 && error->other >= 0)
        fail_msg("line %d: error.other is %d, which is not in: %s", line, error->other, error->message);
}

#endif
