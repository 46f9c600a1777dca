/* SPDX-License-Identifier: MIT
 * program.c - see program.h. */
#include "program.h"

#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "completions.h"
#include "testing/text/failure.h"
#include "testing/text/nearest.h"

static void print_help(const program *p)
{
    printf("usage: %s COMMAND [options]\n\n%s\n\n", p->name, p->about);
    for (int k = 0; k < p->count; k++) {
        if (p->commands[k].group) printf("%s%s:\n", k ? "\n" : "", p->commands[k].group);
        printf("  %s %-8s %-21s %s\n", p->name, p->commands[k].name, p->commands[k].synopsis, p->commands[k].help);
    }
    printf("\n`%s help COMMAND` (or COMMAND --help) lists its options; `man %s` documents everything.\n"
           "`%s completions bash` (zsh, fish) prints a script that completes words in a shell.\n",
           p->name, p->name, p->name);
}

static int unknown_command(const program *p, const char *name)
{
    attn_error error;
    char hint[120];
    nearest near;
    if (name[0] == '-') {
        failure(&error, ATTN_ERR_ARGUMENT, "unknown option '%.40s' before a command; `%s --help` lists the commands", name,
                p->name);
        return command_fail(NULL, NULL, &error);
    }
    nearest_init(&near, name);
    for (int k = 0; k < p->count; k++) nearest_offer(&near, p->commands[k].name);
    nearest_print(&near, "", hint, sizeof hint);
    failure(&error, ATTN_ERR_ARGUMENT, "unknown command '%.40s'%s", name, hint);
    return command_fail(NULL, NULL, &error);
}

static int asks_help(const char *word)
{
    return strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

/* Output that could not be written is an error like any other. */
static int finish(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return status;
    attn_error error;
    failure(&error, ATTN_ERR_IO, "standard output cannot be written");
    return command_fail(NULL, NULL, &error);
}

int program_run(const program *p, int argc, char **argv)
{
    if (argc < 2) {
        attn_error error;
        failure(&error, ATTN_ERR_ARGUMENT, "no command; `%s --help` lists them", p->name);
        return command_fail(NULL, NULL, &error);
    }
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        printf("%s %s\n", p->name, attn_version());
        return finish(EXIT_DONE);
    }
    const int help = asks_help(name);
    if (help && (argc < 3 || asks_help(argv[2]))) {
        print_help(p);
        return finish(EXIT_DONE);
    }
    if (strcmp(help ? argv[2] : name, "completions") == 0 && (help || (argc > 2 && asks_help(argv[2])))) {
        completions_help(p);
        return finish(EXIT_DONE);
    }
    if (strcmp(name, "completions") == 0) {
        attn_error error;
        if (argc > 3) return command_fail_operand(name, argv[3]);
        return finish(command_end(completions_print(p, argv[2], &error), name, NULL, &error));
    }
    if (help) name = argv[2];
    for (int k = 0; k < p->count; k++) {
        if (strcmp(name, p->commands[k].name) != 0) continue;
        if (help) return finish(p->commands[k].run(2, (char *[]){argv[2], (char[]){"--help"}, NULL}));
        return finish(p->commands[k].run(argc - 1, argv + 1));
    }
    return unknown_command(p, name);
}
