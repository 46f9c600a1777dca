/* SPDX-License-Identifier: MIT
 * serving.c - see serving.h. */
#include "serving.h"

#include <stdlib.h>
#include <string.h>

#include "testing/text/failure.h"

void serving_tree(int64_t drafts, int64_t queries, uint64_t *rows, random_state *random)
{
    const int64_t words = problem_blocks(drafts, 64), first = drafts - queries;
    uint64_t *all = need_memory(drafts * words, sizeof *all);
    for (int64_t n = 0; n < drafts; n++) {
        const int64_t parent = random_below(random, n + 1) - 1;
        uint64_t *row = all + n * words;
        memset(row, 0, (size_t)words * sizeof *row);
        if (parent >= 0) memcpy(row, all + parent * words, (size_t)words * sizeof *row);
        row[n / 64] |= UINT64_C(1) << n % 64;
    }
    for (int64_t i = 0; i < queries; i++) {
        uint64_t *row = rows + i * words;
        if (first + i < 0) memset(row, 0, (size_t)words * sizeof *row);
        else memcpy(row, all + (first + i) * words, (size_t)words * sizeof *row);
    }
    free(all);
}

attn_schedule_options serving_options(const problem_spec *spec, attn_prefix *prefix)
{
    *prefix = (attn_prefix){.count = spec->shape.batch, .keys = spec->prefix};
    return (attn_schedule_options){.struct_size = sizeof(attn_schedule_options),
                                   .prefix_count = spec->prefix > 0 && spec->shape.batch > 0,
                                   .prefixes = prefix};
}

int64_t serving_pages(const problem_spec *spec, const int64_t *lengths, const int64_t *order, int64_t *table)
{
    const int64_t B = spec->shape.batch, of_entry = problem_blocks(spec->shape.len_kv, spec->page),
                  shared = spec->prefix / spec->page;
    int64_t next = 0;
    for (int64_t b = 0; b < B; b++) {
        const int64_t filled = lengths ? problem_blocks(lengths[b], spec->page) : of_entry;
        for (int64_t n = 0; n < of_entry; n++)
            table[b * of_entry + n] = n >= filled ? -1 : b > 0 && n < shared ? table[n] : order[next++];
    }
    return next;
}
