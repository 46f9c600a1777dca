/* SPDX-License-Identifier: MIT
 *
 * parts.h - the queries of one device, with all keys, over the parts of attn/distributed.h: without messages, since XLA has
 * gathered the keys. */
#ifndef ATTN_PYTHON_XLA_PARTS_H
#define ATTN_PYTHON_XLA_PARTS_H

#include <attn/attn.h>

/* Plans and runs a problem, with memory of its own.  tensors->call has an origin. */
attn_status xla_compute_parts(const attn_problem *problem, const attn_tensors *tensors, int64_t part, const attn_options *options,
                              attn_error *error);

#endif
