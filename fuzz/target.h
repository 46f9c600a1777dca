/* SPDX-License-Identifier: MIT
 * target.h - what fuzz targets of the interface share: their main, which draws cases from a seed (numbered.h), and how they end.
 *
 *      test_fuzz_NAME --seconds=S --seed=N [--first=I] [--cases=C]
 *
 * With FUZZ_ENGINE there is no main and the target is a libFuzzer program.  A finding is printed with its seed and number, and
 * aborts; what a sanitizer finds is named by FUZZ_TRACE=1, which prints each number before it runs, and shown by FUZZ_PRINT=1. */
#ifndef ATTN_FUZZ_TARGET_H
#define ATTN_FUZZ_TARGET_H

#include "attn/attn.h"
#include "draws.h"

/* ---- each target has ---- */
void target_run(draws *from);          /* draws a case, runs it, judges it and frees it */
void target_print(void);               /* the case that runs */
extern const char *const target_cases; /* what they are called */

/* ---- target.c ---- */
extern long target_ran, target_rejected;
_Noreturn void finding(const char *what, ...);
/* The error fits the status: one line of text where it is none, nothing where it is ATTN_OK. */
void check_error(attn_status status, const attn_error *error);
/* To be called when a case is drawn: prints it if FUZZ_PRINT asks. */
void target_drawn(void);

#endif
