/* SPDX-License-Identifier: MIT
 * report.c - the results of checks. */
#include "report.h"

#include <inttypes.h>
#include <stdio.h>

#include "testing/text/failure.h"
#include "testing/text/json.h"
#include "testing/text/shown.h"

void report_begin(report *r, int json)
{
    *r = (report){0};
    if (!json) return;
    r->object = json_begin();
}

/* Names from foreign suites may contain anything. */
static void print_line(const char *begin, const char *text, const char *more)
{
    fputs(begin, stdout);
    put_shown(stdout, text);
    if (*more) putchar(' ');
    put_shown(stdout, more);
    putchar('\n');
}

void report_add(report *r, const report_entry *e)
{
    if (e->status == CHECK_PASSED) r->passed++;
    else if (e->status == CHECK_FAILED) r->failed++;
    else r->skipped++;
    if (r->object) {
        if (!r->cases) r->cases = cJSON_CreateArray(); /* added to the object last, so that the counts come first */
        cJSON *item = json_item(r->cases);
        json_text(item, "suite", e->suite);
        json_text(item, "name", e->name);
        json_text(item, "status", check_status_name(e->status));
        json_text(item, "reason", e->reason);
        json_number(item, "max_error", e->max_error);
        json_number(item, "bound_fraction", e->bound_fraction);
        json_text(item, "problem", e->problem ? e->problem : "");
    } else if (e->status == CHECK_FAILED) {
        print_line("FAILED ", e->suite, e->name);
        if (e->problem) print_line("       ", e->problem, "");
        print_line("       ", e->reason, "");
        fflush(stdout);
    }
}

int report_end(report *r)
{
    if (r->object) {
        json_int(r->object, "passed", r->passed);
        json_int(r->object, "failed", r->failed);
        json_int(r->object, "skipped", r->skipped);
        cJSON_AddItemToObject(r->object, "cases", r->cases ? r->cases : cJSON_CreateArray());
        json_end(r->object);
    } else {
        printf("%" PRId64 " passed, %" PRId64 " failed, %" PRId64 " skipped\n", r->passed, r->failed, r->skipped);
    }
    return r->failed ? EXIT_CHECK : EXIT_DONE;
}

void report_drop(report *r)
{
    cJSON_Delete(r->object);
    r->object = r->cases = NULL;
}
