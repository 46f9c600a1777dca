/* SPDX-License-Identifier: MIT
 * distance.h - the bucket of a distance: T5's, or clipped. */
#ifndef ATTN_BASE_DISTANCE_H
#define ATTN_BASE_DISTANCE_H

#include "attn/position.h"

/* *resolved is the rule with its defaults filled in. */
attn_status attn_distance_resolve(const attn_distance_bias *rule, attn_distance_bias *resolved, attn_error *error);

/* The bucket of distance d, by a resolved rule. */
int64_t attn_distance_bucket_of(const attn_distance_bias *rule, int64_t d);

#endif
