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

/* The whole test cannot run here; ctest counts it as skipped. */
#define SKIP_TEST(reason) (printf("skipped: %s\n", reason), 77)

#endif
