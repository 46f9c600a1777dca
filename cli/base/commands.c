/* SPDX-License-Identifier: MIT
 *
 * commands.c - error messages and exit statuses of the commands. */
#include "commands.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "testing/text/failure.h"
#include "testing/text/json.h"
#include "testing/text/shown.h"

static const char *program = "attn";
static int is_mute;
static attn_error unsaid;

void command_begin(const char *name, int mute)
{
    program = name;
    is_mute = mute;
}

const char *command_program(void) { return program; }

const attn_error *command_unsaid(void) { return &unsaid; }

enum { MOST_WARNINGS = 4, WARNING = 240 };
static char warnings[MOST_WARNINGS][WARNING];
static int warning_count;

void command_warn(const char *format, ...)
{
    va_list values;
    if (warning_count == MOST_WARNINGS) return;
    va_start(values, format);
    (void)vsnprintf(warnings[warning_count], WARNING, format, values);
    va_end(values);
    for (int n = 0; n < warning_count; n++)
        if (strcmp(warnings[n], warnings[warning_count]) == 0) return; /* a command may read its input twice */
    warning_count++;
}

void command_json_warnings(struct cJSON *object)
{
    cJSON *list = warning_count ? json_list(object, "warnings") : NULL;
    for (int n = 0; n < warning_count; n++) cJSON_AddItemToArray(list, cJSON_CreateString(warnings[n]));
}

static void print_warnings(const char *command)
{
    for (int n = 0; n < warning_count && !is_mute; n++) {
        fprintf(stderr, "%s %s: warning: ", program, command);
        put_shown(stderr, warnings[n]);
        fputc('\n', stderr);
    }
}

static int exit_status(attn_status status)
{
    return status == ATTN_OK ? EXIT_DONE : status == ATTN_ERR_UNSUPPORTED ? EXIT_UNSUPPORTED : EXIT_USAGE;
}

/* Names of the library in its messages, and what users type: in problem strings, and as flags. */
static const struct {
    const char *name, *word, *flag;
} user_names[] = {{"ATTN_FORWARD", "fwd", "forward"},
                  {"ATTN_BACKWARD", "bwd", "--backward"},
                  {"ATTN_JVP", "jvp", "--jvp"},
                  {"ATTN_DOUBLE_BACKWARD", "bwd2", "--double-backward"},
                  {"split.part", "--part", "--part"},
                  {"split.ranks_heads", "--ranks-heads", "--ranks-heads"},
                  {"split.way", "--way", "--way"},
                  {"split.layout", "--layout", "--layout"},
                  {"split.any_order is 1", "--any-order is set", "--any-order is set"},
                  {"op is", "op is", "the operation is"},
                  {"score.kind is", "score is", "--score is"},
                  {"score.scale is", "scale is", "--scale is"},
                  {"score.softcap is", "softcap is", "--softcap is"},
                  {"score.temperature is", "temperature is", "--temperature is"},
                  {"score.normaliser is", "normaliser is", "--normaliser is"},
                  {"score.shift is", "shift is", "--shift is"},
                  {"softmax one", "softmax-one", "softmax-one"},
                  {"dropout.probability is", "dropout is", "--dropout is"},
                  {"mask.causal", "causal", "--causal"},
                  {"mask.align", "align", "--align"},
                  {"mask.chunk", "chunk", "--chunk"},
                  {"mask.empty", "empty", "--empty"},
                  {"global-local:", "longformer:", "longformer:"},
                  {"sliding window:", "sliding:", "sliding:"},
                  {"block diagonal:", "diagonal:", "diagonal:"},
                  {"block map:", "map:", "map:"},
                  {"options.threads", "--threads", "--threads"},
                  {"options.isa", "--isa", "--isa"},
                  {"options.reproducible", "--reproducible", "--reproducible"},
                  {"options.invariant", "--invariant", "--invariant"}};
enum { USER_NAMES = sizeof user_names / sizeof *user_names };

static int in_name(char c) { return isalnum((unsigned char)c) || c == '_' || c == '.'; }

void command_put(FILE *out, const char *command, const char *message)
{
    char text[2048]; /* of at most 4 letters for each letter of a message; what exceeds it is cut */
    static const char *const with_problems[] = {"make", "bench", "check", "cost", "explain"};
    int problem_string = 0;
    size_t used = 0;
    for (size_t k = 0; command && k < sizeof with_problems / sizeof *with_problems; k++)
        problem_string |= strcmp(command, with_problems[k]) == 0;
    for (const char *at = message; *at;) {
        const char *put = at;
        size_t length = 1, count = 1;
        for (int k = 0; k < USER_NAMES && (at == message || !in_name(at[-1])); k++) {
            const size_t name = strlen(user_names[k].name);
            if (strncmp(at, user_names[k].name, name) != 0 || in_name(at[name])) continue;
            put = problem_string ? user_names[k].word : user_names[k].flag;
            length = name, count = strlen(put);
        }
        if (used + count >= sizeof text) break;
        memcpy(text + used, put, count);
        used += count;
        at += length;
    }
    text[used] = 0;
    put_shown(out, text);
}

int command_fail(const char *command, const char *subject, const attn_error *error)
{
    if (is_mute) {
        unsaid = *error;
        if (subject) (void)failure_about(&unsaid, subject);
        return exit_status(error->status);
    }
    fprintf(stderr, "%s%s", program, command ? " " : "");
    put_shown(stderr, command ? command : "");
    fputs(": ", stderr);
    if (subject) {
        put_shown(stderr, subject);
        fputs(": ", stderr);
    }
    command_put(stderr, command, error->message);
    putc('\n', stderr);
    return exit_status(error->status);
}

int command_end(attn_status status, const char *command, const char *subject, const attn_error *error)
{
    if (status != ATTN_OK) return command_fail(command, subject, error);
    print_warnings(command);
    return EXIT_DONE;
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
