/* SPDX-License-Identifier: MIT
 * target.c - see target.h. */
#include "target.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "numbered.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

long target_ran, target_rejected;

static numbered run; /* the source of the program's cases */

_Noreturn void finding(const char *what, ...)
{
    va_list arguments;
    va_start(arguments, what);
    fprintf(stderr, "FINDING --seed=%" PRIu64 " --first=%" PRIu64 " --cases=1: ", run.seed, run.number);
    vfprintf(stderr, what, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    target_print();
    abort();
}

void check_error(attn_status status, const attn_error *error)
{
    if (error->status != status) finding("status %d, but error.status is %d", (int)status, (int)error->status);
    if (!memchr(error->message, 0, sizeof error->message) || strchr(error->message, '\n')) finding("the message is not one line");
    if ((status != ATTN_OK) != (error->message[0] != 0)) finding("status %d with message '%s'", (int)status, error->message);
}

void target_drawn(void)
{
    if (getenv("FUZZ_PRINT")) target_print();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    draws from = draws_from(bytes, size);
    target_run(&from);
    return 0;
}

#ifndef FUZZ_ENGINE
int main(int count, char **arguments)
{
    draws mixed;
    numbered_begin(&run, 15, count, arguments);
    while (numbered_next(&run, &mixed)) {
        uint64_t bytes[4];
        for (int i = 0; i < 4; i++) bytes[i] = draw_word(&mixed);
        if (getenv("FUZZ_TRACE")) fprintf(stderr, "--seed=%" PRIu64 " --first=%" PRIu64 " --cases=1\n", run.seed, run.number);
        LLVMFuzzerTestOneInput((const uint8_t *)bytes, sizeof bytes);
    }
    printf("seed %" PRIu64 ": %" PRIu64 " %s, %ld ran, %ld rejected\n", run.seed, run.done, target_cases, target_ran,
           target_rejected);
    return 0;
}
#endif
