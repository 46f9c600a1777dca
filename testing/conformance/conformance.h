/* SPDX-License-Identifier: MIT
 *
 * conformance.h - runs foreign test cases: a manifest.json and .safetensors files (the format is in ../../docs/conformance.md).
 */
#ifndef ATTN_TESTING_CONFORMANCE_H
#define ATTN_TESTING_CONFORMANCE_H

#include "testing/verdict/report.h"

/* Runs every suite in the subfolders of `folder`, or `folder` itself if it is a suite.  Adds each case to the report and, unless it
 * is JSON, prints a paragraph for each suite.  ATTN_ERR_ARGUMENT: no such folder, or no suite in it. */
attn_status conformance_run(const char *folder, const attn_options *options, report *results, attn_error *error);

#endif
