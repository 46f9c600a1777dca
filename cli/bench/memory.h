/* SPDX-License-Identifier: MIT
 *
 * memory.h - how much memory the process holds, as the operating system counts it; memory not touched before.
 */
#ifndef ATTN_CLI_BENCH_MEMORY_H
#define ATTN_CLI_BENCH_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* Zeros on pages of their own, so that touched pages are counted; never NULL: ends the program if out of memory. */
void *fresh_memory(size_t bytes);
void fresh_release(void *memory, size_t bytes);

/* Bytes that the process holds now, and the most that it held since the last memory_forget_peak; -1 if unknown. */
int64_t memory_now(void);
int64_t memory_peak(void);

/* Resets the peak.  Returns 0 if the operating system cannot. */
int memory_forget_peak(void);

#endif
