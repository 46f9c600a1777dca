/* SPDX-License-Identifier: MIT
 * evaluation.c - the result of a case, and lookups in its manifest entry. */
#include "evaluation.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

void conclude(evaluation *e, check_status status, const char *format, ...)
{
    va_list list;
    if (e->status != CHECK_PASSED) return;
    va_start(list, format);
    vsnprintf(e->reason, sizeof e->reason, format, list);
    va_end(list);
    e->status = status;
}

const char *text_in(const cJSON *object, const char *name)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsString(value) ? value->valuestring : "";
}

double number_in(const cJSON *object, const char *name, double otherwise)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsNumber(value) ? value->valuedouble : otherwise;
}

double tolerance_in(const cJSON *json, const char *name, const char *other, double otherwise)
{
    const cJSON *all = cJSON_GetObjectItemCaseSensitive(json, "tolerance");
    return number_in(all, name, number_in(all, other, otherwise));
}

double largest_of(const double *x, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(x[i]));
    return most;
}
