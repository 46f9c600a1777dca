/* SPDX-License-Identifier: MIT
 * numbered.c - see numbered.h. */
#include "numbered.h"

#include <stdlib.h>
#include <string.h>

#include "testing/random/share.h"

static uint64_t value_of(const char *text, const char *name, uint64_t otherwise)
{
    const size_t n = strlen(name);
    return strncmp(text, name, n) ? otherwise : strtoull(text + n, NULL, 10);
}

void numbered_begin(numbered *n, uint64_t seconds, int count, char **arguments)
{
    *n = (numbered){.cases = INT64_MAX, .seconds = seconds, .begin = time(NULL)};
    for (int i = 1; i < count; i++) {
        n->seconds = value_of(arguments[i], "--seconds=", n->seconds);
        n->seed = value_of(arguments[i], "--seed=", n->seed);
        n->first = value_of(arguments[i], "--first=", n->first);
        n->cases = value_of(arguments[i], "--cases=", n->cases);
    }
    n->cases = (uint64_t)share_of_cases((int64_t)n->cases);
}

int numbered_next(numbered *n, draws *from)
{
    if (n->done == n->cases || (uint64_t)(time(NULL) - n->begin) >= n->seconds) return 0;
    n->number = n->first + n->done++;
    const uint64_t name[2] = {n->seed, n->number};
    *from = draws_from((const uint8_t *)name, sizeof name);
    from->left = 0; /* `name` goes out of scope; the generator seeded from it remains */
    return 1;
}
