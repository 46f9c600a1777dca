/* SPDX-License-Identifier: MIT
 * test.h - what every C test includes first: cmocka with the headers that it wants before it. */
#ifndef ATTN_TEST_H
#define ATTN_TEST_H

#define _POSIX_C_SOURCE 200809L /* setenv, and threads */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* How many of n random cases are drawn: without a sanitizer all of them, and as much fewer as each takes longer under one.  (What
 * the thread sanitizer looks for depends on the walk and its options, of which combination/walks leaves none out, and not on
 * numbers.) */
#if defined(__SANITIZE_THREAD__)
#define CASES(n) ((n) / 12)
#define EVERY(n) (19 * (n)) /* the step through a table of cases, likewise */
#elif defined(__SANITIZE_ADDRESS__)
#define CASES(n) ((n) / 4)
#define EVERY(n) (7 * (n))
#else
#define CASES(n) (n)
#define EVERY(n) (n)
#endif

#endif
