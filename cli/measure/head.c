/* SPDX-License-Identifier: MIT
 * head.c - see head.h. */
#include "head.h"

#include <time.h>

#include "cli/base/commands.h"

cJSON *measure_json_begin(void)
{
    char date[32] = "";
    const time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc)) strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    cJSON *object = json_begin();
    json_text(object, "version", attn_version());
    json_text(object, "built_with", built_with());
    json_text(object, "date", date);
    return object;
}
