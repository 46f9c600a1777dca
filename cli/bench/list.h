/* SPDX-License-Identifier: MIT
 * list.h - `attn bench --list`: what can be measured. */
#ifndef ATTN_CLI_BENCH_LIST_H
#define ATTN_CLI_BENCH_LIST_H

#include "registry.h"

void bench_list(const registry_sizes *sizes, int json);

#endif
