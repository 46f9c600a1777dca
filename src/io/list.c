/* SPDX-License-Identifier: MIT
 *
 * list.c - sorted lists of named items.
 */
#include "list.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char *item_name(const void *item) { return *(const char *const *)item; }

static const char *name_at(const attn_io_list *list, size_t i) { return item_name(list->items[i]); }

size_t attn_io_list_search(const attn_io_list *list, const char *name, bool *found)
{
    size_t low = 0, high = list->count;
    *found = false;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(name_at(list, middle), name);
        if (order == 0) *found = true;
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return low;
}

bool attn_io_list_insert(attn_io_list *list, size_t position, void *item)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 8;
        void **grown = capacity > SIZE_MAX / sizeof *grown ? NULL : realloc(list->items, capacity * sizeof *grown);
        if (!grown) return false;
        list->items = grown;
        list->capacity = capacity;
    }
    memmove(list->items + position + 1, list->items + position, (list->count - position) * sizeof *list->items);
    list->items[position] = item;
    list->count++;
    return true;
}

void *attn_io_list_remove(attn_io_list *list, size_t position)
{
    void *item = list->items[position];
    list->count--;
    memmove(list->items + position, list->items + position + 1, (list->count - position) * sizeof *list->items);
    return item;
}

void attn_io_list_replace(attn_io_list *list, size_t position, void *item)
{
    free(list->items[position]);
    list->items[position] = item;
}

static int compare(const void *left, const void *right)
{
    return strcmp(item_name(*(void *const *)left), item_name(*(void *const *)right));
}

const char *attn_io_list_sort(attn_io_list *list)
{
    if (list->count > 1) qsort(list->items, list->count, sizeof *list->items, compare);
    for (size_t i = 1; i < list->count; i++)
        if (!compare(&list->items[i - 1], &list->items[i])) return name_at(list, i);
    return NULL;
}
