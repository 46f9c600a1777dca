/* SPDX-License-Identifier: MIT
 * target.h - shared by fuzz targets of the interface: main, which draws cases from a seed (numbered.h), and the report of findings.
 *
 *      test_fuzz_NAME --seconds=S --seed=N [--first=I] [--cases=C]
 *
 * With FUZZ_ENGINE there is no main and the target is a libFuzzer program.  A finding is printed with its seed and number, and
 * aborts.  To locate what a sanitizer finds, FUZZ_TRACE=1 prints each case's number before it runs, FUZZ_PRINT=1 the case. */
#ifndef ATTN_FUZZ_TARGET_H
#define ATTN_FUZZ_TARGET_H

#include "attn/attn.h"
#include "draws.h"

/* ---- defined by each target ---- */
void target_run(draws *from);          /* draws a case, runs, checks and frees it */
void target_print(void);               /* prints the running case */
extern const char *const target_cases; /* the plural noun for its cases */

/* ---- target.c ---- */
extern long target_ran, target_rejected;
_Noreturn void finding(const char *what, ...);
/* Checks that the error fits the status: an empty message for ATTN_OK, otherwise one line. */
void check_error(attn_status status, const attn_error *error);
/* Called when a case is drawn: prints it under FUZZ_PRINT=1. */
void target_drawn(void);

#endif
