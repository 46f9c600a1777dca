/* SPDX-License-Identifier: MIT
 *
 * completions.c - see completions.h.  Commands tell what they take (options_tell_list); each shell has its own way to write it. */
#include "completions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "testing/text/failure.h"

enum { MOST = 160 };

/* What a command takes. */
typedef struct taken {
    const program_command *command;
    option_row rows[MOST];
    const char *words[MOST];
    int row_count, word_count;
} taken;

static void take_row(void *context, const option_row *row)
{
    taken *t = context;
    if (t->row_count < MOST) t->rows[t->row_count++] = *row;
}

static void take_word(void *context, const char *word)
{
    taken *t = context;
    if (t->word_count < MOST) t->words[t->word_count++] = word;
}

static void take(taken *t, const program_command *command)
{
    const option_list list = {take_row, take_word, t};
    t->command = command;
    options_tell_list(&list);
    (void)command->run(1, (char *[]){(char *)(uintptr_t)command->name, NULL});
    options_tell_list(NULL);
}

/* ---- words ---- */

static int needs_value(const option_row *row) { return row->argument && row->argument[0] != '['; }

/* 1 if a value is the name of a file. */
static int is_of_file(const option_row *row)
{
    static const char *const files[] = {"FILE", "OTHER", "DIR"};
    for (size_t k = 0; row->argument && k < sizeof files / sizeof *files; k++)
        if (strcmp(row->argument, files[k]) == 0) return 1;
    return row->ends != NULL;
}

static void put_choices(const option_row *row)
{
    for (int k = 0; row->choices && row->choices[k]; k++) printf("%s%s", k ? " " : "", row->choices[k]);
}

static void put_words(const taken *t)
{
    for (int k = 0; k < t->word_count; k++) printf("%s%s", k ? " " : "", t->words[k]);
}

static void put_commands(const program *p)
{
    for (int k = 0; k < p->count; k++) printf("%s%s", k ? " " : "", p->commands[k].name);
}

/* A phrase of --help between single quotes, without letters that end the phrase there. */
static void put_phrase(const char *phrase, const char *without)
{
    for (const char *at = phrase; *at; at++)
        if (!strchr(without, *at)) putchar(*at);
}

/* The name of the shell's function: attn_mpi. */
static void put_function(const program *p)
{
    putchar('_');
    for (const char *at = p->name; *at; at++) putchar(*at == '-' ? '_' : *at);
}

/* ---- bash ---- */

static void bash_command(const taken *t)
{
    int with_choices = 0;
    printf("    %s)\n        words='", t->command->name);
    put_words(t);
    printf("'\n        flags='");
    for (int k = 0; k < t->row_count; k++) printf("%s--%s%s", k ? " " : "", t->rows[k].name, needs_value(&t->rows[k]) ? "=" : "");
    printf("'\n");
    for (int k = 0; k < t->row_count; k++) {
        if (!t->rows[k].choices) continue;
        if (!with_choices++) printf("        case $flag in\n");
        if (needs_value(&t->rows[k])) printf("        --%s | ", t->rows[k].name); /* in the next word; else after a = alone */
        else printf("        ");
        printf("=--%s) values='", t->rows[k].name);
        put_choices(&t->rows[k]);
        printf("' ;;\n");
    }
    printf("%s        ;;\n", with_choices ? "        esac\n" : "");
}

static void print_bash(const program *p, const taken *all)
{
    printf("# bash completion of %s, printed by `%s completions bash`\n\n", p->name, p->name);
    put_function(p);
    printf("()\n{\n"
           "    local cur=${COMP_WORDS[COMP_CWORD]} last=${COMP_WORDS[COMP_CWORD-1]} flag= words= flags= values=\n"
           "    COMPREPLY=()\n"
           "    # the = between a flag and its value is a word of its own\n"
           "    if [[ $cur == = ]]; then\n"
           "        flag==$last cur=\n"
           "    elif [[ $last == = ]]; then\n"
           "        flag==${COMP_WORDS[COMP_CWORD-2]}\n"
           "    else\n"
           "        flag=$last\n"
           "    fi\n"
           "    if ((COMP_CWORD == 1)); then\n"
           "        COMPREPLY=($(compgen -W '");
    put_commands(p);
    printf(" help completions --help --version' -- \"$cur\"))\n"
           "        return\n"
           "    fi\n"
           "    case ${COMP_WORDS[1]} in\n"
           "    help) values='");
    put_commands(p);
    printf("' ;;\n    completions) values='bash zsh fish' ;;\n");
    for (int k = 0; k < p->count; k++) bash_command(&all[k]);
    printf("    esac\n"
           "    if [[ $values ]]; then\n"
           "        COMPREPLY=($(compgen -W \"$values\" -- \"$cur\"))\n"
           "    elif [[ $cur == -* ]]; then\n"
           "        COMPREPLY=($(compgen -W \"$flags\" -- \"$cur\"))\n"
           "        if [[ ${COMPREPLY[0]} == *= ]]; then compopt -o nospace 2>/dev/null; fi\n"
           "    else\n"
           "        compopt -o filenames 2>/dev/null\n"
           "        COMPREPLY=($(compgen -W \"$words\" -- \"$cur\") $(compgen -f -- \"$cur\"))\n"
           "    fi\n"
           "    return 0\n" /* compopt fails where nothing is completed */
           "} &&\n"
           "    complete -F ");
    put_function(p);
    printf(" %s\n", p->name);
}

