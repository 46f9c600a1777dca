/* SPDX-License-Identifier: MIT
 *
 * memory.c - see memory.h. */
#include "memory.h"

#include <unistd.h>

uint64_t attn_io_machine_memory(void)
{
    long pages = -1, page = sysconf(_SC_PAGESIZE);
#ifdef _SC_PHYS_PAGES
    pages = sysconf(_SC_PHYS_PAGES);
#endif
    return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_MAX;
}
