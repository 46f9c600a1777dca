/* SPDX-License-Identifier: MIT
 *
 * conformance.h - runs other people's cases: a manifest.json and .safetensors files (../../docs/conformance.md has the format).
 */
#ifndef ATTN_TESTING_CONFORMANCE_H
#define ATTN_TESTING_CONFORMANCE_H

#include "testing/verdict/report.h"

/* Runs every suite under `folder`, or the one that `folder` is.  Adds each case to the report and prints, for people, a paragraph
 * for each suite.  ATTN_ERR_ARGUMENT: no such folder, no suite in it. */
attn_status conformance_run(const char *folder, const attn_options *options, report *results, attn_error *error);

#endif
