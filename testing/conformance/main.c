/* SPDX-License-Identifier: MIT
 * main.c - attn-conformance: foreign test cases.  Built beside attn, not installed; run by `attn check --conformance DIR`. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance.h"
#include "testing/text/failure.h"
#include "testing/text/json.h"
#include "testing/text/shown.h"

static int fail(const char *program, const char *message)
{
    put_shown(stderr, program);
    fputs(": ", stderr);
    put_shown(stderr, message);
    putc('\n', stderr);
    return EXIT_USAGE;
}

static attn_isa isa_named(const char *name)
{
    enum { MAX_ISAS = 64 };
    for (int isa = ATTN_ISA_DEFAULT + 1; isa < MAX_ISAS; isa++)
        if (strcmp(name, attn_isa_name((attn_isa)isa)) == 0) return (attn_isa)isa;
    return ATTN_ISA_DEFAULT;
}

int main(int argc, char **argv)
{
    static const struct option flags[] = {
        {"isa", required_argument, NULL, 'i'}, {"json", no_argument, NULL, 'j'}, {"threads", required_argument, NULL, 't'}, {0}};
    attn_options options = {.struct_size = sizeof options};
    attn_error error;
    report results;
    int json = 0, known = 1;
    for (int flag; (flag = getopt_long(argc, argv, ":", flags, NULL)) != -1;) {
        if (flag == 'i') known &= (options.isa = isa_named(optarg)) != ATTN_ISA_DEFAULT;
        else if (flag == 't') options.threads = (int)strtol(optarg, NULL, 10);
        else if (flag == 'j') json = 1;
        else known = 0;
    }
    if (!known || optind != argc - 1)
        return fail(argv[0], "usage: attn-conformance DIR [--json] [--threads=N] [--isa=NAME], a directory of suites, or a suite");
    json_need_memory();
    report_begin(&results, json);
    if (conformance_run(argv[optind], &options, &results, &error) != ATTN_OK) {
        report_drop(&results);
        return fail(argv[0], error.message);
    }
    const int status = report_end(&results);
    return fflush(stdout) == 0 && !ferror(stdout) ? status : fail(argv[0], "standard output cannot be written");
}
