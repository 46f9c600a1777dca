/* SPDX-License-Identifier: MIT
 *
 * list.h - a list of structs that begin with a `const char *` name, in byte order of it.  Readers append all and sort once, so a
 * file of a million names costs n log n whatever their order.
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

/* Where an item of this name is, or would be inserted; *found tells which. */
size_t attn_io_list_search(const attn_io_list *list, const char *name, bool *found);

/* Puts an item before number `position`; false when out of memory. */
bool attn_io_list_insert(attn_io_list *list, size_t position, void *item);

/* Takes item number `position` out, and returns it. */
void *attn_io_list_remove(attn_io_list *list, size_t position);

/* Frees item number `position` and puts another one of that name in its place. */
void attn_io_list_replace(attn_io_list *list, size_t position, void *item);

/* Sorts; returns a name that two items have, or NULL. */
const char *attn_io_list_sort(attn_io_list *list);

#endif
