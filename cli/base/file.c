/* SPDX-License-Identifier: MIT
 *
 * file.c - see file.h. */
#include "file.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tensor_view.h"
#include "testing/text/failure.h"
#include "testing/text/json.h"

static attn_unfinished unfinished;

static void remove_unfinished(void) { attn_unfinished_remove(&unfinished); }

/* The default action is restored by now (SA_RESETHAND): it ends the program when this returns. */
static void on_signal(int number)
{
    remove_unfinished();
    (void)raise(number);
}

/* Signals that do not end a program by default. */
static int is_harmless(int number)
{
    return number == SIGCHLD || number == SIGCONT || number == SIGTSTP || number == SIGTTIN || number == SIGTTOU ||
#ifdef SIGWINCH
           number == SIGWINCH ||
#endif
           number == SIGURG;
}

void file_guard(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    (void)sigfillset(&action.sa_mask);
    for (int number = 1; number <= SIGRTMAX; number++) {
        struct sigaction now;
        if (is_harmless(number) || sigaction(number, NULL, &now) != 0 || now.sa_handler != SIG_DFL) continue;
        (void)sigaction(number, &action, NULL); /* SIGKILL and SIGSTOP are rejected */
    }
    (void)signal(SIGXFSZ, SIG_IGN);
    (void)atexit(remove_unfinished);
}

void file_no_stdout(void)
{
    if (!freopen("/dev/null", "w", stdout)) (void)fclose(stdout);
}

attn_status file_write_archive(const attn_archive *archive, const char *path, attn_error *error)
{
    if (strcmp(path, "-") != 0) return attn_archive_write_watched(archive, path, &unfinished, error);
    tensor_view_print_archive(stdout, archive);
    return ATTN_OK;
}

attn_status file_write_text(const text_buffer *text, const char *path, attn_error *error)
{
    const attn_status status = text_status(text, path, error);
    return status == ATTN_OK ? attn_file_write_watched(path, text->bytes, text->count, &unfinished, error) : status;
}

attn_status file_finish(attn_status status, const attn_archive *archive, const char *path, char *json, attn_error *error)
{
    if (status == ATTN_OK && path) status = file_write_archive(archive, path, error);
    if (status == ATTN_OK) json_print(json);
    else free(json);
    return status;
}

attn_status file_check_name(const char *path, const char *ends, attn_error *error)
{
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
    const size_t length = dot ? strcspn(dot, ", ") : 0;
    if (!*path) return failure(error, ATTN_ERR_ARGUMENT, "the name of the output file is empty");
    for (const char *at = ends; length && !dot[length] && (at = strstr(at, dot)); at++)
        if (!at[length] || strchr(", ", at[length])) return ATTN_OK;
    return failure(error, ATTN_ERR_ARGUMENT, "%.150s: expected a name that ends in %s", path, ends);
}

attn_status file_check(const char *path, attn_error *error)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? need_text(path, (size_t)(slash + 1 - path)) : need_text(".", 1);
    struct stat about;
    const int exists = stat(path, &about) == 0;
    const int reason = exists && S_ISDIR(about.st_mode)    ? EISDIR
                       : exists && !S_ISREG(about.st_mode) ? EINVAL
                       : access(folder, W_OK | X_OK) != 0  ? errno
                                                           : 0;
    free(folder);
    return reason ? failure(error, ATTN_ERR_IO, "%.150s: cannot be written: %s", path, strerror(reason)) : ATTN_OK;
}

attn_status file_check_distinct(const char *output, const char *input, attn_error *error)
{
    struct stat out, in;
    if (!output || !input || stat(output, &out) != 0 || stat(input, &in) != 0) return ATTN_OK;
    if (out.st_dev != in.st_dev || out.st_ino != in.st_ino || !S_ISREG(out.st_mode)) return ATTN_OK;
    return failure(error, ATTN_ERR_ARGUMENT, "%.150s: this output is an input, which would be replaced", output);
}
