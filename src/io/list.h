/* SPDX-License-Identifier: MIT
 *
 * list.h - a list of structs that begin with a `const char *` name, sorted by its bytes.  Readers append all items and sort once,
 * so a file of a million names costs n log n whatever their order.
 */
#ifndef ATTN_IO_LIST_H
#define ATTN_IO_LIST_H

#include <stdbool.h>
#include <stddef.h>

typedef struct attn_io_list {
    void **items;
    size_t count;
    size_t capacity;
} attn_io_list;

/* The position of the item of this name if *found, else the position at which to insert it. */
size_t attn_io_list_search(const attn_io_list *list, const char *name, bool *found);

/* Inserts an item at `position`; false when out of memory. */
bool attn_io_list_insert(attn_io_list *list, size_t position, void *item);

/* Removes the item at `position` and returns it. */
void *attn_io_list_remove(attn_io_list *list, size_t position);

/* Frees the item at `position` and puts another one of the same name in its place. */
void attn_io_list_replace(attn_io_list *list, size_t position, void *item);

/* Sorts; returns a name that two items have, or NULL. */
const char *attn_io_list_sort(attn_io_list *list);

#endif
