/* SPDX-License-Identifier: MIT
 *
 * memory.h - how much a file may unpack to.
 */
#ifndef ATTN_IO_MEMORY_H
#define ATTN_IO_MEMORY_H

#include <stdint.h>

/* Bytes of memory that this machine has; UINT64_MAX if it does not say. */
uint64_t attn_io_machine_memory(void);

#endif
