/* SPDX-License-Identifier: MIT
 *
 * fault.h - memory that fails when it is told to.  interpose.c replaces malloc and its kin in the whole process, other libraries
 * included; wrap.c, for builds with sanitizers (which replace them already), those that our own objects call.
 */
#ifndef ATTN_TESTS_FAULT_H
#define ATTN_TESTS_FAULT_H

/* From here on the n-th allocation fails, once; 0: none does. */
void fault_arm(long n);

/* Disarms.  Returns 1 if the n-th allocation came, and failed. */
int fault_disarm(void);

/* Blocks allocated and not yet freed. */
long fault_live(void);

#endif
