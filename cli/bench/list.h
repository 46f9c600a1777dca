/* SPDX-License-Identifier: MIT
 * list.h - `attn bench --list`: what can be measured, and its names in other benchmarks. */
#ifndef ATTN_CLI_BENCH_LIST_H
#define ATTN_CLI_BENCH_LIST_H

void bench_list(int json);

#endif
