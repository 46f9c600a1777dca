/* SPDX-License-Identifier: MIT
 *
 * commands.c - error messages and exit statuses of the commands. */
#include "commands.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "testing/text/failure.h"
#include "testing/text/shown.h"

static int exit_status(attn_status status)
{
    return status == ATTN_OK ? EXIT_DONE : status == ATTN_ERR_UNSUPPORTED ? EXIT_UNSUPPORTED : EXIT_USAGE;
}

/* Names of the library in its messages, and what they are in problem strings and in the flags of attn run. */
static const struct {
    const char *name, *word, *flag;
} own_words[] = {{"ATTN_FORWARD", "fwd", "forward"},
                 {"ATTN_BACKWARD", "bwd", "--backward"},
                 {"ATTN_JVP", "jvp", "--jvp"},
                 {"ATTN_DOUBLE_BACKWARD", "bwd2", "--double-backward"},
                 {"op is", "op is", "the operation is"},
                 {"score.normaliser is", "normaliser is", "--normaliser is"},
                 {"score.kind is", "score is", "--score is"}};
enum { OWN_WORDS = sizeof own_words / sizeof *own_words };

static int in_name(char c) { return isalnum((unsigned char)c) || c == '_' || c == '.'; }

static void put_in_own_words(const char *command, const char *message)
{
    char text[4 * sizeof((attn_error *)0)->message]; /* the longest replacement has four times the letters */
    const int runs = command && strcmp(command, "run") == 0;
    size_t used = 0;
    for (const char *at = message; *at;) {
        const char *put = at;
        size_t length = 1, count = 1;
        for (int k = 0; k < OWN_WORDS && (at == message || !in_name(at[-1])); k++) {
            const size_t name = strlen(own_words[k].name);
            if (strncmp(at, own_words[k].name, name) != 0 || in_name(at[name])) continue;
            put = runs ? own_words[k].flag : own_words[k].word;
            length = name, count = strlen(put);
        }
        memcpy(text + used, put, count);
        used += count;
        at += length;
    }
    text[used] = 0;
    put_shown(stderr, text);
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
    put_in_own_words(command, error->message);
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
