/* SPDX-License-Identifier: MIT
 *
 * draft.c - see draft.h. */
#include "draft.h"

#include <string.h>

int64_t draft_tokens(const int *tokens, int64_t count, int64_t most, int *draft)
{
    for (int64_t size = 3; size > 0; size--) {
        for (int64_t at = count - size - 1; at >= 0; at--) {
            if (memcmp(tokens + at, tokens + count - size, (size_t)size * sizeof *tokens) != 0) continue;
            const int64_t follow = count - at - size, used = follow < most ? follow : most;
            memcpy(draft, tokens + at + size, (size_t)used * sizeof *draft);
            return used;
        }
    }
    return 0;
}
