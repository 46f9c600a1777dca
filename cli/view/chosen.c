/* SPDX-License-Identifier: MIT
 *
 * chosen.c - the parts of a file that are shown, and the memory of what is made of them. */
#include "chosen.h"

#include <stdlib.h>
#include <string.h>

#include "testing/text/failure.h"

void *shown_memory(shown *s, int64_t count, size_t size)
{
    if (s->owned_count % 64 == 0) { /* it is full: grow */
        void **more = need_memory(s->owned_count + 64, sizeof *more);
        if (s->owned_count) memcpy(more, s->owned, (size_t)s->owned_count * sizeof *more);
        free(s->owned);
        s->owned = more;
    }
    return s->owned[s->owned_count++] = need_memory(count, size);
}

int64_t shown_batch(const shown *s, int64_t layer, int64_t entry)
{
    return labels_batch(&s->labels, s->layer[layer], s->entry[entry]);
}

attn_status shown_choose(shown *g, const shown_choice *settings, attn_error *error)
{
    const labels *l = &g->labels;
    const attn_shape *s = &g->input.problem.shape;
    attn_status status = labels_choose("layer", settings->layers, l->layer_number, l->layers, &g->layer, &g->layers, error);
    if (status == ATTN_OK) status = labels_choose("head", settings->heads, NULL, s->heads_q, &g->head, &g->heads, error);
    if (status == ATTN_OK) status = labels_choose("entry", settings->entries, NULL, l->entries, &g->entry, &g->entries, error);
    if (status == ATTN_OK) status = labels_choose_range("queries", settings->queries, s->len_q, &g->query, &g->rows, error);
    g->layer_number = need_memory(g->layers, sizeof *g->layer_number);
    for (int64_t y = 0; y < g->layers; y++) g->layer_number[y] = l->layer_number[g->layer[y]];
    return status;
}
