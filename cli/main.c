/* SPDX-License-Identifier: MIT
 *
 * main.c - attn: passes the command line to one of the commands. */
#include <stdio.h>
#include <string.h>

#include "cli/base/commands.h"
#include "cli/base/file.h"
#include "testing/text/failure.h"
#include "testing/text/json.h"
#include "testing/text/nearest.h"

typedef struct command {
    const char *name;
    const char *synopsis;
    const char *help;
    int (*run)(int argc, char **argv);
} command;

static const command commands[] = {
    {"run", "IN -o OUT", "compute attention over the tensors of a file", attn_cmd_run},
    {"top", "IN --token WORD", "list what a token attends to, by layer and head", attn_cmd_top},
    {"view", "IN -o PAGE.html", "write one page that shows all weights in a browser", attn_cmd_view},
    {"plot", "KIND IN... -o OUT.svg", "draw what the other commands wrote", attn_cmd_plot},
#if ATTN_CLI_LAYERS
    {"layer", "IN -o OUT", "run an attention layer with weights from a file", attn_cmd_layer},
#endif
    {"analyze", "IN", "print entropy and diversity of heads, and norms of gradients", attn_cmd_analyze},
    {"mask", "NAME... -n N", "print a mask as text or a picture, and what it saves", attn_cmd_mask},
    {"hopfield", "IN [-o OUT]", "store patterns and retrieve them from noisy ones", attn_cmd_hopfield},
    {"einsum", "CONTRACTION", "explain a contraction: indices, shapes, cost", attn_cmd_einsum},
    {"check", "[PROBLEM...]", "check every kernel of this CPU against the reference", attn_cmd_check},
    {"bench", "[PROBLEM...]", "measure speed as a share of what this CPU can do", attn_cmd_bench},
    {"info", "", "print what this CPU and this build can do", attn_cmd_info},
    {"explain", "PROBLEM", "print which kernel, tiles and memory a problem gets, and why", attn_cmd_explain},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void print_help(void)
{
    printf(
        "usage: attn COMMAND [options]\n\nAttention over tensors in files, exact up to rounding, in memory linear in the sequence "
        "length.\n\n");
    for (int k = 0; k < COMMANDS; k++) printf("  attn %-8s %-21s %s\n", commands[k].name, commands[k].synopsis, commands[k].help);
    printf("\n`attn COMMAND --help` lists the options of a command; `man attn` documents everything.\n");
}

static int unknown_command(const char *name)
{
    attn_error error;
    char hint[120];
    nearest near;
    if (name[0] == '-') {
        failure(&error, ATTN_ERR_ARGUMENT, "unknown option '%.40s' before a command; `attn --help` lists the commands", name);
        return command_fail(NULL, NULL, &error);
    }
    nearest_init(&near, name);
    for (int k = 0; k < COMMANDS; k++) nearest_offer(&near, commands[k].name);
    nearest_print(&near, "", hint, sizeof hint);
    failure(&error, ATTN_ERR_ARGUMENT, "unknown command '%.40s'%s", name, hint);
    return command_fail(NULL, NULL, &error);
}

/* Output that could not be written is an error like any other. */
static int finish(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return status;
    attn_error error;
    failure(&error, ATTN_ERR_IO, "standard output cannot be written");
    return command_fail(NULL, NULL, &error);
}

int main(int argc, char **argv)
{
    file_guard();
    json_need_memory();
    if (argc < 2) {
        attn_error error;
        failure(&error, ATTN_ERR_ARGUMENT, "no command; `attn --help` lists them");
        return command_fail(NULL, NULL, &error);
    }
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        printf("attn %s\n", attn_version());
        return finish(EXIT_DONE);
    }
    int help = strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0;
    if (help && argc < 3) {
        print_help();
        return finish(EXIT_DONE);
    }
    if (help) name = argv[2];
    for (int k = 0; k < COMMANDS; k++) {
        if (strcmp(name, commands[k].name) != 0) continue;
        if (help) return finish(commands[k].run(2, (char *[]){argv[2], (char[]){"--help"}, NULL}));
        return finish(commands[k].run(argc - 1, argv + 1));
    }
    return unknown_command(name);
}
