/* SPDX-License-Identifier: MIT
 *
 * kind_roles.c - what heads do: a heat map of layers and heads for each role, from what `attn analyze --roles --json` prints. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/compute/roles.h"
#include "kinds.h"
#include "testing/text/failure.h"

enum { CELL = 20 };

/* The heads of one entry. */
typedef struct head_grid {
    const cJSON **head; /* [layers][heads]; NULL: not in the file */
    int64_t layers, heads;
    int64_t *layer_number;
} head_grid;

static int64_t integer_of(const cJSON *head, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(head, name);
    return cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble < 1e6 ? (int64_t)item->valuedouble : -1;
}

/* Entries are numbered only where there are several. */
static int64_t entry_of(const cJSON *head)
{
    return cJSON_GetObjectItemCaseSensitive(head, "entry") ? integer_of(head, "entry") : 0;
}

static int64_t place_of_layer(head_grid *g, int64_t number)
{
    int64_t y = 0;
    while (y < g->layers && g->layer_number[y] != number) y++;
    if (y == g->layers) g->layer_number[g->layers++] = number;
    return y;
}

static attn_status read_grid(head_grid *g, const source *from, int64_t entry, attn_error *error)
{
    const cJSON *list = from->json ? cJSON_GetObjectItemCaseSensitive(from->json, "heads") : NULL, *head;
    const int64_t count = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0;
    int64_t entries = 0;
    g->layer_number = need_memory(count, sizeof *g->layer_number);
    cJSON_ArrayForEach(head, list)
    {
        const int64_t layer = integer_of(head, "layer"), number = integer_of(head, "head");
        if (layer < 0 || number < 0 || entry_of(head) < 0 || !cJSON_GetObjectItemCaseSensitive(head, head_role_table->name))
            return failure(error, ATTN_ERR_FORMAT,
                           "%.100s: a head has no layer, head or roles; `attn analyze --roles --json` writes them", from->path);
        if (entry_of(head) >= entries) entries = entry_of(head) + 1;
        if (entry_of(head) != entry) continue;
        (void)place_of_layer(g, layer);
        if (number >= g->heads) g->heads = number + 1;
    }
    if (!count) return failure(error, ATTN_ERR_FORMAT, "%.100s: no 'heads'; `attn analyze --roles --json` writes them", from->path);
    if (entry >= entries) return labels_unknown("entry", entry, NULL, entries, error);
    if (g->layers * g->heads > HEAT_MAX / HEAD_ROLES)
        return failure(error, ATTN_ERR_UNSUPPORTED, "%.100s: %" PRId64 " layers of %" PRId64 " heads are too many for a picture",
                       from->path, g->layers, g->heads);
    g->head = need_memory(g->layers * g->heads, sizeof *g->head);
    cJSON_ArrayForEach(head, list)
    {
        if (entry_of(head) != entry) continue;
        g->head[place_of_layer(g, integer_of(head, "layer")) * g->heads + integer_of(head, "head")] = head;
    }
    return ATTN_OK;
}

/* Returns 1 if any head has the number.  Below 0, variance explained is chance. */
static int read_scores(const head_grid *g, const char *name, double least, double *scores)
{
    int any = 0;
    for (int64_t n = 0; n < g->layers * g->heads; n++) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(g->head[n], name);
        scores[n] = cJSON_IsNumber(item) ? fmin(1, fmax(least, item->valuedouble)) : -INFINITY;
        any |= isfinite(scores[n]);
    }
    return any;
}

static void draw_roles(plot_task *task, const head_grid *g)
{
    double *scores = need_memory(g->layers * g->heads, sizeof *scores);
    char(*names)[24] = need_memory(g->layers, sizeof *names);
    const char **rows = need_memory(g->layers, sizeof *rows);
    for (int64_t y = 0; y < g->layers; y++) {
        snprintf(names[y], sizeof names[y], "%" PRId64, g->layer_number[y]);
        rows[y] = names[y];
    }
    heat h = {.row_axis = "layer",
              .column_axis = "head",
              .rows = g->layers,
              .columns = g->heads,
              .values = scores,
              .colors = HEAT_SEQUENTIAL,
              .high = 1,
              .row_names = rows,
              .cell = CELL};
    for (int r = 0; r < HEAD_ROLES; r++) {
        h.title = h.value = head_role_table[r].heading;
        if (read_scores(g, head_role_table[r].name, 0, scores)) heat_put(task->figure, &h);
    }
    const int copying = read_scores(g, "copying", -1, scores);
    h.title = h.value = "copying";
    h.colors = HEAT_DIVERGING;
    if (copying) heat_put(task->figure, &h);
    figure_new_row(task->figure);
    heat_bar_put(task->figure, HEAT_SEQUENTIAL, 0, 1, "mean weight, or share");
    if (copying) heat_bar_put(task->figure, HEAT_DIVERGING, -1, 1, "copying");
    snprintf(task->title, sizeof task->title, "What %" PRId64 " heads do", g->layers * g->heads);
    free(scores), free(names), free(rows);
}

attn_status plot_roles(plot_task *task, attn_error *error)
{
    const source *from = &task->sources[0];
    head_grid g = {0};
    const attn_status status = read_grid(&g, from, task->settings->entry < 0 ? 0 : task->settings->entry, error);
    if (status == ATTN_OK) draw_roles(task, &g);
    snprintf(task->about, sizeof task->about, "%.150s", from->path);
    task->note = "Means over the rows where such a key exists, from 0 to 1. A role says where weights go, not why: it is a "
                 "diagnostic, no explanation.";
    free(g.head), free(g.layer_number);
    return status;
}
