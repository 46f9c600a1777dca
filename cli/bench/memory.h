/* SPDX-License-Identifier: MIT
 *
 * memory.h - how much memory the process holds, as the operating system counts it; memory that was never touched before.
 */
#ifndef ATTN_CLI_BENCH_MEMORY_H
#define ATTN_CLI_BENCH_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* Zeros on pages of their own, so that what is touched of them is counted; never NULL, ends the program where there are none. */
void *fresh_memory(size_t bytes);
void fresh_release(void *memory, size_t bytes);

/* Bytes that the process holds now, and the most that it held since the last memory_forget_peak; -1 where that is not known. */
int64_t memory_now(void);
int64_t memory_peak(void);

/* Returns 1 where the operating system can start counting the peak anew. */
int memory_forget_peak(void);

#endif