/* ---- zsh ---- */

static void zsh_command(const taken *t)
{
    printf("    %s)\n        _arguments -s", t->command->name);
    for (int k = 0; k < t->row_count; k++) {
        const option_row *row = &t->rows[k];
        if (row->letter) printf(" \\\n            '(--%s)-%c%s[", row->name, row->letter, needs_value(row) ? "+" : "");
        if (row->letter) put_phrase(row->help, "'[]:\\");
        if (row->letter) printf("]%s'", !row->argument ? "" : is_of_file(row) ? ":file:_files" : ":value: ");
        printf(" \\\n            '--%s%s[", row->name, !row->argument ? "" : needs_value(row) ? "=" : "=-");
        put_phrase(row->help, "'[]:\\");
        putchar(']');
        if (row->choices) {
            printf("%s:value:(", needs_value(row) ? "" : ":");
            put_choices(row);
            putchar(')');
        } else if (row->argument) {
            printf("%s", is_of_file(row) ? ":file:_files" : needs_value(row) ? ":value: " : "::value: ");
        }
        putchar('\'');
    }
    if (t->word_count) {
        printf(" \\\n            '1:word:(");
        put_words(t);
        printf(")'");
    }
    printf(" \\\n            '*:file:_files'\n        ;;\n");
}

static void print_zsh(const program *p, const taken *all)
{
    printf("#compdef %s\n# zsh completion of %s, printed by `%s completions zsh`\n\nlocal -a commands\ncommands=(", p->name,
           p->name, p->name);
    for (int k = 0; k < p->count; k++) {
        printf("\n    '%s:", p->commands[k].name);
        put_phrase(p->commands[k].help, "':\\");
        putchar('\'');
    }
    printf("\n    'help:print the help of a command'\n    'completions:print completions for bash, zsh or fish'\n)\n"
           "if ((CURRENT == 2)); then\n"
           "    _describe command commands\n"
           "else\n"
           "    shift words\n"
           "    ((CURRENT--))\n"
           "    case $words[1] in\n"
           "    help) _describe command commands ;;\n"
           "    completions) compadd bash zsh fish ;;\n");
    for (int k = 0; k < p->count; k++) zsh_command(&all[k]);
    printf("    esac\nfi\n");
}

/* ---- fish ---- */

static void fish_command(const program *p, const taken *t)
{
    for (int k = 0; k < t->row_count; k++) {
        const option_row *row = &t->rows[k];
        printf("complete -c %s -n '__fish_seen_subcommand_from %s' -l %s", p->name, t->command->name, row->name);
        if (row->letter) printf(" -s %c", row->letter);
        if (row->choices) {
            printf("%s -a '", needs_value(row) ? " -x" : "");
            put_choices(row);
            putchar('\'');
        } else if (needs_value(row)) {
            printf("%s", is_of_file(row) ? " -r -F" : " -x");
        }
        printf(" -d '");
        put_phrase(row->help, "'\\");
        printf("'\n");
    }
    if (!t->word_count) return;
    printf("complete -c %s -n '__fish_seen_subcommand_from %s' -a '", p->name, t->command->name);
    put_words(t);
    printf("'\n");
}

static void print_fish(const program *p, const taken *all)
{
    printf("# fish completion of %s, printed by `%s completions fish`\n", p->name, p->name);
    for (int k = 0; k < p->count; k++) {
        printf("complete -c %s -n __fish_use_subcommand -f -a %s -d '", p->name, p->commands[k].name);
        put_phrase(p->commands[k].help, "'\\");
        printf("'\n");
    }
    printf("complete -c %s -n __fish_use_subcommand -f -a help -d 'print the help of a command'\n"
           "complete -c %s -n __fish_use_subcommand -f -a completions -d 'print completions for a shell'\n"
           "complete -c %s -n '__fish_seen_subcommand_from completions' -f -a 'bash zsh fish'\n"
           "complete -c %s -n '__fish_seen_subcommand_from help' -f -a '",
           p->name, p->name, p->name, p->name);
    put_commands(p);
    printf("'\n");
    for (int k = 0; k < p->count; k++) fish_command(p, &all[k]);
}

/* ---- a shell ---- */

void completions_help(const program *p)
{
    printf("usage: %s completions SHELL\n\n"
           "Prints a script that completes commands, options and their values in bash, zsh or fish.\n\n"
           "Examples:\n"
           "  source <(%s completions bash)\n"
           "  %s completions zsh >DIRECTORY/_%s    # a directory of $fpath\n"
           "  %s completions fish | source\n",
           p->name, p->name, p->name, p->name, p->name);
}

attn_status completions_print(const program *p, const char *shell, attn_error *error)
{
    static const struct {
        const char *name;
        void (*print)(const program *p, const taken *all);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    enum { SHELLS = sizeof shells / sizeof *shells };
    int k = 0;
    while (k < SHELLS && !(shell && strcmp(shells[k].name, shell) == 0)) k++;
    if (k == SHELLS && !shell) return failure(error, ATTN_ERR_ARGUMENT, "no shell; for example: %s completions bash", p->name);
    if (k == SHELLS) return failure(error, ATTN_ERR_ARGUMENT, "'%.40s' is not bash, zsh or fish", shell);
    taken *all = need_memory(p->count, sizeof *all);
    for (int c = 0; c < p->count; c++) take(&all[c], &p->commands[c]);
    shells[k].print(p, all);
    free(all);
    return ATTN_OK;
}
