/* SPDX-License-Identifier: MIT
 * settings.h - the flags of `attn bench`. */
#ifndef ATTN_CLI_BENCH_SETTINGS_H
#define ATTN_CLI_BENCH_SETTINGS_H

#include "cli/base/options.h"
#include "clock.h"
#include "problems.h"

typedef struct bench_settings {
    double seconds;
    const char *problems; /* a file */
    const char *csv, *baseline;
    int list, samples;
    int64_t iterations, warmup; /* 0: --seconds; -1: the default */
    bench_clock clock;
    name_sizes sizes;
} bench_settings;

extern const bench_settings bench_defaults;
extern const option_row bench_options[], name_options[];

#endif
