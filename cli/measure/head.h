/* SPDX-License-Identifier: MIT
 *
 * head.h - the beginning of a JSON object of measurements. */
#ifndef ATTN_CLI_MEASURE_HEAD_H
#define ATTN_CLI_MEASURE_HEAD_H

#include "testing/text/json.h"

/* An object with `version`, `built_with` and `date`. */
cJSON *measure_json_begin(void);

#endif
