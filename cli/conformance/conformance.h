/* SPDX-License-Identifier: MIT
 *
 * conformance.h - runs other people's cases: a manifest.json and .safetensors files (../../docs/conformance.md has the format).
 */
#ifndef ATTN_CLI_CONFORMANCE_CONFORMANCE_H
#define ATTN_CLI_CONFORMANCE_CONFORMANCE_H

#include "../options.h"
#include "testing/verdict/report.h"

/* Runs every suite under `folder`, or the one that `folder` is.  Adds each case to the report and prints, for people, a paragraph
 * for each suite.  Returns EXIT_DONE, or the status of what was printed on standard error: no such folder, no suite in it. */
int conformance_run(const char *folder, const common_settings *settings, report *results);

#endif
