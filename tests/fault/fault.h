/* SPDX-License-Identifier: MIT
 *
 * fault.h - makes a chosen allocation fail.  interpose.c replaces malloc and related functions in the whole process, for other
 * libraries too; wrap.c, for builds with sanitizers (which replace them already), only the calls of our own objects.
 */
#ifndef ATTN_TESTS_FAULT_H
#define ATTN_TESTS_FAULT_H

/* From here on the n-th allocation fails, once; 0: none does. */
void fault_arm(long n);

/* Disarms.  Returns 1 if the n-th allocation was reached, and failed. */
int fault_disarm(void);

/* Blocks allocated and not yet freed; always 0 with wrap.c, where sanitizers find leaks. */
long fault_live(void);

#endif
