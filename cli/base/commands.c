/* SPDX-License-Identifier: MIT
 *
 * commands.c - error messages and exit statuses of the commands. */
#include "commands.h"

#include <stdio.h>

#include "testing/text/failure.h"
#include "testing/text/shown.h"

static int exit_status(attn_status status)
{
    return status == ATTN_OK ? EXIT_DONE : status == ATTN_ERR_UNSUPPORTED ? EXIT_UNSUPPORTED : EXIT_USAGE;
}

int command_fail(const char *command, const char *subject, const attn_error *error)
{
    fputs(command ? "attn " : "attn", stderr);
    put_shown(stderr, command ? command : "");
    fputs(": ", stderr);
    if (subject) {
        put_shown(stderr, subject);
        fputs(": ", stderr);
    }
    put_shown(stderr, error->message);
    putc('\n', stderr);
    return exit_status(error->status);
}

int command_fail_operand(const char *command, const char *operand)
{
    attn_error error;
    failure(&error, ATTN_ERR_ARGUMENT, "unexpected argument '%.80s'", operand);
    return command_fail(command, NULL, &error);
}

int command_fail_missing(const char *command, const char *what, const char *example)
{
    attn_error error;
    failure(&error, ATTN_ERR_ARGUMENT, "no %s; for example: %s", what, example);
    return command_fail(command, NULL, &error);
}

const char *built_with(void)
{
#if defined(__clang__)
    return "clang " __clang_version__ ATTN_CLI_FEATURES;
#elif defined(__GNUC__)
    return "gcc " __VERSION__ ATTN_CLI_FEATURES;
#else
    return "an unknown compiler" ATTN_CLI_FEATURES;
#endif
}
